// Half the sum of powers.
fn f_cosh(x: vec4<f32>) -> vec4<f32> {
    let power = power_of_sum(abs(x), vec4<f32>());
    return unless_nan(times_power(vec4<f32>(0.5), power) + 0.5 / times_power(vec4<f32>(1.0), power), x);
}
