// Softmax backward of lines of any strides: dx = scale * y * (dy - sum(dy * y)). Of log-softmax where places are masked:
// dx = scale * (dy - exp(y) * sum(dy)). A place is masked if y is -infinity: its dx is 0, and its dy is not added up.
#include "softmax_masked.cuh"

namespace bops {
namespace {

template <typename T, typename Out> __global__ void __launch_bounds__(softmax_masked_threads)
    softmax_backward_masked(const __grid_constant__ softmax_masked_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    __shared__ A sums[team_slots];
    const row_team team;
    const softmax_masked_line line(a.of);
    const T *const y = static_cast<const T *>(a.in[0]) + line.offset[1], *const dy = static_cast<const T *>(a.in[1]) + line.offset[2];
    Out *const dx = static_cast<Out *>(a.out) + line.offset[0];
    // 1. The sum.
    cascade<A> total;
    for (uint64_t i = threadIdx.x; i < line.dim; i += team.threads) {
        const A result = load_one<T>(y + i * a.of.steps[1]), gradient = load_one<T>(dy + i * a.of.steps[2]);
        if (a.is_log) total.add(result == -A(INFINITY) ? A(0) : gradient);
        else total.add(gradient * result);
    }
    const A sum = masked_team_sum(total.total(), team, sums);
    // 2. The outputs.
    for (uint64_t i = threadIdx.x; i < line.dim; i += team.threads) {
        const A result = load_one<T>(y + i * a.of.steps[1]), gradient = load_one<T>(dy + i * a.of.steps[2]);
        A value;
        if (!a.is_log) value = a.scale * result * (gradient - sum);
        else value = result == -A(INFINITY) ? A(0) : a.scale * (gradient - natural_exponential(result) * sum);
        store_one<Out>(dx + i * a.of.steps[0], value);
    }
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status masked(const bops_softmax_specialisation &of, const bops_softmax_masked_params &p,
                                              const bops_softmax_masked_choice &c, const bops_softmax_backward_operands &o, void *,
                                              const Action &action) {
    return for_types(of, [&](auto of_y, auto of_dx) -> bops_status {
        using T = typename decltype(of_y)::type;
        const auto a = masked_arguments<accumulator_t<T>>(of, p, o.dx, o.y, o.dy);
        return action(softmax_backward_masked<T, typename decltype(of_dx)::type>, masked_shape(c), a);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_softmax_backward_masked, bops_softmax_specialisation, bops_softmax_masked_params, bops_softmax_masked_choice,
                 bops_softmax_backward_operands, bops::masked)
