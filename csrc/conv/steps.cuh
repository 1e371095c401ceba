// Convolutions whose factors pass through shared memory in steps: how a step gets there, and the kernel. The kernel's type of sums is a parameter (mma.cuh
// and fma.cuh of gemm).
#pragma once
#include "../gemm/steps.cuh"
#include "conv.cuh"

namespace bops {
namespace conv {

using gemm::copy_or_zero;
using gemm::ring_steps;
using gemm::step_bytes;

using row = row_part<int32_t>;
using term = term_part<int32_t>;

// A thread's share of the copies that bring a step of one factor to shared memory: a few chunks of 16 bytes. Lines are rows of the factor (columns of the
// plain one), and the chunks of a line follow one another along the terms. With `across` lines are terms, and chunks follow one another along the rows.
template <typename T, int tile, bool across, int threads> struct chunks_of {
    static constexpr int elements = 16 / int(sizeof(T));
    static constexpr int per_line = across ? tile * int(sizeof(T)) / 16 : gemm::step_row_bytes / 16;
    static constexpr int line_step = threads / per_line, count = tile * gemm::step_row_bytes / 16 / threads;

    __device__ __forceinline__ static uint32_t address(int line, int fast) {
        return across ? gemm::across_address<T, tile>(line, fast) : gemm::along_k_address(line, fast / elements);
    }
    // Copies each chunk in one access. at(line, fast, there): the offset of the chunk; sets how many of its bytes exist.
    template <typename At> __device__ __forceinline__ static void fetch(uint32_t step, const void *base, const At &at) {
        const int line = int(threadIdx.x) / per_line, fast = int(threadIdx.x) % per_line * elements;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            int there = 0;
            const int64_t element = at(line + i * line_step, fast, there);
            const T *from = static_cast<const T *>(base) + (there > 0 ? element : 0);
            copy_or_zero<16>(step + address(line + i * line_step, fast), from, there);
        }
    }
    // Copies element by element; neighbouring threads have neighbouring rows. at(row, term, is_there): the offset of the element; sets whether it exists.
    template <typename At> __device__ __forceinline__ static void fetch_elements(uint32_t step, const void *base, const At &at) {
        constexpr int lines = across ? gemm::step_row_bytes / int(sizeof(T)) : tile, part = across ? per_line : lines;
        static_assert(threads % part == 0, "threads share lines evenly");
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            const int index = int(threadIdx.x) + i * threads;
            const int line = across ? index / per_line : index % lines, fast = (across ? index % per_line : index / lines) * elements;
            uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
            for (int j = 0; j < elements; ++j) {
                bool is_there = false;
                const int64_t element = across ? at(fast + j, line, is_there) : at(line, fast + j, is_there);
                if constexpr (sizeof(T) == 2) {
                    // cp.async copies at least 4 bytes, so a single element of 16 bits is loaded and stored.
                    if (is_there) words[j / 2] |= uint32_t(static_cast<const unsigned short *>(base)[element]) << (16 * (j % 2));
                } else {
                    const T *from = static_cast<const T *>(base) + (is_there ? element : 0);
                    copy_or_zero<4>(step + address(line, fast) + 4 * j, from, is_there ? 4 : 0);
                }
            }
            if constexpr (sizeof(T) == 2) gemm::store_chunk(step + address(line, fast), words);
        }
    }
};

// Sums: a thread's sums of a tile, with `add` for a step in shared memory and `stage` to write them there; and `memory` beside its registers.
template <typename Sums> __global__ void __launch_bounds__(Sums::threads, Sums::blocks)
    contract_steps(const __grid_constant__ bops_conv_params params, const bops_conv_choice choice, const bops_gemm_operands operands) {
    using T = typename Sums::T;
    constexpr int tile = Sums::tile;
    constexpr bool left_across = Sums::left_across, right_across = Sums::right_across;
    using of_gathered = chunks_of<T, tile, left_across, Sums::threads>;
    using of_plain = chunks_of<T, tile, right_across, Sums::threads>;
    constexpr int depth = gemm::step_row_bytes / int(sizeof(T));
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ row rows[tile];
    __shared__ term terms[2][depth];
    const uint32_t steps = shared_address(shared);
    const gemm::place at = gemm::place_of_block(params.product, choice.product.splits, tile);
    const uint64_t m_first = uint64_t(at.tile_m) * tile, n_first = uint64_t(at.tile_n) * tile;
    const gemm::reduction range(params.product, depth, at.split, choice.product.splits);

    // 1. Fetching. The terms of a step are stored to shared memory while the step before is fetched.
    lay_rows<int32_t, tile, Sums::threads>(params, at.z, m_first, rows);
    term_walker<int32_t, depth> walker(params, range.first);
    walker.lay(params, terms[0]);
    __syncthreads();
    const int64_t column_first = int64_t(plain_of_group(params, at.z) + n_first * params.plain_column);
    const int columns = int(min(uint64_t(tile), params.product.n - n_first));
    uint64_t steps_to_fetch = range.last - range.first, terms_left = params.product.k - range.first * depth;
    int laid = 0; // which of `terms` has those of the next step
    // Starts the copies of the next step to place `to` of the ring.
    const auto fetch = [&](int to) {
        if (steps_to_fetch > 0) {
            const uint32_t step = steps + uint32_t(to) * 2 * step_bytes<T, tile>;
            const term *const now = terms[laid];
            const int left = int(min(uint64_t(depth), terms_left));
            const auto element = [&](int r, int t, bool &is_there) {
                int64_t place;
                is_there = find(params, rows[r], now[t], place);
                return place;
            };
            if (left_across || choice.product.left_bytes == 16)
                of_gathered::fetch(step, operands.left, [&](int line, int fast, int &there) {
                    bool is_there;
                    const int64_t place = left_across ? element(fast, line, is_there) : element(line, fast, is_there);
                    there = is_there ? 16 : 0;
                    return place;
                });
            else of_gathered::fetch_elements(step, operands.left, element);
            const auto place = [&](int column, int t) {
                return column_first + int64_t(column) * int64_t(params.plain_column) + int64_t(now[t].plain);
            };
            if (choice.product.right_bytes == 16)
                of_plain::fetch(step + step_bytes<T, tile>, operands.right, [&](int line, int fast, int &there) {
                    const int column = right_across ? fast : line, t = right_across ? line : fast;
                    const int most = right_across ? min(columns - column, of_plain::elements) : column < columns ? of_plain::elements : 0;
                    there = t < left ? max(most, 0) * int(sizeof(T)) : 0;
                    return place(column, t);
                });
            else
                of_plain::fetch_elements(step + step_bytes<T, tile>, operands.right, [&](int column, int t, bool &is_there) {
                    is_there = column < columns && t < left;
                    return place(column, t);
                });
            --steps_to_fetch, terms_left -= left, laid ^= 1;
            walker.lay(params, terms[laid]);
        }
        copy_commit();
    };

    // 2. The sums.
    typename Sums::memory memory;
    Sums sums(memory);
    int now = 0;
#pragma unroll 1
    for (int i = 0; i < ring_steps - 1; ++i) {
        fetch(i);
        __syncthreads(); // The terms of the next step have been stored.
    }
#pragma unroll 1
    for (uint64_t steps_left = range.last - range.first; steps_left > 0; --steps_left) {
        copy_wait(ring_steps - 2);
        // Every thread's copies of this step have arrived, no thread reads the place that is filled next, and the terms of that step have been stored.
        __syncthreads();
        fetch(now == 0 ? ring_steps - 1 : now - 1);
        sums.add(steps + uint32_t(now) * 2 * step_bytes<T, tile>);
        now = now + 1 == ring_steps ? 0 : now + 1;
    }
    copy_wait(0);
    __syncthreads();

    // 3. The epilogue.
    float *const stage = reinterpret_cast<float *>(shared);
    sums.stage(stage, choice.product.across != 0);
    __syncthreads();
    gemm::leave_tile<T, tile, Sums::threads>(params.product, choice.product, of_group<T>(params, operands, at.z), at, stage);
}

template <typename Sums, typename Action>
bops_status with_sums(const bops_conv_params &params, const bops_conv_choice &choice, const bops_gemm_operands &operands, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(gemm::blocks_of(params.product, choice.product)), shape.block = dim3(Sums::threads);
    shape.shared_bytes = gemm::ring_shared_bytes<typename Sums::T, Sums::tile>();
    return action(contract_steps<Sums>, shape, params, choice, operands);
}

} // namespace conv
} // namespace bops
