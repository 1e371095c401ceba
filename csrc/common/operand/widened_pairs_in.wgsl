// An input of 16-bit elements that are read as f32, four at a time, aligned to 8 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_pairs: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    let words = OPERAND_pairs[first / ELEMENTS + offsets.OPERAND / 2u];
    return bitcast<vec4<u32>>(vec4<f32>(unpack(words.x), unpack(words.y)));
}
