// Functions of a few operations. Signs, order and special values are found in bits: implementations may assume that there are no NaN, and take subnormal
// numbers for 0.

fn magnitudes(values: vec4<f32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu);
}

fn are_nan(values: vec4<f32>) -> vec4<bool> {
    return magnitudes(values) > vec4<u32>(0x7f800000u);
}

// Values with the sign bits of others.
fn with_signs(values: vec4<f32>, signs: vec4<f32>) -> vec4<f32> {
    let sign = vec4<u32>(0x80000000u & params.all_bits);
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(values) & ~sign) | (bitcast<vec4<u32>>(signs) & sign));
}

// Integers in the order of the numbers, -1 for -0 and 0 for 0.
fn places(values: vec4<f32>) -> vec4<i32> {
    let bits = bitcast<vec4<i32>>(values);
    return bits ^ ((bits >> vec4<u32>(31u)) & vec4<i32>(0x7fffffff));
}

// As `places`, 0 for both zeros.
fn ranks(values: vec4<f32>) -> vec4<i32> {
    return select(places(values), vec4<i32>(), magnitudes(values) == vec4<u32>());
}

// Whether x < y; false beside NaN.
fn are_less(x: vec4<f32>, y: vec4<f32>) -> vec4<bool> {
    return (ranks(x) < ranks(y)) & !(are_nan(x) | are_nan(y));
}

// Whether x <= y; false beside NaN.
fn are_at_most(x: vec4<f32>, y: vec4<f32>) -> vec4<bool> {
    return (ranks(x) <= ranks(y)) & !(are_nan(x) | are_nan(y));
}

// The greater one of numbers.
fn greater(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(y, x, places(x) >= places(y));
}

// The lesser one of numbers.
fn lesser(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(y, x, places(x) <= places(y));
}

// |x|.
fn f_abs(x: vec4<f32>) -> vec4<f32> {
    return with_signs(x, vec4<f32>());
}

// 1 or -1; zeros and NaN are their own.
fn f_sign(x: vec4<f32>) -> vec4<f32> {
    let is_own = magnitudes(x) - vec4<u32>(1u) >= vec4<u32>(0x7f800000u);
    return select(with_signs(vec4<f32>(1.0), x), x, is_own);
}

// A whole number near x. From 2^23 on every number is whole; infinities and NaN are their own.
fn made_whole(near: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    return select(with_signs(near, x), x, magnitudes(x) >= vec4<u32>(0x4b000000u));
}

// The least whole number that is not below x.
fn f_ceil(x: vec4<f32>) -> vec4<f32> {
    return made_whole(ceil(x), x);
}

// The greatest whole number that is not above x.
fn f_floor(x: vec4<f32>) -> vec4<f32> {
    return made_whole(floor(x), x);
}

// The nearest whole number, the even one of two.
fn f_round(x: vec4<f32>) -> vec4<f32> {
    return made_whole(round(x), x);
}

// The whole number towards 0.
fn f_trunc(x: vec4<f32>) -> vec4<f32> {
    return made_whole(trunc(x), x);
}

// x - trunc(x).
fn f_frac(x: vec4<f32>) -> vec4<f32> {
    return f_sub(x, f_trunc(x));
}

// 1 / x.
fn f_reciprocal(x: vec4<f32>) -> vec4<f32> {
    return f_div(literal(0x3f800000u), x);
}

// x x.
fn f_square(x: vec4<f32>) -> vec4<f32> {
    return x * x;
}

// 1 / sqrt(x). Of subnormal numbers it is normal.
fn f_rsqrt(x: vec4<f32>) -> vec4<f32> {
    let root = inverseSqrt(lifted(x)) * select(vec4<f32>(1.0), vec4<f32>(0x1p32f), are_subnormal(x));
    let at_zero = select(root, with_signs(literal(0x7f800000u), x), magnitudes(x) == vec4<u32>());
    return nan_if_negative(select(at_zero, vec4<f32>(), magnitudes(x) == vec4<u32>(0x7f800000u)), x);
}

// The cube root by Newton's steps t - (t - m / t^2) / 3, the first from a third of the exponent, within 4 % (W. Kahan). 2^(-64 / 3) takes the factor away that
// makes subnormal numbers normal.
fn f_cbrt(x: vec4<f32>) -> vec4<f32> {
    let m = f_abs(lifted(x));
    var t = bitcast<vec4<f32>>(bitcast<vec4<u32>>(m) / vec4<u32>(3u) + vec4<u32>(0x2a512ce3u));
    for (var step = 0; step < 3; step++) {
        t -= (t - m / (t * t)) * 0.333333343;
    }
    let root = with_signs(t * select(vec4<f32>(1.0), vec4<f32>(3.784659e-7), are_subnormal(x)), x);
    return select(root, x, magnitudes(x) - vec4<u32>(1u) >= vec4<u32>(0x7f7fffffu));
}

// x above 0, else 0.
fn f_relu(x: vec4<f32>) -> vec4<f32> {
    return unless_nan(select(x, vec4<f32>(), bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u)), x);
}

// x from 0 to 6.
fn f_relu6(x: vec4<f32>) -> vec4<f32> {
    return f_clamp(x, vec4<f32>(), vec4<f32>(6.0));
}

// x / (1 + |x|), of infinities the limit.
fn f_softsign(x: vec4<f32>) -> vec4<f32> {
    let result = f_div(x, 1.0 + f_abs(x));
    return select(result, with_signs(vec4<f32>(1.0), x), magnitudes(x) == vec4<u32>(0x7f800000u));
}

// (x + 3) / 6, from 0 to 1.
fn f_hardsigmoid(x: vec4<f32>) -> vec4<f32> {
    return unless_nan(f_clamp(rounded(x + 3.0), vec4<f32>(), vec4<f32>(6.0)) * 0.166666672, x);
}

// x (x + 3) / 6 from -3 to 3, below 0, above x.
fn f_hardswish(x: vec4<f32>) -> vec4<f32> {
    let between = x * rounded(x + 3.0) * 0.166666672;
    let above = select(between, x, are_at_most(vec4<f32>(3.0), x));
    return unless_nan(select(above, vec4<f32>(), are_at_most(x, vec4<f32>(-3.0))), x);
}

// x above 0, else slope x.
fn f_leaky_relu(x: vec4<f32>, slope: vec4<f32>) -> vec4<f32> {
    return unless_nan(select(x * slope, x, are_less(vec4<f32>(), x)), x);
}

// As leaky_relu.
fn f_prelu(x: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
    return f_leaky_relu(x, weight);
}

// As clamp.
fn f_hardtanh(x: vec4<f32>, low: vec4<f32>, high: vec4<f32>) -> vec4<f32> {
    return f_clamp(x, low, high);
}

// 0 from -lambda to lambda, else x.
fn f_hardshrink(x: vec4<f32>, lambda: vec4<f32>) -> vec4<f32> {
    return select(x, vec4<f32>(), are_at_most(negated(lambda), x) & are_at_most(x, lambda));
}

// Towards 0 by lambda.
fn f_softshrink(x: vec4<f32>, lambda: vec4<f32>) -> vec4<f32> {
    let below = select(vec4<f32>(), x + lambda, are_less(x, negated(lambda)));
    return unless_nan(select(below, f_sub(x, lambda), are_less(lambda, x)), x);
}

// x above a threshold, else a value.
fn f_threshold(x: vec4<f32>, threshold: vec4<f32>, value: vec4<f32>) -> vec4<f32> {
    return select(x, value, are_at_most(x, threshold));
}

// The greater one, NaN if one is.
fn f_maximum(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return unless_nan(unless_nan(greater(x, y), y), x);
}

// The lesser one, NaN if one is.
fn f_minimum(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return unless_nan(unless_nan(lesser(x, y), y), x);
}

// The greater one, where one is NaN the other.
fn f_fmax(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(select(greater(x, y), x, are_nan(y)), y, are_nan(x));
}

// The lesser one, where one is NaN the other.
fn f_fmin(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(select(lesser(x, y), x, are_nan(y)), y, are_nan(x));
}

// x with the sign of y.
fn f_copysign(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return with_signs(x, y);
}

// Numbers times 2^64, unless they are large.
fn lifted_if(are_small: vec4<bool>, values: vec4<f32>) -> vec4<f32> {
    return select(values, select(values * 0x1p64f, lifted(values), are_subnormal(values)), are_small);
}

// sqrt(x x + y y): both are multiplied by the power of two that brings the greater one near 1.
fn f_hypot(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let larger = max(magnitudes(x), magnitudes(y));
    let are_small = larger < vec4<u32>(bitcast<u32>(0x1p-60f));
    let a = lifted_if(are_small, f_abs(x));
    let b = lifted_if(are_small, f_abs(y));
    let exponent = min(max(bitcast<vec4<u32>>(a), bitcast<vec4<u32>>(b)) & vec4<u32>(0x7f800000u), vec4<u32>(0x7e800000u));
    let scale = bitcast<vec4<f32>>(vec4<u32>(0x7f000000u) - exponent);
    let scaled_a = a * scale;
    let scaled_b = b * scale;
    let root = sqrt(scaled_a * scaled_a + scaled_b * scaled_b) * bitcast<vec4<f32>>(exponent);
    let result = root * select(vec4<f32>(1.0), vec4<f32>(0x1p-64f), are_small);
    let own = unless_nan(unless_nan(select(result, vec4<f32>(), larger == vec4<u32>()), y), x);
    let is_infinite = (magnitudes(x) == vec4<u32>(0x7f800000u)) | (magnitudes(y) == vec4<u32>(0x7f800000u));
    return select(own, literal(0x7f800000u), is_infinite);
}

// 0 below 0, 1 above, a value at 0.
fn f_heaviside(x: vec4<f32>, value: vec4<f32>) -> vec4<f32> {
    let step = select(vec4<f32>(1.0), vec4<f32>(), bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u));
    return unless_nan(select(step, value, magnitudes(x) == vec4<u32>()), x);
}

// From low to high.
fn f_clamp(x: vec4<f32>, low: vec4<f32>, high: vec4<f32>) -> vec4<f32> {
    return f_minimum(f_maximum(x, low), high);
}

// a + w (b - a) below 1/2, else from b.
fn f_lerp(a: vec4<f32>, b: vec4<f32>, w: vec4<f32>) -> vec4<f32> {
    let way = rounded(f_sub(b, a));
    let from_a = a + rounded(w * way);
    let from_b = f_sub(b, rounded(way * rounded(f_sub(literal(0x3f800000u), w))));
    return select(from_b, from_a, are_less(w, vec4<f32>(0.5)));
}

// x + a b.
fn f_addcmul(x: vec4<f32>, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return x + rounded(a * b);
}

// x + a / b.
fn f_addcdiv(x: vec4<f32>, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return x + rounded(f_div(a, b));
}

// a b + c. A device may round the product.
fn f_fma(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>) -> vec4<f32> {
    return fma(a, b, c);
}

// x 2^n for the whole number n nearest to y, in three factors that are normal numbers.
fn f_ldexp(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let n = vec4<i32>(round(clamp(y, vec4<f32>(-300.0), vec4<f32>(300.0))));
    let first = clamp(n, vec4<i32>(-126), vec4<i32>(127));
    let second = clamp(n - first, vec4<i32>(-126), vec4<i32>(127));
    let powers = (vec4<i32>(127) + first) << vec4<u32>(23u);
    let further = (vec4<i32>(127) + second) << vec4<u32>(23u);
    let last = (vec4<i32>(127) + (n - first - second)) << vec4<u32>(23u);
    // Of a subnormal x the first factor that makes it normal is 2^64.
    let scaled = lifted(x) * bitcast<vec4<f32>>(powers) * bitcast<vec4<f32>>(further) * bitcast<vec4<f32>>(last);
    let is_own = (magnitudes(x) == vec4<u32>()) | (magnitudes(x) >= vec4<u32>(0x7f800000u));
    return unless_nan(select(scaled * lifted_by(x), x, is_own), y);
}

// The number next to x in the direction of y, in bits, of the type whose least number above 0 is given: of f16, 2^-24, numbers below 2^-14 are multiples of it.
fn f_nextafter(x: vec4<f32>, y: vec4<f32>, least: vec4<f32>) -> vec4<f32> {
    let size = magnitudes(x);
    let bits_of_least = bitcast<vec4<u32>>(least);
    let is_half = bits_of_least == vec4<u32>(0x33800000u);
    let is_away = are_less(x, y) == (bitcast<vec4<u32>>(x) < vec4<u32>(0x80000000u));
    let step = select(bits_of_least, vec4<u32>(0x2000u), is_half);
    let by_bits = select(size - step, size + step, is_away);
    let by_least = bitcast<vec4<u32>>(bitcast<vec4<f32>>(size) + select(-least, least, is_away));
    let is_small = select(size <= vec4<u32>(0x38800000u), size < vec4<u32>(0x38800000u), is_away);
    let next = select(by_bits, by_least, is_half & is_small);
    // Beyond 65504 is infinity, and before it 65504.
    let above = select(next, vec4<u32>(0x7f800000u), is_half & (next > vec4<u32>(0x477fe000u)));
    let bounded = select(above, vec4<u32>(0x477fe000u), is_half & (size == vec4<u32>(0x7f800000u)));
    let is_zero = size == vec4<u32>();
    let sign = vec4<u32>(0x80000000u) & select(bitcast<vec4<u32>>(x), bitcast<vec4<u32>>(y), is_zero);
    let result = bitcast<vec4<f32>>(select(bounded, bits_of_least, is_zero) | sign);
    return unless_nan(unless_nan(select(result, y, ranks(x) == ranks(y)), y), x);
}

// x where it is finite; a number where it is NaN, and a limit with its sign where it is infinite.
fn f_nan_to_num(x: vec4<f32>, nan: vec4<f32>, limit: vec4<f32>) -> vec4<f32> {
    let bounded = select(x, with_signs(limit, x), magnitudes(x) == vec4<u32>(0x7f800000u));
    return select(bounded, nan, are_nan(x));
}
