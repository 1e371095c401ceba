// BatchNorm, GroupNorm and InstanceNorm backward over channels-last layouts, the form `cluster`: all rows of a tile of whole groups stay in the
// shared memory of a cluster, as in forward.
#pragma once
#include "channels_last_norm_backward.cuh"
#include "channels_last_norm_cluster.cuh"

namespace bops {

constexpr uint32_t rows_ahead = 4; // of a thread, under way

// The blocks of a cluster exchange the sums of every channel. If there are several samples with statistics of their own, either the blocks of all
// samples are one cluster, whose first block writes the gradients of the parameters, or each sample leaves what it adds to them in dpres and
// products.
template <typename T, bool has_extras> __global__ void __launch_bounds__(has_extras ? cluster_threads : cluster_bound, 1)
    channel_last_backward_cluster(const __grid_constant__ channel_last_backward_arguments<float> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), batch = has_extras ? 1 : 2;
    __shared__ __align__(16) float room[5 * cluster_channels];
    __shared__ float2 weighted[cluster_channels];
    __shared__ cluster_mailbox mailbox;
    const channel_last_shape &g = a.g;
    const uint32_t cluster = a.cluster, block = blockIdx.x % cluster, of_group = g.group_channels, all_threads = blockDim.x;
    const channel_tile<width> t = cluster_tile<width>(g, cluster);
    const uint32_t channels = g.tile_vectors * width, of_sample = block / g.chunks * g.chunks; // the sample's first block
    if (cluster > 1) {
        if (threadIdx.x == 0) mailbox.expect(channels * cluster * 8);
        cluster_arrive();
    }
    if (a.overlaps) follow_previous();

    // 1. Copies, and the sums of this thread's rows.
    backward_tile<T, 16, has_extras> b(a, t);
    const auto place_of = [&](uint32_t v, uint32_t tensor) { return (v * a.tensors + tensor) * all_threads + threadIdx.x; };
    uint32_t asked = 0; // rows that are copied or under way: more at once take longer
    const auto ask = [&](uint32_t until) {
        for (until = min(until, a.slots); asked < until; ++asked) {
            if (asked < t.rows) {
                copy_async<16>(dynamic_shared + place_of(asked, 0) * 16, b.dy + asked * b.dy_step);
                copy_async<16>(dynamic_shared + place_of(asked, 1) * 16, b.x + asked * b.x_step);
                if (has_extras && a.reads_extra) copy_async<16>(dynamic_shared + place_of(asked, 2) * 16, b.extra + asked * b.extra_step);
            }
            copy_commit();
        }
    };
    ask(rows_ahead);
    const auto extra_of = [&](uint32_t v) { return has_extras && a.reads_extra ? shared_vector(place_of(v, 2)) : packed<16>(); };
    const tile_values<5, float> values = {room, channels};
    b.load_channels(a, t, values, [&](uint32_t c, uint32_t, float weight, float rstd) { values.at(3, c) = rstd, values.at(4, c) = weight; });
    float dpres[width] = {}, products[width] = {};
    for (uint32_t v = 0; v < t.rows; v += batch) {
        copy_wait_groups(int(asked) - int(v) - batch > 0 ? asked - v - batch : 0);
        ask(v + batch + rows_ahead);
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            if (v + j >= t.rows) break;
            const packed<16> dy = shared_vector(place_of(v + j, 0)), x = shared_vector(place_of(v + j, 1)), extra = extra_of(v + j);
#pragma unroll
            for (int k = 0; k < b.parts; ++k) {
                float dpre[b.part], d[b.part];
                b.gradient(a, k, dy, x, extra, dpre, d);
#pragma unroll
                for (int i = 0; i < b.part; ++i) {
                    dpres[k * b.part + i] += dpre[i];
                    products[k * b.part + i] = fmaf(dpre[i], d[i], products[k * b.part + i]);
                }
            }
        }
    }
    const uint32_t pairs = 16 % g.tile_vectors == 0 ? 2 : 1; // lanes that make one
    const lane_parts places(g.lanes / pairs, g.tile_vectors);
    float2 *const inbox = reinterpret_cast<float2 *>(dynamic_shared + a.slots * a.tensors * all_threads * 16); // [block][channel]
    float2 *const lane_sums = inbox + channels * cluster;
    const uint32_t vector = threadIdx.x % g.tile_vectors;
    if (pairs == 2) { // both halves of a warp have rows of the same vectors; each takes half of the channels
        const bool is_upper = threadIdx.x & 16;
        const uint32_t at = (threadIdx.x / 32 * 16 + threadIdx.x % 16) / g.tile_vectors;
#pragma unroll
        for (int i = 0; i < width / 2; ++i) {
            const float dpre = __shfl_xor_sync(~0u, is_upper ? dpres[i] : dpres[i + width / 2], 16);
            const float product = __shfl_xor_sync(~0u, is_upper ? products[i] : products[i + width / 2], 16);
            lane_sums[places.at(is_upper ? i + width / 2 : i, vector) + at] =
                make_float2(dpre + (is_upper ? dpres[i + width / 2] : dpres[i]), product + (is_upper ? products[i + width / 2] : products[i]));
        }
    } else if (t.rows) {
#pragma unroll
        for (int i = 0; i < width; ++i) lane_sums[places.at(i, vector) + threadIdx.x / g.tile_vectors] = make_float2(dpres[i], products[i]);
    }
    __syncthreads();
    if (cluster > 1) cluster_wait();

    // 2. Sums of the block's channels, to all blocks.
    const uint32_t lane = threadIdx.x % channel_team, lanes = pairs == 2 ? g.lanes / 2 : min(g.lanes, g.rows_of(t.chunk));
    for (uint32_t first = 0; first < channels; first += all_threads / channel_team) { // the same number of turns for all lanes of a warp
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
            for (uint32_t r = lane; r < cluster; r += channel_team) {
                if (cluster > 1) mailbox.send(&inbox[block * channels + c].x, sums, r);
                else inbox[c] = make_float2(sums[0], sums[1]);
            }
    }
    if (cluster == 1) __syncthreads();

    // 3. Sums of the sample, means of the tile's groups.
    const bool wants_parameters = a.o.dweight || a.o.dbias;
    const auto sum_of = [&](uint32_t first) { // over the blocks of a sample
        float2 sum = {};
#pragma unroll 4
        for (uint32_t r = first; r < first + g.chunks; ++r) {
            const float2 s = inbox[r * channels + threadIdx.x];
            sum.x += s.x, sum.y += s.y;
        }
        return sum;
    };
    if (threadIdx.x < channels) {
        if (cluster > 1) mailbox.wait();
        const float2 sum = sum_of(of_sample);
        const float weight = values.at(4, threadIdx.x), dweight = sum.y * values.at(3, threadIdx.x);
        weighted[threadIdx.x] = make_float2(sum.x * weight, sum.y * weight);
        const uint32_t channel = t.begin + threadIdx.x;
        if (wants_parameters && block == of_sample && cluster == g.chunks) {
            const uint64_t to = uint64_t(t.sample) * g.channels + channel;
            if (g.samples > 1) a.dpres[to] = sum.x, a.products[to] = dweight;
            else store_parameters<T>(a, channel, dweight, sum.x);
        }
    }
    __syncthreads();
    for (uint32_t low = threadIdx.x / 32 * of_group; low < channels; low += all_threads / 32 * of_group) {
        const float rstd = values.at(3, low);
        __syncwarp(); // before a lane writes there
        float sums[2] = {};
        for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32) sums[0] += weighted[low + i].x, sums[1] += weighted[low + i].y;
        if (of_group > 1) warp_sum(sums, 32);
        const gradient_means<float> m = finish_means(sums[0], sums[1], rstd, a.reciprocal_count);
        for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32) values.at(3, low + i) = -rstd * m.g, values.at(4, low + i) = -rstd * m.slope;
    }
    __syncthreads();

    // 4. Gradients.
    if (a.o.dx || a.o.dresidual) {
        const gradient_writer<T, 16, has_extras, false> write(a, t, values);
#pragma unroll batch
        for (uint32_t v = 0; v < t.rows; ++v) write(a, b, v, shared_vector(place_of(v, 0)), shared_vector(place_of(v, 1)), extra_of(v));
    }
    if (!wants_parameters || cluster == g.chunks || block > 0 || threadIdx.x >= channels) return;
    cascade<float> dbias, dweight;
    const uint32_t channel = t.begin + threadIdx.x;
    for (uint32_t n = 0; n < g.samples; ++n) {
        const float2 sum = sum_of(n * g.chunks);
        dbias.add(sum.x), dweight.add(sum.y * statistics_of(a, n, channel).rstd);
    }
    store_parameters<T>(a, channel, dweight.total(), dbias.total());
}

constexpr int parameter_threads = 128;

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
template <typename T> bops_status channels_last_norm_backward_cluster_kernels(const bops_channel_norm_backward_params &p,
                                                                              const bops_channels_last_norm_cluster_choice &c,
                                                                              const form_types &types, const bops_channel_norm_backward_operands &o,
                                                                              void *workspace, const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_backward_arguments<T>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads}, types, o, workspace, c.overlaps);
        a.slots = c.thread_rows, a.tensors = c.tensors, a.cluster = c.cluster_blocks;
        a.dpres = static_cast<float *>(workspace), a.products = a.dpres + uint64_t(a.g.samples) * a.g.channels;
        const uint32_t channels = c.tile_vectors * uint32_t(16 / sizeof(T));
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.cluster = c.cluster_blocks, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = c.thread_rows * c.tensors * c.threads * 16 + channels * c.cluster_blocks * 8 +
                             lane_parts(a.g.lanes / (16 % c.tile_vectors ? 1 : 2), c.tile_vectors).room(16 / sizeof(T)) * 8;
        const bops_status status =
            call(has_extras(p, types) ? channel_last_backward_cluster<T, true> : channel_last_backward_cluster<T, false>, shape, a);
        const bool sums_samples = a.g.samples > 1 && c.cluster_blocks == c.chunks;
        if (status || !sums_samples || !(call.prepares || o.dweight || o.dbias)) return status;
        launch_shape sum_shape = last_launch((a.g.channels + parameter_threads - 1) / parameter_threads, parameter_threads);
        sum_shape.overlaps_previous = c.overlaps != 0;
        return call(channel_last_sample_sums<T>, sum_shape, a);
    }
}

} // namespace bops
