// What the gradient kernels share that walk over groups: their arguments, and the launch that adds up the sums of segments which they leave.
#pragma once
#include "channel_norm_backward_split.cuh"
#include "channel_norm_walk.cuh"

namespace bops {

// Replaces dy by dpre; d is x - mean. Only for gradients that are all added up, since a NaN may also make the number beside it NaN. With SiLU the
// caller has multiplied scale and bias by silu_unit, and dy becomes dpre / silu_unit.
template <typename T, activation_form form, int width>
__device__ __forceinline__ void differentiate_together(bops_activation kind, const float (&d)[width], float scale, float bias, float (&dy)[width]) {
    if constexpr (form == silu_activation) {
        float pre[width];
#pragma unroll
        for (int k = 0; k < width; ++k) pre[k] = fmaf(d[k], scale, bias);
        multiply_silu_slope_together(pre, dy);
    } else {
        if (form == light_activation && kind == BOPS_SILU) __builtin_unreachable();
        differentiate_vector<T, 16, form == any_activation>(kind, extra_operand::none, packed<16>{}, d, scale, bias, dy);
    }
}

// The two sums of a block from those of its warps, in every `lanes` lanes of a warp.
__device__ __forceinline__ void merge_warp_sums(const float2 (&of_warps)[merge_lanes], uint32_t warps, uint32_t lanes, float (&sums)[2]) {
    const uint32_t lane = threadIdx.x % lanes;
    const float2 part = lane < warps ? of_warps[lane] : make_float2(0, 0);
    sums[0] = part.x, sums[1] = part.y;
    warp_sum(sums, lanes);
}

// The two sums of a cluster of `cluster` blocks, in every lane, after one warp of each block has sent the block's.
__device__ __forceinline__ void receive_cluster_sums(cluster_exchange &exchange, uint32_t turn, uint32_t cluster, float (&sums)[2]) {
    const uint32_t lane = threadIdx.x % 32;
    const float(*const blocks)[4] = exchange.wait(turn);
    sums[0] = lane < cluster ? blocks[lane][0] : 0.0f, sums[1] = lane < cluster ? blocks[lane][1] : 0.0f;
    warp_sum(sums, 32);
}

struct channel_backward_walk_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    segment_geometry geometry;
    walk_geometry ring;
    float reciprocal_count;
    uint32_t weight_is_wide, overlaps;
    uint4 *messages;     // of teams that are no clusters. held: [turn % 2][block]; relay: [turn % message_exchange::turns][block]
    float *segment_sums; // [batch * channels][cluster][2]: of dpre and dpre xhat over a block's part of a segment
};

// The gradients of the parameters from the sums that blocks leave of their parts of segments: over the samples, in a fixed order. A block takes 32
// channels.
template <typename T> __global__ void __launch_bounds__(32 * sample_sum_rows)
    channel_norm_sum_parts(const __grid_constant__ channel_backward_walk_arguments a) {
    __shared__ float slots[2][sample_sum_rows][sample_sum_pitch];
    follow_previous();
    const uint32_t channels = a.geometry.channels;
    for (uint32_t base = blockIdx.x * 32; base < channels; base += gridDim.x * 32) {
        const uint32_t channel = base + threadIdx.x, k = channel % a.geometry.segments;
        const uint32_t from = k / a.ring.multi * a.ring.chunks; // the segment's steps, and the blocks that take them
        const uint32_t low = from / a.ring.steps, high = (from + a.ring.chunks - 1) / a.ring.steps;
        cascade<float> sum, product;
        const uint32_t sharers = high - low + 1;
        if (channel < channels)
            for (uint64_t i = threadIdx.y; i < a.p.batch * sharers; i += sample_sum_rows) {
                const uint32_t n = uint32_t(i / sharers), rank = low + uint32_t(i - uint64_t(n) * sharers);
                const float2 part =
                    *reinterpret_cast<const float2 *>(a.segment_sums + (a.geometry.row_of(n, channel) * a.ring.team_blocks + rank) * 2);
                sum.add(part.x);
                product.add(part.y);
            }
        store_sample_sums<T>(slots, sum, product, a.o.dweight, a.o.dbias, a.weight_is_wide, channel, channels);
    }
}

// Host: the arguments of the kernels that walk over groups. message_blocks: blocks of `held` that exchange messages. The workspace begins with room
// for two messages of each; the sums of segments lie behind it.
template <typename T, typename Choice>
channel_backward_walk_arguments backward_walk_arguments(const backward_call<Choice> &f, const walk_choice &walk, uint32_t message_blocks = 0) {
    channel_backward_walk_arguments a = {};
    a.geometry.set(f.p.batch, f.p.channels, f.p.spatial, f.p.groups);
    a.ring.set(a.geometry, walk, 16 / sizeof(T), f.p.spatial, f.p.groups != 0);
    a.p = f.p, a.o = f.o, a.reciprocal_count = float(1.0 / double(a.geometry.count));
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = f.c.overlaps;
    a.messages = static_cast<uint4 *>(f.workspace);
    a.segment_sums = reinterpret_cast<float *>(a.messages + message_blocks * 2);
    return a;
}

// Host: the launch that adds up the sums of segments, if there are groups and a gradient of a parameter is wanted. follows_early: it may begin while
// the kernel before it ends.
template <typename T> bops_status sum_parts(const channel_backward_walk_arguments &a, bool follows_early, const kernel_call &call) {
    if (a.p.groups == 0 || (!call.prepares && !a.o.dweight && !a.o.dbias)) return 0;
    return call(channel_norm_sum_parts<T>, sample_sum_shape(a.p.channels, follows_early), a);
}

} // namespace bops
