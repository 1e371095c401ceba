//! Programs of elements once more: the functions in f64 by the standard library, and of each result what an implementation may find in its place.
//!
//! A number is a range and a bound at once. The range of a result holds the function of every corner of its arguments' ranges, and what the function
//! itself may be off by: [`Function::ulps`] of the computing type, through wgpu twice as much, and in f64 twice, since the value that is
//! expected is computed in f64, too. Where corners give numbers of several kinds (one is NaN, infinite, finite) all of these are allowed.

use anyhow::{Context, Result, ensure};
use baracuda_ops::{Backend, DType, Function};
use serde_json::Value;

use crate::judge::budget;
use crate::values::{greatest, rounded};

/// A function by its name, of arguments of which those beyond its own do not count.
fn formula(name: &str) -> Result<fn([f64; 3]) -> f64> {
    Ok(match name {
        "neg" => |[x, ..]| -x,
        "sqrt" => |[x, ..]| x.sqrt(),
        "abs" => |[x, ..]| if x.is_sign_negative() { -x } else { x },
        "sign" => |[x, ..]| if x == 0.0 || x.is_nan() { x } else { x.signum() },
        "ceil" => |[x, ..]| x.ceil(),
        "floor" => |[x, ..]| x.floor(),
        "round" => |[x, ..]| x.round_ties_even(),
        "trunc" => |[x, ..]| x.trunc(),
        "frac" => |[x, ..]| x % 1.0,
        "reciprocal" => |[x, ..]| x.recip(),
        "square" => |[x, ..]| x.powi(2),
        "rsqrt" => |[x, ..]| x.sqrt().recip(),
        "cbrt" => |[x, ..]| x.cbrt(),
        "relu" => |[x, ..]| between(x, 0.0, f64::INFINITY),
        "relu6" => |[x, ..]| between(x, 0.0, 6.0),
        "softsign" => |[x, ..]| if x.is_infinite() { x.signum() } else { x / (x.abs() + 1.0) },
        "hardsigmoid" => |[x, ..]| between(x + 3.0, 0.0, 6.0) / 6.0,
        "hardswish" => |[x, ..]| match x {
            _ if x <= -3.0 => 0.0,
            _ if x < 3.0 => x * ((x + 3.0) / 6.0),
            _ => x,
        },
        "leaky_relu" | "prelu" => |[x, slope, _]| if x > 0.0 { x } else { slope * x },
        "hardtanh" | "clamp" => |[x, low, high]| between(x, low, high),
        "hardshrink" => |[x, lambda, _]| if x > lambda || x < -lambda || (x + lambda).is_nan() { x } else { 0.0 },
        "softshrink" => |[x, lambda, _]| match x {
            _ if x.is_nan() => x,
            _ if x > lambda => x - lambda,
            _ if x + lambda < 0.0 => x + lambda,
            _ => 0.0,
        },
        "threshold" => |[x, threshold, value]| if x > threshold || (x + threshold).is_nan() { x } else { value },
        "maximum" => |[x, y, _]| between(x, y, f64::INFINITY),
        "minimum" => |[x, y, _]| between(x, f64::NEG_INFINITY, y),
        "fmax" => |[x, y, _]| x.max(y),
        "fmin" => |[x, y, _]| x.min(y),
        "copysign" => |[x, y, _]| x.copysign(y),
        "fmod" => |[x, y, _]| x % y,
        "remainder" => |[x, y, _]| if (x % y) * y.signum() < 0.0 { x % y + y } else { x % y },
        "div_floor" => |[x, y, _]| whole_quotient(x, y, x.is_sign_negative() != y.is_sign_negative()),
        "div_trunc" => |[x, y, _]| whole_quotient(x, y, false),
        "hypot" => |[x, y, _]| x.hypot(y),
        "heaviside" => |[x, value, _]| if x == 0.0 { value } else { (x.signum() + 1.0) / 2.0 },
        "fma" => |[a, b, c]| a.mul_add(b, c),
        "exp" => |[x, ..]| x.exp(),
        "log" => |[x, ..]| x.ln(),
        "sigmoid" => |[x, ..]| sigmoid(x),
        "tanh" => |[x, ..]| x.tanh(),
        "silu" => |[x, ..]| if x < -40.0 { times_power(x) } else { x * sigmoid(x) },
        "softplus" => |[x, ..]| softplus(x),
        "log_sigmoid" => |[x, ..]| -softplus(-x),
        "gelu_erf" => |[x, ..]| x * normal(x),
        "gelu_tanh" => |[x, ..]| x * sigmoid_of_cubic(x),
        "erf" => |[x, ..]| libm::erf(x),
        "erfc" => |[x, ..]| libm::erfc(x),
        "mish" => |[x, ..]| if x < -40.0 { times_power(x) } else { x * softplus(x).tanh() },
        "selu" => |[x, ..]| 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() },
        "expm1" => |[x, ..]| x.exp_m1(),
        "log1p" => |[x, ..]| x.ln_1p(),
        "exp2" => |[x, ..]| x.exp2(),
        "log2" => |[x, ..]| x.log2(),
        "log10" => |[x, ..]| x.log10(),
        "sin" => |[x, ..]| x.sin(),
        "cos" => |[x, ..]| x.cos(),
        "tan" => |[x, ..]| x.tan(),
        "tanhshrink" => |[x, ..]| tanhshrink(x),
        "asin" => |[x, ..]| x.asin(),
        "acos" => |[x, ..]| x.acos(),
        "atan" => |[x, ..]| x.atan(),
        "sinh" => |[x, ..]| x.sinh(),
        "cosh" => |[x, ..]| x.cosh(),
        "asinh" => |[x, ..]| libm::asinh(x),
        "acosh" => |[x, ..]| if x >= 1.0 { libm::acosh(x) } else { f64::NAN },
        "atanh" => |[x, ..]| libm::atanh(x),
        "logit" => |[x, ..]| {
            if (x - 0.5).abs() < 0.2 { ((2.0 * x - 1.0) / (1.0 - x)).ln_1p() } else { x.ln() - (1.0 - x).ln() }
        },
        "elu" => |[x, y, _]| if x > 0.0 { x } else { y * x.exp_m1() },
        "celu" => |[x, y, _]| celu(x, y),
        "pow" => |[x, y, _]| x.powf(y),
        "xlogy" => |[x, y, _]| if x == 0.0 && !y.is_nan() { 0.0 } else { x * y.ln() },
        "atan2" => |[x, y, _]| x.atan2(y),
        "sinc" => |[x, ..]| sinc(x),
        "lgamma" => |[x, ..]| lgamma(x),
        "digamma" => |[x, ..]| digamma(x),
        "erfinv" => |[x, ..]| erfinv(x),
        "zeta" => |[s, q, _]| zeta(s, q),
        "igamma" => |[a, x, _]| crate::incomplete::igamma(a, x),
        "igammac" => |[a, x, _]| crate::incomplete::igammac(a, x),
        "igamma_grad_a" => |[a, x, _]| crate::incomplete::igamma_grad_a(a, x),
        "betainc" => |[a, b, x]| crate::incomplete::betainc(a, b, x),
        "ndtri" => |[p, ..]| ndtri(p),
        "log_ndtr" => |[x, ..]| log_ndtr(x),
        "erfcx" => |[x, ..]| erfcx(x),
        "bessel_j0" => |[x, ..]| bessel(x.abs())[0],
        "bessel_j1" => |[x, ..]| bessel(x.abs())[1] * x.signum(),
        "bessel_y0" => |[x, ..]| bessel(x)[2],
        "bessel_y1" => |[x, ..]| bessel(x)[3],
        "i0" => |[x, ..]| i0(x),
        "i0e" => |[x, ..]| i0e(x),
        "i1" => |[x, ..]| i1(x),
        "i1e" => |[x, ..]| i1e(x),
        "modified_bessel_k0" => |[x, ..]| bessel_k(0, x) * (-x).exp(),
        "modified_bessel_k1" => |[x, ..]| bessel_k(1, x) * (-x).exp(),
        "scaled_modified_bessel_k0" => |[x, ..]| bessel_k(0, x),
        "scaled_modified_bessel_k1" => |[x, ..]| bessel_k(1, x),
        "logaddexp" => |[x, y, _]| log_of_sum([x, y], std::f64::consts::E),
        "logaddexp2" => |[x, y, _]| log_of_sum([x, y], 2.0),
        "ldexp" => |[x, y, _]| raised(x, y),
        "nextafter" => |[x, y, digits]| next_number(x, y, digits),
        "nan_to_num" => |[x, nan, limit]| if x.is_nan() { nan } else { x.max(-limit).min(limit) },
        "add" => |[x, y, _]| x + y,
        "sub" => |[x, y, _]| x - y,
        "mul" => |[x, y, _]| x * y,
        "div" => |[x, y, _]| x / y,
        "isnan" => |[x, ..]| truth(x.is_nan()),
        "isinf" => |[x, ..]| truth(x.abs() == f64::INFINITY),
        "isfinite" => |[x, ..]| truth(f64::is_finite(x)),
        "signbit" => |[x, ..]| (x.to_bits() >> 63) as f64,
        "eq" => |[x, y, _]| truth(x == y),
        "ne" => |[x, y, _]| truth(x != y),
        "lt" => |[x, y, _]| truth(x < y),
        "le" => |[x, y, _]| truth(x <= y),
        "gt" => |[x, y, _]| truth(x > y),
        "ge" => |[x, y, _]| truth(x >= y),
        "logical_not" => |[x, ..]| 1.0 - x,
        "logical_and" => |[x, y, _]| x * y,
        "logical_or" => |[x, y, _]| x.max(y),
        "logical_xor" => |[x, y, _]| (x - y).abs(),
        "where" => |[x, y, z]| if x == 1.0 { y } else { z },
        _ => anyhow::bail!("tests/src/program.rs has no formula of {name}"),
    })
}

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// `x e^x`; the power may be too small for a normal number.
fn times_power(x: f64) -> f64 {
    x * (x / 2.0).exp() * (x / 2.0).exp()
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The normal distribution's integral up to x. What the rounding of `x / sqrt(2)` changes is added: far out it is many digits.
fn normal(x: f64) -> f64 {
    const ROOT: [f64; 2] = [std::f64::consts::SQRT_2, -9.667293313452913e-17];
    let z = -x / ROOT[0];
    let rest = (z.mul_add(-ROOT[0], -x) - z * ROOT[1]) / ROOT[0];
    let slope = -std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp();
    (libm::erfc(z) + if z.is_finite() && slope != 0.0 { slope * rest } else { 0.0 }) / 2.0
}

/// The sigmoid of `2 sqrt(2 / pi) (x + 0.044715 x^3)`, the cubic in two parts for the same reason.
fn sigmoid_of_cubic(x: f64) -> f64 {
    const SCALE: [f64; 2] = [1.5957691216057308, -9.96930880911092e-17];
    const CUBIC: [f64; 2] = [0.044715, 2.1960211427085595e-18];
    let x = x.clamp(-40.0, 40.0);
    let square = x * x;
    let share = square * CUBIC[0];
    let of_share = square.mul_add(CUBIC[0], -share) + x.mul_add(x, -square) * CUBIC[0] + square * CUBIC[1];
    let sum = 1.0 + share;
    let of_sum = (if share > 1.0 { share - sum + 1.0 } else { 1.0 - sum + share }) + of_share;
    let product = sum * x;
    let of_product = sum.mul_add(x, -product) + of_sum * x;
    let t = product * SCALE[0];
    let rest = product.mul_add(SCALE[0], -t) + of_product * SCALE[0] + product * SCALE[1];
    let power = (-t.abs()).exp() * (1.0 - rest * t.signum());
    if t < 0.0 { power / (1.0 + power) } else { 1.0 / (1.0 + power) }
}

fn tanhshrink(x: f64) -> f64 {
    if x.abs() > 2.0 {
        return x - x.tanh();
    }
    // The series of x cosh(x) - sinh(x), whose terms are positive.
    let (mut power, mut sum) = (1.0 / 6.0, 1.0 / 3.0);
    for n in (5..41).step_by(2) {
        let n = f64::from(n);
        power *= x * x / (n * (n - 1.0));
        sum += (n - 1.0) * power;
    }
    x * (sum / x.cosh()) * x * x
}

fn celu(x: f64, alpha: f64) -> f64 {
    let z = x / alpha;
    match z {
        _ if x > 0.0 => x,
        0.0 => x,
        _ if z.abs() < 0.25 => x * (z.exp_m1() / z),
        // A negative alpha: what the rounding of z changes is added.
        _ if z > 0.0 && z < 40.0 => alpha * (z.exp_m1() + z.exp() * z.mul_add(-alpha, x) / alpha),
        _ if z > 0.0 && z < 2000.0 => alpha * (z / 2.0).exp() * (1.0 + z.mul_add(-alpha, x) / alpha) * (z / 2.0).exp(),
        _ => alpha * z.exp_m1(),
    }
}

/// The angle is brought within a turn first, which is exact.
fn sinc(x: f64) -> f64 {
    let part = x % 2.0;
    let near = part.round();
    let sine = (std::f64::consts::PI * (part - near)).sin() * if near.abs() == 1.0 { -1.0 } else { 1.0 };
    if x.abs() < 1e-9 { 1.0 } else { sine / x / std::f64::consts::PI }
}

/// `zeta(k) - 1` by a sum and Euler-Maclaurin's formula.
fn zeta_less_one(k: i32) -> f64 {
    let n = 100f64;
    let rest = n.powi(1 - k) / f64::from(k - 1) - n.powi(-k) / 2.0 + f64::from(k) * n.powi(-k - 1) / 12.0
        - f64::from(k * (k + 1) * (k + 2)) * n.powi(-k - 3) / 720.0
        + f64::from(k * (k + 1) * (k + 2) * (k + 3) * (k + 4)) * n.powi(-k - 5) / 30240.0;
    (2..=100).rev().map(|n| f64::from(n).powi(-k)).sum::<f64>() + rest
}

/// `log(gamma(2 + t))` for t up to 1/2: Abramowitz and Stegun, 6.1.33.
pub(crate) fn lgamma_beside_two(t: f64) -> f64 {
    static FACTORS: std::sync::LazyLock<Vec<f64>> =
        std::sync::LazyLock::new(|| (2..40).map(|k| zeta_less_one(k) / f64::from(k)).collect());
    let series = (2..40).zip(&*FACTORS).rev().map(|(k, factor)| factor * (-t).powi(k)).sum::<f64>();
    t * 0.422_784_335_098_467_14 + series
}

/// By `gamma(x + 1) = x gamma(x)` and the series beside 2; from 9 on Stirling's; below 0 by the reflection.
pub(crate) fn lgamma(x: f64) -> f64 {
    match x {
        _ if x.is_nan() => x,
        _ if x.is_infinite() || x == 0.0 || (x < 0.0 && x.fract() == 0.0) => f64::INFINITY,
        // The rest is less than the last digit, and pi x has few digits where x is subnormal.
        _ if x.abs() < 1e-300 => -x.abs().ln(),
        _ if x < 0.0 => {
            let sine = (std::f64::consts::PI * (x - x.round())).sin().abs();
            std::f64::consts::PI.ln() - sine.ln() - (-x).ln() - lgamma(-x)
        }
        _ if x < 0.5 => lgamma_beside_two(x) - x.ln() - x.ln_1p(),
        _ if x < 1.5 => lgamma_beside_two(x - 1.0) - (x - 1.0).ln_1p(),
        _ if x < 9.0 => {
            let (mut product, mut z) = (1.0, x);
            while z > 2.5 {
                z -= 1.0;
                product *= z;
            }
            lgamma_beside_two(z - 2.0) + product.ln()
        }
        _ => {
            let terms =
                [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0, 1.0 / 156.0];
            let series = terms.into_iter().rev().fold(0.0, |sum, term| sum / (x * x) + term) / x;
            (x - 0.5) * (x.ln() - 1.0) + 0.418_938_533_204_672_7 + series
        }
    }
}

/// The sum of `d / ((n + x) (n + r))` over all n from 0 on, d the distance of x from the root r; below 0 by the reflection.
pub(crate) fn digamma(x: f64) -> f64 {
    const ROOT: [f64; 2] = [1.461_632_144_968_362_3, 9.549_995_429_965_697e-17];
    const LAST: f64 = 100.0;
    match x {
        _ if x == 0.0 => f64::INFINITY.copysign(-x),
        _ if x < 0.0 && (x.fract() == 0.0 || x.is_infinite()) => f64::NAN,
        _ if x < 0.0 => digamma(1.0 - x) - std::f64::consts::PI / (std::f64::consts::PI * (x - x.round())).tan(),
        _ if x > 1e3 => x.ln() - 0.5 / x - 1.0 / (12.0 * x * x),
        // One term is all there is, and the sum of others may be beyond all numbers.
        _ if x < 1e-20 => -1.0 / x,
        _ => {
            let distance = x - ROOT[0] - ROOT[1];
            let sum: f64 = (0..100).rev().map(|n| 1.0 / ((f64::from(n) + x) * (f64::from(n) + ROOT[0]))).sum();
            let (a, b) = (LAST + x, LAST + ROOT[0]);
            // Of the rest, digamma(a) - digamma(b) over the distance.
            let squares = a * a * b * b;
            let rest = if distance == 0.0 { 1.0 / b } else { (distance / b).ln_1p() / distance };
            let rest = rest + 0.5 / (a * b) + (a + b) / (12.0 * squares)
                - (a + b) * (a * a + b * b) / (120.0 * squares * squares);
            distance * (sum + rest)
        }
    }
}

/// By Newton's method, near 1 of the complement.
fn erfinv(x: f64) -> f64 {
    let size = x.abs();
    if size.is_nan() || size > 1.0 {
        return f64::NAN;
    }
    if size == 1.0 || size < 1e-9 {
        return if size == 1.0 { x / 0.0 } else { x * std::f64::consts::PI.sqrt() / 2.0 };
    }
    // Winitzki's approximation.
    let (logarithm, a) = ((1.0 - size).ln() + size.ln_1p(), 0.147);
    let half = 2.0 / (std::f64::consts::PI * a) + logarithm / 2.0;
    let mut y = ((half * half - logarithm / a).sqrt() - half).sqrt();
    for _ in 0..20 {
        let beyond = if size < 0.5 { libm::erf(y) - size } else { 1.0 - size - libm::erfc(y) };
        y -= beyond * (y * y).exp() * std::f64::consts::PI.sqrt() / 2.0;
    }
    y.copysign(x)
}

/// A sum of terms that are not negative, with what its additions lose.
fn sum_of(terms: impl Iterator<Item = f64>) -> f64 {
    let (sum, lost) = terms.fold((0.0f64, 0.0), |(sum, lost), term| {
        let next = sum + term;
        (next, lost + if sum > term { sum - next + term } else { term - next + sum })
    });
    sum + lost
}

/// The mean of a function of `sin(a)^2` over all angles times `e^-(2 x sin(a / 2)^2)`.
fn mean_of_angles(x: f64, of: fn(f64) -> f64) -> f64 {
    let at = |n: i32| (std::f64::consts::PI * f64::from(n) / 500.0).sin();
    let term = |n: i32| {
        (-2.0 * at(n) * at(n) * x).exp() * of((2.0 * std::f64::consts::PI * f64::from(n) / 500.0).sin().powi(2))
    };
    sum_of((0..500).map(term)) / 500.0
}

/// The mean of `e^(x cos(a))` over all angles.
fn i0(x: f64) -> f64 {
    if !x.is_finite() {
        return x.abs();
    }
    let half = x.abs() / 2.0;
    half.exp() * i0e(x) * half.exp()
}

/// Beyond the numbers of which so many angles are enough, the first terms of the asymptotic series.
fn i0e(x: f64) -> f64 {
    let size = x.abs();
    if size < 1000.0 {
        return mean_of_angles(size, |_| 1.0);
    }
    let w = 1.0 / (8.0 * size);
    (1.0 + w * (1.0 + w * (4.5 + w * (37.5 + w * 459.375)))) / size.sqrt() / std::f64::consts::TAU.sqrt()
}

fn i1(x: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    let half = x.abs() / 2.0;
    half.exp() * i1e(x) * half.exp()
}

/// x times the mean of `sin(a)^2 e^(x cos(a))`.
fn i1e(x: f64) -> f64 {
    let size = x.abs();
    if size < 1000.0 {
        return x * mean_of_angles(size, |square| square);
    }
    let w = 1.0 / (8.0 * size);
    let value = (1.0 - w * (3.0 + w * (7.5 + w * (52.5 + w * 590.625)))) / size.sqrt() / std::f64::consts::TAU.sqrt();
    value.copysign(x)
}

/// `e^x` times the modified Bessel function of the second kind: the integral of `cosh(n t) e^-(x (cosh(t) - 1))`, or near 0, where its range is long, the
/// first terms.
fn bessel_k(order: i32, x: f64) -> f64 {
    match x {
        _ if x < 0.0 || x.is_nan() => f64::NAN,
        0.0 => f64::INFINITY,
        f64::INFINITY => 0.0,
        _ if x < 1e-9 && order == 0 => (2f64.ln() - 0.577_215_664_901_532_9 - x.ln()) * (1.0 + x),
        _ if x < 1e-9 => 1.0 / x + 1.0,
        _ => {
            let far = 800.0 / x;
            let end = (far + (far * far + 2.0 * far).sqrt()).ln_1p();
            // Where the ends count for nothing, sums of equal weights converge as a power of e does.
            let steps = 400;
            let step = end / f64::from(steps);
            let term = |n: i32| {
                let t = f64::from(n) * step;
                (-x * (2.0 * (t / 2.0).sinh().powi(2))).exp() * if order == 0 { 1.0 } else { t.cosh() }
            };
            step * (sum_of((1..steps).rev().map(term)) + (term(0) + term(steps)) / 2.0)
        }
    }
}

/// The Bessel functions of the first kind and orders 0 and 1, and those of the second kind: by the recurrence that leads from high orders down, scaled by
/// `J0 + 2 J2 + 2 J4 + .. = 1`, and Neumann's series; far out by Hankel's asymptotic series, near 0 by the first terms.
fn bessel(x: f64) -> [f64; 4] {
    const EULER: f64 = 0.577_215_664_901_532_9;
    use std::f64::consts::{FRAC_2_PI, PI};
    match x {
        _ if x < 0.0 || x.is_nan() => [f64::NAN; 4],
        0.0 => [1.0, 0.0, f64::NEG_INFINITY, f64::NEG_INFINITY],
        f64::INFINITY => [0.0; 4],
        _ if x < 1e-8 => [1.0, x / 2.0, FRAC_2_PI * (x.ln() - 2f64.ln() + EULER), -FRAC_2_PI / x],
        _ if x > 25.0 => {
            let [s, c] = [x.sin(), x.cos()];
            let waves = [s + c, s - c];
            let of = |order: f64| {
                let (mut term, mut parts) = (1.0, [1.0, 0.0]);
                for k in 1..30 {
                    let odd = 2.0 * f64::from(k) - 1.0;
                    term *= (4.0 * order - odd * odd) / (8.0 * f64::from(k) * x);
                    parts[k as usize % 2] += if k % 4 < 2 { term } else { -term };
                }
                let [p, q] = parts;
                [p * waves[0] - q * waves[1], p * waves[1] + q * waves[0]].map(|wave| wave / PI.sqrt() / x.sqrt())
            };
            let ([j0, y0], [opposite, j1]) = (of(0.0), of(1.0));
            [j0, j1, y0, -opposite]
        }
        _ => {
            let highest = 20 + 2 * x as usize;
            let mut j = vec![0.0; highest + 2];
            j[highest] = 1.0;
            for k in (1..=highest).rev() {
                j[k - 1] = 2.0 * k as f64 / x * j[k] - j[k + 1];
            }
            let total = 2.0 * j.iter().step_by(2).sum::<f64>() - j[0];
            j.iter_mut().for_each(|j| *j /= total);
            let (mut even, mut odd, mut sign) = (0.0, 0.0, 1.0);
            for k in 1..highest / 2 {
                sign = -sign;
                let n = k as f64;
                even += sign * j[2 * k] / n;
                odd += sign * (2.0 * n + 1.0) / (n * (n + 1.0)) * j[2 * k + 1];
            }
            let logarithm = (x / 2.0).ln() + EULER;
            let y0 = FRAC_2_PI * (logarithm * j[0] - 2.0 * even);
            [j[0], j[1], y0, FRAC_2_PI * ((logarithm - 1.0) * j[1] - j[0] / x - odd)]
        }
    }
}

/// `e^(x^2) erfc(x)`: from 2 on as a continued fraction, of which the innermost parts are the last; else the product, the square in two parts.
fn erfcx(x: f64) -> f64 {
    match x {
        _ if x < -30.0 => f64::INFINITY,
        _ if x >= 2.0 => {
            let inner = (1..120).rev().fold(x, |inner, n| x + f64::from(n) / 2.0 / inner);
            1.0 / inner / std::f64::consts::PI.sqrt()
        }
        _ => {
            let square = x * x;
            libm::erfc(x) * square.exp() * (1.0 + x.mul_add(x, -square))
        }
    }
}

/// Below -1 by the quotient of the integral and the density, which is smooth.
fn log_ndtr(x: f64) -> f64 {
    if x < -1.0 {
        return (erfcx(-x / std::f64::consts::SQRT_2) / 2.0).ln() - x / 2.0 * x;
    }
    (-normal(-x)).ln_1p()
}

/// By bisection of the logarithm of the tail, and near 1/2 by the inverse of the error function.
fn ndtri(p: f64) -> f64 {
    match p {
        _ if p.is_nan() || !(0.0..=1.0).contains(&p) => f64::NAN,
        0.0 => f64::NEG_INFINITY,
        1.0 => f64::INFINITY,
        _ if (0.25..=0.75).contains(&p) => erfinv(2.0 * p - 1.0) * std::f64::consts::SQRT_2,
        _ => {
            let logarithm = p.min(1.0 - p).ln();
            let (mut low, mut high) = (-40.0, 0.0);
            for _ in 0..70 {
                let middle = (low + high) / 2.0;
                if log_ndtr(middle) < logarithm { low = middle } else { high = middle }
            }
            if p < 0.5 { low } else { -low }
        }
    }
}

/// The sum of all terms whose ratios are below `e^-1`, or the first hundred and the rest by Euler and Maclaurin's formula.
fn zeta(s: f64, q: f64) -> f64 {
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if s == 1.0 || q <= 0.0 {
        return if s == 1.0 || q == q.floor() { f64::INFINITY } else { f64::NAN };
    }
    // A larger one makes the same of every number but 1.
    let s = s.min(1e300);
    // (q + k)^-s from q^-s, which is the rest of a small k: the logarithm of the quotient.
    let first = q.powf(-s / 2.0);
    if first == f64::INFINITY || q == f64::INFINITY {
        return if first == f64::INFINITY { first } else { 0.0 };
    }
    let ratio = |k: f64| (-s * (k / q).ln_1p()).exp();
    let count = 100;
    let mut sum = sum_of((0..count).rev().map(|k| ratio(f64::from(k))));
    let a = q + f64::from(count);
    let last = ratio(f64::from(count));
    if last > 0.0 {
        let by = |k: f64| (s + k) / a;
        let series = s / (12.0 * a)
            * (1.0 - by(1.0) * by(2.0) / 60.0 * (1.0 - by(3.0) * by(4.0) / 42.0 * (1.0 - by(5.0) * by(6.0) / 40.0)));
        sum += last * (a / (s - 1.0) + 0.5 + series);
    }
    first * sum * first
}

fn log_of_sum([x, y]: [f64; 2], base: f64) -> f64 {
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    let scale = base.ln();
    match high - low {
        // Of equal infinities there is no difference.
        by if by.is_nan() && x == y => x,
        by => high + (-by * scale).exp().ln_1p() / scale,
    }
}

fn raised(x: f64, y: f64) -> f64 {
    let n = y.clamp(-3000.0, 3000.0).round_ties_even() as i32;
    if y.is_nan() {
        return y;
    }
    [n / 3, n / 3, n - n / 3 * 2].into_iter().fold(x, |x, n| x * 2f64.powi(n))
}

/// The bits of 16 of the number next to another, further from 0 or nearer to it; of 0, which a number between those of the type is rounded to, it is 0.
fn beside(bits: u16, is_away: bool) -> u16 {
    let size = bits & 0x7fff;
    bits & 0x8000 | if is_away { size + 1 } else { size.saturating_sub(1) }
}

/// The next number of a type with so many digits.
fn next_number(x: f64, y: f64, digits: f64) -> f64 {
    use half::{bf16, f16};
    let is_up = x < y;
    match digits as u32 {
        _ if x.is_nan() || y.is_nan() => f64::NAN,
        _ if x == y => y,
        11 => {
            let (next, least) = (f16::from_f64(x).to_bits(), f16::from_bits(1).to_f64());
            let moved = |is_away: bool| f16::from_bits(beside(next, is_away)).to_f64();
            if x == 0.0 { least.copysign(y) } else { moved(is_up == (x > 0.0)) }
        }
        8 => {
            let (next, least) = (bf16::from_f64(x).to_bits(), bf16::from_bits(1).to_f64());
            let moved = |is_away: bool| bf16::from_bits(beside(next, is_away)).to_f64();
            if x == 0.0 { least.copysign(y) } else { moved(is_up == (x > 0.0)) }
        }
        24 => f64::from(if is_up { (x as f32).next_up() } else { (x as f32).next_down() }),
        _ if is_up => x.next_up(),
        _ => x.next_down(),
    }
}

/// A function of numbers, also where it is one of other functions.
fn of_numbers(name: &str, [x, y, z]: [f64; 3]) -> Result<f64> {
    Ok(match name {
        "addcmul" => x + y * z,
        "addcdiv" => x + y / z,
        "lerp" if z < 0.5 => x + z * (y - x),
        "lerp" => y - (y - x) * (1.0 - z),
        _ => formula(name)?([x, y, z]),
    })
}

/// The middle one of three numbers, or the greatest; NaN if one is.
fn between(x: f64, low: f64, high: f64) -> f64 {
    if x.is_nan() || low.is_nan() || high.is_nan() {
        return f64::NAN;
    }
    let above = if x.total_cmp(&low).is_lt() { low } else { x };
    if above.total_cmp(&high).is_gt() { high } else { above }
}

/// The quotient less what its remainder adds, which is whole; one further from 0 if it is rounded up there.
fn whole_quotient(x: f64, y: f64, is_away: bool) -> f64 {
    let (quotient, rest) = (x / y, x % y);
    if rest.is_nan() {
        return quotient;
    }
    let whole = ((x - rest) / y).round_ties_even().abs() + if is_away && rest != 0.0 { 1.0 } else { 0.0 };
    whole.copysign(quotient)
}

/// Further numbers at which to look at an argument, by its place: where a function turns or jumps between the ends of a range, on both sides.
fn turns(name: &str, arguments: &[Allowed]) -> Vec<(usize, f64)> {
    let around = |at: f64| [at.next_down(), at, at.next_up()];
    let ends = |argument: &Allowed| [argument.least, argument.most, argument.value];
    let of_first = |places: Vec<f64>| places.into_iter().flat_map(around).map(|place| (0, place)).collect();
    match name {
        "hardswish" => of_first(vec![-3.0, -1.5, 3.0]),
        "frac" => of_first(vec![arguments[0].least.ceil(), arguments[0].most.floor()]),
        "threshold" => of_first(ends(&arguments[1]).to_vec()),
        "zeta" => {
            let poles = [0.0, arguments[1].most.floor().min(0.0)];
            let of_second = poles.into_iter().flat_map(around).map(|place| (1, place));
            of_first(vec![1.0]).into_iter().chain(of_second).collect()
        }
        "igamma" | "igammac" | "igamma_grad_a" => {
            around(0.0).into_iter().flat_map(|place| [(0, place), (1, place)]).collect()
        }
        "betainc" => {
            let of_x = around(0.0).into_iter().chain(around(1.0)).map(|place| (2, place));
            around(0.0).into_iter().flat_map(|place| [(0, place), (1, place)]).chain(of_x).collect()
        }
        "hardshrink" | "softshrink" => of_first(ends(&arguments[1]).into_iter().flat_map(|end| [end, -end]).collect()),
        _ => Vec::new(),
    }
}

/// A bool among numbers.
fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

/// The greatest number that divides two: of the lesser one's divisors, that of the rests.
fn divisor(x: i128, y: i128) -> i128 {
    if y == 0 { x.abs() } else { divisor(y, x % y) }
}

/// A function of integers of a type, by its name: the exact number, which wraps.
fn of_integers(name: &str, computing: DType, [x, y, z]: [i128; 3]) -> Result<i128> {
    let bits = 8 * computing.size_bytes() as u32;
    let quotient = |x: i128, y: i128| if y == 0 { 0 } else { x / y };
    // Rounds down: the quotient of a multiple of the divisor that is not above x.
    let floor = |x: i128, y: i128| if y == 0 { 0 } else { (x - (x % y + y) % y) / y };
    let pattern = |x: i128| x & ((1 << bits) - 1);
    let is_within = (0..i128::from(bits)).contains(&y);
    let holds = |holds: bool| i128::from(holds);
    Ok(wrapped(
        computing,
        match name {
            "neg" => -x,
            "abs" => x.abs(),
            "sign" => x.signum(),
            "square" => x * x,
            "relu" => x.max(0),
            "clamp" => {
                if x.max(y) < z {
                    x.max(y)
                } else {
                    z
                }
            }
            "add" => x + y,
            "sub" => x - y,
            "mul" => x * y,
            "div" | "div_trunc" => quotient(x, y),
            "fmod" => {
                if y == 0 {
                    0
                } else {
                    x - quotient(x, y) * y
                }
            }
            "div_floor" => floor(x, y),
            "remainder" => {
                if y == 0 {
                    0
                } else {
                    x - floor(x, y) * y
                }
            }
            "maximum" => {
                if x > y {
                    x
                } else {
                    y
                }
            }
            "minimum" => {
                if x > y {
                    y
                } else {
                    x
                }
            }
            "gcd" => divisor(x, y),
            // Of zeros the divisor is 0.
            "lcm" => (x * y).abs() / divisor(x, y).max(1),
            "bitwise_not" => -1 - x,
            "popcount" => i128::from((pattern(x) & y).count_ones()),
            "bitwise_and" => pattern(x) & pattern(y),
            "bitwise_or" => pattern(x) | pattern(y),
            "bitwise_xor" => pattern(x) ^ pattern(y),
            "shift_left" => {
                if is_within {
                    x << y
                } else {
                    0
                }
            }
            "shift_right" => {
                if is_within {
                    x >> y
                } else if x < 0 {
                    -1
                } else {
                    0
                }
            }
            "eq" => holds(x == y),
            "ne" => holds(x != y),
            "lt" => holds(x < y),
            "le" => holds(x <= y),
            "gt" => holds(x > y),
            "ge" => holds(x >= y),
            "logical_not" => 1 - x,
            "logical_and" => x * y,
            "logical_or" => holds(x + y > 0),
            "logical_xor" => holds(x != y),
            "where" => {
                if x == 1 {
                    y
                } else {
                    z
                }
            }
            _ => anyhow::bail!("tests/src/program.rs has no formula of {name} of integers"),
        },
    ))
}

/// The number of an integer type whose low bits are those of another number.
pub fn wrapped(dtype: DType, value: i128) -> i128 {
    let bits = 8 * dtype.size_bytes() as u32;
    let low = value & ((1 << bits) - 1);
    let is_signed = !matches!(dtype, DType::U32 | DType::U8);
    if is_signed && low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

/// The least and the greatest number of an integer type.
fn range(dtype: DType) -> Option<(f64, f64)> {
    Some(match dtype {
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::U32 => (0.0, f64::from(u32::MAX)),
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        _ => return None,
    })
}

/// What an implementation may find: any number from `least` to `most`, and what else is said.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// What the formula gives in f64.
    pub value: f64,
    /// The finite numbers; `least` is above `most` where there is none.
    least: f64,
    most: f64,
    /// Whether 0 and -0 were found.
    zeros: [bool; 2],
    /// Infinity, -infinity, NaN.
    infinity: bool,
    minus_infinity: bool,
    nan: bool,
}

impl Allowed {
    const fn nothing(value: f64) -> Self {
        let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { value, least, most, zeros: [false; 2], infinity: false, minus_infinity: false, nan: false }
    }

    fn only(value: f64) -> Self {
        let mut allowed = Self::nothing(value);
        allowed.admit(value);
        allowed
    }

    /// Whether it may be 0, and whether it may be something else.
    fn is_zero_or_not(&self) -> [bool; 2] {
        let is_other = self.least < self.most || self.has_finite() && self.least != 0.0;
        [self.holds(0.0), is_other || self.infinity || self.minus_infinity || self.nan]
    }

    fn admit(&mut self, value: f64) {
        if value.is_finite() {
            (self.least, self.most) = (self.least.min(value), self.most.max(value));
            self.zeros[usize::from(value.is_sign_negative())] |= value == 0.0;
        } else {
            self.infinity |= value == f64::INFINITY;
            self.minus_infinity |= value == f64::NEG_INFINITY;
            self.nan |= value.is_nan();
        }
    }

    /// What either of two may be; `value` is that of this one.
    fn or(self, other: Self) -> Self {
        Self {
            value: self.value,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            zeros: [0, 1].map(|sign| self.zeros[sign] || other.zeros[sign]),
            infinity: self.infinity || other.infinity,
            minus_infinity: self.minus_infinity || other.minus_infinity,
            nan: self.nan || other.nan,
        }
    }

    fn has_finite(&self) -> bool {
        self.least <= self.most
    }

    /// Whether the finite numbers have this one among them.
    fn holds(&self, value: f64) -> bool {
        self.least <= value && value <= self.most
    }

    /// The numbers at which a function of it is looked at: the value, the ends, zeros, and what is not finite.
    fn corners(&self, has_signs: bool) -> Vec<f64> {
        let has_both = self.holds(0.0) && (self.least < self.most || !has_signs);
        let candidates = [
            (self.holds(self.value), self.value),
            (self.has_finite(), self.least),
            (self.has_finite(), self.most),
            (has_both || self.zeros[0], 0.0),
            (has_both || self.zeros[1], -0.0),
            (self.infinity, f64::INFINITY),
            (self.minus_infinity, f64::NEG_INFINITY),
            (self.nan, f64::NAN),
            // The sign of a NaN that was computed is any.
            (self.nan, -f64::NAN),
        ];
        let mut corners: Vec<f64> = Vec::with_capacity(candidates.len());
        for (is_there, value) in candidates {
            if is_there && corners.iter().all(|known| known.to_bits() != value.to_bits()) {
                corners.push(value);
            }
        }
        corners
    }

    fn kinds(&self) -> u32 {
        [self.has_finite(), self.infinity, self.minus_infinity, self.nan].into_iter().map(u32::from).sum()
    }
}

/// How a program computes.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// f32 or f64.
    pub computing: DType,
    /// Where.
    pub backend: Backend,
}

impl Arithmetic {
    /// An input or a number of the program, which has the computing type.
    pub fn exact(self, value: f64) -> Allowed {
        self.flushed(Allowed::only(value))
    }

    /// Through wgpu a device may take a subnormal number for 0.
    fn flushed(self, mut allowed: Allowed) -> Allowed {
        let least_normal = f64::from(f32::MIN_POSITIVE);
        if self.backend == Backend::Wgpu {
            if 0.0 < allowed.least && allowed.least < least_normal {
                allowed.least = 0.0;
            }
            if -least_normal < allowed.most && allowed.most < 0.0 {
                allowed.most = 0.0;
            }
        }
        allowed
    }

    /// The function of a name, of arguments that may be what they may be.
    fn apply(self, name: &str, arguments: &[Allowed]) -> Result<Allowed> {
        let call = |name: &str, arguments: &[Allowed]| self.apply(name, arguments);
        // Sums are what their parts are.
        match (name, arguments) {
            ("addcmul", [x, a, b]) => return call("add", &[*x, call("mul", &[*a, *b])?]),
            ("addcdiv", [x, a, b]) => return call("add", &[*x, call("div", &[*a, *b])?]),
            ("fma", [a, b, c]) if self.backend == Backend::Wgpu => {
                return Ok(self.of_corners(name, arguments)?.or(call("add", &[call("mul", &[*a, *b])?, *c])?));
            }
            ("lerp", [a, b, w]) => {
                let way = call("sub", &[*b, *a])?;
                let rest = call("sub", &[Allowed::only(1.0), *w])?;
                let from_a = call("add", &[*a, call("mul", &[*w, way])?])?;
                let from_b = call("sub", &[*b, call("mul", &[way, rest])?])?;
                let (is_low, is_high) =
                    (w.value < 0.5 || w.least < 0.5, w.value >= 0.5 || w.value.is_nan() || w.most >= 0.5);
                return Ok(match (is_low, is_high) {
                    (true, false) => from_a,
                    (false, true) => from_b,
                    _ if w.value < 0.5 => from_a.or(from_b),
                    _ => from_b.or(from_a),
                });
            }
            ("fmod" | "remainder", [x, y]) => return self.remainder(name, *x, *y),
            _ => {}
        }
        self.of_corners(name, arguments)
    }

    /// A remainder: within a range of arguments of one whole quotient it is monotonous, else it may be any below the divisor.
    fn remainder(self, name: &str, x: Allowed, y: Allowed) -> Result<Allowed> {
        let mut found = self.of_corners(name, &[x, y])?;
        let has_one_value = |argument: &Allowed| argument.least >= argument.most;
        if !(has_one_value(&x) && has_one_value(&y)) && x.has_finite() && y.has_finite() {
            let size = y.least.abs().max(y.most.abs());
            let signs = [(x.least, x.most), (y.least, y.most)][usize::from(name == "remainder")];
            found = found.or(Allowed {
                least: if signs.0 < 0.0 { -size } else { 0.0 },
                most: if signs.1 > 0.0 { size } else { 0.0 },
                ..Allowed::nothing(found.value)
            });
        }
        Ok(found)
    }

    /// The function of a name, at the corners of its arguments' ranges and where it turns.
    fn of_corners(self, name: &str, arguments: &[Allowed]) -> Result<Allowed> {
        let function = Function::ALL.into_iter().find(|function| function.name() == name);
        let function = function.with_context(|| format!("no function is named {name}"))?;
        let takes = function.arity() + usize::from(DEPENDENT.contains(&name));
        ensure!(arguments.len() == takes, "{name} of {} arguments", arguments.len());
        let formula = formula(name)?;
        if name == "where" {
            let [otherwise, holds] = arguments[0].is_zero_or_not();
            let value = if arguments[0].value == 0.0 { arguments[2].value } else { arguments[1].value };
            let mut found = Allowed::nothing(value);
            for (_, argument) in [holds, otherwise].iter().zip(&arguments[1..]).filter(|(is_possible, _)| **is_possible)
            {
                found = found.or(*argument);
            }
            return Ok(found);
        }
        let mut values = [0.0; 3];
        values.iter_mut().zip(arguments).for_each(|(value, argument)| *value = argument.value);
        let mut found = Allowed::nothing(formula(values));
        // Shaders may take a zero for one of the other sign.
        let has_signs = self.backend != Backend::Wgpu;
        let mut corners = vec![[0.0; 3]];
        for (at, argument) in arguments.iter().enumerate() {
            let mut own = argument.corners(has_signs);
            let places = turns(name, arguments).into_iter().filter(|&(of, place)| of == at && argument.holds(place));
            own.extend(places.map(|(_, place)| place));
            let with = |corner: &[f64; 3], value: f64| {
                let mut corner = *corner;
                corner[at] = value;
                corner
            };
            corners = corners.iter().flat_map(|corner| own.iter().map(move |&value| with(corner, value))).collect();
        }
        if let [x] = arguments {
            corners.extend(turning_points(name, x.least, x.most).map(|point| [point, 0.0, 0.0]));
        }
        let (mut has_pole, mut has_finite, mut scale) = ([false; 2], false, 0.0f64);
        for corner in corners {
            let result = formula(corner);
            found.admit(result);
            scale = scale.max(function.scale(corner));
            if name == "copysign" && corner[1].is_nan() {
                // The sign of a NaN is any: conversions may lose it.
                found.admit(-result);
            }
            if corner.iter().all(|argument| argument.is_finite()) {
                has_finite |= result.is_finite();
                has_pole[0] |= result == f64::INFINITY;
                has_pole[1] |= result == f64::NEG_INFINITY;
            }
        }
        if function.gives_bool() {
            if let ("eq" | "ne", [x, y]) = (name, arguments) {
                // Ranges that overlap may hold equal numbers, and others unless each is one number.
                if x.least.max(y.least) <= x.most.min(y.most) {
                    found.admit(truth(name == "eq"));
                    if x.least < x.most || y.least < y.most {
                        found.admit(truth(name == "ne"));
                    }
                }
            }
            if name == "signbit" && arguments[0].nan {
                // That of a NaN that an instruction makes is any.
                found.admit(0.0);
                found.admit(1.0);
            }
            return Ok(found);
        }
        if let ("sin" | "cos", [x]) = (name, arguments)
            && x.most - x.least >= 2.0 * std::f64::consts::PI
        {
            // A whole period has both turning points. Large ones are no numbers of f64.
            found.admit(1.0);
            found.admit(-1.0);
        }
        if let [x] = arguments
            && name.starts_with("bessel_")
            && x.most - x.least >= 2.0 * std::f64::consts::PI
            && x.least.max(-x.most) > 1.0
        {
            // Far out, where turning points are no numbers of f64, a whole period has both, of the size of the waves.
            let wave = (2.0 / std::f64::consts::PI / x.least.max(-x.most)).sqrt();
            found.admit(wave);
            found.admit(-wave);
        }
        if let [x] = arguments
            && name == "tan"
            && turning_points("sin", x.least, x.most).next().is_some()
        {
            (has_pole, has_finite) = ([true; 2], true);
        }
        if let (POWER, [x, y]) = (name, arguments)
            && x.least < 0.0
            && y.least < y.most
        {
            // Between whole exponents there is none, and those beside each other give numbers of either sign.
            found.admit(f64::NAN);
            for corner in corners_of_power(x, y) {
                found.admit(corner);
                found.admit(-corner);
            }
        }
        if let [x] = arguments
            && x.least < x.most
        {
            if name == "sinc" {
                // Its slope is at most 1.4.
                let by = 1.4 * (x.most - x.least);
                (found.least, found.most) = ((found.least - by).max(-0.22), (found.most + by).min(1.0));
            }
            if matches!(name, "lgamma" | "digamma") && x.least < 0.0 {
                // Between whole numbers below 0 there is every number, or of lgamma every one from a turning point on.
                (has_pole, has_finite) = ([true; 2], true);
                found.admit(f64::NAN);
            }
        }
        // Finite arguments beside a pole give every number up to infinity.
        if has_finite && has_pole[0] {
            found.most = f64::MAX;
        }
        if has_finite && has_pole[1] {
            found.least = -f64::MAX;
        }
        Ok(self.rounded(found, function.ulps(), scale))
    }

    /// With what a function of so many ulps may be off by, which are those of at least `scale`, and what the computing type does not hold.
    fn rounded(self, mut allowed: Allowed, ulps: f64, scale: f64) -> Allowed {
        if !allowed.has_finite() {
            return allowed;
        }
        let doubled = |is: bool| if is { 2.0 } else { 1.0 };
        let factor = ulps * doubled(self.backend == Backend::Wgpu) * doubled(self.computing == DType::F64);
        allowed.least -= factor * ulp(self.computing, allowed.least.abs().max(scale));
        allowed.most += factor * ulp(self.computing, allowed.most.abs().max(scale));
        let largest = greatest(self.computing);
        allowed.infinity |= allowed.most > largest;
        allowed.minus_infinity |= allowed.least < -largest;
        if self.computing == DType::F64 || self.backend != Backend::Cpu {
            // A range of numbers that are all beyond the largest becomes empty.
            allowed.least = if allowed.least > largest { f64::INFINITY } else { allowed.least.max(-largest) };
            allowed.most = if allowed.most < -largest { f64::NEG_INFINITY } else { allowed.most.min(largest) };
        }
        self.flushed(allowed)
    }

    /// The value to expect of an output of a type, and its budget, where `actual` was found. A number among several kinds that are allowed is right
    /// as it is.
    pub fn expected(self, output: DType, mut allowed: Allowed, actual: f64) -> (f64, f64) {
        if output == DType::Bool {
            let [otherwise, holds] = allowed.is_zero_or_not();
            let value = if otherwise && (!holds || allowed.value == 0.0) { 0.0 } else { 1.0 };
            return if otherwise && holds { (actual, 1.0) } else { (value, 0.0) };
        }
        if let Some((least, most)) = range(output) {
            let cast = |value: f64| if value.is_nan() { 0.0 } else { value.trunc().clamp(least, most) };
            let corners: Vec<f64> = allowed.corners(true).into_iter().map(cast).collect();
            let (lowest, highest) = corners.iter().fold((most, least), |(low, high), &v| (low.min(v), high.max(v)));
            let is_allowed = (lowest..=highest).contains(&actual);
            return if is_allowed {
                (actual, highest - lowest)
            } else {
                (cast(allowed.value).clamp(lowest, highest), 0.0)
            };
        }
        if output == DType::F8E4M3 {
            // It saturates, and has NaN in place of infinities.
            let greatest = greatest(output);
            if allowed.has_finite() {
                (allowed.least, allowed.most) =
                    (allowed.least.clamp(-greatest, greatest), allowed.most.clamp(-greatest, greatest));
            }
            if allowed.value.is_finite() {
                allowed.value = allowed.value.clamp(-greatest, greatest);
            }
            allowed.nan |= allowed.infinity || allowed.minus_infinity;
            (allowed.infinity, allowed.minus_infinity) = (false, false);
        }
        let margin = |value: f64| budget(output, self.computing, value, 0.0);
        let Allowed { least, most, infinity, minus_infinity, nan, .. } = allowed;
        let value = if allowed.has_finite() { allowed.value.clamp(least, most) } else { allowed.value };
        match (allowed.kinds(), allowed.has_finite()) {
            // The ends of the range are rounded as well, by more than the value if they are further from 0.
            (1, true) => {
                let [below, above] = [value - least + margin(least), most - value + margin(most)];
                return (value, below.max(above).max(margin(value)));
            }
            (1, false) if !nan => return (if infinity { f64::INFINITY } else { f64::NEG_INFINITY }, 0.0),
            (1, false) => return (f64::NAN, 0.0),
            _ => {}
        }
        let (lowest, highest) = (least - margin(least), most + margin(most));
        let is_allowed = match actual {
            _ if actual.is_nan() => nan,
            f64::INFINITY => infinity || allowed.has_finite() && highest >= greatest(output),
            f64::NEG_INFINITY => minus_infinity || allowed.has_finite() && lowest <= -greatest(output),
            _ => allowed.has_finite() && lowest <= actual && actual <= highest,
        };
        match is_allowed {
            // The budget serves values of case files, which may be any others of the range.
            true => (actual, if actual.is_finite() { (highest - lowest).min(f64::MAX) } else { 0.0 }),
            false if allowed.has_finite() => (value, margin(value)),
            // Another kind of number than the one found.
            false => (if actual.is_nan() { 0.0 } else { f64::NAN }, 0.0),
        }
    }
}

const POWER: &str = "pow";

/// Functions that depend on the type of an operand, which is a further argument of theirs in a typed program.
const DEPENDENT: [&str; 3] = ["nextafter", "nan_to_num", "popcount"];

/// Powers of magnitudes at the ends of ranges.
fn corners_of_power<'a>(x: &'a Allowed, y: &'a Allowed) -> impl Iterator<Item = f64> + 'a {
    [x.least, x.most].into_iter().flat_map(move |x| [y.least, y.most].map(|y| x.abs().powf(y)))
}

/// Where a Bessel function has its extremes, on both sides the two nearest to 0 within a range: by Newton's steps with its differential equation.
fn turning_points_of_waves(name: &str, least: f64, most: f64) -> Vec<f64> {
    type Of = fn([f64; 4], f64) -> [f64; 2];
    let (order, first, of): (f64, f64, Of) = match name {
        "bessel_j0" => (0.0, 3.83, |[j0, j1, ..], _| [j0, -j1]),
        "bessel_j1" => (1.0, 1.84, |[j0, j1, ..], x| [j1, j0 - j1 / x]),
        "bessel_y0" => (0.0, 2.2, |[.., y0, y1], _| [y0, -y1]),
        "bessel_y1" => (1.0, 3.68, |[.., y0, y1], x| [y1, y0 - y1 / x]),
        _ => return Vec::new(),
    };
    let extreme = |mut x: f64| {
        for _ in 0..6 {
            let [value, slope] = of(bessel(x), x);
            x -= slope / (-slope / x - (1.0 - order / (x * x)) * value);
        }
        x
    };
    // They lie a little more or less than half a turn apart.
    let side = |sign: f64| {
        let nearest = if sign > 0.0 { least } else { -most };
        let turn = ((nearest - first) / std::f64::consts::PI).floor().max(0.0);
        (0..3).map(move |next| sign * extreme(first + (turn + f64::from(next)) * std::f64::consts::PI))
    };
    side(1.0).chain(side(-1.0)).chain([0.0]).collect()
}

/// Where a function of one argument turns or ends within a range, of sine and cosine the first two places.
fn turning_points(name: &str, least: f64, most: f64) -> impl Iterator<Item = f64> {
    use std::f64::consts::{FRAC_PI_2, PI};
    let every = |first: f64| {
        let next = ((least - first) / PI).ceil() * PI + first;
        [next, next + PI]
    };
    let points = match name {
        "silu" => [-1.278_464_542_761_074; 2],
        "gelu_erf" => [-0.7517915246935645; 2],
        "gelu_tanh" => [-0.7524614220710162; 2],
        "mish" => [-1.1924312145152604; 2],
        "lgamma" => [1.461_632_144_968_362_3; 2],
        "i0" | "i0e" => [0.0; 2],
        "i1e" => [-1.545_158_4, 1.545_158_4],
        "ndtri" => [0.0, 1.0],
        "modified_bessel_k0" | "modified_bessel_k1" | "scaled_modified_bessel_k0" | "scaled_modified_bessel_k1" => {
            [0.0; 2]
        }
        "erfinv" => [-1.0, 1.0],
        "sin" => every(FRAC_PI_2),
        "cos" => every(0.0),
        "asin" | "acos" | "atanh" => [-1.0, 1.0],
        "acosh" => [1.0; 2],
        "log1p" => [-1.0; 2],
        "logit" => [0.0, 1.0],
        _ => [f64::NAN; 2],
    };
    let of_waves = turning_points_of_waves(name, least, most);
    points.into_iter().chain(of_waves).filter(move |&point| least < point && point < most)
}

/// The distance of a number of a type from the next one; 0 at 0, which is exact.
fn ulp(dtype: DType, value: f64) -> f64 {
    let (fraction, exponents) = if dtype == DType::F64 { (52, -1022..=1023) } else { (23, -126..=127) };
    if value == 0.0 {
        return 0.0;
    }
    let exponent = if value.is_normal() { (value.to_bits() >> 52 & 0x7ff) as i32 - 1023 } else { -1023 };
    2f64.powi(exponent.clamp(*exponents.start(), *exponents.end()) - fraction)
}

/// What an instruction takes.
#[derive(Clone, Copy, Debug)]
enum Term {
    Value(usize),
    Number(f64),
}

/// A source: its name and its arguments, of which seed and offset are inputs.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    arguments: Vec<Term>,
}

impl Source {
    fn number(&self, at: usize) -> f64 {
        match self.arguments.get(at) {
            Some(Term::Number(number)) => *number,
            _ => 0.0,
        }
    }

    /// The inputs that are its seed and its offset.
    fn keys(&self) -> Option<[usize; 2]> {
        match self.arguments[..] {
            [Term::Value(seed), Term::Value(offset), ..] => Some([seed, offset]),
            _ => None,
        }
    }
}

/// The names of sources.
const SOURCES: [&str; 7] = ["index", "uniform", "bernoulli", "randint", "normal", "exponential", "count"];

/// Ten rounds of Philox 4x32.
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter.map(u64::from);
    let mut key = key.map(u64::from);
    let (word, low) = (1u64 << 32, u64::from(u32::MAX));
    for _ in 0..10 {
        let (first, second) = (0xD251_1F53 * a, 0xCD9E_8D57 * c);
        (a, b, c, d) = ((second / word) ^ b ^ key[0], second & low, (first / word) ^ d ^ key[1], first & low);
        key = [(key[0] + 0x9E37_79B9) & low, (key[1] + 0xBB67_AE85) & low];
    }
    [a, b, c, d].map(|word| word as u32)
}

/// `-log(u)` of `u = (2 w + 1) / (2 2^bits)`.
fn waiting(w: u64, bits: u32) -> f64 {
    let (whole, odd) = (1u64 << (bits + 1), 2 * w + 1);
    let part = |of: u64| of as f64 / whole as f64;
    // Near 1 the difference from it has fewer digits.
    if w >> (bits - 1) == 0 { -part(odd).ln() } else { -(-part(whole - odd)).ln_1p() }
}

/// Cosine and sine of `2 pi w / 2^64`: of the distance to the nearest quarter of a turn.
fn turned(w: u64) -> [f64; 2] {
    let quarters = (u128::from(w) + (1 << 61)) >> 62;
    let rest = (i128::from(w) - (quarters << 62) as i128) as f64 / 2f64.powi(64) * std::f64::consts::TAU;
    let mut point = [rest.cos(), rest.sin()];
    for _ in 0..quarters % 4 {
        point = [-point[1], point[0]];
    }
    point
}

/// The digits of numbers of a type.
fn digits(dtype: DType) -> u32 {
    match dtype {
        DType::F64 => 53,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F8E4M3 => 4,
        DType::F8E5M2 => 3,
        _ => 24,
    }
}

/// A program, as its JSON has it.
#[derive(Clone, Debug)]
pub struct Program {
    inputs: usize,
    sources: Vec<Source>,
    instructions: Vec<(String, Vec<Term>)>,
    outputs: Vec<usize>,
}

impl Program {
    /// With a last argument that says the type, of the functions that depend on one: of their first operand that is no number, which of inputs is among
    /// `inputs`, of results the one in which the program computes.
    pub fn typed(mut self, inputs: &[DType], computing: DType) -> Self {
        let dependent = self.instructions.iter_mut().filter(|(name, _)| DEPENDENT.contains(&&**name));
        for (name, arguments) in dependent {
            let operand = arguments.iter().find_map(|argument| match argument {
                Term::Value(at) => Some(inputs.get(*at).copied().unwrap_or(computing)),
                Term::Number(_) => None,
            });
            let dtype = operand.unwrap_or(computing);
            if name == "nextafter" {
                for argument in arguments.iter_mut() {
                    if let Term::Number(number) = argument {
                        *number = rounded(dtype, *number);
                    }
                }
            }
            arguments.push(Term::Number(match &**name {
                "nextafter" => f64::from(digits(dtype)),
                "nan_to_num" => greatest(dtype),
                // Of wider types all bits are of their own.
                _ => {
                    if dtype.size_bytes() == 1 {
                        255.0
                    } else {
                        -1.0
                    }
                }
            }));
        }
        self
    }

    /// Reads the JSON of a program.
    ///
    /// # Errors
    /// What is no program.
    pub fn of(json: &Value) -> Result<Self> {
        let list = |json: &Value| json.as_array().cloned().unwrap_or_default();
        let word = |json: &Value| json.as_str().map(String::from).with_context(|| format!("{json} is no name"));
        let mut names = list(&json["inputs"]).iter().map(word).collect::<Result<Vec<_>>>()?;
        let (inputs, mut instructions, mut sources) = (names.len(), Vec::new(), Vec::new());
        let find = |names: &[String], name: &str| {
            names.iter().position(|known| known == name).with_context(|| format!("nothing is named {name}"))
        };
        for words in list(&json["let"]) {
            let words = list(&words);
            ensure!(words.len() > 1, "an instruction has a name and a function");
            let term = |json: &Value| {
                if let Some(number) = json.as_f64() {
                    return Ok(Term::Number(number));
                }
                Ok(match &*word(json)? {
                    "inf" => Term::Number(f64::INFINITY),
                    "-inf" => Term::Number(f64::NEG_INFINITY),
                    "nan" => Term::Number(f64::NAN),
                    name => Term::Value(find(&names, name)?),
                })
            };
            let arguments = words[2..].iter().map(term).collect::<Result<Vec<_>>>()?;
            let name = word(&words[1])?;
            if SOURCES.contains(&&*name) {
                ensure!(instructions.is_empty(), "sources come first");
                sources.push(Source { name, arguments });
            } else {
                instructions.push((name, arguments));
            }
            names.push(word(&words[0])?);
        }
        let outputs = list(&json["outputs"]).iter().map(|name| find(&names, &word(name)?)).collect::<Result<_>>()?;
        Ok(Self { inputs, sources, instructions, outputs })
    }

    /// Whether an input is the seed or the offset of a source.
    pub fn is_key(&self, input: usize) -> bool {
        self.sources.iter().filter_map(Source::keys).any(|keys| keys.contains(&input))
    }

    /// The values of the sources at a position of extents, in a program that computes in a type and has outputs of these types; `words` are those of an
    /// input.
    pub fn sources(
        &self,
        arithmetic: Arithmetic,
        (dims, position): (&[u64], u64),
        outputs: &[DType],
        words: impl Fn(usize) -> Vec<u32>,
    ) -> Vec<Allowed> {
        let is_double = arithmetic.computing == DType::F64;
        let of = |(at, source): (usize, &Source)| {
            if source.name == "index" {
                let axis = source.number(0) as usize;
                let inner: u64 = dims[axis + 1..].iter().product();
                return Allowed::only((position / inner % dims[axis]) as f64);
            }
            let [seed, offset] = source.keys().unwrap_or_default().map(&words);
            let block = |number: u64| {
                philox([number as u32, (number >> 32) as u32, offset[0], source.number(2) as u32], [seed[0], seed[1]])
            };
            let word = |position: u64| block(position / 4)[(position % 4) as usize];
            let first = (self.inputs + at, source.number(3));
            // With the value of a word in the upper bits.
            let wide = |position: u64| match is_double {
                true => {
                    let block = block(position / 2);
                    let at = 2 * (position % 2) as usize;
                    u64::from(block[at]) << 32 | u64::from(block[at + 1])
                }
                false => u64::from(word(position)) << 32,
            };
            let logarithm = |position: u64| {
                if is_double { waiting(wide(position) >> 11, 53) } else { waiting(wide(position) >> 32, 32) }
            };
            let real = |value: f64| arithmetic.rounded(Allowed::only(value), 16.0, 0.0);
            match &*source.name {
                "uniform" => {
                    let own = self.outputs.iter().zip(outputs).filter(|(output, _)| **output == first.0);
                    let least = own.filter(|(_, dtype)| dtype.is_float()).map(|(_, &dtype)| digits(dtype));
                    let most = least.fold(digits(arithmetic.computing), u32::min);
                    let digits = match source.number(3) as u32 {
                        0 => most,
                        digits => digits.min(most),
                    };
                    Allowed::only((wide(position) >> (64 - digits)) as f64 / 2f64.powi(digits as i32))
                }
                "bernoulli" => {
                    Allowed::only(truth(f64::from(word(position)) < (first.1 * 2f64.powi(32)).round_ties_even()))
                }
                "randint" => {
                    let range = (source.number(4) - first.1) as u64;
                    Allowed::only(first.1 + ((u64::from(word(position)) * range) >> 32) as f64)
                }
                "exponential" => real(logarithm(position)),
                _ => {
                    let even = position & !1;
                    real((2.0 * logarithm(even)).sqrt() * turned(wide(even + 1))[(position % 2) as usize])
                }
            }
        };
        self.sources.iter().enumerate().map(of).collect()
    }

    /// The numbers of the program.
    pub fn numbers(&self) -> impl Iterator<Item = f64> {
        self.instructions.iter().flat_map(|(_, arguments)| arguments).filter_map(|argument| match argument {
            Term::Number(number) => Some(*number),
            Term::Value(_) => None,
        })
    }

    /// The outputs at one position if each result is rounded to the computing type, as a kernel without further errors has them; `change` is made of
    /// the result of each instruction, by its number.
    ///
    /// # Errors
    /// A function without a formula.
    pub fn run(&self, computing: DType, inputs: &[f64], change: impl Fn(usize, f64) -> f64) -> Result<Vec<f64>> {
        let mut values = inputs.to_vec();
        for (at, (name, arguments)) in self.instructions.iter().enumerate() {
            let mut given = [0.0; 3];
            for (given, argument) in given.iter_mut().zip(arguments) {
                *given = match *argument {
                    Term::Value(at) => values[at],
                    Term::Number(number) => rounded(computing, number),
                };
            }
            values.push(change(at, rounded(computing, of_numbers(name, given)?)));
        }
        Ok(self.outputs.iter().map(|&at| values[at]).collect())
    }

    /// The number of instructions.
    pub fn instructions(&self) -> usize {
        self.instructions.len()
    }

    /// The outputs at one position of integers, in which a bool is 0 or 1, that compute in a type.
    ///
    /// # Errors
    /// A function without a formula.
    pub fn integers(&self, computing: DType, inputs: impl IntoIterator<Item = i128>) -> Result<Vec<i128>> {
        let mut values: Vec<i128> = inputs.into_iter().collect();
        for (name, arguments) in &self.instructions {
            let mut given = [0; 3];
            for (given, argument) in given.iter_mut().zip(arguments) {
                *given = match *argument {
                    Term::Value(at) => values[at],
                    Term::Number(number) => number as i128,
                };
            }
            values.push(of_integers(name, computing, given)?);
        }
        Ok(self.outputs.iter().map(|&at| values[at]).collect())
    }

    /// What the outputs may be at one position.
    ///
    /// # Errors
    /// A function without a formula.
    pub fn outputs(&self, arithmetic: Arithmetic, inputs: impl IntoIterator<Item = f64>) -> Result<Vec<Allowed>> {
        self.outputs_beside(arithmetic, inputs, Vec::new())
    }

    /// The same with the values of sources.
    ///
    /// # Errors
    /// A function without a formula.
    pub fn outputs_beside(
        &self,
        arithmetic: Arithmetic,
        inputs: impl IntoIterator<Item = f64>,
        sources: Vec<Allowed>,
    ) -> Result<Vec<Allowed>> {
        let inputs = inputs.into_iter().map(|value| arithmetic.exact(value)).collect();
        self.outputs_of(arithmetic, inputs, sources)
    }

    /// What the only output may be of a result that is off by at most `off`, to which `count` values were reduced.
    ///
    /// # Errors
    /// A function without a formula.
    pub fn finished(&self, arithmetic: Arithmetic, result: f64, off: f64, count: u64) -> Result<Allowed> {
        let near = [result - off, result + off].map(Allowed::only);
        let result = arithmetic.rounded(Allowed::only(result).or(near[0]).or(near[1]), 0.0, 0.0);
        let count = Allowed::only(rounded(arithmetic.computing, count as f64));
        let sources = vec![count; self.sources.len()];
        Ok(self.outputs_of(arithmetic, vec![result], sources)?.swap_remove(0))
    }

    fn outputs_of(&self, arithmetic: Arithmetic, inputs: Vec<Allowed>, sources: Vec<Allowed>) -> Result<Vec<Allowed>> {
        let mut values = inputs;
        ensure!(values.len() == self.inputs, "{} inputs in place of {}", values.len(), self.inputs);
        ensure!(sources.len() == self.sources.len(), "{} sources in place of {}", sources.len(), self.sources.len());
        values.extend(sources);
        for (name, arguments) in &self.instructions {
            let of = |argument: &Term| match *argument {
                Term::Value(at) => values[at],
                Term::Number(number) => arithmetic.exact(rounded(arithmetic.computing, number)),
            };
            let arguments: Vec<Allowed> = arguments.iter().map(of).collect();
            values.push(arithmetic.apply(name, &arguments)?);
        }
        Ok(self.outputs.iter().map(|&at| values[at]).collect())
    }
}
