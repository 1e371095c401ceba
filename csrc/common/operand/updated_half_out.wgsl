// 16-bit elements that are read before they are written: the bits of one, and a chunk of them a step apart. Those past `count` are not written. The other half of a
// word may be written by another thread or lie outside this operand, so that an element is replaced atomically.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_bits(i: u32) -> u32 {
    return (atomicLoad(&OPERAND_words[(i >> 1u) + offsets.OPERAND]) >> (16u * (i & 1u))) & 0xffffu;
}

fn OPERAND_put(i: u32, half: u32) {
    let at = (i >> 1u) + offsets.OPERAND;
    let shift = (i & 1u) * 16u;
    atomicAnd(&OPERAND_words[at], ~(0xffffu << shift));
    atomicOr(&OPERAND_words[at], half << shift);
}

fn OPERAND_scatter(first: u32, step: u32, count: u32, chunk: vec4<u32>) {
    for (var i = 0u; i < 8u; i++) {
        if (i < count) {
            OPERAND_put(first + i * step, (chunk[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu);
        }
    }
}
