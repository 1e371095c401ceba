// Copies of any strides: a thread takes a part of a line of y, all of whose units it loads before it stores them.
// Compiled once for all architectures.
#include "movement.cuh"

namespace bops {
namespace {

template <int unit_bytes, int width> __global__ void __launch_bounds__(movement_threads)
    copy_strided(const __grid_constant__ bops_copy_strided_params params, const __grid_constant__ bops_movement_operands operands) {
    using unit = unit_t<unit_bytes>;
    const uint64_t number = uint64_t(blockIdx.x) * movement_threads + threadIdx.x;
    if (number >= params.parts) {
        // The bytes behind the last unit.
        if (width == 1 && number == params.parts) {
            const uint64_t start = params.parts * unit_bytes;
            const char *from = reinterpret_cast<const char *>(static_cast<const unit *>(operands.x) + params.from) + start;
            char *to = reinterpret_cast<char *>(static_cast<unit *>(operands.y) + params.to) + start;
            for (uint32_t i = 0; i < params.tail_bytes; ++i) to[i] = from[i];
        }
        return;
    }
    // 1. The part.
    uint64_t rest = number, at = number;
    const unit *from = static_cast<const unit *>(operands.x) + params.from;
    unit *to = static_cast<unit *>(operands.y) + params.to;
#pragma unroll
    for (int k = 0; k < BOPS_MOVEMENT_EXTENTS; ++k) {
        if (k >= params.rank) break;
        uint64_t i = rest;
        if (k + 1 < params.rank) {
            const split_number split(params.inner[k < BOPS_MOVEMENT_EXTENTS - 1 ? k : 0], params.is_long, rest);
            i = split.rest, rest = split.quotient;
        }
        if (k == 0) at = i *= width;
        to += i * params.strides[k].to;
        from += int64_t(i) * params.strides[k].from;
    }
    // 2. Its units.
    const uint64_t left = params.line - at;
    part<unit_bytes, width> held;
#pragma unroll
    for (int i = 0; i < width; ++i)
        if (i < left) held.unit[i] = from[i * params.strides[0].from];
    put_part<unit_bytes, width>(to, params.strides[0].to, left, held);
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_copy_strided_params &params, const bops_copy_strided_choice &choice,
                                                   const bops_movement_operands &operands, void *, const Action &action) {
    return for_parts(choice, [&](auto unit_bytes, auto width) {
        return action(copy_strided<unit_bytes, width>, movement_shape(params.parts + (params.tail_bytes > 0)), params, operands);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_copy_strided, uint32_t, bops_copy_strided_params, bops_copy_strided_choice, bops_movement_operands, bops::with_kernel)
