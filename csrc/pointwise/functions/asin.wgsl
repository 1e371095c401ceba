// Beyond 1/2 by the angle to 1, of which half has the sine sqrt((1 - x) / 2).
fn f_asin(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let half = max(0.5 * (1.0 - size), vec4<f32>());
    let far = 1.57079637 - 2.0 * small_arcsine(sqrt(half), half);
    let magnitude = select(far, small_arcsine(size, size * size), size < vec4<f32>(0.5));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return nan_beyond_one(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
