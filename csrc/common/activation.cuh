// Activations and their derivatives, on values of the accumulator type. One table serves every epilogue.
#pragma once
#include <cuda_runtime.h>

#include "../bops.h"

namespace bops {

// log2(e): exp(x) is 2^(log2_e x).
constexpr float log2_e = 1.4426950408889634f;

// 2^x; subnormal results are kept.
__device__ __forceinline__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 1 / x for x from 1 to 2^126, within an ulp.
__device__ __forceinline__ float reciprocal_approximate(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// exp(x), with a relative error of a few ulps plus what one ulp of x changes: no loss where x is itself rounded, as a pre-activation is.
__device__ __forceinline__ float exp_of_rounded(float x) { return exp2_approximate(x * log2_e); }
__device__ __forceinline__ double exp_of_rounded(double x) { return exp(x); }
__device__ __forceinline__ float reciprocal_from_one(float x) { return reciprocal_approximate(x); }
__device__ __forceinline__ double reciprocal_from_one(double x) { return __drcp_rn(x); }

// sigmoid(x) and sigmoid'(x), from e = exp(-|x|), which never overflows.
template <typename A> struct logistic {
    A value, slope;
    __device__ __forceinline__ explicit logistic(A x) {
        const A e = exp_of_rounded(-fabs(x)), r = reciprocal_from_one(A(1) + e);
        value = x < A(0) ? e * r : r; // of a NaN, r is NaN
        slope = e * r * r;
    }
};

// 2^x; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_flushed(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Replaces numbers from 1 to 2^62 by their reciprocals. One reciprocal serves two of them: the instruction takes as long as eight products.
template <int count> __device__ __forceinline__ void invert(float (&v)[count]) {
    if constexpr (count % 2) {
#pragma unroll
        for (int i = 0; i < count; ++i) v[i] = reciprocal_approximate(v[i]);
    } else {
#pragma unroll
        for (int i = 0; i < count; i += 2) {
            const float r = reciprocal_approximate(v[i] * v[i + 1]), first = r * v[i + 1];
            v[i + 1] = r * v[i];
            v[i] = first;
        }
    }
}

// x sigmoid(x) = x E / (1 + E), E = exp(x). E is bounded by 2^29, beyond which the quotient is 1. E and 1 are both multiplied by 2^7: where E is then
// flushed to 0, x E is below 2^-126. The bound turns a NaN into a number, so that it does not reach the number that shares its reciprocal; the last
// product makes it NaN again.
template <int count> __device__ __forceinline__ void silu(float (&x)[count]) {
    float e[count], r[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
        e[i] = exp2_flushed(fminf(fmaf(x[i], log2_e, 7.0f), 36.0f));
        r[i] = e[i] + 128.0f;
    }
    invert(r);
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] *= e[i] * r[i];
}
template <int count> __device__ __forceinline__ void silu(double (&x)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] *= logistic<double>(x[i]).value;
}

// x clamped to the bounds; a NaN stays.
__device__ __forceinline__ float between(float x, float low, float high) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(y), "f"(high));
    return y;
}

// min(|x|, bound) with the sign of x; a NaN stays.
__device__ __forceinline__ float bounded_magnitude(float x, float bound) {
    float y;
#if __CUDA_ARCH__ >= 860
    asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
#else
    y = between(x, -bound, bound);
#endif
    return y;
}

// dy silu'(x) = dy E r (1 + r x), r = 1 / (1 + E), E = exp(x). At the upper bound, where E is 2^60, the slope is 1 to the last bit. At the lower
// bound E is flushed to 0, and so is the slope. Without the bounds an infinite x would make it NaN. A NaN passes the bounds.
template <int count> __device__ __forceinline__ void multiply_silu_slope(const float (&x)[count], float (&dy)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const float t = between(x[i], -88.0f, 41.5f), e = exp2_flushed(t * log2_e), r = reciprocal_approximate(e + 1.0f);
        dy[i] *= e * r * fmaf(t, r, 1.0f);
    }
}

// What pre-activations are multiplied by where SiLU is computed in powers of two: registers then hold x * silu_unit.
constexpr float silu_unit = log2_e;

// dy silu'(x) in fewer instructions than multiply_silu_slope takes, for values that are all added up: a NaN may also make the number beside it NaN. On
// entry t is x * silu_unit; on return dy is dpre / silu_unit. The bound keeps 2^t at 2^60 or less, so that the products in `invert` stay finite.
template <int count> __device__ __forceinline__ void multiply_silu_slope_together(float (&t)[count], float (&dy)[count]) {
    float e[count], r[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
        t[i] = bounded_magnitude(t[i], 60.0f);
        e[i] = exp2_flushed(t[i]);
        r[i] = fmaf(e[i], silu_unit, silu_unit);
    }
    invert(r);
#pragma unroll
    for (int i = 0; i < count; ++i) dy[i] *= e[i] * r[i] * fmaf(t[i], r[i], 1.0f);
}
template <int count> __device__ __forceinline__ void multiply_silu_slope(const double (&x)[count], double (&dy)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const logistic<double> s(x[i]);
        dy[i] *= fma(fmin(fmax(x[i], -2000.0), 2000.0), s.slope, s.value); // of a NaN, s.value is NaN
    }
}

// Constants of GELU: sqrt(1/2), 1/sqrt(2 pi), sqrt(2/pi).
constexpr double root_half = 0.70710678118654752440, normal_density_at_zero = 0.39894228040143267794, root_two_over_pi = 0.79788456080286535588;

template <typename A> __device__ __forceinline__ A gelu_tanh_argument(A x) { // twice u, u = sqrt(2/pi) (x + 0.044715 x^3)
    return A(2 * root_two_over_pi) * fma(A(0.044715) * x * x, x, x);
}

// x clamped to where every derivative has reached its limit, since infinity times 0 would be NaN.
template <typename A> __device__ __forceinline__ A bounded(A x) { return fmin(fmax(x, A(-2000)), A(2000)); }

// R(t), where exp(-t^2 / 2) R(t) is the normal distribution function at -t, t >= 0: s times a polynomial of s = 1 / (1 + 0.3 t). The relative
// error of R is below 1.3e-8 (2 + t^2) up to t = 14.2; beyond that exp(-t^2 / 2) is flushed to 0.
__device__ __forceinline__ float normal_tail_ratio(float s) {
    float p = 0.035974901f;
    p = fmaf(p, s, -0.15793198f);
    p = fmaf(p, s, 0.20656018f);
    p = fmaf(p, s, -0.052743897f);
    p = fmaf(p, s, 0.12736678f);
    p = fmaf(p, s, 0.10051975f);
    p = fmaf(p, s, 0.12061267f);
    p = fmaf(p, s, 0.11964162f);
    return p * s;
}
// 1 / s. A NaN counts as a large number, so that it does not reach the number that shares its reciprocal.
__device__ __forceinline__ float normal_tail_divisor(float t) { return fmaf(0.3f, fminf(t, 30.0f), 1.0f); }
// exp(-x^2 / 2).
__device__ __forceinline__ float normal_exponential(float x) { return exp2_flushed(x * (-0.5f * log2_e) * x); }

// x Phi(x), Phi the normal distribution function. Where the exponential is flushed to 0, the error is below 2^-126, since t R(t) < 1/2. R has up to
// 2.4 times the relative error of s: three roundings and the error of the reciprocal. refined: a Newton step makes s exact to its last bit, for
// results that are kept as f32.
template <bool refined, int count> __device__ __forceinline__ void gelu_erf(float (&x)[count]) {
    float s[count], divisor[count];
#pragma unroll
    for (int i = 0; i < count; ++i) s[i] = divisor[i] = normal_tail_divisor(fabsf(x[i]));
    invert(s);
    if constexpr (refined) {
#pragma unroll
        for (int i = 0; i < count; ++i) s[i] = fmaf(s[i], fmaf(-divisor[i], s[i], 1.0f), s[i]);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const float tail = normal_exponential(x[i]) * normal_tail_ratio(s[i]);
        x[i] *= x[i] < 0.0f ? tail : 1.0f - tail;
    }
}
template <bool, int count> __device__ __forceinline__ void gelu_erf(double (&x)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = 0.5 * x[i] * erfc(x[i] * -root_half);
}

// dy (Phi(x) + x phi(x)), phi the normal density: Phi(-t) - t phi(t) = exp(-t^2 / 2) (R(t) - t phi(0)). Beyond the bound it is 0 or 1.
template <int count> __device__ __forceinline__ void multiply_gelu_erf_slope(const float (&x)[count], float (&dy)[count]) {
    float s[count];
#pragma unroll
    for (int i = 0; i < count; ++i) s[i] = normal_tail_divisor(fabsf(x[i]));
    invert(s);
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const float t = bounded_magnitude(fabsf(x[i]), 30.0f);
        const float tail = normal_exponential(t) * fmaf(t, float(-normal_density_at_zero), normal_tail_ratio(s[i]));
        dy[i] *= x[i] < 0.0f ? tail : 1.0f - tail;
    }
}
template <int count> __device__ __forceinline__ void multiply_gelu_erf_slope(const double (&pre)[count], double (&dy)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const double x = bounded(pre[i]);
        dy[i] *= pre[i] != pre[i] ? pre[i] : fma(x * normal_density_at_zero, exp_of_rounded(-0.5 * x * x), 0.5 * erfc(x * -root_half));
    }
}

// tanh(x) as x P(x^2) / Q(x^2), fitted to tanh(x) / x up to the bound with a relative error below 2^-19.8. Beyond the bound tanh rounds to 1 in
// either 16-bit type. P and Q are 1 at 0, so that a subnormal x keeps every bit.
__device__ __forceinline__ float tanh_for_16_bits(float x) {
    const float t = bounded_magnitude(x, 4.53125f), square = t * t;
    const float p = fmaf(fmaf(1.69891459e-3f, square, 0.117460466f), square, 1.0f);
    const float q = fmaf(fmaf(fmaf(6.88573783e-5f, square, 0.0186382921f), square, 0.450788015f), square, 1.0f);
    return p * t * reciprocal_approximate(q);
}
__device__ __forceinline__ double tanh_for_16_bits(double x) { return tanh(x); }

// Activations that loops unrolled many times may have: the others would multiply the code.
__host__ __device__ __forceinline__ bool is_unrolled(bops_activation kind) { return kind == BOPS_IDENTITY || kind == BOPS_RELU || kind == BOPS_SILU; }

// What kernels are compiled for: the identity and ReLU; SiLU alone; any activation. channel_norm_relay has SiLU in light_activation, too, if its team
// is blocks of a grid.
enum activation_form { light_activation, silu_activation, any_activation };

__host__ __forceinline__ activation_form activation_form_of(bops_activation kind) {
    return kind == BOPS_SILU ? silu_activation : is_unrolled(kind) ? light_activation : any_activation;
}

// What the results are: rounded to 16 bits; kept as f32, with no error but that of these functions; or computed from sums whose error is larger.
enum activation_results { results_of_16_bits, results_of_32_bits, results_of_sums };

// Replaces values by their activations. The kind is the same for all threads. all: it may be one that is not unrolled.
template <bool all = true, activation_results results = results_of_sums, typename A, int count>
__device__ __forceinline__ void activate(bops_activation kind, A (&v)[count]) {
    if constexpr (!all)
        if (!is_unrolled(kind)) __builtin_unreachable();
    switch (kind) {
    case BOPS_RELU:
#pragma unroll
        for (int i = 0; i < count; ++i) v[i] = v[i] <= A(0) ? A(0) : v[i]; // NaN stays
        break;
    case BOPS_GELU_ERF: gelu_erf<results == results_of_32_bits>(v); break;
    case BOPS_GELU_TANH:
#pragma unroll
        for (int i = 0; i < count; ++i) v[i] *= logistic<A>(gelu_tanh_argument(v[i])).value;
        break;
    case BOPS_SILU: silu(v); break;
    case BOPS_SIGMOID:
#pragma unroll
        for (int i = 0; i < count; ++i) v[i] = logistic<A>(v[i]).value;
        break;
    case BOPS_TANH:
#pragma unroll
        for (int i = 0; i < count; ++i) v[i] = results == results_of_16_bits ? tanh_for_16_bits(v[i]) : tanh(v[i]);
        break;
    default: break;
    }
}

// Multiplies gradients by the derivative of the activation at the pre-activations: dpre = dy act'(pre).
template <bool all = true, typename A, int count>
__device__ __forceinline__ void differentiate(bops_activation kind, const A (&pre)[count], A (&dy)[count]) {
    if constexpr (!all)
        if (!is_unrolled(kind)) __builtin_unreachable();
    switch (kind) {
    case BOPS_RELU:
#pragma unroll
        for (int i = 0; i < count; ++i) dy[i] = pre[i] <= A(0) ? A(0) : dy[i]; // a NaN of pre passes dy
        break;
    case BOPS_GELU_ERF: multiply_gelu_erf_slope(pre, dy); break;
    case BOPS_GELU_TANH:
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const A x = pre[i];
            const logistic<A> s(gelu_tanh_argument(x));
            const A inner = A(2 * root_two_over_pi) * fma(A(0.134145) * x, x, A(1)); // derivative of the argument: 0.134145 is 3 * 0.044715
            const A slope = fma(x * s.slope, inner, s.value);
            dy[i] *= fabs(x) > A(10) ? (x > A(0) ? A(1) : A(0)) : slope; // beyond 10 the slope is within 2^-117 of its limit
        }
        break;
    case BOPS_SILU: multiply_silu_slope(pre, dy); break;
    case BOPS_SIGMOID:
#pragma unroll
        for (int i = 0; i < count; ++i) dy[i] *= logistic<A>(pre[i]).slope;
        break;
    case BOPS_TANH:
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const A e = exp_of_rounded(A(-2) * fabs(pre[i])), r = reciprocal_from_one(A(1) + e);
            dy[i] *= A(4) * e * r * r;
        }
        break;
    default: break;
    }
}

} // namespace bops
