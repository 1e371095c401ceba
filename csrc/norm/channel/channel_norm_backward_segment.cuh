// Gradients of GroupNorm and InstanceNorm, the form `segment`: a group is one segment, which a block holds on chip.
#pragma once
#include "channel_norm_backward_walk.cuh"
#include "channel_norm_segment.cuh"

namespace bops {

// Vectors of dy, and as many of x, that a thread holds, at most: of f32 both take 32 of the 64 registers that two blocks of 512 leave it.
constexpr int segment_backward_vectors = 4;

// dy stays in registers, and so does x of 32-bit elements. 16-bit elements take more registers once they are unpacked, so their x stays in shared
// memory, [vector][thread]. With SiLU the numbers in registers stand for dpre / silu_unit.
template <typename T, activation_form form> __global__ void __launch_bounds__(segment_threads, 2)
    channel_norm_backward_segment(const __grid_constant__ channel_backward_walk_arguments a) {
    constexpr int width = 16 / int(sizeof(T)), vectors = segment_backward_vectors, chains = 4;
    constexpr bool x_in_shared = sizeof(T) == 2;
    constexpr float unit = form == silu_activation ? silu_unit : 1.0f;
    __shared__ float2 warp_sums[merge_lanes];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = blockIdx.x;
    uint32_t sample, channel;
    a.geometry.segment(group, 0, sample, channel);
    const T *const dy = static_cast<const T *>(a.o.dy) + segment_offset(a.p.dy, sample, channel) + threadIdx.x * width;
    const T *const x = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + threadIdx.x * width;
    T *const dx = static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, sample, channel) + threadIdx.x * width;
    const auto is_mine = [&](int v) { return v * blockDim.x + threadIdx.x < a.ring.per_segment; };
    compute_here(dy), compute_here(x), compute_here(dx);
    follow_previous();
    packed<16> dy_data[vectors], x_data[vectors];
    if (x_in_shared) {
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (is_mine(v)) copy_async<16>(dynamic_shared + (v * blockDim.x + threadIdx.x) * 16, x + v * blockDim.x * width);
        copy_commit();
    }
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_mine(v)) {
            dy_data[v] = load<16>(dy + v * blockDim.x * width);
            if (!x_in_shared) x_data[v] = load<16>(x + v * blockDim.x * width);
        }
    const float weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
    const float bias = a.p.activation ? unit * parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f) : 0.0f;
    const float mean = __ldg(static_cast<const float *>(a.o.mean) + group), rstd = __ldg(static_cast<const float *>(a.o.rstd) + group);
    const float rstd_unit = rstd * unit, scale = rstd_unit * weight;
    const auto make_dpre = [&](int v, float(&g)[width], float(&d)[width]) { // d: x - mean
        unpack<T>(dy_data[v], g);
        unpack_deviations<T>(x_in_shared ? shared_vector(v * blockDim.x + threadIdx.x) : x_data[v], mean, d);
        differentiate_together<T, form>(a.p.activation, d, scale, bias, g);
    };

    // 1. The sums of dpre and dpre xhat.
    float sum[chains] = {}, product[chains] = {};
    if (x_in_shared) copy_wait(0);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_mine(v)) {
            float g[width], d[width];
            make_dpre(v, g, d);
            add_products(g, d, sum, product);
        }
    float sums[2] = {tree_sum(sum) * unit, tree_sum(product) * rstd_unit};
    warp_sum(sums, 32);
    if (lane == 0) warp_sums[warp] = make_float2(sums[0], sums[1]);
    __syncthreads();
    merge_warp_sums(warp_sums, warps, lanes_for(warps), sums);
    if (threadIdx.x == 0 && (a.o.dweight || a.o.dbias))
        *reinterpret_cast<float2 *>(a.segment_sums + a.geometry.row_of(sample, channel) * 2) = make_float2(sums[0], sums[1]);

    // 2. The gradients of the elements.
    const float mean_g = rstd * weight * sums[0] * a.reciprocal_count, slope = rstd * rstd * weight * sums[1] * a.reciprocal_count;
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_mine(v)) {
            float g[width], d[width];
            make_dpre(v, g, d);
            make_dx(d, scale, mean_g, slope, g);
            store<16, false>(dx + v * blockDim.x * width, pack<T, 16>(g));
        }
}

// Host: the form `segment`.
template <typename T> bops_status channel_norm_backward_segment_kernels(const backward_call<bops_channel_norm_segment_choice> &f) {
    const channel_backward_walk_arguments a = backward_walk_arguments<T>(f, {1, f.c.vectors, f.c.threads});
    const auto kernel =
        f.p.activation == BOPS_SILU ? channel_norm_backward_segment<T, silu_activation> : channel_norm_backward_segment<T, light_activation>;
    const bops_status status = f.call(kernel, f.shape(f.c.threads, sizeof(T) == 2 ? f.c.threads * f.c.vectors * 16 : 0), a);
    return status ? status : sum_parts<T>(a, f.c.overlaps != 0, f.call);
}

} // namespace bops
