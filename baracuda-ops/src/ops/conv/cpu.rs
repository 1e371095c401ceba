//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::geometry::{Axis, ChannelSums, Contracting, Contraction, Gathered, Indices, Strided};
use super::{ConvBackwardBiasDescriptor, MAX_AXES};
use crate::backend::cpu::{Operands, Sum, Sums, Tensor, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::gemm::cpu::accumulated;
use crate::ops::gemm::geometry::{Epilogue, Vector};
use crate::plan::MAX_WORK;

/// The reference kernel of the three products.
pub(super) fn contracting<D: Contracting>(descriptor: &D) -> Accepted<'_> {
    let contraction = descriptor.contraction();
    check_work(&contraction)?;
    Ok(Candidate::on_cpu(move || move |operands| contract(&contraction, operands)))
}

/// The reference kernel of the gradient of the bias.
pub(super) fn backward_bias(descriptor: &ConvBackwardBiasDescriptor) -> Accepted<'_> {
    Ok(Candidate::on_cpu(|| {
        let sums = descriptor.channel_sums();
        move |operands| channel_sums(&sums, operands)
    }))
}

/// # Errors
/// So many products that any machine would be busy for hours.
pub(super) fn check_work(contraction: &Contraction) -> Result<(), Reason> {
    let (products, empty) = (contraction.products(), contraction.gathered.axes.iter().any(|axis| axis.extent == 0));
    Reason::unless(products <= MAX_WORK || empty, || format!("{products} products, the limit is {MAX_WORK}"))?;
    Ok(())
}

/// An index tuple: its lead and its spatial position.
#[derive(Clone, Copy, Default)]
pub(super) struct At {
    pub(super) lead: u64,
    pub(super) axes: [u64; MAX_AXES],
}

impl Indices {
    /// The tuple with the number `index`, which is below the count.
    pub(super) fn at(&self, mut index: u64) -> At {
        let mut at = At::default();
        if self.lead_last {
            at.lead = index % self.lead;
            index /= self.lead;
        }
        for axis in (0..MAX_AXES).rev() {
            at.axes[axis] = index % self.axes[axis];
            index /= self.axes[axis];
        }
        if !self.lead_last {
            at.lead = index;
        }
        at
    }
}

impl Strided {
    /// The offset of an element.
    pub(super) fn offset(&self, group: u64, at: At, column: u64) -> u64 {
        let axes: u64 = at.axes.iter().zip(self.axes).map(|(&index, stride)| index * stride).sum();
        group * self.group + at.lead * self.lead + axes + column * self.column
    }
}

impl Axis {
    /// The coordinate, given the number that is to be divided; `None` if it is outside the tensor.
    pub(super) fn inside(&self, number: i64) -> Option<u64> {
        let inside = u64::try_from(number).ok()?;
        let coordinate = inside / self.divisor;
        (coordinate * self.divisor == inside && coordinate < self.extent).then_some(coordinate)
    }
}

impl Gathered {
    /// The offset of an element; `None` if it is outside the tensor.
    fn offset(&self, group: u64, row: At, term: At) -> Option<u64> {
        let mut offset = group * self.group + row.lead * self.row_lead + term.lead * self.term_lead;
        for ((axis, row), term) in self.axes.iter().zip(row.axes).zip(term.axes) {
            // Both indices are below extents of tensors, and the padded extent bounds their products with the factors.
            let [row, term] = [row, term].map(|index| i64::try_from(index).unwrap_or(i64::MAX));
            offset += axis.inside(axis.of_row * row + axis.of_term * term + axis.offset)? * axis.stride;
        }
        Some(offset)
    }
}

/// Rows of a tile of sums, which is one task.
const ROWS: usize = 16;
/// Columns of a tile.
const COLS: usize = 64;
/// Terms of each sum whose plain factor is converted to f64 at once.
const TERMS: usize = 256;

/// Computes one contraction.
fn contract(contraction: &Contraction, operands: &Operands<'_>) {
    let Some(output) = operands.get(contraction.out.position) else { return };
    if contraction.is_empty() {
        return;
    }
    let (rows, cols) = (contraction.rows.count(), contraction.n);
    let (row_tiles, col_tiles) = (rows.div_ceil(ROWS as u64), cols.div_ceil(COLS as u64));
    let finish = Finish::new(contraction, operands, output);
    threads::for_each(contraction.groups * row_tiles * col_tiles, contraction.products(), |task| {
        let group = task / (row_tiles * col_tiles);
        let (first_row, first_col) = (task / col_tiles % row_tiles * ROWS as u64, task % col_tiles * COLS as u64);
        let row_count = to_usize((rows - first_row).min(ROWS as u64));
        let col_count = to_usize((cols - first_col).min(COLS as u64));
        let at: Vec<At> = (0..row_count).map(|row| contraction.rows.at(first_row + row as u64)).collect();
        let sums = tile(contraction, operands, group, &at, [first_col, col_count as u64]);
        for (row, sums) in at.iter().zip(&sums) {
            for col in 0..col_count {
                // SAFETY: each element is of one tile, and each tile is one task.
                unsafe { finish.element(group, *row, first_col + col as u64, sums.total(col)) };
            }
        }
    });
}

/// The sums of some rows and `cols` columns from `first_col` on.
fn tile(
    contraction: &Contraction,
    operands: &Operands<'_>,
    group: u64,
    rows: &[At],
    [first_col, cols]: [u64; 2],
) -> Vec<Sums<COLS>> {
    let Contraction { terms, gathered, plain, .. } = contraction;
    let mut sums = vec![Sums::default(); rows.len()];
    // If a factor has no elements, there are no terms.
    let factors = operands.get(gathered.position).zip(operands.get(plain.position));
    let Some((gathered_tensor, plain_tensor)) = factors else { return sums };
    let cols = to_usize(cols);
    let count = terms.count();
    let mut plain_terms = vec![0.0; TERMS * cols];
    for first in (0..count).step_by(TERMS) {
        let block: Vec<At> = (first..count.min(first + TERMS as u64)).map(|term| terms.at(term)).collect();
        for (values, &term) in plain_terms.chunks_exact_mut(cols).zip(&block) {
            let start = plain.offset(group, term, first_col);
            for (col, value) in values.iter_mut().enumerate() {
                *value = plain_tensor.load(start + col as u64 * plain.column);
            }
        }
        for (sums, &row) in sums.iter_mut().zip(rows) {
            for (values, &term) in plain_terms.chunks_exact(cols).zip(&block) {
                let Some(offset) = gathered.offset(group, row, term) else { continue };
                let factor = gathered_tensor.load(offset);
                if gathered.dtype == DType::F64 {
                    sums.add::<true>(factor, values);
                } else {
                    sums.add::<false>(factor, values);
                }
            }
        }
    }
    sums
}

/// The epilogue with its operands.
struct Finish<'v> {
    contraction: &'v Contraction,
    out: Tensor<'v>,
    bias: Option<(Tensor<'v>, Vector)>,
    pre: Option<(Tensor<'v>, Strided)>,
}

impl<'v> Finish<'v> {
    fn new(contraction: &'v Contraction, operands: &Operands<'v>, out: Tensor<'v>) -> Self {
        let Epilogue { bias, beside: pre, .. } = contraction.epilogue;
        Self {
            contraction,
            out,
            bias: bias.and_then(|bias| Some((operands.get(bias.position)?, bias))),
            pre: pre.and_then(|pre| Some((operands.get(pre.position)?, pre))),
        }
    }

    /// Applies the epilogue to one sum.
    ///
    /// # Safety
    /// No other thread finishes that element of the output.
    unsafe fn element(&self, group: u64, row: At, column: u64, acc: f64) {
        let Contraction { out, epilogue: Epilogue { activation, beta, .. }, .. } = self.contraction;
        let offset = out.offset(group, row, column);
        let bias = self.bias.as_ref();
        let pre_activation =
            bias.map_or(acc, |(bias, vector)| acc + bias.load(group * vector.group + column * vector.stride));
        if let Some((tensor, pre)) = &self.pre {
            // SAFETY: the caller is alone at this element, and outputs address every element once.
            unsafe { tensor.store(pre.offset(group, row, column), pre_activation) };
        }
        let value = accumulated(activation.apply(pre_activation), *beta, || self.out.load(offset));
        // SAFETY: as for pre.
        unsafe { self.out.store(offset, value) };
    }
}

/// The gradient of the bias.
fn channel_sums(sums: &ChannelSums, operands: &Operands<'_>) {
    let Some(grad) = operands.get(sums.dbias.position) else { return };
    let dy = operands.get(sums.dy.position);
    // Without elements there may be any number of the other extents.
    let terms = if dy.is_some() { sums.terms.count() } else { 0 };
    threads::for_each(sums.channels, sums.channels.saturating_mul(terms), |channel| {
        let term = |index| dy.as_ref().map_or(0.0, |dy| dy.load(sums.dy.offset(0, sums.terms.at(index), channel)));
        let total: Sum = (0..terms).map(term).collect();
        let offset = channel * sums.dbias.stride;
        // SAFETY: each channel is one task.
        unsafe { grad.store(offset, accumulated(total.total(), sums.beta, || grad.load(offset))) };
    });
}
