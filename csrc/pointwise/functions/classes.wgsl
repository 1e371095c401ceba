// What kind of number a number is, from its bits: 1 where it holds, else 0.

fn f_isnan(x: vec4<f32>) -> vec4<f32> {
    return truth(are_nan(x));
}

fn f_isinf(x: vec4<f32>) -> vec4<f32> {
    return truth(magnitudes(x) == vec4<u32>(0x7f800000u));
}

fn f_isfinite(x: vec4<f32>) -> vec4<f32> {
    return truth(magnitudes(x) < vec4<u32>(0x7f800000u));
}

fn f_signbit(x: vec4<f32>) -> vec4<f32> {
    return truth(bitcast<vec4<u32>>(x) > vec4<u32>(0x7fffffffu));
}
