// The forward kernels of BatchNorm, GroupNorm and InstanceNorm over channels-last layouts.
#include "channels_last_norm_cluster.cuh"
#include "channels_last_norm_resident.cuh"
#include "channels_last_norm_rows.cuh"
#include "channels_last_norm_slabs.cuh"
#include "channels_last_norm_split.cuh"

BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_split, bops_channels_last_norm_split_choice, , for_float)
BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_cooperative, bops_channels_last_norm_cooperative_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_cluster, bops_channels_last_norm_cluster_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_resident, bops_channels_last_norm_resident_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_slabs, bops_channels_last_norm_slabs_choice, , for_narrow)
BOPS_DEFINE_CHANNEL_NORM_FORM(channels_last_norm_rows, bops_channels_last_norm_rows_choice, , for_narrow)
