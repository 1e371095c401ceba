//! Convolutions of f32 and of f64 on the CPU by the crate `matrixmultiply`, tile by tile in the library's own threads. Each task copies the windows of its
//! rows and multiplies them, a block of terms at a time. Convolutions that are products of matrices go to gemm's kernel, without a copy.
//!
//! Accumulation: in the type of the factors. Tiles, and the parts of long sums, do not depend on the number of threads, so neither do the bits of the result.

use std::ops::Range;

use super::cpu::At;
use super::geometry::{Contracting, Contraction, Indices};
use super::{MAX_AXES, cpu};
use crate::backend::cpu::{Operands, Outcome, Tensor, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{signed, to_usize};
use crate::ops::gemm::cpu::accumulated;
use crate::ops::gemm::fast::{Factor, Gemm, multiply};
use crate::ops::gemm::geometry::Epilogue;

/// The kernel of the three products.
pub(super) fn contracting<D: Contracting>(descriptor: &D) -> Accepted<'_> {
    let contraction = descriptor.contraction();
    let dtype = contraction.out.dtype;
    Reason::unless(
        matches!(dtype, DType::F32 | DType::F64)
            && contraction.gathered.dtype == dtype
            && contraction.plain.dtype == dtype,
        || {
            let (gathered, plain) = (contraction.gathered.dtype, contraction.plain.dtype);
            format!("it multiplies f32 and f64, here factors are {gathered} and {plain}")
        },
    )?;
    cpu::check_work(&contraction)?;
    Ok(Candidate::on_cpu(move || {
        let tiling = Tiling::of(&contraction);
        // If there are few tiles with long sums, threads share the sums, which gemm's kernel does not do.
        let product = contraction.product().ok().filter(|_| tiling.parts == 1);
        move |operands: &Operands<'_>| match &product {
            Some(product) => {
                multiply(product, operands);
                Ok(())
            }
            None if dtype == DType::F64 => contract(&contraction, &tiling, operands, matrixmultiply::dgemm),
            None => contract(&contraction, &tiling, operands, matrixmultiply::sgemm),
        }
    }))
}

/// Rows of a tile, the preferred first: the more, the less often the plain factor is packed.
const ROWS: [u64; 3] = [256, 128, 64];
/// Columns of a tile: the more, the less often windows are copied.
const COLS: u64 = 256;
/// Terms whose windows a task holds at once: as many as the crate packs at once.
const TERMS: u64 = 256;

/// The tiles. Each is a task or, if sums are long, one task for each part of the terms.
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

    fn of(contraction: &Contraction) -> Self {
        let (count, terms) = (contraction.rows.count(), contraction.terms.count());
        let col_tiles = contraction.n.div_ceil(COLS);
        let tiles = |rows: u64| contraction.groups.saturating_mul(count.div_ceil(rows)).saturating_mul(col_tiles);
        let rows = ROWS.into_iter().find(|&rows| tiles(rows) >= Self::TASKS).unwrap_or(ROWS[2]);
        let parts = (Self::TASKS / tiles(rows).max(1)).min(terms / Self::LEAST_TERMS).max(1);
        let of_part = terms.div_ceil(parts).next_multiple_of(TERMS).max(1);
        let parts = terms.div_ceil(of_part).max(1);
        Self { rows, row_tiles: count.div_ceil(rows), col_tiles, tiles: tiles(rows), parts, terms: of_part }
    }

    fn block(&self, contraction: &Contraction, tile: u64) -> Block {
        let first_row = tile / self.col_tiles % self.row_tiles * self.rows;
        let first_col = tile % self.col_tiles * COLS;
        Block {
            group: tile / (self.row_tiles * self.col_tiles),
            rows: first_row..contraction.rows.count().min(first_row + self.rows),
            cols: first_col..contraction.n.min(first_col + COLS),
        }
    }
}

/// Computes one contraction.
fn contract<T: Factor>(contraction: &Contraction, tiling: &Tiling, operands: &Operands<'_>, gemm: Gemm<T>) -> Outcome {
    if contraction.is_empty() {
        return Ok(());
    }
    let Tiling { tiles, parts, .. } = *tiling;
    // If a factor has no elements, there are no terms.
    let factors = operands.get(contraction.gathered.position).zip(operands.get(contraction.plain.position));
    let terms = if factors.is_some() { contraction.terms.count() } else { 0 };
    let part_of = |part: u64| (part * tiling.terms).min(terms)..((part + 1) * tiling.terms).min(terms);
    let sums = |block: &Block, part: u64| match &factors {
        Some((gathered, plain)) => Sums { contraction, block, gathered, plain, gemm }.of(part_of(part)),
        None => block.zeros(),
    };
    let work = contraction.products();
    if parts == 1 {
        threads::for_each(tiles, work, |tile| {
            let block = tiling.block(contraction, tile);
            // SAFETY: each element is of one tile, and each tile is one task.
            unsafe { block.finish(contraction, operands, &sums(&block, 0)) };
        });
        return Ok(());
    }
    let of_parts =
        threads::map(tiles * parts, work, |task| Ok(sums(&tiling.block(contraction, task / parts), task % parts)))?;
    let elements = contraction.rows.count() * contraction.n * contraction.groups;
    threads::for_each(tiles, elements.saturating_mul(parts), |tile| {
        let block = tiling.block(contraction, tile);
        let of_tile = &of_parts[to_usize(tile * parts)..to_usize((tile + 1) * parts)];
        let mut all = of_tile[0].clone();
        for part in &of_tile[1..] {
            all.iter_mut().zip(part).for_each(|(sum, part)| *sum = *sum + *part);
        }
        // SAFETY: each element is of one tile, and each tile is one task.
        unsafe { block.finish(contraction, operands, &all) };
    });
    Ok(())
}

/// A tile of the output of a group.
struct Block {
    group: u64,
    rows: Range<u64>,
    cols: Range<u64>,
}

fn length(range: &Range<u64>) -> usize {
    to_usize(range.end - range.start)
}

impl Block {
    fn zeros<T: Factor>(&self) -> Vec<T> {
        vec![T::of(0.0); length(&self.rows) * length(&self.cols)]
    }

    /// Applies the epilogue to the sums.
    ///
    /// # Safety
    /// No other thread uses these elements of the outputs meanwhile.
    unsafe fn finish<T: Factor>(&self, contraction: &Contraction, operands: &Operands<'_>, sums: &[T]) {
        let Contraction { out, epilogue, .. } = contraction;
        let Some(output) = operands.get(out.position) else { return };
        let at: Vec<At> = self.rows.clone().map(|row| contraction.rows.at(row)).collect();
        let offsets: Vec<u64> = at.iter().map(|&at| out.offset(self.group, at, self.cols.start)).collect();
        let count = offsets.len();
        let Epilogue { bias, activation, beside: pre, beta, .. } = epilogue;
        let bias = bias.and_then(|bias| Some((operands.get(bias.position)?, bias)));
        let pre = pre.and_then(|pre| Some((operands.get(pre.position)?, pre)));
        for (col, sums) in sums.chunks_exact(count).enumerate() {
            let column = self.cols.start + col as u64;
            let bias = bias.as_ref();
            let bias = bias.map(|(bias, vector)| bias.load(self.group * vector.group + column * vector.stride));
            for (row, &sum) in sums.iter().enumerate() {
                let pre_activation = bias.map_or(sum.into(), |bias| sum.into() + bias);
                if let Some((tensor, pre)) = &pre {
                    // SAFETY: the caller is alone at this element, and outputs address every element once.
                    unsafe { tensor.store(pre.offset(self.group, at[row], column), pre_activation) };
                }
                let value = activation.apply(pre_activation);
                let to = output.element::<T>(offsets[row] + col as u64 * out.column);
                // SAFETY: the caller is alone at this element, which is inside the output.
                unsafe { *to = T::of(accumulated(value, *beta, || (*to).into())) };
            }
        }
    }
}

/// The operands of the sums of a tile.
struct Sums<'a, T> {
    contraction: &'a Contraction,
    block: &'a Block,
    gathered: &'a Tensor<'a>,
    plain: &'a Tensor<'a>,
    gemm: Gemm<T>,
}

/// A matrix in memory: its first element, and the strides of its rows and of its columns.
type Laid<T> = (*const T, [isize; 2]);

impl<T: Factor> Sums<'_, T> {
    /// The sums over some terms, column by column.
    fn of(&self, terms: Range<u64>) -> Vec<T> {
        let Block { rows, cols, .. } = self.block;
        let mut sums = self.block.zeros();
        let (mut windows, mut copy) = (Vec::new(), Vec::new());
        let mut first = terms.start;
        while first < terms.end {
            let terms = first..terms.end.min(first + TERMS);
            let (left, [left_rows, left_cols]) = self.windows(&terms, &mut windows);
            let (right, [right_rows, right_cols]) = self.plain(&terms, &mut copy);
            let (m, n) = (length(rows), length(cols));
            // SAFETY: both factors hold their extents from the first element on, as `windows` and `plain` say, and sums are this task's own.
            unsafe {
                (self.gemm)(
                    m,
                    length(&terms),
                    n,
                    T::of(1.0),
                    left,
                    left_rows,
                    left_cols,
                    right,
                    right_rows,
                    right_cols,
                    T::of(1.0),
                    sums.as_mut_ptr(),
                    1,
                    m.cast_signed(),
                );
            }
            first = terms.end;
        }
        sums
    }

    /// The plain factor: in place if the terms are equally spaced, else a copy.
    fn plain(&self, terms: &Range<u64>, copy: &mut Vec<T>) -> Laid<T> {
        let Contraction { plain, terms: indices, .. } = self.contraction;
        let Block { group, cols, .. } = self.block;
        let offsets: Vec<u64> = terms.clone().map(|term| plain.offset(*group, indices.at(term), cols.start)).collect();
        let step = if offsets.len() > 1 { offsets[1].checked_sub(offsets[0]) } else { Some(1) };
        let last_col = (cols.end - 1 - cols.start) * plain.column;
        let has_step = |pair: &[u64]| pair[1].checked_sub(pair[0]) == step;
        if let Some(step) = step.filter(|_| offsets.windows(2).all(has_step)) {
            // Neither stride is negative, so if the last element is inside the tensor, all are; `element` checks that.
            self.plain.element::<T>(offsets[offsets.len() - 1] + last_col);
            let strides = [step, plain.column].map(|stride| to_usize(stride).cast_signed());
            return (self.plain.element(offsets[0]), strides);
        }
        copy.clear();
        for col in 0..cols.end - cols.start {
            // SAFETY: `element` returns only elements of the tensor, which nobody writes.
            copy.extend(offsets.iter().map(|offset| unsafe { *self.plain.element::<T>(offset + col * plain.column) }));
        }
        (copy.as_ptr(), [1, offsets.len().cast_signed()])
    }

    /// The elements that the windows of the block's rows gather for some terms; 0 for those outside the tensor.
    fn windows(&self, terms: &Range<u64>, copy: &mut Vec<T>) -> Laid<T> {
        let Contraction { rows: row_indices, terms: term_indices, gathered, .. } = self.contraction;
        let Block { group, rows, .. } = self.block;
        let of_rows = Side { indices: row_indices, lead: gathered.row_lead, of: gathered.axes.map(|axis| axis.of_row) };
        let of_terms =
            Side { indices: term_indices, lead: gathered.term_lead, of: gathered.axes.map(|axis| axis.of_term) };
        // Runs are along the index whose neighbours are closer together in memory.
        let is_along_terms = of_terms.worth(self.contraction) > of_rows.worth(self.contraction);
        let (fixed, along, fixed_range, range) =
            if is_along_terms { (of_rows, of_terms, rows, terms) } else { (of_terms, of_rows, terms, rows) };
        let runs = along.runs(range);
        copy.clear();
        copy.resize(length(rows) * length(terms), T::of(0.0));
        for (line, index) in copy.chunks_exact_mut(length(range)).zip(fixed_range.clone()) {
            let at = fixed.indices.at(index);
            let start = group * gathered.group + at.lead * fixed.lead;
            let coordinates: [i64; MAX_AXES] =
                std::array::from_fn(|axis| fixed.of[axis] * signed(at.axes[axis]) + gathered.axes[axis].offset);
            let mut rest = line;
            for run in &runs {
                let (here, after) = rest.split_at_mut(run.length);
                self.run(&along, run, start, coordinates, here);
                rest = after;
            }
        }
        let stride = length(range).cast_signed();
        (copy.as_ptr(), if is_along_terms { [stride, 1] } else { [1, stride] })
    }

    /// Copies the elements of a run that are inside the tensor. `start` and `coordinates` are what the other index contributes.
    fn run(&self, along: &Side<'_>, run: &Run, start: u64, coordinates: [i64; MAX_AXES], to: &mut [T]) {
        let axes = &self.contraction.gathered.axes;
        let mut offset = start + run.first.lead * along.lead;
        let first: [i64; MAX_AXES] =
            std::array::from_fn(|axis| coordinates[axis] + along.of[axis] * signed(run.first.axes[axis]));
        // 1. The axes along which the run does not move.
        let fixed = if along.indices.lead_last { MAX_AXES } else { MAX_AXES - 1 };
        for (axis, &number) in axes.iter().zip(&first).take(fixed) {
            match axis.inside(number) {
                Some(coordinate) => offset += coordinate * axis.stride,
                None => return,
            }
        }
        if fixed == MAX_AXES {
            return self.copy(offset, along.lead, to, 1);
        }
        // 2. The axis along which it moves. The elements inside the tensor are one range, of which a divisor leaves those at equal distances.
        let (axis, factor) = (&axes[MAX_AXES - 1], along.of[MAX_AXES - 1]);
        let number = |at: i64| first[MAX_AXES - 1] + factor * at;
        let divisor = axis.divisor.cast_signed();
        if factor > 0 && (divisor == 1 || factor == 1) {
            let aligned = number(0).rem_euclid(divisor);
            let skipped = if aligned == 0 { 0 } else { divisor - aligned };
            let (quotient, extent) = (number(skipped).div_euclid(divisor), signed(axis.extent));
            // Steps until the coordinate is 0, and until it is the extent.
            let steps =
                |to: i64| (to - quotient).div_euclid(factor) + i64::from((to - quotient).rem_euclid(factor) != 0);
            let (from, until) = (steps(0).max(0), steps(extent).max(0));
            let begin = from * divisor + skipped;
            if from < until && begin < signed(to.len() as u64) {
                let coordinate = (quotient + from * factor).unsigned_abs();
                let step = to_usize(axis.divisor);
                let (begin, most) = (to_usize(begin.unsigned_abs()), to_usize((until - from - 1).unsigned_abs()));
                let end = most.saturating_mul(step).saturating_add(begin + 1).min(to.len());
                let stride = factor.unsigned_abs() * axis.stride;
                self.copy(offset + coordinate * axis.stride, stride, &mut to[begin..end], step);
            }
            return;
        }
        for (at, element) in to.iter_mut().enumerate() {
            if let Some(coordinate) = axis.inside(number(signed(at as u64))) {
                self.copy(offset + coordinate * axis.stride, 0, std::slice::from_mut(element), 1);
            }
        }
    }

    /// Copies elements from `offset` on, `stride` apart, to every `step`th element of a line.
    fn copy(&self, offset: u64, stride: u64, line: &mut [T], step: usize) {
        let count = line.len().div_ceil(step);
        let Some(last) = (count as u64).checked_sub(1) else { return };
        let first: *const T = self.gathered.element(offset);
        // `element` checks that the last element is inside the tensor; so are those between.
        self.gathered.element::<T>(offset + last * stride);
        if stride == 1 && step == 1 {
            // SAFETY: `count` elements are inside the tensor, which nobody writes, and inside the line, which is this task's own.
            unsafe { first.copy_to_nonoverlapping(line.as_mut_ptr(), count) };
            return;
        }
        for (at, element) in line.iter_mut().step_by(step).enumerate() {
            // SAFETY: it is between two elements of the tensor, a whole number of elements from the first, and nobody writes to inputs.
            *element = unsafe { *first.wrapping_add(at * to_usize(stride)) };
        }
    }
}

/// The rows or the terms of the gathered factor: their index tuples, the stride of the lead, and the factors of the coordinates.
#[derive(Clone, Copy)]
struct Side<'c> {
    indices: &'c Indices,
    lead: u64,
    of: [i64; MAX_AXES],
}

/// Neighbouring tuples, which differ only in their fastest digit.
struct Run {
    first: At,
    length: usize,
}

impl Side<'_> {
    fn fastest(&self) -> u64 {
        if self.indices.lead_last { self.indices.lead } else { self.indices.axes[MAX_AXES - 1] }
    }

    /// How much faster runs along this index are than single elements, roughly.
    fn worth(&self, contraction: &Contraction) -> u64 {
        let last = MAX_AXES - 1;
        let step = self.of[last].unsigned_abs().saturating_mul(contraction.gathered.axes[last].stride);
        let stride = if self.indices.lead_last { self.lead } else { step };
        self.fastest().min(64) * if stride == 1 { 4 } else { 1 }
    }

    fn runs(&self, range: &Range<u64>) -> Vec<Run> {
        let (mut runs, mut index) = (Vec::new(), range.start);
        while index < range.end {
            let next = (index / self.fastest() + 1) * self.fastest();
            let length = to_usize(next.min(range.end) - index);
            runs.push(Run { first: self.indices.at(index), length });
            index = next;
        }
        runs
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
        let tiling = Tiling::of(&stem.contraction());
        assert_eq!((tiling.rows, tiling.parts), (256, 1));
        let weight = stem.backward_weight().unwrap().contraction();
        let tiling = Tiling::of(&weight);
        assert_eq!((tiling.rows, tiling.tiles, tiling.parts, tiling.terms), (64, 1, 32, 6400));
        assert!(tiling.parts * tiling.terms >= weight.terms.count());
        let deep = ConvDescriptor::new(dense(&[1, 512, 7, 7]), dense(&[512, 512, 3, 3]), window).unwrap();
        assert_eq!(Tiling::of(&deep.backward_weight().unwrap().contraction()).parts, 1);
    }
}
