// The gradient of the logits of cross-entropy, lines of any strides: dx[i] = (exp(x[i] - logsumexp) - (1 if i is the target, else 0)) * g, where g is the gradient of
// the line's loss; 0 where the target is ignored or out of range. With options, where p = exp(x[i] - logsumexp),
// dx[i] = (keep * weight[target] * (p - (1 if i is the target, else 0)) + smooth * (sum(weight) * p - weight[i]) + 2 z * logsumexp * p) * g; with probabilities, where
// share[i] = (keep * probability[i] + smooth) * weight[i], dx[i] = (sum(share) * p - share[i] + 2 z * logsumexp * p) * g. dx may be x.
#include "cross_entropy.cuh"

namespace bops {
namespace {

// The sum of the shares of all classes, with the threads of a team.
template <typename T, typename A> __device__ __forceinline__ A sum_of_shares(const cross_entropy_arguments<A> &a, const cross_entropy_line &line,
                                                                             const row_team &team, A (&slots)[team_slots]) {
    if (!a.of.has_weight && !a.of.has_probabilities) return a.smooth * A(a.of.dim);
    cascade<A> mine;
    for (uint64_t i = threadIdx.x; i < line.dim; i += team.threads) mine.add(class_share<T>(a, line, i));
    return masked_team_sum(mine.total(), team, slots);
}

// `options`: with a weight, label smoothing, a z-loss or probabilities. Of f64, and with options of one element an access, one block a multiprocessor at
// least: without that bound ptxas gives these kernels 64 registers, or 40, and spills.
template <typename T, int width, bool options>
__global__ void __launch_bounds__(cross_entropy_threads, sizeof(T) == 8 || (options && width == 1) ? 1 : 0)
    cross_entropy_backward(const __grid_constant__ cross_entropy_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    __shared__ A maxima[team_slots], sums[team_slots];
    const row_team team;
    const cross_entropy_line line(a.of);
    const cross_entropy_target target(a.of, a.targets, line);
    const T *const x = static_cast<const T *>(a.x) + line.offset[of_x];
    T *const dx = static_cast<T *>(a.dx) + line.offset[of_dx];
    // 1. The sum of exponentials, unless forward has saved it. Lines without a class are not read.
    A shift, factor = 1, log_sum = 0;
    if (a.of.has_logsumexp) shift = target.is_class ? a.saved[line.offset[of_logsumexp]] : A(0);
    else {
        const line_sum<A> of_line = add_up<T, width, false>(a.of, x, target.is_class ? line.dim : 0, team, maxima, sums);
        shift = of_line.about, factor = reciprocal(of_line.sum);
        if constexpr (options) log_sum = logarithm(of_line.sum);
    }
    A gradient = 0;
    if (target.is_class) {
        gradient = a.dloss[line.offset[of_loss]];
        if (a.of.reduction == BOPS_LOSS_MEAN) gradient /= *a.divisor;
    }
    A of_target = 0, of_shares = 0, total = 0;
    if constexpr (options) {
        __shared__ A of_classes[team_slots];
        if (has_shares(a)) total = sum_of_shares<T>(a, line, team, of_classes);
        if (target.is_class && !a.of.has_probabilities) of_target = a.keep * class_weight<T>(a, target.at);
        if (a.z > A(0)) of_shares = 2 * a.z * (shift + log_sum);
    }
    // 2. The gradients.
    const uint64_t step = uint64_t(team.threads) * width;
    for (uint64_t first = uint64_t(threadIdx.x) * width; first < line.dim; first += step * cross_entropy_batch) {
        A values[cross_entropy_batch][width];
        load_batch<T, width, true>(x, a.of.steps[0], first, step, target.is_class ? line.dim : 0, values);
#pragma unroll
        for (int v = 0; v < cross_entropy_batch; ++v) {
            const uint64_t at = first + v * step;
            if (at >= line.dim) break;
#pragma unroll
            for (int i = 0; i < width; ++i) {
                const A share = exact_exponential(values[v][i] - shift) * factor, own = at + i == target.at ? A(1) : A(0);
                A slope = share - own;
                if constexpr (options) {
                    slope *= of_target;
                    if (has_shares(a)) slope += total * share - class_share<T>(a, line, at + i);
                    if (a.z > A(0)) slope += of_shares * share;
                }
                values[v][i] = target.is_class ? slope * gradient : A(0);
            }
            if constexpr (width > 1) store<width *int(sizeof(T))>(dx + at, pack<T, width *int(sizeof(T))>(values[v]));
            else store_one<T>(dx + at * a.of.steps[1], values[v][0]);
        }
    }
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_cross_entropy_params &p, const bops_cross_entropy_choice &c,
                                                   const bops_cross_entropy_backward_operands &o, void *, const Action &action) {
    return for_float(dtype, [&](auto tag) -> bops_status {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        cross_entropy_arguments<A> a = {};
        a.of = p, a.x = o.x, a.targets = o.targets, a.dx = o.dx;
        a.dloss = static_cast<const A *>(o.dloss), a.divisor = static_cast<const A *>(o.divisor), a.saved = static_cast<const A *>(o.logsumexp);
        set_options(a, o.weight);
        const launch_shape shape = cross_entropy_shape(c);
        const auto with_options = [&](auto options) {
            if constexpr (sizeof(T) < 8)
                if (c.width > 1) return action(cross_entropy_backward<T, 16 / sizeof(T), options.value>, shape, a);
            return action(cross_entropy_backward<T, 1, options.value>, shape, a);
        };
        return p.has_options ? with_options(std::true_type()) : with_options(std::false_type());
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_cross_entropy_backward, bops_dtype, bops_cross_entropy_params, bops_cross_entropy_choice, bops_cross_entropy_backward_operands,
                 bops::with_kernel)
