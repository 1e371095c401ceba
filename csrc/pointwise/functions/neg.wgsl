// The sign bit is inverted, also that of 0 and of numbers that a device may take as 0.
fn f_neg(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(0x80000000u));
}
