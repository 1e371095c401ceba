// gemm_mma: tensor cores of compute capability 8.0 and later, through mma.sync. Factors of f16 and bf16, or of f32 that are rounded to tf32.
#include "mma.cuh"

namespace bops {
namespace gemm {
namespace {

// A thread's part in bringing steps of one factor to shared memory: a few chunks of 16 bytes.
template <typename T, int tile, bool across> struct mma_carrier {
    static constexpr int threads = mma_shape<tile>::threads, elements = 16 / int(sizeof(T));
    static constexpr int per_line = across ? tile * int(sizeof(T)) / 16 : step_row_bytes / 16;          // chunks
    static constexpr int line_step = threads / per_line, chunks = tile * step_row_bytes / 16 / threads; // from one chunk of the thread to the next
    const T *from;
    int lines_left, fast_left; // from the first chunk on, of the index that k is not

    __device__ __forceinline__ static int line() { return int(threadIdx.x) / per_line; }
    __device__ __forceinline__ static int fast() { return int(threadIdx.x) % per_line * elements; }

    // row_stride, k_stride: those of the factor, here and below.
    __device__ __forceinline__ mma_carrier(int rows_left) : from(nullptr), lines_left(rows_left - line()), fast_left(rows_left - fast()) {}
    // Where the thread's first element lies in a tile.
    __device__ __forceinline__ static uint64_t first(uint64_t row_stride, uint64_t k_stride) {
        return across ? uint64_t(line()) * k_stride + uint64_t(fast()) * row_stride : uint64_t(line()) * row_stride + uint64_t(fast()) * k_stride;
    }
    __device__ __forceinline__ void fetch(uint32_t step, uint64_t row_stride, uint64_t k_stride, uint32_t bytes, int depth_left) const {
        const uint64_t line_stride = across ? k_stride : row_stride, stride = across ? row_stride : k_stride;
        const int lines = across ? depth_left - line() : lines_left, fasts = across ? fast_left : depth_left - fast();
#pragma unroll
        for (int i = 0; i < chunks; ++i) {
            const int there = i * line_step < lines ? max(min(fasts, elements), 0) * int(sizeof(T)) : 0;
            const T *at = there > 0 ? from + uint64_t(i * line_step) * line_stride : from;
            const uint32_t to = step + (across ? across_address<T, tile>(line() + i * line_step, fast())
                                               : along_k_address(line() + i * line_step, fast() / elements));
            if (bytes == 16) copy_or_zero<16>(to, at, there);
            else if (bytes == 8) copy_parts<T, 8>(to, at, stride, there);
            else if (bytes == 4) copy_parts<T, 4>(to, at, stride, there);
            else if constexpr (sizeof(T) == 2) {
                // No asynchronous copy is this short.
                uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    if (2 * j < there) words[j / 2] |= uint32_t(reinterpret_cast<const unsigned short *>(at)[uint64_t(j) * stride]) << (16 * (j % 2));
                asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                             : "memory");
            }
        }
    }
};

template <typename T, int tile, bool left_across, bool right_across> __global__ void __launch_bounds__(mma_shape<tile>::threads, tile == 128 ? 2 : 3)
    mma(const __grid_constant__ bops_gemm_params params, const bops_gemm_choice choice, const bops_gemm_operands operands) {
    using shape = mma_shape<tile>;
    constexpr int depth = step_row_bytes / int(sizeof(T));
    extern __shared__ __align__(16) unsigned char shared[];
    const uint32_t steps = shared_address(shared);
    const place at = place_of_block(params, choice.splits, tile);
    const uint64_t m_first = uint64_t(at.tile_m) * tile, n_first = uint64_t(at.tile_n) * tile;
    const reduction range(params, depth, at.split, choice.splits);

    // 1. The factors of the block.
    const bops_gemm_matrix &left = params.left.matrix, &right = params.right.matrix;
    mma_carrier<T, tile, left_across> of_left(int(min(uint64_t(tile), params.m - m_first)));
    mma_carrier<T, tile, right_across> of_right(int(min(uint64_t(tile), params.n - n_first)));
    uint64_t steps_to_fetch = range.last - range.first;
    uint64_t summed = steps_to_fetch > 0 ? range.first / range.steps_of_k : 0;
    uint64_t k_left = params.k - (range.first - summed * range.steps_of_k) * depth;
    of_left.from = static_cast<const T *>(operands.left) + offset_of(params.batch_rank, params.batch, left.batch, at.z) +
                   offset_of(params.summed_rank, params.summed, params.left.summed, summed) + m_first * left.row + (params.k - k_left) * left.column +
                   of_left.first(left.row, left.column);
    of_right.from = static_cast<const T *>(operands.right) + offset_of(params.batch_rank, params.batch, right.batch, at.z) +
                    offset_of(params.summed_rank, params.summed, params.right.summed, summed) + n_first * right.column +
                    (params.k - k_left) * right.row + of_right.first(right.column, right.row);
    // The next step goes to place `to`.
    const auto fetch = [&](int to) {
        if (steps_to_fetch > 0) {
            const int depth_left = int(min(uint64_t(depth), k_left));
            const uint32_t step = steps + uint32_t(to) * 2 * step_bytes<T, tile>;
            of_left.fetch(step, left.row, left.column, choice.left_bytes, depth_left);
            of_right.fetch(step + step_bytes<T, tile>, right.column, right.row, choice.right_bytes, depth_left);
            if (k_left > depth) {
                k_left -= depth;
                of_left.from += depth * left.column, of_right.from += depth * right.row;
            } else if (steps_to_fetch > 1) {
                // The start of k, of the next summed index.
                const auto jump = [&](const bops_gemm_factor &factor, uint64_t k_stride) {
                    return offset_of(params.summed_rank, params.summed, factor.summed, summed + 1) -
                           offset_of(params.summed_rank, params.summed, factor.summed, summed) - (range.steps_of_k - 1) * depth * k_stride;
                };
                of_left.from += jump(params.left, left.column), of_right.from += jump(params.right, right.row);
                k_left = params.k;
                ++summed;
            }
            --steps_to_fetch;
        }
        copy_commit();
    };

    // 2. The sums.
    float sums[shape::row_blocks][shape::column_blocks][4];
#pragma unroll
    for (int i = 0; i < shape::row_blocks; ++i)
#pragma unroll
        for (int j = 0; j < shape::column_blocks; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;
    const int warp = int(threadIdx.x) / 32, warp_m = warp % shape::warps_m * shape::warp_rows, warp_n = warp / shape::warps_m * shape::warp_columns;
    int now = 0;
#pragma unroll 1
    for (int i = 0; i < mma_stages - 1; ++i) fetch(i);
#pragma unroll 1
    for (uint64_t steps_left = range.last - range.first; steps_left > 0; --steps_left) {
        copy_wait(mma_stages - 2);
        __syncthreads(); // The step has come for all threads, and none reads the one that is replaced.
        fetch(now == 0 ? mma_stages - 1 : now - 1);
        add_step<T, tile, left_across, right_across>(sums, steps + uint32_t(now) * 2 * step_bytes<T, tile>, warp_m, warp_n);
        now = now + 1 == mma_stages ? 0 : now + 1;
    }
    copy_wait(0);
    __syncthreads();

    // 3. What is done with them.
    float *const stage = reinterpret_cast<float *>(shared);
    stage_sums<tile>(stage, choice.across != 0, sums, warp_m, warp_n);
    __syncthreads();
    leave_tile<T, tile, shape::threads>(params, choice, operands, at, stage);
}

template <typename T, int tile, typename Action>
bops_status with_shape(const bops_gemm_params &params, const bops_gemm_choice &choice, const bops_gemm_operands &operands, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(blocks_of(params, choice)), shape.block = dim3(mma_shape<tile>::threads);
    shape.shared_bytes = mma_shared_bytes<T, tile>();
    if (!choice.right_across) return action(mma<T, tile, false, false>, shape, params, choice, operands);
    if (!choice.left_across) return action(mma<T, tile, false, true>, shape, params, choice, operands);
    return action(mma<T, tile, true, true>, shape, params, choice, operands);
}

template <typename Action> bops_status with_kernel(const bops_gemm_params &params, const bops_gemm_choice &choice, bops_dtype dtype,
                                                   const bops_gemm_operands &operands, const Action &action) {
    const auto of_type = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.tile == 64 ? with_shape<T, 64>(params, choice, operands, action) : with_shape<T, 128>(params, choice, operands, action);
    };
    switch (dtype) {
    case BOPS_F32: return of_type(type_tag<float>{});
    case BOPS_F16: return of_type(type_tag<__half>{});
    case BOPS_BF16: return of_type(type_tag<__nv_bfloat16>{});
    default: return bops_status(cudaErrorInvalidValue);
    }
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_mma_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype) {
    return bops::gemm::with_kernel(*params, *choice, dtype, {}, bops::prepare_action{});
}

bops_status bops_gemm_mma_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype, const bops_gemm_operands *operands,
                                 bops_stream stream) {
    return bops::gemm::with_kernel(*params, *choice, dtype, *operands, bops::launch_action{stream});
}
