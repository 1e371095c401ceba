// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the form `slabs`, without activation and residual: one cooperative launch
// that takes slabs, which are some tiles of channels or some samples, one after another. In a slab every block has one tile in one chunk of the rows.
//
// A thread's rows pass through a ring in shared memory. The first rows stay in registers and the last in the ring until the statistics are known;
// those between, if any, are read again, as far as possible from the L2. Free places of the ring take the next slab's first rows during the exchange,
// and as soon as rows are written from registers, rows of the next slab go there.
#pragma once
#include "channels_last_norm.cuh"
#include "channels_last_norm_columns.cuh"

namespace bops {

// Batches of a slab that a thread's registers hold, at most: each takes 16 of the 255 registers that a block of 256 threads leaves it.
constexpr int slabs_held = 10;
constexpr uint32_t slabs_ahead = 9; // batches on their way to shared memory: all places of the smaller ring
// Batches of the next slab that are asked for before the block waits for other blocks' sums; more would delay these.
constexpr uint32_t slabs_early = 4;
// Batches behind those in registers that a float adds up before it is passed on, so that rounding errors stay small. The batches in registers, up to
// 10, are one chain of additions. The last batch of all goes to the chain before it.
constexpr uint32_t slabs_span = 8;
// Places of the ring: batches of 16 KiB that the shared memory of a block holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr uint32_t slabs_slots = 9;
#else
constexpr uint32_t slabs_slots = 13;
#endif

__device__ __forceinline__ float middle(float a, float b, float c) { return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)); }

// What most warps' values of a channel are near: it moves only if three or more of them are far off.
__device__ __forceinline__ float middle_of_warps(const warp_columns<slabs_warps> &columns, uint32_t channel) {
    float of_warp[slabs_warps];
#pragma unroll
    for (int w = 0; w < slabs_warps; ++w) of_warp[w] = columns.values[w][channel];
    return middle(middle(of_warp[0], of_warp[1], of_warp[2]), middle(of_warp[3], of_warp[4], of_warp[5]), 0.5f * (of_warp[6] + of_warp[7]));
}

// The shift, rounded to x's type. If x has 16 bits, differences from the rounded shift of numbers of about its size are exact in f32, so that no
// rounding adds up in long sums; differences from another number would all be rounded in the same direction.
template <typename T> __device__ __forceinline__ float representable(float shift) { return widen(narrow<T>(shift)); }

// Where the batches of a thread are while a slab's statistics are computed: the first in registers, the last in the ring. The last batch of all, which
// may lack rows, is in the ring.
struct slab_places {
    uint32_t batches, in_registers, in_ring;
    uint32_t again, first_kept; // batches between them, which are read again, and the first in the ring
    uint32_t vacant;            // places for the next slab during the exchange

    __device__ __forceinline__ explicit slab_places(const channel_last_shape &g) {
        batches = (g.chunk_rows + g.lanes * ring_batch - 1) / (g.lanes * ring_batch);
        in_registers = min(batches - 1, uint32_t(slabs_held)), in_ring = min(batches - in_registers, slabs_slots);
        again = batches - in_registers - in_ring, first_kept = in_registers + again;
        vacant = again > 0 ? 0 : slabs_slots - in_ring;
    }
};

// The rows of a thread on their way from memory, slab after slab, through the ring.
template <typename T> struct slab_reader {
    static constexpr int width = 16 / int(sizeof(T)), batch = ring_batch;
    const thread_ring<slabs_slots, batch, 1, slabs_threads> ring;
    const channel_last_arguments<float> &a;
    const slab_order &slabs;
    const slab_places &at;
    const uint64_t step, passing;        // elements between rows of a thread; the cache policy of rows that the L2 is not asked to keep
    const T *x;                          // what is fetched next
    int rows;                            // of the slab that are still to be fetched
    uint32_t fetch_place = 0, place = 0; // of the batch that is fetched next, and of the one that is taken next

    __device__ __forceinline__ slab_reader(const channel_last_arguments<float> &of, const slab_order &order, const slab_places &places)
        : a(of), slabs(order), at(places), step(uint64_t(of.g.row_step) * of.p.x.spatial), passing(evict_first()) {
        open(0);
    }
    // Fetches from slab `slab` on, if there is one.
    __device__ __forceinline__ void open(uint32_t slab) {
        if (slab >= slabs.count) {
            x = nullptr, rows = 0;
            return;
        }
        const auto t = slabs.tile<width>(a.g, slab);
        x = t.template at<T>(a.o.x, a.p.x), rows = int(t.rows);
    }
    // Starts to copy the first rows of `count` from `from` to the ring.
    __device__ __forceinline__ void copy(const T *from, int count, uint64_t policy) {
#pragma unroll
        for (int u = 0; u < batch; ++u, from += step)
            if (u < count) copy_async_cached(ring.at(fetch_place, u), from, policy);
        ring.advance(fetch_place);
    }
    __device__ __forceinline__ void fetch(uint64_t policy) {
        copy(x, rows, policy);
        x += batch * step, rows -= batch;
    }
    // Fetches batches `from` to before `to`, which are among a slab's first slabs_ahead; one that does not exist is an empty group of copies.
    __device__ __forceinline__ void fetch_first(uint32_t from, uint32_t to) {
#pragma unroll 1
        for (uint32_t b = from; b < to; ++b) {
            if (b < at.batches) fetch(passing);
            copy_commit();
        }
    }
    // Takes the batch that is in the ring the longest.
    __device__ __forceinline__ void take(packed<16> (&data)[batch]) {
        ring.get(place, data);
        ring.advance(place);
    }
    // Takes batch b of the slab that is read, and fetches a later one.
    __device__ __forceinline__ void receive(packed<16> (&data)[batch], uint32_t b) {
        copy_wait_batches<slabs_ahead - 1>();
        take(data);
        const uint32_t next = b + slabs_ahead;
        if (next < at.batches) fetch(next < at.first_kept && next + a.cached >= at.first_kept ? evict_last() : passing);
        copy_commit();
    }
    // The last batches stay in the ring, and are taken next.
    __device__ __forceinline__ void keep_last() {
        place = fetch_place >= at.in_ring ? fetch_place - at.in_ring : fetch_place + slabs_slots - at.in_ring;
    }

    // Every block makes the shift of a slab's groups from the same rows, one of every lane, scattered over the sample. Other blocks read these
    // rows too, so their copies have no L2 policy.
    __device__ __forceinline__ uint4 *sample() const { return ring.at(slabs_slots, 0); } // a vector of every thread, behind the ring
    __device__ __forceinline__ void fetch_sample(uint32_t slab) const {
        const auto t = slabs.tile<width>(a.g, slab);
        // span: rows of a lane's stretch of the sample. The factor, about 2^32 over the golden ratio, has neighbouring lanes take rows at unlike
        // places of their stretches.
        const uint32_t of_lane = threadIdx.x / a.g.tile_vectors, span = a.g.rows / a.g.lanes;
        const uint32_t row = uint32_t(uint64_t(of_lane) * a.g.rows / a.g.lanes) + (span ? (of_lane * 0x9e3779b1u >> 8) % span : 0);
        copy_async<16>(sample(), static_cast<const T *>(a.o.x) + (t.sample * a.p.x.batch + row * a.p.x.spatial + t.channel));
    }
    __device__ __forceinline__ void put_sample(warp_columns<slabs_warps> &to) const {
        const uint4 v = *sample();
        float value[width];
        unpack<T>(packed<16>{{v.x, v.y, v.z, v.w}}, value);
        to.put(value, a.g.tile_vectors);
    }
};

// Writes a thread's rows of a slab.
template <typename T> struct slab_writer : vector_output<T, 16> {
    static constexpr int batch = ring_batch;
    const channel_last_arguments<float> &a;
    const T *const x;
    T *const y;
    const uint64_t step;
    const int rows;

    __device__ __forceinline__ slab_writer(const channel_last_arguments<float> &of, const channel_tile<16 / int(sizeof(T))> &t)
        : a(of), x(t.template at<T>(of.o.x, of.p.x)), y(t.template at<T>(of.o.y, of.p.y)), step(uint64_t(of.g.row_step) * of.p.y.spatial),
          rows(int(t.rows)) {}

    // Writes batch b. is_last: it may lack rows.
    template <bool is_last = false> __device__ __forceinline__ void write(const packed<16> (&data)[batch], uint32_t b) const {
        T *to = y + uint64_t(b) * batch * step;
#pragma unroll
        for (int u = 0; u < batch; ++u, to += step)
            if (!is_last || int(b) * batch + u < rows) store(to, this->template of<false>(data[u], a));
    }
    // Writes the rows that are in the ring. Rows that leave the ring make room for those that are read again, last to first, and then for the next
    // slab's, if there is one.
    __device__ __forceinline__ void write_ring(slab_reader<T> &reader, bool has_next) const {
        const slab_places &at = reader.at;
        packed<16> data[batch];
        uint32_t turn = 0; // batches that have left the ring
        const auto leave = [&] {
            reader.take(data);
            if (at.again > 0) {
                if (turn < at.again) reader.copy(x + uint64_t(at.first_kept - 1 - turn) * (batch * reader.step), batch, reader.passing);
                else if (turn + slabs_ahead >= slabs_slots + at.again) reader.fetch(reader.passing);
                copy_commit();
            }
            ++turn;
        };
#pragma unroll 1
        for (uint32_t b = at.first_kept; b + 1 < at.batches; ++b) {
            leave();
            write(data, b);
        }
        leave();
        write<true>(data, at.batches - 1);
        if (at.again == 0 && has_next) reader.fetch_first(min(slabs_ahead, at.vacant), slabs_ahead);
#pragma unroll 1
        for (uint32_t b = at.first_kept; b-- > at.in_registers;) {
            copy_wait_batches<slabs_slots - 1>();
            leave();
            write(data, b);
        }
    }
};

// The sums of a thread's rows of a slab about a shift.
template <typename T> struct slab_sums : channel_sums<16 / int(sizeof(T)), float> {
    static constexpr int width = 16 / int(sizeof(T)), batch = ring_batch;
    float shift[width];

    __device__ __forceinline__ void add(const packed<16> &data) {
        float v[width];
        unpack<T>(data, v);
        add_moments(v, shift, this->part[0], this->part[1]);
    }
    // Adds the batches that do not stay in registers, as they arrive; rows: of the thread.
    __device__ __forceinline__ void add_rest(slab_reader<T> &reader, int rows) {
        const slab_places &at = reader.at;
        packed<16> data[batch];
#pragma unroll 1
        for (uint32_t b = at.in_registers; b + 1 < at.batches; ++b) {
            reader.receive(data, b);
            if ((b - at.in_registers) % slabs_span == 0) this->flush();
#pragma unroll
            for (int u = 0; u < batch; ++u) add(data[u]);
        }
        reader.receive(data, at.batches - 1);
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (int(at.batches - 1) * batch + u < rows) add(data[u]);
        this->flush();
    }
};

template <typename T> __global__ void __launch_bounds__(slabs_threads, 1)
    channel_last_slabs(const __grid_constant__ channel_last_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), batch = ring_batch, held = slabs_held;
    __shared__ __align__(16) slab_columns columns;
    __shared__ __align__(16) float values[4][resident_channels]; // as of put_scales for the slab that is written; shift of the one that is read
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const uint32_t vectors = g.tile_vectors, channels = vectors * width, mine = threadIdx.x % vectors * width;
    const bool has_channel = threadIdx.x < channels; // channel threadIdx.x of the tile
    const slab_places at(g);
    const slab_order slabs(g);
    slab_reader<T> reader(a, slabs, at);
    // Factor from a warp's sums over its sampled rows, added up over a group's channels, to the group's mean.
    const float of_samples = float(slabs_warps) / float(g.lanes * g.group_channels);

    // 1. The shift of the first slab.
    if (a.overlaps) follow_previous();
    reader.fetch_sample(0);
    copy_commit();
    reader.fetch_first(0, slabs_ahead);
    copy_wait_batches<slabs_ahead>();
    reader.put_sample(columns.sums[1]);
    __syncthreads();
    float sampled[1] = {has_channel ? middle_of_warps(columns.sums[1], threadIdx.x) : 0.0f};
    columns.sum_groups(sampled, g.group_channels, channels);
    float shift_read = representable<T>(sampled[0] * of_samples); // of channel threadIdx.x of the tile
    if (has_channel) values[3][threadIdx.x] = shift_read;
    __syncthreads();

    packed<16> early[held][batch]; // a slab's first batches
    for (uint32_t slab = 0; slab <= slabs.count; ++slab) {
        // 2. Outputs of the slab before; sums of this one.
        const bool reads = slab < slabs.count, has_next = slab + 1 < slabs.count;
        if (has_next) reader.fetch_sample(slab + 1);
        const auto t = slabs.tile<width>(g, reads ? slab : 0);
        slab_writer<T> writer(a, slabs.tile<width>(g, slab > 0 ? slab - 1 : 0));
        slab_sums<T> sums;
        get_values(&values[3][mine], sums.shift);
        writer.get(&values[0][mine], resident_channels);
        if (slab > 0) writer.write_ring(reader, reads);
#pragma unroll
        for (int h = 0; h < held; ++h) {
            if (h < at.in_registers) {
                packed<16> data[batch];
                if (reads) reader.receive(data, h);
                if (slab > 0) writer.write(early[h], h);
#pragma unroll
                for (int u = 0; u < batch; ++u) {
                    if (reads) sums.add(data[u]);
                    early[h][u] = data[u];
                }
            }
        }
        if (!reads) break;
        sums.add_rest(reader, int(t.rows));
        reader.keep_last();

        // 3. Exchange of the sums. Meanwhile the next slab's rows and its sample are on their way.
        columns.sums[0].put(sums.total[0], vectors), columns.sums[1].put(sums.total[1], vectors);
        __syncthreads();
        columns.publish(a.sums, a.squares, uint64_t(t.chunk) * g.channels + t.begin, channels);
        auto arrival = grid.barrier_arrive();
        reader.open(slab + 1);
        if (has_next) {
            copy_wait_batches<0>();
            reader.put_sample(columns.sums[1]);
            reader.fetch_first(0, min(slabs_early, at.vacant));
        }
        const uint32_t channel = t.begin + threadIdx.x;
        float weight = 1, bias = 0; // of channel threadIdx.x of the tile
        if (has_channel) {
            weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f), bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f);
        }
        grid.barrier_wait(std::move(arrival));

        // 4. Statistics of the tile's groups; shift of the next slab.
        const uint64_t first = uint64_t(t.sample) * g.chunks * g.channels + t.begin;
        const float2 both = columns.gather(a.sums, a.squares, first, g, channels);
        if (has_next) reader.fetch_first(min(slabs_early, at.vacant), min(slabs_ahead, at.vacant));
        float value[3] = {both.x, both.y, has_next && has_channel ? middle_of_warps(columns.sums[1], threadIdx.x) : 0.0f};
        columns.sum_groups(value, g.group_channels, channels);
        moments<float> total = {shift_read, value[0], value[1]};
        total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
        shift_read = representable<T>(value[2] * of_samples);
        if (has_channel) {
            put_scales(&values[0][threadIdx.x], resident_channels, finish_statistics(total, a.reciprocal_count, a.eps), weight, bias);
            values[3][threadIdx.x] = shift_read;
        }
        __syncthreads();
        const uint32_t group = channel / g.group_channels;
        if (has_channel && t.chunk == t.sample * g.chunks && channel == group * g.group_channels)
            finish_group(a, total, uint64_t(t.sample) * g.groups + group, true);
    }
}

// Host: the form `slabs`.
template <typename T> bops_status channels_last_norm_slabs_kernels(const forward_call<bops_channels_last_norm_slabs_choice> &f) {
    const auto &c = f.c;
    auto a = last_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true}, c.overlaps);
    a.slots = c.ring_batches, a.cached = c.cached_batches;
    launch_shape shape = f.shape(c.threads);
    shape.cooperative = true;
    shape.shared_bytes = (c.ring_batches * ring_batch * c.threads + slabs_threads) * 16; // a place more, for the sample
    return f.call(channel_last_slabs<T>, shape, a);
}

} // namespace bops
