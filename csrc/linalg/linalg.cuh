// What kernels of matrices share: where elements lie.
#pragma once
#include "../bops_linalg.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../pointwise/walk.cuh"

namespace bops {

// A matrix of a batch, rows and columns of which may be counted from the last.
template <typename T> struct matrix_at {
    T *first;
    uint64_t row, column;
    __device__ __forceinline__ T &operator()(uint64_t i, uint64_t j) const { return first[i * row + j * column]; }
};

// `T`: const of an operand that is read.
template <typename T, typename P>
__device__ __forceinline__ matrix_at<T> matrix_of(const place<BOPS_POINTWISE_EXTENTS, true> &at, const bops_linalg_side &side, P *operand) {
    return {static_cast<T *>(operand) + at.offset(side.matrices), side.row, side.column};
}

} // namespace bops
