// Bytes: one, or a chunk of ELEMENTS of them a step apart, four in a word. Those past `count` are those of the last.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_bits(i: u32) -> u32 {
    return (OPERAND_words[(i >> 2u) + offsets.OPERAND] >> (8u * (i & 3u))) & 0xffu;
}

// The four elements from `at` on, counted in steps.
fn OPERAND_four(first: u32, step: u32, count: u32, at: u32) -> u32 {
    let i = vec4<u32>(first) + min(vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
    return OPERAND_bits(i.x) | (OPERAND_bits(i.y) << 8u) | (OPERAND_bits(i.z) << 16u) | (OPERAND_bits(i.w) << 24u);
}

fn OPERAND_gather(first: u32, step: u32, count: u32) -> vec4<u32> {
    var chunk = vec4<u32>(OPERAND_four(first, step, count, 0u), 0u, 0u, 0u);
    if (ELEMENTS > 4u) {
        chunk.y = OPERAND_four(first, step, count, 4u);
    }
    return chunk;
}
