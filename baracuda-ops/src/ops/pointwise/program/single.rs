//! Exponential and special functions in f32 without branches, for the loops of `lanes`.
//!
//! Where an exponent has a large error of its own (a square, a cubic, a product with a logarithm) or an angle loses many digits, it is computed in f64 and
//! the rest in f32. A factor `2^n` of a result is multiplied last, so that a result that is subnormal is rounded once.
//!
//! Source: the coefficients are least-squares fits whose weights were adapted until the greatest relative error was least; reductions of arguments are those
//! of W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980, and, of large angles, of M. H. Payne, R. N. Hanek, "Radian Reduction for
//! Trigonometric Functions", 1983.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

use super::lanes::{ROUNDING, exp, fma, log, polynomial, power_of_two, tanh};
use crate::narrow::single;

/// A power of e as the product of its significand and two powers of two, of which only the last product may be subnormal.
struct Power {
    significand: f32,
    low: f32,
    high: f32,
}

impl Power {
    /// `e^rest 2^n` for n from -217 to 217.
    #[inline(always)]
    fn of<const FUSED: bool>(rest: f32, n: f32) -> Self {
        let significand = polynomial::<FUSED, 7>(
            [0.001_383_656_4, 0.008_375_036_5, 0.041_668_244, 0.166_664_17, 0.499_999_91, 1.0, 1.0],
            rest,
        );
        let n = (n + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed();
        let half = n >> 1;
        Self { significand, low: power_of_two(half), high: power_of_two(n - half) }
    }

    /// `e^x` for x from -150 to 92, beyond which results times any number of the range that goes with it are 0 or infinite; NaN counts as any number.
    #[inline(always)]
    fn new<const FUSED: bool>(x: f32) -> Self {
        let bounded = x.clamp(-150.0, 92.0);
        let n = fma::<FUSED>(bounded, std::f32::consts::LOG2_E, ROUNDING) - ROUNDING;
        let r = fma::<FUSED>(n, -0.693_359_4, bounded);
        Self::of::<FUSED>(fma::<FUSED>(n, 2.121_944_4e-4, r), n)
    }

    /// `2^t` for t of f64, which is bounded.
    #[inline(always)]
    fn of_two<const FUSED: bool>(t: f64) -> Self {
        let bounded = t.clamp(-216.0, 216.0);
        let n = (bounded + ROUNDING_F64) - ROUNDING_F64;
        Self::of::<FUSED>(single((bounded - n) * std::f64::consts::LN_2), single(n))
    }

    /// `e^t` for t of f64.
    #[inline(always)]
    fn of_f64<const FUSED: bool>(t: f64) -> Self {
        Self::of_two::<FUSED>(t * std::f64::consts::LOG2_E)
    }

    #[inline(always)]
    fn value(&self) -> f32 {
        self.times(1.0)
    }

    #[inline(always)]
    fn times(&self, factor: f32) -> f32 {
        factor * self.significand * self.low * self.high
    }
}

/// Adding it to a number of magnitude below 2^51 rounds that to a whole number, which the sum's low bits are.
const ROUNDING_F64: f64 = 6_755_399_441_055_744.0;

/// NaN of -infinity and of NaN, where a function is x times what is 0 at -infinity.
#[inline(always)]
fn above_minus_infinity(x: f32, value: f32) -> f32 {
    if x > f32::NEG_INFINITY { value } else { f32::NAN }
}

#[inline(always)]
pub(super) fn silu<const FUSED: bool>(x: f32) -> f32 {
    let bounded = x.max(-150.0);
    let power = Power::new::<FUSED>(-bounded.abs());
    let r = 1.0 / (1.0 + power.value());
    above_minus_infinity(x, if x < 0.0 { power.times(bounded * r) } else { x * r })
}

/// `log(1 + e)` for e from 0 to 1, as a series of `e / (2 + e)`.
#[inline(always)]
fn log_of_one_and<const FUSED: bool>(e: f32) -> f32 {
    let s = e / (2.0 + e);
    let twice = (e + e) / (2.0 + e);
    let z = s * s;
    let p = polynomial::<FUSED, 5>([0.121_504_69, 0.107_138_284, 0.143_084_42, 0.199_994_38, 0.333_333_37], z);
    fma::<FUSED>(twice * z, p, twice)
}

#[inline(always)]
pub(super) fn softplus<const FUSED: bool>(x: f32) -> f32 {
    x.max(0.0) + log_of_one_and::<FUSED>(exp::<FUSED>(-x.abs()))
}

#[inline(always)]
pub(super) fn log_sigmoid<const FUSED: bool>(x: f32) -> f32 {
    -softplus::<FUSED>(-x)
}

/// `e^(z^2) erfc(z)` for z from 0 to 10.6.
#[inline(always)]
pub(super) fn scaled_erfc<const FUSED: bool>(z: f32) -> f32 {
    let t = 1.0 / fma::<FUSED>(0.3, z, 1.0);
    let p = [
        0.005_003_361_5,
        -0.157_530_9,
        0.553_697_4,
        -0.606_672_7,
        0.629_670_7,
        -0.140_815_76,
        0.231_776_31,
        0.144_501_33,
        0.171_209_68,
        0.169_160_57,
    ];
    t * polynomial::<FUSED, 10>(p, t)
}

#[inline(always)]
pub(super) fn gelu_erf<const FUSED: bool>(x: f32) -> f32 {
    let bounded = x.max(-20.0);
    let size = bounded.abs().min(20.0);
    let half = 0.5 * scaled_erfc::<FUSED>(size * std::f32::consts::FRAC_1_SQRT_2);
    let wide = f64::from(size);
    let power = Power::of_f64::<FUSED>(-0.5 * wide * wide);
    above_minus_infinity(x, if x < 0.0 { power.times(bounded * half) } else { x * (1.0 - power.times(half)) })
}

#[inline(always)]
pub(super) fn gelu_tanh<const FUSED: bool>(x: f32) -> f32 {
    let bounded = x.max(-20.0);
    let size = f64::from(bounded.abs().min(20.0));
    let power = Power::of_f64::<FUSED>(-size * (1.595_769_121_605_730_8 + 0.071_354_816_272_600_25 * size * size));
    let r = 1.0 / (1.0 + power.value());
    above_minus_infinity(x, if x < 0.0 { power.times(bounded * r) } else { x * r })
}

#[inline(always)]
pub(super) fn erfc<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs().min(20.0);
    let wide = f64::from(size);
    let tail = Power::of_f64::<FUSED>(-wide * wide).times(scaled_erfc::<FUSED>(size));
    let value = if x < 0.0 { 2.0 - tail } else { tail };
    if x.is_nan() { x } else { value }
}

/// Near 0 an odd polynomial; beyond, 1 less the complement.
#[inline(always)]
pub(super) fn erf<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let p = [8.513_102_5e-5, -8.175_639e-4, 0.005_203_859, -0.026_860_509, 0.112_837_15, -0.376_126_35, 1.128_379_2];
    let near = x * polynomial::<FUSED, 7>(p, x * x);
    let far = (1.0 - erfc::<FUSED>(size)).copysign(x);
    if size < 0.9 { near } else { far }
}

/// `x tanh(softplus(x))`: with `e = exp(x)` the hyperbolic tangent is `e (e + 2) / (e (e + 2) + 2)`.
#[inline(always)]
pub(super) fn mish<const FUSED: bool>(x: f32) -> f32 {
    let bounded = x.max(-150.0);
    let power = Power::new::<FUSED>(-bounded.abs());
    let e = power.value();
    let below = power.times(bounded * ((e + 2.0) / fma::<FUSED>(e, e + 2.0, 2.0)));
    let twice = fma::<FUSED>(2.0, e, 1.0);
    let above = x * (twice / fma::<FUSED>(2.0 * e, e, twice));
    above_minus_infinity(x, if x < 0.0 { below } else { above })
}

/// `(e^r - 1 - r) / r^2` for the rest r of a power.
#[inline(always)]
fn expm1_rest<const FUSED: bool>(r: f32) -> f32 {
    polynomial::<FUSED, 5>([0.001_388_248_3, 0.008_366_692, 0.041_667_204, 0.166_665_42, 0.499_999_97], r)
}

/// `(e^r - 1) 2^n + (2^n - 1)`.
#[inline(always)]
pub(super) fn expm1<const FUSED: bool>(x: f32) -> f32 {
    // Below, the result is -1.
    let bounded = x.clamp(-18.0, 89.0);
    let shifted = fma::<FUSED>(bounded, std::f32::consts::LOG2_E, ROUNDING);
    let n = shifted - ROUNDING;
    let r = fma::<FUSED>(n, 2.121_944_4e-4, fma::<FUSED>(n, -0.693_359_4, bounded));
    let less = fma::<FUSED>(r * r, expm1_rest::<FUSED>(r), r);
    // Half of it, since 2^128 is no number.
    let half = power_of_two(shifted.to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed() - 1);
    let value = if n == 0.0 { less } else { 2.0 * fma::<FUSED>(less, half, half - 0.5) }.copysign(x);
    if x.is_nan() { x } else { value }
}

#[inline(always)]
pub(super) fn elu<const FUSED: bool>(x: f32, alpha: f32) -> f32 {
    if x > 0.0 { x } else { alpha * expm1::<FUSED>(x) }
}

#[inline(always)]
pub(super) fn selu<const FUSED: bool>(x: f32) -> f32 {
    if x > 0.0 { 1.050_701 * x } else { 1.758_099_3 * expm1::<FUSED>(x) }
}

/// Where `z = x / alpha` is near 0, x times `expm1(z) / z`, which needs no z that is normal.
#[inline(always)]
pub(super) fn celu<const FUSED: bool>(x: f32, alpha: f32) -> f32 {
    let z = f64::from(x) / f64::from(alpha);
    let t = (z * std::f64::consts::LOG2_E).clamp(-50.0, 280.0);
    let n = (t + ROUNDING_F64) - ROUNDING_F64;
    let r = single((t - n) * std::f64::consts::LN_2);
    let rest = expm1_rest::<FUSED>(r);
    let near = x * fma::<FUSED>(r, rest, 1.0);
    let n = single(n);
    // Of a positive z, which a negative alpha makes: 2^280 times the least alpha is infinite.
    let large = Power::of::<FUSED>(r, n.max(100.0) - 64.0).times(alpha * 18_446_744_073_709_551_616.0);
    let large = if z == f64::INFINITY { alpha * f32::INFINITY } else { large };
    let bounded = (n.min(100.0) + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed();
    let power = power_of_two(bounded);
    let medium = alpha * fma::<FUSED>(fma::<FUSED>(r * r, rest, r), power, power - 1.0);
    let value = if n == 0.0 {
        near
    } else if n > 100.0 {
        large
    } else {
        medium
    };
    if x > 0.0 { x } else { value }
}

/// A positive number as `2^k (1 + f)`.
#[inline(always)]
fn exponent_and_fraction(x: f32) -> (f32, f32) {
    const ROOT_HALF: u32 = 0x3f35_04f3;
    let is_subnormal = x < f32::MIN_POSITIVE;
    let bits = (if is_subnormal { x * 8_388_608.0 } else { x }).to_bits();
    let raised = bits.wrapping_add(0x3f80_0000 - ROOT_HALF);
    let k = (raised >> 23).cast_signed() - 127 - if is_subnormal { 23 } else { 0 };
    #[expect(clippy::cast_precision_loss, reason = "exponents are small")]
    let k = k as f32;
    (k, f32::from_bits((raised & 0x007f_ffff).wrapping_add(ROOT_HALF)) - 1.0)
}

/// `log(1 + f) - f`.
#[inline(always)]
fn log_rest<const FUSED: bool>(f: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let rest = z * polynomial::<FUSED, 4>([0.242_790_79, 0.284_987_87, 0.400_009_72, 0.666_666_6], z);
    let half_square = 0.5 * f * f;
    s * (half_square + rest) - half_square
}

/// What logarithms give of numbers that are not positive and finite.
#[inline(always)]
fn with_special_logarithms(x: f32, value: f32) -> f32 {
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    let value = if x < 0.0 { f32::NAN } else { value };
    if x < f32::INFINITY { value } else { x }
}

#[inline(always)]
pub(super) fn log1p<const FUSED: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    // What the sum has lost.
    let lost = if x > 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let (k, f) = exponent_and_fraction(u);
    let n = (k + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed();
    // Beyond 2^24 nothing that counts is lost.
    let f = f + lost * power_of_two(-n.clamp(-126, 126));
    let low = fma::<FUSED>(k, 9.058_001e-6, log_rest::<FUSED>(f));
    let value = with_special_logarithms(u, fma::<FUSED>(k, 0.693_138_1, low + f));
    // Also -0.
    if x.abs() < 1e-8 { x } else { value }
}

#[inline(always)]
pub(super) fn log2<const FUSED: bool>(x: f32) -> f32 {
    let (k, f) = exponent_and_fraction(x);
    let low = log_rest::<FUSED>(f) * std::f32::consts::LOG2_E;
    with_special_logarithms(x, k + fma::<FUSED>(f, std::f32::consts::LOG2_E, low))
}

#[inline(always)]
pub(super) fn log10<const FUSED: bool>(x: f32) -> f32 {
    let (k, f) = exponent_and_fraction(x);
    let low = fma::<FUSED>(k, 4.605_039e-6, log_rest::<FUSED>(f) * std::f32::consts::LOG10_E);
    let low = fma::<FUSED>(f, std::f32::consts::LOG10_E, low);
    // log10(2) in two parts, of which the first has so few bits that its product with k is exact.
    with_special_logarithms(x, fma::<FUSED>(k, 0.301_025_4, low))
}

#[inline(always)]
pub(super) fn exp2<const FUSED: bool>(x: f32) -> f32 {
    let bounded = x.clamp(-152.0, 130.0);
    let n = (bounded + ROUNDING) - ROUNDING;
    let value = Power::of::<FUSED>((bounded - n) * std::f32::consts::LN_2, n).value();
    if x.is_nan() { x } else { value }
}

/// `2^(y log2(|x|))`, the exponent in f64; the sign, and what has no digits, as IEEE 754 has it.
#[inline(always)]
pub(in crate::ops) fn pow<const FUSED: bool>(x: f32, y: f32) -> f32 {
    let size = x.abs();
    let (k, f) = exponent_and_fraction(size);
    let (k, f) = (f64::from(k), f64::from(f));
    let s = f / (2.0 + f);
    let z = s * s;
    let mut p = 1.0 / 17.0;
    for coefficient in [1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0, 1.0] {
        p = p * z + coefficient;
    }
    let logarithm = k + (2.0 * std::f64::consts::LOG2_E) * (s * p);
    let logarithm = if size == 0.0 { f64::NEG_INFINITY } else { logarithm };
    let logarithm = if size == f32::INFINITY { f64::INFINITY } else { logarithm };
    let exponent = f64::from(y) * logarithm;
    // Also of 1 and an infinite y.
    let value = Power::of_two::<FUSED>(if size == 1.0 { 0.0 } else { exponent }).value();
    let is_whole = y == y.trunc();
    let is_odd = is_whole && 0.5 * y != (0.5 * y).trunc();
    let value = if is_odd { value.copysign(x) } else { value };
    let is_defined = is_whole || x >= 0.0 || x == f32::NEG_INFINITY;
    let value = if is_defined && !x.is_nan() && !y.is_nan() { value } else { f32::NAN };
    if x == 1.0 || y == 0.0 { 1.0 } else { value }
}

/// The greatest angles that [`turned`] reduces.
const WIDE_ANGLE: f32 = 134_217_728.0; // 2^27

/// An angle as a rest within an eighth of a turn and the number of quarters of a turn, in the low bits.
type Turned = (f32, u64);

/// Of an angle below [`WIDE_ANGLE`]: products of the first part of a quarter turn, of 25 bits, are exact.
#[inline(always)]
fn turned(x: f32) -> Turned {
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUNDING_F64;
    let n = shifted - ROUNDING_F64;
    (single((x - n * 1.570_796_310_901_641_8) - n * 1.589_325_477_352_819_6e-8), shifted.to_bits())
}

/// Of any finite angle: a product of its 24 bits with those bits of `2 / pi` that count.
fn turned_exactly(x: f32) -> Turned {
    const TWO_OVER_PI: [u32; 9] =
        [0, 0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];
    let bits = x.to_bits();
    let exponent = bits >> 23 & 0xff;
    // |x| is m 2^(exponent - 150), so that the bits of 2 / pi from 2^(151 - exponent) on count; those of the table begin at 2^63.
    let m = u64::from(bits & 0x007f_ffff | 0x0080_0000);
    let first = exponent.saturating_sub(88);
    let word = |at: u32| u64::from(TWO_OVER_PI.get((first / 32 + at) as usize).copied().unwrap_or(0));
    let pair = |at: u32| word(at) << 32 | word(at + 1);
    let shift = first % 32;
    let window = |at: u32| if shift == 0 { pair(at) } else { pair(at) << shift | word(at + 2) >> (32 - shift) };
    // In units of 2^-62 quarters.
    let product = m.wrapping_mul(window(0)).wrapping_add((m * (window(2) >> 32)) >> 32);
    let quarters = product.wrapping_add(1 << 61) >> 62;
    let rest = product.wrapping_sub(quarters << 62).cast_signed();
    #[expect(clippy::cast_precision_loss, reason = "f64 has enough digits")]
    let rest = single(rest as f64 * (std::f64::consts::FRAC_PI_2 / 4_611_686_018_427_387_904.0));
    if x < 0.0 { (-rest, quarters.wrapping_neg()) } else { (rest, quarters) }
}

/// Sine and cosine of a rest.
#[inline(always)]
fn sine_and_cosine<const FUSED: bool>(r: f32) -> [f32; 2] {
    let z = r * r;
    let sine = polynomial::<FUSED, 3>([-1.951_697_6e-4, 0.008_332_176, -0.166_666_55], z);
    let cosine = polynomial::<FUSED, 3>([2.443_808_8e-5, -0.001_388_736_4, 0.041_666_646], z);
    [fma::<FUSED>(r * z, sine, r), fma::<FUSED>(z * z, cosine, fma::<FUSED>(-0.5, z, 1.0))]
}

#[inline(always)]
fn sine_of<const FUSED: bool>((r, quarters): Turned) -> f32 {
    let [sine, cosine] = sine_and_cosine::<FUSED>(r);
    let value = if quarters & 1 == 0 { sine } else { cosine };
    if quarters & 2 == 0 { value } else { -value }
}

#[inline(always)]
fn tangent_of<const FUSED: bool>((r, quarters): Turned) -> f32 {
    let [sine, cosine] = sine_and_cosine::<FUSED>(r);
    if quarters & 1 == 0 { sine / cosine } else { -cosine / sine }
}

/// A function of angles: first as if all were below [`WIDE_ANGLE`], then again those that are not.
#[inline(always)]
fn of_angles(x: &[f32], results: &mut [f32], function: impl Fn(Turned) -> f32) {
    let mut has_wide = false;
    for (result, &x) in results.iter_mut().zip(x) {
        *result = function(turned(x));
        has_wide |= x.abs() > WIDE_ANGLE;
    }
    if has_wide {
        for (result, &x) in results.iter_mut().zip(x).filter(|(_, x)| x.abs() > WIDE_ANGLE) {
            *result = if x.is_finite() { function(turned_exactly(x)) } else { f32::NAN };
        }
    }
}

#[inline(always)]
pub(super) fn sin<const FUSED: bool>(x: &[f32], results: &mut [f32]) {
    of_angles(x, results, sine_of::<FUSED>);
    odd(x, results);
}

#[inline(always)]
pub(super) fn cos<const FUSED: bool>(x: &[f32], results: &mut [f32]) {
    of_angles(x, results, |(r, quarters)| sine_of::<FUSED>((r, quarters.wrapping_add(1))));
}

#[inline(always)]
pub(super) fn tan<const FUSED: bool>(x: &[f32], results: &mut [f32]) {
    of_angles(x, results, tangent_of::<FUSED>);
    odd(x, results);
}

/// The result of 0 is 0 of the same sign, which sums do not keep.
#[inline(always)]
fn odd(x: &[f32], results: &mut [f32]) {
    for (result, &x) in results.iter_mut().zip(x) {
        *result = if x == 0.0 { x } else { *result };
    }
}

/// Near 0 an odd polynomial.
#[inline(always)]
pub(super) fn tanhshrink<const FUSED: bool>(x: f32) -> f32 {
    let z = x * x;
    let p = [
        -1.428_233_8e-4,
        9.236_072e-4,
        -0.003_206_950_9,
        0.008_697_949,
        -0.021_829_585,
        0.053_963_419,
        -0.133_333_1,
        0.333_333_34,
    ];
    let near = x * polynomial::<FUSED, 8>(p, z) * z;
    if x.abs() < 1.0 { near } else { x - tanh::<FUSED>(x) }
}

/// `asin(s)` for s up to 1/2, of which z is the square.
#[inline(always)]
fn small_arcsine<const FUSED: bool>(s: f32, z: f32) -> f32 {
    let p = polynomial::<FUSED, 5>([0.042_218_547, 0.024_147_611, 0.045_477_096, 0.074_952_416, 0.166_667_54], z);
    fma::<FUSED>(s * z, p, s)
}

/// Beyond 1/2 by the angle to 1, of which half has the sine `sqrt((1 - x) / 2)`.
#[inline(always)]
pub(super) fn asin<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let half = 0.5 * (1.0 - size);
    let far = fma::<FUSED>(-2.0, small_arcsine::<FUSED>(half.sqrt(), half), FRAC_PI_2);
    let near = small_arcsine::<FUSED>(size, size * size);
    if size < 0.5 { near } else { far }.copysign(x)
}

#[inline(always)]
pub(super) fn acos<const FUSED: bool>(x: f32) -> f32 {
    let half = 0.5 * (1.0 - x.abs());
    let to_one = 2.0 * small_arcsine::<FUSED>(half.sqrt(), half);
    let far = if x < 0.0 { PI - to_one } else { to_one };
    let near = FRAC_PI_2 - small_arcsine::<FUSED>(x, x * x);
    if x.abs() < 0.5 { near } else { far }
}

/// `atan(q)` for q from 0 to 1: from `tan(pi / 8)` on by the angle to `pi / 4`.
#[inline(always)]
fn arctangent_of_quotient<const FUSED: bool>(q: f32) -> f32 {
    let is_large = q > 0.414_213_57;
    let t = if is_large { (q - 1.0) / (q + 1.0) } else { q };
    let z = t * t;
    let p = polynomial::<FUSED, 4>([0.080_578_67, -0.138_791_49, 0.199_778_66, -0.333_329_53], z);
    let angle = fma::<FUSED>(t * z, p, t);
    if is_large { FRAC_PI_4 + angle } else { angle }
}

#[inline(always)]
pub(super) fn atan<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let angle = arctangent_of_quotient::<FUSED>(if size > 1.0 { 1.0 / size } else { size });
    let value = if size > 1.0 { FRAC_PI_2 - angle } else { angle };
    value.copysign(x)
}

#[inline(always)]
pub(super) fn atan2<const FUSED: bool>(y: f32, x: f32) -> f32 {
    let (rise, run) = (y.abs(), x.abs());
    let (less, more) = if rise > run { (run, rise) } else { (rise, run) };
    // Quotients of zeros and of infinities.
    let quotient = if more == 0.0 { 0.0 } else { less / more };
    let quotient = if less == f32::INFINITY { 1.0 } else { quotient };
    let angle = arctangent_of_quotient::<FUSED>(quotient);
    let angle = if rise > run { FRAC_PI_2 - angle } else { angle };
    let angle = if x.is_sign_negative() { PI - angle } else { angle }.copysign(y);
    if x.is_nan() || y.is_nan() { f32::NAN } else { angle }
}

/// Near 0 an odd polynomial.
#[inline(always)]
pub(super) fn sinh<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let z = size * size;
    let p = polynomial::<FUSED, 4>([2.817_439_7e-6, 1.983_606_6e-4, 0.008_333_35, 0.166_666_67], z);
    let power = Power::new::<FUSED>(size);
    let far = power.times(0.5) - 0.5 / power.value();
    let value = if size < 1.0 { fma::<FUSED>(size * z, p, size) } else { far }.copysign(x);
    if x.is_nan() { x } else { value }
}

#[inline(always)]
pub(super) fn cosh<const FUSED: bool>(x: f32) -> f32 {
    let power = Power::new::<FUSED>(x.abs());
    let value = power.times(0.5) + 0.5 / power.value();
    if x.is_nan() { x } else { value }
}

/// `log(2 x)` of large numbers, of which the square would be infinite.
#[inline(always)]
fn log_of_twice<const FUSED: bool>(x: f32) -> f32 {
    log::<FUSED>(x) + LN_2
}

#[inline(always)]
pub(super) fn asinh<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let z = size * size;
    let near = log1p::<FUSED>(size + z / (1.0 + (1.0 + z).sqrt()));
    let value = if size < 4096.0 { near } else { log_of_twice::<FUSED>(size) };
    value.copysign(x)
}

#[inline(always)]
pub(super) fn acosh<const FUSED: bool>(x: f32) -> f32 {
    let t = x - 1.0;
    let near = log1p::<FUSED>(t + fma::<FUSED>(t, t, 2.0 * t).sqrt());
    let value = if x > 4096.0 { log_of_twice::<FUSED>(x) } else { near };
    if x >= 1.0 { value } else { f32::NAN }
}

#[inline(always)]
pub(super) fn atanh<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    (0.5 * log1p::<FUSED>((size + size) / (1.0 - size))).copysign(x)
}

/// `log(x / (1 - x))`, from 1/4 to 3/4 as the logarithm of 1 and the exact difference over `1 - x`.
#[inline(always)]
pub(super) fn logit<const FUSED: bool>(x: f32) -> f32 {
    let rest = 1.0 - x;
    let near = log1p::<FUSED>((x - 0.5 + (x - 0.5)) / rest);
    if (x - 0.5).abs() < 0.25 { near } else { log::<FUSED>(x / rest) }
}

#[inline(always)]
pub(super) fn xlogy<const FUSED: bool>(x: f32, y: f32) -> f32 {
    let value = x * log::<FUSED>(y);
    if x == 0.0 && !y.is_nan() { 0.0 } else { value }
}

/// `e^(z^2) erfc(z)` for every z that is not negative: beyond 10 the asymptotic series.
#[inline(always)]
fn scaled_complement<const FUSED: bool>(z: f32) -> f32 {
    let u = 1.0 / z.max(10.0);
    let far = 0.564_189_6 * u * polynomial::<FUSED, 4>([-1.875, 0.75, -0.5, 1.0], u * u);
    let near = scaled_erfc::<FUSED>(z.min(10.0));
    let value = if z < 10.0 { near } else { far };
    if z.is_nan() { z } else { value }
}

/// Below 0 by the complement, which is from 1 to 2.
#[inline(always)]
pub(super) fn erfcx<const FUSED: bool>(x: f32) -> f32 {
    let bounded = f64::from(x.clamp(-10.0, 0.0));
    let below = Power::of_f64::<FUSED>(bounded * bounded).times(erfc::<FUSED>(x));
    if x < 0.0 { below } else { scaled_complement::<FUSED>(x) }
}

/// Below 0 the logarithm of `e^(x^2 / 2)` times the integral, less `x^2 / 2`; above, that of 1 less the tail.
#[inline(always)]
pub(super) fn log_ndtr<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let half = 0.5 * scaled_complement::<FUSED>(size * std::f32::consts::FRAC_1_SQRT_2);
    let below = log::<FUSED>(half) - 0.5 * size * size;
    let wide = f64::from(size.min(20.0));
    let above = log1p::<FUSED>(-Power::of_f64::<FUSED>(-0.5 * wide * wide).times(half));
    let value = if x < 0.0 { below } else { above };
    if x.is_nan() { x } else { value }
}

/// From 1/4 to 3/4 the distance to 1/2 times a polynomial of its square; beyond, with the tail q, `r = sqrt(-log(q))` times a polynomial of `1 / r`.
#[inline(always)]
pub(super) fn ndtri<const FUSED: bool>(p: f32) -> f32 {
    let distance = p - 0.5;
    let near = distance
        * polynomial::<FUSED, 7>(
            [1_133.976_3, 85.603_04, 50.000_587, 15.599_473, 5.773_267_7, 2.624_932, 2.506_628_3],
            distance * distance,
        );
    let tail = if p < 0.5 { p } else { 1.0 - p };
    let r = (-log::<FUSED>(tail)).sqrt();
    let factors = [
        0.000_122_369_43,
        -0.000_183_116_63,
        -7.294525e-5,
        5.38871e-5,
        0.000_403_833_95,
        -0.000_781_109_5,
        0.001_614_951_4,
        -0.004_854_186,
        0.017_741_088,
        -0.089_448_93,
        -0.432_391_88,
        1.072_538_9,
    ];
    let t = fma::<FUSED>(2.641_519_8, 1.0 / r, -1.257_709_3);
    let far = (r * polynomial::<FUSED, 12>(factors, t)).copysign(distance);
    // At 0 and 1 the root is infinite; beyond them the logarithm is NaN.
    if distance.abs() <= 0.25 { near } else { far }
}

/// The modified Bessel functions of the first kind: below 8 a polynomial of `x^2 / 4`; beyond, `e^x / sqrt(x)` times one of `1 / x`.
#[inline(always)]
fn bessel_i0_parts<const FUSED: bool>(size: f32) -> (f32, f32) {
    let half = 0.5 * size.min(8.0);
    let near = polynomial::<FUSED, 11>(
        [
            1.4222373e-13,
            5.2222185e-12,
            6.5986133e-10,
            3.886599e-8,
            1.9324846e-6,
            6.942965e-5,
            0.001_736_148_5,
            0.027_777_726,
            0.250_000_03,
            1.0,
            1.0,
        ],
        half * half,
    );
    let far = polynomial::<FUSED, 6>(
        [0.385_988_5, -0.013_217_732, 0.033_713_907, 0.027_902_093, 0.049_869_534, 0.398_942_3],
        1.0 / size.max(8.0),
    ) / size.sqrt();
    (near, far)
}

#[inline(always)]
fn bessel_i1_parts<const FUSED: bool>(size: f32) -> (f32, f32) {
    let half = 0.5 * size.min(8.0);
    let near = half
        * polynomial::<FUSED, 10>(
            [
                1.4416384e-12,
                4.595927e-11,
                5.3006537e-9,
                2.7184225e-7,
                1.1595928e-5,
                0.000_347_147_35,
                0.006_944_585,
                0.083_333_21,
                0.500_000_06,
                1.0,
            ],
            half * half,
        );
    let far = polynomial::<FUSED, 6>(
        [-0.450_111_42, 0.008_971_944, -0.046_074_29, -0.046_579_573, -0.149_605_38, 0.398_942_3],
        1.0 / size.max(8.0),
    ) / size.sqrt();
    (near, far)
}

#[inline(always)]
pub(super) fn i0e<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let (near, far) = bessel_i0_parts::<FUSED>(size);
    let value = if size < 8.0 { near * exp::<FUSED>(-size) } else { far };
    if x.is_nan() { x } else { value }
}

#[inline(always)]
pub(super) fn i1<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let (near, far) = bessel_i1_parts::<FUSED>(size);
    let value = if size < 8.0 { near } else { Power::new::<FUSED>(size).times(far) };
    // Times the quotient by an infinite root a power would be NaN.
    let value = if size > 92.0 { f32::INFINITY } else { value };
    if x.is_nan() { x } else { value.copysign(x) }
}

#[inline(always)]
pub(super) fn i1e<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let (near, far) = bessel_i1_parts::<FUSED>(size);
    let value = if size < 8.0 { near * exp::<FUSED>(-size) } else { far };
    if x.is_nan() { x } else { value.copysign(x) }
}

/// The logarithm of half a number; of the least one half is none.
#[inline(always)]
fn log_of_half<const FUSED: bool>(x: f32) -> f32 {
    let is_tiny = x < 1e-30;
    log::<FUSED>(if is_tiny { x } else { 0.5 * x }) - if is_tiny { LN_2 } else { 0.0 }
}

/// The modified Bessel functions of the second kind, as in `double.rs`: up to 2 the value, and beyond, that times `e^x`.
#[inline(always)]
fn bessel_k0_parts<const FUSED: bool>(x: f32) -> (f32, f32) {
    let z = x.min(2.0) * x.min(2.0);
    let rest = polynomial::<FUSED, 6>(
        [1.2674349e-7, 1.0163626e-5, 0.000_545_295_25, 0.014_418_406, 0.105_696_12, -0.577_215_7],
        z,
    );
    let first_kind =
        polynomial::<FUSED, 6>([7.3486795e-8, 6.7569263e-6, 0.000_434_076_73, 0.015_624_957, 0.25, 1.0], z);
    let far = polynomial::<FUSED, 9>(
        [
            1.1279071e-6,
            -2.984118e-6,
            6.59808e-6,
            -2.4085892e-5,
            9.972756e-5,
            -0.000_479_957_96,
            0.003_032_867_6,
            -0.031_071_447,
            1.218_595_4,
        ],
        4.0 / x.max(2.0) - 1.0,
    ) / x.sqrt();
    (fma::<FUSED>(-log_of_half::<FUSED>(x), first_kind, rest), far)
}

#[inline(always)]
fn bessel_k1_parts<const FUSED: bool>(x: f32) -> (f32, f32) {
    let z = x.min(2.0) * x.min(2.0);
    let rest = polynomial::<FUSED, 7>(
        [-1.1067191e-8, -1.0838968e-6, -7.494505e-5, -0.002_837_091_5, -0.042_049_035, 0.038_607_836, 1.0],
        z,
    );
    let first_kind =
        x * polynomial::<FUSED, 6>([6.0608607e-9, 6.7634886e-7, 5.4257158e-5, 0.002_604_163_3, 0.062_5, 0.5], z);
    let far = polynomial::<FUSED, 9>(
        [
            -1.3876895e-6,
            3.6740714e-6,
            -8.430939e-6,
            3.2074146e-5,
            -0.000_139_820_97,
            0.000_735_947_16,
            -0.005_566_694_3,
            0.103_349_72,
            1.363_151_9,
        ],
        4.0 / x.max(2.0) - 1.0,
    ) / x.sqrt();
    (fma::<FUSED>(log_of_half::<FUSED>(x), first_kind, rest / x), far)
}

/// What the parts are together; of 0, where the logarithm is infinite, infinite, and below it NaN.
#[inline(always)]
fn bessel_k<const FUSED: bool>(x: f32, (near, far): (f32, f32)) -> f32 {
    let value = if x <= 2.0 { near } else { Power::new::<FUSED>(-x).times(far) };
    let value = if x == 0.0 { f32::INFINITY } else { value };
    if x >= 0.0 { value } else { f32::NAN }
}

#[inline(always)]
fn scaled_bessel_k<const FUSED: bool>(x: f32, (near, far): (f32, f32)) -> f32 {
    let value = if x <= 2.0 { near * exp::<FUSED>(x) } else { far };
    let value = if x == 0.0 { f32::INFINITY } else { value };
    if x >= 0.0 { value } else { f32::NAN }
}

#[inline(always)]
pub(super) fn modified_bessel_k0<const FUSED: bool>(x: f32) -> f32 {
    bessel_k::<FUSED>(x, bessel_k0_parts::<FUSED>(x))
}

#[inline(always)]
pub(super) fn modified_bessel_k1<const FUSED: bool>(x: f32) -> f32 {
    bessel_k::<FUSED>(x, bessel_k1_parts::<FUSED>(x))
}

#[inline(always)]
pub(super) fn scaled_modified_bessel_k0<const FUSED: bool>(x: f32) -> f32 {
    scaled_bessel_k::<FUSED>(x, bessel_k0_parts::<FUSED>(x))
}

#[inline(always)]
pub(super) fn scaled_modified_bessel_k1<const FUSED: bool>(x: f32) -> f32 {
    scaled_bessel_k::<FUSED>(x, bessel_k1_parts::<FUSED>(x))
}
