//! The values of exponential and special functions in f64, to which everything else is compared; with the standard library and, for the error function,
//! with `libm`.
//!
//! The rounding error of an exponent is a relative error of the power: where an exponent is a square or a cubic, the power is corrected by it.

use std::f64::consts::FRAC_1_SQRT_2;

/// A product, and what its rounding loses.
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

pub(super) fn sigmoid(x: f64) -> f64 {
    // For a positive number exp would overflow.
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// `x e / (1 + e)` below 0 for `e = exp(x)`; the product is made of two roots of e, since e may be subnormal where it is not.
pub(super) fn silu(x: f64) -> f64 {
    let root = (-0.5 * x.abs()).exp();
    let r = 1.0 / (1.0 + root * root);
    if x < 0.0 { x * root * r * root } else { x * r }
}

pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub(super) fn gelu_erf(x: f64) -> f64 {
    if x < -36.0 && x > -40.0 {
        // The integral may be too small for a normal number where its product with x is not: the asymptotic series, times two roots of the density.
        let (square, lost) = two_product(x, x);
        let w = 1.0 / square;
        let series =
            [-135_135.0, 10_395.0, -945.0, 105.0, -15.0, 3.0, -1.0, 1.0].into_iter().fold(0.0, |sum, c| sum * w + c);
        let root = (-0.25 * square).exp();
        let root = root - root * (0.25 * lost);
        return -(0.398_942_280_401_432_7 * root * series) * root;
    }
    let (z, lost) = two_product(-x, FRAC_1_SQRT_2);
    // The constant is too large by 4.8e-17.
    let lost = lost + x * 4.833_646_656_726_457e-17;
    let tail = libm::erfc(z);
    // erfc'(z) is -2 / sqrt(pi) exp(-z^2). Beyond 30 the complement is 0 or 2.
    let slope = if z.abs() < 30.0 { std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp() * lost } else { 0.0 };
    x * (0.5 * (tail - slope))
}

pub(super) fn gelu_tanh(x: f64) -> f64 {
    // Twice sqrt(2 / pi), and that times 0.044715, in two parts.
    const LINEAR: (f64, f64) = (1.595_769_121_605_730_8, -9.969_308_809_110_92e-17);
    const CUBIC: (f64, f64) = (0.071_354_816_272_600_25, -6.175_149_918_155_315e-19);
    // Beyond 40 the power is 0.
    let size = x.abs().min(40.0);
    let (square, square_lost) = two_product(size, size);
    let (cubic, cubic_lost) = two_product(square, CUBIC.0);
    let sum = LINEAR.0 + cubic;
    let part = sum - LINEAR.0;
    let sum_lost = (LINEAR.0 - (sum - part)) + (cubic - part);
    let lost = sum_lost + cubic_lost + square_lost * CUBIC.0 + square * CUBIC.1 + LINEAR.1;
    let (exponent, exponent_lost) = two_product(sum, size);
    let root = (-0.5 * exponent).exp();
    let root = root - root * (0.5 * (exponent_lost + lost * size));
    let r = 1.0 / (1.0 + root * root);
    if x.is_nan() {
        x
    } else if x < 0.0 {
        x * root * r * root
    } else {
        x * r
    }
}

/// With `e = exp(x)` the hyperbolic tangent of softplus is `e (e + 2) / (e (e + 2) + 2)`.
pub(super) fn mish(x: f64) -> f64 {
    let root = (-0.5 * x.abs()).exp();
    let e = root * root;
    if x < 0.0 {
        x * root * ((e + 2.0) / (e * (e + 2.0) + 2.0)) * root
    } else {
        let twice = 1.0 + 2.0 * e;
        x * (twice / (twice + 2.0 * e * e))
    }
}

pub(super) fn elu(x: f64, alpha: f64) -> f64 {
    if x > 0.0 { x } else { alpha * x.exp_m1() }
}

pub(super) fn selu(x: f64) -> f64 {
    if x > 0.0 { 1.050_700_987_355_480_5 * x } else { 1.758_099_340_847_376_8 * x.exp_m1() }
}

pub(super) fn celu(x: f64, alpha: f64) -> f64 {
    if x > 0.0 {
        return x;
    }
    let z = x / alpha;
    if z == 0.0 {
        x
    } else if z.abs() < 0.3 {
        x * (z.exp_m1() / z)
    } else if z > 0.0 && z.is_finite() {
        // What the rounding of z changes, which of a large power is more than a rounding error.
        // Beyond 2000 the power is infinite. Small numbers are scaled, so that the remainder is a normal number.
        let scale = if x.abs() < 1e-200 { 2f64.powi(600) } else { 1.0 };
        let by = alpha * scale;
        let rest = if z < 2000.0 { (-z).mul_add(by, x * scale) / by } else { 0.0 };
        let root = (0.5 * z).exp();
        if z < 40.0 { alpha * (z.exp_m1() + z.exp() * rest) } else { alpha * root * (1.0 + rest) * root }
    } else {
        alpha * z.exp_m1()
    }
}

/// `(x cosh(x) - sinh(x)) / cosh(x)`, where that would cancel by a series of positive terms.
pub(super) fn tanhshrink(x: f64) -> f64 {
    if x.abs() >= 1.0 || x.is_nan() {
        return x - x.tanh();
    }
    let square = x * x;
    // The sum of 2k / (2k + 1)! x^(2k) from k = 1 on.
    let (mut term, mut sum) = (1.0 / 3.0, 1.0 / 3.0);
    for k in 2..12 {
        let k = f64::from(k);
        term *= square / ((2.0 * k - 2.0) * (2.0 * k + 1.0));
        sum += term;
    }
    x * (sum / x.cosh()) * square
}

/// The function of `libm` takes large numbers below 0 for others.
pub(super) fn acosh(x: f64) -> f64 {
    if x >= 1.0 { libm::acosh(x) } else { f64::NAN }
}

/// Between 1/4 and 3/4 `2 x - 1` is exact, and so is the sum of 1 and its quotient with `1 - x`.
pub(super) fn logit(x: f64) -> f64 {
    if (x - 0.5).abs() < 0.25 { ((2.0 * x - 1.0) / (1.0 - x)).ln_1p() } else { (x / (1.0 - x)).ln() }
}

pub(super) fn xlogy(x: f64, y: f64) -> f64 {
    if x == 0.0 && !y.is_nan() { 0.0 } else { x * y.ln() }
}

pub(super) fn sinc(x: f64) -> f64 {
    let n = x.round_ties_even();
    // sin(pi x) is that of the distance to the nearest whole number, with the other sign beside an odd one.
    let sine = (std::f64::consts::PI * (x - n)).sin();
    let sine = if n % 2.0 == 0.0 { sine } else { -sine };
    if x.abs() < 1e-9 { 1.0 } else { sine / (std::f64::consts::PI * x) }
}

/// Between 1 and 2 the distance to the root there times a polynomial; beyond, by `digamma(x + 1) = digamma(x) + 1 / x`, and from 10 on the asymptotic series; below 0
/// by `digamma(1 - x) - pi / tan(pi x)`.
pub(super) fn digamma(x: f64) -> f64 {
    // The root in two parts.
    const ROOT: [f64; 2] = [1.461_632_144_968_362_2, 9.549_995_429_965_697e-17];
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    let (mut z, mut rest) = (x, 0.0);
    if x < 0.0 {
        let distance = x - x.round_ties_even();
        if distance == 0.0 || distance.is_nan() {
            return f64::NAN;
        }
        (z, rest) = (1.0 - x, -std::f64::consts::PI / (std::f64::consts::PI * distance).tan());
    }
    if z < 1.0 {
        (z, rest) = (z + 1.0, rest - 1.0 / z);
    }
    if z >= 10.0 {
        let w = 1.0 / (z * z);
        // B(2 k) / (2 k), from k = 8 on.
        let series = [
            -3617.0 / 8160.0,
            1.0 / 12.0,
            -691.0 / 32760.0,
            1.0 / 132.0,
            -1.0 / 240.0,
            1.0 / 252.0,
            -1.0 / 120.0,
            1.0 / 12.0,
        ];
        return z.ln() - 0.5 / z - w * series.into_iter().fold(0.0, |sum, term| sum * w + term) + rest;
    }
    while z >= 2.0 {
        z -= 1.0;
        rest += 1.0 / z;
    }
    (z - ROOT[0] - ROOT[1]) * DIGAMMA_OVER_DISTANCE.into_iter().fold(0.0, |sum, term| sum * (z - 1.5) + term) + rest
}

/// `digamma(1.5 + t) / (1.5 + t - root)` for t from -1/2 to 1/2, interpolated at Chebyshev's points; the highest power first.
const DIGAMMA_OVER_DISTANCE: [f64; 23] = [
    0.00011881232908510335,
    -0.0001782188548855923,
    9.653646261410062e-05,
    -0.00014480643368061614,
    0.00032395945401345196,
    -0.00048595039220036254,
    0.0006909255761282986,
    -0.0010364584817312839,
    0.0015633696313653504,
    -0.0023454947397380833,
    0.003518106563802472,
    -0.005279937255532708,
    0.007927021796868154,
    -0.011908220105959716,
    0.017907248317313294,
    -0.026975796659787055,
    0.040760833940846085,
    -0.06192213327548831,
    0.09498872445289039,
    -0.14840492305388092,
    0.24054248424078697,
    -0.4236274212814606,
    0.9510558760318328,
];

/// Source: M. Giles, "Approximating the erfinv function", 2010, for a first value; then steps of Halley's method.
pub(super) fn erfinv(x: f64) -> f64 {
    const NEAR: [f64; 9] = [
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    ];
    const FAR: [f64; 9] = [
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    ];
    let size = x.abs();
    if size > 1.0 || x.is_nan() {
        return f64::NAN;
    }
    if size == 1.0 || size < 1e-300 {
        return if size == 1.0 { f64::INFINITY.copysign(x) } else { x / std::f64::consts::FRAC_2_SQRT_PI };
    }
    let w = -((1.0 - size) * (1.0 + size)).ln();
    let (by, factors) = if w < 5.0 { (w - 2.5, NEAR) } else { (w.sqrt() - 3.0, FAR) };
    let mut y = size * factors.into_iter().fold(0.0, |sum, factor| sum * by + factor);
    // The polynomials were made for numbers of f32: nearer to 1 the first value is further off.
    for _ in 0..if w < 16.0 { 2 } else { 8 } {
        // Near 1 the difference of complements keeps its digits.
        let beyond = if size > 0.5 { (1.0 - size) - libm::erfc(y) } else { libm::erf(y) - size };
        let step = beyond / (std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp());
        y -= step / (1.0 + y * step);
    }
    y.copysign(x)
}

/// The modified Bessel function of the first kind and order n, 0 or 1, over `(x / 2)^n`: the series of `(x^2 / 4)^k / (k! (k + n)!)`.
fn bessel_i_series(size: f64, order: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0, 1.0, 0.0);
    while term > sum * 1e-18 {
        k += 1.0;
        term *= (0.5 * size / k) * (0.5 * size / (k + order));
        sum += term;
    }
    sum
}

/// That function times `sqrt(2 pi x) e^-x`, for x from 20 on: the asymptotic series, whose terms lie below the last digit before they grow.
fn bessel_i_far(size: f64, order: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0f64, 1.0, 0.0);
    while term.abs() > 1e-18 && k < 30.0 {
        k += 1.0;
        term *= ((2.0 * k - 1.0) * (2.0 * k - 1.0) - 4.0 * order) / (8.0 * k * size);
        sum += term;
    }
    sum
}

/// The modified Bessel function of the first kind and order 0 or 1, of a number that is not negative.
fn bessel_i(size: f64, order: f64) -> f64 {
    if size < 20.0 {
        return bessel_i_series(size, order) * if order == 0.0 { 1.0 } else { 0.5 * size };
    }
    if size.is_nan() {
        return size;
    }
    if size >= 1000.0 {
        // The result is far beyond all numbers, and 2 pi x may be, too.
        return f64::INFINITY;
    }
    // e^x alone may be infinite.
    let root = (0.5 * size).exp();
    root * (bessel_i_far(size, order) / (std::f64::consts::TAU * size).sqrt()) * root
}

/// That times `e^-x`.
fn scaled_bessel_i(size: f64, order: f64) -> f64 {
    // sqrt(2 pi), of which the product with a large number would be infinite.
    const ROOT: f64 = 2.506_628_274_631_000_2;
    if size < 20.0 { bessel_i(size, order) * (-size).exp() } else { bessel_i_far(size, order) / (ROOT * size.sqrt()) }
}

/// `sqrt(2 / (pi x))`, the size of the waves of the Bessel functions of the first and the second kind.
pub(super) fn bessel_wave(x: f64) -> f64 {
    std::f64::consts::FRAC_2_PI.sqrt() / x.abs().sqrt()
}

pub(super) fn i0(x: f64) -> f64 {
    bessel_i(x.abs(), 0.0)
}

pub(super) fn i0e(x: f64) -> f64 {
    scaled_bessel_i(x.abs(), 0.0)
}

pub(super) fn i1(x: f64) -> f64 {
    bessel_i(x.abs(), 1.0).copysign(x)
}

pub(super) fn i1e(x: f64) -> f64 {
    scaled_bessel_i(x.abs(), 1.0).copysign(x)
}

/// The sum of a power series, the highest power first.
fn polynomial<const N: usize>(factors: [f64; N], x: f64) -> f64 {
    factors.into_iter().fold(0.0, |sum, factor| sum * x + factor)
}

/// The modified Bessel function of the second kind and order 0 or 1, times `e^x` if it is scaled. Up to 2 it is `P(x^2) - log(x / 2) I0(x)`, or
/// `P(x^2) / x + log(x / 2) I1(x)`; beyond, `e^-x / sqrt(x)` times a polynomial of `4 / x - 1`. The polynomials are least-squares fits.
fn bessel_k(x: f64, order: usize, is_scaled: bool) -> f64 {
    const REST: [[f64; 10]; 2] = [
        [
            6.872355726364567e-17,
            2.006205732142096e-14,
            4.8433400074193386e-12,
            8.819879032048583e-10,
            1.1570351012598879e-07,
            1.0214014135195387e-05,
            0.0005451899602573274,
            0.014418505235913402,
            0.1056960837746168,
            -0.5772156649015329,
        ],
        [
            -1.2137311134324605e-15,
            -3.1149793722107474e-13,
            -6.540475177592708e-11,
            -1.0112901471754031e-08,
            -1.0892182678482755e-06,
            -7.493042904489372e-05,
            -0.0028371119837726022,
            -0.04204902094365131,
            0.03860783245076608,
            1.0,
        ],
    ];
    // I0(x), and I1(x) / x.
    const FIRST_KIND: [[f64; 10]; 2] = [
        [
            3.042164446848958e-17,
            9.37380848442584e-15,
            2.402863503152915e-12,
            4.709501249096489e-10,
            6.781684054143311e-08,
            6.781684027506039e-06,
            0.00043402777777793746,
            0.015624999999999953,
            0.25,
            1.0,
        ],
        [
            1.5149665412963006e-18,
            5.208804475413373e-16,
            1.5017808851361192e-13,
            3.363929835840592e-11,
            5.651403369166611e-09,
            6.781684027644686e-07,
            5.425347222223021e-05,
            0.0026041666666666644,
            0.0625,
            0.5,
        ],
    ];
    const FAR: [[f64; 24]; 2] = [
        [
            -7.435822592958571e-11,
            1.0956430863512627e-10,
            2.5156100197113244e-10,
            -3.136108128585569e-10,
            -6.295036272104313e-10,
            8.172257916585697e-10,
            2.8621242327143166e-10,
            4.243880829368342e-11,
            -2.026886222411227e-09,
            3.812671327771111e-09,
            -7.230480476076844e-09,
            1.7045254889763896e-08,
            -4.136057595715241e-08,
            1.029550995554289e-07,
            -2.6890139157285023e-07,
            7.427799561585506e-07,
            -2.1911785716112895e-06,
            7.00224566657323e-06,
            -2.4735204496304882e-05,
            9.956054741896361e-05,
            -0.00047976905676873116,
            0.003032891810275354,
            -0.031071461824889488,
            1.2185953385133905,
        ],
        [
            8.369066451856884e-11,
            -1.1933659362058395e-10,
            -2.8847361865588463e-10,
            3.38786224874279e-10,
            7.255619911601296e-10,
            -8.911131711185482e-10,
            -3.526528255852504e-10,
            -8.302713208310806e-11,
            2.330376835150355e-09,
            -4.332214566040792e-09,
            8.319231005672594e-09,
            -1.9817432973868637e-08,
            4.849641256164236e-08,
            -1.2203191198992009e-07,
            3.229727337661942e-07,
            -9.067087532131448e-07,
            2.7300427016641e-06,
            -8.961207388977857e-06,
            3.284386545264994e-05,
            -0.00013959021956264705,
            0.0007357241549122077,
            -0.00556672988007459,
            0.10334973775386519,
            1.363151890371342,
        ],
    ];
    if x < 0.0 || x.is_nan() {
        return f64::NAN;
    }
    if x <= 2.0 {
        // Half of the least number is none.
        let logarithm = if x < 1e-300 { x.ln() - std::f64::consts::LN_2 } else { (0.5 * x).ln() };
        let square = x * x;
        let [rest, first_kind] = [REST, FIRST_KIND].map(|of| polynomial(of[order], square));
        let value = if order == 0 { rest - logarithm * first_kind } else { rest / x + logarithm * (x * first_kind) };
        // Of 0 the logarithm times 0 is none.
        let value = if x == 0.0 { f64::INFINITY } else { value };
        return if is_scaled { value * x.exp() } else { value };
    }
    let value = polynomial(FAR[order], 4.0 / x - 1.0) / x.sqrt();
    if is_scaled { value } else { value * (-x).exp() }
}

pub(super) fn modified_bessel_k0(x: f64) -> f64 {
    bessel_k(x, 0, false)
}

pub(super) fn modified_bessel_k1(x: f64) -> f64 {
    bessel_k(x, 1, false)
}

pub(super) fn scaled_modified_bessel_k0(x: f64) -> f64 {
    bessel_k(x, 0, true)
}

pub(super) fn scaled_modified_bessel_k1(x: f64) -> f64 {
    bessel_k(x, 1, true)
}

/// `e^(x^2) erfc(x)`, the square in two parts; from 10 on the asymptotic series.
pub(super) fn erfcx(x: f64) -> f64 {
    if x < -27.0 {
        return f64::INFINITY;
    }
    if x < 10.0 {
        let (square, lost) = two_product(x, x);
        let power = square.exp();
        return libm::erfc(x) * if power.is_finite() { power + power * lost } else { power };
    }
    let w = 0.5 / (x * x);
    let (mut term, mut sum, mut k) = (1.0f64, 1.0, 0.0);
    while term.abs() > 1e-18 && k < 20.0 {
        k += 1.0;
        term *= -(2.0 * k - 1.0) * w;
        sum += term;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI * 0.5 / x
}

/// Below 0 the logarithm of `e^(x^2 / 2)` times the integral, less `x^2 / 2`, which have the same sign; above, that of 1 less the tail, in which the
/// exponent has what `x / sqrt(2)` loses.
pub(super) fn log_ndtr(x: f64) -> f64 {
    let (z, lost) = two_product(x, FRAC_1_SQRT_2);
    if x < 0.0 {
        return (0.5 * erfcx(-z)).ln() - 0.5 * x * x;
    }
    // The constant is too large by 4.8e-17. Beyond 30 the tail is below the least number.
    let lost = lost - x * 4.833_646_656_726_457e-17;
    let slope = if z < 30.0 { std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp() * lost } else { 0.0 };
    (-0.5 * (libm::erfc(z) - slope)).ln_1p()
}

/// Near 1/2 by the inverse of the error function; elsewhere Newton's steps for the logarithm of the integral, from a first value of M. Abramowitz,
/// I. A. Stegun, "Handbook of Mathematical Functions", 26.2.23.
pub(super) fn ndtri(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if (p - 0.5).abs() <= 0.25 {
        return std::f64::consts::SQRT_2 * erfinv(2.0 * p - 1.0);
    }
    let tail = p.min(1.0 - p);
    if tail == 0.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let logarithm = tail.ln();
    let t = (-2.0 * logarithm).sqrt();
    let first =
        polynomial([0.010_328, 0.802_853, 2.515_517], t) / polynomial([0.001_308, 0.189_269, 1.432_788, 1.0], t);
    let mut y = first - t;
    for _ in 0..6 {
        // The integral over its derivative is sqrt(pi / 2) erfcx(-y / sqrt(2)).
        y -= (log_ndtr(y) - logarithm) * 1.253_314_137_315_500_3 * erfcx(-y * FRAC_1_SQRT_2);
    }
    if p < 0.5 { y } else { -y }
}

/// The first terms until those that follow are smooth, and the rest by Euler and Maclaurin's formula, unless it does not count.
pub(super) fn zeta(s: f64, q: f64) -> f64 {
    // The quotients of B(2 k) / (2 k)! for k = 1 on, negated.
    const QUOTIENTS: [f64; 11] = [
        60.0,
        42.0,
        40.0,
        39.6,
        39.507959479015916,
        39.48571428571429,
        39.480232236660214,
        39.4788702213509,
        39.47853064403568,
        39.47844585161373,
        39.47842466476856,
    ];
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        return if s == 1.0 || q == q.floor() { f64::INFINITY } else { f64::NAN };
    }
    if s == 1.0 || q == f64::INFINITY {
        return if s == 1.0 { f64::INFINITY } else { 0.0 };
    }
    if s == f64::INFINITY {
        // The first term alone.
        return if q == 1.0 { 1.0 } else { q.recip().powf(s) };
    }
    // (q + k)^-s, with what the sum loses, as the square of a root, which is a number where the power times q + k is.
    let root = |k: f64| {
        let a = q + k;
        let lost = if a > 2.0 * k { k - (a - q) } else { q - (a - k) };
        let root = a.powf(-0.5 * s);
        (a, if root == 0.0 || root == f64::INFINITY { root } else { root - root * (0.5 * s * (lost / a)) })
    };
    let mut sum = 0.0;
    for k in 0..10 {
        let (a, root) = root(f64::from(k));
        sum += root * root;
        // What follows is at most a term and the integral.
        if root * (1.0 + a / (s - 1.0)) * root <= 1e-17 * sum {
            return sum;
        }
    }
    let (a, root) = root(10.0);
    let (mut series, mut k) = (1.0, 24.0);
    for quotient in QUOTIENTS.into_iter().rev() {
        k -= 2.0;
        series = 1.0 - ((s + k - 1.0) / a) * ((s + k) / a) / quotient * series;
    }
    let power = root * root;
    sum + (a * root / (s - 1.0) * root + power * (0.5 + s / (12.0 * a) * series))
}

pub(super) fn logaddexp(x: f64, y: f64) -> f64 {
    // Also of equal infinities.
    if x == y { x + std::f64::consts::LN_2 } else { x.max(y) + (-(x - y).abs()).exp().ln_1p() }
}

pub(super) fn logaddexp2(x: f64, y: f64) -> f64 {
    if x == y { x + 1.0 } else { x.max(y) + (-(x - y).abs()).exp2().ln_1p() * std::f64::consts::LOG2_E }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped")]
pub(super) fn ldexp(x: f64, y: f64) -> f64 {
    if y.is_nan() { y } else { libm::ldexp(x, y.clamp(-5000.0, 5000.0).round_ties_even() as i32) }
}

/// The least numbers above 0 of types of 16 bits.
pub(super) const LEAST_F16: f64 = 1.0 / 16_777_216.0;
pub(super) const LEAST_BF16: f64 = LEAST_F16 / 649_037_107_316_853_453_566_312_041_152_512.0; // 2^-133

/// The number next to x in the direction of y, of the type whose least number above 0 is `least`; 0 for that of f64.
pub(super) fn next_after(x: f64, y: f64, least: f64) -> f64 {
    let is_double = least < f64::MIN_POSITIVE;
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    if x == y {
        return y;
    }
    if is_double {
        return if x < y { x.next_up() } else { x.next_down() };
    }
    let (digits, greatest) = match least {
        LEAST_F16 => (11, 65504.0),
        LEAST_BF16 => (8, f32::from_bits(0x7f7f_0000).into()),
        _ => (24, f32::MAX.into()),
    };
    let (size, is_away) = (x.abs(), x == 0.0 || (x < y) == (x > 0.0));
    let sign = if x == 0.0 { y } else { x };
    if size == f64::INFINITY {
        return f64::copysign(greatest, sign);
    }
    // The power of two at or below x, or 0.
    let power = f64::from_bits(size.to_bits() >> 52 << 52);
    let toward = if is_away || size > power { 1.0 } else { 0.5 };
    let step = (toward * power * 2f64.powi(1 - digits)).max(least);
    let next = if is_away { size + step } else { size - step };
    (if next > greatest { f64::INFINITY } else { next }).copysign(sign)
}

#[cfg(test)]
mod tests {
    use super::super::Function;
    use super::{LEAST_BF16, LEAST_F16, next_after};

    /// Of 50 digits, with mpmath: where exponents are large, results subnormal or small, and around the bounds of formulas.
    #[test]
    #[expect(clippy::excessive_precision, reason = "digits as mpmath prints them")]
    fn values_are_good_to_the_last_bits() {
        let known: &[(Function, [f64; 2], f64)] = &[
            (Function::Silu, [-740.5, 0.0], -1.8813e-319),
            (Function::Silu, [-36.7, 0.0], -4.2272562839589275e-15),
            (Function::Silu, [-1.278464542761074, 0.0], -0.2784645427610738),
            (Function::Silu, [3.0, 0.0], 2.8577223804672998),
            (Function::Softplus, [-700.25, 0.0], 7.678723813110872e-305),
            (Function::Softplus, [-1.5, 0.0], 0.2014132779827524),
            (Function::Softplus, [0.5, 0.0], 0.9740769841801067),
            (Function::Softplus, [40.0, 0.0], 40.0),
            (Function::GeluErf, [-38.4, 0.0], -2.535e-321),
            (Function::GeluErf, [-35.9, 0.0], -5.4832510805430404e-281),
            (Function::GeluErf, [-12.5, 0.0], -4.665705373597142e-35),
            (Function::GeluErf, [-0.7517915246935645, 0.0], -0.16997120747990366),
            (Function::GeluErf, [2.5, 0.0], 2.4844758366855597),
            (Function::GeluTanh, [-20.5, 0.0], -1.3502940601643467e-280),
            (Function::GeluTanh, [-9.25, 0.0], -1.069637326414865e-30),
            (Function::GeluTanh, [-0.75, 0.0], -0.1700394448343797),
            (Function::GeluTanh, [2.5, 0.0], 2.484915733910001),
            (Function::Erf, [1e-300, 0.0], 1.1283791670955126e-300),
            (Function::Erf, [0.46, 0.0], 0.4846553900016797),
            (Function::Erf, [0.9, 0.0], 0.7969082124228322),
            (Function::Erf, [2.5, 0.0], 0.999593047982555),
            (Function::Erfc, [-3.0, 0.0], 1.9999779095030015),
            (Function::Erfc, [0.46, 0.0], 0.5153446099983203),
            (Function::Erfc, [5.5, 0.0], 7.357847917974398e-15),
            (Function::Erfc, [26.0, 0.0], 5.663192408856143e-296),
            (Function::Mish, [-740.5, 0.0], -1.8813e-319),
            (Function::Mish, [-30.0, 0.0], -2.807286890651921e-12),
            (Function::Mish, [-1.2, 0.0], -0.3088357963148625),
            (Function::Mish, [2.0, 0.0], 1.9439589595339946),
            (Function::Selu, [-20.0, 0.0], -1.758099337223664),
            (Function::Selu, [-1e-10, 0.0], -1.7580993407594719e-10),
            (Function::Selu, [3.0, 0.0], 3.1521029620664414),
            (Function::Tanhshrink, [1e-05, 0.0], 3.333333333200001e-16),
            (Function::Tanhshrink, [0.3, 0.0], 0.008687387548409094),
            (Function::Tanhshrink, [0.99, 0.0], 0.23263767578347372),
            (Function::Tanhshrink, [1.01, 0.0], 0.24423798175156106),
            (Function::Tanhshrink, [8.0, 0.0], 7.000000225070324),
            (Function::Logit, [1e-310, 0.0], -713.8013788281542),
            (Function::Logit, [0.2499, 0.0], -1.099145693134684),
            (Function::Logit, [0.25, 0.0], -1.0986122886681098),
            (Function::Logit, [0.5000000001, 0.0], 4.000000330961484e-10),
            (Function::Logit, [0.75, 0.0], 1.0986122886681098),
            (Function::Logit, [0.999999, 0.0], 13.815509557935018),
            (Function::Asinh, [-1e-09, 0.0], -1e-09),
            (Function::Asinh, [0.3, 0.0], 0.29567304756342244),
            (Function::Asinh, [1e+200, 0.0], 461.2101657793691),
            (Function::Acosh, [1.0000000001, 0.0], 1.4142136208675862e-05),
            (Function::Acosh, [1.5, 0.0], 0.9624236501192069),
            (Function::Acosh, [1e+200, 0.0], 461.2101657793691),
            (Function::Atanh, [1e-09, 0.0], 1e-09),
            (Function::Atanh, [0.5, 0.0], 0.5493061443340549),
            (Function::Atanh, [-0.9999999, 0.0], -8.40562139102231),
            (Function::Sin, [1e+22, 0.0], -0.8522008497671888),
            (Function::Sin, [3.141592653589793, 0.0], 1.2246467991473532e-16),
            (Function::Sin, [1e+300, 0.0], -0.8178819121159085),
            (Function::Cos, [1e+22, 0.0], 0.523214785395139),
            (Function::Cos, [1.5707963267948966, 0.0], 6.123233995736766e-17),
            (Function::Cos, [1e+300, 0.0], -0.5753861119575491),
            (Function::Tan, [1e+22, 0.0], -1.6287782256068988),
            (Function::Tan, [1.5707963267948966, 0.0], 1.633123935319537e+16),
            (Function::Elu, [-1e-12, 3.0], -2.9999999999985e-12),
            (Function::Elu, [-5.0, -0.5], 0.49663102650045726),
            (Function::Celu, [-1e-12, 3.0], -9.999999999998334e-13),
            (Function::Celu, [-5.0, 0.7], -0.699446656773816),
            (Function::Celu, [-50.3, -0.7], -1.127869021213837e+31),
            (Function::Celu, [-7.1, -0.01], -2.2339947661615987e+306),
            (Function::Pow, [0.999999, -123456.75], 1.1314011402312059),
            (Function::Pow, [-3.0, -5.0], -0.00411522633744856),
            (Function::Pow, [1e-300, 0.3], 1.0000000000000076e-90),
            (Function::Xlogy, [3.0, 1.0000001], 2.9999998517516116e-07),
            (Function::Xlogy, [-2.5, 1e-310], 1784.5034470703854),
            (Function::Atan2, [1e-300, -1.0], 3.141592653589793),
            (Function::Atan2, [-3.0, -0.5], -1.7359450042095235),
            (Function::Atan2, [2.0, 1e-310], 1.5707963267948966),
            (Function::Sinc, [1e-10, 0.0], 1.0),
            (Function::Sinc, [1e-05, 0.0], 0.99999999983550658),
            (Function::Sinc, [0.25, 0.0], 0.90031631615710606),
            (Function::Sinc, [-0.5, 0.0], 0.63661977236758138),
            (Function::Sinc, [0.999999, 0.0], 1.0000010000281109e-06),
            (Function::Sinc, [1.0000001, 0.0], -9.9999990058386059e-08),
            (Function::Sinc, [-3.25, 0.0], -0.069255101242854319),
            (Function::Sinc, [12345.678, 0.0], -2.1855767447993962e-05),
            (Function::Sinc, [1000000000000000.5, 0.0], 3.1830988618379052e-16),
            (Function::Lgamma, [1e-300, 0.0], 690.77552789821368),
            (Function::Lgamma, [1e-05, 0.0], 11.512919692895826),
            (Function::Lgamma, [0.3, 0.0], 1.0957979948180756),
            (Function::Lgamma, [0.999999999, 0.0], 5.7721564939922602e-10),
            (Function::Lgamma, [1.0000001, 0.0], -5.772155829918507e-08),
            (Function::Lgamma, [1.5, 0.0], -0.12078223763524522),
            (Function::Lgamma, [2.0000001, 0.0], 4.2278436665324981e-08),
            (Function::Lgamma, [1.999, 0.0], -0.0004224618006921073),
            (Function::Lgamma, [2.5, 0.0], 0.28468287047291918),
            (Function::Lgamma, [3.0001, 0.0], 0.69323946096809996),
            (Function::Lgamma, [17.3, 0.0], 31.51562417817529),
            (Function::Lgamma, [100000.0, 0.0], 1051287.7089736569),
            (Function::Lgamma, [1e+300, 0.0], 6.8977552789821374e+302),
            (Function::Lgamma, [-0.3, 0.0], 1.4648400508576025),
            (Function::Lgamma, [-1.5, 0.0], 0.86004701537648098),
            (Function::Lgamma, [-20.25, 0.0], -41.600961915340527),
            (Function::Lgamma, [-1000.5, 0.0], -5914.4377011168517),
            (Function::Lgamma, [-1e-300, 0.0], 690.77552789821368),
            (Function::Digamma, [1e-300, 0.0], -9.999999999999999e+299),
            (Function::Digamma, [1e-05, 0.0], -100000.57719921567),
            (Function::Digamma, [0.3, 0.0], -3.5025242222001332),
            (Function::Digamma, [1.0, 0.0], -0.57721566490153287),
            (Function::Digamma, [1.4616321449683622, 0.0], -9.2412655217294273e-17),
            (Function::Digamma, [1.46163, 0.0], -2.0756283887224574e-06),
            (Function::Digamma, [1.4617, 0.0], 6.5659392293676496e-05),
            (Function::Digamma, [1.75, 0.0], 0.24747245354686118),
            (Function::Digamma, [2.0, 0.0], 0.42278433509846713),
            (Function::Digamma, [3.3, 0.0], 1.0348224890596216),
            (Function::Digamma, [9.999, 0.0], 2.2516474172057355),
            (Function::Digamma, [10.0, 0.0], 2.2517525890667209),
            (Function::Digamma, [10.5, 0.0], 2.3030010342976865),
            (Function::Digamma, [100000.0, 0.0], 11.512920464961896),
            (Function::Digamma, [1e+300, 0.0], 690.77552789821368),
            (Function::Digamma, [-0.3, 0.0], 2.113309779635399),
            (Function::Digamma, [-1e-10, 0.0], 9999999999.4227848),
            (Function::Digamma, [-7.9999999, 0.0], -9999997.8313150723),
            (Function::Digamma, [-123.25, 0.0], 7.9598587758183035),
            (Function::Erfinv, [1e-305, 0.0], 8.8622692545275798e-306),
            (Function::Erfinv, [1e-10, 0.0], 8.8622692545275808e-11),
            (Function::Erfinv, [0.1, 0.0], 0.088855990494257686),
            (Function::Erfinv, [-0.5, 0.0], -0.47693627620446988),
            (Function::Erfinv, [0.5000001, 0.0], 0.47693638746295763),
            (Function::Erfinv, [0.9, 0.0], 1.1630871536766743),
            (Function::Erfinv, [-0.9999, 0.0], -2.7510639057120798),
            (Function::Erfinv, [0.9999999999, 0.0], 4.572824958544925),
            (Function::Erfinv, [0.9999999999999999, 0.0], 5.8635847487551676),
            (Function::I0, [1e-10, 0.0], 1.0),
            (Function::I0, [0.5, 0.0], 1.0634833707413236),
            (Function::I0, [-3.0, 0.0], 4.8807925858650245),
            (Function::I0, [7.9, 0.0], 389.40628328215797),
            (Function::I0, [8.1, 0.0], 469.50060671012147),
            (Function::I0, [19.9, 0.0], 39513376.52006682),
            (Function::I0, [20.1, 0.0], 48017874.107136503),
            (Function::I0, [-90.0, 0.0], 5.1392383455086636e+37),
            (Function::I0, [700.5, 0.0], 2.5209725792992755e+302),
            (Function::I0, [712.9, 0.0], 6.0674765992724423e+307),
            (Function::Ndtri, [1e-310, 0.0], -37.663060331949524),
            (Function::Ndtri, [1e-20, 0.0], -9.262340089798407),
            (Function::Ndtri, [0.02, 0.0], -2.053748910631823),
            (Function::Ndtri, [0.2499, 0.0], -0.67480447011061),
            (Function::Ndtri, [0.25, 0.0], -0.6744897501960817),
            (Function::Ndtri, [0.4999999, 0.0], -2.5066282747031063e-07),
            (Function::Ndtri, [0.75, 0.0], 0.6744897501960817),
            (Function::Ndtri, [0.9, 0.0], 1.2815515655446006),
            (Function::Ndtri, [0.9999999999999999, 0.0], 8.209536151601387),
            (Function::LogNdtr, [-10000000000.0, 0.0], -5e+19),
            (Function::LogNdtr, [-40.0, 0.0], -804.6084420137538),
            (Function::LogNdtr, [-1.0, 0.0], -1.8410216450092636),
            (Function::LogNdtr, [-1e-10, 0.0], -0.6931471806397338),
            (Function::LogNdtr, [0.0, 0.0], -0.6931471805599453),
            (Function::LogNdtr, [0.7, 0.0], -0.2770239422771313),
            (Function::LogNdtr, [8.5, 0.0], -9.479534822203318e-18),
            (Function::LogNdtr, [38.0, 0.0], -2.88542835e-316),
            (Function::Erfcx, [-26.0, 0.0], 7.657724931490568e+293),
            (Function::Erfcx, [-3.3, 0.0], 107274.43593281436),
            (Function::Erfcx, [-1e-12, 0.0], 1.0000000000011284),
            (Function::Erfcx, [0.5, 0.0], 0.6156903441929259),
            (Function::Erfcx, [9.999, 0.0], 0.05614655260396594),
            (Function::Erfcx, [10.0, 0.0], 0.05614099274382259),
            (Function::Erfcx, [27.5, 0.0], 0.0205024473846148),
            (Function::Erfcx, [1e+200, 0.0], 5.641895835477563e-201),
            (Function::BesselJ0, [1e-10, 0.0], 1.0),
            (Function::BesselJ0, [0.5, 0.0], 0.9384698072408129),
            (Function::BesselJ0, [-2.404825557695773, 0.0], -6.10876525973673e-17),
            (Function::BesselJ0, [4.9999, 0.0], -0.1776295286676365),
            (Function::BesselJ0, [5.0001, 0.0], -0.17756401284023066),
            (Function::BesselJ0, [8.0, 0.0], 0.1716508071375539),
            (Function::BesselJ0, [19.9, 0.0], 0.17287775639261846),
            (Function::BesselJ0, [-1234.5, 0.0], -0.013550379618035721),
            (Function::BesselJ0, [1000000.0, 0.0], 0.00033104301373987376),
            (Function::BesselJ1, [1e-300, 0.0], 5e-301),
            (Function::BesselJ1, [-0.5, 0.0], -0.2422684576748739),
            (Function::BesselJ1, [3.8317059702075125, 0.0], -6.149807356994906e-17),
            (Function::BesselJ1, [5.0001, 0.0], -0.32759034400137715),
            (Function::BesselJ1, [8.0, 0.0], 0.23463634685391463),
            (Function::BesselJ1, [19.9, 0.0], 0.05011742480737974),
            (Function::BesselJ1, [-1234.5, 0.0], -0.0182175083373925),
            (Function::BesselJ1, [1000000.0, 0.0], -0.000725968356813763),
            (Function::BesselY0, [5e-324, 0.0], -473.9990734230043),
            (Function::BesselY0, [1e-10, 0.0], -14.732516272697241),
            (Function::BesselY0, [0.8935769662791675, 0.0], -2.3389279284062102e-17),
            (Function::BesselY0, [2.5, 0.0], 0.4980703596152319),
            (Function::BesselY0, [5.0001, 0.0], -0.3085324098729092),
            (Function::BesselY0, [8.0, 0.0], 0.22352148938756622),
            (Function::BesselY0, [19.9, 0.0], 0.04576209415938548),
            (Function::BesselY0, [1234.5, 0.0], 0.018222995047412552),
            (Function::BesselY0, [1000000.0, 0.0], -0.0007259685223351791),
            (Function::BesselY1, [1e-300, 0.0], -6.366197723675813e+299),
            (Function::BesselY1, [1e-10, 0.0], -6366197723.675814),
            (Function::BesselY1, [0.5, 0.0], -1.471472392670243),
            (Function::BesselY1, [2.197141326031017, 0.0], 2.513306678922122e-17),
            (Function::BesselY1, [5.0001, 0.0], 0.14782933399423528),
            (Function::BesselY1, [8.0, 0.0], -0.1580604617312475),
            (Function::BesselY1, [19.9, 0.0], -0.17178303121049257),
            (Function::BesselY1, [1234.5, 0.0], 0.013557761447180334),
            (Function::BesselY1, [1000000.0, 0.0], -0.00033104337672417626),
            (Function::I0e, [1e-10, 0.0], 0.9999999999),
            (Function::I0e, [-3.0, 0.0], 0.2430003541618254),
            (Function::I0e, [19.9, 0.0], 0.0900085888643896),
            (Function::I0e, [20.1, 0.0], 0.08955376362061344),
            (Function::I0e, [700.0, 0.0], 0.015081295651531358),
            (Function::I0e, [1e+300, 0.0], 3.9894228040143264e-151),
            (Function::I1, [1e-300, 0.0], 5e-301),
            (Function::I1, [-0.5, 0.0], -0.2578943053908963),
            (Function::I1, [7.9, 0.0], 363.8539440845084),
            (Function::I1, [19.9, 0.0], 38507423.87486228),
            (Function::I1, [20.1, 0.0], 46807739.533029884),
            (Function::I1, [-712.9, 0.0], -6.063219615589528e+307),
            (Function::I1e, [-1e-10, 0.0], -4.9999999995e-11),
            (Function::I1e, [1.5, 0.0], 0.21903938742092569),
            (Function::I1e, [19.9, 0.0], 0.0877171021317061),
            (Function::I1e, [-20.1, 0.0], -0.08729685184320159),
            (Function::I1e, [1e+300, 0.0], 3.9894228040143264e-151),
            (Function::ModifiedBesselK0, [5e-324, 0.0], 744.5560034370396),
            (Function::ModifiedBesselK0, [1e-10, 0.0], 23.14178244559887),
            (Function::ModifiedBesselK0, [0.5, 0.0], 0.9244190712276659),
            (Function::ModifiedBesselK0, [1.75, 0.0], 0.1553798123866036),
            (Function::ModifiedBesselK0, [2.0, 0.0], 0.11389387274953344),
            (Function::ModifiedBesselK0, [2.0001, 0.0], 0.11387988708044136),
            (Function::ModifiedBesselK0, [30.0, 0.0], 2.1324774964630563e-14),
            (Function::ModifiedBesselK0, [700.0, 0.0], 4.669776431685377e-306),
            (Function::ModifiedBesselK1, [1e-300, 0.0], 9.999999999999999e+299),
            (Function::ModifiedBesselK1, [0.5, 0.0], 1.656441120003301),
            (Function::ModifiedBesselK1, [1.75, 0.0], 0.19547745347439302),
            (Function::ModifiedBesselK1, [2.0, 0.0], 0.13986588181652243),
            (Function::ModifiedBesselK1, [2.0001, 0.0], 0.1398475004688114),
            (Function::ModifiedBesselK1, [30.0, 0.0], 2.1677320018915495e-14),
            (Function::ModifiedBesselK1, [700.0, 0.0], 4.6731107967079664e-306),
            (Function::ScaledModifiedBesselK0, [1e-10, 0.0], 23.141782447913048),
            (Function::ScaledModifiedBesselK0, [1.75, 0.0], 0.8941490841572174),
            (Function::ScaledModifiedBesselK0, [2.0001, 0.0], 0.8415490248721516),
            (Function::ScaledModifiedBesselK0, [30.0, 0.0], 0.22788666561625373),
            (Function::ScaledModifiedBesselK0, [1e+300, 0.0], 1.2533141373155002e-150),
            (Function::ScaledModifiedBesselK1, [1e-300, 0.0], 9.999999999999999e+299),
            (Function::ScaledModifiedBesselK1, [1.75, 0.0], 1.1248950768625277),
            (Function::ScaledModifiedBesselK1, [2.0001, 0.0], 1.0334443655287813),
            (Function::ScaledModifiedBesselK1, [30.0, 0.0], 0.2316541293777118),
            (Function::ScaledModifiedBesselK1, [1e+300, 0.0], 1.2533141373155002e-150),
            (Function::Zeta, [2.0, 1.0], 1.6449340668482264),
            (Function::Zeta, [1.0000001, 3.0], 9999999.071377035),
            (Function::Zeta, [3.5, 1e-05], 3.162277660168378e+17),
            (Function::Zeta, [1.0001, 1e-10], 10023062381.356216),
            (Function::Zeta, [1.5, 1e+300], 2e-150),
            (Function::Zeta, [40.0, 55.5], 3.3536102215885615e-70),
            (Function::Zeta, [100.0, 95.0], 2.61073309528241e-198),
            (Function::Zeta, [2.0, 1e-150], 1e+300),
            (Function::Zeta, [1000.0, 1.0], 1.0),
            (Function::LogAddExp, [1.0, 2.0], 2.313261687518223),
            (Function::LogAddExp, [-1000.0, -1001.5], -999.79858672201726),
            (Function::LogAddExp, [700.0, 690.0], 700.00004539889926),
            (Function::LogAddExp, [3.0, 3.0], 3.6931471805599454),
            (Function::LogAddExp, [1e-300, -50.0], 1.9287498479639178e-22),
            (Function::LogAddExp2, [1.0, 2.0], 2.5849625007211561),
            (Function::LogAddExp2, [-2000.0, -2001.5], -1999.5632482045601),
            (Function::LogAddExp2, [1000.0, 990.0], 1000.0014081943928),
            (Function::LogAddExp2, [3.0, 3.0], 4.0),
            (Function::Ldexp, [3.0, 5.2], 96.0),
        ];
        for &(function, [x, y], expected) in known {
            let got = function.value([x, y, 0.0]);
            let size = expected.abs().max(function.scale([x, y, 0.0]));
            let ulp = size.next_up() - size;
            assert!(
                (got - expected).abs() <= 5.0 * ulp,
                "{function:?}({x:e}, {y:e}) is {got:e}, expected {expected:e}"
            );
        }
    }

    #[test]
    fn special_values_are_those_of_the_rows() {
        let of = |function: Function, x: f64| function.value([x, 0.0, 0.0]);
        for (function, x, expected) in [
            (Function::Sinc, 0.0, 1.0),
            (Function::Sinc, 3.0, 0.0),
            (Function::Sinc, f64::INFINITY, f64::NAN),
            (Function::Lgamma, 0.0, f64::INFINITY),
            (Function::Lgamma, -3.0, f64::INFINITY),
            (Function::Lgamma, 1.0, 0.0),
            (Function::Lgamma, 2.0, 0.0),
            (Function::Lgamma, f64::NEG_INFINITY, f64::INFINITY),
            (Function::Digamma, 0.0, f64::NEG_INFINITY),
            (Function::Digamma, -0.0, f64::INFINITY),
            (Function::Digamma, -2.0, f64::NAN),
            (Function::Digamma, f64::INFINITY, f64::INFINITY),
            (Function::Digamma, f64::NEG_INFINITY, f64::NAN),
            (Function::Erfinv, 1.0, f64::INFINITY),
            (Function::Erfinv, -1.0, f64::NEG_INFINITY),
            (Function::Erfinv, 1.0000001, f64::NAN),
            (Function::I0, f64::NEG_INFINITY, f64::INFINITY),
            (Function::I0, 0.0, 1.0),
            (Function::Ndtri, 0.0, f64::NEG_INFINITY),
            (Function::Ndtri, 1.0, f64::INFINITY),
            (Function::Ndtri, 0.5, 0.0),
            (Function::Ndtri, -1e-300, f64::NAN),
            (Function::Ndtri, 1.0000001, f64::NAN),
            (Function::LogNdtr, f64::NEG_INFINITY, f64::NEG_INFINITY),
            (Function::LogNdtr, f64::INFINITY, 0.0),
            (Function::Erfcx, f64::NEG_INFINITY, f64::INFINITY),
            (Function::Erfcx, f64::INFINITY, 0.0),
            (Function::Erfcx, 0.0, 1.0),
            (Function::BesselJ0, f64::NEG_INFINITY, 0.0),
            (Function::BesselJ1, f64::INFINITY, 0.0),
            (Function::BesselY0, 0.0, f64::NEG_INFINITY),
            (Function::BesselY0, -1.0, f64::NAN),
            (Function::BesselY0, f64::INFINITY, 0.0),
            (Function::BesselY1, -0.0, f64::NEG_INFINITY),
            (Function::BesselY1, -1e-300, f64::NAN),
            (Function::BesselY1, f64::INFINITY, 0.0),
            (Function::I0e, f64::NEG_INFINITY, 0.0),
            (Function::I1, f64::NEG_INFINITY, f64::NEG_INFINITY),
            (Function::I1e, f64::INFINITY, 0.0),
            (Function::ModifiedBesselK0, 0.0, f64::INFINITY),
            (Function::ModifiedBesselK0, -1.0, f64::NAN),
            (Function::ModifiedBesselK0, f64::INFINITY, 0.0),
            (Function::ModifiedBesselK1, -0.0, f64::INFINITY),
            (Function::ScaledModifiedBesselK0, 0.0, f64::INFINITY),
            (Function::ScaledModifiedBesselK1, f64::INFINITY, 0.0),
        ] {
            let got = of(function, x);
            assert!(got == expected || (got.is_nan() && expected.is_nan()), "{function:?}({x}) is {got}");
        }
        let zeta = |s: f64, q: f64| Function::Zeta.value([s, q, 0.0]);
        for (s, q, expected) in [
            (1.0, 2.0, f64::INFINITY),
            (2.0, 0.0, f64::INFINITY),
            (2.0, -3.0, f64::INFINITY),
            (2.0, f64::INFINITY, 0.0),
            (f64::INFINITY, 1.0, 1.0),
            (f64::INFINITY, 1.5, 0.0),
            (f64::INFINITY, 0.5, f64::INFINITY),
        ] {
            assert_eq!(zeta(s, q), expected, "{s} {q}");
        }
        assert!(zeta(0.9, 2.0).is_nan() && zeta(2.0, -0.5).is_nan() && zeta(f64::NAN, 1.0).is_nan());
        for function in [Function::LogAddExp, Function::LogAddExp2] {
            let of = |x: f64, y: f64| function.value([x, y, 0.0]);
            assert_eq!(of(f64::NEG_INFINITY, f64::NEG_INFINITY), f64::NEG_INFINITY);
            assert_eq!(of(f64::INFINITY, f64::INFINITY), f64::INFINITY);
            assert_eq!(of(f64::NEG_INFINITY, -3.0), -3.0);
            assert!(of(f64::NAN, f64::INFINITY).is_nan());
        }
    }

    #[test]
    fn next_numbers_are_those_of_their_types() {
        use half::{bf16, f16};
        let next = |x: f32, y: f32, least: f64| crate::narrow::single(next_after(x.into(), y.into(), least));
        for bits in 0..=u16::MAX {
            for y in [0.0, -0.0, 1.5, f32::INFINITY, f32::NEG_INFINITY] {
                let toward = |bits: u16, x: f32, to_f32: fn(u16) -> f32| {
                    if x == y {
                        return y;
                    }
                    let is_away = x == 0.0 || (x < y) == (x > 0.0);
                    let sign = if x == 0.0 { u16::from(y.is_sign_negative()) << 15 } else { bits & 0x8000 };
                    let size = if is_away { (bits & 0x7fff) + 1 } else { (bits & 0x7fff) - 1 };
                    to_f32(sign | size)
                };
                let half = f16::from_bits(bits).to_f32();
                let brain = bf16::from_bits(bits).to_f32();
                if !half.is_nan() {
                    let expected = toward(bits, half, |bits| f16::from_bits(bits).to_f32());
                    assert_eq!(next(half, y, LEAST_F16).to_bits(), expected.to_bits(), "{half:e} to {y}");
                }
                if !brain.is_nan() {
                    let expected = toward(bits, brain, |bits| bf16::from_bits(bits).to_f32());
                    assert_eq!(next(brain, y, LEAST_BF16).to_bits(), expected.to_bits(), "{brain:e} to {y}");
                    let expected = if brain == y {
                        y
                    } else if brain < y {
                        brain.next_up()
                    } else {
                        brain.next_down()
                    };
                    let got = next(brain, y, f32::from_bits(1).into());
                    assert_eq!(got, expected, "{brain:e} to {y}");
                }
            }
        }
    }
}
