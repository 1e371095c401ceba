// WGSL implementations may assume that there are no NaN, and its inverseSqrt has a loose bound: these functions decide on the bits.

// max(value, 0), NaN for NaN.
fn without_sign(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    return select(value, 0.0, bits >= 0x80000000u && bits <= 0xff800000u);
}

// 1 / sqrt(value), by a Newton step after inverseSqrt: infinity for 0, 0 for infinity, NaN for NaN and for negative numbers.
fn reciprocal_sqrt(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    let first = inverseSqrt(value);
    let refined = first + 0.5 * first * (1.0 - (value * first) * first);
    // NaN for NaN and for negative numbers, made from an integer, so that no compiler takes it for impossible.
    var special = bitcast<f32>(0x7fc00000u | (bits & 0x80000000u));
    special = select(special, bitcast<f32>(0x7f800000u | (bits & 0x80000000u)), (bits & 0x7fffffffu) == 0u);
    special = select(special, 0.0, bits == 0x7f800000u);
    return select(special, refined, bits > 0u && bits < 0x7f800000u);
}

// 1 / sqrt(value) of a value that was added up from squares. NaN for infinity: finite elements may have squares whose sum overflows, and a root of 0
// would make zeros of them.
fn reciprocal_sqrt_of_squares(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    // The NaN is made from the bits, so that no compiler takes it for impossible.
    return select(reciprocal_sqrt(value), bitcast<f32>(bits | 0x00400000u), bits == 0x7f800000u);
}
