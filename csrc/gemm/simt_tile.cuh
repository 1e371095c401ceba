// What the products in registers share: the tile of a block, and how its factors lie in shared memory.
#pragma once
#include "chains.cuh"
#include "gemm.cuh"

namespace bops {
namespace gemm {

constexpr int simt_threads = 256, side = 16; // a block's threads form a square of `side` by `side`; of a tile of 128 each has 8 by 8 sums
// k of a step. While half of it is multiplied, a thread loads its elements of one factor, which are 8 for tiles of 128. A longer step takes more
// registers and shared memory; a shorter one hides less of the loads and has more barriers.
constexpr int simt_depth = 16;
// The sums of a thread, in chains of 64 terms. are_kept: as in chained_sums, where a second set of sums would spill registers; else an SM has as many
// blocks as it would have without the second set.
template <int each, typename A, bool are_kept> using simt_sums = chained_sums<A, each, each, 64 / simt_depth, are_kept>;
// Elements from one k of a step to the next, padded, so that the elements which a warp writes along k lie in different banks.
template <int tile> constexpr int step_pitch = tile + 4;

// The factors of a step.
template <typename A, int tile> struct step_of { alignas(16) A left[simt_depth * step_pitch<tile>], right[simt_depth * step_pitch<tile>]; };

template <typename A, int tile> constexpr uint32_t simt_shared_bytes() {
    constexpr uint32_t stage = tile * staged_row<tile> * sizeof(A), sums = 4 * simt_threads * sizeof(A), steps = 2 * sizeof(step_of<A, tile>);
    return stage > steps ? (stage > sums ? stage : sums) : (steps > sums ? steps : sums);
}

// The position of a thread's element i along one side of the tile: in groups of four, each of which is one access.
template <int each> __device__ __forceinline__ int place_in_tile(int thread, int i) {
    constexpr int group = each < 4 ? each : 4;
    return i / group * (side * group) + thread * group + i % group;
}
template <int each, typename A> __device__ __forceinline__ void read_line(const A *line, int thread, A (&to)[each]) {
    constexpr int group = each < 4 ? each : 4, bytes = group * int(sizeof(A)) < 16 ? group * int(sizeof(A)) : 16, part = bytes / int(sizeof(A));
#pragma unroll
    for (int i = 0; i < each; i += part) {
        A values[part];
        unpack<A>(*reinterpret_cast<const packed<bytes> *>(line + place_in_tile<each>(thread, i)), values);
#pragma unroll
        for (int j = 0; j < part; ++j) to[i + j] = values[j];
    }
}

// Adds the products of half the terms of a step, from `k_first` on, to the sums of the thread at row y and column x of the square.
template <int each, typename A, int tile>
__device__ __forceinline__ void add_half_step(const step_of<A, tile> &step, int k_first, int y, int x, A (&sums)[each][each]) {
    // Terms that are loaded ahead; with four of f64, squares of 4 by 4 would take more registers than two blocks per SM leave a thread.
    constexpr int ahead = sizeof(A) == 8 ? 2 : 4;
#pragma unroll(ahead)
    for (int k = k_first; k < k_first + simt_depth / 2; ++k) {
        A a[each], b[each];
        read_line<each>(step.left + k * (tile + 4), y, a);
        read_line<each>(step.right + k * (tile + 4), x, b);
#pragma unroll
        for (int i = 0; i < each; ++i)
#pragma unroll
            for (int j = 0; j < each; ++j) sums[i][j] = fma(a[i], b[j], sums[i][j]);
    }
}

// Stores the sums of all threads to shared memory, [slow][fast].
template <int each, typename A> __device__ __forceinline__ void stage_sums(A *stage, bool across, const A (&sums)[each][each]) {
    constexpr int tile = side * each;
    const int y = int(threadIdx.x) / side, x = int(threadIdx.x) % side;
    const int slow_step = across ? 1 : staged_row<tile>, fast_step = across ? staged_row<tile> : 1;
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j) stage[place_in_tile<each>(y, i) * slow_step + place_in_tile<each>(x, j) * fast_step] = sums[i][j];
}

} // namespace gemm
} // namespace bops
