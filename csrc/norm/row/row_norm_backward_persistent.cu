// LayerNorm and RMSNorm backward: teams walk over rows with fixed columns and stage whole rows through shared memory.
#include "row_norm_backward.cuh"

namespace bops {

// The weights of a thread's columns: in registers or, `in_shared`, in shared memory, where the rows of a block share them.
template <int width, int vectors, int threads, bool in_shared> struct column_weights {
    shared_parameters<width, threads> shared;
    float registers[in_shared ? 1 : vectors * width];

    __device__ __forceinline__ explicit column_weights(void *memory) : shared{static_cast<float4 *>(memory) + threadIdx.x} {}
    // In shared memory the threads of the block's first row write; the caller passes a barrier before the first `get`.
    __device__ __forceinline__ void put(int v, const float (&weight)[width]) {
        if constexpr (in_shared) {
            if (threadIdx.y == 0) shared.put(v, weight);
        } else {
#pragma unroll
            for (int i = 0; i < width; ++i) registers[v * width + i] = weight[i];
        }
    }
    __device__ __forceinline__ void get(int v, float (&weight)[width]) const {
        if constexpr (in_shared) {
            shared.get(v, weight);
        } else {
#pragma unroll
            for (int i = 0; i < width; ++i) weight[i] = registers[v * width + i];
        }
    }
};

// The second level of a thread's parameter_sums in shared memory: [sums][columns][threads].
template <bool centered, int columns, int threads> struct parameter_level {
    float *mine;

    __device__ __forceinline__ void set(const parameter_sums<centered, columns> &to) const {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            mine[c * threads] = to.dweight[c];
            if constexpr (centered) mine[(columns + c) * threads] = to.dbias[c];
        }
    }
    __device__ __forceinline__ void add(const parameter_sums<centered, columns> &more) const {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            mine[c * threads] += more.dweight[c];
            if constexpr (centered) mine[(columns + c) * threads] += more.dbias[c];
        }
    }
    // Adds up those of all rows of the block. Called by the threads of its first row.
    __device__ __forceinline__ void add_rows_to(parameter_sums<centered, columns> &total) const {
#pragma unroll 1
        for (uint32_t r = 0; r < blockDim.y; ++r)
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                total.dweight[c] += mine[c * threads + r * blockDim.x];
                if constexpr (centered) total.dbias[c] += mine[(columns + c) * threads + r * blockDim.x];
            }
    }
};

// The part of a team's rows that a thread has, and how it computes them. The rows of each tensor lie at one stride.
template <typename T, bool centered, int columns, int threads, bool clustered, bool has_dh> struct persistent_place {
    static constexpr int width = 16 / int(sizeof(T)), vectors = columns / width, sums = centered ? 2 : 1;
    // A thread of 32 columns has no registers for the weights of LayerNorm beside its sums, and its block no shared memory for a second level.
    static constexpr bool weights_in_shared = centered && columns > 16, has_level = columns <= 16;
    // d and g' stay in registers between sums and dx; else they are computed again from the stage.
    static constexpr bool keep = columns <= 16 && !clustered && !has_dh;
    // Where registers are scarce, a branch for each vector keeps the compiler from loading all vectors at once: with 32 columns, and of the kernels
    // that keep 16 columns those of f32, before 9.0 also those of 16 bits. With the branch the loads of the vectors overlap less.
#if __CUDA_ARCH__ >= 900
    static constexpr bool in_turn = columns > 16 || (keep && sizeof(T) == 4 && columns > 8);
#else
    static constexpr bool in_turn = columns > 16 || (keep && columns > 8);
#endif
    using stage_ring = row_ring<vectors, has_dh ? 3 : 2, threads>;
    using weights = column_weights<width, vectors, threads, weights_in_shared>;
    using parameters = parameter_sums<centered, columns>;
    using vector = gradient_vector<T, centered>;

    const row_norm_backward_arguments<float> &a;
    const row_team &team;
    uint32_t count, rows; // vectors of a row that the block has; rows end here
    uint64_t begin;       // the block's first column

    __device__ __forceinline__ bool has(int v) const { return team.position<vectors>(v) < count; }
    __device__ __forceinline__ uint32_t offset(int v) const { return team.position<vectors>(v) * width; } // of a vector, from `begin` on
    __device__ __forceinline__ uint64_t column(int v) const { return begin + offset(v); }
    __device__ __forceinline__ const T *row_at(const void *tensor, uint32_t row, const bops_row_strides &s) const {
        return static_cast<const T *>(tensor) + (uint64_t(row) * uint32_t(s.s0) + begin);
    }

    // Starts copying a row to a stage. kept_lines: the L2 policy of its lines.
    __device__ __forceinline__ void fetch_row(uint32_t row, const stage_ring &stage, uint64_t kept_lines) const {
        if (row < rows) {
            const uint32_t to = whole_address(stage.slot(0, 0));
            const auto fetch = [&](int array, const T *from) {
#pragma unroll
                for (int v = 0; v < vectors; ++v)
                    if (has(v)) copy_async_cached(to + (array * vectors + v) * threads * 16, from + offset(v), kept_lines);
            };
            fetch(0, row_at(a.o.dy, row, a.p.dy));
            fetch(1, row_at(a.o.x, row, a.p.x));
            if constexpr (has_dh) fetch(2, row_at(a.o.dh, row, a.p.dh));
        }
        copy_commit();
    }

    // Sums the thread's part of a row, and adds to the parameters' gradients. Leaves in `kept` what finish_row takes from there.
    __device__ __forceinline__ void sum_row(const stage_ring &stage, const saved_statistics &s, const weights &w, parameters &gradients,
                                            vector (&kept)[keep ? vectors : 1], float (&sum)[sums]) const {
        row_chains<centered> chains;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            if (in_turn && !has(v)) continue;
            vector here;
            float weight[width];
            unpack<T>(stage.load(0, v), here.g);
            unpack<T>(stage.load(1, v), here.d);
            w.get(v, weight);
            here.add_up(s, weight, v * width, chains, gradients);
            if constexpr (keep) kept[v] = here;
        }
        chains.total(sum);
    }

    // Writes dx of a row, whose sums are known.
    __device__ __forceinline__ void finish_row(const stage_ring &stage, uint32_t row, const saved_statistics &s, const weights &w,
                                               const vector (&kept)[keep ? vectors : 1], const float (&sum)[sums]) const {
        if (!a.o.dx) return;
        const row_correction correction = correction_of<centered>(sum[0], sum[sums - 1], s.rstd, a);
        T *const dx = const_cast<T *>(row_at(a.o.dx, row, a.p.dx));
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            if (in_turn && !has(v)) continue;
            vector here;
            if constexpr (keep) {
                here = kept[v];
            } else {
                float weight[width];
                unpack<T>(stage.load(0, v), here.g);
                unpack<T>(stage.load(1, v), here.d);
                w.get(v, weight);
                here.scale(s, weight);
            }
            here.correct(correction);
            if constexpr (has_dh) here.add(stage.load(2, v));
            if (has(v)) store(dx + offset(v), pack<T, 16>(here.g));
        }
    }
};

// Teams walk over rows. A team is a part of a block, a block or a cluster. A thread has the same `columns` columns of all rows of its team, and adds
// up the parameters' gradients for them. A block is (threads of a row, rows) or, if `clustered`, one of the blocks of a cluster that holds one row;
// the blocks of a cluster exchange the sums of one row while they work on the next one and on the one before. Late blocks, which are the last of the
// grid, begin as other blocks end and take the rows that are left.
//
// Blocks per SM: the most that the tables in Rust ask for. Three of 256 threads leave a thread 80 registers, two of 256 or one of 512 leave it 128.
template <typename T, bool centered, int columns, int threads, bool clustered, bool has_dh>
__global__ void __launch_bounds__(threads, columns <= 8     ? 3
                                           : threads == 256 ? 2
                                                            : 1)
    row_norm_backward_persistent(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    if (clustered && !has_sm_90) return;
    using thread_place = persistent_place<T, centered, columns, threads, clustered, has_dh>;
    constexpr int width = thread_place::width, vectors = thread_place::vectors, sums = thread_place::sums;
    constexpr bool keep = thread_place::keep;
    __shared__ __align__(16) float slots[4][team_slots]; // two pairs that turns use in alternation: [pair, sum][warp]
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const row_team team;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    typename thread_place::stage_ring ring(thread), finished(thread);
    unsigned char *const after_ring = dynamic_shared + a.stages * ring.stage_bytes;
    typename thread_place::weights weights(after_ring);
    // Used only if `has_level`, which `weights_in_shared` excludes, so that both may begin behind the ring.
    const parameter_level<centered, columns, threads> level = {reinterpret_cast<float *>(after_ring) + thread};
    const uint32_t rank = clustered ? cluster_rank() : 0;
    const uint32_t all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = clustered ? slice_count(all, first, a.slice_vectors) : all;
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

    const thread_place place = {a, team, count, rows, uint64_t(first) * width};
    const uint64_t kept_lines = evict_last(); // of dy and x, rather than those of dx
    saved_statistics next;
    const auto load_next = [&](uint32_t row) {
        if (row < rows) next = load_statistics<centered>(a, row);
    };
    uint32_t row = first_row + threadIdx.y;
    for (uint32_t s = 0; s < a.stages; ++s) {
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (!place.has(v)) ring.store(0, v, {}), ring.store(1, v, {}); // past the row dy is 0
        place.fetch_row(row + s * step, ring, kept_lines);
        ring.advance(a.stages);
    }
    load_next(row);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        float weight[width] = {};
        if (place.has(v)) load_weight<T>(a, place.column(v), weight);
        weights.put(v, weight);
    }
    if (thread_place::weights_in_shared) __syncthreads();
    parameter_sums<centered, columns> parameters;
    typename thread_place::vector kept[keep ? vectors : 1];
    if constexpr (clustered) cluster_wait();

    // Accumulators that have taken flush_rows rows are added to the second level, in shared memory; that becomes a partial row in the workspace
    // after `flushes` such additions. Kernels without a second level write the accumulators. Short chains of additions keep roundings small.
    uint32_t taken = 0, flushed = 0, partial = index;
    const auto store_partial = [&] {
        if (threadIdx.y == 0) parameters.template store<width>(a, partial, place);
        partial += teams;
    };
    const auto flush = [&](bool last) {
        taken = 0;
        if constexpr (thread_place::has_level) {
            if (flushed) level.add(parameters);
            else level.set(parameters);
            if (++flushed == a.flushes || last) {
                __syncthreads();
                if (threadIdx.y == 0) {
                    parameters.clear();
                    level.add_rows_to(parameters);
                }
                __syncthreads();
                store_partial();
                flushed = 0;
            }
        } else {
            store_partial();
        }
        parameters.clear();
    };
    const bool wants_parameters = a.o.dweight || a.o.dbias;

    if constexpr (!clustered) {
        // pair: the first of the turn's two rows of slots.
        for (uint32_t pair = 0, base = first_row; base < rows; base += step, row += step, pair ^= 2) {
            // 1. Sum the row, and add to the parameters' gradients.
            const saved_statistics statistics = next;
            load_next(row + step);
            copy_wait(a.stages - 1);
            float sum[sums] = {};
            if (row < rows) place.sum_row(ring, statistics, weights, parameters, kept, sum);
            if (keep) place.fetch_row(row + a.stages * step, ring, kept_lines);
            team_sum<true, columns == 8>(sum, team, slots + pair);

            // 2. Write the row's dx.
            if (row < rows) place.finish_row(ring, row, statistics, weights, kept, sum);
            if (!keep) place.fetch_row(row + a.stages * step, ring, kept_lines);
            ring.advance(a.stages);
            const bool last = base + step >= rows;
            if (wants_parameters && (++taken == a.flush_rows || last)) flush(last);
        }
    } else {
        // The cluster's row number `turn` is summed while number turn - 1 is finished; with a single stage a row is finished at once.
        const uint32_t lag = a.stages > 1;
        saved_statistics statistics;
        for (uint32_t turn = 0; row < rows + lag * teams; ++turn, row += teams) {
            const saved_statistics last_statistics = statistics;
            if (row < rows) {
                // 1. Sum the row, exchange its sums, and add to the parameters' gradients.
                statistics = next;
                load_next(row + teams);
                copy_wait(a.stages - 1 - lag);
                float sum[sums] = {};
                place.sum_row(ring, statistics, weights, parameters, kept, sum);
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
                place.finish_row(finished, row - lag * teams, lag ? last_statistics : statistics, weights, kept, sum);
                place.fetch_row(row + (a.stages - lag) * teams, finished, kept_lines);
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
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = is_centered;
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
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(persistent, backward_)
