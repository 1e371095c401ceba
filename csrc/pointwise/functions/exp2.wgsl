// 2^x. It is 0 below -150 and infinite from 128 on.
fn f_exp2(x: vec4<f32>) -> vec4<f32> {
    let bounded = clamp(x, vec4<f32>(-152.0), vec4<f32>(130.0));
    let n = floor(bounded + 0.5);
    return unless_nan(times_power(vec4<f32>(1.0), scaled_power(exp2(bounded - n), n)), x);
}
