// BatchNorm, GroupNorm and InstanceNorm backward over channels-last layouts, the form `cluster`: all rows of a tile of whole groups stay in the
// shared memory of a cluster, as in forward.
#pragma once
#include "channels_last_norm_backward.cuh"
#include "channels_last_norm_exchange.cuh"

namespace bops {

constexpr uint32_t rows_ahead = 4; // rows of a thread that are on their way to shared memory

// A thread's rows of a tile, which stay in shared memory.
template <typename T, bool has_extras> struct held_gradient_rows {
    static constexpr int width = 16 / int(sizeof(T)), batch = has_extras ? 1 : 2;
    const channel_last_backward_arguments<float> &a;
    const channel_tile<width> &t;
    const backward_tile<T, 16, has_extras> &b;

    __device__ __forceinline__ uint32_t place_of(uint32_t v, uint32_t tensor) const { return (v * a.tensors + tensor) * blockDim.x + threadIdx.x; }
    // Row v of this thread.
    __device__ __forceinline__ packed<16> dy(uint32_t v) const { return shared_vector(place_of(v, 0)); }
    __device__ __forceinline__ packed<16> x(uint32_t v) const { return shared_vector(place_of(v, 1)); }
    __device__ __forceinline__ packed<16> extra(uint32_t v) const {
        return has_extras && a.reads_extra ? shared_vector(place_of(v, 2)) : packed<16>();
    }

    // Starts the copies of this thread's rows from number `asked` up to `until`.
    __device__ __forceinline__ void fetch(uint32_t &asked, uint32_t until) const {
        for (until = min(until, a.slots); asked < until; ++asked) {
            if (asked < t.rows) {
                copy_async<16>(dynamic_shared + place_of(asked, 0) * 16, b.dy + asked * b.dy_step);
                copy_async<16>(dynamic_shared + place_of(asked, 1) * 16, b.x + asked * b.x_step);
                if (has_extras && a.reads_extra) copy_async<16>(dynamic_shared + place_of(asked, 2) * 16, b.extra + asked * b.extra_step);
            }
            copy_commit();
        }
    }
    // The sums of this thread's rows as they arrive; asked: rows that are under way. Not all of them are: more at once take longer.
    __device__ __forceinline__ void add_rows(uint32_t asked, float (&dpres)[width], float (&products)[width]) const {
        for (uint32_t v = 0; v < t.rows; v += batch) {
            copy_wait_groups(int(asked) - int(v) - batch > 0 ? asked - v - batch : 0);
            fetch(asked, v + batch + rows_ahead);
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                if (v + j >= t.rows) break;
                const packed<16> of_dy = dy(v + j), of_x = x(v + j), of_extra = extra(v + j);
#pragma unroll
                for (int k = 0; k < b.parts; ++k) {
                    float dpre[b.part], d[b.part];
                    b.gradient(a, k, of_dy, of_x, of_extra, dpre, d);
#pragma unroll
                    for (int i = 0; i < b.part; ++i) {
                        dpres[k * b.part + i] += dpre[i];
                        products[k * b.part + i] = fmaf(dpre[i], d[i], products[k * b.part + i]);
                    }
                }
            }
        }
    }
};

// The sums that the blocks of a cluster exchange: of dpre and of dpre * d, of every channel of a tile.
template <int width> struct channel_exchange {
    const channel_last_backward_arguments<float> &a;
    const channel_tile<width> &t;
    const uint32_t cluster, channels; // blocks of the cluster; channels of the tile
    const uint32_t pairs;             // lanes that leave sums together
    const lane_parts places;
    float2 *const inbox;     // [block][channel]
    float2 *const lane_sums; // of this block

    __device__ __forceinline__ channel_exchange(const channel_last_backward_arguments<float> &of, const channel_tile<width> &tile)
        : a(of), t(tile), cluster(a.cluster), channels(a.g.tile_vectors * width), pairs(16 % a.g.tile_vectors == 0 ? 2 : 1),
          places(a.g.lanes / pairs, a.g.tile_vectors), inbox(reinterpret_cast<float2 *>(dynamic_shared + a.slots * a.tensors * blockDim.x * 16)),
          lane_sums(inbox + channels * cluster) {}

    // Leaves this thread's sums in lane_sums. If both halves of a warp have rows of the same vectors, each half leaves the sums of both for half of
    // the channels.
    __device__ __forceinline__ void put_sums(const float (&dpres)[width], const float (&products)[width]) const {
        const uint32_t vector = threadIdx.x % a.g.tile_vectors;
        if (pairs == 2) {
            const bool is_upper = threadIdx.x & 16;
            const uint32_t at = (threadIdx.x / 32 * 16 + threadIdx.x % 16) / a.g.tile_vectors;
#pragma unroll
            for (int i = 0; i < width / 2; ++i) {
                const float dpre = __shfl_xor_sync(~0u, is_upper ? dpres[i] : dpres[i + width / 2], 16);
                const float product = __shfl_xor_sync(~0u, is_upper ? products[i] : products[i + width / 2], 16);
                lane_sums[places.at(is_upper ? i + width / 2 : i, vector) + at] =
                    make_float2(dpre + (is_upper ? dpres[i + width / 2] : dpres[i]), product + (is_upper ? products[i + width / 2] : products[i]));
            }
        } else if (t.rows) {
#pragma unroll
            for (int i = 0; i < width; ++i) lane_sums[places.at(i, vector) + threadIdx.x / a.g.tile_vectors] = make_float2(dpres[i], products[i]);
        }
    }
    // The block's sums of every channel, by a team for each, to the inboxes of all blocks.
    __device__ __forceinline__ void send_channels(cluster_mailbox &mailbox, uint32_t block) const {
        constexpr int ahead = parts_ahead;
        const uint32_t lane = threadIdx.x % channel_team, lanes = pairs == 2 ? a.g.lanes / 2 : min(a.g.lanes, a.g.rows_of(t.chunk));
        for (uint32_t first = 0; first < channels; first += blockDim.x / channel_team) { // the same number of turns for all lanes of a warp
            const uint32_t c = first + threadIdx.x / channel_team;
            cascade<float> dpre, product;
            if (c < channels)
                for (uint32_t l = lane; l < lanes; l += ahead * channel_team) {
                    float sum[ahead], of_products[ahead];
#pragma unroll
                    for (int u = 0; u < ahead; ++u) {
                        const uint32_t at = l + u * channel_team;
                        const float2 s = at < lanes ? lane_sums[places.at(c % width, c / width) + at] : float2();
                        sum[u] = s.x, of_products[u] = s.y;
                    }
                    dpre.add(tree_sum(sum)), product.add(tree_sum(of_products));
                }
            float sums[2] = {dpre.total(), product.total()};
            warp_sum(sums, channel_team);
            if (c < channels)
                for (uint32_t r = lane; r < cluster; r += channel_team)
                    mailbox.send(cluster, &inbox[block * channels + c], make_float2(sums[0], sums[1]), r);
        }
        if (cluster == 1) __syncthreads();
    }
    // The sums of channel threadIdx.x over the blocks of a sample, from number `first` on.
    __device__ __forceinline__ float2 sum_blocks(uint32_t first) const {
        float2 sum = {};
#pragma unroll 4
        for (uint32_t r = first; r < first + a.g.chunks; ++r) {
            const float2 s = inbox[r * channels + threadIdx.x];
            sum.x += s.x, sum.y += s.y;
        }
        return sum;
    }
    // Replaces rstd and weight, the values 3 and 4 of the tile's channels, by those of gradient_writer; weighted: the sample's sums of each channel times
    // its weight. Called by all threads of the block.
    __device__ __forceinline__ void put_means(const float2 *weighted, const tile_values<5, float> &values) const {
        const uint32_t of_group = a.g.group_channels;
        for (uint32_t low = threadIdx.x / 32 * of_group; low < channels; low += blockDim.x / 32 * of_group) {
            const float rstd = values.at(3, low);
            __syncwarp(); // before a lane writes there
            float sums[2] = {};
            for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32) sums[0] += weighted[low + i].x, sums[1] += weighted[low + i].y;
            if (of_group > 1) warp_sum(sums, 32);
            const gradient_means<float> m = finish_means(sums[0], sums[1], rstd, a.reciprocal_count);
            for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32) values.at(3, low + i) = -rstd * m.g, values.at(4, low + i) = -rstd * m.slope;
        }
    }
};

// If there are several samples with statistics of their own, either the blocks of all samples are one cluster, whose first block writes the gradients
// of the parameters, or each sample leaves what it adds to them in dpres and products.
template <typename T, bool has_extras> __global__ void __launch_bounds__(has_extras ? cluster_threads : cluster_bound, 1)
    channel_last_backward_cluster(const __grid_constant__ channel_last_backward_arguments<float> a) {
    if (!has_sm_90) return;
    using rows_type = held_gradient_rows<T, has_extras>;
    constexpr int width = rows_type::width, batch = rows_type::batch;
    __shared__ __align__(16) float room[5 * cluster_channels];
    __shared__ float2 weighted[cluster_channels];
    __shared__ cluster_mailbox mailbox;
    const channel_last_shape &g = a.g;
    const uint32_t block = blockIdx.x % a.cluster, of_sample = block / g.chunks * g.chunks; // the sample's first block
    const channel_tile<width> t = cluster_tile<width>(g, a.cluster);
    const uint32_t channels = g.tile_vectors * width, channel = t.begin + threadIdx.x;
    const bool has_channel = threadIdx.x < channels; // channel threadIdx.x of the tile
    mailbox.open(a.cluster, threadIdx.x, channels * a.cluster * 8);
    if (a.overlaps) follow_previous();

    // 1. Copies, and the sums of this thread's rows.
    backward_tile<T, 16, has_extras> b(a, t);
    const rows_type rows = {a, t, b};
    uint32_t asked = 0;
    rows.fetch(asked, rows_ahead);
    const tile_values<5, float> values = {room, channels};
    b.load_channels(a, t, values, [&](uint32_t c, uint32_t, float weight, float rstd) { values.at(3, c) = rstd, values.at(4, c) = weight; });
    float dpres[width] = {}, products[width] = {};
    rows.add_rows(asked, dpres, products);
    const channel_exchange<width> exchange(a, t);
    exchange.put_sums(dpres, products);
    mailbox.synchronize(a.cluster);

    // 2. Sums of the block's channels, to all blocks.
    exchange.send_channels(mailbox, block);

    // 3. Sums of the sample, means of the tile's groups.
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    if (has_channel) {
        if (a.cluster > 1) mailbox.wait();
        const float2 sum = exchange.sum_blocks(of_sample);
        const float weight = values.at(4, threadIdx.x), dweight = sum.y * values.at(3, threadIdx.x);
        weighted[threadIdx.x] = make_float2(sum.x * weight, sum.y * weight);
        if (wants_parameters && block == of_sample && a.cluster == g.chunks) {
            const uint64_t to = uint64_t(t.sample) * g.channels + channel;
            if (g.samples > 1) a.dpres[to] = sum.x, a.products[to] = dweight;
            else store_parameters<T>(a, channel, dweight, sum.x);
        }
    }
    __syncthreads();
    exchange.put_means(weighted, values);
    __syncthreads();

    // 4. Gradients.
    if (a.o.dx || a.o.dresidual) {
        const gradient_writer<T, 16, has_extras, false> write(a, t, values);
#pragma unroll batch
        for (uint32_t v = 0; v < t.rows; ++v) write(a, b, v, rows.dy(v), rows.x(v), rows.extra(v));
    }
    if (!wants_parameters || a.cluster == g.chunks || block > 0 || !has_channel) return;
    cascade<float> dbias, dweight;
    for (uint32_t n = 0; n < g.samples; ++n) {
        const float2 sum = exchange.sum_blocks(n * g.chunks);
        dbias.add(sum.x), dweight.add(sum.y * statistics_of(a, n, channel).rstd);
    }
    store_parameters<T>(a, channel, dweight.total(), dbias.total());
}

constexpr int parameter_threads = 128; // of a block of channel_last_sample_sums

// The gradients of the parameters from what each sample adds.
template <typename T> __global__ void __launch_bounds__(parameter_threads)
    channel_last_sample_sums(const __grid_constant__ channel_last_backward_arguments<accumulator_t<T>> a) {
    wait_for_dependency();
    using A = accumulator_t<T>;
    for (uint64_t c = uint64_t(blockIdx.x) * parameter_threads + threadIdx.x; c < a.g.channels; c += uint64_t(gridDim.x) * parameter_threads) {
        cascade<A> dpres, products;
        for (uint64_t n = 0; n < a.g.samples; ++n) dpres.add(a.dpres[n * a.g.channels + c]), products.add(a.products[n * a.g.channels + c]);
        store_parameters<T>(a, uint32_t(c), products.total(), dpres.total());
    }
}

// Host: the form `cluster`.
template <typename T> bops_status channels_last_norm_backward_cluster_kernels(const backward_call<bops_channels_last_norm_cluster_choice> &f) {
    const auto &c = f.c;
    auto a = last_backward_arguments<T>(f, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, c.overlaps);
    a.slots = c.thread_rows, a.tensors = c.tensors, a.cluster = c.cluster_blocks;
    a.dpres = static_cast<float *>(f.workspace), a.products = a.dpres + uint64_t(a.g.samples) * a.g.channels;
    const uint32_t channels = c.tile_vectors * uint32_t(16 / sizeof(T));
    launch_shape shape = f.shape(c.threads);
    shape.cluster = c.cluster_blocks;
    shape.shared_bytes = c.thread_rows * c.tensors * c.threads * 16 + channels * c.cluster_blocks * 8 +
                         lane_parts(a.g.lanes / (16 % c.tile_vectors ? 1 : 2), c.tile_vectors).room(16 / sizeof(T)) * 8;
    const bops_status status = f.call(f.has_extras() ? channel_last_backward_cluster<T, true> : channel_last_backward_cluster<T, false>, shape, a);
    const bool sums_samples = a.g.samples > 1 && c.cluster_blocks == c.chunks;
    if (status || !sums_samples || !(f.call.prepares || f.o.dweight || f.o.dbias)) return status;
    launch_shape sum_shape = last_launch((a.g.channels + parameter_threads - 1) / parameter_threads, parameter_threads, c.overlaps);
    return f.call(channel_last_sample_sums<T>, sum_shape, a);
}

} // namespace bops
