// From 1/4 to 3/4 the distance to 1/2 times a polynomial of its square; beyond, with the tail q, r = sqrt(-log(q)) times a polynomial of 1 / r.
fn f_ndtri(x: vec4<f32>) -> vec4<f32> {
    let distance = x - 0.5;
    let z = min(distance * distance, vec4<f32>(1.0));
    var p = 1133.9763 * z + 85.60304;
    p = p * z + 50.000587;
    p = p * z + 15.599473;
    p = p * z + 5.7732677;
    p = p * z + 2.624932;
    p = p * z + 2.5066283;
    let is_low = distance < vec4<f32>();
    let bits = bitcast<vec4<u32>>(x);
    let is_outside = (bits > vec4<u32>(0x3f800000u)) & (bits != vec4<u32>(0x80000000u));
    let is_end = (magnitudes(x) == vec4<u32>()) | (bits == vec4<u32>(0x3f800000u));
    let tail = select(select(1.0 - x, x, is_low), vec4<f32>(0.25), is_outside | is_end);
    let r = sqrt(-f_log(tail));
    let t = 2.64151979 / r - 1.2577093;
    var q = 0.00012236943 * t - 0.00018311663;
    q = q * t - 7.294525e-5;
    q = q * t + 5.38871e-5;
    q = q * t + 0.00040383395;
    q = q * t - 0.0007811095;
    q = q * t + 0.0016149514;
    q = q * t - 0.004854186;
    q = q * t + 0.017741088;
    q = q * t - 0.08944893;
    q = q * t - 0.43239188;
    q = q * t + 1.0725389;
    let far = r * select(q, -q, is_low);
    let value = select(far, distance * p, abs(distance) <= vec4<f32>(0.25));
    let inside = select(value, with_signs(literal(0x7f800000u), distance), is_end);
    return unless_nan(select(inside, literal(0x7fc00000u), is_outside), x);
}
