// Systems with a lower triangular matrix: a block solves `tile` of them, block by block of `tile` rows. From a block it takes what is solved, tile by tile, and then
// solves it row by row. Each thread has four elements of a block: those 16 rows and 16 columns apart.
#include "linalg.cuh"

namespace bops {
namespace {

constexpr int tile = BOPS_TRIANGULAR_SOLVE_TILE;
constexpr int across_threads = 16; // threads of a row
constexpr int solve_threads = across_threads * across_threads;
constexpr int padded = tile + 1; // elements from row to row of a tile of the matrix, so that those of a column lie in different banks

template <typename T> __global__ void __launch_bounds__(solve_threads)
    triangular_solve(const __grid_constant__ bops_triangular_solve_params params, const __grid_constant__ bops_triangular_solve_operands operands) {
    __shared__ T triangle[tile * padded];
    __shared__ T solved[tile * tile];
    // 1. The matrix, and the thread's columns.
    const uint64_t number = blockIdx.x / params.panels;
    const int across = threadIdx.x % across_threads, down = threadIdx.x / across_threads;
    const uint64_t first = (blockIdx.x - number * params.panels) * tile;
    const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, number, 1);
    const matrix_at<T> x = matrix_of<T>(at, params.x, operands.x);
    const matrix_at<const T> b = matrix_of<const T>(at, params.b, operands.b), a = matrix_of<const T>(at, params.a, operands.a);
    const bool is_unit = params.is_unit != 0;
    // Where row i lies in the operands.
    const auto lies = [&](uint64_t i) { return params.is_reversed ? params.n - 1 - i : i; };
    // A tile of the matrix: below the diagonal, and on it where it is read.
    const auto load_triangle = [&](uint64_t row, uint64_t column) {
#pragma unroll
        for (int k = 0; k < tile * tile / solve_threads; ++k) {
            const int i = k * (solve_threads / tile) + threadIdx.x / tile, j = threadIdx.x % tile;
            const bool is_there = row + i < params.n && (column + j < row + i || (column + j == row + i && !is_unit));
            triangle[i * padded + j] = is_there ? a(lies(row + i), lies(column + j)) : T(0);
        }
    };
    for (uint64_t block = 0; block < params.n; block += tile) {
        // 2. The right-hand sides, of the upper and of the lower 16 rows.
        T upper[2] = {}, lower[2] = {};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const uint64_t column = first + across + k * across_threads;
            if (column < params.systems && block + down < params.n) upper[k] = T(params.alpha) * b(lies(block + down), column);
            if (column < params.systems && block + down + across_threads < params.n)
                lower[k] = T(params.alpha) * b(lies(block + down + across_threads), column);
        }
        // 3. Without the rows that are solved.
        for (uint64_t before = 0; before < block; before += tile) {
            load_triangle(block, before);
#pragma unroll
            for (int k = 0; k < tile * tile / solve_threads; ++k) {
                const int i = k * (solve_threads / tile) + threadIdx.x / tile, j = threadIdx.x % tile;
                solved[i * tile + j] = first + j < params.systems ? x(lies(before + i), first + j) : T(0);
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < tile; ++k) {
                const T values[2] = {solved[k * tile + across], solved[k * tile + across + across_threads]};
                const T of_upper = triangle[down * padded + k], of_lower = triangle[(down + across_threads) * padded + k];
#pragma unroll
                for (int c = 0; c < 2; ++c) upper[c] -= of_upper * values[c], lower[c] -= of_lower * values[c];
            }
            __syncthreads();
        }
        // 4. The rows of the block: first the upper ones, which the lower ones then do without.
        load_triangle(block, block);
        __syncthreads();
        for (int k = 0; k < across_threads; ++k) {
            if (down == k) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    if (!is_unit) upper[c] /= triangle[k * padded + k];
                    solved[k * tile + across + c * across_threads] = upper[c];
                }
            }
            __syncthreads();
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const T value = solved[k * tile + across + c * across_threads];
                if (down > k) upper[c] -= triangle[down * padded + k] * value;
                lower[c] -= triangle[(down + across_threads) * padded + k] * value;
            }
        }
        for (int k = across_threads; k < tile; ++k) {
            if (down + across_threads == k) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    if (!is_unit) lower[c] /= triangle[k * padded + k];
                    solved[k * tile + across + c * across_threads] = lower[c];
                }
            }
            __syncthreads();
#pragma unroll
            for (int c = 0; c < 2; ++c)
                if (down + across_threads > k)
                    lower[c] -= triangle[(down + across_threads) * padded + k] * solved[k * tile + across + c * across_threads];
        }
        // 5. The solution, which later blocks read.
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const uint64_t column = first + across + k * across_threads;
            if (column < params.systems && block + down < params.n) x(lies(block + down), column) = upper[k];
            if (column < params.systems && block + down + across_threads < params.n) x(lies(block + down + across_threads), column) = lower[k];
        }
        __syncthreads();
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_triangular_solve_params &params, uint32_t,
                                                   const bops_triangular_solve_operands &operands, void *, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(params.groups)), shape.block = dim3(solve_threads);
    return for_types<float, double>(dtype, [&](auto tag) { return action(triangular_solve<typename decltype(tag)::type>, shape, params, operands); });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_triangular_solve, bops_dtype, bops_triangular_solve_params, uint32_t, bops_triangular_solve_operands, bops::with_kernel)
