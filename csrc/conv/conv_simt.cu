// conv_simt: sums in registers and factors in shared memory, for any strides and all types. f32 with coordinates of 32 bits has kernels of its own, those of
// steps.cuh.
// Compiled once for all architectures.
#include "../gemm/fma.cuh"
#include "../gemm/simt_tile.cuh"
#include "steps.cuh"

namespace bops {
namespace conv {
namespace {

using gemm::side;
using gemm::simt_depth;
using gemm::simt_threads;
using gemm::step_of;

// Loads an element of an operand that has the type of the call or f32.
template <typename T> __device__ __forceinline__ accumulator_t<T> load_one(const void *base, bops_dtype dtype, uint64_t at) {
    if constexpr (sizeof(T) == 2)
        if (dtype == BOPS_F32) return static_cast<const float *>(base)[at];
    return widen<T>(static_cast<const T *>(base)[at]);
}

// The elements of a step of one factor that a thread loads, and their places in shared memory, which is [term][row].
template <int tile> struct share {
    static constexpr int count = tile * simt_depth / simt_threads; // elements of the thread
    static constexpr int line = gemm::step_pitch<tile>;
    int row, row_step, term, term_step;

    // along_rows: neighbouring threads take neighbouring rows; else neighbouring terms.
    __device__ __forceinline__ explicit share(bool along_rows) {
        const int thread = int(threadIdx.x);
        row = along_rows ? thread % tile : thread / simt_depth, row_step = along_rows ? 0 : simt_threads / simt_depth;
        term = along_rows ? thread / tile : thread % simt_depth, term_step = along_rows ? simt_threads / tile : 0;
    }
    template <typename A> __device__ __forceinline__ void put(A *to, const A (&held)[count]) const {
#pragma unroll
        for (int i = 0; i < count; ++i) to[(term + i * term_step) * line + row + i * row_step] = held[i];
    }
};

// each: results along a side of a thread's square. Two blocks per SM leave a thread 128 registers; squares of 8 by 8, which have 64 sums, take more.
template <typename T, int each, typename I> __global__ void __launch_bounds__(simt_threads, each == 8 ? 1 : 2)
    simt(const __grid_constant__ bops_conv_params params, const bops_conv_choice choice, const bops_gemm_operands operands) {
    using A = accumulator_t<T>;
    constexpr int tile = side * each, count = share<tile>::count;
    extern __shared__ __align__(16) unsigned char shared[];
    step_of<A, tile> *const steps = reinterpret_cast<step_of<A, tile> *>(shared);
    __shared__ row_part<I> rows[tile];
    __shared__ term_part<I> terms[2][simt_depth];
    const gemm::place at = gemm::place_of_block(params.product, choice.product.splits, tile);
    const uint64_t m_first = uint64_t(at.tile_m) * tile, n_first = uint64_t(at.tile_n) * tile;
    const gemm::reduction range(params.product, simt_depth, at.split, choice.product.splits);
    uint64_t steps_left = range.last - range.first;

    // 1. Fetching. The terms of a step are stored to shared memory while the step before is loaded.
    lay_rows<I, tile, simt_threads>(params, at.z, m_first, rows);
    term_walker<I, simt_depth> walker(params, range.first);
    walker.lay(params, terms[0]);
    __syncthreads();
    const share<tile> of_gathered(choice.product.left_across != 0), of_plain(choice.product.right_across != 0);
    const uint64_t group = plain_of_group(params, at.z), columns = params.product.n - n_first;
    uint64_t term_first = range.first * simt_depth;
    A held[count];
    const auto fetch_gathered = [&](const term_part<I> *of_terms) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
            int64_t element;
            const bool is_there =
                find(params, rows[of_gathered.row + i * of_gathered.row_step], of_terms[of_gathered.term + i * of_gathered.term_step], element);
            held[i] = is_there ? load_one<T>(operands.left, params.gathered_dtype, uint64_t(element)) : A(0);
        }
    };
    const auto fetch_plain = [&](const term_part<I> *of_terms) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const int column = of_plain.row + i * of_plain.row_step, term = of_plain.term + i * of_plain.term_step;
            const bool is_there = uint64_t(column) < columns && term_first + term < params.product.k;
            const uint64_t element = group + (n_first + column) * params.plain_column + of_terms[term].plain;
            held[i] = is_there ? load_one<T>(operands.right, params.plain_dtype, element) : A(0);
        }
    };
    if (steps_left > 0) {
        fetch_gathered(terms[0]);
        of_gathered.put(steps[0].left, held);
        fetch_plain(terms[0]);
        of_plain.put(steps[0].right, held);
        walker.lay(params, terms[1]);
    }

    // 2. The sums. A step is computed while the next one is loaded, one factor during each half.
    using sums_type = gemm::simt_sums<each, A, (each >= 4)>;
    typename sums_type::memory memory;
    sums_type chained(memory);
    auto &sums = chained.sums;
    const int y = int(threadIdx.x) / side, x = int(threadIdx.x) % side;
    __syncthreads();
    int now = 0;
#pragma unroll 1
    for (; steps_left > 0; --steps_left) {
        const bool has_next = steps_left > 1;
        if (has_next) {
            term_first += simt_depth;
            fetch_gathered(terms[now ^ 1]);
        }
        gemm::add_half_step(steps[now], 0, y, x, sums);
        if (has_next) {
            of_gathered.put(steps[now ^ 1].left, held);
            fetch_plain(terms[now ^ 1]);
        }
        gemm::add_half_step(steps[now], simt_depth / 2, y, x, sums);
        if (has_next) {
            of_plain.put(steps[now ^ 1].right, held);
            walker.lay(params, terms[now]);
        }
        chained.end_step();
        now ^= 1;
        __syncthreads();
    }

    // 3. The epilogue.
    A *const stage = reinterpret_cast<A *>(shared);
    chained.collect();
    gemm::stage_sums<each>(stage, choice.product.across != 0, sums);
    __syncthreads();
    gemm::leave_tile<T, tile, simt_threads>(params.product, choice.product, of_group<T>(params, operands, at.z), at, stage);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_conv_params &params, const bops_conv_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    if (dtype == BOPS_F32 && !choice.is_long)
        return gemm::for_tile(choice.product, [&](auto tile, auto left, auto right) {
            return with_sums<gemm::fma_sums<decltype(tile)::value, decltype(left)::value, decltype(right)::value>>(params, choice, operands, action);
        });
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        constexpr int most = sizeof(T) == 8 ? 4 : 8; // results along a side of a thread's square, with the largest tile
        launch_shape shape;
        shape.grid = dim3(gemm::blocks_of(params.product, choice.product)), shape.block = dim3(simt_threads);
        if (choice.product.tile == 32) {
            shape.shared_bytes = gemm::simt_shared_bytes<A, 32>();
            if (choice.is_long) return action(simt<T, 2, int64_t>, shape, params, choice, operands);
            if constexpr (sizeof(T) != 4) return action(simt<T, 2, int32_t>, shape, params, choice, operands);
        }
        shape.shared_bytes = gemm::simt_shared_bytes<A, side * most>();
        if constexpr (sizeof(T) != 4) return action(simt<T, most, int32_t>, shape, params, choice, operands);
        else return bops_status(cudaErrorInvalidValue);
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_simt, bops_dtype, bops_conv_params, bops_conv_choice, bops_gemm_operands, bops::conv::with_kernel)
