#include "channel_norm_contiguous.cuh"

bops_status bops_batch_norm_backward_prepare(const bops_channel_norm_backward_params *params, const bops_channel_norm_choice *choice,
                                             bops_dtype dtype, bops_dtype weight_dtype, uint32_t has_residual) {
    if (choice->variant >= BOPS_CHANNEL_NORM_LAST_SPLIT)
        return bops::channel_norm_backward_last(*params, *choice, dtype, weight_dtype, has_residual != 0, {}, nullptr, {true, nullptr});
    return bops::channel_norm_backward_contiguous(*params, *choice, dtype, weight_dtype, {}, nullptr, {true, nullptr});
}

bops_status bops_batch_norm_backward_launch(const bops_channel_norm_backward_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                            bops_dtype weight_dtype, const bops_channel_norm_backward_operands *operands, void *workspace,
                                            bops_stream stream) {
    if (choice->variant >= BOPS_CHANNEL_NORM_LAST_SPLIT)
        return bops::channel_norm_backward_last(*params, *choice, dtype, weight_dtype, operands->dresidual != nullptr, *operands, workspace,
                                                {false, stream});
    return bops::channel_norm_backward_contiguous(*params, *choice, dtype, weight_dtype, *operands, workspace, {false, stream});
}
