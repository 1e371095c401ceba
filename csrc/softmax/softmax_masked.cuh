// What forward and backward share under a bias or a mask: lines of any strides, of which a team of threads takes one.
#pragma once
#include "softmax.cuh"

namespace bops {

constexpr int softmax_masked_threads = BOPS_SOFTMAX_MASKED_THREADS; // of the largest block

// The operands of forward: y, x, bias; of backward: dx, y, dy.
template <typename A> struct softmax_masked_arguments {
    bops_softmax_masked_params of;
    void *out;
    const void *in[2];
    A scale;
    uint32_t is_log;
};

template <typename A> softmax_masked_arguments<A> masked_arguments(const bops_softmax_specialisation &of, const bops_softmax_masked_params &p,
                                                                   void *out, const void *first, const void *second) {
    return {p, out, {first, second}, A(p.scale), of.is_log};
}

inline launch_shape masked_shape(const bops_softmax_masked_choice &c) {
    launch_shape shape;
    shape.grid = dim3(c.grid);
    shape.block = dim3(c.threads, c.lines);
    return shape;
}

// Where a line begins in each operand, and how many of its elements a causal mask leaves; past the last line a line without elements.
struct softmax_masked_line {
    uint64_t offset[3] = {}, dim = 0, visible = 0;

    __device__ __forceinline__ softmax_masked_line(const bops_softmax_masked_params &p) {
        const uint64_t number = blockIdx.x * uint64_t(blockDim.y) + threadIdx.y;
        if (number >= p.lines) return;
        dim = visible = p.dim;
        uint32_t rest = uint32_t(number);
        if (p.queries > 0) {
            const uint64_t seen = rest % p.queries + 1 + p.dim;
            visible = seen > p.queries ? seen - p.queries : 0;
        }
        for (uint32_t k = p.rank; k-- > 0;) {
            const uint32_t quotient = k > 0 ? rest / p.extents[k] : 0, i = rest - quotient * p.extents[k];
            rest = quotient;
#pragma unroll
            for (int operand = 0; operand < 3; ++operand) offset[operand] += i * p.strides[operand].strides[k];
        }
    }
};

// Combines a value of each thread of the team; every thread gets the result.
template <typename A, typename F>
__device__ __forceinline__ A masked_team(A value, A identity, const row_team &team, A (&slots)[team_slots], const F &combine) {
    for (uint32_t offset = min(team.threads, 32u) >> 1; offset > 0; offset >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, offset));
    if (team.warps > 1) {
        if (team.lane == 0) slots[team.slot + team.warp] = value;
        __syncthreads();
        const uint32_t part = team.lane % team_slots;
        value = part < team.warps ? slots[team.slot + part] : identity;
        for (uint32_t offset = team_slots / 2; offset > 0; offset >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, offset));
    }
    return value;
}

template <typename A> __device__ __forceinline__ A masked_team_sum(A value, const row_team &team, A (&slots)[team_slots]) {
    return masked_team(value, A(0), team, slots, [](A a, A b) { return a + b; });
}

__device__ __forceinline__ float natural_exponential(float t) { return expf(t); }
__device__ __forceinline__ double natural_exponential(double t) { return exp(t); }

// One element.
template <typename E> __device__ __forceinline__ accumulator_t<E> load_one(const E *from) {
    accumulator_t<E> value[1];
    unpack<E>(load<sizeof(E), false>(from), value);
    return value[0];
}

template <typename E> __device__ __forceinline__ void store_one(E *to, accumulator_t<E> value) {
    const accumulator_t<E> values[1] = {value};
    store<sizeof(E), false>(to, pack<E, sizeof(E)>(values));
}

} // namespace bops
