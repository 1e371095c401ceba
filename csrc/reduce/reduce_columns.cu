// Reductions across an extent that stays, in which elements lie next to each other: threads side by side have neighbouring outputs.
// Compiled once for all architectures.
#include "reduce.cuh"

namespace bops {
namespace {

constexpr int across = BOPS_REDUCE_ACROSS, most_deep = reduce_threads / across;

// Blocks of an SM that registers are allotted for; 0 leaves it to the compiler, which spills where much is held.
template <int combine> constexpr int columns_blocks = is_scalar(combine) ? 0 : 1;

template <typename T, int bytes, int combine> __global__ void __launch_bounds__(reduce_threads, columns_blocks<combine>)
    reduce_columns(const __grid_constant__ bops_reduce_columns_params params, const T *in, void *out,
                   typename fold<combine, accumulator_t<T>>::held *parts) {
    using A = accumulator_t<T>;
    using F = fold<combine, A>;
    using H = typename F::held;
    constexpr int width = pointwise_width<T, bytes>;
    __shared__ H held[most_deep][width][across];
    const bops_reduce_results &results = params.results;
    const uint32_t lane = threadIdx.x % across, deep = threadIdx.x / across;
    const uint64_t piece = results.pieces == 1 ? 0 : blockIdx.x / params.groups, group = blockIdx.x - piece * params.groups;
    const uint64_t access = group * across + lane, first_output = access * width;
    const bool is_there = first_output < results.outputs;
    const place<BOPS_POINTWISE_EXTENTS, true> kept(params.kept, is_there ? access : 0, width);
    const T *from = in + kept.offset(params.in_kept);
    // 1. The thread's accesses.
    H total[width];
#pragma unroll
    for (int w = 0; w < width; ++w) total[w] = F::none();
#pragma unroll 1
    for (uint32_t b = 0; b < params.batches; ++b) {
        packed<bytes> loaded[reduce_batch] = {};
        const uint64_t first = (piece * params.batches + b) * (uint64_t(reduce_batch) * params.deep) + deep;
        if (!is_there || first >= params.items) break;
#pragma unroll
        for (int i = 0; i < reduce_batch; ++i) {
            const uint64_t item = first + uint64_t(i) * params.deep;
            if (item < params.items) loaded[i] = load<bytes>(from + place<BOPS_POINTWISE_EXTENTS, true>(params.reduced, item, 1).offset(params.in));
        }
        A v[reduce_batch][width];
#pragma unroll
        for (int i = 0; i < reduce_batch; ++i) {
            unpack<T>(loaded[i], v[i]);
#pragma unroll
            for (int w = 0; w < width; ++w) v[i][w] = each_of<combine>(params.each, v[i][w]);
        }
        // `deep` is a power of two.
        const uint64_t left = (params.items - first + params.deep - 1) >> (31 - __clz(int(params.deep)));
        const uint32_t present = left < reduce_batch ? uint32_t(left) : reduce_batch;
#pragma unroll
        for (int w = 0; w < width; ++w) {
            A of_batch[reduce_batch];
#pragma unroll
            for (int i = 0; i < reduce_batch; ++i) of_batch[i] = v[i][w];
            total[w] = F::both(total[w], F::of(of_batch, present, first, params.deep));
        }
    }
    // 2. The threads that share outputs.
#pragma unroll
    for (int w = 0; w < width; ++w) held[deep][w][lane] = total[w];
    __syncthreads();
    for (uint32_t half = params.deep / 2; half > 0; half /= 2) {
        if (deep < half)
#pragma unroll
            for (int w = 0; w < width; ++w) {
                total[w] = F::both(total[w], held[deep + half][w][lane]);
                held[deep][w][lane] = total[w];
            }
        __syncthreads();
    }
    // 3. The outputs, or the piece's parts of them.
    if (deep != 0 || !is_there) return;
    if (results.pieces == 1) {
        const uint64_t at = kept.offset(params.out);
#pragma unroll
        for (int w = 0; w < width; ++w) store_held(F(), results, out, at + w * params.out_step, total[w]);
    } else {
#pragma unroll
        for (int w = 0; w < width; ++w) parts[piece * results.outputs + first_output + w] = total[w];
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_reduce_columns_params &params, const bops_reduce_choice &choice,
                                                   const bops_reduce_operands &operands, void *workspace, const Action &action) {
    return for_reduced(dtype, choice.vec_bytes, [&](auto tag, auto bytes) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        return for_combine(choice.combine, [&](auto combine) {
            using F = fold<combine, A>;
            launch_shape shape;
            shape.grid = dim3(uint32_t(params.groups * params.results.pieces)), shape.block = dim3(across * params.deep);
            bops_status status = bops_status(cudaSuccess);
            if (params.results.pieces > 0)
                status = action(reduce_columns<T, bytes, combine>, shape, params, static_cast<const T *>(operands.in), operands.out,
                                static_cast<typename F::held *>(workspace));
            return status != cudaSuccess ? status : with_pieces<F>(params.results, workspace, operands.out, action);
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_reduce_columns, bops_dtype, bops_reduce_columns_params, bops_reduce_choice, bops_reduce_operands, bops::with_kernel)
