// Sums of f32 without tensor cores: what a thread reads of a step in shared memory, and the sums it has.
//
// A thread has 16 rows and 8 columns of a tile of 128 (8 and 8 of one of 64). Shared memory delivers 128 bytes a clock to an SM, however many lanes ask for
// the same bytes. With 8 rows and 8 columns, loading a term takes as long as its 64 products; with 16 rows and 8 columns, three quarters of the time of its
// 128 products.
#pragma once
#include "chains.cuh"
#include "steps.cuh"

namespace bops {
namespace gemm {

template <int bytes> __device__ __forceinline__ void load_shared(float (&to)[bytes / 4], uint32_t from) {
    if constexpr (bytes == 16)
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(from) : "memory");
    else asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}

template <int tile_, bool left_across_, bool right_across_> struct fma_sums {
    using T = float;
    static constexpr int tile = tile_, rows = tile == 128 ? 16 : 8, columns = 8; // rows, columns: of a thread
    static constexpr int high = tile / rows, wide = tile / columns;              // threads along a column and along a row of the tile
    // blocks: the least number that an SM is to have room for. Two of 128 threads, or four of 64, leave a thread all 255 registers, of which the sums
    // take 128 or 64.
    static constexpr int threads = high * wide, blocks = tile == 128 ? 2 : 4;
    static constexpr bool left_across = left_across_, right_across = right_across_;
    static constexpr int pair = 2; // terms that are read at once

    static constexpr int depth = step_row_bytes / 4; // terms of a step
    // A chain has 64 terms with tiles of 64. With tiles of 128, whose further sums lie in local memory, it has 256: there, too, moving its sums to
    // the next level takes fewer than two instructions for a hundred multiplications.
    using chained_type = chained_sums<float, rows, columns, (tile == 128 ? 256 : 64) / depth, tile == 128>;
    using memory = typename chained_type::memory;
    chained_type chained;
    int y, x; // the thread's place among those of the tile

    // A warp is four threads high and eight wide.
    __device__ __forceinline__ explicit fma_sums(memory &memory) : chained(memory) {
        constexpr int warps_wide = wide / 8;
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        y = warp / warps_wide * 4 + lane / 8, x = warp % warps_wide * 8 + lane % 8;
    }
    // The row or column of the tile that is element i of thread `at` of `count`. If steps lie along k, neighbouring threads have neighbouring lines, which
    // lie in different banks. If they lie across it, a thread has groups of four neighbours, which it reads in one access.
    template <bool across, int count> __device__ __forceinline__ static int place(int at, int i) {
        return across ? i / 4 * (4 * count) + 4 * at + i % 4 : i * count + at;
    }
    // Loads terms `k` and `k` + 1 of a factor.
    template <bool across, int count, int each>
    __device__ __forceinline__ static void load_pair(float (&to)[each][pair], uint32_t step, int at, int k) {
        if constexpr (across) {
#pragma unroll
            for (int t = 0; t < pair; ++t)
#pragma unroll
                for (int i = 0; i < each; i += 4) {
                    float four[4];
                    load_shared<16>(four, step + across_address<T, tile>(k + t, place<true, count>(at, i)));
#pragma unroll
                    for (int j = 0; j < 4; ++j) to[i + j][t] = four[j];
                }
        } else
#pragma unroll
            for (int i = 0; i < each; ++i) load_shared<8>(to[i], step + along_k_address(place<false, count>(at, i), k / 4) + k % 4 * 4);
    }
    // Adds the product of a step, term after term.
    __device__ __forceinline__ void add(uint32_t step) {
        auto &sums = chained.sums;
        // Not unrolled: there are no registers for loading ahead.
#pragma unroll 1
        for (int k = 0; k < depth; k += pair) {
            float a[rows][pair], b[columns][pair];
            load_pair<left_across, high>(a, step, y, k);
            load_pair<right_across, wide>(b, step + step_bytes<T, tile>, x, k);
#pragma unroll
            for (int t = 0; t < pair; ++t)
#pragma unroll
                for (int i = 0; i < rows; ++i)
#pragma unroll
                    for (int j = 0; j < columns; ++j) sums[i][j] = fmaf(a[i][t], b[j][t], sums[i][j]);
        }
        chained.end_step();
    }
    // Writes the sums to shared memory as [slow][fast].
    __device__ __forceinline__ void stage(float *to, bool across) {
        chained.collect();
        const int slow_step = across ? 1 : staged_row<tile>, fast_step = across ? staged_row<tile> : 1;
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int j = 0; j < columns; ++j)
                to[place<left_across, high>(y, i) * slow_step + place<right_across, wide>(x, j) * fast_step] = chained.sums[i][j];
    }
};

} // namespace gemm
} // namespace bops
