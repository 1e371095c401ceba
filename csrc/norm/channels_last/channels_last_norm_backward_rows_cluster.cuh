// GroupNorm backward over channels-last layouts, the form `rows` in clusters, if dx follows from dy and x alone: a cluster has a tile of whole
// groups in all rows of all samples. The rows stay in registers from the first sums to dx, and the gradients of the parameters need no workspace.
// Indices are as in forward; the grid is [tile][chunk, over all samples].
#pragma once
#include "channels_last_norm_backward.cuh"
#include "channels_last_norm_rows.cuh"

namespace bops {

// The vectors of a thread's rows of a tile.
template <typename T, int rows> struct gradient_rows {
    static constexpr int width = 16 / int(sizeof(T));
    struct group_values {
        float rstd;
        gradient_means<float> means;
    };
    const rows_tile<T> &tile;
    packed<16> dy[rows], x[rows];
    uint32_t split;              // channels of the first group
    float first_mean, next_mean; // of x

    __device__ __forceinline__ explicit gradient_rows(const rows_tile<T> &of) : tile(of) {}
    __device__ __forceinline__ void load_rows(const T *from_dy, uint64_t dy_step, const T *from_x, uint64_t x_step) {
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (tile.has(j)) dy[j] = load<16>(from_dy + j * tile.lanes * dy_step), x[j] = load<16>(from_x + j * tile.lanes * x_step);
    }
    // means: of the tile's groups.
    __device__ __forceinline__ void load_means(const group_pair &of, const float *means) {
        split = of.split, first_mean = __ldg(means + of.first), next_mean = __ldg(means + of.next);
    }
    __device__ __forceinline__ void means(float (&mean)[width]) const {
#pragma unroll
        for (int i = 0; i < width; ++i) mean[i] = i < split ? first_mean : next_mean;
    }
    // Sums of dpre and of dpre * d of each channel, to columns `pitch` apart.
    __device__ __forceinline__ void put_sums(float *columns, uint32_t pitch) const {
        float mean[width], dpres[width] = {}, products[width] = {};
        means(mean);
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (tile.has(j)) add_gradients<T>(dy[j], x[j], mean, dpres, products);
#pragma unroll
        for (int i = 0; i < width; ++i) columns[i * pitch] = dpres[i], columns[(width + i) * pitch] = products[i];
    }
    __device__ __forceinline__ void write(T *dx, uint64_t dx_step, const float (&weight)[width], const group_values &first,
                                          const group_values &next) const {
        vector_gradient<T> to;
        means(to.mean);
#pragma unroll
        for (int i = 0; i < width; ++i) {
            to.scale[i] = weight[i] * (i < split ? first.rstd : next.rstd);
            to.offset[i] = i < split ? -first.rstd * first.means.g : -next.rstd * next.means.g;
            to.slope[i] = i < split ? -first.rstd * first.means.slope : -next.rstd * next.means.slope;
        }
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (tile.has(j)) store<16, false>(dx + j * tile.lanes * dx_step, to.of(dy[j], x[j]));
    }
};

// The sum of a column over `count` lanes, a multiple of 4.
__device__ __forceinline__ float sum_lanes(const float *from, uint32_t vectors, uint32_t count) {
    float sum[4] = {};
#pragma unroll 4
    for (uint32_t lane = 0; lane < count; lane += 4)
#pragma unroll
        for (int u = 0; u < 4; ++u) sum[u] += from[(lane + u) * vectors];
    return tree_sum(sum);
}

// Values of a column that one thread adds up; a column has a value of each lane of the block, and in blocks of fewer lanes one thread adds up all of
// them. More would leave fewer threads to add up; fewer would leave more parts, all of which step 2 reads for each channel.
constexpr uint32_t rows_part = 16;

// rows: rows of a thread. lanes are 4, 8, 12 or a multiple of 16.
template <typename T, int rows> __global__ void __launch_bounds__(rows_cluster_threads<rows>, 1)
    channel_last_backward_rows_cluster(const __grid_constant__ channel_last_backward_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ __align__(16) float weights[rows_channels];
    __shared__ float rstds[rows_channels / 2];
    __shared__ gradient_means<float> group_means[rows_channels / 2];
    __shared__ cluster_mailbox mailbox;
    const uint32_t chunks = a.g.chunks, ranks = gridDim.y, rank = blockIdx.y, of_sample = rank / chunks * chunks; // the sample's first block
    const rows_tile<T> tile(a.g, rank / chunks, rank - of_sample);
    const uint32_t vectors = tile.vectors, threads = tile.threads, thread = tile.thread, channels = tile.channels, mine = tile.mine;
    const uint32_t groups = tile.groups, of_group = tile.of_group;
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    const uint32_t owned = wants_parameters && rank < channels ? (channels - rank - 1) / ranks + 1 : 0; // channels rank, rank + ranks, ..
    mailbox.open(ranks, thread, (groups * chunks + owned * ranks) * 8);
    const uint32_t pitch = threads + vectors, parts = max(1u, tile.lanes / rows_part), of_part = tile.lanes / parts;
    float *const columns = reinterpret_cast<float *>(dynamic_shared); // [dpre, product][channel of a vector][lane][vector]: sums of a thread
    float *const partial = columns + 2 * width * pitch;               // [part][dpre, product][channel]
    float2 *const inbox = reinterpret_cast<float2 *>(partial + parts * 2 * channels); // [group][chunk]
    float2 *const parameters = inbox + groups * chunks;                               // [number of the channel][block]
    const T *const dy = tile.at(a.o.dy, a.p.dy), *const x = tile.at(a.o.x, a.p.x);
    if (a.overlaps) follow_previous();

    // 1. Rows, and the block's sums of them.
    gradient_rows<T, rows> data(tile);
    data.load_rows(dy, a.p.dy.spatial, x, a.p.x.spatial);
    const group_pair pair(tile);
    data.load_means(pair, static_cast<const float *>(a.o.mean) + tile.first_group);
    for (uint32_t c = thread; c < channels; c += threads) weights[c] = parameter<T>(a.o.weight, a.weight_is_wide, tile.begin + c, 1.0f);
    for (uint32_t k = thread; k < groups; k += threads) rstds[k] = __ldg(static_cast<const float *>(a.o.rstd) + tile.first_group + k);
    data.put_sums(columns + thread, pitch);
    __syncthreads();
    for (uint32_t k = threadIdx.y; k < 2 * width * parts; k += tile.lanes) {
        const uint32_t part = k / (2 * width), column = k % (2 * width);
        partial[(part * 2 + column / width) * channels + mine + column % width] =
            sum_lanes(columns + column * pitch + part * of_part * vectors + threadIdx.x, vectors, of_part);
    }
    mailbox.synchronize(ranks);

    // 2. The sums of every group over the sample's blocks; the sums of every channel over all blocks, each in one block.
    const uint32_t lane = thread % 32, warp = thread / 32, warps = threads / 32;
    const auto sums_of = [&](uint32_t channel) {
        float2 sum = {};
        for (uint32_t part = 0; part < parts; ++part)
            sum.x += partial[part * 2 * channels + channel], sum.y += partial[(part * 2 + 1) * channels + channel];
        return sum;
    };
    for (uint32_t k = warp; k < groups; k += warps) {
        float sums[2] = {};
        for (uint32_t c = k * of_group + lane; c < (k + 1) * of_group; c += 32) {
            const float2 sum = sums_of(c);
            sums[0] = fmaf(sum.x, weights[c], sums[0]), sums[1] = fmaf(sum.y, weights[c], sums[1]);
        }
        warp_sum(sums, 32);
        if (lane < chunks) mailbox.send(ranks, &inbox[k * chunks + rank - of_sample], make_float2(sums[0], sums[1]), of_sample + lane);
    }
    const uint32_t from_last = threads - 1 - thread; // the warps with the fewest groups come first
    if (wants_parameters)
        for (uint32_t c = from_last; c < channels; c += threads) {
            const float2 sum = sums_of(c);
            mailbox.send(ranks, &parameters[c / ranks * ranks + rank], make_float2(sum.x, sum.y * rstds[c / of_group]), c % ranks);
        }
    mailbox.wait_all(ranks);
    for (uint32_t k = warp; k < groups; k += warps) {
        const float2 sum = lane < chunks ? inbox[k * chunks + lane] : float2();
        float sums[2] = {sum.x, sum.y};
        warp_sum(sums, max_cluster);
        if (lane == 0) group_means[k] = finish_means(sums[0], sums[1], rstds[k], a.reciprocal_count);
    }
    for (uint32_t k = from_last; k < owned; k += threads) {
        float dweight = 0, dbias = 0;
#pragma unroll 4
        for (uint32_t r = 0; r < ranks; ++r) dbias += parameters[k * ranks + r].x, dweight += parameters[k * ranks + r].y;
        store_parameters<T>(a, tile.begin + k * ranks + rank, dweight, dbias);
    }
    __syncthreads();

    // 3. Gradients.
    float weight[width];
    get_values(weights + mine, weight);
    data.write(tile.at(a.o.dx, a.p.dx), a.p.dx.spatial, weight, {rstds[pair.first], group_means[pair.first]},
               {rstds[pair.next], group_means[pair.next]});
}

} // namespace bops
