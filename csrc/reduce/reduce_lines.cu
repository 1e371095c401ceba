// Sums of what programs make of lines, in which elements of every input are neighbours or one is repeated: a team of threads takes a piece of an output.
// Compiled once for all architectures.
#include "reduce.cuh"

namespace bops {
namespace {

// Accesses of a thread to an input that are loaded together, at most BOPS_REDUCE_LINES_BATCH: of programs that are known when the kernel is compiled as many
// as values have registers.
template <typename E, typename R> constexpr int batch_of = 1;
template <typename E, typename P> constexpr int batch_of<E, known<P>> = 16 / (P::slots * E::width) > 1 ? 16 / (P::slots * E::width) : 1;
// Blocks of an SM that registers are allotted for.
template <typename E, typename R> constexpr int lines_blocks = R::slots *E::width > 16 ? 2 : 3;
template <typename E, typename P> constexpr int lines_blocks<E, known<P>> = 4;

// E: the elements. R: what is run on the values of a thread.
template <typename E, typename R> __global__ void __launch_bounds__(reduce_threads, lines_blocks<E, R>)
    reduce_lines(const __grid_constant__ bops_reduce_lines_params params, const __grid_constant__ bops_reduce_program_operands operands,
                 typename E::A *parts) {
    using A = typename E::A;
    using F = fold<BOPS_COMBINE_ADD, A>;
    constexpr int width = E::width, batch = batch_of<E, R>;
    __shared__ A held[reduce_threads];
    const bops_reduce_results &results = params.results;
    const uint32_t team = threadIdx.x / params.threads, thread = threadIdx.x % params.threads;
    const uint64_t number = uint64_t(blockIdx.x) * (reduce_threads / params.threads) + team;
    const uint64_t output = results.pieces == 1 ? number : number / results.pieces;
    const uint64_t piece = results.pieces == 1 ? 0 : number - output * results.pieces;
    const bool is_there = output < results.outputs;
    values<A, width * batch, R::slots> values;
    constexpr int most_inputs = R::slots < BOPS_POINTWISE_INPUTS ? R::slots : BOPS_POINTWISE_INPUTS;
    // 1. The thread's values.
    const place<BOPS_POINTWISE_EXTENTS, true> kept(results.kept, is_there ? output : 0, 1);
    uint64_t line[most_inputs];
#pragma unroll
    for (int i = 0; i < most_inputs; ++i) line[i] = i < params.inputs ? kept.offset_by(params.input[i].strides) : 0;
    A total = F::none();
#pragma unroll 1
    for (uint32_t b = 0; b < params.rounds; b += batch) {
        const uint64_t first = (piece * params.rounds + b) * uint64_t(params.threads) + thread;
        if (!is_there || first >= params.accesses) break;
        typename E::raw raw[most_inputs][batch] = {};
#pragma unroll
        for (int k = 0; k < batch; ++k) {
            const uint64_t access = first + uint64_t(k) * params.threads;
            if (access >= params.accesses) break;
#pragma unroll
            for (int i = 0; i < most_inputs; ++i) {
                if (i >= params.inputs) break;
                const uint64_t along = params.input[i].is_repeated ? 0 : access * width;
                raw[i][k] = E::template load<false>(params.input[i], operands.input[i], line[i] + along, width);
            }
        }
#pragma unroll
        for (int i = 0; i < most_inputs; ++i) {
            if (i >= params.inputs) break;
#pragma unroll
            for (int k = 0; k < batch; ++k) {
                A v[width];
                E::unpack(params.input[i], raw[i][k], v);
#pragma unroll
                for (int j = 0; j < width; ++j) values.slot[i][k * width + j] = v[j];
            }
        }
        R::run(values, params);
        A v[width * batch], of_batch[batch];
        values.get(params.result, params.literal, v);
#pragma unroll
        for (int k = 0; k < batch; ++k) {
            A of_access[width];
#pragma unroll
            for (int j = 0; j < width; ++j) of_access[j] = each_of<BOPS_COMBINE_ADD>(params.each, v[k * width + j]);
            const bool is_in = first + uint64_t(k) * params.threads < params.accesses;
            of_batch[k] = is_in ? paired<F>(of_access) : F::none();
        }
        total = F::both(total, paired<F>(of_batch));
    }
    // 2. The team.
    total = over_threads(F{}, total, held, thread, params.threads, 1);
    // 3. The output, or the piece's part of it.
    if (thread != 0 || !is_there) return;
    if (results.pieces == 1) store_result(results, operands.out, place_of_output(results, output), total);
    else parts[piece * results.outputs + output] = total;
}

template <typename Action> bops_status with_kernel(bops_combine, const bops_reduce_lines_params &params, const bops_reduce_lines_choice &choice,
                                                   const bops_reduce_program_operands &operands, void *workspace, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(params.blocks)), shape.block = dim3(reduce_threads);
    const auto with_elements = [&](auto elements) {
        using E = typename decltype(elements)::type;
        const auto run = [&](auto what) {
            return action(reduce_lines<E, typename decltype(what)::type>, shape, params, operands, static_cast<typename E::A *>(workspace));
        };
        // Of elements of one type there is one for 4 values that are live at once, of elements of any types one for 8.
        const auto interpreter = [&] {
            constexpr int slots = std::is_same_v<E, mixed<float, 4>> ? 8 : 4;
            return run(type_tag<interpreted<slots, BOPS_COST_SPECIAL>>{});
        };
        if constexpr (std::is_same_v<E, mixed<float, 4>>) return interpreter();
        else {
            const written_program program = {params.instruction, &params.result, params.inputs, 1, params.instructions};
            return with_stock(
                program, stock::reduced{}, [&](auto one) { return run(type_tag<known<typename decltype(one)::type>>{}); }, interpreter);
        }
    };
    bops_status status = bops_status(cudaSuccess);
    if (params.results.pieces > 0) {
        if (!choice.is_uniform) status = with_elements(type_tag<mixed<float, 4>>{});
        else status = for_narrow(choice.dtype, [&](auto tag) { return with_elements(type_tag<uniform<typename decltype(tag)::type>>{}); });
    }
    return status != cudaSuccess ? status : with_pieces<fold<BOPS_COMBINE_ADD, float>>(params.results, workspace, operands.out, action);
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_reduce_lines, bops_combine, bops_reduce_lines_params, bops_reduce_lines_choice, bops_reduce_program_operands, bops::with_kernel)
