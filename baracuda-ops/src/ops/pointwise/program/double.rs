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

#[cfg(test)]
mod tests {
    use super::super::Function;

    /// Of 50 digits, with mpmath: where exponents are large, results subnormal or small, and around the bounds of formulas.
    #[test]
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
        ];
        for &(function, [x, y], expected) in known {
            let got = function.value([x, y, 0.0]);
            let ulp = expected.abs().next_up() - expected.abs();
            assert!(
                (got - expected).abs() <= 5.0 * ulp,
                "{function:?}({x:e}, {y:e}) is {got:e}, expected {expected:e}"
            );
        }
    }
}
