// Comparisons of numbers: 1 where they hold, else 0. They compare bits as integers, since a device may take subnormal numbers for 0, and assume that there is
// no NaN.

fn are_equal(x: vec4<f32>, y: vec4<f32>) -> vec4<bool> {
    return (ranks(x) == ranks(y)) & !(are_nan(x) | are_nan(y));
}

fn f_eq(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth(are_equal(x, y));
}

fn f_ne(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth(!are_equal(x, y));
}

fn f_lt(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth(are_less(x, y));
}

fn f_le(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth(are_at_most(x, y));
}

fn f_gt(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth(are_less(y, x));
}

fn f_ge(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return truth(are_at_most(y, x));
}
