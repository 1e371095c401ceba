// An input whose chunks of 16 bytes are aligned.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_chunks: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    return OPERAND_chunks[first / ELEMENTS + offsets.OPERAND / 4u];
}
