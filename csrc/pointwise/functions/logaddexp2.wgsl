// log2(2^x + 2^y), of equal numbers and infinities x + 1.
fn f_logaddexp2(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let less = log_of_one_and(f_exp2(clamp(-abs(f_sub(x, y)), vec4<f32>(-200.0), vec4<f32>()))) * 1.44269504;
    let sum = select(f_maximum(x, y) + less, x + 1.0, ranks(x) == ranks(y));
    return larger_infinity(unless_nan(unless_nan(sum, y), x), x, y);
}
