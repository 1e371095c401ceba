// A parameter of 32-bit elements, four at a time, aligned to 16 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_chunks: array<STORED>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(OPERAND_chunks[first / 4u + offsets.OPERAND / 4u]);
}
