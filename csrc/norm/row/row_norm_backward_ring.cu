// LayerNorm and RMSNorm backward over long rows, staged vector by vector through shared memory.
#include "row_norm_backward.cuh"
#include "vector_ring.cuh"

namespace bops {

// The part of the rows that a thread of a ring kernel has. whole: every vector of every thread exists, so that nothing is compared.
template <typename T, bool centered, int vectors, int lookahead, bool whole> struct backward_ring_place {
    static constexpr int width = 16 / int(sizeof(T)), slots = 2 * vectors + lookahead, columns = vectors * width, sums = centered ? 2 : 1;
    using ring = vector_ring<slots, 2>;
    const row_norm_backward_arguments<float> &a;
    uint32_t first, count, rows, teams; // first: the block's first vector of a row; count: vectors of the block

    __device__ __forceinline__ bool has(int v) const { return whole || threadIdx.x + v * blockDim.x < count; }
    __device__ __forceinline__ uint32_t column(int v) const { return (first + threadIdx.x + v * blockDim.x) * width; }

    // Starts copying vector v of a row; from `vectors` on, v counts on through the team's next rows.
    __device__ __forceinline__ void fetch(ring &to, uint32_t row, int v, uint64_t kept) const {
        row += v / vectors * teams;
        if (row < rows && has(v % vectors)) {
            copy_async_cached(to.slot(0), row_of<const T>(a, a.o.dy, row, a.p.dy) + column(v % vectors), kept);
            copy_async_cached(to.slot(1), row_of<const T>(a, a.o.x, row, a.p.x) + column(v % vectors), kept);
        }
        copy_commit();
        to.next();
    }

    __device__ __forceinline__ void weight_of(parameter_vector<T, width> &from, float (&w)[width]) const {
        keep_packed<T>(from.part);
        from.get(w);
        if constexpr (!centered)
#pragma unroll
            for (int i = 0; i < width; ++i) w[i] += a.weight_offset;
    }

    // Sums the thread's part of a row, and adds to the parameters' gradients.
    __device__ __forceinline__ void sum_row(ring &from, const saved_statistics &s, parameter_vector<T, width> (&weights)[vectors],
                                            parameter_sums<centered, columns> &parameters, float (&sum)[sums]) const {
        row_chains<centered> chains;
#pragma unroll
        for (int v = 0; v < vectors; ++v, from.next()) {
            copy_wait_groups(slots - vectors - 1 - v);
            if (has(v)) {
                gradient_vector<T, centered> vector;
                float w[width];
                unpack<T>(from.load(0), vector.g);
                unpack<T>(from.load(1), vector.d);
                weight_of(weights[v], w);
                vector.add_up(s, w, v * width, chains, parameters);
            }
        }
        chains.total(sum);
    }

    // Writes dx of a row, and fetches as many vectors of later rows.
    __device__ __forceinline__ void finish_row(ring &from, ring &to, uint32_t row, const saved_statistics &s, const row_correction &correction,
                                               parameter_vector<T, width> (&weights)[vectors], uint64_t kept) const {
        T *const dx = row_of<T>(a, a.o.dx, row, a.p.dx);
        const T *const dh = a.o.dh ? row_of<const T>(a, a.o.dh, row, a.p.dh) : nullptr;
#pragma unroll
        for (int v = 0; v < vectors; ++v, from.next()) {
            if (has(v)) {
                gradient_vector<T, centered> vector;
                float w[width];
                packed<16> added = {};
                if (dh) added = load<16>(dh + column(v));
                unpack<T>(from.load(0), vector.g);
                unpack<T>(from.load(1), vector.d);
                weight_of(weights[v], w);
                vector.scale(s, w);
                vector.correct(correction);
                if (dh) vector.add(added);
                store<16, false>(dx + column(v), pack<T, 16>(vector.g));
            }
            fetch(to, row, v + slots, kept);
        }
    }
};

// Teams, which are blocks or clusters, walk over rows. A thread's ring holds its vectors of dy and x of three rows: of the row that is summed, of the
// row before, which is finished, and the first `lookahead` vectors of the next one. As soon as a vector is done with, its slot fetches another one.
// The blocks of a cluster exchange the sums of a row while they write the row before. With a lookahead of 5 the rings of an SM's 512 threads take
// 208 KiB, almost all of its shared memory; with one of 3 they take 176 KiB, and fewer bytes are in flight.
template <typename T, bool centered, int vectors, int lookahead, bool whole> __global__ void __launch_bounds__(512, 1)
    row_norm_backward_ring(const __grid_constant__ row_norm_backward_arguments<float> a) {
    if (!has_sm_90) return;
    using thread_place = backward_ring_place<T, centered, vectors, lookahead, whole>;
    constexpr int width = thread_place::width, slots = thread_place::slots, sums = thread_place::sums;
    __shared__ float2 warp_sums[3][merge_lanes]; // [turn % 3][warp]: the sums of turn - 1 are read while those of turn + 1 are written
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const row_team team;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = slice_count(all, first, a.slice_vectors), rows = uint32_t(a.p.rows);
    const uint32_t teams = gridDim.x / a.cluster, index = blockIdx.x / a.cluster;
    const thread_place place = {a, first, count, rows, teams};
    vector_ring<slots, 2> fetching, reading, finishing;
    const uint64_t kept = evict_last(); // lines of dy and x, rather than those of dx
    saved_statistics next, statistics;
    uint32_t row = index;
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
#pragma unroll
    for (int v = 0; v < slots; ++v) place.fetch(fetching, row, v, kept);
    if (row < rows) next = load_statistics<centered>(a, row);
    const T *const weight = static_cast<const T *>(a.o.weight);
    parameter_vector<T, width> weights[vectors], none;
#pragma unroll
    for (int v = 0; v < vectors; ++v) load_affine<false>(weight, weight, place.column(v), place.has(v), weights[v], none);
    parameter_sums<centered, thread_place::columns> parameters;
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    uint32_t taken = 0, partial = index;
    const auto store_partial = [&] {
        parameters.template store<width>(a, partial, place);
        partial += teams;
        taken = 0;
        parameters.clear();
    };
    if (a.cluster > 1) cluster_wait();

    // The team's row number `turn` is summed while number turn - 1 is finished.
    for (uint32_t turn = 0; row < rows + teams; row += teams, ++turn) {
        // 1. Sum the row by warp, and add to the parameters' gradients.
        const saved_statistics last_statistics = statistics;
        if (row < rows) {
            statistics = next;
            if (row + teams < rows) next = load_statistics<centered>(a, row + teams);
            float sum[sums];
            place.sum_row(reading, statistics, weights, parameters, sum);
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
            const row_correction correction = correction_of<centered>(sum[0], sum[1], last_statistics.rstd, a);
            place.finish_row(finishing, fetching, last, last_statistics, correction, weights, kept);
        } else {
            if (a.cluster > 1) exchange.wait(turn - 1);
#pragma unroll
            for (int v = 0; v < vectors; ++v) place.fetch(fetching, last, v + slots, kept);
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

template <typename Action> bops_status for_row_norm_backward_ring(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                                                  const bops_row_norm_backward_ring_choice &c,
                                                                  const bops_row_norm_backward_operands &o, void *workspace, const Action &action) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = is_centered;
        auto a = row_norm_backward_arguments_of<float>(of, p, o, c.partial_rows, workspace);
        a.cluster = c.cluster, a.slice_vectors = slice_vectors_of<T>(p.cols, c.cluster), a.flush_rows = c.flush_rows;
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps;
        shape.shared_bytes = c.slots * c.threads * 32;
        if (a.weight_is_wide || c.vectors != 4) return bops_status(cudaErrorInvalidValue);
        if constexpr (sizeof(T) == 4)
            if (c.slots == 11)
                return for_flag(c.is_whole, [&](auto whole) { return action(row_norm_backward_ring<T, centered, 4, 3, whole>, shape, a); });
        if constexpr (sizeof(T) == 2 || !centered)
            if (c.slots == 13)
                return for_flag(c.is_whole, [&](auto whole) { return action(row_norm_backward_ring<T, centered, 4, 5, whole>, shape, a); });
        return bops_status(cudaErrorInvalidValue);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(ring, backward_)
