// A statistic that is read: one f32 for each row or group.
@group(0) @binding(BINDING) var<storage, ACCESS> OPERAND_values: array<STORED>;

fn OPERAND_of(row: u32) -> f32 {
    return OPERAND_values[row + offsets.OPERAND];
}
