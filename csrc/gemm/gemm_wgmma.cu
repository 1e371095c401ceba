// gemm_wgmma: products of f16 and bf16 on the tensor cores of compute capability 9.0, through wgmma; the copy engine brings the factors.
//
// A block has three warpgroups and is persistent: it takes one tile after another. Two threads of the first warpgroup bring steps of the factors into
// a ring in shared memory. The other two warpgroups, the consumers, take every other tile each: one multiplies while the other applies the epilogue.
//
// Compiled for sm_90a in place of sm_90.
#include <algorithm>

#include "wgmma_work.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int wgmma_threads = 384, group_threads = 128; // of a block; of a warpgroup
// Numbers of named barriers: group_barrier and the next one are each for the threads of one consumer, turn_barrier and the next one for the turns of
// both.
constexpr int group_barrier = 1, turn_barrier = 3;

// The shape of a tile. stages: steps in the ring, as many as shared memory has room for. stages_reading: the steps if the epilogue reads an operand,
// for which column sums and barriers take more room; a shape with only_copies is never used with such an epilogue. blocks: of 64 rows each, those of
// an instruction. only_copies: its sums take so many registers that the copy engine has to load and store out.
template <int columns_, int stages_, int stages_reading_, bool only_copies_> struct wgmma_shape {
    static constexpr int rows = 128, columns = columns_, stages = stages_, stages_reading = stages_reading_, blocks = rows / 64;
    static constexpr bool only_copies = only_copies_;
    static constexpr uint32_t left_bytes = rows * wgmma_line_bytes, right_bytes = columns * wgmma_line_bytes, step_bytes = left_bytes + right_bytes;
    // Rounds of the epilogue that are unrolled, after which the sums of the other rounds move to the registers of these. More rounds move them less
    // often, but take more registers and code: the sums of a tile of 192 columns take 192 registers of a thread, and its epilogue spills if all of it
    // is unrolled (docs/rejected.md).
    static constexpr int unrolled = only_copies ? 1 : 2;
    // Registers of a thread in the producer's warpgroup, and in a consumer: the three warpgroups together have 3 * 168 to share out, in steps of 8.
    static constexpr int few_registers = only_copies ? 24 : 40, most_registers = only_copies ? 240 : 232;
};

// The epilogue of a warp takes its rows of a tile in *fragments* of 16 rows and 32 columns. The fragments with the same columns form a *round*. A
// fragment that the copy engine stores or reads lies in shared memory in the swizzle of lines of 64 bytes: 16-byte chunk number c of row r is at
// chunk c ^ r / 2 % 4 of the row. A warp has room for two rounds.
constexpr int fragment_rows = 16, fragment_columns = 32, fragment_sums = 16; // fragment_sums: sums of a lane in a fragment
constexpr int places = 2;                                                    // rounds that a warp has room for
constexpr int consumer_warps = 8;                                            // of both consumers
constexpr uint32_t fragment_bytes = fragment_rows * fragment_columns * 2, round_bytes = 2 * fragment_bytes;

// Shared memory. Behind the ring lie the rounds; then for each consumer the bias of its columns and, if they are wanted, four rows of column sums;
// then the barriers of the ring and of the rounds that are read.
template <typename shape, bool reads> struct wgmma_room {
    static constexpr int stages = reads ? shape::stages_reading : shape::stages;
    static constexpr uint32_t row_bytes = 2 * shape::columns * 4, rounds_at = stages * shape::step_bytes;
    static constexpr uint32_t bias_at = rounds_at + consumer_warps * places * round_bytes, sums_at = bias_at + row_bytes;
    static constexpr uint32_t barriers_at = sums_at + (reads ? 4 * row_bytes : 0);
    static constexpr uint32_t shared_bytes = barriers_at + (2 * stages + (reads ? consumer_warps * places : 0)) * 8;
    static_assert(shared_bytes <= most_shared_bytes, "");
    static_assert(!reads || shape::columns / fragment_columns % (2 * places) == 0, "barriers of rounds end a tile as they begin it");
};

// ---- the epilogue --------------------------------------------------------------------

// A lane has two rows of a fragment, eight rows apart. Of its sums, numbers 4 j + 2 i and 4 j + 2 i + 1 are in row i of the two, in columns 8 j + 2 q
// and 8 j + 2 q + 1, q = lane % 4. Sums 8 to 15 are the second half of the columns.

// Store and load two neighbouring elements, of which `left` exist. wide: both are one access.
template <typename T> __device__ __forceinline__ void store_two(T *to, int left, bool wide, float first, float second) {
    if (wide && left > 1) {
        const float two[2] = {first, second};
        store<2 * sizeof(T), false>(to, pack<T, 2 * sizeof(T)>(two));
    } else {
        if (left > 0) to[0] = narrow<T>(first);
        if (left > 1) to[1] = narrow<T>(second);
    }
}
template <typename T> __device__ __forceinline__ float2 fetch_two(const T *from, int left, bool wide) {
    if (wide && left > 1) {
        float two[2];
        unpack<T>(load<2 * sizeof(T), false>(from), two);
        return {two[0], two[1]};
    }
    return {left > 0 ? float(widen<T>(from[0])) : 0.0f, left > 1 ? float(widen<T>(from[1])) : 0.0f};
}

// Move a fragment to shared memory and back. `at` is the fragment's address plus place_in_fragment(); in the second half of a row's chunks, bit 5 of
// the address is flipped.
template <typename T> __device__ __forceinline__ void stage_fragment(uint32_t at, const float (&v)[fragment_sums]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float some[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) some[i] = v[8 * half + i];
        store_matrices(at ^ (32 * half), pack<T, 16>(some).word);
    }
}
template <typename T> __device__ __forceinline__ void unstage_fragment(uint32_t at, float (&v)[fragment_sums]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        packed<16> words;
        load_matrices(at ^ (32 * half), words.word);
        float some[8];
        unpack<T>(words, some);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[8 * half + i] = some[i];
    }
}
// The offset in a fragment of the row whose address this lane gives to store_matrices and load_matrices, at its chunk in the first half.
__device__ __forceinline__ uint32_t place_in_fragment() {
    const uint32_t lane = threadIdx.x % 32, row = lane % 16;
    return row * (fragment_columns * 2) + ((lane / 16 ^ row / 2 % 4) * 16);
}

// Sums four values over the lanes with equal lane % 4. Lane 4 i + q gets the sum of value i.
__device__ __forceinline__ float sum_of_rows(const float (&v)[4]) {
    const bool high = threadIdx.x & 8, odd = threadIdx.x & 4;
    float two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) two[i] = (high ? v[2 + i] : v[i]) + __shfl_xor_sync(0xffffffffu, high ? v[i] : v[2 + i], 8);
    float one = (odd ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, odd ? two[0] : two[1], 4);
    return one + __shfl_xor_sync(0xffffffffu, one, 16);
}

// Which part of out a consumer's sums are.
struct wgmma_target {
    uint32_t z, split, m, n; // m, n: of its first row and column
};

// What the epilogue uses besides the sums of the tile.
struct wgmma_ending {
    const CUtensorMap *out_map, *other_map; // of what the copy engine stores, and of what it reads
    uint32_t rounds, barriers;              // addresses: of the warp's two rounds in shared memory, plus place_in_fragment(); of a barrier for each
    const float *bias;                      // of the tile's columns, in shared memory
    float *scratch;                         // four rows of column sums of the consumer
    int group;                              // which consumer this is
};

// Where a fragment of this warp lies in out, and in pre or dout.
__device__ __forceinline__ box_place box_of(const bops_gemm_params &params, const wgmma_target &target, int round, int fragment) {
    box_place box{int(target.n) + round * fragment_columns, int(target.m) + int(threadIdx.x / 32 % 4) * fragment_rows + 64 * fragment, {}, 0};
    in_batch(params, target.z, box.batch);
    return box;
}

// Starts the copies of what the epilogue reads in a round. Called by one thread of a warp.
__device__ __forceinline__ void read_round(const bops_gemm_params &params, const wgmma_target &target, const wgmma_ending &ending, int round) {
    const uint32_t place = uint32_t(round % places), barrier = ending.barriers + place * 8;
    mbarrier::expect(barrier, round_bytes);
#pragma unroll
    for (int fragment = 0; fragment < 2; ++fragment)
        copy_box(ending.rounds + place * round_bytes + fragment * fragment_bytes,
                 params.epilogue == BOPS_GEMM_DERIVATIVE ? *ending.other_map : *ending.out_map, box_of(params, target, round, fragment), barrier);
}

// The epilogue of a tile. copies: the copy engine stores the fragments and brings what is read; otherwise threads do both.
template <typename T, typename shape, bool reads, bool copies>
__device__ __forceinline__ void leave(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, const bops_gemm_operands &operands,
                                      const wgmma_work &work, const wgmma_target &target, float (&sums)[shape::blocks][shape::columns / 2],
                                      const wgmma_ending &ending) {
    constexpr int rounds = shape::columns / fragment_columns, unrolled = shape::unrolled;
    static_assert(rounds % unrolled == 0, "");
    const int warp = int(threadIdx.x) / 32 % 4, lane = int(threadIdx.x) % 32, q = lane % 4;
    const bool wide = choice.wide != 0, has_pre = !reads && operands.other != nullptr, is_derivative = params.epilogue == BOPS_GEMM_DERIVATIVE;
#pragma unroll 1
    for (int first = 0; first < rounds; first += unrolled) {
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const int round = first + i;
            // 1. Where the round lies in shared memory; pre lies in the place behind it.
            const int place = has_pre ? 0 : round % places;
            const uint32_t at = ending.rounds + place * round_bytes;
            if constexpr (copies) {
                if constexpr (reads) mbarrier::wait(ending.barriers + place * 8, round / places % 2);
                else if (has_pre) wait_for_boxes<0>();
                else wait_for_boxes<places - 1>();
                __syncwarp();
            }
#pragma unroll
            for (int fragment = 0; fragment < 2; ++fragment) {
                // The offset of element (8 i, 8 j) of this lane in a fragment; the one after it is the lane's, too.
                const auto row_at = [&](int i) { return target.m + uint32_t(64 * fragment + fragment_rows * warp + lane / 4 + 8 * i); };
                const auto column_at = [&](int j) { return target.n + uint32_t(round * fragment_columns + 8 * j + 2 * q); };
                const auto left_at = [&](int i, int j) { // columns that exist from there on
                    return row_at(i) < uint32_t(params.m) ? int(params.n) - int(column_at(j)) : 0;
                };
                const auto offset_at = [&](const bops_gemm_matrix &matrix, int i, int j) {
                    return offset_of(params.batch_rank, params.batch, matrix.batch, target.z) + row_at(i) * matrix.row + column_at(j);
                };
                const auto store = [&](void *base, bops_dtype dtype, const bops_gemm_matrix &matrix, uint64_t start, const float(&v)[fragment_sums]) {
#pragma unroll
                    for (int k = 0; k < 8; ++k) {
                        const int i = k % 2, j = k / 2;
                        const uint64_t to = start + offset_at(matrix, i, j);
                        if (dtype == BOPS_F32) store_two(static_cast<float *>(base) + to, left_at(i, j), wide, v[2 * k], v[2 * k + 1]);
                        else store_two(static_cast<T *>(base) + to, left_at(i, j), wide, v[2 * k], v[2 * k + 1]);
                    }
                };
                const uint32_t fragment_at = at + fragment * fragment_bytes;
                // 2. The sums times alpha; with the bias, pre.
                float v[fragment_sums];
#pragma unroll
                for (int j = 0; j < fragment_sums; ++j) v[j] = sums[fragment][i * fragment_sums + j] * work.alpha;
                if (operands.bias != nullptr) {
                    const float *const bias = ending.bias + round * fragment_columns + 2 * q;
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const float2 b = *reinterpret_cast<const float2 *>(bias + 8 * j);
                        v[4 * j] += b.x, v[4 * j + 1] += b.y, v[4 * j + 2] += b.x, v[4 * j + 3] += b.y;
                    }
                }
                // 3. out.
                if constexpr (!reads) {
                    if (has_pre) {
                        if constexpr (copies) stage_fragment<T>(fragment_at + round_bytes, v);
                        else store(operands.other, params.other_dtype, params.other, 0, v);
                    }
                    if (params.activation != BOPS_IDENTITY) activate(params.activation, v);
                } else {
                    float g[fragment_sums];
                    if constexpr (copies) {
                        unstage_fragment<T>(fragment_at, g);
                    } else {
                        const void *const base = is_derivative ? operands.other : operands.out;
                        const bops_dtype dtype = is_derivative ? params.other_dtype : params.out_dtype;
#pragma unroll
                        for (int k = 0; k < 8; ++k) {
                            const int i = k % 2, j = k / 2;
                            const uint64_t from = offset_at(is_derivative ? params.other : params.out, i, j);
                            const float2 two = dtype == BOPS_F32 ? fetch_two(static_cast<const float *>(base) + from, left_at(i, j), wide)
                                                                 : fetch_two(static_cast<const T *>(base) + from, left_at(i, j), wide);
                            g[2 * k] = two.x, g[2 * k + 1] = two.y;
                        }
                    }
                    if (is_derivative) {
                        differentiate(params.activation, v, g);
                        // The column sums of this warp. Of elements that do not exist dout is 0, but pre may be anything.
                        if (operands.column_sums != nullptr)
#pragma unroll
                            for (int half = 0; half < 2; ++half) {
                                float total[4] = {};
#pragma unroll
                                for (int j = 0; j < 8; ++j)
                                    total[j / 4 * 2 + j % 2] += j % 2 < left_at(j / 2 % 2, half * 2 + j / 4) ? g[half * 8 + j] : 0.0f;
                                const float one = sum_of_rows(total);
                                const int column = round * fragment_columns + half * 16 + lane / 8 * 8 + 2 * q + lane / 4 % 2;
                                float &sum = ending.scratch[warp * shape::columns + column];
                                if (lane < 16) sum = fragment == 1 ? sum + one : one;
                            }
#pragma unroll
                        for (int j = 0; j < fragment_sums; ++j) v[j] = g[j];
                    } else {
#pragma unroll
                        for (int j = 0; j < fragment_sums; ++j) v[j] = fmaf(work.beta, g[j], v[j]);
                    }
                }
                if (operands.out != nullptr) {
                    if constexpr (copies) stage_fragment<T>(fragment_at, v);
                    else store(operands.out, params.out_dtype, params.out, target.split * work.split_stride, v);
                }
            }
            if constexpr (copies) {
                publish_stores();
                __syncwarp();
                if (lane == 0) {
#pragma unroll
                    for (int fragment = 0; fragment < 2; ++fragment) {
                        const box_place box = box_of(params, target, round, fragment);
                        if (has_pre) store_box(*ending.other_map, box, at + round_bytes + fragment * fragment_bytes);
                        if (operands.out != nullptr) store_box(*ending.out_map, box, at + fragment * fragment_bytes);
                    }
                    commit_boxes();
                    if constexpr (reads) {
                        // The stores of the round before have been read from shared memory, so that its place is free.
                        wait_for_boxes<1>();
                        if (round > 0 && round - 1 + places < rounds) read_round(params, target, ending, round - 1 + places);
                    }
                }
            }
        }
        // 4. The sums of the next rounds move to the registers of these, so that one copy of the code above serves all rounds.
#pragma unroll
        for (int block = 0; block < shape::blocks; ++block)
#pragma unroll
            for (int i = 0; i < shape::columns / 2 - unrolled * fragment_sums; ++i) sums[block][i] = sums[block][i + unrolled * fragment_sums];
    }
    // 5. The column sums of the consumer, over its warps.
    if constexpr (reads)
        if (is_derivative && operands.column_sums != nullptr) {
            synchronize_group(group_barrier + ending.group);
            if (target.m < params.m) {
                const uint64_t line = uint64_t(target.z) * tiles_of(params.m, shape::rows) + target.m / shape::rows;
                float *const to = static_cast<float *>(operands.column_sums) + line * params.n + target.n;
                const int columns = int(min(params.n - target.n, uint64_t(shape::columns)));
                for (int column = int(threadIdx.x) % group_threads; column < columns; column += group_threads) {
                    float all = 0.0f;
#pragma unroll
                    for (int i = 0; i < 4; ++i) all += ending.scratch[i * shape::columns + column];
                    to[column] = all;
                }
            }
        }
}

// ---- the kernel -----------------------------------------------------------------------

template <typename T, typename shape, bool left_across, bool right_across, bool reads> __global__ void __launch_bounds__(wgmma_threads, 1)
    wgmma_tiles(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                const __grid_constant__ CUtensorMap out_map, const __grid_constant__ CUtensorMap other_map,
                const __grid_constant__ bops_gemm_params params, const __grid_constant__ bops_gemm_wgmma_choice choice,
                const __grid_constant__ wgmma_work work, const __grid_constant__ bops_gemm_operands operands) {
    if (!has_sm_90a) return;
    using room = wgmma_room<shape, reads>;
    constexpr int stages = room::stages;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t ring = shared_address(shared), full = ring + room::barriers_at, empty = full + 8 * stages;
    const uint32_t first = blockIdx.x, step = gridDim.x;
    const int group = int(threadIdx.x) / group_threads - 1; // which consumer this is; -1 is the producer

    // 1. Two barriers for each stage: at `full` the step arrives, at `empty` all warps of a consumer that have used it.
    if (threadIdx.x == 0) {
        prefetch_map(left_map);
        prefetch_map(right_map);
        for (int i = 0; i < stages; ++i) {
            mbarrier::initialize(full + 8 * i, 2);  // by the threads that fetch left and right
            mbarrier::initialize(empty + 8 * i, 4); // by the warps of the consumer
        }
        if (reads)
            for (int i = 0; i < consumer_warps * places; ++i) mbarrier::initialize(empty + 8 * (stages + i), 1);
        mbarrier::fence_initialized();
    }
    __syncthreads();

    if (group < 0) {
        // 2. The producer fetches the factors.
        release_registers<shape::few_registers>();
        if (threadIdx.x == 0) bring_steps<T, shape, stages, true, left_across ? across_k : along_k>(params, work, left_map, ring, full, empty);
        if (threadIdx.x == 32) bring_steps<T, shape, stages, false, right_across ? across_k : along_k>(params, work, right_map, ring, full, empty);
        __syncwarp();
    } else {
        // 3. The consumers multiply.
        claim_registers<shape::most_registers>();
        float *const bias = reinterpret_cast<float *>(shared + room::bias_at) + group * shape::columns;
        float *const scratch = reads ? reinterpret_cast<float *>(shared + room::sums_at) + group * 4 * shape::columns : nullptr;
        const uint32_t warp = threadIdx.x / 32 - 4, rounds = ring + room::rounds_at + warp * places * round_bytes;
        const wgmma_ending ending{&out_map, &other_map, rounds + place_in_fragment(), empty + 8 * (stages + warp * places), bias, scratch, group};
        const int lane = int(threadIdx.x) % 32;
        const auto release = [&](uint32_t stage) {
            if (lane == 0) mbarrier::arrive(empty + 8 * stage);
        };
        uint32_t stage_number = 0; // counts as the producer's does
        const auto skip = [&](uint32_t count) { stage_number = (stage_number + count) % (2 * stages); };
        // Consumers take turns: one waits for steps only once the other has waited for its last step, since a barrier tells apart no more than two
        // phases.
        uint32_t number = first;
        if (group == 1) {
            give_turn(turn_barrier);
            if (number < work.units) {
                const wgmma_unit other(work, number);
                skip(other.last - other.first);
            }
            number += step;
        }
#pragma unroll 1
        while (number < work.units) {
            const wgmma_unit unit(work, number);
            const uint32_t m = unit.tile_m * shape::rows;
            const uint32_t n = unit.tile_n * shape::columns;
            // All warps of the consumer have read the bias of the tile before.
            if (operands.bias != nullptr || operands.column_sums != nullptr) synchronize_group(group_barrier + group);
            if (operands.bias != nullptr) {
                for (int i = int(threadIdx.x) % group_threads; i < shape::columns; i += group_threads) {
                    const uint64_t at = uint64_t(n + i) * params.bias.column;
                    float value = 0.0f;
                    if (n + i < params.n)
                        value = params.bias_dtype == BOPS_F32 ? static_cast<const float *>(operands.bias)[at]
                                                              : widen<T>(static_cast<const T *>(operands.bias)[at]);
                    bias[i] = value;
                }
                synchronize_group(group_barrier + group);
            }
            const wgmma_target target{unit.z, unit.split, m, n};
            if constexpr (reads)
                if (work.copies && lane == 0) {
                    wait_for_boxes<0>();
#pragma unroll 1
                    for (int round = 0; round < places; ++round) read_round(params, target, ending, round);
                }
            float sums[shape::blocks][shape::columns / 2];
            uint32_t before = 0;
            wait_for_turn(turn_barrier + group);
#pragma unroll 1
            for (uint32_t i = unit.first; i < unit.last; ++i) {
                const uint32_t stage = stage_number < stages ? stage_number : stage_number - stages;
                const uint32_t left = ring + stage * shape::step_bytes, right = left + shape::left_bytes;
                mbarrier::wait(full + 8 * stage, stage_number >= stages);
                wgmma_fence();
#pragma unroll
                for (int k_part = 0; k_part < wgmma_depth<T> / 16; ++k_part)
#pragma unroll
                    for (int block = 0; block < shape::blocks; ++block) {
                        wgmma<T, shape::columns, left_across, right_across>(sums[block], wgmma_descriptor<left_across>(left, 64 * block, k_part),
                                                                            wgmma_descriptor<right_across>(right, 0, k_part),
                                                                            i > unit.first || k_part > 0);
                    }
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
            if (shape::only_copies || work.copies) leave<T, shape, reads, true>(params, choice, operands, work, target, sums, ending);
            else if constexpr (!shape::only_copies) leave<T, shape, reads, false>(params, choice, operands, work, target, sums, ending);
            number += step;
            if (number < work.units) {
                const wgmma_unit other(work, number);
                skip(other.last - other.first);
            }
            number += step;
        }
        wait_for_boxes<0>();
    }
}

// ---- the launch -------------------------------------------------------------------------

// The map of a matrix of 16-bit elements that the copy engine stores or reads in fragments.
bops_status make_map(CUtensorMap &map, const bops_gemm_params &params, const bops_gemm_matrix &matrix, bops_dtype dtype, void *base) {
    cuuint64_t extents[5] = {params.n, params.m, 1, 1, 1}, strides[4] = {16, 16, 16, 16};
    if (params.m > 1) strides[0] = 2 * matrix.row;
    for (uint32_t i = 0; i < params.batch_rank; ++i)
        if (params.batch[i] > 1) extents[2 + i] = params.batch[i], strides[1 + i] = 2 * matrix.batch[i];
    const cuuint32_t box[5] = {fragment_columns, fragment_rows, 1, 1, 1};
    return encode_boxes(map, factor_type(dtype), base, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

// Makes the maps, which need addresses, and calls the action. If the kernel is only prepared, operands are null and maps are not made.
template <typename T, typename shape, bool left_across, bool right_across, bool reads, typename Action>
bops_status with_maps(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, bops_dtype dtype, const bops_gemm_operands &operands,
                      const Action &action) {
    wgmma_work work = work_of<T, shape>(params, choice.splits, choice.band_rows);
    launch_shape launched;
    launched.grid = dim3(std::min(choice.blocks, work.units)), launched.block = dim3(wgmma_threads);
    launched.shared_bytes = wgmma_room<shape, reads>::shared_bytes;
    bops_gemm_params called = params;
    bops_gemm_operands given = operands;
    CUtensorMap left = {}, right = {}, out = {}, other = {};
    if (operands.left != nullptr) {
        bops_status status = make_factor_map(left, params, params.left, dtype, operands.left, params.m, params.left.matrix.row,
                                             params.left.matrix.column, left_across ? across_k : along_k, shape::rows);
        if (status == 0)
            status = make_factor_map(right, params, params.right, dtype, operands.right, params.n, params.right.matrix.column,
                                     params.right.matrix.row, right_across ? across_k : along_k, shape::columns);
        const bool has_out = operands.out != nullptr, has_other = operands.other != nullptr;
        work.alpha = choice.splits > 1 ? 1.0f : float(params.alpha), work.beta = float(params.beta);
        if (choice.splits > 1) {
            leave_parts(called, given);
            work.split_stride = params.m * params.n * product_of(params.batch_rank, params.batch);
        } else if (choice.copies) {
            work.copies = 1;
            if (status == 0 && has_out) status = make_map(out, params, params.out, dtype, operands.out);
            if (status == 0 && has_other) status = make_map(other, params, params.other, dtype, operands.other);
        }
        if (status != 0) return status;
    }
    return action(wgmma_tiles<T, shape, left_across, right_across, reads>, launched, left, right, out, other, called, choice, work, given);
}

template <typename T, typename shape, bool reads, typename Action>
bops_status with_factors(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, bops_dtype dtype, const bops_gemm_operands &operands,
                         const Action &action) {
    const auto of_left = [&](auto left) {
        const auto of_right = [&](auto right) {
            return with_maps<T, shape, decltype(left)::value, decltype(right)::value, reads>(params, choice, dtype, operands, action);
        };
        return choice.right_across ? of_right(std::true_type{}) : of_right(std::false_type{});
    };
    return choice.left_across ? of_left(std::true_type{}) : of_left(std::false_type{});
}

template <typename T, typename Action> bops_status with_tile(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, bops_dtype dtype,
                                                             const bops_gemm_operands &operands, const Action &action) {
    if (choice.columns == 192)
        return choice.copies && !choice.reads ? with_factors<T, wgmma_shape<192, 4, 4, true>, false>(params, choice, dtype, operands, action)
                                              : bops_status(cudaErrorInvalidValue);
    using shape = wgmma_shape<128, 6, 5, false>;
    return choice.reads ? with_factors<T, shape, true>(params, choice, dtype, operands, action)
                        : with_factors<T, shape, false>(params, choice, dtype, operands, action);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    return for_types<__half, __nv_bfloat16>(
        dtype, [&](auto tag) { return with_tile<typename decltype(tag)::type>(params, choice, dtype, operands, action); });
}

} // namespace
} // namespace gemm
} // namespace bops

BOPS_DEFINE_FORM(bops_gemm_wgmma, bops_dtype, bops_gemm_params, bops_gemm_wgmma_choice, bops_gemm_operands, bops::gemm::with_kernel)
