// gemm_mma: tensor cores of compute capability 8.0 and later, through mma.sync. Factors are f16, bf16, or f32 rounded to tf32.
// Compiled once for all architectures.
#include "mma.cuh"

namespace bops {
namespace gemm {
namespace {

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_gemm_params &params, const bops_gemm_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return for_tile(choice, [&](auto tile, auto left, auto right) {
            return with_sums<mma_sums<T, decltype(tile)::value, decltype(left)::value, decltype(right)::value>>(params, choice, operands, action);
        });
    });
}

} // namespace
} // namespace gemm
} // namespace bops

BOPS_DEFINE_FORM(bops_gemm_mma, bops_dtype, bops_gemm_params, bops_gemm_choice, bops_gemm_operands, bops::gemm::with_kernel)
