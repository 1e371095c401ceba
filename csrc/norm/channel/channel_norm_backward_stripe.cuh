// Gradients of BatchNorm over small spatial extents, the form `stripe`: a block holds the same few channels of every sample in shared memory.
#pragma once
#include "channel_norm_backward_split.cuh"
#include "channel_norm_stripe.cuh"

namespace bops {

struct channel_backward_stripe_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    stripe_geometry stripe;
    float reciprocal_count;
    uint32_t weight_is_wide, overlaps;
};

// A block holds a stripe of dy and of x. dpre_first: when an element is added up, dpre replaces dy in shared memory. dpre is then dy or 0, which no
// rounding changes; it may depend on a residual or y, and it is dresidual.
template <typename T, bool dpre_first> __global__ void __launch_bounds__(stripe_threads)
    channel_norm_backward_stripe(const __grid_constant__ channel_backward_stripe_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ float terms[5][stripe_channels]; // mean, scale, bias, mean of g times rstd, slope
    __shared__ float rstds[stripe_channels];
    if (a.overlaps) follow_previous();
    const stripe_geometry &g = a.stripe;
    const stripe_share own(g);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, first_channel = blockIdx.x * g.channels;

    // 1. Copy the stripe to shared memory; every thread reads only what it copied itself.
    const T *const dy_from = static_cast<const T *>(a.o.dy) + own.template offset<width>(a.p.dy);
    const T *const x_from = static_cast<const T *>(a.o.x) + own.template offset<width>(a.p.x);
    for (uint32_t part = 0; part < stripe_parts; ++part) {
        for (uint32_t k = part * g.part; k < min((part + 1) * g.part, own.samples); ++k) {
            copy_async<16>(&own.place(k, 0), dy_from + k * (g.turns * a.p.dy.batch));
            copy_async<16>(&own.place(k, 1), x_from + k * (g.turns * a.p.x.batch));
        }
        copy_commit();
    }
    // The residual or y, loaded some samples ahead.
    constexpr uint32_t extras = dpre_first ? 4 : 1;
    const extra_operand which = dpre_first ? extra_of(a.o, a.p.activation) : extra_operand::none;
    const bops_channel_strides &extra_strides = which == extra_operand::y ? a.p.y : a.p.residual;
    const T *const extra = static_cast<const T *>(which == extra_operand::y ? a.o.y : a.o.residual) + own.template offset<width>(extra_strides);
    packed<16> next[extras] = {};
    const auto fetch_extra = [&](uint32_t first) {
#pragma unroll
        for (uint32_t j = 0; j < extras; ++j)
            if (which != extra_operand::none && first + j < own.samples)
                next[j] = load<16, false>(extra + (first + j) * (g.turns * extra_strides.batch));
    };
    fetch_extra(0);
    if (threadIdx.x < g.channels) {
        const uint32_t t = threadIdx.x, channel = first_channel + t;
        const float rstd = __ldg(static_cast<const float *>(a.o.rstd) + channel);
        terms[0][t] = __ldg(static_cast<const float *>(a.o.mean) + channel), rstds[t] = rstd;
        terms[1][t] = rstd * parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
        terms[2][t] = a.p.activation ? parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f) : 0.0f;
    }
    __syncthreads();
    float mean[width], scale[width], bias[width];
    own.template for_elements<width>([&](int i, uint32_t t) { mean[i] = terms[0][t], scale[i] = terms[1][t], bias[i] = terms[2][t]; });
    const auto load_both = [&](uint32_t k, float(&dy)[width], float(&d)[width]) { // d: x - mean
        own.template load<T>(k, 0, dy);
        own.template load<T>(k, 1, d);
#pragma unroll
        for (int i = 0; i < width; ++i) d[i] -= mean[i];
    };
    const auto make_dpre = [&](const float(&d)[width], float(&dy)[width]) {
        if constexpr (!dpre_first)
            if (a.p.activation != BOPS_IDENTITY) {
                float pre[width];
#pragma unroll
                for (int i = 0; i < width; ++i) pre[i] = fmaf(d[i], scale[i], bias[i]);
                differentiate(a.p.activation, pre, dy);
            }
    };

    // 2. The sums of dpre and dpre xhat over each channel.
    T *const dresidual = static_cast<T *>(a.o.dresidual) + own.template offset<width>(a.p.dresidual);
    float sum[width] = {}, product[width] = {};
    const auto take = [&](uint32_t k, const packed<16> &other) {
        float dy[width], d[width];
        load_both(k, dy, d);
        if constexpr (dpre_first) {
            if (a.p.activation == BOPS_RELU) {
                float pre[width], added[width];
                unpack<T>(other, added);
#pragma unroll
                for (int i = 0; i < width; ++i) pre[i] = which == extra_operand::y ? added[i] : fmaf(d[i], scale[i], bias[i]) + added[i];
                differentiate<false>(BOPS_RELU, pre, dy);
            }
            const packed<16> dpre = pack<T, 16>(dy);
            if (a.p.activation == BOPS_RELU) own.place(k, 0) = make_uint4(dpre.word[0], dpre.word[1], dpre.word[2], dpre.word[3]);
            if (a.o.dresidual) store_whole(dresidual + k * (g.turns * a.p.dresidual.batch), dpre);
        } else make_dpre(d, dy);
        add_products(dy, d, sum, product);
    };
    for (uint32_t part = 0; part < stripe_parts; ++part) {
        if constexpr (dpre_first) {
            copy_wait(stripe_parts - 1 - part);
            const uint32_t end = min((part + 1) * g.part, own.samples);
            for (uint32_t base = part * g.part; base < end; base += extras) {
                packed<16> now[extras];
#pragma unroll
                for (uint32_t j = 0; j < extras; ++j) now[j] = next[j];
                fetch_extra(min(base + extras, end));
#pragma unroll
                for (uint32_t j = 0; j < extras; ++j)
                    if (base + j < end) take(base + j, now[j]);
            }
        } else own.for_part(part, [&](uint32_t k) { take(k, {}); });
    }
    own.put(own.sums, sum), own.put(own.squares, product);
    __syncthreads();
    for (uint32_t t = warp; t < g.channels; t += warps) {
        const float total = own.channel_sum(own.sums, t), product = own.channel_sum(own.squares, t) * rstds[t];
        if (lane == 0) {
            terms[3][t] = terms[1][t] * total * a.reciprocal_count, terms[4][t] = rstds[t] * terms[1][t] * product * a.reciprocal_count;
            store_parameter<T>(a.o.dbias, a.weight_is_wide, first_channel + t, total);
            store_parameter<T>(a.o.dweight, a.weight_is_wide, first_channel + t, product);
        }
    }
    __syncthreads();
    if (!a.o.dx) return;

    // 3. The gradients of the elements.
    float mean_g[width], slope[width];
    own.template for_elements<width>([&](int i, uint32_t t) { mean_g[i] = terms[3][t], slope[i] = terms[4][t]; });
    T *const dx = static_cast<T *>(a.o.dx) + own.template offset<width>(a.p.dx);
#pragma unroll 2
    for (uint32_t k = 0; k < own.samples; ++k) {
        float dy[width], d[width];
        load_both(k, dy, d);
        make_dpre(d, dy);
#pragma unroll
        for (int i = 0; i < width; ++i) dy[i] = fmaf(-d[i], slope[i], fmaf(dy[i], scale[i], -mean_g[i]));
        store_whole(dx + k * (g.turns * a.p.dx.batch), pack<T, 16>(dy));
    }
}

// Host: the form `stripe`.
template <typename T> bops_status channel_norm_backward_stripe_kernels(const backward_call<bops_channel_norm_stripe_choice> &f) {
    channel_backward_stripe_arguments a = {};
    a.stripe.set(f.c, f.p.batch, f.p.spatial, 16 / sizeof(T));
    a.p = f.p, a.o = f.o, a.reciprocal_count = float(1.0 / double(f.p.batch * f.p.spatial));
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = f.c.overlaps;
    const bool dpre_first = f.o.dresidual || f.o.residual || f.o.y;
    const auto kernels = specialised(channel_norm_backward_stripe<T, false>, channel_norm_backward_stripe<T, true>);
    return f.call.one_of(dpre_first, kernels, f.shape(f.c.threads, a.stripe.shared_bytes(2)), a);
}

} // namespace bops
