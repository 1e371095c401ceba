// The interpreter of programs with sources: positions and random numbers, which are computed where others have inputs.
// Compiled once for all architectures.
#include "source.cuh"

namespace bops {
namespace {

// E: the elements. may_be_long: whether numbers of accesses may reach 2^31. `most`: of the costs of its functions.
template <typename E, bool may_be_long, int slots, int most = BOPS_COST_SPECIAL> __global__ void __launch_bounds__(pointwise_threads, 2)
    pointwise_source(const __grid_constant__ bops_pointwise_source_params params, const __grid_constant__ bops_pointwise_source_operands operands) {
    using A = typename E::A;
    const uint64_t elements = params.walk.elements, access = uint64_t(blockIdx.x) * pointwise_threads + threadIdx.x, first = access * E::width;
    if (first >= elements) return;
    const uint64_t left = elements - first;
    const place<BOPS_POINTWISE_EXTENTS, may_be_long> at(params.walk, access, E::width);
    values<A, E::width, slots> values;
    constexpr int most_inputs = values.most < BOPS_POINTWISE_INPUTS ? values.most : BOPS_POINTWISE_INPUTS;
    // 1. The inputs, all before any output is stored: they may lie in the same place.
    typename E::raw raw[most_inputs] = {};
#pragma unroll
    for (int i = 0; i < most_inputs; ++i) {
        if (i >= params.inputs) break;
        raw[i] = E::template load<false>(params.input[i], operands.input[i], at.offset(params.input[i]), left);
    }
#pragma unroll
    for (int i = 0; i < most_inputs; ++i) {
        if (i >= params.inputs) break;
        E::unpack(params.input[i], raw[i], values.slot[i]);
    }
    // 2. The sources, in the slots behind them.
#pragma unroll 1
    for (uint32_t i = 0; i < params.sources; ++i) {
        const bops_pointwise_source &source = params.source[i];
        draw(source, operands.seed[i], operands.offset[i], at.offset(source.walked), values.last);
        values.put(params.inputs + i);
    }
    // 3. The instructions.
    interpret<most>(values, params.instruction, params.instructions, params.literal);
    // 4. The outputs.
#pragma unroll 1
    for (uint32_t i = 0; i < params.outputs; ++i) {
        A v[E::width];
        values.get(params.result[i], params.literal, v);
        E::store(params.output[i], operands.output[i], at.offset(params.output[i]), left, v);
    }
}

template <typename Action> bops_status with_kernel(bops_dtype computing, const bops_pointwise_source_params &params,
                                                   const bops_pointwise_source_choice &choice, const bops_pointwise_source_operands &operands, void *,
                                                   const Action &action) {
    const auto run = [&](auto kernel, int width) { return action(kernel, pointwise_shape(params.walk.elements, width), params, operands); };
    const auto walked = [&](auto tag) {
        using A = typename decltype(tag)::type;
        constexpr int width = 16 / int(sizeof(A));
        if (choice.extents == 4) return run(pointwise_source<mixed<A, width>, false, 8>, width);
        // Values in local memory: one kernel for programs with integrals, those that hold more than 8 values, and all of f64.
        constexpr int most = std::is_integral_v<A> ? BOPS_COST_SPECIAL : BOPS_COST_INTEGRAL;
        if constexpr (!std::is_same_v<A, double>)
            if (choice.slots == 8) return run(pointwise_source<mixed<A, 1>, true, 8>, 1);
        return run(pointwise_source<mixed<A, 1>, true, 0, most>, 1);
    };
    switch (computing) {
    case BOPS_F64: return walked(type_tag<double>{});
    case BOPS_F32: return walked(type_tag<float>{});
    case BOPS_I32: return walked(type_tag<int32_t>{});
    case BOPS_U32: return walked(type_tag<uint32_t>{});
    default: return walked(type_tag<int64_t>{});
    }
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pointwise_source, bops_dtype, bops_pointwise_source_params, bops_pointwise_source_choice, bops_pointwise_source_operands,
                 bops::with_kernel)
