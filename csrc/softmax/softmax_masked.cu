// Softmax and log-softmax of scale * x + bias under a causal mask: lines of any strides.
//
// t = scale * x + bias, -infinity at masked places; y = exp(t - max) / sum(exp(t - max)), or t - max - log(sum). A line of masked places alone, whose
// sum is 0, is 0, or -infinity.
#include "softmax_masked.cuh"

namespace bops {
namespace {

// Accesses that a thread holds.
template <typename T, int width> constexpr int masked_held = width > 1 ? 32 / width : sizeof(T) == 8 ? 8 : 16;

// Neighbours in accesses of at most 16 bytes.
template <typename E, int width, typename A> __device__ __forceinline__ void load_neighbours(const E *from, A (&to)[width]) {
    constexpr int bytes = width * int(sizeof(E)) < 16 ? width * int(sizeof(E)) : 16, step = bytes / int(sizeof(E));
#pragma unroll
    for (int part = 0; part < width; part += step) {
        A values[step];
        unpack<E>(load<bytes, false>(from + part), values);
#pragma unroll
        for (int i = 0; i < step; ++i) to[part + i] = values[i];
    }
}

// Adds the bias of the elements from `first` on, of which `count` are there.
template <typename E, int width, typename A>
__device__ __forceinline__ void add_bias(const bops_softmax_masked_params &p, const E *bias, uint64_t first, uint64_t count, A (&t)[width]) {
    A values[width];
    if (width > 1 && p.bias_is_neighbours) {
        load_neighbours<E>(bias + first, values);
    } else {
#pragma unroll
        for (int i = 0; i < width; ++i) values[i] = uint64_t(i) < count ? A(load_one<E>(bias + (first + i) * p.steps[2])) : A(0);
    }
#pragma unroll
    for (int i = 0; i < width; ++i) t[i] += values[i];
}

// t of the elements from `first` on.
template <typename In, int width, typename A>
__device__ __forceinline__ void load_t(const softmax_masked_arguments<A> &a, const softmax_masked_line &line, uint64_t first, A (&t)[width]) {
    if (first >= line.visible) {
#pragma unroll
        for (int i = 0; i < width; ++i) t[i] = -A(INFINITY);
        return;
    }
    const In *const x = static_cast<const In *>(a.in[0]) + line.offset[1];
    const uint64_t count = line.visible - first;
    if constexpr (width > 1) load_neighbours<In>(x + first, t);
    else t[0] = load_one<In>(x + first * a.of.steps[1]);
#pragma unroll
    for (int i = 0; i < width; ++i) t[i] *= a.scale;
    if (a.of.has_bias) {
        if (sizeof(In) < 4 && a.of.bias_is_f32) {
            if constexpr (sizeof(In) < 4) add_bias(a.of, static_cast<const float *>(a.in[1]) + line.offset[2], first, count, t);
        } else {
            add_bias(a.of, static_cast<const In *>(a.in[1]) + line.offset[2], first, count, t);
        }
    }
#pragma unroll
    for (int i = 0; i < width; ++i)
        if (uint64_t(i) >= count) t[i] = -A(INFINITY);
}

// What the outputs of a line are computed from: what is subtracted, and 1 / sum or log(sum).
template <typename A> struct masked_result {
    A shift, last;
    bool is_log, is_blank;

    // Of the element in column `column`, whose exponential is `weight`, if there is no logarithm.
    __device__ __forceinline__ A of(A t, A weight, uint64_t column, uint64_t visible) const {
        const A value = is_log ? (t - shift) - last : weight * last;
        return is_blank || column >= visible ? (is_log ? -A(INFINITY) : A(0)) : value;
    }
};

// holds: whether the threads of the team hold the line between them.
template <typename T, int width, bool holds, typename In> __global__ void __launch_bounds__(softmax_masked_threads)
    softmax_masked(const __grid_constant__ softmax_masked_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int held = holds ? masked_held<T, width> : 1;
    __shared__ A maxima[team_slots], sums[team_slots];
    const row_team team;
    const softmax_masked_line line(a.of);
    const uint64_t mine = uint64_t(threadIdx.x) * width, step = uint64_t(team.threads) * width;
    T *const y = static_cast<T *>(a.out) + line.offset[0];
    const auto put = [&](uint64_t first, const A(&values)[width]) {
        if constexpr (width > 1) store<width *int(sizeof(T))>(y + first, pack<T, width *int(sizeof(T))>(values));
        else store_one<T>(y + first * a.of.steps[0], values[0]);
    };
    // 1. The largest t.
    A t[held][width], max = -A(INFINITY);
    const auto add_largest = [&](const A(&values)[width]) {
#pragma unroll
        for (int i = 0; i < width; ++i) max = larger(max, values[i]);
    };
    if constexpr (holds) {
#pragma unroll
        for (int v = 0; v < held; ++v) load_t<In>(a, line, mine + v * step, t[v]);
#pragma unroll
        for (int v = 0; v < held; ++v) add_largest(t[v]);
    } else {
        for (uint64_t first = mine; first < line.visible; first += step) {
            load_t<In>(a, line, first, t[0]);
            add_largest(t[0]);
        }
    }
    max = masked_team(max, -A(INFINITY), team, maxima, [](A p, A q) { return larger(p, q); });
    // A line of masked places alone has no largest t. Nor has one of NaN, whose exponentials about 0 are NaN.
    const A shift = max == -A(INFINITY) ? A(0) : max;
    // 2. The sum.
    A sum = 0;
    if constexpr (holds) {
#pragma unroll
        for (int v = 0; v < held; ++v)
#pragma unroll
            for (int i = 0; i < width; ++i) {
                const A weight = natural_exponential(t[v][i] - shift);
                sum += weight;
                if (!a.is_log) t[v][i] = weight;
            }
    } else {
        cascade<A> total;
        for (uint64_t first = mine; first < line.visible; first += step) {
            load_t<In>(a, line, first, t[0]);
#pragma unroll
            for (int i = 0; i < width; ++i) total.add(natural_exponential(t[0][i] - shift));
        }
        sum = total.total();
    }
    sum = masked_team_sum(sum, team, sums);
    // 3. The outputs.
    const masked_result<A> result = {shift, a.is_log ? logarithm(sum) : reciprocal(sum), a.is_log != 0, sum == A(0)};
    if constexpr (holds) {
#pragma unroll
        for (int v = 0; v < held; ++v) {
            const uint64_t first = mine + v * step;
            if (first >= line.dim) break;
#pragma unroll
            for (int i = 0; i < width; ++i) t[v][i] = result.of(t[v][i], t[v][i], first + i, line.visible);
            put(first, t[v]);
        }
    } else {
        for (uint64_t first = mine; first < line.dim; first += step) {
            load_t<In>(a, line, first, t[0]);
#pragma unroll
            for (int i = 0; i < width; ++i)
                t[0][i] = result.of(t[0][i], a.is_log ? A(0) : natural_exponential(t[0][i] - shift), first + i, line.visible);
            put(first, t[0]);
        }
    }
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status masked(const bops_softmax_specialisation &of, const bops_softmax_masked_params &p,
                                              const bops_softmax_masked_choice &c, const bops_softmax_operands &o, void *, const Action &action) {
    return for_types(of, [&](auto of_y, auto of_x) -> bops_status {
        using T = typename decltype(of_y)::type;
        using In = typename decltype(of_x)::type;
        const auto a = masked_arguments<accumulator_t<T>>(of, p, o.y, o.x, o.bias);
        const launch_shape shape = masked_shape(c);
        if constexpr (sizeof(T) < 8)
            if (c.width > 1) return action(softmax_masked<T, 16 / sizeof(T), true, In>, shape, a);
        return c.is_held ? action(softmax_masked<T, 1, true, In>, shape, a) : action(softmax_masked<T, 1, false, In>, shape, a);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_softmax_masked, bops_softmax_specialisation, bops_softmax_masked_params, bops_softmax_masked_choice, bops_softmax_operands,
                 bops::masked)
