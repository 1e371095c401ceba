#include "row_norm_backward.cuh"

bops_status bops_layer_norm_backward_prepare(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                             bops_dtype weight_dtype, uint32_t has_dh) {
    return bops::for_row_norm_backward_kernels<true>(*params, {}, *choice, dtype, weight_dtype, has_dh != 0, nullptr, bops::prepare_action{});
}

bops_status bops_layer_norm_backward_launch(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                            bops_dtype weight_dtype, const bops_row_norm_backward_operands *operands, void *workspace,
                                            bops_stream stream) {
    return bops::for_row_norm_backward_kernels<true>(*params, *operands, *choice, dtype, weight_dtype, operands->dh != nullptr, workspace,
                                                     bops::launch_action{stream});
}
