// The bits of 32-bit elements: of one, or of a chunk of them a step apart. Those past `count` are those of the last.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_bits(i: u32) -> u32 {
    return OPERAND_words[i + offsets.OPERAND];
}

fn OPERAND_gather(first: u32, step: u32, count: u32) -> vec4<u32> {
    let i = vec4<u32>(first) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
    return vec4<u32>(OPERAND_bits(i.x), OPERAND_bits(i.y), OPERAND_bits(i.z), OPERAND_bits(i.w));
}
