// Elements of type bf16, two in a word, the first in the low half.
fn unpack(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

// Rounds to nearest even; a NaN stays one.
fn round_to_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn pack(values: vec2<f32>) -> u32 {
    return round_to_half(values.x) | (round_to_half(values.y) << 16u);
}
