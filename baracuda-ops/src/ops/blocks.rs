//! Blocks of f32 on the CPU: how runs of elements are read and written, and loops over blocks that compilers turn into vector instructions.
//!
//! What is added up is added in lanes that are combined in halves, so that the order depends on the length alone: in f64, or in f32 in chains of at most
//! 16 terms that are combined in f64. Differences from a mean of f64 are taken from its two parts in f32, so that a mean that is large beside them costs
//! no digits.

use std::ops::AddAssign;

use crate::backend::cpu::Tensor;
use crate::narrow::{single, to_usize};
use crate::ops::pointwise::map::fast::{BLOCK as OF_PROGRAMS, Converted as _, Widest, elements, widest};
use crate::ops::pointwise::program::{exp, fma};

/// Elements of a block: a few blocks fit into the first cache together.
pub(super) const BLOCK: usize = OF_PROGRAMS;
/// Sums side by side: a few vectors, whose additions do not wait for each other.
const LANES: usize = 32;

/// Memory for a block.
pub(super) type Room = [f32; BLOCK];
/// Memory for a block before anything is in it.
pub(super) const EMPTY: Room = [0.0; BLOCK];

/// The ranges of the blocks of so many elements.
pub(super) fn blocks(elements: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..elements).step_by(BLOCK).map(move |at| (at, to_usize((elements - at).min(BLOCK as u64))))
}

/// Elements of a tensor of f32, f16 or bf16 that are evenly spaced.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) tensor: Tensor<'a>,
    /// The first element, and from one to the next, in elements of the tensor.
    pub(super) first: u64,
    pub(super) step: u64,
}

impl<'a> Run<'a> {
    /// Copies a block from element `at` on.
    pub(super) fn read<'r>(&self, at: u64, length: usize, room: &'r mut Room) -> &'r mut [f32] {
        let values = &mut room[..length];
        self.copy(at, values);
        values
    }

    /// Copies elements from element `at` on, as many as there is room for.
    #[inline(never)]
    pub(super) fn copy(&self, at: u64, values: &mut [f32]) {
        if values.is_empty() {
            return;
        }
        self.prefetch(at + values.len() as u64, values.len());
        widest(Read { run: *self, at, values });
    }

    /// A block from element `at` on, where it lies if it can be used there. Nobody writes it while it is used.
    pub(super) fn view<'r>(&self, at: u64, length: usize, room: &'r mut Room) -> &'r [f32]
    where
        'a: 'r,
    {
        if self.step == 1 && self.tensor.desc().dtype() == crate::DType::F32 {
            self.prefetch(at + length as u64, length);
            return elements::<f32>(&self.tensor, self.first + at, length);
        }
        self.read(at, length, room)
    }

    /// Asks for a block from element `at` on, which is read soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: u64, length: usize) {
        if self.step == 1 {
            self.tensor.prefetch(self.first + at, length);
        }
    }

    /// Elements of f32 that lie side by side, where they lie. Nobody writes them while they are used.
    pub(super) fn slice(&self, count: usize) -> &'a [f32] {
        elements::<f32>(&self.tensor, self.first, count)
    }

    /// Writes a block from element `at` on, each element rounded once. No other thread uses these elements.
    #[inline(never)]
    pub(super) fn write(&self, at: u64, values: &[f32]) {
        widest(Write { run: *self, at, values });
    }
}

struct Read<'a> {
    run: Run<'a>,
    at: u64,
    values: &'a mut [f32],
}

impl Widest for Read<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Run { tensor, first, step } = self.run;
        f32::read(&tensor, first + self.at * step, step, self.values);
    }
}

struct Write<'a> {
    run: Run<'a>,
    at: u64,
    values: &'a [f32],
}

impl Widest for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Run { tensor, first, step } = self.run;
        f32::write(&tensor, first + self.at * step, step, self.values);
    }
}

/// Sums of terms of up to three blocks of equal length, in f64, or in f32 of blocks of at most [`BLOCK`] elements.
#[inline(always)]
pub(super) fn sums<T, const N: usize, const SUMS: usize>(
    blocks: [&[f32]; N],
    terms: impl Fn([T; N]) -> [T; SUMS],
) -> [f64; SUMS]
where
    T: Copy + Default + AddAssign + From<f32> + Into<f64>,
{
    let length = blocks[0].len();
    let whole = length - length % LANES;
    let mut lanes = [[T::default(); LANES]; SUMS];
    let mut first = 0;
    while first < whole {
        let rows = blocks.map(|block| &block[first..first + LANES]);
        for lane in 0..LANES {
            let terms = terms(rows.map(|row| row[lane].into()));
            for (lanes, term) in lanes.iter_mut().zip(terms) {
                lanes[lane] += term;
            }
        }
        first += LANES;
    }
    for at in whole..length {
        let terms = terms(blocks.map(|block| block[at].into()));
        for (lanes, term) in lanes.iter_mut().zip(terms) {
            lanes[at - whole] += term;
        }
    }
    lanes.map(|lanes| {
        let mut lanes: [f64; LANES] = lanes.map(Into::into);
        let mut left = LANES / 2;
        while left > 0 {
            for lane in 0..left {
                lanes[lane] += lanes[lane + left];
            }
            left /= 2;
        }
        lanes[0]
    })
}

/// The sum of a block, in f64: of equal elements it is exact.
#[inline(never)]
pub(super) fn sum(values: &[f32]) -> f64 {
    struct Sum<'a>(&'a [f32]);
    impl Widest for Sum<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f64 {
            sums([self.0], |[x]: [f64; 1]| [x])[0]
        }
    }
    widest(Sum(values))
}

/// A number in two parts of f32; one that f32 does not hold has one.
#[inline(always)]
fn parts(value: f64) -> [f32; 2] {
    let high = single(value);
    [high, if high.is_finite() { single(value - f64::from(high)) } else { 0.0 }]
}

/// The sum of the squares of differences from a number, in f32.
#[inline(never)]
pub(super) fn single_sum_of_squares(values: &[f32], about: f64) -> f64 {
    struct Squares<'a>(&'a [f32], f64);
    impl Widest for Squares<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f64 {
            let [high, low] = parts(self.1);
            let square = |x: f32| {
                let difference = (x - high) - low;
                difference * difference
            };
            sums([self.0], |[x]| [square(x)])[0]
        }
    }
    widest(Squares(values, about))
}

/// The sum of the squares of differences from a number, in f64.
#[inline(never)]
pub(super) fn sum_of_squares(values: &[f32], about: f64) -> f64 {
    struct Squares<'a>(&'a [f32], f64);
    impl Widest for Squares<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f64 {
            let about = self.1;
            sums([self.0], |[x]: [f64; 1]| [(x - about) * (x - about)])[0]
        }
    }
    widest(Squares(values, about))
}

/// Whether elements can be scaled by it in f32: products with them, and their squares, keep their digits.
pub(super) fn is_moderate(rstd: f64) -> bool {
    (1e-12..=1e12).contains(&rstd)
}

/// Scale and shift of the elements of a block: a block each, or nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Affine<'a> {
    pub(super) scale: Option<&'a [f32]>,
    /// What is added to the scale.
    pub(super) offset: f64,
    pub(super) shift: Option<&'a [f32]>,
}

impl Affine<'_> {
    /// Each value becomes what `of` makes of it, its scale and its shift.
    #[inline(always)]
    fn apply(&self, values: &mut [f32], of: impl Fn(f32, Option<f32>, Option<f32>) -> f32) {
        match (self.scale, self.shift) {
            (None, None) => values.iter_mut().for_each(|x| *x = of(*x, None, None)),
            (Some(scale), None) => values.iter_mut().zip(scale).for_each(|(x, w)| *x = of(*x, Some(*w), None)),
            (None, Some(shift)) => values.iter_mut().zip(shift).for_each(|(x, b)| *x = of(*x, None, Some(*b))),
            (Some(scale), Some(shift)) => {
                for ((x, w), b) in values.iter_mut().zip(scale).zip(shift) {
                    *x = of(*x, Some(*w), Some(*b));
                }
            }
        }
    }
}

/// `(x - mean) rstd scale + shift`
#[inline(never)]
pub(super) fn normalise(values: &mut [f32], mean: f64, rstd: f64, affine: Affine<'_>) {
    struct Normalise<'a> {
        values: &'a mut [f32],
        mean: f64,
        rstd: f64,
        affine: Affine<'a>,
    }
    impl Widest for Normalise<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self { values, mean, rstd, affine } = self;
            if is_moderate(rstd) {
                let ([high, low], rstd, offset) = (parts(mean), single(rstd), single(affine.offset));
                affine.apply(values, |x, scale, shift| {
                    let x = ((x - high) - low) * rstd;
                    match (scale, shift) {
                        (Some(scale), Some(shift)) => fma::<FUSED>(x, scale + offset, shift),
                        (Some(scale), None) => x * (scale + offset),
                        (None, shift) => shift.map_or(x, |shift| x + shift),
                    }
                });
            } else {
                affine.apply(values, |x, scale, shift| {
                    let x = (f64::from(x) - mean) * rstd;
                    let scaled = scale.map_or(x, |scale| x * (f64::from(scale) + affine.offset));
                    single(shift.map_or(scaled, |shift| scaled + f64::from(shift)))
                });
            }
        }
    }
    widest(Normalise { values, mean, rstd, affine });
}

/// Each value becomes it and the one beside it.
pub(super) fn add(values: &mut [f32], others: &[f32]) {
    values.iter_mut().zip(others).for_each(|(value, other)| *value += other);
}

/// Each value is multiplied by a number beside it and one more.
pub(super) fn multiply(values: &mut [f32], factors: &[f32], offset: f64) {
    let offset = single(offset);
    for (value, factor) in values.iter_mut().zip(factors) {
        *value *= factor + offset;
    }
}

/// `sum(g)` and `sum(g xhat)`, where `xhat = (x - mean) rstd`.
#[inline(never)]
pub(super) fn sums_of_gradient(g: &[f32], x: &[f32], mean: f64, rstd: f64) -> [f64; 2] {
    struct Gradient<'a> {
        blocks: [&'a [f32]; 2],
        mean: f64,
        rstd: f64,
    }
    impl Widest for Gradient<'_> {
        type Output = [f64; 2];
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> [f64; 2] {
            let Self { blocks, mean, rstd } = self;
            if is_moderate(rstd) {
                let ([high, low], rstd) = (parts(mean), single(rstd));
                return sums(blocks, |[g, x]: [f32; 2]| [g, g * (((x - high) - low) * rstd)]);
            }
            sums(blocks, |[g, x]: [f64; 2]| [g, g * ((x - mean) * rstd)])
        }
    }
    widest(Gradient { blocks: [g, x], mean, rstd })
}

/// What a block of gradients loses: `g` becomes `rstd (g - mean_g - xhat mean_gx)`.
#[derive(Clone, Copy)]
pub(super) struct Means {
    pub(super) mean: f64,
    pub(super) rstd: f64,
    pub(super) g: f64,
    pub(super) gx: f64,
}

/// See [`Means`]; what comes from elsewhere is added.
#[inline(never)]
pub(super) fn normalise_gradient(gradients: &mut [f32], x: &[f32], means: Means, more: Option<&[f32]>) {
    struct Gradient<'a> {
        gradients: &'a mut [f32],
        x: &'a [f32],
        means: Means,
        more: Option<&'a [f32]>,
    }
    impl Widest for Gradient<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self { gradients, x, means: Means { mean, rstd, g: mean_g, gx }, more } = self;
            if is_moderate(rstd) {
                let ([high, low], rstd, mean_g, gx) = (parts(mean), single(rstd), single(mean_g), single(gx));
                let of = |g: f32, x: f32| rstd * ((g - mean_g) - (((x - high) - low) * rstd) * gx);
                return match more {
                    None => gradients.iter_mut().zip(x).for_each(|(g, x)| *g = of(*g, *x)),
                    Some(more) => {
                        for ((g, x), more) in gradients.iter_mut().zip(x).zip(more) {
                            *g = of(*g, *x) + more;
                        }
                    }
                };
            }
            let of = |g: f32, x: f32| rstd * (f64::from(g) - mean_g - (f64::from(x) - mean) * rstd * gx);
            match more {
                None => gradients.iter_mut().zip(x).for_each(|(g, x)| *g = single(of(*g, *x))),
                Some(more) => {
                    for ((g, x), more) in gradients.iter_mut().zip(x).zip(more) {
                        *g = single(of(*g, *x) + f64::from(*more));
                    }
                }
            }
        }
    }
    widest(Gradient { gradients, x, means, more });
}

/// Adds `dy xhat` and `dy` to the sums of columns, in f32; either may have none.
#[inline(never)]
pub(super) fn add_to_columns(sums: [&mut [f32]; 2], dy: &[f32], x: &[f32], mean: f64, rstd: f64) {
    struct Columns<'a> {
        sums: [&'a mut [f32]; 2],
        dy: &'a [f32],
        x: &'a [f32],
        mean: f64,
        rstd: f64,
    }
    impl Widest for Columns<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self { sums: [weights, biases], dy, x, mean, rstd } = self;
            if is_moderate(rstd) {
                let ([high, low], rstd) = (parts(mean), single(rstd));
                for ((weight, dy), x) in weights.iter_mut().zip(dy).zip(x) {
                    *weight = fma::<FUSED>(*dy, ((x - high) - low) * rstd, *weight);
                }
            } else {
                for ((weight, dy), x) in weights.iter_mut().zip(dy).zip(x) {
                    *weight = single(f64::from(*weight) + f64::from(*dy) * ((f64::from(*x) - mean) * rstd));
                }
            }
            for (bias, dy) in biases.iter_mut().zip(dy) {
                *bias += dy;
            }
        }
    }
    widest(Columns { sums, dy, x, mean, rstd });
}

/// Moves what was added in f32 to the sums in f64.
#[inline(never)]
pub(super) fn move_sums(from: &mut [f32], to: &mut [f64]) {
    struct Move<'a>(&'a mut [f32], &'a mut [f64]);
    impl Widest for Move<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            for (from, to) in self.0.iter_mut().zip(self.1) {
                *to += f64::from(*from);
                *from = 0.0;
            }
        }
    }
    widest(Move(from, to));
}

/// The greatest or least value; a NaN if there is one.
#[inline(never)]
pub(super) fn extreme(values: &[f32], is_least: bool) -> f32 {
    struct Extreme<'a>(&'a [f32], bool);
    impl Widest for Extreme<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f32 {
            #[inline(always)]
            fn of(values: &[f32], first: f32, better: impl Fn(f32, f32) -> bool) -> f32 {
                let pick = |best: f32, value: f32| if better(best, value) || best.is_nan() { best } else { value };
                let mut lanes = [first; 2 * LANES];
                let mut chunks = values.chunks_exact(2 * LANES);
                for chunk in &mut chunks {
                    for (best, &value) in lanes.iter_mut().zip(chunk) {
                        *best = pick(*best, value);
                    }
                }
                for (best, &value) in lanes.iter_mut().zip(chunks.remainder()) {
                    *best = pick(*best, value);
                }
                lanes.into_iter().fold(first, pick)
            }
            match self.1 {
                false => of(self.0, f32::NEG_INFINITY, |best, value| best > value),
                true => of(self.0, f32::INFINITY, |best, value| best < value),
            }
        }
    }
    widest(Extreme(values, is_least))
}

/// Each value becomes `scale x + bias`, rounded once; without a bias `scale x`.
#[inline(never)]
pub(super) fn scale_and_add(values: &mut [f32], scale: f64, bias: Option<&[f32]>) {
    struct Scale<'a>(&'a mut [f32], f64, Option<&'a [f32]>);
    impl Widest for Scale<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self(values, scale, bias) = self;
            match bias {
                None => values.iter_mut().for_each(|x| *x = single(scale * f64::from(*x))),
                Some(bias) => {
                    for (x, bias) in values.iter_mut().zip(bias) {
                        *x = single(scale * f64::from(*x) + f64::from(*bias));
                    }
                }
            }
        }
    }
    widest(Scale(values, scale, bias));
}

/// Each value becomes its share of the sum of exponentials, `exp(scale (x - extreme)) / sum`. `next`: what is read next.
#[inline(never)]
pub(super) fn softmax(values: &mut [f32], extreme: f32, scale: f64, next: Option<Run<'_>>) {
    struct Softmax<'a>(&'a mut [f32], f32, f64, Option<Run<'a>>);
    impl Widest for Softmax<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self(values, extreme, scale, next) = self;
            let mut total = 0.0;
            for (block, at) in values.chunks_mut(BLOCK).zip((0..).step_by(BLOCK)) {
                if let Some(next) = &next {
                    next.prefetch(at, block.len());
                }
                exponentials::<FUSED>(block, extreme, scale);
                total += sums([&*block], |[e]: [f32; 1]| [e])[0];
            }
            let share = single(1.0 / total);
            values.iter_mut().for_each(|e| *e *= share);
        }
    }
    widest(Softmax(values, extreme, scale, next));
}

/// Each value becomes the logarithm of its share of the sum of exponentials, `scale (x - extreme) - log(sum)`.
#[inline(never)]
pub(super) fn log_softmax(values: &mut [f32], extreme: f32, scale: f64) {
    struct LogSoftmax<'a>(&'a mut [f32], f32, f64);
    impl Widest for LogSoftmax<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self(values, extreme, scale) = self;
            let (mut total, mut room) = (0.0, EMPTY);
            for block in values.chunks(BLOCK) {
                let powers = &mut room[..block.len()];
                powers.copy_from_slice(block);
                exponentials::<FUSED>(powers, extreme, scale);
                total += sums([&*powers], |[e]: [f32; 1]| [e])[0];
            }
            let log_sum = f64::ln(total);
            if scale == 1.0 {
                let [high, low] = parts(log_sum);
                return values.iter_mut().for_each(|x| *x = ((*x - extreme) - high) - low);
            }
            let extreme = f64::from(extreme);
            values.iter_mut().for_each(|x| *x = single(scale * (f64::from(*x) - extreme) - log_sum));
        }
    }
    widest(LogSoftmax(values, extreme, scale));
}

/// `exp(scale (x - extreme))`, the exponent rounded once.
#[inline(always)]
fn exponentials<const FUSED: bool>(values: &mut [f32], extreme: f32, scale: f64) {
    if scale == 1.0 {
        values.iter_mut().for_each(|x| *x = exp::<FUSED>(*x - extreme));
    } else {
        let extreme = f64::from(extreme);
        values.iter_mut().for_each(|x| *x = exp::<FUSED>(single(scale * (f64::from(*x) - extreme))));
    }
}

/// `sum(dy y)`, of log-softmax `sum(dy)`.
#[inline(never)]
pub(super) fn sum_of_softmax_gradient(y: &[f32], dy: &[f32], is_log: bool) -> f64 {
    struct Gradient<'a>([&'a [f32]; 2], bool);
    impl Widest for Gradient<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f64 {
            if self.1 {
                sums([self.0[1]], |[dy]: [f32; 1]| [dy])[0]
            } else {
                sums(self.0, |[y, dy]: [f32; 2]| [dy * y])[0]
            }
        }
    }
    widest(Gradient([y, dy], is_log))
}

/// Each `dy` becomes `scale y (dy - sum)`, of log-softmax `scale (dy - exp(y) sum)`.
#[inline(never)]
pub(super) fn softmax_gradient(y: &[f32], gradients: &mut [f32], sum: f64, scale: f64, is_log: bool) {
    struct Gradient<'a> {
        y: &'a [f32],
        gradients: &'a mut [f32],
        sum: f64,
        scale: f64,
        is_log: bool,
    }
    impl Widest for Gradient<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self { y, gradients, sum, scale, is_log } = self;
            let ([high, low], scale) = (parts(sum), single(scale));
            if is_log {
                for (dy, &y) in gradients.iter_mut().zip(y) {
                    *dy = scale * (*dy - exp::<FUSED>(y) * high);
                }
            } else {
                for (dy, &y) in gradients.iter_mut().zip(y) {
                    *dy = scale * (y * ((*dy - high) - low));
                }
            }
        }
    }
    widest(Gradient { y, gradients, sum, scale, is_log });
}
