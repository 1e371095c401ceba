// Elements that indices name, with any strides: a thread takes a part of a line of y, all of whose units it loads before it stores them.
// Compiled once for all architectures.
#include "lookup.cuh"

namespace bops {
namespace {

template <int unit_bytes, int width> __global__ void __launch_bounds__(movement_threads)
    lookup(const __grid_constant__ bops_lookup_params params, const __grid_constant__ bops_lookup_operands operands) {
    using unit = unit_t<unit_bytes>;
    const uint64_t number = uint64_t(blockIdx.x) * movement_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The part.
    const lookup_place place(params, number, width);
    const uint64_t left = params.line - place.at;
    const bops_lookup_strides &step = params.strides[0];
    // 2. The positions: where one index names the line, one.
    uint64_t position[width];
#pragma unroll
    for (int i = 0; i < width; ++i) {
        if (i == 0 || (step.index != 0 && i < left)) position[i] = named_position(params.axis, operands.indices, place.index + i * step.index);
        else position[i] = position[0];
    }
    // 3. Their units.
    const unit *from = static_cast<const unit *>(operands.x) + place.x;
    part<unit_bytes, width> held;
#pragma unroll
    for (int i = 0; i < width; ++i) {
        held.unit[i] = constant<unit_bytes>(params.fill);
        if (i < left && position[i] != no_position) held.unit[i] = from[i * step.x + position[i] * params.axis.apart];
    }
    put_part<unit_bytes, width>(static_cast<unit *>(operands.y) + place.y, step.y, left, held);
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_lookup_params &params, const bops_copy_strided_choice &choice,
                                                   const bops_lookup_operands &operands, void *, const Action &action) {
    return for_parts(choice,
                     [&](auto unit_bytes, auto width) { return action(lookup<unit_bytes, width>, movement_shape(params.parts), params, operands); });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_lookup, uint32_t, bops_lookup_params, bops_copy_strided_choice, bops_lookup_operands, bops::with_kernel)
