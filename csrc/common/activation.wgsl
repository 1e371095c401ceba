// Activations of four elements and their derivatives: the functions of activation.cuh. An activation is a value of bops_activation, a constant of
// the text or a parameter. WGSL bounds the errors of exp and tanh too loosely and lets implementations assume that there are no NaN: tanh is
// made from a polynomial, exponentials stay in the range of exp2, and NaN is found by its bits.
const IDENTITY: u32 = 0u;
const RELU: u32 = 1u;
const GELU_ERF: u32 = 2u;
const GELU_TANH: u32 = 3u;
const SILU: u32 = 4u;
const SIGMOID: u32 = 5u;
const TANH: u32 = 6u;

fn are_nan(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

// Whether values are 0, negative or -infinity; false for NaN.
fn are_not_positive(values: vec4<f32>) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(values);
    let are_negative = (bits >= vec4<u32>(0x80000000u)) & (bits <= vec4<u32>(0xff800000u));
    return are_negative | (bits == vec4<u32>());
}

// Whether magnitudes are above a limit; false for NaN.
fn are_beyond(values: vec4<f32>, limit: f32) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu);
    return (bits > vec4<u32>(bitcast<u32>(limit))) & (bits <= vec4<u32>(0x7f800000u));
}

// Exponentials are scaled by this, so that they are normal numbers where their product with a large factor is one. With 2^24 they are from 2^-150 on;
// what is less, times a factor below 2^24, is below 2^-126, an error that docs/numerics.md allows everywhere.
const EXP_SCALE: f32 = 16777216.0;

// EXP_SCALE exp(x), x <= 0 or NaN, as the square of exp(x / 2) = 2^(x log2(e) / 2), which no driver flushes to 0. Its relative error is a few units
// in the last place besides that of a rounding error of x; a pre-activation, for which it is used, is rounded in any case.
fn scaled_exp(x: vec4<f32>) -> vec4<f32> {
    let root = exp2(x * 0.721347520);
    return select((root * EXP_SCALE) * root, x, are_nan(x));
}

// exp(x) - 1 without cancellation, x <= 0 or NaN: 2^n (1 + tail) - 1, |tail| < 0.42. From x = -87 on n is at least -126, so that 2^n is a normal
// number; below, the result is -1 anyway.
fn exp_minus_one(x: vec4<f32>) -> vec4<f32> {
    let t = max(x, vec4<f32>(-87.0));
    let n = floor(t * 1.44269504 + 0.5);
    // ln 2 in two parts, of which the first has so few bits that its product with n is exact.
    let r = (t - n * 0.693359375) + n * 2.12194440e-4;
    // Fitted at Chebyshev nodes to (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2: 1.1e-8 relative to exp(r).
    let p = ((((0.0013926326 * r + 0.0083632926) * r + 0.041666552) * r + 0.16666576) * r + 0.5);
    let power = bitcast<vec4<f32>>(vec4<u32>(vec4<i32>(n) + vec4<i32>(127)) << vec4<u32>(23u));
    let tail = select(r + (r * r) * p, x, are_nan(x));
    return power * tail + (power - 1.0);
}

// factor / (1 + exp(-x)) = factor E / (1 + E), E = exp(x). E is bounded by 2^29, for which the quotient is 1. E and 1 are both multiplied by
// 2^7: where E is too small for a normal number, what it loses, times a factor no larger than x, is less than 2^-126. The factor is multiplied
// before E, because E / (1 + E) may be too small for a normal number where the product is one. `min` may drop a NaN of x, so that the factor has
// to be NaN too.
fn times_sigmoid(factor: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let e = exp2(min(x * 1.44269504 + 7.0, vec4<f32>(36.0)));
    return (factor * (1.0 / (e + 128.0))) * e;
}

// 1 / (1 + exp(-x)) plus `weight` times its derivative, x at most 86 and no NaN: the reciprocal of exp(86), which is about 2^124, is a normal number.
fn sigmoid_and_slope(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
    let e = exp2(x * 1.44269504);
    let r = 1.0 / (e + 1.0);
    let s = e * r;
    return s + (s * r) * weight;
}

// factor times the derivative of 1 / (1 + exp(-x)).
fn times_sigmoid_slope(factor: f32, x: vec4<f32>) -> vec4<f32> {
    let scaled = scaled_exp(-abs(x));
    let share = 1.0 / (1.0 + scaled * (1.0 / EXP_SCALE));
    return ((scaled * share) * share) * (factor / EXP_SCALE);
}

// The argument of GeluTanh's sigmoid, 2 sqrt(2 / pi) (x + 0.044715 x^3).
fn gelu_argument(x: vec4<f32>) -> vec4<f32> {
    return 1.59576912 * (x + 0.044715 * (x * x) * x);
}

// EXP_SCALE exp(-x^2 / 2), with the rounding error of the square corrected.
fn exp_half_square(x: vec4<f32>) -> vec4<f32> {
    let high = bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) & vec4<u32>(0xfffff000u));
    let rest = -0.5 * ((x - high) * (x + high));
    let scaled = scaled_exp(-0.5 * (high * high));
    // `rest` is what the square of the high part leaves out, below 2^-11 x^2: three terms of its exponential suffice. Beyond 15 the result is 0.
    let series = rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0)));
    let correction = select(series, vec4<f32>(), are_beyond(x, 15.0));
    return scaled + scaled * correction;
}

// EXP_SCALE erfc(z / sqrt(2)), z >= 0 or NaN: exp(-z^2 / 2) t p(t), t = 1 / (1 + 0.3 z / sqrt(2)), p fitted at Chebyshev nodes to
// erfcx / t up to 10.5: 3.8e-8 relative.
fn scaled_erfc(z: vec4<f32>) -> vec4<f32> {
    let t = 1.0 / (1.0 + 0.212132034 * z);
    var p = -0.13092263 * t + 0.49263918;
    p = p * t - 0.52752435;
    p = p * t + 0.56596583;
    p = p * t - 0.10788441;
    p = p * t + 0.22086915;
    p = p * t + 0.14672874;
    p = p * t + 0.17095555;
    p = p * t + 0.16917290;
    return (exp_half_square(z) * t) * p;
}

// factor times the normal distribution's integral up to x, 0.5 erfc(-x / sqrt(2)).
fn times_normal(factor: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let scaled = 0.5 * scaled_erfc(abs(x));
    let above = factor * (1.0 - scaled * (1.0 / EXP_SCALE));
    let below = (factor * scaled) * (1.0 / EXP_SCALE);
    return select(above, below, x < vec4<f32>());
}

fn activate(activation: u32, x: vec4<f32>) -> vec4<f32> {
    if (activation == RELU) {
        return select(x, vec4<f32>(), are_not_positive(x));
    }
    if (activation == GELU_ERF) {
        return times_normal(x, x);
    }
    if (activation == GELU_TANH) {
        return times_sigmoid(x, gelu_argument(x));
    }
    if (activation == SILU) {
        return times_sigmoid(x, x);
    }
    if (activation == SIGMOID) {
        return times_sigmoid(select(vec4<f32>(1.0), x, are_nan(x)), x);
    }
    if (activation == TANH) {
        let e = exp_minus_one(-2.0 * abs(x));
        let magnitude = -e / (2.0 + e);
        let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
        return bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign);
    }
    return x;
}

// The derivative, or beyond a limit 0 for negative x and 1 for positive x: its formula could be infinity times 0 there.
fn saturated(derivative: vec4<f32>, x: vec4<f32>, limit: f32) -> vec4<f32> {
    return select(derivative, select(vec4<f32>(1.0), vec4<f32>(), x < vec4<f32>()), are_beyond(x, limit));
}

// dout times the derivative at x; ReLU passes dout where x is NaN. Arguments are bounded, so that no infinity is multiplied by 0: |x| of GELU (tanh)
// by 9, where its sigmoid's argument is 66 and the derivative 0 or 1 but for 2^-80; x of SiLU by -200, where exp(x) is 0, and by 21.5, where it is
// 2^31 and the derivative rounds to 1.
fn differentiate(activation: u32, dout: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    if (activation == RELU) {
        return select(dout, vec4<f32>(), are_not_positive(x));
    }
    if (activation == GELU_ERF) {
        let density = exp_half_square(x) * (0.398942280 / EXP_SCALE);
        return dout * saturated(times_normal(vec4<f32>(1.0), x) + x * density, x, 15.0);
    }
    if (activation == GELU_TANH) {
        let t = clamp(x, vec4<f32>(-9.0), vec4<f32>(9.0));
        let derivative = sigmoid_and_slope(gelu_argument(t), t * (1.59576912 * (1.0 + 0.134145 * (t * t))));
        return dout * saturated(select(derivative, x, are_nan(x)), x, 9.0);
    }
    if (activation == SILU) {
        let t = clamp(x, vec4<f32>(-200.0), vec4<f32>(21.5));
        return dout * select(sigmoid_and_slope(t, t), x, are_nan(x));
    }
    if (activation == SIGMOID) {
        return dout * times_sigmoid_slope(1.0, x);
    }
    if (activation == TANH) {
        return dout * times_sigmoid_slope(4.0, 2.0 * x);
    }
    return dout;
}

// dout times the derivative of ReLU, sigmoid or tanh, which is a function of the result y.
fn differentiate_from_output(activation: u32, dout: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    if (activation == RELU) {
        return differentiate(activation, dout, y);
    }
    if (activation == SIGMOID) {
        return dout * (y * (1.0 - y));
    }
    return dout * ((1.0 - y) * (1.0 + y));
}
