// Elements of type f32, one at a time.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_values: array<STORED>;

fn OPERAND_of(i: u32) -> f32 {
    return OPERAND_values[i + offsets.OPERAND];
}
