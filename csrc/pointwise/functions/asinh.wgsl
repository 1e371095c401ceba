// log(1 + (|x| + (sqrt(x^2 + 1) - 1))); of large numbers, whose square could be infinite, log(2 x), 0.693147182 being log(2).
fn f_asinh(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let bounded = min(size, vec4<f32>(4096.0));
    let z = bounded * bounded;
    let near = f_log1p(bounded + z / (1.0 + sqrt(1.0 + z)));
    let magnitude = select(f_log(size) + 0.693147182, near, size < vec4<f32>(4096.0));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
