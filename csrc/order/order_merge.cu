// Sorted tiles of long lines, merged in pairs. Each block writes a tile of the merged runs: a diagonal says which records of both it consists of.
// Compiled once for all architectures.
#include "order.cuh"

namespace bops {
namespace {

// As left_before, of runs in memory: the lanes of a warp try as many places at once.
template <typename K>
__device__ __forceinline__ uint64_t left_before_in_memory(const K *left, uint64_t lefts, const K *right, uint64_t rights, uint64_t diagonal) {
    const uint32_t lane = threadIdx.x % 32;
    uint64_t low = diagonal > rights ? diagonal - rights : 0, high = min(diagonal, lefts);
    while (low < high) {
        const uint64_t step = (high - low + 31) / 32, middle = low + lane * step + step - 1;
        const bool is_before = middle < high && left[middle] <= right[diagonal - 1 - middle];
        // Those that are before come first.
        low += __popc(__ballot_sync(~0u, is_before)) * step;
        high = min(high, low + step - 1);
    }
    return low;
}

template <typename K> __global__ void __launch_bounds__(order_threads<K>, 2)
    order_merge(const __grid_constant__ bops_order_params params, const __grid_constant__ bops_order_operands operands, uint32_t bytes, uint64_t run,
                uint64_t tiles, order_records<K> from, order_records<K> to) {
    constexpr uint32_t tile_size = order_tile<K>;
    __shared__ order_shared<K> shared;
    __shared__ uint64_t lefts_before[2];
    const uint64_t line = blockIdx.x / tiles, start = (blockIdx.x - line * tiles) * tile_size;
    const order_output<K> output(params, operands, bytes, to, line, params.length);
    // 1. The pair of runs, and the records of each before this tile and before the next.
    const uint64_t pair = start / (2 * run) * (2 * run), middle = min(pair + run, params.length), end = min(pair + 2 * run, params.length);
    const K *left_keys = from.keys + line * params.length + pair, *right_keys = from.keys + line * params.length + middle;
    const uint64_t diagonal = start - pair, next = min(diagonal + tile_size, end - pair);
    const uint32_t warp = threadIdx.x / 32;
    if (warp < 2) {
        const uint64_t found = left_before_in_memory<K>(left_keys, middle - pair, right_keys, end - middle, warp == 0 ? diagonal : next);
        if (threadIdx.x % 32 == 0) lefts_before[warp] = found;
    }
    __syncthreads();
    const uint64_t left = lefts_before[0], right = diagonal - left;
    const uint32_t lefts = uint32_t(lefts_before[1] - left), count = uint32_t(next - diagonal), rights = count - lefts;
    // 2. These records, those of the left run first.
    const uint32_t *left_positions = from.positions + line * params.length + pair, *right_positions = from.positions + line * params.length + middle;
    for (uint32_t k = threadIdx.x; k < count; k += order_threads<K>) {
        const bool is_left = k < lefts;
        const uint64_t at = is_left ? left + k : right + (k - lefts);
        shared.key[with_gaps(k)] = is_left ? left_keys[at] : right_keys[at];
        shared.position[with_gaps(k)] = is_left ? left_positions[at] : right_positions[at];
    }
    __syncthreads();
    // 3. The thread's records of the merged ones.
    K key[order_items];
    uint32_t position[order_items];
    const uint32_t first = threadIdx.x * order_items;
    merge_items<K>(shared, 0, lefts, lefts, rights, min(first, count), key, position);
    __syncthreads();
    put_items<K>(shared, first, key, position);
    __syncthreads();
    // 4. The results, side by side.
    const uint32_t kept = to.keys ? count : uint32_t(min(uint64_t(count), params.kept - start));
    for (uint32_t k = threadIdx.x; k < kept; k += order_threads<K>) output.store(start + k, shared.key[with_gaps(k)], shared.position[with_gaps(k)]);
}

template <typename Action> bops_status with_kernel(bops_order_element of, const bops_order_params &params, const bops_order_choice &choice,
                                                   const bops_order_operands &operands, void *workspace, const Action &action) {
    return for_keys(of, [&](auto zero) -> bops_status {
        using K = decltype(zero);
        const order_records<K> none{nullptr, nullptr};
        const order_source<K> x{none, nullptr, 0};
        const order_stage stage(params.length, params.length, choice.threads);
        if (stage.tiles == 1) {
            const order_stage whole(params.length, params.kept, choice.threads);
            return with_tiles<K, false>(params, operands, of.bytes, whole, x, none, action);
        }
        // 1. Tiles.
        const uint64_t records = params.lines * params.length;
        const order_buffers<K> buffers{workspace, records, stage.tiles == 2 ? 0 : records};
        order_records<K> from = buffers.of_launch(0);
        bops_status status = with_tiles<K, false>(params, operands, of.bytes, stage, x, from, action);
        // 2. Pairs of runs.
        uint64_t number = 1;
        for (uint64_t run = order_tile<K>; status == 0 && run < params.length; run *= 2, ++number) {
            const bool is_last = 2 * run >= params.length;
            const order_records<K> to = is_last ? none : buffers.of_launch(number);
            launch_shape shape;
            const uint64_t written = is_last ? params.kept : params.length, tiles = (written + order_tile<K> - 1) / order_tile<K>;
            shape.grid = dim3(uint32_t(params.lines * tiles)), shape.block = dim3(order_threads<K>);
            status = action(order_merge<K>, shape, params, operands, of.bytes, run, tiles, from, to);
            from = to;
        }
        return status;
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_order_merge, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands, bops::with_kernel)
