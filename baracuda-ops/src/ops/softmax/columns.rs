//! Softmax along an axis that strides over others, on the CPU: lines that lie side by side together, in f32 with sums in f64.

use super::masked::Lines;
use super::{BackwardFields, ForwardFields, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{single, to_usize};
use crate::ops::blocks::{Run, scale_and_add};
use crate::ops::pointwise::map::fast::{Widest, widest};
use crate::ops::pointwise::program::exp;
use crate::ops::samples::are_packed;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// Lines that are computed together: a few vectors.
const LANES: usize = 32;
/// The fewest lines side by side of which vectors are not mostly empty.
const FEWEST: u64 = 8;
/// The most lines of a task: neighbours in memory.
const MOST: usize = 256;
/// Elements of a task, which the second cache holds.
const TASK: u64 = 32 * 1024;
/// The longest lines: those of a task take 6 MiB.
const LONGEST: u64 = 32 * 1024;
/// Elements between neighbours of a line beside the lines, so that they do not compete for one place in a cache.
const GAP: usize = 16;

/// The form of forward.
pub(super) fn forward(softmax: &Valid<ForwardFields>) -> Accepted<'_> {
    let ForwardFields { x, axis, causal, bias, .. } = &softmax.fields;
    let y = softmax.slots.at(forward::Y).map_or(*x, |slot| slot.desc);
    let bias = bias.as_ref().map(|bias| bias.broadcast_to(x.dims()));
    let bias = bias.transpose().map_err(|error| Reason::from(error.to_string()))?;
    let operands: Vec<TensorDesc> = [y, *x].into_iter().chain(bias).collect();
    Reason::unless(!causal, || "it takes no causal mask")?;
    let columns = Columns::new(&softmax.slots, &operands, *axis, 2)?;
    Ok(Candidate::on_cpu(move || {
        let fields = softmax.fields.clone();
        move |operands: &Operands<'_>| compute_forward(&fields, &columns, operands)
    })
    .batch_invariant_if(are_of_samples(&operands, *axis)))
}

/// The form of backward.
pub(super) fn backward(softmax: &Valid<BackwardFields>) -> Accepted<'_> {
    let BackwardFields { y, axis, .. } = &softmax.fields;
    let desc = |operand| softmax.slots.at(operand).map_or(*y, |slot| slot.desc);
    let operands = [backward::DX, backward::Y, backward::DY].map(desc);
    let columns = Columns::new(&softmax.slots, &operands, *axis, 3)?;
    Ok(Candidate::on_cpu(move || {
        let fields = softmax.fields.clone();
        move |operands: &Operands<'_>| compute_backward(&fields, &columns, operands)
    })
    .batch_invariant_if(are_of_samples(&operands, *axis)))
}

/// Whether the lines side by side are those of one sample, so that how many there are does not depend on the batch, which the extents before the axis number.
fn are_of_samples(operands: &[TensorDesc], axis: usize) -> bool {
    let is_long = operands[0].dims().get(axis).is_some_and(|&dim| dim > 1);
    is_long && operands.iter().take(2).all(|operand| are_packed(operand, axis))
}

/// Lines of which neighbours lie side by side.
struct Columns {
    lines: Lines,
    /// How many lines lie side by side, and how many of them are a task.
    inner: u64,
    at_once: u64,
}

impl Columns {
    /// Of the operands the first `dense` lie so; the others may repeat elements.
    fn new(slots: &Slots, operands: &[TensorDesc], axis: usize, dense: usize) -> Result<Self, Reason> {
        let is_f64 = slots.iter().any(|slot| slot.desc.dtype() == DType::F64);
        Reason::unless(!is_f64, || "it computes in f32; the reference computes f64")?;
        let lines = Lines::new(operands, axis, false).map_err(|error| Reason::from(error.to_string()))?;
        let inner = lines.extents.last().copied().unwrap_or(1);
        let steps: Vec<u64> = lines.strides[..dense].iter().map(|of| of.last().copied().unwrap_or(0)).collect();
        Reason::unless(lines.count > 0, || "it takes tensors with elements")?;
        Reason::unless(inner >= FEWEST && steps.iter().all(|&step| step == 1), || {
            format!(
                "it takes {FEWEST} lines or more that lie side by side, and {inner} follow each other in steps of {steps:?} elements"
            )
        })?;
        Reason::unless(lines.dim <= LONGEST, || {
            format!("it holds lines of at most {LONGEST} elements; these have {}", lines.dim)
        })?;
        let at_once = (TASK / lines.dim).clamp(LANES as u64, MOST as u64).min(inner);
        Ok(Self { lines, inner, at_once })
    }

    /// Elements between neighbours of a line of a task.
    fn pitch(&self) -> usize {
        to_usize(self.at_once).next_multiple_of(LANES) + GAP
    }

    /// Memory for a value of each element of a task. What lies beside the lines is 0.
    fn values(&self) -> Result<Vec<f32>, Shortage> {
        let count = to_usize(self.lines.dim) * self.pitch();
        let mut values = room(count as u64)?;
        values.resize(count, 0.0);
        Ok(values)
    }

    fn each(&self, task: impl Fn(&Task<'_>) -> Outcome + Sync) -> Outcome {
        let of_row = self.inner.div_ceil(self.at_once);
        let rows = self.lines.count / self.inner;
        threads::try_for_each(rows * of_row, self.lines.count * self.lines.dim, |index| {
            let first = index % of_row * self.at_once;
            let count = to_usize(self.at_once.min(self.inner - first));
            task(&Task { columns: self, line: index / of_row * self.inner + first, count })
        })
    }
}

/// Some lines that lie side by side.
struct Task<'c> {
    columns: &'c Columns,
    line: u64,
    count: usize,
}

impl Task<'_> {
    /// The elements of an operand at the first place of each line, and how far the places lie apart.
    fn run<'a>(&self, tensor: Tensor<'a>, operand: usize) -> (Run<'a>, u64) {
        let lines = &self.columns.lines;
        let step = lines.strides[operand].last().copied().unwrap_or(0);
        (Run { tensor, first: lines.offset(operand, self.line), step }, lines.steps[operand])
    }

    fn read(&self, tensor: Tensor<'_>, operand: usize, values: &mut [f32]) {
        let (run, step) = self.run(tensor, operand);
        for (values, at) in values.chunks_mut(self.columns.pitch()).zip(0..) {
            Run { first: run.first + at * step, ..run }.copy(0, &mut values[..self.count]);
        }
    }

    /// Each value becomes `scale x + bias`, rounded once.
    fn scale_and_add(&self, scale: f64, bias: Option<Tensor<'_>>, values: &mut [f32]) {
        let mut of_bias = [0.0; MOST];
        let of_bias = &mut of_bias[..self.count];
        let run = bias.map(|bias| self.run(bias, 2));
        for (values, at) in values.chunks_mut(self.columns.pitch()).zip(0..) {
            if let Some((run, step)) = run {
                Run { first: run.first + at * step, ..run }.copy(0, of_bias);
            }
            scale_and_add(&mut values[..self.count], scale, run.map(|_| &*of_bias));
        }
    }

    /// Writes the results, each rounded once. No other thread uses these elements.
    fn write(&self, tensor: Tensor<'_>, values: &[f32]) {
        let (run, step) = self.run(tensor, 0);
        for (values, at) in values.chunks(self.columns.pitch()).zip(0..) {
            Run { first: run.first + at * step, ..run }.write(0, &values[..self.count]);
        }
    }
}

struct Forward<'a> {
    values: &'a mut [f32],
    pitch: usize,
    is_log: bool,
    scale: f64,
    /// What a line of masked places alone becomes.
    blank: Option<f32>,
}

impl Widest for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { values, pitch, is_log, scale, blank } = self;
        for first in (0..pitch - GAP).step_by(LANES) {
            let extremes = extremes(values, pitch, first, scale < 0.0);
            let mut totals = [0.0f64; LANES];
            for row in values.chunks_mut(pitch) {
                let row = &mut row[first..][..LANES];
                let mut powers = [0.0f32; LANES];
                if scale == 1.0 {
                    for lane in 0..LANES {
                        powers[lane] = exp::<FUSED>(row[lane] - extremes[lane]);
                    }
                } else {
                    for lane in 0..LANES {
                        let difference = f64::from(row[lane]) - f64::from(extremes[lane]);
                        powers[lane] = exp::<FUSED>(single(scale * difference));
                    }
                }
                for lane in 0..LANES {
                    totals[lane] += f64::from(powers[lane]);
                }
                if !is_log {
                    row.copy_from_slice(&powers);
                }
            }
            if is_log {
                let logarithms = totals.map(f64::ln);
                for row in values.chunks_mut(pitch) {
                    let row = &mut row[first..][..LANES];
                    for lane in 0..LANES {
                        let difference = f64::from(row[lane]) - f64::from(extremes[lane]);
                        row[lane] = single(scale * difference - logarithms[lane]);
                    }
                }
            } else {
                let shares = totals.map(|total| single(1.0 / total));
                for row in values.chunks_mut(pitch) {
                    let row = &mut row[first..][..LANES];
                    for lane in 0..LANES {
                        row[lane] *= shares[lane];
                    }
                }
            }
            let Some(blank) = blank.filter(|_| extremes.contains(&f32::NEG_INFINITY)) else { continue };
            for row in values.chunks_mut(pitch) {
                let row = &mut row[first..][..LANES];
                for lane in 0..LANES {
                    row[lane] = if extremes[lane] == f32::NEG_INFINITY { blank } else { row[lane] };
                }
            }
        }
    }
}

/// The greatest or the least value of each line; a NaN if there is one.
#[inline(always)]
fn extremes(values: &[f32], pitch: usize, first: usize, is_least: bool) -> [f32; LANES] {
    let mut best = [if is_least { f32::INFINITY } else { f32::NEG_INFINITY }; LANES];
    for row in values.chunks(pitch) {
        let row = &row[first..][..LANES];
        if is_least {
            for lane in 0..LANES {
                best[lane] = if best[lane] < row[lane] || best[lane].is_nan() { best[lane] } else { row[lane] };
            }
        } else {
            for lane in 0..LANES {
                best[lane] = if best[lane] > row[lane] || best[lane].is_nan() { best[lane] } else { row[lane] };
            }
        }
    }
    best
}

struct Backward<'a> {
    y: &'a [f32],
    /// The gradients of y, which become those of x.
    gradients: &'a mut [f32],
    pitch: usize,
    is_log: bool,
    /// Whether y is -infinity at masked places, where there is no gradient.
    is_masked: bool,
    scale: f64,
}

impl Widest for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { y, gradients, pitch, is_log, is_masked, scale } = self;
        for first in (0..pitch - GAP).step_by(LANES) {
            let mut sums = [0.0f64; LANES];
            for (y, dy) in y.chunks(pitch).zip(gradients.chunks(pitch)) {
                let (y, dy) = (&y[first..][..LANES], &dy[first..][..LANES]);
                for lane in 0..LANES {
                    let factor = if is_log { 1.0 } else { f64::from(y[lane]) };
                    let term = f64::from(dy[lane]) * factor;
                    sums[lane] += if is_masked && y[lane] == f32::NEG_INFINITY { 0.0 } else { term };
                }
            }
            for (y, dy) in y.chunks(pitch).zip(gradients.chunks_mut(pitch)) {
                let (y, dy) = (&y[first..][..LANES], &mut dy[first..][..LANES]);
                if is_log {
                    for lane in 0..LANES {
                        let share = f64::from(exp::<FUSED>(y[lane])) * sums[lane];
                        let gradient = single(scale * (f64::from(dy[lane]) - share));
                        dy[lane] = if is_masked && y[lane] == f32::NEG_INFINITY { 0.0 } else { gradient };
                    }
                } else {
                    for lane in 0..LANES {
                        dy[lane] = single(scale * (f64::from(y[lane]) * (f64::from(dy[lane]) - sums[lane])));
                    }
                }
            }
        }
    }
}

fn compute_forward(fields: &ForwardFields, columns: &Columns, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let (bias, is_log, is_masked) = (operands.get(forward::BIAS), fields.log, fields.is_masked());
    let blank = is_masked.then_some(if is_log { f32::NEG_INFINITY } else { 0.0 });
    // What is masked is scaled before the largest is subtracted.
    let scale = if is_masked { 1.0 } else { fields.scale.get() };
    columns.each(|task| {
        let mut values = columns.values()?;
        task.read(x, 1, &mut values);
        if is_masked {
            task.scale_and_add(fields.scale.get(), bias, &mut values);
        }
        widest(Forward { values: &mut values, pitch: columns.pitch(), is_log, scale, blank });
        task.write(y, &values);
        Ok(())
    })
}

fn compute_backward(fields: &BackwardFields, columns: &Columns, operands: &Operands<'_>) -> Outcome {
    let (Some(of_y), Some(dy), Some(dx)) =
        (operands.get(backward::Y), operands.get(backward::DY), operands.get(backward::DX))
    else {
        return Ok(());
    };
    let (pitch, is_log, is_masked, scale) = (columns.pitch(), fields.log, fields.is_masked(), fields.scale.get());
    columns.each(|task| {
        let (mut y, mut gradients) = (columns.values()?, columns.values()?);
        task.read(of_y, 1, &mut y);
        task.read(dy, 2, &mut gradients);
        widest(Backward { y: &y, gradients: &mut gradients, pitch, is_log, is_masked, scale });
        task.write(dx, &gradients);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::AnyDescriptor;
    use crate::ops::agreement::agrees;
    use crate::ops::softmax::SoftmaxDescriptor;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn every_division_gives_what_the_reference_does() {
        // More lines than a task has, lines that leave it few, no whole number of vectors.
        for (dims, axis) in [(&[3, 5, 700][..], 1), (&[2000, 70], 0), (&[4, 3, 8], 1), (&[2, 1100, 3, 11], 1)] {
            for is_log in [false, true] {
                for scale in [1.0, -3.0] {
                    let forward = SoftmaxDescriptor::new(dense(dims), axis).unwrap().scale(scale).unwrap();
                    let forward = if is_log { forward.log().unwrap() } else { forward };
                    agrees(&AnyDescriptor::new(forward.backward().unwrap()), "fast_columns", 0.5);
                    agrees(&AnyDescriptor::new(forward), "fast_columns", 0.5);
                }
            }
        }
    }

    #[test]
    fn biases_are_repeated() {
        let x = dense(&[2, 30, 6, 9]);
        for bias in [&[2, 30, 6, 9][..], &[30, 1, 9], &[30, 1, 1], &[1]] {
            let forward = SoftmaxDescriptor::new(x, 1).unwrap().bias(dense(bias)).unwrap().scale(0.5).unwrap();
            agrees(&AnyDescriptor::new(forward.log().unwrap()), "fast_columns", 0.5);
        }
    }

    #[test]
    fn few_lines_are_left_to_the_reference() {
        let device = crate::backend::Device::cpu();
        let serves = |dims: &[u64], axis| {
            let softmax = SoftmaxDescriptor::new(dense(dims), axis).unwrap();
            device.supports(&softmax, &crate::options::PlanOptions::default()).unwrap()
        };
        assert_eq!(serves(&[4, 40, 8], 1), "softmax_fast_columns");
        assert_eq!(serves(&[4, 40, 7], 1), "softmax_reference");
        assert_eq!(serves(&[4, 40, 7], 2), "softmax_fast");
    }
}
