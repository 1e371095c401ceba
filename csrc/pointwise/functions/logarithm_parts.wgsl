// Logarithms to other bases: a positive number is 2^n (1 + f), and log(1 + f) is f and a rest. Subnormal numbers are multiplied by 2^64.
struct Fraction {
    n: vec4<f32>,
    f: vec4<f32>,
}

fn fraction_of(x: vec4<f32>) -> Fraction {
    let bits = bitcast<vec4<i32>>(lifted(x));
    let n = (bits - vec4<i32>(0x3f3504f3)) >> vec4<u32>(23u);
    let f = bitcast<vec4<f32>>(bits - (n << vec4<u32>(23u))) - 1.0;
    return Fraction(vec4<f32>(n) - select(vec4<f32>(), vec4<f32>(64.0), are_subnormal(x)), f);
}

// What logarithms give of numbers that are not positive and finite.
fn with_special_logarithms(value: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let is_zero = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>();
    // Of infinity it is infinity.
    return nan_if_negative(select(select(x, literal(0xff800000u), is_zero), value, are_positive(x)), x);
}
