// The functions of integers, which wrap. Division by 0 gives 0, and so does its rest. A bool is 0 or 1.
#pragma once
#include <type_traits>

#include "../bops_pointwise.h"
#include "../common/dtype.cuh"

namespace bops {

// Quotient without its fraction, and rest. The least number by -1 wraps.
template <typename A> __device__ __forceinline__ A quotient_of_integers(A x, A y) {
    if (y == A(0)) return A(0);
    if (std::is_signed_v<A> && y == A(-1)) return A(0 - std::make_unsigned_t<A>(x));
    return x / y;
}
template <typename A> __device__ __forceinline__ A rest_of_integers(A x, A y) {
    if (y == A(0) || (std::is_signed_v<A> && y == A(-1))) return A(0);
    return x % y;
}

template <typename A> __device__ __forceinline__ bool is_negative(A x) {
    if constexpr (std::is_signed_v<A>) return x < 0;
    else return false;
}

// Whether a rest has another sign than the divisor.
template <typename A> __device__ __forceinline__ bool is_below(A rest, A y) { return rest != A(0) && is_negative(rest) != is_negative(y); }

// The magnitude, of which that of the least number wraps to itself.
template <typename A> __device__ __forceinline__ std::make_unsigned_t<A> magnitude_of_integer(A x) {
    using U = std::make_unsigned_t<A>;
    return is_negative(x) ? U(0) - U(x) : U(x);
}

// The greatest number that divides both, by Euclid: at most 47 quotients of 32 bits, 93 of 64.
template <typename U> __device__ __forceinline__ U common_divisor(U x, U y) {
#pragma unroll 1
    while (y != U(0)) {
        const U rest = x % y;
        x = y, y = rest;
    }
    return x;
}

// r = function(x, y, z). The function is the same for all threads; y and z count where it has them. r may be x.
template <int arguments, typename A, int count> __device__ __forceinline__ void apply_to_integers(bops_function function, const A (&x)[count],
                                                                                                  const A (&y)[count], const A (&z)[count],
                                                                                                  A (&r)[count]) {
    using U = std::make_unsigned_t<A>;
    constexpr U bits = 8 * sizeof(A);
    const auto each = [&](const auto &f) {
#pragma unroll
        for (int i = 0; i < count; ++i) r[i] = A(f(x[i], y[i]));
    };
    if constexpr (arguments == 1) {
        switch (function) {
        case BOPS_FUNCTION_NEG: each([](A x, A) { return 0 - U(x); }); break;
        case BOPS_FUNCTION_LOGICAL_NOT: each([](A x, A) { return x == 0; }); break;
        case BOPS_FUNCTION_BITWISE_NOT: each([](A x, A) { return ~x; }); break;
        case BOPS_FUNCTION_ABS: each([](A x, A) { return magnitude_of_integer(x); }); break;
        case BOPS_FUNCTION_SIGN: each([](A x, A) { return is_negative(x) ? A(-1) : A(x != 0); }); break;
        case BOPS_FUNCTION_SQUARE: each([](A x, A) { return U(x) * U(x); }); break;
        default: each([](A x, A) { return is_negative(x) ? A(0) : x; }); break;
        }
    } else if constexpr (arguments == 2) {
        switch (function) {
        case BOPS_FUNCTION_ADD: each([](A x, A y) { return U(x) + U(y); }); break;
        case BOPS_FUNCTION_SUB: each([](A x, A y) { return U(x) - U(y); }); break;
        case BOPS_FUNCTION_MUL: each([](A x, A y) { return U(x) * U(y); }); break;
        case BOPS_FUNCTION_EQ: each([](A x, A y) { return x == y; }); break;
        case BOPS_FUNCTION_NE: each([](A x, A y) { return x != y; }); break;
        case BOPS_FUNCTION_LT: each([](A x, A y) { return x < y; }); break;
        case BOPS_FUNCTION_LE: each([](A x, A y) { return x <= y; }); break;
        case BOPS_FUNCTION_GT: each([](A x, A y) { return x > y; }); break;
        case BOPS_FUNCTION_GE: each([](A x, A y) { return x >= y; }); break;
        case BOPS_FUNCTION_LOGICAL_AND: each([](A x, A y) { return x != 0 && y != 0; }); break;
        case BOPS_FUNCTION_LOGICAL_OR: each([](A x, A y) { return x != 0 || y != 0; }); break;
        case BOPS_FUNCTION_LOGICAL_XOR: each([](A x, A y) { return (x != 0) != (y != 0); }); break;
        case BOPS_FUNCTION_BITWISE_AND: each([](A x, A y) { return x & y; }); break;
        case BOPS_FUNCTION_BITWISE_OR: each([](A x, A y) { return x | y; }); break;
        case BOPS_FUNCTION_BITWISE_XOR: each([](A x, A y) { return x ^ y; }); break;
        case BOPS_FUNCTION_SHIFT_LEFT: each([](A x, A y) { return U(y) < bits ? U(x) << U(y) : U(0); }); break;
        case BOPS_FUNCTION_SHIFT_RIGHT: each([](A x, A y) { return U(y) < bits ? x >> y : is_negative(x) ? A(-1) : A(0); }); break;
        case BOPS_FUNCTION_POPCOUNT:
            each([](A x, A bits) { return sizeof(A) == 8 ? __popcll(uint64_t(x & bits)) : __popc(uint32_t(x & bits)); });
            break;
        case BOPS_FUNCTION_GCD: each([](A x, A y) { return common_divisor(magnitude_of_integer(x), magnitude_of_integer(y)); }); break;
        case BOPS_FUNCTION_LCM:
            each([](A x, A y) {
                const U size = magnitude_of_integer(x), other = magnitude_of_integer(y), divisor = common_divisor(size, other);
                return divisor == U(0) ? U(0) : size / divisor * other;
            });
            break;
        case BOPS_FUNCTION_DIV:
        case BOPS_FUNCTION_DIV_TRUNC: each([](A x, A y) { return quotient_of_integers(x, y); }); break;
        case BOPS_FUNCTION_DIV_FLOOR: each([](A x, A y) { return quotient_of_integers(x, y) - A(is_below(rest_of_integers(x, y), y)); }); break;
        case BOPS_FUNCTION_FMOD: each([](A x, A y) { return rest_of_integers(x, y); }); break;
        case BOPS_FUNCTION_REMAINDER:
            each([](A x, A y) {
                const A rest = rest_of_integers(x, y);
                return is_below(rest, y) ? rest + y : rest;
            });
            break;
        case BOPS_FUNCTION_MAXIMUM: each([](A x, A y) { return x > y ? x : y; }); break;
        default: each([](A x, A y) { return x < y ? x : y; }); break;
        }
    } else {
        const bool is_clamp = function == BOPS_FUNCTION_CLAMP;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const A above = x[i] > y[i] ? x[i] : y[i];
            r[i] = is_clamp ? (above < z[i] ? above : z[i]) : x[i] != A(0) ? y[i] : z[i];
        }
    }
}

} // namespace bops
