// As line_quads_f32_in, read and written.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_quads: array<STORED>;

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    return OPERAND_quads[first / 4u + offsets.OPERAND / 4u];
}

fn OPERAND_put_line(first: u32, step: u32, count: u32, values: vec4<f32>) {
    OPERAND_quads[first / 4u + offsets.OPERAND / 4u] = values;
}
