// BatchNorm over small spatial extents, forward: a block holds the same few channels of every sample in shared memory.
#pragma once
#include "channel_norm_split.cuh"

namespace bops {

constexpr int slab_block = 512, slab_warps = slab_block / 32, slab_channels = 8; // threads; the most channels of a block
constexpr int slab_chains = 4;                                                   // sums of a thread

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

// Copies the runs of a slab to shared memory.
template <typename T>
__device__ __forceinline__ void fetch_slab(const slab_geometry &g, void *to, const void *tensor, const bops_channel_strides &s, uint32_t channel) {
    constexpr uint32_t width = 16 / sizeof(T);
    const T *const from = static_cast<const T *>(tensor) + channel * s.channel;
    for (uint32_t i = threadIdx.x; i < g.batch * g.vectors; i += slab_block) {
        const uint32_t n = g.by_vectors.quotient(i), j = i - n * g.vectors;
        copy_async<16>(static_cast<uint4 *>(to) + i, from + n * s.batch + j * width);
    }
}

// Calls f(place, chain) for this thread's share of the elements of channel `t`, of which `team` threads take turns.
template <typename F>
__device__ __forceinline__ void for_slab_channel(const slab_geometry &g, uint32_t t, uint32_t team, uint32_t thread, const F &f) {
    uint32_t n = g.by_spatial.quotient(thread), s = thread - n * g.spatial;
    const uint32_t samples = g.by_spatial.quotient(team), rest = team - samples * g.spatial;
    const auto next = [&] {
        n += samples, s += rest;
        if (s >= g.spatial) s -= g.spatial, ++n;
    };
    while (n < g.batch) {
#pragma unroll
        for (int chain = 0; chain < slab_chains; ++chain) {
            if (n < g.batch) f(n * g.run + t * g.spatial + s, chain);
            next();
        }
    }
}

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
    float eps, momentum, reciprocal_count, unbias;
    uint32_t weight_is_wide, overlaps;
};

// Sums over the warps of a channel's team; every thread gets its channel's.
template <int count> __device__ __forceinline__ void slab_sum(float (&value)[count], float (*slots)[slab_warps], uint32_t team_warps) {
    const uint32_t warp = threadIdx.x / 32;
    warp_sum(value, 32);
#pragma unroll
    for (int k = 0; k < count; ++k)
        if (threadIdx.x % 32 == 0) slots[k][warp] = value[k];
    __syncthreads();
    const uint32_t first = warp / team_warps * team_warps;
#pragma unroll
    for (int k = 0; k < count; ++k) {
        value[k] = 0;
        for (uint32_t w = 0; w < team_warps; ++w) value[k] += slots[k][first + w];
    }
}

template <typename T> __global__ void __launch_bounds__(slab_block) channel_norm_slab(const __grid_constant__ channel_slab_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float slots[3][slab_warps];
    __shared__ float terms[3][slab_channels]; // shift, scale, offset
    if (a.overlaps) follow_previous();
    const slab_geometry &g = a.slab;
    const T *const data = reinterpret_cast<const T *>(dynamic_shared);
    const uint32_t first_channel = blockIdx.x * g.slab, team = slab_block / g.slab, t = threadIdx.x / team, thread = threadIdx.x - t * team;

    // 1. The slab in shared memory.
    fetch_slab<T>(g, dynamic_shared, a.o.x, a.p.x, first_channel);
    copy_commit();
    copy_wait(0);
    __syncthreads();

    // 2. The statistics of each channel.
    float sum[slab_chains] = {}, square[slab_chains] = {};
    for_slab_channel(g, t, team, thread, [&](uint32_t at, int chain) { sum[chain] += widen(data[at]); });
    float mean[1] = {tree_sum(sum)};
    slab_sum(mean, slots, team / 32);
    mean[0] *= a.reciprocal_count;
#pragma unroll
    for (int chain = 0; chain < slab_chains; ++chain) sum[chain] = 0;
    for_slab_channel(g, t, team, thread, [&](uint32_t at, int chain) {
        const float d = widen(data[at]) - mean[0];
        sum[chain] += d;
        square[chain] = fmaf(d, d, square[chain]);
    });
    float sums[2] = {tree_sum(sum), tree_sum(square)};
    slab_sum(sums, slots + 1, team / 32);
    if (thread == 0) {
        const channel_statistics<float> s = finish_statistics(moments<float>{mean[0], sums[0], sums[1]}, a.reciprocal_count, a.eps);
        const uint32_t channel = first_channel + t;
        save_statistics(s, a.o.mean, a.o.rstd, channel);
        update_running(a.o.running_mean, a.o.running_var, a.o.num_batches, a.momentum, channel, s.mean(), s.variance * a.unbias);
        const float scale = s.rstd * parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
        terms[0][t] = s.shift, terms[1][t] = scale;
        terms[2][t] = fmaf(-s.correction, scale, parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f));
    }
    __syncthreads();

    // 3. The output.
    T *const y = static_cast<T *>(a.o.y) + first_channel * a.p.y.channel;
    for (uint32_t i = threadIdx.x; i < g.batch * g.vectors; i += slab_block) {
        const uint32_t n = g.by_vectors.quotient(i), j = i - n * g.vectors;
        const uint4 word = reinterpret_cast<const uint4 *>(dynamic_shared)[i];
        float d[width];
        unpack<T>(packed<16>{{word.x, word.y, word.z, word.w}}, d);
        for_slab_vector<width>(g, j, [&](int k, uint32_t of) { d[k] = fmaf(d[k] - terms[0][of], terms[1][of], terms[2][of]); });
        if (a.p.activation != BOPS_IDENTITY) activate(a.p.activation, d);
        store<16, false>(y + n * a.p.y.batch + j * width, pack<T, 16>(d));
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
        a.weight_is_wide = weight_dtype != dtype, a.overlaps = c.overlaps;
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(slab_block), shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = a.slab.batch * a.slab.vectors * 16;
        const bops_status status = call(channel_norm_slab<T>, shape, a);
        return status ? status : finish_running<float>(p, o, nullptr, call);
    }
}

} // namespace bops
