// BatchNorm over small spatial extents, forward: a block holds the same few channels of every sample in shared memory.
#pragma once
#include "channel_norm_split.cuh"

namespace bops {

constexpr int slab_block = 512, slab_warps = slab_block / 32, slab_channels = 8; // threads; the most channels of a block

// `slab` channels follow each other in memory: a run of slab * spatial elements of each sample, a whole number of vectors of 16 bytes.
struct slab_geometry {
    uint32_t slab, batch, spatial, run, vectors; // run: elements; vectors: of a run
    divisor by_vectors, by_spatial;

    __host__ void set(uint64_t channels, uint64_t samples, uint64_t extent, uint32_t width) {
        slab = uint32_t(channels), batch = uint32_t(samples), spatial = uint32_t(extent);
        run = slab * spatial, vectors = run / width;
        by_vectors = divisor(vectors), by_spatial = divisor(spatial);
    }
};

// The channel of each element of a vector of a run: `first` up to element `left`, then the following ones.
template <int width, typename F> __device__ __forceinline__ void for_slab_vector(const slab_geometry &g, uint32_t vector, const F &f) {
    uint32_t t = g.by_spatial.quotient(vector * width), left = (t + 1) * g.spatial - vector * width;
#pragma unroll
    for (int i = 0; i < width; ++i) {
        while (left == 0) ++t, left = g.spatial;
        f(i, t);
        --left;
    }
}

struct channel_slab_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    slab_geometry slab;
    uint32_t turns; // samples that a block's threads take at once
    float eps, momentum, reciprocal_count, unbias;
    uint32_t weight_is_wide, overlaps;
};

// A thread has one vector of the run in every `turns`-th sample, so that the channels of its elements stay the same. In dynamic shared memory:
// the sums of every element of the run and of their squares, [turn][run], and the slab. has_residual: with no activation or a ReLU.
template <typename T, bool has_residual> __global__ void __launch_bounds__(slab_block, 2)
    channel_norm_slab(const __grid_constant__ channel_slab_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float terms[3][slab_channels]; // shift, scale, offset
    if (a.overlaps) follow_previous();
    const slab_geometry &g = a.slab;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_channel = blockIdx.x * g.slab;
    const uint32_t turn = g.by_vectors.quotient(threadIdx.x), vector = threadIdx.x - turn * g.vectors, step = a.turns * g.vectors;
    const uint32_t samples = turn < a.turns && turn < g.batch ? (g.batch - turn + a.turns - 1) / a.turns : 0; // of this thread
    float *const sums = reinterpret_cast<float *>(dynamic_shared), *const squares = sums + a.turns * g.run;
    uint4 *const data = reinterpret_cast<uint4 *>(squares + a.turns * g.run) + threadIdx.x;
    const auto load_vector = [&](uint32_t k, float(&to)[width]) {
        const uint4 v = data[k * step];
        unpack<T>(packed<16>{{v.x, v.y, v.z, v.w}}, to);
    };

    // 1. The slab in shared memory; every thread reads what it copied itself.
    const T *const x = static_cast<const T *>(a.o.x) + first_channel * a.p.x.channel + turn * a.p.x.batch + vector * width;
    for (uint32_t k = 0; k < samples; ++k) copy_async<16>(data + k * step, x + k * (a.turns * a.p.x.batch));
    copy_commit();
    copy_wait(0);

    // 2. The statistics of each channel.
    const auto put = [&](float *to, const float(&value)[width]) {
        if (turn < a.turns)
#pragma unroll
            for (int i = 0; i < width; i += 4)
                *reinterpret_cast<float4 *>(to + turn * g.run + vector * width + i) = make_float4(value[i], value[i + 1], value[i + 2], value[i + 3]);
    };
    const auto channel_sum = [&](const float *from, uint32_t t) { // by a warp
        float part[4] = {};
        for (uint32_t s = lane; s < g.spatial; s += 32)
            for (uint32_t u = 0; u < a.turns; u += 4)
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    if (u + j < a.turns) part[j] += from[(u + j) * g.run + t * g.spatial + s];
        float total[1] = {tree_sum(part)};
        warp_sum(total, 32);
        return total[0];
    };
    float sum[width] = {}, square[width] = {};
#pragma unroll 4
    for (uint32_t k = 0; k < samples; ++k) {
        float value[width];
        load_vector(k, value);
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] += value[i];
    }
    put(sums, sum);
    __syncthreads();
    for (uint32_t t = warp; t < g.slab; t += slab_warps) {
        const float total = channel_sum(sums, t);
        if (lane == 0) terms[0][t] = total * a.reciprocal_count;
    }
    __syncthreads();
    float shift[width], scale[width], offset[width];
    const auto for_elements = [&](const auto &f) {
        if (turn < a.turns) for_slab_vector<width>(g, vector, f);
    };
    for_elements([&](int i, uint32_t t) { shift[i] = terms[0][t], sum[i] = 0; });
#pragma unroll 4
    for (uint32_t k = 0; k < samples; ++k) {
        float value[width];
        load_vector(k, value);
        add_moments(value, shift, sum, square);
    }
    put(sums, sum), put(squares, square);
    __syncthreads();
    for (uint32_t t = warp; t < g.slab; t += slab_warps) {
        const moments<float> total = {terms[0][t], channel_sum(sums, t), channel_sum(squares, t)};
        if (lane == 0) {
            const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
            const uint32_t channel = first_channel + t;
            save_statistics(s, a.o.mean, a.o.rstd, channel);
            update_running(a.o.running_mean, a.o.running_var, a.o.num_batches, a.momentum, channel, s.mean(), s.variance * a.unbias);
            const float weight = s.rstd * parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
            terms[1][t] = weight;
            terms[2][t] = fmaf(-s.correction, weight, parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f));
        }
    }
    __syncthreads();

    // 3. The output.
    for_elements([&](int i, uint32_t t) { scale[i] = terms[1][t], offset[i] = terms[2][t]; });
    const auto own = [&](const void *tensor, const bops_channel_strides &s) { // this thread's first vector
        return static_cast<const T *>(tensor) + first_channel * s.channel + turn * s.batch + vector * width;
    };
    T *const y = const_cast<T *>(own(a.o.y, a.p.y));
    const T *const residual = own(a.o.residual, a.p.residual);
    constexpr uint32_t batch = 4; // vectors under way at once
    for (uint32_t base = 0; base < samples; base += batch) {
        packed<16> added[batch];
        if (has_residual)
#pragma unroll
            for (uint32_t j = 0; j < batch; ++j)
                if (base + j < samples) added[j] = load<16, false>(residual + (base + j) * (a.turns * a.p.residual.batch));
#pragma unroll
        for (uint32_t j = 0; j < batch; ++j) {
            const uint32_t k = base + j;
            if (k >= samples) continue;
            float d[width];
            load_vector(k, d);
#pragma unroll
            for (int i = 0; i < width; ++i) d[i] = fmaf(d[i] - shift[i], scale[i], offset[i]);
            if (has_residual) {
                float more[width];
                unpack<T>(added[j], more);
#pragma unroll
                for (int i = 0; i < width; ++i) d[i] += more[i];
            }
            if (!has_residual && a.p.activation != BOPS_IDENTITY) activate(a.p.activation, d);
            if (has_residual && a.p.activation == BOPS_RELU) activate<false>(BOPS_RELU, d);
            store_whole(y + k * (a.turns * a.p.y.batch), pack<T, 16>(d));
        }
    }
}

// Host: the SLAB variant.
template <typename T> bops_status channel_norm_slab_kernels(const bops_channel_norm_params &p, const bops_channel_norm_choice &c, bops_dtype dtype,
                                                            bops_dtype weight_dtype, const bops_channel_norm_operands &o, const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        channel_slab_arguments a = {};
        a.slab.set(c.vectors, p.batch, p.spatial, 16 / sizeof(T));
        const double count = double(p.batch * p.spatial);
        a.p = p, a.o = o, a.eps = float(p.eps), a.momentum = float(p.momentum);
        a.reciprocal_count = float(1.0 / count), a.unbias = float(count / (count - 1.0));
        a.weight_is_wide = weight_dtype != dtype, a.overlaps = c.overlaps, a.turns = c.chunks;
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(slab_block), shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = a.slab.batch * a.slab.vectors * 16 + a.turns * a.slab.run * 8;
        const bops_status status = call.one_of(o.residual != nullptr, forms_of(channel_norm_slab<T, false>, channel_norm_slab<T, true>), shape, a);
        return status ? status : finish_running<float>(p, o, nullptr, call);
    }
}

} // namespace bops
