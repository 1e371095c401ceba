// What the forms of attention on tensor cores share: tiles of 16-bit elements in shared memory, their copies, and what a lane reads of them.
//
// A line of a tile is a row of q, k, v or a gradient: `padded` elements, in chunks of 16 bytes. Neighbouring lines have their chunks in another order, so that
// the eight that an ldmatrix reads together lie in different banks.
#pragma once
#include "../gemm/mma.cuh"
#include "attention.cuh"

namespace bops {
namespace attention {

using gemm::load_matrices;
using gemm::load_matrices_transposed;
using gemm::multiply;

// Where a chunk lies in a tile.
template <int padded> __device__ __forceinline__ uint32_t chunk_address(int line, int chunk) {
    if constexpr (padded == 32) return gemm::along_k_address(line, chunk);
    else return gemm::across_address<__half, padded>(line, chunk * 8);
}

template <int padded, int lines> constexpr uint32_t lines_bytes = uint32_t(lines) * padded * 2;

// Where a lane's part of a matrix begins. A step of 16 columns further lies at the address ^ 32 step, and 16 lines further lie at lines_bytes<padded, 16> more: the order of
// chunks is that of the line modulo 8, and tiles begin at multiples of a line.
template <int padded> __device__ __forceinline__ uint32_t left_start(int lane) {
    return chunk_address<padded>(gemm::left_row(lane, 0), gemm::left_chunk(lane, 0));
}
// Of a factor whose lines are columns of the product, as keys are of scores.
template <int padded> __device__ __forceinline__ uint32_t right_start(int lane) {
    return chunk_address<padded>(gemm::right_column(lane, 0), gemm::right_chunk(lane, 0));
}
// Of a factor whose lines are summed over, as values are.
template <int padded> __device__ __forceinline__ uint32_t right_across_start(int lane) {
    return chunk_address<padded>(gemm::right_across_k(lane, 0), gemm::right_across_column(lane, 0) / 8);
}

// The number itself. What follows from it is computed where it is used: computed ahead of a loop it would take registers all the while.
template <typename N> __device__ __forceinline__ N not_ahead(N number) {
    asm volatile("" : "+r"(number));
    return number;
}

// Starts the copies of `lines` rows of a matrix from `first` on, of which `left` are there, by all threads of a block. Rows and columns that are not there become 0.
template <int padded, int threads, int lines>
__device__ __forceinline__ void copy_lines(uint32_t to, const char *base, uint64_t row_bytes, uint32_t depth, int first, int left) {
    constexpr int chunks = padded / 8, line_step = threads / chunks, each = lines / line_step;
    static_assert(each * line_step == lines && line_step * chunks == threads, "every thread copies as much");
    const uint32_t thread = not_ahead(threadIdx.x), line = thread / chunks, chunk = thread % chunks;
    const char *from = base + uint64_t(uint32_t(first) + line) * row_bytes + chunk * 16;
    const auto place = [&](int i) {
        if constexpr (line_step % 8 == 0) return to + chunk_address<padded>(int(line), int(chunk)) + uint32_t(i) * lines_bytes<padded, line_step>;
        else return to + chunk_address<padded>(int(line) + i * line_step, int(chunk));
    };
    if (left >= lines && depth == padded) {
#pragma unroll
        for (int i = 0; i < each; ++i) {
            copy_async<16>(place(i), from);
            from += line_step * row_bytes;
        }
        return;
    }
    const int lines_left = chunk * 8 < depth ? left - int(line) : 0;
#pragma unroll 1
    for (int i = 0; i < each; ++i) {
        const bool is_there = i * line_step < lines_left;
        gemm::copy_or_zero<16>(place(i), is_there ? from : base, is_there ? 16 : 0);
        from += line_step * row_bytes;
    }
}

// Two neighbours, rounded.
template <typename T> __device__ __forceinline__ uint32_t pack_two(float first, float second) {
    const float both[2] = {first, second};
    return pack<T, 4>(both).word[0];
}

// 2^t, to 2 ulps; results below 2^-126 are 0.
__device__ __forceinline__ float power_of_two(float t) {
    float to;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(to) : "f"(t));
    return to;
}

constexpr float log2_of_e = 1.44269504088896340736f, ln_of_2 = 0.69314718055994530942f;

} // namespace attention
} // namespace bops
