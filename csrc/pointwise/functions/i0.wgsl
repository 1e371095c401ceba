// Below 8 the series of (x^2 / 4)^k / k!^2; beyond, e^x / sqrt(x) times a polynomial of 1 / x, interpolated at Chebyshev's points, e^x as the square of the
// power that is finite where the result is.
fn f_i0(x: vec4<f32>) -> vec4<f32> {
    let size = clamp(f_abs(x), vec4<f32>(), vec4<f32>(200.0));
    let half = 0.5 * min(size, vec4<f32>(8.0));
    let z = half * half;
    var series = vec4<f32>(1.0);
    for (var k = 16.0; k > 0.5; k -= 1.0) {
        series = 1.0 + series * z / (k * k);
    }
    let u = 1.0 / max(size, vec4<f32>(8.0));
    var p = 0.4230773 * u - 0.026743768;
    p = p * u + 0.03554315;
    p = p * u + 0.027790342;
    p = p * u + 0.049872488;
    p = p * u + 0.39894226;
    let root = natural_power(0.5 * size);
    let far = (root * (p * sqrt(u))) * root;
    let value = select(far, series, size < vec4<f32>(8.0));
    return unless_nan(select(value, literal(0x7f800000u), magnitudes(x) == vec4<u32>(0x7f800000u)), x);
}
