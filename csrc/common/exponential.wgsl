// Exponentials and logarithms with errors of a few units in the last place; WGSL bounds those of the built-in functions more loosely.

// exp(t) for t from -87.6 to 88.3. The result is 0 from -87.7 downwards and infinite from 88.4 to 89; t must not be greater than 89. The power of 2 that
// is split off is exact, so that the error does not grow with |t|. Callers handle NaN themselves.
fn exponential(t: vec4<f32>) -> vec4<f32> {
    return exponential_of_sum(t, vec4<f32>());
}

// exp(high + low), where |low| is at most |high| / 1000, for arguments as those of `exponential`. They are bounded from below by
// -127 log(2) = -88.0296919, where the bits of `power` are 0, and so is the result.
fn exponential_of_sum(high: vec4<f32>, low: vec4<f32>) -> vec4<f32> {
    let within_range = max(high, vec4<f32>(-88.0296919));
    let low_within_range = select(low, vec4<f32>(), high < vec4<f32>(-88.0296919));
    // The low bits of the sum with 1.5 * 2^23 = 12582912 are t / log(2) rounded to an integer. The mask of all bits comes from params, so that no
    // compiler cancels the number that is added and subtracted.
    let halvings = bitcast<vec4<u32>>(within_range * 1.44269504 + 12582912.0) & vec4<u32>(params.all_bits);
    let n = bitcast<vec4<f32>>(halvings) - 12582912.0;
    // log(2) in two parts, of which the first has so few bits that its product with n is exact.
    let rest = (within_range - n * 0.693145752) - (n * 1.42860677e-6 - low_within_range);
    let power = bitcast<vec4<f32>>((halvings << vec4<u32>(23u)) + 0x3f800000u);
    return exp2(rest * 1.44269504) * power;
}

// 2^x for x up to 128; 0 for x below -126. The error grows with |x|, which is accurate enough for 16-bit elements.
fn power_of_two(x: vec4<f32>) -> vec4<f32> {
    return select(exp2(x), vec4<f32>(), x < vec4<f32>(-126.0));
}

// log(1 + f) - f + f^2 / 2 for f from sqrt(1/2) - 1 to sqrt(2) - 1.
fn logarithm_tail(f: vec4<f32>) -> vec4<f32> {
    // (log(1 + f) - f + f^2 / 2) / f^3, interpolated at Chebyshev's points.
    var p = vec4<f32>(-0.0790274367);
    p = p * f + 0.126223192;
    p = p * f - 0.129981831;
    p = p * f + 0.142144963;
    p = p * f - 0.166412815;
    p = p * f + 0.200010449;
    p = p * f - 0.25000307;
    p = p * f + 0.333333313;
    return (p * f) * (f * f);
}

// log(1 + f) - f.
fn logarithm_rest(f: vec4<f32>) -> vec4<f32> {
    return logarithm_tail(f) - 0.5 * (f * f);
}

// The logarithm of normal positive numbers; NaN of NaN and infinity.
fn logarithm(value: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<i32>>(value);
    // value = 2^n (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1.
    let n = (bits - vec4<i32>(0x3f3504f3)) >> vec4<u32>(23u);
    let f = bitcast<vec4<f32>>(bits - (n << vec4<u32>(23u))) - 1.0;
    let twos = vec4<f32>(n);
    let low = twos * 1.42860677e-6 + logarithm_rest(f);
    let log_value = twos * 0.693145752 + (f + low);
    return select(log_value, not_numbers(value), (bits & vec4<i32>(0x7fffffff)) >= vec4<i32>(0x7f800000));
}

// NaN, made from an integer, so that no compiler takes it for impossible.
fn not_numbers(values: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(0x7fc00000u) | (bitcast<vec4<u32>>(values) & vec4<u32>(0x80000000u)));
}
