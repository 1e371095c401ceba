// gemm_wgmma for factors of f32, which the copy engine rounds to tf32. Blocks, rings and turns are those of gemm_wgmma.cu.
//
// wgmma reads tf32 along k only; gemm_turn copies factors that lie across. The kernel computes the transposed product: the rows of an instruction are
// n and its columns are m. The copy engine orders the rows of right so that a thread has the sums of four neighbours of out.
//
// Compiled for sm_90a in place of sm_90.
#include <algorithm>

#include "../bops_gemm_sm90.h"
#include "wgmma_work.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int words_threads = 384;      // of a block: three warpgroups
constexpr int words_consumer_warps = 8; // of both consumers
constexpr int turn_barrier = 1;         // number of the named barrier for the turns of both consumers; the next one is for them, too

// The epilogue of a warp takes its 32 columns of a tile in rounds of 16 rows of out, and has room for two rounds in shared memory.
constexpr int round_rows = 16, warp_columns = 32, places = 2;
constexpr uint32_t round_bytes = round_rows * warp_columns * 4;

// The shape of a tile of out. stages: steps in the ring, as many as shared memory has room for. blocks: of 64 columns each, which are the rows of an
// instruction.
template <int rows_, int stages_> struct words_shape {
    static constexpr int rows = rows_, columns = 128, stages = stages_, blocks = columns / 64;
    static constexpr uint32_t left_bytes = rows * wgmma_line_bytes, right_bytes = columns * wgmma_line_bytes, step_bytes = left_bytes + right_bytes;
    static constexpr uint32_t rounds_at = stages * step_bytes, barriers_at = rounds_at + words_consumer_warps * places * round_bytes;
    static constexpr uint32_t shared_bytes = barriers_at + 2 * stages * 8;
    // Registers of a thread in the producer's warpgroup, and in a consumer: the three warpgroups together have 3 * 168 to share out, in steps of 8.
    static constexpr int few_registers = 40, most_registers = 232;
    static_assert(shared_bytes <= most_shared_bytes, "");
};
constexpr int words_instructions = wgmma_depth<float> / 8; // instructions of a step, for each block

// ---- the epilogue ------------------------------------------------------------------------

__device__ __forceinline__ void store_chunk(uint32_t to, float first, float second, float third, float fourth) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(first), "f"(second), "f"(third), "f"(fourth) : "memory");
}

// The epilogue of a tile. Lane 4 r + q has four neighbouring columns of out, chunk r of the warp's line of 32 columns. The copy engine orders the
// columns so that columns 4 r and 4 r + 1 are row r of the warp's 16 rows in the first and the second block, and 4 r + 2 and 4 r + 3 are row r + 8
// there. A lane has rows 2 q and 2 q + 1 of a round, and the rows eight further on: element e of a round is in column e % 4 and in row 2 q + e / 4 %
// 2 + 8 * (e / 8). out_map, pre_map: of what the copy engine stores. rounds: where the warp's rounds lie in shared memory.
template <typename shape, bool reads> __device__ __forceinline__ void leave(const bops_gemm_params &params, const bops_gemm_operands &operands,
                                                                            const wgmma_work &work, const wgmma_unit &unit,
                                                                            const CUtensorMap &out_map, const CUtensorMap &pre_map, uint32_t rounds,
                                                                            float (&sums)[shape::blocks][shape::rows / 2]) {
    constexpr int count = shape::rows / round_rows, round_sums = 8; // sums of a lane in a round, for each block
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint32_t m = unit.tile_m * shape::rows, n = unit.tile_n * shape::columns + threadIdx.x / 32 % 4 * warp_columns, own = n + 4 * r;
    const bool is_there = own < params.n, is_derivative = params.epilogue == BOPS_GEMM_DERIVATIVE;
    const bool has_pre = !reads && operands.other != nullptr;
    const uint32_t place = rounds + q * (2 * wgmma_line_bytes) + (r ^ (2 * q)) * 16; // address of the lane's first element

    // Indices behind n and m in the map of out: of parts, the number of the matrix in the batch and that of the split; else the batch indices.
    int batch[2] = {int(unit.z), int(unit.split)};
    if (work.splits == 1) in_batch(params, unit.z, batch);

    // 1. The bias of the lane's columns, and where what the epilogue reads lies.
    float bias[4] = {}, totals[4] = {}, next[16];
    if (operands.bias != nullptr && is_there)
#pragma unroll
        for (int i = 0; i < 4; ++i) bias[i] = static_cast<const float *>(operands.bias)[uint64_t(own + i) * params.bias.column];
    const bops_gemm_matrix &read_matrix = is_derivative ? params.other : params.out;
    const float *const read = static_cast<const float *>(is_derivative ? operands.other : operands.out);
    const auto is_row = [&](int round, int e) { return m + round * round_rows + 2 * q + e / 4 % 2 + 8 * (e / 8) < params.m; };
    const auto fetch = [&](int round) {
        const float *const from = read + offset_of(params.batch_rank, params.batch, read_matrix.batch, unit.z) +
                                  uint64_t(m + round * round_rows + 2 * q) * read_matrix.row + own;
#pragma unroll
        for (int e = 0; e < 16; e += 4) {
            packed<16> four = {{0, 0, 0, 0}};
            if (is_there && is_row(round, e)) four = load<16, false>(from + uint64_t(e / 4 % 2 + 8 * (e / 8)) * read_matrix.row);
#pragma unroll
            for (int i = 0; i < 4; ++i) next[e + i] = __uint_as_float(four.word[i]);
        }
    };
    const auto stage = [&](uint32_t at, const float(&v)[16]) {
#pragma unroll
        for (int e = 0; e < 16; e += 4)
            store_chunk((at ^ (e / 4 % 2 * 16)) + e / 4 % 2 * wgmma_line_bytes + e / 8 * wgmma_atom_bytes, v[e], v[e + 1], v[e + 2], v[e + 3]);
    };
    if constexpr (reads) fetch(0);
#pragma unroll 1
    for (int round = 0; round < count; ++round) {
        // 2. The sums times alpha; with the bias, pre.
        float v[16];
#pragma unroll
        for (int e = 0; e < 16; ++e) {
            const int at = e / 8 * 4 + e / 4 % 2, c = e % 4;
            v[e] = fmaf(sums[c % 2][at + c / 2 * 2], work.alpha, bias[c]);
        }
        // 3. out. pre lies in the place behind it.
        const uint32_t at = has_pre || round % places == 0 ? 0 : round_bytes;
        if (has_pre) wait_for_boxes<0>();
        else wait_for_boxes<places - 1>();
        __syncwarp();
        if constexpr (reads) {
            float g[16];
#pragma unroll
            for (int e = 0; e < 16; ++e) g[e] = next[e];
            if (round + 1 < count) fetch(round + 1);
            if (is_derivative) {
                differentiate(params.activation, v, g);
#pragma unroll
                for (int e = 0; e < 16; ++e) {
                    v[e] = g[e];
                    totals[e % 4] += is_row(round, e) ? g[e] : 0.0f;
                }
            } else {
#pragma unroll
                for (int e = 0; e < 16; ++e) v[e] = fmaf(work.beta, g[e], v[e]);
            }
        } else {
            if (has_pre) stage(place + at + round_bytes, v);
            if (params.activation != BOPS_IDENTITY) activate(params.activation, v);
        }
        stage(place + at, v);
        publish_stores();
        __syncwarp();
        if (lane == 0) {
            const box_place box{int(n), int(m) + round * round_rows, {batch[0], batch[1]}, 0};
            if (operands.out != nullptr) store_box(out_map, box, rounds + at);
            if (has_pre) store_box(pre_map, box, rounds + at + round_bytes);
            commit_boxes();
        }
        // 4. The sums of the next rounds move to the registers of these, so that one copy of the code above serves all rounds.
#pragma unroll
        for (int block = 0; block < shape::blocks; ++block)
#pragma unroll
            for (int i = 0; i < shape::rows / 2 - round_sums; ++i) sums[block][i] = sums[block][i + round_sums];
    }
    // 5. The column sums of dpre.
    if constexpr (reads)
        if (is_derivative && operands.column_sums != nullptr) {
            const uint64_t line = uint64_t(unit.z) * work.tiles_m + unit.tile_m;
            float *const to = static_cast<float *>(operands.column_sums) + line * params.n + own;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                totals[i] += __shfl_xor_sync(0xffffffffu, totals[i], 1);
                totals[i] += __shfl_xor_sync(0xffffffffu, totals[i], 2);
                if (q == uint32_t(i) && is_there) to[i] = totals[i];
            }
        }
}

// ---- the kernel --------------------------------------------------------------------------

template <typename shape, bool reads> __global__ void __launch_bounds__(words_threads, 1)
    wgmma_words_tiles(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                      const __grid_constant__ CUtensorMap out_map, const __grid_constant__ CUtensorMap pre_map,
                      const __grid_constant__ bops_gemm_params params, const __grid_constant__ wgmma_work work,
                      const __grid_constant__ bops_gemm_operands operands) {
    if (!has_sm_90a) return;
    constexpr int stages = shape::stages;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t ring = shared_address(shared), full = ring + shape::barriers_at, empty = full + 8 * stages;
    const int group = int(threadIdx.x) / 128 - 1; // which consumer this is; -1 is the producer

    // 1. Barriers for each stage: the step has arrived; all warps of a consumer have used it.
    if (threadIdx.x == 0) {
        prefetch_map(left_map);
        prefetch_map(right_map);
        for (int i = 0; i < stages; ++i) {
            mbarrier::initialize(full + 8 * i, 2);  // by the threads that fetch left and right
            mbarrier::initialize(empty + 8 * i, 4); // by the warps of the consumer
        }
        mbarrier::fence_initialized();
    }
    __syncthreads();

    if (group < 0) {
        // 2. The producer fetches the factors.
        release_registers<shape::few_registers>();
        if (threadIdx.x == 0) bring_steps<float, shape, stages, true, along_k>(params, work, left_map, ring, full, empty);
        if (threadIdx.x == 32) bring_steps<float, shape, stages, false, fours_along_k>(params, work, right_map, ring, full, empty);
        __syncwarp();
    } else {
        // 3. The consumers multiply.
        claim_registers<shape::most_registers>();
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4;
        const uint32_t rounds = ring + shape::rounds_at + warp * places * round_bytes;
        const auto release = [&](uint32_t stage) {
            if (lane == 0) mbarrier::arrive(empty + 8 * stage);
        };
        uint32_t stage_number = 0; // counted over two rounds of the ring: the second one is the barriers' other phase
        const auto skip = [&](uint32_t count) { stage_number = (stage_number + count) % (2 * stages); };
        // Consumers take turns: one waits for steps only once the other has waited for its last step, since a barrier tells apart no more than two
        // phases.
        uint32_t number = blockIdx.x;
        if (group == 1) {
            give_turn(turn_barrier);
            if (number < work.units) {
                const wgmma_unit other(work, number);
                skip(other.last - other.first);
            }
            number += gridDim.x;
        }
#pragma unroll 1
        while (number < work.units) {
            const wgmma_unit unit(work, number);
            float sums[shape::blocks][shape::rows / 2];
            uint32_t before = 0;
            wait_for_turn(turn_barrier + group);
#pragma unroll 1
            for (uint32_t i = unit.first; i < unit.last; ++i) {
                const uint32_t stage = stage_number < stages ? stage_number : stage_number - stages;
                const uint32_t left = ring + stage * shape::step_bytes, right = left + shape::left_bytes;
                mbarrier::wait(full + 8 * stage, stage_number >= stages);
                wgmma_fence();
#pragma unroll
                for (int k_part = 0; k_part < words_instructions; ++k_part)
#pragma unroll
                    for (int block = 0; block < shape::blocks; ++block)
                        wgmma_words(sums[block], wgmma_descriptor_of_other_atoms(right + block * wgmma_atom_bytes + k_part * 32),
                                    wgmma_descriptor<false>(left, 0, k_part), i > unit.first || k_part > 0);
                wgmma_commit();
                wgmma_wait<1>();
                if (i > unit.first) release(before);
                before = stage;
                if (++stage_number == 2 * stages) stage_number = 0;
            }
            give_turn(turn_barrier + 1 - group);
            wgmma_wait<0>();
#pragma unroll
            for (int block = 0; block < shape::blocks; ++block) settle(sums[block]);
            release(before);
            // 4. The epilogue.
            leave<shape, reads>(params, operands, work, unit, out_map, pre_map, rounds, sums);
            number += gridDim.x;
            if (number < work.units) {
                const wgmma_unit other(work, number);
                skip(other.last - other.first);
            }
            number += gridDim.x;
        }
        wait_for_boxes<0>();
    }
}

// ---- the launch ----------------------------------------------------------------------------

// The map of a matrix that the copy engine stores in rounds. The parts of all splits are dense matrices of one map. An extent of one element has a
// stride of 16, since the copy engine wants a multiple of 16, and no stride of such an extent is used.
bops_status make_rounds_map(CUtensorMap &map, const bops_gemm_params &params, const bops_gemm_matrix &matrix, void *base, uint32_t splits) {
    cuuint64_t extents[5] = {params.n, params.m, 1, 1, 1}, strides[4] = {16, 16, 16, 16};
    if (splits > 1) {
        extents[2] = product_of(params.batch_rank, params.batch), extents[3] = splits;
        strides[0] = 4 * params.n, strides[1] = strides[0] * params.m, strides[2] = strides[1] * extents[2];
    } else {
        if (params.m > 1) strides[0] = 4 * matrix.row;
        for (uint32_t i = 0; i < params.batch_rank; ++i)
            if (params.batch[i] > 1) extents[2 + i] = params.batch[i], strides[1 + i] = 4 * matrix.batch[i];
    }
    const cuuint32_t box[5] = {warp_columns, round_rows, 1, 1, 1};
    return encode_boxes(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, base, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

// Makes the maps, which need addresses, and calls the action. If the kernel is only prepared, operands are null and maps are not made.
template <typename shape, bool reads, typename Action> bops_status with_maps(const bops_gemm_params &params,
                                                                             const bops_gemm_wgmma_words_choice &choice,
                                                                             const bops_gemm_operands &operands, const Action &action) {
    wgmma_work work = work_of<float, shape>(params, choice.splits, choice.band_rows);
    launch_shape launched;
    launched.grid = dim3(std::min(choice.blocks, work.units)), launched.block = dim3(words_threads), launched.shared_bytes = shape::shared_bytes;
    bops_gemm_params called = params;
    bops_gemm_operands given = operands;
    CUtensorMap left = {}, right = {}, out = {}, pre = {};
    if (operands.left != nullptr) {
        work.alpha = choice.splits > 1 ? 1.0f : float(params.alpha), work.beta = float(params.beta);
        if (choice.splits > 1) leave_parts(called, given);
        bops_status status = make_factor_map(left, params, params.left, BOPS_F32, operands.left, params.m, params.left.matrix.row,
                                             params.left.matrix.column, along_k, shape::rows);
        if (status == 0)
            status = make_factor_map(right, params, params.right, BOPS_F32, operands.right, params.n, params.right.matrix.column,
                                     params.right.matrix.row, fours_along_k, shape::columns);
        if (status == 0 && given.out != nullptr) status = make_rounds_map(out, called, called.out, given.out, choice.splits);
        if (status == 0 && !reads && given.other != nullptr) status = make_rounds_map(pre, called, called.other, given.other, 1);
        if (status != 0) return status;
    }
    return action(wgmma_words_tiles<shape, reads>, launched, left, right, out, pre, called, work, given);
}

template <typename Action> bops_status with_kernel(bops_dtype, const bops_gemm_params &params, const bops_gemm_wgmma_words_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    using shape = words_shape<128, 6>;
    if (choice.rows == 192)
        return choice.reads ? bops_status(cudaErrorInvalidValue) : with_maps<words_shape<192, 4>, false>(params, choice, operands, action);
    return choice.reads ? with_maps<shape, true>(params, choice, operands, action) : with_maps<shape, false>(params, choice, operands, action);
}

} // namespace
} // namespace gemm
} // namespace bops

BOPS_DEFINE_FORM(bops_gemm_wgmma_words, bops_dtype, bops_gemm_params, bops_gemm_wgmma_words_choice, bops_gemm_operands, bops::gemm::with_kernel)
