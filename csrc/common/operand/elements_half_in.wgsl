// Elements of 16 bits, one at a time.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

// The word is shifted so that the element is in its low half. A select between the two values of unpack2x16float gave 0 for elements in the high
// half, in one kernel with NVIDIA's Vulkan driver 580.159.
fn OPERAND_of(i: u32) -> f32 {
    return unpack(OPERAND_words[(i >> 1u) + offsets.OPERAND] >> (16u * (i & 1u))).x;
}
