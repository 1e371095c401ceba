// The logarithm to base 2.
fn f_log2(x: vec4<f32>) -> vec4<f32> {
    let parts = fraction_of(x);
    let value = parts.n + (parts.f * 1.44269504 + logarithm_rest(parts.f) * 1.44269504);
    return with_special_logarithms(value, x);
}
