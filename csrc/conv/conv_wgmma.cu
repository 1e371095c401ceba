// conv_wgmma: tensor cores of compute capability 9.0, through wgmma, for operands with contiguous channels. f16, bf16, and f32, which the copy engine rounds
// to tf32.
//
// The copy engine gathers the windows: an im2col map walks over the positions of the output in the order of the rows. At each position it adds the offset of
// one kernel element, loads contiguous channels from there, and writes 0 for what is outside the image.
//
// A block has three warpgroups and is persistent: it takes one unit of work after another. Two threads of the first warpgroup fill a ring of steps in shared
// memory through the copy engine. The other two warpgroups, the consumers, have every other unit each: one multiplies while the other writes its results.
//
// In forward and in the gradient of the data a step is 128 bytes of channels at one kernel element. In the gradient of the weight (16 bits only) a step is
// 64 positions, and a block of 64 rows is 64 channels at one kernel element.
//
// Compiled for sm_90a in place of sm_90.
#include <algorithm>

#include "../bops_conv_wgmma.h"
#include "../gemm/wgmma_work.cuh"
#include "conv.cuh"

namespace bops {
namespace conv {
namespace {

constexpr int rows = 128;      // of a tile
constexpr int block_rows = 64; // of a block of a factor that lies across: 128 bytes of 16-bit elements, a line of the swizzle
constexpr uint32_t block_bytes = gemm::across_block_bytes; // of such a block in a step
constexpr int positions_of_step = 64;                      // of the gradient of the weight
// The block's extents are (threads of a warpgroup, warpgroups), so that the epilogue's thread numbers are those of one warpgroup.
constexpr int group_threads = 128, groups = 3; // threads of a warpgroup; warpgroups
// Numbers of named barriers: group_barrier and the next one are each for the threads of one consumer, turn_barrier and the next one for the turns of
// both.
constexpr int group_barrier = 1, turn_barrier = 3;
// Registers of a thread in the producer's warpgroup, and in a consumer: the three warpgroups together have 3 * 168 to share out, in steps of 8.
constexpr int few_registers = 40, most_registers = 232;
// Results go through shared memory in rounds of this many columns. With 64 the rounds of both consumers would take 68 KB in place of 36, for which
// rings would have a step less.
constexpr int round_columns = 32;
constexpr uint32_t round_bytes = 4 * std::max(rows * gemm::staged_row<round_columns>, round_columns *gemm::staged_row<rows>);

// Shared memory, by the columns of a tile: the ring of `stages` steps, one round of each consumer, the barriers of the ring.
template <int columns> struct tile_room {
    static constexpr int stages = columns == 64 ? 7 : 5; // as many as there is room for
    static constexpr uint32_t left_bytes = rows * gemm::wgmma_line_bytes, right_bytes = columns * gemm::wgmma_line_bytes;
    static constexpr uint32_t step_bytes = left_bytes + right_bytes, rounds_at = stages * step_bytes, barriers_at = rounds_at + 2 * round_bytes;
    static constexpr uint32_t shared_bytes = barriers_at + 2 * stages * 8;
    static_assert(shared_bytes <= gemm::most_shared_bytes, "");
};

// The tiles of a launch, and their steps. A unit of work is a tile, or the part of its sums that one split has.
struct tiling {
    uint32_t tiles_m, tiles_n, splits, units, steps_of_k, steps;
    uint64_t part_stride; // elements from one part of the sums to the next
};
struct unit_place {
    uint32_t z, split, tile_m, tile_n, first, last; // first, last: of the steps
    // Tiles are numbered as by place_of_block of gemm.
    __device__ __forceinline__ unit_place(const tiling &all, uint32_t number) {
        const uint32_t tiles = all.tiles_m * all.tiles_n, matrix = number / tiles, in_matrix = number - matrix * tiles;
        const uint32_t high = min(gemm::band_rows, all.tiles_m), band = in_matrix / (high * all.tiles_n),
                       in_band = in_matrix - band * high * all.tiles_n;
        const uint32_t lines = min(high, all.tiles_m - high * band);
        tile_n = in_band / lines, tile_m = high * band + in_band - tile_n * lines;
        z = matrix / all.splits, split = matrix - z * all.splits;
        const uint32_t share = all.steps / all.splits, left = all.steps - share * all.splits;
        first = share * split + min(split, left), last = first + share + (split < left ? 1 : 0);
    }
    __device__ __forceinline__ uint32_t count() const { return last - first; }
};

// How windows move over the image. Of each pair the first is for columns (x), the second for rows (y).
struct windows {
    int first[2];          // the least coordinate of any kernel element at the first position
    int step[2];           // from one position to the next
    uint32_t positions[2]; // extents of the output
    uint32_t taps[2];      // extents of the kernel
    int spread[2];         // from one kernel element to the next; negative in the gradient of the data
    uint32_t channels;
    uint32_t further[3]; // positions_of_step as a number of columns, lines and samples
};

// The offset of a kernel element from the least coordinate of any kernel element. The copy engine takes no negative offsets.
__device__ __forceinline__ uint16_t offset_of_tap(const windows &of, int axis, uint32_t tap) {
    return uint16_t(of.spread[axis] >= 0 ? int(tap) * of.spread[axis] : -int(of.taps[axis] - 1 - tap) * of.spread[axis]);
}

// Coordinates in the image, which the copy engine takes for a position.
struct window_place {
    int x, y, sample;
};
// A position of the output.
struct position {
    uint32_t column, line, sample;
    __device__ __forceinline__ position(const windows &of, uint32_t number) {
        const uint32_t lines = number / of.positions[0];
        column = number - lines * of.positions[0], sample = lines / of.positions[1], line = lines - sample * of.positions[1];
    }
    __device__ __forceinline__ window_place place(const windows &of) const {
        return {of.first[0] + int(column) * of.step[0], of.first[1] + int(line) * of.step[1], int(sample)};
    }
    // Goes on by positions_of_step.
    __device__ __forceinline__ void advance(const windows &of) {
        column += of.further[0];
        const uint32_t carry = column >= of.positions[0];
        column -= carry ? of.positions[0] : 0, line += of.further[1] + carry;
        const uint32_t next = line >= of.positions[1];
        line -= next ? of.positions[1] : 0, sample += of.further[2] + next;
    }
};

// Starts a copy of 64 channels from `channel` on, at as many positions from `at` on as the map says, with the offset of a kernel element.
__device__ __forceinline__ void copy_windows(uint32_t to, const CUtensorMap &map, int channel, const window_place &at, uint16_t x_offset,
                                             uint16_t y_offset, uint32_t barrier) {
#ifdef BOPS_SM_90A
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(channel), "r"(at.x), "r"(at.y), "r"(at.sample), "h"(x_offset), "h"(y_offset)
        : "memory");
#endif
}

// ---- the kernel -----------------------------------------------------------------------

// Transposes four words of each of four lanes that are `step` apart: lane i of them gets word i of each.
template <int step> __device__ __forceinline__ void turn_words(uint32_t (&word)[4]) {
    const bool odd = threadIdx.x & step, high = threadIdx.x & (2 * step);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], step);
        (odd ? word[i] : word[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[i] : word[i + 2], 2 * step);
        (high ? word[i] : word[i + 2]) = got;
    }
}
template <typename T> __device__ __forceinline__ uint32_t pack_two(float first, float second) {
    const float two[2] = {first, second};
    return pack<T, 4>(two).word[0];
}

// The epilogue if the choice is light. Threads store sums from their registers; lanes first exchange sums of 16 bits so that each stores eight at a time. All
// loops are unrolled, since registers have no index.
template <typename T, int columns> __device__ __forceinline__ void leave_light(const bops_gemm_params &params, const bops_gemm_operands &operands,
                                                                               bool across, const unit_place &at, float (&sums)[2][columns / 2]) {
    const uint32_t lane = threadIdx.x % 32, q = lane % 4, m = uint32_t(params.m), n = uint32_t(params.n);
    const uint32_t row_first = at.tile_m * rows + threadIdx.x / 32 * 16, column_first = at.tile_n * columns;
    const gemm::walk out(params.out, across);
    const uint64_t first = at.z == 0 ? 0 : gemm::offset_of(params.batch_rank, params.batch, params.out.batch, at.z);
    // 1. The bias and the activation. Sum 4 j + 2 h + i is of row lane / 4 + 8 h and of column 8 j + 2 q + i.
    if (operands.bias != nullptr)
#pragma unroll
        for (int j = 0; j < columns / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t column = min(column_first + 8 * j + 2 * q + i, n - 1);
                const uint64_t place = column * params.bias.column;
                const float bias = params.bias_dtype == BOPS_F32 ? static_cast<const float *>(operands.bias)[place]
                                                                 : float(widen<T>(static_cast<const T *>(operands.bias)[place]));
#pragma unroll
                for (int h = 0; h < 2; ++h) sums[0][4 * j + 2 * h + i] += bias, sums[1][4 * j + 2 * h + i] += bias;
            }
    if (params.activation == BOPS_RELU)
#pragma unroll
        for (int i = 0; i < columns / 2; ++i)
#pragma unroll
            for (int block = 0; block < 2; ++block) sums[block][i] = sums[block][i] <= 0.0f ? 0.0f : sums[block][i];
    // 2. out.
    if (sizeof(T) == 4 || params.out_dtype == BOPS_F32) {
        float *const to = static_cast<float *>(operands.out) + first;
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t row = row_first + 64 * block + 8 * h + lane / 4;
                if (row >= m) continue;
#pragma unroll
                for (int j = 0; j < columns / 8; ++j) {
                    const uint32_t column = column_first + 8 * j + 2 * q;
                    const float two[2] = {sums[block][4 * j + 2 * h], sums[block][4 * j + 2 * h + 1]};
                    if (!across) {
                        if (column < n) store<8, false>(to + row * out.slow + column, pack<float, 8>(two));
                    } else {
#pragma unroll
                        for (int i = 0; i < 2; ++i)
                            if (column + i < n) to[(column + i) * out.slow + row] = two[i];
                    }
                }
            }
        return;
    }
    if constexpr (sizeof(T) == 2) {
        T *const to = static_cast<T *>(operands.out) + first;
        const bool odd = lane & 4;
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int j = 0; j < columns / 8; j += 4) {
                    const uint32_t row = row_first + 64 * block + 8 * h, column = column_first + 8 * j;
                    uint32_t word[4];
                    packed<16> eight;
                    if (!across) {
                        // The lane gets columns 8 q to 8 q + 7 of the 32 from `column` on.
#pragma unroll
                        for (int i = 0; i < 4; ++i) word[i] = pack_two<T>(sums[block][4 * (j + i) + 2 * h], sums[block][4 * (j + i) + 2 * h + 1]);
                        turn_words<1>(word);
                    } else {
                        // The lane gets two rows of a column, and then eight.
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const float low = sums[block][4 * (j + i) + 2 * h], high = sums[block][4 * (j + i) + 2 * h + 1];
                            const float got = __shfl_xor_sync(0xffffffffu, odd ? low : high, 4);
                            word[i] = odd ? pack_two<T>(got, high) : pack_two<T>(low, got);
                        }
                        turn_words<8>(word);
                    }
#pragma unroll
                    for (int i = 0; i < 4; ++i) eight.word[i] = word[i];
                    const uint32_t own_row = across ? row : row + lane / 4, own_column = column + (across ? lane / 8 * 8 + 2 * q + odd : 8 * q);
                    if (own_row < m && own_column < n)
                        store<16, false>(to + (across ? own_column * out.slow + own_row : own_row * out.slow + own_column), eight);
                }
    }
}

// The epilogue. If the choice is not light, it goes through `stage`, the consumer's part of shared memory, in rounds.
template <typename T, int columns>
__device__ __forceinline__ void leave(const bops_conv_params &params, const bops_conv_wgmma_choice &choice, const bops_gemm_operands &of_launch,
                                      uint64_t part_stride, const unit_place &at, float (&sums)[2][columns / 2], float *stage, int group) {
    constexpr int rounds = columns / round_columns, of_round = round_columns / 2; // of_round: sums of a thread in a round, of each 64 rows
    const bool across = choice.across != 0, quads = choice.quads != 0;
    bops_gemm_operands operands = of_launch;
    if (choice.splits > 1) operands.out = static_cast<float *>(operands.out) + at.split * part_stride;
    if (choice.light) {
        leave_light<T, columns>(params.product, operands, across, at, sums);
        return;
    }
    const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16 + lane / 4, column = lane % 4 * 2;
    const int row_step = across ? 1 : gemm::staged_row<round_columns>, column_step = across ? gemm::staged_row<rows> : 1;
    float *const to = stage + row * row_step + column * column_step;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const uint32_t number = at.tile_n * rounds + uint32_t(round);
        if (uint64_t(number) * round_columns >= params.product.n) break;
        // 1. The sums of a round go to shared memory, once all threads have read those of the round before.
        gemm::synchronize_group(group_barrier + group);
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
            for (int i = 0; i < of_round; ++i) to[(64 * block + 8 * (i / 2 % 2)) * row_step + (8 * (i / 4) + i % 2) * column_step] = sums[block][i];
        gemm::synchronize_group(group_barrier + group);
        // 2. gemm's epilogue walks over them along the fast index.
        const auto end = [&](auto is_across) {
            constexpr int slow = decltype(is_across)::value ? round_columns : rows, fast = decltype(is_across)::value ? rows : round_columns;
            const uint32_t tile_slow = decltype(is_across)::value ? number : at.tile_m, tile_fast = decltype(is_across)::value ? at.tile_m : number;
            gemm::finish_tile<T, slow, fast, group_threads>(params.product, operands, decltype(is_across)::value, quads, at.z, tile_slow, tile_fast,
                                                            gemm::staged<fast, float>{stage}, stage);
        };
        if (across) end(std::true_type{});
        else end(std::false_type{});
            // 3. The sums of the next rounds move to the registers of these.
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
            for (int i = 0; i < columns / 2 - of_round; ++i) sums[block][i] = sums[block][i + of_round];
    }
}

// left_across: the gradient of the weight. right_across: the plain factor has stride 1 along its columns, else along k.
template <typename T, int columns, bool left_across, bool right_across> __global__ void __launch_bounds__(groups *group_threads, 1)
    wgmma_windows(const __grid_constant__ CUtensorMap gathered, const __grid_constant__ CUtensorMap plain,
                  const __grid_constant__ bops_conv_params params, const __grid_constant__ bops_conv_wgmma_choice choice,
                  const __grid_constant__ windows of, const __grid_constant__ tiling all, const __grid_constant__ bops_gemm_operands operands) {
    if (!gemm::has_sm_90a) return;
    using room = tile_room<columns>;
    constexpr int stages = room::stages, depth = gemm::wgmma_depth<T>; // depth: terms of a step
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t ring = shared_address(shared), full = ring + room::barriers_at, empty = full + 8 * stages;
    const int group = int(threadIdx.y) - 1; // which consumer this is; -1 is the producer

    // 1. Barriers for each stage: the step has arrived; all warps of a consumer have used it.
    if (threadIdx.x == 0 && group < 0) {
        gemm::prefetch_map(gathered);
        gemm::prefetch_map(plain);
        for (int i = 0; i < stages; ++i) {
            mbarrier::initialize(full + 8 * i, 2); // by the threads that fetch left and right
            mbarrier::initialize(empty + 8 * i, group_threads / 32);
        }
        mbarrier::fence_initialized();
    }
    __syncthreads();

    if (group < 0) {
        // 2. The producer fetches the factors.
        gemm::release_registers<few_registers>();
        const auto bring_all = [&](auto is_gathered) {
            constexpr bool of_gathered = decltype(is_gathered)::value;
            constexpr uint32_t bytes = of_gathered ? room::left_bytes : room::right_bytes, at = of_gathered ? 0 : room::left_bytes;
            uint32_t stage_number = 0; // of the next stage, counted over two rounds of the ring: the second one is the barriers' other phase
#pragma unroll 1
            for (uint32_t number = blockIdx.x; number < all.units; number += gridDim.x) {
                const unit_place unit(all, number);
                const uint32_t m = unit.tile_m * rows, n = unit.tile_n * columns;
                uint32_t tap = left_across ? 0 : unit.first / all.steps_of_k, k = (unit.first - tap * all.steps_of_k) * depth;
                uint32_t y_tap = left_across ? 0 : tap / of.taps[0], x_tap = tap - y_tap * of.taps[0];
                const window_place first = position(of, left_across ? 0 : uint32_t(unit.z * params.product.m) + m).place(of);
                // In the gradient of the weight: the first position of a step, and channel and kernel element of each block of rows.
                position positions(of, left_across && of_gathered ? k : 0);
                int channels[rows / block_rows];
                uint16_t x_offsets[rows / block_rows], y_offsets[rows / block_rows];
                if constexpr (left_across && of_gathered) {
#pragma unroll
                    for (int block = 0; block < rows / block_rows; ++block) {
                        const uint32_t row = m + block * block_rows, of_row = row / of.channels;
                        // Blocks past the last row begin past the last channel, so that the copy engine fills them with 0.
                        const bool is_there = of_row < of.taps[0] * of.taps[1];
                        const uint32_t y = is_there ? of_row / of.taps[0] : 0, x = is_there ? of_row - y * of.taps[0] : 0;
                        channels[block] = int(is_there ? row - of_row * of.channels : of.channels);
                        x_offsets[block] = offset_of_tap(of, 0, x), y_offsets[block] = offset_of_tap(of, 1, y);
                    }
                }
#pragma unroll 1
                for (uint32_t left = unit.count(); left > 0; --left) {
                    const uint32_t stage = stage_number < stages ? stage_number : stage_number - stages, there = full + 8 * stage,
                                   to = ring + stage * room::step_bytes + at;
                    mbarrier::wait(empty + 8 * stage, stage_number < stages);
                    mbarrier::expect(there, bytes);
                    if constexpr (!of_gathered) {
                        if constexpr (right_across) {
#pragma unroll
                            for (int block = 0; block < columns / block_rows; ++block)
                                gemm::copy_box(to + block * block_bytes, plain,
                                               gemm::box_place{int(n) + block * block_rows, int(k), {0, 0}, int(tap)}, there);
                        } else gemm::copy_box(to, plain, gemm::box_place{int(k), int(n), {0, 0}, int(tap)}, there);
                    } else if constexpr (left_across) {
#pragma unroll
                        for (int block = 0; block < rows / block_rows; ++block)
                            copy_windows(to + block * block_bytes, gathered, channels[block], positions.place(of), x_offsets[block], y_offsets[block],
                                         there);
                        positions.advance(of);
                    } else copy_windows(to, gathered, int(k), first, offset_of_tap(of, 0, x_tap), offset_of_tap(of, 1, y_tap), there);
                    k += depth;
                    if (!left_across && k >= all.steps_of_k * depth) {
                        k = 0, ++tap;
                        if (++x_tap == of.taps[0]) x_tap = 0, ++y_tap;
                    }
                    if (++stage_number == 2 * stages) stage_number = 0;
                }
            }
        };
        if (threadIdx.x == 0) bring_all(std::true_type{});
        if (threadIdx.x == 32) bring_all(std::false_type{});
        __syncwarp();
        return;
    }

    // 3. The consumers multiply.
    gemm::claim_registers<most_registers>();
    float *const stage_of_round = reinterpret_cast<float *>(shared + room::rounds_at + group * round_bytes);
    const auto release = [&](uint32_t stage) {
        if (threadIdx.x % 32 == 0) mbarrier::arrive(empty + 8 * stage);
    };
    uint32_t stage_number = 0; // counts as the producer's does
    // Goes past the steps of a unit of the other consumer.
    const auto skip = [&](uint32_t number) {
        if (number < all.units) stage_number = (stage_number + unit_place(all, number).count()) % (2 * stages);
    };
    // Consumers take turns: one waits for steps only once the other has waited for its last step, since a barrier tells apart no more than two phases.
    uint32_t number = blockIdx.x;
    if (group == 1) {
        gemm::give_turn(turn_barrier);
        skip(number);
        number += gridDim.x;
    }
#pragma unroll 1
    while (number < all.units) {
        const unit_place unit(all, number);
        float sums[2][columns / 2];
        uint32_t before = 0;
        gemm::wait_for_turn(turn_barrier + group);
#pragma unroll 1
        for (uint32_t step = unit.first; step < unit.last; ++step) {
            const uint32_t stage = stage_number < stages ? stage_number : stage_number - stages;
            const uint32_t left = ring + stage * room::step_bytes, right = left + room::left_bytes;
            mbarrier::wait(full + 8 * stage, stage_number >= stages);
            gemm::wgmma_fence();
#pragma unroll
            for (int k_part = 0; k_part < gemm::wgmma_line_bytes / 32; ++k_part)
#pragma unroll
                for (int block = 0; block < 2; ++block) {
                    const uint64_t of_left = gemm::wgmma_descriptor<left_across>(left, 64 * block, k_part);
                    const uint64_t of_right = gemm::wgmma_descriptor<right_across>(right, 0, k_part);
                    const int adds = step > unit.first || k_part > 0;
                    if constexpr (sizeof(T) == 4) gemm::wgmma_words(sums[block], of_left, of_right, adds);
                    else gemm::wgmma<T, columns, left_across, right_across>(sums[block], of_left, of_right, adds);
                }
            gemm::wgmma_commit();
            gemm::wgmma_wait<1>();
            if (step > unit.first) release(before);
            before = stage;
            if (++stage_number == 2 * stages) stage_number = 0;
        }
        gemm::give_turn(turn_barrier + 1 - group);
        gemm::wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < 2; ++block) gemm::settle(sums[block]);
        release(before);
        // 4. The epilogue.
        leave<T, columns>(params, choice, operands, all.part_stride, unit, sums, stage_of_round, group);
        number += gridDim.x;
        skip(number);
        number += gridDim.x;
    }
}

// ---- the launch -------------------------------------------------------------------------

using encode_windows = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const int *,
                                    const int *, cuuint32_t, cuuint32_t, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

uint32_t bytes_of(bops_dtype dtype) { return dtype == BOPS_F32 ? 4 : 2; }

// Digits of an index: of the lead, and of an axis.
int lead_of(const bops_conv_index &index) { return index.lead_last ? digits - 1 : 0; }
int axis_of(const bops_conv_index &index, int axis) { return index.lead_last ? axis : axis + 1; }

// positions: the index of the output's positions; taps: that of the kernel's elements and channels.
windows windows_of(const bops_conv_params &params, const bops_conv_index &positions, const bops_conv_index &taps) {
    windows of = {};
    for (int i = 0; i < 2; ++i) {
        const int axis = axes - 1 - i;
        of.step[i] = int(positions.coordinate[axis]), of.positions[i] = uint32_t(positions.extents[axis_of(positions, axis)]);
        of.spread[i] = int(taps.coordinate[axis]), of.taps[i] = uint32_t(taps.extents[axis_of(taps, axis)]);
        of.first[i] = int(params.first_coordinate[axis]) + (of.spread[i] < 0 ? int(of.taps[i] - 1) * of.spread[i] : 0);
    }
    of.channels = uint32_t(taps.extents[lead_of(taps)]);
    const uint32_t lines = positions_of_step / of.positions[0];
    of.further[0] = positions_of_step - lines * of.positions[0], of.further[2] = lines / of.positions[1];
    of.further[1] = lines - of.further[2] * of.positions[1];
    return of;
}

bops_status map_gathered(CUtensorMap &map, const bops_conv_params &params, const windows &of, const bops_conv_index &positions, bops_dtype dtype,
                         const void *base, uint32_t box_positions) {
    static const auto encode = reinterpret_cast<encode_windows>(gemm::find_in_driver("cuTensorMapEncodeIm2col"));
    if (encode == nullptr) return bops_status(cudaErrorNotSupported);
    const uint32_t bytes = bytes_of(dtype);
    cuuint64_t extents[4] = {of.channels, 1, 1, positions.extents[lead_of(positions)]}, strides[3] = {16, 16, 16};
    int lower[2], upper[2];
    for (int i = 0; i < 2; ++i) {
        const bops_conv_axis &axis = params.axes[axes - 1 - i];
        extents[1 + i] = cuuint64_t(axis.extent);
        if (axis.extent > 1) strides[i] = bytes * cuuint64_t(axis.stride);
        lower[i] = of.first[i];
        // The upper corner is the coordinate of the last position, less the extent.
        upper[i] = lower[i] + int(of.positions[i] - 1) * of.step[i] + 1 - int(axis.extent);
    }
    if (extents[3] > 1) strides[2] = bytes * cuuint64_t(positions.gathered[lead_of(positions)]);
    const cuuint32_t steps[4] = {1, cuuint32_t(of.step[0]), cuuint32_t(of.step[1]), 1};
    const CUresult status = encode(&map, gemm::factor_type(dtype), 4, const_cast<void *>(base), extents, strides, lower, upper,
                                   gemm::wgmma_line_bytes / bytes, box_positions, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return bops_status(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
}

// The extents are the columns, the terms of a kernel element and the kernel elements; in the gradient of the weight the columns and the positions.
bops_status map_plain(CUtensorMap &map, const bops_conv_params &params, const bops_conv_wgmma_choice &choice, bops_dtype dtype, const void *base) {
    const uint32_t bytes = bytes_of(dtype), depth = gemm::wgmma_line_bytes / bytes;
    const bool across = choice.right_across;
    const uint64_t n = params.product.n, k = params.product.k, taps = gemm::product_of(params.product.summed_rank, params.product.summed);
    const uint64_t of_k = params.product.right.matrix.row, of_tap = params.product.right.summed[0];
    const cuuint64_t extents[5] = {across ? n : k, across ? k : n, 1, 1, taps};
    cuuint64_t strides[4] = {16, 16, 16, 16};
    if (extents[1] > 1) strides[0] = bytes * (across ? of_k : params.plain_column);
    if (taps > 1) strides[3] = bytes * of_tap;
    const cuuint32_t box[5] = {depth, across ? depth : choice.columns, 1, 1, 1};
    return gemm::encode_boxes(map, gemm::factor_type(dtype), base, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

// Makes `parts` the output, whose fast index may be that of the rows. Returns the elements from one part to the next.
uint64_t leave_parts(bops_gemm_params &product, bops_gemm_operands &operands, bool across) {
    gemm::leave_parts(product, operands);
    if (across) product.out.row = 1, product.out.column = product.m;
    return product.m * product.n * gemm::product_of(product.batch_rank, product.batch);
}

// Makes the maps, which need addresses, and calls the action. If the kernel is only prepared, operands are null and maps are not made.
template <typename T, int columns, bool left_across, bool right_across, typename Action>
bops_status with_maps(const bops_conv_params &params, const bops_conv_wgmma_choice &choice, bops_dtype dtype, const bops_gemm_operands &operands,
                      const Action &action) {
    const bops_gemm_params &product = params.product;
    tiling all = {};
    all.tiles_m = uint32_t(gemm::tiles_of(product.m, rows)), all.tiles_n = uint32_t(gemm::tiles_of(product.n, columns));
    all.splits = choice.splits;
    all.units = all.tiles_m * all.tiles_n * uint32_t(gemm::product_of(product.batch_rank, product.batch)) * all.splits;
    all.steps_of_k = uint32_t(gemm::tiles_of(product.k, gemm::wgmma_depth<T>));
    all.steps = all.steps_of_k * uint32_t(gemm::product_of(product.summed_rank, product.summed));
    launch_shape shape;
    shape.grid = dim3(std::min(choice.blocks, all.units)), shape.block = dim3(group_threads, groups),
    shape.shared_bytes = tile_room<columns>::shared_bytes;
    CUtensorMap gathered = {}, plain = {};
    windows of = {};
    bops_conv_params called = params;
    bops_gemm_operands given = operands;
    if (operands.left != nullptr) {
        const bops_conv_index &positions = left_across ? params.terms : params.rows, &taps = left_across ? params.rows : params.terms;
        of = windows_of(params, positions, taps);
        bops_status status = map_gathered(gathered, params, of, positions, dtype, operands.left, left_across ? positions_of_step : rows);
        if (status == 0) status = map_plain(plain, params, choice, dtype, operands.right);
        if (status != 0) return status;
        if (choice.splits > 1) all.part_stride = leave_parts(called.product, given, choice.across != 0);
    }
    return action(wgmma_windows<T, columns, left_across, right_across>, shape, gathered, plain, called, choice, of, all, given);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_conv_params &params, const bops_conv_wgmma_choice &choice,
                                                   const bops_gemm_operands &operands, void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        return for_value<64, 128>(choice.columns, [&](auto columns) {
            using T = typename decltype(tag)::type;
            constexpr int c = decltype(columns)::value;
            if constexpr (sizeof(T) == 2) {
                if (choice.of_weight) return with_maps<T, c, true, true>(params, choice, dtype, operands, action);
                if (choice.right_across) return with_maps<T, c, false, true>(params, choice, dtype, operands, action);
            }
            return with_maps<T, c, false, false>(params, choice, dtype, operands, action);
        });
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_wgmma, bops_dtype, bops_conv_params, bops_conv_wgmma_choice, bops_gemm_operands, bops::conv::with_kernel)
