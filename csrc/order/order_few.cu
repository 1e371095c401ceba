// The first few records of each line, which a warp reads once: of every 32 neighbours it keeps the least key, and looks again only where the least of these are.
// Compiled once for all architectures.
#include "order.cuh"

namespace bops {
namespace {

constexpr int few = BOPS_ORDER_FEW, few_threads = 256, few_warps = few_threads / 32, few_rows = BOPS_ORDER_FEW_LENGTH / 32;

template <typename K> __global__ void __launch_bounds__(few_threads)
    order_few(const __grid_constant__ bops_order_params params, const __grid_constant__ bops_order_operands operands, uint32_t bytes) {
    constexpr int batch = 16, of_lane = few_rows / 32;
    __shared__ K of_rows[few_warps][few_rows];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t line = uint64_t(blockIdx.x) * few_warps + warp;
    if (line >= params.lines) return;
    const order_output<K> output(params, operands, bytes, {nullptr, nullptr}, line, 0);
    const uint32_t length = uint32_t(params.length), kept = uint32_t(params.kept), rows = (length + 31) / 32;
    uint32_t row = lane, count = rows; // of a lane below `count`, a row whose elements may be wanted
    if (rows > few) {
        // 1. The least key of each row.
        for (uint32_t first = 0; first < rows; first += batch) {
            K key[batch], least = 0;
            const uint32_t start = first * 32 + lane, there = low_bits(length > start ? (length - start + 31) / 32 : 0);
            const uint64_t first_element = output.x + start * params.x.step, next = 32 * params.x.step;
            load_bits<K>(
                bytes, operands.x, there, [&](int i) { return first_element + i * next; }, key);
            make_keys(params.keys, key);
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                const K of_row = least_of_warp(there >> i & 1 ? key[i] : last_key<K>);
                if (lane == i) least = of_row;
            }
            if (lane < batch && first + lane < rows) of_rows[warp][first + lane] = least;
        }
        __syncwarp();
        // 2. The rows of the least of these, of equals the earlier ones.
        K least[of_lane];
        uint32_t open = 0;
#pragma unroll
        for (int s = 0; s < of_lane; ++s) {
            least[s] = last_key<K>;
            if (s * 32 + lane < rows) least[s] = of_rows[warp][s * 32 + lane], open |= 1u << s;
        }
        count = kept;
        for (uint32_t j = 0; j < count; ++j) {
            K own = last_key<K>;
            uint32_t at = ~0u;
#pragma unroll
            for (int s = 0; s < of_lane; ++s)
                if (open >> s & 1 && (at == ~0u || least[s] < own)) own = least[s], at = s;
            const K first = least_of_warp(own);
            const uint32_t chosen = __reduce_min_sync(~0u, at != ~0u && own == first ? at * 32 + lane : ~0u);
            if (chosen % 32 == lane) open &= ~(1u << chosen / 32);
            if (lane == j) row = chosen;
        }
    }
    // 3. Their elements.
    K key[few];
    uint32_t position[few];
    uint32_t there = 0;
#pragma unroll
    for (int j = 0; j < few; ++j) {
        position[j] = __shfl_sync(~0u, row, j) * 32 + lane;
        if (j < count && position[j] < length) there |= 1u << j;
    }
    load_bits<K>(
        bytes, operands.x, there, [&](int j) { return output.x + position[j] * params.x.step; }, key);
    make_keys(params.keys, key);
#pragma unroll
    for (int j = 0; j < few; ++j)
        if (!(there >> j & 1)) key[j] = last_key<K>, position[j] = ~0u;
    // 4. The first of these, one after another.
    K out = 0;
    uint32_t from = 0;
    for (uint32_t k = 0; k < kept; ++k) {
        K own = key[0];
        uint32_t at = position[0];
#pragma unroll
        for (int j = 1; j < few; ++j)
            if (key[j] < own || (key[j] == own && position[j] < at)) own = key[j], at = position[j];
        const K first = least_of_warp(own);
        const uint32_t chosen = __reduce_min_sync(~0u, own == first ? at : ~0u);
        if (lane == k) out = first, from = chosen;
#pragma unroll
        for (int j = 0; j < few; ++j)
            if (position[j] == chosen) key[j] = last_key<K>, position[j] = ~0u;
    }
    if (lane < kept) output.store(lane, out, from);
}

template <typename Action> bops_status with_kernel(bops_order_element of, const bops_order_params &params, const bops_order_choice &,
                                                   const bops_order_operands &operands, void *, const Action &action) {
    return for_keys(of, [&](auto zero) {
        using K = decltype(zero);
        launch_shape shape;
        shape.grid = dim3(uint32_t((params.lines + few_warps - 1) / few_warps)), shape.block = dim3(few_threads);
        return action(order_few<K>, shape, params, operands, of.bytes);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_order_few, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands, bops::with_kernel)
