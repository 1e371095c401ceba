// An output of bytes in chunks of four, which are a word.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    OPERAND_words[first / ELEMENTS + offsets.OPERAND] = chunk.x;
}
