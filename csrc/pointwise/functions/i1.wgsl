// The modified Bessel function of the first kind and order 1 for size up to 8: a polynomial of size^2 / 4.
fn bessel_i1_near(size: vec4<f32>) -> vec4<f32> {
    let half = 0.5 * size;
    let z = half * half;
    var p = 1.4416384e-12 * z + 4.595927e-11;
    p = p * z + 5.3006537e-9;
    p = p * z + 2.7184225e-7;
    p = p * z + 1.1595928e-5;
    p = p * z + 0.00034714735;
    p = p * z + 0.006944585;
    p = p * z + 0.08333321;
    p = p * z + 0.50000006;
    p = p * z + 1.0;
    return half * p;
}

// That times e^-size, from 8 on: a polynomial of 1 / size over the root of size.
fn bessel_i1_far(size: vec4<f32>) -> vec4<f32> {
    let u = 1.0 / size;
    var p = -0.45011142 * u + 0.008971944;
    p = p * u - 0.04607429;
    p = p * u - 0.046579573;
    p = p * u - 0.14960538;
    p = p * u + 0.3989423;
    return p * inverseSqrt(size);
}

// e^x as the square of the power that is finite where the result is.
fn f_i1(x: vec4<f32>) -> vec4<f32> {
    let size = clamp(f_abs(x), vec4<f32>(), vec4<f32>(200.0));
    let root = natural_power(0.5 * size);
    let far = (root * bessel_i1_far(max(size, vec4<f32>(8.0)))) * root;
    let value = select(far, bessel_i1_near(min(size, vec4<f32>(8.0))), size < vec4<f32>(8.0));
    return unless_nan(with_signs(select(value, literal(0x7f800000u), magnitudes(x) == vec4<u32>(0x7f800000u)), x), x);
}
