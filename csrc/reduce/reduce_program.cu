// Reductions of what programs make of inputs of any types and strides.
#include "reduce.cuh"

namespace bops {
namespace {

template <typename A, int slots, int combine> __global__ void __launch_bounds__(reduce_threads, 3)
    reduce_program(const __grid_constant__ bops_reduce_program_params params, const __grid_constant__ bops_reduce_program_operands operands,
                   A *parts) {
    using E = mixed<A, 1>;
    __shared__ A held[reduce_threads];
    // Strides, which would take registers throughout the loop if they were read from the parameters. Behind the last of an input without reduced extents
    // one is read that counts for nothing.
    __shared__ uint64_t strides[BOPS_POINTWISE_INPUTS + 1][BOPS_POINTWISE_EXTENTS];
    if (threadIdx.x < BOPS_POINTWISE_INPUTS * BOPS_POINTWISE_EXTENTS)
        strides[threadIdx.x / BOPS_POINTWISE_EXTENTS][threadIdx.x % BOPS_POINTWISE_EXTENTS] =
            params.input[threadIdx.x / BOPS_POINTWISE_EXTENTS].strides[threadIdx.x % BOPS_POINTWISE_EXTENTS];
    __syncthreads();
    const bops_reduce_results &results = params.results;
    const uint32_t across = reduce_threads / params.threads;
    const uint32_t thread = params.is_columns ? threadIdx.x / across : threadIdx.x % params.threads;
    const uint32_t own = params.is_columns ? threadIdx.x % across : threadIdx.x / params.threads;
    const uint64_t piece = results.pieces == 1 ? 0 : blockIdx.x / params.groups, group = blockIdx.x - piece * params.groups;
    const uint64_t output = group * across + own;
    const bool is_there = output < results.outputs;
    // 1. The thread's values.
    const place<BOPS_POINTWISE_EXTENTS, true> kept(results.kept, is_there ? output : 0, 1);
    A total = identity<combine, A>();
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
        interpret(values, params.instruction, params.instructions, params.literal);
        A v[1];
        values.get(params.result, params.literal, v);
        total = combined<combine>(total, each_of<combine>(params.each, v[0]));
    }
    // 2. The threads that share the output.
    total = over_threads<combine>(total, held, thread, params.threads, params.is_columns ? across : 1);
    // 3. The output, or the piece's part of it.
    if (thread != 0 || !is_there) return;
    if (results.pieces == 1) store_result(results, operands.out, kept.offset(results.out), total);
    else parts[piece * results.outputs + output] = total;
}

template <typename Action> bops_status with_kernel(bops_dtype computing, const bops_reduce_program_params &params,
                                                   const bops_reduce_program_choice &choice, const bops_reduce_program_operands &operands,
                                                   void *workspace, const Action &action) {
    const auto with_type = [&](auto tag) {
        using A = typename decltype(tag)::type;
        return for_value<BOPS_COMBINE_ADD, BOPS_COMBINE_MULTIPLY, BOPS_COMBINE_GREATEST>(choice.combine, [&](auto combine) {
            launch_shape shape;
            shape.grid = dim3(uint32_t(params.groups * params.results.pieces)), shape.block = dim3(reduce_threads);
            bops_status status = bops_status(cudaSuccess);
            if (params.results.pieces > 0)
                status = for_value<8, 0>(choice.slots, [&](auto slots) {
                    return action(reduce_program<A, slots, combine>, shape, params, operands, static_cast<A *>(workspace));
                });
            return status != cudaSuccess ? status : with_pieces<A, combine>(params.results, workspace, operands.out, action);
        });
    };
    return computing == BOPS_F64 ? with_type(type_tag<double>{}) : with_type(type_tag<float>{});
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_reduce_program, bops_dtype, bops_reduce_program_params, bops_reduce_program_choice, bops_reduce_program_operands,
                 bops::with_kernel)
