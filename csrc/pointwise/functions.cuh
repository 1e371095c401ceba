// The functions of programs: one formula for each, in float and in double. Products and sums are named by their rounding, which keeps the compiler from
// joining them: a program has the same bits in every kernel.
#pragma once
#include "../bops_pointwise.h"
#include "../common/activation.cuh"
#include "integers.cuh"

namespace bops {

// 1 / sqrt(x) within 2 ulp, of normal numbers.
__device__ __forceinline__ float inverse_root_approximate(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sqrt(x), correctly rounded and without branches: a Newton step from the product of x and its inverse root, for which small numbers are scaled.
__device__ __forceinline__ float root(float x) {
    const bool is_small = x < 0x1p-100f;
    const float scaled = is_small ? __fmul_rn(x, 0x1p64f) : x, inverse = inverse_root_approximate(scaled), near = __fmul_rn(scaled, inverse);
    const float refined = __fmaf_rn(__fmaf_rn(-near, near, scaled), __fmul_rn(0.5f, inverse), near);
    const float y = is_small ? __fmul_rn(refined, 0x1p-32f) : refined;
    return x == 0.0f || x == INFINITY ? x : y;
}
__device__ __forceinline__ double root(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ float sum(float x, float y) { return __fadd_rn(x, y); }
__device__ __forceinline__ double sum(double x, double y) { return __dadd_rn(x, y); }
__device__ __forceinline__ float difference(float x, float y) { return __fsub_rn(x, y); }
__device__ __forceinline__ double difference(double x, double y) { return __dsub_rn(x, y); }
__device__ __forceinline__ float product(float x, float y) { return __fmul_rn(x, y); }
__device__ __forceinline__ double product(double x, double y) { return __dmul_rn(x, y); }
__device__ __forceinline__ float quotient(float x, float y) { return __fdiv_rn(x, y); }
__device__ __forceinline__ double quotient(double x, double y) { return __ddiv_rn(x, y); }

// exp(x) within 4 ulp, for x from -104, below which it is 0, to 89, above which it is infinite: 2^t for the rounded product t of x and log2(e), times 2^r
// for the rest r of the product, which is 1 + r ln(2). Subnormal results are kept.
__device__ __forceinline__ float exponential_between(float bounded) {
    constexpr float log2_e_rest = 1.92596303e-8f; // log2(e) is log2_e + log2_e_rest
    constexpr float ln_2 = 0.693147181f;
    const float power = __fmul_rn(bounded, log2_e);
    const float rest = __fmaf_rn(bounded, log2_e_rest, __fmaf_rn(bounded, log2_e, -power));
    return __fmul_rn(exp2_approximate(power), __fmaf_rn(rest, ln_2, 1.0f));
}
__device__ __forceinline__ float exponential(float x) { return exponential_between(between(x, -104.0f, 89.0f)); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// exp(-|x|).
__device__ __forceinline__ float exponential_of_opposite_magnitude(float x) {
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(-fabsf(x)), "f"(-104.0f));
    return exponential_between(bounded);
}
__device__ __forceinline__ double exponential_of_opposite_magnitude(double x) { return exp(-fabs(x)); }

// 1 / (1 + exp(-x)), from exp(-|x|), which never overflows: where the result is small it is exp(x) with its relative error. Of a NaN, r is NaN.
template <typename A> __device__ __forceinline__ A sigmoid(A x) {
    const A e = exponential_of_opposite_magnitude(x), r = reciprocal_from_one(sum(A(1), e));
    return x < A(0) ? product(e, r) : r;
}

// log2(x): infinite or NaN where it must be; of other numbers within 2 ulp, unless they are near 1.
__device__ __forceinline__ float log2_approximate(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// log(x). A positive normal number is 2^k m with m from 2/3 to 4/3; with f = m - 1 its logarithm is k ln(2) + f + f^2 P(f), P fitted so that the error of
// f + f^2 P(f) is at most 3.3 2^-24 of it. Others, of which the logarithm is infinite, NaN or below -87, are left to the approximation.
__device__ __forceinline__ float logarithm(float x) {
    constexpr float ln_2 = 0.693147181f;
    constexpr uint32_t least_normal = 0x00800000, normal_numbers = 0x7f000000;
    const int bits = __float_as_int(x), power = (bits - 0x3f2aaaab) & 0xff800000; // k 2^23
    const float f = __fadd_rn(__int_as_float(bits - power), -1.0f);
    float p = -0.152668118f;
    p = __fmaf_rn(p, f, 0.169905528f);
    p = __fmaf_rn(p, f, -0.164408118f);
    p = __fmaf_rn(p, f, 0.198181704f);
    p = __fmaf_rn(p, f, -0.250063241f);
    p = __fmaf_rn(p, f, 0.333367348f);
    p = __fmaf_rn(p, f, -0.499999613f);
    const float y = __fmaf_rn(float(power), ln_2 * 0x1p-23f, __fmaf_rn(p, __fmul_rn(f, f), f));
    return uint32_t(bits) - least_normal < normal_numbers ? y : __fmul_rn(log2_approximate(x), ln_2);
}
__device__ __forceinline__ double logarithm(double x) { return log(x); }

// tanh(x): 1 - 2 / (1 + exp(2 |x|)) with the sign of x; below the bound, where the difference would lose bits, x + x^3 Q(x^2) with a relative error of
// 0.7 2^-24, which keeps every bit of a subnormal x.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
    const float magnitude = fabsf(x), r = reciprocal_approximate(__fadd_rn(exp2_flushed(__fmul_rn(magnitude, 2.0f * log2_e)), 1.0f));
    const float large = __fmaf_rn(-2.0f, r, 1.0f), square = __fmul_rn(x, x);
    float q = 0.0164375808f;
    q = __fmaf_rn(q, square, -0.0526718125f);
    q = __fmaf_rn(q, square, 0.133207247f);
    q = __fmaf_rn(q, square, -0.333329469f);
    const float small = __fmaf_rn(__fmul_rn(q, square), x, x);
    return copysignf(magnitude < 0.55f ? small : large, x); // the sum would make 0 of -0
}
__device__ __forceinline__ double hyperbolic_tangent(double x) { return tanh(x); }

// Whether the sign bit is set.
__device__ __forceinline__ bool has_sign(float x) { return __float_as_int(x) < 0; }
__device__ __forceinline__ bool has_sign(double x) { return __double2hiint(x) < 0; }

// r = y where the condition x is true, else z. r may be x.
template <typename A, int count>
__device__ __forceinline__ void select(const A (&x)[count], const A (&y)[count], const A (&z)[count], A (&r)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) r[i] = x[i] != A(0) ? y[i] : z[i];
}

// r = function(x, y). The function is the same for all threads; y counts where it has two arguments. r may be x.
template <int arguments, typename A, int count>
__device__ __forceinline__ void apply(bops_function function, const A (&x)[count], const A (&y)[count], A (&r)[count]) {
    const auto each = [&](const auto &f) {
#pragma unroll
        for (int i = 0; i < count; ++i) r[i] = f(x[i], y[i]);
    };
    if constexpr (std::is_integral_v<A>) {
        apply_to_integers<arguments>(function, x, y, r);
    } else if constexpr (arguments == 1) {
        switch (function) {
        case BOPS_FUNCTION_NEG: each([](A x, A) { return -x; }); break;
        case BOPS_FUNCTION_ISNAN: each([](A x, A) { return A(isnan(x)); }); break;
        case BOPS_FUNCTION_ISINF: each([](A x, A) { return A(isinf(x) != 0); }); break;
        case BOPS_FUNCTION_ISFINITE: each([](A x, A) { return A(isfinite(x) != 0); }); break;
        case BOPS_FUNCTION_SIGNBIT: each([](A x, A) { return A(has_sign(x)); }); break;
        case BOPS_FUNCTION_LOGICAL_NOT: each([](A x, A) { return A(x == A(0)); }); break;
        case BOPS_FUNCTION_SQRT: each([](A x, A) { return root(x); }); break;
        case BOPS_FUNCTION_EXP: each([](A x, A) { return exponential(x); }); break;
        case BOPS_FUNCTION_LOG: each([](A x, A) { return logarithm(x); }); break;
        case BOPS_FUNCTION_SIGMOID: each([](A x, A) { return sigmoid(x); }); break;
        default: each([](A x, A) { return hyperbolic_tangent(x); }); break;
        }
    } else {
        switch (function) {
        case BOPS_FUNCTION_ADD: each([](A x, A y) { return sum(x, y); }); break;
        case BOPS_FUNCTION_SUB: each([](A x, A y) { return difference(x, y); }); break;
        case BOPS_FUNCTION_MUL: each([](A x, A y) { return product(x, y); }); break;
        case BOPS_FUNCTION_EQ: each([](A x, A y) { return A(x == y); }); break;
        case BOPS_FUNCTION_NE: each([](A x, A y) { return A(x != y); }); break;
        case BOPS_FUNCTION_LT: each([](A x, A y) { return A(x < y); }); break;
        case BOPS_FUNCTION_LE: each([](A x, A y) { return A(x <= y); }); break;
        case BOPS_FUNCTION_GT: each([](A x, A y) { return A(x > y); }); break;
        case BOPS_FUNCTION_GE: each([](A x, A y) { return A(x >= y); }); break;
        case BOPS_FUNCTION_LOGICAL_AND: each([](A x, A y) { return A(x != A(0) && y != A(0)); }); break;
        case BOPS_FUNCTION_LOGICAL_OR: each([](A x, A y) { return A(x != A(0) || y != A(0)); }); break;
        case BOPS_FUNCTION_LOGICAL_XOR: each([](A x, A y) { return A((x != A(0)) != (y != A(0))); }); break;
        default: each([](A x, A y) { return quotient(x, y); }); break;
        }
    }
}

} // namespace bops
