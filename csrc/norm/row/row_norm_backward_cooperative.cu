// LayerNorm and RMSNorm backward over rows that many blocks share, on whichever SMs they run.
#include <cooperative_groups.h>

#include "../../common/messages.cuh"
#include "row_norm_backward.cuh"

namespace bops {

constexpr uint32_t cooperative_stages = BOPS_ROW_NORM_COOPERATIVE_STAGES, cooperative_turns = BOPS_ROW_NORM_COOPERATIVE_TURNS;
constexpr uint32_t cooperative_lag = 4;                                             // turns between the sums of a row and its dx
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

// Teams of a.cluster blocks walk over rows, one or two a turn; each block has the same columns of all rows of its team. A thread's ring in shared
// memory holds its vectors of the rows that are summed, of `lag` turns before, whose sums are on their way through the team, and of the turn that
// follows: one only, since messages queue behind loads. One warp sends a block's sums, others receive the team's; the threads that read rows never
// wait for each other. The workspace may hold anything that looks like a message, so that blocks clear its places and the grid meets once. With d =
// x - mean and g' = rstd * g: dx = (g' - mean(g')) - d * rstd^2 * mean(g' d).
template <typename T, bool centered, int readers, int vectors> __global__ void __launch_bounds__(cooperative_threads(readers), 512 / readers)
    row_norm_backward_cooperative(const __grid_constant__ row_norm_backward_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), columns = vectors * width, sums = centered ? 2 : 1, batch = cooperative_batch(vectors);
    constexpr uint32_t lag = cooperative_lag;
    constexpr int values = sums * batch, warps = readers / 32, receivers = cooperative_threads(readers) / 32 - warps - 1;
    static_assert(2 * (lag + 1) <= cooperative_turns && lag < cooperative_stages, "");
    __shared__ float warp_sums[cooperative_turns][values][warps];
    __shared__ float4 totals[cooperative_turns][batch]; // mean, rstd, slope, mean of g'
    __shared__ uint64_t summed[cooperative_turns], merged[cooperative_turns];
    wait_for_dependency();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t teams = gridDim.x / a.cluster, index = blockIdx.x / a.cluster, rank = blockIdx.x - index * a.cluster;
    const uint32_t rows = uint32_t(a.p.rows), turns = (rows + teams * batch - 1) / (teams * batch);
    const auto row_of = [&](uint32_t turn, int r) { return (turn * batch + r) * teams + index; };
    const auto messages_of = [&](uint32_t turn, int r) { return a.messages + (turn % cooperative_turns * batch + r) * gridDim.x; };
    const auto arrive = [](const uint64_t *barriers, uint32_t turn) { mbarrier::arrive(shared_address(&barriers[turn % cooperative_turns])); };
    const auto wait = [](const uint64_t *barriers, uint32_t turn) {
        mbarrier::wait(shared_address(&barriers[turn % cooperative_turns]), turn / cooperative_turns & 1);
    };
    if (threadIdx.x < cooperative_turns) {
        mbarrier::initialize(shared_address(&summed[threadIdx.x]), readers);
        mbarrier::initialize(shared_address(&merged[threadIdx.x]), warps + 1);
        for (int r = 0; r < batch; ++r) send_sums(messages_of(threadIdx.x, r) + blockIdx.x, make_float2(0, 0), 0);
    }
    mbarrier::fence_initialized();
    cooperative_groups::this_grid().sync();

    // A turn's places may be written again: a block sums a turn only once it has received the sums of lag + 1 turns before. All blocks have sent
    // those, once they had received the sums of 2 (lag + 1) turns before. No block still reads older sums, and there are more places than that.
    //
    // The warp that sends.
    if (warp == warps) {
        for (uint32_t turn = 0; turn < turns; ++turn) {
            float sum[values] = {};
            wait(summed, turn);
            if (lane < warps) {
#pragma unroll
                for (int k = 0; k < values; ++k) sum[k] = warp_sums[turn % cooperative_turns][k][lane];
                arrive(merged, turn);
            }
            warp_sum(sum, 32);
#pragma unroll
            for (int r = 0; r < batch; ++r)
                if (lane == r)
                    send_sums(messages_of(turn, r) + blockIdx.x, make_float2(sum[r * sums], centered ? sum[r * sums + sums - 1] : 0.0f), turn + 1);
        }
        return;
    }
    // The warps that receive.
    if (warp > warps) {
        for (uint32_t turn = warp - warps - 1; turn < turns; turn += receivers) {
            float mean[batch] = {}, rstd[batch] = {};
#pragma unroll
            for (int r = 0; r < batch; ++r)
                if (row_of(turn, r) < rows) {
                    if constexpr (centered) mean[r] = __ldg(static_cast<const float *>(a.o.mean) + row_of(turn, r));
                    rstd[r] = __ldg(static_cast<const float *>(a.o.rstd) + row_of(turn, r));
                }
            wait(summed, turn);
            uint64_t first[batch][cooperative_lane_messages], second[batch][cooperative_lane_messages];
            bool is_missing;
            do {
                is_missing = false;
#pragma unroll
                for (int r = 0; r < batch; ++r)
#pragma unroll
                    for (uint32_t i = 0; i < cooperative_lane_messages; ++i) {
                        first[r][i] = second[r][i] = uint64_t(turn + 1) << 32;
                        const uint32_t from = lane + 32 * i;
                        if (from < a.cluster) load_message(messages_of(turn, r) + index * a.cluster + from, first[r][i], second[r][i]);
                    }
#pragma unroll
                for (int r = 0; r < batch; ++r)
#pragma unroll
                    for (uint32_t i = 0; i < cooperative_lane_messages; ++i)
                        is_missing |= (first[r][i] >> 32) != turn + 1 || (second[r][i] >> 32) != turn + 1;
            } while (__any_sync(~0u, is_missing));
#pragma unroll
            for (int r = 0; r < batch; ++r) {
                float sum[2] = {};
#pragma unroll
                for (uint32_t i = 0; i < cooperative_lane_messages; ++i)
                    sum[0] += __uint_as_float(uint32_t(first[r][i])), sum[1] += __uint_as_float(uint32_t(second[r][i]));
                warp_sum(sum, 32);
                if (lane == 0)
                    totals[turn % cooperative_turns][r] =
                        make_float4(mean[r], rstd[r], sum[0] * a.reciprocal_cols * rstd[r] * rstd[r], sum[1] * a.reciprocal_cols);
            }
            if (lane == 0) arrive(merged, turn);
        }
        return;
    }

    const uint32_t all = uint32_t(a.p.cols) / width, begin = rank * a.slice_vectors;
    const uint32_t count = all > begin ? min(all - begin, a.slice_vectors) : 0;
    const auto is_column = [&](int v) { return threadIdx.x + v * readers < count; };
    const auto column = [&](int v) { return (begin + threadIdx.x + v * readers) * width; };
    const auto row_at = [](const void *tensor, uint32_t row, const bops_row_strides &s) {
        return static_cast<const T *>(tensor) + uint64_t(row) * uint32_t(s.s0);
    };
    using stage_ring = row_ring<vectors, 2 * batch, readers>; // arrays: dy and x of each row of a turn
    stage_ring reading(threadIdx.x), finishing(threadIdx.x);
    const uint64_t kept = evict_last(); // lines of dy and x, rather than those of dx
    const auto fetch = [&](uint32_t turn, const stage_ring &stage) {
        const uint32_t to = whole_address(stage.slot(0, 0));
        const auto copy = [&](int array, const T *from) {
#pragma unroll
            for (int v = 0; v < vectors; ++v)
                if (is_column(v)) copy_async_cached(to + (array * vectors + v) * readers * 16, from + column(v), kept);
        };
#pragma unroll
        for (int r = 0; r < batch; ++r)
            if (row_of(turn, r) < rows) {
                copy(r * 2, row_at(a.o.dy, row_of(turn, r), a.p.dy));
                copy(r * 2 + 1, row_at(a.o.x, row_of(turn, r), a.p.x));
            }
        copy_commit();
    };
    float next_mean[batch] = {}, next_rstd[batch] = {};
    const auto load_statistics = [&](uint32_t turn) {
#pragma unroll
        for (int r = 0; r < batch; ++r)
            if (row_of(turn, r) < rows) {
                if constexpr (centered) next_mean[r] = __ldg(static_cast<const float *>(a.o.mean) + row_of(turn, r));
                next_rstd[r] = __ldg(static_cast<const float *>(a.o.rstd) + row_of(turn, r));
            }
    };
    for (uint32_t s = 0; s < cooperative_stages; ++s) {
        fetch(s, reading);
        reading.advance(cooperative_stages);
    }
    load_statistics(0);
    float w[vectors][width] = {};
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_column(v)) load_weight<T>(a, column(v), w[v]);

    // Accumulators that have taken flush_rows rows are added to the second level; that becomes a partial row in the workspace after `flushes` such
    // additions.
    float dweight[2][columns] = {}, dbias[2][centered ? columns : 1] = {};
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    uint32_t taken = 0, flushed = 0, partial = index;
    const auto flush = [&](bool last) {
        taken = 0;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            dweight[1][c] += dweight[0][c], dweight[0][c] = 0;
            if constexpr (centered) dbias[1][c] += dbias[0][c], dbias[0][c] = 0;
        }
        if (++flushed < a.flushes && !last) return;
        flushed = 0;
#pragma unroll
        for (int c = 0; c < columns; c += 4)
            if (is_column(c / width)) {
                const uint64_t to = partial * a.partial_cols + column(c / width) + c % width;
                *reinterpret_cast<float4 *>(a.partial_dweight + to) =
                    make_float4(dweight[1][c], dweight[1][c + 1], dweight[1][c + 2], dweight[1][c + 3]);
                if constexpr (centered)
                    *reinterpret_cast<float4 *>(a.partial_dbias + to) = make_float4(dbias[1][c], dbias[1][c + 1], dbias[1][c + 2], dbias[1][c + 3]);
            }
        partial += teams;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            dweight[1][c] = 0;
            if constexpr (centered) dbias[1][c] = 0;
        }
    };

    // In each turn, turn number `turn` is summed and number turn - lag is finished.
    for (uint32_t turn = 0; turn < turns + lag; ++turn) {
        // 1. Sum the rows by warp, and add to the parameters' gradients.
        if (turn < turns) {
            float mean[batch], rstd[batch], value[values];
#pragma unroll
            for (int r = 0; r < batch; ++r) mean[r] = next_mean[r], rstd[r] = next_rstd[r];
            load_statistics(turn + 1);
            copy_wait_groups(cooperative_stages - lag - 1);
#pragma unroll
            for (int r = 0; r < batch; ++r) {
                float chain[sums][4] = {};
                if (row_of(turn, r) < rows) {
#pragma unroll
                    for (int v = 0; v < vectors; ++v) {
                        if (!is_column(v)) continue;
                        float dy[width], d[width];
                        unpack<T>(reading.load(r * 2, v), dy);
                        unpack<T>(reading.load(r * 2 + 1, v), d);
#pragma unroll
                        for (int i = 0; i < width; ++i) {
                            const int c = v * width + i;
                            if constexpr (centered) d[i] -= mean[r];
                            float g = dy[i] * rstd[r];
                            dweight[0][c] = fmaf(g, d[i], dweight[0][c]);
                            if constexpr (centered) dbias[0][c] += dy[i];
                            g *= w[v][i];
                            chain[0][i % 4] = fmaf(g, d[i], chain[0][i % 4]);
                            if constexpr (centered) chain[1][i % 4] += g;
                        }
                    }
                }
#pragma unroll
                for (int k = 0; k < sums; ++k) value[r * sums + k] = tree_sum(chain[k]);
            }
            const float sum = warp_sum_apart(value, lane);
            if (lane % (32 / values) == 0) warp_sums[turn % cooperative_turns][lane / (32 / values)][warp] = sum;
            arrive(summed, turn); // by every thread: it has read the totals of the turns before
            reading.advance(cooperative_stages);
            const bool last = turn + 1 == turns;
            if (wants_parameters && ((taken += batch) == a.flush_rows || last)) flush(last);
        }
        if (turn < lag) continue;

        // 2. Write dx of the rows `lag` turns before. Their stage is filled again.
        wait(merged, turn - lag);
#pragma unroll
        for (int r = 0; r < batch; ++r) {
            const float4 total = totals[(turn - lag) % cooperative_turns][r];
            const float last_mean = total.x, last_rstd = total.y, slope = total.z, mean_g = total.w;
            const uint32_t row = row_of(turn - lag, r);
            if (!a.o.dx || row >= rows) continue;
            T *const dx = const_cast<T *>(row_at(a.o.dx, row, a.p.dx));
#pragma unroll
            for (int v = 0; v < vectors; ++v) {
                if (!is_column(v)) continue;
                float g[width], d[width];
                unpack<T>(finishing.load(r * 2, v), g);
                unpack<T>(finishing.load(r * 2 + 1, v), d);
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    if constexpr (centered) d[i] -= last_mean;
                    g[i] *= last_rstd;
                    g[i] = centered ? fmaf(g[i], w[v][i], -mean_g) : g[i] * w[v][i];
                    g[i] = fmaf(-d[i], slope, g[i]);
                }
                store<16, false>(dx + column(v), pack<T, 16>(g));
            }
        }
        fetch(turn - lag + cooperative_stages, finishing);
        finishing.advance(cooperative_stages);
    }
    allow_dependents();
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action>
bops_status for_row_norm_backward_cooperative(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                              const bops_row_norm_backward_cooperative_choice &c, const bops_row_norm_backward_operands &o,
                                              void *workspace, const Action &action) {
    return for_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = decltype(is_centered)::value;
        constexpr int readers = sizeof(T) == 2 && centered ? 512 : 256, vectors = sizeof(T) == 2 ? 1 : 2;
        if constexpr (sizeof(T) < 8)
            if (c.readers == readers && c.vectors == vectors && c.team_blocks <= BOPS_ROW_NORM_COOPERATIVE_TEAM) {
                auto a = row_norm_backward_arguments_of<float>(of, p, o, c.partial_rows, workspace);
                a.cluster = c.team_blocks, a.flush_rows = c.flush_rows, a.flushes = c.flushes;
                a.slice_vectors = (slice_vectors_of<T>(p.cols, c.team_blocks) + 7) / 8 * 8; // whole lines of 128 bytes
                a.messages = reinterpret_cast<uint4 *>(behind_partials(of, a));
                launch_shape shape;
                shape.grid = dim3(c.grid), shape.block = dim3(cooperative_threads(readers)), shape.cooperative = true;
                shape.overlaps_previous = c.overlaps;
                shape.shared_bytes = cooperative_stages * cooperative_batch(vectors) * vectors * readers * 32;
                return action(row_norm_backward_cooperative<T, centered, readers, vectors>, shape, a);
            }
        return bops_status(cudaErrorInvalidValue);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(cooperative, backward_)
