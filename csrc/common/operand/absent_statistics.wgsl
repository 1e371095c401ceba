// A statistic that this dispatch does not use.
fn OPERAND_of(row: u32) -> f32 {
    return 0.0;
}

fn OPERAND_put(row: u32, value: f32) {}
