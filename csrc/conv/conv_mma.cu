// conv_mma: tensor cores of compute capability 8.0 and later, through mma.sync. Factors are f16, bf16, or f32 rounded to tf32.
// Compiled once for all architectures.
#include "../gemm/mma.cuh"
#include "steps.cuh"

namespace bops {
namespace conv {
namespace {

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_conv_params &params, const bops_conv_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return gemm::for_tile(choice.product, [&](auto tile, auto left, auto right) {
            return with_sums<gemm::mma_sums<T, decltype(tile)::value, decltype(left)::value, decltype(right)::value>>(params, choice, operands,
                                                                                                                      action);
        });
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_mma, bops_dtype, bops_conv_params, bops_conv_choice, bops_gemm_operands, bops::conv::with_kernel)
