// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the forms `split` and `cooperative`: moments of tiles, which are merged
// for each group, then outputs. `split` takes three launches. `cooperative` takes one, in which rows pass through a ring, and the last of them stay
// there for the outputs.
#pragma once
#include "channels_last_norm.cuh"

namespace bops {

template <int width, typename A> struct thread_moments_of {
    A shift[width], sum[width], square[width], count;

    __device__ __forceinline__ void clear() {
        count = 0;
#pragma unroll
        for (int i = 0; i < width; ++i) shift[i] = 0, sum[i] = 0, square[i] = 0;
    }
    // Moves the shift of a thread's moments to the mean; `more` are squares that are not yet in `square`.
    __device__ __forceinline__ void recenter(A (&more)[width]) {
        const A share = A(1) / count;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const A mean = fma(sum[i], share, shift[i]), e = shift[i] - mean, rest = fma(count, e, sum[i]);
            square[i] += fma(e, sum[i] + rest, more[i]);
            shift[i] = mean, sum[i] = rest, more[i] = 0;
        }
    }
};

constexpr int last_batch = 8; // rows of a thread that are loaded together if there is no ring: 32 registers

// Moments of a thread's rows, batch after batch. The shift is the mean of the first batch; after three batches, and after every `span` rows, it moves
// to the mean of all rows so far. So whatever the data, the sum of squares about the shift is at most 4 times that about the mean: for n rows after N
// rows, the distance of their means adds at most (N + n) / N <= 8 / 3 times as much as it adds to the sum about the mean.
template <typename T, int vec_bytes, int batch> struct moments_walk {
    static constexpr int width = vec_bytes / int(sizeof(T));
    static constexpr uint32_t span = 8 * batch, first_span = 3 * batch; // rows until the shift moves again, and until it first moves
    using A = accumulator_t<T>;
    thread_moments_of<width, A> total;
    A squares[width]; // of the span

    __device__ __forceinline__ moments_walk() {
        total.clear();
#pragma unroll
        for (int i = 0; i < width; ++i) squares[i] = 0;
    }
    // Adds `count` rows of a batch, from number j on.
    __device__ __forceinline__ void add(const packed<vec_bytes> (&data)[batch], uint32_t j, uint32_t count) {
        if (j == 0) {
            A sum[width] = {};
#pragma unroll
            for (int u = 0; u < batch; ++u) {
                if (u < count) {
                    A v[width];
                    unpack<T>(data[u], v);
#pragma unroll
                    for (int i = 0; i < width; ++i) sum[i] += v[i];
                }
            }
            const A share = A(1) / A(count);
#pragma unroll
            for (int i = 0; i < width; ++i) total.shift[i] = rounded_product(sum[i], share);
        } else if (j == first_span || j % span == 0) {
            total.recenter(squares);
        }
        A sum[width] = {}, square[width] = {};
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            if (u < count) {
                A v[width];
                unpack<T>(data[u], v);
                add_moments(v, total.shift, sum, square);
            }
        }
#pragma unroll
        for (int i = 0; i < width; ++i) total.sum[i] += sum[i], squares[i] += square[i];
        total.count += A(count);
    }
    __device__ __forceinline__ const thread_moments_of<width, A> &finish() {
#pragma unroll
        for (int i = 0; i < width; ++i) total.square[i] += squares[i];
        return total;
    }
};

// The moments of a thread's rows, which come through the ring, or are loaded from global memory if `ring` is null.
template <typename T, int vec_bytes, bool rings, int width = vec_bytes / int(sizeof(T)), typename A = accumulator_t<T>>
__device__ __forceinline__ thread_moments_of<width, A> tile_moments(const channel_last_arguments<A> &a, const channel_tile<width> &t,
                                                                    const batch_ring *ring) {
    const T *const x = t.template at<T>(a.o.x, a.p.x);
    const uint64_t step = a.g.row_step * a.p.x.spatial;
    if constexpr (rings) {
        moments_walk<T, vec_bytes, ring_batch> moments;
        ring->walk(
            [&](uint32_t b, uint64_t policy) {
#pragma unroll
                for (int u = 0; u < ring_batch; ++u)
                    if (b * ring_batch + u < t.rows) copy_async_cached(ring->at(b, u, 0), x + (b * ring_batch + u) * step, policy);
            },
            [&](uint32_t b) {
                const uint32_t j = b * ring_batch;
                if (j >= t.rows) return;
                packed<vec_bytes> data[ring_batch];
#pragma unroll
                for (int u = 0; u < ring_batch; ++u) data[u] = ring->get(b, u, 0);
                moments.add(data, j, min(t.rows - j, uint32_t(ring_batch)));
            });
        return moments.finish();
    } else {
        moments_walk<T, vec_bytes, last_batch> moments;
        for (uint32_t j = 0; j < t.rows; j += last_batch) {
            packed<vec_bytes> data[last_batch];
            const uint32_t count = min(t.rows - j, uint32_t(last_batch));
#pragma unroll
            for (int u = 0; u < last_batch; ++u)
                if (u < count) data[u] = load<vec_bytes, false>(x + (j + u) * step);
            moments.add(data, j, count);
        }
        return moments.finish();
    }
}

// Stores the moments of a block's tile in planes whose element 0 is the tile's first channel.
template <int width, typename A> __device__ __forceinline__ void block_moments(const channel_last_shape &g, const channel_tile<width> &t,
                                                                               thread_moments_of<width, A> &m, lane_sums<A, width> &room, A *shifts,
                                                                               A *sums, A *squares) {
    const uint32_t channels = min(g.tile_vectors * width, g.channels - t.begin), vector = threadIdx.x % g.tile_vectors;
    const uint32_t rows = g.rows_of(t.chunk);
    const A reciprocal = rows ? A(1) / A(rows) : A(0);
    A value[width];
#pragma unroll
    for (int i = 0; i < width; ++i) value[i] = m.shift[i] * m.count;
    const A *total = room.total(g, value);
    A shift[width];
    get_values(total + vector * width, shift);
#pragma unroll
    for (int i = 0; i < width; ++i) shift[i] = rounded_product(shift[i], reciprocal);
    for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x) shifts[c] = rounded_product(total[c], reciprocal);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        moments<A> about = {shift[i], A(0), A(0)};
        merge(about, {m.shift[i], m.sum[i], m.square[i]}, m.count);
        value[i] = m.count > A(0) ? about.sum : A(0);
        m.square[i] = m.count > A(0) ? about.square : A(0);
    }
    total = room.total(g, value);
    for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x) sums[c] = total[c];
    total = room.total(g, m.square);
    for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x) squares[c] = total[c];
}

// The statistics of a group from the moments of its chunks.
template <bool is_block, typename A>
__device__ __forceinline__ void merge_group(const channel_last_arguments<A> &a, uint64_t item, A (*slots)[team_slots]) {
    const group_parts parts(a.g, item);
    const auto part = [&](uint32_t chunk, uint32_t channel, A &count) -> moments<A> {
        chunk += parts.first_chunk;
        count = A(a.g.rows_of(chunk));
        const uint64_t at = uint64_t(chunk) * a.g.channels + parts.first_channel + channel;
        return {__ldcg(a.shifts + at), __ldcg(a.sums + at), __ldcg(a.squares + at)};
    };
    const moments<A> total = merge_parts<is_block>(parts.chunks, parts.channels, a.reciprocal_count, part, slots);
    if (list_team<is_block>::lane() == 0) a.statistics[item] = finish_group(a, total, item, true);
}

template <typename A> __device__ __forceinline__ void merge_groups(const channel_last_arguments<A> &a, A (*slots)[team_slots]) {
    for_items(uint64_t(a.g.per_sample ? a.g.samples : 1) * a.g.groups,
              [&](auto is_block, uint64_t item) { merge_group<decltype(is_block)::value>(a, item, slots); });
}

// Writes y for a thread's rows, from the last to the first. They come through the ring, or are loaded if `ring` is null. room: for three values of
// every channel of the tile. Called by all threads of the block.
template <typename T, int vec_bytes, bool has_extras, bool rings, typename Statistics, int width = vec_bytes / int(sizeof(T)),
          typename A = accumulator_t<T>>
__device__ __forceinline__ void tile_apply(const channel_last_arguments<A> &a, const channel_tile<width> &t, const batch_ring *ring, A *room,
                                           const Statistics &statistics) {
    constexpr int batch = ring_batch;
    const tile_values<3, A> values = {room, a.g.tile_vectors * width};
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < values.channels && t.begin + c < a.g.channels; c += blockDim.x) {
        const uint32_t channel = t.begin + c;
        const A weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1)), bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, A(0));
        put_scales(&values.at(0, c), values.channels, statistics(channel), weight, bias);
    }
    __syncthreads();
    vector_output<T, vec_bytes> output = {};
    if (t.rows) output.get(&values.at(0, t.channel - t.begin), values.channels);
    const T *const x = t.template at<T>(a.o.x, a.p.x), *const residual = t.template at<T>(a.o.residual, a.p.residual);
    T *const y = t.template at<T>(a.o.y, a.p.y);
    const uint64_t step = a.g.row_step, x_step = step * a.p.x.spatial, y_step = step * a.p.y.spatial, residual_step = step * a.p.residual.spatial;
    const auto write = [&](const packed<vec_bytes>(&data)[batch], uint32_t j) {
        packed<vec_bytes> added[has_extras ? batch : 1];
        const uint32_t count = min(t.rows - j, uint32_t(batch));
        if (has_extras && a.o.residual) {
#pragma unroll
            for (int u = 0; u < batch; ++u)
                if (u < count) added[has_extras ? u : 0] = load<vec_bytes>(residual + (j + u) * residual_step);
        }
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (u < count) store(y + (j + u) * y_step, output.template of<has_extras>(data[u], a, added[has_extras ? u : 0]));
    };
    if constexpr (rings) {
        ring->walk_back(
            [&](uint32_t b, uint64_t policy) {
#pragma unroll
                for (int u = 0; u < batch; ++u)
                    if (b * batch + u < t.rows) copy_async_cached(ring->at(b, u, 0), x + (b * batch + u) * x_step, policy);
            },
            [&](uint32_t b) {
                if (b * batch >= t.rows) return;
                packed<vec_bytes> data[batch];
#pragma unroll
                for (int u = 0; u < batch; ++u) data[u] = ring->get(b, u, 0);
                write(data, b * batch);
            });
    } else {
        if (t.rows == 0) return;
        for (uint32_t j = (t.rows - 1) / batch * batch;; j -= batch) {
            packed<vec_bytes> data[batch];
#pragma unroll
            for (int u = 0; u < batch; ++u)
                if (j + u < t.rows) data[u] = load<vec_bytes>(x + (j + u) * x_step);
            write(data, j);
            if (j == 0) break;
        }
    }
}

// ---- split: moments, merge, apply ---------------------------------------------------------------------------------------------

template <typename T, int vec_bytes> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_split_moments(const __grid_constant__ channel_last_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    __shared__ lane_sums<A, width> room;
    if (a.overlaps) follow_previous();
    for (uint64_t item = blockIdx.x; item < a.g.items(); item += gridDim.x) {
        const channel_tile<width> t(a.g, item);
        thread_moments_of<width, A> m = tile_moments<T, vec_bytes, false>(a, t, nullptr);
        const uint64_t to = uint64_t(t.chunk) * a.g.channels + t.begin;
        block_moments(a.g, t, m, room, a.shifts + to, a.sums + to, a.squares + to);
    }
}

template <typename A> __global__ void __launch_bounds__(last_merge_threads)
    channel_last_split_merge(const __grid_constant__ channel_last_arguments<A> a) {
    __shared__ __align__(16) A slots[3][team_slots];
    if (a.overlaps) follow_previous();
    merge_groups(a, slots);
}

template <typename T, int vec_bytes, bool has_extras> __global__ void __launch_bounds__(last_threads, has_extras || sizeof(T) == 8 ? 1 : 2)
    channel_last_split_apply(const __grid_constant__ channel_last_arguments<accumulator_t<T>> a) {
    __shared__ tile_room<accumulator_t<T>, vec_bytes / int(sizeof(T))> room;
    const uint64_t items = a.g.items();
    if (a.overlaps) follow_previous();
    finish_running(a);
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const channel_tile<vec_bytes / int(sizeof(T))> t(a.g, items - 1 - item); // the last that were read may still be in the cache
        tile_apply<T, vec_bytes, has_extras, false>(a, t, nullptr, room.values,
                                                    [&](uint32_t channel) { return statistics_of(a, t.sample, channel); });
    }
}

// ---- cooperative: one launch does the work of the three; rows pass through a ring, and the last of them stay there -------------------------

template <typename T> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_cooperative(const __grid_constant__ channel_last_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ lane_sums<A, width> room;
    __shared__ __align__(16) A slots[3][team_slots];
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const uint64_t items = a.g.items();
    const uint32_t turns = blockIdx.x < items ? uint32_t((items - 1 - blockIdx.x) / gridDim.x) + 1 : 0;

    // 1. Moments of the tiles.
    for (uint32_t turn = 0; turn < turns; ++turn) {
        const channel_tile<width> t(a.g, blockIdx.x + uint64_t(turn) * gridDim.x);
        const batch_ring ring(a.g, t, a.slots, 1, a.cached, turn, turns);
        thread_moments_of<width, A> m = tile_moments<T, 16, true>(a, t, &ring);
        const uint64_t to = uint64_t(t.chunk) * a.g.channels + t.begin;
        block_moments(a.g, t, m, room, a.shifts + to, a.sums + to, a.squares + to);
    }
    grid.sync();

    // 2. Statistics of the groups.
    merge_groups(a, slots);
    grid.sync();

    // 3. Output, last to first.
    finish_running(a);
    for (uint32_t turn = turns; turn-- > 0;) {
        const channel_tile<width> t(a.g, blockIdx.x + uint64_t(turn) * gridDim.x);
        const batch_ring ring(a.g, t, a.slots, 1, a.cached, turn, turns);
        tile_apply<T, 16, true, true>(a, t, &ring, room.values, [&](uint32_t channel) { return statistics_of(a, t.sample, channel); });
    }
}

// Host: the form `split`.
template <typename T> bops_status channels_last_norm_split_kernels(const forward_call<bops_channels_last_norm_split_choice> &f) {
    const auto &c = f.c;
    using A = accumulator_t<T>;
    const auto of_width = [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value;
        const channel_last_arguments<A> a = last_arguments<T, vec_bytes>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, c.overlaps);
        launch_shape shape = f.shape(c.threads);
        if (!f.p.uses_running) {
            bops_status status = f.call(channel_last_split_moments<T, vec_bytes>, shape, a);
            if (status) return status;
            launch_shape merge_shape =
                last_launch(merge_grid((a.g.per_sample ? a.g.samples : 1) * uint64_t(a.g.groups)), last_merge_threads, c.overlaps);
            status = f.call(channel_last_split_merge<A>, merge_shape, a);
            if (status) return status;
        }
        constexpr bool is_wide = vec_bytes == 16; // narrower vectors have one form
        return f.has_extras() || !is_wide ? f.call(channel_last_split_apply<T, vec_bytes, true>, shape, a)
                                          : f.call(channel_last_split_apply<T, vec_bytes, !is_wide>, shape, a);
    };
    if constexpr (sizeof(T) < 8)
        if (c.access_bytes == 16) return of_width(std::integral_constant<int, 16>());
    return of_width(std::integral_constant<int, int(sizeof(T))>());
}

// Host: the form `cooperative`.
template <typename T> bops_status channels_last_norm_cooperative_kernels(const forward_call<bops_channels_last_norm_cooperative_choice> &f) {
    const auto &c = f.c;
    auto a = last_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true});
    a.slots = c.ring_batches;
    launch_shape shape = last_launch(c.blocks, c.threads);
    shape.shared_bytes = c.ring_batches * ring_batch * c.threads * 16, shape.cooperative = true;
    return f.call(channel_last_cooperative<T>, shape, a);
}

} // namespace bops
