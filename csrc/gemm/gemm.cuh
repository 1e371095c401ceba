// What the forms of gemm share: places of tiles, accesses to four elements, and the epilogue of a tile.
#pragma once
#include "../bops_gemm.h"
#include "../common/activation.cuh"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../common/memory.cuh"

namespace bops {
namespace gemm {

constexpr int threads_of_finish = 256; // of a block of gemm_finish, of whose tile a thread has four times four elements

// ---- places -----------------------------------------------------------------

__host__ __device__ __forceinline__ uint64_t tiles_of(uint64_t extent, int tile) { return (extent + uint64_t(tile) - 1) / uint64_t(tile); }

__host__ __device__ __forceinline__ uint64_t product_of(uint32_t rank, const uint64_t (&extents)[BOPS_GEMM_EXTENTS]) {
    uint64_t product = 1;
    for (uint32_t i = 0; i < rank; ++i) product *= extents[i];
    return product;
}

// The offset of element `index` of a run over `extents`, of which the last varies fastest.
__device__ __forceinline__ uint64_t offset_of(uint32_t rank, const uint64_t (&extents)[BOPS_GEMM_EXTENTS],
                                              const uint64_t (&strides)[BOPS_GEMM_EXTENTS], uint64_t index) {
    if (rank == 0) return 0;
    uint64_t offset = 0;
#pragma unroll 1
    for (uint32_t i = rank - 1; i > 0; --i) {
        offset += index % extents[i] * strides[i];
        index /= extents[i];
    }
    return offset + index * strides[0];
}

// Rows of tiles of a band. Neighbouring blocks take the tiles of a band column after column, so that those that run at the same time share factors in
// the L2: 132 blocks, one on each SM of an H100, have 8 by 17 tiles, which read nearly as few rows and columns of the factors as a square would.
constexpr uint32_t band_rows = 8;

// The tile of a block.
struct place {
    uint32_t z, split, tile_m, tile_n;
};
__device__ __forceinline__ place place_of_block(const bops_gemm_params &params, uint32_t splits, int tile) {
    const uint32_t tiles_m = uint32_t(tiles_of(params.m, tile)), tiles_n = uint32_t(tiles_of(params.n, tile)), tiles = tiles_m * tiles_n;
    const uint32_t in_matrix = blockIdx.x % tiles, matrix = blockIdx.x / tiles;
    const uint32_t high = min(band_rows, tiles_m), band = in_matrix / (high * tiles_n), in_band = in_matrix % (high * tiles_n);
    const uint32_t rows = min(high, tiles_m - high * band);
    return {matrix / splits, matrix % splits, high * band + in_band % rows, in_band / rows};
}

// The steps along k that one split takes, each of `depth` of k, through one summed index after the other.
struct reduction {
    uint64_t steps_of_k, first, last;
    __device__ __forceinline__ reduction(const bops_gemm_params &params, int depth, uint32_t split, uint32_t splits) {
        steps_of_k = tiles_of(params.k, depth);
        const uint64_t steps = steps_of_k * product_of(params.summed_rank, params.summed), share = steps / splits, left = steps % splits;
        first = share * split + min(uint64_t(split), left);
        last = first + share + (split < left ? 1 : 0);
    }
};

// ---- four elements --------------------------------------------------------------

// Loads `count` of four elements, which lie `step` apart from `from` on; the others become 0. vector: all four are one access, or two of f64.
template <typename T, typename A> __device__ __forceinline__ void load_four_of(const T *from, uint64_t step, int count, bool vector, A (&to)[4]) {
    if (vector && count == 4) {
        constexpr int bytes = sizeof(T) == 2 ? 8 : 16, each = bytes / int(sizeof(T));
#pragma unroll
        for (int i = 0; i < 4; i += each) {
            accumulator_t<T> part[each];
            unpack<T>(load<bytes, false>(from + i), part);
#pragma unroll
            for (int j = 0; j < each; ++j) to[i + j] = A(part[j]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = i < count ? A(widen<T>(from[uint64_t(i) * step])) : A(0);
    }
}
template <typename T, typename A> __device__ __forceinline__ void store_four_of(T *to, uint64_t step, int count, bool vector, const A (&from)[4]) {
    if (vector && count == 4) {
        constexpr int bytes = sizeof(T) == 2 ? 8 : 16, each = bytes / int(sizeof(T));
#pragma unroll
        for (int i = 0; i < 4; i += each) {
            accumulator_t<T> part[each];
#pragma unroll
            for (int j = 0; j < each; ++j) part[j] = from[i + j];
            store<bytes, false>(to + i, pack<T, bytes>(part));
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (i < count) to[uint64_t(i) * step] = narrow<T>(from[i]);
    }
}

// Loads from an operand whose elements have the dtype of the call, T, or f32.
template <typename T> __device__ __forceinline__ void load_four(const void *base, bops_dtype dtype, uint64_t at, uint64_t step, int count,
                                                                bool vector, accumulator_t<T> (&to)[4]) {
    if constexpr (sizeof(T) == 2)
        if (dtype == BOPS_F32) return load_four_of(static_cast<const float *>(base) + at, step, count, vector, to);
    load_four_of(static_cast<const T *>(base) + at, step, count, vector, to);
}
template <typename T> __device__ __forceinline__ void store_four(void *base, bops_dtype dtype, uint64_t at, uint64_t step, int count, bool vector,
                                                                 const accumulator_t<T> (&from)[4]) {
    if constexpr (sizeof(T) == 2)
        if (dtype == BOPS_F32) return store_four_of(static_cast<float *>(base) + at, step, count, vector, from);
    store_four_of(static_cast<T *>(base) + at, step, count, vector, from);
}

// ---- the epilogue of a tile ---------------------------------------------------------

// A matrix of out, of pre or dout, or of parts, in the order in which threads walk over a tile.
struct walk {
    uint64_t slow, fast;
    __device__ __forceinline__ walk(const bops_gemm_matrix &matrix, bool across)
        : slow(across ? matrix.column : matrix.row), fast(across ? matrix.row : matrix.column) {}
};

// Adds up, in a fixed order, what the threads that own the same four columns of a tile have, and writes a row of column sums. `scratch` has room for
// four elements of every thread; at the call no thread uses it.
template <int fast_tile, int threads, typename A>
__device__ __forceinline__ void write_column_sums(const A (&sum)[4], A *scratch, A *to, uint64_t columns_left) {
    constexpr int per_row = fast_tile / 4, rows = threads / per_row;
    const int row = int(threadIdx.x) / per_row, column = int(threadIdx.x) % per_row * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) scratch[row * fast_tile + column + i] = sum[i];
    __syncthreads();
    if (threadIdx.x < fast_tile && threadIdx.x < columns_left) {
        A total = 0;
#pragma unroll
        for (int i = 0; i < rows; ++i) total += scratch[i * fast_tile + int(threadIdx.x)];
        to[threadIdx.x] = total;
    }
}

// The epilogue of a tile of slow_tile * fast_tile elements, number (tile_slow, tile_fast) of matrix z. source(slow, fast, count, v) gives the sums of
// `count` elements, before alpha. Once all threads have called it for the last time, write_column_sums may use `scratch`.
template <typename T, int slow_tile, int fast_tile, int threads, typename Source>
__device__ __forceinline__ void finish_tile(const bops_gemm_params &params, const bops_gemm_operands &operands, bool across, bool quads, uint32_t z,
                                            uint32_t tile_slow, uint32_t tile_fast, const Source &source, accumulator_t<T> *scratch) {
    using A = accumulator_t<T>;
    constexpr int per_row = fast_tile / 4, row_step = threads / per_row;
    static_assert(threads % per_row == 0 && slow_tile % row_step == 0, "threads own columns");
    const uint64_t slow_extent = across ? params.n : params.m, fast_extent = across ? params.m : params.n;
    const uint64_t slow_first = uint64_t(tile_slow) * slow_tile, fast_first = uint64_t(tile_fast) * fast_tile;
    const int rows = int(min(uint64_t(slow_tile), slow_extent - slow_first));
    const int row = int(threadIdx.x) / per_row, column = int(threadIdx.x) % per_row * 4;
    // Columns of the tile that exist from this thread's first one on. If there are 4 or more, all of the thread's columns exist.
    const int count = int(min(fast_extent - fast_first, uint64_t(fast_tile))) - column;
    const walk out(params.out, across), other(params.other, across), bias(params.bias, across);
    uint64_t out_at = offset_of(params.batch_rank, params.batch, params.out.batch, z), other_at = 0, bias_at = 0;
    out_at += (slow_first + row) * out.slow + (fast_first + column) * out.fast;
    if (operands.other != nullptr)
        other_at =
            offset_of(params.batch_rank, params.batch, params.other.batch, z) + (slow_first + row) * other.slow + (fast_first + column) * other.fast;
    bias_at = (slow_first + row) * bias.slow + (fast_first + column) * bias.fast;
    const A alpha = A(params.alpha), beta = A(params.beta);
    A sum[4] = {A(0), A(0), A(0), A(0)};
    if (count > 0) {
        const int four = min(count, 4);
#pragma unroll 1
        for (int r = row; r < rows; r += row_step) {
            // 1. v, the sums times alpha; with the bias, pre.
            A v[4];
            source(r, column, four, v);
#pragma unroll
            for (int i = 0; i < 4; ++i) v[i] *= alpha;
            if (operands.bias != nullptr) {
                A b[4];
                load_four<T>(operands.bias, params.bias_dtype, bias_at, bias.fast, four, false, b);
#pragma unroll
                for (int i = 0; i < 4; ++i) v[i] += b[i];
            }
            // 2. out.
            if (params.epilogue == BOPS_GEMM_FORWARD) {
                if (operands.other != nullptr) store_four<T>(operands.other, params.other_dtype, other_at, other.fast, four, quads, v);
                activate(params.activation, v);
            } else if (params.epilogue == BOPS_GEMM_DERIVATIVE) {
                A g[4];
                load_four<T>(operands.other, params.other_dtype, other_at, other.fast, four, quads, g);
                differentiate(params.activation, v, g);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    v[i] = g[i];
                    sum[i] += i < four ? g[i] : A(0);
                }
            } else if (params.beta != 0) {
                A before[4];
                load_four<T>(operands.out, params.out_dtype, out_at, out.fast, four, quads, before);
#pragma unroll
                for (int i = 0; i < 4; ++i) v[i] = fma(beta, before[i], v[i]);
            }
            if (operands.out != nullptr) store_four<T>(operands.out, params.out_dtype, out_at, out.fast, four, quads, v);
            out_at += row_step * out.slow, other_at += row_step * other.slow, bias_at += row_step * bias.slow;
        }
    }
    // 3. Column sums.
    if (params.epilogue == BOPS_GEMM_DERIVATIVE && operands.column_sums != nullptr) {
        __syncthreads();
        const uint64_t line = uint64_t(z) * tiles_of(slow_extent, slow_tile) + tile_slow;
        write_column_sums<fast_tile, threads>(sum, scratch, static_cast<A *>(operands.column_sums) + line * fast_extent + fast_first,
                                              fast_extent - fast_first);
    }
}

// Applies the epilogue, which makes no derivative, to v, sums of row `row` from column n on, of which `count` exist. out_start, other_start: offsets of the
// batch's matrix in out and other. vector: four elements of out, and four of other, are one access.
template <typename T, int width> __device__ __forceinline__ void finish_elements(const bops_gemm_params &params, const bops_gemm_operands &operands,
                                                                                 uint64_t out_start, uint64_t other_start, int row, uint64_t n,
                                                                                 int count, bool vector, float (&v)[width]) {
    const uint64_t out_at = out_start + uint64_t(row) * params.out.row + n * params.out.column;
    float four[4] = {};
#pragma unroll
    for (int i = 0; i < width; ++i) v[i] *= float(params.alpha);
    if (params.epilogue == BOPS_GEMM_FORWARD) {
        if (operands.bias != nullptr) {
            load_four<T>(operands.bias, params.bias_dtype, uint64_t(row) * params.bias.row + n * params.bias.column, params.bias.column, count, false,
                         four);
#pragma unroll
            for (int i = 0; i < width; ++i) v[i] += four[i];
        }
        if (operands.other != nullptr) {
#pragma unroll
            for (int i = 0; i < width; ++i) four[i] = v[i];
            store_four<T>(operands.other, params.other_dtype, other_start + uint64_t(row) * params.other.row + n * params.other.column,
                          params.other.column, count, vector, four);
        }
        activate(params.activation, v);
    } else if (params.beta != 0) {
        load_four<T>(operands.out, params.out_dtype, out_at, params.out.column, count, vector, four);
#pragma unroll
        for (int i = 0; i < width; ++i) v[i] = fmaf(float(params.beta), four[i], v[i]);
    }
#pragma unroll
    for (int i = 0; i < width; ++i) four[i] = v[i];
    store_four<T>(operands.out, params.out_dtype, out_at, params.out.column, count, vector, four);
}

// ---- a tile in shared memory --------------------------------------------------------

// Elements from one row of a tile (along its slow index) to the next: padded, so that neighbouring rows lie in different banks, to a multiple of 16
// bytes.
template <int tile> constexpr int staged_row = tile + 4;

template <int tile, typename A> struct staged {
    const A *stage;
    __device__ __forceinline__ void operator()(int slow, int fast, int, A (&v)[4]) const {
        constexpr int each = 16 / int(sizeof(A));
#pragma unroll
        for (int i = 0; i < 4; i += each) {
            const packed<16> part = *reinterpret_cast<const packed<16> *>(stage + slow * staged_row<tile> + fast + i);
            A values[each];
            unpack<A>(part, values);
#pragma unroll
            for (int j = 0; j < each; ++j) v[i + j] = values[j];
        }
    }
};

// Applies the epilogue to the sums of a block's tile, which are in shared memory as [slow][fast]; or writes them to `parts`, if several splits share the
// tile. Threads have synchronised.
template <typename T, int tile, int threads>
__device__ __forceinline__ void leave_tile(const bops_gemm_params &params, const bops_gemm_choice &choice, const bops_gemm_operands &operands,
                                           const place &at, accumulator_t<T> *stage) {
    using A = accumulator_t<T>;
    const bool across = choice.across != 0, quads = choice.quads != 0;
    const uint32_t tile_slow = across ? at.tile_n : at.tile_m, tile_fast = across ? at.tile_m : at.tile_n;
    const staged<tile, A> source{stage};
    if (choice.splits == 1) {
        finish_tile<T, tile, tile, threads>(params, operands, across, quads, at.z, tile_slow, tile_fast, source, stage);
        return;
    }
    constexpr int per_row = tile / 4, row_step = threads / per_row;
    const uint64_t slow_extent = across ? params.n : params.m, fast_extent = across ? params.m : params.n;
    const uint64_t slow_first = uint64_t(tile_slow) * tile, fast_first = uint64_t(tile_fast) * tile;
    const int rows = int(min(uint64_t(tile), slow_extent - slow_first));
    const int row = int(threadIdx.x) / per_row, column = int(threadIdx.x) % per_row * 4;
    const int count = int(min(fast_extent - fast_first, uint64_t(tile))) - column;
    if (count <= 0) return;
    const uint64_t matrices = product_of(params.batch_rank, params.batch);
    A *to = static_cast<A *>(operands.parts) + ((at.split * matrices + at.z) * slow_extent + slow_first + row) * fast_extent + fast_first + column;
#pragma unroll 1
    for (int r = row; r < rows; r += row_step, to += row_step * fast_extent) {
        A v[4];
        source(r, column, 4, v);
        store_four_of(to, 1, min(count, 4), quads, v);
    }
}

// The grid of the product's own launch.
inline uint32_t blocks_of(const bops_gemm_params &params, const bops_gemm_choice &choice) {
    return uint32_t(tiles_of(params.m, int(choice.tile)) * tiles_of(params.n, int(choice.tile)) * product_of(params.batch_rank, params.batch) *
                    choice.splits);
}

} // namespace gemm
} // namespace bops
