// A 64-bit integer that is read: two words, the low one first.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_count() -> vec2<u32> {
    return vec2<u32>(OPERAND_words[offsets.OPERAND], OPERAND_words[offsets.OPERAND + 1u]);
}
