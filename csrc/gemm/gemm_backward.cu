// What backward of gemm needs beside products: the gradient of the pre-activation (dpre), and that of the bias.
#include "gemm.cuh"

namespace bops {
namespace gemm {
namespace {

// ---- dpre -----------------------------------------------------------------------

constexpr int dpre_threads = 256;                                // of a block
constexpr int dpre_columns = BOPS_GEMM_DPRE_COLUMNS;             // of a tile
constexpr int dpre_row_step = dpre_threads / (dpre_columns / 4); // rows that a block has at once, if a thread has four columns
// Rows of a thread that are loaded together. Four columns of four rows of dout and of the saved operand take 32 registers; of f64 those of one row
// take 16, and kernels of f64 come close to the registers that a thread may have. More rows would hide more of the latency of memory and take more
// registers.
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

// The tile of dpre that a block computes.
struct dpre_place {
    uint32_t tiles_m, tile_m, z;
    int rows;
    uint64_t m_first, n_first;
    __device__ __forceinline__ explicit dpre_place(const bops_gemm_dpre_params &params) {
        const uint32_t tiles_n = uint32_t(tiles_of(params.n, dpre_columns)), tile_n = blockIdx.x % tiles_n;
        tiles_m = uint32_t(tiles_of(params.m, int(params.rows)));
        tile_m = blockIdx.x / tiles_n % tiles_m, z = blockIdx.x / tiles_n / tiles_m;
        m_first = uint64_t(tile_m) * params.rows, n_first = uint64_t(tile_n) * dpre_columns;
        rows = int(min(uint64_t(params.rows), params.m - m_first));
    }
};

// dpre where rows are whole vectors of 16 bytes. A thread loads a few rows together. Four blocks per SM, for which the host
// divides the rows, leave it 64 registers.
template <typename T> __global__ void __launch_bounds__(dpre_threads, 4)
    dpre_vectors(const __grid_constant__ bops_gemm_dpre_params params, const T *dout, const T *saved, T *to, accumulator_t<T> *column_sums) {
    using A = accumulator_t<T>;
    constexpr int width = 16 / int(sizeof(T)), per_row = dpre_columns / width, groups = dpre_threads / per_row, batch = BOPS_GEMM_DPRE_ROWS / groups;
    __shared__ A scratch[groups][dpre_columns];
    const dpre_place at(params);
    const int group = int(threadIdx.x) / per_row, column = int(threadIdx.x) % per_row * width;
    A sum[width];
#pragma unroll
    for (int e = 0; e < width; ++e) sum[e] = A(0);
    if (at.n_first + column < params.n) {
        dout += offset_of(params.batch_rank, params.batch, params.dout.batch, at.z) + at.m_first * params.dout.row + at.n_first + column;
        saved += saved == nullptr
                     ? 0
                     : offset_of(params.batch_rank, params.batch, params.saved.batch, at.z) + at.m_first * params.saved.row + at.n_first + column;
        to += to == nullptr ? 0 : (uint64_t(at.z) * params.m + at.m_first) * params.n + at.n_first + column;
#pragma unroll 1
        for (int first = group; first < at.rows; first += BOPS_GEMM_DPRE_ROWS) {
            // 1. The elements of a few rows. Past the last row, that row is loaded again and not used.
            packed<16> of_dout[batch], of_saved[batch];
#pragma unroll
            for (int i = 0; i < batch; ++i) of_dout[i] = load<16>(dout + uint64_t(min(first + i * groups, at.rows - 1)) * params.dout.row);
            if (saved != nullptr)
#pragma unroll
                for (int i = 0; i < batch; ++i) of_saved[i] = load<16>(saved + uint64_t(min(first + i * groups, at.rows - 1)) * params.saved.row);
                    // 2. dpre, and its sums before it is rounded.
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                A g[width];
                unpack<T>(of_dout[i], g);
                if (saved != nullptr) {
                    A x[width];
                    unpack<T>(of_saved[i], x);
                    if (params.from_out) differentiate_at_out(params.activation, x, g);
                    else differentiate(params.activation, x, g);
                }
                const int row = first + i * groups;
                if (row < at.rows) {
#pragma unroll
                    for (int e = 0; e < width; ++e) sum[e] += g[e];
                    if (to != nullptr) store<16, false>(to + uint64_t(row) * params.n, pack<T, 16>(g));
                }
            }
        }
    }
    // 3. Column sums.
    if (column_sums == nullptr) return;
#pragma unroll
    for (int e = 0; e < width; ++e) scratch[group][column + e] = sum[e];
    __syncthreads();
    if (threadIdx.x < dpre_columns && at.n_first + threadIdx.x < params.n) {
        A total = 0;
#pragma unroll
        for (int i = 0; i < groups; ++i) total += scratch[i][threadIdx.x];
        column_sums[(uint64_t(at.z) * at.tiles_m + at.tile_m) * params.n + at.n_first + threadIdx.x] = total;
    }
}

template <typename T> __global__ void __launch_bounds__(dpre_threads)
    dpre(const __grid_constant__ bops_gemm_dpre_params params, const void *dout, const void *saved, T *to, accumulator_t<T> *column_sums) {
    using A = accumulator_t<T>;
    constexpr int batch = dpre_batch<T>;
    __shared__ A scratch[4 * dpre_threads];
    const dpre_place at(params);
    const int rows = at.rows;
    const uint64_t m_first = at.m_first, n_first = at.n_first;
    const uint32_t z = at.z;
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
    // 3. Column sums. The offset is computed once more: if it were kept, kernels of f64 would run out of registers.
    if (column_sums != nullptr) {
        const dpre_place again(params);
        const uint64_t line = uint64_t(again.z) * again.tiles_m + again.tile_m;
        write_column_sums<dpre_columns, dpre_threads>(sum, scratch, column_sums + line * params.n + again.n_first, params.n - again.n_first);
    }
}

template <typename Action> bops_status with_dpre(const bops_gemm_dpre_params &params, bops_dtype dtype, const void *dout, const void *saved, void *to,
                                                 void *column_sums, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        const uint64_t tiles = tiles_of(params.m, int(params.rows)) * tiles_of(params.n, dpre_columns);
        launch_shape shape;
        shape.grid = dim3(uint32_t(tiles * product_of(params.batch_rank, params.batch)));
        shape.block = dim3(dpre_threads);
        if constexpr (!std::is_same_v<T, double>)
            if (params.vectors)
                return action(dpre_vectors<T>, shape, params, static_cast<const T *>(dout), static_cast<const T *>(saved), static_cast<T *>(to),
                              static_cast<A *>(column_sums));
        return action(dpre<T>, shape, params, dout, saved, static_cast<T *>(to), static_cast<A *>(column_sums));
    });
}

// ---- dbias ----------------------------------------------------------------------

constexpr int dbias_columns = 32; // of a block: each is one thread of every group, and a group is a warp
constexpr int dbias_groups = 32;  // groups of threads, which take rows in turn; 32 * 32 are the most threads that a block can have
// Rows that a thread loads together and adds up in one chain, before that chain's sum goes to the total. A longer chain has more rounding errors of
// its own, and a shorter one leaves more chains to add up one after another and fewer loads in flight.
constexpr int dbias_chain = 16;

// T is the type of dbias, A that of the sums.
template <typename T, typename A> __global__ void __launch_bounds__(dbias_columns *dbias_groups)
    dbias(const bops_gemm_dbias_params params, const A *column_sums, T *to) {
    __shared__ A scratch[dbias_groups][dbias_columns];
    wait_for_dependency();
    const int lane = int(threadIdx.x) % dbias_columns, group = int(threadIdx.x) / dbias_columns;
    const uint64_t column = uint64_t(blockIdx.x) * dbias_columns + lane;
    // 1. A group of threads adds up rows at equal distances, in short chains of additions.
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
    // 2. The groups' sums are added pair by pair.
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
