// Elements of 16 bits, four at a time, aligned to one word.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_put(i: u32, value: vec4<f32>) {
    let at = i / 2u + offsets.OPERAND;
    OPERAND_words[at] = pack(value.xy);
    OPERAND_words[at + 1u] = pack(value.zw);
}
