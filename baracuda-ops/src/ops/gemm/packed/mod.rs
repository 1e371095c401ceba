//! Sums of products in f32 from packed factors: what products and convolutions on the CPU share.
//!
//! A task computes a tile of the output. It packs a [`BLOCK`] of terms of both factors, widened to f32, into memory that belongs to its thread, and adds
//! their products to sums there. Once all terms are in, the epilogue takes the sums line by line.
//!
//! Accumulation: in f32, in chains of [`CHAIN`] products, chains of as many of these, and one more chain. The order of the terms of a sum depends on
//! neither the tile nor the number of threads, so neither do the bits.

use std::cell::Cell;
use std::mem;

use super::chains::CHAIN;
use crate::backend::cpu::{Tensor, threads};
use crate::dtype::DType;
use crate::narrow::to_usize;
use half::{bf16, f16};

mod dpre;
mod finish;
mod isa;
mod pairs;
mod product;

pub(super) use dpre::{elementwise, stored_column_sums};
pub(in crate::ops) use finish::{Finish, Line, Places, load, store};
pub(in crate::ops) use isa::{COLS, PITCH};
use isa::{Isa, add_dot, add_multiplied, add_scaled, widen};
pub(super) use product::multiply_values;

/// Terms that are packed at once. The rows of a tile of the left factor and a panel of the right one are 24 KiB, which the first cache holds.
pub(in crate::ops) const BLOCK: usize = 128;

/// Most rows and columns of a task: its packed factors and its sums are 1.7 MiB, which the second cache of a server's core holds.
const MOST: [u64; 2] = [38 * isa::ROWS as u64, 512];
/// Most columns of a task with one panel of rows, which reads every element of the right factor once: 64 KiB of it are packed.
const MOST_COLS_OF_FEW_ROWS: u64 = 128;
/// Tasks for each thread, so that threads end together.
const TASKS: u64 = 3;
/// The fewest products of a task, unless the whole has fewer: some 20 us.
const LEAST_PRODUCTS: u64 = 1 << 20;

/// Rows and columns of the tiles of some matrices: as large as they may be where every thread has some.
pub(in crate::ops) fn tile_of(matrices: u64, extents: [u64; 2], terms: u64) -> [u64; 2] {
    let most_cols = if extents[0] <= isa::ROWS as u64 { MOST_COLS_OF_FEW_ROWS } else { MOST[1] };
    let least = [isa::ROWS as u64, COLS as u64];
    let mut parts = [extents[0].div_ceil(MOST[0]).max(1), extents[1].div_ceil(most_cols).max(1)];
    let products = [matrices, extents[0], extents[1]].into_iter().fold(terms, u64::saturating_mul);
    let wanted = if threads::count() == 1 { 1 } else { (TASKS * threads::count()).min(products / LEAST_PRODUCTS) };
    let of = |parts: [u64; 2], axis: usize| extents[axis].div_ceil(parts[axis]).next_multiple_of(least[axis]);
    while matrices.saturating_mul(parts[0] * parts[1]) < wanted {
        let axis = usize::from(of(parts, 1) >= of(parts, 0));
        let Some(axis) = [axis, 1 - axis].into_iter().find(|&axis| of(parts, axis) > least[axis]) else { break };
        parts[axis] += 1;
    }
    [of(parts, 0), of(parts, 1)]
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct CacheLine([f32; 16]);

/// Memory that a thread keeps from one task to the next: at most 3 MiB.
#[derive(Default)]
struct Memory {
    left: Vec<CacheLine>,
    right: Vec<CacheLine>,
    sums: Vec<CacheLine>,
    high: Vec<CacheLine>,
}

thread_local! {
    static MEMORY: Cell<Memory> = Cell::default();
}

/// At least so many numbers.
fn numbers(memory: &mut Vec<CacheLine>, count: usize) -> &mut [f32] {
    let lines = count.div_ceil(16);
    if memory.len() < lines {
        memory.resize(lines, CacheLine([0.0; 16]));
    }
    let start = memory.as_mut_ptr().cast();
    // SAFETY: the lines are f32 without gaps, as many as counted.
    unsafe { std::slice::from_raw_parts_mut(start, memory.len() * 16) }
}

/// How a block of the right factor is packed.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Right {
    /// Panels of [`COLS`] columns, each [`BLOCK`] rows of which follow one another.
    Panels,
    /// Rows of all columns, at the distance [`Sums::line_pitch`].
    Lines,
}

/// The sums of a tile.
pub(in crate::ops) struct Sums {
    isa: Isa,
    rows: usize,
    cols: usize,
    memory: Memory,
    /// Chains that were added up since the last were moved to `high`.
    chains: usize,
    has_high: bool,
    /// Whether both factors are of bf16, whose products some processors add two at a time.
    are_bf16: bool,
}

impl Sums {
    /// The fewest rows for which it pays to pair what was packed.
    const LEAST_PAIRED: usize = 4;

    /// Sums of no terms, of products of factors of two types.
    pub(in crate::ops) fn new([rows, cols]: [usize; 2], factors: [DType; 2]) -> Self {
        let are_bf16 = factors == [DType::BF16; 2] && rows >= Self::LEAST_PAIRED && pairs::are_exact();
        Self { isa: Isa::detect(), rows, cols, memory: MEMORY.take(), chains: 0, has_high: false, are_bf16 }
    }

    /// The copies that fill its memory.
    pub(in crate::ops) fn pack(&self) -> Pack {
        Pack(self.isa)
    }

    fn col_panels(&self) -> usize {
        self.cols.div_ceil(COLS)
    }

    /// The distance of the rows of the right factor in lines: an odd number of cache lines.
    pub(in crate::ops) fn line_pitch(&self) -> usize {
        self.col_panels() * COLS + 16
    }

    /// Where a block is to be packed: the rows of the left factor at the distance [`PITCH`], and the right one as the layout says.
    pub(in crate::ops) fn packed(&mut self, right: Right) -> [&mut [f32]; 2] {
        let of_right = match right {
            Right::Panels => self.col_panels() * COLS * BLOCK,
            Right::Lines => self.line_pitch() * BLOCK,
        };
        [numbers(&mut self.memory.left, self.rows * PITCH), numbers(&mut self.memory.right, of_right)]
    }

    /// Adds the products of the block that was packed, whose number of terms is 1 to [`BLOCK`].
    pub(in crate::ops) fn add(&mut self, terms: usize, right: Right) {
        assert!((1..=BLOCK).contains(&terms));
        let chains = terms.div_ceil(CHAIN);
        if self.chains + chains > CHAIN {
            self.move_high();
        }
        let (panel, pitch) = match right {
            Right::Panels => (COLS * BLOCK, COLS),
            Right::Lines => (COLS, self.line_pitch()),
        };
        // What follows is in steps, of one term or of two.
        let are_paired = self.are_bf16 && self.pair(terms, right);
        let (steps, chain_steps) = if are_paired { (terms.div_ceil(2), CHAIN / 2) } else { (terms, CHAIN) };
        let [left, right] = self.packed(right).map(|packed| packed.as_ptr());
        let count = self.count();
        let sums = numbers(&mut self.memory.sums, count).as_mut_ptr();
        let offsets: [usize; CHAIN] = std::array::from_fn(|step| step * pitch);
        let row_panels = self.rows.div_ceil(isa::ROWS);
        for col_panel in 0..self.col_panels() {
            for row_panel in 0..row_panels {
                let first = row_panel * isa::ROWS;
                let rows = (self.rows - first).min(isa::ROWS);
                for chain in 0..chains {
                    let step = chain * chain_steps;
                    let offsets = &offsets[..(steps - step).min(chain_steps)];
                    let is_first = self.chains + chain == 0;
                    // SAFETY: the rows and columns of the panels, and the steps of the chain, are in what was packed, whose memory `packed` measures; the tile
                    // is inside the sums; `detect` and `are_exact` have found the instructions.
                    unsafe {
                        let left = left.add(first * PITCH + step);
                        let right = (right.add(col_panel * panel + step * pitch), offsets);
                        let sums = sums.add((col_panel * row_panels + row_panel) * isa::ROWS * COLS);
                        if are_paired {
                            pairs::add(rows, left, right, sums, is_first);
                        } else {
                            self.isa.add_products(rows, left, right, sums, is_first);
                        }
                    }
                }
            }
        }
        self.chains += chains;
    }

    /// Turns the terms of the block that was packed into pairs, where that changes no sum.
    fn pair(&mut self, terms: usize, right: Right) -> bool {
        let (rows, cols, count, pitch) = (self.rows, self.cols, self.col_panels(), self.line_pitch());
        let [left, numbers] = self.packed(right);
        let panels = match right {
            Right::Panels => pairs::Panels { numbers, count, length: COLS * BLOCK, pitch: COLS, cols: COLS },
            Right::Lines => pairs::Panels { numbers, count: 1, length: pitch * BLOCK, pitch, cols },
        };
        pairs::pair(left, rows, panels, terms)
    }

    /// Sums in memory.
    fn count(&self) -> usize {
        self.rows.next_multiple_of(isa::ROWS) * self.col_panels() * COLS
    }

    /// Adds the sums of a full level to the next one, and begins anew.
    fn move_high(&mut self) {
        let count = self.count();
        let Memory { sums, high, .. } = &mut self.memory;
        let (sums, high) = (&numbers(sums, count)[..count], &mut numbers(high, count)[..count]);
        if self.has_high {
            high.iter_mut().zip(sums).for_each(|(high, sum)| *high += sum);
        } else {
            high.copy_from_slice(sums);
        }
        (self.chains, self.has_high) = (0, true);
    }

    /// Adds up all levels, after which [`line`](Self::line) has the sums.
    pub(in crate::ops) fn end(&mut self) {
        let count = self.count();
        if self.chains == 0 && !self.has_high {
            numbers(&mut self.memory.sums, count)[..count].fill(0.0);
        } else if self.has_high {
            if self.chains > 0 {
                self.move_high();
            }
            mem::swap(&mut self.memory.sums, &mut self.memory.high);
        }
    }

    /// The sums of a row in the panel of columns with a number.
    pub(in crate::ops) fn line(&self, row: usize, col_panel: usize) -> &[f32] {
        let row_panels = self.rows.div_ceil(isa::ROWS);
        let start = (col_panel * row_panels + row / isa::ROWS) * isa::ROWS + row % isa::ROWS;
        let halves: &[CacheLine] = &self.memory.sums[start * COLS / 16..(start + 1) * COLS / 16];
        // SAFETY: cache lines are f32 without gaps.
        let all = unsafe { std::slice::from_raw_parts(halves.as_ptr().cast::<f32>(), COLS) };
        &all[..COLS.min(self.cols - col_panel * COLS)]
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        MEMORY.set(mem::take(&mut self.memory));
    }
}

/// Calls a function with a pointer to some neighbouring elements of a tensor.
macro_rules! by_type {
    ($from:expr, $offset:expr, $count:expr, |$first:ident| $call:expr) => {{
        let (from, offset): (&Tensor<'_>, u64) = ($from, $offset);
        let Some(last) = ($count as u64).checked_sub(1) else { return };
        // SAFETY: `element` checks that the first and the last element are inside the tensor, which nobody writes to; `detect` has found the instructions.
        unsafe {
            match from.desc().dtype() {
                DType::F16 => {
                    from.element::<f16>(offset + last);
                    let $first = from.element::<f16>(offset).cast_const();
                    $call
                }
                DType::BF16 => {
                    from.element::<bf16>(offset + last);
                    let $first = from.element::<bf16>(offset).cast_const();
                    $call
                }
                _ => {
                    from.element::<f32>(offset + last);
                    let $first = from.element::<f32>(offset).cast_const();
                    $call
                }
            }
        }
    }};
}

/// Elements of f32, f16 or bf16, widened to f32.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Pack(Isa);

impl Pack {
    pub(in crate::ops) fn detect() -> Self {
        Self(Isa::detect())
    }

    /// Copies `lines` by `length` elements of a tensor from an offset on, with the strides of lines and of elements.
    pub(in crate::ops) fn copy(
        self,
        from: &Tensor<'_>,
        offset: u64,
        [lines, length]: [usize; 2],
        strides: [u64; 2],
        to: &mut [f32],
        to_pitch: usize,
    ) {
        if lines == 0 || length == 0 {
            return;
        }
        assert!((lines - 1) * to_pitch + length <= to.len());
        let last = offset + (lines as u64 - 1) * strides[0] + (length as u64 - 1) * strides[1];
        // An extent of 1 has no stride.
        let strides =
            [(lines, strides[0]), (length, strides[1])].map(|(n, stride)| if n == 1 { 1 } else { to_usize(stride) });
        let (extents, to) = ([lines, length], to.as_mut_ptr());
        // SAFETY: strides are not negative, so that all elements lie between the first and the last, which `element` finds in the tensor; nobody writes to
        // inputs; `to` is long enough, and `detect` has found the instructions.
        unsafe {
            match from.desc().dtype() {
                DType::F16 => {
                    from.element::<f16>(last);
                    widen(self.0, extents, from.element::<f16>(offset), strides, to, to_pitch);
                }
                DType::BF16 => {
                    from.element::<bf16>(last);
                    widen(self.0, extents, from.element::<bf16>(offset), strides, to, to_pitch);
                }
                _ => {
                    from.element::<f32>(last);
                    widen(self.0, extents, from.element::<f32>(offset), strides, to, to_pitch);
                }
            }
        }
    }

    /// Adds `factor` times neighbouring elements of a tensor, from an offset on, to as many sums.
    pub(in crate::ops) fn add_scaled(self, sums: &mut [f32], factor: f32, from: &Tensor<'_>, offset: u64) {
        by_type!(from, offset, sums.len(), |first| add_scaled(self.0, sums, factor, first));
    }

    /// Adds the products of factors and of neighbouring elements of a tensor, from an offset on, to as many sums.
    pub(in crate::ops) fn add_multiplied(self, sums: &mut [f32], factors: &[f32], from: &Tensor<'_>, offset: u64) {
        by_type!(from, offset, sums.len(), |first| add_multiplied(self.0, sums, factors, first));
    }

    /// Adds the products of factors and of as many neighbouring elements of a tensor, from an offset on, to eight sums, each of which takes every eighth one.
    pub(in crate::ops) fn add_dot(self, sums: &mut [f32; 8], factors: &[f32], from: &Tensor<'_>, offset: u64) {
        by_type!(from, offset, factors.len(), |first| add_dot(self.0, sums, factors, first));
    }

    /// One sum for each place of a grid: of the products of factors and of the elements at offsets from the place, in chains. Sums of the last [`COLS`]
    /// places may be of anything.
    pub(in crate::ops) fn of_grid(self, grid: &[f32], offsets: &[usize], factors: &[f32], sums: &mut [f32]) {
        let last = offsets.iter().max().map_or(0, |&offset| offset + sums.len());
        assert!(last <= grid.len() && offsets.len() == factors.len() && sums.len().is_multiple_of(COLS));
        if offsets.is_empty() {
            sums.fill(0.0);
        }
        for (panel, sums) in sums.chunks_exact_mut(COLS).enumerate() {
            for (chain, (offsets, factors)) in offsets.chunks(CHAIN).zip(factors.chunks(CHAIN)).enumerate() {
                // SAFETY: there is a factor for each offset, and from each offset on as many elements as there are sums, of which a panel has `COLS`.
                unsafe {
                    let from = grid.as_ptr().add(panel * COLS);
                    self.0.add_products(1, factors.as_ptr(), (from, offsets), sums.as_mut_ptr(), chain == 0);
                }
            }
        }
    }

    /// As [`copy`](Self::copy), of `terms` by `cols` elements of a right factor, in panels from a term of the block on.
    pub(in crate::ops) fn panels(
        self,
        from: &Tensor<'_>,
        offset: u64,
        [terms, cols]: [usize; 2],
        strides: [u64; 2],
        first_term: usize,
        to: &mut [f32],
    ) {
        for (panel, to) in (0..cols.div_ceil(COLS)).zip(to.chunks_exact_mut(COLS * BLOCK)) {
            let first = panel * COLS;
            let (cols, to) = (COLS.min(cols - first), &mut to[first_term * COLS..]);
            if cols < COLS {
                to[..terms * COLS].fill(0.0);
            }
            self.copy(from, offset + first as u64 * strides[1], [terms, cols], strides, to, COLS);
        }
    }
}
