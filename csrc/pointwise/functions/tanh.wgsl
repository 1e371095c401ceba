// With e = exp(-2 |x|): (1 - e) / (1 + e). Below 0.625 that loses digits, and the polynomial of Cephes' tanhf (S. L. Moshier) takes its place.
fn f_tanh(x: vec4<f32>) -> vec4<f32> {
    let size = abs(x);
    let e = natural_power(-2.0 * size);
    let square = min(size * size, vec4<f32>(1.0));
    var p = -5.70498872745e-3 * square + 2.06390887954e-2;
    p = p * square - 5.37397155531e-2;
    p = p * square + 1.33314422036e-1;
    p = p * square - 3.33332819422e-1;
    let near = size + (p * square) * min(size, vec4<f32>(1.0));
    let magnitude = select((1.0 - e) / (1.0 + e), near, size < vec4<f32>(0.625));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
