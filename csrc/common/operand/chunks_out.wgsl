// An output in chunks of 16 bytes that are aligned to 16 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_chunks: array<STORED>;

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    OPERAND_chunks[first / ELEMENTS + offsets.OPERAND / 4u] = chunk;
}
