// Pooling: a thread takes a window, or those of neighbouring channels, whose elements it reads one after another.
#include "pool.cuh"

namespace bops {
namespace {

// square: 0, or the places of a window along each of the last two axes.
template <typename T, int pooling, bool channels_last, int width, int square> __global__ void __launch_bounds__(pool_threads)
    pool(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_operands operands) {
    using A = accumulator_t<T>;
    const uint64_t number = uint64_t(blockIdx.x) * pool_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The window.
    const pool_place place = pool_place::of<channels_last>(params, number, width);
    const pool_span d(params.axes[0], params.is_adaptive, place.at[0]), h(params.axes[1], params.is_adaptive, place.at[1]),
        w(params.axes[2], params.is_adaptive, place.at[2]);
    const bool has_elements = d.elements() > 0 && h.elements() > 0 && w.elements() > 0;
    const T *const x = static_cast<const T *>(operands.x) + place.plane(params.x);
    // 2. Its elements.
    A best[width];
    uint32_t offset[width];
    bool is_first = true;
    pool_sum<A, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k) best[k] = A(-INFINITY), offset[k] = 0;
    // An element, at a place of the window.
    const auto take = [&](const A(&values)[width], uint32_t at) {
#pragma unroll
        for (int k = 0; k < width; ++k) {
            if constexpr (pooling == BOPS_POOLING_MAX) {
                if (is_first || is_greater(values[k], best[k])) best[k] = values[k], offset[k] = at;
            } else sum.chain[k] += term<pooling>(values[k]);
        }
        is_first = false;
    };
    for (uint32_t r0 = d.first; r0 < d.end; ++r0) {
        if constexpr (square > 0) {
            const uint64_t stride = params.x.spatial[2];
#pragma unroll
            for (int r1 = 0; r1 < square; ++r1) {
                if (r1 < h.first || r1 >= h.end) continue;
                const T *const row = x + (d.element(r0) * params.x.spatial[0] + h.element(r1) * params.x.spatial[1]);
                const uint32_t at = (r0 * square + r1) * square;
#pragma unroll
                for (int r2 = 0; r2 < square; ++r2) {
                    if (r2 < w.first || r2 >= w.end) continue;
                    A values[width];
                    load_elements<T>(row + uint64_t(w.element(r2)) * stride, values);
                    take(values, at + r2);
                }
            }
            if constexpr (pooling != BOPS_POOLING_MAX) sum.end_chain();
        } else {
            for (uint32_t r1 = h.first; r1 < h.end; ++r1) {
                const T *const row = x + within(params.x, d.element(r0), h.element(r1), 0);
                const uint32_t at = (r0 * h.places + r1) * w.places;
                for (uint32_t begin = w.first; begin < w.end; begin += BOPS_POOL_CHAIN) {
                    const uint32_t end = min(begin + BOPS_POOL_CHAIN, w.end);
                    for (uint32_t r2 = begin; r2 < end; ++r2) {
                        A values[width];
                        load_elements<T>(row + w.element(r2) * params.x.spatial[2], values);
                        take(values, at + r2);
                    }
                    if constexpr (pooling != BOPS_POOLING_MAX) sum.end_chain();
                }
            }
        }
    }
    // 3. What becomes of them.
    if constexpr (pooling == BOPS_POOLING_MAX) {
        store_places(params, operands, place, d, h, w, has_elements, offset);
    } else {
        const A factor = pooling == BOPS_POOLING_AVERAGE ? share<A>(params, d, h, w) : A(1);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const A total = sum.total(k);
            best[k] = pooling == BOPS_POOLING_NORM2 ? sqrt(total) : total * factor;
        }
    }
    T *const y = static_cast<T *>(operands.y) + (place.plane(params.y) + within(params.y, place.at[0], place.at[1], place.at[2]));
    store_elements<T>(y, best);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_pool_params &params, const bops_pool_choice &choice,
                                                   const bops_pool_operands &operands, void *, const Action &action) {
    const launch_shape shape = pool_shape((params.parts + pool_threads - 1) / pool_threads);
    return for_pooling(dtype, params.pooling, [&](auto tag, auto pooling) -> bops_status {
        using T = typename decltype(tag)::type;
        if (choice.is_channels_last) return action(pool<T, pooling, true, 16 / sizeof(T), 0>, shape, params, operands);
        if constexpr (pooling <= BOPS_POOLING_AVERAGE) {
            if (choice.kernel == 2) return action(pool<T, pooling, false, 1, 2>, shape, params, operands);
            if (choice.kernel == 3) return action(pool<T, pooling, false, 1, 3>, shape, params, operands);
        }
        return action(pool<T, pooling, false, 1, 0>, shape, params, operands);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pool, bops_dtype, bops_pool_params, bops_pool_choice, bops_pool_operands, bops::with_kernel)
