// BatchNorm, GroupNorm and InstanceNorm forward, the form `single` where all blocks are resident at once: registers hold a part of the group. Compute
// capability 9.0.
#pragma once
#include "channel_norm_single.cuh"

namespace bops {

// Every team takes one group. The first `held` vectors of a thread go to registers and the others to shared memory. With so few blocks latency
// counts: addresses are computed before the wait for the previous kernel, x is read straight to where it stays, and the warps of a cluster exchange
// their moments directly.
template <typename T, activation_form form, int held> __global__ void __launch_bounds__(single_threads, 1)
    channel_norm_single_held(const __grid_constant__ channel_single_arguments a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), batch = width == 4 ? 4 : 2; // vectors that are under way from shared memory
    __shared__ float4 warp_parts[merge_lanes], parts[merge_lanes];         // moments and counts: of the block's warps; of all that share the group
    __shared__ uint64_t arrived;                                           // a barrier that counts the bytes of parts
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    // A part is the moments of a warp, or, if there are more warps than one warp can merge, of a block.
    const uint32_t makers = a.cluster * warps <= merge_lanes ? warps : 1, part_count = a.cluster * makers;
    if (a.cluster > 1) {
        if (threadIdx.x == 0) mbarrier::initialize(shared_address(&arrived), 1);
        mbarrier::fence_initialized();
        cluster_arrive();
    }
    const single_share<T, held> own(a);
    const uint32_t mine = own.mine;
    const uint32_t warp_vectors = __reduce_add_sync(~0u, mine), first_vectors = min(max(own.own, warp * 32) - warp * 32, 32u);
    const float warp_count = float(warp_vectors * width);
    const float shift_scale = first_vectors ? 1.0f / float(first_vectors * width) : 0.0f;
    own.find_early();
    compute_here(__float_as_uint(shift_scale));
    if (a.cluster > 1) cluster_wait();
    follow_previous();
    packed<16> data[held];
#pragma unroll
    for (int v = 0; v < held; ++v)
        if (v < mine) data[v] = load<16>(own.x + own.offset(a.p.x, v));
    own.template fetch<true>();

    // 1. The moments of each warp's part.
    float mean[1] = {};
    if (mine > 0) {
        float x[width];
        unpack<T>(data[0], x);
        mean[0] = tree_sum(x);
    }
    warp_sum(mean, 32);
    moments<float> of_warp = {mean[0] * shift_scale, 0, 0};
    const auto add_held = [&](float about, float(&sum)[width], float(&square)[width]) {
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < mine) own.add(data[v], about, sum, square);
    };
    float sum[width] = {}, square[width] = {};
    add_held(of_warp.shift, sum, square);
    own.template add_arriving<batch>(of_warp.shift, sum, square);
    float sums[2] = {tree_sum(sum), tree_sum(square)};
    warp_sum(sums, 32);
    of_warp.sum = sums[0], of_warp.square = sums[1];
    if (a.vectors > 4) // else the first vectors, whose mean is the shift, are a quarter of the part or more, and the shift is near the mean
        recenter(of_warp, __fdividef(1.0f, warp_count), [&](float about, float(&again)[2]) {
            float sum[width] = {}, square[width] = {};
            add_held(about, sum, square);
            own.add_again(about, sum, square);
            again[0] = tree_sum(sum), again[1] = tree_sum(square);
        });

    // 2. The moments of the group: every part is sent to all blocks that share the group.
    float4 *const here = a.cluster == 1 ? parts : warp_parts;
    if (makers == 1 || a.cluster == 1) {
        if (lane == 0) here[warp] = make_float4(of_warp.shift, of_warp.sum, of_warp.square, warp_count);
        __syncthreads();
    }
    if (a.cluster > 1) {
        float part_elements = warp_count;
        if (makers == 1 && warp == 0) {
            part_elements = float(own.own) * width;
            of_warp = merge_parts(warp_parts, warps, merge_lanes, own.own ? 1.0f / part_elements : 0.0f);
        }
        if (threadIdx.x == 0) mbarrier::expect(shared_address(&arrived), part_count * 16);
        const float part[4] = {of_warp.shift, of_warp.sum, of_warp.square, part_elements};
        if (warp < makers && lane < a.cluster)
            mbarrier::store_remote(shared_address(&parts[own.rank * makers + warp]), part, shared_address(&arrived), lane);
        if (makers > 1) __syncthreads(); // the parameters are there
        mbarrier::wait<true>(shared_address(&arrived), 0);
    }
    moments<float> total = makers == 1 ? merge_parts(parts, part_count, 1u << (32 - __clz(part_count - 1)), a.reciprocal_count)
                                       : merge_parts(parts, part_count, merge_lanes, a.reciprocal_count);
    const channel_statistics<float> s = finish_group(a, total, own.group, own.rank);

    // 3. The output.
    const bops_activation activation = form == silu_activation ? BOPS_SILU : a.p.activation;
    const auto put = [&](uint32_t v, const packed<16> &x) { own.template put<false>(v, x, {}, s, activation); };
#pragma unroll
    for (int v = 0; v < held; ++v)
        if (v < mine) put(v, data[v]);
    const auto wait = [](uint32_t) {};
    own.template for_shared<batch>(
        mine, wait, [&](uint32_t v) { return own.shared(v); }, put);
}

// Host: the form `single`, with whole groups in shared memory, or where registers hold vectors, the rest of them.
template <typename T> bops_status channel_norm_single_kernels(const forward_call<bops_channel_norm_single_choice> &f) {
    const auto &c = f.c;
    channel_single_arguments a = single_arguments<T>(f, c.cluster_blocks, c.threads * c.vectors);
    a.vectors = c.vectors, a.stagger_cycles = c.stagger_cycles, a.multiprocessors = c.multiprocessors, a.residents = c.residents;
    const uint32_t touched = a.block_vectors / a.per_segment + 2;
    const uint32_t parameters = a.geometry.is_batch ? 1 : touched < a.geometry.segments ? touched : a.geometry.segments;
    launch_shape shape = f.shape(c.threads, c.threads * (c.vectors - c.register_vectors) * 16 + parameters * uint32_t(sizeof(float2)));
    shape.cluster = c.cluster_blocks;
    const activation_form form = f.o.residual ? any_activation : activation_form_of(f.p.activation);
    const auto whole = [](auto few) {
        constexpr bool is_few = decltype(few)::value;
        return specialised(channel_norm_single<T, light_activation, is_few>, channel_norm_single<T, silu_activation, is_few>,
                           channel_norm_single<T, any_activation, is_few>);
    };
    const auto partly = [](auto vectors) {
        constexpr int held = decltype(vectors)::value;
        return specialised(channel_norm_single_held<T, light_activation, held>, channel_norm_single_held<T, silu_activation, held>);
    };
    const auto kernels = c.register_vectors == 2           ? partly(std::integral_constant<int, 2>())
                         : c.register_vectors              ? partly(std::integral_constant<int, 4>())
                         : c.overlaps && !c.stagger_cycles ? whole(std::true_type())
                                                           : whole(std::false_type());
    const bops_status status = f.call.one_of(form, kernels, shape, a);
    return status ? status : finish_running(f, a.records);
}

} // namespace bops
