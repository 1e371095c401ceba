// GroupNorm forward over channels-last layouts, the form `rows`: a cluster has a tile of whole groups in all rows of a sample. The rows stay in
// registers from the first sums to y.
//
// Such launches are short, so index arithmetic counts: the grid is [tile][chunk][sample] and a block [vector][lane], and the divisions that remain
// are done while the rows are on their way.
#pragma once
#include "channels_last_norm_cluster.cuh"

namespace bops {

constexpr int rows_cluster_threads(int rows) { return rows > 4 ? 480 : 640; } // of a block, at most
constexpr uint32_t rows_channels = 512;                                       // of a tile, at most
constexpr int shift_lanes = 8;                                                // whose shifts make that of a group

// rows: rows of a thread. A vector has channels of at most two groups, for each of which a thread has one part. A group lies in at most 16 vectors,
// so that one warp can go through them.
template <typename T, int rows, bool has_extras> __global__ void __launch_bounds__(rows_cluster_threads(rows), 1)
    channel_last_rows(const __grid_constant__ channel_last_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ __align__(16) float weights[rows_channels], biases[rows_channels];
    __shared__ float4 statistics[rows_channels / 2]; // shift, correction, rstd
    __shared__ cluster_mailbox mailbox;
    const channel_last_shape &g = a.g;
    const uint32_t vectors = blockDim.x, lanes = blockDim.y, threads = vectors * lanes, thread = threadIdx.y * vectors + threadIdx.x;
    const uint32_t channels = vectors * width, tile = blockIdx.x * channels, mine = threadIdx.x * width;
    const uint32_t chunks = gridDim.y, rank = blockIdx.y, sample = blockIdx.z, first_row = rank * g.chunk_rows;
    const auto rows_of = [&](uint32_t chunk) { return min(g.chunk_rows, g.rows - chunk * g.chunk_rows); };
    const uint32_t left = rows_of(rank), of_group = g.group_channels, groups = channels / of_group;
    if (chunks > 1) {
        if (thread == 0) mailbox.expect(groups * chunks * 16);
        cluster_arrive();
    }
    float4 *const inbox = reinterpret_cast<float4 *>(dynamic_shared);              // [group][chunk]
    float2 *const lane_sums = reinterpret_cast<float2 *>(inbox + groups * chunks); // [part][lane][vector]
    float *const lane_shifts = reinterpret_cast<float *>(lane_sums + 2 * threads);
    const auto at = [&](const void *tensor, const bops_channel_strides &s) {
        return static_cast<T *>(const_cast<void *>(tensor)) + (sample * s.batch + uint64_t(first_row + threadIdx.y) * s.spatial + tile + mine);
    };
    const auto has = [&](int j) { return threadIdx.y + j * lanes < left; };
    const T *const x = at(a.o.x, a.p.x);
    if (a.overlaps) follow_previous();

    // 1. Rows, and the moments of this thread's parts about the mean of its first row.
    packed<16> data[rows];
#pragma unroll
    for (int j = 0; j < rows; ++j)
        if (has(j)) data[j] = load<16>(x + j * lanes * a.p.x.spatial);
    for (uint32_t c = thread; c < channels; c += threads) {
        weights[c] = parameter<T>(a.o.weight, a.weight_is_wide, tile + c, 1.0f);
        biases[c] = parameter<T>(a.o.bias, a.weight_is_wide, tile + c, 0.0f);
    }
    const uint32_t group = mine / of_group, next_group = min(group + 1, groups - 1);
    const uint32_t split = min(uint32_t(width), (group + 1) * of_group - mine); // channels of the first group
    const auto fold = [&](const float(&value)[width], float(&to)[2]) {
        to[0] = to[1] = 0;
#pragma unroll
        for (int i = 0; i < width; ++i) to[0] += i < split ? value[i] : 0.0f, to[1] += i < split ? 0.0f : value[i];
    };
    if (has(0)) {
        float value[width], shift[width], sum[width] = {}, square[width] = {}, shifts[2], sums[2], squares[2];
        unpack<T>(data[0], value);
        fold(value, shifts);
        shifts[0] = rounded_product(shifts[0], __fdividef(1.0f, float(split)));
        shifts[1] = rounded_product(shifts[1], __fdividef(1.0f, float(max(width - split, 1u))));
#pragma unroll
        for (int i = 0; i < width; ++i) shift[i] = i < split ? shifts[0] : shifts[1];
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (has(j)) {
                unpack<T>(data[j], value);
                add_moments(value, shift, sum, square);
            }
        fold(sum, sums), fold(square, squares);
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const uint32_t place = k * threads + thread;
            lane_shifts[place] = shifts[k], lane_sums[place] = make_float2(sums[k], squares[k]);
        }
    }
    __syncthreads();
    if (chunks > 1) cluster_wait();

    // 2. Moments of the block's groups, to all blocks.
    const uint32_t lane = thread % 32, warp = thread / 32, warps = threads / 32;
    const uint32_t filled = min(lanes, left), whole = left / lanes, rest = left - whole * lanes; // rows of every lane, and lanes with one more
    for (uint32_t k = warp; k < groups; k += warps) {
        const uint32_t low = k * of_group, high = low + of_group, first = low / width;
        const auto place_of = [&](uint32_t vector) { return (vector * width < low ? threads : 0) + vector; }; // of lane 0
        moments<float> own = {};
#pragma unroll
        for (uint32_t l = 0; l < shift_lanes; ++l) own.shift += lane_shifts[place_of(first) + min(l, filled - 1) * vectors];
        own.shift = rounded_product(own.shift, 1.0f / shift_lanes);
        for (bool is_first = true;; is_first = false) {
            cascade<float> sums, squares;
            for (uint32_t v = first; v * width < high; ++v) {
                const uint32_t place = place_of(v), of_row = min(high, (v + 1) * width) - max(low, v * width);
                moments<float> part = {own.shift, 0, 0};
#pragma unroll 4
                for (uint32_t l = lane; l < filled; l += 32) {
                    const float2 s = lane_sums[place + l * vectors];
                    merge(part, {lane_shifts[place + l * vectors], s.x, s.y}, float(of_row * (whole + (l < rest))));
                }
                sums.add(part.sum), squares.add(part.square);
            }
            float both[2] = {sums.total(), squares.total()};
            warp_sum(both, 32);
            own.sum = both[0], own.square = both[1];
            if (__builtin_expect(!is_first || !recenter(own, 1.0f / float(left * of_group)), true)) break; // else once more
        }
        if (lane < chunks) {
            if (chunks > 1) mailbox.send(&inbox[k * chunks + rank].x, {own.shift, own.sum, own.square, 0.0f}, lane);
            else inbox[k] = make_float4(own.shift, own.sum, own.square, 0.0f);
        }
    }
    if (chunks > 1) mailbox.wait();
    else __syncthreads();

    // 3. Statistics.
    for (uint32_t k = warp; k < groups; k += warps) {
        moments<float> total = {inbox[k * chunks].x, 0, 0};
        for (bool is_first = true;; is_first = false) {
            moments<float> part = {total.shift, 0, 0};
            if (lane < chunks) {
                const float4 m = inbox[k * chunks + lane];
                merge(part, {m.x, m.y, m.z}, float(rows_of(lane) * of_group));
            }
            float both[2] = {part.sum, part.square};
            warp_sum(both, 32);
            total.sum = both[0], total.square = both[1];
            if (__builtin_expect(!is_first || !recenter(total, a.reciprocal_count), true)) break; // else once more
        }
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
        const uint64_t number = uint64_t(sample) * g.groups + blockIdx.x * groups + k;
        const channel_statistics<float> s = finish_group(a, total, number, rank == 0 && lane == 0);
        if (lane == 0) statistics[k] = make_float4(s.shift, s.correction, s.rstd, 0.0f);
    }
    __syncthreads();

    // 4. Output.
    const float4 first = statistics[group], next = statistics[next_group];
    float shift[width], scale[width], offset[width];
    get_values(weights + mine, scale), get_values(biases + mine, offset);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const float4 s = i < split ? first : next;
        shift[i] = s.x, scale[i] *= s.z, offset[i] = fmaf(-s.y, scale[i], offset[i]);
    }
    const T *const residual = at(a.o.residual, a.p.residual);
    T *const y = at(a.o.y, a.p.y);
#pragma unroll
    for (int j = 0; j < rows; ++j)
        if (has(j)) {
            packed<16> added;
            if (has_extras && a.o.residual) added = load<16>(residual + j * lanes * a.p.residual.spatial);
            store<16, false>(y + j * lanes * a.p.y.spatial,
                             last_output<T, has_extras>(data[j], shift, scale, offset, a.o.residual, added, a.p.activation));
        }
}

// Host: the form `rows`.
template <typename T> bops_status channels_last_norm_rows_kernels(const bops_channel_norm_params &p, const bops_channels_last_norm_rows_choice &c,
                                                                  const form_types &types, const bops_channel_norm_operands &o, void *workspace,
                                                                  const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_arguments<T>(p, {c.tile_vectors, c.chunks, 0, c.threads}, types, o, workspace, c.overlaps);
        const channel_last_shape &g = a.g;
        a.slots = c.thread_rows;
        launch_shape shape;
        shape.grid = dim3(g.tiles, g.chunks, g.samples), shape.block = dim3(g.tile_vectors, g.lanes);
        shape.cluster = c.cluster_blocks, shape.overlaps_previous = c.overlaps != 0;
        const uint32_t channels = g.tile_vectors * uint32_t(16 / sizeof(T));
        shape.shared_bytes = channels / g.group_channels * g.chunks * 16 + 2 * g.tile_vectors * g.lanes * 12;
        if (has_extras(p, types)) return call(c.thread_rows == 4 ? channel_last_rows<T, 4, true> : channel_last_rows<T, 8, true>, shape, a);
        return call(c.thread_rows == 4 ? channel_last_rows<T, 4, false> : channel_last_rows<T, 8, false>, shape, a);
    }
}

} // namespace bops
