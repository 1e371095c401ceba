// A thread's ring of vectors in shared memory, for rows that are longer than registers hold.
#pragma once
#include "../../common/row_reduce.cuh"

namespace bops {

// The rings of a block's threads fill the dynamic shared memory, [slot][array][thread]. A thread copies and reads its own vectors only, so that no
// barrier is needed. slots: places of a ring for vectors; arrays: tensors that each have a vector in a place.
template <int slots, int arrays> struct vector_ring {
    uint32_t at = 0;
    __device__ __forceinline__ packed<16> *slot(int array) const {
        return reinterpret_cast<packed<16> *>(dynamic_shared) + ((at * arrays + array) * blockDim.x + threadIdx.x);
    }
    __device__ __forceinline__ packed<16> load(int array) const {
        const uint4 value = *reinterpret_cast<const uint4 *>(slot(array));
        return {{value.x, value.y, value.z, value.w}};
    }
    __device__ __forceinline__ void store(int array, const packed<16> &value) const {
        *reinterpret_cast<uint4 *>(slot(array)) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
    }
    __device__ __forceinline__ void next() { at = at + 1 == slots ? 0 : at + 1; }
};

} // namespace bops
