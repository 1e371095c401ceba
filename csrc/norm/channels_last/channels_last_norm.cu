// The forward kernels of BatchNorm, GroupNorm and InstanceNorm over channels-last layouts.
#include "channels_last_norm_cluster.cuh"
#include "channels_last_norm_rows.cuh"
#include "channels_last_norm_slabs.cuh"

namespace bops {

bops_status channels_last_norm(const bops_channel_norm_params &p, const bops_channel_norm_choice &c, bops_dtype dtype, bops_dtype weight_dtype,
                               bool has_residual, const bops_channel_norm_operands &o, void *workspace, const kernel_call &call) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return channel_last_kernels<T>(p, c, weight_dtype != dtype, has_residual, o, workspace, call);
    });
}

} // namespace bops
