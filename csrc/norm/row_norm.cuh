// LayerNorm and RMSNorm forward over rows.
#pragma once
#include "../common/launch.cuh"
#include "../common/row_reduce.cuh"

namespace bops {

template <typename A> struct row_norm_arguments {
    bops_row_norm_params p;
    bops_row_norm_operands o;
    A eps, weight_offset, reciprocal_cols;
    uint32_t cluster, slice_vectors; // vectors of a row that one block of its cluster holds
    uint32_t chunks;
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

// Sums of a thread's elements; a chain per element position of the vector, then a tree.
template <int count, typename A> __device__ __forceinline__ A tree_sum(A (&v)[count]) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) v[i] += v[i + half];
    return v[0];
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
        if (is_valid(v)) {
#pragma unroll
            for (int i = 0; i < width; ++i) {
                const A d = x[i] - shift;
                sum[i] += d;
                square[i] = fma(d, d, square[i]);
            }
        }
    }
    sums[0] = tree_sum(sum);
    sums[1] = tree_sum(square);
}

template <typename T, typename P, bool centered, int width>
__device__ __forceinline__ void normalize(accumulator_t<T> (&x)[width], const row_statistics<accumulator_t<T>> &s, bool has_weight, bool has_bias,
                                          const parameter_vector<P, width> &weight, const parameter_vector<P, width> &bias,
                                          accumulator_t<T> weight_offset) {
    using A = accumulator_t<T>;
    const A shifted = -s.correction * s.rstd;
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = centered ? fma(x[i] - s.shift, s.rstd, shifted) : x[i] * s.rstd;
    if (has_weight) {
        A w[width];
        weight.get(w);
        if (!centered) {
#pragma unroll
            for (int i = 0; i < width; ++i) w[i] += weight_offset;
        }
        if (centered && has_bias) {
            A b[width];
            bias.get(b);
#pragma unroll
            for (int i = 0; i < width; ++i) x[i] = fma(x[i], w[i], b[i]);
        } else {
#pragma unroll
            for (int i = 0; i < width; ++i) x[i] *= w[i];
        }
    } else if (centered && has_bias) {
        A b[width];
        bias.get(b);
#pragma unroll
        for (int i = 0; i < width; ++i) x[i] += b[i];
    }
}

// x, or h = x + residual rounded to T, which is also stored.
template <typename T, int vec_bytes>
__device__ __forceinline__ packed<vec_bytes> add_residual(const packed<vec_bytes> &x, const void *residual, void *h) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    A sum[width], r[width];
    unpack<T>(x, sum);
    unpack<T>(load_streamed<vec_bytes>(residual), r);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += r[i];
    const packed<vec_bytes> rounded = pack<T, vec_bytes>(sum);
    store_streamed(h, rounded);
    return rounded;
}

// ---- resident: a row in the registers of a team, a block or a cluster -------------------------------------------------------

constexpr int resident_threads(int vec_bytes, int vectors) { return 512; }

template <typename T, typename P, bool centered, int vec_bytes, int vectors>
__global__ void __launch_bounds__(resident_threads(vec_bytes, vectors)) row_norm_resident(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    constexpr bool prefetch = vectors * width * int(sizeof(P)) <= 32; // parameters fit in registers beside the row
    __shared__ __align__(16) A slots[4][team_slots];
    __shared__ A gathered[2][3][max_cluster];
    const row_team team;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0;
    const uint32_t total = uint32_t(a.p.cols / width), first = rank * a.slice_vectors;
    const uint32_t count = total > first ? min(total - first, a.slice_vectors) : 0;
    const uint64_t teams = gridDim.x / a.cluster;
    const P *const weight = static_cast<const P *>(a.o.weight), *const bias = static_cast<const P *>(a.o.bias);
    if (a.cluster > 1) cluster_arrive();

    uint32_t turn = 0;
    for (uint64_t base = uint64_t(blockIdx.x / a.cluster) * blockDim.y; base < a.p.rows; base += teams * blockDim.y, turn ^= 1) {
        const uint64_t row = base + threadIdx.y;
        const uint32_t row_count = row < a.p.rows ? count : 0;
        const auto is_valid = [&](int v) { return v * team.threads + threadIdx.x < row_count; };
        const auto column = [&](int v) { return uint64_t(first + v * team.threads + threadIdx.x) * width; };

        // 1. The row, packed, in registers.
        packed<vec_bytes> data[vectors];
        const T *const x = static_cast<const T *>(a.o.x) + row_offset(row, a.p.x, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < vectors; ++v) data[v] = is_valid(v) ? load_streamed<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        parameter_vector<P, width> weights[prefetch ? vectors : 1], biases[prefetch ? vectors : 1];
        if constexpr (prefetch) {
#pragma unroll
            for (int v = 0; v < vectors; ++v) {
                if (is_valid(v) && weight) weights[v].load(weight + column(v));
                if (centered && is_valid(v) && bias) biases[v].load(bias + column(v));
            }
        }
        if (a.o.residual) {
            const T *const residual = static_cast<const T *>(a.o.residual) + row_offset(row, a.p.residual, a.p.extent1, a.p.extent2);
            T *const h = static_cast<T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2);
#pragma unroll
            for (int v = 0; v < vectors; ++v)
                if (is_valid(v)) data[v] = add_residual<T>(data[v], residual + column(v), h + column(v));
        }

        // 2. Its moments.
        moments<A> row_total;
        if constexpr (centered) {
            A mean[1] = {thread_sum<T, true>(data)};
            team_sum(mean, team, slots);
            const A block_count = A(count) * width;
            mean[0] = a.cluster == 1 ? mean[0] * a.reciprocal_cols : count ? mean[0] / block_count : A(0);
            A sums[2];
            thread_moments<T>(data, mean[0], is_valid, sums);
            team_sum(sums, team, slots + 1);
            row_total = {mean[0], sums[0], sums[1]};
        } else {
            A square[1] = {thread_sum<T, false>(data)};
            team_sum(square, team, slots + turn);
            row_total = {A(0), A(0), square[0]};
        }
        if constexpr (std::is_same_v<A, float>) {
            if (a.cluster > 1) {
                if (base == uint64_t(blockIdx.x / a.cluster) * blockDim.y) cluster_wait();
                if constexpr (centered) {
                    const float mine[3] = {row_total.shift, row_total.sum, row_total.square};
                    cluster_gather(mine, gathered[turn], rank, a.cluster);
                    const auto block_count = [&](uint32_t b) {
                        return float(total > b * a.slice_vectors ? min(total - b * a.slice_vectors, a.slice_vectors) : 0) * width;
                    };
                    row_total = {0, 0, 0};
                    for (uint32_t b = 0; b < a.cluster; ++b) row_total.shift += gathered[turn][0][b] * block_count(b);
                    row_total.shift *= a.reciprocal_cols;
                    for (uint32_t b = 0; b < a.cluster; ++b)
                        merge(row_total, {gathered[turn][0][b], gathered[turn][1][b], gathered[turn][2][b]}, block_count(b));
                } else {
                    const float mine[1] = {row_total.square};
                    cluster_gather(mine, gathered[turn], rank, a.cluster);
                    row_total.square = 0;
                    for (uint32_t b = 0; b < a.cluster; ++b) row_total.square += gathered[turn][0][b];
                }
            }
        }

        // 3. Statistics and output.
        const row_statistics<A> s = finish_statistics<centered>(row_total, a);
        if (threadIdx.x == 0 && rank == 0 && row < a.p.rows) save_statistics<centered>(s, a, row);
        T *const y = static_cast<T *>(a.o.y) + row_offset(row, a.p.y, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            if (is_valid(v)) {
                parameter_vector<P, width> &w = weights[prefetch ? v : 0], &b = biases[prefetch ? v : 0];
                if constexpr (!prefetch) {
                    if (weight) w.load(weight + column(v));
                    if (centered && bias) b.load(bias + column(v));
                }
                A values[width];
                unpack<T>(data[v], values);
                normalize<T, P, centered>(values, s, weight, bias, w, b, a.weight_offset);
                store_streamed(y + column(v), pack<T, vec_bytes>(values));
            }
        }
    }
}

// ---- split: chunks of rows --------------------------------------------------------------------------------------------------

constexpr int split_threads = 256, split_vectors = 4;

template <typename T, bool centered, int vec_bytes>
__global__ void __launch_bounds__(split_threads) row_norm_split_moments(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
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
        for (int v = 0; v < split_vectors; ++v) data[v] = is_valid(v) ? load_streamed<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        if (a.o.residual) {
            const T *const residual = static_cast<const T *>(a.o.residual) + row_offset(row, a.p.residual, a.p.extent1, a.p.extent2);
            T *const h = static_cast<T *>(a.o.h) + row_offset(row, a.p.h, a.p.extent1, a.p.extent2);
#pragma unroll
            for (int v = 0; v < split_vectors; ++v)
                if (is_valid(v)) data[v] = add_residual<T>(data[v], residual + column(v), h + column(v));
        }
        moments<A> part;
        if constexpr (centered) {
            A mean[1] = {thread_sum<T, true>(data)};
            team_sum(mean, team, slots);
            mean[0] /= A(count) * width;
            A sums[2];
            thread_moments<T>(data, mean[0], is_valid, sums);
            team_sum(sums, team, slots + 1);
            part = {mean[0], sums[0], sums[1]};
        } else {
            A square[1] = {thread_sum<T, false>(data)};
            team_sum(square, team, slots + turn);
            part = {A(0), A(0), square[0]};
        }
        if (threadIdx.x == 0) a.chunk_moments[item] = part;
    }
}

constexpr int merge_threads = 128;

// Adds a long list in chains of at most `chain` additions a level.
template <typename A> struct cascade {
    static constexpr uint32_t chain = 8;
    A level[4] = {};
    uint32_t added = 0;
    __device__ __forceinline__ void add(A v) {
        level[0] += v;
        if (++added % chain == 0) {
            level[1] += level[0], level[0] = 0;
            if (added % (chain * chain) == 0) {
                level[2] += level[1], level[1] = 0;
                if (added % (chain * chain * chain) == 0) level[3] += level[2], level[2] = 0;
            }
        }
    }
    __device__ __forceinline__ A total() const { return (level[0] + level[1]) + (level[2] + level[3]); }
};

template <typename A, bool centered>
__global__ void __launch_bounds__(merge_threads) row_norm_split_merge(const __grid_constant__ row_norm_arguments<A> a, uint32_t chunk_cols) {
    __shared__ __align__(16) A slots[4][team_slots];
    const row_team team;
    for (uint64_t row = blockIdx.x; row < a.p.rows; row += gridDim.x) {
        const moments<A> *const chunk = a.chunk_moments + row * a.chunks;
        const auto cols_of = [&](uint64_t c) { return A(min(a.p.cols - c * chunk_cols, uint64_t(chunk_cols))); };
        moments<A> total = {A(0), A(0), A(0)};
        if constexpr (centered) {
            cascade<A> means;
            for (uint64_t c = threadIdx.x; c < a.chunks; c += merge_threads) means.add(chunk[c].shift * cols_of(c));
            A mean[1] = {means.total()};
            team_sum(mean, team, slots);
            total.shift = mean[0] * a.reciprocal_cols;
        }
        cascade<A> sum, square;
        for (uint64_t c = threadIdx.x; c < a.chunks; c += merge_threads) {
            moments<A> part = {total.shift, A(0), A(0)};
            merge(part, chunk[c], cols_of(c));
            sum.add(part.sum);
            square.add(part.square);
        }
        A sums[2] = {sum.total(), square.total()};
        team_sum(sums, team, slots + 1);
        if constexpr (!centered) __syncthreads(); // the next row reuses the slots
        if (threadIdx.x == 0) {
            const row_statistics<A> s = finish_statistics<centered>(moments<A>{total.shift, sums[0], sums[1]}, a);
            a.row_moments[row] = {s.shift, s.correction, s.rstd};
            save_statistics<centered>(s, a, row);
        }
    }
}

template <typename T, typename P, bool centered, int vec_bytes>
__global__ void __launch_bounds__(split_threads) row_norm_split_apply(const __grid_constant__ row_norm_arguments<accumulator_t<T>> a) {
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
        for (int v = 0; v < split_vectors; ++v) data[v] = is_valid(v) ? load_streamed<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        const moments<A> m = a.row_moments[row];
        const row_statistics<A> s = {m.shift, m.sum, m.square};
        T *const y = static_cast<T *>(a.o.y) + row_offset(row, a.p.y, a.p.extent1, a.p.extent2);
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) {
            if (is_valid(v)) {
                parameter_vector<P, width> w, b;
                if (weight) w.load(weight + column(v));
                if (centered && bias) b.load(bias + column(v));
                A values[width];
                unpack<T>(data[v], values);
                normalize<T, P, centered>(values, s, weight, bias, w, b, a.weight_offset);
                store_streamed(y + column(v), pack<T, vec_bytes>(values));
            }
        }
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

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
    a.cluster = c.cluster, a.chunks = c.chunks;
    launch_shape shape;
    const auto vectorized = [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value;
        constexpr int width = vec_bytes / int(sizeof(T));
        if (c.variant == BOPS_ROW_NORM_RESIDENT) {
            if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
            else {
                a.slice_vectors = uint32_t((p.cols / width + c.cluster - 1) / c.cluster);
                shape.grid = dim3(c.grid);
                shape.block = dim3(c.threads_per_row, c.threads / c.threads_per_row);
                shape.cluster = c.cluster;
                if constexpr (vec_bytes == 16) {
                    switch (c.vectors) {
                    case 1: return action(row_norm_resident<T, P, centered, 16, 1>, shape, a);
                    case 2: return action(row_norm_resident<T, P, centered, 16, 2>, shape, a);
                    case 4: return action(row_norm_resident<T, P, centered, 16, 4>, shape, a);
                    case 8: return action(row_norm_resident<T, P, centered, 16, 8>, shape, a);
                    default: return bops_status(cudaErrorInvalidValue);
                    }
                } else {
                    return action(row_norm_resident<T, P, centered, vec_bytes, 16>, shape, a);
                }
            }
        }
        a.chunk_moments = static_cast<moments<A> *>(workspace);
        a.row_moments = a.chunk_moments + p.rows * c.chunks;
        shape.grid = dim3(c.grid), shape.block = dim3(split_threads);
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

template <bool centered, typename Action>
bops_status for_row_norm_kernels(const bops_row_norm_params &p, const bops_row_norm_operands &o, const bops_row_norm_choice &c, bops_dtype dtype,
                                 bops_dtype weight_dtype, void *workspace, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (weight_dtype == dtype) return for_kernels<T, T, centered>(p, o, c, workspace, action);
        return for_kernels<T, float, centered>(p, o, c, workspace, action);
    });
}

struct prepare_action {
    template <typename... P, typename... Q> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const Q &...) const {
        return prepare(kernel, shape);
    }
};

struct launch_action {
    bops_stream stream;
    template <typename... P> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const std::remove_cv_t<P> &...arguments) const {
        return launch(kernel, shape, stream, arguments...);
    }
};

} // namespace bops
