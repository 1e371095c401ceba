// Element types. The only place where a bops_dtype becomes a C++ type, and the packed words that carry elements through memory.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "../bops.h"

namespace bops {

// Elements of one byte: whether it is not 0, which is written as 1; and floating-point numbers with 3 and 2 bits of fraction, the upper half of a __half.
struct boolean {
    uint8_t bits;
};
struct e4m3 {
    uint8_t bits;
};
struct e5m2 {
    uint8_t bits;
};

template <typename T> struct accumulator { using type = float; };
template <> struct accumulator<double> { using type = double; };
template <> struct accumulator<int64_t> { using type = int64_t; };
template <> struct accumulator<int32_t> { using type = int32_t; };
template <> struct accumulator<uint32_t> { using type = uint32_t; };
template <> struct accumulator<boolean> { using type = int32_t; };
template <> struct accumulator<uint8_t> { using type = int32_t; };
template <> struct accumulator<int8_t> { using type = int32_t; };
template <typename T> using accumulator_t = typename accumulator<T>::type;

template <typename T> struct type_tag { using type = T; };

// Calls f(type_tag<T>{}) with the C++ type of a floating-point dtype that kernels compute with. Most have no kernels for other dtypes.
template <typename F> bops_status for_float(bops_dtype dtype, F &&f) {
    switch (dtype) {
    case BOPS_F64: return f(type_tag<double>{});
    case BOPS_F32: return f(type_tag<float>{});
    case BOPS_F16: return f(type_tag<__half>{});
    case BOPS_BF16: return f(type_tag<__nv_bfloat16>{});
    default: return cudaErrorInvalidValue;
    }
}

// Calls f(type_tag<T>{}) with the C++ type of any dtype.
template <typename F> bops_status for_element(bops_dtype dtype, F &&f) {
    switch (dtype) {
    case BOPS_I64: return f(type_tag<int64_t>{});
    case BOPS_I32: return f(type_tag<int32_t>{});
    case BOPS_U32: return f(type_tag<uint32_t>{});
    case BOPS_BOOL: return f(type_tag<boolean>{});
    case BOPS_U8: return f(type_tag<uint8_t>{});
    case BOPS_I8: return f(type_tag<int8_t>{});
    case BOPS_F8E4M3: return f(type_tag<e4m3>{});
    case BOPS_F8E5M2: return f(type_tag<e5m2>{});
    default: return for_float(dtype, f);
    }
}

// What one memory access of `bytes` bytes carries.
template <int bytes> struct alignas(bytes) packed { uint32_t word[bytes / 4]; };
template <> struct alignas(2) packed<2> { uint16_t word[1]; };
template <> struct alignas(1) packed<1> { uint8_t word[1]; };

// The value of a byte. As the bits of a __half an e4m3 is 2^-8 times its value, unless it is NaN.
template <typename T> __device__ __forceinline__ accumulator_t<T> widen_byte(uint8_t byte) {
    if constexpr (std::is_same_v<T, boolean>) return byte != 0;
    else if constexpr (std::is_same_v<T, e4m3>) {
        const float value = __half2float(__ushort_as_half(uint16_t((byte & 0x7f) << 7 | (byte & 0x80) << 8))) * 256.0f;
        return (byte & 0x7f) == 0x7f ? __int_as_float(0x7fc00000) : value;
    } else if constexpr (std::is_same_v<T, e5m2>) return __half2float(__ushort_as_half(uint16_t(byte << 8)));
    else return T(byte);
}

// The byte of the nearest number with so many bits of fraction, ties to even, of which numbers below 2^(1 - bias) are subnormal; `greatest` of those
// beyond, `special` of infinities where `has_infinity` is false, and of NaN.
template <int fraction, int bias, bool has_infinity>
__device__ __forceinline__ uint8_t narrow_to_byte(float value, uint32_t greatest, uint32_t special) {
    constexpr int shift = 23 - fraction;
    const uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffff;
    // In the sum with 2^23 times the smallest subnormal, its multiples are the last bits.
    constexpr uint32_t unit = uint32_t(127 + 23 + 1 - bias - fraction) << 23;
    const uint32_t subnormal = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), __uint_as_float(unit))) - unit;
    const uint32_t normal = ((magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift) - (uint32_t(127 - bias) << fraction);
    const uint32_t rounded = magnitude < uint32_t(127 + 1 - bias) << 23 ? subnormal : min(normal, greatest);
    const bool is_special = has_infinity ? magnitude > 0x7f800000 : magnitude >= 0x7f800000;
    return uint8_t((is_special ? special : rounded) | (bits >> 24 & 0x80));
}

template <typename T> __device__ __forceinline__ uint8_t narrow_byte(accumulator_t<T> value) {
    if constexpr (std::is_same_v<T, boolean>) return value != 0;
    else if constexpr (std::is_same_v<T, e4m3>) return narrow_to_byte<3, 7, false>(value, 0x7e, 0x7f);
    else if constexpr (std::is_same_v<T, e5m2>) return narrow_to_byte<2, 15, true>(value, 0x7c, 0x7e);
    else return uint8_t(value);
}

template <typename T> __device__ __forceinline__ accumulator_t<T> widen(T value) {
    if constexpr (sizeof(T) >= 4) return value;
    else if constexpr (sizeof(T) == 1) return widen_byte<T>(reinterpret_cast<const uint8_t &>(value));
    else if constexpr (std::is_same_v<T, __half>) return __half2float(value);
    else return __bfloat162float(value);
}

// Rounds to nearest even; of an integer the low bits.
template <typename T> __device__ __forceinline__ T narrow(accumulator_t<T> value) {
    if constexpr (sizeof(T) >= 4) return value;
    else if constexpr (sizeof(T) == 1) {
        const uint8_t byte = narrow_byte<T>(value);
        return reinterpret_cast<const T &>(byte);
    } else if constexpr (std::is_same_v<T, __half>) return __float2half_rn(value);
    else return __float2bfloat16_rn(value);
}

template <typename T, int bytes> __device__ __forceinline__ void unpack(const packed<bytes> &from, accumulator_t<T> (&to)[bytes / sizeof(T)]) {
    if constexpr (std::is_same_v<T, double>) {
#pragma unroll
        for (int i = 0; i < bytes / 8; ++i) to[i] = __hiloint2double(int(from.word[2 * i + 1]), int(from.word[2 * i]));
    } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) to[i] = __uint_as_float(from.word[i]);
    } else if constexpr (sizeof(T) == 8) {
#pragma unroll
        for (int i = 0; i < bytes / 8; ++i) to[i] = T(uint64_t(from.word[2 * i + 1]) << 32 | from.word[2 * i]);
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) to[i] = T(from.word[i]);
    } else if constexpr (sizeof(T) == 1) {
        constexpr int per_word = bytes < 4 ? bytes : 4;
#pragma unroll
        for (int i = 0; i < bytes; ++i) to[i] = widen_byte<T>(uint8_t(uint32_t(from.word[i / per_word]) >> 8 * (i % per_word)));
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
    } else if constexpr (sizeof(T) == 8) {
#pragma unroll
        for (int i = 0; i < bytes / 8; ++i) {
            to.word[2 * i] = uint32_t(from[i]);
            to.word[2 * i + 1] = uint32_t(uint64_t(from[i]) >> 32);
        }
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) to.word[i] = uint32_t(from[i]);
    } else if constexpr (sizeof(T) == 1) {
        constexpr int per_word = bytes < 4 ? bytes : 4;
#pragma unroll
        for (int i = 0; i < bytes / per_word; ++i) {
            uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < per_word; ++j) word |= uint32_t(narrow_byte<T>(from[i * per_word + j])) << 8 * j;
            to.word[i] = decltype(to.word[0] + 0)(word);
        }
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
