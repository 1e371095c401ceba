// Elements that this dispatch does not use.
const HAS_OPERAND: bool = false;

fn OPERAND_of(i: u32) -> f32 {
    return 0.0;
}

fn OPERAND_put(i: u32, value: f32) {}
