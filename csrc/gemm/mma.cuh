// Sums on tensor cores, through mma.sync: what a thread reads of a step in shared memory, and the sums it has.
#pragma once
#include "steps.cuh"

namespace bops {
namespace gemm {

// A block has four warps, each with a quarter of the tile. The larger the quarter is, the more products follow from each word read from shared
// memory.
template <int tile> struct mma_shape {
    static constexpr int threads = 128, warps_m = 2, warps_n = 2;
    static constexpr int warp_rows = tile / warps_m, warp_columns = tile / warps_n, row_blocks = warp_rows / 16, column_blocks = warp_columns / 8;
};

__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ uint32_t load_word(uint32_t from) {
    uint32_t to;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(from) : "memory");
    return to;
}

// sums += a b, of 16 rows and 8 columns over 32 bytes of k.
template <typename T> __device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, __half>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds f32 to the nearest tf32; the instruction itself would cut off the low bits.
template <typename T> __device__ __forceinline__ void round_factors(uint32_t (&words)[4]) {
    if constexpr (sizeof(T) == 4)
#pragma unroll
        for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(words[i]) : "f"(__uint_as_float(words[i])));
}

// Loads the words of the left factor that a lane holds: of the 16 rows from `first` on, over 32 bytes of k from chunk 2 * k_step on.
template <typename T, int tile, bool across> __device__ __forceinline__ void load_left(uint32_t (&a)[4], uint32_t step, int first, int k_step) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (!across) load_matrices(a, step + along_k_address(left_row(lane, first), left_chunk(lane, k_step)));
    else if constexpr (sizeof(T) == 2)
        load_matrices_transposed(a, step + across_address<T, tile>(left_across_k(lane, k_step), left_across_row(lane, first)));
    else
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = load_word(step + across_address<T, tile>(word_k(lane, k_step, i / 2), word_row(lane, first, i % 2)));
    round_factors<T>(a);
}

// Loads the words of the right factor for the 16 columns from `first` on: b[0] and b[1] are those of the first eight, b[2] and b[3] those of the
// others.
template <typename T, int tile, bool across> __device__ __forceinline__ void load_right(uint32_t (&b)[4], uint32_t step, int first, int k_step) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (!across) load_matrices(b, step + along_k_address(right_column(lane, first), right_chunk(lane, k_step)));
    else if constexpr (sizeof(T) == 2)
        load_matrices_transposed(b, step + across_address<T, tile>(right_across_k(lane, k_step), right_across_column(lane, first)));
    else
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = load_word(step + across_address<T, tile>(word_k(lane, k_step, i % 2), word_row(lane, first, i / 2)));
    round_factors<T>(b);
}

// A thread's sums: its share of the quarter of the tile that its warp has.
template <typename T_, int tile_, bool left_across_, bool right_across_> struct mma_sums {
    using T = T_;
    using shape = mma_shape<tile_>;
    // blocks: the least number that an SM is to have room for. 2 leave a thread 255 registers, of which the sums of a tile of 128 take 128. 3 leave
    // it 168, of which those of a tile of 64 take 32. With 4 a thread would have 128; with 2 the compiler might take more, and fewer warps would hide
    // latencies.
    static constexpr int tile = tile_, threads = shape::threads, blocks = tile == 128 ? 2 : 3;
    static constexpr bool left_across = left_across_, right_across = right_across_;

    float sums[shape::row_blocks][shape::column_blocks][4];
    int warp_m, warp_n; // the first row and column of the warp

    struct memory {}; // all sums are in registers
    __device__ __forceinline__ explicit mma_sums(const memory &) {
        const int warp = int(threadIdx.x) / 32;
        warp_m = warp % shape::warps_m * shape::warp_rows, warp_n = warp / shape::warps_m * shape::warp_columns;
#pragma unroll
        for (int i = 0; i < shape::row_blocks; ++i)
#pragma unroll
            for (int j = 0; j < shape::column_blocks; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;
    }
    // Adds the product of a step.
    __device__ __forceinline__ void add(uint32_t step) {
#pragma unroll
        for (int k_step = 0; k_step < 2; ++k_step) {
            uint32_t b[shape::column_blocks / 2][4];
#pragma unroll
            for (int j = 0; j < shape::column_blocks / 2; ++j)
                load_right<T, tile, right_across>(b[j], step + step_bytes<T, tile>, warp_n + 16 * j, k_step);
#pragma unroll
            for (int i = 0; i < shape::row_blocks; ++i) {
                uint32_t a[4];
                load_left<T, tile, left_across>(a, step, warp_m + 16 * i, k_step);
#pragma unroll
                for (int j = 0; j < shape::column_blocks; ++j) multiply<T>(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
    // Writes the sums to shared memory as [slow][fast].
    __device__ __forceinline__ void stage(float *to, bool across) const {
        const int slow_step = across ? 1 : staged_row<tile>, fast_step = across ? staged_row<tile> : 1, lane = int(threadIdx.x) % 32;
#pragma unroll
        for (int i = 0; i < shape::row_blocks; ++i)
#pragma unroll
            for (int j = 0; j < shape::column_blocks; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    to[(warp_m + 16 * i + sum_row(lane, e)) * slow_step + (warp_n + 8 * j + sum_column(lane, e)) * fast_step] = sums[i][j][e];
    }
};

} // namespace gemm
} // namespace bops
