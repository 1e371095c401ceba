// LayerNorm and RMSNorm forward over long rows, staged vector by vector through shared memory.
#include "row_norm.cuh"
#include "vector_ring.cuh"

namespace bops {

// The part of the rows that a thread has, and how it computes them. whole: every vector of every thread exists, so that nothing is compared.
template <typename T, bool centered, int vectors, int lookahead, bool whole> struct ring_place {
    static constexpr int width = 16 / int(sizeof(T)), slots = 2 * vectors + lookahead;
    static constexpr int shift_vectors = 2; // first vectors of a thread whose mean is the shift: a quarter of its vectors or more
    using ring = vector_ring<slots, 1>;
    using parameters = parameter_vector<T, width>[vectors];
    const row_norm_arguments<float> &a;
    const row_team &team;
    uint32_t first, count, rows, teams; // first: the block's first vector of a row; count: vectors of the block

    __device__ __forceinline__ bool has(int v) const { return whole || threadIdx.x + v * blockDim.x < count; }
    __device__ __forceinline__ uint32_t column(int v) const { return (first + threadIdx.x + v * blockDim.x) * width; }
    // Lanes of a warp that have vector v.
    __device__ __forceinline__ uint32_t lanes_of(uint32_t warp, int v) const {
        const uint32_t before = warp * 32 + v * blockDim.x;
        return whole ? 32 : count > before ? min(count - before, 32u) : 0;
    }
    // Columns that a warp has.
    __device__ __forceinline__ float cols_of(uint32_t warp) const {
        uint32_t lanes = 0;
#pragma unroll
        for (int v = 0; v < vectors; ++v) lanes += lanes_of(warp, v);
        return warp < team.warps ? float(lanes * width) : 0.0f;
    }

    // Starts copying vector v of a row; from `vectors` on, v counts on through the team's next rows. kept: the L2 policy of its line.
    __device__ __forceinline__ void fetch(ring &to, uint32_t row, int v, uint64_t kept) const {
        row += v / vectors * teams;
        if (row < rows && has(v % vectors)) {
            const T *const from = row_of<const T>(a, a.o.x, row, a.p.x) + column(v % vectors);
            if constexpr (centered) copy_async<16>(to.slot(0), from);
            else copy_async_cached(to.slot(0), from, kept);
        }
        copy_commit();
        to.next();
    }

    // Replaces the thread's part of a row by its sum with the residual, which it writes to h. `at` is a copy: the row is read again.
    __device__ __forceinline__ void add_residuals(ring at, uint32_t row) const {
        constexpr int batch = 4; // vectors of the residual in flight: each takes 4 registers, beside those of the parameters
        const T *const residual = row_of<const T>(a, a.o.residual, row, a.p.residual);
        T *const h = row_of<T>(a, a.o.h, row, a.p.h);
#pragma unroll
        for (int from = 0; from < vectors; from += batch) {
            packed<16> added[batch];
#pragma unroll
            for (int v = 0; v < batch; ++v)
                if (has(from + v)) added[v] = load<16>(residual + column(from + v));
            copy_wait_groups(slots - vectors - from - batch);
#pragma unroll
            for (int v = 0; v < batch; ++v, at.next())
                if (has(from + v)) at.store(0, add_residual<T>(at.load(0), added[v], h + column(from + v)));
        }
    }

    // The mean of the warp's first vectors of a row, a quarter of its part or more.
    __device__ __forceinline__ float first_mean(ring from) const {
        float tile[1] = {}, x[width];
        copy_wait_groups(slots - vectors - shift_vectors);
#pragma unroll
        for (int v = 0; v < shift_vectors; ++v, from.next())
            if (has(v)) unpack<T>(from.load(0), x), tile[0] += tree_sum(x);
        warp_sum(tile, 32);
        const uint32_t lanes = lanes_of(team.warp, 0) + lanes_of(team.warp, 1);
        return whole ? tile[0] * (1.0f / (shift_vectors * 32 * width)) : tile[0] / float(max(lanes, 1u) * width);
    }

    // The moments of the warp's part of a row; those of LayerNorm are about first_mean.
    __device__ __forceinline__ moments<float> sum_row(ring &from) const {
        moments<float> total = {0, 0, 0};
        float sum[width] = {}, square[width] = {};
#pragma unroll
        for (int v = 0; v < vectors; ++v, from.next()) {
            copy_wait_groups(slots - vectors - 1 - v);
            if constexpr (centered)
                if (v == 0) total.shift = first_mean(from);
            if (has(v)) {
                float x[width];
                unpack<T>(from.load(0), x);
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
        return total;
    }

    // Writes the output of a row, and fetches as many vectors of later rows.
    __device__ __forceinline__ void finish_row(ring &from, ring &to, uint32_t row, const row_statistics<float> &s, parameters &weights,
                                               parameters &biases, uint64_t kept) const {
        T *const y = row_of<T>(a, a.o.y, row, a.p.y);
#pragma unroll
        for (int v = 0; v < vectors; ++v, from.next()) {
            keep_packed<T>(weights[v].part), keep_packed<T>(biases[v].part);
            if (has(v)) {
                float x[width];
                unpack<T>(from.load(0), x);
                if constexpr (centered)
#pragma unroll
                    for (int i = 0; i < width; ++i) x[i] -= s.shift;
                normalize<T, T, centered, width>(x, s, weights[v], biases[v], a.weight_offset);
                store<16, !centered>(y + column(v), pack<T, 16>(x));
            }
            fetch(to, row, v + slots, kept);
        }
    }
};

// Teams, which are blocks or clusters, walk over rows. A thread's ring holds its vectors of three rows: of the row whose moments are summed, of the
// row before, which is finished, and the first `lookahead` vectors of the next one. As soon as a vector is written out, its slot fetches another one,
// so that memory is read all the time. A thread of 4 vectors takes about half the registers of one of 8, so that a block may have twice as many.
// A lookahead of 5 is faster than one of 11, which shared memory has room for as well: measured on an H200 (docs/rejected.md).
template <typename T, bool centered, int vectors, int lookahead, bool whole> __global__ void __launch_bounds__(vectors == 4 ? 1024 : 512, 1)
    row_norm_ring(const __grid_constant__ row_norm_arguments<float> a) {
    if (!has_sm_90) return;
    using thread_place = ring_place<T, centered, vectors, lookahead, whole>;
    constexpr int width = thread_place::width, slots = thread_place::slots;
    // Of a turn and the two before it: a warp may still read those of turn - 1 when the fastest warp writes those of turn + 1.
    constexpr uint32_t moment_turns = 3;
    __shared__ moments<float> warp_moments[moment_turns][merge_lanes];
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const row_team team;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = slice_count(all, first, a.slice_vectors), rows = uint32_t(a.p.rows), teams = gridDim.x / a.cluster;
    const thread_place place = {a, team, first, count, rows, teams};
    vector_ring<slots, 1> fetching, reading, finishing;
    const uint64_t kept = evict_last();

    uint32_t row = blockIdx.x / a.cluster;
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
#pragma unroll
    for (int v = 0; v < slots; ++v) place.fetch(fetching, row, v, kept);
    const T *const weight = static_cast<const T *>(a.o.weight), *const bias = static_cast<const T *>(a.o.bias);
    typename thread_place::parameters weights, biases;
#pragma unroll
    for (int v = 0; v < vectors; ++v) load_affine<centered>(weight, bias, place.column(v), place.has(v), weights[v], biases[v]);
    if (a.cluster > 1) cluster_wait();
    const float warp_cols = place.cols_of(team.lane);
    // The team's row number `turn` is summed while number turn - 1 is finished.
    for (uint32_t turn = 0; row < rows + teams; row += teams, ++turn) {
        // 1. Sum the moments of each warp's part of a row.
        moments<float> total;
        if (row < rows) {
            if (a.o.residual) place.add_residuals(reading, row);
            total = place.sum_row(reading);
            if (team.lane == 0) warp_moments[turn % moment_turns][team.warp] = total;
        }
        __syncthreads();

        // 2. Exchange the moments of the blocks in the cluster.
        if (a.cluster > 1 && row < rows && team.warp == 0) {
            moments<float> mine = {0, 0, 0};
            if (team.lane < team.warps) mine = warp_moments[turn % moment_turns][team.lane];
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
            if (team.lane < a.cluster) mine = {blocks[team.lane][0], blocks[team.lane][1], blocks[team.lane][2]};
            cols = float((team.lane < a.cluster ? slice_count(all, team.lane * a.slice_vectors, a.slice_vectors) : 0) * width);
        } else if (team.lane < team.warps) {
            mine = warp_moments[(turn - 1) % moment_turns][team.lane];
        }
        total = merge_across<centered>(mine, cols, a.reciprocal_cols);
        total.sum += total.sum - total.sum; // an infinity makes it NaN, as it does where the shift is the mean
        const row_statistics<float> s = finish_statistics<centered>(total, a);
        if (threadIdx.x == 0 && rank == 0) save_statistics<centered>(s, a, last);
        place.finish_row(finishing, fetching, last, s, weights, biases, kept);
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status for_row_norm_ring(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                         const bops_row_norm_ring_choice &c, const bops_row_norm_operands &o, void *,
                                                         const Action &action) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = is_centered;
        if (of.weight_dtype != of.dtype) return bops_status(cudaErrorInvalidValue);
        auto a = row_norm_arguments_of<float>(p, o);
        a.cluster = c.cluster, a.overlaps = c.overlaps, a.slice_vectors = slice_vectors_of<T>(p.cols, c.cluster);
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps;
        shape.shared_bytes = c.slots * c.threads * 16;
        if (c.vectors == 8 && c.slots == 21)
            return for_flag(c.is_whole, [&](auto whole) { return action(row_norm_ring<T, centered, 8, 5, whole>, shape, a); });
        if constexpr (!centered && sizeof(T) == 2)
            if (c.vectors == 4 && c.slots == 13)
                return for_flag(c.is_whole, [&](auto whole) { return action(row_norm_ring<T, centered, 4, 5, whole>, shape, a); });
        return bops_status(cudaErrorInvalidValue);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(ring, )
