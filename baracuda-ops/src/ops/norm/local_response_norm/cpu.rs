//! The reference: the formulas in f64, with compensated sums, for any strides; results are rounded once, to the output's type.

use super::{
    Fields, Valid,
    backward::{DX, DY},
    forward::{X, Y},
};
use crate::backend::cpu::{Operands, Outcome, Shortage, Sum, held, threads};
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::to_usize;
use crate::ops::lines::{Line, line_count};
use crate::plan::MAX_WORK;

/// The reference kernel of a pass, which `compute` computes.
pub(super) fn accept(
    norm: &Valid,
    compute: impl Fn(&Valid, &Operands<'_>) -> Outcome + Send + Sync + 'static,
) -> Accepted<'_> {
    let (size, terms) = (norm.fields.size, additions(&norm.fields));
    Reason::unless(terms <= MAX_WORK, || {
        format!("windows of {size} over x have {terms} terms, the limit is {MAX_WORK}")
    })?;
    Ok(norm.on_cpu(compute))
}

/// The axis along which windows lie.
const CHANNELS: usize = 1;

/// Terms of all sums. A term takes about as long as an element of another op does.
fn additions(fields: &Fields) -> u64 {
    fields.x.elements().saturating_mul(fields.size.min(fields.x.dims()[1]))
}

/// The window of `size` channels that begins `before` channels before channel c, cut off at the first and the last channel.
fn window(c: usize, before: u64, size: u64, channels: usize) -> std::ops::Range<usize> {
    let first = (c as u64).saturating_sub(before);
    let end = (c as u64).saturating_add(size - before).min(channels as u64);
    to_usize(first)..to_usize(end)
}

/// `d` of every channel of a column, which is all channels of a sample at one position. NaN in place of infinity: finite values may have squares
/// whose sum overflows, and a power of 0 would make zeros of them.
fn denominators(fields: &Fields, x: &[f64]) -> Result<Vec<f64>, Shortage> {
    let scale = fields.alpha.get() / fields.size as f64;
    let of_channel = |c| {
        let all = window(c, fields.before(), fields.size, x.len());
        let d = fields.k.get() + scale * x[all].iter().map(|x| x * x).collect::<Sum>().total();
        if d.is_infinite() { f64::NAN } else { d }
    };
    held(x.len() as u64, (0..x.len()).map(of_channel))
}

/// The reference of forward.
pub(super) fn forward(Valid { fields, .. }: &Valid, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(X), operands.get(Y)) else { return Ok(()) };
    threads::try_for_each(line_count(&fields.x, CHANNELS), additions(fields), |column| {
        let x = Line::new(x, CHANNELS, column).load_all()?;
        let d = denominators(fields, &x)?;
        let values = x.iter().zip(&d).map(|(x, d)| x * d.powf(-fields.beta.get()));
        // SAFETY: each column is one task.
        unsafe { Line::new(y, CHANNELS, column).store_all(values) };
        Ok(())
    })
}

/// The reference of the gradient.
pub(super) fn backward(Valid { fields, .. }: &Valid, operands: &Operands<'_>) -> Outcome {
    let (Some(dy), Some(x), Some(dx)) = (operands.get(DY), operands.get(super::backward::X), operands.get(DX)) else {
        return Ok(());
    };
    let channels = to_usize(fields.x.dims()[1]);
    let (beta, size) = (fields.beta.get(), fields.size);
    let slope = 2.0 * fields.alpha.get() * beta / size as f64;
    threads::try_for_each(line_count(&fields.x, CHANNELS), additions(fields), |column| {
        let (dy, x) = (Line::new(dy, CHANNELS, column).load_all()?, Line::new(x, CHANNELS, column).load_all()?);
        let d = denominators(fields, &x)?;
        let terms = held(channels as u64, (0..channels).map(|c| dy[c] * x[c] * d[c].powf(-beta - 1.0)))?;
        let values = (0..channels).map(|c| {
            let all = window(c, size - fields.before() - 1, size, channels);
            let sum = terms[all].iter().copied().collect::<Sum>().total();
            dy[c] * d[c].powf(-beta) - slope * x[c] * sum
        });
        // SAFETY: each column is one task.
        unsafe { Line::new(dx, CHANNELS, column).store_all(values) };
        Ok(())
    })
}
