// x above 0, else y (e^x - 1).
fn f_elu(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(y * f_expm1(x), x, are_above_zero(x));
}
