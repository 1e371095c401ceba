// With e = exp(-|x|): x / (1 + e), or x e / (1 + e) below 0.
fn f_silu(x: vec4<f32>) -> vec4<f32> {
    let bounded = max(x, vec4<f32>(-150.0));
    let power = power_of_sum(-abs(bounded), vec4<f32>());
    let r = 1.0 / (1.0 + times_power(vec4<f32>(1.0), power));
    return above_minus_infinity(select(x * r, times_power(bounded * r, power), x < vec4<f32>()), x);
}
