// log(x / (1 - x)), from 1/4 to 3/4 as the logarithm of 1 and the exact difference 2 x - 1 over 1 - x.
fn f_logit(x: vec4<f32>) -> vec4<f32> {
    let is_one = x == vec4<f32>(1.0);
    let rest = select(1.0 - x, vec4<f32>(1.0), is_one);
    let beyond = x - 0.5;
    let near = f_log1p((beyond + beyond) / rest);
    // A number that may be subnormal is its own quotient.
    let far = f_log(select(x / rest, x, abs(x) < vec4<f32>(1e-8)));
    let value = select(far, near, abs(beyond) < vec4<f32>(0.25));
    let bits = bitcast<vec4<u32>>(x);
    let is_outside = (bits > vec4<u32>(0x3f800000u)) & (bits != vec4<u32>(0x80000000u));
    let inside = select(value, literal(0x7f800000u), is_one);
    return select(inside, bitcast<vec4<f32>>(bits | vec4<u32>(0x7fc00000u)), is_outside);
}
