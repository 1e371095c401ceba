// Cross-entropy of logits with class indices or probabilities: lines of any strides.
//
// logsumexp = max(x) + log(sum(exp(x - max(x)))); the loss of a line is logsumexp - x[target], 0 if its target is ignored, NaN if it is out of range. With options
// it is keep * weight[target] * (logsumexp - x[target]) + smooth * sum(weight * (logsumexp - x)) + z * logsumexp^2, with probabilities it is
// sum((keep * probability + smooth) * weight * (logsumexp - x)) + z * logsumexp^2. The sum of the losses of lines, or their mean over
// the lines that count, follows in launches of its own.
#include "cross_entropy.cuh"

namespace bops {
namespace {

// The sum of the losses of all classes, each by its share, with the threads of a team: the line is read once more.
template <typename T, int width, typename A>
__device__ __forceinline__ A sum_of_classes(const cross_entropy_arguments<A> &a, const cross_entropy_line &line, const T *x,
                                            const line_sum<A> &of_line, A log_sum, const row_team &team, A (&slots)[team_slots]) {
    cascade<A> mine;
    const uint64_t dim = line.dim;
    const uint64_t step = uint64_t(team.threads) * width;
    for (uint64_t first = uint64_t(threadIdx.x) * width; first < dim; first += step * cross_entropy_batch) {
        A values[cross_entropy_batch][width];
        load_batch<T, width, true>(x, a.of.steps[0], first, step, dim, values);
        A part[width] = {};
#pragma unroll
        for (int v = 0; v < cross_entropy_batch; ++v) {
            const uint64_t at = first + v * step;
            if (at >= dim) break;
#pragma unroll
            for (int i = 0; i < width; ++i) part[i] += class_share<T>(a, line, at + i) * ((of_line.about - values[v][i]) + log_sum);
        }
        mine.add(tree_sum(part));
    }
    return masked_team_sum(mine.total(), team, slots);
}

// `options`: with a weight, label smoothing, a z-loss or probabilities. Of f64, and with options of one element an access, one block a multiprocessor at
// least: without that bound ptxas gives these kernels 64 registers, or 40, and spills.
template <typename T, int width, bool options>
__global__ void __launch_bounds__(cross_entropy_threads, sizeof(T) == 8 || (options && width == 1) ? 1 : 0)
    cross_entropy(const __grid_constant__ cross_entropy_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    __shared__ A maxima[team_slots], sums[team_slots];
    const row_team team;
    const cross_entropy_line line(a.of);
    const T *const x = static_cast<const T *>(a.x) + line.offset[of_x];
    // 1. The sum of exponentials.
    const line_sum<A> of_line = add_up<T, width, !options>(a.of, x, line.dim, team, maxima, sums);
    A of_classes = 0;
    if constexpr (options) {
        __shared__ A smoothed[team_slots];
        if (has_shares(a)) of_classes = sum_of_classes<T, width>(a, line, x, of_line, logarithm(of_line.sum), team, smoothed);
    }
    if (threadIdx.x > 0 || !line.is_there()) return;
    // 2. The results of the line.
    const A log_sum = logarithm(of_line.sum);
    const cross_entropy_target target(a.of, a.targets, line);
    A loss = target.is_ignored ? A(0) : A(NAN);
    A weight = 1;
    if constexpr (options) {
        if (target.is_class) {
            loss = 0;
            if (!a.of.has_probabilities) {
                weight = class_weight<T>(a, target.at);
                loss = a.keep * weight * ((of_line.about - load_one<T>(x + target.at * a.of.steps[0])) + log_sum);
            }
            if (has_shares(a)) loss += of_classes;
            const A logsumexp = of_line.about + log_sum;
            if (a.z > A(0)) loss += a.z * logsumexp * logsumexp;
        }
    } else if (target.is_class) loss = (of_line.about - load_one<T>(x + target.at * a.of.steps[0])) + log_sum;
    if (a.of.has_logsumexp) a.logsumexp[line.offset[of_logsumexp]] = of_line.about + log_sum;
    a.losses[a.of.reduction == BOPS_LOSS_NONE ? line.offset[of_loss] : line.number] = loss;
    if (a.of.reduction == BOPS_LOSS_MEAN) a.weights[line.number] = target.is_class ? weight : A(0);
}

// Lines, or sums of lines, that blocks add up, each `of_block` of them.
template <typename A> struct cross_entropy_sums {
    const A *losses, *weights; // weights: for the mean
    A *loss, *divisor;         // of all blocks; of the last launch the operands
    uint64_t count, of_block;
    uint32_t is_mean, is_last;
};

template <typename A> __global__ void __launch_bounds__(cross_entropy_threads) cross_entropy_total(const __grid_constant__ cross_entropy_sums<A> a) {
    __shared__ A of_losses[team_slots], of_weights[team_slots];
    const row_team team;
    const uint64_t first = blockIdx.x * a.of_block, end = min(a.count, first + a.of_block);
    cascade<A> losses, weights;
    for (uint64_t i = first + threadIdx.x; i < end; i += team.threads) {
        losses.add(a.losses[i]);
        if (a.is_mean) weights.add(a.weights[i]);
    }
    const A loss = masked_team_sum(losses.total(), team, of_losses), weight = masked_team_sum(weights.total(), team, of_weights);
    if (threadIdx.x > 0) return;
    a.loss[blockIdx.x] = a.is_mean && a.is_last ? loss / weight : loss;
    if (a.is_mean) a.divisor[blockIdx.x] = weight;
}

__global__ void __launch_bounds__(1) clear_missing(uint32_t *missing) { *missing = 0; }

// Counts the targets that are out of range, a thread each. Sums of integers are the same in any order.
__global__ void __launch_bounds__(cross_entropy_threads)
    cross_entropy_missing(const __grid_constant__ bops_cross_entropy_params p, const void *targets, uint32_t *missing) {
    const cross_entropy_line line(p);
    const cross_entropy_target target(p, targets, line);
    if (!target.is_ignored && !target.is_class) atomicAdd(missing, 1u);
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status with_kernels(bops_dtype dtype, const bops_cross_entropy_params &p, const bops_cross_entropy_choice &c,
                                                    const bops_cross_entropy_operands &o, void *workspace, const Action &action) {
    return for_float(dtype, [&](auto tag) -> bops_status {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        const bool is_mean = p.reduction == BOPS_LOSS_MEAN, is_reduced = p.reduction != BOPS_LOSS_NONE;
        // Of lines, then of blocks: losses and, for the mean, weights.
        A *const losses = static_cast<A *>(workspace), *const weights = losses + p.lines,
                 *const loss_parts = losses + uint64_t(is_mean ? 2 : 1) * p.lines, *const weight_parts = loss_parts + c.totals;
        cross_entropy_arguments<A> a = {};
        a.of = p, a.x = o.x, a.targets = o.targets, a.logsumexp = static_cast<A *>(o.logsumexp);
        a.losses = is_reduced ? losses : static_cast<A *>(o.loss), a.weights = weights;
        set_options(a, o.weight);
        bops_status status = bops_status(cudaSuccess);
        if (p.lines > 0) {
            const launch_shape shape = cross_entropy_shape(c);
            const auto with_options = [&](auto options) {
                if constexpr (sizeof(T) < 8)
                    if (c.width > 1) return action(cross_entropy<T, 16 / sizeof(T), options.value>, shape, a);
                return action(cross_entropy<T, 1, options.value>, shape, a);
            };
            status = p.has_options ? with_options(std::true_type()) : with_options(std::false_type());
        }
        if (p.has_missing) {
            launch_shape shape;
            if (status == bops_status(cudaSuccess)) status = action(clear_missing, shape, o.missing);
            shape.grid = dim3(uint32_t((uint64_t(p.lines) + cross_entropy_threads - 1) / cross_entropy_threads));
            shape.block = dim3(1, cross_entropy_threads);
            if (status == bops_status(cudaSuccess) && p.lines > 0) status = action(cross_entropy_missing, shape, p, o.targets, o.missing);
        }
        if (!is_reduced) return status;
        cross_entropy_sums<A> sums = {losses, weights, static_cast<A *>(o.loss), static_cast<A *>(o.divisor), p.lines, p.lines, is_mean, 1};
        launch_shape shape;
        shape.block = dim3(cross_entropy_threads);
        if (c.totals > 1) {
            shape.grid = dim3(c.totals);
            const cross_entropy_sums<A> parts = {losses, weights, loss_parts, weight_parts, p.lines, BOPS_CROSS_ENTROPY_TOTAL, is_mean, 0};
            if (status == bops_status(cudaSuccess)) status = action(cross_entropy_total<A>, shape, parts);
            sums.losses = loss_parts, sums.weights = weight_parts, sums.count = sums.of_block = c.totals;
        }
        shape.grid = dim3(1);
        return status == bops_status(cudaSuccess) ? action(cross_entropy_total<A>, shape, sums) : status;
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_cross_entropy, bops_dtype, bops_cross_entropy_params, bops_cross_entropy_choice, bops_cross_entropy_operands,
                 bops::with_kernels)
