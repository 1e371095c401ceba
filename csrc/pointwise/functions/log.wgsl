// Subnormal numbers are multiplied by 2^64, of which 44.3614196 is the logarithm.
fn f_log(x: vec4<f32>) -> vec4<f32> {
    let result = logarithm(lifted(x)) - select(vec4<f32>(), vec4<f32>(44.3614196), are_subnormal(x));
    let is_zero = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>();
    // Of infinity it is infinity.
    let special = select(x, literal(0xff800000u), is_zero);
    return nan_if_negative(select(special, result, are_positive(x)), x);
}
