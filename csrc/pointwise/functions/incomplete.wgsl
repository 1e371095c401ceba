// The incomplete gamma and beta functions, as baracuda-ops/src/ops/pointwise/program/incomplete.rs has them, where the formulas are explained: 16 points, exponents
// up to 18, and an a below 8 is raised by 8. Subnormal arguments count as 0.

// (e^d - 1 - d) / d^2, of which `power` is e^d - 1.
fn incomplete_power_rest(d: vec4<f32>, power: vec4<f32>) -> vec4<f32> {
    var p = vec4<f32>(2.5052108e-08);
    p = p * d + 2.755732e-07;
    p = p * d + 2.7557319e-06;
    p = p * d + 2.4801588e-05;
    p = p * d + 0.0001984127;
    p = p * d + 0.0013888889;
    p = p * d + 0.008333334;
    p = p * d + 0.041666668;
    p = p * d + 0.16666667;
    p = p * d + 0.5;
    let is_near = abs(d) < vec4<f32>(1.0);
    let size = select(d, vec4<f32>(1.0), is_near);
    return select(((power - d) / size) / size, p, is_near);
}

// (u - log(1 + u)) / u^2 for u from -1/2 to 1/2, by the series of s = u / (2 + u).
fn incomplete_logarithm_rest(u: vec4<f32>) -> vec4<f32> {
    let r = 1.0 / (2.0 + u);
    let s = u * r;
    let w = s * s;
    var p = vec4<f32>(0.05882353);
    p = p * w + 0.06666667;
    p = p * w + 0.07692308;
    p = p * w + 0.09090909;
    p = p * w + 0.11111111;
    p = p * w + 0.14285715;
    p = p * w + 0.2;
    p = p * w + 0.33333334;
    return r * (1.0 - 2.0 * r * s * p);
}

// scale (u - log(1 + u)) of u = difference / scale, where 1 + u is `whole`.
fn incomplete_deviance(scale: vec4<f32>, difference: vec4<f32>, whole: vec4<f32>) -> vec4<f32> {
    // A scale that is less by more counts as this.
    let u = quotient(difference, max(scale, abs(difference) * 1e-37));
    let near = difference * (u * incomplete_logarithm_rest(clamp(u, vec4<f32>(-0.5), vec4<f32>(0.5))));
    let far = difference - scale * f_log(max(whole, vec4<f32>(1.17549435e-38)));
    return select(far, near, abs(u) < vec4<f32>(0.5));
}

// Stirling's correction, the logarithm of Gamma(a) e^a / (sqrt(2 pi) a^(a - 1/2)).
fn incomplete_correction(a: vec4<f32>) -> vec4<f32> {
    let u = 1.0 / a;
    let w = u * u;
    return u * (0.0833333358 - w * (0.00277777785 - w * 0.000793650805));
}

// log(a) - digamma(a).
fn incomplete_digamma_rest(a: vec4<f32>) -> vec4<f32> {
    let u = 1.0 / a;
    let w = u * u;
    return u * (0.5 + u * (0.0833333358 - w * (0.00833333377 - w * 0.0039682541)));
}

// (1 / Gamma(1 + f) - 1) / f for f from 0 to 1, interpolated at Chebyshev's points.
fn incomplete_factorial_rest(f: vec4<f32>) -> vec4<f32> {
    var p = vec4<f32>(-0.0011619306);
    p = p * f + 0.0068422477;
    p = p * f - 0.009171387;
    p = p * f - 0.042440705;
    p = p * f + 0.16660503;
    p = p * f - 0.042011265;
    p = p * f - 0.65587765;
    p = p * f + 0.5772157;
    return p;
}

// 1 / Gamma(1 + a) for a from 0 to 8.
fn incomplete_inverse_factorial(a: vec4<f32>) -> vec4<f32> {
    let whole = floor(a);
    let f = a - whole;
    var product = vec4<f32>(1.0);
    for (var k = 1.0; k < 7.5; k += 1.0) {
        product *= select(vec4<f32>(1.0), f + k, whole >= vec4<f32>(k));
    }
    return (1.0 + f * incomplete_factorial_rest(f)) / product;
}

// a^a e^-a / Gamma(a).
fn incomplete_peak(a: vec4<f32>) -> vec4<f32> {
    let low = min(a, vec4<f32>(8.0));
    let small = a * (f_pow(low, low) * natural_power(-low) * incomplete_inverse_factorial(low));
    let high = max(a, vec4<f32>(8.0));
    let large = sqrt(0.159154937 * high) * natural_power(-incomplete_correction(high));
    return select(large, small, a < vec4<f32>(8.0));
}

// The root of slope v + bend v^2 / (2 + v) = 18.
fn incomplete_reach(slope: vec4<f32>, bend: vec4<f32>) -> vec4<f32> {
    let sum = slope + bend;
    let half = (slope - 9.0) / sum;
    let last = 36.0 / sum;
    let root = sqrt(half * half + last);
    return select(root - half, last / (half + root), half > vec4<f32>());
}

// Half of the points of Gauss and Legendre between 0 and 1, and the others, which lie as far from 1.
fn incomplete_node(at: i32) -> f32 {
    var nodes = array<f32, 8>(0.0052995323, 0.027712489, 0.067184396, 0.12229779, 0.19106188, 0.27099162, 0.3591982, 0.45249376);
    return select(nodes[at >> 1u], 1.0 - nodes[at >> 1u], (at & 1) == 1);
}

// Their weights.
fn incomplete_weight(at: i32) -> f32 {
    var weights = array<f32, 8>(0.01357623, 0.031126762, 0.047579255, 0.062314484, 0.074797995, 0.08457826, 0.09130171, 0.0947253);
    return weights[at >> 1u];
}

// Numbers that are not normal as 0.
fn without_subnormal(x: vec4<f32>) -> vec4<f32> {
    return select(x, vec4<f32>(), magnitudes(x) < vec4<u32>(0x00800000u));
}

// The lower or the upper function of positive numbers below 2^60, whichever is a half or less; which of them; and the derivative of the lower one by a.
struct IncompleteGamma {
    part: vec4<f32>,
    slope: vec4<f32>,
    is_upper: vec4<bool>,
}

// As `gamma` in incomplete.rs.
fn incomplete_gamma(a: vec4<f32>, x: vec4<f32>) -> IncompleteGamma {
    let is_upper = (x >= vec4<f32>(1.0)) & (x > a);
    let is_small = a < vec4<f32>(8.0);
    let raised = select(a, rounded(a + 8.0), is_small);
    // log(x) - digamma(1 + a), of a small a by that of the raised one.
    let u = (x - raised) / raised;
    let of_quotient = select(f_log(max(quotient(x, raised), vec4<f32>(1.17549435e-38))), f_log1p(clamp(u, vec4<f32>(-0.5), vec4<f32>(0.5))), abs(u) < vec4<f32>(0.5));
    var logarithm = of_quotient + (incomplete_digamma_rest(raised) - 1.0 / raised);
    for (var k = 8.0; k > 0.5; k -= 1.0) {
        logarithm += select(vec4<f32>(), 1.0 / (a + k), is_small);
    }
    // x^a e^-x / Gamma(1 + a) is their product: the power is multiplied last, where it may be too small for a normal number. Beyond 170 it is 0 of a small a.
    let low = min(a, vec4<f32>(8.0));
    let bounded = min(x, vec4<f32>(170.0));
    let root = natural_power(-0.5 * bounded);
    let small = f_pow(bounded, low) * root * incomplete_inverse_factorial(low);
    let high = max(a, vec4<f32>(8.0));
    let large = sqrt(0.159154937 / high) * natural_power(-incomplete_correction(high));
    let is_raised = is_small & !is_upper;
    let of_all = select(natural_power(-incomplete_deviance(high, x - high, quotient(x, high))), root, is_small);
    var term = select(large, small, is_small) * select(vec4<f32>(1.0), of_all, is_raised);
    let power_of_all = select(of_all, vec4<f32>(1.0), is_raised);
    var total = vec4<f32>();
    var slope = vec4<f32>();
    for (var k = 1.0; k < 8.5; k += 1.0) {
        total += select(vec4<f32>(), term, is_raised);
        slope += select(vec4<f32>(), term * logarithm, is_raised);
        let next = a + k;
        term *= select(vec4<f32>(1.0), x / next, is_raised);
        logarithm -= select(vec4<f32>(), 1.0 / next, is_raised);
    }
    let c = select(a, raised, is_raised);
    let difference = abs(x - c);
    let sign = select(vec4<f32>(-1.0), vec4<f32>(1.0), is_upper);
    let r = 18.0 / max(x, vec4<f32>(1.0));
    let near = select(incomplete_reach(difference, x), f_log1p(r + sqrt(2.0 * r)), is_upper);
    var reach = min(near, 18.0 / max(difference, vec4<f32>(1e-30)));
    for (var step = 0; step < 2; step++) {
        let power = f_expm1(sign * reach);
        let exponent = reach * (difference + (x * reach) * incomplete_power_rest(sign * reach, power));
        reach -= (exponent - 18.0) / (difference + x * abs(power));
    }
    var integral = vec4<f32>();
    var moment = vec4<f32>();
    for (var at = 0; at < 16; at++) {
        let v = reach * incomplete_node(at);
        let d = sign * v;
        let part = incomplete_weight(at) * natural_power(-(v * (difference + (x * v) * incomplete_power_rest(d, f_expm1(d)))));
        integral += part;
        moment += v * part;
    }
    integral *= reach;
    moment *= reach;
    let change = rounded(term * ((c * logarithm + 1.0) * integral + sign * (c * moment))) * power_of_all;
    return IncompleteGamma(total + rounded(term * (c * integral)) * power_of_all, select(slope + change, -change, is_upper), is_upper);
}

// The upper function for a and x up to 1: 1 - y - y a (the sum of (-x)^n / (n! (a + n))) of y = x^a / Gamma(1 + a).
fn incomplete_upper_of_small(a: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    var term = vec4<f32>(1.0);
    var sum = vec4<f32>();
    for (var n = 1.0; n < 11.5; n += 1.0) {
        term *= -x / n;
        sum += term / (a + n);
    }
    let logarithm = a * f_log(x) + f_log1p(a * incomplete_factorial_rest(a));
    return -f_expm1(logarithm) - natural_power(logarithm) * (a * sum);
}

// The lower and the upper function, and the derivative of the lower one by a, of all numbers.
struct IncompleteGammas {
    lower: vec4<f32>,
    upper: vec4<f32>,
    slope: vec4<f32>,
}

fn incomplete_gammas(given_a: vec4<f32>, given_x: vec4<f32>) -> IncompleteGammas {
    let a = without_subnormal(given_a);
    let x = without_subnormal(given_x);
    let is_zero_a = magnitudes(a) == vec4<u32>();
    let is_zero_x = magnitudes(x) == vec4<u32>();
    let is_infinite_a = bitcast<vec4<u32>>(a) == vec4<u32>(0x7f800000u);
    let is_infinite_x = bitcast<vec4<u32>>(x) == vec4<u32>(0x7f800000u);
    let is_below = (bitcast<vec4<u32>>(a) > vec4<u32>(0x80000000u)) | (bitcast<vec4<u32>>(x) > vec4<u32>(0x80000000u));
    let is_undefined = is_below | (is_zero_a & is_zero_x) | (is_infinite_a & is_infinite_x);
    // From 2^60 on numbers next to each other are so many deviations apart that all lies on one side.
    let is_huge = (bitcast<vec4<u32>>(a) >= vec4<u32>(0x5d800000u)) | (bitcast<vec4<u32>>(x) >= vec4<u32>(0x5d800000u));
    let is_own = is_below | is_zero_a | is_zero_x | is_huge;
    let inner_a = select(a, vec4<f32>(1.0), is_own);
    let inner_x = select(x, vec4<f32>(1.0), is_own);
    let gamma = incomplete_gamma(inner_a, inner_x);
    let is_less = (inner_x < vec4<f32>(1.0)) & (inner_a <= vec4<f32>(1.0));
    let upper_of_small = incomplete_upper_of_small(min(inner_a, vec4<f32>(1.0)), min(inner_x, vec4<f32>(1.0)));
    var lower = select(gamma.part, 1.0 - gamma.part, gamma.is_upper);
    var upper = select(select(1.0 - gamma.part, gamma.part, gamma.is_upper), upper_of_small, is_less);
    let is_equal = is_huge & (bitcast<vec4<u32>>(a) == bitcast<vec4<u32>>(x));
    let is_all = is_zero_a | (is_huge & (bitcast<vec4<u32>>(a) < bitcast<vec4<u32>>(x)));
    let is_none = is_zero_x | (is_huge & !is_all);
    lower = select(select(select(lower, vec4<f32>(), is_none), vec4<f32>(1.0), is_all), vec4<f32>(0.5), is_equal);
    upper = select(select(select(upper, vec4<f32>(1.0), is_none), vec4<f32>(), is_all), vec4<f32>(0.5), is_equal);
    let root = 0.398942292 / sqrt(select(vec4<f32>(1.0), a, is_equal));
    let slope = select(select(gamma.slope, vec4<f32>(), is_none | is_all | (magnitudes(gamma.slope) == vec4<u32>())), -root, is_equal);
    let nan = literal(0x7fc00000u);
    return IncompleteGammas(unless_nan(unless_nan(select(lower, nan, is_undefined), x), a), unless_nan(unless_nan(select(upper, nan, is_undefined), x), a),
                            unless_nan(unless_nan(select(slope, nan, is_undefined | is_zero_a), x), a));
}

// The lower incomplete gamma function.
fn f_igamma(a: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    return incomplete_gammas(a, x).lower;
}

// The upper incomplete gamma function.
fn f_igammac(a: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    return incomplete_gammas(a, x).upper;
}

// The derivative of the lower one by a.
fn f_igamma_grad_a(a: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    return incomplete_gammas(a, x).slope;
}

// The exponent of what is integrated: p is the less of x and 1 - x, the sign that of the former's side.
fn incomplete_exponent(v: vec4<f32>, a: vec4<f32>, b: vec4<f32>, p: vec4<f32>, sign: vec4<f32>, distance: vec4<f32>) -> vec4<f32> {
    let d = sign * v;
    let power = f_expm1(d);
    let y = p * power;
    let q = y / v;
    let rest = incomplete_logarithm_rest(min(y, vec4<f32>(0.5)));
    let each = v * (p * incomplete_power_rest(d, power) - q * (q * rest));
    let near = v * (distance + (a * each + b * each));
    let logarithm = f_log1p(max(y, vec4<f32>(0.5)));
    return select(a * logarithm + b * (logarithm - v), near, y < vec4<f32>(0.5));
}

// As `beta` in incomplete.rs.
fn incomplete_beta(a: vec4<f32>, b: vec4<f32>, x: vec4<f32>, z: vec4<f32>, given_distance: vec4<f32>) -> vec4<f32> {
    // x^a z^b / B(a, b).
    let less = min(a, b);
    let more = max(a, b);
    let high = max(more, vec4<f32>(8.0));
    let ratio_of_large = natural_power(incomplete_correction(high + less) - incomplete_correction(high)) / sqrt(1.0 + less / high);
    let low = min(more, vec4<f32>(8.0));
    let ratio_of_small = incomplete_peak(low) / incomplete_peak(low + min(less, vec4<f32>(8.0)));
    let ratio = select(ratio_of_large, ratio_of_small, more < vec4<f32>(8.0));
    // x and z over the means; a divisor that is less by more counts as this.
    let bx = b * x;
    let az = a * z;
    let of_x = x + quotient(bx, max(a, bx * 1e-37));
    let of_z = z + quotient(az, max(b, az * 1e-37));
    let exponent_of_peak = incomplete_deviance(a, -given_distance, of_x) + incomplete_deviance(b, given_distance, of_z);
    // In this order an a that is small does not make a product that is no normal number.
    let factor = select(incomplete_peak(less) / a, incomplete_peak(max(less, vec4<f32>(1.0))) / max(a, vec4<f32>(1.0)), less >= vec4<f32>(1.0));
    let is_raised = a < vec4<f32>(8.0);
    // The power is multiplied last, where it may be too small for a normal number.
    let power_of_all = natural_power(-exponent_of_peak);
    var term = factor * ratio * select(vec4<f32>(1.0), power_of_all, is_raised);
    var total = vec4<f32>();
    for (var k = 1.0; k < 8.5; k += 1.0) {
        total += select(vec4<f32>(), term, is_raised);
        term *= select(vec4<f32>(1.0), x * ((a + (b + (k - 1.0))) / (a + k)), is_raised);
    }
    let raised = select(a, rounded(a + 8.0), is_raised);
    let distance = given_distance + select(vec4<f32>(), 8.0 * z, is_raised);
    let is_left = x <= vec4<f32>(0.5);
    let p = select(z, x, is_left);
    let sign = select(vec4<f32>(1.0), vec4<f32>(-1.0), is_left);
    let logarithm = select(f_log(z), f_log1p(-x), is_left);
    let beyond = min((18.0 - raised * logarithm - b * logarithm) / raised, vec4<f32>(80.0));
    let is_ahead = distance >= vec4<f32>();
    let bend = max(raised * x * z + b * x * z, vec4<f32>(1e-30));
    var reach = select(beyond, min(incomplete_reach(max(distance, vec4<f32>()), bend), beyond), is_ahead);
    // Of a small z the integrand ends as that of the gamma function does; with a larger one the power counts for less, so that twice the exponent is sought.
    let twice = 36.0 / bend;
    let sooner = min(f_log1p(twice + sqrt(2.0 * twice)), reach);
    reach = select(reach, sooner, incomplete_exponent(sooner, raised, b, p, sign, distance) >= vec4<f32>(18.0));
    for (var step = 0; step < 3; step++) {
        let power = natural_power(-reach);
        let slope = (raised * z - b * x * power) / (z + x * power);
        let above = incomplete_exponent(reach, raised, b, p, sign, distance) - 18.0;
        let is_beyond = (above > vec4<f32>()) & (slope > vec4<f32>());
        reach -= select(vec4<f32>(), above / select(vec4<f32>(1.0), slope, is_beyond), is_beyond);
    }
    // Of a small b the integrand is flat up to a point, where it falls.
    let flat = select(vec4<f32>(), -f_log(min(raised * z, vec4<f32>(1.0))), b < vec4<f32>(1.0));
    let pieces = min(ceil(flat * 0.166666672) + 1.0, vec4<f32>(5.0));
    let width = reach / pieces;
    var integral = vec4<f32>();
    for (var piece = 0.0; piece < 4.5; piece += 1.0) {
        let is_there = vec4<f32>(piece) < pieces;
        if (!any(is_there)) {
            break;
        }
        for (var at = 0; at < 16; at++) {
            let v = width * (piece + incomplete_node(at));
            let part = incomplete_weight(at) * natural_power(-incomplete_exponent(v, raised, b, p, sign, distance));
            integral += select(vec4<f32>(), part, is_there);
        }
    }
    return total + rounded(term * (raised * (integral * width))) * select(power_of_all, vec4<f32>(1.0), is_raised);
}

// The incomplete beta function.
fn f_betainc(given_a: vec4<f32>, given_b: vec4<f32>, given_x: vec4<f32>) -> vec4<f32> {
    let a = without_subnormal(given_a);
    let b = without_subnormal(given_b);
    let x = without_subnormal(given_x);
    let bits_of_a = bitcast<vec4<u32>>(a);
    let bits_of_b = bitcast<vec4<u32>>(b);
    let bits_of_x = bitcast<vec4<u32>>(x);
    let is_zero_a = magnitudes(a) == vec4<u32>();
    let is_zero_b = magnitudes(b) == vec4<u32>();
    let is_infinite_a = bits_of_a == vec4<u32>(0x7f800000u);
    let is_infinite_b = bits_of_b == vec4<u32>(0x7f800000u);
    let is_below = (bits_of_a > vec4<u32>(0x80000000u)) | (bits_of_b > vec4<u32>(0x80000000u)) | (bits_of_x > vec4<u32>(0x80000000u));
    let is_undefined = is_below | (magnitudes(x) > vec4<u32>(0x3f800000u)) | (is_zero_a & is_zero_b) | (is_infinite_a & is_infinite_b);
    let is_end = (magnitudes(x) == vec4<u32>()) | (bits_of_x == vec4<u32>(0x3f800000u));
    let is_all = is_zero_a | is_infinite_b;
    let is_none = is_zero_b | is_infinite_a;
    let is_own = is_undefined | is_end | is_all | is_none;
    let inner_a = select(a, vec4<f32>(1.0), is_own);
    let inner_b = select(b, vec4<f32>(1.0), is_own);
    let inner_x = select(x, vec4<f32>(0.5), is_own);
    let inner_z = rounded(1.0 - inner_x);
    let rest = rounded(1.0 - inner_z) - inner_x;
    // a (1 - x) - b x, by products without an error.
    let first = exact_product(inner_a, inner_z);
    let second = exact_product(inner_b, inner_x);
    let distance = rounded(first.high - second.high) + ((first.low - second.low) + inner_a * rest);
    // Above the mean the other side is computed, unless b is so small that this one is little all the same.
    let smallness = -inner_b * f_log(min(max(inner_a, vec4<f32>(8.0)) * inner_z, vec4<f32>(1.0)));
    let is_turned = (distance < vec4<f32>()) & !((inner_b < vec4<f32>(1.0)) & (smallness < vec4<f32>(0.7)));
    let part = incomplete_beta(select(inner_a, inner_b, is_turned), select(inner_b, inner_a, is_turned), select(inner_x, inner_z, is_turned),
                               select(inner_z, inner_x, is_turned), select(distance, -distance, is_turned));
    let value = select(part, 1.0 - part, is_turned);
    let limit = select(select(value, vec4<f32>(), is_none), vec4<f32>(1.0), is_all);
    let bounded = select(limit, f_abs(x), is_end);
    return unless_nan(unless_nan(unless_nan(select(bounded, literal(0x7fc00000u), is_undefined), x), b), a);
}
