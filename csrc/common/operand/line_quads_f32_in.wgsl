// Whole lines of four neighbouring elements of type f32 that are aligned to 16 bytes.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_quads: array<STORED>;

fn OPERAND_bits(first: u32, step: u32, count: u32) -> vec4<u32> {
    return OPERAND_quads[first / 4u + offsets.OPERAND / 4u];
}

fn OPERAND_unpacked(bits: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits);
}

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    return OPERAND_unpacked(OPERAND_bits(first, step, count));
}
