// The gradient kernels of BatchNorm, GroupNorm and InstanceNorm over contiguous layouts.
#include "channel_norm_backward_held.cuh"
#include "channel_norm_backward_relay.cuh"
#include "channel_norm_backward_segment.cuh"
#include "channel_norm_backward_single.cuh"
#include "channel_norm_backward_single_masked.cuh"
#include "channel_norm_backward_stripe.cuh"
#include "channel_norm_backward_split.cuh"

namespace bops {

bops_status channel_norm_backward_contiguous(const bops_channel_norm_backward_params &p, const bops_channel_norm_choice &c, bops_dtype dtype,
                                             bops_dtype weight_dtype, const bops_channel_norm_backward_operands &o, void *workspace,
                                             const kernel_call &call) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (c.variant == BOPS_CHANNEL_NORM_HELD || c.variant == BOPS_CHANNEL_NORM_COOPERATIVE)
            return channel_norm_backward_held_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_RELAY) return channel_norm_backward_relay_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_SINGLE && !p.groups)
            return channel_norm_backward_single_masked_kernels<T>(p, c, dtype, weight_dtype, o, call);
        if (c.variant == BOPS_CHANNEL_NORM_SINGLE) return channel_norm_backward_single_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_SEGMENT) return channel_norm_backward_segment_kernels<T>(p, c, dtype, weight_dtype, o, workspace, call);
        if (c.variant == BOPS_CHANNEL_NORM_STRIPE) return channel_norm_backward_stripe_kernels<T>(p, c, dtype, weight_dtype, o, call);
        return channel_norm_backward_split<T>(p, c, dtype, weight_dtype, o, workspace, call);
    });
}

} // namespace bops
