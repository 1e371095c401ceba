// Elements of 16 bits, one at a time.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<u32>;

fn OPERAND_of(i: u32) -> f32 {
    let values = unpack(OPERAND_words[(i >> 1u) + offsets.OPERAND]);
    return select(values.x, values.y, (i & 1u) == 1u);
}
