// A stable sort of pairs of a 32-bit key and a 32-bit value, digit by digit from the lowest: what one block needs that has a tile of pairs, and the launches for
// several tiles.
#pragma once
#include "../bops_index.h"
#include "../common/launch.cuh"

namespace bops {

constexpr int sort_threads = BOPS_SORT_THREADS, sort_items = BOPS_SORT_ITEMS, sort_tile = sort_threads * sort_items;
constexpr int sort_warps = sort_threads / 32, sort_digits = 256;

static_assert(sort_threads == sort_digits, "a thread has a digit");

__device__ __forceinline__ uint32_t digit_of(uint32_t key, uint32_t shift) { return key >> shift & (sort_digits - 1); }

// The item of a thread in its tile: a warp has neighbours, of which each of its steps takes 32.
__device__ __forceinline__ uint32_t sort_item(int i) { return threadIdx.x / 32 * (32 * sort_items) + i * 32 + threadIdx.x % 32; }

// Adds up the threads' values that come before each thread's. `sums` has one for each warp; a barrier precedes its next use.
__device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t (&sums)[sort_warps]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t before = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += before;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    uint32_t of_warps = 0;
#pragma unroll
    for (int w = 0; w < sort_warps; ++w)
        if (w < warp) of_warps += sums[w];
    return of_warps + sum - value;
}

// What a block counts in its tile.
struct sort_counts {
    uint32_t of_warps[sort_warps][sort_digits];
    uint32_t sums[sort_warps];
};

// Ranks a thread's items among those of its warp with the same digit: `of_warps` then has the counts of each warp. Items that are not there count nothing.
__device__ __forceinline__ void rank_digits(const uint32_t (&keys)[sort_items], uint32_t shift, uint32_t present, sort_counts &counts,
                                            uint32_t (&ranks)[sort_items]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int w = 0; w < sort_warps; ++w) counts.of_warps[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < sort_items; ++i) {
        const uint32_t digit = digit_of(keys[i], shift);
        // The lanes with the same digit.
        uint32_t peers = __ballot_sync(~0u, sort_item(i) < present);
#pragma unroll
        for (int bit = 0; bit < 8; ++bit) {
            const uint32_t ones = __ballot_sync(~0u, digit >> bit & 1);
            peers &= digit >> bit & 1 ? ones : ~ones;
        }
        const bool is_there = sort_item(i) < present;
        uint32_t &count = counts.of_warps[warp][digit];
        const uint32_t before = is_there ? count : 0, lower = peers & ((1u << lane) - 1);
        __syncwarp();
        if (is_there && lower == 0) count = before + __popc(peers);
        __syncwarp();
        ranks[i] = before + __popc(lower);
    }
    __syncthreads();
}

// Makes of the counts of warps what comes before each warp's items of the thread's digit, `first` and what earlier warps have, and returns all that have the digit.
__device__ __forceinline__ uint32_t count_before_warps(sort_counts &counts, uint32_t first) {
    uint32_t sum = first;
#pragma unroll
    for (int w = 0; w < sort_warps; ++w) {
        const uint32_t count = counts.of_warps[w][threadIdx.x];
        counts.of_warps[w][threadIdx.x] = sum;
        sum += count;
    }
    return sum - first;
}

// Sorts the pairs of one tile; those behind the first `present` stay behind.
struct sort_exchange {
    sort_counts counts;
    uint32_t keys[sort_tile], values[sort_tile];
};
__device__ __forceinline__ void sort_in_block(uint32_t (&keys)[sort_items], uint32_t (&values)[sort_items], uint32_t digits, uint32_t present,
                                              sort_exchange &shared) {
    for (uint32_t d = 0; d < digits; ++d) {
        uint32_t ranks[sort_items];
        rank_digits(keys, 8 * d, present, shared.counts, ranks);
        uint32_t of_digit = 0;
#pragma unroll
        for (int w = 0; w < sort_warps; ++w) of_digit += shared.counts.of_warps[w][threadIdx.x];
        count_before_warps(shared.counts, sum_before(of_digit, shared.counts.sums));
        __syncthreads();
#pragma unroll
        for (int i = 0; i < sort_items; ++i)
            if (sort_item(i) < present) {
                const uint32_t to = shared.counts.of_warps[threadIdx.x / 32][digit_of(keys[i], 8 * d)] + ranks[i];
                shared.keys[to] = keys[i], shared.values[to] = values[i];
            }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < sort_items; ++i)
            if (sort_item(i) < present) keys[i] = shared.keys[sort_item(i)], values[i] = shared.values[sort_item(i)];
        __syncthreads();
    }
}

// ---- several tiles ----------------------------------------------------------

// Pairs that are sorted from one pair of arrays to another; `counts` are 256 for each tile, digit by digit, and `totals` 256.
struct sort_step {
    const uint32_t *keys, *values;
    uint32_t *sorted_keys, *sorted_values, *counts, *totals;
    uint64_t items;
    uint32_t tiles, shift;
    __device__ __forceinline__ uint32_t present() const {
        const uint64_t left = items - uint64_t(blockIdx.x) * sort_tile;
        return left < sort_tile ? uint32_t(left) : sort_tile;
    }
};

namespace {

// 1. How many items of each tile have each digit.
__global__ void __launch_bounds__(sort_threads) sort_count(const __grid_constant__ sort_step step) {
    __shared__ uint32_t counts[sort_digits];
    counts[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t *keys = step.keys + uint64_t(blockIdx.x) * sort_tile;
    const uint32_t present = step.present();
#pragma unroll
    for (int i = 0; i < sort_items; ++i)
        if (sort_item(i) < present) atomicAdd(&counts[digit_of(keys[sort_item(i)], step.shift)], 1u);
    __syncthreads();
    step.counts[uint64_t(threadIdx.x) * step.tiles + blockIdx.x] = counts[threadIdx.x];
}

// 2. Of each digit, a block for one, how many are in earlier tiles, and in all.
__global__ void __launch_bounds__(sort_threads) sort_scan(const __grid_constant__ sort_step step) {
    __shared__ uint32_t sums[sort_warps], all;
    uint32_t *counts = step.counts + uint64_t(blockIdx.x) * step.tiles, before = 0;
    for (uint64_t first = 0; first < step.tiles; first += sort_threads) {
        const uint64_t at = first + threadIdx.x;
        const uint32_t count = at < step.tiles ? counts[at] : 0, sum = sum_before(count, sums);
        if (at < step.tiles) counts[at] = before + sum;
        if (threadIdx.x == sort_threads - 1) all = sum + count;
        __syncthreads();
        before += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) step.totals[blockIdx.x] = before;
}

// 3. Each item goes behind those of lower digits, of earlier tiles, of earlier warps, and of its own warp.
__global__ void __launch_bounds__(sort_threads) sort_move(const __grid_constant__ sort_step step) {
    __shared__ sort_counts counts;
    const uint64_t start = uint64_t(blockIdx.x) * sort_tile;
    const uint32_t present = step.present();
    uint32_t keys[sort_items], values[sort_items], ranks[sort_items];
#pragma unroll
    for (int i = 0; i < sort_items; ++i) {
        const bool is_there = sort_item(i) < present;
        keys[i] = is_there ? step.keys[start + sort_item(i)] : 0;
        values[i] = is_there ? step.values[start + sort_item(i)] : 0;
    }
    const uint32_t of_lower = sum_before(step.totals[threadIdx.x], counts.sums);
    rank_digits(keys, step.shift, present, counts, ranks);
    count_before_warps(counts, of_lower + step.counts[uint64_t(threadIdx.x) * step.tiles + blockIdx.x]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < sort_items; ++i)
        if (sort_item(i) < present) {
            const uint32_t to = counts.of_warps[threadIdx.x / 32][digit_of(keys[i], step.shift)] + ranks[i];
            step.sorted_keys[to] = keys[i], step.sorted_values[to] = values[i];
        }
}

} // namespace

// Sorts by the lowest `digits` digits. With an even number of these the sorted pairs lie where they came from, with an odd one in the other arrays.
template <typename Action> bops_status sort_pairs(sort_step step, uint32_t digits, const Action &action) {
    launch_shape tiles, by_digit;
    tiles.grid = dim3(step.tiles), tiles.block = dim3(sort_threads);
    by_digit.grid = dim3(sort_digits), by_digit.block = dim3(sort_threads);
    uint32_t *from[2] = {const_cast<uint32_t *>(step.keys), const_cast<uint32_t *>(step.values)};
    for (uint32_t d = 0; d < digits; ++d) {
        uint32_t *to[2] = {step.sorted_keys, step.sorted_values};
        step.keys = from[0], step.values = from[1], step.shift = 8 * d;
        bops_status status = action(sort_count, tiles, step);
        if (status == 0) status = action(sort_scan, by_digit, step);
        if (status == 0) status = action(sort_move, tiles, step);
        if (status != 0) return status;
        step.sorted_keys = from[0], step.sorted_values = from[1];
        from[0] = to[0], from[1] = to[1];
    }
    return 0;
}

} // namespace bops
