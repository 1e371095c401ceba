//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::masked::Lines;
use super::{BackwardFields, ForwardFields, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Sum, held, threads};
use crate::kernel::Accepted;
use crate::ops::lines::{Line, line_count};

/// What scaling makes the largest element; NaN if there is one.
fn extreme(values: &[f64], scale: f64) -> f64 {
    let is_larger = |a: f64, b: f64| if scale < 0.0 { a < b } else { a > b };
    let larger = |best: f64, value: f64| if value.is_nan() || is_larger(value, best) { value } else { best };
    values.iter().copied().reduce(larger).unwrap_or(f64::NAN)
}

/// `scale * (value - extreme)`. In f64, the difference of finite numbers of either sign may overflow though what the scale makes of it does
/// not; their scaled values have either sign, too, so that their difference is no `inf - inf`.
fn scaled_difference(scale: f64, value: f64, extreme: f64) -> f64 {
    let difference = value - extreme;
    if difference.is_infinite() && value.is_finite() && extreme.is_finite() {
        return scale * value - scale * extreme;
    }
    scale * difference
}

/// The reference of forward.
pub(super) fn forward(softmax: &Valid<ForwardFields>) -> Accepted<'_> {
    Ok(softmax.on_cpu(compute_forward).batch_invariant())
}

/// The reference of backward.
pub(super) fn backward(softmax: &Valid<BackwardFields>) -> Accepted<'_> {
    Ok(softmax.on_cpu(compute_backward).batch_invariant())
}

fn compute_forward(softmax: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
    let fields = &softmax.fields;
    if let Some(lines) = &softmax.derived {
        return compute_masked(fields, lines, operands);
    }
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let scale = fields.scale.get();
    threads::try_for_each(line_count(x.desc(), fields.axis), x.desc().elements(), |line| {
        let mut values = Line::new(x, fields.axis, line).load_all()?;
        let extreme = extreme(&values, scale);
        values.iter_mut().for_each(|value| *value = scaled_difference(scale, *value, extreme));
        let sum = values.iter().map(|t| t.exp()).collect::<Sum>().total();
        let log_sum = sum.ln();
        let result = values.iter().map(|t| if fields.log { t - log_sum } else { t.exp() / sum });
        // SAFETY: each line is one task, and the whole line was read before.
        unsafe { Line::new(y, fields.axis, line).store_all(result) };
        Ok(())
    })
}

/// Forward with a bias or a causal mask: a line without a visible place has no largest element, and nothing is divided by its sum of 0.
fn compute_masked(fields: &ForwardFields, lines: &Lines, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let bias = operands.get(forward::BIAS);
    let scale = fields.scale.get();
    let blank = if fields.log { f64::NEG_INFINITY } else { 0.0 };
    threads::try_for_each(lines.count, x.desc().elements(), |line| {
        // y, x, and the bias.
        let place = |operand: usize, i: u64| lines.offset(operand, line) + i * lines.steps[operand];
        let t = |i: u64| {
            let scaled = scale * x.load(place(1, i));
            bias.map_or(scaled, |bias| scaled + bias.load(place(2, i)))
        };
        let visible = lines.visible(line);
        let mut values = held(visible, (0..visible).map(t))?;
        let extreme = extreme(&values, 1.0);
        let is_blank = values.is_empty() || extreme == f64::NEG_INFINITY;
        if !is_blank {
            values.iter_mut().for_each(|value| *value = scaled_difference(1.0, *value, extreme));
        }
        let sum = if is_blank { 1.0 } else { values.iter().map(|t| t.exp()).collect::<Sum>().total() };
        let log_sum = sum.ln();
        let result = |t: f64| match fields.log {
            _ if is_blank => blank,
            true => t - log_sum,
            false => t.exp() / sum,
        };
        let shown = values.iter().map(|&t| result(t)).chain(std::iter::repeat(blank));
        for (i, value) in (0..lines.dim).zip(shown) {
            // SAFETY: each line is one task, what is visible of it was read before, and outputs address every element once.
            unsafe { y.store(place(0, i), value) };
        }
        Ok(())
    })
}

fn compute_backward(Valid { fields, .. }: &Valid<BackwardFields>, operands: &Operands<'_>) -> Outcome {
    let (Some(y), Some(dy), Some(dx)) =
        (operands.get(backward::Y), operands.get(backward::DY), operands.get(backward::DX))
    else {
        return Ok(());
    };
    let scale = fields.scale.get();
    threads::try_for_each(line_count(y.desc(), fields.axis), y.desc().elements(), |line| {
        let [y, dy] = [y, dy].map(|tensor| Line::new(tensor, fields.axis, line).load_all());
        let (y, dy) = (y?, dy?);
        let pairs = || y.iter().zip(&dy);
        let is_masked = |y: f64| fields.is_masked() && y == f64::NEG_INFINITY;
        let term = |(&y, &dy): (&f64, &f64)| match fields.log {
            true if is_masked(y) => 0.0,
            true => dy,
            false => dy * y,
        };
        let sum = pairs().map(term).collect::<Sum>().total();
        let gradient = pairs().map(|(&y, &dy)| match fields.log {
            true if is_masked(y) => 0.0,
            true => scale * (dy - y.exp() * sum),
            false => scale * (y * (dy - sum)),
        });
        // SAFETY: each line is one task, and the whole line of dy was read before.
        unsafe { Line::new(dx, fields.axis, line).store_all(gradient) };
        Ok(())
    })
}
