// Copies a factor of 16-bit elements so that its lines begin at multiples of 16 bytes, which the copy engine requires.
// Compiled once for all architectures.
#include <algorithm>

#include "gemm.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int repack_threads = 256, repack_warps = repack_threads / 32; // of a block
constexpr int repack_blocks_each = 8;                                   // blocks of the grid for each SM, at most: 8 have all threads of an SM
constexpr int chunk_elements = 8;                                       // elements in 16 bytes

// Loads eight elements from any address on. Of these `left` exist, or all if it is more; the others become 0.
__device__ __forceinline__ packed<16> eight_from(const unsigned short *from, uint64_t left) {
    packed<16> chunk;
    if (left < chunk_elements) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t low = 2 * i < left ? from[2 * i] : 0, high = 2 * i + 1 < left ? from[2 * i + 1] : 0;
            chunk.word[i] = low | high << 16;
        }
    } else if (reinterpret_cast<uintptr_t>(from) % 4 == 0) {
        const uint32_t *const words = reinterpret_cast<const uint32_t *>(from);
#pragma unroll
        for (int i = 0; i < 4; ++i) chunk.word[i] = words[i];
    } else {
        // The first and the last element are loaded alone; the six between them are three aligned words.
        const uint32_t *const words = reinterpret_cast<const uint32_t *>(from + 1);
        const uint32_t middle[3] = {words[0], words[1], words[2]};
        chunk.word[0] = from[0] | middle[0] << 16;
        chunk.word[1] = __funnelshift_l(middle[0], middle[1], 16);
        chunk.word[2] = __funnelshift_l(middle[1], middle[2], 16);
        chunk.word[3] = middle[2] >> 16 | uint32_t(from[7]) << 16;
    }
    return chunk;
}

// Warps take lines in turn: a warp's next line is as many lines further on as there are warps.
__global__ void __launch_bounds__(repack_threads)
    repack(const __grid_constant__ bops_gemm_repack_params params, const unsigned short *from, packed<16> *to) {
    const int lane = int(threadIdx.x) % 32;
    const uint64_t warps = uint64_t(gridDim.x) * repack_warps, all = params.lines * product_of(params.rank, params.outer);
    const uint64_t chunks = tiles_of(params.length, chunk_elements);
    for (uint64_t line = uint64_t(blockIdx.x) * repack_warps + threadIdx.x / 32; line < all; line += warps) {
        const uint64_t outer = line / params.lines;
        const unsigned short *const begin =
            from + offset_of(params.rank, params.outer, params.strides, outer) + (line - outer * params.lines) * params.stride;
#pragma unroll 4
        for (uint64_t chunk = uint64_t(lane); chunk < chunks; chunk += 32) {
            const uint64_t first = chunk * chunk_elements;
            to[line * chunks + chunk] = eight_from(begin + first, params.length - first);
        }
    }
}

template <typename Action> bops_status with_repack(const bops_gemm_repack_params &params, const void *from, void *to, const Action &action) {
    const uint64_t blocks = tiles_of(params.lines * product_of(params.rank, params.outer), repack_warps);
    launch_shape shape;
    shape.grid = dim3(uint32_t(std::min(blocks, uint64_t(params.multiprocessors) * repack_blocks_each))), shape.block = dim3(repack_threads);
    return action(repack, shape, params, static_cast<const unsigned short *>(from), static_cast<packed<16> *>(to));
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_repack_prepare(const bops_gemm_repack_params *params) {
    return bops::gemm::with_repack(*params, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_gemm_repack_launch(const bops_gemm_repack_params *params, const void *from, void *to, bops_stream stream) {
    return bops::gemm::with_repack(*params, from, to, bops::launch_action{stream});
}
