// log(1 + 2 |x| / (1 - |x|)) / 2.
fn f_atanh(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let is_one = size >= vec4<f32>(1.0);
    let near = 0.5 * f_log1p((size + size) / select(1.0 - size, vec4<f32>(1.0), is_one));
    let magnitude = select(near, literal(0x7f800000u), is_one);
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return nan_beyond_one(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
