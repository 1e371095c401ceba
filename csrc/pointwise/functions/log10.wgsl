// The logarithm to base 10: log10(2) in two parts, of which the first has so few bits that its product with n is exact.
fn f_log10(x: vec4<f32>) -> vec4<f32> {
    let parts = fraction_of(x);
    let low = parts.n * 4.60503898e-6 + logarithm_rest(parts.f) * 0.434294492;
    return with_special_logarithms(parts.n * 0.301025390625 + (parts.f * 0.434294492 + low), x);
}
