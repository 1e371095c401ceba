// gemm_few_rows_stream: at most 16 rows of left, as when a language model decodes; right goes through the chip once. Blocks of compute capability 9.0 keep
// most of their shared memory filled with what the copy engine has been asked for, so that memory is busy from the first moment to the last.
//
// A block has 64 columns of right, and one warp of it brings steps of both factors into a ring; four warps have 16 columns each. Where columns are few,
// the blocks of a cluster share out k: each sends its sums to the block that owns the columns, which adds them in the order of the blocks.
//
// Compiled for sm_90a in place of sm_90.
#include "../bops_gemm_sm90.h"
#include "../common/row_reduce.cuh"
#include "mma.cuh"
#include "wgmma_work.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int stream_rows = 16, stream_columns = 64, stream_warps = 4, stream_threads = 32 * (stream_warps + 1);
constexpr int box_depth = 64, boxes = 2, stream_depth = box_depth * boxes; // k of a box that the copy engine brings, and of a step
constexpr uint32_t left_box_bytes = stream_rows * wgmma_line_bytes, right_box_bytes = stream_columns * wgmma_line_bytes;
constexpr uint32_t right_at = boxes * left_box_bytes, stream_step_bytes = right_at + boxes * right_box_bytes;

// Shared memory: the ring; from every block of the cluster, its part of the sums of this block's columns; two barriers for each stage.
__host__ __device__ constexpr int own_columns(int splits) { return stream_columns / splits; }
// The pitch of a part's rows: eight rows that lanes write at once begin in different banks.
__host__ __device__ constexpr int part_row(int splits) { return stream_columns / splits + 8; }
__host__ __device__ constexpr uint32_t part_bytes(int splits) { return uint32_t(stream_rows * part_row(splits) * 4); }
__host__ __device__ constexpr uint32_t barriers_at(int stages, int splits) { return stages * stream_step_bytes + splits * part_bytes(splits); }

__device__ __forceinline__ void store_two_in(uint32_t block, uint32_t at, float first, float second) {
#ifdef BOPS_SM_90A
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote_address(at, block)), "f"(first), "f"(second) : "memory");
#endif
}

template <typename T, bool across> __global__ void __launch_bounds__(stream_threads)
    stream_few_rows(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                    const __grid_constant__ bops_gemm_params params, const __grid_constant__ bops_gemm_few_rows_stream_choice choice,
                    const __grid_constant__ bops_gemm_operands operands) {
    if (!has_sm_90a) return;
    extern __shared__ __align__(1024) unsigned char shared[];
    const int stages = int(choice.stages), splits = int(choice.splits), warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const uint32_t ring = shared_address(shared), parts = ring + stages * stream_step_bytes;
    const uint32_t full = ring + barriers_at(stages, splits), empty = full + 8 * stages;
    const uint32_t rank = blockIdx.x % splits, tile = blockIdx.x / splits, tiles_n = uint32_t(tiles_of(params.n, stream_columns));
    const uint32_t z = tile / tiles_n, n_first = tile % tiles_n * stream_columns;
    // The steps along k that this block takes.
    const uint32_t steps = uint32_t(tiles_of(params.k, stream_depth)), share = steps / splits, left_over = steps % splits;
    const uint32_t first = share * rank + min(rank, left_over), last = first + share + (rank < left_over ? 1 : 0);

    // 1. Barriers for each stage: the step has arrived; all warps have used it.
    if (threadIdx.x == 0) {
        prefetch_map(left_map);
        prefetch_map(right_map);
        for (int i = 0; i < stages; ++i) {
            mbarrier::initialize(full + 8 * i, 1);
            mbarrier::initialize(empty + 8 * i, stream_warps);
        }
        mbarrier::fence_initialized();
    }
    __syncthreads();
    cluster_arrive();
    follow_previous();

    float sums[stream_columns / stream_warps / 8][4] = {};
    int stage = 0;
    uint32_t parity = 0;
    const auto advance = [&] {
        if (++stage == stages) stage = 0, parity ^= 1;
    };
    if (warp == stream_warps) {
        // 2. The producer's warp fetches both factors.
        int of_left[2], of_right[2];
        in_batch(params, z, of_left);
        in_batch(params, z, of_right);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (params.left.matrix.batch[i] == 0) of_left[i] = 0;
            if (params.right.matrix.batch[i] == 0) of_right[i] = 0;
        }
        if (lane == 0)
#pragma unroll 1
            for (uint32_t step = first; step < last; ++step) {
                const uint32_t to = ring + stage * stream_step_bytes, there = full + 8 * stage;
                mbarrier::wait(empty + 8 * stage, parity ^ 1);
                mbarrier::expect(there, stream_step_bytes);
#pragma unroll
                for (int i = 0; i < boxes; ++i) {
                    const int k = int(step) * stream_depth + i * box_depth, n = int(n_first);
                    copy_box(to + right_at + i * right_box_bytes, right_map, {across ? n : k, across ? k : n, {of_right[0], of_right[1]}, 0}, there);
                    copy_box(to + i * left_box_bytes, left_map, {k, 0, {of_left[0], of_left[1]}, 0}, there);
                }
                advance();
            }
        __syncwarp();
    } else {
        // 3. The sums.
#pragma unroll 1
        for (uint32_t step = first; step < last; ++step) {
            mbarrier::wait(full + 8 * stage, parity);
            const uint32_t left = ring + stage * stream_step_bytes, right = left + right_at;
#pragma unroll
            for (int i = 0; i < stream_depth / 16; ++i) {
                uint32_t a[4], b[4];
                const int box = i / 4, part = i % 4; // a part is 16 of k
                load_matrices(a, left + box * left_box_bytes + lane % 16 * wgmma_line_bytes + ((part * 2 + lane / 16) ^ lane % 8) * 16);
                if constexpr (across) {
                    const int k = part * 16 + lane % 16, chunk = warp * 2 + lane / 16;
                    load_matrices_transposed(b, right + box * right_box_bytes + k * wgmma_line_bytes + (chunk ^ k % 8) * 16);
                } else {
                    const int column = warp * 16 + lane / 16 * 8 + lane % 8, chunk = part * 2 + lane / 8 % 2;
                    load_matrices(b, right + box * right_box_bytes + column * wgmma_line_bytes + (chunk ^ column % 8) * 16);
                }
                multiply<T>(sums[0], a, b[0], b[1]);
                multiply<T>(sums[1], a, b[2], b[3]);
            }
            __syncwarp();
            if (lane == 0) mbarrier::arrive(empty + 8 * stage);
            advance();
        }
    }

    // 4. Every block sends its part of each sum to the block that owns the column.
    const int own = own_columns(splits);
    cluster_wait();
    if (warp < stream_warps)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = warp * 16 + half * 8 + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = lane / 4 + 8 * i;
                const uint32_t at = parts + rank * part_bytes(splits) + (row * part_row(splits) + column % own) * 4;
                store_two_in(column / own, at, sums[half][2 * i], sums[half][2 * i + 1]);
            }
        }
    cluster_arrive_release();
    cluster_wait();

    // 5. The sums over the cluster, and the epilogue.
    const bool quads = choice.quads != 0;
    const uint64_t out_start = offset_of(params.batch_rank, params.batch, params.out.batch, z);
    const uint64_t other_start = offset_of(params.batch_rank, params.batch, params.other.batch, z);
    for (int i = int(threadIdx.x); i < stream_rows * own / 4; i += stream_threads) {
        const int row = i / (own / 4), column = i % (own / 4) * 4;
        const uint64_t n = n_first + rank * own + column;
        if (row >= params.m || n >= params.n) continue;
        const int count = int(min(params.n - n, uint64_t(4)));
        float v[4] = {};
        for (int part = 0; part < splits; ++part) {
            const float4 four = *reinterpret_cast<const float4 *>(shared + stages * stream_step_bytes + part * part_bytes(splits) +
                                                                  (row * part_row(splits) + column) * 4);
            v[0] += four.x, v[1] += four.y, v[2] += four.z, v[3] += four.w;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] *= float(params.alpha);
        const uint64_t out_at = out_start + uint64_t(row) * params.out.row + n * params.out.column;
        if (params.epilogue == BOPS_GEMM_FORWARD) {
            if (operands.bias != nullptr) {
                float bias[4];
                load_four<T>(operands.bias, params.bias_dtype, uint64_t(row) * params.bias.row + n * params.bias.column, params.bias.column, count,
                             false, bias);
#pragma unroll
                for (int j = 0; j < 4; ++j) v[j] += bias[j];
            }
            if (operands.other != nullptr)
                store_four<T>(operands.other, params.other_dtype, other_start + uint64_t(row) * params.other.row + n * params.other.column,
                              params.other.column, count, quads, v);
            activate(params.activation, v);
        } else if (params.beta != 0) {
            float before[4];
            load_four<T>(operands.out, params.out_dtype, out_at, params.out.column, count, quads, before);
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = fmaf(float(params.beta), before[j], v[j]);
        }
        store_four<T>(operands.out, params.out_dtype, out_at, params.out.column, count, quads, v);
    }
}

// Makes the maps, which need addresses, and launches. launches: false if the kernel is only prepared, and addresses are not known.
template <typename T, bool across, typename Action> bops_status with_maps(const bops_gemm_params &params,
                                                                          const bops_gemm_few_rows_stream_choice &choice, bops_dtype dtype,
                                                                          const bops_gemm_operands *operands, const Action &action) {
    const int stages = int(choice.stages), splits = int(choice.splits);
    launch_shape shape;
    shape.grid = dim3(uint32_t(tiles_of(params.n, stream_columns) * product_of(params.batch_rank, params.batch)) * choice.splits);
    shape.block = dim3(stream_threads), shape.cluster = choice.splits;
    shape.shared_bytes = barriers_at(stages, splits) + 16 * choice.stages;
    shape.overlaps_previous = true;
    CUtensorMap left = {}, right = {};
    if (operands != nullptr) {
        bops_status status = make_factor_map(left, params, params.left, dtype, operands->left, params.m, params.left.matrix.row,
                                             params.left.matrix.column, along_k, stream_rows);
        if (status == 0)
            status = make_factor_map(right, params, params.right, dtype, operands->right, params.n, params.right.matrix.column,
                                     params.right.matrix.row, across ? across_k : along_k, stream_columns);
        if (status != 0) return status;
    }
    return action(stream_few_rows<T, across>, shape, left, right, params, choice, operands != nullptr ? *operands : bops_gemm_operands{});
}

template <typename Action> bops_status with_kernel(const bops_gemm_params &params, const bops_gemm_few_rows_stream_choice &choice, bops_dtype dtype,
                                                   const bops_gemm_operands *operands, const Action &action) {
    const auto of_type = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.right_across ? with_maps<T, true>(params, choice, dtype, operands, action)
                                   : with_maps<T, false>(params, choice, dtype, operands, action);
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

bops_status bops_gemm_few_rows_stream_prepare(const bops_gemm_params *params, const bops_gemm_few_rows_stream_choice *choice, bops_dtype dtype) {
    return bops::gemm::with_kernel(*params, *choice, dtype, nullptr, bops::prepare_action{});
}

bops_status bops_gemm_few_rows_stream_launch(const bops_gemm_params *params, const bops_gemm_few_rows_stream_choice *choice, bops_dtype dtype,
                                             const bops_gemm_operands *operands, bops_stream stream) {
    return bops::gemm::with_kernel(*params, *choice, dtype, operands, bops::launch_action{stream});
}
