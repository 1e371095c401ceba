// A chunk of 32-bit elements a step apart. Those past `count` are not written.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_scatter(first: u32, step: u32, count: u32, chunk: vec4<u32>) {
    let at = first + offsets.OPERAND;
    OPERAND_words[at] = chunk.x;
    if (count > 1u) {
        OPERAND_words[at + step] = chunk.y;
    }
    if (count > 2u) {
        OPERAND_words[at + 2u * step] = chunk.z;
    }
    if (count > 3u) {
        OPERAND_words[at + 3u * step] = chunk.w;
    }
}
