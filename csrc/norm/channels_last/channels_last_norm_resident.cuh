// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the form `resident`, for one sample or samples whose rows count as one:
// one cooperative launch in which every block has one tile of channels in one chunk of the rows.
//
// A thread's rows pass through a ring in shared memory. The last rows stay there and in registers until the statistics are known; the rows before
// them are read again, as far as possible from the L2.
#pragma once
#include "channels_last_norm.cuh"
#include "channels_last_norm_columns.cuh"

namespace bops {

constexpr uint32_t resident_warps = last_threads / 32; // of a block
constexpr int resident_ahead = 3;                      // batches in flight on the first walk; with more, SMs drift apart
// Places of the ring: batches of 32 KiB that the shared memory of a block holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int resident_slots = 4;
#else
constexpr int resident_slots = 6;
#endif
constexpr uint32_t resident_span = 8; // batches that a float adds up before it is passed on, so that rounding errors stay small

using resident_columns = warp_columns<resident_warps>;

// A thread's rows of x, and the ring through which they pass.
template <typename T> struct resident_rows {
    static constexpr int width = 16 / int(sizeof(T)), batch = ring_batch;
    const thread_ring<resident_slots, batch, 1, last_threads> ring;
    const T *x;
    uint64_t step;
    uint32_t rows, batches; // of the thread; of a chunk
    uint32_t again, cached; // batches below `again` are read twice, those from `cached` on the second time from the L2

    // held: batches that registers hold.
    __device__ __forceinline__ resident_rows(const channel_last_arguments<float> &a, const channel_tile<width> &t, uint32_t held)
        : x(t.template at<T>(a.o.x, a.p.x)), step(uint64_t(a.g.row_step) * a.p.x.spatial), rows(t.rows) {
        batches = (a.g.chunk_rows + a.g.lanes * batch - 1) / (a.g.lanes * batch);
        again = batches - min(batches, resident_slots + held), cached = again - min(again, a.cached);
    }
    // Starts to copy a batch to a place of the ring.
    __device__ __forceinline__ void fetch(uint32_t b, uint32_t place, uint64_t policy) const {
        const T *from = x + uint64_t(b) * batch * step;
#pragma unroll
        for (int u = 0; u < batch; ++u, from += step)
            if (b * batch + u < rows) copy_async_cached(ring.at(place, u), from, policy);
    }
    // Starts to copy a batch, if there is one, that is read for the first time.
    __device__ __forceinline__ void fetch_first(uint32_t b, uint32_t place) const {
        if (b < batches) fetch(b, place, b >= cached && b < again ? evict_last() : evict_first());
        copy_commit();
    }
};

// The first walk over a thread's rows: their moments about a shift.
template <typename T> struct resident_walk {
    static constexpr int width = resident_rows<T>::width, batch = ring_batch;
    const resident_rows<T> &from;
    float shift[width];
    channel_sums<width, float> sums;
    uint32_t b = 0, place = 0, next_place = resident_ahead % resident_slots; // the batch that is taken next, its place, and that of the next copy

    __device__ __forceinline__ explicit resident_walk(const resident_rows<T> &rows) : from(rows) {
#pragma unroll
        for (uint32_t k = 0; k < resident_ahead; ++k) from.fetch_first(k, k);
    }
    // The sums of the first batch of a thread's rows, which stays in the ring.
    __device__ __forceinline__ void sum_first(float (&sum)[width]) const {
        copy_wait_batches<resident_ahead - 1>();
        packed<16> data[batch];
        from.ring.get(0, data);
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            if (u < from.rows) {
                float v[width];
                unpack<T>(data[u], v);
#pragma unroll
                for (int i = 0; i < width; ++i) sum[i] += v[i];
            }
        }
    }
    __device__ __forceinline__ void add(const packed<16> &vector) {
        float v[width];
        unpack<T>(vector, v);
        add_moments(v, shift, sums.part[0], sums.part[1]);
    }
    // Adds the next batch, whose vectors it returns, and starts to copy a later one.
    __device__ __forceinline__ void take(packed<16> (&data)[batch]) {
        copy_wait_batches<resident_ahead - 1>();
        from.ring.get(place, data);
        from.fetch_first(b + resident_ahead, next_place);
        if (b % resident_span == 0) sums.flush();
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (b * batch + u < from.rows) add(data[u]);
        from.ring.advance(place), from.ring.advance(next_place), ++b;
    }
    // Adds the batches up to number `end`.
    __device__ __forceinline__ void take_until(uint32_t end) {
        while (b < end) {
            packed<16> data[batch];
            take(data);
        }
    }
    // Adds all rows once more, from memory, about another shift.
    __device__ __forceinline__ void repeat() {
#pragma unroll
        for (int i = 0; i < width; ++i) sums.total[0][i] = sums.total[1][i] = 0;
#pragma unroll 1
        for (uint32_t j = 0; j < from.rows; ++j) {
            if (j % (resident_span * batch) == 0) sums.flush();
            add(load<16, false>(from.x + j * from.step));
        }
    }
    // The moments of channel threadIdx.x of the tile over the block's rows, without their shift. Called by all threads of the block.
    __device__ __forceinline__ void add_up(resident_columns &columns, uint32_t vectors, moments<float> &to) {
        const bool has_channel = threadIdx.x < vectors * width;
        sums.flush();
        columns.put(sums.total[0], vectors);
        __syncthreads();
        if (has_channel) to.sum = columns.total(threadIdx.x);
        __syncthreads();
        columns.put(sums.total[1], vectors);
        __syncthreads();
        if (has_channel) to.square = columns.total(threadIdx.x);
    }
};

// Place of the moments of a chunk: [channel][chunk], so that the chunks that a team merges lie side by side.
template <typename A> __device__ __forceinline__ uint64_t resident_at(const channel_last_arguments<A> &a, uint32_t channel, uint32_t chunk) {
    return uint64_t(channel) * a.g.chunks + chunk;
}

// The statistics of all groups from the moments of chunks. Called by all threads of all blocks.
__device__ __forceinline__ void merge_resident(const channel_last_arguments<float> &a, float (*slots)[team_slots]) {
    for_items(a.g.groups, [&](auto is_block, uint64_t item) {
        constexpr bool block = decltype(is_block)::value;
        const auto part = [&](uint32_t channel, uint32_t chunk, float &count) -> moments<float> {
            count = float(a.g.rows_of(chunk));
            const uint64_t at = resident_at(a, uint32_t(item) * a.g.group_channels + channel, chunk);
            return {__ldcg(a.shifts + at), __ldcg(a.sums + at), __ldcg(a.squares + at)};
        };
        moments<float> total = merge_parts<block>(a.g.group_channels, a.g.chunks, a.reciprocal_count, part, slots);
        total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
        if (list_team<block>::lane() == 0) a.statistics[item] = finish_group(a, total, item, true);
    });
}

template <typename T> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_resident(const __grid_constant__ channel_last_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), batch = ring_batch, held = 1; // batches in registers
    __shared__ resident_columns columns;
    __shared__ __align__(16) float values[3][resident_channels]; // as of put_scales; at first only the shift
    __shared__ __align__(16) float slots[3][team_slots];
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const channel_tile<width> t(g, blockIdx.x);
    const uint32_t channel = t.begin + threadIdx.x, vectors = g.tile_vectors, channels = vectors * width, mine = t.channel - t.begin;
    const resident_rows<T> rows(a, t, held);
    resident_walk<T> walk(rows);

    // 1. The shift of every channel: the mean of the block's first batch.
    {
        const uint32_t count = min(g.rows_of(t.chunk), g.lanes * batch); // rows of that batch
        float sum[width] = {};
        walk.sum_first(sum);
        columns.put(sum, vectors);
        __syncthreads();
        if (threadIdx.x < channels) values[0][threadIdx.x] = count ? columns.total(threadIdx.x) / float(count) : 0.0f;
        __syncthreads();
        get_values(&values[0][mine], walk.shift);
    }

    // 2. Moments of the block's rows. If the shift is far from the mean, they are summed again about the mean.
    walk.take_until(rows.again);
    packed<16> early[held][batch]; // the first batches that are not read again
#pragma unroll
    for (int h = 0; h < held; ++h)
        if (walk.b + resident_slots < rows.batches) walk.take(early[h]);
    const uint32_t kept = walk.b; // the first batch that stays in the ring
    uint32_t place = walk.place;
    walk.take_until(rows.batches);
    moments<float> own = {}; // of channel number threadIdx.x
    if (threadIdx.x < channels) own.shift = values[0][threadIdx.x];
    walk.add_up(columns, vectors, own);
    const bool is_far = recenter(own, 1.0f / float(g.rows_of(t.chunk)));
    if (is_far) values[0][threadIdx.x] = own.shift;
    if (__syncthreads_or(is_far)) {
        get_values(&values[0][mine], walk.shift);
        walk.repeat();
        walk.add_up(columns, vectors, own);
    }
    if (threadIdx.x < channels) {
        const uint64_t at = resident_at(a, channel, t.chunk);
        __stcg(a.shifts + at, own.shift), __stcg(a.sums + at, own.sum), __stcg(a.squares + at, own.square);
    }
    grid.sync();

    // 3. Statistics of the groups.
    merge_resident(a, slots);
    grid.sync();
    finish_running(a);
    if (threadIdx.x < channels)
        put_scales(&values[0][threadIdx.x], resident_channels, statistics_of(a, 0, channel),
                   parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f), parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f));
    __syncthreads();
    output_writer<T, 16, true, true> output(a, t);
    output.get(&values[0][mine], resident_channels);

    // 4. Output: first of the rows in the ring, which makes room for those that are read again; then of those in registers; then of those read again.
    uint32_t asked = rows.again; // batches that are still to be fetched again
    const auto write_oldest = [&](uint32_t b) {
        packed<16> data[batch];
        rows.ring.get(place, data);
        if (asked > 0) rows.fetch(--asked, place, evict_first());
        copy_commit();
        output.write(data, b * batch);
        rows.ring.advance(place);
    };
    for (uint32_t b = kept; b < rows.batches; ++b) write_oldest(b);
#pragma unroll
    for (int h = 0; h < held; ++h)
        if (rows.again + h < kept) output.write(early[h], (rows.again + h) * batch);
    for (uint32_t b = rows.again; b-- > 0;) {
        copy_wait_batches<resident_slots - 1>();
        write_oldest(b);
    }
}

// Host: the form `resident`.
template <typename T> bops_status channels_last_norm_resident_kernels(const forward_call<bops_channels_last_norm_resident_choice> &f) {
    const auto &c = f.c;
    auto a = last_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true});
    a.slots = c.ring_batches, a.cached = c.cached_batches;
    launch_shape shape = last_launch(c.blocks, c.threads);
    shape.shared_bytes = c.ring_batches * ring_batch * c.threads * 16, shape.cooperative = true;
    return f.call(channel_last_resident<T>, shape, a);
}

} // namespace bops
