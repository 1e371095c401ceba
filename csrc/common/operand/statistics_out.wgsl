// A statistic that is written: one f32 for each row or group.
@group(0) @binding(BINDING) var<storage, read_write> OPERAND_values: array<STORED>;

fn OPERAND_put(row: u32, value: f32) {
    OPERAND_values[row + offsets.OPERAND] = value;
}
