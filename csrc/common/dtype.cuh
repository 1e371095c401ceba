// Element types. The only place where a bops_dtype becomes a C++ type, and the packed words that carry elements through memory.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "../bops.h"

namespace bops {

template <typename T> struct accumulator { using type = float; };
template <> struct accumulator<double> { using type = double; };
template <typename T> using accumulator_t = typename accumulator<T>::type;

template <typename T> struct type_tag { using type = T; };

// Calls f(type_tag<T>{}) with the C++ type of a floating-point dtype. There are no kernels for other dtypes.
template <typename F> bops_status for_float(bops_dtype dtype, F &&f) {
    switch (dtype) {
    case BOPS_F64: return f(type_tag<double>{});
    case BOPS_F32: return f(type_tag<float>{});
    case BOPS_F16: return f(type_tag<__half>{});
    case BOPS_BF16: return f(type_tag<__nv_bfloat16>{});
    default: return cudaErrorInvalidValue;
    }
}

// What one memory access of `bytes` bytes carries.
template <int bytes> struct alignas(bytes) packed { uint32_t word[bytes / 4]; };
template <> struct alignas(2) packed<2> { uint16_t word[1]; };

template <typename T> __device__ __forceinline__ accumulator_t<T> widen(T value) {
    if constexpr (sizeof(T) >= 4) return value;
    else if constexpr (std::is_same_v<T, __half>) return __half2float(value);
    else return __bfloat162float(value);
}

// Rounds to nearest even.
template <typename T> __device__ __forceinline__ T narrow(accumulator_t<T> value) {
    if constexpr (sizeof(T) >= 4) return value;
    else if constexpr (std::is_same_v<T, __half>) return __float2half_rn(value);
    else return __float2bfloat16_rn(value);
}

template <typename T, int bytes> __device__ __forceinline__ void unpack(const packed<bytes> &from, accumulator_t<T> (&to)[bytes / sizeof(T)]) {
    if constexpr (std::is_same_v<T, double>) {
#pragma unroll
        for (int i = 0; i < bytes / 8; ++i) to[i] = __hiloint2double(int(from.word[2 * i + 1]), int(from.word[2 * i]));
    } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) to[i] = __uint_as_float(from.word[i]);
    } else if constexpr (bytes == 2) {
        if constexpr (std::is_same_v<T, __half>) to[0] = __half2float(__ushort_as_half(from.word[0]));
        else to[0] = __uint_as_float(uint32_t(from.word[0]) << 16);
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) {
            const uint32_t word = from.word[i];
            if constexpr (std::is_same_v<T, __half>) {
                to[2 * i] = __half2float(__ushort_as_half(uint16_t(word)));
                to[2 * i + 1] = __half2float(__ushort_as_half(uint16_t(word >> 16)));
            } else {
                to[2 * i] = __uint_as_float(word << 16);
                to[2 * i + 1] = __uint_as_float(word & 0xffff0000u);
            }
        }
    }
}

template <typename T, int bytes> __device__ __forceinline__ packed<bytes> pack(const accumulator_t<T> (&from)[bytes / sizeof(T)]) {
    packed<bytes> to;
    if constexpr (std::is_same_v<T, double>) {
#pragma unroll
        for (int i = 0; i < bytes / 8; ++i) {
            to.word[2 * i] = uint32_t(__double2loint(from[i]));
            to.word[2 * i + 1] = uint32_t(__double2hiint(from[i]));
        }
    } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) to.word[i] = __float_as_uint(from[i]);
    } else if constexpr (bytes == 2) {
        if constexpr (std::is_same_v<T, __half>) to.word[0] = __half_as_ushort(__float2half_rn(from[0]));
        else to.word[0] = __bfloat16_as_ushort(__float2bfloat16_rn(from[0]));
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) {
            if constexpr (std::is_same_v<T, __half>) {
                const __half2 pair = __floats2half2_rn(from[2 * i], from[2 * i + 1]);
                to.word[i] = *reinterpret_cast<const uint32_t *>(&pair);
            } else {
                const __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
                to.word[i] = *reinterpret_cast<const uint32_t *>(&pair);
            }
        }
    }
    return to;
}

// Makes the compiler keep 16-bit elements packed until they are used again. Unpacked they would take twice the registers.
template <typename T, int bytes, int vectors> __device__ __forceinline__ void keep_packed(packed<bytes> (&v)[vectors]) {
    if constexpr (sizeof(T) == 2 && bytes > 2)
#pragma unroll
        for (int i = 0; i < vectors; ++i)
#pragma unroll
            for (int j = 0; j < bytes / 4; ++j) asm volatile("" : "+r"(v[i].word[j]));
}

} // namespace bops
