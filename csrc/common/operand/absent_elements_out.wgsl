// Elements that this dispatch does not write.
fn OPERAND_put(i: u32, value: Value) {}
