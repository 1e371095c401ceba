// Gradients of BatchNorm over small spatial extents: a block holds the same few channels of every sample in shared memory.
#pragma once
#include "channel_norm_backward_split.cuh"
#include "channel_norm_slab.cuh"

namespace bops {

constexpr int slab_chains = 4; // sums of a thread
constexpr int dpre_batch = 2;  // vectors of a residual or y under way at once

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

struct channel_backward_slab_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    slab_geometry slab;
    float reciprocal_count;
    uint32_t weight_is_wide, overlaps;
};

// dpre_first: dpre takes the place of dy in shared memory before anything is added up. It is dy or 0, which no rounding changes; it may need a
// residual or y, and dresidual is it.
template <typename T, bool dpre_first> __global__ void __launch_bounds__(slab_block)
    channel_norm_backward_slab(const __grid_constant__ channel_backward_slab_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float slots[2][slab_warps];
    __shared__ float terms[5][slab_channels]; // mean, scale, bias, mean of g times rstd, slope
    if (a.overlaps) follow_previous();
    const slab_geometry &g = a.slab;
    const uint32_t vectors = g.batch * g.vectors;
    const T *const dy_data = reinterpret_cast<const T *>(dynamic_shared), *const x_data = dy_data + vectors * width;
    const bops_activation activation = dpre_first ? BOPS_IDENTITY : a.p.activation;
    const uint32_t first_channel = blockIdx.x * g.slab, team = slab_block / g.slab, t = threadIdx.x / team, thread = threadIdx.x - t * team;
    const uint32_t channel = first_channel + t;

    // 1. The slab in shared memory.
    fetch_slab<T>(g, dynamic_shared, a.o.dy, a.p.dy, first_channel);
    fetch_slab<T>(g, dynamic_shared + vectors * 16, a.o.x, a.p.x, first_channel);
    copy_commit();
    const float mean = __ldg(static_cast<const float *>(a.o.mean) + channel), rstd = __ldg(static_cast<const float *>(a.o.rstd) + channel);
    const float weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
    const float scale = rstd * weight, bias = a.p.activation ? parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f) : 0.0f;
    if (thread == 0) terms[0][t] = mean, terms[1][t] = scale, terms[2][t] = bias;
    copy_wait(0);
    __syncthreads();
    const auto load_vectors = [&](uint32_t i, float(&dy)[width], float(&x)[width]) {
        unpack<T>(shared_vector(i), dy);
        unpack<T>(shared_vector(vectors + i), x);
    };
    if constexpr (dpre_first) {
        const extra_operand which = extra_of(a.o, a.p.activation);
        const bops_channel_strides &extra_strides = which == extra_operand::y ? a.p.y : a.p.residual;
        const T *const extra = static_cast<const T *>(which == extra_operand::y ? a.o.y : a.o.residual) + first_channel * extra_strides.channel;
        T *const dresidual = static_cast<T *>(a.o.dresidual) + first_channel * a.p.dresidual.channel;
        for (uint32_t base = 0; base < vectors; base += dpre_batch * slab_block) {
            packed<16> more[dpre_batch] = {};
#pragma unroll
            for (int b = 0; b < dpre_batch; ++b) {
                const uint32_t i = base + b * slab_block + threadIdx.x, n = g.by_vectors.quotient(i);
                if (which != extra_operand::none && i < vectors)
                    more[b] = load<16, false>(extra + n * extra_strides.batch + (i - n * g.vectors) * width);
            }
#pragma unroll
            for (int b = 0; b < dpre_batch; ++b) {
                const uint32_t i = base + b * slab_block + threadIdx.x, n = g.by_vectors.quotient(i), j = i - n * g.vectors;
                if (i >= vectors) continue;
                if (a.p.activation == BOPS_RELU) {
                    float dy[width], pre[width], added[width];
                    load_vectors(i, dy, pre);
                    unpack<T>(more[b], added);
                    for_slab_vector<width>(g, j, [&](int k, uint32_t of) {
                        const float affine = fmaf(pre[k] - terms[0][of], terms[1][of], terms[2][of]);
                        pre[k] = which == extra_operand::y ? added[k] : affine + added[k];
                    });
                    differentiate<false>(BOPS_RELU, pre, dy);
                    const packed<16> dpre = pack<T, 16>(dy);
                    reinterpret_cast<uint4 *>(dynamic_shared)[i] = make_uint4(dpre.word[0], dpre.word[1], dpre.word[2], dpre.word[3]);
                }
                if (a.o.dresidual) store<16, false>(dresidual + n * a.p.dresidual.batch + j * width, shared_vector(i));
            }
        }
        __syncthreads();
    }

    // 2. The sums of dpre and dpre xhat over each channel.
    float sum[slab_chains] = {}, product[slab_chains] = {};
    for_slab_channel(g, t, team, thread, [&](uint32_t at, int chain) {
        const float d = widen(x_data[at]) - mean;
        float dy[1] = {widen(dy_data[at])};
        const float pre[1] = {fmaf(d, scale, bias)};
        if (activation != BOPS_IDENTITY) differentiate(activation, pre, dy);
        sum[chain] += dy[0];
        product[chain] = fmaf(dy[0], d, product[chain]);
    });
    float sums[2] = {tree_sum(sum), tree_sum(product) * rstd};
    slab_sum(sums, slots, team / 32);
    if (thread == 0) {
        store_parameter<T>(a.o.dbias, a.weight_is_wide, channel, sums[0]);
        store_parameter<T>(a.o.dweight, a.weight_is_wide, channel, sums[1]);
        terms[3][t] = scale * sums[0] * a.reciprocal_count, terms[4][t] = rstd * scale * sums[1] * a.reciprocal_count;
    }
    __syncthreads();
    if (!a.o.dx) return;

    // 3. The gradients of the elements.
    T *const dx = static_cast<T *>(a.o.dx) + first_channel * a.p.dx.channel;
    for (uint32_t i = threadIdx.x; i < vectors; i += slab_block) {
        const uint32_t n = g.by_vectors.quotient(i), j = i - n * g.vectors;
        float dy[width], d[width];
        load_vectors(i, dy, d);
        if (activation != BOPS_IDENTITY) {
            float pre[width];
            for_slab_vector<width>(g, j, [&](int k, uint32_t of) { pre[k] = fmaf(d[k] - terms[0][of], terms[1][of], terms[2][of]); });
            differentiate(activation, pre, dy);
        }
        for_slab_vector<width>(
            g, j, [&](int k, uint32_t of) { dy[k] = fmaf(terms[0][of] - d[k], terms[4][of], fmaf(dy[k], terms[1][of], -terms[3][of])); });
        store<16, false>(dx + n * a.p.dx.batch + j * width, pack<T, 16>(dy));
    }
}

// Host: the SLAB variant.
template <typename T> bops_status channel_norm_backward_slab_kernels(const bops_channel_norm_backward_params &p, const bops_channel_norm_choice &c,
                                                                     bops_dtype dtype, bops_dtype weight_dtype,
                                                                     const bops_channel_norm_backward_operands &o, const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        channel_backward_slab_arguments a = {};
        a.slab.set(c.vectors, p.batch, p.spatial, 16 / sizeof(T));
        a.p = p, a.o = o, a.reciprocal_count = float(1.0 / double(p.batch * p.spatial));
        a.weight_is_wide = weight_dtype != dtype, a.overlaps = c.overlaps;
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(slab_block), shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = a.slab.batch * a.slab.vectors * 32;
        const bool dpre_first = o.dresidual || o.residual || o.y;
        return call.one_of(dpre_first, forms_of(channel_norm_backward_slab<T, false>, channel_norm_backward_slab<T, true>), shape, a);
    }
}

} // namespace bops
