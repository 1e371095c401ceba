// GroupNorm backward over channels-last layouts, the form `rows` in a grid, if dx follows from dy and x alone: one cooperative launch, in which
// every block has one tile of whole groups in one chunk of a sample's rows. The rows stay in registers from the first sums to dx.
//
// Such launches are short, so index arithmetic counts: the grid is [tile][chunk][sample] and a block [vector][lane], and the divisions that remain
// are done while the rows are on their way.
#pragma once
#include "channels_last_norm_backward_rows_cluster.cuh"

namespace bops {

template <int rows> constexpr int rows_threads = rows > 4 ? 320 : 640; // of a block whose threads hold `rows` rows, at most
// Lanes that add up what a group has, first in the block, then of all chunks; and vectors that such a lane reads together, of which one has the sums
// of 4 chunks: a team adds up 64 chunks in one turn. Wider teams would take more chunks, narrower ones let a warp add up more sums at once.
constexpr uint32_t rows_team = 8;
constexpr int rows_quads = 2;

// Room for the numbers that the chunks of a sample leave for one sum of a group.
__host__ __device__ __forceinline__ uint32_t message_pitch(const channel_last_shape &g) { return (g.chunks + 3) / 4 * 4; }

// Places of the channels of a tile in shared memory, [channel of a vector][vector], so that the channels of neighbouring threads are neighbours.
template <typename T> __device__ __forceinline__ uint32_t column_of(const rows_tile<T> &tile, uint32_t channel) {
    return channel % tile.width * tile.vectors + channel / tile.width;
}

// What a block leaves for the others, and what it merges.
template <typename T> struct rows_exchange {
    static constexpr int width = 16 / int(sizeof(T));
    const channel_last_backward_arguments<float> &a;
    const rows_tile<T> &tile;
    uint32_t pitch;  // see message_pitch
    float *messages; // [group][dpre, product][chunk]: sums of groups
    uint64_t number; // of the chunk, over all samples

    __device__ __forceinline__ rows_exchange(const channel_last_backward_arguments<float> &of, const rows_tile<T> &of_block)
        : a(of), tile(of_block), pitch(message_pitch(of.g)), messages(&of.means[0].g + uint64_t(tile.first_group) * 2 * pitch),
          number(uint64_t(tile.sample) * gridDim.y + blockIdx.y) {}

    // Calls action(team, is_valid) for each sum of a group, by teams of rows_team lanes: the same number of turns for all lanes of a warp.
    template <typename Action> __device__ __forceinline__ void for_sums(const Action &action) const {
        for (uint32_t first = 0; first < 2 * tile.groups; first += tile.threads / rows_team) {
            const uint32_t team = first + tile.thread / rows_team;
            action(team, team < 2 * tile.groups);
        }
    }
    // Adds up the threads' sums of each channel. They go to memory, and times the weight to `totals`.
    __device__ __forceinline__ void sum_columns(const float *columns, const float *weights, const float *rstds,
                                                float (&totals)[2][rows_channels]) const {
        for (uint32_t k = threadIdx.y; k < 2 * width; k += tile.lanes) {
            const float total = sum_lanes(columns + k * tile.threads + threadIdx.x, tile.vectors, tile.lanes);
            const bool is_product = k >= width;
            const uint32_t column = k % width * tile.vectors + threadIdx.x;
            totals[is_product][column] = total * weights[column];
            __stcg((is_product ? a.products : a.dpres) + number * a.g.channels + tile.begin + column, is_product ? total * rstds[column] : total);
        }
    }
    // Leaves the block's sums of each group.
    __device__ __forceinline__ void send_groups(const float (&totals)[2][rows_channels]) const {
        const uint32_t lane = tile.thread % rows_team;
        for_sums([&](uint32_t team, bool is_valid) {
            float sum[1] = {};
            if (is_valid)
                for (uint32_t i = lane; i < tile.of_group; i += rows_team) sum[0] += totals[team % 2][column_of(tile, team / 2 * tile.of_group + i)];
            warp_sum(sum, rows_team);
            if (is_valid && lane == 0) __stcg(messages + team * pitch + blockIdx.y, sum[0]);
        });
    }
    // The means of each group from what the blocks of the sample have left.
    __device__ __forceinline__ void merge_groups(const float *rstds, gradient_means<float> *means) const {
        const uint32_t lane = tile.thread % rows_team, chunks = gridDim.y;
        for_sums([&](uint32_t team, bool is_valid) {
            float sum[1] = {};
            if (is_valid)
                for (uint32_t c = lane * 4; c < chunks; c += rows_quads * rows_team * 4) {
                    float4 part[rows_quads];
#pragma unroll
                    for (int u = 0; u < rows_quads; ++u) {
                        const uint32_t at = c + u * rows_team * 4;
                        part[u] = at < chunks ? __ldcg(reinterpret_cast<const float4 *>(messages + team * pitch + at)) : float4();
                    }
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
            if (is_valid && tile.thread % (2 * rows_team) == 0)
                means[team / 2] = finish_means(sum[0], product, rstds[column_of(tile, team / 2 * tile.of_group)], a.reciprocal_count);
        });
    }
};

// The gradients of the parameters: a block adds up `of_block` quads of columns of sums over all chunks. The quads of a tile are those of dpre, then
// those of products.
template <typename T> struct column_merge {
    const rows_exchange<T> &exchange;
    const rows_tile<T> &tile;
    uint32_t of_block;
    bool has_quads;               // of the block
    const float *plane = nullptr; // this thread's quad in the first chunk, if it has one
    float4 merged = {};

    // Starts to load what comes first. Called after all blocks have left their sums.
    __device__ __forceinline__ explicit column_merge(const rows_exchange<T> &of) : exchange(of), tile(of.tile), of_block(of.a.merged_quads) {
        const auto &a = exchange.a;
        const uint32_t quads = tile.channels / 2, quad = uint32_t(exchange.number) * of_block + tile.thread % of_block;
        has_quads = (a.o.dweight || a.o.dbias) && exchange.number * of_block < quads;
        if (!has_quads || quad >= quads) return;
        plane = (quad < quads / 2 ? a.dpres : a.products) + tile.begin + (quad < quads / 2 ? quad : quad - quads / 2) * 4;
        if (tile.thread / of_block < all_chunks()) merged = sums_of(tile.thread / of_block);
    }
    __device__ __forceinline__ uint32_t all_chunks() const { return gridDim.z * gridDim.y; }
    __device__ __forceinline__ float4 sums_of(uint32_t chunk) const {
        return __ldcg(reinterpret_cast<const float4 *>(plane + uint64_t(chunk) * exchange.a.g.channels));
    }
    // Called by all threads of the block; room: for four numbers of each quad and warp.
    __device__ __forceinline__ void finish(float *room) {
        if (!has_quads) return;
        const auto &a = exchange.a;
        const uint32_t thread = tile.thread, threads = tile.threads, channels = tile.channels;
        if (plane)
            for (uint32_t chunk = (thread + threads) / of_block; chunk < all_chunks(); chunk += threads / of_block) {
                const float4 more = sums_of(chunk);
                merged.x += more.x, merged.y += more.y, merged.z += more.z, merged.w += more.w;
            }
        float sums[4] = {merged.x, merged.y, merged.z, merged.w};
        for (uint32_t step = 16; step >= of_block; step /= 2)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], step);
        if (thread % 32 < of_block) put_values(room + (thread / 32 * of_block + thread % 32) * 4, sums);
        __syncthreads();
        const uint32_t column = uint32_t(exchange.number) * of_block * 4 + thread, of_plane = column < channels ? column : column - channels;
        if (thread >= of_block * 4 || column >= 2 * channels) return;
        float total[4] = {};
        for (uint32_t warp = 0; warp < threads / 32; warp += 4)
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (warp + u < threads / 32) total[u] += room[(warp + u) * of_block * 4 + thread];
        const uint32_t channel = tile.begin + of_plane % tile.vectors * tile.width + of_plane / tile.vectors;
        store_parameter<T>(column < channels ? a.o.dbias : a.o.dweight, a.weight_is_wide, channel, tree_sum(total));
    }
};

// rows: rows of a thread. A vector has channels of at most two groups; lanes are a multiple of 4.
template <typename T, int rows> __global__ void __launch_bounds__(rows_threads<rows>, 1)
    channel_last_backward_rows(const __grid_constant__ channel_last_backward_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float weights[rows_channels], rstds[rows_channels], totals[2][rows_channels]; // as column_of says
    __shared__ gradient_means<float> means[rows_channels / 2];
    float *const columns = reinterpret_cast<float *>(dynamic_shared); // [dpre, product][channel of a vector][lane][vector]: sums of a thread
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const rows_tile<T> tile(a.g, blockIdx.z, blockIdx.y);
    const T *const dy = tile.at(a.o.dy, a.p.dy), *const x = tile.at(a.o.x, a.p.x);
    if (a.overlaps) follow_previous();

    // 1. Rows, and the block's sums of them.
    gradient_rows<T, rows> data(tile);
    data.load_rows(dy, a.p.dy.spatial, x, a.p.x.spatial);
    const group_pair pair(tile);
    data.load_means(pair, static_cast<const float *>(a.o.mean) + tile.first_group);
    const float *const group_rstds = static_cast<const float *>(a.o.rstd) + tile.first_group;
    for (uint32_t c = tile.thread; c < tile.channels; c += tile.threads) {
        const uint32_t column = column_of(tile, c);
        weights[column] = parameter<T>(a.o.weight, a.weight_is_wide, tile.begin + c, 1.0f), rstds[column] = __ldg(group_rstds + c / tile.of_group);
    }
    data.put_sums(columns + tile.thread, tile.threads);
    __syncthreads();
    const rows_exchange<T> exchange(a, tile);
    exchange.sum_columns(columns, weights, rstds, totals);
    __syncthreads();
    exchange.send_groups(totals);
    grid.sync();

    // 2. Means of the groups. The sums from which parameter gradients follow are under way while gradients are written.
    exchange.merge_groups(rstds, means);
    column_merge<T> parameters(exchange);
    __syncthreads();

    // 3. Gradients.
    float weight[width];
#pragma unroll
    for (int i = 0; i < width; ++i) weight[i] = weights[i * tile.vectors + threadIdx.x];
    data.write(tile.at(a.o.dx, a.p.dx), a.p.dx.spatial, weight, {rstds[column_of(tile, pair.first * tile.of_group)], means[pair.first]},
               {rstds[column_of(tile, pair.next * tile.of_group)], means[pair.next]});

    // 4. Parameter gradients.
    parameters.finish(columns);
}

// Host: the form `rows`.
template <typename T> bops_status channels_last_norm_backward_rows_kernels(const backward_call<bops_channels_last_norm_rows_choice> &f) {
    const auto &c = f.c;
    auto a = last_backward_arguments<T>(f, {c.tile_vectors, c.chunks, 0, c.threads}, c.overlaps);
    const channel_last_shape &g = a.g;
    launch_shape shape;
    shape.block = dim3(g.tile_vectors, g.lanes), shape.overlaps_previous = c.overlaps != 0;
    if (c.cluster_blocks) {
        const uint32_t channels = g.tile_vectors * uint32_t(16 / sizeof(T)), parts = g.lanes < rows_part ? 1 : g.lanes / rows_part;
        shape.grid = dim3(g.tiles, c.cluster_blocks), shape.cluster = c.cluster_blocks;
        shape.shared_bytes = (g.lanes + 1) * 2 * channels * 4 + parts * 2 * channels * 4;
        shape.shared_bytes += (channels / g.group_channels * g.chunks + channels + c.cluster_blocks) * 8;
        return f.call(c.thread_rows == 4 ? channel_last_backward_rows_cluster<T, 4> : channel_last_backward_rows_cluster<T, 8>, shape, a);
    }
    const uint32_t quads = g.tile_vectors * uint32_t(16 / sizeof(T)) / 2; // quads of columns of a tile
    a.dpres = static_cast<float *>(f.workspace) + uint64_t(g.samples) * g.groups * 2 * message_pitch(g);
    a.products = a.dpres + uint64_t(g.samples) * g.chunks * g.channels;
    for (a.merged_quads = 1; a.merged_quads * g.samples * g.chunks < quads;) a.merged_quads *= 2;
    shape.grid = dim3(g.tiles, g.chunks, g.samples), shape.cooperative = true;
    shape.shared_bytes = g.tile_vectors * g.lanes * uint32_t(2 * 16 / sizeof(T)) * 4;
    return f.call(c.thread_rows == 1   ? channel_last_backward_rows<T, 1>
                  : c.thread_rows == 2 ? channel_last_backward_rows<T, 2>
                  : c.thread_rows == 4 ? channel_last_backward_rows<T, 4>
                                       : channel_last_backward_rows<T, 8>,
                  shape, a);
}

} // namespace bops
