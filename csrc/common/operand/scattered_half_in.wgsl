// The bits of 16-bit elements: of one, or of a chunk of ELEMENTS of them a step apart, two in a word. Those past `count` are those of the last.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_bits(i: u32) -> u32 {
    return (OPERAND_words[(i >> 1u) + offsets.OPERAND] >> (16u * (i & 1u))) & 0xffffu;
}

// The pair of elements `at` and `at + 1`, counted in steps.
fn OPERAND_pair(first: u32, step: u32, count: u32, at: u32) -> u32 {
    let i = vec2<u32>(first) + min(vec2<u32>(at, at + 1u), vec2<u32>(count - 1u)) * step;
    return OPERAND_bits(i.x) | (OPERAND_bits(i.y) << 16u);
}

fn OPERAND_gather(first: u32, step: u32, count: u32) -> vec4<u32> {
    var chunk = vec4<u32>(OPERAND_pair(first, step, count, 0u), OPERAND_pair(first, step, count, 2u), 0u, 0u);
    if (ELEMENTS > 4u) {
        chunk.z = OPERAND_pair(first, step, count, 4u);
        chunk.w = OPERAND_pair(first, step, count, 6u);
    }
    return chunk;
}
