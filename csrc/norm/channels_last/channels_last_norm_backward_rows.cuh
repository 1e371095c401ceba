// GroupNorm backward over channels-last layouts, the form `rows` in a grid, where dx follows from dy and x alone: one cooperative launch, in which
// every block has one tile of whole groups in one chunk of a sample's rows. The rows stay in registers from the first sums to dx.
//
// Such launches are short, so index arithmetic counts: the grid is [tile][chunk][sample] and a block [vector][lane], and the divisions that remain
// are done while the rows are on their way.
#pragma once
#include "channels_last_norm_backward_rows_cluster.cuh"

namespace bops {

constexpr int rows_threads(int rows) { return rows > 4 ? 320 : 640; } // of a block, at most
constexpr uint32_t rows_team = 8;                                     // lanes that add up what a group has, first in the block, then of all chunks
constexpr int rows_quads = 2;                                         // quads of chunks of a lane that are read together

// Room for the numbers that the chunks of a sample leave for one sum of a group.
__host__ __device__ __forceinline__ uint32_t message_pitch(const channel_last_shape &g) { return (g.chunks + 3) / 4 * 4; }

// rows: rows of a thread. A vector has channels of at most two groups; lanes are a multiple of 4. a.cluster: quads of columns of sums that a block
// merges.
template <typename T, int rows> __global__ void __launch_bounds__(rows_threads(rows), 1)
    channel_last_backward_rows(const __grid_constant__ channel_last_backward_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float weights[rows_channels], rstds[rows_channels], totals[2][rows_channels]; // [channel of a vector][vector]
    __shared__ gradient_means<float> group_means[rows_channels / 2];
    float *const columns = reinterpret_cast<float *>(dynamic_shared); // [dpre, product][channel of a vector][lane][vector]: sums of a thread
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const uint32_t vectors = blockDim.x, lanes = blockDim.y, threads = vectors * lanes, thread = threadIdx.y * vectors + threadIdx.x;
    const uint32_t chunks = gridDim.y, sample = blockIdx.z, channels = vectors * width, tile = blockIdx.x * channels, mine = threadIdx.x * width;
    const uint32_t first_row = blockIdx.y * g.chunk_rows, left = min(g.chunk_rows, g.rows - first_row);
    const auto at = [&](const void *tensor, const bops_channel_strides &s) {
        return static_cast<T *>(const_cast<void *>(tensor)) + (sample * s.batch + uint64_t(first_row + threadIdx.y) * s.spatial + tile + mine);
    };
    const auto has = [&](int j) { return threadIdx.y + j * lanes < left; };
    const T *const dy = at(a.o.dy, a.p.dy), *const x = at(a.o.x, a.p.x);
    if (a.overlaps) follow_previous();

    // 1. Rows, and the block's sums of them.
    packed<16> dy_data[rows], x_data[rows];
#pragma unroll
    for (int j = 0; j < rows; ++j)
        if (has(j)) dy_data[j] = load<16>(dy + j * lanes * a.p.dy.spatial), x_data[j] = load<16>(x + j * lanes * a.p.x.spatial);
    const uint32_t of_group = g.group_channels, groups = channels / of_group, first_group = sample * g.groups + blockIdx.x * groups;
    const uint32_t group = mine / of_group, next_group = min(group + 1, groups - 1);
    const uint32_t split = (group + 1) * of_group - mine;                           // channels of the first group
    const auto place = [&](uint32_t c) { return c % width * vectors + c / width; }; // neighbours have neighbouring vectors
    const float *const means = static_cast<const float *>(a.o.mean) + first_group;
    const float *const group_rstds = static_cast<const float *>(a.o.rstd) + first_group;
    const float first_mean = __ldg(means + group), next_mean = __ldg(means + next_group);
    const auto mean_of = [&](float(&mean)[width]) {
#pragma unroll
        for (int i = 0; i < width; ++i) mean[i] = i < split ? first_mean : next_mean;
    };
    for (uint32_t c = thread; c < channels; c += threads)
        weights[place(c)] = parameter<T>(a.o.weight, a.weight_is_wide, tile + c, 1.0f), rstds[place(c)] = __ldg(group_rstds + c / of_group);
    {
        float mean[width], dpres[width] = {}, products[width] = {};
        mean_of(mean);
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (has(j)) {
                float dpre[width], d[width];
                unpack<T>(dy_data[j], dpre);
                unpack<T>(x_data[j], d);
#pragma unroll
                for (int i = 0; i < width; ++i) {
                    dpres[i] += dpre[i];
                    products[i] = fmaf(dpre[i], d[i] - mean[i], products[i]);
                }
            }
#pragma unroll
        for (int i = 0; i < width; ++i) columns[i * threads + thread] = dpres[i], columns[(width + i) * threads + thread] = products[i];
    }
    __syncthreads();
    const uint64_t number = uint64_t(sample) * chunks + blockIdx.y; // of the chunk, over all samples
    for (uint32_t k = threadIdx.y; k < 2 * width; k += lanes) {
        const float *const from = columns + k * threads + threadIdx.x;
        float sum[4] = {};
        for (uint32_t lane = 0; lane < lanes; lane += 4)
#pragma unroll
            for (int u = 0; u < 4; ++u) sum[u] += from[(lane + u) * vectors];
        const float total = tree_sum(sum);
        const bool is_product = k >= width;
        const uint32_t column = k % width * vectors + threadIdx.x;
        totals[is_product][column] = total * weights[column];
        __stcg((is_product ? a.products : a.dpres) + number * g.channels + tile + column, is_product ? total * rstds[column] : total);
    }
    __syncthreads();
    const uint32_t lane = thread % rows_team, pitch = message_pitch(g);
    float *const messages = &a.means[0].g + uint64_t(first_group) * 2 * pitch;   // [group][dpre, product][chunk]
    for (uint32_t first = 0; first < 2 * groups; first += threads / rows_team) { // the same number of turns for all lanes of a warp
        const uint32_t team = first + thread / rows_team;
        float sum[1] = {};
        if (team < 2 * groups)
            for (uint32_t i = lane; i < of_group; i += rows_team) sum[0] += totals[team % 2][place(team / 2 * of_group + i)];
        warp_sum(sum, rows_team);
        if (team < 2 * groups && lane == 0) __stcg(messages + team * pitch + blockIdx.y, sum[0]);
    }
    grid.sync();

    // 2. Means of the groups.
    for (uint32_t first = 0; first < 2 * groups; first += threads / rows_team) {
        const uint32_t team = first + thread / rows_team;
        float sum[1] = {};
        if (team < 2 * groups)
            for (uint32_t c = lane * 4; c < chunks; c += rows_quads * rows_team * 4) {
                float4 part[rows_quads];
#pragma unroll
                for (int u = 0; u < rows_quads; ++u)
                    part[u] = c + u * rows_team * 4 < chunks
                                  ? __ldcg(reinterpret_cast<const float4 *>(messages + team * pitch + c + u * rows_team * 4))
                                  : float4();
#pragma unroll
                for (int u = 0; u < rows_quads; ++u) {
                    float of_chunk[4] = {part[u].x, part[u].y, part[u].z, part[u].w};
#pragma unroll
                    for (int i = 1; i < 4; ++i)
                        if (c + u * rows_team * 4 + i >= chunks) of_chunk[i] = 0;
                    sum[0] += tree_sum(of_chunk);
                }
            }
        warp_sum(sum, rows_team);
        const float product = __shfl_xor_sync(~0u, sum[0], rows_team);
        if (team < 2 * groups && thread % (2 * rows_team) == 0)
            group_means[team / 2] = finish_means(sum[0], product, rstds[place(team / 2 * of_group)], a.reciprocal_count);
    }

    // Columns of sums that this block merges are under way while gradients are written.
    const uint32_t all_chunks = gridDim.z * chunks, quads = channels / 2, of_block = a.cluster;
    const uint32_t quad = uint32_t(number) * of_block + thread % of_block;
    const bool wants_parameters = (a.o.dweight || a.o.dbias) && number * of_block < quads;
    const float *plane = nullptr;
    float4 merged = {};
    if (wants_parameters && quad < quads) {
        plane = (quad < quads / 2 ? a.dpres : a.products) + tile + (quad < quads / 2 ? quad : quad - quads / 2) * 4;
        if (thread / of_block < all_chunks) merged = __ldcg(reinterpret_cast<const float4 *>(plane + uint64_t(thread / of_block) * g.channels));
    }
    __syncthreads();

    // 3. Gradients.
    T *const dx = at(a.o.dx, a.p.dx);
    {
        const gradient_means<float> first = group_means[group], next = group_means[next_group];
        const float first_rstd = rstds[place(group * of_group)], next_rstd = rstds[place(next_group * of_group)];
        float mean[width], scale[width], offset[width], slope[width];
        mean_of(mean);
#pragma unroll
        for (int i = 0; i < width; ++i) {
            scale[i] = weights[i * vectors + threadIdx.x] * (i < split ? first_rstd : next_rstd);
            offset[i] = i < split ? -first_rstd * first.g : -next_rstd * next.g;
            slope[i] = i < split ? -first_rstd * first.slope : -next_rstd * next.slope;
        }
#pragma unroll
        for (int j = 0; j < rows; ++j)
            if (has(j)) {
                float dpre[width], d[width];
                unpack<T>(dy_data[j], dpre);
                unpack<T>(x_data[j], d);
#pragma unroll
                for (int i = 0; i < width; ++i) d[i] = fmaf(dpre[i], scale[i], fmaf(d[i] - mean[i], slope[i], offset[i]));
                store<16, false>(dx + j * lanes * a.p.dx.spatial, pack<T, 16>(d));
            }
    }

    // 4. Parameter gradients.
    if (!wants_parameters) return;
    if (plane)
        for (uint32_t chunk = (thread + threads) / of_block; chunk < all_chunks; chunk += threads / of_block) {
            const float4 more = __ldcg(reinterpret_cast<const float4 *>(plane + uint64_t(chunk) * g.channels));
            merged.x += more.x, merged.y += more.y, merged.z += more.z, merged.w += more.w;
        }
    float sums[4] = {merged.x, merged.y, merged.z, merged.w};
    for (uint32_t step = 16; step >= of_block; step /= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], step);
    if (thread % 32 < of_block) put_values(columns + (thread / 32 * of_block + thread % 32) * 4, sums);
    __syncthreads();
    const uint32_t column = uint32_t(number) * of_block * 4 + thread, of_plane = column < channels ? column : column - channels;
    if (thread < of_block * 4 && column < 2 * channels) {
        float total[4] = {};
        for (uint32_t warp = 0; warp < threads / 32; warp += 4)
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (warp + u < threads / 32) total[u] += columns[(warp + u) * of_block * 4 + thread];
        store_parameter<T>(column < channels ? a.o.dbias : a.o.dweight, a.weight_is_wide, tile + of_plane % vectors * width + of_plane / vectors,
                           tree_sum(total));
    }
}

// Host: the form `rows`.
template <typename T> bops_status channels_last_norm_backward_rows_kernels(const bops_channel_norm_backward_params &p,
                                                                           const bops_channels_last_norm_rows_choice &c, const form_types &types,
                                                                           const bops_channel_norm_backward_operands &o, void *workspace,
                                                                           const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_backward_arguments<T>(p, {c.tile_vectors, c.chunks, 0, c.threads}, types, o, workspace, c.overlaps);
        const channel_last_shape &g = a.g;
        a.cluster = c.cluster_blocks;
        launch_shape shape;
        shape.block = dim3(g.tile_vectors, g.lanes), shape.overlaps_previous = c.overlaps != 0;
        if (c.cluster_blocks) {
            const uint32_t channels = g.tile_vectors * uint32_t(16 / sizeof(T)), parts = g.lanes < rows_part ? 1 : g.lanes / rows_part;
            shape.grid = dim3(g.tiles, c.cluster_blocks), shape.cluster = c.cluster_blocks;
            shape.shared_bytes = (g.lanes + 1) * 2 * channels * 4 + parts * 2 * channels * 4;
            shape.shared_bytes += (channels / g.group_channels * g.chunks + channels + c.cluster_blocks) * 8;
            return call(c.thread_rows == 4 ? channel_last_backward_rows_cluster<T, 4> : channel_last_backward_rows_cluster<T, 8>, shape, a);
        }
        const uint32_t quads = g.tile_vectors * uint32_t(16 / sizeof(T)) / 2; // quads of columns of a tile
        a.dpres = static_cast<float *>(workspace) + uint64_t(g.samples) * g.groups * 2 * message_pitch(g);
        a.products = a.dpres + uint64_t(g.samples) * g.chunks * g.channels;
        for (a.cluster = 1; a.cluster * g.samples * g.chunks < quads;) a.cluster *= 2;
        shape.grid = dim3(g.tiles, g.chunks, g.samples), shape.cooperative = true;
        shape.shared_bytes = g.tile_vectors * g.lanes * uint32_t(2 * 16 / sizeof(T)) * 4;
        return call(c.thread_rows == 1   ? channel_last_backward_rows<T, 1>
                    : c.thread_rows == 2 ? channel_last_backward_rows<T, 2>
                    : c.thread_rows == 4 ? channel_last_backward_rows<T, 4>
                                         : channel_last_backward_rows<T, 8>,
                    shape, a);
    }
}

} // namespace bops
