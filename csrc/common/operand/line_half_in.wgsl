// Lines of four 16-bit elements that lie `step` elements apart and may begin at any element. Of a line with `count` elements, at least 1, the
// last one is repeated.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

// Each element in the low half of a word.
fn OPERAND_bits(first: u32, step: u32, count: u32) -> vec4<u32> {
    let i = vec4<u32>(first) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
    let at = (i >> vec4<u32>(1u)) + offsets.OPERAND;
    let words = vec4<u32>(OPERAND_words[at.x], OPERAND_words[at.y], OPERAND_words[at.z], OPERAND_words[at.w]);
    return words >> ((i & vec4<u32>(1u)) * 16u);
}

fn OPERAND_unpacked(bits: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(unpack(bits.x).x, unpack(bits.y).x, unpack(bits.z).x, unpack(bits.w).x);
}

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    return OPERAND_unpacked(OPERAND_bits(first, step, count));
}
