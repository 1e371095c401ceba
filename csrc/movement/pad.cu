// Padding: a thread takes a part of a line of y, and reads each of its units by itself.
// Compiled once for all architectures.
#include "movement.cuh"

namespace bops {
namespace {

constexpr uint64_t no_element = ~uint64_t(0);

// The element that a position along an extent reads.
__device__ __forceinline__ uint64_t source(const bops_pad_edge &edge, bops_outside outside, uint64_t position) {
    if (!edge.has_edge) return position;
    const int64_t at = int64_t(position) - edge.before, last = int64_t(edge.extent) - 1;
    switch (outside) {
    case BOPS_OUTSIDE_REFLECT: return uint64_t(at > last ? 2 * last - at : at < 0 ? -at : at);
    case BOPS_OUTSIDE_REPLICATE: return uint64_t(at > last ? last : at < 0 ? 0 : at);
    case BOPS_OUTSIDE_CIRCULAR: return uint64_t(at > last ? at - last - 1 : at < 0 ? at + last + 1 : at);
    default: break;
    }
    if (at < 0) return no_element;
    if (edge.dilation == 1) return at > last ? no_element : uint64_t(at);
    const uint64_t element = uint64_t(at) / edge.dilation;
    return element * edge.dilation == uint64_t(at) && element < edge.extent ? element : no_element;
}

template <int unit_bytes, int width> __global__ void __launch_bounds__(movement_threads)
    pad(const __grid_constant__ bops_pad_params params, const __grid_constant__ bops_movement_operands operands) {
    using unit = unit_t<unit_bytes>;
    const bops_copy_strided_params &moved = params.moved;
    const uint64_t number = uint64_t(blockIdx.x) * movement_threads + threadIdx.x;
    if (number >= moved.parts) return;
    // 1. The part.
    uint64_t rest = number, at = number;
    const unit *from = static_cast<const unit *>(operands.x) + moved.from;
    unit *to = static_cast<unit *>(operands.y) + moved.to;
    bool is_inside = true;
#pragma unroll
    for (int k = 0; k < BOPS_MOVEMENT_EXTENTS; ++k) {
        if (k >= moved.rank) break;
        uint64_t i = rest;
        if (k + 1 < moved.rank) {
            const split_number split(moved.inner[k < BOPS_MOVEMENT_EXTENTS - 1 ? k : 0], moved.is_long, rest);
            i = split.rest, rest = split.quotient;
        }
        if (k == 0) {
            at = i *= width;
        } else {
            const uint64_t element = source(params.edges[k], params.outside, i);
            is_inside = is_inside && element != no_element;
            from += int64_t(element) * moved.strides[k].from;
        }
        to += i * moved.strides[k].to;
    }
    // 2. Its units. Elements follow one another where that is so along the line, and either all positions read one or others have the constant.
    const uint64_t left = moved.line - at;
    part<unit_bytes, width> held;
    const bops_pad_edge &edge = params.edges[0];
    const int64_t step = moved.strides[0].from;
    const uint64_t first = at - uint64_t(edge.before); // wraps before the first element
    if (edge.dilation == 1 && (params.outside == BOPS_OUTSIDE_CONSTANT || (first < edge.extent && first + width <= edge.extent))) {
        const unit *here = from + int64_t(first) * step;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            held.unit[i] = constant<unit_bytes>(params.value);
            if (is_inside && first + i < edge.extent) held.unit[i] = here[i * step];
        }
    } else {
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const uint64_t element = i < left && is_inside ? source(edge, params.outside, at + i) : no_element;
            held.unit[i] = element != no_element ? from[int64_t(element) * step] : constant<unit_bytes>(params.value);
        }
    }
    put_part<unit_bytes, width>(to, moved.strides[0].to, left, held);
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_pad_params &params, const bops_copy_strided_choice &choice,
                                                   const bops_movement_operands &operands, void *, const Action &action) {
    return for_parts(
        choice, [&](auto unit_bytes, auto width) { return action(pad<unit_bytes, width>, movement_shape(params.moved.parts), params, operands); });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pad, uint32_t, bops_pad_params, bops_copy_strided_choice, bops_movement_operands, bops::with_kernel)
