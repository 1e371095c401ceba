// Elements of 16 bits, one at a time. The other half of a word may be written by another thread or lie outside this operand, so that an element
// is replaced atomically.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_words: array<STORED>;

fn OPERAND_put(i: u32, value: f32) {
    let at = (i >> 1u) + offsets.OPERAND;
    let shift = (i & 1u) * 16u;
    atomicAnd(&OPERAND_words[at], ~(0xffffu << shift));
    atomicOr(&OPERAND_words[at], round_to_half(value) << shift);
}
