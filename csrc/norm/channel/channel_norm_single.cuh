// BatchNorm, GroupNorm and InstanceNorm forward, the form `single`: every team, which is a block or a cluster, takes one group into its shared
// memory.
#pragma once
#include "channel_norm_walk.cuh"

namespace bops {

constexpr int single_threads = 1024; // of a block of the form `single`, at most: the most that a block can have

struct channel_single_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    segment_geometry geometry;
    float eps, momentum, reciprocal_count, unbias; // unbias: count / (count - 1), which makes the variance of a batch unbiased
    uint32_t cluster, vectors;                     // blocks of a group; vectors of a thread
    uint32_t per_segment, all, block_vectors;      // vectors of a segment, of a group, of a block
    uint32_t weight_is_wide;
    uint32_t is_gapless; // segments of x and of y follow each other
    uint32_t stagger_cycles, multiprocessors, residents;
    divisor by_segment; // divides by per_segment
    group_record<float> *records;
};

// Blocks that start together stay in step: all wait for memory, then all compute. So the first blocks of each SM start one after another,
// by about the time that one takes to fetch its group. cycles: that time, of the clock of an SM; residents: blocks that an SM has room for.
__device__ __forceinline__ void start_apart(uint32_t cycles, uint32_t multiprocessors, uint32_t residents) {
    const uint32_t turn = cycles ? blockIdx.x / multiprocessors : 0;
    if (turn == 0 || turn >= residents) return;
    const long long until = clock64() + turn * cycles;
    while (clock64() < until) __nanosleep(64); // about 100 cycles, of thousands: meanwhile other blocks have the issue slots
}

// A block's share of its group: `block_vectors` vectors, numbered through the segments of the group. A thread has every blockDim.x-th of them. Its
// first `held` vectors stay in registers, the others in dynamic shared memory, [vector][thread], followed by the parameters of the block's segments.
template <typename T, int held> struct single_share {
    static constexpr int width = 16 / int(sizeof(T));
    const channel_single_arguments &a;
    uint32_t rank, group, first; // rank: in the cluster; first: of the group's vectors
    uint32_t own, mine;          // vectors of the block, of this thread
    uint32_t sample, channel;    // the group's first
    uint32_t first_segment, segments;
    const T *x; // of the group
    T *y;

    __device__ __forceinline__ explicit single_share(const channel_single_arguments &arguments) : a(arguments) {
        rank = a.cluster > 1 ? cluster_rank() : 0, group = blockIdx.x / a.cluster, first = rank * a.block_vectors;
        own = vectors_of(rank), mine = own > threadIdx.x ? (own - threadIdx.x + blockDim.x - 1) / blockDim.x : 0;
        a.geometry.segment(group, 0, sample, channel);
        x = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel);
        y = static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel);
        const uint32_t last = min(first + a.block_vectors, a.all) - 1;
        first_segment = a.geometry.is_batch ? 0 : a.by_segment.quotient(min(first, a.all - 1));
        segments = a.geometry.is_batch ? 1 : a.by_segment.quotient(last) + 1 - first_segment;
    }
    // Computes what follows from the arguments alone, before the wait for the previous kernel.
    __device__ __forceinline__ void find_early() const {
        compute_here(x), compute_here(y), compute_here(first_segment), compute_here(segments), compute_here(mine);
    }
    __device__ __forceinline__ uint32_t vectors_of(uint32_t block) const {
        return min(max(a.all, block * a.block_vectors) - block * a.block_vectors, a.block_vectors);
    }
    // Of vector v of this thread: its number in the group, the element of a tensor where it begins, and its place in shared memory.
    __device__ __forceinline__ uint32_t number(uint32_t v) const { return first + v * blockDim.x + threadIdx.x; }
    __device__ __forceinline__ uint64_t offset(const bops_channel_strides &s, uint32_t v) const {
        if (a.is_gapless) return uint64_t(number(v)) * width;
        const uint32_t segment = a.by_segment.quotient(number(v));
        return segment * (a.geometry.is_batch ? s.batch : s.channel) + (number(v) - segment * a.per_segment) * width;
    }
    __device__ __forceinline__ uint32_t place(uint32_t v) const { return v * blockDim.x + threadIdx.x - held * blockDim.x; }
    __device__ __forceinline__ packed<16> shared(uint32_t v) const { return shared_vector(place(v)); }
    __device__ __forceinline__ float2 *parameters() const {
        return reinterpret_cast<float2 *>(dynamic_shared + (a.block_vectors - held * blockDim.x) * 16);
    }

    // Starts the copies to shared memory. x_first: the L2 evicts x first.
    template <bool x_first> __device__ __forceinline__ void fetch() const {
        for (uint32_t v = held; v < a.vectors; ++v) {
            if (v < mine) {
                if (x_first) copy_async_cached(dynamic_shared + place(v) * 16, x + offset(a.p.x, v), evict_first());
                else copy_async<16>(dynamic_shared + place(v) * 16, x + offset(a.p.x, v));
            }
            copy_commit();
        }
        for (uint32_t k = threadIdx.x; k < segments; k += blockDim.x) {
            const uint32_t index = channel + first_segment + k;
            parameters()[k] =
                make_float2(parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f), parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f));
        }
    }
    // Calls take(v, load(v)) for the vectors in shared memory, with `batch` loads under way at once; calls wait(v) before each batch.
    template <int batch, typename Wait, typename Load, typename Take>
    __device__ __forceinline__ void for_shared(uint32_t end, const Wait &wait, const Load &load, const Take &take) const {
        for (uint32_t v = held; v < end; v += batch) {
            wait(v);
            decltype(load(v)) data[batch];
#pragma unroll
            for (int j = 0; j < batch; ++j)
                if (v + j < mine) data[j] = load(v + j);
#pragma unroll
            for (int j = 0; j < batch; ++j)
                if (v + j < mine) take(v + j, data[j]);
        }
    }
    // The moments of these vectors: as they arrive, and when they are all there.
    template <int batch> __device__ __forceinline__ void add_arriving(float shift, float (&sum)[width], float (&square)[width]) const {
        const auto wait = [&](uint32_t v) { copy_wait_groups(int(a.vectors) - int(v) - batch > 0 ? a.vectors - v - batch : 0); };
        const auto load = [&](uint32_t v) { return shared(v); };
        for_shared<batch>(a.vectors, wait, load, [&](uint32_t, const packed<16> &data) { add(data, shift, sum, square); });
    }
    __device__ __forceinline__ void add_again(float shift, float (&sum)[width], float (&square)[width]) const {
#pragma unroll 1
        for (uint32_t v = held; v < mine; ++v) add(shared(v), shift, sum, square);
    }
    __device__ __forceinline__ static void add(const packed<16> &data, float shift, float (&sum)[width], float (&square)[width]) {
        float x[width];
        unpack<T>(data, x);
        add_moments(x, shift, sum, square);
    }
    // The output of vector v.
    template <bool general> __device__ __forceinline__ void put(uint32_t v, const packed<16> &data, const packed<16> &residual,
                                                                const channel_statistics<float> &s, bops_activation activation) const {
        const float2 affine = parameters()[a.geometry.is_batch ? 0 : a.by_segment.quotient(number(v)) - first_segment];
        const float scale = s.rstd * affine.x, offset_term = fmaf(-s.correction, scale, affine.y);
        float x[width];
        unpack_deviations<T>(data, s.shift, x);
        store<16, false>(y + offset(a.p.y, v), channel_output<T, 16, general>(x, scale, offset_term, general && a.o.residual, residual, activation));
    }
};

// Merges `count` moments with their counts in shared memory, as merge_across does, in every `lanes` lanes of a warp.
__device__ __forceinline__ moments<float> merge_parts(const float4 *from, uint32_t count, uint32_t lanes, float reciprocal) {
    const uint32_t lane = threadIdx.x % lanes;
    const float4 part = lane < count ? from[lane] : make_float4(0, 0, 0, 0);
    float shift[1] = {part.x * part.w};
    warp_sum(shift, lanes);
    moments<float> total = {rounded_product(shift[0], reciprocal), 0, 0};
    merge(total, moments<float>{part.x, part.y, part.z}, part.w);
    float sums[2] = {total.sum, total.square};
    warp_sum(sums, lanes);
    return {total.shift, sums[0], sums[1]};
}

// The statistics of a group from its moments, which one thread of the group's first block saves.
__device__ __forceinline__ channel_statistics<float> finish_group(const channel_single_arguments &a, moments<float> total, uint32_t group,
                                                                  uint32_t rank) {
    total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
    const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
    if (threadIdx.x == 0 && rank == 0) save_group(a, group, s);
    return s;
}

// A thread starts the copies of all its vectors to shared memory at once: blocks that share an SM keep the memory busy for each other. A
// warp uses the mean of its first vectors as the shift of its moments. If the shift turns out to be far from the mean, the warp adds up its part once
// more.
//
// few: for so few blocks that all start before the previous kernel has ended. They compute their addresses first, and let the L2 evict x first, which
// is read before anything is written.
template <typename T, activation_form form, bool few> __global__ void __launch_bounds__(single_threads, 1)
    channel_norm_single(const __grid_constant__ channel_single_arguments a) {
    if (few && !has_sm_90) return;
    constexpr bool general = form == any_activation;
    constexpr int width = 16 / int(sizeof(T));
    // Vectors that are under way from shared memory. A block of 1024 threads leaves each 64 registers: four vectors take 16, two vectors and their
    // residuals as many.
    constexpr int batch = general ? 2 : 4;
    __shared__ float4 warp_moments[merge_lanes]; // and counts
    __shared__ cluster_exchange exchange;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (a.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    if (!few) {
        follow_previous();
        start_apart(a.stagger_cycles, a.multiprocessors, a.residents);
    }
    const single_share<T, 0> own(a);
    if (few) {
        own.find_early();
        follow_previous();
    }
    own.template fetch<few>();

    // 1. The moments of each warp's part.
    float mean[2] = {};
    copy_wait_groups(a.vectors - 1);
    if (own.mine > 0) {
        float x[width];
        unpack<T>(own.shared(0), x);
        mean[0] = tree_sum(x), mean[1] = width;
    }
    warp_sum(mean, 32);
    const float shift = mean[1] > 0 ? mean[0] / mean[1] : 0.0f;
    float sum[width] = {}, square[width] = {};
    own.template add_arriving<batch>(shift, sum, square);
    float sums[3] = {tree_sum(sum), tree_sum(square), float(own.mine * width)};
    warp_sum(sums, 32);
    moments<float> of_warp = {shift, sums[0], sums[1]};
    if (a.vectors > 4) // else the first vectors, whose mean is the shift, are a quarter of the part or more, and the shift is near the mean
        recenter(of_warp, __fdividef(1.0f, sums[2]), [&](float about, float(&again)[2]) {
            float sum[width] = {}, square[width] = {};
            own.add_again(about, sum, square);
            again[0] = tree_sum(sum), again[1] = tree_sum(square);
        });
    if (lane == 0) warp_moments[warp] = make_float4(of_warp.shift, of_warp.sum, of_warp.square, sums[2]);
    __syncthreads();

    // 2. The moments of the block and of its cluster.
    const float4 part = lane < warps ? warp_moments[lane] : make_float4(0, 0, 0, 0);
    moments<float> total = merge_across<true>({part.x, part.y, part.z}, part.w,
                                              a.cluster == 1 ? a.reciprocal_count
                                              : own.own      ? 1.0f / (float(own.own) * width)
                                                             : 0.0f);
    if (a.cluster > 1) {
        cluster_wait();
        if (warp == 0) exchange.send({total.shift, total.sum, total.square, 0}, 0, own.rank, a.cluster, threadIdx.x);
        const float(*const blocks)[4] = exchange.wait(0);
        moments<float> of_block = {0, 0, 0};
        if (lane < a.cluster) of_block = {blocks[lane][0], blocks[lane][1], blocks[lane][2]};
        total = merge_across<true>(of_block, lane < a.cluster ? float(own.vectors_of(lane)) * width : 0.0f, a.reciprocal_count);
    }
    const channel_statistics<float> s = finish_group(a, total, own.group, own.rank);

    // 3. The output.
    const bops_activation activation = form == silu_activation ? BOPS_SILU : a.p.activation;
    struct both {
        packed<16> x, residual;
    };
    const T *const residual = static_cast<const T *>(a.o.residual) + segment_offset(a.p.residual, own.sample, own.channel);
    const auto load_both = [&](uint32_t v) {
        both data = {own.shared(v), {}};
        if (general && a.o.residual) data.residual = load<16>(residual + own.offset(a.p.residual, v));
        return data;
    };
    const auto wait = [](uint32_t) {};
    own.template for_shared<batch>(own.mine, wait, load_both,
                                   [&](uint32_t v, const both &data) { own.template put<general>(v, data.x, data.residual, s, activation); });
}

// Host: what the kernels that take one group take. block_vectors: of a group, in one block.
template <typename T, typename Choice>
channel_single_arguments single_arguments(const forward_call<Choice> &f, uint32_t cluster, uint32_t block_vectors) {
    channel_single_arguments a = {};
    a.geometry.set(f.p.batch, f.p.channels, f.p.spatial, f.p.groups);
    const double count = double(a.geometry.count);
    a.p = f.p, a.o = f.o, a.eps = float(f.p.eps), a.momentum = running_weight<float>(f.p.momentum);
    a.reciprocal_count = float(1.0 / count), a.unbias = float(count / (count - 1.0));
    a.cluster = cluster, a.block_vectors = block_vectors;
    a.per_segment = uint32_t(f.p.spatial * sizeof(T) / 16), a.all = a.geometry.segments * a.per_segment, a.by_segment = divisor(a.per_segment);
    a.is_gapless = !a.geometry.is_batch && f.p.x.channel == f.p.spatial && f.p.y.channel == f.p.spatial;
    a.weight_is_wide = f.types.weight_is_wide;
    a.records = f.p.groups && (f.o.running_mean || f.o.running_var) ? static_cast<group_record<float> *>(f.workspace) : nullptr;
    return a;
}
} // namespace bops
