// Elements of type f32, four at a time, aligned to 16 bytes.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_chunks: array<STORED>;

fn OPERAND_of(i: u32) -> vec4<f32> {
    return OPERAND_chunks[i / 4u + offsets.OPERAND / 4u];
}
