// The gradient of pooling: a thread takes an element of dx, or neighbours along the channels or the last axis, and gathers from the windows that see it, one after
// another.
// Compiled once for all architectures.
#include "pool.cuh"

namespace bops {
namespace {

// What a window gives to each of its elements, or of max to the one that it chose.
template <int pooling, typename A>
__device__ __forceinline__ A given(const bops_pool_params &params, const pool_span &d, const pool_span &h, uint32_t ow, A dy, A y) {
    if constexpr (pooling == BOPS_POOLING_AVERAGE) {
        if (params.factor != 0) return dy * A(params.factor);
        return dy * share<A>(params, d, h, pool_span(params.axes[2], params.is_adaptive, ow));
    } else if constexpr (pooling == pool_norm) return y == A(0) ? A(0) : dy / y;
    else return dy;
}

// One block a multiprocessor at least: without that bound ptxas gives wide kernels too few registers.
template <typename T, int pooling, bool channels_last, int width> __global__ void __launch_bounds__(pool_threads, 1)
    pool_backward(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_backward_operands operands) {
    using A = accumulator_t<T>;
    constexpr bool is_max = pooling == BOPS_POOLING_MAX, is_norm = pooling == pool_norm;
    // Neighbours that one window gives to: channels have windows of their own.
    constexpr int along = channels_last ? 1 : width, of_window = channels_last ? width : 1;
    const uint64_t number = uint64_t(blockIdx.x) * pool_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The windows that see the elements.
    const pool_place place = pool_place::of<channels_last>(params, number, width);
    const uint32_t id = place.at[0], ih = place.at[1], iw = place.at[2] * along;
    const bool is_adaptive = params.is_adaptive;
    const bops_pool_axis &axis = params.axes[2];
    const pool_seen of_d(params.axes[0], is_adaptive, id, id), of_h(params.axes[1], is_adaptive, ih, ih), of_w(axis, is_adaptive, iw, iw + along - 1);
    const T *const dy = static_cast<const T *>(operands.dy) + place.plane(params.dy);
    // Of norms of order 1 there is no y, and dy is what a window gives: it is divided by 1.
    const bool has_y = is_norm && params.pooling == BOPS_POOLING_NORM2;
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
#pragma unroll
                    for (int k = 0; k < of_window; ++k) of_y[k] = A(1);
                    if constexpr (is_norm)
                        if (has_y) load_elements<T>(y + (row_of_y + ow * params.y.spatial[2]), of_y);
                    uint32_t offset[of_window];
                    if constexpr (is_max)
                        load_offsets(operands.offsets, params.has_int_offsets, row_of_offsets + ow * params.offsets.spatial[2], offset);
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
                            const bool is_place =
                                k >= start && behind < places * axis.dilation && (axis.dilation == 1 || behind % axis.dilation == 0);
                            sum.chain[k] += is_place ? own : A(0);
                        }
                    } else {
                        const uint32_t behind = uint32_t(-start), place_w = axis.dilation == 1 ? behind : behind / axis.dilation;
                        if (place_w * axis.dilation != behind || place_w >= places) continue;
#pragma unroll
                        for (int k = 0; k < width; ++k) {
                            if constexpr (is_max) sum.chain[k] += offset[k] == before + place_w ? gradient[k] : A(0);
                            else sum.chain[k] += given<pooling>(params, d, h, ow, gradient[k], of_y[k]);
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
    if constexpr (is_norm) {
        A own[width];
        const T *const x = static_cast<const T *>(operands.x) + (place.plane(params.x) + within(params.x, id, ih, iw));
#pragma unroll
        for (int k = 0; k < width; ++k) own[k] = widen<T>(x[k * (channels_last ? params.x.channel : params.x.spatial[2])]);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const A sign = own[k] > A(0) ? A(1) : own[k] < A(0) ? A(-1) : own[k] * A(0);
            results[k] *= has_y ? own[k] : sign;
        }
    }
    T *const dx = static_cast<T *>(operands.dx) + (place.plane(params.dx) + within(params.dx, id, ih, iw));
    store_elements<T>(dx, results);
}

// Tiles of windows, and the elements of dx two by two: what a window has for its elements is read once a tile.
template <typename T, int pooling, bool channels_last, int kernel> __global__ void __launch_bounds__(pool_threads, 2)
    pool_tiles_backward(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_backward_operands operands) {
    using A = accumulator_t<T>;
    using tile = pool_tile<T, channels_last, kernel>;
    constexpr bool is_max = pooling == BOPS_POOLING_MAX;
    // Pairs of columns, elements of each column, windows along the last axis that give to them, and rows of windows. `own` windows follow one another.
    constexpr int vector = tile::vector, own = tile::windows, pairs = channels_last ? 1 : own, lanes = channels_last ? vector : 1;
    constexpr int columns = pairs + tile::before, rows = tile::rows + tile::before;
    const uint64_t number = uint64_t(blockIdx.x) * pool_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. What the windows give, and to which of their places.
    const pool_place place = pool_place::of<channels_last>(params, number, vector);
    const uint32_t d = place.at[0], oh = place.at[1] * tile::rows, ow = place.at[2] * pairs;
    const T *const dy = static_cast<const T *>(operands.dy) + (place.plane(params.dy) + d * params.dy.spatial[0]);
    const uint64_t offsets = is_max ? place.plane(params.offsets) + d * params.offsets.spatial[0] : 0;
    A gradient[rows][columns][lanes];
    uint32_t chosen[rows][columns][lanes];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        const bool is_row = oh + r < params.axes[1].output;
        const T *const row = dy + (oh + r) * params.dy.spatial[1];
        const uint64_t row_of_offsets = offsets + (is_max ? (oh + r) * params.offsets.spatial[1] : 0);
        // Neighbours of one row, and the column behind them.
        constexpr int first = channels_last ? 0 : pairs;
        if constexpr (!channels_last) {
            A values[pairs] = {};
            uint32_t of_values[pairs] = {};
            if (is_row) {
                load_elements<T>(row + ow, values);
                if constexpr (is_max) load_offsets(operands.offsets, false, row_of_offsets + ow, of_values);
            }
#pragma unroll
            for (int j = 0; j < pairs; ++j) gradient[r][j][0] = values[j], chosen[r][j][0] = of_values[j];
        }
#pragma unroll
        for (int j = first; j < columns; ++j) {
#pragma unroll
            for (int k = 0; k < lanes; ++k) gradient[r][j][k] = 0, chosen[r][j][k] = 0;
            if (!is_row || ow + j >= params.axes[2].output) continue;
            load_elements<T>(row + (ow + j) * params.dy.spatial[2], gradient[r][j]);
            if constexpr (is_max) load_offsets(operands.offsets, false, row_of_offsets + (ow + j) * params.offsets.spatial[2], chosen[r][j]);
        }
    }
    if constexpr (!is_max) {
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                const A factor = tile::template share<A>(params, oh + r, ow + j);
#pragma unroll
                for (int k = 0; k < lanes; ++k) gradient[r][j][k] *= factor;
            }
    }
    // 2. Rows of dx two by two: the first lies at place `before` of its windows, the second at the next one, and at place 0 of those in the next row.
    const auto given = [&](int r, int j, int k, int at) { return !is_max || chosen[r][j][k] == at ? gradient[r][j][k] : A(0); };
    const auto of_row = [&](int r, int h, A(&to)[2 * pairs][lanes]) {
        const int at = h * kernel + tile::before;
#pragma unroll
        for (int j = 0; j < pairs; ++j)
#pragma unroll
            for (int k = 0; k < lanes; ++k) {
                to[2 * j][k] = A(0) + given(r, j, k, at);
                to[2 * j + 1][k] = A(0) + given(r, j, k, at + 1);
                if constexpr (kernel == 3) to[2 * j + 1][k] += given(r, j + 1, k, at - 1);
            }
    };
    T *const dx = static_cast<T *>(operands.dx) + (place.plane(params.dx) + d * params.dx.spatial[0]);
#pragma unroll
    for (int i = 0; i < 2 * tile::rows; ++i) {
        const uint32_t ih = 2 * oh + i;
        if (ih >= params.axes[1].input) return;
        A sum[2 * pairs][lanes];
        of_row(i / 2, i % 2 + tile::before, sum);
        if constexpr (kernel == 3)
            if (i % 2 == 1) {
                A next[2 * pairs][lanes];
                of_row((i + 1) / 2, 0, next);
#pragma unroll
                for (int j = 0; j < 2 * pairs; ++j)
#pragma unroll
                    for (int k = 0; k < lanes; ++k) sum[j][k] += next[j][k];
            }
        // 3. What becomes of it.
        T *const to = dx + (ih * params.dx.spatial[1] + 2 * ow * params.dx.spatial[2]);
        if constexpr (channels_last) {
#pragma unroll
            for (int j = 0; j < 2; ++j)
                if (2 * ow + j < params.axes[2].input) store_elements<T>(to + j * params.dx.spatial[2], sum[j]);
        } else {
            A results[vector];
#pragma unroll
            for (int j = 0; j < vector; ++j) results[j] = sum[j][0];
            store_elements<T>(to, results);
        }
    }
}

// Averages over whole planes of a dx without gaps: each of their elements has the same gradient. A thread has some vectors, a block of them apart.
template <typename T, bool channels_last> __global__ void __launch_bounds__(pool_threads)
    pool_planes_backward(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_backward_operands operands) {
    using A = accumulator_t<T>;
    constexpr int vector = 16 / int(sizeof(T)), lanes = channels_last ? vector : 1;
    const uint64_t first = uint64_t(blockIdx.x) * (pool_threads * pool_plane_vectors) + threadIdx.x;
    A values[pool_plane_vectors][lanes];
#pragma unroll
    for (int i = 0; i < pool_plane_vectors; ++i) {
        const uint64_t number = first + i * pool_threads;
        if (number >= params.parts) break;
        // Of channels the vector and the sample, else the plane, of which channels are the last.
        const split_number split(params.inner[0], params.is_long, number);
        uint64_t at = split.quotient * params.dy.channel;
        if constexpr (channels_last)
            at = split_number(params.inner[1], params.is_long, split.quotient).quotient * params.dy.sample + split.rest * vector;
        load_elements<T>(static_cast<const T *>(operands.dy) + at, values[i]);
    }
    T *const dx = static_cast<T *>(operands.dx) + first * vector;
#pragma unroll
    for (int i = 0; i < pool_plane_vectors; ++i) {
        if (first + i * pool_threads >= params.parts) return;
        A results[vector];
#pragma unroll
        for (int k = 0; k < vector; ++k) results[k] = A(0) + values[i][k % lanes] * A(params.factor);
        store<16, false>(dx + i * (pool_threads * vector), pack<T, 16>(results));
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_pool_params &params, const bops_pool_choice &choice,
                                                   const bops_pool_backward_operands &operands, void *, const Action &action) {
    const launch_shape shape = pool_shape((params.parts + pool_threads - 1) / pool_threads);
    return for_pooling(dtype, params.pooling, [&](auto tag, auto pooling) -> bops_status {
        using T = typename decltype(tag)::type;
        constexpr int wide = 16 / sizeof(T);
        if (choice.has_planes) {
            const launch_shape of_planes = pool_shape((params.parts + pool_threads * pool_plane_vectors - 1) / (pool_threads * pool_plane_vectors));
            if constexpr (pooling != BOPS_POOLING_AVERAGE) return cudaErrorInvalidValue;
            else
                return for_flag(choice.is_channels_last,
                                [&](auto channels_last) { return action(pool_planes_backward<T, channels_last>, of_planes, params, operands); });
        }
        if (choice.kernel > 0) {
            return for_tiles<T, pooling>(choice.kernel, [&](auto kernel) {
                return for_flag(choice.is_channels_last, [&](auto channels_last) {
                    return action(pool_tiles_backward<T, pooling, channels_last, kernel>, shape, params, operands);
                });
            });
        }
        if (choice.is_channels_last) return action(pool_backward<T, pooling, true, wide>, shape, params, operands);
        if (choice.width > 1) return action(pool_backward<T, pooling, false, wide>, shape, params, operands);
        return action(pool_backward<T, pooling, false, 1>, shape, params, operands);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pool_backward, bops_dtype, bops_pool_params, bops_pool_choice, bops_pool_backward_operands, bops::with_kernel)
