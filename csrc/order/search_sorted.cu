// Where values could be inserted among sorted elements. A thread bisects the positions for several values at once, which all take as many steps, so that
// their elements are in flight together.
// Compiled once for all architectures.
#include "order.cuh"

namespace bops {
namespace {

constexpr int search_threads = 256;

template <typename K> __global__ void __launch_bounds__(search_threads)
    search_sorted(const __grid_constant__ bops_search_sorted_params params, const __grid_constant__ bops_search_sorted_operands operands,
                  uint32_t bytes) {
    constexpr int items = BOPS_SEARCH_SORTED_ITEMS;
    // 1. The values, and where their lines begin.
    const uint64_t first = uint64_t(blockIdx.x) * (search_threads * items) + threadIdx.x;
    uint64_t to[items], line[items], from[items], found[items];
    uint32_t there = 0;
#pragma unroll
    for (int i = 0; i < items; ++i) {
        const uint64_t number = first + i * search_threads;
        to[i] = line[i] = from[i] = found[i] = 0;
        if (number < params.walk.elements) {
            const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, number, 1);
            to[i] = at.offset(params.indices), from[i] = at.offset(params.values), line[i] = at.offset(params.lines);
            there |= 1u << i;
        }
    }
    K wanted[items];
    load_bits<K>(
        bytes, operands.values, there, [&](int i) { return from[i]; }, wanted);
    make_keys(params.keys, wanted);
    // 2. The position is one of `left` behind what was found, or the one behind these.
    uint64_t half;
    for (uint64_t left = params.length; left > 0; left -= half) {
        half = left > 1 ? left / 2 : 1;
        K keys[items];
        load_bits<K>(
            bytes, operands.sorted, there, [&](int i) { return line[i] + (found[i] + half - 1) * params.step; }, keys);
        make_keys(params.keys, keys);
#pragma unroll
        for (int i = 0; i < items; ++i) found[i] += keys[i] < wanted[i] || (params.is_right && keys[i] == wanted[i]) ? half : 0;
    }
    // 3. The indices.
#pragma unroll
    for (int i = 0; i < items; ++i) {
        if (!(there >> i & 1)) continue;
        if (params.indices.dtype == BOPS_I64) static_cast<uint64_t *>(operands.indices)[to[i]] = found[i];
        else static_cast<uint32_t *>(operands.indices)[to[i]] = uint32_t(found[i]);
    }
}

template <typename Action> bops_status with_kernel(bops_order_element of, const bops_search_sorted_params &params, uint32_t,
                                                   const bops_search_sorted_operands &operands, void *, const Action &action) {
    constexpr uint64_t of_block = search_threads * BOPS_SEARCH_SORTED_ITEMS;
    launch_shape shape;
    shape.grid = dim3(uint32_t((params.walk.elements + of_block - 1) / of_block)), shape.block = dim3(search_threads);
    return for_keys(of, [&](auto zero) { return action(search_sorted<decltype(zero)>, shape, params, operands, of.bytes); });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_search_sorted, bops_order_element, bops_search_sorted_params, uint32_t, bops_search_sorted_operands, bops::with_kernel)
