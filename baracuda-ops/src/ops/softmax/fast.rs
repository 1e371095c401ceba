//! Softmax along an axis whose elements lie side by side, on the CPU: a line at a time, in f32, with sums in short chains that meet in f64.

use super::masked::Lines;
use super::{BackwardFields, ForwardFields, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::blocks::{
    EMPTY, Run, blocks, extreme, log_softmax, scale_and_add, softmax, softmax_gradient, sum_of_softmax_gradient,
};
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// The longest lines: a thread holds one, of 4 MiB.
const LONGEST: u64 = 1 << 20;
/// Elements of a task, if lines are short.
const PIECE: u64 = 16 * 1024;

/// The lines of some operands.
///
/// # Errors
/// Why the form does not take them.
fn lines(slots: &Slots, operands: &[TensorDesc], axis: usize, is_causal: bool) -> Result<Lines, Reason> {
    let is_f64 = slots.iter().any(|slot| slot.desc.dtype() == DType::F64);
    Reason::unless(!is_f64, || "it computes in f32; the reference computes f64")?;
    let lines = Lines::new(operands, axis, is_causal).map_err(|error| Reason::from(error.to_string()))?;
    Reason::unless(lines.dim <= 1 || lines.steps[..2].iter().all(|&step| step == 1), || {
        let steps = &lines.steps;
        format!("it takes lines whose elements lie side by side, and from one to the next there are {steps:?} elements")
    })?;
    Reason::unless(lines.dim <= LONGEST, || {
        format!("it holds a line of at most {LONGEST} elements; there are {}", lines.dim)
    })?;
    Ok(lines)
}

/// The form of forward.
pub(super) fn forward(softmax: &Valid<ForwardFields>) -> Accepted<'_> {
    let ForwardFields { x, axis, causal, bias, .. } = &softmax.fields;
    let y = softmax.slots.at(forward::Y).map_or(*x, |slot| slot.desc);
    let bias = bias.as_ref().map(|bias| bias.broadcast_to(x.dims()));
    let bias = bias.transpose().map_err(|error| Reason::from(error.to_string()))?;
    let operands: Vec<TensorDesc> = [y, *x].into_iter().chain(bias).collect();
    let lines = lines(&softmax.slots, &operands, *axis, *causal)?;
    Ok(Candidate::on_cpu(move || {
        let fields = softmax.fields.clone();
        move |operands: &Operands<'_>| compute_forward(&fields, &lines, operands)
    })
    .batch_invariant())
}

/// The form of backward.
pub(super) fn backward(softmax: &Valid<BackwardFields>) -> Accepted<'_> {
    let BackwardFields { y, axis, .. } = &softmax.fields;
    let desc = |operand| softmax.slots.at(operand).map_or(*y, |slot| slot.desc);
    let operands = [backward::DX, backward::Y, backward::DY].map(desc);
    let lines = lines(&softmax.slots, &operands, *axis, false)?;
    Ok(Candidate::on_cpu(move || {
        let fields = softmax.fields.clone();
        move |operands: &Operands<'_>| compute_backward(&fields, &lines, operands)
    })
    .batch_invariant())
}

impl Lines {
    /// A line of an operand.
    fn run<'a>(&self, tensor: Tensor<'a>, operand: usize, line: u64) -> Run<'a> {
        Run { tensor, first: self.offset(operand, line), step: self.steps[operand] }
    }
}

fn compute_forward(fields: &ForwardFields, lines: &Lines, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let (bias, is_masked) = (operands.get(forward::BIAS), fields.is_masked());
    let blank = if fields.log { f32::NEG_INFINITY } else { 0.0 };
    // What is masked is scaled before the largest is subtracted.
    let scale = if is_masked { 1.0 } else { fields.scale.get() };
    let group = (PIECE / lines.dim.max(1)).max(1);
    threads::try_for_each(lines.count.div_ceil(group), lines.count * lines.dim, |task| {
        let mut values: Vec<f32> = room(lines.dim)?;
        values.resize(to_usize(lines.dim), 0.0);
        for line in task * group..lines.count.min((task + 1) * group) {
            let visible = if is_masked { to_usize(lines.visible(line)) } else { values.len() };
            let (shown, hidden) = values.split_at_mut(visible);
            lines.run(x, 1, line).copy(0, shown);
            if is_masked {
                let mut of_bias = EMPTY;
                for (at, length) in blocks(visible as u64) {
                    let bias = bias.map(|bias| &*lines.run(bias, 2, line).read(at, length, &mut of_bias));
                    scale_and_add(&mut shown[to_usize(at)..][..length], fields.scale.get(), bias);
                }
            }
            let extreme = extreme(shown, scale < 0.0);
            if is_masked && (shown.is_empty() || extreme == f32::NEG_INFINITY) {
                shown.fill(blank);
            } else if fields.log {
                log_softmax(shown, extreme, scale);
            } else {
                let next = (line + 1 < lines.count).then(|| lines.run(x, 1, line + 1));
                softmax(shown, extreme, scale, next);
            }
            hidden.fill(blank);
            lines.run(y, 0, line).write(0, &values);
        }
        Ok::<_, Shortage>(())
    })
}

fn compute_backward(fields: &BackwardFields, lines: &Lines, operands: &Operands<'_>) -> Outcome {
    let (Some(y), Some(dy), Some(dx)) =
        (operands.get(backward::Y), operands.get(backward::DY), operands.get(backward::DX))
    else {
        return Ok(());
    };
    let (is_log, scale) = (fields.log, fields.scale.get());
    threads::for_each(lines.count, lines.count * lines.dim, |line| {
        let next = (line + 1 < lines.count).then(|| [lines.run(y, 1, line + 1), lines.run(dy, 2, line + 1)]);
        let (y, dy, dx) = (lines.run(y, 1, line), lines.run(dy, 2, line), lines.run(dx, 0, line));
        let [mut of_y, mut of_dy] = [EMPTY; 2];
        let mut sum = 0.0;
        for (at, length) in blocks(lines.dim) {
            let (y, dy) = (y.read(at, length, &mut of_y), dy.read(at, length, &mut of_dy));
            if fields.is_masked() {
                dy.iter_mut().zip(&*y).filter(|(_, y)| **y == f32::NEG_INFINITY).for_each(|(dy, _)| *dy = 0.0);
            }
            sum += sum_of_softmax_gradient(y, dy, is_log);
        }
        for (at, length) in blocks(lines.dim) {
            let (y, dy) = (y.read(at, length, &mut of_y), dy.read(at, length, &mut of_dy));
            next.iter().flatten().for_each(|next| next.prefetch(at, length));
            softmax_gradient(y, dy, sum, scale, is_log);
            if fields.is_masked() {
                dy.iter_mut().zip(&*y).filter(|(_, y)| **y == f32::NEG_INFINITY).for_each(|(dx, _)| *dx = 0.0);
            }
            dx.write(at, dy);
        }
    });
    Ok(())
}
