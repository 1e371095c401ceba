// What the backward kernels of BatchNorm, GroupNorm and InstanceNorm over channels-last layouts share.
//
// dpre = dy * act'(pre), g = dpre * weight, d = x - mean; dx = rstd * (g - mean(g) - d * rstd^2 * mean(g d)), dresidual = dpre,
// dweight = sum(dpre * d * rstd), dbias = sum(dpre). Means are over a group. Tiles and chunks are those of the forward.
#pragma once
#include "channels_last_norm_tiles.cuh"

namespace bops {

// Means over a group.
template <typename A> struct gradient_means {
    A g, slope; // mean(g), rstd^2 * mean(g d)
};

template <typename A> struct channel_last_backward_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    channel_last_shape g;
    A eps, reciprocal_count;
    uint32_t weight_is_wide;
    uint32_t reads_extra; // the activation needs y or the residual
    uint32_t slots;       // places in shared memory: each for a batch of a ring or, in `cluster`, for one of a thread's rows, all of which stay there
    uint32_t tensors;     // whose rows lie in a place
    uint32_t cached;      // batches that the L2 is to keep
    uint32_t overlaps;
    union {
        uint32_t cluster;      // the form `cluster`: blocks of a cluster
        uint32_t merged_quads; // the form `rows` in a grid: quads of columns of sums that a block merges
    };
    A *dpres, *products;      // [samples * chunks][channels]: sums of dpre, of dpre * d
    gradient_means<A> *means; // [samples or 1][groups]
};

// The kernel arguments that all forms share.
template <typename T, int vec_bytes = 16, typename Choice>
channel_last_backward_arguments<accumulator_t<T>> last_backward_arguments(const backward_call<Choice> &f, const last_tiling &tiling,
                                                                          uint32_t overlaps = 0) {
    using A = accumulator_t<T>;
    const bops_channel_norm_backward_params &p = f.p;
    channel_last_backward_arguments<A> a = {};
    a.p = p, a.o = f.o, a.g = last_shape(p, tiling, vec_bytes / sizeof(T));
    if (a.g.is_merged)
        for (bops_channel_strides *s : {&a.p.dy, &a.p.x, &a.p.residual, &a.p.y, &a.p.dx, &a.p.dresidual}) *s = merged_strides(*s, p.spatial);
    const double count = double(p.spatial) * (a.g.per_sample ? double(a.g.group_channels) : double(p.batch));
    a.eps = A(p.eps), a.reciprocal_count = count > 0 ? A(1 / count) : A(0);
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = overlaps;
    a.reads_extra = p.activation != BOPS_IDENTITY && (f.o.y || f.o.residual);
    const uint64_t sets = a.g.per_sample ? a.g.samples : 1, plane = uint64_t(a.g.samples) * a.g.chunks * p.channels;
    a.means = static_cast<gradient_means<A> *>(f.workspace);
    a.dpres = reinterpret_cast<A *>(a.means + sets * a.g.groups), a.products = a.dpres + plane;
    return a;
}

template <typename A> struct mean_and_rstd { A mean, rstd; };

template <typename A>
__device__ __forceinline__ mean_and_rstd<A> statistics_of(const channel_last_backward_arguments<A> &a, uint32_t sample, uint32_t channel) {
    if (a.p.uses_running) {
        const channel_statistics<A> s = running_statistics(a.o.running_mean, a.o.running_var, channel, a.eps);
        return {s.shift, s.rstd};
    }
    const uint64_t group = (a.g.per_sample ? uint64_t(sample) * a.g.groups : 0) + channel / a.g.group_channels;
    return {__ldg(static_cast<const A *>(a.o.mean) + group), __ldg(static_cast<const A *>(a.o.rstd) + group)};
}

// The parameter gradients of a channel.
template <typename T, typename A>
__device__ __forceinline__ void store_parameters(const channel_last_backward_arguments<A> &a, uint32_t channel, A dweight, A dbias) {
    store_parameter<T>(a.o.dweight, a.weight_is_wide, channel, dweight);
    store_parameter<T>(a.o.dbias, a.weight_is_wide, channel, dbias);
}

template <typename A> __device__ __forceinline__ gradient_means<A> finish_means(A g_sum, A product_sum, A rstd, A reciprocal_count) {
    return {g_sum * reciprocal_count, product_sum * reciprocal_count * rstd * rstd};
}

// The parameter gradients of a channel if every sample has statistics of its own.
template <bool is_block, typename T, typename A>
__device__ __forceinline__ void merge_parameters(const channel_last_backward_arguments<A> &a, uint32_t channel, A (*slots)[team_slots]) {
    using team = list_team<is_block>;
    cascade<A> dpres, products;
    const uint64_t chunks = uint64_t(a.g.samples) * a.g.chunks;
    for (uint64_t first = team::lane(); first < chunks; first += merge_batch * team::lanes()) {
        A dpre[merge_batch], product[merge_batch], rstd[merge_batch];
#pragma unroll
        for (int u = 0; u < merge_batch; ++u) {
            dpre[u] = 0, product[u] = 0, rstd[u] = 0;
            const uint64_t chunk = first + u * team::lanes(), at = chunk * a.g.channels + channel;
            if (chunk < chunks) {
                dpre[u] = __ldcg(a.dpres + at), product[u] = __ldcg(a.products + at);
                rstd[u] = statistics_of(a, uint32_t(chunk) / a.g.chunks, channel).rstd;
            }
        }
#pragma unroll
        for (int u = 0; u < merge_batch; ++u) dpres.add(dpre[u]), products.add(product[u] * rstd[u]);
    }
    A sums[2] = {dpres.total(), products.total()};
    team::sum(sums, slots);
    if (team::lane() == 0) store_parameters<T>(a, channel, sums[1], sums[0]);
}

// Part `index` of a vector.
template <int part_bytes, int bytes> __device__ __forceinline__ packed<part_bytes> part_of(const packed<bytes> &v, int index) {
    packed<part_bytes> part;
    constexpr int words = int(sizeof(part.word) / sizeof(part.word[0]));
#pragma unroll
    for (int i = 0; i < words; ++i) part.word[i] = v.word[index * words + i];
    return part;
}
template <int part_bytes, int bytes> __device__ __forceinline__ void set_part(packed<bytes> &v, int index, const packed<part_bytes> &part) {
    constexpr int words = int(sizeof(part.word) / sizeof(part.word[0]));
#pragma unroll
    for (int i = 0; i < words; ++i) v.word[index * words + i] = part.word[i];
}

// Parameters and statistics of a thread's channels, and its place in every tensor.
template <typename T, int vec_bytes, bool has_extras> struct backward_tile {
    using A = accumulator_t<T>;
    static constexpr int width = vec_bytes / int(sizeof(T));
    A mean[width], scale[width], bias[has_extras ? width : 1]; // scale: rstd * weight
    const T *dy, *x, *extra;
    uint64_t dy_step, x_step, extra_step;

    __device__ __forceinline__ backward_tile(const channel_last_backward_arguments<A> &a, const channel_tile<width> &t) {
        const uint64_t step = a.g.row_step;
        dy = t.template at<T>(a.o.dy, a.p.dy), x = t.template at<T>(a.o.x, a.p.x);
        dy_step = step * a.p.dy.spatial, x_step = step * a.p.x.spatial;
        if constexpr (has_extras) {
            extra = a.o.y ? t.template at<T>(a.o.y, a.p.y) : t.template at<T>(a.o.residual, a.p.residual);
            extra_step = step * (a.o.y ? a.p.y.spatial : a.p.residual.spatial);
        }
    }

    // The values of the tile's channels, 0 mean, 1 rstd * weight, 2 bias, through `values`; by all threads of the block, which wait
    // before and after. more(c, channel, weight, rstd) sets others.
    template <typename More> __device__ __forceinline__ void load_channels(const channel_last_backward_arguments<A> &a, const channel_tile<width> &t,
                                                                           const tile_values<5, A> &values, const More &more) {
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < values.channels && t.begin + c < a.g.channels; c += blockDim.x) {
            const uint32_t channel = t.begin + c;
            const A weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1));
            if constexpr (has_extras) values.at(2, c) = parameter<T>(a.o.bias, a.weight_is_wide, channel, A(0));
            const mean_and_rstd<A> s = statistics_of(a, t.sample, channel);
            values.at(0, c) = s.mean, values.at(1, c) = s.rstd * weight;
            more(c, channel, weight, s.rstd);
        }
        __syncthreads();
        if (t.rows == 0) return;
        values.get(0, t.channel - t.begin, mean), values.get(1, t.channel - t.begin, scale);
        if constexpr (has_extras) values.get(2, t.channel - t.begin, bias);
    }

    // Channels that a thread computes at a time: the activation of eight takes too many registers.
    static constexpr int part = has_extras && width == 8 ? 4 : width, parts = width / part, part_bytes = part * int(sizeof(T));

    // dpre and d of a part of a vector.
    __device__ __forceinline__ void gradient(const channel_last_backward_arguments<A> &a, int index, const packed<vec_bytes> &dy_packed,
                                             const packed<vec_bytes> &x_packed, const packed<vec_bytes> &extra_packed, A (&dpre)[part],
                                             A (&d)[part]) const {
        unpack<T>(part_of<part_bytes>(dy_packed, index), dpre);
        unpack<T>(part_of<part_bytes>(x_packed, index), d);
        const int first = index * part;
#pragma unroll
        for (int i = 0; i < part; ++i) d[i] -= mean[first + i];
        if constexpr (has_extras) {
            A pre[part] = {};
            if (a.reads_extra) unpack<T>(part_of<part_bytes>(extra_packed, index), pre);
            if (!a.o.y) {
#pragma unroll
                for (int i = 0; i < part; ++i) pre[i] += fma(d[i], scale[first + i], bias[first + i]);
            }
            differentiate(a.p.activation, pre, dpre);
        }
    }
};

// Adds a vector to sums of dpre and of dpre * d, if dpre is dy.
template <typename T, int width> __device__ __forceinline__ void add_gradients(const packed<16> &dy, const packed<16> &x, const float (&mean)[width],
                                                                               float (&dpres)[width], float (&products)[width]) {
    float dpre[width], d[width];
    unpack<T>(dy, dpre);
    unpack<T>(x, d);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        dpres[i] += dpre[i];
        products[i] = fmaf(dpre[i], d[i] - mean[i], products[i]);
    }
}

// The numbers of a thread's channels from which dx follows, if dpre is dy. scale: rstd * weight; offset: -rstd * mean(g); slope: see gradient_means,
// times -rstd.
template <typename T> struct vector_gradient {
    static constexpr int width = 16 / int(sizeof(T));
    float mean[width], scale[width], offset[width], slope[width];

    __device__ __forceinline__ packed<16> of(const packed<16> &dy, const packed<16> &x) const {
        float dpre[width], d[width];
        unpack<T>(dy, dpre);
        unpack<T>(x, d);
#pragma unroll
        for (int i = 0; i < width; ++i) d[i] = fmaf(dpre[i], scale[i], fmaf(d[i] - mean[i], slope[i], offset[i]));
        return pack<T, 16>(d);
    }
};

// Writes dx and dresidual of a thread's rows. values: 3 -rstd * mean(g), 4 -rstd * slope; see gradient_means.
template <typename T, int vec_bytes, bool has_extras, bool streamed> struct gradient_writer {
    using A = accumulator_t<T>;
    static constexpr int width = vec_bytes / int(sizeof(T));
    A offset[width] = {}, slope[width] = {};
    T *dx, *dresidual;
    uint64_t dx_step, dresidual_step;

    __device__ __forceinline__ gradient_writer(const channel_last_backward_arguments<A> &a, const channel_tile<width> &t,
                                               const tile_values<5, A> &values)
        : dx(t.template at<T>(a.o.dx, a.p.dx)), dresidual(t.template at<T>(a.o.dresidual, a.p.dresidual)), dx_step(a.g.row_step * a.p.dx.spatial),
          dresidual_step(a.g.row_step * a.p.dresidual.spatial) {
        if (t.rows) values.get(3, t.channel - t.begin, offset), values.get(4, t.channel - t.begin, slope);
    }
    __device__ __forceinline__ void operator()(const channel_last_backward_arguments<A> &a, const backward_tile<T, vec_bytes, has_extras> &b,
                                               uint32_t row, const packed<vec_bytes> &dy, const packed<vec_bytes> &x,
                                               const packed<vec_bytes> &extra) const {
        packed<vec_bytes> dx_packed, dpre_packed;
#pragma unroll
        for (int k = 0; k < b.parts; ++k) {
            A dpre[b.part], d[b.part];
            b.gradient(a, k, dy, x, extra, dpre, d);
            if constexpr (has_extras) set_part(dpre_packed, k, pack<T, b.part_bytes>(dpre));
#pragma unroll
            for (int i = 0; i < b.part; ++i) {
                const int c = k * b.part + i;
                d[i] = fma(dpre[i], b.scale[c], fma(d[i], slope[c], offset[c]));
            }
            set_part(dx_packed, k, pack<T, b.part_bytes>(d));
        }
        if (has_extras && a.o.dresidual) store<vec_bytes, streamed>(dresidual + row * dresidual_step, dpre_packed);
        if (a.o.dx) store<vec_bytes, streamed>(dx + row * dx_step, dx_packed);
    }
};

} // namespace bops
