// A parameter that this dispatch does not use.
const HAS_OPERAND: bool = false;

fn OPERAND_quad(first: u32) -> vec4<f32> {
    return vec4<f32>();
}
