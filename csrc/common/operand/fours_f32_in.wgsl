// Elements of type f32, four at a time, aligned to one element.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_of(i: u32) -> vec4<f32> {
    let at = i + offsets.OPERAND;
    return vec4<f32>(OPERAND_words[at], OPERAND_words[at + 1u], OPERAND_words[at + 2u], OPERAND_words[at + 3u]);
}
