// Beyond 1 by the angle to pi / 2.
fn f_atan(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let are_large = size > vec4<f32>(1.0);
    let angle = arctangent_of_quotient(select(size, 1.0 / min(size, vec4<f32>(0x1p100f)), are_large));
    let magnitude = select(angle, 1.57079637 - angle, are_large);
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
