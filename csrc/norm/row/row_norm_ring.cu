// LayerNorm and RMSNorm forward over long rows, staged vector by vector through shared memory.
#include "row_norm.cuh"
#include "vector_ring.cuh"

namespace bops {

// Teams, which are blocks or clusters, walk over rows. A thread's ring holds its vectors of three rows: of the row whose moments are summed, of the
// row before, which is finished, and the first `lookahead` vectors of the next one. As soon as a vector is written out, its slot fetches another one,
// so that memory is read all the time. The moments of a warp's part of a row are about the mean of its first vectors, a quarter of the part or more.
// whole: every vector of every thread exists, so that nothing is compared.
template <typename T, bool centered, int vectors, int lookahead, bool whole> __global__ void __launch_bounds__(vectors == 4 ? 1024 : 512, 1)
    row_norm_ring(const __grid_constant__ row_norm_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), slots = 2 * vectors + lookahead, shift_vectors = 2;
    __shared__ moments<float> warp_moments[3][merge_lanes];
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const row_team team;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = all > first ? min(all - first, a.slice_vectors) : 0, rows = uint32_t(a.p.rows);
    const uint32_t teams = gridDim.x / a.cluster, position = threadIdx.x;
    const auto is_column = [&](int v) { return whole || position + v * blockDim.x < count; };
    const auto column = [&](int v) { return (first + position + v * blockDim.x) * width; };
    const auto lanes_of = [&](uint32_t warp, int v) { // lanes of a warp that hold vector v
        const uint32_t before = warp * 32 + v * blockDim.x;
        return whole ? 32 : count > before ? min(count - before, 32u) : 0;
    };
    const auto cols_of = [&](uint32_t warp) {
        uint32_t lanes = 0;
#pragma unroll
        for (int v = 0; v < vectors; ++v) lanes += lanes_of(warp, v);
        return warp < team.warps ? float(lanes * width) : 0.0f;
    };
    vector_ring<slots, 1> fetching, reading, finishing;
    const uint64_t kept = evict_last();
    // Starts copying vector v of a row; from `vectors` on, v counts on through the team's next rows.
    const auto fetch = [&](uint32_t row, int v) {
        row += v / vectors * teams;
        if (row < rows && is_column(v % vectors)) {
            const T *const from = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2) + column(v % vectors);
            if constexpr (centered) copy_async<16>(fetching.slot(0), from);
            else copy_async_cached(fetching.slot(0), from, kept);
        }
        copy_commit();
        fetching.next();
    };

    uint32_t row = blockIdx.x / a.cluster;
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
#pragma unroll
    for (int v = 0; v < slots; ++v) fetch(row, v);
    const T *const weight = static_cast<const T *>(a.o.weight), *const bias = static_cast<const T *>(a.o.bias);
    parameter_vector<T, width> weights[vectors], biases[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) load_affine<centered>(weight, bias, column(v), is_column(v), weights[v], biases[v]);
    if (a.cluster > 1) cluster_wait();
    const float warp_cols = cols_of(team.lane);
    // The team's row number `turn` is summed while number turn - 1 is finished.
    for (uint32_t turn = 0; row < rows + teams; row += teams, ++turn) {
        // 1. Sum the moments of each warp's part of a row.
        moments<float> total;
        if (row < rows) {
            if (a.o.residual) {
                constexpr int batch = 4;
                const T *const residual = static_cast<const T *>(a.o.residual) + row_offset(row, a.p.residual, a.p.extent1, a.p.extent2);
                T *const h = static_cast<T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2);
                auto summed = reading;
#pragma unroll
                for (int from = 0; from < vectors; from += batch) {
                    packed<16> added[batch];
#pragma unroll
                    for (int v = 0; v < batch; ++v)
                        if (is_column(from + v)) added[v] = load<16>(residual + column(from + v));
                    copy_wait_groups(slots - vectors - from - batch);
#pragma unroll
                    for (int v = 0; v < batch; ++v, summed.next())
                        if (is_column(from + v)) summed.store(0, add_residual<T>(summed.load(0), added[v], h + column(from + v)));
                }
            }
            total = {0, 0, 0};
            float sum[width] = {}, square[width] = {};
#pragma unroll
            for (int v = 0; v < vectors; ++v, reading.next()) {
                copy_wait_groups(slots - vectors - 1 - v);
                if constexpr (centered)
                    if (v == 0) {
                        auto first = reading;
                        float tile[1] = {}, x[width];
                        copy_wait_groups(slots - vectors - shift_vectors);
#pragma unroll
                        for (int f = 0; f < shift_vectors; ++f, first.next())
                            if (is_column(f)) unpack<T>(first.load(0), x), tile[0] += tree_sum(x);
                        warp_sum(tile, 32);
                        const uint32_t lanes = lanes_of(team.warp, 0) + lanes_of(team.warp, 1);
                        total.shift = whole ? tile[0] * (1.0f / (shift_vectors * 32 * width)) : tile[0] / float(max(lanes, 1u) * width);
                    }
                if (is_column(v)) {
                    float x[width];
                    unpack<T>(reading.load(0), x);
                    if constexpr (centered) {
                        add_moments(x, total.shift, sum, square);
                    } else {
#pragma unroll
                        for (int i = 0; i < width; ++i) square[i] = fmaf(x[i], x[i], square[i]);
                    }
                }
            }
            if constexpr (centered) {
                float sums[2] = {tree_sum(sum), tree_sum(square)};
                warp_sum(sums, 32);
                total.sum = sums[0], total.square = sums[1];
            } else {
                float sums[1] = {tree_sum(square)};
                warp_sum(sums, 32);
                total.square = sums[0];
            }
            if (team.lane == 0) warp_moments[turn % 3][team.warp] = total;
        }
        __syncthreads();

        // 2. Exchange the moments of the blocks in the cluster.
        if (a.cluster > 1 && row < rows && team.warp == 0) {
            moments<float> mine = {0, 0, 0};
            if (team.lane < team.warps) mine = warp_moments[turn % 3][team.lane];
            total = merge_across<centered>(mine, warp_cols, count ? 1.0f / float(count * width) : 0.0f);
            exchange.send({total.shift, total.sum, total.square, 0}, turn, rank, a.cluster, threadIdx.x);
        }
        if (turn == 0) continue;

        // 3. Write statistics and output of the row before.
        const uint32_t last = row - teams;
        moments<float> mine = {0, 0, 0};
        float cols = warp_cols;
        if (a.cluster > 1) {
            const float(*const blocks)[4] = exchange.wait(turn - 1);
            const uint32_t before = team.lane * a.slice_vectors;
            if (team.lane < a.cluster) mine = {blocks[team.lane][0], blocks[team.lane][1], blocks[team.lane][2]};
            cols = float((team.lane < a.cluster && all > before ? min(all - before, a.slice_vectors) : 0) * width);
        } else if (team.lane < team.warps) {
            mine = warp_moments[(turn - 1) % 3][team.lane];
        }
        total = merge_across<centered>(mine, cols, a.reciprocal_cols);
        total.sum += total.sum - total.sum; // an infinity makes it NaN, as it does where the shift is the mean
        const row_statistics<float> s = finish_statistics<centered>(total, a);
        if (threadIdx.x == 0 && rank == 0) save_statistics<centered>(s, a, last);
        T *const y = static_cast<T *>(a.o.y) + row_offset(last, a.p.y, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < vectors; ++v, finishing.next()) {
            keep_packed<T>(weights[v].part), keep_packed<T>(biases[v].part);
            if (is_column(v)) {
                float x[width];
                unpack<T>(finishing.load(0), x);
                if constexpr (centered)
#pragma unroll
                    for (int i = 0; i < width; ++i) x[i] -= s.shift;
                normalize<T, T, centered, width>(x, s, weights[v], biases[v], a.weight_offset);
                store<16, !centered>(y + column(v), pack<T, 16>(x));
            }
            fetch(last, v + slots);
        }
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status for_row_norm_ring(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                         const bops_row_norm_ring_choice &c, const bops_row_norm_operands &o, void *,
                                                         const Action &action) {
    return for_norm_and_parameters(of, [&](auto element, auto is_centered, auto parameter) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = decltype(is_centered)::value;
        if constexpr (sizeof(T) < 8 && std::is_same_v<T, typename decltype(parameter)::type>) {
            auto a = row_norm_arguments_of<float>(p, o);
            a.cluster = c.cluster, a.overlaps = c.overlaps, a.slice_vectors = slice_vectors_of<T>(p.cols, c.cluster);
            launch_shape shape;
            shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps;
            shape.shared_bytes = c.slots * c.threads * 16;
            if (c.vectors == 8 && c.slots == 21)
                return c.is_whole ? action(row_norm_ring<T, centered, 8, 5, true>, shape, a)
                                  : action(row_norm_ring<T, centered, 8, 5, false>, shape, a);
            if constexpr (!centered && sizeof(T) == 2)
                if (c.vectors == 4 && c.slots == 13)
                    return c.is_whole ? action(row_norm_ring<T, centered, 4, 5, true>, shape, a)
                                      : action(row_norm_ring<T, centered, 4, 5, false>, shape, a);
        }
        return bops_status(cudaErrorInvalidValue);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(ring, )
