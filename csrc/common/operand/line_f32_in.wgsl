// Lines of four elements of type f32 that lie `step` elements apart. Of a line with `count` elements, at least 1, the last one is repeated.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_bits(first: u32, step: u32, count: u32) -> vec4<u32> {
    let at = vec4<u32>(first + offsets.OPERAND) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
    return vec4<u32>(OPERAND_words[at.x], OPERAND_words[at.y], OPERAND_words[at.z], OPERAND_words[at.w]);
}

fn OPERAND_unpacked(bits: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits);
}

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    return OPERAND_unpacked(OPERAND_bits(first, step, count));
}
