// -x.
fn f_neg(x: vec4<f32>) -> vec4<f32> {
    return negated(x);
}
