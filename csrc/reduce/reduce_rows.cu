// Reductions along extents in which elements lie next to each other: a team of threads takes a piece of an output, or all of a few short ones.
// Compiled once for all architectures.
#include "reduce.cuh"

namespace bops {
namespace {

// Blocks of an SM that registers are allotted for.
template <typename T, int extents, int combine> constexpr int rows_blocks = is_scalar(combine) && extents == 1    ? 3
                                                                            : is_scalar(combine) || sizeof(T) < 8 ? 2
                                                                                                                  : 1;

template <typename T, int bytes, int extents, int combine, int rows>
__global__ void __launch_bounds__(reduce_threads, rows_blocks<T, extents, combine>)
    reduce_rows(const __grid_constant__ bops_reduce_rows_params params, const T *in, void *out,
                typename fold<combine, accumulator_t<T>>::held *parts) {
    using A = accumulator_t<T>;
    using F = fold<combine, A>;
    using H = typename F::held;
    constexpr int width = pointwise_width<T, bytes>, of_row = reduce_batch / rows; // accesses of a row that are in flight at once
    __shared__ H held[reduce_threads / 32][rows];
    const bops_reduce_results &results = params.results;
    const uint32_t team = threadIdx.x / params.threads, thread = threadIdx.x % params.threads;
    const uint64_t number = uint64_t(blockIdx.x) * (reduce_threads / params.threads) + team;
    const uint64_t group = results.pieces == 1 ? number : number / results.pieces, piece = results.pieces == 1 ? 0 : number - group * results.pieces;
    const uint64_t first_row = group * rows;
    // 1. The thread's accesses.
    H total[rows];
    const T *from[rows];
#pragma unroll
    for (int j = 0; j < rows; ++j) {
        total[j] = F::none();
        const uint64_t row = first_row + j < results.outputs ? first_row + j : results.outputs - 1;
        from[j] = in + place<BOPS_POINTWISE_EXTENTS, true>(results.kept, row, 1).offset(params.in_kept);
    }
#pragma unroll 1
    for (uint32_t b = 0; b < params.batches; ++b) {
        packed<bytes> loaded[rows][of_row] = {};
        const uint64_t first = (piece * params.batches + b) * (uint64_t(of_row) * params.threads) + thread;
        if (first >= params.accesses) break;
#pragma unroll
        for (int j = 0; j < rows; ++j)
#pragma unroll
            for (int i = 0; i < of_row; ++i) {
                const uint64_t access = first + uint64_t(i) * params.threads;
                if (access < params.accesses)
                    loaded[j][i] = load<bytes>(from[j] + place<extents, true>(params.reduced, access, width).offset(params.in));
            }
#pragma unroll
        for (int j = 0; j < rows; ++j) {
            H of_batch[of_row];
#pragma unroll
            for (int i = 0; i < of_row; ++i) {
                A v[width];
                unpack<T>(loaded[j][i], v);
#pragma unroll
                for (int w = 0; w < width; ++w) v[w] = each_of<combine>(params.each, v[w]);
                const uint64_t access = first + uint64_t(i) * params.threads;
                of_batch[i] = access < params.accesses ? F::of(v, width, access * width, 1) : F::none();
            }
            total[j] = F::both(total[j], paired<F>(of_batch));
        }
    }
    // 2. The team: within warps, then the warps of a team.
    const uint32_t within = params.threads < 32 ? params.threads : 32;
    for (uint32_t step = within / 2; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < rows; ++j) total[j] = F::both(total[j], from_lane(total[j], step));
    if (params.threads > 32) {
        if (threadIdx.x % 32 == 0)
#pragma unroll
            for (int j = 0; j < rows; ++j) held[threadIdx.x / 32][j] = total[j];
        __syncthreads();
        if (thread == 0)
            for (uint32_t warp = 1; warp < params.threads / 32; ++warp)
#pragma unroll
                for (int j = 0; j < rows; ++j) total[j] = F::both(total[j], held[threadIdx.x / 32 + warp][j]);
    }
    // 3. The outputs, or the piece's part of one.
    if (thread != 0) return;
#pragma unroll
    for (int j = 0; j < rows; ++j) {
        const uint64_t row = first_row + j;
        if (row >= results.outputs) break;
        if (results.pieces == 1) store_held(F(), results, out, place_of_output(results, row), total[j]);
        else parts[piece * results.outputs + row] = total[j];
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_reduce_rows_params &params, const bops_reduce_choice &choice,
                                                   const bops_reduce_operands &operands, void *workspace, const Action &action) {
    return for_reduced(dtype, choice.vec_bytes, [&](auto tag, auto bytes) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        return for_combine(choice.combine, [&](auto combine) {
            using F = fold<combine, A>;
            launch_shape shape;
            shape.grid = dim3(uint32_t(params.blocks)), shape.block = dim3(reduce_threads);
            const auto run = [&](auto extents, auto rows) {
                return action(reduce_rows<T, bytes, extents, combine, rows>, shape, params, static_cast<const T *>(operands.in), operands.out,
                              static_cast<typename F::held *>(workspace));
            };
            bops_status status = bops_status(cudaSuccess);
            if (params.blocks > 0) {
                constexpr std::integral_constant<int, BOPS_POINTWISE_EXTENTS> any;
                constexpr std::integral_constant<int, 1> one;
                if constexpr (bytes == 16 && (combine == BOPS_COMBINE_ADD || combine == BOPS_COMBINE_GREATEST)) {
                    if (choice.extents == 1) status = for_value<1, 4>(choice.rows, [&](auto rows) { return run(one, rows); });
                    else status = run(any, one);
                } else {
                    status = run(any, one);
                }
            }
            return status != cudaSuccess ? status : with_pieces<F>(params.results, workspace, operands.out, action);
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_reduce_rows, bops_dtype, bops_reduce_rows_params, bops_reduce_choice, bops_reduce_operands, bops::with_kernel)
