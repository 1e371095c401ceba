// An output of bytes in chunks of eight that are aligned to 8 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_pairs: array<STORED>;

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    OPERAND_pairs[first / ELEMENTS + offsets.OPERAND / 2u] = chunk.xy;
}
