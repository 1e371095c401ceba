// Elements of 16 bits, one at a time.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_words: array<STORED>;

// Of an element in the high half a shift, since a select between the two values of unpack2x16float gave 0 for it in one kernel of NVIDIA's Vulkan
// compiler (driver 580.159).
fn OPERAND_of(i: u32) -> f32 {
    return unpack(OPERAND_words[(i >> 1u) + offsets.OPERAND] >> (16u * (i & 1u))).x;
}
