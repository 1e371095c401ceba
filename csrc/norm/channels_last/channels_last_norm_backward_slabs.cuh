// BatchNorm, GroupNorm and InstanceNorm backward over channels-last layouts, the form `slabs`, where dx follows from dy and x alone: one cooperative
// launch that takes slabs, which are some tiles of channels or some samples, one after another. In a slab every block has one tile in one chunk of
// the rows.
//
// A thread's rows pass through a ring in shared memory. The last rows stay there and in registers until the sums are known; the rows before them, if
// any, are read again. Places of the ring that become free take the first rows of the next slab, and during the exchange the L2 fetches more of them.
#pragma once
#include "channels_last_norm_backward.cuh"
#include "channels_last_norm_columns.cuh"

namespace bops {

constexpr int slab_batch = 2;           // rows of a thread that are taken together
constexpr int slab_ahead = 6;           // batches in flight on the first walk
constexpr uint32_t slab_prefetched = 9; // batches of the next slab that the L2 fetches
constexpr uint32_t slab_span = 16;      // batches that one accumulator takes
// Batches in shared memory, and in registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr uint32_t slab_slots = 9;
#else
constexpr uint32_t slab_slots = 13;
#endif
template <typename T> constexpr int slab_held = sizeof(T) == 2 ? 10 : 11;

__device__ __forceinline__ void prefetch_line(const void *from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

template <typename T> __global__ void __launch_bounds__(slabs_threads, 1)
    channel_last_backward_slabs(const __grid_constant__ channel_last_backward_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), batch = slab_batch, ahead = slab_ahead, held = slab_held<T>;
    constexpr uint32_t slots = slab_slots, threads = slabs_threads;
    struct rows_of_batch {
        packed<16> dy[batch], x[batch];
    };
    __shared__ __align__(16) slabs_columns columns;              // of dpre and of products
    __shared__ __align__(16) float values[4][resident_channels]; // mean, rstd * weight, then as of gradient_writer
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const uint32_t vectors = g.tile_vectors, channels = vectors * width;
    const uint32_t batches = (g.chunk_rows + g.lanes * batch - 1) / (g.lanes * batch), kept = min(batches, slots);
    const uint32_t again = batches - min(batches, slots + held); // batches below it are read again
    const uint32_t slab_chunks = gridDim.x >= g.chunks * g.tiles ? gridDim.x / g.tiles : g.chunks, slab_tiles = gridDim.x / slab_chunks;
    const uint32_t slabs_of_chunk = g.tiles / slab_tiles, slabs = g.samples * g.chunks / slab_chunks * slabs_of_chunk;
    const uint64_t dy_step = uint64_t(g.row_step) * a.p.dy.spatial, x_step = uint64_t(g.row_step) * a.p.x.spatial,
                   dx_step = uint64_t(g.row_step) * a.p.dx.spatial;
    uint4 *const ring = reinterpret_cast<uint4 *>(dynamic_shared) + threadIdx.x; // [batch][row][dy, x][thread]

    const auto tile_of = [&](uint32_t slab) {
        return channel_tile<width>(g, slab / slabs_of_chunk * slab_chunks + blockIdx.x / slab_tiles,
                                   slab % slabs_of_chunk * slab_tiles + blockIdx.x % slab_tiles);
    };
    struct source {
        const T *dy, *x;
        int rows; // that are left
    };
    const auto source_of = [&](const channel_tile<width> &t) -> source {
        return {t.template at<T>(a.o.dy, a.p.dy), t.template at<T>(a.o.x, a.p.x), int(t.rows)};
    };
    const auto copy = [&](const source &from, uint32_t place, uint64_t policy) {
        const T *dy = from.dy, *x = from.x;
        uint4 *to = ring + place * (batch * 2 * threads);
#pragma unroll
        for (int u = 0; u < batch; ++u, dy += dy_step, x += x_step, to += 2 * threads)
            if (u < from.rows) copy_async_cached(to, dy, policy), copy_async_cached(to + threads, x, policy);
    };
    const auto get = [&](uint32_t place, rows_of_batch &to) {
        const uint4 *from = ring + place * (batch * 2 * threads);
#pragma unroll
        for (int u = 0; u < batch; ++u, from += 2 * threads) {
            const uint4 dy = from[0], x = from[threads];
            to.dy[u] = {{dy.x, dy.y, dy.z, dy.w}}, to.x[u] = {{x.x, x.y, x.z, x.w}};
        }
    };
    const auto advance = [&](uint32_t &place) {
        if (++place == slots) place = 0;
    };
    const uint64_t passing = evict_first();

    if (a.overlaps) follow_previous();
    uint32_t place = 0;
    source coming = source_of(tile_of(0)); // what is fetched next
    const auto fetch = [&](uint32_t to, uint64_t policy) {
        copy(coming, to, policy);
        coming.dy += batch * dy_step, coming.x += batch * x_step, coming.rows -= batch;
    };
#pragma unroll 1
    for (uint32_t b = 0; b < ahead; ++b) {
        fetch(b, passing);
        copy_commit();
    }
    for (uint32_t slab = 0; slab < slabs; ++slab) {
        const channel_tile<width> t = tile_of(slab);
        const source from = source_of(t);
        const uint32_t mine = t.channel - t.begin;

        // 1. Sums of the block's rows. Only the last of a thread's batches may lack rows.
        float weight = 1, rstd = 0; // of channel threadIdx.x of the tile
        __syncthreads();
        if (threadIdx.x < channels) {
            const mean_and_rstd<float> s = statistics_of(a, t.sample, t.begin + threadIdx.x);
            weight = parameter<T>(a.o.weight, a.weight_is_wide, t.begin + threadIdx.x, 1.0f), rstd = s.rstd;
            values[0][threadIdx.x] = s.mean, values[1][threadIdx.x] = rstd * weight;
        }
        __syncthreads();
        float mean[width];
        get_values(&values[0][mine], mean);
        rows_of_batch early[held]; // the first batches that are not read again
        uint32_t kept_place;       // of the first batch that stays in the ring
        {
            float dpre_sum[width] = {}, product_sum[width] = {}, dpres[width] = {}, products[width] = {};
            const auto flush = [&] {
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    dpres[i] += dpre_sum[i], dpre_sum[i] = 0;
                    products[i] += product_sum[i], product_sum[i] = 0;
                }
            };
            uint32_t b = 0, next_place = place + ahead < slots ? place + ahead : place + ahead - slots;
            const auto take = [&](rows_of_batch &data, auto is_last) {
                copy_wait_batches<ahead - 1>();
                get(place, data);
                const uint32_t next = b + ahead;
                fetch(next_place, next < again && next + a.cached >= again ? evict_last() : passing);
                copy_commit();
                if (b % slab_span == 0) flush();
#pragma unroll
                for (int u = 0; u < batch; ++u) {
                    if (!decltype(is_last)::value || int(b) * batch + u < from.rows) {
                        float dy[width], d[width];
                        unpack<T>(data.dy[u], dy);
                        unpack<T>(data.x[u], d);
#pragma unroll
                        for (int i = 0; i < width; ++i) {
                            dpre_sum[i] += dy[i];
                            product_sum[i] = fmaf(dy[i], d[i] - mean[i], product_sum[i]);
                        }
                    }
                }
                advance(place), advance(next_place), ++b;
            };
            rows_of_batch data;
#pragma unroll 1
            while (b < again) take(data, std::false_type());
#pragma unroll
            for (int h = 0; h < held; ++h)
                if (b + kept < batches) take(early[h], std::false_type());
            kept_place = place;
#pragma unroll 1
            while (b + 1 < batches) take(data, std::false_type());
            take(data, std::true_type());
            flush();
            put_column(columns[0], dpres, vectors, mine), put_column(columns[1], products, vectors, mine);
        }
        __syncthreads();
        publish_columns(a.dpres, a.products, uint64_t(t.chunk) * g.channels + t.begin, channels, columns);
        auto arrival = grid.barrier_arrive();
        const bool has_next = slab + 1 < slabs;
        if (has_next) {
            coming = source_of(tile_of(slab + 1));
            if (again < slots && mine * sizeof(T) % 128 == 0) { // otherwise the L2 is needed for what is read again
                const T *dy = coming.dy, *x = coming.x;
                for (int j = 0; j < min(int(slab_prefetched) * batch, coming.rows); ++j, dy += dy_step, x += x_step)
                    prefetch_line(dy), prefetch_line(x);
            }
        }
        grid.barrier_wait(std::move(arrival));

        // 2. Sums of the sample, means of the tile's groups.
        const uint64_t first = uint64_t(t.sample) * g.chunks * g.channels + t.begin;
        const float2 of_channel = gather_columns(a.dpres, a.products, first, g.chunks, g.channels, channels, columns);
        if (g.samples == 1 && t.chunk == 0 && threadIdx.x < channels)
            store_parameters<T>(a, t.begin + threadIdx.x, of_channel.y * rstd, of_channel.x);
        float sums[2] = {of_channel.x * weight, of_channel.y * weight};
        if (g.group_channels > 1) sum_groups(sums, g.group_channels, channels, columns);
        if (threadIdx.x < channels) {
            const gradient_means<float> m = finish_means(sums[0], sums[1], rstd, a.reciprocal_count);
            values[2][threadIdx.x] = -rstd * m.g, values[3][threadIdx.x] = -rstd * m.slope;
        }
        __syncthreads();

        // 3. Gradients: first of the rows in the ring, which makes room for rows that are read again and for the next slab; then of those in
        // registers; then of those that are read again.
        float scale[width], offset[width], slope[width];
        get_values(&values[1][mine], scale), get_values(&values[2][mine], offset), get_values(&values[3][mine], slope);
        T *const dx = t.template at<T>(a.o.dx, a.p.dx);
        const auto finish = [&](const rows_of_batch &data, uint32_t b, auto is_last) {
            T *to = dx + uint64_t(b) * (batch * dx_step);
#pragma unroll
            for (int u = 0; u < batch; ++u, to += dx_step) {
                if (!decltype(is_last)::value || int(b) * batch + u < from.rows) {
                    float dy[width], d[width];
                    unpack<T>(data.dy[u], dy);
                    unpack<T>(data.x[u], d);
#pragma unroll
                    for (int i = 0; i < width; ++i) d[i] = fmaf(dy[i], scale[i], fmaf(d[i] - mean[i], slope[i], offset[i]));
                    store(to, pack<T, 16>(d));
                }
            }
        };
        uint32_t turn = 0; // batches that left the ring, of kept + again
        const auto leave = [&](rows_of_batch &data) {
            get(place, data);
            if (turn < again) {
                const uint64_t b = again - 1 - turn;
                copy({from.dy + b * (batch * dy_step), from.x + b * (batch * x_step), batch}, place, passing);
            } else if (has_next && turn + ahead >= kept + again) {
                fetch(place, passing);
            }
            copy_commit();
            advance(place), ++turn;
        };
        rows_of_batch data;
        place = kept_place;
#pragma unroll 1
        for (uint32_t b = batches - kept; b + 1 < batches; ++b) {
            leave(data);
            finish(data, b, std::false_type());
        }
        leave(data);
        finish(data, batches - 1, std::true_type());
#pragma unroll
        for (int h = 0; h < held; ++h)
            if (again + h + kept < batches) finish(early[h], again + h, std::false_type());
#pragma unroll 1
        for (uint32_t b = again; b-- > 0;) {
            copy_wait_batches<slots - 1>();
            leave(data);
            finish(data, b, std::false_type());
        }
        place = place >= ahead ? place - ahead : place + slots - ahead; // of the next slab's first batch
    }

    // 4. Gradients of parameters if every sample has statistics of its own.
    if (g.samples > 1 && (a.o.dweight || a.o.dbias))
        for (uint32_t c = threadIdx.x / 32 * gridDim.x + blockIdx.x; c < g.channels; c += slabs_warps * gridDim.x)
            merge_parameters<false, T>(a, c, static_cast<float(*)[team_slots]>(nullptr));
}

// Host: the form `slabs`.
template <typename T> bops_status channels_last_norm_backward_slabs_kernels(const bops_channel_norm_backward_params &p,
                                                                            const bops_channels_last_norm_slabs_choice &c, const form_types &types,
                                                                            const bops_channel_norm_backward_operands &o, void *workspace,
                                                                            const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_backward_arguments<T>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true}, types, o, workspace, c.overlaps);
        a.slots = c.ring_batches, a.tensors = 2, a.cached = c.cached_batches;
        a.dpres = static_cast<float *>(workspace), a.products = a.dpres + uint64_t(a.g.samples) * a.g.chunks * a.g.channels;
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.cooperative = true, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = c.ring_batches * slab_batch * a.tensors * c.threads * 16;
        return call(channel_last_backward_slabs<T>, shape, a);
    }
}

} // namespace bops
