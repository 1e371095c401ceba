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
        let rest = (-z).mul_add(alpha, x) / alpha;
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

pub(super) fn gate(x: f64, y: f64) -> f64 {
    if x > 0.0 {
        y
    } else if x.is_nan() {
        x
    } else {
        0.0
    }
}
