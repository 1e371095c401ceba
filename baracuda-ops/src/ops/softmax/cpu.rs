//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output.

use super::{BackwardFields, ForwardFields, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Sum, threads};
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
    Ok(softmax.on_cpu(compute_forward))
}

/// The reference of backward.
pub(super) fn backward(softmax: &Valid<BackwardFields>) -> Accepted<'_> {
    Ok(softmax.on_cpu(compute_backward))
}

fn compute_forward(Valid { fields, .. }: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
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
        let sum = pairs().map(|(y, dy)| if fields.log { *dy } else { dy * y }).collect::<Sum>().total();
        let gradient = pairs().map(|(y, dy)| scale * if fields.log { dy - y.exp() * sum } else { y * (dy - sum) });
        // SAFETY: each line is one task, and the whole line of dy was read before.
        unsafe { Line::new(dx, fields.axis, line).store_all(gradient) };
        Ok(())
    })
}
