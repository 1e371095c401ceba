// A statistic that the descriptor does not declare.
fn OPERAND_of(row: u32) -> f32 {
    return 0.0;
}

fn OPERAND_put(row: u32, value: f32) {}
