// x times the normal distribution's integral up to x, erfc(-x / sqrt(2)) / 2.
fn f_gelu_erf(x: vec4<f32>) -> vec4<f32> {
    let bounded = max(x, vec4<f32>(-20.0));
    let size = min(abs(bounded), vec4<f32>(20.0));
    let half = 0.5 * scaled_complement(size * 0.707106769);
    let power = power_of_square(size, 0.5);
    let above = x * (1.0 - times_power(half, power));
    return above_minus_infinity(select(above, times_power(bounded * half, power), x < vec4<f32>()), x);
}
