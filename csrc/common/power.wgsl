// Powers of numbers that are not negative. WGSL bounds the errors of the built-in functions too loosely.

const INFINITY_BITS: u32 = 0x7f800000u;

// The logarithm to base 2 of a positive finite number (polynomial: S. L. Moshier, Cephes, logf).
fn binary_logarithm(value: f32) -> f32 {
    // Subnormal numbers are scaled by converting their bits as an integer, since devices may flush them to 0 in arithmetic.
    let raw = bitcast<u32>(value);
    let is_subnormal = raw < 0x00800000u;
    let bits = select(raw, bitcast<u32>(f32(raw)), is_subnormal);
    let offset = select(0i, -149i, is_subnormal);
    // The significand f + 1 lies between sqrt(1/2) and sqrt(2).
    let shifted = bits + (0x3f800000u - 0x3f3504f3u);
    let exponent = i32(shifted >> 23u) - 127i + offset;
    let f = bitcast<f32>((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0;
    var p = 7.0376836292e-2;
    p = p * f - 1.1514610310e-1;
    p = p * f + 1.1676998740e-1;
    p = p * f - 1.2420140846e-1;
    p = p * f + 1.4249322787e-1;
    p = p * f - 1.6668057665e-1;
    p = p * f + 2.0000714765e-1;
    p = p * f - 2.4999993993e-1;
    p = p * f + 3.3333331174e-1;
    let tail = f * f * (f * p - 0.5);
    // Times log2(e), which is 1 plus 0.44269504: the part of 1 is added last, without an error of a product.
    return f32(exponent) + ((tail * 0.44269504 + f * 0.44269504) + tail) + f;
}

// 2^value (polynomial: Cephes, exp2f). It rounds to 0 below -150 and is infinite from 128 on: the bounds lie beyond.
fn binary_exponential(value: f32) -> f32 {
    let limited = clamp(value, -152.0, 130.0);
    let whole = floor(limited + 0.5);
    let f = limited - whole;
    var p = 1.535336188319500e-4;
    p = p * f + 1.339887440266574e-3;
    p = p * f + 9.618437357674640e-3;
    p = p * f + 5.550332471162809e-2;
    p = p * f + 2.402264791363012e-1;
    p = p * f + 6.931472028550421e-1;
    let significand = 1.0 + f * p;
    // In two steps, since the whole power of two may not be a normal number.
    let exponent = i32(whole);
    let half = exponent >> 1u;
    let rest = exponent - half;
    return significand * bitcast<f32>(u32(half + 127i) << 23u) * bitcast<f32>(u32(rest + 127i) << 23u);
}

// value^-beta for beta >= 0.
fn negative_power(value: f32, beta: f32) -> f32 {
    let bits = bitcast<u32>(value);
    // 0, infinity, and NaN for NaN and for negative numbers, made from an integer, so that no compiler takes it for impossible.
    var special = bitcast<f32>(0x7fc00000u | (bits & 0x80000000u));
    special = select(special, bitcast<f32>(INFINITY_BITS | (bits & 0x80000000u)), (bits & 0x7fffffffu) == 0u);
    special = select(special, 0.0, bits == INFINITY_BITS);
    let is_ordinary = bits > 0u && bits < INFINITY_BITS;
    let power = binary_exponential(-beta * binary_logarithm(select(1.0, value, is_ordinary)));
    return select(select(special, power, is_ordinary), 1.0, beta == 0.0);
}
