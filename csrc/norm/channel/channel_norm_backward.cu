// The gradient kernels of BatchNorm, GroupNorm and InstanceNorm over contiguous layouts.
#include "channel_norm_backward_held.cuh"
#include "channel_norm_backward_relay.cuh"
#include "channel_norm_backward_segment.cuh"
#include "channel_norm_backward_single.cuh"
#include "channel_norm_backward_single_masked.cuh"
#include "channel_norm_backward_stripe.cuh"
#include "channel_norm_backward_split.cuh"

BOPS_DEFINE_FORM(channel_norm_backward_split, bops_channel_norm_split_choice, backward_, dresidual)
BOPS_DEFINE_FORM(channel_norm_backward_stripe, bops_channel_norm_stripe_choice, backward_, dresidual)
BOPS_DEFINE_FORM(channel_norm_backward_segment, bops_channel_norm_segment_choice, backward_, dresidual)
BOPS_DEFINE_FORM(channel_norm_backward_single, bops_channel_norm_backward_single_choice, backward_, dresidual)
BOPS_DEFINE_FORM(channel_norm_backward_single_masked, bops_channel_norm_backward_single_masked_choice, backward_, dresidual)
BOPS_DEFINE_FORM(channel_norm_backward_held, bops_channel_norm_backward_held_choice, backward_, dresidual)
BOPS_DEFINE_FORM(channel_norm_backward_relay, bops_channel_norm_backward_relay_choice, backward_, dresidual)
