// Where a thread's elements lie in operands of any strides.
#pragma once
#include "../bops_pointwise.h"
#include "pointwise.cuh"

namespace bops {

// The place of an access in a walk of up to so many extents. `may_be_long`: whether numbers of accesses may reach 2^31.
template <int extents, bool may_be_long> struct place {
    uint64_t first; // position
    uint64_t outer; // along the outermost extent
    uint32_t inner[extents - 1], rank;

    __device__ __forceinline__ place(const bops_walk &walk, uint64_t access, int width) : first(access * width), outer(access), rank(walk.rank) {
#pragma unroll
        for (int k = 0; k + 1 < extents; ++k) inner[k] = 0;
#pragma unroll
        for (int k = 0; k + 1 < extents; ++k) {
            if (k + 1 >= rank) break;
            const bops_divisor &by = walk.inner[k];
            uint64_t quotient;
            if (may_be_long && walk.is_long) quotient = __umul64hi(outer << 24, by.multiplier) >> by.shift;
            else quotient = __umulhi(uint32_t(outer) << 1, uint32_t(by.multiplier)) >> by.shift;
            inner[k] = uint32_t(outer) - uint32_t(quotient) * by.extent;
            outer = quotient;
        }
    }

    // Of the access in an operand, in elements.
    __device__ __forceinline__ uint64_t offset(const bops_walked &walked) const { return walked.is_dense ? first : offset_by(walked.strides); }
    __device__ __forceinline__ uint64_t offset_by(const uint64_t *strides) const {
        uint64_t at = (may_be_long ? outer : uint32_t(outer)) * strides[0];
#pragma unroll
        for (int k = 0; k + 1 < extents; ++k) {
            if (k + 1 >= rank) break;
            at += inner[k] * strides[k + 1];
        }
        return at;
    }
};

// In walks of one extent elements lie next to each other.
template <> struct place<1, true> {
    uint64_t first;
    __device__ __forceinline__ place(const bops_walk &, uint64_t access, int width) : first(access * width) {}
    __device__ __forceinline__ uint64_t offset(const bops_walked &walked) const { return walked.is_repeated ? 0 : first; }
};

// The elements of an access as they are stored, `left` of them at most; of a repeated operand one element. Nothing is made of what is loaded, so that
// the loads of all operands are in flight together. `is_read_once`: whether other accesses read none of them.
template <typename T, int bytes, bool is_read_once>
__device__ __forceinline__ packed<bytes> load_walked(bool is_repeated, const T *from, uint64_t left) {
    if (is_repeated) {
        const packed<sizeof(T)> one = load<sizeof(T)>(from);
        packed<bytes> v;
#pragma unroll
        for (int i = 0; i < int(sizeof(one) / sizeof(one.word[0])); ++i) v.word[i] = one.word[i];
        return v;
    }
    if constexpr (is_read_once) return fetch<T, bytes>(from, left);
    else return load<bytes, false>(from);
}

// What load_walked has loaded, as values.
template <typename T, int bytes>
__device__ __forceinline__ void unpack_walked(bool is_repeated, const packed<bytes> &from, accumulator_t<T> (&to)[bytes / sizeof(T)]) {
    if (bytes > int(sizeof(T)) && is_repeated) {
        packed<sizeof(T)> element;
        accumulator_t<T> one[1];
#pragma unroll
        for (int i = 0; i < int(sizeof(element) / sizeof(element.word[0])); ++i) element.word[i] = decltype(element.word[0] + 0)(from.word[i]);
        unpack<T>(element, one);
#pragma unroll
        for (int i = 0; i < bytes / int(sizeof(T)); ++i) to[i] = one[0];
    } else unpack<T>(from, to);
}

} // namespace bops
