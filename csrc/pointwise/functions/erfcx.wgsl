// e^(z^2) erfc(z) of numbers that are not negative: beyond 10 the asymptotic series. A quotient that is no normal number may count as 0.
fn scaled_tail(z: vec4<f32>) -> vec4<f32> {
    let u = 1.0 / clamp(z, vec4<f32>(10.0), vec4<f32>(0x1.fffffep+127f));
    let w = u * u;
    let far = (0.564189613 * u) * (1.0 - w * (0.5 - w * (0.75 - w * 1.875)));
    return select(far, scaled_complement(min(z, vec4<f32>(10.0))), z < vec4<f32>(10.0));
}

// Below 0 by the complement, which is from 1 to 2; from -9.5 on it is infinite.
fn f_erfcx(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let bounded = min(size, vec4<f32>(9.5));
    let below = times_power(2.0 - complement(bounded), power_of_square(bounded, -1.0));
    let is_beyond = bitcast<vec4<u32>>(x) > vec4<u32>(0xc1180000u);
    let value = select(scaled_tail(size), select(below, literal(0x7f800000u), is_beyond), bitcast<vec4<u32>>(x) > vec4<u32>(0x80000000u));
    return unless_nan(select(value, vec4<f32>(), bitcast<vec4<u32>>(x) == vec4<u32>(0x7f800000u)), x);
}
