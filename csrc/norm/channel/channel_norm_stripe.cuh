// BatchNorm forward over small spatial extents, the form `stripe`: a block holds the same few channels of every sample in shared memory.
#pragma once
#include "channel_norm_split.cuh"

namespace bops {

constexpr int stripe_threads = 512;  // of a block, at most
constexpr int stripe_channels = 8;   // of a stripe, at most: with 8 of 16 bits, or 4 of f32, a run of any extent is a whole number of vectors
constexpr uint32_t stripe_parts = 4; // parts of a thread's vectors: it waits for the copies of one while those of the next are under way

// The channels of a stripe follow each other in memory: a run of channels * spatial elements of each sample, a whole number of vectors of 16 bytes. A
// thread has one vector of the run in every `turns`-th sample, so that the channels of its elements stay the same.
struct stripe_geometry {
    uint32_t channels, batch, spatial, run, vectors; // run: elements; vectors: of a run
    uint32_t turns, part;                            // samples that a block's threads take at once; samples of a thread in a part
    divisor by_vectors, by_spatial;

    __host__ void set(const bops_channel_norm_stripe_choice &c, uint64_t samples, uint64_t extent, uint32_t width) {
        channels = c.channels, batch = uint32_t(samples), spatial = uint32_t(extent);
        run = channels * spatial, vectors = run / width;
        turns = c.samples_at_once, part = ((batch + turns - 1) / turns + stripe_parts - 1) / stripe_parts;
        by_vectors = divisor(vectors), by_spatial = divisor(spatial);
    }
    // Bytes of the two sums of every element of the run in every turn, and of the stripes of `tensors` tensors.
    __host__ uint32_t shared_bytes(uint32_t tensors) const { return turns * run * 8 + batch * vectors * 16 * tensors; }
};

// A thread's share of a stripe. In dynamic shared memory: the two sums, [turn][run] each, and the stripe of each tensor, [sample][vector].
struct stripe_share {
    const stripe_geometry &g;
    uint32_t turn, vector, step, samples; // step: vectors of one tensor in all turns
    float *sums, *squares;
    uint4 *data;

    __device__ __forceinline__ explicit stripe_share(const stripe_geometry &geometry) : g(geometry) {
        turn = g.by_vectors.quotient(threadIdx.x), vector = threadIdx.x - turn * g.vectors, step = g.turns * g.vectors;
        samples = turn < g.turns && turn < g.batch ? (g.batch - turn + g.turns - 1) / g.turns : 0;
        sums = reinterpret_cast<float *>(dynamic_shared), squares = sums + g.turns * g.run;
        data = reinterpret_cast<uint4 *>(squares + g.turns * g.run) + threadIdx.x;
    }
    // Element of a tensor at which this thread's vector starts in its first sample.
    template <int width> __device__ __forceinline__ uint64_t offset(const bops_channel_strides &s) const {
        return uint64_t(blockIdx.x * g.channels) * s.channel + turn * s.batch + vector * width;
    }
    // The place of this thread's vector in its sample number k.
    __device__ __forceinline__ uint4 &place(uint32_t k, uint32_t tensor = 0) const { return data[tensor * (g.batch * g.vectors) + k * step]; }
    template <typename T, int width> __device__ __forceinline__ void load(uint32_t k, uint32_t tensor, float (&to)[width]) const {
        const uint4 v = place(k, tensor);
        unpack<T>(packed<16>{{v.x, v.y, v.z, v.w}}, to);
    }
    // Calls f(number of the thread's sample) for the samples of part `index` once their copies have arrived. All threads of a block commit the same
    // number of groups of copies.
    template <typename F> __device__ __forceinline__ void for_part(uint32_t index, const F &f) const {
        copy_wait(stripe_parts - 1 - index);
        const uint32_t end = min((index + 1) * g.part, samples);
#pragma unroll 2
        for (uint32_t k = index * g.part; k < end; ++k) f(k);
    }
    // Calls f(i, channel of the stripe) for the elements of this thread's vector.
    template <int width, typename F> __device__ __forceinline__ void for_elements(const F &f) const {
        if (turn >= g.turns) return;
        uint32_t t = g.by_spatial.quotient(vector * width), left = (t + 1) * g.spatial - vector * width;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            while (left == 0) ++t, left = g.spatial;
            f(i, t);
            --left;
        }
    }
    template <int width> __device__ __forceinline__ void put(float *to, const float (&value)[width]) const {
        if (turn < g.turns)
#pragma unroll
            for (int i = 0; i < width; i += 4)
                *reinterpret_cast<float4 *>(to + turn * g.run + vector * width + i) = make_float4(value[i], value[i + 1], value[i + 2], value[i + 3]);
    }
    // Called by a warp: the sum of what was put for channel `t`.
    __device__ __forceinline__ float channel_sum(const float *from, uint32_t t) const {
        float sums[4] = {};
        for (uint32_t s = threadIdx.x % 32; s < g.spatial; s += 32)
            for (uint32_t u = 0; u < g.turns; u += 4)
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    if (u + j < g.turns) sums[j] += from[(u + j) * g.run + t * g.spatial + s];
        float total[1] = {tree_sum(sums)};
        warp_sum(total, 32);
        return total[0];
    }
};

struct channel_stripe_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    stripe_geometry stripe;
    float eps, momentum, reciprocal_count, reciprocal_early; // early: elements of a channel in the first part
    float unbias;                                            // count / (count - 1), which makes the variance of a batch unbiased
    uint32_t weight_is_wide, overlaps;
};

// Finishes channel `t` of the stripe: saves its statistics and leaves `terms` for the output.
__device__ __forceinline__ void finish_stripe_channel(const channel_stripe_arguments &a, moments<float> total, const channel_before<float> &before,
                                                      uint32_t channel, float (*terms)[stripe_channels], uint32_t t) {
    total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
    const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
    const float scale = s.rstd * before.weight;
    terms[0][t] = s.shift, terms[1][t] = scale, terms[2][t] = fmaf(-s.correction, scale, before.bias);
    save_statistics(s, a.o.mean, a.o.rstd, channel);
    before.update(a.o, channel, s.mean(), s.variance * a.unbias);
}

// The output of a vector: x is on entry in `d`, and each element has a shift, a scale and an offset of its own. at_most_relu: there is no activation but
// ReLU.
template <typename T, bool has_residual, bool at_most_relu, int width>
__device__ __forceinline__ packed<16> stripe_output(float (&d)[width], const float (&shift)[width], const float (&scale)[width],
                                                    const float (&offset)[width], const packed<16> &residual, bops_activation activation) {
#pragma unroll
    for (int i = 0; i < width; ++i) d[i] = fmaf(d[i] - shift[i], scale[i], offset[i]);
    if (has_residual) {
        float added[width];
        unpack<T>(residual, added);
#pragma unroll
        for (int i = 0; i < width; ++i) d[i] += added[i];
    }
    if (!at_most_relu && activation != BOPS_IDENTITY) activate(activation, d);
    if (at_most_relu && activation == BOPS_RELU) activate<false>(BOPS_RELU, d);
    return pack<T, 16>(d);
}

// has_residual: the activation is then identity or ReLU.
template <typename T, bool has_residual> __global__ void __launch_bounds__(stripe_threads, 2)
    channel_norm_stripe(const __grid_constant__ channel_stripe_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float terms[3][stripe_channels]; // shift, scale, offset
    __shared__ channel_before<float> before[stripe_channels];
    if (a.overlaps) {
        fetch_arguments(a);
        follow_previous();
    }
    const stripe_geometry &g = a.stripe;
    const stripe_share own(g);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, first_channel = blockIdx.x * g.channels;

    // 1. Copy the stripe to shared memory; every thread reads only what it copied itself. Load the channels' parameters meanwhile.
    const T *const x = static_cast<const T *>(a.o.x) + own.template offset<width>(a.p.x);
    for (uint32_t part = 0; part < stripe_parts; ++part) {
        for (uint32_t k = part * g.part; k < min((part + 1) * g.part, own.samples); ++k)
            copy_async_cached(&own.place(k), x + k * (g.turns * a.p.x.batch), evict_first());
        copy_commit();
    }
    if (threadIdx.x < g.channels) before[threadIdx.x].template load<T>(a.o, a.weight_is_wide, a.momentum, first_channel + threadIdx.x);

    // 2. The statistics of each channel, about the mean of the first quarter of its samples, while the others arrive.
    float sum[width] = {}, square[width] = {}, shift[width], scale[width], offset[width];
    own.for_part(0, [&](uint32_t k) {
        float value[width];
        own.template load<T>(k, 0, value);
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] += value[i];
    });
    own.put(own.sums, sum);
    __syncthreads();
    for (uint32_t t = warp; t < g.channels; t += warps) {
        const float total = own.channel_sum(own.sums, t);
        if (lane == 0) terms[0][t] = total * a.reciprocal_early;
    }
    __syncthreads();
    own.template for_elements<width>([&](int i, uint32_t t) { shift[i] = terms[0][t], sum[i] = 0; });
    for (uint32_t part = 0; part < stripe_parts; ++part)
        own.for_part(part, [&](uint32_t k) {
            float value[width];
            own.template load<T>(k, 0, value);
            add_moments(value, shift, sum, square);
        });
    own.put(own.sums, sum), own.put(own.squares, square);
    __syncthreads();
    for (uint32_t t = warp; t < g.channels; t += warps) {
        const moments<float> total = {terms[0][t], own.channel_sum(own.sums, t), own.channel_sum(own.squares, t)};
        __syncwarp(); // all have read the shift
        if (lane == 0) finish_stripe_channel(a, total, before[t], first_channel + t, terms, t);
    }
    __syncthreads();

    // 3. The output.
    own.template for_elements<width>([&](int i, uint32_t t) { scale[i] = terms[1][t], offset[i] = terms[2][t]; });
    T *const y = static_cast<T *>(a.o.y) + own.template offset<width>(a.p.y);
    const T *const residual = static_cast<const T *>(a.o.residual) + own.template offset<width>(a.p.residual);
    constexpr uint32_t batch = 4; // vectors under way at once
    for (uint32_t base = 0; base < own.samples; base += batch) {
        packed<16> added[batch];
        if (has_residual)
#pragma unroll
            for (uint32_t j = 0; j < batch; ++j)
                if (base + j < own.samples) added[j] = load<16, false>(residual + (base + j) * (g.turns * a.p.residual.batch));
#pragma unroll
        for (uint32_t j = 0; j < batch; ++j) {
            const uint32_t k = base + j;
            if (k >= own.samples) continue;
            float d[width];
            own.template load<T>(k, 0, d);
            const packed<16> output = stripe_output<T, has_residual, has_residual>(d, shift, scale, offset, added[j], a.p.activation);
            store_whole(y + k * (g.turns * a.p.y.batch), output);
        }
    }
}

constexpr int stripe_held_threads = 256; // of a block of channel_norm_stripe_held, at most
constexpr int stripe_held = 13;          // samples of a thread, at most: a vector of each takes 52 of the 128 registers that two blocks leave it

// BatchNorm forward of 16-bit elements with a stripe in registers. This takes fewer instructions than shared memory does, and 16-bit elements need as
// many instructions as 32-bit elements for half the bytes. A thread takes the moments of each of its elements over its samples, about the mean of the
// first quarter of them. Dynamic shared memory has these moments as sums, squares and shifts, [turn][run] each. The activation is identity or ReLU.
template <typename T, bool has_residual> __global__ void __launch_bounds__(stripe_held_threads, 2)
    channel_norm_stripe_held(const __grid_constant__ channel_stripe_arguments a) {
    constexpr int width = 16 / int(sizeof(T)), early = (stripe_held + 3) / 4;
    __shared__ float terms[3][stripe_channels]; // shift, scale, offset
    __shared__ channel_before<float> before[stripe_channels];
    if (a.overlaps) {
        fetch_arguments(a);
        follow_previous();
    }
    const stripe_geometry &g = a.stripe;
    const stripe_share own(g);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, first_channel = blockIdx.x * g.channels;

    // 1. The stripe in registers.
    const T *const x = static_cast<const T *>(a.o.x) + own.template offset<width>(a.p.x);
    packed<16> data[stripe_held];
#pragma unroll
    for (int k = 0; k < stripe_held; ++k) {
        data[k] = {};
        if (k < own.samples) data[k] = load<16>(x + k * (g.turns * a.p.x.batch));
    }
    if (threadIdx.x < g.channels) before[threadIdx.x].template load<T>(a.o, a.weight_is_wide, a.momentum, first_channel + threadIdx.x);

    // 2. The statistics of each channel.
    float shift[width] = {}, sum[width] = {}, square[width] = {};
    const float reciprocal_early = 1.0f / float(min(max(own.samples, 1u), uint32_t(early)));
#pragma unroll
    for (int k = 0; k < early; ++k) {
        float value[width];
        unpack<T>(data[k], value); // zeros where there is nothing
#pragma unroll
        for (int i = 0; i < width; ++i) shift[i] = fmaf(value[i], reciprocal_early, shift[i]);
    }
#pragma unroll
    for (int k = 0; k < stripe_held; ++k)
        if (k < own.samples) {
            float value[width];
            unpack<T>(data[k], value);
            add_moments(value, shift, sum, square);
        }
    float *const shifts = own.squares + g.turns * g.run;
    own.put(shifts, shift), own.put(own.sums, sum), own.put(own.squares, square);
    __syncthreads();
    for (uint32_t t = warp; t < g.channels; t += warps) {
        const auto for_parts = [&](const auto &f) {
            for (uint32_t s = lane; s < g.spatial; s += 32)
#pragma unroll 5
                for (uint32_t u = 0; u < g.turns; ++u) {
                    const uint32_t at = u * g.run + t * g.spatial + s;
                    f(moments<float>{shifts[at], own.sums[at], own.squares[at]}, float((g.batch - u + g.turns - 1) / g.turns));
                }
        };
        float mean[1] = {};
        for_parts([&](const moments<float> &part, float count) { mean[0] += fmaf(part.shift, count, part.sum); });
        warp_sum(mean, 32);
        moments<float> total = {rounded_product(mean[0], a.reciprocal_count), 0, 0};
        for_parts([&](const moments<float> &part, float count) { merge(total, part, count); });
        float both[2] = {total.sum, total.square};
        warp_sum(both, 32);
        if (lane == 0) finish_stripe_channel(a, {total.shift, both[0], both[1]}, before[t], first_channel + t, terms, t);
    }
    __syncthreads();

    // 3. The output.
    float scale[width], offset[width];
    own.template for_elements<width>([&](int i, uint32_t t) { shift[i] = terms[0][t], scale[i] = terms[1][t], offset[i] = terms[2][t]; });
    T *const y = static_cast<T *>(a.o.y) + own.template offset<width>(a.p.y);
    const T *const residual = static_cast<const T *>(a.o.residual) + own.template offset<width>(a.p.residual);
#pragma unroll
    for (int k = 0; k < stripe_held; ++k)
        if (k < own.samples) {
            packed<16> added;
            if (has_residual) added = load<16, false>(residual + k * (g.turns * a.p.residual.batch));
            float d[width];
            unpack<T>(data[k], d);
            const packed<16> output = stripe_output<T, has_residual, true>(d, shift, scale, offset, added, a.p.activation);
            store_whole(y + k * (g.turns * a.p.y.batch), output);
        }
}

// Host: the form `stripe`.
template <typename T> bops_status channel_norm_stripe_kernels(const forward_call<bops_channel_norm_stripe_choice> &f) {
    channel_stripe_arguments a = {};
    a.stripe.set(f.c, f.p.batch, f.p.spatial, 16 / sizeof(T));
    const double count = double(f.p.batch * f.p.spatial);
    const uint64_t early = a.stripe.part * a.stripe.turns;
    a.p = f.p, a.o = f.o, a.eps = float(f.p.eps), a.momentum = running_weight<float>(f.p.momentum);
    a.reciprocal_count = float(1.0 / count), a.unbias = float(count / (count - 1.0));
    a.reciprocal_early = float(1.0 / double((early < f.p.batch ? early : f.p.batch) * f.p.spatial));
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = f.c.overlaps;
    auto forms = specialised(channel_norm_stripe<T, false>, channel_norm_stripe<T, true>);
    if constexpr (sizeof(T) == 2)
        if (f.c.in_registers) forms = specialised(channel_norm_stripe_held<T, false>, channel_norm_stripe_held<T, true>);
    const uint32_t shared_bytes = f.c.in_registers ? a.stripe.turns * a.stripe.run * 12 : a.stripe.shared_bytes(1);
    const bops_status status = f.call.one_of(f.o.residual != nullptr, forms, f.shape(f.c.threads, shared_bytes), a);
    return status ? status : finish_running<float>(f, nullptr);
}

} // namespace bops
