// LayerNorm and RMSNorm backward over rows.
//
// g = dy * weight, xhat = (x - mean) * rstd; dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh; dweight = sum(dy * xhat),
// dbias = sum(dy). RMSNorm leaves out mean, mean(g) and dbias.
#pragma once
#include "row_norm.cuh"

namespace bops {

template <typename A> struct row_norm_backward_arguments {
    bops_row_norm_backward_params p;
    bops_row_norm_backward_operands o;
    A weight_offset, reciprocal_cols;
    uint32_t weight_is_wide; // weight, dweight, dbias are f32 and narrower than that is dtype
    uint32_t cluster, slice_vectors, stages, flush_rows, flushes, chunks, late_blocks;
    uint32_t first_block;                // few rows: what block 0 of the launch stands for
    uint64_t partial_rows, partial_cols; // whole lines of the L2
    A *partial_dweight, *partial_dbias;  // [partial_rows][partial_cols]
    A *chunk_sums;                       // split: [rows][chunks][2]
    A *row_sums;                         // split: [rows][2]
    uint4 *messages;                     // cooperative: [turn][row of a turn][block]
};

// Weights of either dtype, the offset added; 1 without.
template <typename T, int width, typename A>
__device__ __forceinline__ void load_weight(const row_norm_backward_arguments<A> &a, uint64_t column, A (&w)[width]) {
    if (!a.o.weight) {
#pragma unroll
        for (int i = 0; i < width; ++i) w[i] = A(1);
        return;
    }
    const auto load = [&](auto parameters, auto from) {
        parameters.load(from + column);
        parameters.get(w);
    };
    if (sizeof(T) != 4 && a.weight_is_wide) load(parameter_vector<float, width>(), static_cast<const float *>(a.o.weight));
    else load(parameter_vector<T, width>(), static_cast<const T *>(a.o.weight));
#pragma unroll
    for (int i = 0; i < width; ++i) w[i] += a.weight_offset;
}

template <typename T, typename A>
__device__ __forceinline__ void store_parameter(const row_norm_backward_arguments<A> &a, void *to, uint64_t column, A value) {
    if (sizeof(T) != 4 && a.weight_is_wide) static_cast<float *>(to)[column] = float(value);
    else static_cast<T *>(to)[column] = narrow<T>(value);
}

// dx of one vector from its dy, x, weights and the row's means.
template <typename T, bool centered, int vec_bytes, typename A, int width>
__device__ __forceinline__ packed<vec_bytes> row_gradient(const packed<vec_bytes> &dy_packed, const packed<vec_bytes> &x_packed, const A *w, A mean,
                                                          A rstd, A mean_g, A mean_g_xhat, const packed<vec_bytes> *dh_packed) {
    A dy[width], x[width];
    unpack<T>(dy_packed, dy);
    unpack<T>(x_packed, x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const A xhat = (centered ? x[i] - mean : x[i]) * rstd, g = dy[i] * w[i];
        dy[i] = rstd * fma(-xhat, mean_g_xhat, centered ? g - mean_g : g);
    }
    if (dh_packed) {
        unpack<T>(*dh_packed, x);
#pragma unroll
        for (int i = 0; i < width; ++i) dy[i] += x[i];
    }
    return pack<T, vec_bytes>(dy);
}

// ---- persistent: fixed columns, rows staged through shared memory ------------------------------------------------------------

// columns: of one thread. A block is (threads of a row, rows), or a part of the cluster that holds one row; teams, blocks or clusters,
// take rows in turn; late blocks, which begin as others end, those that are left. The blocks of a cluster exchange the sums of one row while
// they work on the next and the last. Rows have one stride. With d = x - mean and g' = rstd * g: dx = (g' - mean(g')) - d * rstd^2 * mean(g' d).
template <typename T, bool centered, int columns, int threads, bool clustered, bool has_dh>
__global__ void __launch_bounds__(threads, columns <= 8     ? 3
                                           : threads == 256 ? 2
                                                            : 1)
    row_norm_backward_persistent(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    if (clustered && !has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), vectors = columns / width;
    constexpr bool weights_in_shared = centered && columns > 16, has_level = columns <= 16;
    constexpr bool keep = columns <= 16 && !clustered && !has_dh; // d and g' stay in registers; otherwise they are made again from the stage
    // Where registers are scarce a branch for every vector keeps the compiler from reading all of them at once.
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
    float *const level = reinterpret_cast<float *>(after_ring); // [sums][columns][threads]; where the weights are not
    const uint32_t rank = clustered ? cluster_rank() : 0;
    const uint32_t all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = clustered ? (all > first ? min(all - first, a.slice_vectors) : 0) : all;
    const uint32_t teams = clustered ? gridDim.x / a.cluster : gridDim.x, index = clustered ? blockIdx.x / a.cluster : blockIdx.x;
    // Late blocks take the rows from late_row on.
    const uint32_t early = gridDim.x - a.late_blocks, late_row = early * blockDim.y * a.chunks;
    const bool has_late = !centered && !clustered && a.late_blocks > 0, is_late = has_late && index >= early;
    const uint32_t rows = has_late && !is_late ? late_row : uint32_t(a.p.rows);
    const uint32_t step = (is_late ? a.late_blocks : has_late ? early : teams) * blockDim.y;
    const uint32_t first_row = is_late ? late_row + (index - early) * blockDim.y : index * blockDim.y; // of the block
    if constexpr (clustered) {
        exchange.initialize(thread);
        cluster_arrive();
    }

    const auto is_column = [&](int v) { return team.position<vectors>(v) < count; };
    const auto column = [&](int v) { return team.position<vectors>(v) * width; }; // from the block's first
    const uint64_t begin = uint64_t(first) * width;
    const auto row_of = [&](const void *tensor, uint32_t row, const bops_row_strides &s) {
        return static_cast<const T *>(tensor) + (uint64_t(row) * uint32_t(s.s0) + begin);
    };
    const uint64_t kept_lines = evict_last(); // rather than those of dx
    // Starts a row into a stage.
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
            if (!is_column(v)) ring.store(0, v, {}), ring.store(1, v, {}); // dy of absent columns is 0
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
    // This block's sums of g' d and g' of a row; its part of the parameter gradients.
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
    // dx of a row from its total sums.
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

    // Accumulators that have taken flush_rows rows move to the next level, in shared memory, and that to the workspace.
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
                // The first row's threads sum the block's rows.
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
            // 1. Sums of the row and the parameter gradients.
            const float mean = next_mean, rstd = next_rstd;
            load_statistics(row + step);
            copy_wait(a.stages - 1);
            float sum[sums] = {};
            if (row < rows) accumulate(ring, mean, rstd, sum);
            if (keep) fetch_row(row + a.stages * step, ring);
            team_sum<true, columns == 8>(sum, team, slots + turn);

            // 2. The row's gradient.
            if (row < rows) finish(ring, row, mean, rstd, sum);
            if (!keep) fetch_row(row + a.stages * step, ring);
            ring.advance(a.stages);
            const bool last = base + step >= rows;
            if (wants_parameters && (++taken == a.flush_rows || last)) flush(last);
        }
    } else {
        // Row number `turn` of this cluster is read while number turn - 1 is finished; with one stage alone a row is finished at once.
        const uint32_t lag = a.stages > 1;
        float mean = 0, rstd = 0;
        for (uint32_t turn = 0; row < rows + lag * teams; ++turn, row += teams) {
            const float last_mean = mean, last_rstd = rstd;
            if (row < rows) {
                // 1. Sums of the row and the parameter gradients.
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
                // 2. The last row's gradient; its stage takes another row.
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
    // Every team has the same number of partial rows.
    if (wants_parameters)
        while (partial < a.partial_rows) store_partial();
    allow_dependents();
}

// ---- parameter gradients from partial rows ----------------------------------------------------------------------------------

constexpr int column_sum_threads = 256;

template <typename A> struct alignas(16) quad { A v[4]; };

constexpr uint32_t few_partial_rows = 1024; // a chain of 8 additions for a thread

// The L2 forgets a line of 128 bytes, which need not go to memory: nobody reads again what it held.
__device__ __forceinline__ void discard_line(const void *line) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory"); }

template <typename A> struct plain_sum {
    A value = 0;
    __device__ __forceinline__ void add(A v) { value += v; }
    __device__ __forceinline__ A total() const { return value; }
};

// Sums columns of the partial rows: block (4 columns a thread, rows). blockIdx.y: 0 dweight, 1 dbias. few: few_partial_rows at most.
// The lanes of a warp that read a line of partial rows are neighbours, and no other block reads it.
template <typename T, bool few> __global__ void __launch_bounds__(column_sum_threads)
    row_norm_column_sum(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int batch = few && sizeof(A) == 4 ? 8 : 4, line_lanes = 128 / int(sizeof(quad<A>));
    __shared__ quad<A> shared[column_sum_threads];
    wait_for_dependency();
    const bool is_dweight = blockIdx.y == 0 && a.o.dweight;
    const A *const partial = is_dweight ? a.partial_dweight : a.partial_dbias;
    void *const to = is_dweight ? a.o.dweight : a.o.dbias;
    for (uint64_t first = uint64_t(blockIdx.x) * blockDim.x * 4; first < a.p.cols; first += uint64_t(gridDim.x) * blockDim.x * 4) {
        const uint64_t column = first + threadIdx.x * 4;
        std::conditional_t<few, plain_sum<A>, cascade<A>> sums[4]; // of blocks of four rows
        const A *from = partial + threadIdx.y * a.partial_cols + column;
        if (column < a.p.cols) {
            for (uint64_t r = threadIdx.y; r < a.partial_rows; r += blockDim.y * batch) {
                quad<A> rows[batch] = {};
#pragma unroll
                for (int j = 0; j < batch; ++j, from += blockDim.y * a.partial_cols)
                    if (r + j * blockDim.y < a.partial_rows) rows[j] = *reinterpret_cast<const quad<A> *>(from);
#pragma unroll
                for (int j = 0; j < batch; j += 4)
#pragma unroll
                    for (int i = 0; i < 4; ++i) sums[i].add((rows[j].v[i] + rows[j + 1].v[i]) + (rows[j + 2].v[i] + rows[j + 3].v[i]));
            }
        }
        quad<A> &mine = shared[threadIdx.y * blockDim.x + threadIdx.x];
#pragma unroll
        for (int i = 0; i < 4; ++i) mine.v[i] = sums[i].total();
        __syncwarp();
        if (threadIdx.x % line_lanes == 0 && column < a.p.cols)
            for (uint64_t r = threadIdx.y; r < a.partial_rows; r += blockDim.y) discard_line(partial + r * a.partial_cols + column);
        for (uint32_t half = blockDim.y / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.y < half)
#pragma unroll
                for (int i = 0; i < 4; ++i) mine.v[i] += shared[(threadIdx.y + half) * blockDim.x + threadIdx.x].v[i];
        }
        if (threadIdx.y == 0) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (column + i < a.p.cols) store_parameter<T>(a, to, column + i, mine.v[i]);
        }
        __syncthreads();
    }
}

// ---- few rows: one launch, blocks for rows and blocks for strips of columns ---------------------------------------------------

constexpr int few_rows_threads = 512, few_rows_lanes = 8; // lanes: vectors of a strip of columns

template <typename T, bool centered, int vec_bytes> __global__ void __launch_bounds__(few_rows_threads, 1)
    row_norm_backward_few_rows(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    constexpr int width = vec_bytes / int(sizeof(T)), vectors = 16 / width;
    constexpr int sums = centered ? 2 : 1;
    __shared__ __align__(16) float slots[2][team_slots];
    __shared__ float strip[sums][few_rows_threads / 32][few_rows_lanes * width];
    follow_previous();
    const uint32_t total = uint32_t(a.p.cols / width);
    const uint32_t block = a.first_block + blockIdx.x;
    if (block < a.p.rows) {
        const row_team team;
        const uint32_t row = block;
        const T *const dy = static_cast<const T *>(a.o.dy) + row_offset(row, a.p.dy, a.p.extent1, a.p.extent2);
        const T *const x = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2);
        packed<vec_bytes> dy_packed[vectors], x_packed[vectors], dh_packed[vectors];
        float w[vectors * width];
        const auto is_column = [&](int v) { return v * team.threads + threadIdx.x < total; };
        const auto column = [&](int v) { return uint64_t(v * team.threads + threadIdx.x) * width; };
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            dy_packed[v] = is_column(v) ? load<vec_bytes>(dy + column(v)) : packed<vec_bytes>{};
            x_packed[v] = is_column(v) ? load<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        }
        const float mean = centered ? __ldg(static_cast<const float *>(a.o.mean) + row) : 0.0f,
                    rstd = __ldg(static_cast<const float *>(a.o.rstd) + row);
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            float part[width] = {};
            if (is_column(v)) load_weight<T>(a, column(v), part);
#pragma unroll
            for (int i = 0; i < width; ++i) w[v * width + i] = part[i];
        }
        if (a.o.dh) {
            const T *const dh = static_cast<const T *>(a.o.dh) + row_offset(row, a.p.dh, a.p.extent1, a.p.extent2);
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
        T *const dx = static_cast<T *>(a.o.dx) + row_offset(row, a.p.dx, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (is_column(v))
                store(dx + column(v), row_gradient<T, centered, vec_bytes, float, width>(dy_packed[v], x_packed[v], w + v * width, mean, rstd, mean_g,
                                                                                         mean_g_xhat, a.o.dh ? &dh_packed[v] : nullptr));
        return;
    }
    const uint32_t lane = threadIdx.x % few_rows_lanes, first_row = threadIdx.x / few_rows_lanes, row_threads = blockDim.x / few_rows_lanes;
    const uint32_t vector = (block - uint32_t(a.p.rows)) * few_rows_lanes + lane;
    float dweight[width] = {}, dbias[width] = {};
    if (vector < total) {
        for (uint64_t row = first_row; row < a.p.rows; row += row_threads) {
            const T *const dy_row = static_cast<const T *>(a.o.dy) + row_offset(row, a.p.dy, a.p.extent1, a.p.extent2) + uint64_t(vector) * width;
            const T *const x_row = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2) + uint64_t(vector) * width;
            const packed<vec_bytes> dy_packed = load<vec_bytes>(dy_row), x_packed = load<vec_bytes>(x_row);
            const float mean = centered ? __ldg(static_cast<const float *>(a.o.mean) + row) : 0.0f,
                        rstd = __ldg(static_cast<const float *>(a.o.rstd) + row);
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

// ---- split: chunks of rows --------------------------------------------------------------------------------------------------

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
        const T *const dy = static_cast<const T *>(a.o.dy) + row_offset(row, a.p.dy, a.p.extent1, a.p.extent2);
        const T *const x = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2);
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

// A thread owns one vector of columns and the rows of one partial row. Block: (vectors, partial rows).
template <typename T, bool centered, int vec_bytes> __global__ void __launch_bounds__(split_threads)
    row_norm_backward_split_apply(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), batch = sizeof(T) == 8 ? 2 : 4;
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
                    dy_packed[j] = load<vec_bytes>(static_cast<const T *>(a.o.dy) + row_offset(row, a.p.dy, a.p.extent1, a.p.extent2) + column);
                    x_packed[j] = load<vec_bytes>(static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2) + column);
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
                    if (a.o.dh) dh = load<vec_bytes>(static_cast<const T *>(a.o.dh) + row_offset(row, a.p.dh, a.p.extent1, a.p.extent2) + column);
                    if (a.o.dx)
                        store(static_cast<T *>(a.o.dx) + row_offset(row, a.p.dx, a.p.extent1, a.p.extent2) + column,
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

inline uint32_t power_of_two_at_least(uint64_t n, uint32_t limit) {
    uint32_t p = 1;
    while (p < n && p < limit) p *= 2;
    return p;
}

// Whether a persistent kernel without dh has so many columns of a thread and threads of a block: those that are chosen.
template <typename T, bool centered> constexpr bool has_persistent(int columns, int threads, bool clustered) {
    if (clustered) return sizeof(T) == 2 && centered ? columns == 16 || threads == 512 : columns == 32;
    return sizeof(T) != 2 || centered || columns != 16 || threads != 256;
}

// Defined in row_norm_backward_cooperative.cuh and row_norm_backward_ring.cuh.
template <typename T, bool centered, typename Action>
bops_status for_backward_cooperative_kernels(const bops_row_norm_choice &c, const row_norm_backward_arguments<accumulator_t<T>> &a,
                                             const Action &action);
template <typename T, bool centered, typename Action>
bops_status for_backward_ring_kernels(const bops_row_norm_backward_params &p, const bops_row_norm_choice &c,
                                      const row_norm_backward_arguments<accumulator_t<T>> &a, const Action &action);

// Runs action(kernel, shape, arguments...) for every kernel of the choice, in order; stops at the first failure.
template <typename T, bool centered, typename Action>
bops_status for_backward_kernels(const bops_row_norm_backward_params &p, const bops_row_norm_backward_operands &o, const bops_row_norm_choice &c,
                                 bool weight_is_wide, bool has_dh, void *workspace, const Action &action) {
    using A = accumulator_t<T>;
    row_norm_backward_arguments<A> a = {};
    a.p = p, a.o = o;
    a.weight_offset = A(p.weight_offset), a.reciprocal_cols = p.cols ? A(1.0 / double(p.cols)) : A(0);
    a.weight_is_wide = weight_is_wide;
    a.cluster = c.cluster, a.stages = c.stages, a.flush_rows = c.flush_rows, a.flushes = c.flushes, a.chunks = c.chunks;
    a.late_blocks = c.late_blocks;
    // Workspace: dweight partials, dbias partials (layer_norm), then the split variant's sums or the cooperative one's messages.
    a.partial_rows = c.partial_rows, a.partial_cols = (p.cols + 31) / 32 * 32;
    a.partial_dweight = static_cast<A *>(workspace);
    a.partial_dbias = a.partial_dweight + a.partial_rows * a.partial_cols;
    const bool has_partials = o.dweight || o.dbias;
    a.chunk_sums = a.partial_dweight + (has_partials ? a.partial_rows * a.partial_cols * (centered ? 2 : 1) : 0);
    a.row_sums = a.chunk_sums + p.rows * c.chunks * 2;
    a.messages = reinterpret_cast<uint4 *>(a.chunk_sums);

    const auto column_sum = [&](bool overlaps) -> bops_status {
        const bool preparing = std::is_same_v<Action, prepare_action>;
        if (p.cols == 0 || !(preparing || o.dweight || o.dbias)) return 0;
        const uint32_t row_threads = power_of_two_at_least((a.partial_rows + 3) / 4, 32), vectors = column_sum_threads / row_threads;
        const uint64_t blocks = (p.cols + vectors * 4 - 1) / (vectors * 4);
        launch_shape shape;
        shape.grid = dim3(uint32_t(blocks < 0x7fffffff ? blocks : 0x7fffffff), o.dweight && o.dbias ? 2 : 1);
        shape.block = dim3(vectors, row_threads);
        shape.overlaps_previous = overlaps && c.overlaps;
        return a.partial_rows <= few_partial_rows ? action(row_norm_column_sum<T, true>, shape, a) : action(row_norm_column_sum<T, false>, shape, a);
    };
    const auto vectorized = [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value;
        constexpr int width = vec_bytes / int(sizeof(T));
        if constexpr (sizeof(T) < 8 && vec_bytes == 16) {
            if (c.variant == BOPS_ROW_NORM_BACKWARD_COOPERATIVE) {
                // Slices of whole lines of 128 bytes.
                a.slice_vectors = uint32_t(((p.cols / width + c.cluster - 1) / c.cluster + 7) / 8 * 8);
                const bops_status status = for_backward_cooperative_kernels<T, centered>(c, a, action);
                return status ? status : column_sum(true);
            }
            if (c.variant == BOPS_ROW_NORM_BACKWARD_RING) {
                a.slice_vectors = uint32_t((p.cols / width + c.cluster - 1) / c.cluster);
                const bops_status status = for_backward_ring_kernels<T, centered>(p, c, a, action);
                return status ? status : column_sum(true);
            }
            if (c.variant == BOPS_ROW_NORM_BACKWARD_PERSISTENT) {
                a.slice_vectors = uint32_t((p.cols / width + c.cluster - 1) / c.cluster);
                const uint32_t columns = c.vectors * width;
                launch_shape shape;
                shape.grid = dim3(c.grid);
                shape.block = dim3(c.threads_per_row, c.cluster > 1 ? 1 : c.threads / c.threads_per_row);
                shape.cluster = c.cluster;
                shape.overlaps_previous = c.overlaps;
                shape.shared_bytes = c.stages * (has_dh ? 3 : 2) * c.vectors * c.threads * 16 +
                                     (centered && columns > 16 ? columns * c.threads * 4 : 0) +
                                     (c.flushes ? (centered ? 2 : 1) * columns * c.threads * 4 : 0);
                // With dh a thread has 16 columns at most: its registers are full.
                const auto persistent = [&](auto columns, auto threads) -> bops_status {
                    constexpr int n = decltype(columns)::value, t = decltype(threads)::value;
                    const bool clustered = c.cluster > 1;
                    if (has_dh)
                        return clustered ? action(row_norm_backward_persistent < T, centered, n == 32 ? 16 : n, t, n != 8, true >, shape, a)
                                         : action(row_norm_backward_persistent < T, centered, n == 32 ? 16 : n, t, false, true >, shape, a);
                    if constexpr (has_persistent<T, centered>(n, t, true))
                        if (clustered) return action(row_norm_backward_persistent<T, centered, n, t, true, false>, shape, a);
                    if constexpr (has_persistent<T, centered>(n, t, false))
                        if (!clustered) return action(row_norm_backward_persistent<T, centered, n, t, false, false>, shape, a);
                    return bops_status(cudaErrorInvalidValue);
                };
                using std::integral_constant;
                bops_status status = bops_status(cudaErrorInvalidValue);
                if (columns == 8 && c.threads == 256) status = persistent(integral_constant<int, 8>(), integral_constant<int, 256>());
                if (columns == 16 && c.threads == 256) status = persistent(integral_constant<int, 16>(), integral_constant<int, 256>());
                if (columns == 16 && c.threads == 512) status = persistent(integral_constant<int, 16>(), integral_constant<int, 512>());
                if (columns == 32 && c.threads == 256) status = persistent(integral_constant<int, 32>(), integral_constant<int, 256>());
                if (columns == 32 && c.threads == 512) status = persistent(integral_constant<int, 32>(), integral_constant<int, 512>());
                return status ? status : column_sum(true);
            }
        }
        if constexpr (sizeof(T) < 8 && vec_bytes == 16) {
            if (c.variant == BOPS_ROW_NORM_BACKWARD_FEW_ROWS) {
                launch_shape shape;
                shape.block = dim3(c.threads);
                shape.overlaps_previous = c.overlaps;
                const auto blocks = [&](uint32_t first, uint32_t count) -> bops_status {
                    a.first_block = first, shape.grid = dim3(count);
                    return count ? action(row_norm_backward_few_rows<T, centered, vec_bytes>, shape, a) : 0;
                };
                const bool preparing = std::is_same_v<Action, prepare_action>;
                const uint32_t rows = uint32_t(p.rows), first = o.dx || preparing ? 0 : rows;
                const uint32_t end = o.dweight || o.dbias || preparing ? c.grid : rows;
                if (o.dx != o.dy || first == rows || end == rows) return blocks(first, end - first);
                // In place: the strips of columns read dy before the rows overwrite it.
                const bops_status status = blocks(rows, end - rows);
                return status ? status : blocks(0, rows);
            }
        }
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(split_threads);
        bops_status status = action(row_norm_backward_split_sums<T, centered, vec_bytes>, shape, a);
        if (status) return status;
        launch_shape merge_shape;
        merge_shape.grid = dim3(uint32_t(p.rows < c.grid ? p.rows : c.grid)), merge_shape.block = dim3(merge_threads);
        status = action(row_norm_backward_split_merge<A>, merge_shape, a);
        if (status) return status;
        const uint32_t vectors = power_of_two_at_least(p.cols / width, split_threads);
        shape.block = dim3(vectors, split_threads / vectors);
        status = action(row_norm_backward_split_apply<T, centered, vec_bytes>, shape, a);
        return status ? status : column_sum(false);
    };
    if (c.variant == BOPS_ROW_NORM_BACKWARD_ZERO) {
        a.partial_rows = 0;
        return column_sum(false);
    }
    if constexpr (sizeof(T) == 8) return vectorized(std::integral_constant<int, 8>());
    else {
        if (c.vec_bytes == 16) return vectorized(std::integral_constant<int, 16>());
        if (c.vec_bytes == 4) return vectorized(std::integral_constant<int, 4>());
        if constexpr (sizeof(T) == 2) return vectorized(std::integral_constant<int, 2>());
        else return bops_status(cudaErrorInvalidValue);
    }
}

template <bool centered, typename Action>
bops_status for_row_norm_backward_kernels(const bops_row_norm_backward_params &p, const bops_row_norm_backward_operands &o,
                                          const bops_row_norm_choice &c, bops_dtype dtype, bops_dtype weight_dtype, bool has_dh, void *workspace,
                                          const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return for_backward_kernels<T, centered>(p, o, c, weight_dtype != dtype, has_dh, workspace, action);
    });
}

} // namespace bops

#include "row_norm_backward_cooperative.cuh"
#include "row_norm_backward_ring.cuh"
