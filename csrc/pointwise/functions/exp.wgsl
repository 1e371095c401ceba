// e^x.
fn f_exp(x: vec4<f32>) -> vec4<f32> {
    return unless_nan(natural_power(x), x);
}
