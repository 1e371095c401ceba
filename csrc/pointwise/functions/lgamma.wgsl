// log(gamma(x)) for x above 0: for t from -1/2 to 1 log(gamma(2 + t)) is t times a polynomial, interpolated at Chebyshev's points, to which gamma(x + 1) = x gamma(x)
// leads from below 3/2; from 3 on it is Stirling's series. 0.418938533 is log(2 pi) / 2 - 1/2.
fn log_gamma(x: vec4<f32>) -> vec4<f32> {
    let is_low = x < vec4<f32>(0.5);
    let is_middle = x < vec4<f32>(1.5);
    let t = select(select(x - 2.0, x - 1.0, is_middle), x, is_low);
    var q = vec4<f32>(-1.7992514e-5);
    q = q * t + 8.96139e-5;
    q = q * t - 0.00023532574;
    q = q * t + 0.00052016345;
    q = q * t - 0.0011921232;
    q = q * t + 0.0028881286;
    q = q * t - 0.0073853293;
    q = q * t + 0.020581001;
    q = q * t - 0.06735232;
    q = q * t + 0.32246703;
    q = q * t + 0.42278433;
    // Of a low x also that of x + 1.
    let logarithm_of = f_log(select(x, x + x * x, is_low));
    let near = t * q - select(vec4<f32>(), logarithm_of, is_middle);
    let u = 1.0 / x;
    let w = u * u;
    let series = u * (0.0833333358 - w * (0.00277777785 - w * (0.000793650805 - w * 0.000595238095)));
    let far = (x - 0.5) * (logarithm_of - 1.0) + (0.418938533 + series);
    return select(far, near, x < vec4<f32>(3.0));
}

// Below 0 it is log(pi / |x sin(pi x)|) - log(gamma(-x)); 1.14472985 is log(pi). The sine is that of the distance to the nearest whole number.
fn f_lgamma(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let distance = f_sub(x, f_round(x));
    let sine = abs(sine_of(turned(abs(distance) * 3.14159274), 0u));
    let value = log_gamma(size);
    // Of tiny numbers, whose products with pi have fewer digits, it is that of their magnitude.
    let below = select(((1.14472985 - f_log(size)) - f_log(sine)) - value, -f_log(size), size < vec4<f32>(1e-9));
    let is_below = bitcast<vec4<u32>>(x) > vec4<u32>(0x80000000u);
    let is_pole = (is_below & (magnitudes(distance) == vec4<u32>())) | (magnitudes(x) == vec4<u32>()) | (magnitudes(x) >= vec4<u32>(0x7f800000u));
    return unless_nan(select(select(value, below, is_below), literal(0x7f800000u), is_pole), x);
}
