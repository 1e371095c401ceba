// What the forward kernels of BatchNorm, GroupNorm and InstanceNorm over channels-last layouts share: arguments, statistics of groups, outputs.
#pragma once
#include "channels_last_norm_tiles.cuh"

namespace bops {

template <typename A> struct channel_last_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    channel_last_shape g;
    A eps, momentum, reciprocal_count, unbias; // of the elements of a group; unbias: count / (count - 1)
    uint32_t weight_is_wide;
    uint32_t slots;  // places in shared memory: each for a batch of a ring or, in `cluster`, for one of a thread's rows, all of which stay there
    uint32_t cached; // batches that the L2 is to keep
    uint32_t overlaps;
    A *shifts, *sums, *squares;        // [samples * chunks][channels]
    channel_statistics<A> *statistics; // [samples or 1][groups]
};

// The kernel arguments that all forms share.
template <typename T, int vec_bytes = 16, typename Choice>
channel_last_arguments<accumulator_t<T>> last_arguments(const forward_call<Choice> &f, const last_tiling &tiling, uint32_t overlaps = 0) {
    using A = accumulator_t<T>;
    const bops_channel_norm_params &p = f.p;
    channel_last_arguments<A> a = {};
    a.p = p, a.o = f.o, a.g = last_shape(p, tiling, vec_bytes / sizeof(T));
    if (a.g.is_merged)
        for (bops_channel_strides *s : {&a.p.x, &a.p.residual, &a.p.y}) *s = merged_strides(*s, p.spatial);
    const double count = double(p.spatial) * (a.g.per_sample ? double(a.g.group_channels) : double(p.batch));
    a.eps = count > 0 ? A(p.eps) : A(NAN), a.momentum = running_weight<A>(p.momentum);
    a.reciprocal_count = count > 0 ? A(1 / count) : A(0), a.unbias = A(count / (count - 1));
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = overlaps;
    const uint64_t sets = a.g.per_sample ? a.g.samples : 1, plane = uint64_t(a.g.samples) * a.g.chunks * p.channels;
    a.statistics = static_cast<channel_statistics<A> *>(f.workspace);
    a.shifts = reinterpret_cast<A *>(a.statistics + sets * a.g.groups), a.sums = a.shifts + plane, a.squares = a.sums + plane;
    return a;
}

// The moments of a group from those of its chunks; part(chunk, channel, count) reads the moments of a part and its number of elements.
template <bool is_block, typename A, typename Part>
__device__ __forceinline__ moments<A> merge_parts(uint32_t chunks, uint32_t channels, A reciprocal_count, const Part &part, A (*slots)[team_slots]) {
    using team = list_team<is_block>;
    const bool is_short = uint64_t(chunks) * channels <= uint64_t(merge_batch) * team::lanes(); // one batch: it stays in registers
    moments<A> batch[merge_batch];
    A count[merge_batch];
    const auto read = [&](part_walk &walk) {
#pragma unroll
        for (int u = 0; u < merge_batch; ++u, walk.advance()) {
            count[u] = 0;
            if (walk.chunk < chunks) batch[u] = part(walk.chunk, walk.channel, count[u]);
        }
    };
    cascade<A> means, sums, squares;
    const part_walk start(team::lane(), team::lanes(), channels);
    for (part_walk walk = start; walk.chunk < chunks;) {
        read(walk);
#pragma unroll
        for (int u = 0; u < merge_batch; ++u)
            if (count[u] > A(0)) means.add(batch[u].shift * count[u]);
    }
    A mean[1] = {means.total()};
    team::sum(mean, slots);
    const A shift = rounded_product(mean[0], reciprocal_count);
    for (part_walk walk = start; walk.chunk < chunks;) {
        if (is_short) walk.chunk = chunks;
        else read(walk);
#pragma unroll
        for (int u = 0; u < merge_batch; ++u) {
            if (count[u] > A(0)) {
                moments<A> about = {shift, A(0), A(0)};
                merge(about, batch[u], count[u]);
                sums.add(about.sum);
                squares.add(about.square);
            }
        }
    }
    A both[2] = {sums.total(), squares.total()};
    team::sum(both, slots + 1);
    return {shift, both[0], both[1]};
}

// Stores the statistics of a group; is_first: by the one thread that also writes outputs.
template <typename A> __device__ __forceinline__ channel_statistics<A> finish_group(const channel_last_arguments<A> &a, const moments<A> &total,
                                                                                    uint64_t group, bool is_first) {
    const channel_statistics<A> s = finish_statistics(total, a.reciprocal_count, a.eps);
    if (is_first) {
        save_statistics(s, a.o.mean, a.o.rstd, group);
        if (!a.g.per_sample) update_running(a.o.running_mean, a.o.running_var, a.o.num_batches, a.momentum, group, s.mean(), s.variance * a.unbias);
    }
    return s;
}

// What follows once every group has its statistics: the running statistics of InstanceNorm, which are means over the samples, and the count of
// batches.
template <typename A> __device__ __forceinline__ void finish_running(const channel_last_arguments<A> &a) {
    if (a.o.num_batches && blockIdx.x == 0 && threadIdx.x == 0) ++*static_cast<int64_t *>(a.o.num_batches);
    if (!a.g.per_sample || !(a.o.running_mean || a.o.running_var) || a.p.uses_running) return;
    const A share = A(1) / A(a.g.samples);
    for (uint64_t c = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < a.g.channels; c += uint64_t(gridDim.x) * blockDim.x) {
        cascade<A> mean, variance;
        for (uint64_t n = 0; n < a.g.samples; ++n) {
            const channel_statistics<A> s = a.statistics[n * a.g.channels + c];
            mean.add(s.mean());
            variance.add(s.variance);
        }
        update_running(a.o.running_mean, a.o.running_var, nullptr, a.momentum, c, mean.total() * share, variance.total() * share * a.unbias);
    }
}

// The numbers of a channel in y = (x - shift) * scale + offset, to places of shared memory that are `pitch` apart.
template <typename A> __device__ __forceinline__ void put_scales(A *to, uint32_t pitch, const channel_statistics<A> &s, A weight, A bias) {
    to[0] = s.shift, to[pitch] = s.rstd * weight, to[2 * pitch] = fma(-s.correction, s.rstd * weight, bias);
}

// Those numbers for a thread's channels.
template <typename T, int vec_bytes> struct vector_output {
    static constexpr int width = vec_bytes / int(sizeof(T));
    using A = accumulator_t<T>;
    A shift[width], scale[width], offset[width];

    // As put_scales has put them; from: where those of the thread's first channel are.
    __device__ __forceinline__ void get(const A *from, uint32_t pitch) {
        get_values(from, shift), get_values(from + pitch, scale), get_values(from + 2 * pitch, offset);
    }
    // A vector of y. has_extras: there is a residual or an activation.
    template <bool has_extras> __device__ __forceinline__ packed<vec_bytes> of(const packed<vec_bytes> &x, const channel_last_arguments<A> &a,
                                                                               const packed<vec_bytes> &residual = {}) const {
        A v[width];
        unpack<T>(x, v);
#pragma unroll
        for (int i = 0; i < width; ++i) v[i] = fma(v[i] - shift[i], scale[i], offset[i]);
        if constexpr (has_extras) {
            if (a.o.residual) {
                A r[width];
                unpack<T>(residual, r);
#pragma unroll
                for (int i = 0; i < width; ++i) v[i] += r[i];
            }
            activate(a.p.activation, v);
        }
        return pack<T, vec_bytes>(v);
    }
};

// Writes a thread's rows of y.
template <typename T, int vec_bytes, bool has_extras, bool streamed> struct output_writer : vector_output<T, vec_bytes> {
    using A = accumulator_t<T>;
    const channel_last_arguments<A> &a;
    const uint32_t rows; // of the thread
    const T *const residual;
    T *const y;
    const uint64_t residual_step, y_step;

    __device__ __forceinline__ output_writer(const channel_last_arguments<A> &of, const channel_tile<vec_bytes / int(sizeof(T))> &t)
        : a(of), rows(t.rows), residual(t.template at<T>(a.o.residual, a.p.residual)), y(t.template at<T>(a.o.y, a.p.y)),
          residual_step(uint64_t(a.g.row_step) * a.p.residual.spatial), y_step(uint64_t(a.g.row_step) * a.p.y.spatial) {}

    // Writes a batch of rows from number j on; x: their vectors, of as many rows as there are.
    template <int batch> __device__ __forceinline__ void write(const packed<vec_bytes> (&x)[batch], uint32_t j) const {
        packed<vec_bytes> added[has_extras ? batch : 1];
        if (has_extras && a.o.residual) {
#pragma unroll
            for (int u = 0; u < batch; ++u)
                if (j + u < rows) added[has_extras ? u : 0] = load<vec_bytes>(residual + (j + u) * residual_step);
        }
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (j + u < rows) store<vec_bytes, streamed>(y + (j + u) * y_step, this->template of<has_extras>(x[u], a, added[has_extras ? u : 0]));
    }
};

// The statistics of a channel in a sample, from memory.
template <typename A>
__device__ __forceinline__ channel_statistics<A> statistics_of(const channel_last_arguments<A> &a, uint32_t sample, uint32_t channel) {
    if (a.p.uses_running) return running_statistics(a.o.running_mean, a.o.running_var, channel, a.eps);
    const A *const s = &a.statistics[(a.g.per_sample ? uint64_t(sample) * a.g.groups : 0) + channel / a.g.group_channels].shift;
    return {__ldcg(s), __ldcg(s + 1), A(0), __ldcg(s + 3)};
}

} // namespace bops
