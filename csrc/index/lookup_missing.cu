// Counts the indices that are out of range. Sums of integers are the same in any order.
// Compiled once for all architectures.
#include "lookup.cuh"

namespace bops {
namespace {

__global__ void __launch_bounds__(1) clear_missing(uint32_t *missing) { *missing = 0; }

__global__ void __launch_bounds__(movement_threads)
    lookup_missing(const __grid_constant__ bops_lookup_missing_params params, const __grid_constant__ bops_lookup_operands operands) {
    uint32_t found = 0;
    const uint64_t step = uint64_t(gridDim.x) * movement_threads;
    for (uint64_t number = uint64_t(blockIdx.x) * movement_threads + threadIdx.x; number < params.elements; number += step) {
        uint64_t rest = number, at = 0;
        for (int k = 0; k < params.rank; ++k) {
            uint64_t i = rest;
            if (k + 1 < params.rank) {
                const split_number split(params.inner[k], params.is_long, rest);
                i = split.rest, rest = split.quotient;
            }
            at += i * params.strides[k];
        }
        found += named_position(params.axis, operands.indices, at) == no_position;
    }
    if (found > 0) atomicAdd(operands.missing, found);
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_lookup_missing_params &params, uint32_t, const bops_lookup_operands &operands,
                                                   void *, const Action &action) {
    launch_shape shape;
    const bops_status status = action(clear_missing, shape, operands.missing);
    if (status != 0 || params.elements == 0) return status;
    shape.grid = dim3(params.blocks), shape.block = dim3(movement_threads);
    return action(lookup_missing, shape, params, operands);
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_lookup_missing, uint32_t, bops_lookup_missing_params, uint32_t, bops_lookup_operands, bops::with_kernel)
