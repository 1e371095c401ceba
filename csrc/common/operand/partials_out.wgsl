// Partial results in the workspace, four numbers at a time.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_quads: array<STORED>;

fn OPERAND_read(i: u32) -> vec4<f32> {
    return OPERAND_quads[i + offsets.OPERAND / 4u];
}

fn OPERAND_write(i: u32, value: vec4<f32>) {
    OPERAND_quads[i + offsets.OPERAND / 4u] = value;
}
