// What all kernels of BatchNorm, GroupNorm and InstanceNorm share: statistics, running statistics and parameters of a channel.
#pragma once
#include "../../bops_channel_norm.h"
#include "../../common/activation.cuh"
#include "../../common/row_reduce.cuh"

namespace bops {

// The statistics of one group. The mean is shift + correction, where shift is a value near the mean: deviations from it lose no precision.
template <typename A> struct channel_statistics {
    A shift, correction, variance, rstd;
    __device__ __forceinline__ A mean() const { return shift + correction; }
};

// The statistics that follow from the moments of a whole group. Without elements the mean is 0 and rstd is NaN, since eps is NaN then. With an
// infinity among the elements both are NaN.
template <typename A> __device__ __forceinline__ channel_statistics<A> finish_statistics(const moments<A> &total, A reciprocal_count, A eps) {
    const A infinite = total.sum * reciprocal_count, correction = fma(A(0), infinite, infinite);
    const A variance = at_least_zero(total.square * reciprocal_count - correction * correction);
    return {total.shift, correction, variance, reciprocal_root_of_squares(variance + eps)};
}

// The statistics of a channel in inference: its running mean and variance.
template <typename A>
__device__ __forceinline__ channel_statistics<A> running_statistics(const void *mean, const void *var, uint64_t channel, A eps) {
    const A variance = __ldg(static_cast<const A *>(var) + channel);
    return {__ldg(static_cast<const A *>(mean) + channel), A(0), variance, reciprocal_root(variance + eps)};
}

// Saves the mean and rstd of a group, if they are wanted.
template <typename A> __device__ __forceinline__ void save_statistics(const channel_statistics<A> &s, void *mean, void *rstd, uint64_t group) {
    if (mean) static_cast<A *>(mean)[group] = s.mean();
    if (rstd) static_cast<A *>(rstd)[group] = s.rstd;
}

// The weight m of a batch in running statistics, as one number w that gives both m and 1 - m precisely: w = m if m <= 1/2, else w = -(1 - m), which
// is -0 for m = 1. (If an m near 1 were rounded to f32, its 1 - m would have few bits left.)
template <typename A> __host__ __forceinline__ A running_weight(double momentum) { return momentum <= 0.5 ? A(momentum) : -A(1.0 - momentum); }

// The weight for `momentum`, or with a counter t for m = 1 / (t + 1). A later launch advances the counter, after every channel has read it.
template <typename A> __device__ __forceinline__ A running_momentum(const void *num_batches, A momentum) {
    if (!num_batches) return momentum;
    const int64_t count = *static_cast<const int64_t *>(num_batches) + 1;
    return count == 1 ? -A(0) : A(1) / A(count);
}
// (1 - m) running + m batch
template <typename A> __device__ __forceinline__ A running_after(A weight, A running, A batch) {
    const A small = fabs(weight), large = A(1) - small;
    const bool is_kept = signbit(weight);
    return fma(is_kept ? large : small, batch, (is_kept ? small : large) * running);
}

// Updates the running mean and the running variance (by the unbiased variance of the batch), unless their pointer is null.
template <typename A> __device__ __forceinline__ void update_running(void *running_mean, void *running_var, const void *num_batches, A momentum,
                                                                     uint64_t channel, A mean, A unbiased_variance) {
    const A m = running_momentum(num_batches, momentum);
    if (running_mean) {
        A &to = static_cast<A *>(running_mean)[channel];
        to = running_after(m, to, mean);
    }
    if (running_var) {
        A &to = static_cast<A *>(running_var)[channel];
        to = running_after(m, to, unbiased_variance);
    }
}

// Parameter `index`, of type T, or f32 if is_wide; `absent` if there are no such parameters.
template <typename T, typename A> __device__ __forceinline__ A parameter(const void *from, bool is_wide, uint64_t index, A absent) {
    if (!from) return absent;
    if (sizeof(T) != 4 && is_wide) return A(__ldg(static_cast<const float *>(from) + index));
    return widen(__ldg(static_cast<const T *>(from) + index));
}

// The parameters and running statistics of a channel as they are before its batch is known, so that kernels can load them early.
template <typename A> struct channel_before {
    A weight, bias, momentum, running_mean, running_var;

    template <typename T, typename Operands>
    __device__ __forceinline__ void load(const Operands &o, bool weight_is_wide, A fixed_momentum, uint64_t channel) {
        weight = parameter<T>(o.weight, weight_is_wide, channel, A(1)), bias = parameter<T>(o.bias, weight_is_wide, channel, A(0));
        momentum = running_momentum(o.num_batches, fixed_momentum);
        running_mean = o.running_mean ? static_cast<const A *>(o.running_mean)[channel] : A(0);
        running_var = o.running_var ? static_cast<const A *>(o.running_var)[channel] : A(0);
    }
    template <typename Operands> __device__ __forceinline__ void update(const Operands &o, uint64_t channel, A mean, A unbiased_variance) const {
        if (o.running_mean) static_cast<A *>(o.running_mean)[channel] = running_after(momentum, running_mean, mean);
        if (o.running_var) static_cast<A *>(o.running_var)[channel] = running_after(momentum, running_var, unbiased_variance);
    }
};

// The deviations of a vector's elements from a value near their mean.
template <typename T, int bytes, typename A, int width>
__device__ __forceinline__ void unpack_deviations(const packed<bytes> &data, A about, A (&d)[width]) {
    unpack<T>(data, d);
#pragma unroll
    for (int i = 0; i < width; ++i) d[i] -= about;
}

// Writes the gradient of a parameter, of type T or f32, if it is wanted.
template <typename T, typename A> __device__ __forceinline__ void store_parameter(void *to, bool is_wide, uint64_t index, A value) {
    if (!to) return;
    if (sizeof(T) != 4 && is_wide) static_cast<float *>(to)[index] = float(value);
    else static_cast<T *>(to)[index] = narrow<T>(value);
}

// Division of 32-bit numbers by a divisor that the host knows: a multiplication and shifts (Granlund and Montgomery, 1994, section 4).
struct divisor {
    // n / value = (high + (n - high) / 2) >> (shift - 1), where high is the upper half of magic * n, and value is above 1.
    uint32_t value, magic, shift;

    divisor() = default;
    __host__ explicit divisor(uint64_t by) : value(uint32_t(by < 1 ? 1 : by > 0xffffffff ? 0xffffffff : by)) {
        uint32_t bits = 0;
        while ((uint64_t(1) << bits) < value) ++bits;
        magic = uint32_t((((uint64_t(1) << bits) - value) << 32) / value + 1), shift = bits;
    }
    __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
        const uint32_t high = __umulhi(magic, n);
        return shift ? (high + ((n - high) >> 1)) >> (shift - 1) : n;
    }
};

} // namespace bops
