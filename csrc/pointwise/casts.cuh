// Casts of values of the types in which programs compute to elements of any type.
#pragma once
#include <type_traits>

#include "../common/dtype.cuh"

namespace bops {

// A number whose rounding to at most 22 bits is that of x: towards zero, with a last bit that says whether something is lost.
__device__ __forceinline__ float narrowed(float x) { return x; }
__device__ __forceinline__ float narrowed(double x) {
    const float toward_zero = __double2float_rz(x);
    return double(toward_zero) == x ? toward_zero : __uint_as_float(__float_as_uint(toward_zero) | 1);
}
__device__ __forceinline__ float narrowed(int32_t x) { return narrowed(double(x)); }
__device__ __forceinline__ float narrowed(uint32_t x) { return narrowed(double(x)); }
// Beyond 2^53 a double has no room for the last bits: those that are lost set the last one that is kept.
__device__ __forceinline__ float narrowed(int64_t x) {
    constexpr uint64_t lost = (1 << 11) - 1;
    const uint64_t magnitude = x < 0 ? 0 - uint64_t(x) : uint64_t(x);
    const uint64_t kept = magnitude >> 53 == 0 ? magnitude : (magnitude & ~lost) | ((magnitude & lost) != 0 ? lost + 1 : 0);
    return narrowed(x < 0 ? -double(kept) : double(kept));
}

// Whole numbers: the fraction is cut off, numbers beyond the range become the nearest of it, and NaN 0.
template <typename T> __device__ __forceinline__ T cut(float x) {
    if (isnan(x)) return 0;
    if constexpr (std::is_same_v<T, int64_t>) return __float2ll_rz(x);
    else if constexpr (std::is_same_v<T, uint32_t>) return __float2uint_rz(x);
    else return __float2int_rz(x);
}
template <typename T> __device__ __forceinline__ T cut(double x) {
    if (isnan(x)) return 0;
    if constexpr (std::is_same_v<T, int64_t>) return __double2ll_rz(x);
    else if constexpr (std::is_same_v<T, uint32_t>) return __double2uint_rz(x);
    else return __double2int_rz(x);
}

// The value whose element of type T is that of x: rounded once; of integers the low bits; of a boolean 0 or 1.
template <typename T, typename A> __device__ __forceinline__ accumulator_t<T> cast(A x) {
    using R = accumulator_t<T>;
    constexpr bool is_whole = std::is_integral_v<A>, is_integer = std::is_integral_v<R>;
    if constexpr (std::is_same_v<T, boolean>) return x != A(0);
    else if constexpr (is_whole && is_integer) return R(x);
    else if constexpr (is_integer) {
        const R whole = cut<R>(x);
        if constexpr (std::is_same_v<T, uint8_t>) return min(max(whole, 0), 255);
        else if constexpr (std::is_same_v<T, int8_t>) return min(max(whole, -128), 127);
        else return whole;
    } else if constexpr (sizeof(T) < 4) return narrowed(x);
    else return R(x);
}

} // namespace bops
