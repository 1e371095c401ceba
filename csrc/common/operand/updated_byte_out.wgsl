// Bytes that are read before they are written: one, and a chunk of them a step apart. Those past `count` are not written. The other bytes of a word may be written
// by another thread or lie outside this operand, so that an element is replaced atomically.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_bits(i: u32) -> u32 {
    return (atomicLoad(&OPERAND_words[(i >> 2u) + offsets.OPERAND]) >> (8u * (i & 3u))) & 0xffu;
}

fn OPERAND_put(i: u32, byte: u32) {
    let at = (i >> 2u) + offsets.OPERAND;
    let shift = (i & 3u) * 8u;
    atomicAnd(&OPERAND_words[at], ~(0xffu << shift));
    atomicOr(&OPERAND_words[at], byte << shift);
}

fn OPERAND_scatter(first: u32, step: u32, count: u32, chunk: vec4<u32>) {
    for (var i = 0u; i < 8u; i++) {
        if (i < count) {
            OPERAND_put(first + i * step, (chunk[i >> 2u] >> ((i & 3u) * 8u)) & 0xffu);
        }
    }
}
