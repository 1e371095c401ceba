// Gradients of softmax and log-softmax, from y and dy. The sections are the forms, as in softmax.cu.
#include "softmax.cuh"

namespace bops {
namespace {

// Kernels compute with elements of type T, which y and dy have; those of dx may be narrower, of type Out.

// exp(y), for log-softmax.
template <typename T> __device__ __forceinline__ accumulator_t<T> exponential_of(accumulator_t<T> y, const exponential<T> &e) {
    if constexpr (sizeof(T) == 2) return power_of_two(y * e.scale.log2_high);
    else return e.of_difference(y);
}

// Vectors that a function finds: [v] is at(v).
template <typename At> struct vectors_at {
    At at;
    __device__ __forceinline__ auto operator[](int v) const { return at(v); }
};
template <typename At> vectors_at(At) -> vectors_at<At>;

// Adds to `sums` the terms of some vectors: dy * y, for log-softmax dy. Vectors that lie outside hold zeros.
template <typename T, int vec_bytes, int vectors, typename Y, typename Dy>
__device__ __forceinline__ void add_terms(const Y &y, const Dy &dy, bool is_log, accumulator_t<T> (&sums)[vec_bytes / sizeof(T)]) {
    constexpr int width = vec_bytes / int(sizeof(T));
    accumulator_t<T> p[width], q[width];
    if (is_log) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            unpack<T>(dy[v], q);
#pragma unroll
            for (int i = 0; i < width; ++i) sums[i] += q[i];
        }
    } else {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            unpack<T>(y[v], p);
            unpack<T>(dy[v], q);
#pragma unroll
            for (int i = 0; i < width; ++i) sums[i] = fma(p[i], q[i], sums[i]);
        }
    }
}

// Stores the dx of vector v at to(v), if is_there(v). sum_of(i): the sum of the line that element i of a vector belongs to.
template <typename T, int vec_bytes, int vectors, bool streamed = true, typename Y, typename Dy, typename There, typename Sum, typename To>
__device__ __forceinline__ void finish(const Y &y, const Dy &dy, const softmax_arguments<accumulator_t<T>> &a, const There &is_there,
                                       const Sum &sum_of, const To &to) {
    using Out = std::remove_pointer_t<decltype(to(0))>;
    constexpr int width = vec_bytes / int(sizeof(T)), out_bytes = width * int(sizeof(Out));
    accumulator_t<T> p[width], q[width];
    if (a.is_log) {
        const exponential<T> e = {a.scale};
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            unpack<T>(y[v], p);
            unpack<T>(dy[v], q);
#pragma unroll
            for (int i = 0; i < width; ++i) q[i] = a.signed_scale * fma(-exponential_of<T>(p[i], e), sum_of(i), q[i]);
            if (is_there(v)) store<out_bytes, streamed>(to(v), pack<Out, out_bytes>(q));
        }
    } else {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            unpack<T>(y[v], p);
            unpack<T>(dy[v], q);
#pragma unroll
            for (int i = 0; i < width; ++i) q[i] = a.signed_scale * p[i] * (q[i] - sum_of(i));
            if (is_there(v)) store<out_bytes, streamed>(to(v), pack<Out, out_bytes>(q));
        }
    }
}

// ---- rows resident: a row in registers --------------------------------------------------------------------------------------

// blockDim = (threads of a row, rows); in a cluster, which holds one row, (threads, 1). whole: every vector of every thread lies inside its row.
template <typename T, int vec_bytes, int vectors, bool whole, bool clustered, typename Out> __global__ void __launch_bounds__(softmax_threads_limit)
    softmax_backward_rows_resident(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    if (clustered && !has_sm_90) return;
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    constexpr bool streamed = vectors > 2;           // short or few rows stay cached for the kernel that follows
    __shared__ __align__(16) A slots[1][team_slots]; // [sum][warp]
    __shared__ cluster_exchange exchange;
    if (a.overlaps) follow_previous();
    const row_team team;
    const uint32_t rank = clustered ? cluster_rank() : 0, all = uint32_t(a.dim) / width, first = rank * a.slice_vectors;
    const uint32_t row = clustered ? blockIdx.x : blockIdx.x * blockDim.y + threadIdx.y;
    const bool has_row = row < a.outer;
    const uint32_t count = clustered ? (all > first ? min(all - first, a.slice_vectors) : 0) : all;
    if constexpr (clustered) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    const auto is_column = [&](int v) { return whole || team.position<vectors>(v) < count; };
    const auto column = [&](int v) { return (first + team.position<vectors>(v)) * width; };

    // 1. The row in registers.
    packed<vec_bytes> y[vectors], dy[vectors];
    const auto load_row = [](const T *from) {
        if constexpr (vec_bytes == 16 && vectors <= 4 && !clustered) return load_kept(from);
        else return load<vec_bytes, streamed>(from);
    };
    const T *const y_row = static_cast<const T *>(a.in[0]) + row_offset(row, a.strides[0], a.extent1, a.extent2);
    const T *const dy_row = static_cast<const T *>(a.in[1]) + row_offset(row, a.strides[1], a.extent1, a.extent2);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        y[v] = {};
        if (has_row && is_column(v)) y[v] = load_row(y_row + column(v));
    }
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        dy[v] = {};
        if (has_row && is_column(v)) dy[v] = load_row(dy_row + column(v));
    }
    if constexpr (clustered) cluster_wait();

    // 2. Its sum.
    A sums[width] = {};
    add_terms<T, vec_bytes, vectors>(y, dy, a.is_log, sums);
    A sum[1] = {tree_sum(sums)};
    team_sum<false, true>(sum, team, slots);
    if constexpr (clustered) {
        exchange.send({sum[0], 0, 0, 0}, 0, rank, a.cluster, threadIdx.x);
        const float(*const blocks)[4] = exchange.wait(0);
        sum[0] = team.lane % 16 < a.cluster ? blocks[team.lane % 16][0] : 0.0f;
        warp_sum(sum, 16);
    }

    // 3. Its gradient.
    if (vectors > 2) keep_packed<T>(y), keep_packed<T>(dy);
    Out *const dx = static_cast<Out *>(a.out) + row_offset(row, a.strides[2], a.extent1, a.extent2);
    finish<T, vec_bytes, vectors, streamed>(
        y, dy, a, [&](int v) { return has_row && is_column(v); }, [&](int) { return sum[0]; }, [&](int v) { return dx + column(v); });
}

// ---- rows shared: a row half in registers, half in the shared memory of a cluster ------------------------------------------------

// y lies in shared memory and dy in registers, so that two blocks of the longest rows share an SM. A thread reads back only the vectors that it
// copied, so that its own wait for the copies suffices.
template <typename T, int vectors, typename Out> __global__ void __launch_bounds__(softmax_threads_limit, 2)
    softmax_backward_rows_shared(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ __align__(16) float slots[1][team_slots]; // [sum][warp]
    __shared__ cluster_exchange exchange;
    const row_team team;
    const uint32_t rank = cluster_rank(), all = uint32_t(a.dim) / width, first = rank * a.slice_vectors, row = blockIdx.x;
    const uint32_t count = all > first ? min(all - first, a.slice_vectors) : 0;
    uint4 *const staged = reinterpret_cast<uint4 *>(dynamic_shared);
    const auto is_column = [&](int v) { return v * blockDim.x + threadIdx.x < count; };
    const auto vector = [&](int v) -> packed<16> {
        if (!is_column(v)) return {};
        const uint4 value = staged[v * blockDim.x + threadIdx.x];
        return {{value.x, value.y, value.z, value.w}};
    };
    const auto column = [&](int v) { return (first + v * blockDim.x + threadIdx.x) * width; };
    exchange.initialize(threadIdx.x);
    cluster_arrive();

    // 1. The row in registers and shared memory.
    const T *const y_row = static_cast<const T *>(a.in[0]) + row_offset(row, a.strides[0], a.extent1, a.extent2);
    const T *const dy_row = static_cast<const T *>(a.in[1]) + row_offset(row, a.strides[1], a.extent1, a.extent2);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_column(v)) copy_async<16>(staged + v * blockDim.x + threadIdx.x, y_row + column(v));
    copy_commit();
    packed<16> dy[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        dy[v] = {};
        if (is_column(v)) dy[v] = load<16>(dy_row + column(v));
    }
    cluster_wait();
    copy_wait(0);

    // 2. Its sum.
    float sums[width] = {};
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        const packed<16> one_y[1] = {vector(v)}, one_dy[1] = {dy[v]};
        add_terms<T, 16, 1>(one_y, one_dy, a.is_log, sums);
    }
    float sum[1] = {tree_sum(sums)};
    team_sum<false, false>(sum, team, slots);
    exchange.send({sum[0], 0, 0, 0}, 0, rank, a.cluster, threadIdx.x);
    const float(*const blocks)[4] = exchange.wait(0);
    sum[0] = team.lane % 16 < a.cluster ? blocks[team.lane % 16][0] : 0.0f;
    warp_sum(sum, 16);

    // 3. Its gradient.
    Out *const dx = static_cast<Out *>(a.out) + row_offset(row, a.strides[2], a.extent1, a.extent2);
    keep_packed<T>(dy);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        const packed<16> one_y[1] = {vector(v)}, one_dy[1] = {dy[v]};
        finish<T, 16, 1>(
            one_y, one_dy, a, [&](int) { return is_column(v); }, [&](int) { return sum[0]; }, [&](int) { return dx + column(v); });
    }
}

// ---- rows split: three kernels over chunks of rows ----------------------------------------------------------------------------

template <typename T, int vec_bytes> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_backward_rows_split_parts(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    __shared__ __align__(16) A slots[2][team_slots]; // [turn % 2][warp]
    const row_team team;
    const uint64_t items = a.outer * a.chunks;
    uint32_t turn = 0;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x, turn ^= 1) {
        const row_chunk<T, vec_bytes> chunk(item, a.dim, a.chunks);
        packed<vec_bytes> y[softmax_split_vectors], dy[softmax_split_vectors];
        chunk.load(y, a, 0);
        chunk.load(dy, a, 1);
        A sums[width] = {};
        add_terms<T, vec_bytes, softmax_split_vectors>(y, dy, a.is_log, sums);
        A sum[1] = {tree_sum(sums)};
        team_sum<false, false>(sum, team, slots + turn);
        if (threadIdx.x == 0) a.parts[item] = sum[0];
    }
}

template <typename A> __global__ void __launch_bounds__(softmax_merge_threads)
    softmax_backward_rows_split_merge(const __grid_constant__ softmax_arguments<A> a) {
    __shared__ __align__(16) A slots[2][team_slots]; // [turn % 2][warp]
    const row_team team;
    uint32_t turn = 0;
    for (uint64_t row = blockIdx.x; row < a.outer; row += gridDim.x, turn ^= 1) {
        cascade<A> total;
        for (uint32_t c = threadIdx.x; c < a.chunks; c += softmax_merge_threads) total.add(a.parts[row * a.chunks + c]);
        A sum[1] = {total.total()};
        team_sum<false, false>(sum, team, slots + turn);
        if (threadIdx.x == 0) a.totals[row] = sum[0];
    }
}

template <typename T, int vec_bytes, typename Out> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_backward_rows_split_apply(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    const uint64_t items = a.outer * a.chunks;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const row_chunk<T, vec_bytes> chunk(item, a.dim, a.chunks);
        packed<vec_bytes> y[softmax_split_vectors], dy[softmax_split_vectors];
        chunk.load(y, a, 0);
        chunk.load(dy, a, 1);
        const auto sum = a.totals[chunk.row];
        Out *const dx = static_cast<Out *>(a.out) + row_offset(uint32_t(chunk.row), a.strides[2], a.extent1, a.extent2);
        finish<T, vec_bytes, softmax_split_vectors>(
            y, dy, a, [&](int v) { return chunk.has(v); }, [&](int) { return sum; }, [&](int v) { return dx + chunk.column(v); });
    }
}

// ---- channels resident: lines in the registers of a block ----------------------------------------------------------------------

// Threads of the largest block whose threads hold so many vectors, and the least number of those blocks that an SM is to have room for: both bound
// the registers of a thread. Three blocks of 256 leave it 80, of which 4 vectors of y and of dy take 32; 512 threads leave it 128, of which 8 vectors
// take 64.
template <int vec_bytes, int vectors> struct channel_bounds {
    static constexpr int threads = vec_bytes < 16 || vectors == 8 ? 512 : 256;
    static constexpr int blocks = vec_bytes == 16 && vectors == 4 ? 3 : 1;
};

template <typename T, int vec_bytes, int vectors, typename Out>
__global__ void __launch_bounds__(channel_bounds<vec_bytes, vectors>::threads, channel_bounds<vec_bytes, vectors>::blocks)
    softmax_backward_channels_resident(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    if (a.overlaps) follow_previous();
    const uint32_t inner_vectors = uint32_t(a.inner / width), columns = uint32_t(a.outer) * inner_vectors;
    const uint32_t along = blockDim.x / a.across, position = threadIdx.x / a.across;
    const uint32_t column = blockIdx.x * a.across + threadIdx.x % a.across;
    const bool has_column = column < columns;
    const channel_column at(has_column ? column : 0, inner_vectors);
    const auto is_element = [&](int v) { return has_column && v * along + position < a.dim; };
    const auto offset = [&](int tensor) {
        return row_offset(at.block, a.strides[tensor], a.extent1, a.extent2) + uint64_t(at.vector) * width + position * a.steps[tensor];
    };

    // 1. The lines in registers.
    packed<vec_bytes> y[vectors], dy[vectors];
    const T *const y_line = static_cast<const T *>(a.in[0]) + offset(0), *const dy_line = static_cast<const T *>(a.in[1]) + offset(1);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        y[v] = dy[v] = {};
        if (is_element(v)) {
            y[v] = load<vec_bytes>(y_line + uint64_t(v * along) * a.steps[0]);
            dy[v] = load<vec_bytes>(dy_line + uint64_t(v * along) * a.steps[1]);
        }
    }

    // 2. Their sums.
    A sum[width] = {};
    add_terms<T, vec_bytes, vectors>(y, dy, a.is_log, sum);
    if (along > 1) sum_channels<1, 4>(sum, a.across, reinterpret_cast<value_group<width, A> *>(dynamic_shared));

    // 3. Their gradient.
    if (vectors > 2) keep_packed<T>(y), keep_packed<T>(dy);
    Out *const dx = static_cast<Out *>(a.out) + offset(2);
    finish<T, vec_bytes, vectors>(
        y, dy, a, is_element, [&](int i) { return sum[i]; }, [&](int v) { return dx + uint64_t(v * along) * a.steps[2]; });
}

// ---- channels shared: lines half in registers, half in the shared memory of a block ----------------------------------------------

// y lies in shared memory, dy in registers; of 16-bit elements some vectors of dy are parked in shared memory, too. A thread reads back only the
// vectors that it copied, so that its own wait for the copies suffices.
constexpr int channel_shared_vectors = 16; // vectors of y, and as many of dy, of a thread
// Vectors of dy of a thread that are parked in shared memory. A vector of 16-bit elements has 8 sums and is unpacked to 8 registers, twice as many as
// one of f32. So its thread keeps 6 vectors of dy in 24 registers, while one of f32 keeps 16 in 64. Each parked vector saves a thread 4 registers,
// and takes 8 KB of shared memory for 512 threads.
template <typename T> constexpr int channel_parked_vectors = sizeof(T) == 2 ? 10 : 0;

// An SM runs 512 threads: one block, or two blocks with one tile of 16-bit elements each.
template <typename T, typename Out> __global__ void __launch_bounds__(softmax_threads_limit, 1)
    softmax_backward_channels_shared(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    constexpr int width = 16 / int(sizeof(T)), vectors = channel_shared_vectors, parked = channel_parked_vectors<T>, kept = vectors - parked;
    if (a.overlaps) follow_previous();
    const uint32_t inner_vectors = uint32_t(a.inner / width), columns = uint32_t(a.outer) * inner_vectors;
    const uint32_t along = blockDim.x / a.across, position = threadIdx.x / a.across;
    const uint32_t tile = threadIdx.y, column = (tile * gridDim.x + blockIdx.x) * a.across + threadIdx.x % a.across;
    const bool has_column = column < columns;
    const channel_column at(has_column ? column : 0, inner_vectors);
    const auto is_element = [&](int v) { return has_column && v * along + position < a.dim; };
    const auto offset = [&](int tensor) {
        return row_offset(at.block, a.strides[tensor], a.extent1, a.extent2) + uint64_t(at.vector) * width + position * a.steps[tensor];
    };
    const uint32_t first = (tile * (vectors + parked)) * blockDim.x + threadIdx.x; // of the thread's vectors in shared memory
    const auto place = [&](int i) { return first + i * blockDim.x; };
    const auto copy = [&](int i, const T *from) { copy_async_line(whole_address(dynamic_shared + place(i) * 16), from); };
    const auto clear = [&](int i) { reinterpret_cast<uint4 *>(dynamic_shared)[place(i)] = make_uint4(0, 0, 0, 0); };

    // 1. The lines on chip.
    await_turn<2>();
    const T *y_line = static_cast<const T *>(a.in[0]) + offset(0), *dy_line = static_cast<const T *>(a.in[1]) + offset(1);
    packed<16> held[kept];
#pragma unroll
    for (int v = 0; v < vectors; ++v, y_line += along * a.steps[0], dy_line += along * a.steps[1]) {
        if (v < kept) held[v < kept ? v : 0] = {};
        if (is_element(v)) {
            copy(v, y_line);
            if (v < kept) held[v < kept ? v : 0] = load_line<16>(dy_line);
            else copy(v + parked, dy_line);
        } else {
            clear(v);
            if (v >= kept) clear(v + parked);
        }
    }
    copy_commit();
    pass_turn<2>();
    copy_wait(0);
    const vectors_at y = {[&](int v) { return shared_vector(place(v)); }};
    const vectors_at dy = {[&](int v) { return v < kept ? held[v < kept ? v : 0] : shared_vector(place(v + parked)); }};

    // 2. Their sums.
    float sum[width] = {};
    add_terms<T, 16, vectors>(y, dy, a.is_log, sum);
    unsigned char *const scratch = dynamic_shared + blockDim.y * (vectors + parked) * blockDim.x * 16 + tile * a.scratch_bytes;
    sum_channels<2, 1>(sum, a.across, reinterpret_cast<value_group<width, float> *>(scratch));

    // 3. Their gradient.
    keep_packed<T>(held);
    Out *dx = static_cast<Out *>(a.out) + offset(2);
    finish<T, 16, vectors>(
        y, dy, a, is_element, [&](int i) { return sum[i]; }, [&](int v) { return dx + uint64_t(v * along) * a.steps[2]; });
}

// ---- channels split: three kernels over chunks of lines -------------------------------------------------------------------------

// Elements of a line, of y and of dy, that a thread loads together: as many loads as the four elements of x forward.
constexpr int channel_batch = 2;

template <typename T, int vec_bytes>
__device__ __forceinline__ void load_batch(packed<vec_bytes> (&y)[channel_batch], packed<vec_bytes> (&dy)[channel_batch], const T *y_line,
                                           const T *dy_line, uint32_t from, uint32_t elements, const softmax_arguments<accumulator_t<T>> &a) {
#pragma unroll
    for (int v = 0; v < channel_batch; ++v) {
        y[v] = dy[v] = {};
        if (from + v < elements) {
            y[v] = load<vec_bytes>(y_line + (from + v) * a.steps[0]);
            dy[v] = load<vec_bytes>(dy_line + (from + v) * a.steps[1]);
        }
    }
}

template <typename T, int vec_bytes> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_backward_channels_split_parts(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    const uint64_t items = channel_items(a, width);
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const channel_chunk<T, vec_bytes> chunk(item, a.inner, a.chunks);
        if (!chunk.has(a.inner)) continue;
        const T *const y = static_cast<const T *>(a.in[0]) + chunk.offset(a, 0), *const dy = static_cast<const T *>(a.in[1]) + chunk.offset(a, 1);
        const uint32_t elements = chunk.elements(a.dim);
        A sum[width] = {};
        for (uint32_t from = 0; from < elements; from += channel_batch) {
            packed<vec_bytes> p[channel_batch], q[channel_batch];
            load_batch<T>(p, q, y, dy, from, elements, a);
            add_terms<T, vec_bytes, channel_batch>(p, q, a.is_log, sum);
        }
        A *const to = a.parts + (chunk.block * a.chunks + chunk.chunk) * a.inner + chunk.vector * width;
#pragma unroll
        for (int i = 0; i < width; ++i) to[i] = sum[i];
    }
}

template <typename A> __global__ void __launch_bounds__(softmax_merge_threads)
    softmax_backward_channels_split_merge(const __grid_constant__ softmax_arguments<A> a) {
    const uint64_t lines = a.outer * a.inner, stride = uint64_t(gridDim.x) * softmax_merge_threads;
    for (uint64_t number = blockIdx.x * uint64_t(softmax_merge_threads) + threadIdx.x; number < lines; number += stride) {
        const uint64_t block = number / a.inner;
        const A *const parts = a.parts + block * a.chunks * a.inner + (number - block * a.inner);
        cascade<A> total;
        for (uint64_t c = 0; c < a.chunks; ++c) total.add(parts[c * a.inner]);
        a.totals[number] = total.total();
    }
}

template <typename T, int vec_bytes, typename Out> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_backward_channels_split_apply(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    constexpr int width = vec_bytes / int(sizeof(T));
    const uint64_t items = channel_items(a, width);
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const channel_chunk<T, vec_bytes> chunk(item, a.inner, a.chunks);
        if (!chunk.has(a.inner)) continue;
        const T *const y = static_cast<const T *>(a.in[0]) + chunk.offset(a, 0), *const dy = static_cast<const T *>(a.in[1]) + chunk.offset(a, 1);
        Out *const dx = static_cast<Out *>(a.out) + chunk.offset(a, 2);
        accumulator_t<T> sum[width];
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] = a.totals[chunk.block * a.inner + chunk.vector * width + i];
        const uint32_t elements = chunk.elements(a.dim);
        for (uint32_t from = 0; from < elements; from += channel_batch) {
            packed<vec_bytes> p[channel_batch], q[channel_batch];
            load_batch<T>(p, q, y, dy, from, elements, a);
            finish<T, vec_bytes, channel_batch>(
                p, q, a, [&](int v) { return from + v < elements; }, [&](int i) { return sum[i]; },
                [&](int v) { return dx + (from + v) * a.steps[2]; });
        }
    }
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename T> softmax_arguments<accumulator_t<T>> arguments_of(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                                       const bops_softmax_backward_operands &o) {
    auto a = lines_of<T>(of, p);
    a.in[0] = o.y, a.in[1] = o.dy, a.out = o.dx;
    a.scale = split_scale<T>(1);
    a.signed_scale = accumulator_t<T>(p.scale);
    return a;
}

inline uint32_t sum_floats(uint32_t warps, uint32_t lines) { return warps * lines; } // of scratch of sum_channels

// Each of the following hands action(kernel, shape, arguments) the kernels of a form.

template <typename Action> bops_status rows_resident(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                     const bops_softmax_rows_resident_choice &c, const bops_softmax_backward_operands &o, void *,
                                                     const Action &action) {
    return for_types_on_chip(of, c.vec_bytes, [&](auto of_y, auto of_dx, auto bytes) -> bops_status {
        using T = typename decltype(of_y)::type;
        using Out = typename decltype(of_dx)::type;
        constexpr int vec_bytes = bytes, width = vec_bytes / int(sizeof(T));
        auto a = arguments_of<T>(of, p, o);
        const launch_shape shape = rows_resident_shape(a, c, width);
        const bool whole = uint64_t(c.threads_per_row) * c.vectors * c.cluster * width == p.dim;
        const auto run = [&](auto vectors) -> bops_status {
            constexpr int n = vectors;
            constexpr bool may_be_whole = vec_bytes == 16 && std::is_same_v<T, Out>;
            constexpr bool has_cluster = vec_bytes == 16 && n == 8, has_block = !has_cluster || sizeof(T) == 2;
            const auto with = [&](auto clustered) {
                return whole ? action(softmax_backward_rows_resident<T, vec_bytes, n, may_be_whole, clustered, Out>, shape, a)
                             : action(softmax_backward_rows_resident<T, vec_bytes, n, false, clustered, Out>, shape, a);
            };
            if constexpr (has_cluster)
                if (c.cluster > 1) return with(std::true_type());
            if constexpr (has_block)
                if (c.cluster == 1) return with(std::false_type());
            return bops_status(cudaErrorInvalidValue);
        };
        if constexpr (vec_bytes < 16) return for_value<16>(c.vectors, run);
        else return for_value<1, 2, 4, 8>(c.vectors, run);
    });
}

template <typename Action> bops_status rows_shared(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                   const bops_softmax_rows_shared_choice &c, const bops_softmax_backward_operands &o, void *,
                                                   const Action &action) {
    return for_types(of, [&](auto of_y, auto of_dx) -> bops_status {
        using T = typename decltype(of_y)::type;
        if constexpr (sizeof(T) == 4) {
            auto a = arguments_of<T>(of, p, o);
            const launch_shape shape = rows_shared_shape(a, c, 16 / sizeof(T));
            return action(softmax_backward_rows_shared<T, 8, typename decltype(of_dx)::type>, shape, a);
        } else {
            return bops_status(cudaErrorInvalidValue);
        }
    });
}

template <typename Action> bops_status channels_resident(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                         const bops_softmax_channels_resident_choice &c, const bops_softmax_backward_operands &o,
                                                         void *, const Action &action) {
    return for_types_on_chip(of, c.vec_bytes, [&](auto of_y, auto of_dx, auto bytes) {
        using T = typename decltype(of_y)::type;
        using Out = typename decltype(of_dx)::type;
        constexpr int vec_bytes = bytes;
        auto a = arguments_of<T>(of, p, o);
        const launch_shape shape = channels_shape(a, c, vec_bytes / sizeof(T), sum_floats);
        const auto run = [&](auto vectors) { return action(softmax_backward_channels_resident<T, vec_bytes, vectors, Out>, shape, a); };
        if constexpr (vec_bytes < 16) return for_value<16>(c.vectors, run);
        else return for_value<4, 8>(c.vectors, run);
    });
}

template <typename Action> bops_status channels_shared(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                       const bops_softmax_backward_channels_shared_choice &c, const bops_softmax_backward_operands &o,
                                                       void *, const Action &action) {
    return for_types(of, [&](auto of_y, auto of_dx) -> bops_status {
        using T = typename decltype(of_y)::type;
        if constexpr (sizeof(T) == 8) {
            return bops_status(cudaErrorInvalidValue);
        } else {
            auto a = arguments_of<T>(of, p, o);
            launch_shape shape = channels_shape(a, c, 16 / sizeof(T), sum_floats);
            shape.shared_bytes += c.threads * (channel_shared_vectors + channel_parked_vectors<T>)*16;
            return action(softmax_backward_channels_shared<T, typename decltype(of_dx)::type>, shape, a);
        }
    });
}

template <typename Action> bops_status split(const bops_softmax_specialisation &of, const bops_softmax_params &p, const bops_softmax_split_choice &c,
                                             const bops_softmax_backward_operands &o, void *workspace, const Action &action) {
    return for_types(of, [&](auto of_y, auto of_dx) -> bops_status {
        using T = typename decltype(of_y)::type;
        using Out = typename decltype(of_dx)::type;
        return for_access<T>(c.vec_bytes, [&](auto bytes) {
            using A = accumulator_t<T>;
            constexpr int vec_bytes = bytes;
            auto a = arguments_of<T>(of, p, o);
            const launch_shape shape = split_shape(a, c, 1, workspace);
            if (p.inner == 1)
                return run_split(action, shape, a, softmax_backward_rows_split_parts<T, vec_bytes>, softmax_backward_rows_split_merge<A>,
                                 softmax_backward_rows_split_apply<T, vec_bytes, Out>);
            return run_split(action, shape, a, softmax_backward_channels_split_parts<T, vec_bytes>, softmax_backward_channels_split_merge<A>,
                             softmax_backward_channels_split_apply<T, vec_bytes, Out>);
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_SOFTMAX_FORM(rows_resident, backward_)
BOPS_DEFINE_SOFTMAX_FORM(rows_shared, backward_)
BOPS_DEFINE_SOFTMAX_FORM(channels_resident, backward_)
BOPS_DEFINE_SOFTMAX_FORM(split, backward_)
BOPS_DEFINE_FORM(bops_softmax_backward_channels_shared, bops_softmax_specialisation, bops_softmax_params,
                 bops_softmax_backward_channels_shared_choice, bops_softmax_backward_operands, bops::channels_shared)
