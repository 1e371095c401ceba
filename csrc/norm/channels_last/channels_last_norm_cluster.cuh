// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the form `cluster`: all rows of a tile of whole groups stay in the shared
// memory of a cluster.
//
// Every thread starts the copies of all its rows at once and takes their moments. A team of lanes merges the moments of a group in the block, and the
// blocks write them into each other's shared memory.
#pragma once
#include "channels_last_norm.cuh"

namespace bops {

constexpr int cluster_threads = 512;       // of a block, at most
constexpr uint32_t cluster_channels = 256; // of a tile, at most; a block has as many threads
// Register limit, by launch bounds, of the specialisations that it does not make spill: with few registers blocks share a multiprocessor.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int cluster_bound = cluster_threads;
#else
constexpr int cluster_bound = 1024;
#endif

// Bytes that the blocks of a cluster write into this one's shared memory.
struct cluster_mailbox {
    alignas(8) uint64_t arrived;

    // Called by one thread. A barrier of the cluster must lie between this and the first `send`, a barrier of the block between this and `wait`.
    __device__ __forceinline__ void expect(uint32_t bytes) {
        mbarrier::initialize(shared_address(&arrived), 1), mbarrier::expect(shared_address(&arrived), bytes);
        mbarrier::fence_initialized();
    }
    // Writes to where `here` is in the shared memory of block `rank`.
    template <int count> __device__ __forceinline__ void send(const float *here, const float (&value)[count], uint32_t rank) {
        mbarrier::store_remote(shared_address(here), value, shared_address(&arrived), rank);
    }
    // Waits until all bytes have arrived.
    __device__ __forceinline__ void wait() { mbarrier::wait<true>(shared_address(&arrived), 0); }
};

// Partial results of the threads of a block in shared memory: [part][vector of the tile][lane]. The pitch keeps the threads of a warp, whose
// neighbours have neighbouring vectors, on different banks.
struct lane_parts {
    uint32_t pitch, vectors;

    __host__ __device__ __forceinline__ lane_parts(uint32_t lanes, uint32_t of_tile)
        : pitch((lanes + 31) / 32 * 32 + (31 + of_tile) / of_tile), vectors(of_tile) {}
    __host__ __device__ __forceinline__ uint32_t room(uint32_t parts) const { return parts * vectors * pitch; }
    __device__ __forceinline__ uint32_t at(uint32_t part, uint32_t vector) const { return (part * vectors + vector) * pitch; }
};

// The tile of a block in a cluster of `blocks` blocks, which take the chunks of one sample or of several.
template <int width> __device__ __forceinline__ channel_tile<width> cluster_tile(const channel_last_shape &g, uint32_t blocks) {
    const uint32_t unit = blockIdx.x / blocks, of_samples = unit / g.tiles;
    return {g, of_samples * blocks + (blockIdx.x - unit * blocks), unit - of_samples * g.tiles};
}

// Number of lanes that merge the partial results of a block for one group, and for one channel.
constexpr uint32_t group_team = 32, channel_team = 8;
constexpr int ahead = 4; // parts that a lane reads together

// folds: a vector has channels of at most two groups, so that a thread has two parts; otherwise it has one for every channel.
template <typename T, bool has_extras, bool folds> __global__ void __launch_bounds__(has_extras || !folds ? cluster_threads : cluster_bound, 1)
    channel_last_cluster(const __grid_constant__ channel_last_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), batch = 4, parts = folds ? 2 : width;
    constexpr uint32_t team = folds ? group_team : channel_team;
    __shared__ __align__(16) float values[3][cluster_channels];
    __shared__ cluster_mailbox mailbox;
    const channel_last_shape &g = a.g;
    const uint32_t cluster = g.chunks, of_group = g.group_channels;
    const channel_tile<width> t = cluster_tile<width>(g, cluster);
    const uint32_t channels = min(g.tile_vectors * width, g.channels - t.begin), groups = channels / of_group, rank = t.chunk - t.sample * cluster;
    const auto rows_of = [&](uint32_t chunk) { return min(g.chunk_rows, g.rows - chunk * g.chunk_rows); };
    const uint32_t rows = rows_of(rank), all_threads = blockDim.x;
    if (cluster > 1) {
        if (threadIdx.x == 0) mailbox.expect(groups * cluster * 16);
        cluster_arrive();
    }
    if (a.overlaps) follow_previous();

    // 1. Copies, and the moments of this thread's rows.
    const T *const x = t.template at<T>(a.o.x, a.p.x);
    const uint64_t x_step = g.lanes * a.p.x.spatial;
    for (uint32_t v = 0; v < a.slots; ++v) {
        if (v < t.rows) copy_async<16>(dynamic_shared + (v * all_threads + threadIdx.x) * 16, x + v * x_step);
        copy_commit();
    }
    float weight = 1, bias = 0; // of channel number threadIdx.x
    if (threadIdx.x < channels) {
        weight = parameter<T>(a.o.weight, a.weight_is_wide, t.begin + threadIdx.x, 1.0f);
        bias = parameter<T>(a.o.bias, a.weight_is_wide, t.begin + threadIdx.x, 0.0f);
    }
    const uint32_t mine = t.channel - t.begin, split = folds ? min(uint32_t(width), of_group - mine % of_group) : 0; // channels of the first group
    const auto fold = [&](const float(&value)[width], float(&to)[parts]) {
#pragma unroll
        for (int k = 0; k < parts; ++k) to[k] = 0;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (folds) to[0] += i < split ? value[i] : 0.0f, to[1] += i < split ? 0.0f : value[i];
            else to[i] = value[i];
        }
    };
    float shifts[parts] = {}, shift[width] = {}, sum[width] = {}, square[width] = {};
    const uint32_t early_rows = min(t.rows, min((a.slots + 7) / 8, uint32_t(batch))); // whose mean is the shift
    copy_wait_groups(int(a.slots) - batch > 0 ? a.slots - batch : 0);
#pragma unroll
    for (int j = 0; j < batch; ++j)
        if (j < early_rows) {
            float value[width];
            unpack<T>(shared_vector(j * all_threads + threadIdx.x), value);
#pragma unroll
            for (int i = 0; i < width; ++i) shift[i] += value[i];
        }
    fold(shift, shifts);
#pragma unroll
    for (int k = 0; k < parts; ++k) {
        const uint32_t early = early_rows * (!folds ? 1 : k == 0 ? split : width - split);
        shifts[k] = rounded_product(shifts[k], __fdividef(1.0f, float(max(early, 1u))));
    }
#pragma unroll
    for (int i = 0; i < width; ++i) {
        if constexpr (folds) shift[i] = i < split ? shifts[0] : shifts[1];
        else shift[i] = shifts[i];
    }
    for (uint32_t v = 0; v < t.rows; v += batch) {
        copy_wait_groups(int(a.slots) - int(v) - batch > 0 ? a.slots - v - batch : 0);
        packed<16> data[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < t.rows) data[j] = shared_vector((v + j) * all_threads + threadIdx.x);
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < t.rows) {
                float value[width];
                unpack<T>(data[j], value);
                add_moments(value, shift, sum, square);
            }
    }
    const lane_parts places(g.lanes, g.tile_vectors);
    float4 *const inbox = reinterpret_cast<float4 *>(dynamic_shared + a.slots * all_threads * 16); // [rank][group]
    float2 *const lane_sums = reinterpret_cast<float2 *>(inbox + groups * cluster);
    float *const lane_shifts = reinterpret_cast<float *>(lane_sums + places.room(parts));
    if (t.rows) {
        float sums[parts], squares[parts];
        fold(sum, sums), fold(square, squares);
        const uint32_t vector = mine / width, lane = threadIdx.x / g.tile_vectors;
#pragma unroll
        for (int k = 0; k < parts; ++k) {
            const uint32_t at = places.at(k, vector) + lane;
            lane_shifts[at] = shifts[k], lane_sums[at] = make_float2(sums[k], squares[k]);
        }
    }
    __syncthreads();
    if (cluster > 1) cluster_wait();

    // 2. Moments of the block's groups, to all blocks.
    const uint32_t lane = threadIdx.x % team, whole = rows / g.lanes, rest = rows - whole * g.lanes; // rows of every lane, and lanes with one more
    const uint32_t lanes = min(g.lanes, rows);
    const float group_share = 1.0f / float(rows * of_group);
    for (uint32_t first = 0; first < groups; first += all_threads / team) { // the same number of turns for all lanes of a warp
        const uint32_t group = first + threadIdx.x / team, low = group * of_group, high = low + of_group; // channels
        const auto place_of = [&](uint32_t channel) {                                                     // of lane 0
            const uint32_t vector = channel / width;
            return places.at(folds ? vector * width < low : channel - vector * width, vector);
        };
        // The shift is the mean of the first lanes' elements.
        const uint32_t counted = min(team, lanes);
        float mean[1] = {group < groups && lane < counted ? lane_shifts[place_of(low) + lane] : 0.0f};
        warp_sum(mean, team);
        moments<float> own = {rounded_product(mean[0], 1.0f / float(counted)), 0, 0};
        for (bool is_first = true;; is_first = false) {
            cascade<float> sums, squares;
            for (uint32_t c = low, end; group < groups && c < high; c = end) {
                end = folds ? min(high, (c / width + 1) * width) : c + 1;
                const uint32_t place = place_of(c);
                for (uint32_t l = lane; l < lanes; l += ahead * team) {
                    float sum[ahead], square[ahead];
#pragma unroll
                    for (int u = 0; u < ahead; ++u) {
                        const uint32_t at = l + u * team;
                        moments<float> m = {own.shift, 0, 0};
                        if (at < lanes) {
                            const float2 s = lane_sums[place + at];
                            merge(m, {lane_shifts[place + at], s.x, s.y}, float((end - c) * (whole + (at < rest))));
                        }
                        sum[u] = m.sum, square[u] = m.square;
                    }
                    sums.add(tree_sum(sum)), squares.add(tree_sum(square));
                }
            }
            float both[2] = {sums.total(), squares.total()};
            warp_sum(both, team);
            own.sum = both[0], own.square = both[1];
            if (__builtin_expect(!is_first || !__any_sync(~0u, recenter(own, group_share)), true)) break; // else once more
        }
        if (group < groups)
            for (uint32_t r = lane; r < cluster; r += team) {
                if (cluster > 1) mailbox.send(&inbox[rank * groups + group].x, {own.shift, own.sum, own.square, 0.0f}, r);
                else inbox[group] = make_float4(own.shift, own.sum, own.square, 0.0f);
            }
    }
    if (cluster == 1) __syncthreads();

    // 3. Statistics, by a thread for every channel.
    if (threadIdx.x < channels) {
        const uint32_t group = threadIdx.x / of_group;
        if (cluster > 1) mailbox.wait();
        moments<float> total = {inbox[group].x, 0, 0};
        for (bool is_first = true;; is_first = false) {
#pragma unroll 4
            for (uint32_t r = 0; r < cluster; ++r) {
                const float4 m = inbox[r * groups + group];
                merge(total, {m.x, m.y, m.z}, float(rows_of(r) * of_group));
            }
            if (__builtin_expect(!is_first || !recenter(total, a.reciprocal_count), true)) break; // else once more
            total.sum = total.square = 0;
        }
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
        const uint64_t number = (g.per_sample ? uint64_t(t.sample) * g.groups : 0) + t.begin / of_group + group;
        const channel_statistics<float> s = finish_group(a, total, number, rank == 0 && threadIdx.x == group * of_group);
        values[0][threadIdx.x] = s.shift, values[1][threadIdx.x] = s.rstd * weight;
        values[2][threadIdx.x] = fmaf(-s.correction, s.rstd * weight, bias);
    }
    __syncthreads();

    // 4. Output.
    if (t.rows == 0) return;
    float scale[width], offset[width];
    get_values(&values[0][mine], shift), get_values(&values[1][mine], scale), get_values(&values[2][mine], offset);
    const T *const residual = t.template at<T>(a.o.residual, a.p.residual);
    T *const y = t.template at<T>(a.o.y, a.p.y);
    const uint64_t y_step = g.lanes * a.p.y.spatial, residual_step = g.lanes * a.p.residual.spatial;
    for (uint32_t v = 0; v < t.rows; v += batch) {
        packed<16> data[batch], added[has_extras ? batch : 1];
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < t.rows) {
                data[j] = shared_vector((v + j) * all_threads + threadIdx.x);
                if (has_extras && a.o.residual) added[has_extras ? j : 0] = load<16>(residual + (v + j) * residual_step);
            }
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < t.rows)
                store<16, false>(y + (v + j) * y_step,
                                 last_output<T, has_extras>(data[j], shift, scale, offset, a.o.residual, added[has_extras ? j : 0], a.p.activation));
    }
}

// Host: the form `cluster`.
template <typename T> bops_status channels_last_norm_cluster_kernels(const bops_channel_norm_params &p,
                                                                     const bops_channels_last_norm_cluster_choice &c, const form_types &types,
                                                                     const bops_channel_norm_operands &o, void *workspace, const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        constexpr uint32_t width = 16 / sizeof(T);
        auto a = last_arguments<T>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, types, o, workspace, c.overlaps);
        a.slots = c.thread_rows;
        const uint32_t of_group = a.g.group_channels, groups = c.tile_vectors * width / of_group;
        const bool folds = of_group + 1 >= width || 2 * of_group == width; // no vector has channels of three groups
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.cluster = c.cluster_blocks, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes =
            c.thread_rows * c.threads * 16 + groups * c.chunks * 16 + lane_parts(a.g.lanes, c.tile_vectors).room(folds ? 2 : width) * 12;
        if (has_extras(p, types)) return call(folds ? channel_last_cluster<T, true, true> : channel_last_cluster<T, true, false>, shape, a);
        return call(folds ? channel_last_cluster<T, false, true> : channel_last_cluster<T, false, false>, shape, a);
    }
}

} // namespace bops
