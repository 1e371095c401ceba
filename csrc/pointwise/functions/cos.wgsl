// The cosine: a sine a quarter of a turn further on.
fn f_cos(x: vec4<f32>) -> vec4<f32> {
    return nan_if_not_finite(sine_of(turned(x), 1u), x);
}
