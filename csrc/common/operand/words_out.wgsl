// An output of 32-bit elements in chunks that may begin at any element. Elements past `count` are not written.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    let at = first + offsets.OPERAND;
    OPERAND_words[at] = chunk.x;
    if (WHOLE_CHUNKS || count > 1u) {
        OPERAND_words[at + 1u] = chunk.y;
    }
    if (WHOLE_CHUNKS || count > 2u) {
        OPERAND_words[at + 2u] = chunk.z;
    }
    if (WHOLE_CHUNKS || count > 3u) {
        OPERAND_words[at + 3u] = chunk.w;
    }
}
