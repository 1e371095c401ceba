// What the kernels of moves share: units, and where the parts of lines lie.
#pragma once
#include "../bops_movement.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"

namespace bops {

constexpr int movement_threads = 256; // of a block

template <int bytes> struct unit_of;
template <> struct unit_of<1> { using type = uint8_t; };
template <> struct unit_of<2> { using type = uint16_t; };
template <> struct unit_of<4> { using type = uint32_t; };
template <> struct unit_of<8> { using type = uint2; };
template <> struct unit_of<16> { using type = uint4; };
template <int bytes> using unit_t = typename unit_of<bytes>::type;

// A unit of a constant whose bits repeat in a number.
template <int unit_bytes> __device__ __forceinline__ unit_t<unit_bytes> constant(uint64_t value) {
    const uint32_t low = uint32_t(value), high = uint32_t(value >> 32);
    if constexpr (unit_bytes == 16) return make_uint4(low, high, low, high);
    else if constexpr (unit_bytes == 8) return make_uint2(low, high);
    else return unit_t<unit_bytes>(value);
}

// Splits a number into the number of whole extents and the rest.
struct split_number {
    uint64_t quotient;
    uint32_t rest;
    __device__ __forceinline__ split_number(const bops_divisor &by, bool is_long, uint64_t number) {
        quotient =
            is_long ? __umul64hi(number << 24, by.multiplier) >> by.shift : __umulhi(uint32_t(number) << 1, uint32_t(by.multiplier)) >> by.shift;
        rest = uint32_t(number) - uint32_t(quotient) * by.extent;
    }
};

// As many neighbours as a thread stores at once.
template <int unit_bytes, int width> union part {
    unit_t<unit_bytes> unit[width];
    unit_t<unit_bytes * width> whole;
    __device__ __forceinline__ part() {}
};

// Stores up to `left` units from `to` on, `step` apart.
template <int unit_bytes, int width>
__device__ __forceinline__ void put_part(unit_t<unit_bytes> *to, uint64_t step, uint64_t left, const part<unit_bytes, width> &from) {
    if (left >= width && (width == 1 || step == 1)) {
        *reinterpret_cast<unit_t<unit_bytes * width> *>(to) = from.whole;
        return;
    }
#pragma unroll
    for (int i = 0; i < width; ++i)
        if (i < left) to[i * step] = from.unit[i];
}

inline launch_shape movement_shape(uint64_t threads) {
    launch_shape shape;
    shape.grid = dim3(uint32_t((threads + movement_threads - 1) / movement_threads));
    shape.block = dim3(movement_threads);
    return shape;
}

// Calls f(unit_bytes, width) with what a choice says, as constants.
template <typename F> bops_status for_parts(const bops_copy_strided_choice &choice, const F &f) {
    return for_value<1, 2, 4, 8, 16>(choice.unit_bytes, [&](auto unit_bytes) {
        if (choice.width == 1) return f(unit_bytes, std::integral_constant<int, 1>());
        if constexpr (unit_bytes == 16) return bops_status(cudaErrorInvalidValue);
        else return for_value<16 / unit_bytes>(choice.width, [&](auto width) { return f(unit_bytes, width); });
    });
}

} // namespace bops
