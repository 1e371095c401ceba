// A parameter of 16-bit elements, four at a time, aligned to 16 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_chunks: array<STORED>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    return quad(OPERAND_chunks[first / 8u + offsets.OPERAND / 4u], (first / 4u) & 1u);
}
