// A parameter of 16-bit elements, four at a time, aligned to 8 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_pairs: array<STORED>;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    return quad(vec4<u32>(OPERAND_pairs[first / 4u + offsets.OPERAND / 2u], 0u, 0u), 0u);
}
