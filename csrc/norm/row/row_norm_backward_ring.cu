// LayerNorm and RMSNorm backward over long rows, staged vector by vector through shared memory.
#include "row_norm_backward.cuh"
#include "vector_ring.cuh"

namespace bops {

// Teams, which are blocks or clusters, walk over rows. A thread has the same columns of all rows of its team, and adds up the parameters' gradients
// for them. A thread's ring holds its vectors of dy and x of three rows: of the row that is summed, of the row before, which is finished, and the
// first `lookahead` vectors of the next one. As soon as a vector is done with, its slot fetches another one. whole: every vector of every thread
// exists, so that nothing is compared. With d = x - mean and g' = rstd * g: dx = (g' - mean(g')) - d * rstd^2 * mean(g' d).
template <typename T, bool centered, int vectors, int lookahead, bool whole> __global__ void __launch_bounds__(512, 1)
    row_norm_backward_ring(const __grid_constant__ row_norm_backward_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), slots = 2 * vectors + lookahead, columns = vectors * width, sums = centered ? 2 : 1;
    __shared__ float2 warp_sums[3][merge_lanes];
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const row_team team;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = all > first ? min(all - first, a.slice_vectors) : 0, rows = uint32_t(a.p.rows);
    const uint32_t teams = gridDim.x / a.cluster, index = blockIdx.x / a.cluster;
    const auto is_column = [&](int v) { return whole || threadIdx.x + v * blockDim.x < count; };
    const auto column = [&](int v) { return (first + threadIdx.x + v * blockDim.x) * width; };
    const auto row_of = [&](const void *tensor, uint32_t row, const bops_row_strides &s) {
        return static_cast<const T *>(tensor) + row_offset(row, s, a.p.extent1, a.p.extent2);
    };
    vector_ring<slots, 2> fetching, reading, finishing;
    const uint64_t kept = evict_last(); // lines of dy and x, rather than those of dx
    // Starts copying vector v of a row; from `vectors` on, v counts on through the team's next rows.
    const auto fetch = [&](uint32_t row, int v) {
        row += v / vectors * teams;
        if (row < rows && is_column(v % vectors)) {
            copy_async_cached(fetching.slot(0), row_of(a.o.dy, row, a.p.dy) + column(v % vectors), kept);
            copy_async_cached(fetching.slot(1), row_of(a.o.x, row, a.p.x) + column(v % vectors), kept);
        }
        copy_commit();
        fetching.next();
    };
    float next_mean = 0, next_rstd = 0, mean = 0, rstd = 0;
    const auto load_statistics = [&](uint32_t row) {
        if (row < rows) {
            if constexpr (centered) next_mean = __ldg(static_cast<const float *>(a.o.mean) + row);
            next_rstd = __ldg(static_cast<const float *>(a.o.rstd) + row);
        }
    };

    uint32_t row = index;
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
#pragma unroll
    for (int v = 0; v < slots; ++v) fetch(row, v);
    load_statistics(row);
    const T *const weight = static_cast<const T *>(a.o.weight);
    parameter_vector<T, width> weights[vectors], none;
#pragma unroll
    for (int v = 0; v < vectors; ++v) load_affine<false>(weight, weight, column(v), is_column(v), weights[v], none);
    const auto weight_of = [&](int v, float(&w)[width]) {
        keep_packed<T>(weights[v].part);
        weights[v].get(w);
        if constexpr (!centered)
#pragma unroll
            for (int i = 0; i < width; ++i) w[i] += a.weight_offset;
    };
    float dweight[columns] = {}, dbias[centered ? columns : 1] = {};
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    uint32_t taken = 0, partial = index;
    const auto store_partial = [&] {
#pragma unroll
        for (int c = 0; c < columns; c += 4) {
            if (is_column(c / width)) {
                const uint64_t to = partial * a.partial_cols + column(c / width) + c % width;
                *reinterpret_cast<float4 *>(a.partial_dweight + to) = make_float4(dweight[c], dweight[c + 1], dweight[c + 2], dweight[c + 3]);
                if constexpr (centered)
                    *reinterpret_cast<float4 *>(a.partial_dbias + to) = make_float4(dbias[c], dbias[c + 1], dbias[c + 2], dbias[c + 3]);
            }
        }
        partial += teams;
        taken = 0;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            dweight[c] = 0;
            if constexpr (centered) dbias[c] = 0;
        }
    };
    if (a.cluster > 1) cluster_wait();

    // The team's row number `turn` is summed while number turn - 1 is finished.
    for (uint32_t turn = 0; row < rows + teams; row += teams, ++turn) {
        // 1. Sum the row by warp, and add to the parameters' gradients.
        const float last_mean = mean, last_rstd = rstd;
        if (row < rows) {
            mean = next_mean, rstd = next_rstd;
            load_statistics(row + teams);
            float chain[sums][4] = {};
#pragma unroll
            for (int v = 0; v < vectors; ++v, reading.next()) {
                copy_wait_groups(slots - vectors - 1 - v);
                if (is_column(v)) {
                    float dy[width], d[width], w[width];
                    unpack<T>(reading.load(0), dy);
                    unpack<T>(reading.load(1), d);
                    weight_of(v, w);
#pragma unroll
                    for (int i = 0; i < width; ++i) {
                        const int c = v * width + i;
                        if constexpr (centered) d[i] -= mean;
                        float g = dy[i] * rstd;
                        dweight[c] = fmaf(g, d[i], dweight[c]);
                        if constexpr (centered) dbias[c] += dy[i];
                        g *= w[i];
                        chain[0][i % 4] = fmaf(g, d[i], chain[0][i % 4]);
                        if constexpr (centered) chain[1][i % 4] += g;
                    }
                }
            }
            float sum[sums];
#pragma unroll
            for (int k = 0; k < sums; ++k) sum[k] = tree_sum(chain[k]);
            warp_sum(sum, 32);
            if (team.lane == 0) warp_sums[turn % 3][team.warp] = make_float2(sum[0], sum[sums - 1]);
            if (wants_parameters && ++taken == a.flush_rows) store_partial();
        }
        __syncthreads();

        // 2. Exchange the sums of the blocks in the cluster.
        if (a.cluster > 1 && row < rows && team.warp == 0) {
            const float2 mine = team.lane < team.warps ? warp_sums[turn % 3][team.lane] : make_float2(0, 0);
            float sum[2] = {mine.x, mine.y};
            warp_sum(sum, 32);
            exchange.send({sum[0], sum[1], 0, 0}, turn, rank, a.cluster, threadIdx.x);
        }
        if (turn == 0) continue;

        // 3. Write dx of the row before.
        const uint32_t last = row - teams;
        if (a.o.dx) {
            float2 mine = make_float2(0, 0);
            if (a.cluster > 1) {
                const float(*const blocks)[4] = exchange.wait(turn - 1);
                if (team.lane < a.cluster) mine = make_float2(blocks[team.lane][0], blocks[team.lane][1]);
            } else if (team.lane < team.warps) {
                mine = warp_sums[(turn - 1) % 3][team.lane];
            }
            float sum[2] = {mine.x, mine.y};
            warp_sum(sum, 32);
            const float slope = sum[0] * a.reciprocal_cols * last_rstd * last_rstd, mean_g = centered ? sum[1] * a.reciprocal_cols : 0.0f;
            T *const dx = const_cast<T *>(row_of(a.o.dx, last, a.p.dx));
            const T *const dh = a.o.dh ? row_of(a.o.dh, last, a.p.dh) : nullptr;
#pragma unroll
            for (int v = 0; v < vectors; ++v, finishing.next()) {
                if (is_column(v)) {
                    float g[width], d[width], w[width];
                    packed<16> added = {};
                    if (dh) added = load<16>(dh + column(v));
                    unpack<T>(finishing.load(0), g);
                    unpack<T>(finishing.load(1), d);
                    weight_of(v, w);
#pragma unroll
                    for (int i = 0; i < width; ++i) {
                        if constexpr (centered) d[i] -= last_mean;
                        g[i] = g[i] * last_rstd * w[i];
                        g[i] = fmaf(-d[i], slope, centered ? g[i] - mean_g : g[i]);
                    }
                    if (dh) {
                        unpack<T>(added, d);
#pragma unroll
                        for (int i = 0; i < width; ++i) g[i] += d[i];
                    }
                    store<16, false>(dx + column(v), pack<T, 16>(g));
                }
                fetch(last, v + slots);
            }
        } else {
            if (a.cluster > 1) exchange.wait(turn - 1);
#pragma unroll
            for (int v = 0; v < vectors; ++v) fetch(last, v + slots);
        }
    }
    // Every team writes the same number of partial rows: what is left of them is zeros.
    if (wants_parameters) {
        if (taken) store_partial();
        while (partial < a.partial_rows) store_partial();
    }
    allow_dependents();
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename T, bool centered, int lookahead, typename Action>
bops_status for_backward_ring_lookahead(bool is_whole, const launch_shape &shape, const row_norm_backward_arguments<float> &a, const Action &action) {
    return is_whole ? action(row_norm_backward_ring<T, centered, 4, lookahead, true>, shape, a)
                    : action(row_norm_backward_ring<T, centered, 4, lookahead, false>, shape, a);
}

template <typename Action> bops_status for_row_norm_backward_ring(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                                                  const bops_row_norm_backward_ring_choice &c,
                                                                  const bops_row_norm_backward_operands &o, void *workspace, const Action &action) {
    return for_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = decltype(is_centered)::value;
        if constexpr (sizeof(T) < 8) {
            auto a = row_norm_backward_arguments_of<float>(of, p, o, c.partial_rows, workspace);
            a.cluster = c.cluster, a.slice_vectors = slice_vectors_of<T>(p.cols, c.cluster), a.flush_rows = c.flush_rows;
            launch_shape shape;
            shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps;
            shape.shared_bytes = c.slots * c.threads * 32;
            if (a.weight_is_wide || c.vectors != 4) return bops_status(cudaErrorInvalidValue);
            if constexpr (sizeof(T) == 4)
                if (c.slots == 11) return for_backward_ring_lookahead<T, centered, 3>(c.is_whole, shape, a, action);
            if constexpr (sizeof(T) == 2 || !centered)
                if (c.slots == 13) return for_backward_ring_lookahead<T, centered, 5>(c.is_whole, shape, a, action);
        }
        return bops_status(cudaErrorInvalidValue);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(ring, backward_)
