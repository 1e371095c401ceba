// Whole lines of four neighbouring 16-bit elements that are aligned to 8 bytes. The bits of a line are in the first two words.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_pairs: array<STORED>;

fn OPERAND_bits(first: u32, step: u32, count: u32) -> vec4<u32> {
    return vec4<u32>(OPERAND_pairs[first / 4u + offsets.OPERAND / 2u], 0u, 0u);
}

fn OPERAND_unpacked(bits: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(unpack(bits.x), unpack(bits.y));
}

fn OPERAND_line(first: u32, step: u32, count: u32) -> vec4<f32> {
    return OPERAND_unpacked(OPERAND_bits(first, step, count));
}
