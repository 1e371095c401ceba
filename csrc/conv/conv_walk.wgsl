// Convolutions whose windows see mostly padding, or places between the elements of dy, and their gradients: the contraction of conv_output.wgsl, of which
// only the terms inside the image are visited. Columns are counted through all groups. A thread computes a quad of the output, one element after the
// other, over a part of the terms.

// Terms along an axis: their number, and the first one.
struct Steps {
    count: u32,
    first: u32,
}

// The terms of one row that are inside the image, by digits of their own.
struct Inside {
    count: u32,
    extents: vec4<u32>, // of the digits, the slowest first
    gathered_at: u32, // of the first term
    plain_at: u32,
    gathered_strides: vec4<u32>, // of the digits; below 0 they wrap around
    plain_strides: vec4<u32>,
}

// The product of two numbers below the modulus, which is below 2^31.
fn times_modulo(a: u32, b: u32, modulus: u32) -> u32 {
    var product = 0u;
    var power = a;
    for (var left = b; left != 0u; left >>= 1u) {
        if ((left & 1u) != 0u) {
            product = (product + power) % modulus;
        }
        power = (power + power) % modulus;
    }
    return product;
}

// The terms along an axis, of so many, for a row whose coordinate begins with a number above -2^31 and below 2^32, given modulo 2^32 and by whether it is
// negative; `top` is the last coordinate, times the divisor.
fn steps_inside(number: u32, is_negative: bool, of_term: i32, divisor: u32, step: u32, inverse: u32, top: u32, terms: u32) -> Steps {
    // 1. The first term whose coordinate is whole. Numbers are negative only without a divisor.
    var residue = 0u;
    if (divisor > 1u) {
        let gcd = divisor / step;
        let quotient = number / gcd;
        if (quotient * gcd != number) {
            return Steps();
        }
        residue = times_modulo(quotient % step, inverse, step);
    }
    // 2. The ends. With a factor above 0 `top` is below 2^31, with another one no number is negative, so that differences are below 2^32.
    let factor = u32(abs(of_term));
    var low = 0u;
    var high: u32;
    if (of_term > 0) {
        if (is_negative) {
            low = (0u - number - 1u) / factor + 1u;
        } else if (number > top) {
            return Steps();
        }
        high = (top - number) / factor;
    } else {
        if (number > top) {
            low = (number - top - 1u) / factor + 1u;
        }
        high = number / factor;
    }
    high = min(high, terms - 1u);
    if (low > high) {
        return Steps();
    }
    // 3. The first one between the ends. They are below 2^31, as terms are.
    let first = low + (residue + step - low % step) % step;
    if (first > high) {
        return Steps();
    }
    return Steps((high - first) / step + 1u, first);
}

// A tuple, which has the lead first, in the order of the digits of terms.
fn digits_of_tuple(tuple: vec4<u32>) -> vec4<u32> {
    return select(tuple, tuple.yzwx, params.terms_lead_last != 0u);
}

fn inside_of(row: u32) -> Inside {
    let at = tuple_of(digits_of(row, params.rows), params.rows_lead_last);
    let terms = tuple_of(params.term_digits, params.terms_lead_last);
    // Factors of rows are above 0, and offsets above -2^31. A row's number is negative if the row is before the first one that makes up for the offset.
    let of_row = vec3<u32>(params.of_row.xyz);
    let offset = params.offset.xyz;
    let number = at.yzw * of_row + vec3<u32>(offset);
    let whole_rows = (vec3<u32>(max(-offset, vec3<i32>())) + of_row - 1u) / of_row;
    let below = at.yzw < whole_rows;
    let divisors = params.divisors.xyz;
    let steps = params.steps.xyz;
    let inverses = params.inverses.xyz;
    let tops = params.tops.xyz;
    let x = steps_inside(number.x, below.x, params.of_term.x, divisors.x, steps.x, inverses.x, tops.x, terms.y);
    let y = steps_inside(number.y, below.y, params.of_term.y, divisors.y, steps.y, inverses.y, tops.y, terms.z);
    let z = steps_inside(number.z, below.z, params.of_term.z, divisors.z, steps.z, inverses.z, tops.z, terms.w);
    let tuple = vec4<u32>(terms.x, x.count, y.count, z.count);
    let first = vec3<u32>(x.first, y.first, z.first);
    // Between neighbouring terms the coordinate moves by the term's factor times the step, divided by the divisor.
    let moves = params.of_term.xyz / vec3<i32>(divisors / steps);
    // Modulo 2^32, in which the coordinate of a term inside the image fits.
    let image = (number + vec3<u32>(params.of_term.xyz) * first) / divisors * params.image_strides.xyz;

    var inside: Inside;
    inside.count = select(tuple.x * tuple.y * tuple.z * tuple.w, 0u, params.terms == 0u);
    inside.extents = digits_of_tuple(tuple);
    inside.gathered_at = at.x * params.row_lead + image.x + image.y + image.z;
    inside.gathered_strides = digits_of_tuple(vec4<u32>(params.term_lead, vec3<u32>(moves) * params.image_strides.xyz));
    inside.plain_at = with_strides(digits_of_tuple(vec4<u32>(0u, first)), params.plain_strides);
    inside.plain_strides = digits_of_tuple(vec4<u32>(1u, steps)) * params.plain_strides;
    return inside;
}

// The sum of a part of the products of a row and a column: of chains of 64 terms, and of sums of 64 chains.
fn sum_of(row: u32, column: u32, part: u32) -> f32 {
    let inside = inside_of(row);
    let start = part * params.part_terms;
    let end = min(start + params.part_terms, inside.count);
    if (start >= end) {
        return 0.0;
    }
    let of_group = params.n / params.channel_groups;
    let channel_group = column / of_group;
    let gathered_at = inside.gathered_at + channel_group * params.gathered_group;
    let plain_at = inside.plain_at + channel_group * params.plain_group + column % of_group * params.plain_column;
    var digits = digits_of(start, inside.extents);
    var chain = 0.0;
    var chains = 0.0;
    var sum = 0.0;
    for (var term = start; term < end; term++) {
        let gathered = gathered_of(gathered_at + with_strides(digits, inside.gathered_strides));
        let plain = plain_of(plain_at + with_strides(digits, inside.plain_strides));
        chain = fma(gathered, plain, chain);
        let done = term - start + 1u;
        if (done % 64u == 0u) {
            chains += chain;
            chain = 0.0;
        }
        if (done % 4096u == 0u) {
            sum += chains;
            chains = 0.0;
        }
        digits = plus_digits(digits, vec4<u32>(0u, 0u, 0u, 1u), inside.extents);
    }
    return sum + (chains + chain);
}

@compute @workgroup_size(WORKGROUP)
fn conv_walk(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    let quad = quad_of(workgroup * WORKGROUP + thread);
    let part = quad.matrix;
    if (part >= params.parts) {
        return;
    }
    let are_rows = params.quads_are_rows != 0u;
    let count = select(rest_of(params.n, quad.n), rest_of(params.m, quad.m), are_rows);
    var sums = vec4<f32>();
    for (var i = 0u; i < count; i++) {
        sums[i] = sum_of(quad.m + select(0u, i, are_rows), quad.n + select(i, 0u, are_rows), part);
    }
    finish_quad(part, 0u, quad.m, quad.n, sums);
}
