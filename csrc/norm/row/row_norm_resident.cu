// LayerNorm and RMSNorm forward: a row in the registers of part of a block, of a block or of a cluster.
#include "row_norm.cuh"

namespace bops {

constexpr int most_threads = 512; // of a block, at most, in all kernels but the one with many_threads: they leave a thread 128 registers
// Threads of a block, at most, in the kernel for whole rows of RMSNorm that fill more than most_threads. Two such blocks share an SM.
constexpr int many_threads = 1024;

// Blocks of an SM for which the compiler limits registers. 0 and 1 both leave a thread of a block of 512 the same 128. With 1 the compiler may use
// all of them to save instructions; with 0, which leaves the number out, it prefers counts of registers with which one more block fits.
template <typename T, int vec_bytes, int vectors, bool whole, int limit> constexpr int resident_blocks() {
    if (limit == many_threads) return 2;
    return !whole && vec_bytes == 16 && vectors == 4 && sizeof(T) == 2 ? 1 : 0;
}

// A block is (threads of a row, rows), or with `clustered` one of the blocks of a cluster that holds one row. whole: every vector of every thread
// exists, so that nothing is compared. limit: most threads of a block, most_threads or many_threads.
template <typename T, typename P, bool centered, int vec_bytes, int vectors, bool whole, bool clustered, int limit = most_threads>
__global__ void __launch_bounds__(limit, (resident_blocks<T, vec_bytes, vectors, whole, limit>()))
    row_norm_resident(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
    if (clustered && !has_sm_90) return;
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    // Parameters are loaded before the sums if they take at most 16 registers beside the row: 32 bytes of weight and as many of bias or, in RMSNorm,
    // 64 bytes of weight. With more, fewer blocks share an SM; with fewer, threads wait for parameters after the sums.
    constexpr bool prefetch = limit == most_threads && vectors * width * int(sizeof(P)) <= (centered ? 32 : 64);
    // Cache lines are marked as first to be evicted, except if a thread has two vectors: then rows are short or few, and the next kernel may find
    // them.
    constexpr bool streamed = vectors > 2;
    // x is evicted after y, with which memory serves long tensors faster (`load_kept`). LayerNorm of 16-bit elements is limited by instructions, to
    // which `load_kept` adds.
    constexpr bool kept = streamed && vec_bytes == 16 && !(centered && sizeof(T) == 2);
    __shared__ __align__(16) A slots[3][limit / 32]; // [sum of x; sums of d and of d^2][warp]
    __shared__ cluster_exchange exchange;
    if (a.overlaps) { // the branch makes the compiler move what does not depend on the wait before it
        wait_for_dependency();
        if (a.overlaps > 1) allow_dependents();
    }
    const row_team team;
    const uint32_t rank = clustered ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t row = clustered ? blockIdx.x / a.cluster : blockIdx.x * blockDim.y + threadIdx.y;
    const bool has_row = row < a.p.rows;
    const uint32_t count = clustered ? slice_count(all, first, a.slice_vectors) : all;
    if constexpr (clustered) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    const auto is_column = [&](int v) { return whole || team.position<vectors>(v) < count; };
    const auto column = [&](int v) { return (first + team.position<vectors>(v)) * width; };
    const P *const weight = static_cast<const P *>(a.o.weight), *const bias = static_cast<const P *>(a.o.bias);

    // 1. Fetch the row into registers.
    packed<vec_bytes> data[vectors];
    const T *const x_row = row_of<const T>(a, a.o.x, row, a.p.x);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        data[v] = {};
        if (has_row && is_column(v)) {
            if constexpr (kept) data[v] = load_kept(x_row + column(v));
            else data[v] = load<vec_bytes, streamed>(x_row + column(v));
        }
    }
    parameter_vector<P, width> weights[prefetch ? vectors : 1], biases[prefetch ? vectors : 1];
    if constexpr (prefetch) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) load_affine<centered>(weight, bias, column(v), is_column(v), weights[v], biases[v]);
    }
    if (a.o.residual && has_row) {
        const T *const residual = row_of<const T>(a, a.o.residual, row, a.p.residual);
        T *const h = row_of<T>(a, a.o.h, row, a.p.h);
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (is_column(v)) data[v] = add_residual<T>(data[v], load<vec_bytes>(residual + column(v)), h + column(v));
    }
    if constexpr (clustered) cluster_wait();
    A x[vectors * width];
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        A part[width];
        unpack<T>(data[v], part);
#pragma unroll
        for (int i = 0; i < width; ++i) x[v * width + i] = part[i];
    }

    // 2. Sum its moments, and exchange them in the cluster.
    moments<A> total = {A(0), A(0), A(0)};
    A sum[width] = {};
#pragma unroll
    for (int c = 0; c < vectors * width; ++c) sum[c % width] = centered ? sum[c % width] + x[c] : fma(x[c], x[c], sum[c % width]);
    A value[1] = {tree_sum(sum)};
    team_sum<false, true>(value, team, slots);
    if constexpr (centered) {
        total.shift = !clustered ? value[0] * a.reciprocal_cols : count ? value[0] / (A(count) * width) : A(0);
        A sums[width] = {}, squares[width] = {};
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            const A shift = is_column(v) ? total.shift : A(0); // what lies past the row is 0 and stays so
#pragma unroll
            for (int i = 0; i < width; ++i) {
                A &d = x[v * width + i];
                d -= shift;
                sums[i] += d;
                squares[i] = fma(d, d, squares[i]);
            }
        }
        A values[2] = {tree_sum(sums), tree_sum(squares)};
        team_sum<false, true>(values, team, slots + 1);
        total.sum = values[0], total.square = values[1];
    } else {
        total.square = value[0];
    }
    const A block_shift = total.shift;
    if constexpr (clustered) {
        exchange.send({total.shift, total.sum, total.square, 0}, 0, rank, a.cluster, threadIdx.x);
        total = merge_blocks<centered>(exchange.wait(0), all, width, a);
    }

    // 3. Write statistics and output. x holds x - block_shift.
    row_statistics<A> s = finish_statistics<centered>(total, a);
    if (threadIdx.x == 0 && rank == 0 && has_row) save_statistics<centered>(s, a, row);
    if constexpr (clustered) s.correction -= block_shift - s.shift;
    T *const y = row_of<T>(a, a.o.y, row, a.p.y);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        parameter_vector<P, width> &w = weights[prefetch ? v : 0], &b = biases[prefetch ? v : 0];
        if constexpr (!prefetch) load_affine<centered>(weight, bias, column(v), is_column(v), w, b);
        A part[width];
#pragma unroll
        for (int i = 0; i < width; ++i) part[i] = x[v * width + i];
        normalize<T, P, centered, width>(part, s, w, b, a.weight_offset);
        if (has_row && is_column(v)) store<vec_bytes, streamed>(y + column(v), pack<T, vec_bytes>(part));
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename T, typename P, bool centered, int vec_bytes, int vectors, typename Action>
bops_status for_resident_vectors(const bops_row_norm_resident_choice &c, const launch_shape &shape, const row_norm_arguments<float> &a,
                                 const Action &action) {
    constexpr bool wide = vec_bytes == 16;          // narrower vectors have one kernel
    constexpr bool has_whole = wide && vectors < 8; // with 8 vectors it would take more than half of an SM's registers
    if constexpr (vectors == 8)
        if (c.cluster > 1) return action(row_norm_resident<T, P, centered, vec_bytes, vectors, false, true>, shape, a);
    if (c.cluster > 1) return bops_status(cudaErrorInvalidValue);
    if constexpr (wide && vectors == 4 && sizeof(T) == 4 && !centered)
        if (c.threads > most_threads)
            return c.is_whole ? action(row_norm_resident<T, P, centered, vec_bytes, vectors, true, false, many_threads>, shape, a)
                              : bops_status(cudaErrorInvalidValue);
    return has_whole && c.is_whole ? action(row_norm_resident<T, P, centered, vec_bytes, vectors, has_whole, false>, shape, a)
                                   : action(row_norm_resident<T, P, centered, vec_bytes, vectors, false, false>, shape, a);
}

template <typename Action> bops_status for_row_norm_resident(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                             const bops_row_norm_resident_choice &c, const bops_row_norm_operands &o, void *,
                                                             const Action &action) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) {
        using T = typename decltype(element)::type;
        constexpr bool centered = is_centered;
        return for_parameters<T>(of, [&](auto parameter) {
            using P = typename decltype(parameter)::type;
            return for_access<T>(c.vec_bytes, [&](auto bytes) -> bops_status {
                constexpr int vec_bytes = bytes;
                auto a = row_norm_arguments_of<float>(p, o);
                a.cluster = c.cluster, a.overlaps = c.overlaps + c.lets_next_overlap;
                a.slice_vectors = slice_vectors_of<T, vec_bytes>(p.cols, c.cluster);
                launch_shape shape;
                shape.grid = dim3(c.grid), shape.block = dim3(c.threads_per_row, c.cluster > 1 ? 1 : c.threads / c.threads_per_row);
                shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps;
                const auto run = [&](auto vectors) { return for_resident_vectors<T, P, centered, vec_bytes, vectors>(c, shape, a, action); };
                if constexpr (vec_bytes < 16) return for_value<16>(c.vectors, run);
                else if constexpr (sizeof(T) == 2) return for_value<2, 4>(c.vectors, run);
                else return for_value<2, 4, 8>(c.vectors, run);
            });
        });
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(resident, )
