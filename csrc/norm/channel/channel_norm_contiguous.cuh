// BatchNorm, GroupNorm and InstanceNorm over contiguous layouts: a group is `segments` runs of `spatial` contiguous elements each.
#pragma once
#include "../../common/dispatch.cuh"
#include "../../common/launch.cuh"
#include "channel_norm.cuh"

namespace bops {

// Two or three specialisations of a kernel, each more general than the one before.
template <typename... P> struct specialisations { void (*kernel[3])(P...); };

template <typename... P> specialisations<P...> specialised(void (*first)(P...), void (*second)(P...), void (*third)(P...) = nullptr) {
    return {{first, second, third}};
}

// An action on kernels: it prepares them or launches them.
struct kernel_call {
    bool prepares;
    bops_stream stream;

    kernel_call(prepare_action) : prepares(true), stream(nullptr) {}
    kernel_call(launch_action action) : prepares(false), stream(action.stream) {}

    template <typename... P> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const std::remove_cv_t<P> &...arguments) const {
        return prepares ? prepare(kernel, shape) : launch(kernel, shape, stream, arguments...);
    }

    // Launches specialisation `first`. If the action prepares, it prepares the later ones as well, since operands, which are not known yet, may need
    // them instead.
    template <typename... P>
    bops_status one_of(int first, const specialisations<P...> &of, const launch_shape &shape, const std::remove_cv_t<P> &...arguments) const {
        bops_status status = (*this)(of.kernel[first], shape, arguments...);
        for (int i = first + 1; prepares && i < 3 && of.kernel[i] && !status; ++i) status = (*this)(of.kernel[i], shape, arguments...);
        return status;
    }
};

// What the types of a call decide, beside x's.
struct form_types {
    bool weight_is_wide; // weight and bias are f32, x is not
    bool has_residual;   // there is a residual; backward, its gradient is wanted
};

inline form_types types_of(const bops_channel_norm_specialisation &of) { return {of.weight_dtype != of.dtype, of.has_residual != 0}; }

// What the host function of a form is told, and what it is to do with the form's kernels.
template <typename Params, typename Choice, typename Operands> struct form_call {
    const Params &p;
    const Choice &c;
    const Operands &o;
    void *workspace;
    form_types types;
    kernel_call call;

    // Whether there is an activation or a residual.
    bool has_extras() const { return types.has_residual || p.activation != BOPS_IDENTITY; }
    // The launch of the form's main kernel.
    launch_shape shape(uint32_t threads, uint32_t shared_bytes = 0) const {
        launch_shape shape;
        shape.grid = dim3(c.blocks), shape.block = dim3(threads), shape.shared_bytes = shared_bytes, shape.overlaps_previous = c.overlaps != 0;
        return shape;
    }
};
template <typename Choice> using forward_call = form_call<bops_channel_norm_params, Choice, bops_channel_norm_operands>;
template <typename Choice> using backward_call = form_call<bops_channel_norm_backward_params, Choice, bops_channel_norm_backward_operands>;

// Defines the functions of a form, declared by BOPS_CHANNEL_NORM_FORM, by `form`_kernels<T>. for_dtype: for_float or for_narrow.
#define BOPS_DEFINE_CHANNEL_NORM_FORM(form, choice_type, pass, for_dtype)                                                                            \
    BOPS_DEFINE_FORM(bops_##form, bops_channel_norm_specialisation, bops_channel_norm_##pass##params, choice_type,                                   \
                     bops_channel_norm_##pass##operands,                                                                                             \
                     ([](const auto &of, const auto &params, const auto &choice, const auto &operands, void *workspace, bops::kernel_call call) {    \
                         using bops::form_call;                                                                                                      \
                         const form_call<bops_channel_norm_##pass##params, choice_type, bops_channel_norm_##pass##operands> f = {                    \
                             params, choice, operands, workspace, bops::types_of(of), call};                                                         \
                         return bops::for_dtype(of.dtype, [&](auto tag) { return bops::form##_kernels<typename decltype(tag)::type>(f); });          \
                     }))

// Reads a kernel's arguments into the constant cache, so that later instructions do not miss there. It costs nothing if it is done before the wait
// for the previous kernel.
template <typename Arguments> __device__ __forceinline__ void fetch_arguments(const Arguments &arguments) {
    constexpr size_t line = 64; // bytes of a line of the constant cache
#pragma unroll
    for (size_t at = 0; at < sizeof(Arguments); at += line) {
        uint32_t word;
        memcpy(&word, reinterpret_cast<const char *>(&arguments) + at, sizeof(word));
        asm volatile("" ::"r"(word));
    }
}

// Makes the compiler compute a value here, not where it is used.
__device__ __forceinline__ void compute_here(uint32_t value) { asm volatile("" ::"r"(value)); }
__device__ __forceinline__ void compute_here(const void *value) { asm volatile("" ::"l"(value)); }

// Which sample, channel and group a segment belongs to. Segments are numbered as rows: row r is channel r % channels of sample r / channels.
struct segment_geometry {
    uint64_t rows, groups, count; // segments, groups, elements of a group
    uint32_t segments, channels;  // segments of a group; channels of a sample
    uint32_t inner;               // groups of a sample; if is_batch, its channels
    uint32_t is_batch;            // a group is a channel over all samples
    divisor by_channels, by_segments, by_inner;

    // sample_groups: groups of one sample, 0 if a group is a channel of all samples.
    __host__ void set(uint64_t batch, uint64_t all_channels, uint64_t spatial, uint64_t sample_groups) {
        is_batch = sample_groups == 0;
        rows = batch * all_channels;
        channels = uint32_t(all_channels);
        inner = uint32_t(is_batch ? all_channels : sample_groups);
        groups = is_batch ? all_channels : batch * sample_groups;
        segments = uint32_t(is_batch ? batch : sample_groups ? all_channels / sample_groups : 0);
        count = segments * spatial;
        by_channels = divisor(channels), by_segments = divisor(segments), by_inner = divisor(inner);
    }

    __device__ __forceinline__ void split(uint32_t row, uint32_t &sample, uint32_t &channel) const {
        sample = by_channels.quotient(row);
        channel = row - sample * channels;
    }
    __device__ __forceinline__ uint32_t group_of(uint32_t sample, uint32_t channel) const {
        return is_batch ? channel : sample * inner + by_segments.quotient(channel);
    }
    // Segment k of a group.
    __device__ __forceinline__ void segment(uint32_t group, uint32_t k, uint32_t &sample, uint32_t &channel) const {
        if (is_batch) {
            sample = k, channel = group;
        } else {
            sample = by_inner.quotient(group);
            channel = (group - sample * inner) * segments + k;
        }
    }
    __device__ __forceinline__ uint64_t row_of(uint32_t sample, uint32_t channel) const { return uint64_t(sample) * channels + channel; }
};

__device__ __forceinline__ uint64_t segment_offset(const bops_channel_strides &s, uint32_t sample, uint32_t channel) {
    return sample * s.batch + channel * s.channel;
}

// Number of threads that go through a list of `count` items together: a power of two up to 32, or `most` if a warp would take more than two turns.
__host__ inline uint32_t team_for(uint64_t count, uint32_t most) {
    uint32_t team = 1;
    while (team < 32 && team < count) team *= 2;
    return count > 64 ? most : team;
}

} // namespace bops
