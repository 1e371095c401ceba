// What backward of gemm needs beside products: the gradient of the pre-activation, and that of the bias.
#include "gemm.cuh"

namespace bops {
namespace gemm {
namespace {

// ---- dpre -----------------------------------------------------------------------

constexpr int dpre_threads = 256, dpre_columns = 128, dpre_row_step = dpre_threads / (dpre_columns / 4);
// Rows of a thread whose elements are in flight together.
template <typename T> constexpr int dpre_batch = sizeof(T) == 8 ? 1 : 4;

// Multiplies gradients by the derivative at the results y of a relu, sigmoid or tanh.
template <typename A, int count> __device__ __forceinline__ void differentiate_at_out(bops_activation kind, const A (&y)[count], A (&g)[count]) {
    if (kind == BOPS_RELU) {
        differentiate(kind, y, g);
        return;
    }
#pragma unroll
    for (int i = 0; i < count; ++i) g[i] *= kind == BOPS_SIGMOID ? y[i] * (A(1) - y[i]) : (A(1) - y[i]) * (A(1) + y[i]);
}

template <typename T> __global__ void __launch_bounds__(dpre_threads)
    dpre(const __grid_constant__ bops_gemm_dpre_params params, const void *dout, const void *saved, T *to, accumulator_t<T> *column_sums) {
    using A = accumulator_t<T>;
    constexpr int batch = dpre_batch<T>;
    __shared__ A scratch[4 * dpre_threads];
    const uint32_t tiles_m = uint32_t(tiles_of(params.m, BOPS_GEMM_DPRE_ROWS)), tiles_n = uint32_t(tiles_of(params.n, dpre_columns));
    const uint32_t tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n % tiles_m, z = blockIdx.x / tiles_n / tiles_m;
    const uint64_t m_first = uint64_t(tile_m) * BOPS_GEMM_DPRE_ROWS, n_first = uint64_t(tile_n) * dpre_columns;
    const int rows = int(min(uint64_t(BOPS_GEMM_DPRE_ROWS), params.m - m_first));
    const int row = int(threadIdx.x) / (dpre_columns / 4), column = int(threadIdx.x) % (dpre_columns / 4) * 4;
    const int count = min(4, int(min(uint64_t(dpre_columns), params.n - n_first)) - column);
    const bool quads = params.quads != 0;
    A sum[4] = {A(0), A(0), A(0), A(0)};
    if (count > 0) {
        uint64_t dout_at = offset_of(params.batch_rank, params.batch, params.dout.batch, z) + (m_first + row) * params.dout.row +
                           (n_first + column) * params.dout.column;
        uint64_t saved_at = offset_of(params.batch_rank, params.batch, params.saved.batch, z) + (m_first + row) * params.saved.row +
                            (n_first + column) * params.saved.column;
        uint64_t to_at = (uint64_t(z) * params.m + m_first + row) * params.n + n_first + column;
#pragma unroll 1
        for (int r = row; r < rows; r += batch * dpre_row_step) {
            // 1. The elements of a few rows.
            A g[4 * batch], x[4 * batch];
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                const int there = r + i * dpre_row_step < rows ? count : 0;
                A four[4];
                load_four<T>(dout, params.dout_dtype, dout_at + i * dpre_row_step * params.dout.row, params.dout.column, there, quads, four);
#pragma unroll
                for (int e = 0; e < 4; ++e) g[4 * i + e] = four[e];
                if (saved != nullptr)
                    load_four<T>(saved, params.saved_dtype, saved_at + i * dpre_row_step * params.saved.row, params.saved.column, there, quads, four);
#pragma unroll
                for (int e = 0; e < 4; ++e) x[4 * i + e] = four[e];
            }
            // 2. dpre, and its sums before it is rounded.
            if (saved != nullptr) {
                if (params.from_out) differentiate_at_out(params.activation, x, g);
                else differentiate(params.activation, x, g);
            }
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                const int there = r + i * dpre_row_step < rows ? count : 0;
                A four[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    four[e] = g[4 * i + e];
                    sum[e] += e < there ? four[e] : A(0);
                }
                if (to != nullptr) store_four_of(to + to_at + i * dpre_row_step * params.n, 1, there, quads, four);
            }
            dout_at += batch * dpre_row_step * params.dout.row, saved_at += batch * dpre_row_step * params.saved.row;
            to_at += batch * dpre_row_step * params.n;
        }
    }
    // 3. Column sums.
    if (column_sums != nullptr) {
        const uint64_t line = uint64_t(z) * tiles_m + tile_m;
        write_column_sums<dpre_columns, dpre_threads>(sum, scratch, column_sums + line * params.n + n_first, params.n - n_first);
    }
}

template <typename Action> bops_status with_dpre(const bops_gemm_dpre_params &params, bops_dtype dtype, const void *dout, const void *saved, void *to,
                                                 void *column_sums, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        launch_shape shape;
        shape.grid =
            dim3(uint32_t(tiles_of(params.m, BOPS_GEMM_DPRE_ROWS) * tiles_of(params.n, dpre_columns) * product_of(params.batch_rank, params.batch)));
        shape.block = dim3(dpre_threads);
        return action(dpre<T>, shape, params, dout, saved, static_cast<T *>(to), static_cast<accumulator_t<T> *>(column_sums));
    });
}

// ---- dbias ----------------------------------------------------------------------

constexpr int dbias_columns = 32, dbias_groups = 32, dbias_chain = 16;

// T: the type of dbias, A: that of the sums.
template <typename T, typename A> __global__ void __launch_bounds__(dbias_columns *dbias_groups)
    dbias(const bops_gemm_dbias_params params, const A *column_sums, T *to) {
    __shared__ A scratch[dbias_groups][dbias_columns];
    wait_for_dependency();
    const int lane = int(threadIdx.x) % dbias_columns, group = int(threadIdx.x) / dbias_columns;
    const uint64_t column = uint64_t(blockIdx.x) * dbias_columns + lane;
    // 1. A group takes every so many rows, in short chains.
    A total = 0;
    if (column < params.n) {
#pragma unroll 1
        for (uint64_t first = uint64_t(group); first < params.rows; first += dbias_groups * dbias_chain) {
            A chain = 0;
#pragma unroll
            for (int i = 0; i < dbias_chain; ++i) {
                const uint64_t row = first + uint64_t(i) * dbias_groups;
                chain += row < params.rows ? column_sums[row * params.n + column] : A(0);
            }
            total += chain;
        }
    }
    scratch[group][lane] = total;
    __syncthreads();
    // 2. The groups, pair by pair.
#pragma unroll
    for (int half = dbias_groups / 2; half > 0; half /= 2) {
        if (group < half) scratch[group][lane] += scratch[group + half][lane];
        __syncthreads();
    }
    if (group == 0 && column < params.n) {
        A value = scratch[0][lane];
        T *const at = to + column * params.stride;
        if (params.beta != 0) value = fma(A(params.beta), A(widen<T>(*at)), value);
        *at = narrow<T>(value);
    }
}

template <typename Action>
bops_status with_dbias(const bops_gemm_dbias_params &params, bops_dtype dtype, const void *column_sums, void *to, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        launch_shape shape;
        shape.grid = dim3(uint32_t(tiles_of(params.n, dbias_columns))), shape.block = dim3(dbias_columns * dbias_groups);
        shape.overlaps_previous = true;
        return action(dbias<T, A>, shape, params, static_cast<const A *>(column_sums), static_cast<T *>(to));
    });
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_dpre_prepare(const bops_gemm_dpre_params *params, bops_dtype dtype) {
    return bops::gemm::with_dpre(*params, dtype, nullptr, nullptr, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_gemm_dpre_launch(const bops_gemm_dpre_params *params, bops_dtype dtype, const void *dout, const void *saved, void *dpre,
                                  void *column_sums, bops_stream stream) {
    return bops::gemm::with_dpre(*params, dtype, dout, saved, dpre, column_sums, bops::launch_action{stream});
}

bops_status bops_gemm_dbias_prepare(const bops_gemm_dbias_params *params, bops_dtype dtype) {
    return bops::gemm::with_dbias(*params, dtype, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_gemm_dbias_launch(const bops_gemm_dbias_params *params, bops_dtype dtype, const void *column_sums, void *dbias, bops_stream stream) {
    return bops::gemm::with_dbias(*params, dtype, column_sums, dbias, bops::launch_action{stream});
}
