// conv_mma: tensor cores of compute capability 8.0 and later, through mma.sync. Factors of f16 and bf16, or of f32 that are rounded to tf32.
#include "../gemm/mma.cuh"
#include "steps.cuh"

namespace bops {
namespace conv {
namespace {

template <typename T, int tile, typename Action>
bops_status with_tile(const bops_conv_params &params, const bops_conv_choice &choice, const bops_gemm_operands &operands, const Action &action) {
    if (!choice.product.right_across) return with_sums<gemm::mma_sums<T, tile, false, false>>(params, choice, operands, action);
    if (!choice.product.left_across) return with_sums<gemm::mma_sums<T, tile, false, true>>(params, choice, operands, action);
    return with_sums<gemm::mma_sums<T, tile, true, true>>(params, choice, operands, action);
}

template <typename Action> bops_status with_kernel(const bops_conv_params &params, const bops_conv_choice &choice, bops_dtype dtype,
                                                   const bops_gemm_operands &operands, const Action &action) {
    const auto of_type = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.product.tile == 64 ? with_tile<T, 64>(params, choice, operands, action) : with_tile<T, 128>(params, choice, operands, action);
    };
    switch (dtype) {
    case BOPS_F32: return of_type(type_tag<float>{});
    case BOPS_F16: return of_type(type_tag<__half>{});
    case BOPS_BF16: return of_type(type_tag<__nv_bfloat16>{});
    default: return bops_status(cudaErrorInvalidValue);
    }
}

} // namespace
} // namespace conv
} // namespace bops

bops_status bops_conv_mma_prepare(const bops_conv_params *params, const bops_conv_choice *choice, bops_dtype dtype) {
    return bops::conv::with_kernel(*params, *choice, dtype, {}, bops::prepare_action{});
}

bops_status bops_conv_mma_launch(const bops_conv_params *params, const bops_conv_choice *choice, bops_dtype dtype, const bops_gemm_operands *operands,
                                 bops_stream stream) {
    return bops::conv::with_kernel(*params, *choice, dtype, *operands, bops::launch_action{stream});
}
