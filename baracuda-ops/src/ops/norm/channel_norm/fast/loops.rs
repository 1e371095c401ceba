//! Loops over blocks of f32 that compilers turn into vector instructions. They compute in f64 and round once.
//!
//! A block is lines of equal length, one after another. What a formula takes of a channel is one number for each line, or one for each element of a line,
//! as [`Along`] says.

use crate::narrow::single;
use crate::ops::blocks::sums;
use crate::ops::pointwise::map::fast::{Widest, widest};

/// What the numbers of channels belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// A line is the elements of one channel, as many as this. Numbers are those of the lines.
    Lines(usize),
    /// A line is elements of as many channels as there are numbers. The last line of a block may be shorter.
    Elements,
}

/// Adds to `sums` those of the differences from pivots, and of their squares.
#[inline(never)]
pub(super) fn add_moments(along: Along, x: &[f32], pivots: &[f64], sums: [&mut [f64]; 2]) {
    widest(Moments { along, x, pivots, sums });
}

struct Moments<'a> {
    along: Along,
    x: &'a [f32],
    pivots: &'a [f64],
    sums: [&'a mut [f64]; 2],
}

impl Widest for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { along, x, pivots, sums: [first, second] } = self;
        match along {
            Along::Lines(length) => {
                for (line, x) in x.chunks(length).enumerate() {
                    let pivot = pivots[line];
                    let [sum, squares] = sums([x], |[x]: [f64; 1]| [x - pivot, (x - pivot) * (x - pivot)]);
                    first[line] += sum;
                    second[line] += squares;
                }
            }
            Along::Elements => {
                for x in x.chunks(pivots.len()) {
                    let count = x.len();
                    let (pivots, first, second) = (&pivots[..count], &mut first[..count], &mut second[..count]);
                    for at in 0..count {
                        let difference = f64::from(x[at]) - pivots[at];
                        first[at] += difference;
                        second[at] += difference * difference;
                    }
                }
            }
        }
    }
}

/// The numbers of an affine map: mean, scale, shift.
pub(super) type Affine<'a> = [&'a [f64]; 3];

/// Each result becomes `(x - mean) scale + shift`, and what is beside it is added.
#[inline(never)]
pub(super) fn normalise(along: Along, x: &[f32], affine: Affine<'_>, more: Option<&[f32]>, results: &mut [f32]) {
    match more {
        None => widest(Normalise { along, x, affine, results }),
        Some(more) => widest(NormaliseAndAdd { along, x, affine, more, results }),
    }
}

struct Normalise<'a> {
    along: Along,
    x: &'a [f32],
    affine: Affine<'a>,
    results: &'a mut [f32],
}

impl Widest for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { along, x, affine: [means, scales, shifts], results } = self;
        match along {
            Along::Lines(length) => {
                for (line, (x, results)) in x.chunks(length).zip(results.chunks_mut(length)).enumerate() {
                    let (mean, scale, shift) = (means[line], scales[line], shifts[line]);
                    for (result, x) in results.iter_mut().zip(x) {
                        *result = single((f64::from(*x) - mean) * scale + shift);
                    }
                }
            }
            Along::Elements => {
                for (x, results) in x.chunks(means.len()).zip(results.chunks_mut(means.len())) {
                    let count = results.len();
                    let (x, means) = (&x[..count], &means[..count]);
                    let (scales, shifts) = (&scales[..count], &shifts[..count]);
                    for at in 0..count {
                        results[at] = single((f64::from(x[at]) - means[at]) * scales[at] + shifts[at]);
                    }
                }
            }
        }
    }
}

struct NormaliseAndAdd<'a> {
    along: Along,
    x: &'a [f32],
    affine: Affine<'a>,
    more: &'a [f32],
    results: &'a mut [f32],
}

impl Widest for NormaliseAndAdd<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { along, x, affine: [means, scales, shifts], more, results } = self;
        let width = match along {
            Along::Lines(length) => length,
            Along::Elements => means.len(),
        };
        let lines = x.chunks(width).zip(more.chunks(width)).zip(results.chunks_mut(width));
        for (line, ((x, more), results)) in lines.enumerate() {
            let count = results.len();
            let (x, more) = (&x[..count], &more[..count]);
            match along {
                Along::Lines(_) => {
                    let (mean, scale, shift) = (means[line], scales[line], shifts[line]);
                    for at in 0..count {
                        results[at] = single(((f64::from(x[at]) - mean) * scale + shift) + f64::from(more[at]));
                    }
                }
                Along::Elements => {
                    let (means, scales, shifts) = (&means[..count], &scales[..count], &shifts[..count]);
                    for at in 0..count {
                        let affine = (f64::from(x[at]) - means[at]) * scales[at] + shifts[at];
                        results[at] = single(affine + f64::from(more[at]));
                    }
                }
            }
        }
    }
}

/// Adds to `sums` those of `g` and of `g xhat`, where `xhat = (x - mean) rstd`.
#[inline(never)]
pub(super) fn add_gradients(along: Along, blocks: [&[f32]; 2], statistics: [&[f64]; 2], sums: [&mut [f64]; 2]) {
    widest(Gradients { along, blocks, statistics, sums });
}

struct Gradients<'a> {
    along: Along,
    blocks: [&'a [f32]; 2],
    statistics: [&'a [f64]; 2],
    sums: [&'a mut [f64]; 2],
}

impl Widest for Gradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { along, blocks: [g, x], statistics: [means, rstds], sums: [first, second] } = self;
        match along {
            Along::Lines(length) => {
                for (line, (g, x)) in g.chunks(length).zip(x.chunks(length)).enumerate() {
                    let (mean, rstd) = (means[line], rstds[line]);
                    let [sum, products] = sums([g, x], |[g, x]: [f64; 2]| [g, g * ((x - mean) * rstd)]);
                    first[line] += sum;
                    second[line] += products;
                }
            }
            Along::Elements => {
                for (g, x) in g.chunks(means.len()).zip(x.chunks(means.len())) {
                    let count = g.len();
                    let (x, means, rstds) = (&x[..count], &means[..count], &rstds[..count]);
                    let (first, second) = (&mut first[..count], &mut second[..count]);
                    for at in 0..count {
                        let g = f64::from(g[at]);
                        first[at] += g;
                        second[at] += g * ((f64::from(x[at]) - means[at]) * rstds[at]);
                    }
                }
            }
        }
    }
}

/// What the gradient of x takes of a channel.
#[derive(Clone, Copy)]
pub(super) struct Slopes<'a> {
    pub(super) mean: &'a [f64],
    pub(super) rstd: &'a [f64],
    pub(super) weight: &'a [f64],
    /// The mean of g and of `g xhat` over the group.
    pub(super) mean_g: &'a [f64],
    pub(super) mean_gx: &'a [f64],
}

/// Each `dpre` becomes `rstd (g - mean_g - xhat mean_gx)`, where `g = dpre weight`.
#[inline(never)]
pub(super) fn gradient_of_x(along: Along, gradients: &mut [f32], x: &[f32], slopes: Slopes<'_>) {
    widest(OfX { along, gradients, x, slopes });
}

struct OfX<'a> {
    along: Along,
    gradients: &'a mut [f32],
    x: &'a [f32],
    slopes: Slopes<'a>,
}

impl Widest for OfX<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { along, gradients, x, slopes } = self;
        let Slopes { mean: means, rstd: rstds, weight: weights, mean_g: means_g, mean_gx: means_gx } = slopes;
        match along {
            Along::Lines(length) => {
                for (line, (gradients, x)) in gradients.chunks_mut(length).zip(x.chunks(length)).enumerate() {
                    let (mean, rstd, weight) = (means[line], rstds[line], weights[line]);
                    let (mean_g, mean_gx) = (means_g[line], means_gx[line]);
                    for (g, x) in gradients.iter_mut().zip(x) {
                        let xhat = (f64::from(*x) - mean) * rstd;
                        *g = single(rstd * (f64::from(*g) * weight - mean_g - xhat * mean_gx));
                    }
                }
            }
            Along::Elements => {
                for (gradients, x) in gradients.chunks_mut(means.len()).zip(x.chunks(means.len())) {
                    let count = gradients.len();
                    let (x, means, rstds) = (&x[..count], &means[..count], &rstds[..count]);
                    let (weights, means_g, means_gx) = (&weights[..count], &means_g[..count], &means_gx[..count]);
                    for at in 0..count {
                        let xhat = (f64::from(x[at]) - means[at]) * rstds[at];
                        let g = f64::from(gradients[at]) * weights[at];
                        gradients[at] = single(rstds[at] * (g - means_g[at] - xhat * means_gx[at]));
                    }
                }
            }
        }
    }
}

/// Each `dpre` becomes `rstd (dpre weight)`: the gradient of x where the statistics do not depend on it.
#[inline(never)]
pub(super) fn scale(along: Along, gradients: &mut [f32], rstd: &[f64], weight: &[f64]) {
    widest(Scale { along, gradients, rstd, weight });
}

struct Scale<'a> {
    along: Along,
    gradients: &'a mut [f32],
    rstd: &'a [f64],
    weight: &'a [f64],
}

impl Widest for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { along, gradients, rstd: rstds, weight: weights } = self;
        match along {
            Along::Lines(length) => {
                for (line, gradients) in gradients.chunks_mut(length).enumerate() {
                    let (rstd, weight) = (rstds[line], weights[line]);
                    for g in gradients {
                        *g = single(rstd * (f64::from(*g) * weight));
                    }
                }
            }
            Along::Elements => {
                for gradients in gradients.chunks_mut(rstds.len()) {
                    let count = gradients.len();
                    let (rstds, weights) = (&rstds[..count], &weights[..count]);
                    for at in 0..count {
                        gradients[at] = single(rstds[at] * (f64::from(gradients[at]) * weights[at]));
                    }
                }
            }
        }
    }
}
