//! LRN on the CPU, positions side by side: sums of windows in f64, powers in f32.
//!
//! A task is some positions of a sample with all their channels. Each sum of a window is added up by itself, from its first channel to its last.

use std::ops::Range;

use super::backward::{DX, DY};
use super::forward::{X, Y};
use super::{Fields, Valid};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{single, to_usize};
use crate::ops::blocks::Run;
use crate::ops::norm::spatial::spatial_stride;
use crate::ops::pointwise::map::fast::{Widest, widest};
use crate::ops::pointwise::program::pow;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// The longest windows whose sums are added up each by itself.
const LONGEST: u64 = 16;
/// The most channels of a task.
const CHANNELS: u64 = 16 * 1024;
/// Elements of a task: those of an operand fit into the second cache with what is computed from them.
const TASK: u64 = 32 * 1024;
/// Positions that are computed together: a few vectors.
const LANES: usize = 32;
/// The most positions of a task: neighbours in memory.
const POSITIONS: u64 = 256;
/// Elements between the channels of a task beside its positions, so that lines of several channels do not compete for one place in a cache.
const GAP: usize = 16;

/// The form of forward.
pub(super) fn forward(norm: &Valid) -> Accepted<'_> {
    accepted(norm, &[X, Y], compute_forward)
}

/// The form of backward.
pub(super) fn backward(norm: &Valid) -> Accepted<'_> {
    accepted(norm, &[DY, super::backward::X, DX], compute_backward)
}

fn accepted<'v>(
    norm: &'v Valid,
    operands: &[usize],
    compute: fn(&Fields, &Positions, &Operands<'_>) -> Outcome,
) -> Accepted<'v> {
    let positions = Positions::new(&norm.fields, &norm.slots, operands)?;
    Ok(Candidate::on_cpu(move || {
        let fields = norm.fields.clone();
        move |operands: &Operands<'_>| compute(&fields, &positions, operands)
    }))
}

/// How the work is divided.
struct Positions {
    batch: u64,
    channels: u64,
    /// Positions of a sample, and of a task.
    spatial: u64,
    at_once: u64,
    /// Strides of each operand: from a sample, a channel, a position to the next.
    strides: Vec<(usize, [u64; 3])>,
}

impl Positions {
    fn new(fields: &Fields, slots: &Slots, operands: &[usize]) -> Result<Self, Reason> {
        let x = &fields.x;
        Reason::unless(x.dtype() != DType::F64, || "it computes powers in f32; the reference computes f64")?;
        Reason::unless(!x.is_empty(), || "it takes tensors with elements")?;
        let [batch, channels] = [x.dims()[0], x.dims()[1]];
        Reason::unless(fields.size <= LONGEST, || {
            format!("it adds up windows of at most {LONGEST} channels; these have {}", fields.size)
        })?;
        Reason::unless(channels <= CHANNELS, || format!("it holds at most {CHANNELS} channels; there are {channels}"))?;
        let spatial: u64 = x.dims()[2..].iter().product();
        let strides = |desc: &TensorDesc| -> Result<[u64; 3], String> {
            let [of_batch, of_channel] = [desc.strides()[0], desc.strides()[1]];
            Ok([of_batch, of_channel, if spatial == 1 { of_batch } else { spatial_stride(desc)? }])
        };
        let strides = slots.all_at(operands).map(|slot| {
            strides(&slot.desc).map(|strides| (slot.index, strides)).map_err(|why| format!("{}: {why}", slot.name))
        });
        let strides = strides.collect::<Result<Vec<_>, _>>()?;
        // Samples of one position are positions.
        let (batch, spatial) = if spatial == 1 { (1, batch) } else { (batch, spatial) };
        let at_once = (TASK / channels).clamp(LANES as u64, POSITIONS);
        Ok(Self { batch, channels, spatial, at_once, strides })
    }

    /// Elements between the channels of a task.
    fn pitch(&self) -> usize {
        to_usize(self.at_once).next_multiple_of(LANES) + GAP
    }

    /// Memory for a value of each element of a task. What lies beside the positions is 0.
    fn values<T: Clone + Default>(&self) -> Result<Vec<T>, Shortage> {
        let count = to_usize(self.channels) * self.pitch();
        let mut values = room(count as u64)?;
        values.resize(count, T::default());
        Ok(values)
    }

    fn each(&self, task: impl Fn(&Task<'_>) -> Outcome + Sync) -> Outcome {
        let of_sample = self.spatial.div_ceil(self.at_once);
        let elements = self.batch * self.channels * self.spatial;
        threads::try_for_each(self.batch * of_sample, elements, |index| {
            let first = index % of_sample * self.at_once;
            let count = to_usize(self.at_once.min(self.spatial - first));
            task(&Task { positions: self, sample: index / of_sample, first, count })
        })
    }
}

/// Some positions of a sample.
struct Task<'p> {
    positions: &'p Positions,
    sample: u64,
    first: u64,
    count: usize,
}

impl Task<'_> {
    /// Where the positions of a channel of an operand lie, and how far the channels of a position lie apart.
    fn run<'a>(&self, tensor: Tensor<'a>, operand: usize) -> (Run<'a>, u64) {
        let strides = self.positions.strides.iter().find(|(index, _)| *index == operand).map(|(_, strides)| *strides);
        let [batch, channel, place] = strides.unwrap_or_default();
        (Run { tensor, first: self.sample * batch + self.first * place, step: place }, channel)
    }

    fn read(&self, tensor: Tensor<'_>, operand: usize, values: &mut [f32]) -> Outcome {
        let (run, channel) = self.run(tensor, operand);
        let pitch = self.positions.pitch();
        if channel == 1 && run.step != 1 {
            let mut row: Vec<f32> = room(self.positions.channels)?;
            row.resize(to_usize(self.positions.channels), 0.0);
            for place in 0..self.count {
                Run { first: run.first + place as u64 * run.step, step: 1, ..run }.copy(0, &mut row);
                for (line, value) in values[place..].chunks_mut(pitch).zip(&row) {
                    line[0] = *value;
                }
            }
            return Ok(());
        }
        for (line, at) in values.chunks_mut(pitch).zip(0..) {
            Run { first: run.first + at * channel, ..run }.copy(0, &mut line[..self.count]);
        }
        Ok(())
    }

    /// Writes the results, each rounded once. No other thread uses these elements.
    fn write(&self, tensor: Tensor<'_>, operand: usize, values: &[f32]) -> Outcome {
        let (run, channel) = self.run(tensor, operand);
        let pitch = self.positions.pitch();
        if channel == 1 && run.step != 1 {
            let mut row: Vec<f32> = room(self.positions.channels)?;
            row.resize(to_usize(self.positions.channels), 0.0);
            for place in 0..self.count {
                for (line, value) in values[place..].chunks(pitch).zip(&mut row) {
                    *value = line[0];
                }
                Run { first: run.first + place as u64 * run.step, step: 1, ..run }.write(0, &row);
            }
            return Ok(());
        }
        for (line, at) in values.chunks(pitch).zip(0..) {
            Run { first: run.first + at * channel, ..run }.write(0, &line[..self.count]);
        }
        Ok(())
    }
}

/// Numbers of the op.
#[derive(Clone, Copy)]
struct Numbers {
    k: f64,
    /// `alpha / size`
    scale: f64,
    beta: f64,
    /// `2 alpha beta / size`
    slope: f64,
    before: usize,
    after: usize,
}

impl Numbers {
    fn of(fields: &Fields) -> Self {
        let (alpha, beta, size) = (fields.alpha.get(), fields.beta.get(), fields.size as f64);
        let before = to_usize(fields.before());
        Self {
            k: fields.k.get(),
            scale: alpha / size,
            beta,
            slope: 2.0 * alpha * beta / size,
            before,
            after: to_usize(fields.size) - before - 1,
        }
    }
}

/// The channels from `before` before one to `after` behind it, as far as they exist.
#[inline(always)]
fn window(channel: usize, before: usize, after: usize, channels: usize) -> Range<usize> {
    channel.saturating_sub(before)..channels.min(channel + after + 1)
}

/// `d` of some positions, which are the first of the lines. Infinity is NaN: a power of 0 would make zeros of finite x.
#[inline(always)]
fn denominators(x: &[f32], pitch: usize, window: Range<usize>, numbers: Numbers) -> [f32; LANES] {
    let mut sums = [0.0f64; LANES];
    for channel in window {
        let x = &x[channel * pitch..][..LANES];
        for lane in 0..LANES {
            let x = f64::from(x[lane]);
            sums[lane] += x * x;
        }
    }
    let mut d = [0.0f32; LANES];
    for lane in 0..LANES {
        let sum = single(numbers.k + numbers.scale * sums[lane]);
        d[lane] = if sum == f32::INFINITY { f32::NAN } else { sum };
    }
    d
}

/// `d^-beta`, where beta is a usual one by roots.
#[inline(always)]
fn powers<const FUSED: bool>(d: &[f32; LANES], beta: f64) -> [f32; LANES] {
    let mut powers = [1.0f32; LANES];
    if beta == 0.75 {
        for lane in 0..LANES {
            let root = d[lane].sqrt();
            powers[lane] = 1.0 / (root * root.sqrt());
        }
    } else if beta == 0.5 {
        for lane in 0..LANES {
            powers[lane] = 1.0 / d[lane].sqrt();
        }
    } else if beta == 1.0 {
        for lane in 0..LANES {
            powers[lane] = 1.0 / d[lane];
        }
    } else {
        let exponent = single(-beta);
        for lane in 0..LANES {
            powers[lane] = pow::<FUSED>(d[lane], exponent);
        }
    }
    powers
}

struct Forward<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    pitch: usize,
    numbers: Numbers,
}

impl Widest for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { x, y, pitch, numbers } = self;
        let channels = x.len() / pitch;
        for first in (0..pitch - GAP).step_by(LANES) {
            for channel in 0..channels {
                let d =
                    denominators(&x[first..], pitch, window(channel, numbers.before, numbers.after, channels), numbers);
                let powers = powers::<FUSED>(&d, numbers.beta);
                let (x, y) = (&x[channel * pitch + first..][..LANES], &mut y[channel * pitch + first..][..LANES]);
                for lane in 0..LANES {
                    y[lane] = x[lane] * powers[lane];
                }
            }
        }
    }
}

struct Backward<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    /// Room for `d^-beta`, which becomes the result.
    dx: &'a mut [f32],
    /// Room for `dy x d^(-beta - 1)`.
    terms: &'a mut [f64],
    pitch: usize,
    numbers: Numbers,
}

impl Widest for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { dy, x, dx, terms, pitch, numbers } = self;
        let channels = x.len() / pitch;
        for first in (0..pitch - GAP).step_by(LANES) {
            for channel in 0..channels {
                let d =
                    denominators(&x[first..], pitch, window(channel, numbers.before, numbers.after, channels), numbers);
                let powers = powers::<FUSED>(&d, numbers.beta);
                let at = channel * pitch + first;
                let (dy, x) = (&dy[at..][..LANES], &x[at..][..LANES]);
                let (dx, terms) = (&mut dx[at..][..LANES], &mut terms[at..][..LANES]);
                for lane in 0..LANES {
                    dx[lane] = powers[lane];
                    let power = f64::from(powers[lane]) / f64::from(d[lane]);
                    terms[lane] = f64::from(dy[lane]) * f64::from(x[lane]) * power;
                }
            }
            for channel in 0..channels {
                let mut sums = [0.0f64; LANES];
                for other in window(channel, numbers.after, numbers.before, channels) {
                    let terms = &terms[other * pitch + first..][..LANES];
                    for lane in 0..LANES {
                        sums[lane] += terms[lane];
                    }
                }
                let at = channel * pitch + first;
                let (dy, x, dx) = (&dy[at..][..LANES], &x[at..][..LANES], &mut dx[at..][..LANES]);
                for lane in 0..LANES {
                    let own = f64::from(dy[lane]) * f64::from(dx[lane]);
                    dx[lane] = single(own - numbers.slope * f64::from(x[lane]) * sums[lane]);
                }
            }
        }
    }
}

fn compute_forward(fields: &Fields, positions: &Positions, operands: &Operands<'_>) -> Outcome {
    let (Some(of_x), Some(of_y)) = (operands.get(X), operands.get(Y)) else { return Ok(()) };
    let (numbers, pitch) = (Numbers::of(fields), positions.pitch());
    positions.each(|task| {
        let (mut x, mut y): (Vec<f32>, Vec<f32>) = (positions.values()?, positions.values()?);
        task.read(of_x, X, &mut x)?;
        widest(Forward { x: &x, y: &mut y, pitch, numbers });
        task.write(of_y, Y, &y)
    })
}

fn compute_backward(fields: &Fields, positions: &Positions, operands: &Operands<'_>) -> Outcome {
    let (Some(of_dy), Some(of_x), Some(of_dx)) = (operands.get(DY), operands.get(super::backward::X), operands.get(DX))
    else {
        return Ok(());
    };
    let (numbers, pitch) = (Numbers::of(fields), positions.pitch());
    positions.each(|task| {
        let (mut dy, mut x): (Vec<f32>, Vec<f32>) = (positions.values()?, positions.values()?);
        let (mut dx, mut terms): (Vec<f32>, Vec<f64>) = (positions.values()?, positions.values()?);
        task.read(of_dy, DY, &mut dy)?;
        task.read(of_x, super::backward::X, &mut x)?;
        widest(Backward { dy: &dy, x: &x, dx: &mut dx, terms: &mut terms, pitch, numbers });
        task.write(of_dx, DX, &dx)
    })
}

#[cfg(test)]
mod tests {
    use crate::any::AnyDescriptor;
    use crate::dtype::DType;
    use crate::ops::agreement::agrees;
    use crate::ops::norm::LocalResponseNormDescriptor;
    use crate::tensor::TensorDesc;

    #[test]
    fn every_window_and_power_gives_what_the_reference_does() {
        // More positions than a task has, more channels than leave it many, samples of one position.
        for dims in [&[2, 7, 300][..], &[2, 300, 17, 9], &[300, 9]] {
            let layouts = [TensorDesc::contiguous(DType::F32, dims), TensorDesc::channels_last(DType::F32, dims)];
            for x in layouts.map(Result::unwrap) {
                for (size, beta) in [(1, 0.75), (2, 0.5), (5, 1.0), (16, 0.3), (16, 0.0)] {
                    let forward = LocalResponseNormDescriptor::new(x, size).unwrap();
                    let forward = forward.alpha(0.9).unwrap().beta(beta).unwrap().k(1.5).unwrap();
                    agrees(&AnyDescriptor::new(forward.backward().unwrap()), "fast", 0.1);
                    agrees(&AnyDescriptor::new(forward), "fast", 0.1);
                }
            }
        }
    }
}
