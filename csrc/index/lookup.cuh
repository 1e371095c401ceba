// What the kernels that look up elements share: what an index names, and where a line lies.
#pragma once
#include "../bops_index.h"
#include "../movement/movement.cuh"

namespace bops {

constexpr uint64_t no_position = ~uint64_t(0);

// The position that the index at a place names, if there is one.
__device__ __forceinline__ uint64_t named_position(const bops_lookup_axis &axis, const void *indices, uint64_t at) {
    int64_t index;
    switch (axis.dtype) {
    case BOPS_I64: index = static_cast<const int64_t *>(indices)[at]; break;
    case BOPS_U32: index = static_cast<const uint32_t *>(indices)[at]; break;
    default: index = static_cast<const int32_t *>(indices)[at]; break;
    }
    // Wraps where it is still below 0, which is above every extent.
    const uint64_t position = uint64_t(index) + (index < 0 && axis.from_end ? axis.extent : 0);
    return position < axis.extent ? position : no_position;
}

// Where a part of a line begins, in units of y and of x and in elements of the indices. `at`: units before it in its line.
struct lookup_place {
    uint64_t y = 0, x = 0, index = 0, at = 0;
    __device__ __forceinline__ lookup_place(const bops_lookup_params &params, uint64_t number, uint32_t units_of_part) {
        uint64_t rest = number;
        at = number * units_of_part;
#pragma unroll
        for (int k = 0; k < BOPS_MOVEMENT_EXTENTS; ++k) {
            if (k >= params.rank) break;
            uint64_t i = rest;
            if (k + 1 < params.rank) {
                const split_number split(params.inner[k < BOPS_MOVEMENT_EXTENTS - 1 ? k : 0], params.is_long, rest);
                i = split.rest, rest = split.quotient;
            }
            if (k == 0) at = i *= units_of_part;
            y += i * params.strides[k].y;
            x += i * params.strides[k].x;
            index += i * params.strides[k].index;
        }
    }
};

} // namespace bops
