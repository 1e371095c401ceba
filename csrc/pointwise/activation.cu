// Activations, forward.
#include "../common/activation.cuh"
#include "pointwise.cuh"

namespace bops {
namespace {

template <typename T, int bytes> __global__ void __launch_bounds__(pointwise_threads, pointwise_blocks<T>)
    activation(bops_activation kind, const T *x, T *y, uint64_t elements) {
    constexpr int width = pointwise_width<T, bytes>;
    const uint64_t first = (uint64_t(blockIdx.x) * pointwise_threads + threadIdx.x) * width;
    if (first >= elements) return;
    // 1. The elements.
    accumulator_t<T> v[width];
    unpack<T>(fetch<T, bytes>(x + first, elements - first), v);
    // 2. y.
    activate<true, sizeof(T) == 2 ? results_of_16_bits : results_of_32_bits>(kind, v);
    put<T, bytes>(y + first, elements - first, pack<T, bytes>(v));
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_activation_params &params, const bops_activation_choice &choice,
                                                   const bops_activation_operands &operands, void *, const Action &action) {
    return for_vectors(dtype, choice.vec_bytes, [&](auto tag, auto bytes) {
        using T = typename decltype(tag)::type;
        return action(activation<T, bytes>, pointwise_shape(params.elements, pointwise_width<T, bytes>), params.activation,
                      static_cast<const T *>(operands.x), static_cast<T *>(operands.y), params.elements);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_activation, bops_dtype, bops_activation_params, bops_activation_choice, bops_activation_operands, bops::with_kernel)
