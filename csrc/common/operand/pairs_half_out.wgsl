// Elements of 16 bits, four at a time, aligned to 8 bytes.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_pairs: array<STORED>;

fn OPERAND_put(i: u32, value: vec4<f32>) {
    OPERAND_pairs[i / 4u + offsets.OPERAND / 2u] = vec2<u32>(pack(value.xy), pack(value.zw));
}
