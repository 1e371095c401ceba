// Angles as a rest within an eighth of a turn and the number of quarters of a turn, in the low bits.
struct Turned {
    rest: vec4<f32>,
    quarters: vec4<u32>,
}

// The upper 32 bits of a product of numbers of 24 and of 32 bits.
fn upper_product(x: u32, y: u32) -> u32 {
    let low_carried = (x >> 16u) * (y & 0xffffu) + (((x & 0xffffu) * (y & 0xffffu)) >> 16u);
    let high_low = (x & 0xffffu) * (y >> 16u);
    let high_high = (x >> 16u) * (y >> 16u);
    let middle = low_carried + high_low;
    let carry = select(0u, 0x10000u, middle < high_low);
    return high_high + (middle >> 16u) + carry;
}

// Of any finite angle: a product of its 24 bits m with those bits of 2 / pi that count (M. H. Payne, R. N. Hanek, "Radian Reduction for Trigonometric
// Functions", 1983). |x| is m 2^(exponent - 150); the bits of the table begin at 2^63, and those from 2^(151 - exponent) on count.
fn turned_exactly(x: f32) -> vec2<u32> {
    var two_over_pi = array<u32, 10>(0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u);
    let bits = bitcast<u32>(x);
    let m = (bits & 0x007fffffu) | 0x00800000u;
    let first = clamp((bits >> 23u) & 0xffu, 88u, 254u) - 88u;
    let at = first >> 5u;
    let shift = first & 31u;
    var window = array<u32, 3>(two_over_pi[at], two_over_pi[at + 1u], two_over_pi[at + 2u]);
    if (shift > 0u) {
        for (var k = 0u; k < 3u; k++) {
            window[k] = (window[k] << shift) | (two_over_pi[at + k + 1u] >> (32u - shift));
        }
    }
    // In units of 2^-62 quarters, in two words.
    let last = upper_product(m, window[2]);
    let low = m * window[1] + last;
    let carry = select(0u, 1u, low < last);
    let high = m * window[0] + upper_product(m, window[1]) + carry;
    let quarters = (high + 0x20000000u) >> 30u;
    let rest_high = high - (quarters << 30u);
    let is_below = rest_high >= 0x80000000u;
    let positive_low = select(low, ~low + 1u, is_below);
    let positive_high = select(rest_high, ~rest_high + select(0u, 1u, low == 0u), is_below);
    // 1.57079637 is a quarter of a turn.
    let rest = (f32(positive_high) * 0x1p-30f + f32(positive_low) * 0x1p-62f) * 1.57079637;
    let is_negative = bits >= 0x80000000u;
    let sign = select(0u, 0x80000000u, is_below != is_negative);
    return vec2<u32>(bitcast<u32>(rest) | sign, select(quarters, 0u - quarters, is_negative));
}

fn turned(x: vec4<f32>) -> Turned {
    // pi / 2 in parts of up to 11 bits, whose products with the number of quarters are exact up to 2^13.
    let limit = vec4<f32>(8192.0);
    let n = floor(clamp(x, -limit, limit) * 0.636619747 + 0.5);
    let rest = (((x - n * 1.5703125) - n * 0.00048351287841796875) - n * 3.1385570764541626e-07) - n * 6.07710062827671e-11;
    var result = Turned(rest, vec4<u32>(vec4<i32>(n)));
    let are_wide = abs(x) > limit;
    if (any(are_wide)) {
        for (var k = 0u; k < 4u; k++) {
            let exact = turned_exactly(x[k]);
            if (are_wide[k]) {
                result.rest[k] = bitcast<f32>(exact.x);
                result.quarters[k] = exact.y;
            }
        }
    }
    return result;
}

fn sine_of_rest(r: vec4<f32>) -> vec4<f32> {
    let z = r * r;
    let p = (-1.95169763e-4 * z + 0.00833217613) * z - 0.166666552;
    return r + (r * z) * p;
}

fn cosine_of_rest(r: vec4<f32>) -> vec4<f32> {
    let z = r * r;
    let p = (2.44380881e-5 * z - 0.00138873642) * z + 0.0416666456;
    return (1.0 - 0.5 * z) + (z * z) * p;
}

// The sine of a turned angle and of so many quarters more.
fn sine_of(angle: Turned, more: u32) -> vec4<f32> {
    let quarters = angle.quarters + vec4<u32>(more);
    let value = select(sine_of_rest(angle.rest), cosine_of_rest(angle.rest), (quarters & vec4<u32>(1u)) == vec4<u32>(1u));
    return select(value, -value, (quarters & vec4<u32>(2u)) == vec4<u32>(2u));
}

// NaN of NaN and infinity.
fn nan_if_not_finite(results: vec4<f32>, values: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(values);
    return select(results, bitcast<vec4<f32>>(bits | vec4<u32>(0x7fc00000u)), (bits & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u));
}
