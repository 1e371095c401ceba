// gemm_few_rows_stream: products of at most 16 rows of left, as when a language model decodes. right is loaded once. Blocks of compute capability 9.0 keep most
// of their shared memory in flight through the copy engine, so that memory is always busy.
//
// A block has 64 columns of right. One warp fetches steps of both factors into a ring; four warps have 16 columns each. If there are few columns, the blocks of
// a cluster share k: each sends its sums to the block that owns the columns, which adds them in the order of the blocks.
//
// Compiled for sm_90a in place of sm_90.
#include "../bops_gemm_sm90.h"
#include "../common/row_reduce.cuh"
#include "mma.cuh"
#include "wgmma_work.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int stream_rows = 16;                         // of left, at most: those of one instruction
constexpr int stream_columns = 64;                      // of right, of a block: 16 for each warp that multiplies
constexpr int stream_warps = 4;                         // that multiply
constexpr int stream_threads = 32 * (stream_warps + 1); // of a block: these warps and the one that fetches
constexpr int box_depth = 64;                           // k of a box, which the copy engine brings at once: a line of 128 bytes
// Boxes of a factor, and k, of a step. With one there would be twice as many barriers to wait for; with more a step, which takes 20 KB, would be
// larger, and fewer steps would be in flight.
constexpr int boxes = 2, stream_depth = box_depth * boxes;
constexpr uint32_t left_box_bytes = stream_rows * wgmma_line_bytes, right_box_bytes = stream_columns * wgmma_line_bytes;
constexpr uint32_t right_at = boxes * left_box_bytes; // where the boxes of right lie in a step, in bytes
constexpr uint32_t stream_step_bytes = right_at + boxes * right_box_bytes;

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

// A block's place in the work, and its ring. It takes the steps from `first` to before `last` along k.
struct stream_place {
    int stages, splits;
    uint32_t ring, parts, full, empty; // addresses in shared memory: of the ring, of the parts of the sums, of the first barrier of each kind
    uint32_t rank, z, n_first, first, last;
    __device__ __forceinline__ stream_place(const bops_gemm_params &params, const bops_gemm_few_rows_stream_choice &choice, uint32_t shared)
        : stages(int(choice.stages)), splits(int(choice.splits)), ring(shared), parts(ring + stages * stream_step_bytes),
          full(ring + barriers_at(stages, splits)), empty(full + 8 * stages) {
        const uint32_t tile = blockIdx.x / splits, tiles_n = uint32_t(tiles_of(params.n, stream_columns));
        const uint32_t steps = uint32_t(tiles_of(params.k, stream_depth)), share = steps / splits, left_over = steps % splits;
        rank = blockIdx.x % splits, z = tile / tiles_n, n_first = tile % tiles_n * stream_columns;
        first = share * rank + min(rank, left_over), last = first + share + (rank < left_over ? 1 : 0);
    }
};
// The next stage of the ring, and the phase of its barriers.
struct stream_stage {
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance(int stages) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// Fetches the block's steps of both factors. Called by one thread.
template <bool across> __device__ __forceinline__ void bring_stream(const bops_gemm_params &params, const stream_place &at,
                                                                    const CUtensorMap &left_map, const CUtensorMap &right_map) {
    int of_left[2], of_right[2];
    in_batch(params, at.z, of_left);
    in_batch(params, at.z, of_right);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (params.left.matrix.batch[i] == 0) of_left[i] = 0;
        if (params.right.matrix.batch[i] == 0) of_right[i] = 0;
    }
    stream_stage next;
#pragma unroll 1
    for (uint32_t step = at.first; step < at.last; ++step) {
        const uint32_t to = at.ring + next.stage * stream_step_bytes, there = at.full + 8 * next.stage;
        mbarrier::wait(at.empty + 8 * next.stage, next.parity ^ 1);
        mbarrier::expect(there, stream_step_bytes);
#pragma unroll
        for (int i = 0; i < boxes; ++i) {
            const int k = int(step) * stream_depth + i * box_depth, n = int(at.n_first);
            copy_box(to + right_at + i * right_box_bytes, right_map, {across ? n : k, across ? k : n, {of_right[0], of_right[1]}, 0}, there);
            copy_box(to + i * left_box_bytes, left_map, {k, 0, {of_left[0], of_left[1]}, 0}, there);
        }
        next.advance(at.stages);
    }
}

using stream_sums = float[stream_columns / stream_warps / 8][4];

// sums += the products of the block's steps, for the 16 columns of this warp.
template <typename T, bool across> __device__ __forceinline__ void multiply_stream(const stream_place &at, stream_sums &sums) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    stream_stage next;
#pragma unroll 1
    for (uint32_t step = at.first; step < at.last; ++step) {
        mbarrier::wait(at.full + 8 * next.stage, next.parity);
        const uint32_t left = at.ring + next.stage * stream_step_bytes, right = left + right_at;
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
        if (lane == 0) mbarrier::arrive(at.empty + 8 * next.stage);
        next.advance(at.stages);
    }
}

// Sends this block's part of each sum to the block of the cluster that owns the column. Called by the warps that have sums.
__device__ __forceinline__ void send_parts(const stream_place &at, const stream_sums &sums) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, own = own_columns(at.splits);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int column = warp * 16 + half * 8 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = lane / 4 + 8 * i;
            const uint32_t to = at.parts + at.rank * part_bytes(at.splits) + (row * part_row(at.splits) + column % own) * 4;
            store_two_in(column / own, to, sums[half][2 * i], sums[half][2 * i + 1]);
        }
    }
}

template <typename T, bool across> __global__ void __launch_bounds__(stream_threads)
    stream_few_rows(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                    const __grid_constant__ bops_gemm_params params, const __grid_constant__ bops_gemm_few_rows_stream_choice choice,
                    const __grid_constant__ bops_gemm_operands operands) {
    if (!has_sm_90a) return;
    extern __shared__ __align__(1024) unsigned char shared[];
    const stream_place at(params, choice, shared_address(shared));

    // 1. Barriers for each stage: the step has arrived; all warps have used it.
    if (threadIdx.x == 0) {
        prefetch_map(left_map);
        prefetch_map(right_map);
        for (int i = 0; i < at.stages; ++i) {
            mbarrier::initialize(at.full + 8 * i, 1);
            mbarrier::initialize(at.empty + 8 * i, stream_warps);
        }
        mbarrier::fence_initialized();
    }
    __syncthreads();
    cluster_arrive();
    follow_previous();

    // 2. The last warp fetches both factors, the others multiply.
    stream_sums sums = {};
    const bool is_producer = threadIdx.x / 32 == stream_warps;
    if (is_producer) {
        if (threadIdx.x % 32 == 0) bring_stream<across>(params, at, left_map, right_map);
        __syncwarp();
    } else multiply_stream<T, across>(at, sums);

    // 3. Blocks of the cluster exchange their parts of the sums.
    cluster_wait();
    if (!is_producer) send_parts(at, sums);
    cluster_arrive_release();
    cluster_wait();

    // 4. The sums over the cluster, and the epilogue.
    const int own = own_columns(at.splits);
    const uint64_t out_start = offset_of(params.batch_rank, params.batch, params.out.batch, at.z);
    const uint64_t other_start = offset_of(params.batch_rank, params.batch, params.other.batch, at.z);
    for (int i = int(threadIdx.x); i < stream_rows * own / 4; i += stream_threads) {
        const int row = i / (own / 4), column = i % (own / 4) * 4;
        const uint64_t n = at.n_first + at.rank * own + column;
        if (row >= params.m || n >= params.n) continue;
        float v[4] = {};
        for (int part = 0; part < at.splits; ++part) {
            const float4 four = *reinterpret_cast<const float4 *>(shared + at.stages * stream_step_bytes + part * part_bytes(at.splits) +
                                                                  (row * part_row(at.splits) + column) * 4);
            v[0] += four.x, v[1] += four.y, v[2] += four.z, v[3] += four.w;
        }
        finish_elements<T>(params, operands, out_start, other_start, row, n, int(min(params.n - n, uint64_t(4))), choice.quads != 0, v);
    }
}

// Makes the maps, which need addresses, and calls the action. If the kernel is only prepared, operands are null and maps are not made.
template <typename T, bool across, typename Action> bops_status with_maps(const bops_gemm_params &params,
                                                                          const bops_gemm_few_rows_stream_choice &choice, bops_dtype dtype,
                                                                          const bops_gemm_operands &operands, const Action &action) {
    const int stages = int(choice.stages), splits = int(choice.splits);
    launch_shape shape;
    shape.grid = dim3(uint32_t(tiles_of(params.n, stream_columns) * product_of(params.batch_rank, params.batch)) * choice.splits);
    shape.block = dim3(stream_threads), shape.cluster = choice.splits;
    shape.shared_bytes = barriers_at(stages, splits) + 16 * choice.stages;
    shape.overlaps_previous = true;
    CUtensorMap left = {}, right = {};
    if (operands.left != nullptr) {
        bops_status status = make_factor_map(left, params, params.left, dtype, operands.left, params.m, params.left.matrix.row,
                                             params.left.matrix.column, along_k, stream_rows);
        if (status == 0)
            status = make_factor_map(right, params, params.right, dtype, operands.right, params.n, params.right.matrix.column,
                                     params.right.matrix.row, across ? across_k : along_k, stream_columns);
        if (status != 0) return status;
    }
    return action(stream_few_rows<T, across>, shape, left, right, params, choice, operands);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_gemm_params &params, const bops_gemm_few_rows_stream_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    return for_types<__half, __nv_bfloat16>(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.right_across ? with_maps<T, true>(params, choice, dtype, operands, action)
                                   : with_maps<T, false>(params, choice, dtype, operands, action);
    });
}

} // namespace
} // namespace gemm
} // namespace bops

BOPS_DEFINE_FORM(bops_gemm_few_rows_stream, bops_dtype, bops_gemm_params, bops_gemm_few_rows_stream_choice, bops_gemm_operands,
                 bops::gemm::with_kernel)
