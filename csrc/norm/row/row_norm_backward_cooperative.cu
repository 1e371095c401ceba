// LayerNorm and RMSNorm backward over rows that many blocks share, on whichever SMs they run.
#include <cooperative_groups.h>

#include "../../common/messages.cuh"
#include "row_norm_backward.cuh"

namespace bops {

constexpr uint32_t cooperative_stages = BOPS_ROW_NORM_COOPERATIVE_STAGES, cooperative_turns = BOPS_ROW_NORM_COOPERATIVE_TURNS;
// Turns between the sums of a row and its dx: its messages arrive meanwhile. The ring has two turns more, the one that is summed and the one that
// arrives.
constexpr uint32_t cooperative_lag = 4;
constexpr uint32_t cooperative_lane_messages = BOPS_ROW_NORM_COOPERATIVE_TEAM / 32; // of one row, that a lane receives
static_assert(sizeof(uint4) == BOPS_ROW_NORM_COOPERATIVE_MESSAGE, "");
// Rows of a turn: a thread has two vectors of them together.
__host__ __device__ constexpr int cooperative_batch(int vectors) { return 2 / vectors; }
// Threads of a block: those that read rows; a warp that sends; and a warp that receives or, in blocks that have an SM to themselves, two that take
// turns.
__host__ __device__ constexpr int cooperative_threads(int readers) { return readers + (readers == 512 ? 96 : 64); }

// Sums each value over the lanes of a warp; value k ends up in lane k * 32 / count. `count` is a power of two up to 32.
template <int count> __device__ __forceinline__ float warp_sum_apart(float (&value)[count], uint32_t lane) {
    int offset = 16;
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2, offset /= 2) {
        const bool upper = lane & offset;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const float mine = upper ? value[i + half] : value[i], other = upper ? value[i] : value[i + half];
            value[i] = mine + __shfl_xor_sync(~0u, other, offset);
        }
    }
#pragma unroll
    for (; offset > 0; offset /= 2) value[0] += __shfl_xor_sync(~0u, value[0], offset);
    return value[0];
}

// Barriers in shared memory, one for each turn that may be under way.
struct turn_barriers {
    uint64_t barrier[cooperative_turns];

    __device__ __forceinline__ void initialize(uint32_t turn, uint32_t arrivals) const {
        mbarrier::initialize(shared_address(&barrier[turn]), arrivals);
    }
    __device__ __forceinline__ void arrive(uint32_t turn) const { mbarrier::arrive(shared_address(&barrier[turn % cooperative_turns])); }
    __device__ __forceinline__ void wait(uint32_t turn) const {
        mbarrier::wait(shared_address(&barrier[turn % cooperative_turns]), turn / cooperative_turns & 1);
    }
};

// The rows of a team, `batch` in each turn, and the places of its messages.
template <int batch> struct cooperative_team {
    const row_norm_backward_arguments<float> &a;
    uint32_t teams, index, rows; // index: of this team

    __device__ __forceinline__ uint32_t row_number(uint32_t turn, int r) const { return (turn * batch + r) * teams + index; }
    __device__ __forceinline__ uint4 *messages_of(uint32_t turn, int r) const {
        return a.messages + (turn % cooperative_turns * batch + r) * gridDim.x;
    }
    // The statistics of the rows of a turn; of those that do not exist, what `to` held.
    template <bool centered> __device__ __forceinline__ void load_statistics(uint32_t turn, saved_statistics (&to)[batch]) const {
#pragma unroll
        for (int r = 0; r < batch; ++r)
            if (row_number(turn, r) < rows) to[r] = bops::load_statistics<centered>(a, row_number(turn, r));
    }
};

// The work of the warp that sends: adds up the sums of the block's warps, and leaves them for the team. warp_sums: [value][warp] of a turn.
template <bool centered, int batch, int values, int warps>
__device__ __forceinline__ void send_turns(const cooperative_team<batch> &team, uint32_t turns, float (*warp_sums)[values][warps],
                                           const turn_barriers &summed, const turn_barriers &merged) {
    constexpr int sums = values / batch;
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t turn = 0; turn < turns; ++turn) {
        float sum[values] = {};
        summed.wait(turn);
        if (lane < warps) {
#pragma unroll
            for (int k = 0; k < values; ++k) sum[k] = warp_sums[turn % cooperative_turns][k][lane];
            merged.arrive(turn);
        }
        warp_sum(sum, 32);
#pragma unroll
        for (int r = 0; r < batch; ++r)
            if (lane == r)
                send_sums(team.messages_of(turn, r) + blockIdx.x, make_float2(sum[r * sums], centered ? sum[r * sums + sums - 1] : 0.0f), turn + 1);
    }
}

// The work of a warp that receives, which takes turn number `first` and every `step`th one after it: waits for the sums of all blocks of the team, and
// leaves the totals of each row for the block's readers.
template <bool centered, int batch> __device__ __forceinline__ void receive_turns(const cooperative_team<batch> &team, uint32_t first, uint32_t step,
                                                                                  uint32_t turns, float4 (*totals)[batch],
                                                                                  const turn_barriers &summed, const turn_barriers &merged) {
    const row_norm_backward_arguments<float> &a = team.a;
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t turn = first; turn < turns; turn += step) {
        saved_statistics s[batch];
        team.template load_statistics<centered>(turn, s);
        summed.wait(turn);
        uint64_t of_g_d[batch][cooperative_lane_messages], of_g[batch][cooperative_lane_messages];
        bool is_missing;
        do {
            is_missing = false;
#pragma unroll
            for (int r = 0; r < batch; ++r)
#pragma unroll
                for (uint32_t i = 0; i < cooperative_lane_messages; ++i) {
                    of_g_d[r][i] = of_g[r][i] = uint64_t(turn + 1) << 32;
                    const uint32_t from = lane + 32 * i;
                    if (from < a.cluster) load_message(team.messages_of(turn, r) + team.index * a.cluster + from, of_g_d[r][i], of_g[r][i]);
                }
#pragma unroll
            for (int r = 0; r < batch; ++r)
#pragma unroll
                for (uint32_t i = 0; i < cooperative_lane_messages; ++i)
                    is_missing |= (of_g_d[r][i] >> 32) != turn + 1 || (of_g[r][i] >> 32) != turn + 1;
        } while (__any_sync(~0u, is_missing));
#pragma unroll
        for (int r = 0; r < batch; ++r) {
            float sum[2] = {};
#pragma unroll
            for (uint32_t i = 0; i < cooperative_lane_messages; ++i)
                sum[0] += __uint_as_float(uint32_t(of_g_d[r][i])), sum[1] += __uint_as_float(uint32_t(of_g[r][i]));
            warp_sum(sum, 32);
            if (lane == 0)
                totals[turn % cooperative_turns][r] =
                    make_float4(s[r].mean, s[r].rstd, sum[0] * a.reciprocal_cols * s[r].rstd * s[r].rstd, sum[1] * a.reciprocal_cols);
        }
        if (lane == 0) merged.arrive(turn);
    }
}

// The part of a team's rows that a thread reads.
template <typename T, bool centered, int readers, int vectors> struct cooperative_reader {
    static constexpr int width = 16 / int(sizeof(T)), columns = vectors * width, batch = cooperative_batch(vectors), sums = centered ? 2 : 1;
    using stage_ring = row_ring<vectors, 2 * batch, readers>; // arrays: dy and x of each row of a turn
    const row_norm_backward_arguments<float> &a;
    const cooperative_team<batch> &team;
    uint32_t begin, count; // the block's vectors of a row

    __device__ __forceinline__ bool has(int v) const { return threadIdx.x + v * readers < count; }
    __device__ __forceinline__ uint32_t column(int v) const { return (begin + threadIdx.x + v * readers) * width; }
    __device__ __forceinline__ const T *row_at(const void *tensor, uint32_t row, const bops_row_strides &s) const {
        return static_cast<const T *>(tensor) + uint64_t(row) * uint32_t(s.s0);
    }

    // Starts copying the rows of a turn to a stage. kept: the L2 policy of their lines.
    __device__ __forceinline__ void fetch(uint32_t turn, const stage_ring &stage, uint64_t kept) const {
        const uint32_t to = whole_address(stage.slot(0, 0));
        const auto copy = [&](int array, const T *from) {
#pragma unroll
            for (int v = 0; v < vectors; ++v)
                if (has(v)) copy_async_cached(to + (array * vectors + v) * readers * 16, from + column(v), kept);
        };
#pragma unroll
        for (int r = 0; r < batch; ++r)
            if (team.row_number(turn, r) < team.rows) {
                copy(r * 2, row_at(a.o.dy, team.row_number(turn, r), a.p.dy));
                copy(r * 2 + 1, row_at(a.o.x, team.row_number(turn, r), a.p.x));
            }
        copy_commit();
    }

    // Sums the thread's part of the rows of a turn, and adds to the parameters' gradients.
    __device__ __forceinline__ void sum_rows(uint32_t turn, const stage_ring &stage, const saved_statistics (&s)[batch],
                                             const float (&weight)[vectors][width], parameter_sums<centered, columns> &parameters,
                                             float (&value)[sums * batch]) const {
#pragma unroll
        for (int r = 0; r < batch; ++r) {
            row_chains<centered> chains;
            if (team.row_number(turn, r) < team.rows) {
#pragma unroll
                for (int v = 0; v < vectors; ++v) {
                    if (!has(v)) continue;
                    gradient_vector<T, centered> vector;
                    unpack<T>(stage.load(r * 2, v), vector.g);
                    unpack<T>(stage.load(r * 2 + 1, v), vector.d);
                    vector.add_up(s[r], weight[v], v * width, chains, parameters);
                }
            }
            float sum[sums];
            chains.total(sum);
#pragma unroll
            for (int k = 0; k < sums; ++k) value[r * sums + k] = sum[k];
        }
    }

    // Writes dx of the rows of a turn.
    __device__ __forceinline__ void finish_rows(uint32_t turn, const stage_ring &stage, const float4 (&totals)[batch],
                                                const float (&weight)[vectors][width]) const {
#pragma unroll
        for (int r = 0; r < batch; ++r) {
            const float4 total = totals[r];
            const uint32_t row = team.row_number(turn, r);
            if (!a.o.dx || row >= team.rows) continue;
            T *const dx = const_cast<T *>(row_at(a.o.dx, row, a.p.dx));
#pragma unroll
            for (int v = 0; v < vectors; ++v) {
                if (!has(v)) continue;
                gradient_vector<T, centered> vector;
                unpack<T>(stage.load(r * 2, v), vector.g);
                unpack<T>(stage.load(r * 2 + 1, v), vector.d);
                vector.scale({total.x, total.y}, weight[v]);
                vector.correct({total.z, total.w});
                store<16, false>(dx + column(v), pack<T, 16>(vector.g));
            }
        }
    }
};

// Teams of a.cluster blocks walk over rows, one or two a turn; each block has the same columns of all rows of its team. A thread's ring in shared
// memory holds its vectors of the rows that are summed, of `lag` turns before, whose sums are on their way through the team, and of the turn that
// follows: one only, since messages queue behind loads. One warp sends a block's sums, others receive the team's; the threads that read rows never
// wait for each other. An SM has room for 512 threads that read: one block of 512, or two of 256. The workspace may hold
// anything that looks like a message, so that blocks clear its places and the grid meets once.
template <typename T, bool centered, int readers, int vectors> __global__ void __launch_bounds__(cooperative_threads(readers), 512 / readers)
    row_norm_backward_cooperative(const __grid_constant__ row_norm_backward_arguments<float> a) {
    if (!has_sm_90) return;
    using thread_reader = cooperative_reader<T, centered, readers, vectors>;
    constexpr int width = thread_reader::width, columns = thread_reader::columns, batch = thread_reader::batch;
    constexpr uint32_t lag = cooperative_lag;
    constexpr int values = thread_reader::sums * batch, warps = readers / 32, receivers = cooperative_threads(readers) / 32 - warps - 1;
    static_assert(2 * (lag + 1) <= cooperative_turns && lag < cooperative_stages, "");
    __shared__ float warp_sums[cooperative_turns][values][warps];
    __shared__ float4 totals[cooperative_turns][batch]; // of a row: mean, rstd, and the slope and mean_g of row_correction
    __shared__ turn_barriers summed, merged;
    wait_for_dependency();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t teams = gridDim.x / a.cluster, index = blockIdx.x / a.cluster, rank = blockIdx.x - index * a.cluster;
    const uint32_t rows = uint32_t(a.p.rows), turns = (rows + teams * batch - 1) / (teams * batch);
    const cooperative_team<batch> team = {a, teams, index, rows};
    if (threadIdx.x < cooperative_turns) {
        summed.initialize(threadIdx.x, readers);
        merged.initialize(threadIdx.x, warps + 1);
        for (int r = 0; r < batch; ++r) send_sums(team.messages_of(threadIdx.x, r) + blockIdx.x, make_float2(0, 0), 0);
    }
    mbarrier::fence_initialized();
    cooperative_groups::this_grid().sync();

    // A turn's places may be written again: a block sums a turn only once it has received the sums of lag + 1 turns before. All blocks have sent
    // those, once they had received the sums of 2 (lag + 1) turns before. No block still reads older sums, and there are more places than that.
    if (warp == warps) {
        send_turns<centered>(team, turns, warp_sums, summed, merged);
        return;
    }
    if (warp > warps) {
        receive_turns<centered>(team, warp - warps - 1, receivers, turns, totals, summed, merged);
        return;
    }

    const uint32_t begin = rank * a.slice_vectors;
    const thread_reader reader = {a, team, begin, slice_count(uint32_t(a.p.cols) / width, begin, a.slice_vectors)};
    typename thread_reader::stage_ring reading(threadIdx.x), finishing(threadIdx.x);
    const uint64_t kept = evict_last(); // lines of dy and x, rather than those of dx
    saved_statistics next[batch];
    for (uint32_t s = 0; s < cooperative_stages; ++s) {
        reader.fetch(s, reading, kept);
        reading.advance(cooperative_stages);
    }
    team.template load_statistics<centered>(0, next);
    float weight[vectors][width] = {};
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (reader.has(v)) load_weight<T>(a, reader.column(v), weight[v]);

    // Accumulators that have taken flush_rows rows are added to the second level; that becomes a partial row in the workspace after `flushes` such
    // additions.
    parameter_sums<centered, columns> accumulators, second_level;
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    uint32_t taken = 0, flushed = 0, partial = index;
    const auto flush = [&](bool last) {
        taken = 0;
        second_level.take(accumulators);
        if (++flushed < a.flushes && !last) return;
        flushed = 0;
        second_level.template store<width>(a, partial, reader);
        partial += teams;
        second_level.clear();
    };

    // In each turn, turn number `turn` is summed and number turn - lag is finished.
    for (uint32_t turn = 0; turn < turns + lag; ++turn) {
        // 1. Sum the rows by warp, and add to the parameters' gradients.
        if (turn < turns) {
            saved_statistics statistics[batch];
#pragma unroll
            for (int r = 0; r < batch; ++r) statistics[r] = next[r];
            team.template load_statistics<centered>(turn + 1, next);
            copy_wait_groups(cooperative_stages - lag - 1);
            float value[values];
            reader.sum_rows(turn, reading, statistics, weight, accumulators, value);
            const float sum = warp_sum_apart(value, lane);
            if (lane % (32 / values) == 0) warp_sums[turn % cooperative_turns][lane / (32 / values)][warp] = sum;
            summed.arrive(turn); // by every thread: it has read the totals of the turns before
            reading.advance(cooperative_stages);
            const bool last = turn + 1 == turns;
            if (wants_parameters && ((taken += batch) == a.flush_rows || last)) flush(last);
        }
        if (turn < lag) continue;

        // 2. Write dx of the rows `lag` turns before. Their stage is filled again.
        merged.wait(turn - lag);
        reader.finish_rows(turn - lag, finishing, totals[(turn - lag) % cooperative_turns], weight);
        reader.fetch(turn - lag + cooperative_stages, finishing, kept);
        finishing.advance(cooperative_stages);
    }
    allow_dependents();
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action>
bops_status for_row_norm_backward_cooperative(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                              const bops_row_norm_backward_cooperative_choice &c, const bops_row_norm_backward_operands &o,
                                              void *workspace, const Action &action) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = is_centered;
        constexpr int readers = sizeof(T) == 2 && centered ? 512 : 256, vectors = sizeof(T) == 2 ? 1 : 2;
        if (c.readers != readers || c.vectors != vectors || c.team_blocks > BOPS_ROW_NORM_COOPERATIVE_TEAM) return bops_status(cudaErrorInvalidValue);
        auto a = row_norm_backward_arguments_of<float>(of, p, o, c.partial_rows, workspace);
        a.cluster = c.team_blocks, a.flush_rows = c.flush_rows, a.flushes = c.flushes;
        a.slice_vectors = (slice_vectors_of<T>(p.cols, c.team_blocks) + 7) / 8 * 8; // whole lines of 128 bytes
        a.messages = reinterpret_cast<uint4 *>(behind_partials(of, a));
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(cooperative_threads(readers)), shape.cooperative = true;
        shape.overlaps_previous = c.overlaps;
        shape.shared_bytes = cooperative_stages * cooperative_batch(vectors) * vectors * readers * 32;
        return action(row_norm_backward_cooperative<T, centered, readers, vectors>, shape, a);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(cooperative, backward_)
