//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::{At, Fields, LossReduction, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, Tensor, held, threads};
use crate::kernel::Accepted;
use crate::ops::softmax::masked::Lines;

/// Elements of a task, if lines are short.
const TASK: u64 = 16 * 1024;

/// The reference of forward.
pub(super) fn forward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_forward).batch_invariant_if(valid.fields.reduction == LossReduction::None))
}

/// The reference of backward.
pub(super) fn backward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_backward).batch_invariant_if(valid.fields.reduction == LossReduction::None))
}

/// What the target of a line says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops::softmax) enum Target {
    Class(u64),
    Ignored,
    OutOfRange,
}

impl Target {
    pub(super) fn of(fields: &Fields, lines: &Lines, targets: Tensor<'_>, line: u64) -> Self {
        let number = targets.load_integer(lines.offset(At::Targets as usize, line));
        Self::new(number, fields.ignore_index, lines.dim)
    }

    pub(in crate::ops::softmax) fn new(number: i64, ignored: Option<i64>, classes: u64) -> Self {
        match u64::try_from(number) {
            _ if ignored == Some(number) => Self::Ignored,
            Ok(class) if class < classes => Self::Class(class),
            _ => Self::OutOfRange,
        }
    }
}

/// The weight of a class; 1 without weights.
pub(super) fn weight_of(weight: Option<Tensor<'_>>, class: u64) -> f64 {
    weight.map_or(1.0, |weight| weight.load(class * weight.desc().strides()[0]))
}

/// What each class of a line counts beside its weight and, of indices, beside what the target does: of probabilities all of it.
fn share_of<'a>(valid: &'a Valid, targets: Option<Tensor<'a>>, line: u64) -> impl Fn(u64) -> f64 + 'a {
    let ([keep, smooth], lines) = (valid.fields.smoothing(), &valid.derived);
    let (first, step) = (lines.offset(At::Targets as usize, line), lines.steps[At::Targets as usize]);
    let probabilities = targets.filter(|_| valid.fields.has_probabilities());
    move |class| smooth + probabilities.map_or(0.0, |of| keep * of.load(first + class * step))
}

/// The sum of the weights of all classes, for label smoothing alone.
pub(super) fn total_weight(valid: &Valid, weight: Option<Tensor<'_>>) -> f64 {
    let lines = &valid.derived;
    match weight {
        Some(_) if lines.count > 0 && valid.fields.label_smoothing.get() > 0.0 => {
            (0..lines.dim).map(|class| weight_of(weight, class)).collect::<Sum>().total()
        }
        _ => lines.dim as f64,
    }
}

/// The elements of a line of x.
fn values(lines: &Lines, x: Tensor<'_>, line: u64) -> Result<Vec<f64>, Shortage> {
    let (first, step) = (lines.offset(At::X as usize, line), lines.steps[At::X as usize]);
    held(lines.dim, (0..lines.dim).map(|i| x.load(first + i * step)))
}

/// The largest element of a line, and the logarithm of the sum of the exponentials of the others' differences from it. Where there is a NaN or +infinity both
/// are NaN, where there is only -infinity both are -infinity.
fn largest_and_log_sum(values: &[f64]) -> (f64, f64) {
    let larger = |largest: f64, &value: &f64| if value > largest || value.is_nan() { value } else { largest };
    let largest = values.iter().fold(f64::NEG_INFINITY, larger);
    if largest == f64::NEG_INFINITY {
        return (largest, largest);
    }
    if !largest.is_finite() {
        return (f64::NAN, f64::NAN);
    }
    let sum = values.iter().map(|value| (value - largest).exp()).collect::<Sum>().total();
    (largest, sum.ln())
}

fn compute_forward(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let lines = &valid.derived;
    let Some(x) = operands.get(forward::X) else { return losses(valid, operands, |_| Ok((0.0, 0.0))) };
    let weight = operands.get(forward::WEIGHT);
    losses(valid, operands, |line| {
        let values = values(lines, x, line)?;
        let about = largest_and_log_sum(&values);
        let of_classes = || {
            let share = share_of(valid, operands.get(forward::TARGETS), line);
            let term = |(i, &value): (u64, &f64)| weight_of(weight, i) * share(i) * ((about.0 - value) + about.1);
            (0..).zip(&values).map(term).collect::<Sum>().total()
        };
        Ok(loss_of_line(valid, operands, line, about, of_classes))
    })
}

/// Stores the logsumexp of a line, whose largest element and logarithm of the sum of exponentials are given, and returns its loss and what that adds to the
/// divisor. `of_classes`: the part of the loss that all classes have, if there is label smoothing or targets are probabilities.
pub(super) fn loss_of_line(
    valid: &Valid,
    operands: &Operands<'_>,
    line: u64,
    (largest, log_sum): (f64, f64),
    of_classes: impl FnOnce() -> f64,
) -> (f64, f64) {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let ([keep, smooth], z) = (fields.smoothing(), fields.z_loss.get());
    let (Some(x), Some(targets)) = (operands.get(forward::X), operands.get(forward::TARGETS)) else {
        return (0.0, 0.0);
    };
    if let Some(logsumexp) = operands.get(forward::LOGSUMEXP) {
        // SAFETY: each line is of one task, and outputs address every element once.
        unsafe { logsumexp.store(lines.offset(At::LogSumExp as usize, line), largest + log_sum) };
    }
    let of_z = || if z > 0.0 { z * (largest + log_sum).powi(2) } else { 0.0 };
    if fields.has_probabilities() {
        return (of_classes() + of_z(), 1.0);
    }
    match Target::of(fields, lines, targets, line) {
        Target::Class(class) => {
            let of_class = x.load(lines.offset(At::X as usize, line) + class * lines.steps[At::X as usize]);
            let of_target = weight_of(operands.get(forward::WEIGHT), class);
            let mut loss = keep * of_target * ((largest - of_class) + log_sum);
            if smooth > 0.0 {
                loss += of_classes();
            }
            (loss + of_z(), of_target)
        }
        Target::Ignored => (0.0, 0.0),
        Target::OutOfRange => (f64::NAN, 0.0),
    }
}

/// Writes the losses of lines, their sum or their mean, and how many targets are out of range. `of_line`: a line's loss and what that adds to the divisor. Sums are
/// those of tasks, which depend on the extents alone, one after the other.
pub(super) fn losses(
    valid: &Valid,
    operands: &Operands<'_>,
    of_line: impl Fn(u64) -> Result<(f64, f64), Shortage> + Sync,
) -> Outcome {
    let (fields, lines) = (&valid.fields, &valid.derived);
    if let Some(missing) = operands.get(forward::MISSING) {
        let found = operands.get(forward::TARGETS).map_or(0, |targets| {
            let is_missing = |line: &u64| Target::of(fields, lines, targets, *line) == Target::OutOfRange;
            (0..lines.count).filter(is_missing).count()
        });
        // SAFETY: no other thread is at work.
        unsafe { missing.store_integer(0, (found as u64).cast_signed()) };
    }
    let elements = lines.count.saturating_mul(lines.dim);
    let Some(loss) = operands.get(forward::LOSS) else { return Ok(()) };
    let of_task = lines_of_task(lines);
    let tasks = lines.count.div_ceil(of_task);
    let lines_of = |task: u64| task * of_task..lines.count.min((task + 1) * of_task);
    if fields.reduction == LossReduction::None {
        return threads::try_for_each(tasks, elements, |task| {
            for line in lines_of(task) {
                let (of_line, _) = of_line(line)?;
                // SAFETY: each line is of one task, and outputs address every element once.
                unsafe { loss.store(lines.offset(At::Loss as usize, line), of_line) };
            }
            Ok(())
        });
    }
    let of_tasks: Vec<[Sum; 2]> = threads::map(tasks, elements, |task| {
        let [mut losses, mut weights] = [Sum::default(); 2];
        for line in lines_of(task) {
            let (loss, weight) = of_line(line)?;
            losses.add(loss);
            weights.add(weight);
        }
        Ok::<_, Shortage>([losses, weights])
    })?;
    let total = |which: usize| of_tasks.iter().fold(Sum::default(), |sum, of_task| sum.plus(of_task[which])).total();
    let mut sum = total(0);
    if let Some(divisor) = operands.get(forward::DIVISOR) {
        let weight = total(1);
        sum /= weight;
        // SAFETY: no other thread is at work.
        unsafe { divisor.store(0, weight) };
    }
    // SAFETY: no other thread is at work.
    unsafe { loss.store(0, sum) };
    Ok(())
}

/// How many lines a task has: it depends on the extents alone.
pub(super) fn lines_of_task(lines: &Lines) -> u64 {
    (TASK / lines.dim.max(1)).max(1)
}

fn compute_backward(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let (fields, lines) = (&valid.fields, &valid.derived);
    let (Some(x), Some(targets), Some(dloss), Some(dx)) = (
        operands.get(backward::X),
        operands.get(backward::TARGETS),
        operands.get(backward::DLOSS),
        operands.get(backward::DX),
    ) else {
        return Ok(());
    };
    let ([keep, smooth], z) = (fields.smoothing(), fields.z_loss.get());
    let weight = operands.get(backward::WEIGHT);
    let total = total_weight(valid, weight);
    let divisor = operands.get(backward::DIVISOR).map_or(1.0, |divisor| divisor.load(0));
    threads::try_for_each(lines.count, x.desc().elements(), |line| {
        let (first, step) = (lines.offset(At::Dx as usize, line), lines.steps[At::Dx as usize]);
        let store = |i: u64, value: f64| {
            // SAFETY: each line is one task, which has read all of it, and outputs address every element once.
            unsafe { dx.store(first + i * step, value) };
        };
        let class = match fields.has_probabilities() {
            true => None,
            false => match Target::of(fields, lines, targets, line) {
                Target::Class(class) => Some(class),
                Target::Ignored | Target::OutOfRange => {
                    (0..lines.dim).for_each(|i| store(i, 0.0));
                    return Ok(());
                }
            },
        };
        let gradient = dloss.load(lines.offset(At::Loss as usize, line)) / divisor;
        let values = values(lines, x, line)?;
        let (shift, log_sum) = match operands.get(backward::LOGSUMEXP) {
            Some(saved) => (saved.load(lines.offset(At::LogSumExp as usize, line)), 0.0),
            None => largest_and_log_sum(&values),
        };
        let of_target = class.map_or(0.0, |class| keep * weight_of(weight, class));
        let share_of = share_of(valid, Some(targets), line);
        let of_class = |class: u64| weight_of(weight, class) * share_of(class);
        let total = match class {
            Some(_) => smooth * total,
            None => (0..lines.dim).map(of_class).collect::<Sum>().total(),
        };
        for (i, value) in (0..).zip(values) {
            let share = ((value - shift) - log_sum).exp();
            let mut slope = of_target * (share - if class == Some(i) { 1.0 } else { 0.0 });
            if smooth > 0.0 || class.is_none() {
                slope += total * share - of_class(i);
            }
            if z > 0.0 {
                slope += 2.0 * z * (shift + log_sum) * share;
            }
            store(i, slope * gradient);
        }
        Ok(())
    })
}
