// BatchNorm, GroupNorm and InstanceNorm forward: every team, a block or a cluster, takes one group, which stays in shared memory.
#pragma once
#include "channel_norm_walk.cuh"

namespace bops {

constexpr int single_threads = 1024; // of a block, at most

struct channel_single_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    segment_geometry geometry;
    float eps, momentum, reciprocal_count, unbias;
    uint32_t cluster, vectors;                // blocks of a group; vectors of a thread
    uint32_t per_segment, all, block_vectors; // vectors of a segment, of a group, of a block
    uint32_t weight_is_wide;
    uint32_t is_gapless;                          // segments of x and of y follow each other
    uint32_t stagger, multiprocessors, residents; // cycles between the first blocks of a multiprocessor, and how many share it
    divisor by_segment;                           // divides by per_segment
    group_record<float> *records;
};

// Blocks that start together keep step: all wait for memory, then all compute. So the first ones of each multiprocessor start one after another, as
// far apart as one takes to fetch its group.
__device__ __forceinline__ void start_apart(uint32_t cycles, uint32_t multiprocessors, uint32_t residents) {
    const uint32_t turn = cycles ? blockIdx.x / multiprocessors : 0;
    if (turn == 0 || turn >= residents) return;
    const long long until = clock64() + turn * cycles;
    while (clock64() < until) __nanosleep(64);
}

// A group's vectors follow each other through its segments; a block takes the next `block_vectors`. A thread copies its own to shared memory, all
// at once, [vector][thread]: blocks that share a multiprocessor keep memory busy for each other. A warp takes the mean of its first vectors as the
// shift of its moments, and where that is far from its mean, goes through its part once more.
//
// overlaps: few blocks, which are there before the previous kernel has ended. Their addresses are then ready, and x, which is read before anything is
// written, is the first to leave the L2.
template <typename T, activation_form form, bool overlaps> __global__ void __launch_bounds__(single_threads, 1)
    channel_norm_single(const __grid_constant__ channel_single_arguments a) {
    constexpr bool general = form == any_activation;
    constexpr int width = 16 / int(sizeof(T)), batch = general ? 2 : 4; // vectors that are under way from shared memory
    __shared__ float4 warp_moments[merge_lanes];                        // and counts
    __shared__ cluster_exchange exchange;
    float2 *const parameters = reinterpret_cast<float2 *>(dynamic_shared + a.block_vectors * 16); // of the block's segments
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, group = blockIdx.x / a.cluster, first = rank * a.block_vectors;
    const auto vectors_of = [&](uint32_t block) { return min(max(a.all, block * a.block_vectors) - block * a.block_vectors, a.block_vectors); };
    const uint32_t own = vectors_of(rank), mine = own > threadIdx.x ? (own - threadIdx.x + blockDim.x - 1) / blockDim.x : 0; // vectors
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    if (!overlaps) start_apart(a.stagger, a.multiprocessors, a.residents);
    uint32_t sample, channel;
    a.geometry.segment(group, 0, sample, channel);
    const auto stride_of = [&](const bops_channel_strides &s) { return a.geometry.is_batch ? s.batch : s.channel; };
    const auto at = [&](const bops_channel_strides &s, uint32_t vector) -> uint64_t {
        if (a.is_gapless) return uint64_t(vector) * width;
        const uint32_t segment = a.by_segment.quotient(vector);
        return segment * stride_of(s) + (vector - segment * a.per_segment) * width;
    };
    const T *const x_group = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel);
    T *const y_group = static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel);
    const T *const residual_group = static_cast<const T *>(a.o.residual) + segment_offset(a.p.residual, sample, channel);
    const uint32_t first_segment = a.geometry.is_batch ? 0 : a.by_segment.quotient(min(first, a.all - 1));
    const uint32_t segments = a.geometry.is_batch ? 1 : a.by_segment.quotient(min(first + a.block_vectors, a.all) - 1) + 1 - first_segment;
    if (overlaps) {
        compute_here(x_group), compute_here(y_group), compute_here(first_segment), compute_here(segments), compute_here(mine);
        follow_previous();
        start_apart(a.stagger, a.multiprocessors, a.residents);
    }
    for (uint32_t v = 0; v < a.vectors; ++v) {
        const uint32_t place = v * blockDim.x + threadIdx.x;
        if (v < mine) {
            if (overlaps) copy_async_cached(dynamic_shared + place * 16, x_group + at(a.p.x, first + place), evict_first());
            else copy_async<16>(dynamic_shared + place * 16, x_group + at(a.p.x, first + place));
        }
        copy_commit();
    }
    for (uint32_t k = threadIdx.x; k < segments; k += blockDim.x) {
        const uint32_t index = channel + first_segment + k;
        parameters[k] = make_float2(parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f), parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f));
    }

    // 1. The moments of each warp's part.
    float mean[2] = {};
    copy_wait_groups(a.vectors - 1);
    if (mine > 0) {
        float x[width];
        unpack<T>(shared_vector(threadIdx.x), x);
        mean[0] = tree_sum(x), mean[1] = width;
    }
    warp_sum(mean, 32);
    const float shift = mean[1] > 0 ? mean[0] / mean[1] : 0.0f;
    float sum[width] = {}, square[width] = {};
    for (uint32_t v = 0; v < a.vectors; v += batch) {
        copy_wait_groups(int(a.vectors) - int(v) - batch > 0 ? a.vectors - v - batch : 0);
        packed<16> data[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < mine) data[j] = shared_vector((v + j) * blockDim.x + threadIdx.x);
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < mine) {
                float x[width];
                unpack<T>(data[j], x);
                add_moments(x, shift, sum, square);
            }
    }
    float sums[3] = {tree_sum(sum), tree_sum(square), float(mine * width)};
    warp_sum(sums, 32);
    moments<float> of_warp = {shift, sums[0], sums[1]};
    if (a.vectors > 4) // else the first are a quarter
        recenter(of_warp, __fdividef(1.0f, sums[2]), [&](float about, float(&again)[2]) {
            float sum[width] = {}, square[width] = {};
#pragma unroll 1
            for (uint32_t v = 0; v < mine; ++v) {
                float x[width];
                unpack<T>(shared_vector(v * blockDim.x + threadIdx.x), x);
                add_moments(x, about, sum, square);
            }
            again[0] = tree_sum(sum), again[1] = tree_sum(square);
        });
    if (lane == 0) warp_moments[warp] = make_float4(of_warp.shift, of_warp.sum, of_warp.square, sums[2]);
    __syncthreads();

    // 2. Those of the block, and of its cluster.
    const float4 part = lane < warps ? warp_moments[lane] : make_float4(0, 0, 0, 0);
    moments<float> total = merge_across<true>({part.x, part.y, part.z}, part.w,
                                              a.cluster == 1 ? a.reciprocal_count
                                              : own          ? 1.0f / (float(own) * width)
                                                             : 0.0f);
    if (a.cluster > 1) {
        cluster_wait();
        if (warp == 0) exchange.send({total.shift, total.sum, total.square, 0}, 0, rank, a.cluster, threadIdx.x);
        const float(*const blocks)[4] = exchange.wait(0);
        moments<float> of_block = {0, 0, 0};
        if (lane < a.cluster) of_block = {blocks[lane][0], blocks[lane][1], blocks[lane][2]};
        total = merge_across<true>(of_block, lane < a.cluster ? float(vectors_of(lane)) * width : 0.0f, a.reciprocal_count);
    }
    total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
    const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
    if (threadIdx.x == 0 && rank == 0) save_group(a, group, s);

    // 3. The output.
    const bops_activation activation = form == silu_activation ? BOPS_SILU : a.p.activation;
    for (uint32_t v = 0; v < mine; v += batch) {
        packed<16> data[batch], added[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < mine) {
                const uint32_t place = (v + j) * blockDim.x + threadIdx.x;
                data[j] = shared_vector(place), added[j] = {};
                if (general && a.o.residual) added[j] = load<16>(residual_group + at(a.p.residual, first + place));
            }
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (v + j < mine) {
                const uint32_t vector = first + (v + j) * blockDim.x + threadIdx.x;
                const float2 affine = parameters[a.geometry.is_batch ? 0 : a.by_segment.quotient(vector) - first_segment];
                const float scale = s.rstd * affine.x, offset = fmaf(-s.correction, scale, affine.y);
                float x[width];
                unpack<T>(data[j], x);
#pragma unroll
                for (int k = 0; k < width; ++k) x[k] -= s.shift;
                store<16, false>(y_group + at(a.p.y, vector),
                                 channel_output<T, 16, general>(x, scale, offset, general && a.o.residual, added[j], activation));
            }
    }
}

// Host: what the kernels of the SINGLE variant take, and their launch.
template <typename T> channel_single_arguments single_arguments(const bops_channel_norm_params &p, const bops_channel_norm_choice &c,
                                                                bops_dtype dtype, bops_dtype weight_dtype, const bops_channel_norm_operands &o,
                                                                void *workspace) {
    channel_single_arguments a = {};
    a.geometry.set(p.batch, p.channels, p.spatial, p.groups);
    const double count = double(a.geometry.count);
    a.p = p, a.o = o, a.eps = float(p.eps), a.momentum = float(p.momentum);
    a.reciprocal_count = float(1.0 / count), a.unbias = float(count / (count - 1.0));
    a.cluster = c.cluster, a.vectors = c.vectors, a.block_vectors = c.threads * c.vectors;
    a.per_segment = uint32_t(p.spatial * sizeof(T) / 16), a.all = a.geometry.segments * a.per_segment, a.by_segment = divisor(a.per_segment);
    a.is_gapless = !a.geometry.is_batch && p.x.channel == p.spatial && p.y.channel == p.spatial;
    a.weight_is_wide = weight_dtype != dtype;
    a.stagger = c.stages, a.multiprocessors = c.chunks, a.residents = c.tensors;
    a.records = p.groups && (o.running_mean || o.running_var) ? static_cast<group_record<float> *>(workspace) : nullptr;
    return a;
}
inline launch_shape single_shape(const channel_single_arguments &a, const bops_channel_norm_choice &c) {
    launch_shape shape;
    shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps != 0;
    const uint32_t touched = a.block_vectors / a.per_segment + 2;
    const uint32_t parameters = a.geometry.is_batch ? 1 : touched < a.geometry.segments ? touched : a.geometry.segments;
    shape.shared_bytes = c.threads * (c.vectors - c.cached) * 16 + parameters * uint32_t(sizeof(float2));
    return shape;
}

// Host: the SINGLE variant, with whole groups in shared memory.
template <typename T> bops_status channel_norm_single_kernels(const bops_channel_norm_params &p, const bops_channel_norm_choice &c, bops_dtype dtype,
                                                              bops_dtype weight_dtype, const bops_channel_norm_operands &o, void *workspace,
                                                              const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        const channel_single_arguments a = single_arguments<T>(p, c, dtype, weight_dtype, o, workspace);
        const activation_form form = o.residual ? any_activation : activation_form_of(p.activation);
        const auto forms = [](auto overlaps) {
            constexpr bool early = decltype(overlaps)::value;
            return forms_of(channel_norm_single<T, light_activation, early>, channel_norm_single<T, silu_activation, early>,
                            channel_norm_single<T, any_activation, early>);
        };
        const bops_status status = call.one_of(form, c.overlaps ? forms(std::true_type()) : forms(std::false_type()), single_shape(a, c), a);
        return status ? status : finish_running(p, o, a.records, call);
    }
}

} // namespace bops
