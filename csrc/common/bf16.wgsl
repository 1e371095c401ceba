// Elements of type bf16: two in a word, the first in the low half.
fn unpack(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

// Rounds to nearest even; a NaN stays a NaN.
fn round_to_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn pack(values: vec2<f32>) -> u32 {
    return round_to_half(values.x) | (round_to_half(values.y) << 16u);
}

// Eight elements, from two quads. If one of them is a NaN so is their sum. If the sum is a number, all are rounded without a test.
fn pack_quads(first: vec4<f32>, second: vec4<f32>) -> vec4<u32> {
    let sums = first + second;
    let sum = (sums.x + sums.y) + (sums.z + sums.w);
    if ((bitcast<u32>(sum) & 0x7fffffffu) > 0x7f800000u) {
        return vec4<u32>(pack(first.xy), pack(first.zw), pack(second.xy), pack(second.zw));
    }
    let low = bitcast<vec4<u32>>(vec4<f32>(first.xz, second.xz));
    let high = bitcast<vec4<u32>>(vec4<f32>(first.yw, second.yw));
    let half = vec4<u32>(0x7fffu);
    let rounded_low = low + half + ((low >> vec4<u32>(16u)) & vec4<u32>(1u));
    let rounded_high = high + half + ((high >> vec4<u32>(16u)) & vec4<u32>(1u));
    return (rounded_low >> vec4<u32>(16u)) | (rounded_high & vec4<u32>(0xffff0000u));
}
