// GroupNorm forward over channels-last layouts, the form `rows`: a cluster has a tile of whole groups in all rows of a sample. The rows stay in
// registers from the first sums to y.
//
// Such launches are short, so index arithmetic counts: the grid is [tile][chunk][sample] and a block [vector][lane], and the divisions that remain
// are done while the rows are on their way.
#pragma once
#include "channels_last_norm.cuh"
#include "channels_last_norm_exchange.cuh"

namespace bops {

// Threads of a block whose threads hold `rows` rows, at most: 640 leave a thread 96 registers, of which 4 rows take 16; 480 leave it 136, of which 8
// rows take 32.
template <int rows> constexpr int rows_cluster_threads = rows > 4 ? 480 : 640;
constexpr uint32_t rows_channels = 512; // of a tile, at most: their parameters and statistics take 8 KB of shared memory
// A group's shift is the mean of the shifts of the block's first 8 lanes. A whole warp reads each of them; with fewer lanes the shift is more often
// so far from the mean that sums are taken again.
constexpr int shift_lanes = 8;

// What a block and a thread work on: a tile of whole groups in a chunk of the rows of a sample.
template <typename T> struct rows_tile {
    static constexpr int width = 16 / int(sizeof(T));
    uint32_t vectors, lanes, threads, thread; // of a row and of the block; the thread's number
    uint32_t channels, begin, mine;           // of the tile; its first channel; this thread's first channel in the tile
    uint32_t sample, first_row, rows;         // of the chunk
    uint32_t of_group, groups, first_group;   // channels of a group, groups of the tile, number of the first over all samples

    __device__ __forceinline__ rows_tile(const channel_last_shape &g, uint32_t of_samples, uint32_t chunk)
        : vectors(blockDim.x), lanes(blockDim.y), threads(vectors * lanes), thread(threadIdx.y * vectors + threadIdx.x), channels(vectors * width),
          begin(blockIdx.x * channels), mine(threadIdx.x * width), sample(of_samples), first_row(chunk * g.chunk_rows),
          rows(g.consecutive_rows(chunk)), of_group(g.group_channels), groups(channels / of_group),
          first_group(sample * g.groups + blockIdx.x * groups) {}
    __device__ __forceinline__ T *at(const void *tensor, const bops_channel_strides &s) const {
        return static_cast<T *>(const_cast<void *>(tensor)) + (sample * s.batch + uint64_t(first_row + threadIdx.y) * s.spatial + begin + mine);
    }
    // Whether this thread has a row number j; its rows are `lanes` rows apart.
    __device__ __forceinline__ bool has(int j) const { return threadIdx.y + j * lanes < rows; }
};

// The groups of a thread's channels: `split` channels belong to the first, the others to the next.
struct group_pair {
    uint32_t first, next, split;

    template <typename T> __device__ __forceinline__ explicit group_pair(const rows_tile<T> &tile)
        : first(tile.mine / tile.of_group), next(min(first + 1, tile.groups - 1)),
          split(min(uint32_t(tile.width), (first + 1) * tile.of_group - tile.mine)) {}
};

// A block's moments on their way from threads to groups.
template <typename T, int rows> struct group_rows {
    static constexpr int width = 16 / int(sizeof(T));
    const rows_tile<T> &tile;
    lane_moments lanes; // [part][lane][vector]
    float4 *inbox;      // [group][chunk]
    packed<16> data[rows];

    __device__ __forceinline__ explicit group_rows(const rows_tile<T> &of) : tile(of), inbox(reinterpret_cast<float4 *>(dynamic_shared)) {
        lanes.sums = reinterpret_cast<float2 *>(inbox + tile.groups * gridDim.y),
        lanes.shifts = reinterpret_cast<float *>(lanes.sums + 2 * tile.threads);
    }
    __device__ __forceinline__ void load_rows(const T *x, uint64_t step) {
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (tile.has(j)) data[j] = load<16>(x + j * tile.lanes * step);
    }
    // The moments of this thread's parts about the mean of its first row, to `lanes`.
    __device__ __forceinline__ void add_rows(uint32_t split) const {
        if (!tile.has(0)) return;
        const vector_parts<width> parts = {split};
        float value[width], shift[width], sum[width] = {}, square[width] = {}, shifts[2], sums[2], squares[2];
        unpack<T>(data[0], value);
        parts.fold(value, shifts);
        parts.shifts(shifts, 1, shift);
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (tile.has(j)) {
                unpack<T>(data[j], value);
                add_moments(value, shift, sum, square);
            }
        parts.fold(sum, sums), parts.fold(square, squares);
#pragma unroll
        for (int k = 0; k < 2; ++k) lanes.put(k * tile.threads + tile.thread, shifts[k], sums[k], squares[k]);
    }
    // The moments of a group over the block's rows, by a warp.
    __device__ __forceinline__ moments<float> merge_rows(uint32_t group) const {
        const uint32_t lane = tile.thread % 32, low = group * tile.of_group, high = low + tile.of_group, first = low / width;
        const uint32_t filled = min(tile.lanes, tile.rows);
        const uint32_t whole = tile.rows / tile.lanes, rest = tile.rows - whole * tile.lanes; // rows of every lane, and lanes with one more
        const auto place_of = [&](uint32_t vector) { return (vector * width < low ? tile.threads : 0) + vector; }; // of lane 0
        moments<float> own = {};
#pragma unroll
        for (uint32_t l = 0; l < shift_lanes; ++l) own.shift += lanes.shifts[place_of(first) + min(l, filled - 1) * tile.vectors];
        own.shift = rounded_product(own.shift, 1.0f / shift_lanes);
        const auto sum = [&] {
            cascade<float> sums, squares;
            for (uint32_t v = first; v * width < high; ++v) {
                const uint32_t place = place_of(v), of_row = min(high, (v + 1) * width) - max(low, v * width);
                moments<float> part = {own.shift, 0, 0};
#pragma unroll 4
                for (uint32_t l = lane; l < filled; l += 32) merge(part, lanes.get(place + l * tile.vectors), float(of_row * (whole + (l < rest))));
                sums.add(part.sum), squares.add(part.square);
            }
            float both[2] = {sums.total(), squares.total()};
            warp_sum(both, 32);
            own.sum = both[0], own.square = both[1];
        };
        sum_about_mean(sum, [&] { return recenter(own, 1.0f / float(tile.rows * tile.of_group)); });
        return own;
    }
    // The moments of a group over all chunks, by a warp.
    __device__ __forceinline__ moments<float> merge_chunks(const channel_last_arguments<float> &a, uint32_t group) const {
        const uint32_t lane = tile.thread % 32, chunks = gridDim.y;
        moments<float> total = {inbox[group * chunks].x, 0, 0};
        const auto sum = [&] {
            moments<float> part = {total.shift, 0, 0};
            if (lane < chunks) {
                const float4 m = inbox[group * chunks + lane];
                merge(part, {m.x, m.y, m.z}, float(a.g.consecutive_rows(lane) * tile.of_group));
            }
            float both[2] = {part.sum, part.square};
            warp_sum(both, 32);
            total.sum = both[0], total.square = both[1];
        };
        sum_about_mean(sum, [&] { return recenter(total, a.reciprocal_count); });
        total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
        return total;
    }
};

// rows: rows of a thread. A vector has channels of at most two groups, for each of which a thread has one part. A group lies in at most 16 vectors,
// since one warp merges it, vector after vector.
template <typename T, int rows, bool has_extras> __global__ void __launch_bounds__(rows_cluster_threads<rows>, 1)
    channel_last_rows(const __grid_constant__ channel_last_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ __align__(16) float weights[rows_channels], biases[rows_channels];
    __shared__ float4 statistics[rows_channels / 2]; // shift, correction, rstd
    __shared__ cluster_mailbox mailbox;
    const uint32_t chunks = gridDim.y, rank = blockIdx.y;
    const rows_tile<T> tile(a.g, blockIdx.z, rank);
    const uint32_t lane = tile.thread % 32, warp = tile.thread / 32, warps = tile.threads / 32;
    mailbox.open(chunks, tile.thread, tile.groups * chunks * 16);
    const T *const x = tile.at(a.o.x, a.p.x);
    if (a.overlaps) follow_previous();

    // 1. Rows, and the moments of this thread's parts.
    group_rows<T, rows> block(tile);
    block.load_rows(x, a.p.x.spatial);
    for (uint32_t c = tile.thread; c < tile.channels; c += tile.threads) {
        weights[c] = parameter<T>(a.o.weight, a.weight_is_wide, tile.begin + c, 1.0f);
        biases[c] = parameter<T>(a.o.bias, a.weight_is_wide, tile.begin + c, 0.0f);
    }
    const group_pair mine(tile);
    block.add_rows(mine.split);
    mailbox.synchronize(chunks);

    // 2. Moments of the block's groups, to all blocks.
    for (uint32_t k = warp; k < tile.groups; k += warps) {
        const moments<float> own = block.merge_rows(k);
        if (lane < chunks) mailbox.send(chunks, &block.inbox[k * chunks + rank], own, lane);
    }
    mailbox.wait_all(chunks);

    // 3. Statistics.
    for (uint32_t k = warp; k < tile.groups; k += warps) {
        const moments<float> total = block.merge_chunks(a, k);
        const channel_statistics<float> s = finish_group(a, total, tile.first_group + k, rank == 0 && lane == 0);
        if (lane == 0) statistics[k] = make_float4(s.shift, s.correction, s.rstd, 0.0f);
    }
    __syncthreads();

    // 4. Output.
    const float4 first = statistics[mine.first], next = statistics[mine.next];
    vector_output<T, 16> output;
    get_values(weights + tile.mine, output.scale), get_values(biases + tile.mine, output.offset);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const float4 s = i < mine.split ? first : next;
        output.shift[i] = s.x, output.scale[i] *= s.z, output.offset[i] = fmaf(-s.y, output.scale[i], output.offset[i]);
    }
    const T *const residual = tile.at(a.o.residual, a.p.residual);
    T *const y = tile.at(a.o.y, a.p.y);
#pragma unroll
    for (int j = 0; j < rows; ++j)
        if (tile.has(j)) {
            packed<16> added;
            if (has_extras && a.o.residual) added = load<16>(residual + j * tile.lanes * a.p.residual.spatial);
            store<16, false>(y + j * tile.lanes * a.p.y.spatial, output.template of<has_extras>(block.data[j], a, added));
        }
}

// Host: the form `rows`.
template <typename T> bops_status channels_last_norm_rows_kernels(const forward_call<bops_channels_last_norm_rows_choice> &f) {
    const auto &c = f.c;
    const auto a = last_arguments<T>(f, {c.tile_vectors, c.chunks, 0, c.threads}, c.overlaps);
    const channel_last_shape &g = a.g;
    launch_shape shape;
    shape.grid = dim3(g.tiles, g.chunks, g.samples), shape.block = dim3(g.tile_vectors, g.lanes);
    shape.cluster = c.cluster_blocks, shape.overlaps_previous = c.overlaps != 0;
    const uint32_t channels = g.tile_vectors * uint32_t(16 / sizeof(T));
    // Moments, as float4, of each group in each chunk; of two parts of each thread two sums and a shift.
    shape.shared_bytes = channels / g.group_channels * g.chunks * 16 + 2 * g.tile_vectors * g.lanes * 12;
    if (f.has_extras()) return f.call(c.thread_rows == 4 ? channel_last_rows<T, 4, true> : channel_last_rows<T, 8, true>, shape, a);
    return f.call(c.thread_rows == 4 ? channel_last_rows<T, 4, false> : channel_last_rows<T, 8, false>, shape, a);
}

} // namespace bops
