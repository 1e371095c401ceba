//! Sums of products in f32 from packed factors: what products and convolutions on the CPU share.
//!
//! A task computes a tile of the output. It packs a block of terms of both factors, widened to f32, into memory that belongs to its thread, and adds
//! their products to sums there. Once all terms are in, the epilogue takes the sums line by line. Where the processor multiplies tiles of bf16
//! ([`tiles`]), factors of that type stay as they are.
//!
//! Accumulation: in f32, in chains of [`CHAIN`] products, chains of as many of these, and one more chain; of bf16 in tiles as [`tiles`] says. The order of
//! the terms of a sum depends on neither the tile nor the number of threads, so neither do the bits.

use std::cell::Cell;
use std::mem;

use half::bf16;

use super::chains::CHAIN;
use crate::backend::cpu::threads;
use crate::dtype::DType;

mod dpre;
mod finish;
mod isa;
mod pack;
mod pairs;
mod product;
mod tiles;

pub(super) use dpre::{elementwise, stored_column_sums};
pub(in crate::ops) use finish::{Finish, Line, Places, load, store};
pub(in crate::ops) use isa::COLS;
use isa::{Isa, PITCH};
pub(in crate::ops) use pack::{Pack, Word};
pub(super) use product::multiply_values;

/// Terms of f32 that are packed at once. The rows of a tile of the left factor and a panel of the right one are 24 KiB, which the first cache holds.
const BLOCK: usize = 128;

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
    /// Panels of [`COLS`] columns, each block of rows of which follow one another.
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
    factors: Factors,
}

/// How factors are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factors {
    /// As f32.
    Single,
    /// As f32, or two at a time where that makes the same bits.
    Paired,
    /// As bf16, in tiles.
    Tiled,
}

impl Sums {
    /// The fewest rows for which it pays to pair what was packed.
    const LEAST_PAIRED: usize = 4;

    /// Sums of no terms, of products of factors of two types.
    pub(in crate::ops) fn new([rows, cols]: [usize; 2], factors: [DType; 2]) -> Self {
        let factors = match factors {
            [DType::BF16, DType::BF16] if tiles::are_exact() => Factors::Tiled,
            [DType::BF16, DType::BF16] if rows >= Self::LEAST_PAIRED && pairs::are_exact() => Factors::Paired,
            _ => Factors::Single,
        };
        Self { isa: Isa::detect(), rows, cols, memory: MEMORY.take(), chains: 0, has_high: false, factors }
    }

    /// Whether factors are packed as bf16, and else as f32.
    pub(in crate::ops) fn are_tiled(&self) -> bool {
        self.factors == Factors::Tiled
    }

    /// The copies that fill its memory.
    pub(in crate::ops) fn pack(&self) -> Pack {
        Pack(self.isa)
    }

    fn col_panels(&self) -> usize {
        self.cols.div_ceil(COLS)
    }

    /// Rows whose sums of a panel of columns follow one another.
    fn panel_rows(&self) -> usize {
        if self.are_tiled() { tiles::ROWS } else { isa::ROWS }
    }

    /// The distance of the rows of the right factor in lines: an odd number of cache lines, of bf16 for two rows.
    pub(in crate::ops) fn line_pitch(&self) -> usize {
        self.col_panels() * COLS + 16
    }

    /// Where a block is to be packed: the rows of the left factor at the distance [`Word::PITCH`], and the right one as the layout says.
    pub(in crate::ops) fn packed<W: Word>(&mut self, right: Right) -> [&mut [W]; 2] {
        let lengths = self.lengths(right);
        let Memory { left, right, .. } = &mut self.memory;
        [numbers(left, lengths[0]), numbers(right, lengths[1])].map(bytemuck::cast_slice_mut)
    }

    /// Numbers of f32 in the memory of both packed factors.
    fn lengths(&self, right: Right) -> [usize; 2] {
        let of_right = match right {
            Right::Panels => self.col_panels() * COLS * BLOCK,
            Right::Lines => self.line_pitch() * BLOCK,
        };
        [self.rows.next_multiple_of(self.panel_rows()) * PITCH, of_right]
    }

    /// Adds the products of the block that was packed, whose number of terms is 1 to [`Word::BLOCK`].
    pub(in crate::ops) fn add(&mut self, terms: usize, right: Right) {
        if self.are_tiled() {
            return self.add_tiles(terms, right);
        }
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
        let are_paired = self.factors == Factors::Paired && self.pair(terms, right);
        let (steps, chain_steps) = if are_paired { (terms.div_ceil(2), CHAIN / 2) } else { (terms, CHAIN) };
        let [left, right] = self.packed::<f32>(right).map(|packed| packed.as_ptr());
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

    /// [`add`](Self::add) of what is packed as bf16.
    fn add_tiles(&mut self, terms: usize, right: Right) {
        assert!((1..=bf16::BLOCK).contains(&terms));
        let groups = terms.div_ceil(tiles::TERMS);
        if self.chains + groups > CHAIN {
            self.move_high();
        }
        let (rows, cols, panels, pitch) = (self.rows, self.cols, self.col_panels(), self.line_pitch());
        let (lengths, count, is_first) = (self.lengths(right), self.count(), self.chains == 0);
        let Memory { left, right: of_right, sums, .. } = &mut self.memory;
        let left = bytemuck::cast_slice_mut(numbers(left, lengths[0]));
        let words: &mut [bf16] = bytemuck::cast_slice_mut(numbers(of_right, lengths[1]));
        let right = match right {
            Right::Panels => tiles::Right { words, panels, panel: COLS * bf16::BLOCK, pitch: 2 * COLS },
            Right::Lines => {
                tiles::interleave(words, pitch, cols, terms);
                tiles::Right { words, panels, panel: 2 * COLS, pitch: 2 * pitch }
            }
        };
        tiles::Block::new(left, rows, right, terms).add(&mut numbers(sums, count)[..count], is_first);
        self.chains += groups;
    }

    /// Turns the terms of the block that was packed into pairs, where that changes no sum.
    fn pair(&mut self, terms: usize, right: Right) -> bool {
        let (rows, cols, count, pitch) = (self.rows, self.cols, self.col_panels(), self.line_pitch());
        let [left, numbers] = self.packed::<f32>(right);
        let panels = match right {
            Right::Panels => pairs::Panels { numbers, count, length: COLS * BLOCK, pitch: COLS, cols: COLS },
            Right::Lines => pairs::Panels { numbers, count: 1, length: pitch * BLOCK, pitch, cols },
        };
        pairs::pair(left, rows, panels, terms)
    }

    /// Sums in memory.
    fn count(&self) -> usize {
        self.rows.next_multiple_of(self.panel_rows()) * self.col_panels() * COLS
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
        let panel_rows = self.panel_rows();
        let start = col_panel * self.rows.next_multiple_of(panel_rows) + row;
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
