// LayerNorm and RMSNorm backward in one launch: blocks for rows, and blocks for strips of columns.
#include "row_norm_backward.cuh"

namespace bops {

constexpr int few_rows_threads = 512; // of a block
constexpr int few_rows_lanes = 8;     // vectors of a strip of columns, 128 bytes of vectors of 16; as many lanes of a warp lie side by side
constexpr int few_rows_elements = 16; // of a row, that a thread of a row's block holds: the block holds 8192 columns

// The first blocks take dx of a row each, the others the parameters' gradients of a strip of columns. Blocks of a launch count from a.first_block on.
template <typename T, bool centered, int vec_bytes> __global__ void __launch_bounds__(few_rows_threads, 1)
    row_norm_backward_few_rows(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    constexpr int width = vec_bytes / int(sizeof(T)), vectors = few_rows_elements / width;
    constexpr int sums = centered ? 2 : 1;
    __shared__ __align__(16) float slots[2][team_slots];
    __shared__ float strip[sums][few_rows_threads / 32][few_rows_lanes * width];
    follow_previous();
    const uint32_t total = uint32_t(a.p.cols / width);
    const uint32_t block = a.first_block + blockIdx.x;
    // 1. A row's dx: its sums, then dx from registers.
    if (block < a.p.rows) {
        const row_team team;
        const uint32_t row = block;
        const T *const dy = row_of<const T>(a, a.o.dy, row, a.p.dy);
        const T *const x = row_of<const T>(a, a.o.x, row, a.p.x);
        packed<vec_bytes> dy_packed[vectors], x_packed[vectors], dh_packed[vectors];
        float w[vectors * width];
        const auto is_column = [&](int v) { return v * team.threads + threadIdx.x < total; };
        const auto column = [&](int v) { return uint64_t(v * team.threads + threadIdx.x) * width; };
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            dy_packed[v] = is_column(v) ? load<vec_bytes>(dy + column(v)) : packed<vec_bytes>{};
            x_packed[v] = is_column(v) ? load<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        }
        const auto [mean, rstd] = load_statistics<centered>(a, row);
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            float part[width] = {};
            if (is_column(v)) load_weight<T>(a, column(v), part);
#pragma unroll
            for (int i = 0; i < width; ++i) w[v * width + i] = part[i];
        }
        if (a.o.dh) {
            const T *const dh = row_of<const T>(a, a.o.dh, row, a.p.dh);
#pragma unroll
            for (int v = 0; v < vectors; ++v)
                if (is_column(v)) dh_packed[v] = load<vec_bytes>(dh + column(v));
        }
        float chain[sums][width] = {};
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            if (is_column(v)) {
                float g[width], xs[width];
                unpack<T>(dy_packed[v], g);
                unpack<T>(x_packed[v], xs);
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    const float xhat = (centered ? xs[i] - mean : xs[i]) * rstd;
                    g[i] *= w[v * width + i];
                    chain[0][i] = fmaf(g[i], xhat, chain[0][i]);
                    if constexpr (centered) chain[1][i] += g[i];
                }
            }
        }
        float sum[sums];
#pragma unroll
        for (int k = 0; k < sums; ++k) sum[k] = tree_sum(chain[k]);
        team_sum<false, false>(sum, team, slots);
        const float mean_g_xhat = sum[0] * a.reciprocal_cols, mean_g = centered ? sum[sums - 1] * a.reciprocal_cols : 0.0f;
        T *const dx = row_of<T>(a, a.o.dx, row, a.p.dx);
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (is_column(v))
                store(dx + column(v), row_gradient<T, centered, vec_bytes, float, width>(dy_packed[v], x_packed[v], w + v * width, mean, rstd, mean_g,
                                                                                         mean_g_xhat, a.o.dh ? &dh_packed[v] : nullptr));
        return;
    }
    // 2. A strip of columns: a thread adds up every `row_threads`-th row, then warps and the block meet.
    const uint32_t lane = threadIdx.x % few_rows_lanes, first_row = threadIdx.x / few_rows_lanes, row_threads = blockDim.x / few_rows_lanes;
    const uint32_t vector = (block - uint32_t(a.p.rows)) * few_rows_lanes + lane;
    float dweight[width] = {}, dbias[width] = {};
    if (vector < total) {
        for (uint64_t row = first_row; row < a.p.rows; row += row_threads) {
            const T *const dy_row = row_of<const T>(a, a.o.dy, row, a.p.dy) + uint64_t(vector) * width;
            const T *const x_row = row_of<const T>(a, a.o.x, row, a.p.x) + uint64_t(vector) * width;
            const packed<vec_bytes> dy_packed = load<vec_bytes>(dy_row), x_packed = load<vec_bytes>(x_row);
            const auto [mean, rstd] = load_statistics<centered>(a, row);
            float dy[width], x[width];
            unpack<T>(dy_packed, dy);
            unpack<T>(x_packed, x);
#pragma unroll
            for (int i = 0; i < width; ++i) {
                dweight[i] = fmaf(dy[i], (centered ? x[i] - mean : x[i]) * rstd, dweight[i]);
                if constexpr (centered) dbias[i] += dy[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < width; ++i) {
#pragma unroll
        for (int offset = few_rows_lanes; offset < 32; offset <<= 1) {
            dweight[i] += __shfl_xor_sync(~0u, dweight[i], offset);
            if constexpr (centered) dbias[i] += __shfl_xor_sync(~0u, dbias[i], offset);
        }
        if (threadIdx.x % 32 < few_rows_lanes) {
            strip[0][threadIdx.x / 32][lane * width + i] = dweight[i];
            if constexpr (centered) strip[sums - 1][threadIdx.x / 32][lane * width + i] = dbias[i];
        }
    }
    __syncthreads();
    const uint32_t strip_cols = few_rows_lanes * width, c = threadIdx.x % strip_cols, k = threadIdx.x / strip_cols;
    const uint64_t out = uint64_t(block - uint32_t(a.p.rows)) * strip_cols + c;
    if (k < sums && out < a.p.cols) {
        float value = 0;
        for (uint32_t warp = 0; warp < blockDim.x / 32; ++warp) value += strip[k][warp][c];
        void *const to = k == 0 ? a.o.dweight : a.o.dbias;
        if (to) store_parameter<T>(a, to, out, value);
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status for_row_norm_backward_few_rows(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                                                      const bops_row_norm_backward_few_rows_choice &c,
                                                                      const bops_row_norm_backward_operands &o, void *, const Action &action) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        auto a = row_norm_backward_arguments_of<float>(of, p, o, 0, nullptr);
        launch_shape shape;
        shape.block = dim3(few_rows_threads), shape.overlaps_previous = c.overlaps;
        const auto blocks = [&](uint32_t first, uint32_t end) -> bops_status {
            a.first_block = first, shape.grid = dim3(end - first);
            return end > first ? action(row_norm_backward_few_rows<T, decltype(is_centered)::value, 16>, shape, a) : 0;
        };
        const bool preparing = std::is_same_v<Action, prepare_action>;
        const uint32_t rows = uint32_t(p.rows), first = o.dx || preparing ? 0 : rows;
        const uint32_t end = o.dweight || o.dbias || preparing ? c.grid : rows;
        if (o.dx != o.dy || first == rows || end == rows) return blocks(first, end);
        // In place: the strips of columns read dy before the rows overwrite it.
        const bops_status status = blocks(rows, end);
        return status ? status : blocks(0, rows);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(few_rows, backward_)
