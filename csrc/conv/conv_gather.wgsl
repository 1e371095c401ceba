// How convolutions gather a factor from an image. A coordinate is the sum of what a row and what a term contribute. Terms are counted digit by digit, with
// carries and without divisions.

// What four rows, or four terms, contribute to a place in the gathered factor: to the offset in memory (at), and to the coordinates along the axes. For
// four columns, or four terms, of the plain factor only `at` is used.
struct Places {
    at: vec4<u32>,
    x: vec4<i32>,
    y: vec4<i32>,
    z: vec4<i32>,
}

// The sum of two numbers, digit by digit. In the sum the slowest digit may reach its extent or more; the others are below theirs.
fn plus_digits(a: vec4<u32>, b: vec4<u32>, extents: vec4<u32>) -> vec4<u32> {
    var sum = a + b;
    if (sum.w >= extents.w) {
        sum.w -= extents.w;
        sum.z += 1u;
    }
    if (sum.z >= extents.z) {
        sum.z -= extents.z;
        sum.y += 1u;
    }
    if (sum.y >= extents.y) {
        sum.y -= extents.y;
        sum.x += 1u;
    }
    return sum;
}

// The digits in the order lead, axes.
fn tuple_of(digits: vec4<u32>, lead_last: u32) -> vec4<u32> {
    return select(digits, digits.wxyz, lead_last != 0u);
}

// Places of four tuples, which have the lead first.
fn places_of(
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
    lead: u32,
    factors: vec4<i32>,
    offset: vec4<i32>,
) -> Places {
    return Places(
        vec4<u32>(a.x, b.x, c.x, d.x) * lead,
        vec4<i32>(vec4<u32>(a.y, b.y, c.y, d.y)) * factors.x + offset.x,
        vec4<i32>(vec4<u32>(a.z, b.z, c.z, d.z)) * factors.y + offset.y,
        vec4<i32>(vec4<u32>(a.w, b.w, c.w, d.w)) * factors.z + offset.z,
    );
}

// Places of four rows.
fn row_places(rows: vec4<u32>) -> Places {
    let a = tuple_of(digits_of(rows.x, params.rows), params.rows_lead_last);
    let b = tuple_of(digits_of(rows.y, params.rows), params.rows_lead_last);
    let c = tuple_of(digits_of(rows.z, params.rows), params.rows_lead_last);
    let d = tuple_of(digits_of(rows.w, params.rows), params.rows_lead_last);
    return places_of(a, b, c, d, params.row_lead, params.of_row, params.offset);
}

// Four elements of the gathered factor, or the first ones of four lines.
struct Found {
    at: vec4<u32>, // 0 for those outside the image
    is_there: vec4<bool>,
}

// The elements of a line, or the first elements of four lines: one side contributes `each`, the other one at, x, y and z to all four.
fn found_at(each: Places, at: u32, x: i32, y: i32, z: i32, are_terms: vec4<bool>) -> Found {
    // Without a sign, negative coordinates are greater than any extent.
    var i = vec4<u32>(each.x + vec4<i32>(x));
    var j = vec4<u32>(each.y + vec4<i32>(y));
    var k = vec4<u32>(each.z + vec4<i32>(z));
    var is_there = are_terms;
    if (params.has_divisors != 0u) {
        is_there &= (i | j | k) < vec4<u32>(0x80000000u);
        let whole_i = i / params.divisors.x;
        let whole_j = j / params.divisors.y;
        let whole_k = k / params.divisors.z;
        is_there &= (whole_i * params.divisors.x == i) & (whole_j * params.divisors.y == j) & (whole_k * params.divisors.z == k);
        i = whole_i;
        j = whole_j;
        k = whole_k;
    }
    is_there &= (i < vec4<u32>(params.image.x)) & (j < vec4<u32>(params.image.y)) & (k < vec4<u32>(params.image.z));
    let strides = params.image_strides;
    let place = vec4<u32>(at) + each.at + i * strides.x + j * strides.y + k * strides.z;
    return Found(select(vec4<u32>(), place, is_there), is_there);
}
