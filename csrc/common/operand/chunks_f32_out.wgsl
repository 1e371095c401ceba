// Elements of type f32, four at a time, aligned to 16 bytes.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_chunks: array<STORED>;

fn OPERAND_put(i: u32, value: vec4<f32>) {
    OPERAND_chunks[i / 4u + offsets.OPERAND / 4u] = value;
}
