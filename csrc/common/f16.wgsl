// Elements of type f16: two in a word, the first in the low half.
fn unpack(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}

// Rounds to nearest even, in integer arithmetic: WGSL leaves the rounding of pack2x16float to the implementation.
fn round_to_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    var half = 0x7c00u;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13u) & 0x3ffu);
    } else if (magnitude < 0x38800000u) {
        // Below the smallest normal f16: the significand, shifted so that its unit is 2^-24.
        let shift = min(126u - (magnitude >> 23u), 25u);
        let significand = (magnitude & 0x7fffffu) | 0x800000u;
        let kept = significand >> shift;
        let rest = significand & ((1u << shift) - 1u);
        let middle = 1u << (shift - 1u);
        half = kept + select(0u, 1u, rest > middle || (rest == middle && (kept & 1u) == 1u));
    } else if (magnitude < 0x47800000u) {
        // A carry out of the significand raises the exponent, up to infinity.
        half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
    }
    return ((bits >> 16u) & 0x8000u) | half;
}

fn pack(values: vec2<f32>) -> u32 {
    return round_to_half(values.x) | (round_to_half(values.y) << 16u);
}

// Eight elements, from two quads.
fn pack_quads(first: vec4<f32>, second: vec4<f32>) -> vec4<u32> {
    return vec4<u32>(pack(first.xy), pack(first.zw), pack(second.xy), pack(second.zw));
}
