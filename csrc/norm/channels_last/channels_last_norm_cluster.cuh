// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the form `cluster`: all rows of a tile of whole groups stay in the shared
// memory of a cluster.
//
// Every thread starts the copies of all its rows at once and takes their moments. A team of lanes merges the moments of a group in the block, and the
// blocks write them into each other's shared memory.
#pragma once
#include "channels_last_norm.cuh"
#include "channels_last_norm_exchange.cuh"

namespace bops {

// A tile of whole groups in the chunk of a block, and where its partial results are in shared memory.
template <typename T, bool folds> struct cluster_block {
    // batch: rows of a thread that are read from shared memory together, so that their latencies overlap; each takes 4 registers.
    static constexpr int width = 16 / int(sizeof(T)), batch = 4;
    static constexpr uint32_t team = folds ? group_team : channel_team;
    using parts = vector_parts<width, folds>;
    const channel_last_arguments<float> &a;
    const channel_tile<width> t;
    uint32_t cluster, rank, rows;        // blocks of the cluster; the block's number and rows
    uint32_t channels, groups, of_group; // of the tile; channels of a group
    lane_parts places;
    float4 *inbox; // [rank][group]
    lane_moments lanes;

    __device__ __forceinline__ explicit cluster_block(const channel_last_arguments<float> &of)
        : a(of), t(cluster_tile<width>(of.g, of.g.chunks)), cluster(a.g.chunks), rank(t.chunk - t.sample * cluster), rows(rows_of(rank)),
          channels(min(a.g.tile_vectors * width, a.g.channels - t.begin)), groups(channels / a.g.group_channels), of_group(a.g.group_channels),
          places(a.g.lanes, a.g.tile_vectors) {
        inbox = reinterpret_cast<float4 *>(dynamic_shared + a.slots * blockDim.x * 16);
        lanes.sums = reinterpret_cast<float2 *>(inbox + groups * cluster);
        lanes.shifts = reinterpret_cast<float *>(lanes.sums + places.room(parts::count));
    }
    __device__ __forceinline__ uint32_t rows_of(uint32_t chunk) const { return a.g.consecutive_rows(chunk); }
    // Row v of this thread, which is in shared memory.
    static __device__ __forceinline__ packed<16> row(uint32_t v) { return shared_vector(v * blockDim.x + threadIdx.x); }

    // Starts the copies of this thread's rows.
    __device__ __forceinline__ void fetch() const {
        const T *const x = t.template at<T>(a.o.x, a.p.x);
        const uint64_t x_step = a.g.row_step * a.p.x.spatial;
        for (uint32_t v = 0; v < a.slots; ++v) {
            if (v < t.rows) copy_async<16>(dynamic_shared + (v * blockDim.x + threadIdx.x) * 16, x + v * x_step);
            copy_commit();
        }
    }
    // Waits until this thread's rows up to number v + batch are there.
    __device__ __forceinline__ void wait_for(uint32_t v) const { copy_wait_groups(int(a.slots) - int(v) - batch > 0 ? a.slots - v - batch : 0); }

    // The moments of this thread's parts as the rows arrive, to `lanes`. Their shift is the mean of the first rows.
    __device__ __forceinline__ void add_rows() const {
        const uint32_t mine = t.channel - t.begin;
        const parts of = {folds ? min(uint32_t(width), of_group - mine % of_group) : 0};
        float shifts[parts::count] = {}, shift[width] = {}, sum[width] = {}, square[width] = {};
        // The share of rows that docs/numerics.md asks for: an eighth.
        const uint32_t early_rows = min(t.rows, min((a.slots + 7) / 8, uint32_t(batch)));
        wait_for(0);
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (j < early_rows) {
                float value[width];
                unpack<T>(row(j), value);
#pragma unroll
                for (int i = 0; i < width; ++i) shift[i] += value[i];
            }
        of.fold(shift, shifts);
        of.shifts(shifts, early_rows, shift);
        for (uint32_t v = 0; v < t.rows; v += batch) {
            wait_for(v);
            packed<16> data[batch];
#pragma unroll
            for (int j = 0; j < batch; ++j)
                if (v + j < t.rows) data[j] = row(v + j);
#pragma unroll
            for (int j = 0; j < batch; ++j)
                if (v + j < t.rows) {
                    float value[width];
                    unpack<T>(data[j], value);
                    add_moments(value, shift, sum, square);
                }
        }
        if (t.rows == 0) return;
        float sums[parts::count], squares[parts::count];
        of.fold(sum, sums), of.fold(square, squares);
        const uint32_t vector = mine / width, lane = threadIdx.x / a.g.tile_vectors;
#pragma unroll
        for (int k = 0; k < parts::count; ++k) lanes.put(places.at(k, vector) + lane, shifts[k], sums[k], squares[k]);
    }

    // The moments of the block's groups, by a team for each group, to the inboxes of all blocks.
    __device__ __forceinline__ void send_groups(cluster_mailbox &mailbox) const {
        const uint32_t lane = threadIdx.x % team, filled = min(a.g.lanes, rows);
        const uint32_t whole = rows / a.g.lanes, rest = rows - whole * a.g.lanes; // rows of every lane, and lanes with one more
        const float share = 1.0f / float(rows * of_group);
        for (uint32_t first = 0; first < groups; first += blockDim.x / team) { // the same number of turns for all lanes of a warp
            const uint32_t group = first + threadIdx.x / team, low = group * of_group, high = low + of_group; // channels
            const auto place_of = [&](uint32_t channel) {                                                     // of lane 0
                const uint32_t vector = channel / width;
                return places.at(folds ? vector * width < low : channel - vector * width, vector);
            };
            // The shift is the mean of the first lanes' elements.
            const uint32_t counted = min(team, filled);
            float mean[1] = {group < groups && lane < counted ? lanes.shifts[place_of(low) + lane] : 0.0f};
            warp_sum(mean, team);
            moments<float> own = {rounded_product(mean[0], 1.0f / float(counted)), 0, 0};
            const auto sum = [&] {
                cascade<float> sums, squares;
                for (uint32_t c = low, end; group < groups && c < high; c = end) {
                    end = folds ? min(high, (c / width + 1) * width) : c + 1;
                    const uint32_t place = place_of(c);
                    for (uint32_t l = lane; l < filled; l += parts_ahead * team) {
                        float sum[parts_ahead], square[parts_ahead];
#pragma unroll
                        for (int u = 0; u < parts_ahead; ++u) {
                            const uint32_t at = l + u * team;
                            moments<float> m = {own.shift, 0, 0};
                            if (at < filled) merge(m, lanes.get(place + at), float((end - c) * (whole + (at < rest))));
                            sum[u] = m.sum, square[u] = m.square;
                        }
                        sums.add(tree_sum(sum)), squares.add(tree_sum(square));
                    }
                }
                float both[2] = {sums.total(), squares.total()};
                warp_sum(both, team);
                own.sum = both[0], own.square = both[1];
            };
            sum_about_mean(sum, [&] { return __any_sync(~0u, recenter(own, share)); });
            if (group < groups)
                for (uint32_t r = lane; r < cluster; r += team) mailbox.send(cluster, &inbox[rank * groups + group], own, r);
        }
        if (cluster == 1) __syncthreads();
    }
    // The moments of a group of the tile from those of all blocks.
    __device__ __forceinline__ moments<float> merge_blocks(uint32_t group) const {
        moments<float> total = {inbox[group].x, 0, 0};
        const auto sum = [&] {
            total.sum = total.square = 0;
#pragma unroll 4
            for (uint32_t r = 0; r < cluster; ++r) {
                const float4 m = inbox[r * groups + group];
                merge(total, {m.x, m.y, m.z}, float(rows_of(r) * of_group));
            }
        };
        sum_about_mean(sum, [&] { return recenter(total, a.reciprocal_count); });
        total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
        return total;
    }
};

// folds: a vector has channels of at most two groups, so that a thread has two parts; otherwise it has one for every channel.
template <typename T, bool has_extras, bool folds> __global__ void __launch_bounds__(has_extras || !folds ? cluster_threads : cluster_bound, 1)
    channel_last_cluster(const __grid_constant__ channel_last_arguments<float> a) {
    if (!has_sm_90) return;
    using block_type = cluster_block<T, folds>;
    __shared__ __align__(16) float values[3][cluster_channels]; // as of put_scales
    __shared__ cluster_mailbox mailbox;
    const block_type block(a);
    const channel_tile<block_type::width> &t = block.t;
    const bool has_channel = threadIdx.x < block.channels; // channel threadIdx.x of the tile
    mailbox.open(block.cluster, threadIdx.x, block.groups * block.cluster * 16);
    if (a.overlaps) follow_previous();

    // 1. Copies, and the moments of this thread's rows.
    block.fetch();
    float weight = 1, bias = 0; // of channel threadIdx.x
    if (has_channel) {
        weight = parameter<T>(a.o.weight, a.weight_is_wide, t.begin + threadIdx.x, 1.0f);
        bias = parameter<T>(a.o.bias, a.weight_is_wide, t.begin + threadIdx.x, 0.0f);
    }
    block.add_rows();
    mailbox.synchronize(block.cluster);

    // 2. Moments of the block's groups, to all blocks.
    block.send_groups(mailbox);

    // 3. Statistics, by a thread for every channel.
    if (has_channel) {
        const uint32_t of_group = block.of_group, group = threadIdx.x / of_group;
        if (block.cluster > 1) mailbox.wait();
        const moments<float> total = block.merge_blocks(group);
        const uint64_t number = (a.g.per_sample ? uint64_t(t.sample) * a.g.groups : 0) + t.begin / of_group + group;
        const bool is_first = block.rank == 0 && threadIdx.x == group * of_group;
        put_scales(&values[0][threadIdx.x], cluster_channels, finish_group(a, total, number, is_first), weight, bias);
    }
    __syncthreads();

    // 4. Output.
    if (t.rows == 0) return;
    constexpr int batch = block_type::batch;
    output_writer<T, 16, has_extras, false> output(a, t);
    output.get(&values[0][t.channel - t.begin], cluster_channels);
    for (uint32_t v = 0; v < t.rows; v += batch) {
        packed<16> data[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < t.rows) data[j] = block.row(v + j);
        output.write(data, v);
    }
}

// Host: the form `cluster`.
template <typename T> bops_status channels_last_norm_cluster_kernels(const forward_call<bops_channels_last_norm_cluster_choice> &f) {
    const auto &c = f.c;
    constexpr uint32_t width = 16 / sizeof(T);
    auto a = last_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, c.overlaps);
    a.slots = c.thread_rows;
    const uint32_t of_group = a.g.group_channels, groups = c.tile_vectors * width / of_group;
    const bool folds = of_group + 1 >= width || 2 * of_group == width; // no vector has channels of three groups
    launch_shape shape = f.shape(c.threads);
    shape.cluster = c.cluster_blocks;
    shape.shared_bytes = c.thread_rows * c.threads * 16 + groups * c.chunks * 16 + lane_parts(a.g.lanes, c.tile_vectors).room(folds ? 2 : width) * 12;
    if (f.has_extras()) return f.call(folds ? channel_last_cluster<T, true, true> : channel_last_cluster<T, true, false>, shape, a);
    return f.call(folds ? channel_last_cluster<T, false, true> : channel_last_cluster<T, false, false>, shape, a);
}

} // namespace bops
