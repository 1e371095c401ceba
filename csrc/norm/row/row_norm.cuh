// LayerNorm and RMSNorm forward over rows.
#pragma once
#include "../../bops_row_norm.h"
#include "../../common/launch.cuh"
#include "../../common/row_reduce.cuh"

namespace bops {

template <typename A> struct row_norm_arguments {
    bops_row_norm_params p;
    bops_row_norm_operands o;
    A eps, weight_offset, reciprocal_cols;
    uint32_t cluster, slice_vectors; // vectors of a row that one block of its cluster holds
    uint32_t chunks, overlaps;
    moments<A> *chunk_moments; // split: [rows][chunks]
    moments<A> *row_moments;   // split: [rows]; shift: mean before correction, sum: correction, square: rstd
};

template <typename A> struct row_statistics { A shift, correction, rstd; };

// From the moments of a whole row.
template <bool centered, typename A>
__device__ __forceinline__ row_statistics<A> finish_statistics(const moments<A> &row, const row_norm_arguments<A> &a) {
    const A square = row.square * a.reciprocal_cols;
    if constexpr (centered) {
        const A correction = row.sum * a.reciprocal_cols;
        return {row.shift, correction, reciprocal_root(at_least_zero(square - correction * correction) + a.eps)};
    } else {
        return {A(0), A(0), reciprocal_root(square + a.eps)};
    }
}

template <bool centered, typename A>
__device__ __forceinline__ void save_statistics(const row_statistics<A> &s, const row_norm_arguments<A> &a, uint64_t row) {
    if (centered && a.o.mean) static_cast<A *>(a.o.mean)[row] = s.shift + s.correction;
    if (a.o.rstd) static_cast<A *>(a.o.rstd)[row] = s.rstd;
}

// The moments of a row from those of the blocks of its cluster, in the order of their ranks.
template <bool centered>
__device__ __forceinline__ moments<float> merge_blocks(const float (*parts)[4], uint32_t all_vectors, int width, const row_norm_arguments<float> &a) {
    moments<float> total = {0, 0, 0};
    if constexpr (centered) {
        const auto cols_of = [&](uint32_t r) {
            const uint32_t first = r * a.slice_vectors;
            return float((all_vectors > first ? min(all_vectors - first, a.slice_vectors) : 0) * width);
        };
        for (uint32_t r = 0; r < a.cluster; ++r) total.shift = fmaf(parts[r][0], cols_of(r), total.shift);
        total.shift = rounded_product(total.shift, a.reciprocal_cols);
        for (uint32_t r = 0; r < a.cluster; ++r) merge(total, {parts[r][0], parts[r][1], parts[r][2]}, cols_of(r));
    } else {
        for (uint32_t r = 0; r < a.cluster; ++r) total.square += parts[r][2];
    }
    return total;
}

template <typename T, bool centered, int vec_bytes, int vectors>
__device__ __forceinline__ accumulator_t<T> thread_sum(const packed<vec_bytes> (&data)[vectors]) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    A sum[width] = {};
#pragma unroll
    for (int v = 0; v < vectors; ++v) { // absent vectors hold zeros
        A x[width];
        unpack<T>(data[v], x);
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] = centered ? sum[i] + x[i] : fma(x[i], x[i], sum[i]);
    }
    return tree_sum(sum);
}

template <typename T, int vec_bytes, int vectors, typename Valid>
__device__ __forceinline__ void thread_moments(const packed<vec_bytes> (&data)[vectors], accumulator_t<T> shift, const Valid &is_valid,
                                               accumulator_t<T> (&sums)[2]) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    A sum[width] = {}, square[width] = {};
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        A x[width];
        unpack<T>(data[v], x);
        if (is_valid(v)) add_moments(x, shift, sum, square);
    }
    sums[0] = tree_sum(sum);
    sums[1] = tree_sum(square);
}

// The parameters of one vector; 1 and 0 where absent.
template <bool centered, typename P, int width> __device__ __forceinline__ void load_affine(const P *weight, const P *bias, uint64_t column,
                                                                                            bool is_valid, parameter_vector<P, width> &w,
                                                                                            parameter_vector<P, width> &b) {
    w.fill(true);
    if (weight && is_valid) w.load(weight + column);
    if constexpr (centered) {
        b.fill(false);
        if (bias && is_valid) b.load(bias + column);
    }
}

// x holds x - s.shift.
template <typename T, typename P, bool centered, int width>
__device__ __forceinline__ void normalize(accumulator_t<T> *x, const row_statistics<accumulator_t<T>> &s, const parameter_vector<P, width> &weight,
                                          const parameter_vector<P, width> &bias, accumulator_t<T> weight_offset) {
    using A = accumulator_t<T>;
    const A shifted = -s.correction * s.rstd;
    A w[width], b[width];
    weight.get(w);
    if constexpr (centered) bias.get(b);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = centered ? fma(fma(x[i], s.rstd, shifted), w[i], b[i]) : x[i] * s.rstd * (w[i] + weight_offset);
}

// h = x + residual rounded to T, which is also stored.
template <typename T, int vec_bytes>
__device__ __forceinline__ packed<vec_bytes> add_residual(const packed<vec_bytes> &x, const packed<vec_bytes> &residual, void *h) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    A sum[width], r[width];
    unpack<T>(x, sum);
    unpack<T>(residual, r);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += r[i];
    const packed<vec_bytes> rounded = pack<T, vec_bytes>(sum);
    store(h, rounded);
    return rounded;
}

// ---- resident: a row in registers -------------------------------------------------------------------------------------------

constexpr int row_threads_limit = 512, many_threads = 1024; // of a block; many: two blocks of those share a multiprocessor

// Blocks that a multiprocessor is to have room for; 0: the compiler's choice.
template <typename T, int vec_bytes, int vectors, bool whole, int limit> constexpr int resident_blocks() {
    if (limit == many_threads) return 2;
    return !whole && vec_bytes == 16 && vectors == 4 && sizeof(T) == 2 ? 1 : 0;
}

// A block is (threads of a row, rows), or a part of the cluster that holds one row. whole: every vector of every thread exists.
template <typename T, typename P, bool centered, int vec_bytes, int vectors, bool whole, bool clustered, int limit = row_threads_limit>
__global__ void __launch_bounds__(limit, (resident_blocks<T, vec_bytes, vectors, whole, limit>()))
    row_norm_resident(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
    if (clustered && !has_sm_90) return;
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    constexpr bool prefetch = limit == row_threads_limit && vectors * width * int(sizeof(P)) <= (centered ? 32 : 64); // registers beside the row
    constexpr bool streamed = vectors > 2;                                              // short rows and few: what follows may find them in the cache
    constexpr bool kept = streamed && vec_bytes == 16 && !(centered && sizeof(T) == 2); // instructions are the limit of those
    __shared__ __align__(16) A slots[3][limit / 32];
    __shared__ cluster_exchange exchange;
    if (a.overlaps) { // a branch: what it does not depend on comes before it
        wait_for_dependency();
        if (a.overlaps > 1) allow_dependents();
    }
    const row_team team;
    const uint32_t rank = clustered ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t row = clustered ? blockIdx.x / a.cluster : blockIdx.x * blockDim.y + threadIdx.y;
    const bool has_row = row < a.p.rows;
    const uint32_t count = clustered ? (all > first ? min(all - first, a.slice_vectors) : 0) : all;
    if constexpr (clustered) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    const auto is_column = [&](int v) { return whole || team.position<vectors>(v) < count; };
    const auto column = [&](int v) { return (first + team.position<vectors>(v)) * width; };
    const P *const weight = static_cast<const P *>(a.o.weight), *const bias = static_cast<const P *>(a.o.bias);

    // 1. The row in registers.
    packed<vec_bytes> data[vectors];
    const T *const x_row = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2);
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
        const T *const residual = static_cast<const T *>(a.o.residual) + row_offset(row, a.p.residual, a.p.extent1, a.p.extent2);
        T *const h = static_cast<T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2);
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

    // 2. Its moments.
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
            const A shift = is_column(v) ? total.shift : A(0); // absent elements are 0 and stay so
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

    // 3. Statistics and output. x holds x - block_shift.
    row_statistics<A> s = finish_statistics<centered>(total, a);
    if (threadIdx.x == 0 && rank == 0 && has_row) save_statistics<centered>(s, a, row);
    if constexpr (clustered) s.correction -= block_shift - s.shift;
    T *const y = static_cast<T *>(a.o.y) + row_offset(row, a.p.y, a.p.extent1, a.p.extent2);
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

// ---- packed: a row in the registers of a warp or a block, as it came --------------------------------------------------------------

constexpr int packed_vectors = 4; // of a thread where a block has a row
constexpr int packed_rows = 2;    // of a block where a warp has one

// Blocks of a multiprocessor, each with a row: three where the compiler makes do with 40 registers.
template <typename T> constexpr int packed_blocks() {
#if __CUDA_ARCH__ >= 900
    return std::is_same_v<T, __nv_bfloat16> ? 3 : 2;
#else
    return 2;
#endif
}

// LayerNorm with parameters of x's type; every vector of every thread exists. A block is (threads of a row, rows).
// of_warp: rows of one stride, without a residual, in two passes. Otherwise one pass and one barrier: the moments are about the mean of the first
// vector of x, and taken again where that lies far.
template <typename T, int vectors, bool of_warp>
__global__ void __launch_bounds__(of_warp ? packed_rows * 32 : row_threads_limit, of_warp ? 1 : packed_blocks<T>())
    row_norm_packed(const __grid_constant__ row_norm_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ __align__(16) float slots[of_warp ? 1 : 2][team_slots];
    wait_for_dependency();
    const row_team team;
    const uint32_t threads = of_warp ? 32 : blockDim.x, row = of_warp ? blockIdx.x * packed_rows + threadIdx.y : blockIdx.x;
    if (of_warp && row >= a.p.rows) return;
    const auto column = [&](int v) { return (v * threads + threadIdx.x) * width; };
    const auto row_of = [&](const void *tensor, const bops_row_strides &s) {
        return static_cast<const T *>(tensor) + (of_warp ? row * s.s0 : row_offset(row, s, a.p.extent1, a.p.extent2));
    };

    // 1. The row in registers.
    const T *const x = row_of(a.o.x, a.p.x);
    packed<16> first = {}, data[vectors];
    if constexpr (!of_warp) first = load<16, false>(x);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if constexpr (of_warp) data[v] = load<16>(x + column(v));
        else data[v] = load_kept(x + column(v));
    }
    if (!of_warp && a.o.residual) {
        const T *const residual = row_of(a.o.residual, a.p.residual);
        T *const h = const_cast<T *>(row_of(a.o.h, a.p.h));
#pragma unroll
        for (int v = 0; v < vectors; ++v) data[v] = add_residual<T>(data[v], load<16>(residual + column(v)), h + column(v));
    }

    // 2. Its moments.
    float values[width];
    moments<float> total = {0, 0, 0};
    const auto add_up = [&] {
        float sum[width] = {}, square[width] = {};
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            unpack<T>(data[v], values);
            add_moments(values, total.shift, sum, square);
        }
        float sums[2] = {tree_sum(sum), tree_sum(square)};
        if constexpr (of_warp) warp_sum(sums, 32);
        else team_sum<false, true>(sums, team, slots);
        total.sum = sums[0], total.square = sums[1];
    };
    if constexpr (of_warp) {
        float sum[1] = {thread_sum<T, true>(data)};
        warp_sum(sum, 32);
        total.shift = sum[0] * a.reciprocal_cols;
        add_up();
    } else {
        unpack<T>(first, values);
        total.shift = tree_sum(values) * (1.0f / width);
        add_up();
        if (recenter(total, a.reciprocal_cols)) {
            __syncthreads(); // the slots are free
            add_up();
        }
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
    }

    // 3. Statistics and output.
    keep_packed<T>(data);
    const row_statistics<float> s = finish_statistics<true>(total, a);
    if (threadIdx.x == 0) save_statistics<true>(s, a, row);
    T *const y = const_cast<T *>(row_of(a.o.y, a.p.y));
    const T *const weight = static_cast<const T *>(a.o.weight), *const bias = static_cast<const T *>(a.o.bias);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        parameter_vector<T, width> w, b;
        load_affine<true>(weight, bias, column(v), true, w, b);
        unpack<T>(data[v], values);
#pragma unroll
        for (int i = 0; i < width; ++i) values[i] -= s.shift;
        normalize<T, T, true, width>(values, s, w, b, a.weight_offset);
        store<16, of_warp>(y + column(v), pack<T, 16>(values));
    }
}

// ---- shared: a row of 16-bit elements in the shared memory of a block or a cluster --------------------------------------------

constexpr int shared_threads = 256, shared_blocks = 6; // of a block; of a multiprocessor

// Few registers, so that several blocks share a multiprocessor and some load while others store. Every thread reads the vectors that
// it copied itself. A warp takes the mean of the first vectors of its lanes, a quarter of its part or more, as the shift of its moments.
template <typename T, typename P, bool centered, bool clustered> __global__ void __launch_bounds__(shared_threads, shared_blocks)
    row_norm_shared(const __grid_constant__ row_norm_arguments<float> a) {
    if (clustered && !has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), batch = 4; // vectors that are under way from shared memory
    __shared__ float4 warp_moments[shared_threads / 32];  // and counts
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t rank = clustered ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = clustered ? (all > first ? min(all - first, a.slice_vectors) : 0) : all;
    const uint32_t row = clustered ? blockIdx.x / a.cluster : blockIdx.x;
    uint4 *const data = reinterpret_cast<uint4 *>(dynamic_shared);
    if constexpr (clustered) {
        exchange.initialize<!centered>(threadIdx.x);
        cluster_arrive();
    }

    // 1. The row comes to shared memory, and the moments of each warp's part of it.
    const uint64_t begin = uint64_t(first) * width;
    const T *const x = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2) + begin;
    const T *const residual = static_cast<const T *>(a.o.residual) + row_offset(row, a.p.residual, a.p.extent1, a.p.extent2) + begin;
    T *const h = static_cast<T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2) + begin;
    int pending = 0; // groups of copies
    for (uint32_t base = 0; base < count; base += batch * shared_threads, ++pending) {
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            const uint32_t k = base + j * shared_threads + threadIdx.x;
            if (k < count) copy_async<16>(data + k, x + k * width);
        }
        copy_commit();
    }
    const int quarter = int((count + batch * shared_threads - 1) / (batch * shared_threads)); // of a thread's vectors
    float shift = 0, sum[4] = {}, square[4] = {}, elements = 0;
    for (uint32_t base = 0; base < count; base += batch * shared_threads) {
        copy_wait_groups(--pending);
        packed<16> part[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            const uint32_t k = base + j * shared_threads + threadIdx.x;
            if (k < count) {
                part[j] = shared_vector(k);
                if (a.o.residual) {
                    part[j] = add_residual<T>(part[j], bops::load<16>(residual + k * width), h + k * width);
                    data[k] = make_uint4(part[j].word[0], part[j].word[1], part[j].word[2], part[j].word[3]);
                }
            }
        }
        if (centered && base == 0) {
            float first[width] = {}, elements = 0;
#pragma unroll
            for (int j = 0; j < batch; ++j)
                if (j < quarter && j * shared_threads + threadIdx.x < count) {
                    float values[width];
                    unpack<T>(part[j], values);
#pragma unroll
                    for (int v = 0; v < width; ++v) first[v] += values[v];
                    elements += width;
                }
            float mean[2] = {tree_sum(first), elements};
            warp_sum(mean, 32);
            shift = mean[1] > 0 ? mean[0] / mean[1] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (base + j * shared_threads + threadIdx.x < count) {
                float values[width];
                unpack<T>(part[j], values);
                if constexpr (centered) {
                    add_moments(values, shift, sum, square);
                } else {
#pragma unroll
                    for (int v = 0; v < width; ++v) square[v % 4] = fmaf(values[v], values[v], square[v % 4]);
                }
                elements += width;
            }
    }
    float sums[3] = {tree_sum(sum), tree_sum(square), elements};
    warp_sum(sums, 32);
    if (lane == 0) warp_moments[warp] = make_float4(shift, sums[0], sums[1], sums[2]);
    if constexpr (clustered) cluster_wait();
    __syncthreads();

    // 2. Those of the block, and of its cluster.
    const float4 of_warp = lane < shared_threads / 32 ? warp_moments[lane] : make_float4(0, 0, 0, 0);
    moments<float> total = merge_across<centered>({of_warp.x, of_warp.y, of_warp.z}, of_warp.w,
                                                  !clustered ? a.reciprocal_cols
                                                  : count    ? 1.0f / (float(count) * width)
                                                             : 0.0f);
    if constexpr (clustered) {
        exchange.send({total.shift, total.sum, total.square, 0}, 0, rank, a.cluster, threadIdx.x);
        total = merge_blocks<centered>(exchange.wait(0), all, width, a);
    }

    if constexpr (centered) total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself

    // 3. Statistics and output.
    const row_statistics<float> s = finish_statistics<centered>(total, a);
    if (threadIdx.x == 0 && rank == 0) save_statistics<centered>(s, a, row);
    T *const y = static_cast<T *>(a.o.y) + row_offset(row, a.p.y, a.p.extent1, a.p.extent2) + begin;
    const P *const weight = static_cast<const P *>(a.o.weight), *const bias = static_cast<const P *>(a.o.bias);
#pragma unroll(sizeof(P) == sizeof(T) ? 2 : 1)
    for (uint32_t i = threadIdx.x; i < count; i += shared_threads) {
        parameter_vector<P, width> w, b;
        load_affine<centered>(weight, bias, (first + i) * width, true, w, b);
        float values[width];
        unpack<T>(shared_vector(i), values);
        if constexpr (centered)
#pragma unroll
            for (int j = 0; j < width; ++j) values[j] -= s.shift;
        normalize<T, P, centered, width>(values, s, w, b, a.weight_offset);
        store(y + i * width, pack<T, 16>(values));
    }
}

// ---- split: chunks of rows --------------------------------------------------------------------------------------------------

constexpr int split_threads = 256, split_vectors = 4;

template <typename T, bool centered, int vec_bytes> __global__ void __launch_bounds__(split_threads)
    row_norm_split_moments(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    __shared__ __align__(16) A slots[4][team_slots];
    const row_team team;
    const uint64_t total = a.p.cols / width, items = a.p.rows * a.chunks;
    uint32_t turn = 0;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x, turn ^= 1) {
        const uint64_t row = item / a.chunks, first = (item - row * a.chunks) * (split_threads * split_vectors);
        const uint32_t count = uint32_t(min(total - first, uint64_t(split_threads * split_vectors)));
        const auto is_valid = [&](int v) { return v * split_threads + threadIdx.x < count; };
        const auto column = [&](int v) { return (first + v * split_threads + threadIdx.x) * width; };
        packed<vec_bytes> data[split_vectors];
        const T *const x = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) data[v] = is_valid(v) ? load<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        if (a.o.residual) {
            const T *const residual = static_cast<const T *>(a.o.residual) + row_offset(row, a.p.residual, a.p.extent1, a.p.extent2);
            T *const h = static_cast<T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2);
#pragma unroll
            for (int v = 0; v < split_vectors; ++v)
                if (is_valid(v)) data[v] = add_residual<T>(data[v], load<vec_bytes>(residual + column(v)), h + column(v));
        }
        moments<A> part;
        if constexpr (centered) {
            A mean[1] = {thread_sum<T, true>(data)};
            team_sum<false, false>(mean, team, slots);
            mean[0] /= A(count) * width;
            A sums[2];
            thread_moments<T>(data, mean[0], is_valid, sums);
            team_sum<false, false>(sums, team, slots + 1);
            part = {mean[0], sums[0], sums[1]};
        } else {
            A square[1] = {thread_sum<T, false>(data)};
            team_sum<false, false>(square, team, slots + turn);
            part = {A(0), A(0), square[0]};
        }
        if (threadIdx.x == 0) a.chunk_moments[item] = part;
    }
}

constexpr int merge_threads = 128;

template <typename A, bool centered> __global__ void __launch_bounds__(merge_threads)
    row_norm_split_merge(const __grid_constant__ row_norm_arguments<A> a, uint32_t chunk_cols) {
    __shared__ __align__(16) A slots[4][team_slots];
    const row_team team;
    for (uint64_t row = blockIdx.x; row < a.p.rows; row += gridDim.x) {
        const moments<A> *const chunk = a.chunk_moments + row * a.chunks;
        const uint64_t chunks = a.p.cols ? a.chunks : 0; // the moments of no columns are NaN
        const auto cols_of = [&](uint64_t c) { return A(min(a.p.cols - c * chunk_cols, uint64_t(chunk_cols))); };
        moments<A> total = {A(0), A(0), A(0)};
        if constexpr (centered) {
            cascade<A> means;
            for (uint64_t c = threadIdx.x; c < chunks; c += merge_threads) means.add(chunk[c].shift * cols_of(c));
            A mean[1] = {means.total()};
            team_sum<false, false>(mean, team, slots);
            total.shift = rounded_product(mean[0], a.reciprocal_cols);
        }
        cascade<A> sum, square;
        for (uint64_t c = threadIdx.x; c < chunks; c += merge_threads) {
            moments<A> part = {total.shift, A(0), A(0)};
            merge(part, chunk[c], cols_of(c));
            sum.add(part.sum);
            square.add(part.square);
        }
        A sums[2] = {sum.total(), square.total()};
        team_sum<false, false>(sums, team, slots + 1);
        if constexpr (!centered) __syncthreads(); // the next row reuses the slots
        if (threadIdx.x == 0) {
            const row_statistics<A> s = finish_statistics<centered>(moments<A>{total.shift, sums[0], sums[1]}, a);
            a.row_moments[row] = {s.shift, s.correction, s.rstd};
            save_statistics<centered>(s, a, row);
        }
    }
}

template <typename T, typename P, bool centered, int vec_bytes> __global__ void __launch_bounds__(split_threads)
    row_norm_split_apply(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    const uint64_t total = a.p.cols / width, items = a.p.rows * a.chunks;
    const P *const weight = static_cast<const P *>(a.o.weight), *const bias = static_cast<const P *>(a.o.bias);
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const uint64_t row = item / a.chunks, first = (item - row * a.chunks) * (split_threads * split_vectors);
        const uint32_t count = uint32_t(min(total - first, uint64_t(split_threads * split_vectors)));
        const auto is_valid = [&](int v) { return v * split_threads + threadIdx.x < count; };
        const auto column = [&](int v) { return (first + v * split_threads + threadIdx.x) * width; };
        const T *const x = a.o.residual ? static_cast<const T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2)
                                        : static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2);
        packed<vec_bytes> data[split_vectors];
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) data[v] = is_valid(v) ? load<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        const moments<A> m = a.row_moments[row];
        const row_statistics<A> s = {m.shift, m.sum, m.square};
        T *const y = static_cast<T *>(a.o.y) + row_offset(row, a.p.y, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) {
            if (is_valid(v)) {
                parameter_vector<P, width> w, b;
                load_affine<centered>(weight, bias, column(v), true, w, b);
                A values[width];
                unpack<T>(data[v], values);
                if constexpr (centered)
#pragma unroll
                    for (int i = 0; i < width; ++i) values[i] -= s.shift;
                normalize<T, P, centered, width>(values, s, w, b, a.weight_offset);
                store(y + column(v), pack<T, vec_bytes>(values));
            }
        }
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

// Defined in row_norm_ring.cuh.
template <typename T, bool centered, typename Action> bops_status for_ring_kernels(const bops_row_norm_params &p, const bops_row_norm_choice &c,
                                                                                   const row_norm_arguments<accumulator_t<T>> &a,
                                                                                   const Action &action);

// Runs action(kernel, shape, arguments...) for every kernel of the choice, in order; stops at the first failure.
template <typename T, typename P, bool centered, typename Action>
bops_status for_kernels(const bops_row_norm_params &p, const bops_row_norm_operands &o, const bops_row_norm_choice &c, void *workspace,
                        const Action &action) {
    using A = accumulator_t<T>;
    row_norm_arguments<A> a = {};
    a.p = p, a.o = o;
    // Of zero columns the mean is 0 and rstd NaN.
    a.eps = p.cols ? A(p.eps) : A(NAN), a.weight_offset = A(p.weight_offset);
    a.reciprocal_cols = p.cols ? A(1.0 / double(p.cols)) : A(0);
    a.cluster = c.cluster, a.chunks = c.chunks, a.overlaps = c.overlaps;
    launch_shape shape;
    const auto vectorized = [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value;
        constexpr int width = vec_bytes / int(sizeof(T));
        shape.grid = dim3(c.grid);
        if constexpr (sizeof(T) < 8) {
            a.slice_vectors = uint32_t((p.cols / width + c.cluster - 1) / c.cluster);
            shape.block = dim3(c.threads_per_row, c.cluster > 1 ? 1 : c.threads / c.threads_per_row);
            shape.cluster = c.cluster;
            shape.overlaps_previous = c.overlaps && c.variant != BOPS_ROW_NORM_SPLIT;
            if (c.variant == BOPS_ROW_NORM_RESIDENT) {
                constexpr bool wide = vec_bytes == 16; // narrower vectors have one form
                const bool whole = uint64_t(c.threads_per_row) * c.vectors * c.cluster * width == p.cols;
                const auto resident = [&](auto vectors) -> bops_status {
                    constexpr int n = decltype(vectors)::value;
                    constexpr bool has_whole = wide && n < 8; // of 8 vectors it would take more registers than half a multiprocessor
                    if constexpr (n == 8)
                        if (c.cluster > 1) return action(row_norm_resident<T, P, centered, vec_bytes, n, false, true>, shape, a);
                    if (c.cluster > 1) return bops_status(cudaErrorInvalidValue);
                    if constexpr (wide && n == 4 && sizeof(T) == 4 && !centered)
                        if (c.threads > row_threads_limit)
                            return whole ? action(row_norm_resident<T, P, centered, vec_bytes, n, true, false, many_threads>, shape, a)
                                         : bops_status(cudaErrorInvalidValue);
                    return has_whole && whole ? action(row_norm_resident<T, P, centered, vec_bytes, n, has_whole, false>, shape, a)
                                              : action(row_norm_resident<T, P, centered, vec_bytes, n, false, false>, shape, a);
                };
                if constexpr (wide) {
                    if (c.vectors == 2) return resident(std::integral_constant<int, 2>());
                    if (c.vectors == 4) return resident(std::integral_constant<int, 4>());
                    if constexpr (sizeof(T) == 4)
                        if (c.vectors == 8) return resident(std::integral_constant<int, 8>());
                } else {
                    if (c.vectors == 16) return resident(std::integral_constant<int, 16>());
                }
                return bops_status(cudaErrorInvalidValue);
            }
            if constexpr (vec_bytes == 16) {
                if constexpr (sizeof(T) == 2 && centered && std::is_same_v<T, P>)
                    if (c.variant == BOPS_ROW_NORM_PACKED) {
                        if (c.threads_per_row > 32) return action(row_norm_packed<T, packed_vectors, false>, shape, a);
                        if (c.vectors == 3) return action(row_norm_packed<T, 3, true>, shape, a);
                        if (c.vectors == 4) return action(row_norm_packed<T, 4, true>, shape, a);
                        if (c.vectors == 5) return action(row_norm_packed<T, 5, true>, shape, a);
                        if (c.vectors == 6) return action(row_norm_packed<T, 6, true>, shape, a);
                        if (c.vectors == 7) return action(row_norm_packed<T, 7, true>, shape, a);
                        if (c.vectors == 8) return action(row_norm_packed<T, 8, true>, shape, a);
                        return bops_status(cudaErrorInvalidValue);
                    }
                if constexpr (sizeof(T) == 2)
                    if (c.variant == BOPS_ROW_NORM_SHARED) {
                        shape.block = dim3(shared_threads);
                        shape.shared_bytes = a.slice_vectors * 16;
                        return c.cluster > 1 ? action(row_norm_shared<T, P, centered, true>, shape, a)
                                             : action(row_norm_shared<T, P, centered, false>, shape, a);
                    }
                if (c.variant == BOPS_ROW_NORM_RING) {
                    if constexpr (std::is_same_v<T, P>) return for_ring_kernels<T, centered>(p, c, a, action);
                    else return bops_status(cudaErrorInvalidValue);
                }
            }
        }
        a.chunk_moments = static_cast<moments<A> *>(workspace);
        a.row_moments = a.chunk_moments + p.rows * c.chunks;
        shape.block = dim3(split_threads);
        bops_status status = action(row_norm_split_moments<T, centered, vec_bytes>, shape, a);
        if (status) return status;
        launch_shape merge_shape;
        merge_shape.grid = dim3(uint32_t(p.rows < c.grid ? p.rows : c.grid)), merge_shape.block = dim3(merge_threads);
        status = action(row_norm_split_merge<A, centered>, merge_shape, a, uint32_t(split_threads * split_vectors * width));
        if (status) return status;
        return action(row_norm_split_apply<T, P, centered, vec_bytes>, shape, a);
    };
    if constexpr (sizeof(T) == 8) return vectorized(std::integral_constant<int, 8>());
    else {
        if (c.vec_bytes == 16) return vectorized(std::integral_constant<int, 16>());
        if (c.vec_bytes == 4) return vectorized(std::integral_constant<int, 4>());
        if constexpr (sizeof(T) == 2) return vectorized(std::integral_constant<int, 2>());
        else return bops_status(cudaErrorInvalidValue);
    }
}

template <bool centered, typename Action> bops_status for_row_norm_kernels(const bops_row_norm_params &p, const bops_row_norm_operands &o,
                                                                           const bops_row_norm_choice &c, bops_dtype dtype, bops_dtype weight_dtype,
                                                                           void *workspace, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (weight_dtype == dtype) return for_kernels<T, T, centered>(p, o, c, workspace, action);
        return for_kernels<T, float, centered>(p, o, c, workspace, action);
    });
}

} // namespace bops

#include "row_norm_ring.cuh"
