// Elements of 16 bits, four at a time, aligned to one word.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_of(i: u32) -> vec4<f32> {
    let at = i / 2u + offsets.OPERAND;
    return vec4<f32>(unpack(OPERAND_words[at]), unpack(OPERAND_words[at + 1u]));
}
