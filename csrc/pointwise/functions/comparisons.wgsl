// Comparisons of numbers: 1 where they hold, else 0. They compare bits as integers, since a device may take subnormal numbers for 0, and assume that there is
// no NaN.

// Integers in the order of the numbers; -0 is 0.
fn places_in_order(values: vec4<f32>) -> vec4<i32> {
    let bits = bitcast<vec4<i32>>(values);
    let magnitude = bits & vec4<i32>(0x7fffffff);
    return select(magnitude, -magnitude, bits < vec4<i32>());
}

// Whether neither is NaN.
fn are_ordered(x: vec4<f32>, y: vec4<f32>) -> vec4<bool> {
    let nothing = vec4<u32>(0x7f800000u);
    let magnitudes_of_x = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    let magnitudes_of_y = bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu);
    return max(magnitudes_of_x, magnitudes_of_y) <= nothing;
}

fn f_eq(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth((places_in_order(x) == places_in_order(y)) & are_ordered(x, y));
}

fn f_ne(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth((places_in_order(x) != places_in_order(y)) | !are_ordered(x, y));
}

fn f_lt(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth((places_in_order(x) < places_in_order(y)) & are_ordered(x, y));
}

fn f_le(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth((places_in_order(x) <= places_in_order(y)) & are_ordered(x, y));
}

fn f_gt(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return f_lt(y, x);
}

fn f_ge(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return f_le(y, x);
}
