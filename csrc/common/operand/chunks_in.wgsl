// An input in chunks of 16 bytes that are aligned to 16 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_chunks: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    return OPERAND_chunks[first / ELEMENTS + offsets.OPERAND / 4u];
}
