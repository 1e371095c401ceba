// log(e^x + e^y), of equal numbers and infinities x + log(2).
fn f_logaddexp(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let less = log_of_one_and(natural_power(-abs(f_sub(x, y))));
    let sum = select(f_maximum(x, y) + less, x + 0.693147182, ranks(x) == ranks(y));
    return larger_infinity(unless_nan(unless_nan(sum, y), x), x, y);
}
