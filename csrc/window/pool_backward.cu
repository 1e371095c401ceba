// The gradient of pooling: a thread takes an element of dx, or neighbours along the channels or the last axis, and gathers from the windows that see it, one after
// another.
#include "pool.cuh"

namespace bops {
namespace {

// What a window gives to each of its elements, or of max to the one that it chose.
template <int pooling, typename A>
__device__ __forceinline__ A given(const bops_pool_params &params, const pool_span &d, const pool_span &h, uint32_t ow, A dy, A y) {
    if constexpr (pooling == BOPS_POOLING_AVERAGE) {
        if (params.factor != 0) return dy * A(params.factor);
        return dy * share<A>(params, d, h, pool_span(params.axes[2], params.is_adaptive, ow));
    } else if constexpr (pooling == BOPS_POOLING_NORM2) return y == A(0) ? A(0) : dy / y;
    else return dy;
}

template <typename T, int pooling, bool channels_last, int width> __global__ void __launch_bounds__(pool_threads)
    pool_backward(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_backward_operands operands) {
    using A = accumulator_t<T>;
    constexpr bool is_max = pooling == BOPS_POOLING_MAX, has_y = pooling == BOPS_POOLING_NORM2;
    // Neighbours that one window gives to: channels have windows of their own.
    constexpr int along = channels_last ? 1 : width, of_window = channels_last ? width : 1;
    const uint64_t number = uint64_t(blockIdx.x) * pool_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The windows that see the elements.
    const pool_place place = pool_place::of<channels_last>(params, number, width);
    const uint32_t id = place.at[0], ih = place.at[1], iw = place.at[2] * along;
    const bool is_adaptive = params.is_adaptive;
    const bops_pool_axis &axis = params.axes[2];
    const pool_seen of_d(params.axes[0], is_adaptive, id, id), of_h(params.axes[1], is_adaptive, ih, ih),
        of_w(axis, is_adaptive, iw, iw + along - 1);
    const T *const dy = static_cast<const T *>(operands.dy) + place.plane(params.dy);
    const T *const y = has_y ? static_cast<const T *>(operands.y) + place.plane(params.y) : nullptr;
    const uint64_t offsets = is_max ? place.plane(params.offsets) : 0;
    // 2. What they give.
    pool_sum<A, width> sum;
    for (uint32_t od = of_d.first; od < of_d.end; ++od) {
        const pool_span d(params.axes[0], is_adaptive, od);
        uint32_t place_d;
        if (!find_place(d, id, place_d)) continue;
        for (uint32_t oh = of_h.first; oh < of_h.end; ++oh) {
            const pool_span h(params.axes[1], is_adaptive, oh);
            uint32_t place_h;
            if (!find_place(h, ih, place_h)) continue;
            const uint64_t row = within(params.dy, od, oh, 0), row_of_y = has_y ? within(params.y, od, oh, 0) : 0;
            const uint64_t row_of_offsets = is_max ? offsets + within(params.offsets, od, oh, 0) : 0;
            for (uint32_t begin = of_w.first; begin < of_w.end; begin += BOPS_POOL_CHAIN) {
                const uint32_t end = min(begin + BOPS_POOL_CHAIN, of_w.end);
                for (uint32_t ow = begin; ow < end; ++ow) {
                    // Where the window begins, from the first of the elements on, and how long it is.
                    uint32_t places = axis.kernel;
                    int32_t start = int32_t(ow * axis.stride.extent) - int32_t(axis.before) - int32_t(iw);
                    if (is_adaptive) {
                        const uint32_t first = shared_begin(ow, axis.output, axis.input);
                        places = shared_end(ow, axis.output, axis.input) - first;
                        start = int32_t(first) - int32_t(iw);
                    }
                    A gradient[of_window], of_y[of_window];
                    load_elements<T>(dy + (row + ow * params.dy.spatial[2]), gradient);
                    of_y[0] = 0;
                    if constexpr (has_y) load_elements<T>(y + (row_of_y + ow * params.y.spatial[2]), of_y);
                    uint32_t offset[of_window];
                    if constexpr (is_max) load_offsets(operands.offsets, params.has_int_offsets, row_of_offsets + ow * params.offsets.spatial[2], offset);
                    const uint32_t before = (place_d * h.places + place_h) * places;
                    if constexpr (is_max && !channels_last) {
                        // The place along the last axis, if the chosen one is in this row.
                        const uint32_t chosen = offset[0] - before;
                        const int32_t at = chosen < places ? start + int32_t(chosen * axis.dilation) : -1;
#pragma unroll
                        for (int k = 0; k < width; ++k) sum.chain[k] += at == k ? gradient[0] : A(0);
                    } else if constexpr (!channels_last) {
                        const A own = given<pooling>(params, d, h, ow, gradient[0], of_y[0]);
#pragma unroll
                        for (int k = 0; k < width; ++k) {
                            const uint32_t behind = uint32_t(k - start);
                            const bool is_place = k >= start && behind < places * axis.dilation && (axis.dilation == 1 || behind % axis.dilation == 0);
                            sum.chain[k] += is_place ? own : A(0);
                        }
                    } else {
                        const uint32_t behind = uint32_t(-start), place_w = axis.dilation == 1 ? behind : behind / axis.dilation;
                        if (place_w * axis.dilation != behind || place_w >= places) continue;
#pragma unroll
                        for (int k = 0; k < width; ++k) {
                            if constexpr (is_max) sum.chain[k] += offset[k] == before + place_w ? gradient[k] : A(0);
                            else sum.chain[k] += given<pooling>(params, d, h, ow, gradient[k], of_y[has_y ? k : 0]);
                        }
                    }
                }
                sum.end_chain();
            }
        }
    }
    // 3. What becomes of it.
    A results[width];
#pragma unroll
    for (int k = 0; k < width; ++k) results[k] = sum.total(k);
    if constexpr (pooling >= BOPS_POOLING_NORM1) {
        A own[width];
        const T *const x = static_cast<const T *>(operands.x) + (place.plane(params.x) + within(params.x, id, ih, iw));
#pragma unroll
        for (int k = 0; k < width; ++k) own[k] = widen<T>(x[k * (channels_last ? params.x.channel : params.x.spatial[2])]);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const A sign = own[k] > A(0) ? A(1) : own[k] < A(0) ? A(-1) : own[k] * A(0);
            results[k] *= pooling == BOPS_POOLING_NORM1 ? sign : own[k];
        }
    }
    T *const dx = static_cast<T *>(operands.dx) + (place.plane(params.dx) + within(params.dx, id, ih, iw));
    store_elements<T>(dx, results);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_pool_params &params, const bops_pool_choice &choice,
                                                   const bops_pool_backward_operands &operands, void *, const Action &action) {
    const launch_shape shape = pool_shape((params.parts + pool_threads - 1) / pool_threads);
    return for_pooling(dtype, params.pooling, [&](auto tag, auto pooling) -> bops_status {
        using T = typename decltype(tag)::type;
        constexpr int wide = 16 / sizeof(T);
        if (choice.is_channels_last) return action(pool_backward<T, pooling, true, wide>, shape, params, operands);
        if (choice.width > 1) return action(pool_backward<T, pooling, false, wide>, shape, params, operands);
        return action(pool_backward<T, pooling, false, 1>, shape, params, operands);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pool_backward, bops_dtype, bops_pool_params, bops_pool_choice, bops_pool_backward_operands, bops::with_kernel)
