// Where the elements of x are not 0. Each block has a share of the tiles of x: the first launch counts those of every share, and in the second each block knows
// from the counts before its own where its positions begin.
// Compiled once for all architectures.
#include "../pointwise/walk.cuh"
#include "lookup.cuh"

namespace bops {
namespace {

constexpr int nonzero_warps = movement_threads / 32;
// Elements of a thread in a tile, a bit for each.
template <int width> constexpr int nonzero_items = width >= 4 ? 32 : 16;

// Elements that are loaded at once.
template <typename T, int width> union nonzero_access {
    T element[width];
    unit_t<sizeof(T) * width> whole;
    __device__ __forceinline__ nonzero_access() {}
};

// The tiles that a block has.
struct nonzero_share {
    uint64_t first, end;
    __device__ __forceinline__ explicit nonzero_share(const bops_nonzero_params &params)
        : first(params.tiles * blockIdx.x / params.blocks), end(params.tiles * (blockIdx.x + uint64_t(1)) / params.blocks) {}
};

// Which of a thread's elements of a tile are not 0. The threads of a warp have neighbouring accesses, and a warp has neighbouring rounds of them.
template <typename T, int width> __device__ __forceinline__ uint32_t nonzero_bits(const bops_nonzero_params &params, const T *x, uint64_t tile) {
    constexpr int items = nonzero_items<width>, rounds = items / width;
    const uint64_t first = tile * (movement_threads * items) + (threadIdx.x / 32 * (32 * items) + threadIdx.x % 32 * width);
    const T mask = T(params.mask);
    nonzero_access<T, width> held[rounds];
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
        const uint64_t number = first + i * (32 * width);
        if constexpr (width == 1) {
            held[i].element[0] = 0;
            if (number < params.walk.elements) held[i].element[0] = x[place<BOPS_POINTWISE_EXTENTS, true>(params.walk, number, 1).offset(params.x)];
        } else if (number + width <= params.walk.elements) {
            held[i].whole = *reinterpret_cast<const unit_t<sizeof(T) * width> *>(x + number);
        } else {
#pragma unroll
            for (int j = 0; j < width; ++j) held[i].element[j] = number + j < params.walk.elements ? x[number + j] : T(0);
        }
    }
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < rounds; ++i)
#pragma unroll
        for (int j = 0; j < width; ++j) bits |= uint32_t((held[i].element[j] & mask) != 0) << (i * width + j);
    return bits;
}

// The sum of what the threads of a block have. `sums`: a number for each warp.
__device__ __forceinline__ uint64_t sum_of_block(uint64_t own, uint64_t (&sums)[nonzero_warps]) {
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, static_cast<unsigned long long>(own), step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    uint64_t sum = 0;
#pragma unroll
    for (int k = 0; k < nonzero_warps; ++k) sum += sums[k];
    return sum;
}

template <typename T, int width> __global__ void __launch_bounds__(movement_threads)
    nonzero_count(const __grid_constant__ bops_nonzero_params params, const T *x, uint64_t *counts) {
    __shared__ uint64_t sums[nonzero_warps];
    const nonzero_share share(params);
    uint64_t found = 0;
    for (uint64_t tile = share.first; tile < share.end; ++tile) found += __popc(nonzero_bits<T, width>(params, x, tile));
    const uint64_t sum = sum_of_block(found, sums);
    if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

__device__ __forceinline__ void put_index(const bops_nonzero_params &params, void *indices, uint64_t at, uint64_t index) {
    if (params.index_bytes == 8) static_cast<uint64_t *>(indices)[at] = index;
    else static_cast<uint32_t *>(indices)[at] = uint32_t(index);
}

// Writes a row of the indices: the number of an element, or its position along each extent.
__device__ __forceinline__ void put_row(const bops_nonzero_params &params, void *indices, uint64_t row, uint64_t number) {
    const uint64_t at = row * params.row;
    if (params.columns == 0) {
        put_index(params, indices, at, number);
        return;
    }
    uint64_t rest = number;
#pragma unroll
    for (int k = 0; k + 1 < BOPS_POINTWISE_EXTENTS; ++k) {
        if (k + 1 >= params.columns) break;
        const split_number split(params.inner[k], params.is_long, rest);
        put_index(params, indices, at + (params.columns - 1 - k) * params.column, split.rest);
        rest = split.quotient;
    }
    put_index(params, indices, at, rest);
}

template <typename T, int width> __global__ void __launch_bounds__(movement_threads)
    nonzero(const __grid_constant__ bops_nonzero_params params, const __grid_constant__ bops_nonzero_operands operands, const uint64_t *counts) {
    constexpr int items = nonzero_items<width>, rounds = items / width, tile_size = movement_threads * items;
    __shared__ uint64_t sums[nonzero_warps];
    __shared__ uint32_t found_by_warp[nonzero_warps];
    __shared__ uint16_t found[tile_size]; // elements of the tile behind its first
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // 1. How many positions there are before this share, and in all.
    uint64_t before = 0, all = 0;
    for (uint32_t k = threadIdx.x; k < params.blocks; k += movement_threads) {
        const uint64_t count = counts[k];
        all += count;
        if (k < blockIdx.x) before += count;
    }
    uint64_t base = sum_of_block(before, sums);
    const uint64_t total = sum_of_block(all, sums);
    // 2. The positions of each tile, side by side.
    const nonzero_share share(params);
    for (uint64_t tile = share.first; tile < share.end && base < params.rows; ++tile) {
        const uint32_t bits = nonzero_bits<T, width>(params, static_cast<const T *>(operands.x), tile);
        // Of each round what the lanes before this one have, in 16 bits, and where the round begins.
        uint32_t ahead[rounds], of_warp = 0;
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            uint32_t until;
            if constexpr (width == 1) {
                const uint32_t there = __ballot_sync(~0u, bits >> i & 1);
                ahead[i] = of_warp + __popc(there & ((1u << lane) - 1));
                until = __popc(there);
            } else {
                const uint32_t own = __popc(bits >> (i * width) & ((1u << width) - 1));
                until = own;
#pragma unroll
                for (uint32_t step = 1; step < 32; step *= 2) {
                    const uint32_t other = __shfl_up_sync(~0u, until, step);
                    if (lane >= step) until += other;
                }
                ahead[i] = of_warp + until - own;
                until = __shfl_sync(~0u, until, 31);
            }
            of_warp += until;
        }
        // The positions of the tile before are written.
        __syncthreads();
        if (lane == 0) found_by_warp[warp] = of_warp;
        __syncthreads();
        uint32_t earlier = 0, of_tile = 0;
#pragma unroll
        for (uint32_t k = 0; k < nonzero_warps; ++k) {
            if (k < warp) earlier += found_by_warp[k];
            of_tile += found_by_warp[k];
        }
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            uint32_t at = earlier + ahead[i];
#pragma unroll
            for (int j = 0; j < width; ++j)
                if (bits >> (i * width + j) & 1) found[at++] = uint16_t(warp * (32 * items) + i * (32 * width) + lane * width + j);
        }
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < of_tile && base + k < params.rows; k += movement_threads)
            put_row(params, operands.indices, base + k, tile * tile_size + found[k]);
        base += of_tile;
    }
    // 3. What is behind the last position.
    const uint64_t step = uint64_t(params.blocks) * movement_threads;
    for (uint64_t row = total + uint64_t(blockIdx.x) * movement_threads + threadIdx.x; row < params.rows; row += step) {
        put_index(params, operands.indices, row * params.row, params.fill);
        for (uint32_t k = 1; k < params.columns; ++k) put_index(params, operands.indices, row * params.row + k * params.column, params.fill);
    }
    // 4. The count.
    if (params.count_bytes > 0 && blockIdx.x == 0 && threadIdx.x == 0) {
        if (params.count_bytes == 8) *static_cast<uint64_t *>(operands.count) = total;
        else *static_cast<uint32_t *>(operands.count) = uint32_t(total);
    }
}

template <typename T, int width, typename Action>
bops_status with_width(const bops_nonzero_params &params, const bops_nonzero_operands &operands, void *workspace, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(params.blocks), shape.block = dim3(movement_threads);
    uint64_t *const counts = static_cast<uint64_t *>(workspace);
    const bops_status status = action(nonzero_count<T, width>, shape, params, static_cast<const T *>(operands.x), counts);
    if (status != 0) return status;
    return action(nonzero<T, width>, shape, params, operands, counts);
}

template <typename T, typename Action> bops_status with_type(const bops_nonzero_params &params, const bops_nonzero_choice &choice,
                                                             const bops_nonzero_operands &operands, void *workspace, const Action &action) {
    constexpr int most = 16 / sizeof(T);
    if (choice.width == 1) return with_width<T, 1>(params, operands, workspace, action);
    return with_width<T, most>(params, operands, workspace, action);
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_nonzero_params &params, const bops_nonzero_choice &choice,
                                                   const bops_nonzero_operands &operands, void *workspace, const Action &action) {
    switch (choice.bytes) {
    case 1: return with_type<uint8_t>(params, choice, operands, workspace, action);
    case 2: return with_type<uint16_t>(params, choice, operands, workspace, action);
    case 4: return with_type<uint32_t>(params, choice, operands, workspace, action);
    case 8: return with_type<uint64_t>(params, choice, operands, workspace, action);
    default: return cudaErrorInvalidValue;
    }
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_nonzero, uint32_t, bops_nonzero_params, bops_nonzero_choice, bops_nonzero_operands, bops::with_kernel)
