// log(1 + e) for e from 0 to 1, as a series of e / (2 + e).
fn log_of_one_and(e: vec4<f32>) -> vec4<f32> {
    let s = e / (2.0 + e);
    let z = s * s;
    var p = 0.121504687 * z + 0.107138284;
    p = p * z + 0.143084422;
    p = p * z + 0.199994385;
    p = p * z + 0.333333373;
    return 2.0 * s + (2.0 * s) * (p * z);
}

// Infinity where it is the greater one of two numbers.
fn larger_infinity(results: vec4<f32>, x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let most = f_maximum(x, y);
    return select(results, most, bitcast<vec4<u32>>(most) == vec4<u32>(0x7f800000u));
}

// max(x, 0) + log(1 + e), e = exp(-|x|).
fn f_softplus(x: vec4<f32>) -> vec4<f32> {
    return unless_nan(max(x, vec4<f32>()) + log_of_one_and(natural_power(-abs(x))), x);
}
