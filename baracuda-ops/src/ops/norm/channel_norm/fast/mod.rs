//! Norms with channels on the CPU, block by block: elements are f32, f16 or bf16, statistics and sums f64.
//!
//! Moments are taken in one pass, about the first element of each channel of a tile; tiles are merged in order about their means. A tile has at most
//! 32768 elements, so that a pivot far from the mean costs at most 15 of the 29 bits that f64 has beyond f32. Groups that the second cache holds are read
//! from memory once.

use super::cpu::{element, set, update_running};
use super::{ChannelGeometry, ForwardFields, Valid};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, held};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::norm::statistics::Statistics;
use crate::ops::pointwise::program::activations::activate;
use crate::slots::Slots;
use loops::{add_moments, normalise};
use tiles::{EMPTY, Field, Part, Parts, Tile};

mod backward;
mod loops;
#[cfg(test)]
mod tests;
mod tiles;

pub(super) use backward::backward;

/// The form of forward.
pub(super) fn forward(norm: &Valid<ForwardFields>) -> Accepted<'_> {
    let geometry = accepted(&norm.slots, norm.geometry())?;
    Ok(Candidate::on_cpu(move || {
        let norm = norm.clone();
        move |operands: &Operands<'_>| compute(&norm, &geometry, operands)
    }))
}

/// How the form sees tensors that it takes.
///
/// # Errors
/// Why it does not take them.
fn accepted(slots: &Slots, geometry: Result<ChannelGeometry, Reason>) -> Result<ChannelGeometry, Reason> {
    let is_f64 = slots.iter().any(|slot| slot.desc.dtype() == DType::F64);
    Reason::unless(!is_f64, || "it reads elements as f32; the reference computes f64")?;
    let geometry = geometry?;
    let elements = geometry.shape.batch * geometry.shape.channels * geometry.shape.spatial;
    Reason::unless(elements > 0, || "it takes tensors with elements")?;
    // What it keeps of each segment is small beside the tensors only if one of them has as many elements in memory.
    let in_memory = slots.iter().map(|slot| slot.span_bytes / slot.desc.dtype().size_bytes()).max().unwrap_or(0);
    Reason::unless(elements <= in_memory, || {
        format!(
            "it takes tensors of which one at least lies in memory whole; of {elements} elements none has more than {in_memory} there"
        )
    })?;
    Ok(geometry.merged())
}

/// Moments of some elements: how many, their mean, and the sum of the squares of their differences from it.
#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// Of elements whose differences from a pivot, and the squares of these, have sums.
    fn about(pivot: f64, count: f64, sum: f64, squares: f64) -> Self {
        let squares = squares - sum * (sum / count);
        // `f64::max` would return 0 for NaN.
        Self { count, mean: pivot + sum / count, squares: if squares < 0.0 { 0.0 } else { squares } }
    }

    /// Of all together, about the first mean: that of equal means is exact.
    fn merged<'m>(mut parts: impl Iterator<Item = &'m Self> + Clone) -> Self {
        let all = parts.clone();
        let Some(&first) = parts.next() else { return Self { count: 0.0, mean: 0.0, squares: f64::NAN } };
        let (mut count, mut sum) = (0.0, 0.0);
        for part in all.clone() {
            count += part.count;
            sum += part.count * (part.mean - first.mean);
        }
        let mean = first.mean + sum / count;
        let squares = |part: &Self| part.squares + part.count * ((part.mean - mean) * (part.mean - mean));
        Self { count, mean, squares: all.map(squares).sum() }
    }

    fn statistics(self) -> Statistics {
        // Beside an infinity no difference from the mean is a number.
        let mean = if self.mean.is_finite() { self.mean } else { f64::NAN };
        Statistics { mean, correction: 0.0, var: self.squares / self.count }
    }
}

/// The moments of the channels of a tile.
fn moments(x: &Field<'_>, tile: &Tile) -> Result<Vec<Moments>, Shortage> {
    let [pivots] = tile.numbers(|channel| [x.first(tile, channel)])?;
    let (mut sums, mut squares, mut room) = (tile.zeros()?, tile.zeros()?, EMPTY);
    for block in tile.blocks() {
        let range = tile.range(&block);
        let x = x.view(tile, &block, &mut room);
        add_moments(tile.along(), x, &pivots[range.clone()], [&mut sums[range.clone()], &mut squares[range]]);
    }
    let count = tile.place_count() as f64;
    let of_channel =
        |(channel, &pivot)| Moments::about(pivot, count, tile.total(&sums, channel), tile.total(&squares, channel));
    held(tile.channel_count(), pivots.iter().enumerate().map(of_channel))
}

/// What the elements of a channel are multiplied by and what is added.
#[derive(Clone, Copy)]
struct Parameters {
    weight: f64,
    bias: f64,
}

/// Those of all channels.
fn parameters(
    channels: u64,
    weight: &Option<Tensor<'_>>,
    bias: &Option<Tensor<'_>>,
) -> Result<Vec<Parameters>, Shortage> {
    let of_channel = |channel| Parameters {
        weight: element(weight, channel).unwrap_or(1.0),
        bias: element(bias, channel).unwrap_or(0.0),
    };
    held(channels, (0..channels).map(of_channel))
}

fn compute(norm: &Valid<ForwardFields>, geometry: &ChannelGeometry, operands: &Operands<'_>) -> Outcome {
    use super::forward::{BIAS, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
    let fields = &norm.fields;
    let field = |operand| operands.get(operand).map(|tensor| Field::new(tensor, geometry, operand));
    let (Some(x), Some(y)) = (field(X), field(Y)) else { return Ok(()) };
    let residual = field(RESIDUAL);
    let eps = fields.eps.get();
    let parameters = parameters(geometry.shape.channels, &operands.get(WEIGHT), &operands.get(BIAS))?;
    let parameters = |channel: u64| parameters[to_usize(channel)];

    // Writes the results of a tile, given mean and rstd of each channel.
    let apply = |tile: &Tile, statistics: &dyn Fn(u64) -> (f64, f64)| {
        let affine = tile.numbers(|channel| {
            let ((mean, rstd), Parameters { weight, bias }) = (statistics(channel), parameters(channel));
            [mean, rstd * weight, bias]
        })?;
        let [mut of_x, mut of_residual, mut results] = [EMPTY; 3];
        for block in tile.blocks() {
            let range = tile.range(&block);
            let affine = affine.each_ref().map(|numbers| &numbers[range.clone()]);
            let input = x.view(tile, &block, &mut of_x);
            let more = residual.as_ref().map(|residual| residual.view(tile, &block, &mut of_residual));
            let results = &mut results[..input.len()];
            normalise(tile.along(), input, affine, more, results);
            activate(fields.activation, results);
            y.write(tile, &block, results);
        }
        Ok(())
    };

    if fields.inference {
        let (mean, var) = (operands.get(RUNNING_MEAN), operands.get(RUNNING_VAR));
        let of_channel = |channel| {
            let (mean, var) = (element(&mean, channel), element(&var, channel));
            // A running variance is given, and may be infinite.
            (mean.unwrap_or(0.0), 1.0 / (var.unwrap_or(f64::NAN) + eps).sqrt())
        };
        Part::whole(geometry).tiles(|tile| apply(tile, &of_channel))?;
        return Ok(());
    }
    let groups = Parts::new(geometry).each(geometry, |part| {
        let moments = part.tiles(|tile| moments(&x, tile))?;
        let statistics = part.each(part.groups()[0], |group| {
            let of_segments =
                part.segments(group).flat_map(|(sample, channel)| part.of_channel(&moments, sample, channel));
            Ok(Moments::merged(of_segments).statistics())
        })?;
        part.tiles(|tile| {
            apply(tile, &|channel| {
                let statistics = &statistics[part.group_of(tile.sample, channel)];
                (statistics.mean, statistics.rstd(eps))
            })
        })?;
        Ok(statistics)
    })?;
    let groups = groups.concat();
    let (mean, rstd) = (operands.get(MEAN), operands.get(RSTD));
    for (statistics, group) in groups.iter().zip(0..) {
        // SAFETY: all tasks have ended.
        unsafe {
            set(&mean, group, statistics.mean);
            set(&rstd, group, statistics.rstd(eps));
        }
    }
    update_running(norm, &groups, operands);
    Ok(())
}
