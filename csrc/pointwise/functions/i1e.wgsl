// e^-|x| times the function i1.
fn f_i1e(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let low = min(size, vec4<f32>(8.0));
    // Infinity is none of the numbers below.
    let far = bessel_i1_far(clamp(size, vec4<f32>(8.0), vec4<f32>(0x1.fffffep+127f)));
    let value = select(far, bessel_i1_near(low) * natural_power(-low), size < vec4<f32>(8.0));
    return unless_nan(with_signs(select(value, vec4<f32>(), magnitudes(x) == vec4<u32>(0x7f800000u)), x), x);
}
