//! The incomplete gamma and beta functions once more, for the values that are expected: one integral of positive numbers over a logarithm each, by the double
//! exponential substitution of H. Takahasi and M. Mori, which needs to know little of where the integrand lies.
//!
//! With `t = x e^-v` in DLMF 8.2.1 `P(a, x) = F J`, with `t = x e^v` in 8.2.2 `Q(a, x) = F K`, where `F = x^a e^-x / Gamma(a)`; in 8.17.1 v is that of
//! `t / (1 - t)`.

use std::f64::consts::{FRAC_PI_2, TAU};

/// The integrals over v above 0 of `e^-E(v)` and of `v e^-E(v)`, for an E that is about 1 near `size`, by so many steps to a unit.
fn integrals(size: f64, steps: i32, exponent: impl Fn(f64) -> f64) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for k in -4 * steps..=4 * steps {
        let t = f64::from(k) / f64::from(steps);
        let v = size * (FRAC_PI_2 * t.sinh()).exp();
        let part = (-exponent(v)).exp() * v * FRAC_PI_2 * t.cosh() / f64::from(steps);
        if part > 0.0 {
            sums[0] += part;
            sums[1] += part * v;
        }
    }
    sums
}

/// `e^d - 1 - d` over d.
fn power_rest(d: f64) -> f64 {
    if d.abs() > 0.5 {
        return (d.exp_m1() - d) / d;
    }
    let (mut term, mut sum, mut k) = (d / 2.0, 0.0, 2.0);
    while f64::abs(term) > f64::abs(sum) * 1e-18 {
        sum += term;
        k += 1.0;
        term *= d / k;
    }
    sum
}

/// `u - log(1 + u)` over u.
fn logarithm_rest(u: f64) -> f64 {
    if u.abs() > 0.1 {
        return (u - u.ln_1p()) / u;
    }
    let (mut power, mut sum) = (1.0, 0.0);
    for k in 2..20 {
        power *= -u;
        sum -= power / f64::from(k);
    }
    sum
}

/// `scale (u - log(1 + u))` of `u = difference / scale`, where 1 + u is `whole`.
fn deviance(scale: f64, difference: f64, whole: f64) -> f64 {
    let u = difference / scale;
    let logarithm = |whole: f64| whole.clamp(f64::MIN_POSITIVE, f64::MAX).ln();
    if u.abs() > 0.5 { difference - scale * logarithm(whole) } else { difference * logarithm_rest(u) }
}

/// The logarithm of `Gamma(a)` less that of Stirling's formula.
fn stirling_rest(a: f64) -> f64 {
    let w = 1.0 / (a * a);
    (1.0 / 12.0
        - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w * (1.0 / 1188.0 - w * 691.0 / 360_360.0)))))
        / a
}

/// `a^a e^-a / Gamma(a)`.
fn peak(a: f64) -> f64 {
    if a < 16.0 { a.powf(a) * (-a).exp() / gamma(a) } else { (a / TAU).sqrt() * (-stirling_rest(a)).exp() }
}

/// The gamma function. That of tiny numbers is not infinite.
fn gamma(a: f64) -> f64 {
    libm::tgamma(a).min(f64::MAX)
}

/// `x^a e^-x / Gamma(a)`.
fn factor(a: f64, x: f64) -> f64 {
    if a < 16.0 {
        let half = x.powf(a / 2.0) * (-x.min(1500.0) / 2.0).exp();
        // Of a large x the power is infinite, and the other factor 0.
        if half.is_nan() { 0.0 } else { half / gamma(a) * half }
    } else {
        peak(a) * (-deviance(a, x - a, x / a)).exp()
    }
}

/// P, Q and the derivative of P by a.
struct Gammas {
    lower: f64,
    upper: f64,
    slope: f64,
}

impl Gammas {
    fn only(lower: f64, slope: f64) -> Self {
        Self { lower, upper: 1.0 - lower, slope }
    }

    fn new(a: f64, x: f64) -> Self {
        match (a, x) {
            _ if !(a >= 0.0 && x >= 0.0) => Self::only(f64::NAN, f64::NAN),
            (0.0, 0.0) | (f64::INFINITY, f64::INFINITY) => Self::only(f64::NAN, f64::NAN),
            (0.0, _) => Self::only(1.0, f64::NAN),
            (_, 0.0) | (f64::INFINITY, _) => Self::only(0.0, 0.0),
            (_, f64::INFINITY) => Self::only(1.0, 0.0),
            // Neighbours are further apart than the function is wide.
            _ if a.max(x) > 1e40 && a != x => Self::only(if a < x { 1.0 } else { 0.0 }, 0.0),
            _ if a > 1e40 => Self::only(0.5, -1.0 / (TAU.sqrt() * a.sqrt())),
            _ => Self::of_numbers(a, x),
        }
    }

    fn of_numbers(a: f64, x: f64) -> Self {
        let factor = factor(a, x);
        // log(x) - digamma(a).
        let logarithm = if a < 16.0 {
            x.ln() - super::program::digamma(a)
        } else {
            let u = (x - a) / a;
            let w = 1.0 / (a * a);
            let rest =
                0.5 / a + w * (1.0 / 12.0 - w * (1.0 / 120.0 - w * (1.0 / 252.0 - w * (1.0 / 240.0 - w / 132.0))));
            rest + if u.abs() < 0.5 { u.ln_1p() } else { (x / a).ln() }
        };
        if x < 1.0 {
            // Parts of the integrals are large and cancel.
            let lower = Self::lower_by_series(a, x);
            let upper = if a < 0.5 { Self::upper_by_series(a, x) } else { 1.0 - lower };
            return Self { lower, upper, slope: Self::slope_by_series(a, x) };
        }
        if x > a {
            let size = (1.0 / (x - a).max(x.sqrt())).ln_1p();
            let [integral, moment] = integrals(size, 32, |v| v * ((x - a) + x * power_rest(v)));
            let upper = factor * integral;
            return Self { lower: 1.0 - upper, upper, slope: -(logarithm * upper + factor * moment) };
        }
        let [integral, moment] = integrals(1.0 / (a - x).max(x.sqrt()), 32, |v| v * ((a - x) - x * power_rest(-v)));
        let lower = factor * integral;
        let slope = if a < 3.0 { Self::slope_by_series(a, x) } else { logarithm * lower - factor * moment };
        Self { lower, upper: 1.0 - lower, slope }
    }

    /// `1 - y - y a (the sum of (-x)^n / (n! (a + n)))` of `y = x^a / Gamma(1 + a)`, DLMF 8.7.3.
    fn upper_by_series(a: f64, x: f64) -> f64 {
        let logarithm = a * x.ln() - (super::program::lgamma_beside_two(a) - a.ln_1p());
        let next = |&(term, n): &(f64, f64)| Some((term * -x / (n + 1.0), n + 1.0));
        let terms = std::iter::successors(Some((1.0, 0.0)), next).take(25).skip(1);
        let sum: f64 = terms.map(|(term, n)| term / (a + n)).sum();
        -logarithm.exp_m1() - logarithm.exp() * a * sum
    }

    /// The terms `x^(a + n) e^-x / Gamma(a + n + 1)` until they count no more, and `1 / (a + 1) + .. + 1 / (a + n)`.
    fn terms(a: f64, x: f64) -> impl Iterator<Item = (f64, f64)> {
        let first = if a > 0.0 { factor(a, x) / a } else { 1.0 };
        // Of a tiny a both are.
        let first = if a < 1e-290 { 1.0 * (-x).exp() } else { first };
        let next = move |&(term, sum, n): &(f64, f64, f64)| {
            Some((term * (x / (a + n + 1.0)), sum + 1.0 / (a + n + 1.0), n + 1.0))
        };
        std::iter::successors(Some((first, 0.0, 0.0)), next).take(200).map(|(term, sum, _)| (term, sum))
    }

    fn lower_by_series(a: f64, x: f64) -> f64 {
        Self::terms(a, x).map(|(term, _)| term).sum()
    }

    fn slope_by_series(a: f64, x: f64) -> f64 {
        let logarithm = x.ln() - super::program::digamma(1.0 + a);
        Self::terms(a, x).map(|(term, sum)| term * (logarithm - sum)).sum()
    }
}

pub(crate) fn igamma(a: f64, x: f64) -> f64 {
    Gammas::new(a, x).lower
}

pub(crate) fn igammac(a: f64, x: f64) -> f64 {
    Gammas::new(a, x).upper
}

pub(crate) fn igamma_grad_a(a: f64, x: f64) -> f64 {
    // 0 of both signs is 0.
    Gammas::new(a, x).slope + 0.0
}

pub(crate) fn betainc(a: f64, b: f64, x: f64) -> f64 {
    match (a, b) {
        _ if !(a >= 0.0 && b >= 0.0 && (0.0..=1.0).contains(&x)) => f64::NAN,
        (0.0, 0.0) | (f64::INFINITY, f64::INFINITY) => f64::NAN,
        _ if x == 0.0 || x == 1.0 => x,
        (0.0, _) | (_, f64::INFINITY) => 1.0,
        (_, 0.0) | (f64::INFINITY, _) => 0.0,
        _ => {
            let z = 1.0 - x;
            // a (1 - x) - b x without the rounding of 1 - x, and of the products.
            let (first, second) = (a * z, b * x);
            let distance = (first - second) + (a.mul_add(z, -first) - b.mul_add(x, -second) + a * ((1.0 - z) - x));
            // The larger part loses digits of what is less than half, which a small b leaves on this side, too.
            let is_small = b < 1.0 && -b * (a.max(1.0) * z).min(1.0).ln() < 0.7;
            if distance >= 0.0 || is_small { part(a, b, x, z, distance) } else { 1.0 - part(b, a, z, x, -distance) }
        }
    }
}

/// The integral up to x, where z is 1 - x and `distance` is a z - b x: DLMF 8.17.20 and the integral of a + 1, which is no wider than the numbers are.
fn part(a: f64, b: f64, x: f64, z: f64, distance: f64) -> f64 {
    // x^a z^b / (a B(a, b)).
    let factor = if a + b < 16.0 {
        let power = x.powf(a / 2.0) * z.powf(b / 2.0);
        // In this order tiny numbers have no infinite quotients.
        power * ((b / (a + b)) * (gamma_of_next(a + b) / gamma_of_next(a) / gamma_of_next(b))) * power
    } else {
        let (less, more) = (a.min(b), a.max(b));
        let exponent = deviance(a, -distance, x * (1.0 + b / a)) + deviance(b, distance, z * (1.0 + a / b));
        let ratio = if more < 16.0 {
            peak(more) / peak(a + b)
        } else {
            (stirling_rest(a + b) - stirling_rest(more)).exp() / (1.0 + less / more).sqrt()
        };
        peak(less) / a * ratio * (-exponent).exp()
    };
    let (next, distance) = (a + 1.0, distance + z);
    let exponent = |v: f64| {
        // With the less of x and z, of which sums do not cancel.
        let (p, d) = if x < 0.5 { (x, -v) } else { (z, v) };
        let y = p * d.exp_m1();
        if y > 0.1 {
            return next * y.ln_1p() + b * (y.ln_1p() - v);
        }
        let each = p * d * power_rest(d) - y * logarithm_rest(y);
        v * distance + (next * each + b * each)
    };
    let bend = next * x * z + b * x * z;
    let size = (1.0 / distance.abs().max(bend.sqrt()).max(1e-300)).ln_1p();
    let [integral, _] = integrals(size, if b < 1.0 { 256 } else { 32 }, exponent);
    factor + factor * (x * ((a + b) * integral))
}

/// `Gamma(1 + a)`.
fn gamma_of_next(a: f64) -> f64 {
    if a < 1e-3 { super::program::lgamma(1.0 + a).exp() } else { a * libm::tgamma(a) }
}
