// Near 0 an odd polynomial; beyond, 1 less the complement.
fn f_erf(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let z = min(size * size, vec4<f32>(1.0));
    var p = 8.51310251e-5 * z - 8.17563909e-4;
    p = p * z + 0.00520385895;
    p = p * z - 0.0268605091;
    p = p * z + 0.112837151;
    p = p * z - 0.376126349;
    p = p * z + 1.12837923;
    let magnitude = select(1.0 - complement(size), size * p, size < vec4<f32>(0.9));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
