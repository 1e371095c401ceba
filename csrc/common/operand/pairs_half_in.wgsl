// Elements of 16 bits, four at a time, aligned to 8 bytes.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_pairs: array<STORED>;

fn OPERAND_of(i: u32) -> vec4<f32> {
    let words = OPERAND_pairs[i / 4u + offsets.OPERAND / 2u];
    return vec4<f32>(unpack(words.x), unpack(words.y));
}
