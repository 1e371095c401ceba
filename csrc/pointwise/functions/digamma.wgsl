// Between 1 and 2 the distance to the root there, in two parts, times a polynomial, interpolated at Chebyshev's points; beyond, by
// digamma(x + 1) = digamma(x) + 1 / x, and from 6 on the asymptotic series; below 0 by digamma(1 - x) - pi / tan(pi x).
fn f_digamma(x: vec4<f32>) -> vec4<f32> {
    let is_below = bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u);
    let distance = f_sub(x, f_round(x));
    var rest = select(vec4<f32>(), f_div(vec4<f32>(-3.14159274), f_tan(distance * 3.14159274)), is_below);
    var z = select(x, 1.0 - x, is_below);
    let is_low = z < vec4<f32>(1.0);
    rest -= select(vec4<f32>(), f_reciprocal(z), is_low);
    z += select(vec4<f32>(), vec4<f32>(1.0), is_low);
    let is_far = z >= vec4<f32>(6.0);
    for (var step = 0; step < 4; step++) {
        let is_above = (z >= vec4<f32>(2.0)) & !is_far;
        z -= select(vec4<f32>(), vec4<f32>(1.0), is_above);
        rest += select(vec4<f32>(), 1.0 / z, is_above);
    }
    let t = z - 1.5;
    var p = vec4<f32>(0.010902588);
    p = p * t - 0.01637362;
    p = p * t + 0.01711499;
    p = p * t - 0.025786884;
    p = p * t + 0.04085003;
    p = p * t - 0.06205598;
    p = p * t + 0.09498469;
    p = p * t - 0.14839886;
    p = p * t + 0.24054253;
    p = p * t - 0.4236275;
    p = p * t + 0.9510559;
    let near = (rounded(z - 1.4616321) - 1.2438150e-8) * p;
    let u = 1.0 / z;
    let w = u * u;
    let far = f_log(z) - (0.5 * u + w * (0.0833333358 - w * (0.00833333377 - w * 0.0039682541)));
    let value = select(near, far, is_far) + rest;
    let is_zero = magnitudes(x) == vec4<u32>();
    let is_pole = is_below & (magnitudes(distance) == vec4<u32>());
    let special = select(select(value, literal(0x7fc00000u), is_pole), with_signs(literal(0x7f800000u), negated(x)), is_zero);
    let is_infinite = bitcast<vec4<u32>>(x) == vec4<u32>(0x7f800000u);
    let result = select(special, x, is_infinite);
    return unless_nan(select(result, literal(0x7fc00000u), bitcast<vec4<u32>>(x) == vec4<u32>(0xff800000u)), x);
}
