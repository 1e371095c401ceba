// Long lines, each of which one index names, in vectors of 16 bytes: threads side by side take a part of a line, and each has several of its vectors in
// flight behind one index.
// Compiled once for all architectures.
#include "lookup.cuh"

namespace bops {
namespace {

__global__ void __launch_bounds__(movement_threads)
    lookup_rows(const __grid_constant__ bops_lookup_rows_params params, const __grid_constant__ bops_lookup_operands operands, uint32_t lanes) {
    constexpr int vectors = BOPS_LOOKUP_VECTORS;
    const bops_lookup_params &moved = params.moved;
    const uint64_t number = uint64_t(blockIdx.x) * (movement_threads / lanes) + threadIdx.x / lanes;
    if (number >= moved.parts) return;
    // 1. The part.
    const lookup_place place(moved, number, lanes * vectors);
    const uint64_t left = moved.line - place.at;
    const uint32_t lane = threadIdx.x % lanes;
    // 2. The position.
    const uint64_t position = named_position(moved.axis, operands.indices, place.index);
    // 3. Its vectors.
    const uint4 *from = static_cast<const uint4 *>(operands.x) + place.x + position * moved.axis.apart;
    uint4 *to = static_cast<uint4 *>(operands.y) + place.y;
    uint4 held[vectors];
#pragma unroll
    for (int k = 0; k < vectors; ++k) held[k] = constant<16>(moved.fill);
    if (position != no_position) {
#pragma unroll
        for (int k = 0; k < vectors; ++k)
            if (lane + k * lanes < left) held[k] = from[lane + k * lanes];
    }
#pragma unroll
    for (int k = 0; k < vectors; ++k)
        if (lane + k * lanes < left) to[lane + k * lanes] = held[k];
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_lookup_rows_params &params, const bops_lookup_rows_choice &choice,
                                                   const bops_lookup_operands &operands, void *, const Action &action) {
    return action(lookup_rows, movement_shape(params.moved.parts * choice.lanes), params, operands, choice.lanes);
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_lookup_rows, uint32_t, bops_lookup_rows_params, bops_lookup_rows_choice, bops_lookup_operands, bops::with_kernel)
