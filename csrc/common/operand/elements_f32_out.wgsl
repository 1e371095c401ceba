// Elements of type f32, one at a time, that are written, and read where they are updated.
const HAS_OPERAND: bool = true;

@group(0) @binding(BINDING) var<storage, read_write> OPERAND_values: array<STORED>;

fn OPERAND_of(i: u32) -> f32 {
    return OPERAND_values[i + offsets.OPERAND];
}

fn OPERAND_put(i: u32, value: f32) {
    OPERAND_values[i + offsets.OPERAND] = value;
}
