// The forward kernels of BatchNorm, GroupNorm and InstanceNorm over contiguous layouts.
#include "channel_norm_relay.cuh"
#include "channel_norm_segment.cuh"
#include "channel_norm_single_held.cuh"
#include "channel_norm_stripe.cuh"
#include "channel_norm_split.cuh"

namespace bops {

__global__ void channel_norm_count_batch(int64_t *num_batches) { ++*num_batches; }

} // namespace bops

BOPS_DEFINE_CHANNEL_NORM_FORM(channel_norm_split, bops_channel_norm_split_choice, , for_float)
BOPS_DEFINE_CHANNEL_NORM_FORM(channel_norm_stripe, bops_channel_norm_stripe_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channel_norm_segment, bops_channel_norm_segment_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channel_norm_single, bops_channel_norm_single_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channel_norm_relay, bops_channel_norm_relay_choice, , for_narrow)
