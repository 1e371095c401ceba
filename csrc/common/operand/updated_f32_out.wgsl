// 32-bit elements that are read before they are written: the bits of one, and a chunk of them a step apart. Those past `count` are not written.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_bits(i: u32) -> u32 {
    return OPERAND_words[i + offsets.OPERAND];
}

fn OPERAND_scatter(first: u32, step: u32, count: u32, chunk: vec4<u32>) {
    for (var i = 0u; i < 4u; i++) {
        if (i < count) {
            OPERAND_words[first + i * step + offsets.OPERAND] = chunk[i];
        }
    }
}
