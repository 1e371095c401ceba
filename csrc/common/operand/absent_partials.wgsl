// Partial results that this dispatch does not use.
fn OPERAND_read(i: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn OPERAND_write(i: u32, value: vec4<f32>) {}
