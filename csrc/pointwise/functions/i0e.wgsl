// e^-|x| times the function i0: below 8 a polynomial of x^2 / 4 times the power; beyond, a polynomial of 1 / |x| over the root of |x|.
fn f_i0e(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let low = min(size, vec4<f32>(8.0));
    let z = (0.5 * low) * (0.5 * low);
    var p = 1.4222373e-13 * z + 5.2222185e-12;
    p = p * z + 6.5986133e-10;
    p = p * z + 3.886599e-8;
    p = p * z + 1.9324846e-6;
    p = p * z + 6.942965e-5;
    p = p * z + 0.0017361485;
    p = p * z + 0.027777726;
    p = p * z + 0.25000003;
    p = p * z + 1.0;
    p = p * z + 1.0;
    // Infinity is none of the numbers below.
    let high = clamp(size, vec4<f32>(8.0), vec4<f32>(0x1.fffffep+127f));
    let u = 1.0 / high;
    var q = 0.3859885 * u - 0.013217732;
    q = q * u + 0.033713907;
    q = q * u + 0.027902093;
    q = q * u + 0.049869534;
    q = q * u + 0.3989423;
    let value = select(q * inverseSqrt(high), p * natural_power(-low), size < vec4<f32>(8.0));
    return unless_nan(select(value, vec4<f32>(), magnitudes(x) == vec4<u32>(0x7f800000u)), x);
}
