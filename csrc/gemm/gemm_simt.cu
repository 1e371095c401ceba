// gemm_simt: products with sums in registers and factors in shared memory, of any strides and all types.
#include "simt_tile.cuh"

namespace bops {
namespace gemm {
namespace {

// A thread's share of the loads that bring a tile of one factor, `tile` rows of simt_depth elements along k, to shared memory as [k][row].
template <typename T, int tile> struct carrier {
    static constexpr int count = tile * simt_depth / simt_threads; // elements of the thread
    static constexpr int line = step_pitch<tile>;
    const T *from;         // the thread's first element in the current step
    uint64_t step;         // elements from there to the thread's next one
    int place, place_step; // where they go in shared memory
    int depth, depth_step; // which k of the step they are
    uint32_t is_there;     // a bit for each of them, set if its row exists
    T held[count];

    __device__ __forceinline__ carrier(uint64_t row_stride, uint64_t k_stride, int rows_left) {
        // Neighbouring threads take neighbouring elements.
        const bool along_rows = row_stride == 1;
        const int thread = int(threadIdx.x), row = along_rows ? thread % tile : thread / simt_depth;
        const int row_step = along_rows ? 0 : simt_threads / simt_depth;
        depth = along_rows ? thread / tile : thread % simt_depth;
        depth_step = along_rows ? simt_threads / tile : 0;
        step = along_rows ? uint64_t(depth_step) * k_stride : uint64_t(row_step) * row_stride;
        place = depth * line + row, place_step = depth_step * line + row_step;
        is_there = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) is_there |= uint32_t(row + i * row_step < rows_left) << i;
    }
    // The position, in a tile, of the thread's first element.
    static __device__ __forceinline__ uint64_t first(uint64_t row_stride, uint64_t k_stride) {
        const int thread = int(threadIdx.x);
        return row_stride == 1 ? uint64_t(thread % tile) + uint64_t(thread / tile) * k_stride
                               : uint64_t(thread / simt_depth) * row_stride + uint64_t(thread % simt_depth) * k_stride;
    }
    __device__ __forceinline__ void fetch(int depth_left) {
        const T *at = from;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            held[i] = (is_there >> i & 1) && depth + i * depth_step < depth_left ? *at : T(0.0f);
            at += step;
        }
    }
    template <typename A> __device__ __forceinline__ void put(A *to) const {
#pragma unroll
        for (int i = 0; i < count; ++i) to[place + i * place_step] = widen<T>(held[i]);
    }
};

// each: results along a side of a thread's square. Two blocks per SM leave a thread 128 registers; squares of 8 by 8, which have 64 sums, take more.
template <typename T, int each> __global__ void __launch_bounds__(simt_threads, each == 8 ? 1 : 2)
    simt(const __grid_constant__ bops_gemm_params params, const bops_gemm_choice choice, const bops_gemm_operands operands) {
    using A = accumulator_t<T>;
    constexpr int tile = side * each;
    extern __shared__ __align__(16) unsigned char shared[];
    step_of<A, tile> *const steps = reinterpret_cast<step_of<A, tile> *>(shared);
    const place at = place_of_block(params, choice.splits, tile);
    const uint64_t m_first = uint64_t(at.tile_m) * tile, n_first = uint64_t(at.tile_n) * tile;
    const reduction range(params, simt_depth, at.split, choice.splits);

    // 1. Fetching: where this thread's elements of both factors lie.
    const bops_gemm_matrix &left = params.left.matrix, &right = params.right.matrix;
    carrier<T, tile> of_left(left.row, left.column, int(min(uint64_t(tile), params.m - m_first)));
    carrier<T, tile> of_right(right.column, right.row, int(min(uint64_t(tile), params.n - n_first)));
    uint64_t summed = range.first < range.last ? range.first / range.steps_of_k : 0;
    uint64_t k_left = params.k - (range.first - summed * range.steps_of_k) * simt_depth;
    if (range.first < range.last) {
        const uint64_t along_k = params.k - k_left;
        of_left.from = static_cast<const T *>(operands.left) + offset_of(params.batch_rank, params.batch, left.batch, at.z) +
                       offset_of(params.summed_rank, params.summed, params.left.summed, summed) + m_first * left.row + along_k * left.column +
                       of_left.first(left.row, left.column);
        of_right.from = static_cast<const T *>(operands.right) + offset_of(params.batch_rank, params.batch, right.batch, at.z) +
                        offset_of(params.summed_rank, params.summed, params.right.summed, summed) + n_first * right.column + along_k * right.row +
                        of_right.first(right.column, right.row);
        const int depth_left = int(min(uint64_t(simt_depth), k_left));
        of_left.fetch(depth_left), of_right.fetch(depth_left);
        of_left.put(steps[0].left), of_right.put(steps[0].right);
    }

    // 2. The sums. A step is computed while the next one is loaded.
    using sums_type = simt_sums<each, A, sizeof(A) == 8 && each == 4>;
    typename sums_type::memory memory;
    sums_type chained(memory);
    auto &sums = chained.sums;
    const int y = int(threadIdx.x) / side, x = int(threadIdx.x) % side;
    __syncthreads();
    int now = 0;
#pragma unroll 1
    for (uint64_t steps_left = range.last - range.first; steps_left > 0; --steps_left) {
        // One factor is loaded during each half of a step, so that few registers hold what is in flight.
        const bool has_next = steps_left > 1;
        int depth_left = 0;
        if (has_next) {
            if (k_left > simt_depth) {
                k_left -= simt_depth;
                of_left.from += simt_depth * left.column, of_right.from += simt_depth * right.row;
            } else {
                // From the end of k to its start at the next summed index.
                const auto jump = [&](const bops_gemm_factor &factor, uint64_t k_stride) {
                    return offset_of(params.summed_rank, params.summed, factor.summed, summed + 1) -
                           offset_of(params.summed_rank, params.summed, factor.summed, summed) - (range.steps_of_k - 1) * simt_depth * k_stride;
                };
                of_left.from += jump(params.left, left.column), of_right.from += jump(params.right, right.row);
                k_left = params.k;
                ++summed;
            }
            depth_left = int(min(uint64_t(simt_depth), k_left));
            of_left.fetch(depth_left);
        }
        add_half_step(steps[now], 0, y, x, sums);
        if (has_next) {
            of_left.put(steps[now ^ 1].left);
            of_right.fetch(depth_left);
        }
        add_half_step(steps[now], simt_depth / 2, y, x, sums);
        if (has_next) of_right.put(steps[now ^ 1].right);
        chained.end_step();
        now ^= 1;
        __syncthreads();
    }

    // 3. The epilogue.
    A *const stage = reinterpret_cast<A *>(shared);
    chained.collect();
    stage_sums<each>(stage, choice.across != 0, sums);
    __syncthreads();
    leave_tile<T, tile, simt_threads>(params, choice, operands, at, stage);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_gemm_params &params, const bops_gemm_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        constexpr int most = sizeof(T) == 8 ? 4 : 8; // results along a side of a thread's square, with the largest tile
        launch_shape shape;
        shape.grid = dim3(blocks_of(params, choice)), shape.block = dim3(simt_threads);
        if (choice.tile == 32) {
            shape.shared_bytes = simt_shared_bytes<A, 32>();
            return action(simt<T, 2>, shape, params, choice, operands);
        }
        shape.shared_bytes = simt_shared_bytes<A, side * most>();
        return action(simt<T, most>, shape, params, choice, operands);
    });
}

} // namespace
} // namespace gemm
} // namespace bops

BOPS_DEFINE_FORM(bops_gemm_simt, bops_dtype, bops_gemm_params, bops_gemm_choice, bops_gemm_operands, bops::gemm::with_kernel)
