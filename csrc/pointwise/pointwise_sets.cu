// A program of several sets of dense operands, such as an optimizer's step of all parameters: many sets in a launch, whose addresses are parameters.
#include "../bops_pointwise_sets.h"
#include "program.cuh"

namespace bops {
namespace {

constexpr int sets_accesses = BOPS_SETS_BLOCK / (pointwise_threads * 4); // of a thread to each operand
static_assert(sizeof(bops_pointwise_sets_params) + sizeof(bops_pointwise_sets_operands) <= 4096, "parameters of a kernel");

// An operand of which `mixed` asks for nothing but the type.
__device__ __forceinline__ bops_walked dense_of(bops_dtype dtype) {
    bops_walked walked = {};
    walked.dtype = dtype, walked.is_dense = 1;
    return walked;
}

// A program as what runs it is told.
struct told_program {
    const uint64_t *instruction;
    uint32_t instructions;
    const uint64_t *literal;
};

// Blocks of an SM that registers are allotted for.
template <typename R> constexpr int sets_blocks = R::slots > 4 ? 2 : 4;
template <typename P> constexpr int sets_blocks<known<P>> = 4;

template <typename R> __global__ void __launch_bounds__(pointwise_threads, sets_blocks<R>)
    pointwise_sets(const __grid_constant__ bops_pointwise_sets_params params, const __grid_constant__ bops_pointwise_sets_operands operands) {
    using E = mixed<float, 4>;
    // 1. The numbers, with the scalars that all sets share.
    __shared__ uint64_t literal[BOPS_SETS_NUMBERS];
    if (threadIdx.x < BOPS_SETS_NUMBERS) literal[threadIdx.x] = params.literal[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < params.scalars) {
        mixed<float, 1>::raw raw;
        float value[1];
        const bops_walked walked = dense_of(params.scalar_dtype[threadIdx.x]);
        raw = mixed<float, 1>::load<false>(walked, operands.scalar[threadIdx.x], 0, 1);
        mixed<float, 1>::unpack(walked, raw, value);
        literal[params.number[threadIdx.x]] = __float_as_uint(value[0]);
    }
    __syncthreads();
    // 2. The set of the block: the last one that begins at or before it.
    const uint32_t words = 2 + params.inputs + params.outputs;
    uint32_t low = 0, high = operands.sets;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (operands.word[middle * words] <= blockIdx.x) low = middle;
        else high = middle;
    }
    const uint64_t *set = operands.word + low * words;
    const uint64_t elements = set[1], start = (blockIdx.x - set[0]) * BOPS_SETS_BLOCK + threadIdx.x * E::width;
    values<float, E::width, R::slots> values;
#pragma unroll 1
    for (int k = 0; k < sets_accesses; ++k) {
        const uint64_t first = start + uint64_t(k) * (pointwise_threads * E::width);
        if (first >= elements) return;
        const uint64_t left = elements - first;
        // 3. The inputs, all before any output is stored: they may lie in the same place.
        E::raw raw[R::slots] = {};
#pragma unroll
        for (int i = 0; i < R::slots; ++i) {
            if (i >= params.inputs) break;
            raw[i] = E::load<true>(dense_of(params.input[i]), reinterpret_cast<const void *>(set[2 + i]), first, left);
        }
#pragma unroll
        for (int i = 0; i < R::slots; ++i) {
            if (i >= params.inputs) break;
            E::unpack(dense_of(params.input[i]), raw[i], values.slot[i]);
        }
        // 4. The instructions.
        R::run(values, told_program{params.instruction, params.instructions, literal});
        // 5. The outputs.
#pragma unroll 1
        for (uint32_t i = 0; i < params.outputs; ++i) {
            float v[E::width];
            values.get(params.result[i], literal, v);
            E::store(dense_of(params.output[i]), reinterpret_cast<void *>(set[2 + params.inputs + i]), first, left, v);
        }
    }
}

template <typename Action> bops_status with_sets(bops_dtype, const bops_pointwise_sets_params &params, const bops_pointwise_sets_choice &choice,
                                                 const bops_pointwise_sets_operands &operands, void *, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(operands.blocks), shape.block = dim3(pointwise_threads);
    const auto run = [&](auto what) { return action(pointwise_sets<typename decltype(what)::type>, shape, params, operands); };
    return with_stock(
        {params.instruction, params.result, params.inputs, params.outputs, params.instructions}, stock::updates{},
        [&](auto one) { return run(type_tag<known<typename decltype(one)::type>>{}); },
        [&] { return for_value<4, 8>(choice.slots, [&](auto slots) { return run(type_tag<interpreted<slots, BOPS_COST_SPECIAL>>{}); }); });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pointwise_sets, bops_dtype, bops_pointwise_sets_params, bops_pointwise_sets_choice, bops_pointwise_sets_operands,
                 bops::with_sets)
