// The logarithm of half a number; half of a small one is no normal number.
fn log_of_half(x: vec4<f32>) -> vec4<f32> {
    let is_tiny = x < vec4<f32>(1e-30);
    return f_log(select(0.5 * x, x, is_tiny)) - select(vec4<f32>(), vec4<f32>(0.693147182), is_tiny);
}

// The modified Bessel function of the second kind and order 0 up to 2: P(x^2) - log(x / 2) I0(x).
fn bessel_k0_near(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    var p = 1.2674349e-7 * z + 1.0163626e-5;
    p = p * z + 0.00054529525;
    p = p * z + 0.014418406;
    p = p * z + 0.10569612;
    p = p * z - 0.5772157;
    var q = 7.3486795e-8 * z + 6.7569263e-6;
    q = q * z + 0.00043407673;
    q = q * z + 0.015624957;
    q = q * z + 0.25;
    q = q * z + 1.0;
    return p - log_of_half(x) * q;
}

// That times e^x, from 2 on: a polynomial of 4 / x - 1 over the root of x.
fn bessel_k0_far(x: vec4<f32>) -> vec4<f32> {
    let t = 4.0 / x - 1.0;
    var p = 1.1279071e-6 * t - 2.984118e-6;
    p = p * t + 6.59808e-6;
    p = p * t - 2.4085892e-5;
    p = p * t + 9.972756e-5;
    p = p * t - 0.00047995796;
    p = p * t + 0.0030328676;
    p = p * t - 0.031071447;
    p = p * t + 1.2185954;
    return p * inverseSqrt(x);
}

// Of order 1: P(x^2) / x + log(x / 2) I1(x).
fn bessel_k1_near(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    var p = -1.1067191e-8 * z - 1.0838968e-6;
    p = p * z - 7.494505e-5;
    p = p * z - 0.0028370915;
    p = p * z - 0.042049035;
    p = p * z + 0.038607836;
    p = p * z + 1.0;
    var q = 6.0608607e-9 * z + 6.7634886e-7;
    q = q * z + 5.4257158e-5;
    q = q * z + 0.0026041633;
    q = q * z + 0.0625;
    q = q * z + 0.5;
    return f_div(p, x) + log_of_half(x) * (x * q);
}

fn bessel_k1_far(x: vec4<f32>) -> vec4<f32> {
    let t = 4.0 / x - 1.0;
    var p = -1.3876895e-6 * t + 3.6740714e-6;
    p = p * t - 8.430939e-6;
    p = p * t + 3.2074146e-5;
    p = p * t - 0.00013982097;
    p = p * t + 0.00073594716;
    p = p * t - 0.0055666943;
    p = p * t + 0.10334972;
    p = p * t + 1.3631519;
    return p * inverseSqrt(x);
}

// Infinity of 0, and NaN of NaN and of numbers below 0.
fn with_special_bessel_k(values: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let is_infinite = bitcast<vec4<u32>>(x) == vec4<u32>(0x7f800000u);
    let bounded = select(values, vec4<f32>(), is_infinite);
    return nan_if_negative(select(bounded, literal(0x7f800000u), magnitudes(x) == vec4<u32>()), x);
}

// Of values up to 2, and of those times e^x from 2 on.
fn bessel_k_of(near: vec4<f32>, far: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let power = power_of_sum(-clamp(x, vec4<f32>(), vec4<f32>(150.0)), vec4<f32>());
    return with_special_bessel_k(select(times_power(far, power), near, x <= vec4<f32>(2.0)), x);
}

fn scaled_bessel_k_of(near: vec4<f32>, far: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let power = natural_power(clamp(x, vec4<f32>(), vec4<f32>(2.0)));
    return with_special_bessel_k(select(far, near * power, x <= vec4<f32>(2.0)), x);
}
