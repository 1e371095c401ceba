// Gradients of BatchNorm through a ReLU whose sign a residual or y gives, the form `single_masked`: every team, which is a block or a cluster, takes
// one channel into its shared memory.
#pragma once
#include "channel_norm_backward_held.cuh"
#include "channel_norm_single.cuh"

namespace bops {

constexpr int single_masked_vectors = 8; // vectors of each tensor that a thread takes, at most: it has registers for those of y or the residual

struct channel_backward_masked_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    float reciprocal_count;
    uint32_t cluster;
    uint32_t per_segment, all, block_vectors; // vectors of a segment, of a channel, of a block
    uint32_t weight_is_wide, overlaps;
    divisor by_segment; // divides by per_segment
};

// A thread copies its vectors of dy and x to shared memory, [vector][tensor][thread], and loads those of y or the residual into registers; all are
// under way at once. When an element is added up, dpre (which is dy or 0) replaces dy; it is also the gradient of the residual.
// 72 registers a thread let 4 blocks of 224 threads, or 2 of 448, share the 65536 registers of an SM.
template <typename T> __global__ void __maxnreg__(72)
    channel_norm_backward_single_masked(const __grid_constant__ channel_backward_masked_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float2 warp_sums[merge_lanes];
    __shared__ cluster_exchange exchange;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, channel = blockIdx.x / a.cluster, first = rank * a.block_vectors;
    const uint32_t own = min(max(a.all, first) - first, a.block_vectors); // vectors of the block, of this thread
    const uint32_t mine = own > threadIdx.x ? (own - threadIdx.x + blockDim.x - 1) / blockDim.x : 0;
    const auto offset = [&](const bops_channel_strides &s, uint32_t v) {
        const uint32_t number = first + v * blockDim.x + threadIdx.x, segment = a.by_segment.quotient(number);
        return channel * s.channel + segment * s.batch + (number - segment * a.per_segment) * width;
    };
    const uint32_t place = kept_address(dynamic_shared + threadIdx.x * 16), array_bytes = blockDim.x * 16, place_bytes = 2 * array_bytes;
    const T *const extra_from = static_cast<const T *>(a.o.y ? a.o.y : a.o.residual);
    const bops_channel_strides &extra_strides = a.o.y ? a.p.y : a.p.residual;
    if (a.overlaps) follow_previous();
    packed<16> extra[single_masked_vectors];
#pragma unroll
    for (int v = 0; v < single_masked_vectors; ++v) {
        if (v < mine) {
            copy_async<16>(place + v * place_bytes, static_cast<const T *>(a.o.dy) + offset(a.p.dy, v));
            copy_async<16>(place + v * place_bytes + array_bytes, static_cast<const T *>(a.o.x) + offset(a.p.x, v));
            extra[v] = load<16, false>(extra_from + offset(extra_strides, v));
        }
        copy_commit();
    }
    const float mean = __ldg(static_cast<const float *>(a.o.mean) + channel), rstd = __ldg(static_cast<const float *>(a.o.rstd) + channel);
    const float scale = rstd * parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
    const float bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f);

    // 1. Sums of dpre and dpre xhat.
    float sum[width] = {}, product[width] = {};
#pragma unroll
    for (int v = 0; v < single_masked_vectors; ++v) {
        copy_wait_groups(single_masked_vectors - 1 - v);
        if (v < mine) {
            packed<16> dpre = load_shared(place + v * place_bytes);
            float dy[width], d[width];
            unpack_deviations<T>(load_shared(place + v * place_bytes + array_bytes), mean, d);
            if (a.o.y) {
                mask_relu<T>(extra[v], dpre);
            } else {
                float pre[width];
                unpack<T>(extra[v], pre);
#pragma unroll
                for (int k = 0; k < width; ++k) pre[k] += fmaf(d[k], scale, bias);
                mask_relu<T>(pre, dpre);
            }
            store_shared(place + v * place_bytes, dpre);
            unpack<T>(dpre, dy);
            add_products(dy, d, sum, product);
        }
    }
    float sums[2] = {tree_sum(sum), tree_sum(product) * rstd};
    warp_sum(sums, 32);
    if (lane == 0) warp_sums[warp] = make_float2(sums[0], sums[1]);
    __syncthreads();

    // 2. The sums of the block and of its cluster.
    merge_warp_sums(warp_sums, blockDim.x / 32, merge_lanes, sums);
    if (a.cluster > 1) {
        cluster_wait();
        if (warp == 0) exchange.send({sums[0], sums[1], 0, 0}, 0, rank, a.cluster, threadIdx.x);
        receive_cluster_sums(exchange, 0, a.cluster, sums);
    }
    if (threadIdx.x == 0 && rank == 0) {
        store_parameter<T>(a.o.dbias, a.weight_is_wide, channel, sums[0]);
        store_parameter<T>(a.o.dweight, a.weight_is_wide, channel, sums[1]);
    }
    const float mean_g = scale * sums[0] * a.reciprocal_count, slope = scale * rstd * sums[1] * a.reciprocal_count;

    // 3. The gradients of the elements.
#pragma unroll 4
    for (uint32_t v = 0; v < mine; ++v) {
        const packed<16> dpre = load_shared(place + v * place_bytes);
        float dy[width], d[width];
        unpack<T>(dpre, dy);
        unpack_deviations<T>(load_shared(place + v * place_bytes + array_bytes), mean, d);
        make_dx(d, scale, mean_g, slope, dy);
        if (a.o.dresidual) store<16, false>(static_cast<T *>(a.o.dresidual) + offset(a.p.dresidual, v), dpre);
        if (a.o.dx) store<16, false>(static_cast<T *>(a.o.dx) + offset(a.p.dx, v), pack<T, 16>(dy));
    }
}

// Host: the form `single_masked`.
template <typename T>
bops_status channel_norm_backward_single_masked_kernels(const backward_call<bops_channel_norm_backward_single_masked_choice> &f) {
    const auto &c = f.c;
    channel_backward_masked_arguments a = {};
    a.p = f.p, a.o = f.o, a.reciprocal_count = float(1.0 / double(f.p.batch * f.p.spatial));
    a.cluster = c.cluster_blocks, a.per_segment = uint32_t(f.p.spatial * sizeof(T) / 16), a.by_segment = divisor(a.per_segment);
    a.all = uint32_t(f.p.batch) * a.per_segment, a.block_vectors = c.threads * c.vectors;
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = c.overlaps;
    launch_shape shape = f.shape(c.threads, c.threads * c.vectors * 32);
    shape.cluster = c.cluster_blocks;
    return f.call(channel_norm_backward_single_masked<T>, shape, a);
}

} // namespace bops
