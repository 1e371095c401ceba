// An input of bytes in chunks of four, which are a word.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    return vec4<u32>(OPERAND_words[first / ELEMENTS + offsets.OPERAND], 0u, 0u, 0u);
}
