// LayerNorm and RMSNorm backward: teams walk over rows with fixed columns and stage whole rows through shared memory.
#include "row_norm_backward.cuh"

namespace bops {

// Teams walk over rows. A team is a part of a block, a block or a cluster. A thread has the same `columns` columns of all rows of its team, and adds
// up the parameters' gradients for them. A block is (threads of a row, rows) or, if `clustered`, one of the blocks of a cluster that holds one row;
// the blocks of a cluster exchange the sums of one row while they work on the next one and on the one before. The rows of each tensor lie at one
// stride. Late blocks, which are the last of the grid, begin as other blocks end and take the rows that are left. With d = x - mean and g' = rstd *
// g: dx = (g' - mean(g')) - d * rstd^2 * mean(g' d).
template <typename T, bool centered, int columns, int threads, bool clustered, bool has_dh>
__global__ void __launch_bounds__(threads, columns <= 8     ? 3
                                           : threads == 256 ? 2
                                                            : 1)
    row_norm_backward_persistent(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    if (clustered && !has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), vectors = columns / width;
    constexpr bool weights_in_shared = centered && columns > 16, has_level = columns <= 16;
    constexpr bool keep =
        columns <= 16 && !clustered && !has_dh; // d and g' stay in registers between sums and dx; else they are computed again from the stage
    // Where registers are scarce, a branch for each vector keeps the compiler from loading all vectors at once.
#if __CUDA_ARCH__ >= 900
    constexpr bool in_turn = columns > 16 || (keep && sizeof(T) == 4 && columns > 8);
#else
    constexpr bool in_turn = columns > 16 || (keep && columns > 8);
#endif
    constexpr int sums = centered ? 2 : 1, kept = keep ? columns : 1;
    __shared__ __align__(16) float slots[4][team_slots];
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const row_team team;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    using stage_ring = row_ring<vectors, has_dh ? 3 : 2, threads>;
    stage_ring ring(thread), finished(thread);
    unsigned char *const after_ring = dynamic_shared + a.stages * ring.stage_bytes;
    const shared_parameters<width, threads> weights = {reinterpret_cast<float4 *>(after_ring) + threadIdx.x};
    float *const level = reinterpret_cast<float *>(
        after_ring); // the second level of the parameters' gradients, [sums][columns][threads], in kernels that have no weights there
    const uint32_t rank = clustered ? cluster_rank() : 0;
    const uint32_t all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = clustered ? (all > first ? min(all - first, a.slice_vectors) : 0) : all;
    const uint32_t teams = clustered ? gridDim.x / a.cluster : gridDim.x, index = clustered ? blockIdx.x / a.cluster : blockIdx.x;
    // Late blocks take the rows from late_row on, the others those before it.
    const uint32_t early = gridDim.x - a.late_blocks, late_row = early * blockDim.y * a.chunks;
    const bool has_late = !centered && !clustered && a.late_blocks > 0, is_late = has_late && index >= early;
    const uint32_t rows = has_late && !is_late ? late_row : uint32_t(a.p.rows);
    const uint32_t step = (is_late ? a.late_blocks : has_late ? early : teams) * blockDim.y;
    const uint32_t first_row = is_late ? late_row + (index - early) * blockDim.y : index * blockDim.y; // that the block takes
    if constexpr (clustered) {
        exchange.initialize(thread);
        cluster_arrive();
    }

    const auto is_column = [&](int v) { return team.position<vectors>(v) < count; };
    const auto column = [&](int v) { return team.position<vectors>(v) * width; }; // counted from the block's first column
    const uint64_t begin = uint64_t(first) * width;
    const auto row_of = [&](const void *tensor, uint32_t row, const bops_row_strides &s) {
        return static_cast<const T *>(tensor) + (uint64_t(row) * uint32_t(s.s0) + begin);
    };
    const uint64_t kept_lines = evict_last(); // lines of dy and x, rather than those of dx
    // Starts copying a row to a stage.
    const auto fetch_row = [&](uint32_t row, const stage_ring &stage) {
        if (row < rows) {
            const uint32_t to = whole_address(stage.slot(0, 0));
            const auto fetch = [&](int array, const T *from) {
#pragma unroll
                for (int v = 0; v < vectors; ++v)
                    if (is_column(v)) copy_async_cached(to + (array * vectors + v) * threads * 16, from + column(v), kept_lines);
            };
            fetch(0, row_of(a.o.dy, row, a.p.dy));
            fetch(1, row_of(a.o.x, row, a.p.x));
            if constexpr (has_dh) fetch(2, row_of(a.o.dh, row, a.p.dh));
        }
        copy_commit();
    };
    float next_mean = 0, next_rstd = 0;
    const auto load_statistics = [&](uint32_t row) {
        if (row < rows) {
            if constexpr (centered) next_mean = __ldg(static_cast<const float *>(a.o.mean) + row);
            next_rstd = __ldg(static_cast<const float *>(a.o.rstd) + row);
        }
    };

    uint32_t row = first_row + threadIdx.y;
    for (uint32_t s = 0; s < a.stages; ++s) {
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (!is_column(v)) ring.store(0, v, {}), ring.store(1, v, {}); // past the row dy is 0
        fetch_row(row + s * step, ring);
        ring.advance(a.stages);
    }
    load_statistics(row);
    float w[weights_in_shared ? 1 : columns];
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        float part[width] = {};
        if (is_column(v)) load_weight<T>(a, begin + column(v), part);
        if constexpr (weights_in_shared) {
            if (threadIdx.y == 0) weights.put(v, part);
        } else {
#pragma unroll
            for (int i = 0; i < width; ++i) w[v * width + i] = part[i];
        }
    }
    if (weights_in_shared) __syncthreads();
    float dweight[columns] = {}, dbias[centered ? columns : 1] = {};
    float kept_d[kept], kept_g[kept];
    if constexpr (clustered) cluster_wait();

    const auto weight_of = [&](int v, float(&weight)[width]) {
        if constexpr (weights_in_shared) {
            weights.get(v, weight);
        } else {
#pragma unroll
            for (int i = 0; i < width; ++i) weight[i] = w[v * width + i];
        }
    };
    // Sums g' d and g' of the thread's columns of a row, and adds to its parameters' gradients.
    const auto accumulate = [&](const stage_ring &stage, float mean, float rstd, float(&sum)[sums]) {
        float chain[sums][4] = {};
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            if (in_turn && !is_column(v)) continue;
            float dy[width], d[width], weight[width];
            unpack<T>(stage.load(0, v), dy);
            unpack<T>(stage.load(1, v), d);
            weight_of(v, weight);
#pragma unroll
            for (int i = 0; i < width; ++i) {
                const int c = v * width + i;
                if constexpr (centered) d[i] -= mean;
                float g = dy[i] * rstd;
                dweight[c] = fmaf(g, d[i], dweight[c]);
                if constexpr (centered) dbias[c] += dy[i];
                g *= weight[i];
                chain[0][i % 4] = fmaf(g, d[i], chain[0][i % 4]);
                if constexpr (centered) chain[1][i % 4] += g;
                if constexpr (keep) kept_d[c] = d[i], kept_g[c] = g;
            }
        }
#pragma unroll
        for (int k = 0; k < sums; ++k) sum[k] = tree_sum(chain[k]);
    };
    // Writes dx of a row, whose sums are known.
    const auto finish = [&](const stage_ring &stage, uint32_t row, float mean, float rstd, const float(&sum)[sums]) {
        if (!a.o.dx) return;
        const float slope = sum[0] * a.reciprocal_cols * rstd * rstd, mean_g = centered ? sum[sums - 1] * a.reciprocal_cols : 0.0f;
        T *const dx = const_cast<T *>(row_of(a.o.dx, row, a.p.dx));
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            if (in_turn && !is_column(v)) continue;
            float d[width], g[width];
            if constexpr (keep) {
#pragma unroll
                for (int i = 0; i < width; ++i) d[i] = kept_d[v * width + i], g[i] = kept_g[v * width + i];
            } else {
                float weight[width];
                unpack<T>(stage.load(0, v), g);
                unpack<T>(stage.load(1, v), d);
                weight_of(v, weight);
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    if constexpr (centered) d[i] -= mean;
                    g[i] = g[i] * rstd * weight[i];
                }
            }
#pragma unroll
            for (int i = 0; i < width; ++i) g[i] = fmaf(-d[i], slope, centered ? g[i] - mean_g : g[i]);
            if constexpr (has_dh) {
                unpack<T>(stage.load(2, v), d);
#pragma unroll
                for (int i = 0; i < width; ++i) g[i] += d[i];
            }
            if (is_column(v)) store(dx + column(v), pack<T, 16>(g));
        }
    };

    // Accumulators that have taken flush_rows rows are added to the second level, in shared memory; that becomes a partial row in the workspace
    // after `flushes` such additions. Kernels without a second level write the accumulators. Short chains of additions keep roundings small.
    uint32_t taken = 0, flushed = 0, partial = index;
    const auto store_partial = [&] {
#pragma unroll
        for (int c = 0; c < columns; c += 4) {
            if (threadIdx.y == 0 && is_column(c / width)) {
                const uint64_t to = partial * a.partial_cols + begin + column(c / width) + c % width;
                *reinterpret_cast<float4 *>(a.partial_dweight + to) = make_float4(dweight[c], dweight[c + 1], dweight[c + 2], dweight[c + 3]);
                if constexpr (centered)
                    *reinterpret_cast<float4 *>(a.partial_dbias + to) = make_float4(dbias[c], dbias[c + 1], dbias[c + 2], dbias[c + 3]);
            }
        }
        partial += teams;
    };
    const auto clear = [&] {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            dweight[c] = 0;
            if constexpr (centered) dbias[c] = 0;
        }
    };
    const auto flush = [&](bool last) {
        taken = 0;
        if constexpr (has_level) {
            float *const to = level + thread;
            if (flushed) {
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    to[c * threads] += dweight[c];
                    if constexpr (centered) to[(columns + c) * threads] += dbias[c];
                }
            } else {
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    to[c * threads] = dweight[c];
                    if constexpr (centered) to[(columns + c) * threads] = dbias[c];
                }
            }
            if (++flushed == a.flushes || last) {
                // The threads of the block's first row add up those of its rows.
                __syncthreads();
                if (threadIdx.y == 0) {
                    clear();
#pragma unroll 1
                    for (uint32_t r = 0; r < blockDim.y; ++r)
#pragma unroll
                        for (int c = 0; c < columns; ++c) {
                            dweight[c] += to[c * threads + r * blockDim.x];
                            if constexpr (centered) dbias[c] += to[(columns + c) * threads + r * blockDim.x];
                        }
                }
                __syncthreads();
                store_partial();
                flushed = 0;
            }
        } else {
            store_partial();
        }
        clear();
    };
    const bool wants_parameters = a.o.dweight || a.o.dbias;

    if constexpr (!clustered) {
        for (uint32_t turn = 0, base = first_row; base < rows; base += step, row += step, turn ^= 2) {
            // 1. Sum the row, and add to the parameters' gradients.
            const float mean = next_mean, rstd = next_rstd;
            load_statistics(row + step);
            copy_wait(a.stages - 1);
            float sum[sums] = {};
            if (row < rows) accumulate(ring, mean, rstd, sum);
            if (keep) fetch_row(row + a.stages * step, ring);
            team_sum<true, columns == 8>(sum, team, slots + turn);

            // 2. Write the row's dx.
            if (row < rows) finish(ring, row, mean, rstd, sum);
            if (!keep) fetch_row(row + a.stages * step, ring);
            ring.advance(a.stages);
            const bool last = base + step >= rows;
            if (wants_parameters && (++taken == a.flush_rows || last)) flush(last);
        }
    } else {
        // The cluster's row number `turn` is summed while number turn - 1 is finished; with a single stage a row is finished at once.
        const uint32_t lag = a.stages > 1;
        float mean = 0, rstd = 0;
        for (uint32_t turn = 0; row < rows + lag * teams; ++turn, row += teams) {
            const float last_mean = mean, last_rstd = rstd;
            if (row < rows) {
                // 1. Sum the row, exchange its sums, and add to the parameters' gradients.
                mean = next_mean, rstd = next_rstd;
                load_statistics(row + teams);
                copy_wait(a.stages - 1 - lag);
                float sum[sums] = {};
                accumulate(ring, mean, rstd, sum);
                team_sum<false, false>(sum, team, slots + (turn & 1) * 2);
                exchange.send({sum[0], sum[sums - 1], 0, 0}, turn, rank, a.cluster, thread);
                ring.advance(a.stages);
                const bool last = row + teams >= rows;
                if (wants_parameters && (++taken == a.flush_rows || last)) flush(last);
            }
            if (turn >= lag) {
                // 2. Write dx of the row before. Its stage is filled again.
                const float(*const parts)[4] = exchange.wait(turn - lag);
                float sum[sums] = {};
                for (uint32_t r = 0; r < a.cluster; ++r)
#pragma unroll
                    for (int k = 0; k < sums; ++k) sum[k] += parts[r][k];
                finish(finished, row - lag * teams, lag ? last_mean : mean, lag ? last_rstd : rstd, sum);
                fetch_row(row + (a.stages - lag) * teams, finished);
                finished.advance(a.stages);
            }
        }
    }
    // Every team writes the same number of partial rows: what is left of them is zeros.
    if (wants_parameters)
        while (partial < a.partial_rows) store_partial();
    allow_dependents();
}

// ---- host -------------------------------------------------------------------------------------------------------------------

// Whether there is a kernel without dh of so many columns a thread and threads a block: the tables in Rust choose no others.
template <typename T, bool centered> constexpr bool has_persistent(int columns, int threads, bool clustered) {
    if (clustered) return sizeof(T) == 2 && centered ? columns == 16 || threads == 512 : columns == 32;
    return sizeof(T) != 2 || centered || columns != 16 || threads != 256;
}

template <typename T, bool centered, int columns, int threads, typename Action>
bops_status for_persistent_columns(bool has_dh, bool clustered, const launch_shape &shape, const row_norm_backward_arguments<float> &a,
                                   const Action &action) {
    constexpr int with_dh = columns == 32 ? 16 : columns; // with dh a thread has registers for 16 columns
    if (has_dh && clustered) return action(row_norm_backward_persistent<T, centered, with_dh, threads, columns != 8, true>, shape, a);
    if (has_dh) return action(row_norm_backward_persistent<T, centered, with_dh, threads, false, true>, shape, a);
    if constexpr (has_persistent<T, centered>(columns, threads, true))
        if (clustered) return action(row_norm_backward_persistent<T, centered, columns, threads, true, false>, shape, a);
    if constexpr (has_persistent<T, centered>(columns, threads, false))
        if (!clustered) return action(row_norm_backward_persistent<T, centered, columns, threads, false, false>, shape, a);
    return bops_status(cudaErrorInvalidValue);
}

template <typename Action>
bops_status for_row_norm_backward_persistent(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                             const bops_row_norm_backward_persistent_choice &c, const bops_row_norm_backward_operands &o,
                                             void *workspace, const Action &action) {
    return for_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = decltype(is_centered)::value;
        if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
        else {
            auto a = row_norm_backward_arguments_of<float>(of, p, o, c.partial_rows, workspace);
            a.cluster = c.cluster, a.slice_vectors = slice_vectors_of<T>(p.cols, c.cluster), a.stages = c.stages;
            a.flush_rows = c.flush_rows, a.flushes = c.flushes, a.chunks = c.early_turns, a.late_blocks = c.late_blocks;
            const bool has_dh = of.has_dh, clustered = c.cluster > 1;
            const uint32_t columns = c.vectors * 16 / sizeof(T), tensors = has_dh ? 3 : 2, column_bytes = columns * c.threads * 4;
            launch_shape shape;
            shape.grid = dim3(c.grid), shape.block = dim3(c.threads_per_row, clustered ? 1 : c.threads / c.threads_per_row);
            shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps;
            // The stages; then weights, or the next level of the parameters' gradients.
            shape.shared_bytes = c.stages * tensors * c.vectors * c.threads * 16 + (centered && columns > 16 ? column_bytes : 0) +
                                 (c.flushes ? (centered ? 2 : 1) * column_bytes : 0);
            const auto is = [&](uint32_t columns_of_thread, uint32_t threads) { return columns == columns_of_thread && c.threads == threads; };
            if (is(8, 256)) return for_persistent_columns<T, centered, 8, 256>(has_dh, clustered, shape, a, action);
            if (is(16, 256)) return for_persistent_columns<T, centered, 16, 256>(has_dh, clustered, shape, a, action);
            if (is(16, 512)) return for_persistent_columns<T, centered, 16, 512>(has_dh, clustered, shape, a, action);
            if (is(32, 256)) return for_persistent_columns<T, centered, 32, 256>(has_dh, clustered, shape, a, action);
            if (is(32, 512)) return for_persistent_columns<T, centered, 32, 512>(has_dh, clustered, shape, a, action);
            return bops_status(cudaErrorInvalidValue);
        }
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(persistent, backward_)
