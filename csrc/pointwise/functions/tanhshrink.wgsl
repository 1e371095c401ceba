// Near 0 an odd polynomial.
fn f_tanhshrink(x: vec4<f32>) -> vec4<f32> {
    let z = min(x * x, vec4<f32>(1.0));
    var p = -1.42823381e-4 * z + 9.23607207e-4;
    p = p * z - 0.00320695085;
    p = p * z + 0.00869794935;
    p = p * z - 0.0218295846;
    p = p * z + 0.053963419;
    p = p * z - 0.133333102;
    p = p * z + 0.333333343;
    return unless_nan(select(x - f_tanh(x), (x * p) * z, abs(x) < vec4<f32>(1.0)), x);
}
