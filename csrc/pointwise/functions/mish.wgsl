// x tanh(softplus(x)): with e = exp(x) the hyperbolic tangent is e (e + 2) / (e (e + 2) + 2).
fn f_mish(x: vec4<f32>) -> vec4<f32> {
    let bounded = max(x, vec4<f32>(-150.0));
    let power = power_of_sum(-abs(bounded), vec4<f32>());
    let e = times_power(vec4<f32>(1.0), power);
    let below = times_power(bounded * ((e + 2.0) / (e * (e + 2.0) + 2.0)), power);
    let twice = 1.0 + 2.0 * e;
    let above = x * (twice / (twice + (2.0 * e) * e));
    return above_minus_infinity(select(above, below, x < vec4<f32>()), x);
}
