// Where entries go, and their order: keys are made of the indices and sorted with the places of the source that they send there.
// Compiled once for all architectures.
#include "../common/sort.cuh"
#include "lookup.cuh"

namespace bops {
namespace {

static_assert(sort_threads == BOPS_SORT_THREADS && sort_few_tiles == BOPS_SORT_FEW_TILES, "Rust counts the tiles");

struct scatter_pair {
    uint32_t key, place;
};

// Where an entry goes and comes from.
__device__ __forceinline__ scatter_pair pair_of(const bops_scatter_order_params &params, const void *indices, uint64_t entry) {
    uint64_t rest = entry, index = 0, key = 0, place = 0;
    for (int k = 0; k < params.rank; ++k) {
        uint64_t i = rest;
        if (k + 1 < params.rank) {
            const split_number split(params.inner[k], params.is_long, rest);
            i = split.rest, rest = split.quotient;
        }
        index += i * params.strides[k].index, key += i * params.strides[k].key, place += i * params.strides[k].place;
    }
    const uint64_t position = named_position(params.axis, indices, index);
    return {position == no_position ? params.keys : uint32_t(key + position * params.axis.apart), uint32_t(place)};
}

// A thread's pairs of a tile that begins at `start`.
template <int items> __device__ __forceinline__ void make_pairs(const bops_scatter_order_params &params, const void *indices, uint64_t start,
                                                                uint32_t present, uint32_t (&keys)[items], uint32_t (&places)[items]) {
#pragma unroll
    for (int i = 0; i < items; ++i) {
        scatter_pair pair = {0, 0};
        if (sort_item<items>(i) < present) pair = pair_of(params, indices, start + sort_item<items>(i));
        keys[i] = pair.key, places[i] = pair.place;
    }
}

struct scatter_keys_places {
    uint32_t *keys, *places;
};

// Of several tiles: the pairs alone, and the counts of their first digit; those of the `later` others are 0, where moves count them.
template <int items> __global__ void __launch_bounds__(sort_threads)
    scatter_keys(const __grid_constant__ bops_scatter_order_params params, const void *indices, sort_pass pass, scatter_keys_places to,
                 uint32_t later) {
    constexpr int tile = sort_threads * items;
    __shared__ uint32_t counts[sort_digits];
    const uint64_t start = uint64_t(blockIdx.x) * tile;
    const uint32_t present = pass.present(tile);
    uint32_t keys[items], places[items];
    make_pairs(params, indices, start, present, keys, places);
#pragma unroll
    for (int i = 0; i < items; ++i)
        if (sort_item<items>(i) < present) to.keys[start + sort_item<items>(i)] = keys[i], to.places[start + sort_item<items>(i)] = places[i];
    for (uint32_t d = 1; d <= later; ++d) pass.counts[(uint64_t(d) * pass.tiles + blockIdx.x) * sort_digits + threadIdx.x] = 0;
    count_digits(pass, keys, present, counts);
}

// The counts of a later digit.
template <int items> __global__ void __launch_bounds__(sort_threads) scatter_count(sort_pass pass, const uint32_t *from) {
    constexpr int tile = sort_threads * items;
    __shared__ uint32_t counts[sort_digits];
    const uint64_t start = uint64_t(blockIdx.x) * tile;
    const uint32_t present = pass.present(tile);
    uint32_t keys[items];
#pragma unroll
    for (int i = 0; i < items; ++i) keys[i] = sort_item<items>(i) < present ? from[start + sort_item<items>(i)] : 0;
    count_digits(pass, keys, present, counts);
}

// `next`: the counts of the next digit, where this launch counts it: sums of integers are the same in any order.
template <int items> __global__ void __launch_bounds__(sort_threads, 2)
    scatter_move(sort_pass pass, scatter_keys_places from, scatter_keys_places to, uint32_t *next) {
    constexpr int tile = sort_threads * items;
    __shared__ sort_shared<uint32_t, items> shared;
    const uint64_t start = uint64_t(blockIdx.x) * tile;
    const uint32_t present = pass.present(tile);
    uint32_t keys[items];
#pragma unroll
    for (int i = 0; i < items; ++i) keys[i] = sort_item<items>(i) < present ? from.keys[start + sort_item<items>(i)] : 0;
    const auto place = [&](int i) { return from.places[start + sort_item<items>(i)]; };
    const auto put = [&](uint32_t at, uint32_t key, uint32_t place) {
        to.keys[at] = key, to.places[at] = place;
        if (next) atomicAdd(&next[at / tile * sort_digits + digit_of(key, pass.shift + 8)], 1u);
    };
    move_pairs(pass, keys, place, present, shared, [&] { return put; });
}

// Of one tile: the pairs in their order.
template <int items> __global__ void __launch_bounds__(sort_threads)
    scatter_sort(const __grid_constant__ bops_scatter_order_params params, const void *indices, scatter_keys_places to) {
    __shared__ sort_shared<uint32_t, items> shared;
    const uint32_t present = uint32_t(params.entries);
    uint32_t keys[items], places[items];
    make_pairs(params, indices, 0, present, keys, places);
    for (uint32_t d = 0; d < params.digits; ++d) {
        sort_by_digit(
            keys, [&](int i) { return places[i]; }, 8 * d, present, shared);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < items; ++i)
            if (sort_item<items>(i) < present) keys[i] = shared.keys[sort_item<items>(i)], places[i] = shared.values[sort_item<items>(i)];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < items; ++i)
        if (sort_item<items>(i) < present) to.keys[sort_item<items>(i)] = keys[i], to.places[sort_item<items>(i)] = places[i];
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_scatter_order_params &params, uint32_t,
                                                   const bops_scatter_order_operands &operands, void *workspace, const Action &action) {
    uint32_t *const words = static_cast<uint32_t *>(workspace);
    const scatter_keys_places sorted = {words, words + params.entries};
    launch_shape shape;
    shape.grid = dim3(params.tiles), shape.block = dim3(sort_threads);
    if (params.tiles == 1) return action(scatter_sort<BOPS_SORT_ITEMS>, shape, params, operands.indices, sorted);
    const scatter_keys_places others = {words + 2 * params.entries, words + 3 * params.entries};
    const sort_pass first = {words + 4 * params.entries, params.entries, 1, params.tiles, 0};
    const bool is_short = params.entries <= BOPS_SORT_FEW_TILES * BOPS_SORT_THREADS * BOPS_SORT_ITEMS_FEW;
    return for_value<BOPS_SORT_ITEMS_FEW, BOPS_SORT_ITEMS>(is_short ? BOPS_SORT_ITEMS_FEW : BOPS_SORT_ITEMS, [&](auto items) {
        // The sorted pairs end in front.
        scatter_keys_places from = params.digits % 2 == 0 ? sorted : others, to = params.digits % 2 == 0 ? others : sorted;
        sort_pass pass = first;
        const uint32_t later = first.has_few() ? params.digits - 1 : 0;
        bops_status status = action(scatter_keys<items>, shape, params, operands.indices, pass, from, later);
        for (uint32_t d = 0; status == 0 && d < params.digits; ++d) {
            pass.shift = 8 * d;
            if (d > 0 && !first.has_few()) status = action(scatter_count<items>, shape, pass, from.keys);
            if (status == 0) status = scan_counts(pass, action);
            uint32_t *const next = d < later ? pass.counts + uint64_t(sort_digits) * pass.tiles : nullptr;
            if (status == 0) status = action(scatter_move<items>, shape, pass, from, to, next);
            if (next) pass.counts = next;
            const scatter_keys_places moved = to;
            to = from, from = moved;
        }
        return status;
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scatter_order, uint32_t, bops_scatter_order_params, uint32_t, bops_scatter_order_operands, bops::with_kernel)
