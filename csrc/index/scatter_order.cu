// Where entries go, and their order: keys are made of the indices and sorted with the places of the source that they send there.
#include "lookup.cuh"
#include "sort.cuh"

namespace bops {
namespace {

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

// Of several tiles: the pairs alone.
__global__ void __launch_bounds__(movement_threads)
    scatter_keys(const __grid_constant__ bops_scatter_order_params params, const void *indices, uint32_t *keys, uint32_t *places) {
    const uint64_t entry = uint64_t(blockIdx.x) * movement_threads + threadIdx.x;
    if (entry >= params.entries) return;
    const scatter_pair pair = pair_of(params, indices, entry);
    keys[entry] = pair.key, places[entry] = pair.place;
}

// Of one tile: the pairs in their order.
__global__ void __launch_bounds__(sort_threads)
    scatter_sort(const __grid_constant__ bops_scatter_order_params params, const void *indices, uint32_t *sorted_keys, uint32_t *sorted_places) {
    __shared__ sort_exchange shared;
    uint32_t keys[sort_items], places[sort_items];
#pragma unroll
    for (int i = 0; i < sort_items; ++i) {
        scatter_pair pair = {0, 0};
        if (sort_item(i) < params.entries) pair = pair_of(params, indices, sort_item(i));
        keys[i] = pair.key, places[i] = pair.place;
    }
    sort_in_block(keys, places, params.digits, uint32_t(params.entries), shared);
#pragma unroll
    for (int i = 0; i < sort_items; ++i)
        if (sort_item(i) < params.entries) sorted_keys[sort_item(i)] = keys[i], sorted_places[sort_item(i)] = places[i];
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_scatter_order_params &params, uint32_t,
                                                   const bops_scatter_order_operands &operands, void *workspace, const Action &action) {
    uint32_t *const words = static_cast<uint32_t *>(workspace);
    uint32_t *const keys = words, *const places = words + params.entries;
    if (params.tiles == 1) {
        launch_shape shape;
        shape.grid = dim3(1), shape.block = dim3(sort_threads);
        return action(scatter_sort, shape, params, operands.indices, keys, places);
    }
    uint32_t *const others = places + params.entries, *const counts = others + 2 * params.entries;
    sort_step step = {keys,           places,       others, others + params.entries, counts, counts + uint64_t(sort_digits) * params.tiles,
                      params.entries, params.tiles, 0};
    // The sorted pairs end in front.
    if (params.digits % 2 == 1) step = {others, others + params.entries, keys, places, step.counts, step.totals, step.items, step.tiles, 0};
    const bops_status status = action(scatter_keys, movement_shape(params.entries), params, operands.indices, const_cast<uint32_t *>(step.keys),
                                      const_cast<uint32_t *>(step.values));
    return status != 0 ? status : sort_pairs(step, params.digits, action);
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scatter_order, uint32_t, bops_scatter_order_params, uint32_t, bops_scatter_order_operands, bops::with_kernel)
