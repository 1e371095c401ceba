//! Convolutions on the CPU, tile by tile in the library's own threads: of f64 by the crate `matrixmultiply`, of other types in [`packed`](super::packed).
//! Each task copies the windows of its rows and multiplies them, a block of terms at a time. Convolutions that are products of matrices go to gemm's
//! kernel, without a copy. If coordinates are divided by a stride, each phase of the stride is computed by itself, so that no window has elements between
//! those of the tensor.
//!
//! Accumulation: in f32, of f64 in f64, in short chains. What is added up in which order depends on neither tiles nor threads; long sums are divided
//! into parts that the extents decide.

use std::ops::Range;

use super::cpu::At;
use super::geometry::{Contracting, Contraction};
use super::packed;
use super::walk::{Phase, Phases};
use super::windows::{Inside, Lines, Windows};
use crate::backend::cpu::{Operands, Outcome, Tensor, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::gemm::chains::{CHAIN, Chains};
use crate::ops::gemm::cpu::accumulated;
use crate::ops::gemm::fast::multiply;
use crate::ops::gemm::geometry::Epilogue;

/// The kernel of the three products.
pub(super) fn contracting<D: Contracting>(descriptor: &D) -> Accepted<'_> {
    let contraction = descriptor.contraction();
    let inside = contraction.products_inside();
    let phases = Phases::of(&contraction);
    let products = phases.largest().products().saturating_mul(phases.count);
    Reason::unless(products / MOST_PADDING <= inside, || {
        format!("it multiplies padding, too: {products} products, of which {inside} are inside the tensor")
    })?;
    Ok(Candidate::on_cpu(move || {
        let tiling = Tiling::of(&Phases::of(&contraction));
        // If there are few tiles with long sums, threads share the sums, which gemm's kernel does not do.
        let product = contraction.product().ok().filter(|_| tiling.parts == 1);
        move |operands: &Operands<'_>| match &product {
            Some(product) => {
                multiply(product, operands);
                Ok(())
            }
            None if contraction.gathered.dtype == DType::F64 => contract(&contraction, &tiling, operands),
            None => packed::contract(&contraction, operands),
        }
    }))
}

/// Products with padding for each product inside the tensor, beyond which the reference is faster, which visits the latter alone. One of a
/// tile takes about a fiftieth of the time that one of the reference takes.
const MOST_PADDING: u64 = 32;

/// Rows of a tile, the preferred first: the more, the less often the plain factor is packed.
const ROWS: [u64; 3] = [256, 128, 64];
/// Columns of a tile: the more, the less often windows are copied.
const COLS: u64 = 256;
/// Terms whose windows a task holds at once: as many as the crate packs at once.
const TERMS: u64 = 256;

/// The tiles of a phase, of which there may be fewer in small phases. Each is a task or, if sums are long, one task for each part of the terms.
struct Tiling {
    /// Rows of a tile.
    rows: u64,
    row_tiles: u64,
    col_tiles: u64,
    tiles: u64,
    parts: u64,
    /// Terms of a part.
    terms: u64,
}

impl Tiling {
    /// The number of tasks that keeps threads busy.
    const TASKS: u64 = 32;
    /// The fewest terms of a part of a sum.
    const LEAST_TERMS: u64 = 2048;

    fn of(phases: &Phases<'_>) -> Self {
        let contraction = &phases.largest();
        let (count, terms) = (contraction.rows.count(), contraction.terms.count());
        let col_tiles = contraction.n.div_ceil(COLS);
        let tiles = |rows: u64| contraction.groups.saturating_mul(count.div_ceil(rows)).saturating_mul(col_tiles);
        let tasks = |rows: u64| tiles(rows).saturating_mul(phases.count);
        let rows = ROWS.into_iter().find(|&rows| tasks(rows) >= Self::TASKS).unwrap_or(ROWS[2]);
        let parts = (Self::TASKS / tasks(rows).max(1)).min(terms / Self::LEAST_TERMS).max(1);
        let of_part = terms.div_ceil(parts).next_multiple_of(TERMS).max(1);
        let parts = terms.div_ceil(of_part).max(1);
        Self { rows, row_tiles: count.div_ceil(rows), col_tiles, tiles: tiles(rows), parts, terms: of_part }
    }

    /// The block of a tile, counted through all phases; without rows if its phase has fewer tiles.
    fn block(&self, phases: &Phases<'_>, tile: u64) -> Block {
        let phase = phases.at(tile / self.tiles);
        let tile = tile % self.tiles;
        let first_row = tile / self.col_tiles % self.row_tiles * self.rows;
        let first_col = tile % self.col_tiles * COLS;
        let Contraction { rows, n, .. } = &phase.contraction;
        let (rows, n) = (rows.count(), *n);
        Block {
            group: tile / (self.row_tiles * self.col_tiles),
            rows: first_row.min(rows)..rows.min(first_row + self.rows),
            cols: first_col..n.min(first_col + COLS),
            phase,
        }
    }
}

/// Computes one contraction.
fn contract(contraction: &Contraction, tiling: &Tiling, operands: &Operands<'_>) -> Outcome {
    if contraction.is_empty() {
        return Ok(());
    }
    let phases = Phases::of(contraction);
    let (tiles, parts) = (tiling.tiles * phases.count, tiling.parts);
    // If a factor has no elements, there are no terms.
    let factors = operands.get(contraction.gathered.position).zip(operands.get(contraction.plain.position));
    let sums = |block: &Block, part: u64| match &factors {
        Some((gathered, plain)) => {
            let terms = block.phase.contraction.terms.count();
            let part = (part * tiling.terms).min(terms)..((part + 1) * tiling.terms).min(terms);
            Sums { contraction: &block.phase.contraction, block, gathered, plain }.of(part)
        }
        None => block.zeros(),
    };
    let work = contraction.products_inside();
    if parts == 1 {
        threads::for_each(tiles, work, |tile| {
            let block = tiling.block(&phases, tile);
            // SAFETY: each element is of one tile, and each tile is one task.
            unsafe { block.finish(operands, &sums(&block, 0)) };
        });
        return Ok(());
    }
    let of_parts =
        threads::map(tiles * parts, work, |task| Ok(sums(&tiling.block(&phases, task / parts), task % parts)))?;
    let elements = contraction.rows.count() * contraction.n * contraction.groups;
    threads::for_each(tiles, elements.saturating_mul(parts), |tile| {
        let block = tiling.block(&phases, tile);
        let of_tile = &of_parts[to_usize(tile * parts)..to_usize((tile + 1) * parts)];
        let mut all = of_tile[0].clone();
        for part in &of_tile[1..] {
            all.iter_mut().zip(part).for_each(|(sum, part)| *sum += *part);
        }
        // SAFETY: each element is of one tile, and each tile is one task.
        unsafe { block.finish(operands, &all) };
    });
    Ok(())
}

/// A tile of the output of a group, in a phase.
struct Block {
    phase: Phase,
    group: u64,
    rows: Range<u64>,
    cols: Range<u64>,
}

fn length(range: &Range<u64>) -> usize {
    to_usize(range.end - range.start)
}

impl Block {
    fn zeros(&self) -> Vec<f64> {
        vec![0.0; length(&self.rows) * length(&self.cols)]
    }

    /// Applies the epilogue to the sums.
    ///
    /// # Safety
    /// No other thread uses these elements of the outputs meanwhile.
    unsafe fn finish(&self, operands: &Operands<'_>, sums: &[f64]) {
        let Phase { contraction, out_start, .. } = &self.phase;
        let Contraction { out, epilogue, .. } = contraction;
        let Some(output) = operands.get(out.position).filter(|_| !self.rows.is_empty()) else { return };
        let at: Vec<At> = self.rows.clone().map(|row| contraction.rows.at(row)).collect();
        let offsets: Vec<u64> = at.iter().map(|&at| out_start + out.offset(self.group, at, self.cols.start)).collect();
        let count = offsets.len();
        let Epilogue { bias, activation, beside: pre, beta, .. } = epilogue;
        let bias = bias.and_then(|bias| Some((operands.get(bias.position)?, bias)));
        let pre = pre.and_then(|pre| Some((operands.get(pre.position)?, pre)));
        for (col, sums) in sums.chunks_exact(count).enumerate() {
            let column = self.cols.start + col as u64;
            let bias = bias.as_ref();
            let bias = bias.map(|(bias, vector)| bias.load(self.group * vector.group + column * vector.stride));
            for (row, &sum) in sums.iter().enumerate() {
                let pre_activation = bias.map_or(sum, |bias| sum + bias);
                if let Some((tensor, pre)) = &pre {
                    // SAFETY: the caller is alone at this element, and outputs address every element once.
                    unsafe { tensor.store(pre.offset(self.group, at[row], column), pre_activation) };
                }
                let value = activation.apply(pre_activation);
                let to = output.element::<f64>(offsets[row] + col as u64 * out.column);
                // SAFETY: the caller is alone at this element, which is inside the output.
                unsafe { *to = accumulated(value, *beta, || *to) };
            }
        }
    }
}

/// The operands of the sums of a tile.
struct Sums<'a> {
    contraction: &'a Contraction,
    block: &'a Block,
    gathered: &'a Tensor<'a>,
    plain: &'a Tensor<'a>,
}

/// A matrix in memory: its first element, and the strides of its rows and of its columns.
type Laid = (*const f64, [isize; 2]);

impl Sums<'_> {
    /// The sums over some terms, column by column.
    fn of(&self, terms: Range<u64>) -> Vec<f64> {
        let Block { rows, cols, .. } = self.block;
        let (m, n) = (length(rows), length(cols));
        let mut sums = Chains::new(m * n);
        let terms = if rows.is_empty() { 0..0 } else { terms };
        let (mut windows, mut copy) = (Vec::new(), Vec::new());
        let mut first = terms.start;
        while first < terms.end {
            let terms = first..terms.end.min(first + TERMS);
            let (left, [left_rows, left_cols]) = self.windows(&terms, &mut windows);
            let (right, [right_rows, right_cols]) = self.plain(&terms, &mut copy);
            for first in (0..length(&terms)).step_by(CHAIN) {
                let at = first.cast_signed();
                sums.add(|sums, is_first| {
                    // SAFETY: both factors hold their extents from the first element on, as `windows` and `plain` say, and sums are this task's own.
                    unsafe {
                        matrixmultiply::dgemm(
                            m,
                            (length(&terms) - first).min(CHAIN),
                            n,
                            1.0,
                            left.wrapping_offset(at * left_cols),
                            left_rows,
                            left_cols,
                            right.wrapping_offset(at * right_rows),
                            right_rows,
                            right_cols,
                            if is_first { 0.0 } else { 1.0 },
                            sums.as_mut_ptr(),
                            1,
                            m.cast_signed(),
                        );
                    }
                });
            }
            first = terms.end;
        }
        sums.total()
    }

    /// The plain factor: in place if the terms are equally spaced, else a copy.
    fn plain(&self, terms: &Range<u64>, copy: &mut Vec<f64>) -> Laid {
        let Contraction { plain, terms: indices, .. } = self.contraction;
        let Block { phase: Phase { plain_start, .. }, group, cols, .. } = self.block;
        let offset = |term| plain_start + plain.offset(*group, indices.at(term), cols.start);
        let offsets: Vec<u64> = terms.clone().map(offset).collect();
        let step = if offsets.len() > 1 { offsets[1].checked_sub(offsets[0]) } else { Some(1) };
        let last_col = (cols.end - 1 - cols.start) * plain.column;
        let has_step = |pair: &[u64]| pair[1].checked_sub(pair[0]) == step;
        if let Some(step) = step.filter(|_| offsets.windows(2).all(has_step)) {
            // Neither stride is negative, so if the last element is inside the tensor, all are; `element` checks that.
            self.plain.element::<f64>(offsets[offsets.len() - 1] + last_col);
            let strides = [step, plain.column].map(|stride| to_usize(stride).cast_signed());
            return (self.plain.element(offsets[0]), strides);
        }
        copy.clear();
        for col in 0..cols.end - cols.start {
            // SAFETY: `element` returns only elements of the tensor, which nobody writes.
            copy.extend(
                offsets.iter().map(|offset| unsafe { *self.plain.element::<f64>(offset + col * plain.column) }),
            );
        }
        (copy.as_ptr(), [1, offsets.len().cast_signed()])
    }

    /// The elements that the windows of the block's rows gather for some terms; 0 for those outside the tensor.
    fn windows(&self, terms: &Range<u64>, copy: &mut Vec<f64>) -> Laid {
        let Block { group, rows, .. } = self.block;
        let windows = Windows { contraction: self.contraction, group: *group };
        let is_along_terms = windows.is_along_terms();
        let (of_rows, of_terms) = (windows.rows(), windows.terms());
        let (fixed, along, fixed_range, range) =
            if is_along_terms { (of_rows, of_terms, rows, terms) } else { (of_terms, of_rows, terms, rows) };
        copy.resize(length(rows) * length(terms), 0.0);
        let tuples = fixed_range.clone().map(|index| fixed.indices.at(index));
        let lines = Lines { to: copy.as_mut_slice(), pitch: length(range) };
        windows.gather(
            (&fixed, tuples),
            (&along, &along.runs(range)),
            lines,
            |Inside { offset, stride, range }, line| {
                line[..range.start].fill(0.0);
                line[range.end..].fill(0.0);
                let line = &mut line[range];
                self.copy(offset, stride, line);
            },
        );
        let stride = length(range).cast_signed();
        (copy.as_ptr(), if is_along_terms { [stride, 1] } else { [1, stride] })
    }

    /// Copies elements from `offset` on, `stride` apart, to a line.
    fn copy(&self, offset: u64, stride: u64, line: &mut [f64]) {
        let Some(last) = (line.len() as u64).checked_sub(1) else { return };
        let first: *const f64 = self.gathered.element(offset);
        // `element` checks that the last element is inside the tensor; so are those between.
        self.gathered.element::<f64>(offset + last * stride);
        for (at, element) in line.iter_mut().enumerate() {
            // SAFETY: it is between two elements of the tensor, a whole number of elements from the first, and nobody writes to inputs.
            *element = unsafe { *first.wrapping_add(at * to_usize(stride)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv::{ConvDescriptor, ConvWindow};
    use crate::tensor::TensorDesc;

    #[test]
    fn long_sums_of_few_tiles_are_shared() {
        let dense = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims).unwrap();
        let window = ConvWindow::new().padding(&[1, 1]);
        let stem = ConvDescriptor::new(dense(&[64, 3, 56, 56]), dense(&[32, 3, 3, 3]), window.clone()).unwrap();
        let tiling = Tiling::of(&Phases::of(&stem.contraction()));
        assert_eq!((tiling.rows, tiling.parts), (256, 1));
        let weight = stem.backward_weight().unwrap().contraction();
        let tiling = Tiling::of(&Phases::of(&weight));
        assert_eq!((tiling.rows, tiling.tiles, tiling.parts, tiling.terms), (64, 1, 32, 6400));
        assert!(tiling.parts * tiling.terms >= weight.terms.count());
        let deep = ConvDescriptor::new(dense(&[1, 512, 7, 7]), dense(&[512, 512, 3, 3]), window).unwrap();
        assert_eq!(Tiling::of(&Phases::of(&deep.backward_weight().unwrap().contraction())).parts, 1);
    }
}
