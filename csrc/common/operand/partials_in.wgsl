// Partial results in the workspace that an earlier dispatch wrote, four numbers at a time.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_quads: array<STORED>;

fn OPERAND_read(i: u32) -> vec4<f32> {
    return OPERAND_quads[i + offsets.OPERAND / 4u];
}
