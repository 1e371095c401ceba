// The constants are lambda, and lambda times alpha.
fn f_selu(x: vec4<f32>) -> vec4<f32> {
    return select(1.75809932 * f_expm1(x), 1.05070102 * x, are_above_zero(x));
}
