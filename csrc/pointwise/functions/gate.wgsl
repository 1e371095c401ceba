// y where x is above 0, else 0.
fn f_gate(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return unless_nan(select(vec4<f32>(), y, are_above_zero(x)), x);
}
