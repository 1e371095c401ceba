// Elements of type f32, four at a time, aligned to one element.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_put(i: u32, value: vec4<f32>) {
    let at = i + offsets.OPERAND;
    OPERAND_words[at] = value.x;
    OPERAND_words[at + 1u] = value.y;
    OPERAND_words[at + 2u] = value.z;
    OPERAND_words[at + 3u] = value.w;
}
