// sin(pi x) / (pi x) by the distance to the nearest whole number, which is exact: the sine of that, with the other sign beside an odd one. All numbers from
// 2^24 on are even. 1 near 0.
fn f_sinc(x: vec4<f32>) -> vec4<f32> {
    let near = select(round(x), x, magnitudes(x) >= vec4<u32>(0x4b000000u));
    let half = 0.5 * near;
    let is_odd = (floor(half) != half) & (magnitudes(x) < vec4<u32>(0x4b800000u));
    let sine = sine_of(turned(f_sub(x, near) * 3.14159274), 0u);
    // Beyond 2^100 the quotient is 0 all the same.
    let angle = clamp(x, vec4<f32>(-0x1p100f), vec4<f32>(0x1p100f)) * 3.14159274;
    let value = select(sine, -sine, is_odd) / angle;
    return nan_if_not_finite(select(value, vec4<f32>(1.0), magnitudes(x) < vec4<u32>(0x38000000u)), x);
}
