// The Bessel functions of the first and the second kind and order 0 or 1. Up to 5 the first kind is x^order times a polynomial of t = 2 (x / 5)^2 - 1, and the second
// kind another such product, plus 2 / pi log(x) times the first kind, of order 1 less 2 / (pi x). Beyond, where the polynomials are of w = (5 / x)^2,
// sqrt(pi x) J0 = P (sin x + cos x) - Q / x (sin x - cos x), sqrt(pi x) Y0 = P (sin x - cos x) + Q / x (sin x + cos x); with those of order 1 J1 is made as Y0
// is, and Y1 as -J0. The polynomials interpolate at Chebyshev's points.
fn bessel_j0_near(t: vec4<f32>) -> vec4<f32> {
    var p = -1.5755278e-07 * t + 3.9411693e-06;
    p = p * t - 7.683397e-05;
    p = p * t + 0.0011343524;
    p = p * t - 0.012035214;
    p = p * t + 0.08539183;
    p = p * t - 0.36018077;
    p = p * t + 0.70941603;
    p = p * t - 0.21650541;
    p = p * t - 0.3847445;
    return p;
}

fn bessel_j1_near(t: vec4<f32>) -> vec4<f32> {
    var p = -8.11055e-09 * t + 2.2693501e-07;
    p = p * t - 5.0284757e-06;
    p = p * t + 8.605394e-05;
    p = p * t - 0.001088989;
    p = p * t + 0.009628171;
    p = p * t - 0.05465077;
    p = p * t + 0.17288677;
    p = p * t - 0.22701313;
    p = p * t + 0.034640867;
    return p;
}

fn bessel_y0_rest(t: vec4<f32>) -> vec4<f32> {
    var p = 2.921525e-07 * t - 7.0098317e-06;
    p = p * t + 0.00012994556;
    p = p * t - 0.0018027883;
    p = p * t + 0.017635345;
    p = p * t - 0.111516826;
    p = p * t + 0.3885164;
    p = p * t - 0.47057638;
    p = p * t - 0.4326558;
    p = p * t + 0.48372486;
    return p;
}

fn bessel_y1_rest(t: vec4<f32>) -> vec4<f32> {
    var p = 1.5320408e-08 * t - 4.1252912e-07;
    p = p * t + 8.733066e-06;
    p = p * t - 0.00014141735;
    p = p * t + 0.0016688032;
    p = p * t - 0.013433434;
    p = p * t + 0.06634695;
    p = p * t - 0.16312021;
    p = p * t + 0.09108651;
    p = p * t + 0.1397494;
    return p;
}

fn bessel_place(size: vec4<f32>) -> vec4<f32> {
    let x = min(size, vec4<f32>(5.0));
    return (x * x) * 0.08 - 1.0;
}

// 1 / x beyond 5; of numbers whose reciprocal is no normal number that of a lesser one, which counts for nothing, too.
fn bessel_reciprocal(size: vec4<f32>) -> vec4<f32> {
    return 1.0 / clamp(size, vec4<f32>(5.0), vec4<f32>(0x1p100f));
}

// What waves are made of: P and Q / x.
fn bessel_parts_of_order_0(size: vec4<f32>) -> array<vec4<f32>, 2> {
    let u = bessel_reciprocal(size);
    let w = (5.0 * u) * (5.0 * u);
    var p = 5.054497e-06 * w - 3.0330968e-05;
    p = p * w + 0.00017755553;
    p = p * w - 0.0028122861;
    p = p * w + 1.0;
    var q = -1.6311411e-05 * w + 8.458152e-05;
    q = q * w - 0.00035583123;
    q = q * w + 0.0029288474;
    q = q * w - 0.124999985;
    return array<vec4<f32>, 2>(p, u * q);
}

fn bessel_parts_of_order_1(size: vec4<f32>) -> array<vec4<f32>, 2> {
    let u = bessel_reciprocal(size);
    let w = (5.0 * u) * (5.0 * u);
    var p = -5.874797e-06 * w + 3.6194975e-05;
    p = p * w - 0.00022857972;
    p = p * w + 0.004687258;
    p = p * w + 1.0;
    var q = 1.8672852e-05 * w - 9.860659e-05;
    q = q * w + 0.00043568836;
    q = q * w - 0.004100621;
    q = q * w + 0.37499997;
    return array<vec4<f32>, 2>(p, u * q);
}

// P (sin x + cos x) - Q / x (sin x - cos x), over sqrt(pi x); of infinity 0.
fn bessel_wave_of_sum(size: vec4<f32>, parts: array<vec4<f32>, 2>) -> vec4<f32> {
    let angle = turned(size);
    let s = sine_of(angle, 0u);
    let c = sine_of(angle, 1u);
    let wave = (parts[0] * (s + c) - parts[1] * (s - c)) * (0.5641896 * inverseSqrt(max(size, vec4<f32>(5.0))));
    return select(wave, vec4<f32>(), magnitudes(size) == vec4<u32>(0x7f800000u));
}

// P (sin x - cos x) + Q / x (sin x + cos x), likewise.
fn bessel_wave_of_difference(size: vec4<f32>, parts: array<vec4<f32>, 2>) -> vec4<f32> {
    let angle = turned(size);
    let s = sine_of(angle, 0u);
    let c = sine_of(angle, 1u);
    let wave = (parts[0] * (s - c) + parts[1] * (s + c)) * (0.5641896 * inverseSqrt(max(size, vec4<f32>(5.0))));
    return select(wave, vec4<f32>(), magnitudes(size) == vec4<u32>(0x7f800000u));
}

fn f_bessel_j0(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let far = bessel_wave_of_sum(size, bessel_parts_of_order_0(size));
    return unless_nan(select(far, bessel_j0_near(bessel_place(size)), size <= vec4<f32>(5.0)), x);
}

fn f_bessel_j1(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let far = bessel_wave_of_difference(size, bessel_parts_of_order_1(size));
    let value = select(far, size * bessel_j1_near(bessel_place(size)), size <= vec4<f32>(5.0));
    return unless_nan(select(value, -value, bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u)), x);
}

// Of the second kind: of 0 -infinity, below it NaN.
fn bessel_above_zero(value: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let above = select(value, literal(0xff800000u), magnitudes(x) == vec4<u32>());
    return unless_nan(nan_if_negative(above, x), x);
}

fn f_bessel_y0(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let t = bessel_place(size);
    let near = (0.63661975 * f_log(size)) * bessel_j0_near(t) + bessel_y0_rest(t);
    let far = bessel_wave_of_difference(size, bessel_parts_of_order_0(size));
    return bessel_above_zero(select(far, near, size <= vec4<f32>(5.0)), x);
}

fn f_bessel_y1(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let t = bessel_place(size);
    let near = ((0.63661975 * f_log(size)) * (size * bessel_j1_near(t)) + size * bessel_y1_rest(t)) - f_div(vec4<f32>(0.63661975), size);
    let wave = bessel_wave_of_sum(size, bessel_parts_of_order_1(size));
    let far = select(-wave, wave, magnitudes(size) == vec4<u32>(0x7f800000u));
    return bessel_above_zero(select(far, near, size <= vec4<f32>(5.0)), x);
}
