// x times the sigmoid of t = x (a + c x^2), a = 2 sqrt(2 / pi), c = 0.044715 a. The power of e has the error of t times |t|, so that t is computed in two
// parts.
fn f_gelu_tanh(x: vec4<f32>) -> vec4<f32> {
    let bounded = max(x, vec4<f32>(-20.0));
    let size = min(abs(bounded), vec4<f32>(20.0));
    let square = exact_product(size, size);
    let cubic = exact_product(square.high, vec4<f32>(0.0713548139));
    let linear = vec4<f32>(1.59576917);
    let are_larger = cubic.high > linear;
    let sum = exact_sum(select(linear, cubic.high, are_larger), select(cubic.high, linear, are_larger));
    let rest = (sum.low + cubic.low) + ((square.low * 0.0713548139 + square.high * 2.39883247e-9) - 4.53406805e-8);
    let t = exact_product(size, sum.high);
    let power = power_of_sum(-t.high, -(t.low + size * rest));
    let r = 1.0 / (1.0 + times_power(vec4<f32>(1.0), power));
    return above_minus_infinity(select(x * r, times_power(bounded * r, power), x < vec4<f32>()), x);
}
