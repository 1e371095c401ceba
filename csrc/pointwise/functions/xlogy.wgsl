// x log(y), 0 of an x of 0 unless y is NaN.
fn f_xlogy(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let is_zero = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>();
    return unless_nan(select(x * f_log(y), vec4<f32>(), is_zero), y);
}
