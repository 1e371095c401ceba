// Comparisons with NaN and built-in square roots promise little, so what matters is decided on the bits.

fn is_nan(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}

// max(value, 0) that keeps NaN.
fn without_sign(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    return select(value, 0.0, bits >= 0x80000000u && bits <= 0xff800000u);
}

// 1 / sqrt(value), one Newton step after the built-in one: infinity for 0, 0 for infinity, NaN for NaN and below 0.
fn reciprocal_sqrt(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    let first = inverseSqrt(value);
    let refined = first + 0.5 * first * (1.0 - (value * first) * first);
    // NaN for what is negative or NaN already; its bits come from an integer, which no compiler may assume away.
    var special = bitcast<f32>(0x7fc00000u | (bits & 0x80000000u));
    special = select(special, bitcast<f32>(0x7f800000u | (bits & 0x80000000u)), (bits & 0x7fffffffu) == 0u);
    special = select(special, 0.0, bits == 0x7f800000u);
    return select(special, refined, bits > 0u && bits < 0x7f800000u);
}
