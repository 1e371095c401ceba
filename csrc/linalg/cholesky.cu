// Cholesky factors of lower triangles: a block factors a matrix, column of tiles by column of tiles, and of each the tile on the diagonal first. From a tile it takes the
// products of the columns before; then it factors it, or solves with the factor of the diagonal, column by column. Each thread has four elements of a tile: those 16
// rows and 16 columns apart.
#include "linalg.cuh"

namespace bops {
namespace {

constexpr int tile = BOPS_CHOLESKY_TILE;
constexpr int half = tile / 2; // threads of a row
constexpr int cholesky_threads = half * half;
constexpr int padded = tile + 1; // elements from row to row of a tile, so that those of a column lie in different banks

template <typename T> __global__ void __launch_bounds__(cholesky_threads)
    cholesky(const __grid_constant__ bops_cholesky_params params, const __grid_constant__ bops_cholesky_operands operands) {
    __shared__ T left[tile * padded], right[tile * padded], diagonal[tile * padded];
    __shared__ T pivot;
    __shared__ uint32_t failed; // counted from 1
    // 1. The matrix.
    const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, blockIdx.x, 1);
    const matrix_at<const T> a = matrix_of<const T>(at, params.a, operands.a);
    const matrix_at<T> factor = matrix_of<T>(at, params.factor, operands.factor);
    const int across = threadIdx.x % half, down = threadIdx.x / half;
    if (threadIdx.x == 0) failed = 0;
    // A tile of the factor, which has all columns.
    const auto load = [&](T *to, uint64_t row, uint64_t column) {
#pragma unroll
        for (int k = 0; k < tile * tile / cholesky_threads; ++k) {
            const int i = k * (cholesky_threads / tile) + threadIdx.x / tile, j = threadIdx.x % tile;
            to[i * padded + j] = row + i < params.n ? factor(row + i, column + j) : T(0);
        }
    };
    for (uint64_t column = 0; column < params.n; column += tile) {
        for (uint64_t row = column; row < params.n; row += tile) {
            // 2. The elements below the diagonal and on it.
            T sums[2][2];
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const uint64_t i = row + down + r * half, j = column + across + c * half;
                    sums[r][c] = i < params.n && j <= i ? a(i, j) : T(0);
                }
            // 3. Without the products of the columns before.
            for (uint64_t before = 0; before < column; before += tile) {
                load(left, row, before);
                load(right, column, before);
                __syncthreads();
#pragma unroll
                for (int k = 0; k < tile; ++k)
#pragma unroll
                    for (int r = 0; r < 2; ++r)
#pragma unroll
                        for (int c = 0; c < 2; ++c) sums[r][c] -= left[(down + r * half) * padded + k] * right[(across + c * half) * padded + k];
                __syncthreads();
            }
            // 4. The columns of the tile.
#pragma unroll
            for (int h = 0; h < 2; ++h)
                for (int of_half = 0; of_half < half; ++of_half) {
                    const int k = h * half + of_half;
                    if (row == column) {
                        if (down == of_half && across == of_half) {
                            const bool is_positive = sums[h][h] > T(0);
                            pivot = is_positive ? sqrt(sums[h][h]) : T(NAN);
                            if (!is_positive && failed == 0 && column + k < params.n) failed = uint32_t(column + k + 1);
                        }
                        __syncthreads();
                        if (across == of_half) {
#pragma unroll
                            for (int r = 0; r < 2; ++r) {
                                const int i = down + r * half;
                                sums[r][h] = i == k ? pivot : sums[r][h] / pivot;
                                diagonal[i * padded + k] = sums[r][h];
                            }
                        }
                        __syncthreads();
#pragma unroll
                        for (int r = 0; r < 2; ++r)
#pragma unroll
                            for (int c = 0; c < 2; ++c)
                                if (down + r * half > k && across + c * half > k)
                                    sums[r][c] -= diagonal[(down + r * half) * padded + k] * diagonal[(across + c * half) * padded + k];
                    } else {
                        if (across == of_half) {
#pragma unroll
                            for (int r = 0; r < 2; ++r) {
                                sums[r][h] /= diagonal[k * padded + k];
                                left[(down + r * half) * padded + k] = sums[r][h];
                            }
                        }
                        __syncthreads();
#pragma unroll
                        for (int r = 0; r < 2; ++r)
#pragma unroll
                            for (int c = 0; c < 2; ++c)
                                if (across + c * half > k)
                                    sums[r][c] -= left[(down + r * half) * padded + k] * diagonal[(across + c * half) * padded + k];
                    }
                }
                // 5. The factor, which later tiles read, and 0 beyond the diagonal.
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const uint64_t i = row + down + r * half, j = column + across + c * half;
                    if (i < params.n && j < params.n) factor(i, j) = j <= i ? sums[r][c] : T(0);
                    // The tile on the other side of the diagonal.
                    const uint64_t above = column + down + r * half, beyond = row + across + c * half;
                    if (row != column && beyond < params.n) factor(above, beyond) = T(0);
                }
            __syncthreads();
        }
    }
    // 6. What failed.
    if (threadIdx.x == 0 && operands.info) operands.info[at.offset(params.info)] = int32_t(failed);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_cholesky_params &params, uint32_t,
                                                   const bops_cholesky_operands &operands, void *, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(params.groups)), shape.block = dim3(cholesky_threads);
    return for_types<float, double>(dtype, [&](auto tag) { return action(cholesky<typename decltype(tag)::type>, shape, params, operands); });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_cholesky, bops_dtype, bops_cholesky_params, uint32_t, bops_cholesky_operands, bops::with_kernel)
