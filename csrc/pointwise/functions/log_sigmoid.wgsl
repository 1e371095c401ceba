// The sigmoid's logarithm.
fn f_log_sigmoid(x: vec4<f32>) -> vec4<f32> {
    return negated(f_softplus(negated(x)));
}
