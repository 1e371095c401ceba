// GroupNorm and InstanceNorm forward, the form `segment`: a group is one segment, which a block holds in registers.
#pragma once
#include "channel_norm_single.cuh"

namespace bops {

constexpr int segment_threads = 512; // of a block, at most
constexpr int segment_vectors = 8;   // vectors of x in the registers of a thread, at most: 32 of the 64 registers that two blocks of 512 leave it

// Number of lanes that merge the results of `warps` warps.
__device__ __forceinline__ uint32_t lanes_for(uint32_t warps) { return 1u << (32 - __clz(warps - 1)); }

// A warp uses the mean of its first vectors as the shift of its moments. If the shift turns out to be far from the mean, the warp adds up its part
// once more.
template <typename T, activation_form form> __global__ void __launch_bounds__(segment_threads, 2)
    channel_norm_segment(const __grid_constant__ channel_single_arguments a) {
    // chains: sums that a thread adds up side by side, and as many sums of squares. More would take two registers each; with fewer, additions wait
    // for each other more often.
    constexpr int width = 16 / int(sizeof(T)), chains = 4;
    __shared__ float4 parts[merge_lanes]; // moments and counts
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = blockIdx.x;
    uint32_t sample, channel;
    a.geometry.segment(group, 0, sample, channel);
    const T *const x = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + threadIdx.x * width;
    T *const y = static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel) + threadIdx.x * width;
    const auto is_mine = [&](int v) { return v * blockDim.x + threadIdx.x < a.all; };
    const uint32_t mine = a.all > threadIdx.x ? (a.all - threadIdx.x + blockDim.x - 1) / blockDim.x : 0;
    const uint32_t first_vectors = min(max(a.all, warp * 32) - warp * 32, 32u);
    const float warp_count = float(__reduce_add_sync(~0u, mine) * width);
    const float shift_scale = first_vectors ? 1.0f / float(first_vectors * width) : 0.0f;
    compute_here(x), compute_here(y), compute_here(__float_as_uint(warp_count)), compute_here(__float_as_uint(shift_scale));
    follow_previous();
    packed<16> data[segment_vectors];
#pragma unroll
    for (int v = 0; v < segment_vectors; ++v)
        if (is_mine(v)) data[v] = load<16>(x + v * blockDim.x * width);
    const float weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f), bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f);

    // 1. The moments of each warp's part.
    float mean[1] = {};
    if (is_mine(0)) {
        float d[width];
        unpack<T>(data[0], d);
        mean[0] = tree_sum(d);
    }
    warp_sum(mean, 32);
    moments<float> total = {mean[0] * shift_scale, 0, 0};
    const auto add = [&](float about, float(&sums)[2]) {
        float sum[chains] = {}, square[chains] = {};
#pragma unroll
        for (int v = 0; v < segment_vectors; ++v)
            if (is_mine(v)) {
                float d[width];
                unpack<T>(data[v], d);
                add_moments(d, about, sum, square);
            }
        sums[0] = tree_sum(sum), sums[1] = tree_sum(square);
    };
    float sums[2];
    add(total.shift, sums);
    warp_sum(sums, 32);
    total.sum = sums[0], total.square = sums[1];
    recenter(total, __fdividef(1.0f, warp_count), add);
    if (lane == 0) parts[warp] = make_float4(total.shift, total.sum, total.square, warp_count);
    __syncthreads();

    // 2. The moments of the group.
    total = merge_parts(parts, warps, lanes_for(warps), a.reciprocal_count);
    const channel_statistics<float> s = finish_group(a, total, group, 0);

    // 3. The output.
    const bops_activation activation = form == silu_activation ? BOPS_SILU : a.p.activation;
    const float scale = s.rstd * weight, offset = fmaf(-s.correction, scale, bias);
#pragma unroll
    for (int v = 0; v < segment_vectors; ++v)
        if (is_mine(v)) {
            float d[width];
            unpack_deviations<T>(data[v], s.shift, d);
            store<16, false>(y + v * blockDim.x * width, channel_output<T, 16, false>(d, scale, offset, false, packed<16>{}, activation));
        }
}

// Host: the form `segment`.
template <typename T> bops_status channel_norm_segment_kernels(const forward_call<bops_channel_norm_segment_choice> &f) {
    const channel_single_arguments a = single_arguments<T>(f, 1, f.c.threads * f.c.vectors);
    const auto kernel = f.p.activation == BOPS_SILU ? channel_norm_segment<T, silu_activation> : channel_norm_segment<T, light_activation>;
    const bops_status status = f.call(kernel, f.shape(f.c.threads, 0), a);
    return status ? status : finish_running(f, a.records);
}

} // namespace bops
