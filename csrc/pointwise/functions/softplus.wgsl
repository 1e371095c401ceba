// max(x, 0) + log(1 + e), e = exp(-|x|), the logarithm as a series of e / (2 + e).
fn f_softplus(x: vec4<f32>) -> vec4<f32> {
    let e = natural_power(-abs(x));
    let s = e / (2.0 + e);
    let z = s * s;
    var p = 0.121504687 * z + 0.107138284;
    p = p * z + 0.143084422;
    p = p * z + 0.199994385;
    p = p * z + 0.333333373;
    return unless_nan(max(x, vec4<f32>()) + (2.0 * s + (2.0 * s) * (p * z)), x);
}
