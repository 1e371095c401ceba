// An output of 16-bit elements, rounded from f32, in chunks of four that are aligned to 8 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_pairs: array<STORED>;

fn OPERAND_store(first: u32, count: u32, chunk: vec4<u32>) {
    let values = bitcast<vec4<f32>>(chunk);
    OPERAND_pairs[first / ELEMENTS + offsets.OPERAND / 2u] = vec2<u32>(pack(values.xy), pack(values.zw));
}
