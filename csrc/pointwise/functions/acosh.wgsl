// log(1 + (t + sqrt(2 t + t^2))), t = x - 1; of large numbers log(2 x).
fn f_acosh(x: vec4<f32>) -> vec4<f32> {
    let t = clamp(x - 1.0, vec4<f32>(), vec4<f32>(4096.0));
    let near = f_log1p(t + sqrt(t * t + 2.0 * t));
    let value = select(near, f_log(x) + 0.693147182, x > vec4<f32>(4096.0));
    let bits = bitcast<vec4<u32>>(x);
    let is_beyond = bits - vec4<u32>(0x3f800000u) > vec4<u32>(0x40000000u);
    return select(value, bitcast<vec4<f32>>(bits | vec4<u32>(0x7fc00000u)), is_beyond);
}
