// The incomplete gamma and beta functions, as baracuda-ops/src/ops/pointwise/program/incomplete.rs has them, where the formulas are explained. Also float is
// computed in double, with fewer points: exponents are large.
#pragma once
#include "functions.cuh"

namespace bops {

// Half of the points of Gauss and Legendre between 0 and 1, with their weights; the others lie as far from 1.
__device__ constexpr double nodes_of_double[16][2] = {
    {0.0013680690752592183, 0.003509305004735048}, {0.007194244227365833, 0.008137197365452835}, {0.017618872206246784, 0.01269603265463103},
    {0.03254696203113015, 0.017136931456510716},   {0.05183942211697394, 0.02141794901111334},   {0.07531619313371501, 0.025499029631188087},
    {0.1027581020160288, 0.029342046739267772},    {0.13390894062985517, 0.032911111388180925},  {0.1684778665348924, 0.03617289705442425},
    {0.20614212137961885, 0.039096947893535156},   {0.2465500455338853, 0.041655962113473374},   {0.2893243619346823, 0.043826046502201906},
    {0.33406569885893617, 0.045586939347881945},   {0.38035631887393145, 0.04692219954040228},   {0.42776401920860174, 0.04781936003963743},
    {0.4758461671561308, 0.0482700442573639}};
__device__ constexpr double nodes_of_float[8][2] = {{0.005299532504175033, 0.013576229705877048}, {0.02771248846338371, 0.031126761969323947},
                                                    {0.06718439880608412, 0.04757925584124639},   {0.12229779582249849, 0.06231448562776694},
                                                    {0.19106187779867811, 0.07479799440828837},   {0.2709916111713863, 0.08457825969750127},
                                                    {0.35919822461037054, 0.09130170752246179},   {0.4524937450811813, 0.09472530522753425}};

// The exponent beyond which what is integrated does not count, and the least a, to which lesser ones are raised.
template <typename A> struct incomplete {
    static constexpr bool is_double = sizeof(A) == 8;
    static constexpr double reach = is_double ? 40.0 : 18.0;
    static constexpr int raise = is_double ? 16 : 8, nodes = is_double ? 16 : 8;
    static __device__ __forceinline__ double node(int at, int which) {
        if constexpr (is_double) return nodes_of_double[at][which];
        else return nodes_of_float[at][which];
    }
};

template <typename... Factors> __device__ __forceinline__ double horner(double x, double first, Factors... factors) {
    ((first = __fma_rn(first, x, factors)), ...);
    return first;
}

// (e^d - 1 - d) / d^2.
__device__ __forceinline__ double power_rest(double d) {
    if (fabs(d) >= 1.0) return (expm1(d) - d) / (d * d);
    return horner(d, 4.110317623312165e-19, 8.22063524662433e-18, 1.5619206968586225e-16, 2.8114572543455206e-15, 4.779477332387385e-14,
                  7.647163731819816e-13, 1.1470745597729725e-11, 1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08,
                  2.755731922398589e-07, 2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
                  0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5);
}

// (u - log(1 + u)) / u^2 for u from -1/2 to 1/2, by the series of s = u / (2 + u).
__device__ __forceinline__ double logarithm_rest(double u) {
    const double r = 1.0 / (2.0 + u), s = u * r;
    const double p = horner(s * s, 1.0 / 35.0, 1.0 / 33.0, 1.0 / 31.0, 1.0 / 29.0, 1.0 / 27.0, 1.0 / 25.0, 1.0 / 23.0, 1.0 / 21.0, 1.0 / 19.0,
                            1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0);
    return r * (1.0 - 2.0 * r * s * p);
}

// The logarithm of a quotient of positive numbers, which may be beyond all numbers.
__device__ __forceinline__ double logarithm_of(double quotient) { return log(fmin(fmax(quotient, 2.2250738585072014e-308), 1.7976931348623157e308)); }

// scale (u - log(1 + u)) of u = difference / scale, where 1 + u is `quotient`.
__device__ __forceinline__ double deviance(double scale, double difference, double quotient) {
    const double u = difference / scale;
    return fabs(u) < 0.5 ? difference * (u * logarithm_rest(u)) : difference - scale * logarithm_of(quotient);
}

// Stirling's correction, the logarithm of Gamma(a) e^a / (sqrt(2 pi) a^(a - 1/2)).
__device__ __forceinline__ double correction(double a) {
    const double u = 1.0 / a;
    return u * horner(u * u, -3617.0 / 122400.0, 1.0 / 156.0, -691.0 / 360360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0);
}

// log(a) - digamma(a).
__device__ __forceinline__ double logarithm_less_digamma(double a) {
    const double u = 1.0 / a;
    return u * (0.5 +
                u * horner(u * u, -3617.0 / 8160.0, 1.0 / 12.0, -691.0 / 32760.0, 1.0 / 132.0, -1.0 / 240.0, 1.0 / 252.0, -1.0 / 120.0, 1.0 / 12.0));
}

// (1 / Gamma(1 + f) - 1) / f for f from 0 to 1, interpolated at Chebyshev's points.
__device__ __forceinline__ double inverse_factorial_rest(double f) {
    return horner(f, 1.7200070946431934e-08, -2.1896988906648608e-07, 1.1389962411508655e-06, -1.2436534652553382e-06, -2.0149457390763776e-05,
                  0.000128063513304448, -0.00021524914822683067, -0.0011651647525430678, 0.007218942511576732, -0.009621971400288845,
                  -0.042197734569778066, 0.16653861138323703, -0.042002635034127836, -0.6558780715202535, 0.5772156649015329);
}

// 1 / Gamma(1 + a) for a from 0 to 16.
__device__ __forceinline__ double inverse_factorial(double a) {
    const double whole = floor(a), f = a - whole;
    double product = 1.0;
#pragma unroll 1
    for (double k = whole; k >= 1.0; k -= 1.0) product *= f + k;
    return (1.0 + f * inverse_factorial_rest(f)) / product;
}

// The root of slope v + bend v^2 / (2 + v) = reach.
template <typename A> __device__ __forceinline__ double reach_of(double slope, double bend) {
    const double whole = slope + bend, half = (slope - 0.5 * incomplete<A>::reach) / whole, last = 2.0 * incomplete<A>::reach / whole;
    const double root = sqrt(half * half + last);
    return half > 0.0 ? last / (half + root) : root - half;
}

// P, Q, or the derivative of P by a.
template <typename A> __device__ __forceinline__ double incomplete_gamma_of(bops_function function, double a, double x) {
    using of = incomplete<A>;
    const bool is_upper_wanted = function == BOPS_FUNCTION_IGAMMAC, is_slope = function == BOPS_FUNCTION_IGAMMA_GRAD_A;
    // Where arguments are no positive finite numbers.
    if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && (x == 0.0 || is_slope)) || (a == INFINITY && x == INFINITY)) return NAN;
    if (a == 0.0 || x == 0.0 || a == INFINITY || x == INFINITY) {
        const double lower = a == 0.0 || (x == INFINITY) ? 1.0 : 0.0;
        return is_slope ? 0.0 : is_upper_wanted ? 1.0 - lower : lower;
    }
    // From here on numbers next to each other are so many deviations apart that all lies on one side.
    if (fmax(a, x) >= (of::is_double ? 0x1p120 : 0x1p60)) {
        const double part = a == x ? 0.5 : 0.0;
        return is_slope ? (a == x ? -0.39894228040143268 / sqrt(a) : 0.0) : (x > a) == is_upper_wanted ? part : 1.0 - part;
    }
    if (is_upper_wanted && x < 1.0 && a <= 1.0) {
        // 1 - y - y a (the sum of (-x)^n / (n! (a + n))) of y = x^a / Gamma(1 + a).
        double term = 1.0, total = 0.0;
#pragma unroll 1
        for (int n = 1; n <= (of::is_double ? 18 : 11); ++n) term *= -x / double(n), total += term / (a + double(n));
        const double logarithm = __fma_rn(a, log(x), log1p(a * inverse_factorial_rest(a)));
        return -expm1(logarithm) - exp(logarithm) * (a * total);
    }
    const bool is_upper = x >= 1.0 && x > a, is_small = a < double(of::raise), is_raised = is_small && !is_upper;
    const double raised = is_small ? a + double(of::raise) : a;
    // log(x) - digamma(1 + a), of a small a by that of the raised one.
    const double u = (x - raised) / raised;
    double logarithm = (fabs(u) < 0.5 ? log1p(u)
                        : x < 1e-290  ? log(x) - log(raised)
                                      : logarithm_of(x / raised)) +
                       logarithm_less_digamma(raised) - 1.0 / raised;
    // x^a e^-x / Gamma(1 + a) is their product: the power is multiplied last, where it may be too small for a number with all digits.
    double term, power;
    if (is_small) {
        // Beyond 1000 it is 0 of a small a.
        const double bounded = fmin(x, 1000.0);
        power = exp(-0.5 * bounded);
        term = pow(bounded, a) * power * inverse_factorial(a);
#pragma unroll 1
        for (int k = 1; k <= of::raise; ++k) logarithm += 1.0 / (a + double(k));
    } else {
        term = sqrt(0.15915494309189535 / a) * exp(-correction(a));
        power = exp(-deviance(a, x - a, x / a));
    }
    double total = 0.0, slope = 0.0;
    if (is_raised) {
        term *= power, power = 1.0;
#pragma unroll 1
        for (int k = 1; k <= of::raise; ++k) {
            const double next = a + double(k);
            total += term, slope += term * logarithm;
            term *= x / next, logarithm -= 1.0 / next;
        }
    }
    const double c = is_raised ? raised : a, difference = fabs(x - c), sign = is_upper ? 1.0 : -1.0;
    const auto exponent = [&](double v) { return v * (difference + x * v * power_rest(sign * v)); };
    const double r = of::reach / x;
    double reach = fmin(is_upper ? log1p(r + sqrt(2.0 * r)) : reach_of<A>(difference, x), of::reach / difference);
    // Newton's steps come from above, since the exponent is convex.
#pragma unroll 1
    for (int step = 0; step < 3; ++step) reach -= (exponent(reach) - of::reach) / (difference + x * fabs(expm1(sign * reach)));
    double integral = 0.0, moment = 0.0;
#pragma unroll 1
    for (int at = 0; at < 2 * of::nodes; ++at) {
        const double node = of::node(at >> 1, 0), v = reach * (at & 1 ? 1.0 - node : node), part = of::node(at >> 1, 1) * exp(-exponent(v));
        integral += part, moment += v * part;
    }
    integral *= reach, moment *= reach;
    if (is_slope) {
        const double change = term * ((c * logarithm + 1.0) * integral + sign * (c * moment)) * power;
        // 0 of both signs is 0.
        return (is_upper ? -change : slope + change) + 0.0;
    }
    const double part = total + term * (c * integral) * power;
    return is_upper == is_upper_wanted ? part : 1.0 - part;
}
template <typename A> __device__ __forceinline__ A incomplete_gamma(bops_function function, A a, A x) {
    return A(incomplete_gamma_of<A>(function, double(a), double(x)));
}

// sqrt(a) times the inverse of Gamma(a) e^a a^-a / sqrt(2 pi), or of a small a its product with that root.
template <typename A> __device__ __forceinline__ double peak(double a) {
    if (a < double(incomplete<A>::raise)) return a * (pow(a, a) * exp(-a) * inverse_factorial(a));
    return sqrt(0.15915494309189535 * a) * exp(-correction(a));
}

// The incomplete beta function.
template <typename A> __device__ __forceinline__ double incomplete_beta_of(double a, double b, double x) {
    using of = incomplete<A>;
    constexpr double raise = double(of::raise);
    const bool is_a_limit = a == 0.0 || a == INFINITY, is_b_limit = b == 0.0 || b == INFINITY;
    if (!(a >= 0.0 && b >= 0.0 && x >= 0.0 && x <= 1.0) || (a == b && is_a_limit)) return NAN;
    if (x == 0.0 || x == 1.0) return x;
    // All lies at 0, or at 1.
    if (is_a_limit || is_b_limit) return a == 0.0 || b == INFINITY ? 1.0 : 0.0;
    double z = 1.0 - x;
    const double rest = (1.0 - z) - x;
    // a (1 - x) - b x, by products without an error.
    const double first = __dmul_rn(a, z), second = __dmul_rn(b, x);
    double distance = (first - second) + ((__fma_rn(a, z, -first) - __fma_rn(b, x, -second)) + a * rest);
    // Above the mean the other side is computed, unless b is so small that this one is little all the same.
    const bool is_turned = distance < 0.0 && !(b < 1.0 && -b * log(fmin(fmax(a, raise) * z, 1.0)) < 0.7);
    if (is_turned) {
        const double other = a, opposite = x;
        a = b, b = other, x = z, z = opposite, distance = -distance;
    }
    // x^a z^b / B(a, b).
    const double less = fmin(a, b), more = fmax(a, b);
    const double exponent_of_peak = deviance(a, -distance, x * (1.0 + b / a)) + deviance(b, distance, z * (1.0 + a / b));
    // The power is multiplied last, where it may be too small for a number with all digits.
    double term = peak<A>(less) / a, power = exp(-exponent_of_peak);
    if (more < raise) term *= peak<A>(more) / peak<A>(a + b);
    else term *= exp(correction(a + b) - correction(more)) / sqrt(1.0 + less / more);
    double raised = a, total = 0.0;
    if (a < raise) {
        term *= power, power = 1.0;
#pragma unroll 1
        for (int k = 1; k <= of::raise; ++k) {
            total += term;
            raised = a + double(k);
            term *= x * ((a + (b + double(k - 1))) / raised);
        }
        distance += raise * z;
    }
    // The less of x and z stands in the formulas.
    const bool is_left = x <= 0.5;
    const double p = is_left ? x : z, sign = is_left ? -1.0 : 1.0;
    const auto exponent = [&](double v) {
        const double y = p * expm1(sign * v);
        if (y < 0.5) {
            const double q = y / v, each = v * (p * power_rest(sign * v) - q * (q * logarithm_rest(y)));
            return v * (distance + (raised * each + b * each));
        }
        const double logarithm = log1p(y);
        return raised * logarithm + b * (logarithm - v);
    };
    const double logarithm = is_left ? log1p(-x) : log(z), beyond = fmin((of::reach - raised * logarithm - b * logarithm) / raised, 700.0);
    const double bend = raised * x * z + b * x * z;
    double reach = distance >= 0.0 ? fmin(reach_of<A>(distance, bend), beyond) : beyond;
    // Of a small z the integrand ends as that of the gamma function does; with a larger one the power counts for less, so that twice the exponent is sought.
    const double twice = 2.0 * of::reach / bend, sooner = log1p(twice + sqrt(2.0 * twice));
    if (sooner < reach && exponent(sooner) >= of::reach) reach = sooner;
#pragma unroll 1
    for (int step = 0; step < 4; ++step) {
        const double share = exp(-reach), slope = (raised * z - b * x * share) / (z + x * share), above = exponent(reach) - of::reach;
        if (above > 0.0 && slope > 0.0) reach -= above / slope;
    }
    // Of a small b the integrand is flat up to a point, where it falls.
    const double flat = b < 1.0 ? -log(fmin(raised * z, 1.0)) : 0.0;
    const int pieces = int(fmin(ceil(flat / 8.0) + 1.0, 5.0));
    const double width = reach / double(pieces);
    double integral = 0.0;
#pragma unroll 1
    for (int at = 0; at < 2 * of::nodes * pieces; ++at) {
        const int place = at % (2 * of::nodes), piece = at / (2 * of::nodes);
        const double node = of::node(place >> 1, 0), v = width * (double(piece) + (place & 1 ? 1.0 - node : node));
        integral += of::node(place >> 1, 1) * exp(-exponent(v));
    }
    const double part = total + term * (raised * (integral * width)) * power;
    return is_turned ? 1.0 - part : part;
}
template <typename A> __device__ __forceinline__ A incomplete_beta(A a, A b, A x) {
    return A(incomplete_beta_of<A>(double(a), double(b), double(x)));
}

} // namespace bops
