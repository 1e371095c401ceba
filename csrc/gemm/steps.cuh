// Products whose factors pass through shared memory in steps: how a step gets there, and the kernel. The kernel's type of sums is a parameter (mma.cuh,
// fma.cuh).
#pragma once
#include "gemm.cuh"
#include "mma_tile.cuh"

namespace bops {
namespace gemm {

// Steps in flight or in use. With tiles of 128 a ring of 4 takes 64 KB, about as much as the tile's sums take at the end.
constexpr int ring_steps = 4;

// Calls f(tile, left, right) with tile, left_across and right_across of a choice as constants. Left never lies across without right.
template <typename F> bops_status for_tile(const bops_gemm_choice &choice, const F &f) {
    return for_value<64, 128>(choice.tile, [&](auto tile) {
        if (!choice.right_across) return f(tile, std::false_type{}, std::false_type{});
        if (!choice.left_across) return f(tile, std::false_type{}, std::true_type{});
        return f(tile, std::true_type{}, std::true_type{});
    });
}

template <typename T, int tile> constexpr uint32_t ring_shared_bytes() {
    constexpr uint32_t stage = tile * staged_row<tile> * 4, ring = ring_steps * 2 * step_bytes<T, tile>;
    return stage > ring ? stage : ring;
}

// An asynchronous copy of `bytes` bytes to shared memory, of which `there` exist; the others become 0.
template <int bytes> __device__ __forceinline__ void copy_or_zero(uint32_t to, const void *from, int there) {
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(there) : "memory");
}
// Stores a chunk of 16 bytes to shared memory.
__device__ __forceinline__ void store_chunk(uint32_t to, const uint32_t (&words)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}
// Copies a chunk in accesses of `bytes` bytes, of which `there` bytes exist in all. Elements lie `stride` apart, which is 1 if an access has several
// of them.
template <typename T, int bytes> __device__ __forceinline__ void copy_parts(uint32_t to, const T *from, uint64_t stride, int there) {
    constexpr int each = bytes / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < 16 / bytes; ++i) {
        const int left = max(min(there - i * bytes, bytes), 0);
        copy_or_zero<bytes>(to + i * bytes, left > 0 ? from + uint64_t(i * each) * stride : from, left);
    }
}

// A thread's share of the copies that bring steps of one factor to shared memory: a few chunks of 16 bytes.
template <typename T, int tile, bool across, int threads> struct carrier {
    static constexpr int elements = 16 / int(sizeof(T));
    static constexpr int per_line = across ? tile * int(sizeof(T)) / 16 : step_row_bytes / 16; // chunks of a line of a step
    // line_step: lines from one chunk of the thread to its next one.
    static constexpr int line_step = threads / per_line, chunks = tile * step_row_bytes / 16 / threads;
    const T *from;
    int lines_left, fast_left; // how many rows of the factor exist from the first chunk on, counted in lines and along a line

    __device__ __forceinline__ static int line() { return int(threadIdx.x) / per_line; }
    __device__ __forceinline__ static int fast() { return int(threadIdx.x) % per_line * elements; }

    // row_stride and k_stride are strides of the factor, in this struct and below.
    __device__ __forceinline__ carrier(int rows_left) : from(nullptr), lines_left(rows_left - line()), fast_left(rows_left - fast()) {}
    // The position, in a tile, of the thread's first element.
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
                // cp.async copies at least 4 bytes, so a single element of 16 bits is loaded and stored.
                uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    if (2 * j < there) words[j / 2] |= uint32_t(reinterpret_cast<const unsigned short *>(at)[uint64_t(j) * stride]) << (16 * (j % 2));
                store_chunk(to, words);
            }
        }
    }
};

// Sums: a thread's sums of a tile, with `add` for a step in shared memory and `stage` to write them there; and `memory` beside its registers.
template <typename Sums> __global__ void __launch_bounds__(Sums::threads, Sums::blocks)
    multiply_steps(const __grid_constant__ bops_gemm_params params, const bops_gemm_choice choice, const bops_gemm_operands operands) {
    using T = typename Sums::T;
    constexpr int tile = Sums::tile;
    constexpr int depth = step_row_bytes / int(sizeof(T));
    extern __shared__ __align__(16) unsigned char shared[];
    const uint32_t steps = shared_address(shared);
    const place at = place_of_block(params, choice.splits, tile);
    const uint64_t m_first = uint64_t(at.tile_m) * tile, n_first = uint64_t(at.tile_n) * tile;
    const reduction range(params, depth, at.split, choice.splits);

    // 1. Fetching: where this thread's chunks of both factors lie.
    const bops_gemm_matrix &left = params.left.matrix, &right = params.right.matrix;
    carrier<T, tile, Sums::left_across, Sums::threads> of_left(int(min(uint64_t(tile), params.m - m_first)));
    carrier<T, tile, Sums::right_across, Sums::threads> of_right(int(min(uint64_t(tile), params.n - n_first)));
    uint64_t steps_to_fetch = range.last - range.first;
    uint64_t summed = steps_to_fetch > 0 ? range.first / range.steps_of_k : 0;
    uint64_t k_left = params.k - (range.first - summed * range.steps_of_k) * depth;
    of_left.from = static_cast<const T *>(operands.left) + offset_of(params.batch_rank, params.batch, left.batch, at.z) +
                   offset_of(params.summed_rank, params.summed, params.left.summed, summed) + m_first * left.row + (params.k - k_left) * left.column +
                   of_left.first(left.row, left.column);
    of_right.from = static_cast<const T *>(operands.right) + offset_of(params.batch_rank, params.batch, right.batch, at.z) +
                    offset_of(params.summed_rank, params.summed, params.right.summed, summed) + n_first * right.column +
                    (params.k - k_left) * right.row + of_right.first(right.column, right.row);
    // Starts the copies of the next step to place `to` of the ring.
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
                // From the end of k to its start at the next summed index.
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
    typename Sums::memory memory;
    Sums sums(memory);
    int now = 0;
#pragma unroll 1
    for (int i = 0; i < ring_steps - 1; ++i) fetch(i);
#pragma unroll 1
    for (uint64_t steps_left = range.last - range.first; steps_left > 0; --steps_left) {
        copy_wait(ring_steps - 2);
        __syncthreads(); // every thread's copies of this step have arrived, and no thread reads the place that is filled next
        fetch(now == 0 ? ring_steps - 1 : now - 1);
        sums.add(steps + uint32_t(now) * 2 * step_bytes<T, tile>);
        now = now + 1 == ring_steps ? 0 : now + 1;
    }
    copy_wait(0);
    __syncthreads();

    // 3. The epilogue.
    float *const stage = reinterpret_cast<float *>(shared);
    sums.stage(stage, choice.across != 0);
    __syncthreads();
    leave_tile<T, tile, Sums::threads>(params, choice, operands, at, stage);
}

template <typename Sums, typename Action>
bops_status with_sums(const bops_gemm_params &params, const bops_gemm_choice &choice, const bops_gemm_operands &operands, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(blocks_of(params, choice)), shape.block = dim3(Sums::threads);
    shape.shared_bytes = ring_shared_bytes<typename Sums::T, Sums::tile>();
    return action(multiply_steps<Sums>, shape, params, choice, operands);
}

} // namespace gemm
} // namespace bops
