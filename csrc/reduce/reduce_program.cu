// Reductions of what programs make of inputs of any types and strides.
// Compiled once for all architectures.
#include "reduce.cuh"

namespace bops {
namespace {

// The type in which values are combined that are computed in A.
template <typename A> using combined_in = std::conditional_t<std::is_integral_v<A>, int64_t, A>;

// `most`: of the costs of the program's functions.
template <typename A, int slots, int combine, int most = BOPS_COST_SPECIAL>
__global__ void __launch_bounds__(reduce_threads, combine == BOPS_COMBINE_ANY || sizeof(A) == 8 ? 2 : 3)
    reduce_program(const __grid_constant__ bops_reduce_program_params params, const __grid_constant__ bops_reduce_program_operands operands,
                   typename fold<combine, combined_in<A>>::held *parts) {
    using E = mixed<A, 1>;
    using V = combined_in<A>;
    using F = fold<combine, V>;
    using H = typename F::held;
    __shared__ H held[reduce_threads];
    // Strides, which would take registers throughout the loop if they were read from the parameters. Behind the last of an input without reduced extents
    // one is read that counts for nothing.
    __shared__ uint64_t strides[BOPS_POINTWISE_INPUTS + 1][BOPS_POINTWISE_EXTENTS];
    if (threadIdx.x < BOPS_POINTWISE_INPUTS * BOPS_POINTWISE_EXTENTS)
        strides[threadIdx.x / BOPS_POINTWISE_EXTENTS][threadIdx.x % BOPS_POINTWISE_EXTENTS] =
            params.input[threadIdx.x / BOPS_POINTWISE_EXTENTS].strides[threadIdx.x % BOPS_POINTWISE_EXTENTS];
    __syncthreads();
    const bops_reduce_results &results = params.results;
    const F fold = of_results<F>(results);
    const uint32_t across = reduce_threads / params.threads;
    const uint32_t thread = params.is_columns ? threadIdx.x / across : threadIdx.x % params.threads;
    const uint32_t own = params.is_columns ? threadIdx.x % across : threadIdx.x / params.threads;
    const uint64_t piece = results.pieces == 1 ? 0 : blockIdx.x / params.groups, group = blockIdx.x - piece * params.groups;
    const uint64_t output = group * across + own;
    const bool is_there = output < results.outputs;
    // 1. The thread's values.
    const place<BOPS_POINTWISE_EXTENTS, true> kept(results.kept, is_there ? output : 0, 1);
    H total = fold.none();
    values<A, 1, slots> values;
    constexpr int most_inputs = values.most < BOPS_POINTWISE_INPUTS ? values.most : BOPS_POINTWISE_INPUTS;
#pragma unroll 1
    for (uint32_t k = 0; k < params.rounds; ++k) {
        const uint64_t item = (piece * params.rounds + k) * params.threads + thread;
        if (!is_there || item >= params.items) break;
        asm volatile("" ::: "memory"); // strides are read anew
        const place<BOPS_POINTWISE_EXTENTS, true> at(params.reduced, item, 1);
        typename E::raw raw[most_inputs] = {};
#pragma unroll
        for (int i = 0; i < most_inputs; ++i) {
            if (i >= params.inputs) break;
            const bops_walked &input = params.input[i];
            const uint64_t offset = kept.offset_by(strides[i]) + at.offset_by(strides[i] + params.kept_extents);
            raw[i] = E::template load<false>(input, operands.input[i], offset, 1);
        }
#pragma unroll
        for (int i = 0; i < most_inputs; ++i) {
            if (i >= params.inputs) break;
            E::unpack(params.input[i], raw[i], values.slot[i]);
        }
        interpret<most>(values, params.instruction, params.instructions, params.literal);
        A v[1];
        values.get(params.result, params.literal, v);
        const V of_each[1] = {each_of<combine>(params.each, V(v[0]))};
        total = fold.both(total, fold.of(of_each, 1, item, 1));
    }
    // 2. The threads that share the output.
    total = over_threads(fold, total, held, thread, params.threads, params.is_columns ? across : 1);
    // 3. The output, or the piece's part of it.
    if (thread != 0 || !is_there) return;
    if (results.pieces == 1) store_held(fold, results, operands.out, kept.offset(results.out), total);
    else parts[piece * results.outputs + output] = total;
}

template <typename Action> bops_status with_kernel(bops_dtype computing, const bops_reduce_program_params &params,
                                                   const bops_reduce_program_choice &choice, const bops_reduce_program_operands &operands,
                                                   void *workspace, const Action &action) {
    const auto with_combine = [&](auto tag, auto combine) {
        using A = typename decltype(tag)::type;
        using F = fold<combine, combined_in<A>>;
        launch_shape shape;
        shape.grid = dim3(uint32_t(params.groups * params.results.pieces)), shape.block = dim3(reduce_threads);
        bops_status status = bops_status(cudaSuccess);
        if (params.results.pieces > 0) {
            typename F::held *const parts = static_cast<typename F::held *>(workspace);
            if (choice.slots == 8) status = action(reduce_program<A, 8, combine>, shape, params, operands, parts);
            // Values in local memory, one kernel for programs with integrals and those that hold more than 8 values.
            else if constexpr (combine == BOPS_COMBINE_ANY)
                status = action(reduce_program < A, 0, combine, std::is_integral_v<A> ? BOPS_COST_SPECIAL : BOPS_COST_INTEGRAL >, shape, params,
                                operands, parts);
            else status = bops_status(cudaErrorInvalidValue);
        }
        return status != cudaSuccess ? status : with_pieces<F>(params.results, workspace, operands.out, action);
    };
    const auto with_type = [&](auto tag) { return with_combine(tag, std::integral_constant<int, BOPS_COMBINE_ANY>()); };
    switch (computing) {
    case BOPS_F64: return with_type(type_tag<double>{});
    case BOPS_I32: return with_type(type_tag<int32_t>{});
    case BOPS_U32: return with_type(type_tag<uint32_t>{});
    case BOPS_I64: return with_type(type_tag<int64_t>{});
    default:
        if (choice.combine == BOPS_COMBINE_ADD) return with_combine(type_tag<float>{}, std::integral_constant<int, BOPS_COMBINE_ADD>());
        return with_type(type_tag<float>{});
    }
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_reduce_program, bops_dtype, bops_reduce_program_params, bops_reduce_program_choice, bops_reduce_program_operands,
                 bops::with_kernel)
