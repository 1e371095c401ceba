// Pooling: a thread takes a window, or those of neighbouring channels, whose elements it reads one after another; or a tile of windows, whose elements it reads at once.
#include "pool.cuh"

namespace bops {
namespace {

// square: 0, or the places of a window along each of the last two axes.
template <typename T, int pooling, bool channels_last, int width, int square> __global__ void __launch_bounds__(pool_threads, 1)
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
    const bool is_square = params.pooling == BOPS_POOLING_NORM2;
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
            } else sum.chain[k] += term<pooling>(is_square, values[k]);
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
            best[k] = pooling == pool_norm && is_square ? sqrt(total) : total * factor;
        }
    }
    T *const y = static_cast<T *>(operands.y) + (place.plane(params.y) + within(params.y, place.at[0], place.at[1], place.at[2]));
    store_elements<T>(y, best);
}

// As is_greater, of two numbers of 16 bits: a mask of those that are greater.
template <typename T> __device__ __forceinline__ uint32_t greater_halves(uint32_t later, uint32_t earlier) {
    using pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const pair a = reinterpret_cast<const pair &>(later), b = reinterpret_cast<const pair &>(earlier);
    return __hgtu2_mask(a, b) & __heq2_mask(b, b);
}

// Tiles of windows. What a row of x gives to each window is found once, although two rows of windows may see it.
template <typename T, int pooling, bool channels_last, int kernel> __global__ void __launch_bounds__(pool_threads, 2)
    pool_tiles(const __grid_constant__ bops_pool_params params, const __grid_constant__ bops_pool_operands operands) {
    using A = accumulator_t<T>;
    using tile = pool_tile<T, channels_last, kernel>;
    constexpr bool is_max = pooling == BOPS_POOLING_MAX, in_pairs = is_max && sizeof(T) == 2 && has_sm_90;
    constexpr int vector = tile::vector, windows = tile::windows, vectors = channels_last ? kernel : 1, rows = 2 * tile::rows + tile::before;
    const uint64_t number = uint64_t(blockIdx.x) * pool_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The windows, and their elements: of those outside of x what leaves results as they are.
    const pool_place place = pool_place::of<channels_last>(params, number, vector);
    const uint32_t d = place.at[0], oh = place.at[1] * tile::rows, column = place.at[2], ow = channels_last ? column : column * windows;
    const T *const x = static_cast<const T *>(operands.x) + (place.plane(params.x) + d * params.x.spatial[0]);
    A nothing[vector];
#pragma unroll
    for (int k = 0; k < vector; ++k) nothing[k] = is_max ? A(-INFINITY) : A(0);
    packed<16> elements[rows][vectors];
    T left[rows]; // of neighbours, the one before them
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        const uint32_t ih = 2 * oh + r - tile::before;
        const bool is_row = ih < params.axes[1].input;
        const T *const row = x + ih * params.x.spatial[1];
#pragma unroll
        for (int c = 0; c < vectors; ++c) {
            const uint32_t iw = channels_last ? 2 * ow + c - tile::before : 0;
            elements[r][c] = pack<T, 16>(nothing);
            if (is_row && (!channels_last || iw < params.axes[2].input))
                elements[r][c] = *reinterpret_cast<const packed<16> *>(row + (channels_last ? iw * params.x.spatial[2] : column * vector));
        }
        left[r] = narrow<T>(nothing[0]);
        if (!channels_last && kernel == 3 && is_row && column > 0) left[r] = row[column * vector - 1];
    }
    // 2. What rows have of each window: the greatest element and its place, or the sum. Of 16 bits, words have those of two windows each.
    using unit = std::conditional_t<in_pairs, uint32_t, A>;
    constexpr int units = in_pairs ? windows / 2 : windows, one = in_pairs ? 0x10001 : 1;
    struct of_row {
        unit value[units];
        uint32_t at[units];
    };
    const auto take = [](of_row &to, const of_row &from, uint32_t further) {
#pragma unroll
        for (int k = 0; k < units; ++k) {
            if constexpr (in_pairs) {
                const uint32_t is_later = greater_halves<T>(from.value[k], to.value[k]);
                to.value[k] = (from.value[k] & is_later) | (to.value[k] & ~is_later);
                to.at[k] = ((from.at[k] + further * one) & is_later) | (to.at[k] & ~is_later);
            } else if constexpr (is_max) {
                if (is_greater(from.value[k], to.value[k])) to.value[k] = from.value[k], to.at[k] = from.at[k] + further;
            } else to.value[k] += from.value[k];
        }
    };
    const auto find = [&](int r) {
        A own[vectors][vector];
#pragma unroll
        for (int c = 0; c < vectors; ++c) unpack<T>(elements[r][c], own[c]);
        of_row found;
#pragma unroll
        for (int c = 0; c < kernel; ++c) {
            of_row next;
            // The first element of x is the first of its window.
            const bool is_behind = is_max && kernel == 3 && c == 0 && column == 0;
#pragma unroll
            for (int k = 0; k < units; ++k) {
                next.at[k] = c * one;
                if constexpr (channels_last) {
                    if constexpr (in_pairs) next.value[k] = is_behind ? elements[r][1].word[k] : elements[r][c].word[k];
                    else next.value[k] = is_behind ? own[1][k] : own[c][k];
                    if (is_behind) next.at[k] = one;
                } else if constexpr (in_pairs) {
                    const uint32_t(&word)[4] = elements[r][0].word;
                    const int i = c - tile::before;
                    if (i < 0) {
                        const uint32_t previous = k > 0 ? word[k > 0 ? 2 * k - 1 : 0] : uint32_t(reinterpret_cast<const uint16_t &>(left[r])) << 16;
                        next.value[k] = __byte_perm(previous, word[2 * k], 0x7632);
                        if (is_behind && k == 0) next.value[k] = word[0], next.at[k] = 1;
                    } else next.value[k] = __byte_perm(word[2 * k], word[2 * k + 1], i == 0 ? 0x5410 : 0x7632);
                } else {
                    const int i = 2 * k + c - tile::before;
                    next.value[k] = i < 0 ? widen<T>(left[r]) : own[0][i < 0 ? 0 : i];
                    if (is_behind && k == 0) next.value[k] = own[0][0], next.at[k] = 1;
                }
                if (!is_max && c == 0) next.value[k] += unit(0);
            }
            if (c == 0) found = next;
            else take(found, next, 0);
        }
        return found;
    };
    of_row last;
#pragma unroll
    for (int i = 0; i < tile::rows; ++i) {
        of_row result = kernel == 3 && i > 0 ? last : find(2 * i);
#pragma unroll
        for (int r = 1; r < kernel; ++r) {
            last = find(2 * i + r);
            if (is_max && kernel == 3 && r == 1 && i == 0 && oh == 0) {
                result = last;
#pragma unroll
                for (int k = 0; k < units; ++k) result.at[k] += kernel * one;
            } else take(result, last, r * kernel);
        }
        // 3. What becomes of them.
        if (oh + i >= params.axes[1].output) return;
        const uint64_t at = place.plane(params.y) + within(params.y, d, oh + i, ow),
                       at_offsets = place.plane(params.offsets) + within(params.offsets, d, oh + i, ow);
        T *const y = static_cast<T *>(operands.y) + at;
        if constexpr (in_pairs) {
            packed<windows * 2> values;
            packed<windows> offsets;
#pragma unroll
            for (int k = 0; k < units; ++k) values.word[k] = result.value[k];
#pragma unroll
            for (int k = 0; k < units / 2; ++k) offsets.word[k] = __byte_perm(result.at[2 * k], result.at[2 * k + 1], 0x6420);
            if (operands.offsets) store<windows, false>(static_cast<uint8_t *>(operands.offsets) + at_offsets, offsets);
            store<windows * 2, false>(y, values);
        } else {
            if constexpr (is_max) {
                if (operands.offsets) store_offsets(operands.offsets, false, at_offsets, result.at);
            } else {
#pragma unroll
                for (int k = 0; k < windows; ++k) result.value[k] *= tile::template share<A>(params, oh + i, channels_last ? ow : ow + k);
            }
            store_elements<T>(y, result.value);
        }
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_pool_params &params, const bops_pool_choice &choice,
                                                   const bops_pool_operands &operands, void *, const Action &action) {
    const launch_shape shape = pool_shape((params.parts + pool_threads - 1) / pool_threads);
    return for_pooling(dtype, params.pooling, [&](auto tag, auto pooling) -> bops_status {
        using T = typename decltype(tag)::type;
        if (choice.has_tiles) {
            return for_tiles<T, pooling>(choice.kernel, [&](auto kernel) {
                return for_flag(choice.is_channels_last,
                                [&](auto channels_last) { return action(pool_tiles<T, pooling, channels_last, kernel>, shape, params, operands); });
            });
        }
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
