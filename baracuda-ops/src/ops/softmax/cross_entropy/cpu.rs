//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output. A thread takes a line.

use super::{At, Fields, LossReduction, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, Tensor, held, threads};
use crate::kernel::Accepted;
use crate::ops::softmax::masked::Lines;

/// The reference of forward.
pub(super) fn forward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_forward))
}

/// The reference of backward.
pub(super) fn backward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_backward))
}

/// What the target of a line says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Class(u64),
    Ignored,
    OutOfRange,
}

impl Target {
    fn of(fields: &Fields, lines: &Lines, targets: Tensor<'_>, line: u64) -> Self {
        let number = targets.load_integer(lines.offset(At::Targets as usize, line));
        match u64::try_from(number) {
            _ if fields.ignore_index == Some(number) => Self::Ignored,
            Ok(class) if class < lines.dim => Self::Class(class),
            _ => Self::OutOfRange,
        }
    }
}

/// The weight of a class; 1 without weights.
fn weight_of(weight: Option<Tensor<'_>>, class: u64) -> f64 {
    weight.map_or(1.0, |weight| weight.load(class * weight.desc().strides()[0]))
}

/// The sum of the weights of all classes, for label smoothing alone.
fn total_weight(valid: &Valid, weight: Option<Tensor<'_>>) -> f64 {
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
    let (fields, lines) = (&valid.fields, &valid.derived);
    let ([keep, smooth], z) = (fields.smoothing(), fields.z_loss.get());
    let of_line = |line: u64| -> Result<(f64, f64), Shortage> {
        let (Some(x), Some(targets)) = (operands.get(forward::X), operands.get(forward::TARGETS)) else {
            return Ok((0.0, 0.0));
        };
        let values = values(lines, x, line)?;
        let (largest, log_sum) = largest_and_log_sum(&values);
        if let Some(logsumexp) = operands.get(forward::LOGSUMEXP) {
            // SAFETY: each line is one task, and outputs address every element once.
            unsafe { logsumexp.store(lines.offset(At::LogSumExp as usize, line), largest + log_sum) };
        }
        Ok(match Target::of(fields, lines, targets, line) {
            Target::Class(class) => {
                let of_class = x.load(lines.offset(At::X as usize, line) + class * lines.steps[At::X as usize]);
                let of = |value: f64| (largest - value) + log_sum;
                let weight = operands.get(forward::WEIGHT);
                let of_target = weight_of(weight, class);
                let mut loss = keep * of_target * of(of_class);
                if smooth > 0.0 {
                    let terms = (0..).zip(&values).map(|(i, &value)| weight_of(weight, i) * of(value));
                    loss += smooth * terms.collect::<Sum>().total();
                }
                if z > 0.0 {
                    loss += z * (largest + log_sum).powi(2);
                }
                (loss, of_target)
            }
            Target::Ignored => (0.0, 0.0),
            Target::OutOfRange => (f64::NAN, 0.0),
        })
    };
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
    if fields.reduction == LossReduction::None {
        return threads::try_for_each(lines.count, elements, |line| {
            let (of_line, _) = of_line(line)?;
            // SAFETY: each line is one task, and outputs address every element once.
            unsafe { loss.store(lines.offset(At::Loss as usize, line), of_line) };
            Ok(())
        });
    }
    let of_lines: Vec<(f64, f64)> = threads::map(lines.count, elements, of_line)?;
    let mut total = of_lines.iter().map(|(loss, _)| *loss).collect::<Sum>().total();
    if let Some(divisor) = operands.get(forward::DIVISOR) {
        let weight = of_lines.iter().map(|(_, weight)| *weight).collect::<Sum>().total();
        total /= weight;
        // SAFETY: no other thread is at work.
        unsafe { divisor.store(0, weight) };
    }
    // SAFETY: no other thread is at work.
    unsafe { loss.store(0, total) };
    Ok(())
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
        let Target::Class(class) = Target::of(fields, lines, targets, line) else {
            (0..lines.dim).for_each(|i| store(i, 0.0));
            return Ok(());
        };
        let gradient = dloss.load(lines.offset(At::Loss as usize, line)) / divisor;
        let values = values(lines, x, line)?;
        let (shift, log_sum) = match operands.get(backward::LOGSUMEXP) {
            Some(saved) => (saved.load(lines.offset(At::LogSumExp as usize, line)), 0.0),
            None => largest_and_log_sum(&values),
        };
        let of_target = keep * weight_of(weight, class);
        for (i, value) in (0..).zip(values) {
            let share = ((value - shift) - log_sum).exp();
            let mut slope = of_target * (share - if i == class { 1.0 } else { 0.0 });
            if smooth > 0.0 {
                slope += smooth * (total * share - weight_of(weight, i));
            }
            if z > 0.0 {
                slope += 2.0 * z * (shift + log_sum) * share;
            }
            store(i, slope * gradient);
        }
        Ok(())
    })
}
