// An input of 16-bit elements, converted to f32, in chunks of four that are aligned to 8 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_pairs: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    let words = OPERAND_pairs[first / ELEMENTS + offsets.OPERAND / 2u];
    return bitcast<vec4<u32>>(vec4<f32>(unpack(words.x), unpack(words.y)));
}
