// Pooling in wide windows: threads share a window, each of which reads every so many of its elements, and what they have is combined in a tree.
// Compiled once for all architectures.
#include "pool.cuh"

namespace bops {
namespace {

// Accesses that a thread has in flight.
constexpr int pool_batch = 8;
constexpr uint32_t warp_threads = 32;

template <typename T, int pooling, bool channels_last, int width, bool is_flat> __global__ void __launch_bounds__(pool_threads)
    pool_wide(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_operands operands, uint32_t lane_bits,
              uint32_t across_bits) {
    using A = accumulator_t<T>;
    // Neighbours of an access: channels of a part each, or flat elements of one window.
    constexpr int each = is_flat ? 16 / int(sizeof(T)) : width;
    __shared__ A held[pool_threads * width];
    __shared__ uint32_t held_at[pooling == BOPS_POOLING_MAX ? pool_threads * width : 1];
    const uint32_t lanes = 1u << lane_bits, across = 1u << across_bits;
    const uint32_t lane = threadIdx.x >> across_bits & (lanes - 1);
    const uint32_t slot = (threadIdx.x >> (across_bits + lane_bits) << across_bits) + (threadIdx.x & (across - 1));
    const uint64_t number = uint64_t(blockIdx.x) * (pool_threads >> lane_bits) + slot;
    const bool is_there = number < params.parts;
    // 1. The window. Threads without a part take the first, and store nothing.
    const pool_place place = pool_place::of<channels_last>(params, is_there ? number : 0, width);
    const auto span = [&](int axis) { return pool_span(params.axes[axis], params.is_adaptive, place.at[axis]); };
    // Flat windows have every element.
    uint32_t elements = params.axes[0].input * params.axes[1].input * params.axes[2].input;
    if constexpr (!is_flat) elements = span(0).elements() * span(1).elements() * span(2).elements();
    const T *const x = static_cast<const T *>(operands.x) + place.plane(params.x);
    // 2. The elements of this thread, in the order of the window.
    const bool is_square = params.pooling == BOPS_POOLING_NORM2;
    A best[width];
    uint32_t at[width]; // their numbers among the elements of the window
    pool_sum<A, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k) best[k] = A(-INFINITY), at[k] = ~0u;
    const auto take = [&](const A(&values)[each], uint32_t first) {
        if constexpr (pooling == BOPS_POOLING_MAX) {
#pragma unroll
            for (int k = 0; k < each; ++k) {
                const int to = is_flat ? 0 : k;
                if (at[to] == ~0u || is_greater(values[k], best[to])) best[to] = values[k], at[to] = is_flat ? first + k : first;
            }
        } else if constexpr (is_flat) {
            // Neighbours are added up two by two.
            A terms[each];
#pragma unroll
            for (int k = 0; k < each; ++k) terms[k] = term<pooling>(is_square, values[k]);
#pragma unroll
            for (int half = each / 2; half > 0; half /= 2)
#pragma unroll
                for (int k = 0; k < half; ++k) terms[k] = terms[2 * k] + terms[2 * k + 1];
            sum.chain[0] += terms[0];
        } else {
#pragma unroll
            for (int k = 0; k < each; ++k) sum.chain[k] += term<pooling>(is_square, values[k]);
        }
    };
    if (elements > 0) {
        // Places of this thread's next element, how far the one behind it is, and what it is further at the end of a row and of a plane.
        uint32_t r2 = 0, r1 = 0, s2 = 0, s1 = 0, rows = 1, columns = 1;
        uint64_t further = 0, at_row = 0, at_plane = 0;
        const T *next = x;
        if constexpr (is_flat) next += lane * each;
        else {
            const pool_span d = span(0), h = span(1), w = span(2);
            rows = h.elements(), columns = w.elements();
            const uint32_t row = lane / columns, plane = row / rows, rows_further = lanes / columns, planes_further = rows_further / rows;
            r2 = lane - row * columns, r1 = row - plane * rows;
            s2 = lanes - rows_further * columns, s1 = rows_further - planes_further * rows;
            const uint64_t of_w = w.step * params.x.spatial[2], of_h = h.step * params.x.spatial[1], of_d = d.step * params.x.spatial[0];
            further = planes_further * of_d + s1 * of_h + s2 * of_w, at_row = of_h - columns * of_w, at_plane = of_d - rows * of_h;
            next += within(params.x, d.element(d.first + plane), h.element(h.first + r1), w.element(w.first + r2));
        }
        uint32_t taken = 0;
        const uint32_t step = lanes * (is_flat ? each : 1);
        for (uint32_t first = lane * (is_flat ? each : 1); first < elements; first += pool_batch * step) {
            packed<each *int(sizeof(T))> values[pool_batch];
#pragma unroll
            for (int b = 0; b < pool_batch; ++b) {
                if (first + b * step < elements) values[b] = *reinterpret_cast<const packed<each *int(sizeof(T))> *>(next);
                if constexpr (is_flat) next += step;
                else {
                    next += further, r2 += s2, r1 += s1;
                    if (r2 >= columns) r2 -= columns, ++r1, next += at_row;
                    if (r1 >= rows) r1 -= rows, next += at_plane;
                }
            }
#pragma unroll
            for (int b = 0; b < pool_batch; ++b) {
                if (first + b * step >= elements) break;
                A own[each];
                unpack<T>(values[b], own);
                take(own, first + b * step);
            }
            if (pooling != BOPS_POOLING_MAX && (taken += pool_batch) % BOPS_POOL_CHAIN == 0) sum.end_chain();
        }
    }
    // 3. What all threads of the window have: of those of a warp by shuffles, before that of warps through shared memory.
    if constexpr (pooling != BOPS_POOLING_MAX)
#pragma unroll
        for (int k = 0; k < width; ++k) best[k] = sum.total(k);
    // Takes in what another thread has.
    const auto combine = [&](int k, A other, uint32_t at_other) {
        if constexpr (pooling == BOPS_POOLING_MAX) {
            // Of equals the first, whichever thread has it.
            const bool is_earlier = at_other < at[k];
            if (is_earlier ? !is_greater(best[k], other) : at_other != ~0u && is_greater(other, best[k])) best[k] = other, at[k] = at_other;
        } else best[k] += other;
    };
    uint32_t half = lanes / 2;
    for (; half << across_bits >= warp_threads; half /= 2) {
        const uint32_t shift = half << across_bits;
        if (lane >= half && lane < 2 * half) {
#pragma unroll
            for (int k = 0; k < width; ++k) {
                held[k * pool_threads + threadIdx.x] = best[k];
                if constexpr (pooling == BOPS_POOLING_MAX) held_at[k * pool_threads + threadIdx.x] = at[k];
            }
        }
        __syncthreads();
        if (lane < half) {
#pragma unroll
            for (int k = 0; k < width; ++k) {
                const uint32_t other = k * pool_threads + threadIdx.x + shift;
                combine(k, held[other], pooling == BOPS_POOLING_MAX ? held_at[other] : 0);
            }
        }
    }
    for (; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const A other = __shfl_down_sync(0xffffffffu, best[k], half << across_bits);
            const uint32_t at_other = pooling == BOPS_POOLING_MAX ? __shfl_down_sync(0xffffffffu, at[k], half << across_bits) : 0;
            if (lane < half) combine(k, other, at_other);
        }
    }
    if (lane > 0 || !is_there) return;
    // 4. What becomes of it.
    const pool_span d = span(0), h = span(1), w = span(2);
    const A factor = pooling == BOPS_POOLING_AVERAGE ? share<A>(params, d, h, w) : A(1);
    A results[width];
#pragma unroll
    for (int k = 0; k < width; ++k)
        results[k] = pooling == BOPS_POOLING_MAX ? best[k] : pooling == pool_norm && is_square ? sqrt(best[k]) : best[k] * factor;
    if constexpr (pooling == BOPS_POOLING_MAX) {
        uint32_t offset[width];
        const uint32_t rows = h.elements(), columns = w.elements();
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const uint32_t first = elements > 0 ? at[k] : 0, row = columns > 0 ? first / columns : 0, plane = rows > 0 ? row / rows : 0;
            const uint32_t r0 = d.first + plane, r1 = h.first + (row - plane * rows), r2 = w.first + (first - row * columns);
            offset[k] = elements > 0 ? (r0 * h.places + r1) * w.places + r2 : 0;
        }
        store_places(params, operands, place, d, h, w, elements > 0, offset);
    }
    T *const y = static_cast<T *>(operands.y) + (place.plane(params.y) + within(params.y, place.at[0], place.at[1], place.at[2]));
    store_elements<T>(y, results);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_pool_params &params, const bops_pool_wide_choice &choice,
                                                   const bops_pool_operands &operands, void *, const Action &action) {
    const uint64_t of_block = pool_threads / choice.lanes;
    const launch_shape shape = pool_shape((params.parts + of_block - 1) / of_block);
    return for_pooling(dtype, params.pooling, [&](auto tag, auto pooling) -> bops_status {
        using T = typename decltype(tag)::type;
        uint32_t lane_bits = 0, across_bits = 0;
        while (1u << lane_bits < choice.lanes) ++lane_bits;
        while (1u << across_bits < choice.across) ++across_bits;
        if (choice.is_channels_last)
            return action(pool_wide<T, pooling, true, 16 / sizeof(T), false>, shape, params, operands, lane_bits, across_bits);
        if (choice.is_flat) return action(pool_wide<T, pooling, false, 1, true>, shape, params, operands, lane_bits, across_bits);
        return action(pool_wide<T, pooling, false, 1, false>, shape, params, operands, lane_bits, across_bits);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pool_wide, bops_dtype, bops_pool_params, bops_pool_wide_choice, bops_pool_operands, bops::with_kernel)
