//! The reference: the formulas of the family in f64, with compensated sums, for any strides; results are rounded once, to the output's type.

use super::{BackwardFields, ForwardFields, RowNorm, Valid};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, Tensor, held, rounded, threads};
use crate::kernel::Accepted;
use crate::narrow::to_usize;
use crate::ops::norm::statistics::Statistics;
use crate::tensor::TensorDesc;

/// A tensor by rows: its first `outer` extents number them.
struct Rows<'a> {
    tensor: Tensor<'a>,
    outer: usize,
    /// Offsets of a row's elements from the row's first one.
    cols: Vec<u64>,
}

impl<'a> Rows<'a> {
    fn new(tensor: Tensor<'a>, outer: usize) -> Result<Self, Shortage> {
        let desc = tensor.desc();
        let cols = desc.dims()[outer..].iter().product();
        let cols = held(cols, (0..cols).map(|col| offset(desc, outer..desc.rank(), col)))?;
        Ok(Self { tensor, outer, cols })
    }

    fn at(&self, row: u64, col: usize) -> u64 {
        offset(self.tensor.desc(), 0..self.outer, row) + self.cols[col]
    }

    fn load(&self, row: u64) -> Result<Vec<f64>, Shortage> {
        let start = offset(self.tensor.desc(), 0..self.outer, row);
        held(self.cols.len() as u64, self.cols.iter().map(|col| self.tensor.load(start + col)))
    }

    /// # Safety
    /// - No other thread reads or writes that row during the call.
    unsafe fn store(&self, row: u64, values: impl Iterator<Item = f64>) {
        let start = offset(self.tensor.desc(), 0..self.outer, row);
        for (col, value) in self.cols.iter().zip(values) {
            // SAFETY: no other thread uses this row, and an output has no two elements at one address.
            unsafe { self.tensor.store(start + col, value) };
        }
    }
}

/// Offset of element `index` in row-major order of the extents `axes`.
fn offset(desc: &TensorDesc, axes: std::ops::Range<usize>, mut index: u64) -> u64 {
    let mut offset = 0;
    for axis in axes.rev() {
        let dim = desc.dims()[axis];
        offset += index % dim * desc.strides()[axis];
        index /= dim;
    }
    offset
}

/// Elements of a parameter in row-major order.
fn parameter(operands: &Operands<'_>, position: usize) -> Result<Option<Vec<f64>>, Shortage> {
    operands.get(position).map(|tensor| Rows::new(tensor, 0)?.load(0)).transpose()
}

fn statistics(kind: RowNorm, row: &[f64]) -> Statistics {
    let mean_square = || row.iter().map(|x| x * x).collect::<Sum>().total() / row.len() as f64;
    match kind {
        RowNorm::Layer => Statistics::of(row),
        RowNorm::Rms => Statistics { mean: 0.0, correction: 0.0, var: mean_square() },
    }
}

/// How many rows there are, and what gives an operand by rows.
fn by_rows<'a>(
    operands: &'a Operands<'_>,
    x: &TensorDesc,
    normalized_dims: usize,
) -> (u64, impl Fn(usize) -> Result<Option<Rows<'a>>, Shortage>) {
    let outer = x.rank() - normalized_dims;
    let rows = x.dims()[..outer].iter().product();
    (rows, move |position| operands.get(position).map(|tensor| Rows::new(tensor, outer)).transpose())
}

/// The reference of forward.
pub(in crate::ops::norm) fn forward(norm: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
    use super::forward::{BIAS, H, MEAN, RESIDUAL, RSTD, WEIGHT, X, Y};
    let x = &norm.fields.x;
    let (rows, rows_of) = by_rows(operands, x, norm.fields.normalized_dims);
    let (input, residual, y, h) = (rows_of(X)?, rows_of(RESIDUAL)?, rows_of(Y)?, rows_of(H)?);
    let (mean_out, rstd_out) = (rows_of(MEAN)?, rows_of(RSTD)?);
    let (weight, bias) = (parameter(operands, WEIGHT)?, parameter(operands, BIAS)?);
    let weight_offset = norm.fields.weight_offset.get();

    threads::try_for_each(rows, x.elements(), |row| {
        let mut values = input.as_ref().map_or(Ok(Vec::new()), |input| input.load(row))?;
        if let Some(residual) = &residual {
            for (value, other) in values.iter_mut().zip(residual.load(row)?) {
                *value = rounded(x.dtype(), *value + other);
            }
        }
        let statistics = statistics(norm.op.kind, &values);
        let (Statistics { mean, correction, .. }, rstd) = (statistics, statistics.rstd(norm.fields.eps.get()));
        // SAFETY: each row is one task, and the whole row was read before.
        unsafe {
            if let Some(h) = &h {
                h.store(row, values.iter().copied());
            }
            if let Some(y) = &y {
                let normalized = values.iter().enumerate().map(|(col, value)| {
                    let scale = weight.as_ref().map_or(1.0, |w| w[col] + weight_offset);
                    ((value - mean) - correction) * rstd * scale + bias.as_ref().map_or(0.0, |b| b[col])
                });
                y.store(row, normalized);
            }
            if let Some(out) = &mean_out {
                out.store(row, std::iter::once(mean + correction));
            }
            if let Some(out) = &rstd_out {
                out.store(row, std::iter::once(rstd));
            }
        }
        Ok(())
    })
}

/// The reference of the gradients, as a kernel.
pub(in crate::ops::norm) fn accept_backward(norm: &Valid<BackwardFields>) -> Accepted<'_> {
    Ok(norm.on_cpu(backward).batch_invariant_if(norm.fields.is_of_rows()))
}

/// The reference of the gradients.
fn backward(norm: &Valid<BackwardFields>, operands: &Operands<'_>) -> Outcome {
    use super::backward::{DBIAS, DH, DWEIGHT, DX, DY, MEAN, RSTD, WEIGHT, X};
    let x = &norm.fields.x;
    let (rows, rows_of) = by_rows(operands, x, norm.fields.normalized_dims);
    let (dy, input, mean, rstd) = (rows_of(DY)?, rows_of(X)?, rows_of(MEAN)?, rows_of(RSTD)?);
    let (dh, dx) = (rows_of(DH)?, rows_of(DX)?);
    let weight = parameter(operands, WEIGHT)?;
    let weight_offset = norm.fields.weight_offset.get();
    let statistic = |of: &Option<Rows<'_>>, row| of.as_ref().map_or(0.0, |rows| rows.tensor.load(rows.at(row, 0)));

    // The gradients of parameters come first, since dx may lie in the place of dy.
    for (position, is_weight) in [(DWEIGHT, true), (DBIAS, false)] {
        let Some(out) = operands.get(position) else { continue };
        let out = Rows::new(out, 0)?;
        threads::for_each(out.cols.len() as u64, x.elements(), |col| {
            let col = to_usize(col);
            let term = |row| {
                let (Some(dy), Some(input)) = (&dy, &input) else { return 0.0 };
                let dy = dy.tensor.load(dy.at(row, col));
                if !is_weight {
                    return dy;
                }
                dy * (input.tensor.load(input.at(row, col)) - statistic(&mean, row)) * statistic(&rstd, row)
            };
            let sum = (0..rows).map(term).collect::<Sum>().total();
            // SAFETY: each column is one task.
            unsafe { out.tensor.store(out.at(0, col), sum) };
        });
    }

    let (Some(dy), Some(input), Some(dx)) = (&dy, &input, &dx) else { return Ok(()) };
    threads::try_for_each(rows, x.elements(), |row| {
        let (mean, rstd) = (statistic(&mean, row), statistic(&rstd, row));
        let mut g = dy.load(row)?;
        if let Some(weight) = &weight {
            g.iter_mut().zip(weight).for_each(|(g, w)| *g *= w + weight_offset);
        }
        let mut xhat = input.load(row)?;
        xhat.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
        let n = g.len() as f64;
        let mean_g = match norm.op.kind {
            RowNorm::Layer => g.iter().copied().collect::<Sum>().total() / n,
            RowNorm::Rms => 0.0,
        };
        let mean_gx = g.iter().zip(&xhat).map(|(g, xhat)| g * xhat).collect::<Sum>().total() / n;
        let more = dh.as_ref().map(|dh| dh.load(row)).transpose()?;
        let gradient = g
            .iter()
            .zip(&xhat)
            .enumerate()
            .map(|(col, (g, xhat))| rstd * (g - mean_g - xhat * mean_gx) + more.as_ref().map_or(0.0, |dh| dh[col]));
        // SAFETY: each row is one task, and the whole row of dy and dh was read before.
        unsafe { dx.store(row, gradient) };
        Ok(())
    })
}
