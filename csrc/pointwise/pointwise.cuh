// What ops on each element alone share: a thread owns one vector of each operand.
#pragma once
#include "../bops_activation.h"
#include "../common/launch.cuh"
#include "../common/memory.cuh"

namespace bops {

constexpr int pointwise_threads = 256; // of a block
// Blocks of an SM: enough to fill it with threads, or half as many with f64, whose values take twice the registers.
template <typename T> constexpr int pointwise_blocks = sizeof(T) == 8 ? 4 : 8;

// Elements of one access of so many bytes, which are those of a thread.
template <typename T, int bytes> constexpr int pointwise_width = bytes / int(sizeof(T));

// The thread's elements as they are stored. `left`: elements of the tensor from the thread's first one on; 0 stands for those past them. They stay
// packed, so that the loads of all operands are in flight together.
template <typename T, int bytes> __device__ __forceinline__ packed<bytes> fetch(const T *from, uint64_t left) {
    if (left >= pointwise_width<T, bytes>) return load<bytes>(from);
    accumulator_t<T> v[pointwise_width<T, bytes>];
#pragma unroll
    for (int i = 0; i < pointwise_width<T, bytes>; ++i) v[i] = i < left ? widen<T>(from[i]) : accumulator_t<T>(0);
    return pack<T, bytes>(v);
}

template <typename T, int bytes> __device__ __forceinline__ void put(T *to, uint64_t left, const packed<bytes> &v) {
    if (left >= pointwise_width<T, bytes>) {
        store<bytes>(to, v);
        return;
    }
    accumulator_t<T> values[pointwise_width<T, bytes>];
    unpack<T>(v, values);
#pragma unroll
    for (int i = 0; i < pointwise_width<T, bytes>; ++i)
        if (i < left) to[i] = narrow<T>(values[i]);
}

// Calls f(type_tag<T>, integral_constant of vec_bytes) for the type of the elements and the bytes of an access, which are 16 or those of an element.
template <typename F> auto for_vectors(bops_dtype dtype, uint32_t vec_bytes, F &&f) {
    return for_float(dtype, [&](auto tag) {
        constexpr int element = int(sizeof(typename decltype(tag)::type));
        if (vec_bytes == 16) return f(tag, std::integral_constant<int, 16>{});
        return f(tag, std::integral_constant<int, element>{});
    });
}

// One thread for every `width` of `elements`.
inline launch_shape pointwise_shape(uint64_t elements, int width) {
    launch_shape shape;
    const uint64_t per_block = uint64_t(pointwise_threads) * uint64_t(width);
    shape.grid = dim3(uint32_t((elements + per_block - 1) / per_block)), shape.block = dim3(pointwise_threads);
    return shape;
}

} // namespace bops
