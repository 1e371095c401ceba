// LayerNorm and RMSNorm forward of any rows, in three launches: moments of chunks of rows, their merge, the output.
#include "row_norm.cuh"
#include "row_norm_split.cuh"

namespace bops {

// Sums of x - shift and of their squares over the valid vectors of a thread.
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

// 1. The moments of each chunk of a row; h, if there is a residual.
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
        const T *const x = row_of<const T>(a, a.o.x, row, a.p.x);
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) data[v] = is_valid(v) ? load<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        if (a.o.residual) {
            const T *const residual = row_of<const T>(a, a.o.residual, row, a.p.residual);
            T *const h = row_of<T>(a, a.o.h, row, a.p.h);
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

// 2. A block merges the chunks of a row to its statistics. chunk_cols: columns of a chunk that is not the last.
template <typename A, bool centered> __global__ void __launch_bounds__(merge_threads)
    row_norm_split_merge(const __grid_constant__ row_norm_arguments<A> a, uint32_t chunk_cols) {
    __shared__ __align__(16) A slots[4][team_slots];
    const row_team team;
    for (uint64_t row = blockIdx.x; row < a.p.rows; row += gridDim.x) {
        const moments<A> *const chunk = a.chunk_moments + row * a.chunks;
        const uint64_t chunks = a.p.cols ? a.chunks : 0; // without columns, the moments of the row's one chunk are NaN
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
        if constexpr (!centered) __syncthreads(); // before the next row writes the slots
        if (threadIdx.x == 0) {
            const row_statistics<A> s = finish_statistics<centered>(moments<A>{total.shift, sums[0], sums[1]}, a);
            a.statistics[row] = {s.shift, s.correction, s.rstd};
            save_statistics<centered>(s, a, row);
        }
    }
}

// 3. The output of each chunk.
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
        const T *const x = a.o.residual ? row_of<const T>(a, a.o.h, row, a.p.h) : row_of<const T>(a, a.o.x, row, a.p.x);
        packed<vec_bytes> data[split_vectors];
#pragma unroll
        for (int v = 0; v < split_vectors; ++v) data[v] = is_valid(v) ? load<vec_bytes>(x + column(v)) : packed<vec_bytes>{};
        const row_statistics<A> s = a.statistics[row];
        T *const y = row_of<T>(a, a.o.y, row, a.p.y);
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

template <typename Action> bops_status for_row_norm_split(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                          const bops_row_norm_split_choice &c, const bops_row_norm_operands &o, void *workspace,
                                                          const Action &action) {
    return for_norm(of, [&](auto element, auto is_centered) {
        using T = typename decltype(element)::type;
        using A = accumulator_t<T>;
        constexpr bool centered = is_centered;
        return for_access<T>(c.vec_bytes, [&](auto bytes) -> bops_status {
            constexpr int vec_bytes = bytes, width = vec_bytes / int(sizeof(T));
            auto a = row_norm_arguments_of<A>(p, o);
            a.chunks = c.chunks;
            a.chunk_moments = static_cast<moments<A> *>(workspace);
            a.statistics = reinterpret_cast<row_statistics<A> *>(a.chunk_moments + p.rows * c.chunks);
            launch_shape shape, merge_shape;
            shape.grid = dim3(c.grid), shape.block = dim3(split_threads);
            merge_shape.grid = dim3(uint32_t(p.rows < c.grid ? p.rows : c.grid)), merge_shape.block = dim3(merge_threads);
            bops_status status = action(row_norm_split_moments<T, centered, vec_bytes>, shape, a);
            if (!status) status = action(row_norm_split_merge<A, centered>, merge_shape, a, uint32_t(split_threads * split_vectors * width));
            if (status) return status;
            return for_parameters<T>(of, [&](auto parameter) {
                return action(row_norm_split_apply<T, typename decltype(parameter)::type, centered, vec_bytes>, shape, a);
            });
        });
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(split, )
