// BatchNorm, GroupNorm and InstanceNorm backward over channels-last layouts, the forms `split` and `cooperative`: sums of tiles, which are merged for
// each group, then gradients. `split` takes three launches. `cooperative` takes one, in which as many rows as shared memory holds stay there.
#pragma once
#include "channels_last_norm_backward.cuh"

namespace bops {

// Rows of a thread that are loaded together if there is no ring. There are fewer if an activation of eight channels takes registers, of which it takes
// even more before compute capability 9.0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int last_activation_batch = 1;
#else
constexpr int last_activation_batch = 2;
#endif
template <bool has_extras, int width> constexpr int last_backward_batch = has_extras &&width == 8 ? last_activation_batch : 4;
constexpr uint32_t last_backward_span = 16; // rows that a float adds up before it is passed on, so that rounding errors stay small

// Loads the vectors of a batch of a thread's rows, from number j on, then calls action(row, dy, x, extra) for each row.
template <typename T, int vec_bytes, bool has_extras, int width, typename A, typename Action>
__device__ __forceinline__ void for_batch(const channel_last_backward_arguments<A> &a, const backward_tile<T, vec_bytes, has_extras> &b,
                                          const channel_tile<width> &t, uint32_t j, const Action &action) {
    constexpr int batch = last_backward_batch<has_extras, width>;
    packed<vec_bytes> dy[batch], x[batch], extra[has_extras ? batch : 1];
    const uint32_t count = min(t.rows - j, uint32_t(batch));
#pragma unroll
    for (int u = 0; u < batch; ++u)
        if (u < count) dy[u] = load<vec_bytes, false>(b.dy + (j + u) * b.dy_step), x[u] = load<vec_bytes, false>(b.x + (j + u) * b.x_step);
    if (has_extras && a.reads_extra) {
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (u < count) extra[has_extras ? u : 0] = load<vec_bytes, false>(b.extra + (j + u) * b.extra_step);
    }
#pragma unroll
    for (int u = 0; u < batch; ++u)
        if (u < count) action(j + u, dy[u], x[u], extra[has_extras ? u : 0]);
}

// Walks over a tile's rows through a ring, from the first to the last or back, and calls action(row, dy, x, extra).
template <bool back, typename T, int vec_bytes, bool has_extras, int width, typename A, typename Action>
__device__ __forceinline__ void for_ring(const channel_last_backward_arguments<A> &a, const backward_tile<T, vec_bytes, has_extras> &b,
                                         const channel_tile<width> &t, const batch_ring &ring, const Action &action) {
    const auto issue = [&](uint32_t batch, uint64_t policy) {
#pragma unroll
        for (int u = 0; u < ring_batch; ++u) {
            const uint32_t j = batch * ring_batch + u;
            if (j < t.rows) {
                copy_async_cached(ring.at(batch, u, 0), b.dy + j * b.dy_step, policy);
                copy_async_cached(ring.at(batch, u, 1), b.x + j * b.x_step, policy);
                if (has_extras && a.reads_extra) copy_async_cached(ring.at(batch, u, 2), b.extra + j * b.extra_step, policy);
            }
        }
    };
    const auto consume = [&](uint32_t batch) {
#pragma unroll(has_extras ? 1 : ring_batch)
        for (int u = 0; u < ring_batch; ++u) {
            const uint32_t j = batch * ring_batch + u;
            packed<vec_bytes> extra;
            if (j < t.rows) {
                if (has_extras && a.reads_extra) extra = ring.get(batch, u, 2);
                action(j, ring.get(batch, u, 0), ring.get(batch, u, 1), extra);
            }
        }
    };
    if constexpr (back) ring.walk_back(issue, consume);
    else ring.walk(issue, consume);
}

// Sums of dpre and dpre * d over a thread's rows. In inference dx, which needs no sums, and dresidual are written here. room: for five values of
// every channel of the tile. Called by all threads of the block.
template <typename T, int vec_bytes, bool has_extras, bool rings, int width = vec_bytes / int(sizeof(T)), typename A = accumulator_t<T>>
__device__ __forceinline__ channel_sums<width, A> tile_sums(const channel_last_backward_arguments<A> &a, const channel_tile<width> &t,
                                                            const batch_ring *ring, A *room) {
    backward_tile<T, vec_bytes, has_extras> b(a, t);
    b.load_channels(a, t, {room, a.g.tile_vectors * width}, [](uint32_t, uint32_t, A, A) {});
    channel_sums<width, A> sums;
    const auto add = [&](uint32_t row, const packed<vec_bytes> &dy, const packed<vec_bytes> &x, const packed<vec_bytes> &extra) {
        packed<vec_bytes> dx_packed, dpre_packed;
#pragma unroll
        for (int k = 0; k < b.parts; ++k) {
            A dpre[b.part], d[b.part];
            b.gradient(a, k, dy, x, extra, dpre, d);
            if constexpr (!rings) set_part(dpre_packed, k, pack<T, b.part_bytes>(dpre));
#pragma unroll
            for (int i = 0; i < b.part; ++i) {
                const int c = k * b.part + i;
                sums.part[0][c] += dpre[i];
                sums.part[1][c] = fma(dpre[i], d[i], sums.part[1][c]);
                dpre[i] *= b.scale[c];
            }
            if constexpr (!rings) set_part(dx_packed, k, pack<T, b.part_bytes>(dpre));
        }
        if constexpr (!rings) {
            if (a.p.uses_running) {
                if (a.o.dx) store(t.template at<T>(a.o.dx, a.p.dx) + row * (a.g.row_step * a.p.dx.spatial), dx_packed);
                if (a.o.dresidual) store(t.template at<T>(a.o.dresidual, a.p.dresidual) + row * (a.g.row_step * a.p.dresidual.spatial), dpre_packed);
            }
        }
    };
    if constexpr (rings) {
        for_ring<false>(a, b, t, *ring, [&](uint32_t row, const packed<vec_bytes> &dy, const packed<vec_bytes> &x, const packed<vec_bytes> &extra) {
            if (row % last_backward_span == 0) sums.flush();
            add(row, dy, x, extra);
        });
    } else {
        constexpr uint32_t batch = last_backward_batch<has_extras, width>;
        for (uint32_t j = 0; j < t.rows; j += batch) {
            if (j % last_backward_span == 0) sums.flush();
            for_batch(a, b, t, j, add);
        }
    }
    sums.flush();
    return sums;
}

// Stores the sums of a block's tile in planes whose element 0 is the tile's first channel.
template <int width, typename A> __device__ __forceinline__ void block_sums(const channel_last_shape &g, const channel_tile<width> &t,
                                                                            const channel_sums<width, A> &sums, lane_sums<A, width> &room,
                                                                            A *to_dpres, A *to_products) {
    const uint32_t channels = min(g.tile_vectors * width, g.channels - t.begin);
    const A *total = room.total(g, sums.total[0]);
    for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x) to_dpres[c] = total[c];
    total = room.total(g, sums.total[1]);
    for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x) to_products[c] = total[c];
}

// The means of a group from the sums of its chunks; if the group is a channel of all samples, also its parameter gradients.
template <bool is_block, typename T, typename A>
__device__ __forceinline__ void merge_means(const channel_last_backward_arguments<A> &a, uint64_t item, A (*slots)[team_slots]) {
    using team = list_team<is_block>;
    const group_parts parts(a.g, item);
    cascade<A> dpres, products;
    for (part_walk walk(team::lane(), team::lanes(), parts.channels); walk.chunk < parts.chunks;) {
        A dpre[merge_batch], product[merge_batch], weight[merge_batch];
#pragma unroll
        for (int u = 0; u < merge_batch; ++u, walk.advance()) {
            dpre[u] = 0, product[u] = 0, weight[u] = 0;
            if (walk.chunk < parts.chunks) {
                const uint32_t channel = parts.first_channel + walk.channel;
                const uint64_t at = uint64_t(parts.first_chunk + walk.chunk) * a.g.channels + channel;
                dpre[u] = __ldcg(a.dpres + at), product[u] = __ldcg(a.products + at);
                weight[u] = a.g.per_sample ? parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1)) : A(1);
            }
        }
#pragma unroll
        for (int u = 0; u < merge_batch; ++u) dpres.add(weight[u] * dpre[u]), products.add(weight[u] * product[u]);
    }
    A sums[2] = {dpres.total(), products.total()};
    team::sum(sums, slots);
    if (team::lane() == 0) {
        const uint32_t channel = parts.first_channel;
        const A rstd = statistics_of(a, a.g.per_sample ? uint32_t(item / a.g.groups) : 0, channel).rstd;
        if (!a.g.per_sample) {
            store_parameters<T>(a, channel, sums[1] * rstd, sums[0]);
            const A w = parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1));
            sums[0] *= w, sums[1] *= w;
        }
        a.means[item] = finish_means(sums[0], sums[1], rstd, a.reciprocal_count);
    }
}

template <typename T, typename A> __device__ __forceinline__ void merge_sums(const channel_last_backward_arguments<A> &a, A (*slots)[2][team_slots]) {
    const uint64_t groups = uint64_t(a.g.per_sample ? a.g.samples : 1) * a.g.groups;
    const bool wants_parameters = a.g.per_sample && (a.o.dweight || a.o.dbias);
    uint32_t turn = 0; // two sums in a row take different slots
    for_items(groups + (wants_parameters ? a.g.channels : 0), [&](auto is_block, uint64_t item) {
        constexpr bool block = decltype(is_block)::value;
        turn ^= 1;
        if (item < groups) merge_means<block, T>(a, item, slots[turn]);
        else merge_parameters<block, T>(a, uint32_t(item - groups), slots[turn]);
    });
}

// Writes dx and dresidual for a thread's rows, from the last to the first; means(channel) are the means of the channel's group. room: for five values
// of every channel of the tile. Called by all threads of the block.
template <typename T, int vec_bytes, bool has_extras, bool rings, typename Means, int width = vec_bytes / int(sizeof(T)),
          typename A = accumulator_t<T>>
__device__ __forceinline__ void tile_gradients(const channel_last_backward_arguments<A> &a, const channel_tile<width> &t, const batch_ring *ring,
                                               A *room, const Means &means) {
    backward_tile<T, vec_bytes, has_extras> b(a, t);
    const tile_values<5, A> values = {room, a.g.tile_vectors * width};
    b.load_channels(a, t, values, [&](uint32_t c, uint32_t channel, A, A rstd) {
        const gradient_means<A> m = means(channel);
        values.at(3, c) = -rstd * m.g, values.at(4, c) = -rstd * m.slope;
    });
    const gradient_writer<T, vec_bytes, has_extras, true> write(a, t, values);
    const auto finish = [&](uint32_t row, const packed<vec_bytes> &dy, const packed<vec_bytes> &x, const packed<vec_bytes> &extra) {
        write(a, b, row, dy, x, extra);
    };
    if constexpr (rings) {
        for_ring<true>(a, b, t, *ring, finish);
    } else {
        if (t.rows == 0) return;
        constexpr uint32_t batch = last_backward_batch<has_extras, width>;
        for (uint32_t j = (t.rows - 1) / batch * batch;; j -= batch) {
            for_batch(a, b, t, j, finish);
            if (j == 0) break;
        }
    }
}

template <typename A>
__device__ __forceinline__ gradient_means<A> means_of(const channel_last_backward_arguments<A> &a, uint32_t sample, uint32_t channel) {
    const A *const m = &a.means[(a.g.per_sample ? uint64_t(sample) * a.g.groups : 0) + channel / a.g.group_channels].g;
    return {__ldcg(m), __ldcg(m + 1)};
}

// ---- split: sums, merge, apply ------------------------------------------------------------------------------------------------

template <typename T, int vec_bytes, bool has_extras> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_backward_split_sums(const __grid_constant__ channel_last_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    __shared__ lane_sums<A, width> room;
    if (a.overlaps) follow_previous();
    for (uint64_t item = blockIdx.x; item < a.g.items(); item += gridDim.x) {
        const channel_tile<width> t(a.g, item);
        const channel_sums<width, A> sums = tile_sums<T, vec_bytes, has_extras, false>(a, t, nullptr, room.values);
        const uint64_t to = uint64_t(t.chunk) * a.g.channels + t.begin;
        block_sums(a.g, t, sums, room, a.dpres + to, a.products + to);
    }
}

template <typename T> __global__ void __launch_bounds__(last_merge_threads)
    channel_last_backward_split_merge(const __grid_constant__ channel_last_backward_arguments<accumulator_t<T>> a) {
    __shared__ __align__(16) accumulator_t<T> slots[2][2][team_slots];
    if (a.overlaps) follow_previous();
    merge_sums<T>(a, slots);
}

template <typename T, int vec_bytes, bool has_extras> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_backward_split_apply(const __grid_constant__ channel_last_backward_arguments<accumulator_t<T>> a) {
    __shared__ tile_room<accumulator_t<T>, vec_bytes / int(sizeof(T))> room;
    const uint64_t items = a.g.items();
    if (a.overlaps) follow_previous();
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const channel_tile<vec_bytes / int(sizeof(T))> t(a.g, items - 1 - item); // the last that were read may still be in the cache
        tile_gradients<T, vec_bytes, has_extras, false>(a, t, nullptr, room.values, [&](uint32_t channel) { return means_of(a, t.sample, channel); });
    }
}

// ---- cooperative: one launch does the work of the three; as many rows as shared memory takes stay there -------------------------

template <typename T> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_backward_cooperative(const __grid_constant__ channel_last_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ lane_sums<A, width> room;
    __shared__ __align__(16) A slots[2][2][team_slots];
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const uint64_t items = a.g.items();
    const uint32_t turns = blockIdx.x < items ? uint32_t((items - 1 - blockIdx.x) / gridDim.x) + 1 : 0;

    // 1. Sums of the tiles.
    for (uint32_t turn = 0; turn < turns; ++turn) {
        const channel_tile<width> t(a.g, blockIdx.x + uint64_t(turn) * gridDim.x);
        const batch_ring ring(a.g, t, a.slots, a.tensors, a.cached, turn, turns);
        const channel_sums<width, A> sums = tile_sums<T, 16, true, true>(a, t, &ring, room.values);
        const uint64_t to = uint64_t(t.chunk) * a.g.channels + t.begin;
        block_sums(a.g, t, sums, room, a.dpres + to, a.products + to);
    }
    grid.sync();

    // 2. Means of the groups and parameter gradients.
    merge_sums<T>(a, slots);
    grid.sync();

    // 3. Gradients, last to first.
    if (!a.o.dx && !a.o.dresidual) return;
    for (uint32_t turn = turns; turn-- > 0;) {
        const channel_tile<width> t(a.g, blockIdx.x + uint64_t(turn) * gridDim.x);
        const batch_ring ring(a.g, t, a.slots, a.tensors, a.cached, turn, turns);
        tile_gradients<T, 16, true, true>(a, t, &ring, room.values, [&](uint32_t channel) { return means_of(a, t.sample, channel); });
    }
}

// Host: the form `split`.
template <typename T> bops_status channels_last_norm_backward_split_kernels(const backward_call<bops_channels_last_norm_split_choice> &f) {
    const auto &c = f.c;
    using A = accumulator_t<T>;
    const auto of_width = [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value;
        const channel_last_backward_arguments<A> a =
            last_backward_arguments<T, vec_bytes>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, c.overlaps);
        launch_shape shape = f.shape(c.threads);
        constexpr bool is_wide = vec_bytes == 16; // narrower vectors have one form
        const bool general = f.has_extras() || !is_wide;
        bops_status status = general ? f.call(channel_last_backward_split_sums<T, vec_bytes, true>, shape, a)
                                     : f.call(channel_last_backward_split_sums<T, vec_bytes, !is_wide>, shape, a);
        if (status) return status;
        const uint64_t items = (a.g.per_sample ? a.g.samples : 1) * uint64_t(a.g.groups) + (a.g.per_sample ? a.g.channels : 0);
        launch_shape merge_shape = last_launch(merge_grid(items), last_merge_threads, c.overlaps);
        status = f.call(channel_last_backward_split_merge<T>, merge_shape, a);
        if (status || !(f.call.prepares || f.o.dx || f.o.dresidual) || f.p.uses_running) return status;
        return general ? f.call(channel_last_backward_split_apply<T, vec_bytes, true>, shape, a)
                       : f.call(channel_last_backward_split_apply<T, vec_bytes, !is_wide>, shape, a);
    };
    if constexpr (sizeof(T) < 8)
        if (c.access_bytes == 16) return of_width(std::integral_constant<int, 16>());
    return of_width(std::integral_constant<int, int(sizeof(T))>());
}

// Host: the form `cooperative`.
template <typename T>
bops_status channels_last_norm_backward_cooperative_kernels(const backward_call<bops_channels_last_norm_cooperative_choice> &f) {
    const auto &c = f.c;
    auto a = last_backward_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true});
    a.slots = c.ring_batches, a.tensors = c.tensors;
    launch_shape shape = last_launch(c.blocks, c.threads);
    shape.shared_bytes = c.ring_batches * ring_batch * c.tensors * c.threads * 16, shape.cooperative = true;
    return f.call(channel_last_backward_cooperative<T>, shape, a);
}

} // namespace bops
