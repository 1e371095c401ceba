// The functions of integers, which wrap, of the type of `Values`, which is vec4<i32> or vec4<u32>. Division by 0 gives 0, and so does its rest.

fn i_neg(x: Values) -> Values {
    return Values() - x;
}

fn i_add(x: Values, y: Values) -> Values {
    return x + y;
}

fn i_sub(x: Values, y: Values) -> Values {
    return x - y;
}

fn i_mul(x: Values, y: Values) -> Values {
    return x * y;
}

fn are_below_zero(x: Values) -> vec4<bool> {
    return x < Values();
}

// Devices differ in what they make of a divisor of 0, and of -1 beside the least number: 1 takes their place.
fn i_div_trunc(x: Values, y: Values) -> Values {
    let is_opposite = (y == ~Values()) & are_below_zero(y);
    let quotient = x / select(y, Values(1), is_opposite | (y == Values()));
    return select(select(quotient, Values() - x, is_opposite), Values(), y == Values());
}

fn i_fmod(x: Values, y: Values) -> Values {
    return select(x - i_div_trunc(x, y) * y, Values(), y == Values());
}

// Where the rest has not the sign of the divisor.
fn are_below(rest: Values, y: Values) -> vec4<bool> {
    return (rest != Values()) & (are_below_zero(rest) != are_below_zero(y));
}

fn i_div_floor(x: Values, y: Values) -> Values {
    let quotient = i_div_trunc(x, y);
    return select(quotient, quotient - Values(1), are_below(i_fmod(x, y), y));
}

fn i_remainder(x: Values, y: Values) -> Values {
    let rest = i_fmod(x, y);
    return select(rest, rest + y, are_below(rest, y));
}

fn i_maximum(x: Values, y: Values) -> Values {
    return max(x, y);
}

fn i_minimum(x: Values, y: Values) -> Values {
    return min(x, y);
}

fn i_eq(x: Values, y: Values) -> Values {
    return truth(x == y);
}

fn i_ne(x: Values, y: Values) -> Values {
    return truth(x != y);
}

fn i_lt(x: Values, y: Values) -> Values {
    return truth(x < y);
}

fn i_le(x: Values, y: Values) -> Values {
    return truth(x <= y);
}

fn i_gt(x: Values, y: Values) -> Values {
    return truth(x > y);
}

fn i_ge(x: Values, y: Values) -> Values {
    return truth(x >= y);
}

fn i_bitwise_and(x: Values, y: Values) -> Values {
    return x & y;
}

fn i_bitwise_or(x: Values, y: Values) -> Values {
    return x | y;
}

fn i_bitwise_xor(x: Values, y: Values) -> Values {
    return x ^ y;
}

fn i_bitwise_not(x: Values) -> Values {
    return ~x;
}

// Of the bits that the type of x has.
fn i_popcount(x: Values, bits: Values) -> Values {
    return countOneBits(x & bits);
}

fn i_abs(x: Values) -> Values {
    return select(x, Values() - x, are_below_zero(x));
}

fn i_sign(x: Values) -> Values {
    return select(min(x, Values(1)), ~Values(), are_below_zero(x));
}

fn i_square(x: Values) -> Values {
    return x * x;
}

fn i_relu(x: Values) -> Values {
    return max(x, Values());
}

fn i_clamp(x: Values, low: Values, high: Values) -> Values {
    return min(max(x, low), high);
}

fn i_div(x: Values, y: Values) -> Values {
    return i_div_trunc(x, y);
}

// The greatest number that divides both magnitudes, by Euclid: at most 47 quotients.
fn common_divisor(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> {
    var a = x;
    var b = y;
    while (any(b != vec4<u32>())) {
        let is_done = b == vec4<u32>();
        let rest = a % select(b, vec4<u32>(1u), is_done);
        a = select(b, a, is_done);
        b = rest;
    }
    return a;
}

fn i_gcd(x: Values, y: Values) -> Values {
    return bitcast<Values>(common_divisor(bitcast<vec4<u32>>(i_abs(x)), bitcast<vec4<u32>>(i_abs(y))));
}

fn i_lcm(x: Values, y: Values) -> Values {
    let size = bitcast<vec4<u32>>(i_abs(x));
    let other = bitcast<vec4<u32>>(i_abs(y));
    return bitcast<Values>(size / max(common_divisor(size, other), vec4<u32>(1u)) * other);
}

fn i_shift_left(x: Values, y: Values) -> Values {
    let places = bitcast<vec4<u32>>(y);
    return select(Values(), x << (places & vec4<u32>(31u)), places < vec4<u32>(32u));
}

fn i_shift_right(x: Values, y: Values) -> Values {
    let places = bitcast<vec4<u32>>(y);
    let signs = select(Values(), ~Values(), are_below_zero(x));
    return select(signs, x >> (places & vec4<u32>(31u)), places < vec4<u32>(32u));
}

fn integers_to_bool(x: Values) -> vec4<u32> {
    return select(vec4<u32>(), vec4<u32>(1u), x != Values());
}

// The bits of a magnitude as f32: rounded to nearest, ties to even, or with a last bit that says whether something is lost.
fn bits_of_float(magnitude: u32, is_for_rounding: bool) -> u32 {
    if (magnitude == 0u) {
        return 0u;
    }
    let leading = countLeadingZeros(magnitude);
    let normal = magnitude << leading;
    let kept = normal >> 8u;
    let lost = normal & 0xffu;
    let up = select(0u, 1u, lost > 0x80u || (lost == 0x80u && (kept & 1u) == 1u));
    let significand = select(kept + up, kept | select(0u, 1u, lost != 0u), is_for_rounding);
    // The first bit of the significand adds 1 to the exponent.
    return ((157u - leading) << 23u) + significand;
}

fn floats_of(x: Values, is_for_rounding: bool) -> vec4<f32> {
    let is_below_zero = are_below_zero(x);
    let magnitudes = bitcast<vec4<u32>>(select(x, Values() - x, is_below_zero));
    let bits = vec4<u32>(
        bits_of_float(magnitudes.x, is_for_rounding),
        bits_of_float(magnitudes.y, is_for_rounding),
        bits_of_float(magnitudes.z, is_for_rounding),
        bits_of_float(magnitudes.w, is_for_rounding),
    );
    return bitcast<vec4<f32>>(bits | select(vec4<u32>(), vec4<u32>(0x80000000u), is_below_zero));
}

fn nearest_float(x: Values) -> vec4<f32> {
    return floats_of(x, false);
}

// What rounds to 16 bits as x does.
fn float_for_rounding(x: Values) -> vec4<f32> {
    return floats_of(x, true);
}
