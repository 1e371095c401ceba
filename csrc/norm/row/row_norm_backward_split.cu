// LayerNorm and RMSNorm backward of any rows, in three launches: sums of chunks of rows, their merge, the gradients.
#include "row_norm_backward.cuh"
#include "row_norm_split.cuh"

namespace bops {

// 1. sum(g xhat) and sum(g) of each chunk of a row.
template <typename T, bool centered, int vec_bytes> __global__ void __launch_bounds__(split_threads)
    row_norm_backward_split_sums(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), sums = centered ? 2 : 1;
    __shared__ __align__(16) A slots[2][2][team_slots];
    const row_team team;
    const uint64_t total = a.p.cols / width, items = a.p.rows * a.chunks;
    uint32_t turn = 0;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x, turn ^= 1) {
        const uint64_t row = item / a.chunks, first = (item - row * a.chunks) * (split_threads * split_vectors);
        const uint32_t count = uint32_t(min(total - first, uint64_t(split_threads * split_vectors)));
        const auto is_valid = [&](int v) { return v * split_threads + threadIdx.x < count; };
        const auto column = [&](int v) { return (first + v * split_threads + threadIdx.x) * width; };
        const T *const dy = row_of<const T>(a, a.o.dy, row, a.p.dy);
        const T *const x = row_of<const T>(a, a.o.x, row, a.p.x);
        packed<vec_bytes> dy_packed[split_vectors], x_packed[split_vectors];
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) {
            if (is_valid(v)) dy_packed[v] = load<vec_bytes>(dy + column(v)), x_packed[v] = load<vec_bytes>(x + column(v));
        }
        const A mean = centered ? static_cast<const A *>(a.o.mean)[row] : A(0), rstd = static_cast<const A *>(a.o.rstd)[row];
        A chain[sums][width] = {};
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) {
            if (is_valid(v)) {
                A g[width], xs[width], w[width];
                unpack<T>(dy_packed[v], g);
                unpack<T>(x_packed[v], xs);
                load_weight<T>(a, column(v), w);
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    g[i] *= w[i];
                    chain[0][i] = fma(g[i], (centered ? xs[i] - mean : xs[i]) * rstd, chain[0][i]);
                    if constexpr (centered) chain[1][i] += g[i];
                }
            }
        }
        A sum[sums];
#pragma unroll
        for (int k = 0; k < sums; ++k) sum[k] = tree_sum(chain[k]);
        team_sum<false, false>(sum, team, slots[turn]);
        if (threadIdx.x == 0) a.chunk_sums[item * 2] = sum[0], a.chunk_sums[item * 2 + 1] = centered ? sum[sums - 1] : A(0);
    }
}

// 2. A block adds up the chunks of a row.
template <typename A> __global__ void __launch_bounds__(merge_threads)
    row_norm_backward_split_merge(const __grid_constant__ row_norm_backward_arguments<A> a) {
    __shared__ __align__(16) A slots[2][2][team_slots];
    const row_team team;
    uint32_t turn = 0;
    for (uint64_t row = blockIdx.x; row < a.p.rows; row += gridDim.x, turn ^= 1) {
        const A *const chunk = a.chunk_sums + row * a.chunks * 2;
        cascade<A> sums[2];
        for (uint64_t c = threadIdx.x; c < a.chunks; c += merge_threads) sums[0].add(chunk[c * 2]), sums[1].add(chunk[c * 2 + 1]);
        A sum[2] = {sums[0].total(), sums[1].total()};
        team_sum<false, false>(sum, team, slots[turn]);
        if (threadIdx.x == 0) a.row_sums[row * 2] = sum[0], a.row_sums[row * 2 + 1] = sum[1];
    }
}

// 3. dx, and the partial rows. A thread has one vector of columns and the rows of one partial row, whose sums it keeps on two levels. A block is
// (vectors of columns, partial rows).
template <typename T, bool centered, int vec_bytes> __global__ void __launch_bounds__(split_threads)
    row_norm_backward_split_apply(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), batch = sizeof(T) == 8 ? 2 : 4; // batch: rows in flight, fewer of f64
    const uint64_t total = a.p.cols / width, tiles = (total + blockDim.x - 1) / blockDim.x;
    const uint64_t groups = (a.partial_rows + blockDim.y - 1) / blockDim.y, rows_each = uint64_t(a.flush_rows) * a.flushes;
    for (uint64_t item = blockIdx.x; item < tiles * groups; item += gridDim.x) {
        const uint64_t group = item / tiles, vector = (item - group * tiles) * blockDim.x + threadIdx.x;
        const uint64_t partial = group * blockDim.y + threadIdx.y;
        if (vector >= total || partial >= a.partial_rows) continue;
        const uint64_t column = vector * width, end = min(a.p.rows, (partial + 1) * rows_each);
        A w[width], dweight[2][width] = {}, dbias[2][width] = {};
        load_weight<T>(a, column, w);
        uint32_t taken = 0;
        for (uint64_t base = partial * rows_each; base < end; base += batch) {
            packed<vec_bytes> dy_packed[batch], x_packed[batch];
            A mean[batch], rstd[batch], mean_g[batch], mean_g_xhat[batch];
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                const uint64_t row = base + j;
                if (row < end) {
                    dy_packed[j] = load<vec_bytes>(row_of<const T>(a, a.o.dy, row, a.p.dy) + column);
                    x_packed[j] = load<vec_bytes>(row_of<const T>(a, a.o.x, row, a.p.x) + column);
                    mean[j] = centered ? static_cast<const A *>(a.o.mean)[row] : A(0), rstd[j] = static_cast<const A *>(a.o.rstd)[row];
                    mean_g_xhat[j] = a.row_sums[row * 2] * a.reciprocal_cols, mean_g[j] = a.row_sums[row * 2 + 1] * a.reciprocal_cols;
                }
            }
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                const uint64_t row = base + j;
                if (row < end) {
                    A dy[width], x[width];
                    unpack<T>(dy_packed[j], dy);
                    unpack<T>(x_packed[j], x);
#pragma unroll
                    for (int i = 0; i < width; ++i) {
                        dweight[0][i] = fma(dy[i], (centered ? x[i] - mean[j] : x[i]) * rstd[j], dweight[0][i]);
                        dbias[0][i] += dy[i];
                    }
                    packed<vec_bytes> dh;
                    if (a.o.dh) dh = load<vec_bytes>(row_of<const T>(a, a.o.dh, row, a.p.dh) + column);
                    if (a.o.dx)
                        store(row_of<T>(a, a.o.dx, row, a.p.dx) + column,
                              row_gradient<T, centered, vec_bytes, A, width>(dy_packed[j], x_packed[j], w, mean[j], rstd[j], mean_g[j],
                                                                             mean_g_xhat[j], a.o.dh ? &dh : nullptr));
                }
            }
            if ((taken += batch) >= a.flush_rows || base + batch >= end) {
                taken = 0;
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    dweight[1][i] += dweight[0][i], dweight[0][i] = 0;
                    dbias[1][i] += dbias[0][i], dbias[0][i] = 0;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if (a.o.dweight) a.partial_dweight[partial * a.partial_cols + column + i] = dweight[1][i];
            if (a.o.dbias) a.partial_dbias[partial * a.partial_cols + column + i] = dbias[1][i];
        }
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status for_row_norm_backward_split(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                                                   const bops_row_norm_backward_split_choice &c,
                                                                   const bops_row_norm_backward_operands &o, void *workspace, const Action &action) {
    return for_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        using A = accumulator_t<T>;
        constexpr bool centered = is_centered;
        return for_access<T>(c.vec_bytes, [&](auto bytes) -> bops_status {
            constexpr int vec_bytes = bytes, width = vec_bytes / int(sizeof(T));
            auto a = row_norm_backward_arguments_of<A>(of, p, o, c.partial_rows, workspace);
            a.chunks = c.chunks, a.flush_rows = c.flush_rows, a.flushes = c.flushes;
            a.chunk_sums = behind_partials(of, a), a.row_sums = a.chunk_sums + p.rows * c.chunks * 2;
            const uint32_t vectors = power_of_two_at_least(p.cols / width, split_threads);
            launch_shape sums_shape, merge_shape, apply_shape;
            sums_shape.grid = dim3(c.grid), sums_shape.block = dim3(split_threads);
            merge_shape.grid = dim3(uint32_t(p.rows < c.grid ? p.rows : c.grid)), merge_shape.block = dim3(merge_threads);
            apply_shape.grid = dim3(c.grid), apply_shape.block = dim3(vectors, split_threads / vectors);
            bops_status status = action(row_norm_backward_split_sums<T, centered, vec_bytes>, sums_shape, a);
            if (!status) status = action(row_norm_backward_split_merge<A>, merge_shape, a);
            return status ? status : action(row_norm_backward_split_apply<T, centered, vec_bytes>, apply_shape, a);
        });
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(split, backward_)
