// gemm_wgmma: the tensor cores of compute capability 9.0 through wgmma, of factors of f16 and bf16 that the copy engine brings.
//
// A block has three warpgroups and stays for all its tiles. One thread of the first brings steps of both factors into a ring in shared memory; the
// other two, the consumers, multiply. *Cooperative*: each consumer has half of the rows of a tile. *Alternating*: each has every other tile, so that
// one multiplies while the other is busy with its sums. Two blocks of a cluster have tiles one below the other and share the steps of the right
// factor: each brings one half of them, for both.
//
// Compiled for sm_90a in place of sm_90.
#include <algorithm>

#include "gemm.cuh"
#include "wgmma.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int wgmma_threads = 384, group_threads = 128;
// Barriers of threads: of the threads of a consumer from this number on, of the turns of both from the other.
constexpr int group_barrier = 1, turn_barrier = 3;

template <int group_rows_, int columns_, bool alternating_, int stages_, int cluster_> struct wgmma_shape {
    static constexpr int group_rows = group_rows_, columns = columns_, stages = stages_, cluster = cluster_;
    static constexpr bool alternating = alternating_;
    static constexpr int rows = alternating ? group_rows : 2 * group_rows, blocks = group_rows / 64; // blocks of 64 rows of a consumer
    static constexpr uint32_t left_bytes = rows * wgmma_line_bytes, right_bytes = columns * wgmma_line_bytes, step_bytes = left_bytes + right_bytes;
    // Behind the ring: of each consumer the bias and four rows of column sums; the barriers.
    static constexpr uint32_t bias_at = stages * step_bytes, sums_at = bias_at + 2 * columns * 4, barriers_at = sums_at + 2 * 4 * columns * 4;
    static constexpr uint32_t shared_bytes = barriers_at + 2 * stages * 8;
};

// The tiles of a launch, and the steps along k, of one summed index after the other. A unit is the tiles of a cluster.
struct wgmma_work {
    uint32_t units_m, tiles_n, matrices, splits, group, units;
    uint32_t steps_of_k, steps;
};
struct wgmma_unit {
    uint32_t z, split, unit_m, tile_n, first, last; // first, last: of the steps
    // Neighbouring blocks take units of `group` rows of units, column after column, so that those that run at the same time share factors in the L2.
    __device__ __forceinline__ wgmma_unit(const wgmma_work &work, uint32_t number) {
        const uint32_t in_matrix = number % (work.units_m * work.tiles_n), matrix = number / (work.units_m * work.tiles_n);
        const uint32_t high = min(work.group, work.units_m), part = in_matrix / (high * work.tiles_n), in_part = in_matrix % (high * work.tiles_n);
        const uint32_t rows = min(high, work.units_m - high * part);
        unit_m = high * part + in_part % rows, tile_n = in_part / rows;
        z = matrix / work.splits, split = matrix % work.splits;
        const uint32_t share = work.steps / work.splits, left = work.steps % work.splits;
        first = share * split + min(split, left), last = first + share + (split < left ? 1 : 0);
    }
};

// ---- bringing factors ---------------------------------------------------------------

// Boxes of `rows` rows of a step. halves: a block brings one half of them, for both of its cluster.
template <bool across, int rows, bool halves> __device__ __forceinline__ void bring(uint32_t to, const CUtensorMap &map, int row, int k,
                                                                                    const int (&batch)[2], int summed, uint32_t barrier,
                                                                                    uint32_t rank) {
    constexpr int box_rows = across ? across_block_rows : halves ? rows / 2 : rows;
#pragma unroll
    for (int i = 0; i < rows / box_rows; ++i) {
        if (halves && rank != uint32_t(i % 2)) continue;
        const int first = row + i * box_rows;
        const box_place at{across ? first : k, across ? k : first, {batch[0], batch[1]}, summed};
        copy_box<halves>(to + i * box_rows * wgmma_line_bytes, map, at, barrier);
    }
}

// ---- what is done with sums ----------------------------------------------------------

// Word i of lane q of four becomes word q of lane i.
__device__ __forceinline__ void transpose_words(uint32_t (&w)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        (odd ? w[i] : w[i + 1]) = other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + 2], 2);
        (high ? w[i] : w[i + 2]) = other;
    }
}

// Eight elements of a row that a lane holds: columns 8 j + 2 q and the one after it of 32, j from 0 to 3, q its number among four lanes. In memory
// those of 16 bits go eight neighbours a lane. `left`: elements from the first of the 32 on, at most 0 where the row is not there. wide: eight
// neighbours of 16 bits, and two of f32, are one access.
template <typename T> __device__ __forceinline__ void store_row(T *to, int left, bool wide, const float (&v)[8]) {
    const int q = int(threadIdx.x) % 4;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int column = 8 * j + 2 * q;
            if (wide && column + 1 < left) {
                *reinterpret_cast<float2 *>(to + column) = make_float2(v[2 * j], v[2 * j + 1]);
            } else {
                if (column < left) to[column] = v[2 * j];
                if (column + 1 < left) to[column + 1] = v[2 * j + 1];
            }
        }
    } else {
        packed<16> words = pack<T, 16>(v);
        transpose_words(words.word);
        const int column = 8 * q;
        if (wide && column + 7 < left) {
            // As one instruction: the compiler makes four of an assignment.
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + column), "r"(words.word[0]), "r"(words.word[1]), "r"(words.word[2]),
                         "r"(words.word[3])
                         : "memory");
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (column + i < left)
                    reinterpret_cast<unsigned short *>(to)[column + i] = static_cast<unsigned short>(words.word[i / 2] >> (16 * (i % 2)));
        }
    }
}
// The words as memory has them; `settle_row` makes values of them.
template <typename T> __device__ __forceinline__ void fetch_row(const T *from, int left, bool wide, uint32_t (&words)[8]) {
    const int q = int(threadIdx.x) % 4;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int column = 8 * j + 2 * q;
            if (wide && column + 1 < left) {
                const packed<8> two = load<8, false>(from + column);
                words[2 * j] = two.word[0], words[2 * j + 1] = two.word[1];
            } else {
                words[2 * j] = column < left ? __float_as_uint(from[column]) : 0;
                words[2 * j + 1] = column + 1 < left ? __float_as_uint(from[column + 1]) : 0;
            }
        }
    } else {
        const int column = 8 * q;
        if (wide && column + 7 < left) {
            const packed<16> eight = load<16, false>(from + column);
#pragma unroll
            for (int i = 0; i < 4; ++i) words[i] = eight.word[i];
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t low = column + 2 * i < left ? reinterpret_cast<const unsigned short *>(from)[column + 2 * i] : 0;
                const uint32_t high = column + 2 * i + 1 < left ? reinterpret_cast<const unsigned short *>(from)[column + 2 * i + 1] : 0;
                words[i] = low | high << 16;
            }
        }
    }
}
template <typename T> __device__ __forceinline__ void settle_row(const uint32_t (&words)[8], float (&v)[8]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = __uint_as_float(words[i]);
    } else {
        packed<16> four = {{words[0], words[1], words[2], words[3]}};
        transpose_words(four.word);
        unpack<T>(four, v);
    }
}

template <typename T>
__device__ __forceinline__ void store_row_of(void *base, bops_dtype dtype, uint64_t at, int left, bool wide, const float (&v)[8]) {
    if (dtype == BOPS_F32) store_row(static_cast<float *>(base) + at, left, wide, v);
    else store_row(static_cast<T *>(base) + at, left, wide, v);
}

// The sums of eight columns of a row: number `part` of a consumer's, rows of the same 32 columns one after the other.
template <int part, int blocks, int sums> __device__ __forceinline__ void take_part(const float (&all)[blocks][sums], float (&v)[8]) {
    if constexpr (part < blocks * sums / 8) {
        constexpr int rows = 2 * blocks, block = part % rows / 2, half = part % 2, first = part / rows * 16;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            v[2 * j] = all[block][first + 4 * j + 2 * half];
            v[2 * j + 1] = all[block][first + 4 * j + 2 * half + 1];
        }
    }
}
// clang-format off
template <int blocks, int sums> __device__ __forceinline__ void take(int part, const float (&all)[blocks][sums], float (&v)[8]) {
#define BOPS_PART(i) case i: take_part<i>(all, v); break;
#define BOPS_PARTS(i) BOPS_PART(i) BOPS_PART(i + 1) BOPS_PART(i + 2) BOPS_PART(i + 3)
    static_assert(blocks * sums <= 16 * 8, "");
    switch (part) {
    BOPS_PARTS(0) BOPS_PARTS(4) BOPS_PARTS(8) BOPS_PARTS(12)
    default: __builtin_unreachable();
    }
#undef BOPS_PARTS
#undef BOPS_PART
}
// clang-format on

// Where a consumer's part of a tile lies.
struct wgmma_target {
    uint32_t z, split;
    uint64_t m, n; // of its first row and column
};

// The end of a tile. bias: of its columns, in shared memory; scratch: four rows of floats of the consumer.
template <typename T, typename shape, bool reads>
__device__ __forceinline__ void leave(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, const bops_gemm_operands &operands,
                                      const wgmma_target &target, const float (&sums)[shape::blocks][shape::columns / 2], const float *bias,
                                      float *scratch, int group) {
    constexpr int rows_each = 2 * shape::blocks, parts = rows_each * shape::columns / 32;
    const int warp = int(threadIdx.x) / 32 % 4, lane = int(threadIdx.x) % 32, q = lane % 4;
    const bool is_part = choice.splits > 1, wide = choice.wide != 0;
    // 1. Rows that a lane has lie eight apart, those of other blocks 64. m_left: rows from the first of them on.
    const uint64_t m = target.m + uint64_t(16 * warp + lane / 4);
    const int m_left = params.m > m ? int(min(params.m - m, uint64_t(shape::group_rows))) : 0;
    const int n_left = int(min(params.n - target.n, uint64_t(shape::columns)));
    const bops_dtype out_dtype = is_part ? bops_dtype(BOPS_F32) : params.out_dtype;
    void *const out = is_part ? operands.parts : operands.out;
    uint64_t out_row, out_at, other_at = 0;
    if (is_part) {
        out_row = params.n;
        out_at = (uint64_t(target.split) * product_of(params.batch_rank, params.batch) + target.z) * params.m * params.n + m * out_row + target.n;
    } else {
        out_row = params.out.row;
        out_at = offset_of(params.batch_rank, params.batch, params.out.batch, target.z) + m * out_row + target.n;
    }
    const bool has_other = !is_part && operands.other != nullptr;
    if (has_other) other_at = offset_of(params.batch_rank, params.batch, params.other.batch, target.z) + m * params.other.row + target.n;
    const bool takes_before =
        reads && !is_part && (params.epilogue == BOPS_GEMM_DERIVATIVE || (params.epilogue == BOPS_GEMM_GRADIENT && params.beta != 0));
    const void *const before = params.epilogue == BOPS_GEMM_DERIVATIVE ? operands.other : operands.out;
    const bops_dtype before_dtype = params.epilogue == BOPS_GEMM_DERIVATIVE ? params.other_dtype : params.out_dtype;
    const uint64_t before_row = params.epilogue == BOPS_GEMM_DERIVATIVE ? params.other.row : out_row;
    const uint64_t before_at = params.epilogue == BOPS_GEMM_DERIVATIVE ? other_at : out_at;
    const auto row_of = [](int part) { return part % rows_each / 2 * 64 + part % 2 * 8; };
    const auto column_of = [](int part) { return part / rows_each * 32; };
    const auto fetch = [&](int part, uint32_t(&words)[8]) {
        const int row = row_of(part), column = column_of(part), left = row < m_left && part < parts ? n_left - column : 0;
        const uint64_t at = before_at + uint64_t(row) * before_row + uint64_t(column);
        if (before_dtype == BOPS_F32) fetch_row(static_cast<const float *>(before) + at, left, wide, words);
        else fetch_row(static_cast<const T *>(before) + at, left, wide, words);
    };
    const float alpha = is_part ? 1.0f : float(params.alpha), beta = float(params.beta);
    uint32_t next[8];
    float total[8];
    if constexpr (reads) {
#pragma unroll
        for (int i = 0; i < 8; ++i) total[i] = 0.0f;
        if (takes_before) fetch(0, next);
    }
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
        // 2. v, the sums times alpha; with the bias, pre.
        float v[8];
        take(part, sums, v);
        const int row = row_of(part), column = column_of(part), left = row < m_left ? n_left - column : 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] *= alpha;
        if (!is_part) {
            if (operands.bias != nullptr)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float2 b = *reinterpret_cast<const float2 *>(bias + column + 8 * j + 2 * q);
                    v[2 * j] += b.x, v[2 * j + 1] += b.y;
                }
            // 3. out.
            if (params.epilogue == BOPS_GEMM_FORWARD) {
                if (has_other) {
                    const uint64_t at = other_at + uint64_t(row) * params.other.row + uint64_t(column);
                    store_row_of<T>(operands.other, params.other_dtype, at, left, wide, v);
                }
                if (params.activation != BOPS_IDENTITY) activate(params.activation, v);
            } else if constexpr (reads) {
                if (takes_before) {
                    float g[8];
                    if (before_dtype == BOPS_F32) settle_row<float>(next, g);
                    else settle_row<T>(next, g);
                    fetch(part + 1, next);
                    if (params.epilogue == BOPS_GEMM_DERIVATIVE) {
                        differentiate(params.activation, v, g);
#pragma unroll
                        for (int i = 0; i < 8; ++i) {
                            v[i] = g[i];
                            total[i] += 8 * (i / 2) + 2 * q + i % 2 < left ? g[i] : 0.0f;
                        }
                    } else {
#pragma unroll
                        for (int i = 0; i < 8; ++i) v[i] = fmaf(beta, g[i], v[i]);
                    }
                }
            }
        }
        if (out != nullptr) store_row_of<T>(out, out_dtype, out_at + uint64_t(row) * out_row + uint64_t(column), left, wide, v);
        // 4. The column sums of a warp.
        if constexpr (reads)
            if (params.epilogue == BOPS_GEMM_DERIVATIVE && part % rows_each == rows_each - 1) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
#pragma unroll
                    for (int step = 4; step < 32; step *= 2) total[i] += __shfl_xor_sync(0xffffffffu, total[i], step);
                    if (lane < 4) scratch[warp * shape::columns + column + 8 * (i / 2) + 2 * q + i % 2] = total[i];
                    total[i] = 0.0f;
                }
            }
    }
    // 5. Those of the consumer.
    if constexpr (reads)
        if (params.epilogue == BOPS_GEMM_DERIVATIVE && operands.column_sums != nullptr) {
            synchronize_group(group_barrier + group);
            if (target.m < params.m) {
                const uint64_t line = uint64_t(target.z) * tiles_of(params.m, shape::group_rows) + target.m / shape::group_rows;
                float *const to = static_cast<float *>(operands.column_sums) + line * params.n + target.n;
                for (int column = int(threadIdx.x) % group_threads; column < n_left; column += group_threads) {
                    float all = 0.0f;
#pragma unroll
                    for (int i = 0; i < 4; ++i) all += scratch[i * shape::columns + column];
                    to[column] = all;
                }
            }
        }
}

// ---- the kernel -----------------------------------------------------------------------

template <typename T, typename shape, bool left_across, bool right_across, bool reads> __global__ void __launch_bounds__(wgmma_threads, 1)
    wgmma_tiles(const __grid_constant__ CUtensorMap left_map, const __grid_constant__ CUtensorMap right_map,
                const __grid_constant__ bops_gemm_params params, const __grid_constant__ bops_gemm_wgmma_choice choice,
                const __grid_constant__ wgmma_work work, const __grid_constant__ bops_gemm_operands operands) {
    if (!has_sm_90a) return;
    constexpr int cluster = shape::cluster, stages = shape::stages;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t ring = shared_address(shared), full = ring + shape::barriers_at, empty = full + 8 * stages;
    const uint32_t rank = cluster > 1 ? rank_in_cluster() : 0, first = blockIdx.x / cluster, step = gridDim.x / cluster;
    const int group = int(threadIdx.x) / group_threads - 1; // of the consumers; the one that brings the factors is -1

    // 1. Barriers: a step is there; it has been used, by all warps that do.
    if (threadIdx.x == 0) {
        prefetch_map(left_map);
        prefetch_map(right_map);
        for (int i = 0; i < stages; ++i) {
            mbarrier::initialize(full + 8 * i, 1);
            mbarrier::initialize(empty + 8 * i, (shape::alternating ? 4 : 8) * cluster);
        }
        mbarrier::fence_initialized();
    }
    __syncthreads();
    if constexpr (cluster > 1) synchronize_cluster();

    if (group < 0) {
        // 2. The factors.
        release_registers<40>();
        if (threadIdx.x == 0) {
            uint32_t stage = 0, parity = 0;
#pragma unroll 1
            for (uint32_t number = first; number < work.units; number += step) {
                const wgmma_unit unit(work, number);
                const int m = int((unit.unit_m * cluster + rank) * shape::rows), n = int(unit.tile_n * shape::columns);
                const int in_batch[2] = {params.batch_rank == 2 ? int(unit.z / uint32_t(params.batch[1])) : int(unit.z),
                                         params.batch_rank == 2 ? int(unit.z % uint32_t(params.batch[1])) : 0};
                int left_batch[2], right_batch[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    left_batch[i] = params.left.matrix.batch[i] != 0 ? in_batch[i] : 0;
                    right_batch[i] = params.right.matrix.batch[i] != 0 ? in_batch[i] : 0;
                }
                int summed = int(unit.first / work.steps_of_k);
                uint32_t k_step = unit.first % work.steps_of_k;
#pragma unroll 1
                for (uint32_t i = unit.first; i < unit.last; ++i) {
                    const uint32_t to = ring + stage * shape::step_bytes, there = full + 8 * stage;
                    mbarrier::wait(empty + 8 * stage, parity ^ 1);
                    mbarrier::expect(there, shape::step_bytes);
                    const int k = int(k_step * wgmma_depth);
                    bring<left_across, shape::rows, false>(to, left_map, m, k, left_batch, summed, there, rank);
                    bring<right_across, shape::columns, (cluster > 1)>(to + shape::left_bytes, right_map, n, k, right_batch, summed, there, rank);
                    if (++k_step == work.steps_of_k) k_step = 0, ++summed;
                    if (++stage == stages) stage = 0, parity ^= 1;
                }
            }
        }
        __syncwarp();
    } else {
        // 3. The sums.
        claim_registers<232>();
        float *const bias = reinterpret_cast<float *>(shared + shape::bias_at) + group * shape::columns;
        float *const scratch = reinterpret_cast<float *>(shared + shape::sums_at) + group * 4 * shape::columns;
        const int lane = int(threadIdx.x) % 32;
        const auto release = [&](uint32_t stage) {
            if (lane == 0) mbarrier::arrive(empty + 8 * stage);
            if (cluster > 1 && lane == 1) arrive_remote(empty + 8 * stage, rank ^ 1);
        };
        uint32_t stage = 0, parity = 0;
        const auto skip = [&](uint32_t count) {
            const uint32_t turns = (stage + count) / stages;
            stage = stage + count - turns * stages, parity ^= turns & 1;
        };
        // Alternating, a consumer waits for steps only once the other has seen its last one: a barrier tells but two turns apart.
        uint32_t number = first;
        if (shape::alternating && group == 1) {
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
            const uint64_t m = uint64_t(unit.unit_m * cluster + rank) * shape::rows + (shape::alternating ? 0 : group * shape::group_rows);
            const uint64_t n = uint64_t(unit.tile_n) * shape::columns;
            // No warp of the group reads the bias of the tile before.
            if (operands.bias != nullptr || operands.column_sums != nullptr) synchronize_group(group_barrier + group);
            if (operands.bias != nullptr) {
                for (int i = int(threadIdx.x) % group_threads; i < shape::columns; i += group_threads) {
                    const uint64_t at = (n + i) * params.bias.column;
                    float value = 0.0f;
                    if (n + i < params.n)
                        value = params.bias_dtype == BOPS_F32 ? static_cast<const float *>(operands.bias)[at]
                                                              : widen<T>(static_cast<const T *>(operands.bias)[at]);
                    bias[i] = value;
                }
                synchronize_group(group_barrier + group);
            }
            float sums[shape::blocks][shape::columns / 2];
            uint32_t before = 0;
            if (shape::alternating) wait_for_turn(turn_barrier + group);
#pragma unroll 1
            for (uint32_t i = unit.first; i < unit.last; ++i) {
                const uint32_t left = ring + stage * shape::step_bytes, right = left + shape::left_bytes;
                mbarrier::wait(full + 8 * stage, parity);
                wgmma_fence();
#pragma unroll
                for (int k_part = 0; k_part < wgmma_depth / 16; ++k_part)
#pragma unroll
                    for (int block = 0; block < shape::blocks; ++block) {
                        const int row = (shape::alternating ? 0 : group * shape::group_rows) + 64 * block;
                        wgmma<T, shape::columns, left_across, right_across>(sums[block], wgmma_descriptor<left_across>(left, row, k_part),
                                                                            wgmma_descriptor<right_across>(right, 0, k_part),
                                                                            i > unit.first || k_part > 0);
                    }
                wgmma_commit();
                wgmma_wait<1>();
                if (i > unit.first) release(before);
                before = stage;
                if (++stage == stages) stage = 0, parity ^= 1;
            }
            if (shape::alternating) give_turn(turn_barrier + 1 - group);
            wgmma_wait<0>();
#pragma unroll
            for (int block = 0; block < shape::blocks; ++block) settle(sums[block]);
            release(before);
            // 4. What is done with them.
            leave<T, shape, reads>(params, choice, operands, {unit.z, unit.split, m, n}, sums, bias, scratch, group);
            number += step;
            if (shape::alternating) {
                if (number < work.units) {
                    const wgmma_unit other(work, number);
                    skip(other.last - other.first);
                }
                number += step;
            }
        }
    }
    // No block of a cluster leaves before the other has brought and released its last step.
    if constexpr (cluster > 1) synchronize_cluster();
}

// ---- the launch -------------------------------------------------------------------------

using encode_map = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's function; null where it has none.
encode_map find_encode_map() {
    static const encode_map found = [] {
        void *function = nullptr;
        cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result) != cudaSuccess)
            return encode_map(nullptr);
        return result == cudaDriverEntryPointSuccess ? reinterpret_cast<encode_map>(function) : encode_map(nullptr);
    }();
    return found;
}

// The map of a factor of `rows` rows (columns of the right factor), whose strides are `row` and `column` (of k), in boxes of box_rows of them.
bops_status make_map(CUtensorMap &map, const bops_gemm_params &params, const bops_gemm_factor &factor, bops_dtype dtype, const void *base,
                     uint64_t rows, uint64_t row, uint64_t column, bool across, uint32_t box_rows) {
    const encode_map encode = find_encode_map();
    if (encode == nullptr) return bops_status(cudaErrorNotSupported);
    cuuint64_t extents[5] = {across ? rows : params.k, across ? params.k : rows, 1, 1, 1}, strides[4] = {16, 16, 16, 16};
    if (extents[1] > 1) strides[0] = 2 * (across ? column : row);
    for (uint32_t i = 0; i < params.batch_rank; ++i)
        if (factor.matrix.batch[i] != 0) extents[2 + i] = params.batch[i], strides[1 + i] = 2 * factor.matrix.batch[i];
    if (params.summed_rank > 0 && factor.summed[0] != 0) extents[4] = params.summed[0], strides[3] = 2 * factor.summed[0];
    const cuuint32_t box[5] = {wgmma_depth, across ? wgmma_depth : box_rows, 1, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
    const CUresult status = encode(&map, dtype == BOPS_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
                                   const_cast<void *>(base), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return bops_status(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
}

template <typename shape> wgmma_work work_of(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice) {
    wgmma_work work;
    work.units_m = uint32_t(tiles_of(params.m, shape::rows * shape::cluster));
    work.tiles_n = uint32_t(tiles_of(params.n, shape::columns));
    work.matrices = uint32_t(product_of(params.batch_rank, params.batch));
    work.splits = choice.splits, work.group = choice.group;
    work.units = work.units_m * work.tiles_n * work.matrices * work.splits;
    work.steps_of_k = uint32_t(tiles_of(params.k, wgmma_depth));
    work.steps = work.steps_of_k * uint32_t(product_of(params.summed_rank, params.summed));
    return work;
}

// launches: of a prepared kernel the maps are made, which needs addresses.
template <typename T, typename shape, bool left_across, bool right_across, bool reads, typename Action>
bops_status with_maps(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, bops_dtype dtype, const bops_gemm_operands *operands,
                      const Action &action) {
    static_assert(shape::shared_bytes <= 232448, "");
    const wgmma_work work = work_of<shape>(params, choice);
    launch_shape launched;
    launched.grid = dim3(std::min(choice.blocks, work.units * shape::cluster)), launched.block = dim3(wgmma_threads);
    launched.shared_bytes = shape::shared_bytes, launched.cluster = shape::cluster;
    CUtensorMap left = {}, right = {};
    if (operands != nullptr) {
        bops_status status = make_map(left, params, params.left, dtype, operands->left, params.m, params.left.matrix.row, params.left.matrix.column,
                                      left_across, shape::rows);
        if (status == 0)
            status = make_map(right, params, params.right, dtype, operands->right, params.n, params.right.matrix.column, params.right.matrix.row,
                              right_across, shape::columns / shape::cluster);
        if (status != 0) return status;
    }
    return action(wgmma_tiles<T, shape, left_across, right_across, reads>, launched, left, right, params, choice, work,
                  operands != nullptr ? *operands : bops_gemm_operands{});
}

template <typename T, typename shape, bool reads, typename Action>
bops_status with_factors(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, bops_dtype dtype, const bops_gemm_operands *operands,
                         const Action &action) {
    const auto of_left = [&](auto left) {
        const auto of_right = [&](auto right) {
            return with_maps<T, shape, decltype(left)::value, decltype(right)::value, reads>(params, choice, dtype, operands, action);
        };
        return choice.right_across ? of_right(std::true_type{}) : of_right(std::false_type{});
    };
    return choice.left_across ? of_left(std::true_type{}) : of_left(std::false_type{});
}

template <typename T, int cluster, typename Action> bops_status with_tile(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice,
                                                                          bops_dtype dtype, const bops_gemm_operands *operands,
                                                                          const Action &action) {
    const bool reads = params.epilogue != BOPS_GEMM_FORWARD;
    const auto of = [&](auto shape) {
        return reads ? with_factors<T, decltype(shape), true>(params, choice, dtype, operands, action)
                     : with_factors<T, decltype(shape), false>(params, choice, dtype, operands, action);
    };
    return choice.alternating ? of(wgmma_shape<128, 128, true, 6, cluster>{}) : of(wgmma_shape<64, 256, false, 4, cluster>{});
}

template <typename Action> bops_status with_kernel(const bops_gemm_params &params, const bops_gemm_wgmma_choice &choice, bops_dtype dtype,
                                                   const bops_gemm_operands *operands, const Action &action) {
    const auto of_type = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.cluster == 2 ? with_tile<T, 2>(params, choice, dtype, operands, action)
                                   : with_tile<T, 1>(params, choice, dtype, operands, action);
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

bops_status bops_gemm_wgmma_prepare(const bops_gemm_params *params, const bops_gemm_wgmma_choice *choice, bops_dtype dtype) {
    return bops::gemm::with_kernel(*params, *choice, dtype, nullptr, bops::prepare_action{});
}

bops_status bops_gemm_wgmma_launch(const bops_gemm_params *params, const bops_gemm_wgmma_choice *choice, bops_dtype dtype,
                                   const bops_gemm_operands *operands, bops_stream stream) {
    return bops::gemm::with_kernel(*params, *choice, dtype, operands, bops::launch_action{stream});
}
