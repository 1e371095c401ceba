// The tangent, after an odd number of quarters that of the rest's complement; of a small angle the angle itself, which keeps -0.
fn f_tan(x: vec4<f32>) -> vec4<f32> {
    let angle = turned(x);
    let sine = sine_of_rest(angle.rest);
    let cosine = cosine_of_rest(angle.rest);
    let is_odd = (angle.quarters & vec4<u32>(1u)) == vec4<u32>(1u);
    let value = select(sine, -cosine, is_odd) / select(cosine, sine, is_odd);
    return nan_if_not_finite(select(value, x, abs(x) < vec4<f32>(1e-4)), x);
}
