// Beyond 1/2 by the angle to 1, of which half has the sine sqrt((1 - x) / 2).
fn f_acos(x: vec4<f32>) -> vec4<f32> {
    let half = max(0.5 * (1.0 - abs(x)), vec4<f32>());
    let to_one = 2.0 * small_arcsine(sqrt(half), half);
    let far = select(to_one, 3.14159274 - to_one, x < vec4<f32>());
    let near = 1.57079637 - small_arcsine(x, x * x);
    return nan_beyond_one(select(far, near, abs(x) < vec4<f32>(0.5)), x);
}
