// An input of bytes in chunks of eight that are aligned to 8 bytes.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_pairs: array<STORED>;

fn OPERAND_load(first: u32, count: u32) -> vec4<u32> {
    return vec4<u32>(OPERAND_pairs[first / ELEMENTS + offsets.OPERAND / 2u], 0u, 0u);
}
