// A stable sort of pairs of a key and a 32-bit value, digit by digit from the lowest: what one block needs that has a tile of pairs, and the steps of a pass over
// several tiles.
#pragma once
#include "launch.cuh"

namespace bops {

constexpr int sort_threads = 256, sort_warps = sort_threads / 32, sort_digits = 256; // a thread has a digit

template <typename K> __device__ __forceinline__ uint32_t digit_of(K key, uint32_t shift) { return uint32_t(key >> shift) & (sort_digits - 1); }

// The item of a thread in its tile: a warp has neighbours, of which each of its steps takes 32.
template <int items> __device__ __forceinline__ uint32_t sort_item(int i) { return threadIdx.x / 32 * (32 * items) + i * 32 + threadIdx.x % 32; }

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
using sort_counts = uint32_t[sort_warps][sort_digits];

// Ranks a thread's items among those of its warp with the same digit: `counts` then has those of each warp. Items that are not there count nothing.
template <typename K, int items>
__device__ __forceinline__ void rank_digits(const K (&keys)[items], uint32_t shift, uint32_t present, sort_counts &counts, uint32_t (&ranks)[items]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int w = 0; w < sort_warps; ++w) counts[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < items; ++i) {
        const uint32_t digit = digit_of(keys[i], shift);
        const bool is_there = sort_item<items>(i) < present;
        // The lanes with the same digit.
        uint32_t peers = __ballot_sync(~0u, is_there);
#pragma unroll
        for (int bit = 0; bit < 8; ++bit) {
            const uint32_t ones = __ballot_sync(~0u, digit >> bit & 1);
            peers &= digit >> bit & 1 ? ones : ~ones;
        }
        uint32_t &count = counts[warp][digit];
        const uint32_t before = is_there ? count : 0, lower = peers & ((1u << lane) - 1);
        __syncwarp();
        if (is_there && lower == 0) count = before + __popc(peers);
        __syncwarp();
        ranks[i] = before + __popc(lower);
    }
    __syncthreads();
}

// Makes of the counts of warps where each warp's items of a digit begin in the sorted tile. Returns where those of the thread's digit begin.
__device__ __forceinline__ uint32_t begin_digits(sort_counts &counts, uint32_t (&sums)[sort_warps]) {
    uint32_t of_digit = 0;
#pragma unroll
    for (int w = 0; w < sort_warps; ++w) of_digit += counts[w][threadIdx.x];
    const uint32_t begin = sum_before(of_digit, sums);
    uint32_t sum = begin;
#pragma unroll
    for (int w = 0; w < sort_warps; ++w) {
        const uint32_t count = counts[w][threadIdx.x];
        counts[w][threadIdx.x] = sum;
        sum += count;
    }
    __syncthreads();
    return begin;
}

// The memory of a block that sorts a tile. The pairs take the place of the counts.
template <typename K, int items> struct sort_shared {
    static constexpr int tile = sort_threads * items;
    union {
        sort_counts counts;
        struct {
            K keys[tile];
            uint32_t values[tile];
        };
    };
    uint32_t sums[sort_warps], begins[sort_digits];
};

// Sorts a tile's pairs by a digit: a thread leaves its own in the shared memory. Returns where those of the thread's digit begin. value(i): that of a thread's
// item, which is asked for once the keys are ranked.
template <typename K, int items, typename Value> __device__ __forceinline__ uint32_t sort_by_digit(const K (&keys)[items], const Value &value,
                                                                                                   uint32_t shift, uint32_t present,
                                                                                                   sort_shared<K, items> &shared) {
    uint32_t ranks[items];
    rank_digits(keys, shift, present, shared.counts, ranks);
    const uint32_t begin = begin_digits(shared.counts, shared.sums);
#pragma unroll
    for (int i = 0; i < items; ++i) ranks[i] += shared.counts[threadIdx.x / 32][digit_of(keys[i], shift)];
    __syncthreads();
    uint32_t values[items];
#pragma unroll
    for (int i = 0; i < items; ++i)
        if (sort_item<items>(i) < present) values[i] = value(i), shared.keys[ranks[i]] = keys[i];
#pragma unroll
    for (int i = 0; i < items; ++i)
        if (sort_item<items>(i) < present) shared.values[ranks[i]] = values[i];
    return begin;
}

// ---- several tiles ----------------------------------------------------------

// A pass over the tiles of lines of items. Up to so many tiles each block adds up the counts of the others: these are [line][tile][digit]. Of more another launch
// adds them up: they are [line][digit][tile], and behind them are the totals, [line][digit].
constexpr uint32_t sort_few_tiles = 64;
struct sort_pass {
    uint32_t *counts;
    uint64_t items, lines;
    uint32_t tiles, shift;

    __host__ __device__ bool has_few() const { return tiles <= sort_few_tiles; }
    __device__ __forceinline__ uint64_t line() const { return blockIdx.x / tiles; }
    __device__ __forceinline__ uint32_t tile() const { return blockIdx.x % tiles; }
    __device__ __forceinline__ uint32_t present(uint32_t of_tile) const {
        const uint64_t left = items - uint64_t(tile()) * of_tile;
        return left < of_tile ? uint32_t(left) : of_tile;
    }
    __device__ __forceinline__ uint32_t &count(uint32_t digit) const {
        const uint64_t first = line() * sort_digits * tiles;
        return counts[first + (has_few() ? uint64_t(tile()) * sort_digits + digit : uint64_t(digit) * tiles + tile())];
    }
    __device__ __forceinline__ uint32_t *totals() const { return counts + lines * sort_digits * tiles; }
};

// Counts the digits of a tile's keys.
template <int items, typename K>
__device__ __forceinline__ void count_digits(const sort_pass &pass, const K (&keys)[items], uint32_t present, uint32_t (&counts)[sort_digits]) {
    counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < items; ++i)
        if (sort_item<items>(i) < present) atomicAdd(&counts[digit_of(keys[i], pass.shift)], 1u);
    __syncthreads();
    pass.count(threadIdx.x) = counts[threadIdx.x];
}

// Moves a tile's pairs behind those of lower digits and of earlier tiles: calls what `putting` returns with each: its place in the line, key and value.
template <typename K, int items, typename Value, typename Putting>
__device__ __forceinline__ void move_pairs(const sort_pass &pass, const K (&keys)[items], const Value &value, uint32_t present,
                                           sort_shared<K, items> &shared, const Putting &putting) {
    // 1. Of the thread's digit, how many are in earlier tiles and in all.
    uint32_t earlier = 0, total = 0;
    if (pass.has_few()) {
        const uint32_t *const of_line = pass.counts + pass.line() * sort_digits * pass.tiles;
#pragma unroll 8
        for (uint32_t tile = 0; tile < pass.tiles; ++tile) {
            const uint32_t count = of_line[tile * sort_digits + threadIdx.x];
            total += count;
            if (tile < pass.tile()) earlier += count;
        }
    } else {
        earlier = pass.count(threadIdx.x), total = pass.totals()[pass.line() * sort_digits + threadIdx.x];
    }
    const uint32_t first = earlier + sum_before(total, shared.sums);
    // 2. The tile in order. A barrier precedes the next use of the sums.
    shared.begins[threadIdx.x] = first - sort_by_digit(keys, value, pass.shift, present, shared);
    __syncthreads();
    // 3. Each with its neighbours.
    const auto put = putting();
#pragma unroll
    for (int i = 0; i < items; ++i) {
        const uint32_t at = i * sort_threads + threadIdx.x;
        if (at < present) put(shared.begins[digit_of(shared.keys[at], pass.shift)] + at, shared.keys[at], shared.values[at]);
    }
}

namespace {

// Of each digit of a line, a block for one, how many are in earlier tiles, and in all.
__global__ void __launch_bounds__(sort_threads) sort_scan(const __grid_constant__ sort_pass pass) {
    constexpr int items = 8;
    __shared__ uint32_t sums[sort_warps], all;
    uint32_t *const counts = pass.counts + uint64_t(blockIdx.x) * pass.tiles;
    uint32_t before = 0;
    for (uint32_t first = 0; first < pass.tiles; first += items * sort_threads) {
        const uint32_t own = first + threadIdx.x * items;
        uint32_t count[items], sum = 0;
#pragma unroll
        for (int i = 0; i < items; ++i) count[i] = own + i < pass.tiles ? counts[own + i] : 0;
#pragma unroll
        for (int i = 0; i < items; ++i) sum += count[i];
        uint32_t until = before + sum_before(sum, sums);
        if (threadIdx.x == sort_threads - 1) all = until + sum;
#pragma unroll
        for (int i = 0; i < items; ++i) {
            if (own + i < pass.tiles) counts[own + i] = until;
            until += count[i];
        }
        __syncthreads();
        before = all;
        __syncthreads();
    }
    if (threadIdx.x == 0) pass.totals()[blockIdx.x] = before;
}

} // namespace

// Launches what follows the counts of a pass, if that is needed.
template <typename Action> bops_status scan_counts(const sort_pass &pass, const Action &action) {
    if (pass.has_few()) return 0;
    launch_shape shape;
    shape.grid = dim3(uint32_t(pass.lines * sort_digits)), shape.block = dim3(sort_threads);
    return action(sort_scan, shape, pass);
}

} // namespace bops
