// What follows a product whose sums lie in memory: gemm_finish.
#include "gemm.cuh"

namespace bops {
namespace gemm {
namespace {

// Columns of a tile, along the fast index of out. It has BOPS_GEMM_FINISH_ROWS rows, so that a thread has four times four elements.
constexpr int finish_columns = 128;

constexpr uint32_t chain_of_parts = 16; // parts that are added up one after another, before their sum goes to the total

// The sums of the parts, in their order.
template <typename A> struct parts_in_memory {
    const A *from;
    uint64_t split_stride;
    walk strides;
    uint32_t splits;
    bool quads;
    __device__ __forceinline__ void operator()(int slow, int fast, int count, A (&v)[4]) const {
        const A *at = from + uint64_t(slow) * strides.slow + uint64_t(fast) * strides.fast;
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = A(0);
#pragma unroll 1
        for (uint32_t first = 0; first < splits; first += chain_of_parts) {
            A chain[4] = {};
// Registers hold fewer f64 numbers in flight.
#pragma unroll(sizeof(A) == 8 ? 2 : 4)
            for (uint32_t split = first; split < min(first + chain_of_parts, splits); ++split, at += split_stride) {
                A part[4];
                load_four_of(at, strides.fast, count, quads, part);
#pragma unroll
                for (int i = 0; i < 4; ++i) chain[i] += part[i];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) v[i] += chain[i];
        }
    }
};

template <typename T> __global__ void __launch_bounds__(threads_of_finish)
    finish(const __grid_constant__ bops_gemm_params params, const __grid_constant__ bops_gemm_finish_choice choice, const accumulator_t<T> *source,
           const bops_gemm_operands operands) {
    using A = accumulator_t<T>;
    __shared__ A scratch[4 * threads_of_finish];
    const bool across = choice.across != 0;
    const uint64_t slow_extent = across ? params.n : params.m, fast_extent = across ? params.m : params.n;
    const uint32_t tiles_slow = uint32_t(tiles_of(slow_extent, BOPS_GEMM_FINISH_ROWS)), tiles_fast = uint32_t(tiles_of(fast_extent, finish_columns));
    const uint32_t tile_fast = blockIdx.x % tiles_fast, tile_slow = blockIdx.x / tiles_fast % tiles_slow, z = blockIdx.x / tiles_fast / tiles_slow;
    parts_in_memory<A> parts{source, choice.split_stride, walk(choice.source, across), choice.splits, choice.quads != 0};
    parts.from += offset_of(params.batch_rank, params.batch, choice.source.batch, z) +
                  uint64_t(tile_slow) * BOPS_GEMM_FINISH_ROWS * parts.strides.slow + uint64_t(tile_fast) * finish_columns * parts.strides.fast;
    finish_tile<T, BOPS_GEMM_FINISH_ROWS, finish_columns, threads_of_finish>(params, operands, across, parts.quads, z, tile_slow, tile_fast, parts,
                                                                             scratch);
}

template <typename Action> bops_status with_kernel(const bops_gemm_params &params, const bops_gemm_finish_choice &choice, bops_dtype dtype,
                                                   const void *source, const bops_gemm_operands &operands, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const uint64_t slow_extent = choice.across ? params.n : params.m, fast_extent = choice.across ? params.m : params.n;
        launch_shape shape;
        shape.grid = dim3(uint32_t(tiles_of(slow_extent, BOPS_GEMM_FINISH_ROWS) * tiles_of(fast_extent, finish_columns) *
                                   product_of(params.batch_rank, params.batch)));
        shape.block = dim3(threads_of_finish);
        return action(finish<T>, shape, params, choice, static_cast<const accumulator_t<T> *>(source), operands);
    });
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_finish_prepare(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype) {
    return bops::gemm::with_kernel(*params, *choice, dtype, nullptr, {}, bops::prepare_action{});
}

bops_status bops_gemm_finish_launch(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype, const void *source,
                                    const bops_gemm_operands *operands, bops_stream stream) {
    return bops::gemm::with_kernel(*params, *choice, dtype, source, *operands, bops::launch_action{stream});
}
