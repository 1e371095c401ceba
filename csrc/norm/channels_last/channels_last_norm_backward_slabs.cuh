// BatchNorm, GroupNorm and InstanceNorm backward over channels-last layouts, the form `slabs`, if dx follows from dy and x alone: one cooperative
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
constexpr uint32_t slab_prefetched = 9; // batches of the next slab that the L2 fetches: of 132 blocks 19 MB
constexpr uint32_t slab_span = 16;      // batches that a float adds up before it is passed on, so that rounding errors stay small
// Places of the ring: batches of 16 KiB, of dy and x, that the shared memory of a block holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr uint32_t slab_slots = 9;
#else
constexpr uint32_t slab_slots = 13;
#endif
// Batches of a slab that a thread's registers hold, at most: each takes 16 of the 255 registers that a block of 256 threads leaves it.
template <typename T> constexpr int slab_held = sizeof(T) == 2 ? 10 : 11;

__device__ __forceinline__ void prefetch_line(const void *from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// Where a thread's rows of a slab are.
template <typename T> struct gradient_source {
    const T *dy, *x;
    int rows;
};

struct gradient_batch {
    packed<16> dy[slab_batch], x[slab_batch];
};

// The rows of a thread on their way from memory, slab after slab, through the ring.
template <typename T> struct gradient_reader {
    static constexpr int width = 16 / int(sizeof(T)), batch = slab_batch;
    const thread_ring<slab_slots, batch, 2, slabs_threads> ring;
    const channel_last_backward_arguments<float> &a;
    const uint64_t dy_step, x_step, passing; // distances of a thread's rows; the cache policy of rows that are not read again
    uint32_t batches, kept, again;           // of a slab; those that stay in the ring; those, from the first on, that are read again
    gradient_source<T> coming;               // what is fetched next
    uint32_t place = 0;                      // of the batch that is taken next

    __device__ __forceinline__ explicit gradient_reader(const channel_last_backward_arguments<float> &of)
        : a(of), dy_step(uint64_t(of.g.row_step) * of.p.dy.spatial), x_step(uint64_t(of.g.row_step) * of.p.x.spatial), passing(evict_first()) {
        batches = (a.g.chunk_rows + a.g.lanes * batch - 1) / (a.g.lanes * batch), kept = min(batches, slab_slots);
        again = batches - min(batches, slab_slots + slab_held<T>);
    }
    __device__ __forceinline__ gradient_source<T> source_of(const channel_tile<width> &t) const {
        return {t.template at<T>(a.o.dy, a.p.dy), t.template at<T>(a.o.x, a.p.x), int(t.rows)};
    }
    // Starts to copy a batch, of as many rows as there are, to a place of the ring.
    __device__ __forceinline__ void copy(const gradient_source<T> &from, uint32_t to, uint64_t policy) const {
        const T *dy = from.dy, *x = from.x;
#pragma unroll
        for (int u = 0; u < batch; ++u, dy += dy_step, x += x_step)
            if (u < from.rows) copy_async_cached(ring.at(to, u, 0), dy, policy), copy_async_cached(ring.at(to, u, 1), x, policy);
    }
    __device__ __forceinline__ void fetch(uint32_t to, uint64_t policy) {
        copy(coming, to, policy);
        coming.dy += batch * dy_step, coming.x += batch * x_step, coming.rows -= batch;
    }
    __device__ __forceinline__ void get(gradient_batch &to) const { ring.get(place, to.dy, 0), ring.get(place, to.x, 1); }

    // Asks the L2 for the first rows of what comes.
    __device__ __forceinline__ void prefetch() const {
        const T *dy = coming.dy, *x = coming.x;
        for (int j = 0; j < min(int(slab_prefetched) * batch, coming.rows); ++j, dy += dy_step, x += x_step) prefetch_line(dy), prefetch_line(x);
    }
    // Takes the batch that is in the ring the longest, as number `turn` of kept + again. It makes room for a batch of `from` that is read again, last
    // to first, and then for what comes, if there is anything.
    __device__ __forceinline__ void replace(gradient_batch &data, uint32_t turn, const gradient_source<T> &from, bool has_next) {
        get(data);
        if (turn < again) {
            const uint64_t b = again - 1 - turn;
            copy({from.dy + b * (batch * dy_step), from.x + b * (batch * x_step), batch}, place, passing);
        } else if (has_next && turn + slab_ahead >= kept + again) {
            fetch(place, passing);
        }
        copy_commit();
        ring.advance(place);
    }
};

// The first walk over a thread's rows of a slab: sums of dpre and of dpre * d.
template <typename T> struct gradient_walk {
    static constexpr int width = 16 / int(sizeof(T)), batch = slab_batch;
    gradient_reader<T> &reader;
    const float (&mean)[width];
    const int rows; // of the thread
    channel_sums<width, float> sums;
    uint32_t b = 0, next_place; // the batch that is taken next, and the place of the next copy

    __device__ __forceinline__ gradient_walk(gradient_reader<T> &from, const float (&of_channels)[width], int of_thread)
        : reader(from), mean(of_channels), rows(of_thread),
          next_place(reader.place + slab_ahead < slab_slots ? reader.place + slab_ahead : reader.place + slab_ahead - slab_slots) {}

    // Adds the next batch, whose vectors it returns, and starts to copy a later one. is_last: the batch may lack rows.
    template <bool is_last = false> __device__ __forceinline__ void take(gradient_batch &data) {
        copy_wait_batches<slab_ahead - 1>();
        reader.get(data);
        const uint32_t next = b + slab_ahead;
        reader.fetch(next_place, next < reader.again && next + reader.a.cached >= reader.again ? evict_last() : reader.passing);
        copy_commit();
        if (b % slab_span == 0) sums.flush();
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (!is_last || int(b) * batch + u < rows) add_gradients<T>(data.dy[u], data.x[u], mean, sums.part[0], sums.part[1]);
        reader.ring.advance(reader.place), reader.ring.advance(next_place), ++b;
    }
    // Adds the batches up to number `end`, of which none lacks rows.
    __device__ __forceinline__ void take_until(uint32_t end) {
        gradient_batch data;
#pragma unroll 1
        while (b < end) take(data);
    }
};

// Writes a thread's rows of dx.
template <typename T> struct slab_gradient_writer : vector_gradient<T> {
    static constexpr int batch = slab_batch;
    T *const dx;
    const uint64_t step;
    const int rows;

    __device__ __forceinline__ slab_gradient_writer(const channel_last_backward_arguments<float> &a, const channel_tile<16 / int(sizeof(T))> &t)
        : dx(t.template at<T>(a.o.dx, a.p.dx)), step(uint64_t(a.g.row_step) * a.p.dx.spatial), rows(int(t.rows)) {}

    // Writes batch b. is_last: it may lack rows.
    template <bool is_last = false> __device__ __forceinline__ void write(const gradient_batch &data, uint32_t b) const {
        T *to = dx + uint64_t(b) * (batch * step);
#pragma unroll
        for (int u = 0; u < batch; ++u, to += step)
            if (!is_last || int(b) * batch + u < rows) store(to, this->of(data.dy[u], data.x[u]));
    }
};

template <typename T> __global__ void __launch_bounds__(slabs_threads, 1)
    channel_last_backward_slabs(const __grid_constant__ channel_last_backward_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), held = slab_held<T>;
    __shared__ __align__(16) slab_columns columns;               // of dpre and of products
    __shared__ __align__(16) float values[4][resident_channels]; // mean, scale, offset, slope, as of vector_gradient
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const uint32_t vectors = g.tile_vectors, channels = vectors * width;
    const bool has_channel = threadIdx.x < channels; // channel threadIdx.x of the tile
    const slab_order slabs(g);
    gradient_reader<T> reader(a);
    const uint32_t batches = reader.batches, again = reader.again, kept = reader.kept;

    if (a.overlaps) follow_previous();
    reader.coming = reader.source_of(slabs.tile<width>(g, 0));
#pragma unroll 1
    for (uint32_t b = 0; b < slab_ahead; ++b) {
        reader.fetch(b, reader.passing);
        copy_commit();
    }
    for (uint32_t slab = 0; slab < slabs.count; ++slab) {
        const auto t = slabs.tile<width>(g, slab);
        const auto from = reader.source_of(t);
        const uint32_t mine = t.channel - t.begin;
        slab_gradient_writer<T> writer(a, t);

        // 1. Sums of the block's rows. Only the last of a thread's batches may lack rows.
        float weight = 1, rstd = 0; // of channel threadIdx.x of the tile
        __syncthreads();
        if (has_channel) {
            const mean_and_rstd<float> s = statistics_of(a, t.sample, t.begin + threadIdx.x);
            weight = parameter<T>(a.o.weight, a.weight_is_wide, t.begin + threadIdx.x, 1.0f), rstd = s.rstd;
            values[0][threadIdx.x] = s.mean, values[1][threadIdx.x] = rstd * weight;
        }
        __syncthreads();
        get_values(&values[0][mine], writer.mean);
        gradient_batch early[held]; // the first batches that are not read again
        uint32_t kept_place;        // of the first batch that stays in the ring
        {
            gradient_walk<T> walk(reader, writer.mean, from.rows);
            walk.take_until(again);
#pragma unroll
            for (int h = 0; h < held; ++h)
                if (walk.b + kept < batches) walk.take(early[h]);
            kept_place = reader.place;
            walk.take_until(batches - 1);
            gradient_batch data;
            walk.template take<true>(data);
            walk.sums.flush();
            columns.sums[0].put(walk.sums.total[0], vectors), columns.sums[1].put(walk.sums.total[1], vectors);
        }
        __syncthreads();
        columns.publish(a.dpres, a.products, uint64_t(t.chunk) * g.channels + t.begin, channels);
        auto arrival = grid.barrier_arrive();
        const bool has_next = slab + 1 < slabs.count;
        if (has_next) {
            reader.coming = reader.source_of(slabs.tile<width>(g, slab + 1));
            if (again < slab_slots && mine * sizeof(T) % 128 == 0) reader.prefetch(); // otherwise the L2 is needed for what is read again
        }
        grid.barrier_wait(std::move(arrival));

        // 2. Sums of the sample, means of the tile's groups.
        const uint64_t first = uint64_t(t.sample) * g.chunks * g.channels + t.begin;
        const float2 of_channel = columns.gather(a.dpres, a.products, first, g, channels);
        if (g.samples == 1 && t.chunk == 0 && has_channel) store_parameters<T>(a, t.begin + threadIdx.x, of_channel.y * rstd, of_channel.x);
        float sums[2] = {of_channel.x * weight, of_channel.y * weight};
        columns.sum_groups(sums, g.group_channels, channels);
        if (has_channel) {
            const gradient_means<float> m = finish_means(sums[0], sums[1], rstd, a.reciprocal_count);
            values[2][threadIdx.x] = -rstd * m.g, values[3][threadIdx.x] = -rstd * m.slope;
        }
        __syncthreads();

        // 3. Gradients: first of the rows in the ring, which makes room for rows that are read again and for the next slab; then of those in
        // registers; then of those that are read again.
        get_values(&values[1][mine], writer.scale), get_values(&values[2][mine], writer.offset), get_values(&values[3][mine], writer.slope);
        gradient_batch data;
        uint32_t turn = 0; // batches that left the ring
        reader.place = kept_place;
#pragma unroll 1
        for (uint32_t b = batches - kept; b + 1 < batches; ++b) {
            reader.replace(data, turn++, from, has_next);
            writer.write(data, b);
        }
        reader.replace(data, turn++, from, has_next);
        writer.template write<true>(data, batches - 1);
#pragma unroll
        for (int h = 0; h < held; ++h)
            if (again + h + kept < batches) writer.write(early[h], again + h);
#pragma unroll 1
        for (uint32_t b = again; b-- > 0;) {
            copy_wait_batches<slab_slots - 1>();
            reader.replace(data, turn++, from, has_next);
            writer.write(data, b);
        }
        reader.place = reader.place >= slab_ahead ? reader.place - slab_ahead : reader.place + slab_slots - slab_ahead; // the next slab's first batch
    }

    // 4. Gradients of parameters if every sample has statistics of its own.
    if (g.samples > 1 && (a.o.dweight || a.o.dbias))
        for (uint32_t c = threadIdx.x / 32 * gridDim.x + blockIdx.x; c < g.channels; c += slabs_warps * gridDim.x)
            merge_parameters<false, T>(a, c, static_cast<float(*)[team_slots]>(nullptr));
}

// Host: the form `slabs`.
template <typename T> bops_status channels_last_norm_backward_slabs_kernels(const backward_call<bops_channels_last_norm_slabs_choice> &f) {
    const auto &c = f.c;
    auto a = last_backward_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true}, c.overlaps);
    a.slots = c.ring_batches, a.tensors = 2, a.cached = c.cached_batches;
    a.dpres = static_cast<float *>(f.workspace), a.products = a.dpres + uint64_t(a.g.samples) * a.g.chunks * a.g.channels;
    launch_shape shape = f.shape(c.threads);
    shape.cooperative = true;
    shape.shared_bytes = c.ring_batches * slab_batch * a.tensors * c.threads * 16;
    return f.call(channel_last_backward_slabs<T>, shape, a);
}

} // namespace bops
