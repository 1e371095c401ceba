// Gradients through activations.
#include "../common/activation.cuh"
#include "pointwise.cuh"

namespace bops {
namespace {

// Multiplies gradients by the derivative, which is a function of the results y of a relu, sigmoid or tanh.
template <typename A, int count>
__device__ __forceinline__ void differentiate_from_output(bops_activation kind, const A (&y)[count], A (&dy)[count]) {
    switch (kind) {
    case BOPS_RELU: differentiate(kind, y, dy); break;
    case BOPS_SIGMOID:
#pragma unroll
        for (int i = 0; i < count; ++i) dy[i] *= y[i] * (A(1) - y[i]);
        break;
    default:
#pragma unroll
        for (int i = 0; i < count; ++i) dy[i] *= (A(1) - y[i]) * (A(1) + y[i]);
        break;
    }
}

template <typename T, int bytes> __global__ void __launch_bounds__(pointwise_threads, pointwise_blocks<T>)
    activation_backward(bops_activation kind, bool from_y, const T *dy, const T *saved, T *dx, uint64_t elements) {
    constexpr int width = pointwise_width<T, bytes>;
    const uint64_t first = (uint64_t(blockIdx.x) * pointwise_threads + threadIdx.x) * width;
    if (first >= elements) return;
    // 1. The elements.
    const packed<bytes> from_dy = fetch<T, bytes>(dy + first, elements - first);
    const packed<bytes> from_saved = fetch<T, bytes>(saved + first, elements - first);
    accumulator_t<T> v[width], of_saved[width];
    unpack<T>(from_dy, v);
    unpack<T>(from_saved, of_saved);
    // 2. dx.
    if (from_y) differentiate_from_output(kind, of_saved, v);
    else differentiate(kind, of_saved, v);
    put<T, bytes>(dx + first, elements - first, pack<T, bytes>(v));
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_activation_params &params, const bops_activation_choice &choice,
                                                   const bops_activation_backward_operands &operands, void *, const Action &action) {
    // The identity has no `saved`. The kernel loads dy in its place and does not use the values.
    const void *saved = operands.saved != nullptr ? operands.saved : operands.dy;
    return for_vectors(dtype, choice.vec_bytes, [&](auto tag, auto bytes) {
        using T = typename decltype(tag)::type;
        return action(activation_backward<T, bytes>, pointwise_shape(params.elements, pointwise_width<T, bytes>), params.activation,
                      params.from_y != 0, static_cast<const T *>(operands.dy), static_cast<const T *>(saved), static_cast<T *>(operands.dx),
                      params.elements);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_activation_backward, bops_dtype, bops_activation_params, bops_activation_choice, bops_activation_backward_operands,
                 bops::with_kernel)
