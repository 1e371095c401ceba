// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts: what all forms share, and the forms `split` and `cooperative`.
//
// A row is the channels of one position. A sample is `rows` rows at one stride; if the rows of all samples lie at one stride, BatchNorm sees one
// sample. A block works on a tile of channels in a chunk of the rows of a sample; a thread owns one vector of channels in every row_step-th row. The
// moments of chunks are merged for each group.
#pragma once
#include <cooperative_groups.h>

#include "../channel/channel_norm_contiguous.cuh"

namespace bops {

// ---- tiles -----------------------------------------------------------------------------------------------------------------

constexpr int last_threads = 512, last_merge_threads = 128;

struct channel_last_shape {
    uint32_t samples, rows, channels;
    uint32_t chunks, chunk_rows;         // of a sample; rows of a chunk at most
    uint32_t tiles, tile_vectors, lanes; // lanes: rows that a block reads side by side
    uint32_t groups, group_channels;
    uint32_t per_sample; // every sample has statistics of its own
    uint32_t is_merged;  // the samples are one
    // Distance between the rows of a thread. If it is `lanes`, a chunk is chunk_rows consecutive rows. If it is lanes * chunks, the chunks of a
    // sample take `lanes` rows in turn, so that blocks which stay in step read one region of memory.
    uint32_t row_step;

    __device__ __forceinline__ uint64_t items() const { return uint64_t(samples) * chunks * tiles; }
    __device__ __forceinline__ bool takes_turns() const { return row_step != lanes; }
    // First row of a chunk of a sample.
    __device__ __forceinline__ uint64_t first_row(uint32_t chunk) const { return uint64_t(chunk) * (takes_turns() ? lanes : chunk_rows); }
    // Rows of a chunk, numbered over all samples.
    __device__ __forceinline__ uint32_t rows_of(uint32_t chunk) const {
        const uint64_t first = first_row(chunk % chunks);
        if (first >= rows) return 0;
        const uint32_t rest = uint32_t(rows - first);
        if (!takes_turns()) return min(chunk_rows, rest);
        const uint32_t turns = rest / row_step;
        return turns * lanes + min(rest - turns * row_step, lanes);
    }
};

// A tile in a chunk, which a block works on at a time, and this thread's share of it.
template <int width> struct channel_tile {
    uint32_t chunk, sample;  // chunk: numbered over all samples
    uint32_t begin, channel; // first channel of the tile and of this thread
    uint32_t row, rows;      // first and number of the thread's rows

    __device__ __forceinline__ channel_tile(const channel_last_shape &g, uint64_t item)
        : channel_tile(g, uint32_t(item / g.tiles), uint32_t(item - item / g.tiles * g.tiles)) {}
    __device__ __forceinline__ channel_tile(const channel_last_shape &g, uint32_t number, uint32_t tile) : chunk(number), sample(number / g.chunks) {
        const uint32_t lane = threadIdx.x / g.tile_vectors, first = uint32_t(g.first_row(chunk - sample * g.chunks));
        begin = tile * g.tile_vectors * width;
        channel = begin + (threadIdx.x - lane * g.tile_vectors) * width, row = first + lane;
        const uint32_t of_chunk = g.rows_of(chunk);
        rows = lane < g.lanes && channel < g.channels && lane < of_chunk ? (of_chunk - lane + g.lanes - 1) / g.lanes : 0;
    }
    template <typename T> __device__ __forceinline__ T *at(const void *tensor, const bops_channel_strides &s) const {
        return static_cast<T *>(const_cast<void *>(tensor)) + (sample * s.batch + row * s.spatial + channel);
    }
};

constexpr int ring_batch = 4; // rows of a thread that a ring takes together

// A ring of `slots` batches in shared memory, [batch][row][tensor][thread]: a batch is some rows of each thread. Batches are numbered over all tiles
// of a block. Every thread copies and reads its own vectors, so no barrier is needed. The last batches are still in the ring when the tiles are
// walked over again, from the last to the first; the L2 is asked to keep the `cached` batches before them.
struct batch_ring {
    uint32_t slots, tensors, cached;
    uint32_t first, batches, all; // number of the tile's first batch; batches of the tile and of the block

    template <int width> __device__ __forceinline__ batch_ring(const channel_last_shape &g, const channel_tile<width> &t, uint32_t room,
                                                               uint32_t of_tensors, uint32_t in_cache, uint32_t turn, uint32_t turns)
        : slots(room), tensors(of_tensors), cached(in_cache) {
        const uint32_t rows = g.lanes * ring_batch, each = (g.chunk_rows + rows - 1) / rows;
        first = turn * each, all = turns * each, batches = (g.rows_of(t.chunk) + rows - 1) / rows;
    }
    __device__ __forceinline__ uint4 *at(uint32_t batch, uint32_t row, uint32_t tensor) const {
        return reinterpret_cast<uint4 *>(dynamic_shared) + (((first + batch) % slots * ring_batch + row) * tensors + tensor) * blockDim.x +
               threadIdx.x;
    }
    // The L2 cache policy for a batch on the first walk. On the second walk no line is needed again.
    __device__ __forceinline__ uint64_t policy(uint32_t batch) const {
        const uint32_t after = all - (first + batch); // batches from this one on
        return after > slots && after <= slots + cached ? evict_last() : evict_first();
    }
    __device__ __forceinline__ packed<16> get(uint32_t batch, uint32_t row, uint32_t tensor) const {
        const uint4 v = *at(batch, row, tensor);
        return {{v.x, v.y, v.z, v.w}};
    }
    // Walks over the batches from the first to the last: issue(batch, policy) starts the copies of a batch, consume(batch) uses them.
    template <typename Issue, typename Consume> __device__ __forceinline__ void walk(const Issue &issue, const Consume &consume) const {
        const auto start = [&](uint32_t batch) {
            if (batch < batches) issue(batch, policy(batch));
            copy_commit();
        };
        for (uint32_t b = 0; b < slots; ++b) start(b);
        for (uint32_t b = 0; b < batches; ++b) {
            copy_wait_groups(int(slots) - 1);
            consume(b);
            start(b + slots);
        }
    }
    // The same from the last to the first; batches that the first walk left in the ring are not copied again.
    template <typename Issue, typename Consume> __device__ __forceinline__ void walk_back(const Issue &issue, const Consume &consume) const {
        for (uint32_t k = 0; k < slots; ++k) {
            const uint32_t b = batches - 1 - k;
            if (k < batches && first + b + slots < all) issue(b, evict_first());
            copy_commit();
        }
        for (uint32_t b = batches; b-- > 0;) {
            copy_wait_groups(int(slots) - 1);
            consume(b);
            if (b >= slots) issue(b - slots, evict_first());
            copy_commit();
        }
    }
};

// Consecutive values in shared memory, in accesses of 16 bytes where there are as many.
template <int width, typename A> __device__ __forceinline__ void put_values(A *to, const A (&value)[width]) {
    if constexpr (width % 4 == 0 && sizeof(A) == 4) {
#pragma unroll
        for (int i = 0; i < width; i += 4) *reinterpret_cast<float4 *>(to + i) = make_float4(value[i], value[i + 1], value[i + 2], value[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < width; ++i) to[i] = value[i];
    }
}
template <int width, typename A> __device__ __forceinline__ void get_values(const A *from, A (&value)[width]) {
    if constexpr (width % 4 == 0 && sizeof(A) == 4) {
#pragma unroll
        for (int i = 0; i < width; i += 4) {
            const float4 v = *reinterpret_cast<const float4 *>(from + i);
            value[i] = v.x, value[i + 1] = v.y, value[i + 2] = v.z, value[i + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < width; ++i) value[i] = from[i];
    }
}

// Sums over the lanes of a block. Has room for one value of each channel of each thread, and for the sums of eight lanes each.
template <typename A, int width> struct lane_sums {
    static constexpr uint32_t room = last_threads * width, more = room / 4;
    alignas(16) A values[room + more];

    // Afterwards the result holds the total of every channel of the tile. Called by all threads of the block; what an earlier call returned is lost.
    __device__ __forceinline__ const A *total(const channel_last_shape &g, const A (&value)[width]) {
        const uint32_t channels = g.tile_vectors * width;
        __syncthreads();
        if (threadIdx.x < g.lanes * g.tile_vectors) put_values(values + threadIdx.x * width, value);
        A *from = values, *to = values + room;
        for (uint32_t lanes = g.lanes; lanes > 1;) {
            __syncthreads();
            const uint32_t next = (lanes + 7) / 8;
            for (uint32_t i = threadIdx.x; i < next * channels; i += blockDim.x) { // i = lane * channels + channel
                A part[8];
#pragma unroll
                for (int k = 0; k < 8; ++k) {
                    const uint32_t at = i + k * next * channels;
                    part[k] = at < lanes * channels ? from[at] : A(0);
                }
                to[i] = tree_sum(part);
            }
            A *const last = from;
            from = to, to = last, lanes = next;
        }
        __syncthreads();
        return from;
    }
};

// ---- forward ----------------------------------------------------------------------------------------------------------------

template <typename A> struct channel_last_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    channel_last_shape g;
    A eps, momentum, reciprocal_count, unbias; // of the elements of a group; unbias: count / (count - 1)
    uint32_t weight_is_wide;
    uint32_t slots, cached; // batches of a ring, and those that the L2 is to keep
    uint32_t overlaps;
    A *shifts, *sums, *squares;        // [samples * chunks][channels]
    channel_statistics<A> *statistics; // [samples or 1][groups]
};

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

constexpr int last_batch = 8; // rows of a thread that are loaded together where there is no ring

// Moments of a thread's rows, batch after batch. The shift is the mean of the first batch; after three batches, and after every `span` rows, it moves
// to the mean of all rows so far. So whatever the data, the sum of squares about the shift is at most 4 times that about the mean: for n rows after N
// rows, the distance of their means adds at most (N + n) / N <= 8 / 3 times as much as it adds to the sum about the mean.
template <typename T, int vec_bytes, int batch> struct moments_walk {
    static constexpr int width = vec_bytes / int(sizeof(T));
    static constexpr uint32_t span = 8 * batch, first_span = 3 * batch;
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

// A warp or a whole block that reduces a list together.
template <bool is_block> struct list_team {
    static __device__ __forceinline__ uint32_t lane() { return is_block ? threadIdx.x : threadIdx.x % 32; }
    static __device__ __forceinline__ uint32_t lanes() { return is_block ? blockDim.x : 32; }
    template <int count, typename A> static __device__ __forceinline__ void sum(A (&value)[count], A (*slots)[team_slots]) {
        if constexpr (is_block) {
            team_sum<false, false>(value, row_team(), slots);
        } else {
            warp_sum(value, 32);
        }
    }
};

constexpr int merge_batch = 6; // parts of a lane that are loaded together

// Walks over the parts lane, lane + lanes, .. of a list of chunks of `channels` channels: channel is part % channels, chunk part / channels.
struct part_walk {
    uint32_t chunk, channel, chunk_step, channel_step, channels;

    __device__ __forceinline__ part_walk(uint32_t lane, uint32_t lanes, uint32_t of_channels)
        : chunk(lane / of_channels), channel(lane % of_channels), chunk_step(lanes / of_channels), channel_step(lanes % of_channels),
          channels(of_channels) {}
    __device__ __forceinline__ void advance() {
        chunk += chunk_step, channel += channel_step;
        if (channel >= channels) channel -= channels, ++chunk;
    }
};

// The moments of a group from those of its chunks; part(chunk, channel, count) reads the moments of a part and its number of elements.
template <bool is_block, typename A, typename Part>
__device__ __forceinline__ moments<A> merge_parts(uint32_t chunks, uint32_t channels, A reciprocal_count, const Part &part, A (*slots)[team_slots]) {
    using team = list_team<is_block>;
    const bool is_short = uint64_t(chunks) * channels <= uint64_t(merge_batch) * team::lanes(); // one batch: it stays in registers
    moments<A> batch[merge_batch];
    A count[merge_batch];
    const auto read = [&](part_walk &walk) {
#pragma unroll
        for (int u = 0; u < merge_batch; ++u, walk.advance()) {
            count[u] = 0;
            if (walk.chunk < chunks) batch[u] = part(walk.chunk, walk.channel, count[u]);
        }
    };
    cascade<A> means, sums, squares;
    const part_walk start(team::lane(), team::lanes(), channels);
    for (part_walk walk = start; walk.chunk < chunks;) {
        read(walk);
#pragma unroll
        for (int u = 0; u < merge_batch; ++u)
            if (count[u] > A(0)) means.add(batch[u].shift * count[u]);
    }
    A mean[1] = {means.total()};
    team::sum(mean, slots);
    const A shift = rounded_product(mean[0], reciprocal_count);
    for (part_walk walk = start; walk.chunk < chunks;) {
        if (is_short) walk.chunk = chunks;
        else read(walk);
#pragma unroll
        for (int u = 0; u < merge_batch; ++u) {
            if (count[u] > A(0)) {
                moments<A> about = {shift, A(0), A(0)};
                merge(about, batch[u], count[u]);
                sums.add(about.sum);
                squares.add(about.square);
            }
        }
    }
    A both[2] = {sums.total(), squares.total()};
    team::sum(both, slots + 1);
    return {shift, both[0], both[1]};
}

// Stores the statistics of a group; is_first: by the one thread that also writes outputs.
template <typename A> __device__ __forceinline__ channel_statistics<A> finish_group(const channel_last_arguments<A> &a, const moments<A> &total,
                                                                                    uint64_t group, bool is_first) {
    const channel_statistics<A> s = finish_statistics(total, a.reciprocal_count, a.eps);
    if (is_first) {
        save_statistics(s, a.o.mean, a.o.rstd, group);
        if (!a.g.per_sample) update_running(a.o.running_mean, a.o.running_var, a.o.num_batches, a.momentum, group, s.mean(), s.variance * a.unbias);
    }
    return s;
}

// The chunks and channels of a group, in the planes of partial results.
struct group_parts {
    uint32_t first_chunk, chunks, first_channel, channels;

    __device__ __forceinline__ group_parts(const channel_last_shape &g, uint64_t item) {
        const uint32_t set = g.per_sample ? uint32_t(item / g.groups) : 0;
        first_chunk = set * g.chunks, chunks = g.per_sample ? g.chunks : g.chunks * g.samples;
        channels = g.group_channels, first_channel = uint32_t(item - uint64_t(set) * g.groups) * channels;
    }
};

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

// Calls action(std::bool_constant<is_block>, item) for every item: by blocks if there are few items, else by warps.
template <typename Action> __device__ __forceinline__ void for_items(uint64_t items, const Action &action) {
    if (items <= gridDim.x) {
        for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) action(std::true_type(), item);
    } else {
        const uint32_t warps = blockDim.x / 32;
        for (uint64_t item = uint64_t(threadIdx.x / 32) * gridDim.x + blockIdx.x; item < items; item += uint64_t(warps) * gridDim.x)
            action(std::false_type(), item);
    }
}

template <typename A> __device__ __forceinline__ void merge_groups(const channel_last_arguments<A> &a, A (*slots)[team_slots]) {
    for_items(uint64_t(a.g.per_sample ? a.g.samples : 1) * a.g.groups,
              [&](auto is_block, uint64_t item) { merge_group<decltype(is_block)::value>(a, item, slots); });
}

// What follows once every group has its statistics: the running statistics of InstanceNorm, which are means over the samples, and the count of
// batches.
template <typename A> __device__ __forceinline__ void finish_running(const channel_last_arguments<A> &a) {
    if (a.o.num_batches && blockIdx.x == 0 && threadIdx.x == 0) ++*static_cast<int64_t *>(a.o.num_batches);
    if (!a.g.per_sample || !(a.o.running_mean || a.o.running_var) || a.p.uses_running) return;
    const A share = A(1) / A(a.g.samples);
    for (uint64_t c = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < a.g.channels; c += uint64_t(gridDim.x) * blockDim.x) {
        cascade<A> mean, variance;
        for (uint64_t n = 0; n < a.g.samples; ++n) {
            const channel_statistics<A> s = a.statistics[n * a.g.channels + c];
            mean.add(s.mean());
            variance.add(s.variance);
        }
        update_running(a.o.running_mean, a.o.running_var, nullptr, a.momentum, c, mean.total() * share, variance.total() * share * a.unbias);
    }
}

// Room for five values of every channel of the widest tile.
constexpr uint32_t last_tile_vectors = 64;
template <typename A, int width> struct tile_room { alignas(16) A values[5 * last_tile_vectors * width]; };

// Values of every channel of a tile, in shared memory: [value][channel], loaded side by side.
template <int count, typename A> struct tile_values {
    A *values;
    uint32_t channels;

    __device__ __forceinline__ A &at(int value, uint32_t channel) const { return values[value * channels + channel]; }
    template <int width> __device__ __forceinline__ void get(int value, uint32_t channel, A (&to)[width]) const {
        get_values(&at(value, channel), to);
    }
};

// A vector of y. has_extras: there is a residual or an activation.
template <typename T, bool has_extras, int vec_bytes, int width, typename A>
__device__ __forceinline__ packed<vec_bytes> last_output(const packed<vec_bytes> &x, const A (&shift)[width], const A (&scale)[width],
                                                         const A (&offset)[width], bool has_residual, const packed<vec_bytes> &residual,
                                                         bops_activation activation) {
    A v[width];
    unpack<T>(x, v);
#pragma unroll
    for (int i = 0; i < width; ++i) v[i] = fma(v[i] - shift[i], scale[i], offset[i]);
    if constexpr (has_extras) {
        if (has_residual) {
            A r[width];
            unpack<T>(residual, r);
#pragma unroll
            for (int i = 0; i < width; ++i) v[i] += r[i];
        }
        activate(activation, v);
    }
    return pack<T, vec_bytes>(v);
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
        const channel_statistics<A> s = statistics(channel);
        values.at(0, c) = s.shift, values.at(1, c) = s.rstd * weight, values.at(2, c) = fma(-s.correction, s.rstd * weight, bias);
    }
    __syncthreads();
    A shift[width] = {}, scale[width] = {}, offset[width] = {};
    if (t.rows) values.get(0, t.channel - t.begin, shift), values.get(1, t.channel - t.begin, scale), values.get(2, t.channel - t.begin, offset);
    const T *const x = t.template at<T>(a.o.x, a.p.x), *const residual = t.template at<T>(a.o.residual, a.p.residual);
    T *const y = t.template at<T>(a.o.y, a.p.y);
    const uint64_t step = a.g.row_step, x_step = step * a.p.x.spatial, y_step = step * a.p.y.spatial, residual_step = step * a.p.residual.spatial;
    const auto finish = [&](const packed<vec_bytes>(&data)[batch], uint32_t j) {
        packed<vec_bytes> added[has_extras ? batch : 1];
        const uint32_t count = min(t.rows - j, uint32_t(batch));
        if (has_extras && a.o.residual) {
#pragma unroll
            for (int u = 0; u < batch; ++u)
                if (u < count) added[has_extras ? u : 0] = load<vec_bytes>(residual + (j + u) * residual_step);
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            if (u < count) {
                store(y + (j + u) * y_step,
                      last_output<T, has_extras>(data[u], shift, scale, offset, a.o.residual, added[has_extras ? u : 0], a.p.activation));
            }
        }
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
                finish(data, b * batch);
            });
    } else {
        if (t.rows == 0) return;
        for (uint32_t j = (t.rows - 1) / batch * batch;; j -= batch) {
            packed<vec_bytes> data[batch];
#pragma unroll
            for (int u = 0; u < batch; ++u)
                if (j + u < t.rows) data[u] = load<vec_bytes>(x + (j + u) * x_step);
            finish(data, j);
            if (j == 0) break;
        }
    }
}

// The statistics of a channel in a sample, from memory.
template <typename A>
__device__ __forceinline__ channel_statistics<A> statistics_of(const channel_last_arguments<A> &a, uint32_t sample, uint32_t channel) {
    if (a.p.uses_running) return running_statistics(a.o.running_mean, a.o.running_var, channel, a.eps);
    const A *const s = &a.statistics[(a.g.per_sample ? uint64_t(sample) * a.g.groups : 0) + channel / a.g.group_channels].shift;
    return {__ldcg(s), __ldcg(s + 1), A(0), __ldcg(s + 3)};
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

template <typename T, bool has_extras> __global__ void __launch_bounds__(last_threads, 1)
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
        tile_apply<T, 16, has_extras, true>(a, t, &ring, room.values, [&](uint32_t channel) { return statistics_of(a, t.sample, channel); });
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

// Strides if the rows of all samples count as those of one: the stride is that of the extent which has more than one element.
inline bops_channel_strides merged_strides(const bops_channel_strides &s, uint64_t spatial) {
    return {0, s.channel, spatial == 1 ? s.batch : s.spatial};
}

// How a form divides rows.
struct last_tiling {
    uint32_t tile_vectors, chunks, is_merged, threads;
    bool takes_turns = false; // the chunks of a sample take `lanes` rows in turn
};

// The rows of a tensor as samples of rows at one stride, and how they are divided.
inline channel_last_shape last_shape(uint64_t batch, uint64_t channels, uint64_t spatial, uint64_t groups, const last_tiling &c, uint32_t width) {
    const bool is_merged = c.is_merged != 0;
    channel_last_shape g = {};
    g.is_merged = is_merged;
    g.samples = uint32_t(is_merged ? 1 : batch), g.rows = uint32_t(is_merged ? batch * spatial : spatial), g.channels = uint32_t(channels);
    g.chunks = c.chunks, g.chunk_rows = (g.rows + c.chunks - 1) / c.chunks;
    g.tile_vectors = c.tile_vectors, g.tiles = (g.channels / width + c.tile_vectors - 1) / c.tile_vectors;
    g.lanes = c.threads / c.tile_vectors, g.row_step = g.lanes;
    if (c.takes_turns) {
        g.row_step = g.lanes * g.chunks;
        g.chunk_rows = (g.rows + g.row_step - 1) / g.row_step * g.lanes;
    }
    g.groups = uint32_t(groups ? groups : channels), g.group_channels = g.channels / g.groups, g.per_sample = groups != 0;
    return g;
}

inline launch_shape last_launch(uint32_t blocks, uint32_t threads) {
    launch_shape shape;
    shape.grid = dim3(blocks), shape.block = dim3(threads);
    return shape;
}

inline uint32_t merge_grid(uint64_t items) {
    constexpr uint64_t few = 512, most = 1 << 16; // of many items each has a warp
    return uint32_t(items <= few ? items : (items + 3) / 4 < most ? (items + 3) / 4 : most);
}

// Whether there is an activation or a residual.
template <typename Params> bool has_extras(const Params &p, const form_types &types) { return types.has_residual || p.activation != BOPS_IDENTITY; }

// The kernel arguments that all forms share.
template <typename T, int vec_bytes = 16>
channel_last_arguments<accumulator_t<T>> last_arguments(const bops_channel_norm_params &p, const last_tiling &tiling, const form_types &types,
                                                        const bops_channel_norm_operands &o, void *workspace, uint32_t overlaps = 0) {
    using A = accumulator_t<T>;
    channel_last_arguments<A> a = {};
    a.p = p, a.o = o, a.g = last_shape(p.batch, p.channels, p.spatial, p.groups, tiling, vec_bytes / sizeof(T));
    if (a.g.is_merged)
        for (bops_channel_strides *s : {&a.p.x, &a.p.residual, &a.p.y}) *s = merged_strides(*s, p.spatial);
    const double count = double(p.spatial) * (a.g.per_sample ? double(a.g.group_channels) : double(p.batch));
    a.eps = count > 0 ? A(p.eps) : A(NAN), a.momentum = running_weight<A>(p.momentum);
    a.reciprocal_count = count > 0 ? A(1 / count) : A(0), a.unbias = A(count / (count - 1));
    a.weight_is_wide = types.weight_is_wide, a.overlaps = overlaps;
    const uint64_t sets = a.g.per_sample ? a.g.samples : 1, plane = uint64_t(a.g.samples) * a.g.chunks * p.channels;
    a.statistics = static_cast<channel_statistics<A> *>(workspace);
    a.shifts = reinterpret_cast<A *>(a.statistics + sets * a.g.groups), a.sums = a.shifts + plane, a.squares = a.sums + plane;
    return a;
}

// Host: the form `split`.
template <typename T> bops_status channels_last_norm_split_kernels(const bops_channel_norm_params &p, const bops_channels_last_norm_split_choice &c,
                                                                   const form_types &types, const bops_channel_norm_operands &o, void *workspace,
                                                                   const kernel_call &call) {
    using A = accumulator_t<T>;
    const auto of_width = [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value;
        const channel_last_arguments<A> a =
            last_arguments<T, vec_bytes>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, types, o, workspace, c.overlaps);
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.overlaps_previous = c.overlaps != 0;
        if (!p.uses_running) {
            bops_status status = call(channel_last_split_moments<T, vec_bytes>, shape, a);
            if (status) return status;
            launch_shape merge_shape = last_launch(merge_grid((a.g.per_sample ? a.g.samples : 1) * uint64_t(a.g.groups)), last_merge_threads);
            merge_shape.overlaps_previous = c.overlaps != 0;
            status = call(channel_last_split_merge<A>, merge_shape, a);
            if (status) return status;
        }
        constexpr bool is_wide = vec_bytes == 16; // narrower vectors have one form
        return has_extras(p, types) || !is_wide ? call(channel_last_split_apply<T, vec_bytes, true>, shape, a)
                                                : call(channel_last_split_apply<T, vec_bytes, !is_wide>, shape, a);
    };
    if constexpr (sizeof(T) < 8)
        if (c.access_bytes == 16) return of_width(std::integral_constant<int, 16>());
    return of_width(std::integral_constant<int, int(sizeof(T))>());
}

// Host: the form `cooperative`.
template <typename T> bops_status channels_last_norm_cooperative_kernels(const bops_channel_norm_params &p,
                                                                         const bops_channels_last_norm_cooperative_choice &c, const form_types &types,
                                                                         const bops_channel_norm_operands &o, void *workspace,
                                                                         const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_arguments<T>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true}, types, o, workspace);
        a.slots = c.ring_batches;
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.shared_bytes = c.ring_batches * ring_batch * c.threads * 16, shape.cooperative = true;
        return call(has_extras(p, types) ? channel_last_cooperative<T, true> : channel_last_cooperative<T, false>, shape, a);
    }
}

} // namespace bops
