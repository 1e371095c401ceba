// What the kernels share that write what goes to places of y.
#pragma once
#include "../common/memory.cuh"
#include "lookup.cuh"

namespace bops {

template <typename A> __device__ __forceinline__ A combined(bops_scatter_combine combine, A x, A y) {
    if constexpr (std::is_integral_v<A>) {
        using U = std::make_unsigned_t<A>;
        switch (combine) {
        case BOPS_SCATTER_ADD: return A(U(x) + U(y));
        case BOPS_SCATTER_MULTIPLY: return A(U(x) * U(y));
        case BOPS_SCATTER_MIN: return y < x ? y : x;
        default: return y > x ? y : x;
        }
    } else {
        switch (combine) {
        case BOPS_SCATTER_ADD: return x + y;
        case BOPS_SCATTER_MULTIPLY: return x * y;
        case BOPS_SCATTER_MIN: return y < x || y != y ? y : x;
        default: return y > x || y != y ? y : x;
        }
    }
}

// Calls f with the C++ type of elements that are combined.
template <typename F> bops_status for_combined(bops_dtype dtype, const F &f) {
    switch (dtype) {
    case BOPS_I64: return f(type_tag<int64_t>{});
    case BOPS_I32: return f(type_tag<int32_t>{});
    case BOPS_U32: return f(type_tag<uint32_t>{});
    case BOPS_U8: return f(type_tag<uint8_t>{});
    case BOPS_I8: return f(type_tag<int8_t>{});
    default: return for_float(dtype, f);
    }
}

// The pairs of keys and places in their order, in front of the workspace.
struct scatter_pairs {
    const uint32_t *keys, *places;
};
inline scatter_pairs pairs_in(const bops_scatter_rows &rows, void *workspace) {
    const uint32_t *const keys = static_cast<const uint32_t *>(workspace);
    return {keys, keys + rows.entries};
}

// The unit of a row that a thread has, and which of the block's shares of the entries.
struct scatter_place {
    uint64_t share, unit, source = 0, y = 0;
    __device__ __forceinline__ explicit scatter_place(const bops_scatter_rows &rows) {
        const uint32_t teams = movement_threads / rows.lanes, team = threadIdx.x / rows.lanes;
        const uint32_t group = rows.of_row == 1 ? blockIdx.x : blockIdx.x / rows.of_row;
        share = uint64_t(group) * teams + team;
        unit = uint64_t(blockIdx.x - group * rows.of_row) * rows.lanes + (threadIdx.x - team * rows.lanes);
        uint64_t rest = unit;
        for (int k = 0; k < rows.rank; ++k) {
            uint64_t i = rest;
            if (k + 1 < rows.rank) {
                const split_number split(rows.inner[k], rows.is_long, rest);
                i = split.rest, rest = split.quotient;
            }
            source += i * rows.strides[k].source, y += i * rows.strides[k].y;
        }
    }
};

inline launch_shape scatter_shape(const bops_scatter_rows &rows) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(rows.blocks)), shape.block = dim3(movement_threads);
    return shape;
}

} // namespace bops
