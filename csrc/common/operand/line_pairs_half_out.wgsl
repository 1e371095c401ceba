// As line_pairs_half_in, read and written. No word holds elements of two lines, so that lines are written without atomics.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_pairs: array<STORED>;

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    let words = OPERAND_pairs[first / 4u + offsets.OPERAND / 2u];
    return vec4<f32>(unpack(words.x), unpack(words.y));
}

fn OPERAND_put_line(first: u32, step: u32, count: u32, values: vec4<f32>) {
    OPERAND_pairs[first / 4u + offsets.OPERAND / 2u] = pack_quads(values, vec4<f32>()).xy;
}
