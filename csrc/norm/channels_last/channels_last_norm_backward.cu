// The gradient kernels of BatchNorm, GroupNorm and InstanceNorm over channels-last layouts.
#include "channels_last_norm_backward_cluster.cuh"
#include "channels_last_norm_backward_resident.cuh"
#include "channels_last_norm_backward_rows.cuh"

namespace bops {

bops_status channel_norm_backward_last(const bops_channel_norm_backward_params &p, const bops_channel_norm_choice &c, bops_dtype dtype,
                                       bops_dtype weight_dtype, bool has_residual, const bops_channel_norm_backward_operands &o, void *workspace,
                                       const kernel_call &call) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return channel_last_backward_kernels<T>(p, c, weight_dtype != dtype, has_residual, o, workspace, call);
    });
}

} // namespace bops
