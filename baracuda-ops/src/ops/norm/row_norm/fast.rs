//! Row norms on the CPU, block by block: elements are f32, f16 or bf16, means are f64, sums of squares and of gradients f32 in short chains.

use super::{BackwardFields, ForwardFields, RowNorm, Valid};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::{single, to_usize};
use crate::ops::blocks::{
    Affine, EMPTY, Means, Run, add, add_to_columns, blocks, is_moderate, move_sums, multiply, normalise,
    normalise_gradient, single_sum_of_squares, sum, sum_of_squares, sums_of_gradient,
};
use crate::ops::norm::statistics::Statistics;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// The longest rows whose sums of columns fit beside a thread's blocks: 6 MiB.
const MOST_COLUMNS: u64 = 1 << 18;
/// The most rows whose terms are added up in f32.
const CHAIN: u64 = 16;
/// The most pieces of the rows, each with sums of columns of its own, which are added up in order.
const PIECES: u64 = 32;

/// The form of forward.
pub(in crate::ops::norm) fn forward(norm: &Valid<ForwardFields>) -> Accepted<'_> {
    use super::forward::{BIAS, H, RESIDUAL, WEIGHT, X, Y};
    check(&norm.slots, norm.fields.x.rank() - norm.fields.normalized_dims, &[X, RESIDUAL, Y, H], &[WEIGHT, BIAS])?;
    Ok(norm.on_cpu(compute_forward).batch_invariant())
}

/// The form of backward.
pub(in crate::ops::norm) fn backward(norm: &Valid<BackwardFields>) -> Accepted<'_> {
    use super::backward::{DBIAS, DH, DWEIGHT, DX, DY, WEIGHT, X};
    let BackwardFields { x, normalized_dims, dweight, dbias, .. } = &norm.fields;
    let outer = x.rank() - normalized_dims;
    check(&norm.slots, outer, &[DY, X, DH, DX], &[WEIGHT, DWEIGHT, DBIAS])?;
    let cols: u64 = x.dims()[outer..].iter().product();
    Reason::unless(cols <= MOST_COLUMNS || !(*dweight || dbias.is_some()), || {
        format!("it adds up the gradients of at most {MOST_COLUMNS} parameters; there are {cols}")
    })?;
    Ok(norm.on_cpu(compute_backward).batch_invariant_if(norm.fields.is_of_rows()))
}

/// Refuses f64, and rows whose elements are not evenly spaced.
fn check(slots: &Slots, outer: usize, rows: &[usize], parameters: &[usize]) -> Result<(), Reason> {
    let of_rows = slots.all_at(rows).map(|slot| (slot, outer));
    for (slot, outer) in of_rows.chain(slots.all_at(parameters).map(|slot| (slot, 0))) {
        Reason::unless(slot.desc.dtype() != DType::F64, || "it reads elements as f32; the reference computes f64")?;
        Reason::unless(step(&slot.desc, outer).is_some(), || {
            let (name, strides) = (slot.name, slot.desc.strides());
            format!(
                "the elements of a row of {name} are not evenly spaced: strides {strides:?}; copy it to a dense tensor"
            )
        })?;
    }
    Ok(())
}

/// The elements from one of a row to the next, if they are evenly spaced. `outer` extents number the rows.
fn step(desc: &TensorDesc, outer: usize) -> Option<u64> {
    let inner = desc.dims().iter().zip(desc.strides()).skip(outer).rev().filter(|(dim, _)| **dim != 1);
    let mut run: Option<(u64, u64)> = None;
    for (&dim, &stride) in inner {
        run = match run {
            None => Some((stride, dim)),
            Some((step, elements)) if step.checked_mul(elements) == Some(stride) => Some((step, elements * dim)),
            Some(_) if desc.is_empty() => run,
            Some(_) => return None,
        };
    }
    Some(run.map_or(1, |(step, _)| step))
}

/// A tensor by rows.
#[derive(Clone, Copy)]
struct Rows<'a> {
    tensor: Tensor<'a>,
    outer: usize,
    step: u64,
}

impl<'a> Rows<'a> {
    fn new(tensor: Tensor<'a>, outer: usize) -> Self {
        let step = step(tensor.desc(), outer).unwrap_or(1);
        Self { tensor, outer, step }
    }

    fn count(&self) -> u64 {
        self.tensor.desc().dims()[..self.outer].iter().product()
    }

    fn row(&self, mut index: u64) -> Run<'a> {
        let desc = self.tensor.desc();
        let mut first = 0;
        for (&dim, &stride) in desc.dims().iter().zip(desc.strides()).take(self.outer).rev() {
            first += index % dim * stride;
            index /= dim;
        }
        Run { tensor: self.tensor, first, step: self.step }
    }

    /// The first element of a row.
    fn load(&self, index: u64) -> f64 {
        self.tensor.load(self.row(index).first)
    }

    /// # Safety
    /// No other thread uses that row meanwhile.
    unsafe fn store(&self, index: u64, value: f64) {
        // SAFETY: the caller is alone at this element.
        unsafe { self.tensor.store(self.row(index).first, value) };
    }
}

fn compute_forward(norm: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
    use super::forward::{BIAS, H, MEAN, RESIDUAL, RSTD, WEIGHT, X, Y};
    let ForwardFields { x, normalized_dims, eps, weight_offset, .. } = &norm.fields;
    let (outer, kind) = (x.rank() - normalized_dims, norm.op.kind);
    let (rows, cols): (u64, u64) = (x.dims()[..outer].iter().product(), x.dims()[outer..].iter().product());
    let rows_of = |operand| operands.get(operand).map(|tensor| Rows::new(tensor, outer));
    let parameter = |operand| operands.get(operand).map(|tensor| Rows::new(tensor, 0).row(0));
    let (input, residual, y) = (rows_of(X), rows_of(RESIDUAL), rows_of(Y));
    let h = operands.get(H).map(|tensor| Rows::new(tensor.kept(), outer));
    let (mean_out, rstd_out) = (rows_of(MEAN), rows_of(RSTD));
    let (weight, bias) = (parameter(WEIGHT), parameter(BIAS));
    threads::for_each(rows, x.elements(), |row| {
        let [mut values, mut scales, mut shifts] = [EMPTY; 3];
        let next = [input, residual].map(|tensor| tensor.filter(|_| row + 1 < rows).map(|tensor| tensor.row(row + 1)));
        let [input, residual, y, h] = [input, residual, y, h].map(|rows| rows.map(|rows| rows.row(row)));
        if let (Some(input), Some(residual), Some(h)) = (&input, &residual, &h) {
            for (at, length) in blocks(cols) {
                let sum = input.read(at, length, &mut values);
                add(sum, residual.view(at, length, &mut scales));
                h.write(at, sum);
            }
        }
        let normalised = h.or(input);
        let mut total = |term: &dyn Fn(&[f32]) -> f64| -> f64 {
            let Some(run) = &normalised else { return 0.0 };
            blocks(cols).map(|(at, length)| term(run.view(at, length, &mut values))).sum()
        };
        let n = cols as f64;
        let mean = if kind == RowNorm::Layer && cols > 0 { total(&sum) / n } else { 0.0 };
        // Beside an infinity no difference from the mean is a number.
        let mean = if mean.is_finite() { mean } else { f64::NAN };
        let mut var = total(&|values| single_sum_of_squares(values, mean)) / n;
        if !is_moderate(var.sqrt()) {
            var = total(&|values| sum_of_squares(values, mean)) / n;
        }
        let rstd = Statistics { mean, correction: 0.0, var }.rstd(eps.get());
        if let (Some(run), Some(y)) = (&normalised, &y) {
            for (at, length) in blocks(cols) {
                next.iter().flatten().for_each(|next| next.prefetch(at, length));
                let values = run.read(at, length, &mut values);
                let scale = weight.as_ref().map(|weight| weight.view(at, length, &mut scales));
                let shift = bias.as_ref().map(|bias| bias.view(at, length, &mut shifts));
                normalise(values, mean, rstd, Affine { scale, offset: weight_offset.get(), shift });
                y.write(at, values);
            }
        }
        for (out, value) in [(&mean_out, mean), (&rstd_out, rstd)] {
            if let Some(out) = out {
                // SAFETY: each row is one task.
                unsafe { out.store(row, value) };
            }
        }
    });
    Ok(())
}

/// What the gradients of rows are computed from and written to.
struct Gradient<'a> {
    kind: RowNorm,
    cols: u64,
    dy: Option<Rows<'a>>,
    x: Option<Rows<'a>>,
    mean: Option<Rows<'a>>,
    rstd: Option<Rows<'a>>,
    dh: Option<Rows<'a>>,
    dx: Option<Rows<'a>>,
    weight: Option<Run<'a>>,
    offset: f64,
}

impl Gradient<'_> {
    /// Adds a row to the sums of the columns, and writes the row's gradient.
    fn row(&self, row: u64, weights: &mut [f32], biases: &mut [f32]) {
        let (Some(dy), Some(x)) = (&self.dy, &self.x) else { return };
        let (dy, x) = (dy.row(row), x.row(row));
        let statistic = |of: &Option<Rows<'_>>| of.as_ref().map_or(0.0, |rows| rows.load(row));
        let (mean, rstd) = (statistic(&self.mean), statistic(&self.rstd));
        let [mut of_dy, mut of_x, mut others] = [EMPTY; 3];
        let (mut sum_g, mut sum_gx) = (0.0, 0.0);
        for (at, length) in blocks(self.cols) {
            let g = dy.read(at, length, &mut of_dy);
            let x = x.view(at, length, &mut of_x);
            let of = |sums: &[f32]| if sums.is_empty() { 0..0 } else { to_usize(at)..to_usize(at) + length };
            let (of_weights, of_biases) = (of(weights), of(biases));
            add_to_columns([&mut weights[of_weights], &mut biases[of_biases]], g, x, mean, rstd);
            if self.dx.is_some() {
                if let Some(weight) = &self.weight {
                    multiply(g, weight.view(at, length, &mut others), self.offset);
                }
                let [g, gx] = sums_of_gradient(g, x, mean, rstd);
                (sum_g, sum_gx) = (sum_g + g, sum_gx + gx);
            }
        }
        let Some(dx) = self.dx.as_ref().map(|dx| dx.row(row)) else { return };
        let n = self.cols as f64;
        let g = if self.kind == RowNorm::Layer { sum_g / n } else { 0.0 };
        let means = Means { mean, rstd, g, gx: sum_gx / n };
        let next = [&self.dy, &self.x]
            .map(|rows| rows.as_ref().filter(|rows| row + 1 < rows.count()).map(|rows| rows.row(row + 1)));
        for (at, length) in blocks(self.cols) {
            next.iter().flatten().for_each(|next| next.prefetch(at, length));
            let g = dy.read(at, length, &mut of_dy);
            if let Some(weight) = &self.weight {
                multiply(g, weight.view(at, length, &mut others), self.offset);
            }
            let more = self.dh.as_ref().map(|dh| &*dh.row(row).read(at, length, &mut others));
            normalise_gradient(g, x.view(at, length, &mut of_x), means, more);
            dx.write(at, g);
        }
    }
}

fn compute_backward(norm: &Valid<BackwardFields>, operands: &Operands<'_>) -> Outcome {
    use super::backward::{DBIAS, DH, DWEIGHT, DX, DY, MEAN, RSTD, WEIGHT, X};
    let BackwardFields { x, normalized_dims, weight_offset, .. } = &norm.fields;
    let outer = x.rank() - normalized_dims;
    let (rows, cols): (u64, u64) = (x.dims()[..outer].iter().product(), x.dims()[outer..].iter().product());
    let rows_of = |operand| operands.get(operand).map(|tensor| Rows::new(tensor, outer));
    let parameter = |operand| operands.get(operand).map(|tensor| Rows::new(tensor, 0).row(0));
    let gradient = Gradient {
        kind: norm.op.kind,
        cols,
        dy: rows_of(DY),
        x: rows_of(X),
        mean: rows_of(MEAN),
        rstd: rows_of(RSTD),
        dh: rows_of(DH),
        dx: rows_of(DX),
        weight: parameter(WEIGHT),
        offset: weight_offset.get(),
    };
    let outs = [parameter(DWEIGHT), parameter(DBIAS)];
    if outs.iter().all(Option::is_none) {
        threads::for_each(rows, x.elements(), |row| gradient.row(row, &mut [], &mut []));
        return Ok(());
    }
    let of_piece = rows.div_ceil(PIECES).max(1);
    let partial = threads::map(rows.div_ceil(of_piece), x.elements(), |piece| {
        let (mut sums, mut chains) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for ((sums, chains), _) in sums.iter_mut().zip(&mut chains).zip(&outs).filter(|(_, out)| out.is_some()) {
            (*sums, *chains) = (room(cols)?, room(cols)?);
            sums.resize(to_usize(cols), 0.0);
            chains.resize(to_usize(cols), 0.0);
        }
        let end = rows.min((piece + 1) * of_piece);
        for first in (piece * of_piece..end).step_by(to_usize(CHAIN)) {
            let [weights, biases] = &mut chains;
            for row in first..end.min(first + CHAIN) {
                gradient.row(row, weights, biases);
            }
            chains.iter_mut().zip(&mut sums).for_each(|(chains, sums)| move_sums(chains, sums));
        }
        Ok::<_, Shortage>(sums)
    })?;
    for (which, out) in outs.iter().enumerate() {
        let Some(out) = out else { continue };
        let mut values = EMPTY;
        for (at, length) in blocks(cols) {
            for (value, col) in values[..length].iter_mut().zip(to_usize(at)..) {
                *value = single(partial.iter().map(|sums: &[Vec<f64>; 2]| sums[which][col]).sum());
            }
            out.write(at, &values[..length]);
        }
    }
    Ok(())
}
