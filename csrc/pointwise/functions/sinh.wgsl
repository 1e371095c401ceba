// Half the difference of powers, near 0 an odd polynomial.
fn f_sinh(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let z = min(size * size, vec4<f32>(1.0));
    var p = 2.81743974e-6 * z + 0.000198360663;
    p = p * z + 0.00833335053;
    p = p * z + 0.166666672;
    let power = power_of_sum(size, vec4<f32>());
    let far = times_power(vec4<f32>(0.5), power) - 0.5 / times_power(vec4<f32>(1.0), power);
    let magnitude = select(far, size + (size * z) * p, size < vec4<f32>(1.0));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
