// Remainders and whole quotients in integers, eight binary digits of the quotient at a time. A magnitude is an integer times 2^(e - 150).

// The integer of a magnitude, below 2^24, and e, at least 1.
fn digits_of(magnitude: u32) -> vec2<u32> {
    let is_normal = magnitude >= 0x00800000u;
    return vec2<u32>((magnitude & 0x007fffffu) | select(0u, 0x00800000u, is_normal), max(magnitude >> 23u, 1u));
}

// x - y trunc(x / y), in bits.
fn fmod_of_bits(x: u32, y: u32) -> u32 {
    let a = x & 0x7fffffffu;
    let b = y & 0x7fffffffu;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) {
        return 0x7fc00000u;
    }
    if (a < b) {
        return x;
    }
    let dividend = digits_of(a);
    let divisor = digits_of(b);
    var rest = dividend.x % divisor.x;
    var left = dividend.y - divisor.y;
    while (left > 0u && rest > 0u) {
        let digits = min(left, 8u);
        rest = (rest << digits) % divisor.x;
        left -= digits;
    }
    // With as many leading digits as e allows.
    let shift = min(countLeadingZeros(rest) - 8u, divisor.y - 1u);
    let result = ((divisor.y - shift - 1u) << 23u) + (rest << shift);
    return select(result, 0u, rest == 0u) | (x & 0x80000000u);
}

// x - y trunc(x / y).
fn f_fmod(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let a = bitcast<vec4<u32>>(x);
    let b = bitcast<vec4<u32>>(y);
    let bits = vec4<u32>(fmod_of_bits(a.x, b.x), fmod_of_bits(a.y, b.y), fmod_of_bits(a.z, b.z), fmod_of_bits(a.w, b.w));
    return bitcast<vec4<f32>>(bits);
}

// x - y floor(x / y).
fn f_remainder(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let rest = f_fmod(x, y);
    let bits = bitcast<vec4<u32>>(rest);
    let signs = (bits ^ bitcast<vec4<u32>>(y)) & vec4<u32>(0x80000000u);
    let is_number = (bits & vec4<u32>(0x7fffffffu)) - vec4<u32>(1u) < vec4<u32>(0x7f800000u);
    return select(rest, rest + y, is_number & (signs != vec4<u32>()));
}

// The quotient, rounded towards 0 or down, in bits; beyond 2^29 and where it is special it is the one that is there, which is whole.
fn whole_quotient(x: u32, y: u32, is_down: bool, there: f32) -> f32 {
    let a = x & 0x7fffffffu;
    let b = y & 0x7fffffffu;
    let sign = (x ^ y) & 0x80000000u;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) {
        return there;
    }
    var whole = 0u;
    var rest = a;
    if (a >= b) {
        let dividend = digits_of(a);
        let digits = digits_of(b);
        // The divisor with 24 digits.
        let shift = countLeadingZeros(digits.x) - 8u;
        let divisor = digits.x << shift;
        var left = dividend.y + shift - digits.y;
        if (left > 30u) {
            return there;
        }
        whole = dividend.x / divisor;
        rest = dividend.x % divisor;
        while (left > 0u) {
            let next = min(left, 8u);
            rest <<= next;
            whole = (whole << next) + rest / divisor;
            rest %= divisor;
            left -= next;
        }
    }
    if (is_down && sign != 0u && rest > 0u) {
        whole += 1u;
    }
    return bitcast<f32>(bitcast<u32>(f32(whole)) | sign);
}

fn whole_quotients(x: vec4<f32>, y: vec4<f32>, is_down: bool) -> vec4<f32> {
    let a = bitcast<vec4<u32>>(x);
    let b = bitcast<vec4<u32>>(y);
    let there = f_div(x, y);
    return vec4<f32>(whole_quotient(a.x, b.x, is_down, there.x), whole_quotient(a.y, b.y, is_down, there.y),
        whole_quotient(a.z, b.z, is_down, there.z), whole_quotient(a.w, b.w, is_down, there.w));
}

// floor(x / y).
fn f_div_floor(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return whole_quotients(x, y, true);
}

// trunc(x / y).
fn f_div_trunc(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return whole_quotients(x, y, false);
}
