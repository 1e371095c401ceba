// Exponential and special functions of programs. Where an exponent is a square or a cubic it is computed in two parts, since a power of e has the error of
// its exponent times the exponent.
#pragma once
#include "functions.cuh"
#include "incomplete.cuh"

namespace bops {

// A power of e as a product whose second factor is multiplied last: the power may be too small for a normal number where what it multiplies is not.
template <typename A> struct power {
    A value, scale;
    __device__ __forceinline__ A times(A factor) const { return product(product(factor, value), scale); }
};

// e^(high + low) for a high that is not positive. Below -150 and -1500 it counts as that, for which the power is 0.
__device__ __forceinline__ power<float> power_of(float high, float low) {
    constexpr float log2_e_rest = 1.92596303e-8f, ln_2 = 0.693147181f;
    const float bounded = fmaxf(high, -150.0f), twos = __fmul_rn(bounded, log2_e);
    const float rest = __fmaf_rn(bounded, log2_e_rest, __fmaf_rn(bounded, log2_e, -twos));
    // The sum is exact.
    const bool is_small = twos < -64.0f;
    const float value = exp2_approximate(is_small ? __fadd_rn(twos, 64.0f) : twos);
    return {__fmul_rn(value, __fadd_rn(__fmaf_rn(rest, ln_2, low), 1.0f)), is_small ? 0x1p-64f : 1.0f};
}
__device__ __forceinline__ power<double> power_of(double high, double low) {
    const double root = exp(0.5 * fmax(high, -1500.0)), refined = __fma_rn(root, 0.5 * low, root);
    return {refined, refined};
}

// x / (1 + e), or x e / (1 + e) below 0, for e = e^-|t|, where |t| is at least that of x.
template <typename A> __device__ __forceinline__ A times_sigmoid(A x, const power<A> &e) {
    const A r = reciprocal_from_one(sum(A(1), e.times(A(1))));
    return x < A(0) ? e.times(product(x, r)) : product(x, r);
}

template <typename A> __device__ __forceinline__ A silu_of(A x) { return times_sigmoid(x, power_of(-fabs(x), A(0))); }

__device__ __forceinline__ float softplus(float x) { return __fadd_rn(fmaxf(x, 0.0f), log1pf(exponential_of_opposite_magnitude(x))); }
__device__ __forceinline__ double softplus(double x) { return __dadd_rn(fmax(x, 0.0), log1p(exp(-fabs(x)))); }

// exp(z^2) erfc(z) for z from 0 to 14.2.
__device__ __forceinline__ float scaled_complement(float z) {
    const float s = reciprocal_approximate(__fmaf_rn(0.3f, z, 1.0f));
    float p = 0.0050033615f;
    p = __fmaf_rn(p, s, -0.157530904f);
    p = __fmaf_rn(p, s, 0.553697407f);
    p = __fmaf_rn(p, s, -0.606672704f);
    p = __fmaf_rn(p, s, 0.62967068f);
    p = __fmaf_rn(p, s, -0.140815765f);
    p = __fmaf_rn(p, s, 0.231776312f);
    p = __fmaf_rn(p, s, 0.144501328f);
    p = __fmaf_rn(p, s, 0.171209678f);
    p = __fmaf_rn(p, s, 0.169160575f);
    return __fmul_rn(p, s);
}
__device__ __forceinline__ double scaled_complement(double z) { return erfcx(z); }

// x times the normal distribution's integral up to x, erfc(-x / sqrt(2)) / 2. Beyond the bound it is x or 0.
template <typename A> __device__ __forceinline__ A gelu_erf_of(A x) {
    const A size = fmin(fabs(x), sizeof(A) == 8 ? A(60) : A(20));
    const A half = product(A(0.5), scaled_complement(product(size, A(root_half))));
    const A root = product(A(0.5), size), exponent = product(root, size);
    const power<A> e = power_of(-exponent, -fused(root, size, -exponent));
    return x < A(0) ? e.times(product(x, half)) : product(x, difference(A(1), e.times(half)));
}

// x times the sigmoid of t = x (a + c x^2), a = 2 sqrt(2 / pi), c = 0.044715 a.
template <typename A> __device__ __forceinline__ A gelu_tanh_of(A x) {
    constexpr bool is_double = sizeof(A) == 8;
    constexpr A a = is_double ? A(1.5957691216057308) : A(1.59576917f), a_rest = is_double ? A(-9.96930880911092e-17) : A(-4.53406805e-8f);
    constexpr A c = is_double ? A(0.07135481627260025) : A(0.0713548139f), c_rest = is_double ? A(-6.175149918155315e-19) : A(2.39883247e-9f);
    const A size = fmin(fabs(x), A(60)), square = product(size, size), square_rest = fused(size, size, -square);
    const A cubic = product(square, c), cubic_rest = sum(fused(square, c, -cubic), fused(square_rest, c, product(square, c_rest)));
    const A factor = sum(a, cubic), part = difference(factor, a), lost = sum(difference(a, difference(factor, part)), difference(cubic, part));
    const A rest = sum(lost, sum(cubic_rest, a_rest)), t = product(factor, size), t_rest = fused(size, rest, fused(factor, size, -t));
    return times_sigmoid(x, power_of(-t, -t_rest));
}

// x tanh(softplus(x)): with e = exp(x) the hyperbolic tangent is e (e + 2) / (e (e + 2) + 2).
template <typename A> __device__ __forceinline__ A mish(A x) {
    const power<A> e_of = power_of(-fabs(x), A(0));
    const A e = e_of.times(A(1)), two_more = sum(e, A(2)), twice = fused(A(2), e, A(1));
    const bool is_below = x < A(0);
    const A r = reciprocal_from_one(is_below ? fused(e, two_more, A(2)) : fused(product(A(2), e), e, twice));
    const A y = product(x, product(is_below ? two_more : twice, r));
    return is_below ? e_of.times(y) : y;
}

// y (e^x - 1) below 0.
template <typename A> __device__ __forceinline__ A elu(A x, A y) { return x > A(0) ? x : product(y, expm1(x)); }
template <typename A> __device__ __forceinline__ A selu(A x) {
    return product(x > A(0) ? x : expm1(x), x > A(0) ? A(1.0507009873554805) : A(1.7580993408473768));
}

// x above 0, else y (e^z - 1), z = x / y. Where z is near 0 it is x times (e^z - 1) / z, which needs no normal z. A positive z, which a negative y makes, may
// be large: what its rounding loses is added.
template <typename A> __device__ __forceinline__ A celu(A x, A y) {
    if (x > A(0)) return x;
    const A z = quotient(x, y);
    if (fabs(z) < A(0.3)) return z == A(0) ? x : product(x, quotient(expm1(z), z));
    if (!(z > A(0) && z < A(INFINITY))) return product(y, expm1(z));
    const A scale = fabs(x) < A(1e-20) ? A(0x1p64) : A(1), by = product(y, scale);
    // Beyond 2000 the power is infinite.
    const A lost = z < A(2000) ? quotient(fused(-z, by, product(x, scale)), by) : A(0);
    if (z < A(40)) return product(y, fused(exp(z), lost, expm1(z)));
    const A root = exp(product(A(0.5), z));
    return product(product(product(y, root), sum(A(1), lost)), root);
}

// x - tanh(x), near 0 as an odd polynomial; in double it is the series of x cosh(x) - sinh(x), whose terms are positive, over cosh(x).
__device__ __forceinline__ float tanhshrink(float x) {
    const float square = __fmul_rn(x, x);
    float p = -1.42823381e-4f;
    p = __fmaf_rn(p, square, 9.23607207e-4f);
    p = __fmaf_rn(p, square, -0.00320695085f);
    p = __fmaf_rn(p, square, 0.00869794935f);
    p = __fmaf_rn(p, square, -0.0218295846f);
    p = __fmaf_rn(p, square, 0.053963419f);
    p = __fmaf_rn(p, square, -0.133333102f);
    p = __fmaf_rn(p, square, 0.333333343f);
    return fabsf(x) < 1.0f ? __fmul_rn(__fmul_rn(x, p), square) : __fsub_rn(x, hyperbolic_tangent(x));
}
__device__ __forceinline__ double tanhshrink(double x) {
    const double square = x * x;
    if (!(fabs(x) < 1.0)) return x - tanh(x);
    double p = 20.0 / 51090942171709440000.0;
    p = __fma_rn(p, square, 18.0 / 121645100408832000.0);
    p = __fma_rn(p, square, 16.0 / 355687428096000.0);
    p = __fma_rn(p, square, 14.0 / 1307674368000.0);
    p = __fma_rn(p, square, 12.0 / 6227020800.0);
    p = __fma_rn(p, square, 10.0 / 39916800.0);
    p = __fma_rn(p, square, 8.0 / 362880.0);
    p = __fma_rn(p, square, 6.0 / 5040.0);
    p = __fma_rn(p, square, 4.0 / 120.0);
    p = __fma_rn(p, square, 2.0 / 6.0);
    return x * (p / cosh(x)) * square;
}

// log(x / (1 - x)), from 1/4 to 3/4 as the logarithm of 1 and the exact difference 2 x - 1 over 1 - x.
template <typename A> __device__ __forceinline__ A logit(A x) {
    const A rest = difference(A(1), x), beyond = difference(x, A(0.5));
    return fabs(beyond) < A(0.25) ? log1p(quotient(sum(beyond, beyond), rest)) : logarithm(quotient(x, rest));
}

// x log(y), 0 of an x of 0 unless y is NaN.
template <typename A> __device__ __forceinline__ A xlogy(A x, A y) { return x == A(0) && y == y ? A(0) : product(x, logarithm(y)); }

// sin(pi x) / (pi x), 1 near 0.
__device__ __forceinline__ float sine_of_half_turns(float x) { return sinpif(x); }
__device__ __forceinline__ double sine_of_half_turns(double x) { return sinpi(x); }
template <typename A> __device__ __forceinline__ A sinc(A x) {
    constexpr A pi = A(3.14159265358979324);
    return fabs(x) < A(1e-9) ? A(1) : quotient(sine_of_half_turns(x), product(pi, x));
}

// digamma(1.5 + t) over the distance of 1.5 + t to the root, for t from -1/2 to 1/2, interpolated at Chebyshev's points.
__device__ __forceinline__ float digamma_over_distance(float t) {
    float p = 0.010902588f;
    p = __fmaf_rn(p, t, -0.01637362f);
    p = __fmaf_rn(p, t, 0.01711499f);
    p = __fmaf_rn(p, t, -0.025786884f);
    p = __fmaf_rn(p, t, 0.04085003f);
    p = __fmaf_rn(p, t, -0.06205598f);
    p = __fmaf_rn(p, t, 0.09498469f);
    p = __fmaf_rn(p, t, -0.14839886f);
    p = __fmaf_rn(p, t, 0.24054253f);
    p = __fmaf_rn(p, t, -0.4236275f);
    p = __fmaf_rn(p, t, 0.9510559f);
    return p;
}
__device__ __forceinline__ double digamma_over_distance(double t) {
    double p = 0.00011881232908510335;
    p = __fma_rn(p, t, -0.0001782188548855923);
    p = __fma_rn(p, t, 9.653646261410062e-05);
    p = __fma_rn(p, t, -0.00014480643368061614);
    p = __fma_rn(p, t, 0.00032395945401345196);
    p = __fma_rn(p, t, -0.00048595039220036254);
    p = __fma_rn(p, t, 0.0006909255761282986);
    p = __fma_rn(p, t, -0.0010364584817312839);
    p = __fma_rn(p, t, 0.0015633696313653504);
    p = __fma_rn(p, t, -0.0023454947397380833);
    p = __fma_rn(p, t, 0.003518106563802472);
    p = __fma_rn(p, t, -0.005279937255532708);
    p = __fma_rn(p, t, 0.007927021796868154);
    p = __fma_rn(p, t, -0.011908220105959716);
    p = __fma_rn(p, t, 0.017907248317313294);
    p = __fma_rn(p, t, -0.026975796659787055);
    p = __fma_rn(p, t, 0.040760833940846085);
    p = __fma_rn(p, t, -0.06192213327548831);
    p = __fma_rn(p, t, 0.09498872445289039);
    p = __fma_rn(p, t, -0.14840492305388092);
    p = __fma_rn(p, t, 0.24054248424078697);
    p = __fma_rn(p, t, -0.4236274212814606);
    p = __fma_rn(p, t, 0.9510558760318328);
    return p;
}

// log(z) - digamma(z) - 1 / (2 z) for z from 6, and of double from 10 on, of w = 1 / z^2: the asymptotic series.
__device__ __forceinline__ float digamma_series(float w) {
    return __fmul_rn(w, __fmaf_rn(w, __fmaf_rn(w, 0.0039682541f, -0.00833333377f), 0.0833333358f));
}
__device__ __forceinline__ double digamma_series(double w) {
    double p = -3617.0 / 8160.0;
    p = __fma_rn(p, w, 1.0 / 12.0);
    p = __fma_rn(p, w, -691.0 / 32760.0);
    p = __fma_rn(p, w, 1.0 / 132.0);
    p = __fma_rn(p, w, -1.0 / 240.0);
    p = __fma_rn(p, w, 1.0 / 252.0);
    p = __fma_rn(p, w, -1.0 / 120.0);
    p = __fma_rn(p, w, 1.0 / 12.0);
    return p * w;
}

// Between 1 and 2 by the distance to the root there, which is in two parts; beyond, by digamma(x + 1) = digamma(x) + 1 / x, and far out the asymptotic series;
// below 0 by digamma(1 - x) - pi / tan(pi x).
template <typename A> __device__ __forceinline__ A digamma(A x) {
    constexpr bool is_double = sizeof(A) == 8;
    constexpr A pi = A(3.14159265358979324), far = is_double ? A(10) : A(6);
    constexpr A root = is_double ? A(1.4616321449683622) : A(1.4616321f), root_rest = is_double ? A(9.549995429965697e-17) : A(1.2438150e-8f);
    if (x == A(0)) return copysign(A(INFINITY), -x);
    A z = x, rest = A(0);
    if (x < A(0)) {
        const A distance = difference(x, rint(x));
        if (!(distance != A(0) && fabs(x) < A(INFINITY))) return A(NAN);
        const A s = sine_of_half_turns(distance), c = sine_of_half_turns(difference(A(0.5), fabs(distance)));
        rest = quotient(product(-pi, c), s), z = difference(A(1), x);
    }
    if (z < A(1)) rest = difference(rest, inverse(z)), z = sum(z, A(1));
    if (z >= far) {
        const A u = inverse(z);
        return sum(difference(logarithm(z), sum(product(A(0.5), u), digamma_series(product(u, u)))), rest);
    }
#pragma unroll 1
    while (z >= A(2)) z = difference(z, A(1)), rest = sum(rest, inverse(z));
    return sum(product(difference(difference(z, root), root_rest), digamma_over_distance(difference(z, A(1.5)))), rest);
}

// A power series, the factor of the highest power first.
template <typename A, typename... Factors> __device__ __forceinline__ A series(A x, A first, Factors... factors) {
    ((first = fused(first, x, factors)), ...);
    return first;
}

// exp(z^2) erfc(z); of float from 10 on the asymptotic series, and below 0 twice the power, whose exponent is in two parts, less the value of -z.
__device__ __forceinline__ float scaled_error_complement(float z) {
    const float size = fabsf(z), u = inverse(size), far = series(__fmul_rn(u, u), -1.875f, 0.75f, -0.5f, 1.0f);
    const float value = size < 10.0f ? scaled_complement(size) : __fmul_rn(__fmul_rn(u, 0.564189613f), far);
    if (!(z < 0.0f)) return value;
    const float square = __fmul_rn(z, z), power = exponential(square);
    // Times the exponent's rest an infinite power would be NaN.
    return power == INFINITY ? INFINITY : __fmaf_rn(2.0f, __fmaf_rn(power, __fmaf_rn(z, z, -square), power), -value);
}
__device__ __forceinline__ double scaled_error_complement(double z) { return erfcx(z); }

// The logarithm of the normal distribution's integral up to x. Below 0 it is the logarithm of e^(x^2 / 2) times the integral, less x^2 / 2, which have the same
// sign; above, that of 1 less the tail, whose exponent is in two parts.
template <typename A> __device__ __forceinline__ A log_normal_integral(A x) {
    const A size = fabs(x), half = product(A(0.5), scaled_error_complement(product(size, A(root_half))));
    if (x < A(0)) return difference(logarithm(half), product(product(A(0.5), size), size));
    // Beyond the bound the tail is 0.
    const A bounded = size < (sizeof(A) == 8 ? A(60) : A(20)) ? size : sizeof(A) == 8 ? A(60) : A(20);
    const A root = product(A(0.5), bounded), exponent = product(root, bounded);
    return log1p(-power_of(-exponent, -fused(root, bounded, -exponent)).times(half));
}

// The modified Bessel function of the first kind and order 0, times e^-|x|: in float below 8 e^-|x| times a polynomial of x^2 / 4, beyond 1 / sqrt(|x|) times one
// of 1 / |x|; in double from 30 on such a polynomial.
__device__ __forceinline__ float scaled_bessel_i0(float x) {
    const float size = fabsf(x), half = __fmul_rn(0.5f, size);
    if (size < 8.0f)
        return __fmul_rn(exponential(-size), series(__fmul_rn(half, half), 1.4222373e-13f, 5.2222185e-12f, 6.5986133e-10f, 3.886599e-8f,
                                                    1.9324846e-6f, 6.942965e-5f, 0.0017361485f, 0.027777726f, 0.25000003f, 1.0f, 1.0f));
    return __fmul_rn(inverse_root(size), series(inverse(size), 0.3859885f, -0.013217732f, 0.033713907f, 0.027902093f, 0.049869534f, 0.3989423f));
}
__device__ __forceinline__ double scaled_bessel_i0(double x) {
    const double size = fabs(x);
    if (size < 30.0) return exp(-size) * cyl_bessel_i0(size);
    return inverse_root(size) * series(inverse(size), 22.844696214456608, 1.3207708296861256, 0.7364399306898785, 0.22721422486490875,
                                       0.09062097991493251, 0.04474204894457903, 0.029219406171354045, 0.028050629088418138, 0.04986778505018146,
                                       0.3989422804014327);
}

// Of order 1, in float without its sign: what is multiplied by e^|x|, from 8 on.
__device__ __forceinline__ float bessel_i1_near(float size) {
    const float half = __fmul_rn(0.5f, size);
    return __fmul_rn(half, series(__fmul_rn(half, half), 1.4416384e-12f, 4.595927e-11f, 5.3006537e-9f, 2.7184225e-7f, 1.1595928e-5f, 0.00034714735f,
                                  0.006944585f, 0.08333321f, 0.50000006f, 1.0f));
}
__device__ __forceinline__ float bessel_i1_far(float size) {
    return __fmul_rn(inverse_root(size), series(inverse(size), -0.45011142f, 0.008971944f, -0.04607429f, -0.046579573f, -0.14960538f, 0.3989423f));
}
__device__ __forceinline__ float bessel_i1(float x) {
    const float size = fabsf(x);
    if (size < 8.0f) return copysignf(bessel_i1_near(size), x);
    // The result is infinite from 92 on. The power alone may be where the result is not.
    const float root = exponential(__fmul_rn(0.5f, size));
    return copysignf(size > 92.0f ? INFINITY : __fmul_rn(__fmul_rn(root, bessel_i1_far(size)), root), x);
}
__device__ __forceinline__ double bessel_i1(double x) { return cyl_bessel_i1(x); }
__device__ __forceinline__ float scaled_bessel_i1(float x) {
    const float size = fabsf(x);
    return copysignf(size < 8.0f ? __fmul_rn(exponential(-size), bessel_i1_near(size)) : bessel_i1_far(size), x);
}
__device__ __forceinline__ double scaled_bessel_i1(double x) {
    const double size = fabs(x);
    if (size < 30.0) return exp(-size) * cyl_bessel_i1(x);
    return copysign(inverse_root(size) * series(inverse(size), -25.294202176126536, -1.535279263732171, -0.8471182178569486, -0.26862431253116387,
                                                -0.11075675580694151, -0.05752552230780917, -0.04090716837958468, -0.04675104848200153,
                                                -0.14960335515053988, 0.3989422804014327),
                    x);
}

// The modified Bessel functions of the second kind. Up to 2 they are P(x^2) - log(x / 2) I0(x), and P(x^2) / x + log(x / 2) I1(x); beyond, e^-x / sqrt(x) times a
// polynomial of t = 4 / x - 1.
template <int order> __device__ __forceinline__ float bessel_k_rest(float square) {
    if constexpr (order == 0) return series(square, 1.2674349e-7f, 1.0163626e-5f, 0.00054529525f, 0.014418406f, 0.10569612f, -0.5772157f);
    else return series(square, -1.1067191e-8f, -1.0838968e-6f, -7.494505e-5f, -0.0028370915f, -0.042049035f, 0.038607836f, 1.0f);
}
template <int order> __device__ __forceinline__ double bessel_k_rest(double square) {
    if constexpr (order == 0)
        return series(square, 6.872355726364567e-17, 2.006205732142096e-14, 4.8433400074193386e-12, 8.819879032048583e-10, 1.1570351012598879e-07,
                      1.0214014135195387e-05, 0.0005451899602573274, 0.014418505235913402, 0.1056960837746168, -0.5772156649015329);
    else
        return series(square, -1.2137311134324605e-15, -3.1149793722107474e-13, -6.540475177592708e-11, -1.0112901471754031e-08,
                      -1.0892182678482755e-06, -7.493042904489372e-05, -0.0028371119837726022, -0.04204902094365131, 0.03860783245076608, 1.0);
}
// I0(x), and I1(x) / x.
template <int order> __device__ __forceinline__ float bessel_i_of_square(float square) {
    if constexpr (order == 0) return series(square, 7.3486795e-8f, 6.7569263e-6f, 0.00043407673f, 0.015624957f, 0.25f, 1.0f);
    else return series(square, 6.0608607e-9f, 6.7634886e-7f, 5.4257158e-5f, 0.0026041633f, 0.0625f, 0.5f);
}
template <int order> __device__ __forceinline__ double bessel_i_of_square(double square) {
    if constexpr (order == 0)
        return series(square, 3.042164446848958e-17, 9.37380848442584e-15, 2.402863503152915e-12, 4.709501249096489e-10, 6.781684054143311e-08,
                      6.781684027506039e-06, 0.00043402777777793746, 0.015624999999999953, 0.25, 1.0);
    else
        return series(square, 1.5149665412963006e-18, 5.208804475413373e-16, 1.5017808851361192e-13, 3.363929835840592e-11, 5.651403369166611e-09,
                      6.781684027644686e-07, 5.425347222223021e-05, 0.0026041666666666644, 0.0625, 0.5);
}
template <int order> __device__ __forceinline__ float bessel_k_far(float t) {
    if constexpr (order == 0)
        return series(t, 1.1279071e-6f, -2.984118e-6f, 6.59808e-6f, -2.4085892e-5f, 9.972756e-5f, -0.00047995796f, 0.0030328676f, -0.031071447f,
                      1.2185954f);
    else
        return series(t, -1.3876895e-6f, 3.6740714e-6f, -8.430939e-6f, 3.2074146e-5f, -0.00013982097f, 0.00073594716f, -0.0055666943f, 0.10334972f,
                      1.3631519f);
}
template <int order> __device__ __forceinline__ double bessel_k_far(double t) {
    if constexpr (order == 0)
        return series(t, -7.435822592958571e-11, 1.0956430863512627e-10, 2.5156100197113244e-10, -3.136108128585569e-10, -6.295036272104313e-10,
                      8.172257916585697e-10, 2.8621242327143166e-10, 4.243880829368342e-11, -2.026886222411227e-09, 3.812671327771111e-09,
                      -7.230480476076844e-09, 1.7045254889763896e-08, -4.136057595715241e-08, 1.029550995554289e-07, -2.6890139157285023e-07,
                      7.427799561585506e-07, -2.1911785716112895e-06, 7.00224566657323e-06, -2.4735204496304882e-05, 9.956054741896361e-05,
                      -0.00047976905676873116, 0.003032891810275354, -0.031071461824889488, 1.2185953385133905);
    else
        return series(t, 8.369066451856884e-11, -1.1933659362058395e-10, -2.8847361865588463e-10, 3.38786224874279e-10, 7.255619911601296e-10,
                      -8.911131711185482e-10, -3.526528255852504e-10, -8.302713208310806e-11, 2.330376835150355e-09, -4.332214566040792e-09,
                      8.319231005672594e-09, -1.9817432973868637e-08, 4.849641256164236e-08, -1.2203191198992009e-07, 3.229727337661942e-07,
                      -9.067087532131448e-07, 2.7300427016641e-06, -8.961207388977857e-06, 3.284386545264994e-05, -0.00013959021956264705,
                      0.0007357241549122077, -0.00556672988007459, 0.10334973775386519, 1.363151890371342);
}
template <int order, bool is_scaled, typename A> __device__ __forceinline__ A bessel_k(A x) {
    if (!(x > A(0))) return x == A(0) ? A(INFINITY) : A(NAN);
    if (x <= A(2)) {
        // Half of the least number is none.
        const bool is_tiny = x < A(1e-30);
        const A l = difference(logarithm(is_tiny ? x : product(A(0.5), x)), is_tiny ? A(0.693147180559945309) : A(0)), square = product(x, x);
        const A rest = bessel_k_rest<order>(square), first_kind = bessel_i_of_square<order>(square);
        const A value = order == 0 ? fused(-l, first_kind, rest) : fused(l, product(x, first_kind), quotient(rest, x));
        return is_scaled ? product(value, exponential(x)) : value;
    }
    const A value = product(inverse_root(x), bessel_k_far<order>(difference(quotient(A(4), x), A(1))));
    return is_scaled ? value : power_of(-x, A(0)).times(value);
}

// Hurwitz's zeta function: the first terms until those that follow are smooth, and the rest by Euler and Maclaurin's formula, unless it does not count. A term
// (q + k)^-s is the square of a root, which is a number where the power times q + k is, and has what the sum q + k loses.
template <typename A> __device__ __forceinline__ A zeta_root(A s, A q, A k, A &a) {
    a = sum(q, k);
    const A lost = a > sum(k, k) ? difference(k, difference(a, q)) : difference(q, difference(a, k));
    const A half = product(A(0.5), s), root = pow(a, -half);
    return root == A(0) || root == A(INFINITY) ? root : fused(-root, product(half, quotient(lost, a)), root);
}
template <typename A> __device__ __forceinline__ A zeta(A s, A q) {
    constexpr int terms = sizeof(A) == 8 ? 10 : 6, quotients = sizeof(A) == 8 ? 11 : 3;
    // Those of B(2 k) / (2 k)! from k = 1 on, negated.
    constexpr double quotient_of[] = {60.0,
                                      42.0,
                                      40.0,
                                      39.6,
                                      39.507959479015916,
                                      39.48571428571429,
                                      39.480232236660214,
                                      39.4788702213509,
                                      39.47853064403568,
                                      39.47844585161373,
                                      39.47842466476856};
    if (!(s >= A(1)) || q != q) return A(NAN);
    if (s == A(1) || !(q > A(0))) return s == A(1) || q == floor(q) ? A(INFINITY) : A(NAN);
    // A larger one makes the same of every number but 1, of which infinity would make none.
    const A most_of_s = sizeof(A) == 8 ? A(1e300) : A(1e18f);
    s = s < most_of_s ? s : most_of_s;
    A total = A(0), a;
#pragma unroll 1
    for (int k = 0; k <= terms; ++k) {
        const A root = zeta_root(s, q, A(k), a), term = product(root, root);
        if (k == terms) {
            const A u = inverse(a);
            A rest = A(1);
#pragma unroll
            for (int i = quotients; i > 0; --i) {
                const A more = sum(s, A(2 * i)), less = difference(more, A(1));
                rest = fused(product(product(less, u), product(more, u)), product(A(-1) / A(quotient_of[i - 1]), rest), A(1));
            }
            const A integral = product(quotient(product(a, root), difference(s, A(1))), root);
            return sum(total, fused(term, fused(product(s, product(A(1) / A(12), u)), rest, A(0.5)), integral));
        }
        total = sum(total, term);
        // What follows is at most a term and the integral, which of an infinite q is no number.
        const A most = product(product(root, sum(A(1), quotient(a, difference(s, A(1))))), root);
        if (!(most > product(total, sizeof(A) == 8 ? A(1e-17) : A(1e-8)))) break;
    }
    return total;
}

// log(e^x + e^y) and log2(2^x + 2^y), of equal numbers and infinities x + log(2) and x + 1.
template <typename A> __device__ __forceinline__ A logaddexp(A x, A y) {
    const A less = log1p(exponential_of_opposite_magnitude(difference(x, y)));
    return x == y ? sum(x, A(0.693147180559945309)) : sum(maximum(x, y), less);
}
template <typename A> __device__ __forceinline__ A logaddexp2(A x, A y) {
    const A less = product(log1p(exp2(-fabs(difference(x, y)))), A(1.44269504088896341));
    return x == y ? sum(x, A(1)) : sum(maximum(x, y), less);
}

// An angle as a rest within an eighth of a turn and the number of quarters of a turn, in the low bits. Large angles are products of their m digits with those
// bits of 2 / pi that count (M. H. Payne, R. N. Hanek, "Radian Reduction for Trigonometric Functions", 1983): m 2^e needs the bits from 2^(1 - e) on. The words
// of a table begin at twice the unit that the word's highest bit is.
template <typename A> struct turned {
    A rest;
    uint32_t quarters;
    __device__ __forceinline__ explicit turned(A angle);
};

// The words of a table from word `at` on. The table is no memory: each word is a constant of an instruction.
template <typename W, int count, typename Table> __device__ __forceinline__ void words_from(uint32_t at, const Table &table, W (&words)[count]) {
#pragma unroll
    for (int i = 0; i < int(sizeof(table.word) / sizeof(W)); ++i)
#pragma unroll
        for (int k = 0; k < count; ++k)
            if (at + k == i) words[k] = table.word[i];
}

struct two_over_pi_32 {
    uint32_t word[10] = {0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u};
};

template <> __device__ __forceinline__ turned<float>::turned(float x) {
    const float n = rintf(__fmul_rn(x, 0.636619747f));
    rest = __fmaf_rn(n, -5.39030253e-15f, __fmaf_rn(n, -3.13916473e-07f, __fmaf_rn(n, -1.57079601f, x)));
    quarters = uint32_t(int(n));
    if (fabsf(x) <= 105615.0f) return;
    const uint32_t bits = __float_as_uint(x), m = (bits & 0x007fffffu) | 0x00800000u, first = (bits >> 23 & 0xffu) - 88u, shift = first & 31u;
    uint32_t words[4] = {};
    words_from(first >> 5, two_over_pi_32{}, words);
#pragma unroll
    for (int k = 0; k < 3; ++k) words[k] = __funnelshift_l(words[k + 1], words[k], shift);
    // In units of 2^-62 quarters.
    const uint64_t turns = (uint64_t(m) * words[0] << 32) + uint64_t(m) * words[1] + __umulhi(m, words[2]);
    const uint64_t whole = (turns + (1ull << 61)) >> 62;
    const int64_t part = int64_t(turns - (whole << 62));
    const float magnitude = __fmul_rn(float(part) * 0x1p-62f, 1.57079637f);
    rest = x < 0.0f ? -magnitude : magnitude;
    quarters = x < 0.0f ? 0u - uint32_t(whole) : uint32_t(whole);
    if (!(fabsf(x) < INFINITY)) rest = x - x;
}

struct two_over_pi_64 {
    uint64_t word[21] = {0ull,
                         0xa2f9836e4e441529ull,
                         0xfc2757d1f534ddc0ull,
                         0xdb6295993c439041ull,
                         0xfe5163abdebbc561ull,
                         0xb7246e3a424dd2e0ull,
                         0x06492eea09d1921cull,
                         0xfe1deb1cb129a73eull,
                         0xe88235f52ebb4484ull,
                         0xe99c7026b45f7e41ull,
                         0x3991d639835339f4ull,
                         0x9c845f8bbdf9283bull,
                         0x1ff897ffde05980full,
                         0xef2f118b5a0a6d1full,
                         0x6d367ecf27cb09b7ull,
                         0x4f463f669e5fea2dull,
                         0x7527bac7ebe5f17bull,
                         0x3d0739f78a5292eaull,
                         0x6bfb5fb11f8d5d08ull,
                         0x56033046fc7b6babull,
                         0xf0cfbc209af4361dull};
};

template <> __device__ __forceinline__ turned<double>::turned(double x) {
    const double n = rint(x * 0.6366197723675814);
    rest = __fma_rn(n, 1.497384905065873e-33, __fma_rn(n, -6.123233995736766e-17, __fma_rn(n, -1.5707963267948966, x)));
    quarters = uint32_t(int64_t(n));
    if (fabs(x) <= 0x1p30) return;
    const uint64_t bits = uint64_t(__double_as_longlong(x)), m = (bits & 0x000fffffffffffffull) | 0x0010000000000000ull;
    const uint32_t first = (uint32_t(bits >> 52) & 0x7ffu) - 1013u, shift = first & 63u;
    uint64_t words[4] = {};
    words_from(first >> 6, two_over_pi_64{}, words);
#pragma unroll
    for (int k = 0; k < 3; ++k) words[k] = words[k] << shift | words[k + 1] >> 1 >> (63u - shift);
    // In units of 2^-62 quarters, and what is below them.
    const uint64_t last = __umul64hi(m, words[2]);
    uint64_t low = m * words[1] + last;
    uint64_t turns = m * words[0] + __umul64hi(m, words[1]) + (low < last ? 1 : 0);
    const uint64_t whole = (turns + (1ull << 61)) >> 62;
    turns -= whole << 62;
    const bool is_below = int64_t(turns) < 0;
    if (is_below) low = ~low + 1, turns = ~turns + (low == 0 ? 1 : 0);
    const double magnitude = __fma_rn(double(low), 0x1p-126, double(turns) * 0x1p-62) * 1.5707963267948966;
    rest = is_below != (x < 0.0) ? -magnitude : magnitude;
    quarters = x < 0.0 ? 0u - uint32_t(whole) : uint32_t(whole);
    if (!(fabs(x) < INFINITY)) rest = x - x;
}

// Of a rest; the double coefficients are those of FreeBSD's msun.
__device__ __forceinline__ float sine_of_rest(float r) {
    const float z = __fmul_rn(r, r), p = __fmaf_rn(__fmaf_rn(-1.95169763e-4f, z, 0.00833217613f), z, -0.166666552f);
    return __fmaf_rn(__fmul_rn(r, z), p, r);
}
__device__ __forceinline__ double sine_of_rest(double r) {
    const double z = r * r;
    double p = 1.58969099521155010221e-10;
    p = __fma_rn(p, z, -2.50507602534068634195e-08);
    p = __fma_rn(p, z, 2.75573137070700676789e-06);
    p = __fma_rn(p, z, -1.98412698298579493134e-04);
    p = __fma_rn(p, z, 8.33333333332248946124e-03);
    p = __fma_rn(p, z, -1.66666666666666324348e-01);
    return __fma_rn(r * z, p, r);
}
__device__ __forceinline__ float cosine_of_rest(float r) {
    const float z = __fmul_rn(r, r), p = __fmaf_rn(__fmaf_rn(2.44380881e-5f, z, -0.00138873642f), z, 0.0416666456f);
    return __fmaf_rn(__fmul_rn(z, z), p, __fmaf_rn(-0.5f, z, 1.0f));
}
__device__ __forceinline__ double cosine_of_rest(double r) {
    const double z = r * r;
    double p = -1.13596475577881948265e-11;
    p = __fma_rn(p, z, 2.08757232129817482790e-09);
    p = __fma_rn(p, z, -2.75573143513906633035e-07);
    p = __fma_rn(p, z, 2.48015872894767294178e-05);
    p = __fma_rn(p, z, -1.38888888888741095749e-03);
    p = __fma_rn(p, z, 4.16666666666666019037e-02);
    return __fma_rn(z * z, p, __fma_rn(-0.5, z, 1.0));
}

// The sine of an angle and of so many quarters of a turn more.
template <typename A> __device__ __forceinline__ A sine_of(const turned<A> &angle, uint32_t more) {
    const uint32_t quarters = angle.quarters + more;
    const A value = (quarters & 1u) != 0 ? cosine_of_rest(angle.rest) : sine_of_rest(angle.rest);
    return (quarters & 2u) != 0 ? -value : value;
}
template <typename A> __device__ __forceinline__ A sine(A x, uint32_t more) { return sine_of(turned<A>(x), more); }

template <typename A> __device__ __forceinline__ A tangent(A x) {
    const turned<A> angle(x);
    const A s = sine_of_rest(angle.rest), c = cosine_of_rest(angle.rest);
    const bool is_odd = (angle.quarters & 1u) != 0;
    return quotient(is_odd ? -c : s, is_odd ? s : c);
}

// The Bessel functions of the first and the second kind and order 0 or 1. Up to a bound b the first kind is x^order times a polynomial of t = 2 (x / b)^2 - 1, and
// the second kind another such product, plus 2 / pi log(x) times the first kind, of order 1 less 2 / (pi x). Beyond the bound, where the polynomials are of w = (b / x)^2,
// sqrt(pi x) J0 = P (sin x + cos x) - Q / x (sin x - cos x), sqrt(pi x) Y0 = P (sin x - cos x) + Q / x (sin x + cos x); with those of order 1 J1 is made as Y0
// is, and Y1 as -J0. The polynomials interpolate at Chebyshev's points.
template <int order> __device__ __forceinline__ float bessel_first_kind(float t) {
    if constexpr (order == 0)
        return series(t, -1.5755278e-07f, 3.9411693e-06f, -7.683397e-05f, 0.0011343524f, -0.012035214f, 0.08539183f, -0.36018077f, 0.70941603f,
                      -0.21650541f, -0.3847445f);
    else
        return series(t, -8.11055e-09f, 2.2693501e-07f, -5.0284757e-06f, 8.605394e-05f, -0.001088989f, 0.009628171f, -0.05465077f, 0.17288677f,
                      -0.22701313f, 0.034640867f);
}
template <int order> __device__ __forceinline__ double bessel_first_kind(double t) {
    if constexpr (order == 0)
        return series(t, -1.1382224373024272e-14, 4.0037632815796753e-13, -1.2384637259147907e-11, 3.3634475788173604e-10, -7.915407738245845e-09,
                      1.5956109104549218e-07, -2.7177491450236107e-06, 3.8473197855944365e-05, -0.00044354592247272207, 0.004058078989140991,
                      -0.028472718610869575, 0.14598884856759264, -0.507468045847102, 1.0383794611437211, -0.808088807669687, -0.6484692830871837,
                      0.9303012472958572, 0.04582966485981377);
    else
        return series(t, -3.238244035881746e-16, 1.2095547964761484e-14, -3.990810305436148e-13, 1.1610590175819576e-11, -2.943037882441676e-10,
                      6.4312687983276065e-09, -1.1967081644236783e-07, 1.8684525371950874e-06, -2.4045748660869658e-05, 0.0002494945813909099,
                      -0.002029039494570245, 0.012456814392255438, -0.054745818212847276, 0.15858376432721938, -0.2595948652859303,
                      0.15151665143806634, 0.08105866038589796, -0.05814382795599107);
}
template <int order> __device__ __forceinline__ float bessel_rest_of_second_kind(float t) {
    if constexpr (order == 0)
        return series(t, 2.921525e-07f, -7.0098317e-06f, 0.00012994556f, -0.0018027883f, 0.017635345f, -0.111516826f, 0.3885164f, -0.47057638f,
                      -0.4326558f, 0.48372486f);
    else
        return series(t, 1.5320408e-08f, -4.1252912e-07f, 8.733066e-06f, -0.00014141735f, 0.0016688032f, -0.013433434f, 0.06634695f, -0.16312021f,
                      0.09108651f, 0.1397494f);
}
template <int order> __device__ __forceinline__ double bessel_rest_of_second_kind(double t) {
    if constexpr (order == 0)
        return series(t, 2.558039436392922e-14, -8.840112096073101e-13, 2.681822137847736e-11, -7.13046146536789e-10, 1.6391065268260488e-08,
                      -3.2185078445935923e-07, 5.321318633735116e-06, -7.279541882454115e-05, 0.0008061586060550644, -0.00702574105727097,
                      0.0463670476813471, -0.21895747096171628, 0.6721770783431723, -1.0775477338215995, 0.14412632369302442, 1.6470964788745466,
                      -0.8284358903604587, -0.382250654459425);
    else
        return series(t, 7.339060975161991e-16, -2.695138958384033e-14, 8.728810134833414e-13, -2.4887509903377128e-11, 6.169742613332968e-10,
                      -1.3153322551127247e-08, 2.380492991366028e-07, -3.600999874357815e-06, 4.467433012914413e-05, -0.00044381734351149876,
                      0.0034224907399180455, -0.019628756833099423, 0.07854786922242545, -0.19639839859930425, 0.23507209206669755,
                      0.023367571720993584, -0.24337743079193114, 0.07075985882118005);
}
template <int order> __device__ __forceinline__ float bessel_p(float w) {
    if constexpr (order == 0) return series(w, 5.054497e-06f, -3.0330968e-05f, 0.00017755553f, -0.0028122861f, 1.0f);
    else return series(w, -5.874797e-06f, 3.6194975e-05f, -0.00022857972f, 0.004687258f, 1.0f);
}
template <int order> __device__ __forceinline__ double bessel_p(double w) {
    if constexpr (order == 0)
        return series(w, 1.3678396453154035e-10, -1.0306604474712212e-09, 3.6629024015069136e-09, -8.4245531125012e-09, 1.495392574597224e-08,
                      -2.4254959952447294e-08, 4.34227969135307e-08, -1.0230311671096991e-07, 3.6201997728057504e-07, -2.1839178876551594e-06,
                      2.7380883620060993e-05, -0.0010986328124987458, 1.0);
    else
        return series(w, -1.4522620914321922e-10, 1.0950749104743827e-09, -3.8963577460319895e-09, 8.979116578314727e-09, -1.5993920591911708e-08,
                      2.6103445624454773e-08, -4.722297272919564e-08, 1.130795637698509e-07, -4.102909207541017e-07, 2.5809940810959866e-06,
                      -3.5203993242596556e-05, 0.0018310546874986734, 1.0);
}
template <int order> __device__ __forceinline__ float bessel_q(float w) {
    if constexpr (order == 0) return series(w, -1.6311411e-05f, 8.458152e-05f, -0.00035583123f, 0.0029288474f, -0.124999985f);
    else return series(w, 1.8672852e-05f, -9.860659e-05f, 0.00043568836f, -0.004100621f, 0.37499997f);
}
template <int order> __device__ __forceinline__ double bessel_q(double w) {
    if constexpr (order == 0)
        return series(w, -1.1197828811668338e-09, 8.339733534547357e-09, -2.9110775874968414e-08, 6.502403693851616e-08, -1.0985878716906747e-07,
                      1.640579309574048e-07, -2.585882732179399e-07, 5.120585607378564e-07, -1.4530054920317029e-06, 6.590742238380881e-06,
                      -5.544628883309542e-05, 0.001144409179676519, -0.12499999999999997);
    else
        return series(w, 1.186240136444061e-09, -8.84031788143702e-09, 3.0888877718539826e-08, -6.910996328591616e-08, 1.1710006174306677e-07,
                      -1.757704328152363e-07, 2.7945967699968563e-07, -5.608835189364566e-07, 1.6239590609539598e-06, -7.6047040761374525e-06,
                      6.776768645941704e-05, -0.0016021728515509086, 0.37499999999999994);
}
template <int order, bool is_second, typename A> __device__ __forceinline__ A bessel_up_to_bound(A size, A bound) {
    constexpr A two_over_pi = A(0.636619772367581343);
    const A t = fused(product(size, size), quotient(A(2), product(bound, bound)), A(-1)), factor = order == 0 ? A(1) : size;
    const A first = product(factor, bessel_first_kind<order>(t));
    if (!is_second) return first;
    const A value = fused(product(two_over_pi, logarithm(size)), first, product(factor, bessel_rest_of_second_kind<order>(t)));
    return order == 0 ? value : difference(value, quotient(two_over_pi, size));
}
template <int order, bool is_second, typename A> __device__ __forceinline__ A bessel(A x) {
    constexpr A bound = sizeof(A) == 8 ? A(8) : A(5);
    const A size = fabs(x);
    A value;
    if (size <= bound) {
        value = bessel_up_to_bound<order, is_second>(size, bound);
    } else {
        const A u = inverse(size), ratio = product(bound, u), w = product(ratio, ratio), p = bessel_p<order>(w), q = product(u, bessel_q<order>(w));
        const turned<A> angle(size);
        const A s = sine_of(angle, 0), c = sine_of(angle, 1), both = sum(s, c), less = difference(s, c);
        constexpr bool is_of_sum = is_second == (order == 1);
        const A wave = is_of_sum ? fused(p, both, -product(q, less)) : fused(p, less, product(q, both));
        value = product(product(is_second && order == 1 ? -wave : wave, A(0.564189583547756287)), inverse_root(size));
        if (size == A(INFINITY)) value = A(0);
    }
    if (is_second) return x > A(0) || x != x ? value : x == A(0) ? A(-INFINITY) : A(NAN);
    return order == 1 ? product(value, copysign(A(1), x)) : value;
}

// r = function(x, y), as `apply` for functions of the cost `special` or `series`, which have kernels of their own since they take more registers. `at_once`: elements whose arithmetic is in flight together, for which the code of all functions is
// there once; the other elements follow in a loop, in which registers are moved along.
template <int arguments, int at_once, int cost = BOPS_COST_SPECIAL, typename A, int count>
__device__ __forceinline__ void apply_special(bops_function function, const A (&x)[count], const A (&y)[count], A (&r)[count]) {
    A second[count];
#pragma unroll
    for (int i = 0; i < count; ++i) r[i] = x[i], second[i] = arguments == 2 ? y[i] : A(0);
#pragma unroll 1
    for (int done = 0; done < count; done += at_once) {
        A part[at_once];
        const auto each = [&](const auto &f) {
#pragma unroll
            for (int i = 0; i < at_once; ++i) part[i] = f(r[i], second[i]);
        };
        if constexpr (cost == BOPS_COST_SERIES) {
            each([](A s, A q) { return zeta(s, q); });
        } else if constexpr (arguments == 1) {
            switch (function) {
            case BOPS_FUNCTION_SILU: each([](A x, A) { return silu_of(x); }); break;
            case BOPS_FUNCTION_SOFTPLUS: each([](A x, A) { return softplus(x); }); break;
            case BOPS_FUNCTION_LOG_SIGMOID: each([](A x, A) { return -softplus(-x); }); break;
            case BOPS_FUNCTION_GELU_ERF: each([](A x, A) { return gelu_erf_of(x); }); break;
            case BOPS_FUNCTION_GELU_TANH: each([](A x, A) { return gelu_tanh_of(x); }); break;
            case BOPS_FUNCTION_ERF: each([](A x, A) { return erf(x); }); break;
            case BOPS_FUNCTION_ERFC: each([](A x, A) { return erfc(x); }); break;
            case BOPS_FUNCTION_MISH: each([](A x, A) { return mish(x); }); break;
            case BOPS_FUNCTION_SELU: each([](A x, A) { return selu(x); }); break;
            case BOPS_FUNCTION_EXPM1: each([](A x, A) { return expm1(x); }); break;
            case BOPS_FUNCTION_LOG1P: each([](A x, A) { return log1p(x); }); break;
            case BOPS_FUNCTION_EXP2: each([](A x, A) { return exp2(x); }); break;
            case BOPS_FUNCTION_LOG2: each([](A x, A) { return log2(x); }); break;
            case BOPS_FUNCTION_LOG10: each([](A x, A) { return log10(x); }); break;
            case BOPS_FUNCTION_SIN: each([](A x, A) { return sine(x, 0); }); break;
            case BOPS_FUNCTION_COS: each([](A x, A) { return sine(x, 1); }); break;
            case BOPS_FUNCTION_TAN: each([](A x, A) { return tangent(x); }); break;
            case BOPS_FUNCTION_TANHSHRINK: each([](A x, A) { return tanhshrink(x); }); break;
            case BOPS_FUNCTION_ASIN: each([](A x, A) { return asin(x); }); break;
            case BOPS_FUNCTION_ACOS: each([](A x, A) { return acos(x); }); break;
            case BOPS_FUNCTION_ATAN: each([](A x, A) { return atan(x); }); break;
            case BOPS_FUNCTION_SINH: each([](A x, A) { return sinh(x); }); break;
            case BOPS_FUNCTION_COSH: each([](A x, A) { return cosh(x); }); break;
            case BOPS_FUNCTION_ASINH: each([](A x, A) { return asinh(x); }); break;
            case BOPS_FUNCTION_ACOSH: each([](A x, A) { return acosh(x); }); break;
            case BOPS_FUNCTION_ATANH: each([](A x, A) { return atanh(x); }); break;
            case BOPS_FUNCTION_SINC: each([](A x, A) { return sinc(x); }); break;
            case BOPS_FUNCTION_LGAMMA: each([](A x, A) { return lgamma(x); }); break;
            case BOPS_FUNCTION_DIGAMMA: each([](A x, A) { return digamma(x); }); break;
            case BOPS_FUNCTION_ERFINV: each([](A x, A) { return erfinv(x); }); break;
            case BOPS_FUNCTION_NDTRI: each([](A x, A) { return normcdfinv(x); }); break;
            case BOPS_FUNCTION_LOG_NDTR: each([](A x, A) { return log_normal_integral(x); }); break;
            case BOPS_FUNCTION_ERFCX: each([](A x, A) { return scaled_error_complement(x); }); break;
            case BOPS_FUNCTION_BESSEL_J0: each([](A x, A) { return bessel<0, false>(x); }); break;
            case BOPS_FUNCTION_BESSEL_J1: each([](A x, A) { return bessel<1, false>(x); }); break;
            case BOPS_FUNCTION_BESSEL_Y0: each([](A x, A) { return bessel<0, true>(x); }); break;
            case BOPS_FUNCTION_BESSEL_Y1: each([](A x, A) { return bessel<1, true>(x); }); break;
            case BOPS_FUNCTION_I0: each([](A x, A) { return cyl_bessel_i0(x); }); break;
            case BOPS_FUNCTION_I0E: each([](A x, A) { return scaled_bessel_i0(x); }); break;
            case BOPS_FUNCTION_I1: each([](A x, A) { return bessel_i1(x); }); break;
            case BOPS_FUNCTION_I1E: each([](A x, A) { return scaled_bessel_i1(x); }); break;
            case BOPS_FUNCTION_MODIFIED_BESSEL_K0: each([](A x, A) { return bessel_k<0, false>(x); }); break;
            case BOPS_FUNCTION_MODIFIED_BESSEL_K1: each([](A x, A) { return bessel_k<1, false>(x); }); break;
            case BOPS_FUNCTION_SCALED_MODIFIED_BESSEL_K0: each([](A x, A) { return bessel_k<0, true>(x); }); break;
            case BOPS_FUNCTION_SCALED_MODIFIED_BESSEL_K1: each([](A x, A) { return bessel_k<1, true>(x); }); break;
            default: each([](A x, A) { return logit(x); }); break;
            }
        } else {
            switch (function) {
            case BOPS_FUNCTION_ELU: each([](A x, A y) { return elu(x, y); }); break;
            case BOPS_FUNCTION_CELU: each([](A x, A y) { return celu(x, y); }); break;
            case BOPS_FUNCTION_POW: each([](A x, A y) { return pow(x, y); }); break;
            case BOPS_FUNCTION_XLOGY: each([](A x, A y) { return xlogy(x, y); }); break;
            case BOPS_FUNCTION_LOGADDEXP: each([](A x, A y) { return logaddexp(x, y); }); break;
            case BOPS_FUNCTION_LOGADDEXP2: each([](A x, A y) { return logaddexp2(x, y); }); break;
            default: each([](A x, A y) { return atan2(x, y); }); break;
            }
        }
        // The next elements come to the front, and results to the end.
#pragma unroll
        for (int i = 0; i + at_once < count; ++i) r[i] = r[i + at_once], second[i] = second[i + at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) r[count - at_once + i] = part[i];
    }
}

// r = function(x, y, z) of the cost `integral`, whose functions only interpreters have that compute elements one by one.
template <int arguments, typename A> __device__ __forceinline__ A integral_of(bops_function function, A x, A y, A z) {
    if constexpr (arguments == 3) return incomplete_beta(x, y, z);
    else return incomplete_gamma(function, x, y);
}

} // namespace bops
