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

// Where a lane's part of a matrix begins, of the left factor of a product. `n` times 16 columns further is at the address ^ 32 n, and 16 lines further at the
// address + lines_bytes<padded, 16>: the order of chunks depends on the line modulo 8, and tiles begin at multiples of the bytes of a line.
template <int padded> __device__ __forceinline__ uint32_t left_start(int lane) {
    return chunk_address<padded>(gemm::left_row(lane, 0), gemm::left_chunk(lane, 0));
}
// Of a right factor whose lines are columns of the product, as keys are of scores.
template <int padded> __device__ __forceinline__ uint32_t right_start(int lane) {
    return chunk_address<padded>(gemm::right_column(lane, 0), gemm::right_chunk(lane, 0));
}
// Of a right factor whose lines are summed over, as values are.
template <int padded> __device__ __forceinline__ uint32_t right_across_start(int lane) {
    return chunk_address<padded>(gemm::right_across_k(lane, 0), gemm::right_across_column(lane, 0) / 8);
}

// The keys that a query of a warp sees, from the first to the one before the last, and those that all of its queries see; or queries that see keys.
struct alignas(16) warp_sight {
    int any_from, any_to, all_from, all_to;

    __device__ __forceinline__ bool misses(int first, int count) const { return any_from >= first + count || any_to <= first; }
    __device__ __forceinline__ bool has_all(int first, int count) const { return all_from <= first && all_to >= first + count; }
};

// The number itself. What follows from it is computed where it is used: computed ahead of a loop it would take registers all the while.
template <typename N> __device__ __forceinline__ N not_ahead(N number) {
    asm volatile("" : "+r"(number));
    return number;
}

// Starts the copies of `lines` rows of a matrix from `first` on, of which `left` are there, by all threads of a block. Rows and columns that are not there
// become 0.
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

// sums += left right^T, over the columns of lines: the product of `row_blocks` blocks of 16 lines at `left` and `column_blocks` of 8 at `right`.
template <typename T, int padded, int row_blocks, int column_blocks>
__device__ __forceinline__ void add_lines_by_lines(float (&sums)[row_blocks][column_blocks][4], uint32_t left, uint32_t right) {
#pragma unroll
    for (int d = 0; d < padded / 16; ++d) {
        uint32_t a[row_blocks][4];
#pragma unroll
        for (int i = 0; i < row_blocks; ++i) load_matrices(a[i], (left ^ 32 * d) + lines_bytes<padded, 16> * i);
#pragma unroll
        for (int j = 0; j < column_blocks / 2; ++j) {
            uint32_t b[4];
            load_matrices(b, (right ^ 32 * d) + lines_bytes<padded, 16> * j);
#pragma unroll
            for (int i = 0; i < row_blocks; ++i) multiply<T>(sums[i][2 * j], a[i], b[0], b[1]), multiply<T>(sums[i][2 * j + 1], a[i], b[2], b[3]);
        }
    }
}

// sums += weights right, over `steps` times 16 lines at `right`.
template <typename T, int padded, int row_blocks, int steps>
__device__ __forceinline__ void add_weighted_lines(float (&sums)[row_blocks][padded / 8][4], const uint32_t (&weights)[row_blocks][steps][4],
                                                   uint32_t right) {
#pragma unroll
    for (int s = 0; s < steps; ++s)
#pragma unroll
        for (int n = 0; n < padded / 16; ++n) {
            uint32_t b[4];
            load_matrices_transposed(b, (right ^ 32 * n) + lines_bytes<padded, 16> * s);
#pragma unroll
            for (int i = 0; i < row_blocks; ++i)
                multiply<T>(sums[i][2 * n], weights[i][s], b[0], b[1]), multiply<T>(sums[i][2 * n + 1], weights[i][s], b[2], b[3]);
        }
}

// The word of a left factor that two neighbouring sums become: those of block j of 8 columns, in row lane / 4 + 8 h of a block.
template <int row_blocks, int steps> __device__ __forceinline__ uint32_t &word_of(uint32_t (&weights)[row_blocks][steps][4], int i, int j, int h) {
    return weights[i][j / 2][j % 2 * 2 + h];
}

// Two neighbours, rounded.
template <typename T> __device__ __forceinline__ uint32_t pack_two(float first, float second) {
    const float both[2] = {first, second};
    return pack<T, 4>(both).word[0];
}

template <typename T> __device__ __forceinline__ float2 unpack_two(uint32_t word) {
    float both[2];
    unpack<T, 4>(packed<4>{{word}}, both);
    return {both[0], both[1]};
}

// Where a lane has two neighbours of block n of 8 columns of a line.
template <int padded> __device__ __forceinline__ uint32_t two_address(uint32_t lines, int line, int n, int lane) {
    return lines + chunk_address<padded>(line, n) + lane % 4 * 4;
}
__device__ __forceinline__ void store_word(uint32_t to, uint32_t word) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory"); }

// Loads the lines of a warp, rows from `first` on of which `rows` are there in all, in chunks.
template <typename T, int padded, int lines>
__device__ __forceinline__ void bring_lines(uint32_t to, const T *from, uint64_t row_stride, uint32_t depth, int first, int rows, int lane) {
    constexpr int chunks = padded / 8;
#pragma unroll 1
    for (int n = lane; n < lines * chunks; n += 32) {
        const int line = n / chunks, chunk = n % chunks, row = first + line;
        if (row < rows && chunk * 8 < int(depth))
            gemm::store_chunk(to + chunk_address<padded>(line, chunk), load<16, false>(from + row * row_stride + chunk * 8).word);
    }
    __syncwarp();
}

// Stores the lines of a warp, rows from `first` on of which `rows` are there in all, in chunks.
template <typename T, int padded, int lines>
__device__ __forceinline__ void leave_lines(uint32_t from, T *to, uint64_t row_stride, uint32_t depth, int first, int rows, int lane) {
    constexpr int chunks = padded / 8;
    __syncwarp();
#pragma unroll
    for (int n = lane; n < lines * chunks; n += 32) {
        const int line = n / chunks, chunk = n % chunks, row = first + line;
        if (row >= rows || chunk * 8 >= int(depth)) continue;
        packed<16> words;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words.word[0]), "=r"(words.word[1]), "=r"(words.word[2]), "=r"(words.word[3])
                     : "r"(from + chunk_address<padded>(line, chunk))
                     : "memory");
        store<16, false>(to + row * row_stride + chunk * 8, words);
    }
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
