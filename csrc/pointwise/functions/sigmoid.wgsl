// With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) below 0, which has the relative error of e also where it is small.
fn f_sigmoid(x: vec4<f32>) -> vec4<f32> {
    let e = natural_power(-abs(x));
    let bits = bitcast<vec4<u32>>(x);
    return unless_nan(select(vec4<f32>(1.0), e, bits >= vec4<u32>(0x80000000u)) / (1.0 + e), x);
}
