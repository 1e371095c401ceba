#include "row_norm.cuh"

bops_status bops_layer_norm_prepare(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                    bops_dtype weight_dtype) {
    return bops::for_row_norm_kernels<true>(*params, {}, *choice, dtype, weight_dtype, nullptr, bops::prepare_action{});
}

bops_status bops_layer_norm_launch(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype,
                                   const bops_row_norm_operands *operands, void *workspace, bops_stream stream) {
    return bops::for_row_norm_kernels<true>(*params, *operands, *choice, dtype, weight_dtype, workspace, bops::launch_action{stream});
}
