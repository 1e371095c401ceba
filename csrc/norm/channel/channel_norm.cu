// The forward kernels of BatchNorm, GroupNorm and InstanceNorm over contiguous layouts.
#include "channel_norm_held.cuh"
#include "channel_norm_relay.cuh"
#include "channel_norm_segment.cuh"
#include "channel_norm_single_held.cuh"
#include "channel_norm_stripe.cuh"
#include "channel_norm_split.cuh"

namespace bops {

__global__ void channel_norm_count_batch(int64_t *num_batches) { ++*num_batches; }

bops_status channel_norm_contiguous(const bops_channel_norm_params &p, const bops_channel_norm_choice &c, bops_dtype dtype, bops_dtype weight_dtype,
                                    const bops_channel_norm_operands &o, void *workspace, const kernel_call &call) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (c.variant == BOPS_CHANNEL_NORM_HELD) return channel_norm_held_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_RELAY || c.variant == BOPS_CHANNEL_NORM_COOPERATIVE)
            return channel_norm_relay_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_SINGLE && c.cached)
            return channel_norm_single_held_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_SINGLE) return channel_norm_single_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_SEGMENT) return channel_norm_segment_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_STRIPE) return channel_norm_stripe_kernels<T>(p, c, dtype, weight_dtype, o, call);
        return channel_norm_split<T>(p, c, dtype, weight_dtype, o, workspace, call);
    });
}

} // namespace bops
