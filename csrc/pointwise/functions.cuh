// The functions of programs: one formula for each, in float and in double. Products and sums are named by their rounding, which keeps the compiler from
// joining them: a program has the same bits in every kernel.
#pragma once
#include "../bops_pointwise.h"
#include "../common/activation.cuh"

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

__device__ __forceinline__ float inverse(float x) { return __frcp_rn(x); }
__device__ __forceinline__ double inverse(double x) { return __drcp_rn(x); }
__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// Whether the sign bit is set.
__device__ __forceinline__ bool has_sign(float x) { return __float_as_int(x) < 0; }
__device__ __forceinline__ bool has_sign(double x) { return __double2hiint(x) < 0; }

// 1 / sqrt(x), subnormal numbers included.
__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return __drcp_rn(__dsqrt_rn(x)); }

// Zeros and NaN are their own signs.
template <typename A> __device__ __forceinline__ A sign(A x) { return x > A(0) ? A(1) : x < A(0) ? A(-1) : x; }

// The greater and the lesser one, NaN if one is; 0 is greater than -0.
__device__ __forceinline__ float maximum(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
__device__ __forceinline__ double maximum(double x, double y) {
    const double equal = __longlong_as_double(__double_as_longlong(x) & __double_as_longlong(y));
    const double greater = x > y ? x : x == y ? equal : y;
    return x != x ? x : greater;
}
__device__ __forceinline__ float minimum(float x, float y) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
__device__ __forceinline__ double minimum(double x, double y) { return -maximum(-x, -y); }
template <typename A> __device__ __forceinline__ A clamp(A x, A low, A high) { return minimum(maximum(x, low), high); }

// The greater and the lesser number, where one is NaN the other.
__device__ __forceinline__ float maximum_number(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ double maximum_number(double x, double y) { return x != x ? y : y != y ? x : maximum(x, y); }
__device__ __forceinline__ float minimum_number(float x, float y) { return fminf(x, y); }
__device__ __forceinline__ double minimum_number(double x, double y) { return x != x ? y : y != y ? x : minimum(x, y); }

// x / (1 + |x|), of infinities the limit.
template <typename A> __device__ __forceinline__ A softsign(A x) {
    const A magnitude = fabs(x);
    return magnitude == A(INFINITY) ? copysign(A(1), x) : quotient(x, sum(A(1), magnitude));
}

template <typename A> constexpr A sixth = A(1) / A(6);

template <typename A> __device__ __forceinline__ A hardswish(A x) {
    const A between = product(product(x, sum(x, A(3))), sixth<A>);
    return x <= A(-3) ? A(0) : x >= A(3) ? x : between;
}

template <typename A> __device__ __forceinline__ A softshrink(A x, A lambda) {
    const A value = x > lambda ? difference(x, lambda) : x < -lambda ? sum(x, lambda) : A(0);
    return x != x ? x : value;
}

template <typename A> __device__ __forceinline__ A heaviside(A x, A value) { return x > A(0) ? A(1) : x < A(0) ? A(0) : x == A(0) ? value : x; }

template <typename A> __device__ __forceinline__ A remainder_of(A x, A y) {
    const A rest = fmod(x, y);
    return rest != A(0) && (rest < A(0)) != (y < A(0)) ? sum(rest, y) : rest;
}

// x - n y for n that is the rounded quotient made whole; its sign is exact.
template <typename A> __device__ __forceinline__ A rest_of(A x, A y, A n) { return n == A(0) ? x : fused(-n, y, x); }

// A quotient that was rounded up to a whole number leaves a rest of the other sign than y.
template <typename A> __device__ __forceinline__ A floor_of_quotient(A x, A y) {
    const A n = floor(quotient(x, y)), rest = rest_of(x, y, n);
    return (y < A(0) ? rest > A(0) : rest < A(0)) ? difference(n, A(1)) : n;
}
template <typename A> __device__ __forceinline__ A trunc_of_quotient(A x, A y) {
    const A n = trunc(quotient(x, y)), rest = rest_of(x, y, n);
    return (x < A(0) ? rest > A(0) : rest < A(0)) ? difference(n, copysign(A(1), n)) : n;
}

template <typename A> __device__ __forceinline__ A lerp(A a, A b, A w) {
    const A way = difference(b, a);
    return w < A(0.5) ? sum(a, product(w, way)) : difference(b, product(way, difference(A(1), w)));
}

// x 2^n for the whole number n nearest to y.
template <typename A> __device__ __forceinline__ A scaled_by_power(A x, A y) {
    return y != y ? y : ldexp(x, int(rint(fmin(fmax(y, A(-5000)), A(5000)))));
}

// The number next to x in the direction of y, of the type whose least number above 0 is given: of f16, 2^-24, numbers below 2^-14 are multiples of it.
__device__ __forceinline__ float next_after(float x, float y, float least) {
    constexpr float least_half = 0x1p-24f, least_normal_half = 0x1p-14f, most_half = 65504.0f;
    if (x != x || y != y) return x + y;
    if (x == y) return y;
    if (x == 0.0f) return copysignf(least, y);
    const bool is_half = least == least_half, is_away = (x < y) == (x > 0.0f);
    const float size = fabsf(x);
    const int step = is_half ? 1 << 13 : __float_as_int(least);
    float next = __int_as_float(__float_as_int(size) + (is_away ? step : -step));
    if (is_half) {
        if (is_away ? size < least_normal_half : size <= least_normal_half) next = __fadd_rn(size, is_away ? least : -least);
        next = size == INFINITY ? most_half : next > most_half ? INFINITY : next;
    }
    return copysignf(next, x);
}
__device__ __forceinline__ double next_after(double x, double y, double) { return nextafter(x, y); }

// x where it is finite; a number where it is NaN, and a limit with its sign where it is infinite.
template <typename A> __device__ __forceinline__ A nan_to_num(A x, A nan, A limit) {
    return x != x ? nan : fabs(x) == A(INFINITY) ? copysign(limit, x) : x;
}

// Whether there are functions of so many arguments and of a cost.
template <int arguments, int cost> constexpr bool has_functions = cost == BOPS_COST_LIGHT || (cost == BOPS_COST_EXPONENTIAL && arguments == 1) ||
                                                                  (cost == BOPS_COST_DIGITS && arguments == 2) ||
                                                                  (cost == BOPS_COST_SPECIAL && arguments < 3) ||
                                                                  (cost == BOPS_COST_SERIES && arguments == 2);

// r = function(x, y, z). The function, one of so many arguments and of this cost, which is none of special.cuh, is the same for all threads; y and z count
// where it has them. r may be x.
template <int arguments, int cost, typename A, int count>
__device__ __forceinline__ void apply(bops_function function, const A (&x)[count], const A (&y)[count], const A (&z)[count], A (&r)[count]) {
    const auto each = [&](const auto &f) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
            if constexpr (arguments == 1) r[i] = f(x[i]);
            else if constexpr (arguments == 2) r[i] = f(x[i], y[i]);
            else r[i] = f(x[i], y[i], z[i]);
        }
    };
    if constexpr (arguments == 1 && cost == BOPS_COST_LIGHT) {
        switch (function) {
        case BOPS_FUNCTION_NEG: each([](A x) { return -x; }); break;
        case BOPS_FUNCTION_SQRT: each([](A x) { return root(x); }); break;
        case BOPS_FUNCTION_ABS: each([](A x) { return fabs(x); }); break;
        case BOPS_FUNCTION_SIGN: each([](A x) { return sign(x); }); break;
        case BOPS_FUNCTION_CEIL: each([](A x) { return ceil(x); }); break;
        case BOPS_FUNCTION_FLOOR: each([](A x) { return floor(x); }); break;
        case BOPS_FUNCTION_ROUND: each([](A x) { return rint(x); }); break;
        case BOPS_FUNCTION_TRUNC: each([](A x) { return trunc(x); }); break;
        case BOPS_FUNCTION_FRAC: each([](A x) { return difference(x, trunc(x)); }); break;
        case BOPS_FUNCTION_RECIPROCAL: each([](A x) { return inverse(x); }); break;
        case BOPS_FUNCTION_SQUARE: each([](A x) { return product(x, x); }); break;
        case BOPS_FUNCTION_RSQRT: each([](A x) { return inverse_root(x); }); break;
        case BOPS_FUNCTION_RELU: each([](A x) { return x <= A(0) ? A(0) : x; }); break;
        case BOPS_FUNCTION_RELU6: each([](A x) { return clamp(x, A(0), A(6)); }); break;
        case BOPS_FUNCTION_SOFTSIGN: each([](A x) { return softsign(x); }); break;
        case BOPS_FUNCTION_HARDSIGMOID: each([](A x) { return product(clamp(sum(x, A(3)), A(0), A(6)), sixth<A>); }); break;
        case BOPS_FUNCTION_ISNAN: each([](A x) { return A(isnan(x)); }); break;
        case BOPS_FUNCTION_ISINF: each([](A x) { return A(isinf(x) != 0); }); break;
        case BOPS_FUNCTION_ISFINITE: each([](A x) { return A(isfinite(x) != 0); }); break;
        case BOPS_FUNCTION_SIGNBIT: each([](A x) { return A(has_sign(x)); }); break;
        case BOPS_FUNCTION_LOGICAL_NOT: each([](A x) { return A(x == A(0)); }); break;
        default: each([](A x) { return hardswish(x); }); break;
        }
    } else if constexpr (arguments == 1) {
        switch (function) {
        case BOPS_FUNCTION_CBRT: each([](A x) { return cbrt(x); }); break;
        case BOPS_FUNCTION_EXP: each([](A x) { return exponential(x); }); break;
        case BOPS_FUNCTION_LOG: each([](A x) { return logarithm(x); }); break;
        case BOPS_FUNCTION_SIGMOID: each([](A x) { return sigmoid(x); }); break;
        default: each([](A x) { return hyperbolic_tangent(x); }); break;
        }
    } else if constexpr (arguments == 2 && cost == BOPS_COST_LIGHT) {
        switch (function) {
        case BOPS_FUNCTION_LEAKY_RELU:
        case BOPS_FUNCTION_PRELU: each([](A x, A slope) { return x > A(0) ? x : product(x, slope); }); break;
        case BOPS_FUNCTION_HARDSHRINK: each([](A x, A lambda) { return -lambda <= x && x <= lambda ? A(0) : x; }); break;
        case BOPS_FUNCTION_SOFTSHRINK: each([](A x, A lambda) { return softshrink(x, lambda); }); break;
        case BOPS_FUNCTION_MAXIMUM: each([](A x, A y) { return maximum(x, y); }); break;
        case BOPS_FUNCTION_MINIMUM: each([](A x, A y) { return minimum(x, y); }); break;
        case BOPS_FUNCTION_FMAX: each([](A x, A y) { return maximum_number(x, y); }); break;
        case BOPS_FUNCTION_FMIN: each([](A x, A y) { return minimum_number(x, y); }); break;
        case BOPS_FUNCTION_COPYSIGN: each([](A x, A y) { return copysign(x, y); }); break;
        case BOPS_FUNCTION_DIV_FLOOR: each([](A x, A y) { return floor_of_quotient(x, y); }); break;
        case BOPS_FUNCTION_DIV_TRUNC: each([](A x, A y) { return trunc_of_quotient(x, y); }); break;
        case BOPS_FUNCTION_HYPOT: each([](A x, A y) { return hypot(x, y); }); break;
        case BOPS_FUNCTION_HEAVISIDE: each([](A x, A value) { return heaviside(x, value); }); break;
        case BOPS_FUNCTION_LDEXP: each([](A x, A y) { return scaled_by_power(x, y); }); break;
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
    } else if constexpr (arguments == 2) {
        switch (function) {
        case BOPS_FUNCTION_FMOD: each([](A x, A y) { return fmod(x, y); }); break;
        default: each([](A x, A y) { return remainder_of(x, y); }); break;
        }
    } else {
        switch (function) {
        case BOPS_FUNCTION_THRESHOLD: each([](A x, A threshold, A value) { return x <= threshold ? value : x; }); break;
        case BOPS_FUNCTION_WHERE: each([](A condition, A y, A z) { return condition == A(0) ? z : y; }); break;
        case BOPS_FUNCTION_HARDTANH:
        case BOPS_FUNCTION_CLAMP: each([](A x, A low, A high) { return clamp(x, low, high); }); break;
        case BOPS_FUNCTION_NEXTAFTER: each([](A x, A y, A least) { return next_after(x, y, least); }); break;
        case BOPS_FUNCTION_NAN_TO_NUM: each([](A x, A nan, A limit) { return nan_to_num(x, nan, limit); }); break;
        case BOPS_FUNCTION_LERP: each([](A a, A b, A w) { return lerp(a, b, w); }); break;
        case BOPS_FUNCTION_ADDCMUL: each([](A x, A a, A b) { return sum(x, product(a, b)); }); break;
        case BOPS_FUNCTION_ADDCDIV: each([](A x, A a, A b) { return sum(x, quotient(a, b)); }); break;
        default: each([](A a, A b, A c) { return fused(a, b, c); }); break;
        }
    }
}

} // namespace bops
