// What forward and backward of cross-entropy share: lines of any strides, of which a team of threads takes one, their targets, and sums of exponentials
// in one pass.
#pragma once
#include "../bops_cross_entropy.h"
#include "softmax_masked.cuh"

namespace bops {

constexpr int cross_entropy_threads = BOPS_CROSS_ENTROPY_THREADS; // of the largest block
constexpr int cross_entropy_batch = 4;                            // accesses that a thread has in flight

// The operands of params, by their places.
enum { of_x = 0, of_targets = 1, of_loss = 2, of_logsumexp = 3, of_dx = 4 };

template <typename A> struct cross_entropy_arguments {
    bops_cross_entropy_params of;
    const void *x, *targets;
    const A *dloss, *divisor, *saved; // backward; divisor and saved may be null
    A *losses, *weights,
        *logsumexp; // forward; losses of lines, in the workspace with a reduction; weights: for the mean what lines add to the divisor
    void *dx;
    const void *weight;
    A keep, smooth, z; // those of params
};

template <typename A> void set_options(cross_entropy_arguments<A> &a, const void *weight) {
    a.weight = weight, a.keep = A(a.of.keep), a.smooth = A(a.of.smooth), a.z = A(a.of.z);
}

inline launch_shape cross_entropy_shape(const bops_cross_entropy_choice &c) {
    launch_shape shape;
    shape.grid = dim3(c.grid);
    shape.block = dim3(c.threads, c.lines);
    return shape;
}

// Where a line begins in each operand; past the last line a line without elements.
struct cross_entropy_line {
    uint64_t offset[5] = {}, dim = 0;
    uint64_t number;

    __device__ __forceinline__ cross_entropy_line(const bops_cross_entropy_params &p) : number(blockIdx.x * uint64_t(blockDim.y) + threadIdx.y) {
        if (number >= p.lines) return;
        dim = p.dim;
        uint32_t rest = uint32_t(number);
        for (uint32_t k = p.rank; k-- > 0;) {
            const uint32_t quotient = k > 0 ? rest / p.extents[k] : 0, i = rest - quotient * p.extents[k];
            rest = quotient;
#pragma unroll
            for (int operand = 0; operand < 5; ++operand) offset[operand] += i * p.strides[operand].strides[k];
        }
    }
    __device__ __forceinline__ bool is_there() const { return dim > 0; }
};

// What the target of a line says. A line that is not there has none.
struct cross_entropy_target {
    uint64_t at = 0;
    bool is_ignored = true, is_class = false;

    __device__ __forceinline__ cross_entropy_target(const bops_cross_entropy_params &p, const void *targets, const cross_entropy_line &line) {
        if (!line.is_there()) return;
        if (p.has_probabilities) {
            // The line counts, and no class is its target.
            is_ignored = false, is_class = true, at = line.dim;
            return;
        }
        const uint64_t offset = line.offset[of_targets];
        int64_t number;
        if (p.targets == BOPS_I64) number = static_cast<const int64_t *>(targets)[offset];
        else if (p.targets == BOPS_I32) number = static_cast<const int32_t *>(targets)[offset];
        else number = static_cast<const uint32_t *>(targets)[offset];
        is_ignored = p.has_ignored && number == p.ignored;
        is_class = !is_ignored && number >= 0 && uint64_t(number) < line.dim;
        at = uint64_t(number);
    }
};

// exp(d). Of f32 the power of two is that of the rounded d log2(e), so that the error grows with |d|.
__device__ __forceinline__ float exponential_of(float d) { return power_of_two(d * float(log2_of_e)); }
__device__ __forceinline__ double exponential_of(double d) { return exp(d); }

// exp(d) with an error that does not grow with |d|: of numbers that were not found in the line itself, d may be far below 0 all along it.
__device__ __forceinline__ float exact_exponential(float d) {
    constexpr float high = float(log2_of_e), low = float(log2_of_e - double(high)), most = 89.0f; // exp(most) is infinite
    return power_of_two(d > most ? most : d, high, low);
}
__device__ __forceinline__ double exact_exponential(double d) { return exp(d); }

// A sum of exponentials of the elements of a thread about one of the largest. What they are about moves only where an element is far above it, since each move
// rounds what is there: `margin` bounds how far it lies below the largest, and all that was there before a move counts little after it.
template <typename A> struct exponential_sum {
    static constexpr uint32_t chain = 16; // additions on one level
    static constexpr int margin = 8;
    A about = -A(INFINITY), level[3] = {};
    uint32_t added = 0;

    // Where all elements are -infinity so far, their exponentials about 0 are 0.
    static __device__ __forceinline__ A shift(A about) { return about == -A(INFINITY) ? A(0) : about; }

    template <int width> __device__ __forceinline__ void add(const A (&x)[cross_entropy_batch][width]) {
        A largest = -A(INFINITY);
#pragma unroll
        for (int v = 0; v < cross_entropy_batch; ++v)
#pragma unroll
            for (int i = 0; i < width; ++i) largest = larger(largest, x[v][i]);
        if (largest > about + A(margin)) {
            const A factor = exponential_of(about - largest);
#pragma unroll
            for (int l = 0; l < 3; ++l) level[l] *= factor;
            about = largest;
        }
        const A from = shift(about);
        A part[width];
#pragma unroll
        for (int i = 0; i < width; ++i) part[i] = exponential_of(x[0][i] - from);
#pragma unroll
        for (int v = 1; v < cross_entropy_batch; ++v)
#pragma unroll
            for (int i = 0; i < width; ++i) part[i] += exponential_of(x[v][i] - from);
        level[0] += tree_sum(part);
        if (++added % chain == 0) {
            level[1] += level[0], level[0] = 0;
            if (added % (chain * chain) == 0) level[2] += level[1], level[1] = 0;
        }
    }
    __device__ __forceinline__ A total() const { return (level[0] + level[1]) + level[2]; }
};

// The accesses of a thread from `first` on, `step` elements apart; elements past the end of the line are -infinity.
template <typename T, int width, bool streamed, typename A> __device__ __forceinline__ void load_batch(const T *x, uint64_t between, uint64_t first,
                                                                                                       uint64_t step, uint64_t dim,
                                                                                                       A (&to)[cross_entropy_batch][width]) {
#pragma unroll
    for (int v = 0; v < cross_entropy_batch; ++v) {
        const uint64_t at = first + v * step;
        if (at < dim) {
            if constexpr (width > 1) unpack<T>(load<width *int(sizeof(T)), streamed>(x + at), to[v]);
            else to[v][0] = load_one<T>(x + at * between);
        } else {
#pragma unroll
            for (int i = 0; i < width; ++i) to[v][i] = -A(INFINITY);
        }
    }
}

// A line's sum of exponentials about `about`. With a NaN or +infinity the sum is NaN; with -infinity alone it is 0, about -infinity.
template <typename A> struct line_sum { A about, sum; };

// Adds up `dim` elements with the threads of a team, all of which get the result.
template <typename T, int width, bool streamed, typename A>
__device__ __forceinline__ line_sum<A> add_up(const bops_cross_entropy_params &p, const T *x, uint64_t dim, const row_team &team,
                                              A (&maxima)[team_slots], A (&sums)[team_slots]) {
    exponential_sum<A> mine;
    const uint64_t step = uint64_t(team.threads) * width;
    for (uint64_t first = uint64_t(threadIdx.x) * width; first < dim; first += step * cross_entropy_batch) {
        A values[cross_entropy_batch][width];
        load_batch<T, width, streamed>(x, p.steps[0], first, step, dim, values);
        mine.add(values);
    }
    line_sum<A> line;
    line.about = masked_team(mine.about, -A(INFINITY), team, maxima, [](A a, A b) { return larger(a, b); });
    line.sum = masked_team_sum(mine.total() * exponential_of(mine.about - exponential_sum<A>::shift(line.about)), team, sums);
    return line;
}

// The weight of a class; 1 without weights.
template <typename T, typename A> __device__ __forceinline__ A class_weight(const cross_entropy_arguments<A> &a, uint64_t i) {
    if (!a.of.has_weight) return 1;
    const uint64_t at = i * a.of.weight_step;
    return a.of.has_f32_weight ? A(static_cast<const float *>(a.weight)[at]) : A(load_one(static_cast<const T *>(a.weight) + at));
}

// What the loss of a class counts beside that of a target: of probabilities all of it.
template <typename T, typename A>
__device__ __forceinline__ A class_share(const cross_entropy_arguments<A> &a, const cross_entropy_line &line, uint64_t i) {
    const A weight = class_weight<T>(a, i);
    if (!a.of.has_probabilities) return a.smooth * weight;
    const uint64_t at = line.offset[of_targets] + i * a.of.steps[2];
    const A probability =
        a.of.targets == BOPS_F32 ? A(static_cast<const float *>(a.targets)[at]) : A(load_one(static_cast<const T *>(a.targets) + at));
    return weight * (a.keep * probability + a.smooth);
}

// Whether there is any such share.
template <typename A> __device__ __forceinline__ bool has_shares(const cross_entropy_arguments<A> &a) {
    return a.smooth > A(0) || a.of.has_probabilities;
}

} // namespace bops
