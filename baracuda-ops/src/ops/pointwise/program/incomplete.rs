//! The incomplete gamma and beta functions in f64, by integrals of positive numbers over a logarithm, so that nothing cancels.
//!
//! With `t = x e^-v` the lower incomplete gamma function is `P(a, x) = F(a, x) J`, where `F = x^a e^-x / Gamma(a)` and J is the integral of
//! `e^-((a - x) v + x (e^-v - 1 + v))` over all v above 0; with `t = x e^v` the upper one is `Q(a, x) = F K`, K that of
//! `e^-((x - a) v + x (e^v - 1 - v))`. The one that is about a half or less is computed, and the other is 1 less it. In the same way
//! `I_x(a, b) = x^a (1 - x)^b / B(a, b)` times the integral over the logarithm v of `t / (1 - t)`, of `e^-(a v + (a + b) log(1 + x (e^-v - 1)))`.
//! The exponents are convex, and integrands smooth: up to where the exponent is [`REACH`], [`NODES`] points of Gauss and Legendre are enough for any a of
//! [`RAISE`] or more. An a below it is raised by as much, each step of which adds a term: `P(a, x) = x^a e^-x / Gamma(a + 1) + P(a + 1, x)`.
//!
//! `F = G(a) e^-D`, where `G(a) = a^a e^-a / Gamma(a)` is `sqrt(a / (2 pi))` over Stirling's correction, and `D = a (u - log(1 + u))` with `u = (x - a) / a`.
//! An exponent's rounding error is a relative error of the result: it grows with the result's logarithm.
//!
//! Source: NIST Digital Library of Mathematical Functions, 8.2.4, 8.8.5 (raising a), 8.7.3 (Q of small arguments), 8.17.4, 8.17.20 (raising a), 5.11.1
//! (Stirling's series), 3.5.v (points of Gauss and Legendre).

use super::double::digamma;

/// The exponent beyond which what is integrated does not count.
const REACH: f64 = 40.0;

/// An a below it is raised by it.
const RAISE: f64 = 16.0;

/// Half of the points of Gauss and Legendre between 0 and 1, with their weights; the others lie as far from 1.
const NODES: [[f64; 2]; 16] = [
    [0.001_368_069_075_259_218_3, 0.003_509_305_004_735_048],
    [0.007_194_244_227_365_833, 0.008_137_197_365_452_835],
    [0.017_618_872_206_246_784, 0.012_696_032_654_631_03],
    [0.032_546_962_031_130_15, 0.017_136_931_456_510_716],
    [0.051_839_422_116_973_94, 0.021_417_949_011_113_34],
    [0.075_316_193_133_715_01, 0.025_499_029_631_188_087],
    [0.102_758_102_016_028_8, 0.029_342_046_739_267_772],
    [0.133_908_940_629_855_17, 0.032_911_111_388_180_925],
    [0.168_477_866_534_892_4, 0.036_172_897_054_424_25],
    [0.206_142_121_379_618_85, 0.039_096_947_893_535_156],
    [0.246_550_045_533_885_3, 0.041_655_962_113_473_374],
    [0.289_324_361_934_682_3, 0.043_826_046_502_201_906],
    [0.334_065_698_858_936_17, 0.045_586_939_347_881_945],
    [0.380_356_318_873_931_45, 0.046_922_199_540_402_28],
    [0.427_764_019_208_601_74, 0.047_819_360_039_637_43],
    [0.475_846_167_156_130_8, 0.048_270_044_257_363_9],
];

/// `(1 / Gamma(1 + f) - 1) / f` for f from 0 to 1, interpolated at Chebyshev's points; the highest power first.
const INVERSE_FACTORIAL: [f64; 15] = [
    1.720_007_094_643_193_4e-8,
    -2.189_698_890_664_860_8e-7,
    1.138_996_241_150_865_5e-6,
    -1.243_653_465_255_338_2e-6,
    -2.014_945_739_076_377_6e-5,
    0.000_128_063_513_304_448,
    -0.000_215_249_148_226_830_67,
    -0.001_165_164_752_543_067_8,
    0.007_218_942_511_576_732,
    -0.009_621_971_400_288_845,
    -0.042_197_734_569_778_066,
    0.166_538_611_383_237_03,
    -0.042_002_635_034_127_836,
    -0.655_878_071_520_253_5,
    0.577_215_664_901_532_9,
];

/// The sum of a power series, the highest power first.
fn polynomial<const N: usize>(factors: [f64; N], x: f64) -> f64 {
    factors.into_iter().fold(0.0, |sum, factor| sum.mul_add(x, factor))
}

/// `(e^d - 1 - d) / d^2`.
fn power_rest(d: f64) -> f64 {
    if d.abs() >= 1.0 {
        return (d.exp_m1() - d) / (d * d);
    }
    (3..=20).rev().fold(0.0, |sum, k| (1.0 + sum * d) / f64::from(k)) * d * 0.5 + 0.5
}

/// `(u - log(1 + u)) / u^2` for u from -1/2 to 1/2, by the series of `s = u / (2 + u)`.
fn logarithm_rest(u: f64) -> f64 {
    let r = 1.0 / (2.0 + u);
    let s = u * r;
    let series = (0..17).rev().fold(0.0, |sum, k| sum * (s * s) + 1.0 / f64::from(2 * k + 3));
    r * (1.0 - 2.0 * r * s * series)
}

/// The logarithm of a quotient of positive numbers, which may be beyond all numbers.
fn logarithm_of(quotient: f64) -> f64 {
    quotient.clamp(f64::MIN_POSITIVE, f64::MAX).ln()
}

/// `scale (u - log(1 + u))` of `u = difference / scale`, where 1 + u is `quotient`.
fn deviance(scale: f64, difference: f64, quotient: f64) -> f64 {
    let u = difference / scale;
    if u.abs() < 0.5 { difference * (u * logarithm_rest(u)) } else { difference - scale * logarithm_of(quotient) }
}

/// Stirling's correction, the logarithm of `Gamma(a) e^a / (sqrt(2 pi) a^(a - 1/2))`, for a from [`RAISE`] on.
fn correction(a: f64) -> f64 {
    let u = 1.0 / a;
    let factors = [
        -3617.0 / 122_400.0,
        1.0 / 156.0,
        -691.0 / 360_360.0,
        1.0 / 1188.0,
        -1.0 / 1680.0,
        1.0 / 1260.0,
        -1.0 / 360.0,
        1.0 / 12.0,
    ];
    polynomial(factors, u * u) * u
}

/// `log(a) - digamma(a)` for a from [`RAISE`] on.
fn logarithm_less_digamma(a: f64) -> f64 {
    let u = 1.0 / a;
    let factors = [
        -3617.0 / 8160.0,
        1.0 / 12.0,
        -691.0 / 32_760.0,
        1.0 / 132.0,
        -1.0 / 240.0,
        1.0 / 252.0,
        -1.0 / 120.0,
        1.0 / 12.0,
    ];
    u * (0.5 + u * polynomial(factors, u * u))
}

/// `1 / Gamma(1 + a)` for a from 0 to [`RAISE`].
fn inverse_factorial(a: f64) -> f64 {
    let whole = a.floor();
    let f = a - whole;
    let mut product = 1.0;
    // At most 16 steps.
    let mut k = whole;
    while k >= 1.0 {
        product *= f + k;
        k -= 1.0;
    }
    (1.0 + f * polynomial(INVERSE_FACTORIAL, f)) / product
}

/// `a^a e^-a / Gamma(a)`.
fn peak(a: f64) -> f64 {
    if a < RAISE {
        a * (a.powf(a) * (-a).exp() * inverse_factorial(a))
    } else {
        (a / std::f64::consts::TAU).sqrt() * (-correction(a)).exp()
    }
}

/// The sum of a function at the points of Gauss and Legendre between two numbers.
fn integrated<const N: usize>(from: f64, width: f64, function: impl Fn(f64) -> [f64; N]) -> [f64; N] {
    let mut sums = [0.0; N];
    for [node, weight] in NODES {
        for v in [from + width * node, from + width * (1.0 - node)] {
            for (sum, value) in sums.iter_mut().zip(function(v)) {
                *sum += weight * value;
            }
        }
    }
    sums.map(|sum| sum * width)
}

/// The root of `slope v + bend v^2 / (2 + v) = REACH`.
fn reach_of(slope: f64, bend: f64) -> f64 {
    let sum = slope + bend;
    let (half, last) = ((slope - 0.5 * REACH) / sum, 2.0 * REACH / sum);
    let root = (half * half + last).sqrt();
    if half > 0.0 { last / (half + root) } else { root - half }
}

/// The incomplete gamma function of positive finite numbers.
struct Gamma {
    /// P, or Q.
    part: f64,
    is_upper: bool,
    /// The derivative of P by a.
    slope: f64,
}

fn gamma(a: f64, x: f64) -> Gamma {
    // From here on numbers next to each other are so many deviations apart that all lies on one side.
    const LARGE: f64 = 1.329_227_995_784_916e36; // 2^120
    if a.max(x) >= LARGE {
        let is_equal = a == x;
        return Gamma {
            part: if is_equal { 0.5 } else { 0.0 },
            is_upper: x > a,
            slope: if is_equal { -1.0 / (std::f64::consts::TAU.sqrt() * a.sqrt()) } else { 0.0 },
        };
    }
    let is_upper = x >= 1.0 && x > a;
    let is_raised = a < RAISE && !is_upper;
    let is_small = a < RAISE;
    // x^a e^-x / Gamma(1 + a) is their product: the power is multiplied last, where it may be too small for a number with all digits.
    let (mut term, mut power) = if is_small {
        // Beyond 1000 it is 0 of such an a.
        let bounded = x.min(1000.0);
        let root = (-0.5 * bounded).exp();
        (bounded.powf(a) * root * inverse_factorial(a), root)
    } else {
        (peak(a) / a, (-deviance(a, x - a, x / a)).exp())
    };
    // log(x) - digamma(1 + a).
    let mut logarithm = if is_small { x.ln() - digamma(1.0 + a) } else { 0.0 };
    let (mut sum, mut slope) = (0.0, 0.0);
    let mut raised = a;
    if is_raised {
        (term, power) = (term * power, 1.0);
        for k in 1..=16 {
            sum += term;
            slope += term * logarithm;
            raised = a + f64::from(k);
            term *= x / raised;
            logarithm -= 1.0 / raised;
        }
    }
    if !is_small {
        let u = (x - a) / a;
        let of_quotient = if u.abs() < 0.5 { u.ln_1p() } else { logarithm_of(x / a) };
        // Less 1 / a, since of 1 + a.
        logarithm = of_quotient + logarithm_less_digamma(a) - 1.0 / a;
    }
    let difference = (x - raised).abs();
    let sign = if is_upper { 1.0 } else { -1.0 };
    let exponent = |v: f64| v * (difference + x * v * power_rest(sign * v));
    let mut reach = if is_upper {
        let r = REACH / x;
        (r + (2.0 * r).sqrt()).ln_1p()
    } else {
        reach_of(difference, x)
    };
    reach = reach.min(REACH / difference);
    // Newton's steps come from above, since the exponent is convex.
    for _ in 0..3 {
        reach -= (exponent(reach) - REACH) / (difference + x * (sign * reach).exp_m1().abs());
    }
    let [integral, moment] = integrated(0.0, reach, |v| {
        let power = (-exponent(v)).exp();
        [power, v * power]
    });
    // x^a e^-x / Gamma(a) times the integral, and the derivative of that.
    let part = term * (raised * integral) * power;
    // raised (log(x) - digamma(raised)).
    let weighed = raised * logarithm + 1.0;
    let change = term * (weighed * integral + sign * (raised * moment)) * power;
    // 0 of both signs is 0.
    Gamma { part: sum + part, is_upper, slope: if is_upper { -change } else { slope + change } + 0.0 }
}

/// Where arguments are no positive finite numbers: NaN outside the domain, else P.
fn gamma_at_edges(a: f64, x: f64) -> Option<f64> {
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 {
        return Some(f64::NAN);
    }
    if a == 0.0 {
        return Some(if x > 0.0 { 1.0 } else { f64::NAN });
    }
    if x == 0.0 {
        return Some(0.0);
    }
    if a == f64::INFINITY {
        return Some(if x == f64::INFINITY { f64::NAN } else { 0.0 });
    }
    (x == f64::INFINITY).then_some(1.0)
}

/// The size of which the budget of a result counts in ulps: exponents, whose errors are relative errors of the result, are about its logarithm.
pub(super) fn scale(result: f64) -> f64 {
    let size = result.abs();
    if size > 0.0 && size < 1.0 { size * (1.0 - size.ln()) } else { 0.0 }
}

/// P(a, x).
pub(super) fn igamma(a: f64, x: f64) -> f64 {
    gamma_at_edges(a, x).unwrap_or_else(|| {
        let gamma = gamma(a, x);
        if gamma.is_upper { 1.0 - gamma.part } else { gamma.part }
    })
}

/// Q(a, x).
pub(super) fn igammac(a: f64, x: f64) -> f64 {
    if let Some(lower) = gamma_at_edges(a, x) {
        return 1.0 - lower;
    }
    if x < 1.0 && a <= 1.0 {
        return upper_of_small(a, x);
    }
    let gamma = gamma(a, x);
    if gamma.is_upper { gamma.part } else { 1.0 - gamma.part }
}

/// Q for a and x up to 1: `1 - y - y a (the sum of (-x)^n / (n! (a + n)))` of `y = x^a / Gamma(1 + a)`, where 1 - y is made of the logarithm of y.
fn upper_of_small(a: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 0.0);
    for n in 1..=18 {
        let n = f64::from(n);
        term *= -x / n;
        sum += term / (a + n);
    }
    let logarithm = a.mul_add(x.ln(), (a * polynomial(INVERSE_FACTORIAL, a)).ln_1p());
    -logarithm.exp_m1() - logarithm.exp() * (a * sum)
}

/// The derivative of [`igamma`] by a.
pub(super) fn igamma_grad_a(a: f64, x: f64) -> f64 {
    match gamma_at_edges(a, x) {
        Some(lower) if lower.is_nan() || a == 0.0 => f64::NAN,
        Some(_) => 0.0,
        None => gamma(a, x).slope,
    }
}

/// `a z - b x` by products without an error, where `1 - x` is `z + rest`.
fn distance_to_mean(a: f64, b: f64, x: f64, z: f64, rest: f64) -> f64 {
    let (first, second) = (a * z, b * x);
    let lost = a.mul_add(z, -first) - b.mul_add(x, -second);
    (first - second) + (lost + a * rest)
}

/// I_x(a, b).
pub(super) fn betainc(a: f64, b: f64, x: f64) -> f64 {
    let is_limit = |c: f64| c == 0.0 || c == f64::INFINITY;
    if a.is_nan() || b.is_nan() || a < 0.0 || b < 0.0 || !(0.0..=1.0).contains(&x) || (a == b && is_limit(a)) {
        return f64::NAN;
    }
    if x == 0.0 || x == 1.0 {
        return x;
    }
    if is_limit(a) || is_limit(b) {
        // All lies at 0, or at 1.
        return if a == 0.0 || b == f64::INFINITY { 1.0 } else { 0.0 };
    }
    let z = 1.0 - x;
    let rest = (1.0 - z) - x;
    let distance = distance_to_mean(a, b, x, z, rest);
    // Above the mean the other side is computed, unless b is so small that this one is little all the same.
    let is_small = b < 1.0 && -b * (a.max(RAISE) * z).min(1.0).ln() < 0.7;
    if distance >= 0.0 || is_small { beta(a, b, x, z, distance) } else { 1.0 - beta(b, a, z, x, -distance) }
}

/// The incomplete beta function of numbers between, where z is 1 - x and `distance` is a z - b x.
fn beta(a: f64, b: f64, x: f64, z: f64, distance: f64) -> f64 {
    // x^a z^b / B(a, b).
    let (less, more) = if a < b { (a, b) } else { (b, a) };
    let ratio = if more < RAISE {
        peak(more) / peak(a + b)
    } else {
        (correction(a + b) - correction(more)).exp() / (1.0 + less / more).sqrt()
    };
    let exponent = deviance(a, -distance, x * (1.0 + b / a)) + deviance(b, distance, z * (1.0 + a / b));
    // The power is multiplied last, where it may be too small for a number with all digits.
    let (mut raised, mut sum, mut distance) = (a, 0.0, distance);
    let (mut term, mut power) = (peak(less) / a * ratio, (-exponent).exp());
    if a < RAISE {
        (term, power) = (term * power, 1.0);
        for k in 1..=16 {
            sum += term;
            raised = a + f64::from(k);
            // In this order neither b is lost in a, nor a in b.
            term *= x * ((a + (b + f64::from(k - 1))) / raised);
        }
        distance += RAISE * z;
    }
    // The less of x and z stands in the formulas.
    let is_left = x <= 0.5;
    let (p, sign) = if is_left { (x, -1.0) } else { (z, 1.0) };
    let bend = raised * x * z + b * x * z;
    let exponent = |v: f64| {
        let y = p * (sign * v).exp_m1();
        if y < 0.5 {
            let (rest, q) = (power_rest(sign * v), y / v);
            let each = v * (p * rest - q * (q * logarithm_rest(y)));
            v * (distance + (raised * each + b * each))
        } else {
            raised * y.ln_1p() + b * (y.ln_1p() - v)
        }
    };
    let slope = |v: f64| {
        let power = (-v).exp();
        (raised * z - b * x * power) / (z + x * power)
    };
    // Beyond 700 a power is infinite; where this is less than the reach, nothing of the result counts but that it is little.
    let logarithm = if is_left { (-x).ln_1p() } else { z.ln() };
    let beyond = ((REACH - raised * logarithm - b * logarithm) / raised).min(700.0);
    let mut reach = if distance >= 0.0 { reach_of(distance, bend).min(beyond) } else { beyond };
    // Of a small z the integrand ends as that of the gamma function does; with a larger one the power counts for less, so that twice the exponent is sought.
    let twice = 2.0 * REACH / bend;
    let sooner = (twice + (2.0 * twice).sqrt()).ln_1p();
    if sooner < reach && exponent(sooner) >= REACH {
        reach = sooner;
    }
    for _ in 0..4 {
        let (above, slope) = (exponent(reach) - REACH, slope(reach));
        if above > 0.0 && slope > 0.0 {
            reach -= above / slope;
        }
    }
    // Of a small b the integrand is flat up to a point, where it falls.
    let flat = if b < 1.0 { -(raised * z).min(1.0).ln() } else { 0.0 };
    let pieces = ((flat / 8.0).ceil() + 1.0).min(5.0);
    let (mut integral, mut at) = (0.0, 0.0);
    while at < pieces {
        let [piece] = integrated(at * (reach / pieces), reach / pieces, |v| [(-exponent(v)).exp()]);
        integral += piece;
        at += 1.0;
    }
    sum + term * (raised * integral) * power
}
