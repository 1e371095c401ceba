// Powers as products of a significand and two powers of two, of which only the last product may be no normal number: factors are multiplied before it.
struct Power {
    significand: vec4<f32>,
    low: vec4<f32>,
    high: vec4<f32>,
}

// 2^n times the significand for n from -217 to 217.
fn scaled_power(significand: vec4<f32>, n: vec4<f32>) -> Power {
    let twos = vec4<i32>(n);
    let half = twos >> vec4<u32>(1u);
    let low = bitcast<vec4<f32>>((half + 127) << vec4<u32>(23u));
    return Power(significand, low, bitcast<vec4<f32>>((twos - half + 127) << vec4<u32>(23u)));
}

// e^(high + low) for a low below 1/8 of 1, and high from -150, below which it counts as -150, to 92; NaN counts as any number. WGSL bounds the error of exp2
// by 3 + 2 |x| ulp, so that |x| is kept below 3/4.
fn power_of_sum(high: vec4<f32>, low: vec4<f32>) -> Power {
    let bounded = clamp(high, vec4<f32>(-150.0), vec4<f32>(92.0));
    let n = floor(bounded * 1.44269504 + 0.5);
    // log(2) in two parts, of which the first has so few bits that its product with n is exact.
    let rest = ((bounded - n * 0.693359375) + n * 2.12194440e-4) + low;
    return scaled_power(exp2(rest * 1.44269504), n);
}

fn times_power(factor: vec4<f32>, power: Power) -> vec4<f32> {
    return ((factor * power.significand) * power.low) * power.high;
}

// NaN of -infinity and of NaN, where a function is x times what is 0 at -infinity.
fn above_minus_infinity(results: vec4<f32>, values: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(values);
    return unless_nan(select(results, bitcast<vec4<f32>>(bits | vec4<u32>(0x7fc00000u)), bits >= vec4<u32>(0xff800000u)), values);
}
