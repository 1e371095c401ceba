// gemm_few_rows: products of at most 16 rows of left, as when a language model decodes. right is loaded once, from memory to registers.
//
// The 16 rows are those of one instruction of the tensor cores. A block has a few columns of right, and its warps share out the sums over k in steps of
// 32. The order of k within a step is free as long as both factors have the same one: a lane has eight of k that lie one after the other, two for each
// place of its instruction's words.
// Compiled once for all architectures.
#include "mma.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int few_rows = 16; // of left, at most: those of one instruction
// Warps of a block, which share out k: as many sums of 16 by 32 results take 32 KB, and twice as many would exceed the 48 KB of static shared memory.
constexpr int few_warps = 16;
constexpr int few_threads = 32 * few_warps;
constexpr int few_depth = 32; // k of a step
// Steps of a warp whose elements are in flight together. Each takes 24 registers with 32 columns; with more, short sums leave warps without work.
constexpr int few_ahead = 2;

// Loads eight elements along k of a row of left, or of a column of right; those that do not exist become 0.
template <typename T, bool streamed> __device__ __forceinline__ packed<16> eight_of_k(const T *from, bool there) {
    packed<16> words = {{0, 0, 0, 0}};
    if (there) words = load<16, streamed>(from);
    return words;
}

// tiles: tiles of eight columns that a block has. across: right lies along n. Column c of tile t is then column tiles * c + t of the block, so that a
// lane reads neighbouring columns.
template <typename T, int tiles, bool across> __global__ void __launch_bounds__(few_threads)
    multiply_few_rows(const __grid_constant__ bops_gemm_params params, const __grid_constant__ bops_gemm_operands operands) {
    constexpr int columns = 8 * tiles;
    __shared__ float parts[few_warps][few_rows][columns];
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
    const uint32_t tiles_n = uint32_t(tiles_of(params.n, columns)), z = blockIdx.x / tiles_n;
    const uint64_t first = uint64_t(blockIdx.x % tiles_n) * columns;
    const T *const left = static_cast<const T *>(operands.left) + offset_of(params.batch_rank, params.batch, params.left.matrix.batch, z) +
                          uint64_t(g) * params.left.matrix.row;
    const T *const right = static_cast<const T *>(operands.right) + offset_of(params.batch_rank, params.batch, params.right.matrix.batch, z);
    const uint64_t steps = tiles_of(params.k, few_depth);

    // 1. The sums over the steps of this warp.
    float sums[tiles][4];
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][i] = 0.0f;
#pragma unroll 1
    for (uint64_t step = uint64_t(warp); step < steps; step += few_ahead * few_warps) {
        packed<16> rows[few_ahead][2];
        constexpr int lines = across ? 8 : tiles;
        packed<across ? 2 * tiles : 16> of_right[few_ahead][lines];
#pragma unroll
        for (int i = 0; i < few_ahead; ++i) {
            const uint64_t k = (step + uint64_t(i * few_warps)) * few_depth + uint64_t(8 * q);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                rows[i][half] = eight_of_k<T, false>(left + uint64_t(8 * half) * params.left.matrix.row + k, k < params.k && g + 8 * half < params.m);
#pragma unroll
            for (int line = 0; line < lines; ++line) {
                if constexpr (across) {
                    const uint64_t n = first + uint64_t(tiles * g);
#pragma unroll
                    for (int w = 0; w < tiles / 2; ++w) of_right[i][line].word[w] = 0;
                    if (k + line < params.k && n < params.n) of_right[i][line] = load<2 * tiles>(right + (k + line) * params.right.matrix.row + n);
                } else {
                    const uint64_t n = first + uint64_t(8 * line + g);
                    of_right[i][line] = eight_of_k<T, true>(right + n * params.right.matrix.column + k, k < params.k && n < params.n);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < few_ahead; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t a[4] = {rows[i][0].word[2 * half], rows[i][1].word[2 * half], rows[i][0].word[2 * half + 1],
                                       rows[i][1].word[2 * half + 1]};
#pragma unroll
                for (int t = 0; t < tiles; ++t) {
                    uint32_t b[2];
#pragma unroll
                    for (int pair = 0; pair < 2; ++pair) {
                        if constexpr (across) {
                            const int line = 4 * half + 2 * pair;
                            // The upper halves of both words, or the lower ones.
                            b[pair] = __byte_perm(of_right[i][line].word[t / 2], of_right[i][line + 1].word[t / 2], t % 2 ? 0x7632 : 0x5410);
                        } else {
                            b[pair] = of_right[i][t].word[2 * half + pair];
                        }
                    }
                    multiply<T>(sums[t], a, b[0], b[1]);
                }
            }
    }

    // 2. The sums of all warps, added in the order of the warps.
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int column = 2 * q + i % 2;
            parts[warp][g + 8 * (i / 2)][across ? tiles * column + t : 8 * t + column] = sums[t][i];
        }
    __syncthreads();
    const int row = int(threadIdx.x) / columns, column = int(threadIdx.x) % columns;
    const uint64_t n = first + uint64_t(column);
    if (row >= few_rows || row >= params.m || n >= params.n) return;
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < few_warps; ++i) total += parts[i][row][column];

    // 3. The epilogue.
    float v[1] = {total};
    const uint64_t other_start = operands.other != nullptr ? offset_of(params.batch_rank, params.batch, params.other.batch, z) : 0;
    finish_elements<T>(params, operands, offset_of(params.batch_rank, params.batch, params.out.batch, z), other_start, row, n, 1, false, v);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_gemm_params &params, const bops_gemm_few_rows_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(tiles_of(params.n, int(choice.columns)) * product_of(params.batch_rank, params.batch)));
    shape.block = dim3(few_threads);
    return for_types<__half, __nv_bfloat16>(dtype, [&](auto tag) {
        return for_value<16, 32>(choice.columns, [&](auto columns) {
            using T = typename decltype(tag)::type;
            constexpr int tiles = decltype(columns)::value / 8;
            return choice.right_across ? action(multiply_few_rows<T, tiles, true>, shape, params, operands)
                                       : action(multiply_few_rows<T, tiles, false>, shape, params, operands);
        });
    });
}

} // namespace
} // namespace gemm
} // namespace bops

BOPS_DEFINE_FORM(bops_gemm_few_rows, bops_dtype, bops_gemm_params, bops_gemm_few_rows_choice, bops_gemm_operands, bops::gemm::with_kernel)
