// gemm_few_rows: products of at most 16 rows, whose time is that of reading the right factor. The warps of a
// tile of columns, those of all blocks of a cluster, take the steps along k in turn, each in a pipeline of its own, so that nothing but memory is
// waited for until the end. There their sums are added up.
#include "../common/mbarrier.cuh"
#include "../common/row_reduce.cuh"
#include "mma.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int few_rows = BOPS_GEMM_FEW_ROWS, few_columns = 64, few_warps = 4, few_threads = 32 * few_warps;
constexpr int few_stages = 5; // of each warp: one is computed, four are in flight
constexpr int few_depth = 32; // elements along k of a step
constexpr uint32_t few_left_bytes = few_rows * step_row_bytes, few_step_bytes = few_left_bytes + few_columns * step_row_bytes;
constexpr uint32_t few_shared_bytes = few_warps * few_stages * few_step_bytes;

// Sums of a tile in shared memory: of each warp, of the block, and of the cluster; at the end, what the epilogue needs.
struct few_sums {
    alignas(16) float of_warp[few_warps][few_rows * staged_row<few_columns>];
    alignas(16) float of_block[few_rows * staged_row<few_columns>];
    alignas(16) float of_cluster[few_rows * staged_row<few_columns>];
    float scratch[4 * few_threads];
};
static_assert(sizeof(few_sums) <= few_shared_bytes, "the sums lie where the steps lay");

__device__ __forceinline__ float load_remote(const float *here, uint32_t rank) {
    float value = 0.0f;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote_address(shared_address(here), rank)) : "memory");
#endif
    return value;
}

template <typename T, bool right_across> __global__ void __launch_bounds__(few_threads, 2)
    multiply_few_rows(const __grid_constant__ bops_gemm_params params, const bops_gemm_choice choice, const bops_gemm_operands operands) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t blocks = choice.splits, rank = blocks > 1 ? cluster_rank() : 0;
    const uint32_t tiles = uint32_t(tiles_of(params.n, few_columns)), tile = blockIdx.x / blocks, z = tile / tiles, tile_n = tile % tiles;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;

    // 1. The lane's part of a step: two chunks of the left factor, eight of the right one.
    constexpr int elements = 8, left_chunks = int(few_left_bytes) / 16 / 32, right_chunks = few_columns * step_row_bytes / 16 / 32;
    constexpr int per_line = right_across ? few_columns / elements : few_depth / elements, line_step = 32 / per_line;
    const bops_gemm_matrix &left = params.left.matrix, &right = params.right.matrix;
    const uint64_t n_first = uint64_t(tile_n) * few_columns, right_stride = right_across ? right.row : right.column;
    const int columns = int(min(params.n - n_first, uint64_t(few_columns)));
    const int left_row_first = lane / 4, left_fast = lane % 4 * elements, line = lane / per_line, fast = lane % per_line * elements;
    const T *left_from = static_cast<const T *>(operands.left) + offset_of(params.batch_rank, params.batch, left.batch, z) +
                         uint64_t(left_row_first) * left.row + left_fast;
    const T *right_from = static_cast<const T *>(operands.right) + offset_of(params.batch_rank, params.batch, right.batch, z) +
                          n_first * right.column + uint64_t(line) * right_stride + fast;
    const uint32_t stages = shared_address(shared) + uint32_t(warp) * few_stages * few_step_bytes;
    const auto bytes_of = [](int there) { return max(min(there, elements), 0) * int(sizeof(T)); };
    // Step number `step` along k goes to place `to`.
    const auto fetch = [&](uint64_t step, int to) {
        const uint64_t k_first = step * few_depth;
        const int depth = int(min(params.k - k_first, uint64_t(few_depth)));
        const uint32_t place = stages + uint32_t(to) * few_step_bytes;
#pragma unroll
        for (int i = 0; i < left_chunks; ++i) {
            const int row = left_row_first + 8 * i, there = uint64_t(row) < params.m ? bytes_of(depth - left_fast) : 0;
            const T *at = left_from + k_first + uint64_t(8 * i) * left.row;
            copy_or_zero<16>(place + along_k_address(row, left_fast / elements), there > 0 ? at : operands.left, there);
        }
        const T *from = right_from + k_first * (right_across ? right_stride : 1);
#pragma unroll
        for (int i = 0; i < right_chunks; ++i) {
            const int index = line + i * line_step; // along k, or of a column
            const int there = index < (right_across ? depth : columns) ? bytes_of((right_across ? columns : depth) - fast) : 0;
            const T *at = from + uint64_t(i * line_step) * right_stride;
            const uint32_t address = right_across ? across_address<T, few_columns>(index, fast) : along_k_address(index, fast / elements);
            copy_or_zero<16>(place + few_left_bytes + address, there > 0 ? at : operands.right, there);
        }
    };

    // 2. The sums of the warp.
    float sums[few_columns / 8][4];
#pragma unroll
    for (int j = 0; j < few_columns / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[j][e] = 0.0f;
    const uint64_t steps = tiles_of(params.k, few_depth), warps = uint64_t(blocks) * few_warps;
    uint64_t to_fetch = uint64_t(rank) * few_warps + uint64_t(warp), to_add = to_fetch;
#pragma unroll 1
    for (int i = 0; i < few_stages - 1; ++i, to_fetch += warps) {
        if (to_fetch < steps) fetch(to_fetch, i);
        copy_commit();
    }
    int now = 0;
#pragma unroll 1
    for (; to_add < steps; to_add += warps, to_fetch += warps) {
        copy_wait(few_stages - 2);
        __syncwarp(); // The step has come for all lanes, and none reads the one that is replaced.
        if (to_fetch < steps) fetch(to_fetch, now == 0 ? few_stages - 1 : now - 1);
        copy_commit();
        const uint32_t place = stages + uint32_t(now) * few_step_bytes;
#pragma unroll
        for (int k_step = 0; k_step < 2; ++k_step) {
            uint32_t a[4];
            load_left<T, few_columns, false>(a, place, 0, k_step);
#pragma unroll
            for (int j = 0; j < few_columns / 16; ++j) {
                uint32_t b[4];
                load_right<T, few_columns, right_across>(b, place + few_left_bytes, 16 * j, k_step);
                multiply<T>(sums[2 * j], a, b[0], b[1]);
                multiply<T>(sums[2 * j + 1], a, b[2], b[3]);
            }
        }
        now = now + 1 == few_stages ? 0 : now + 1;
    }
    copy_wait(0);
    __syncthreads();

    // 3. Those of the block, in the order of its warps.
    few_sums &all = *reinterpret_cast<few_sums *>(shared);
    constexpr int line_of_sums = staged_row<few_columns>;
#pragma unroll
    for (int j = 0; j < few_columns / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) all.of_warp[warp][sum_row(lane, e) * line_of_sums + 8 * j + sum_column(lane, e)] = sums[j][e];
    __syncthreads();
    for (int i = int(threadIdx.x); i < few_rows * few_columns; i += few_threads) {
        const int at = i / few_columns * line_of_sums + i % few_columns;
        float sum = all.of_warp[0][at];
#pragma unroll
        for (int w = 1; w < few_warps; ++w) sum += all.of_warp[w][at];
        all.of_block[at] = sum;
    }

    // 4. Those of the cluster, in the order of its blocks.
    if (blocks > 1) {
        cluster_arrive_release();
        cluster_wait();
        if (rank == 0)
            for (int i = int(threadIdx.x); i < few_rows * few_columns; i += few_threads) {
                const int at = i / few_columns * line_of_sums + i % few_columns;
                float sum = all.of_block[at];
                for (uint32_t other = 1; other < blocks; ++other) sum += load_remote(&all.of_block[at], other);
                all.of_cluster[at] = sum;
            }
        // The others' shared memory has been read.
        cluster_arrive_release();
        cluster_wait();
        if (rank != 0) return;
    } else __syncthreads();

    // 5. What is done with them.
    const staged<few_columns, float> source{blocks > 1 ? all.of_cluster : all.of_block};
    finish_tile<T, few_rows, few_columns, few_threads>(params, operands, false, choice.quads != 0, z, 0, tile_n, source, all.scratch);
}

template <typename Action> bops_status with_kernel(const bops_gemm_params &params, const bops_gemm_choice &choice, bops_dtype dtype,
                                                   const bops_gemm_operands &operands, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(tiles_of(params.n, few_columns) * product_of(params.batch_rank, params.batch) * choice.splits));
    shape.block = dim3(few_threads);
    shape.shared_bytes = few_shared_bytes, shape.cluster = choice.splits;
    const auto of_type = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.right_across ? action(multiply_few_rows<T, true>, shape, params, choice, operands)
                                   : action(multiply_few_rows<T, false>, shape, params, choice, operands);
    };
    switch (dtype) {
    case BOPS_F16: return of_type(type_tag<__half>{});
    case BOPS_BF16: return of_type(type_tag<__nv_bfloat16>{});
    default: return bops_status(cudaErrorInvalidValue);
    }
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_few_rows_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype) {
    return bops::gemm::with_kernel(*params, *choice, dtype, {}, bops::prepare_action{});
}

bops_status bops_gemm_few_rows_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype,
                                      const bops_gemm_operands *operands, bops_stream stream) {
    return bops::gemm::with_kernel(*params, *choice, dtype, *operands, bops::launch_action{stream});
}
