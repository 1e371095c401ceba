// The sine; of a small angle the angle itself, which keeps -0.
fn f_sin(x: vec4<f32>) -> vec4<f32> {
    return nan_if_not_finite(select(sine_of(turned(x), 0u), x, abs(x) < vec4<f32>(1e-4)), x);
}
