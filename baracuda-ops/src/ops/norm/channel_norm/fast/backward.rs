//! The gradients: sums of each channel of each sample, from which the gradients of the parameters and the means over groups are made.

use super::super::cpu::{element, set};
use super::super::{BackwardFields, Valid};
use super::loops::{Slopes, add_gradients, gradient_of_x, normalise, scale};
use super::tiles::{Block, EMPTY, Field, Part, Parts, Room, Tile};
use super::{ChannelGeometry, Parameters, accepted, parameters};
use crate::backend::cpu::{Operands, Outcome, Shortage, held};
use crate::kernel::{Accepted, Candidate};
use crate::narrow::to_usize;
use crate::ops::activation::Activation;
use crate::ops::pointwise::program::activations::{Saved, gradient};

/// The form of backward.
pub(in crate::ops::norm::channel_norm) fn backward(norm: &Valid<BackwardFields>) -> Accepted<'_> {
    let geometry = accepted(&norm.slots, norm.geometry())?;
    Ok(Candidate::on_cpu(move || {
        let norm = norm.clone();
        move |operands: &Operands<'_>| compute(&norm, &geometry, operands)
    }))
}

/// What the gradients of pre-activations are computed from.
struct Terms<'a> {
    activation: Activation,
    dy: Field<'a>,
    x: Field<'a>,
    residual: Option<Field<'a>>,
    /// Forward's output, which tells the gradient of ReLU.
    y: Option<Field<'a>>,
}

/// Memory for the blocks of a tile.
struct Rooms {
    dpre: Room,
    x: Room,
    pre: Room,
    more: Room,
}

impl Rooms {
    const EMPTY: Self = Self { dpre: EMPTY, x: EMPTY, pre: EMPTY, more: EMPTY };
}

/// What each channel of a tile has.
struct Channels {
    mean: Vec<f64>,
    rstd: Vec<f64>,
    weight: Vec<f64>,
    scale: Vec<f64>,
    bias: Vec<f64>,
}

impl<'a> Terms<'a> {
    /// The gradients of the pre-activations of a block, and x.
    fn of<'r>(
        &self,
        tile: &Tile,
        block: &Block,
        channels: &Channels,
        rooms: &'r mut Rooms,
    ) -> (&'r mut [f32], &'r [f32])
    where
        'a: 'r,
    {
        let Rooms { dpre, x, pre, more } = rooms;
        let dpre = self.dy.read(tile, block, dpre);
        let x = self.x.view(tile, block, x);
        match &self.y {
            _ if self.activation.is_identity() => {}
            Some(y) => gradient(self.activation, Saved::Output(y.view(tile, block, more)), dpre),
            None => {
                let range = tile.range(block);
                let affine = [&channels.mean, &channels.scale, &channels.bias].map(|numbers| &numbers[range.clone()]);
                let more = self.residual.as_ref().map(|residual| residual.view(tile, block, more));
                let pre = &mut pre[..x.len()];
                normalise(tile.along(), x, affine, more, pre);
                gradient(self.activation, Saved::Input(pre), dpre);
            }
        }
        (dpre, x)
    }
}

/// Sums over a channel of a sample, or over the channels of a group.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Of the gradient.
    g: f64,
    /// Of its products with xhat.
    gx: f64,
}

impl Sums {
    fn plus(self, other: Self, weight: f64) -> Self {
        Self { g: self.g + other.g * weight, gx: self.gx + other.gx * weight }
    }
}

fn compute(norm: &Valid<BackwardFields>, geometry: &ChannelGeometry, operands: &Operands<'_>) -> Outcome {
    use super::super::backward::{
        BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
    };
    let fields = &norm.fields;
    let field = |operand| operands.get(operand).map(|tensor| Field::new(tensor, geometry, operand));
    let (Some(dy), Some(x)) = (field(DY), field(X)) else { return Ok(()) };
    let terms = Terms { activation: fields.activation, dy, x, residual: field(RESIDUAL), y: field(Y) };
    let (dx, dresidual) = (field(DX), field(DRESIDUAL));
    let (dweight, dbias) = (operands.get(DWEIGHT), operands.get(DBIAS));
    let parameters = parameters(geometry.shape.channels, &operands.get(WEIGHT), &operands.get(BIAS))?;
    let parameters = |channel: u64| parameters[to_usize(channel)];

    // Mean and rstd of a group, by its number among all.
    let mean = operands.get(MEAN).or(operands.get(RUNNING_MEAN));
    let second = operands.get(RSTD).or(operands.get(RUNNING_VAR));
    let statistics = |group: u64| {
        let second = element(&second, group).unwrap_or(f64::NAN);
        let rstd = fields.eps.map_or(second, |eps| 1.0 / (second + eps.get()).sqrt());
        [element(&mean, group).unwrap_or(0.0), rstd]
    };
    let groups = geometry.shape.group_count();
    let statistics = held(groups, (0..groups).map(statistics))?;
    let channels_of = |tile: &Tile| {
        let [mean, rstd, weight, scale, bias] = tile.numbers(|channel| {
            let [mean, rstd] = statistics[to_usize(geometry.shape.group_of((tile.sample, channel)))];
            let Parameters { weight, bias } = parameters(channel);
            [mean, rstd, weight, rstd * weight, bias]
        })?;
        Ok::<_, Shortage>(Channels { mean, rstd, weight, scale, bias })
    };
    let sums_of = |tile: &Tile| {
        let (channels, mut rooms) = (channels_of(tile)?, Rooms::EMPTY);
        let (mut g, mut gx) = (tile.zeros()?, tile.zeros()?);
        for block in tile.blocks() {
            let range = tile.range(&block);
            let (dpre, x) = terms.of(tile, &block, &channels, &mut rooms);
            let statistics = [&channels.mean[range.clone()], &channels.rstd[range.clone()]];
            add_gradients(tile.along(), [dpre, x], statistics, [&mut g[range.clone()], &mut gx[range]]);
        }
        let count = to_usize(tile.channel_count());
        let of_channel = |channel| Sums { g: tile.total(&g, channel), gx: tile.total(&gx, channel) };
        held(tile.channel_count(), (0..count).map(of_channel))
    };
    // Writes the gradients of a tile, given the means of each channel's group.
    let write = |tile: &Tile, means: &dyn Fn(u64) -> Sums| {
        let (channels, mut rooms) = (channels_of(tile)?, Rooms::EMPTY);
        let [mean_g, mean_gx] = match fields.inference {
            true => [Vec::new(), Vec::new()],
            false => tile.numbers(|channel| {
                let Sums { g, gx } = means(channel);
                [g, gx]
            })?,
        };
        for block in tile.blocks() {
            let range = tile.range(&block);
            let (dpre, x) = terms.of(tile, &block, &channels, &mut rooms);
            if let Some(dresidual) = &dresidual {
                dresidual.write(tile, &block, dpre);
            }
            let Some(dx) = &dx else { continue };
            let (rstd, weight) = (&channels.rstd[range.clone()], &channels.weight[range.clone()]);
            if fields.inference {
                scale(tile.along(), dpre, rstd, weight);
            } else {
                let mean = &channels.mean[range.clone()];
                let (mean_g, mean_gx) = (&mean_g[range.clone()], &mean_gx[range]);
                gradient_of_x(tile.along(), dpre, x, Slopes { mean, rstd, weight, mean_g, mean_gx });
            }
            dx.write(tile, &block, dpre);
        }
        Ok(())
    };

    let has_means = dx.is_some() && !fields.inference;
    if !(has_means || dweight.is_some() || dbias.is_some()) {
        Part::whole(geometry).tiles(|tile| write(tile, &|_| Sums::default()))?;
        return Ok(());
    }
    // The sums of each channel of the part over its samples.
    let parts = Parts::new(geometry).each(geometry, |part| {
        let sums = part.tiles(sums_of)?;
        let of_channel = |sample, channel| {
            let tiles = part.of_channel(&sums, sample, channel);
            tiles.fold(Sums::default(), |sum, tile| sum.plus(*tile, 1.0))
        };
        if dx.is_some() || dresidual.is_some() {
            let means = part.each(if has_means { part.groups()[0] } else { 0 }, |group| {
                let mut sum = Sums::default();
                for (sample, channel) in part.segments(group) {
                    sum = sum.plus(of_channel(sample, channel), parameters(channel).weight);
                }
                let count = geometry.shape.group_elements() as f64;
                Ok(Sums { g: sum.g / count, gx: sum.gx / count })
            })?;
            part.tiles(|tile| {
                write(tile, &|channel| means.get(part.group_of(tile.sample, channel)).copied().unwrap_or_default())
            })?;
        }
        let samples = part.samples.clone();
        let of_channels = part.channels.clone().map(|channel| {
            samples.clone().fold(Sums::default(), |sum, sample| sum.plus(of_channel(sample, channel), 1.0))
        });
        Ok((part.channels.start, held(part.channels.end - part.channels.start, of_channels)?))
    })?;
    if dweight.is_none() && dbias.is_none() {
        return Ok(());
    }
    let mut totals = held(geometry.shape.channels, std::iter::repeat(Sums::default()))?;
    for (first, sums) in parts {
        for (total, sum) in totals[to_usize(first)..].iter_mut().zip(sums) {
            *total = total.plus(sum, 1.0);
        }
    }
    for (total, channel) in totals.iter().zip(0..) {
        // SAFETY: all tasks have ended.
        unsafe {
            set(&dweight, channel, total.gx);
            set(&dbias, channel, total.g);
        }
    }
    Ok(())
}
