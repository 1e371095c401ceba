// What the forward and backward kernels of BatchNorm, GroupNorm and InstanceNorm over channels-last layouts share: how tensors are divided, rings of
// rows in shared memory, sums over the lanes of a block, and lists of partial results.
//
// A row is the channels of one position. A sample is `rows` rows at one stride; if the rows of all samples lie at one stride, BatchNorm sees one
// sample. A block works on a tile of channels in a chunk of the rows of a sample; a thread owns one vector of channels in every row_step-th row.
#pragma once
#include <cooperative_groups.h>

#include "../channel/channel_norm_contiguous.cuh"

namespace bops {

// ---- division of a tensor ---------------------------------------------------------------------------------------------------

constexpr int last_threads = 512;       // of a block that walks over rows, at most
constexpr int last_merge_threads = 128; // of a block that merges partial results

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
    // Rows of a chunk of a sample, if chunks are consecutive rows and none is empty.
    __device__ __forceinline__ uint32_t consecutive_rows(uint32_t chunk) const { return min(chunk_rows, rows - chunk * chunk_rows); }
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
template <typename Params> channel_last_shape last_shape(const Params &p, const last_tiling &c, uint32_t width) {
    channel_last_shape g = {};
    g.is_merged = c.is_merged != 0;
    g.samples = uint32_t(g.is_merged ? 1 : p.batch), g.rows = uint32_t(g.is_merged ? p.batch * p.spatial : p.spatial);
    g.channels = uint32_t(p.channels);
    g.chunks = c.chunks, g.chunk_rows = (g.rows + c.chunks - 1) / c.chunks;
    g.tile_vectors = c.tile_vectors, g.tiles = (g.channels / width + c.tile_vectors - 1) / c.tile_vectors;
    g.lanes = c.threads / c.tile_vectors, g.row_step = g.lanes;
    if (c.takes_turns) {
        g.row_step = g.lanes * g.chunks;
        g.chunk_rows = (g.rows + g.row_step - 1) / g.row_step * g.lanes;
    }
    g.groups = uint32_t(p.groups ? p.groups : p.channels), g.group_channels = g.channels / g.groups, g.per_sample = p.groups != 0;
    return g;
}

inline launch_shape last_launch(uint32_t blocks, uint32_t threads, uint32_t overlaps = 0) {
    launch_shape shape;
    shape.grid = dim3(blocks), shape.block = dim3(threads), shape.overlaps_previous = overlaps != 0;
    return shape;
}

// Host: blocks of a launch that merges `items` lists. Up to `few` lists have a block each, about four blocks for each SM of an H200; of more each has
// a warp, one of the four of a block. `most`: blocks of a grid, which come back for more: 30 times as many as an H200 holds at once. More would only
// add starts of blocks, far fewer would leave SMs idle at the end.
inline uint32_t merge_grid(uint64_t items) {
    constexpr uint64_t few = 512, most = 1 << 16;
    return uint32_t(items <= few ? items : (items + 3) / 4 < most ? (items + 3) / 4 : most);
}

// ---- rings of rows ----------------------------------------------------------------------------------------------------------

// Rows of a batch: those of a thread that a ring takes together. Larger batches have fewer waits for more rows, smaller ones use a ring's room more
// evenly.
constexpr int ring_batch = 4;

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
    // Walks over the batches from the last to the first. Those that the first walk left in the ring are not copied again.
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

// As batch_ring, of a size that is known at compile time: `slots` places for batches of `rows` rows, [place][row][tensor][thread], in blocks of
// `threads` threads. The caller says which place a batch takes.
template <int slots, int rows, int tensors, int threads> struct thread_ring {
    uint4 *const vectors; // this thread's of the first row

    __device__ __forceinline__ thread_ring() : vectors(reinterpret_cast<uint4 *>(dynamic_shared) + threadIdx.x) {}
    static __device__ __forceinline__ void advance(uint32_t &place) {
        if (++place == slots) place = 0;
    }
    __device__ __forceinline__ uint4 *at(uint32_t place, int row, int tensor = 0) const {
        return vectors + place * (rows * tensors * threads) + (row * tensors + tensor) * threads;
    }
    __device__ __forceinline__ void get(uint32_t place, packed<16> (&to)[rows], int tensor = 0) const {
#pragma unroll
        for (int u = 0; u < rows; ++u) {
            const uint4 v = *at(place, u, tensor);
            to[u] = {{v.x, v.y, v.z, v.w}};
        }
    }
};

// Waits until at most `pending` copies of a thread's batches are in flight.
template <int pending> __device__ __forceinline__ void copy_wait_batches() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }

// ---- channels of a tile in shared memory ------------------------------------------------------------------------------------

// Consecutive values in shared memory, in accesses of 16 bytes if there are as many.
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

// Two sums of each of a thread's channels. Rows are added to `part`; `flush` passes that on to `total` before it has taken so many rows that their
// roundings count.
template <int width, typename A> struct channel_sums {
    A part[2][width] = {}, total[2][width] = {};

    __device__ __forceinline__ void flush() {
#pragma unroll
        for (int i = 0; i < width; ++i) total[0][i] += part[0][i], part[0][i] = 0, total[1][i] += part[1][i], part[1][i] = 0;
    }
};

// Sums over the lanes of a block, eight lanes at a time. `room`: one value of each channel of each thread; `more`: the sums of eight lanes each. A
// tile has at most `last_tile_vectors` vectors, so that its channels are at most an eighth of `room`: (lanes + 7) / 8 sums of each are fewer than a
// quarter.
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

// Vectors of a row in a tile, at most: five values of 512 channels, of 16 bits, take 10 KB of shared memory.
constexpr uint32_t last_tile_vectors = 64;
// Room for five values of every channel of the widest tile.
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

// ---- lists of partial results ------------------------------------------------------------------------------------------------

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

// Partial results that a lane loads together, so that their latencies overlap. Lists of moments with more, which are 192 for a warp, are read twice.
// The moments of a part and its count take 4 registers.
constexpr int merge_batch = 6;

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

// The chunks and channels of a group, in the planes of partial results.
struct group_parts {
    uint32_t first_chunk, chunks, first_channel, channels;

    __device__ __forceinline__ group_parts(const channel_last_shape &g, uint64_t item) {
        const uint32_t set = g.per_sample ? uint32_t(item / g.groups) : 0;
        first_chunk = set * g.chunks, chunks = g.per_sample ? g.chunks : g.chunks * g.samples;
        channels = g.group_channels, first_channel = uint32_t(item - uint64_t(set) * g.groups) * channels;
    }
};

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

} // namespace bops
