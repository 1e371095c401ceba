// Copies a factor of f32 with lines turned into columns, since wgmma reads tf32 along k only.
// Compiled once for all architectures.
#include "../bops_gemm_sm90.h"
#include "gemm.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int turn_tile = 64;     // lines, and elements of each, of the square that a block copies in runs of 256 bytes: two lines of the L2
constexpr int turn_threads = 256; // of a block

__global__ void __launch_bounds__(turn_threads) turn(const __grid_constant__ bops_gemm_repack_params params, const float *from, float *to) {
    __shared__ float tile[turn_tile][turn_tile + 1]; // padded: neighbouring lines, and neighbouring columns, begin in different banks
    const uint64_t across = tiles_of(params.length, turn_tile), down = tiles_of(params.lines, turn_tile);
    const uint64_t outer = blockIdx.x / (across * down), in_matrix = blockIdx.x % (across * down);
    const uint64_t line = in_matrix / across * turn_tile, element = in_matrix % across * turn_tile, width = tiles_of(params.lines, 4) * 4;
    const int x = int(threadIdx.x) % turn_tile, y = int(threadIdx.x) / turn_tile;
    constexpr int step = turn_threads / turn_tile, turns = turn_tile / step; // lines that a block takes at once; elements of a thread
    const float *const begin = from + offset_of(params.rank, params.outer, params.strides, outer) + line * params.stride + element;
    float values[turns];
#pragma unroll
    for (int i = 0; i < turns; ++i) {
        const uint64_t own = uint64_t(y + i * step);
        values[i] = line + own < params.lines && element + x < params.length ? begin[own * params.stride + x] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < turns; ++i) tile[y + i * step][x] = values[i];
    __syncthreads();
    float *const end = to + (outer * params.length + element) * width + line;
#pragma unroll
    for (int i = 0; i < turns; ++i) {
        const uint64_t row = uint64_t(y + i * step);
        if (element + row < params.length && line + x < width) end[row * width + x] = tile[x][row];
    }
}

template <typename Action> bops_status with_turn(const bops_gemm_repack_params &params, const void *from, void *to, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(tiles_of(params.length, turn_tile) * tiles_of(params.lines, turn_tile) * product_of(params.rank, params.outer)));
    shape.block = dim3(turn_threads);
    return action(turn, shape, params, static_cast<const float *>(from), static_cast<float *>(to));
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_turn_prepare(const bops_gemm_repack_params *params) {
    return bops::gemm::with_turn(*params, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_gemm_turn_launch(const bops_gemm_repack_params *params, const void *from, void *to, bops_stream stream) {
    return bops::gemm::with_turn(*params, from, to, bops::launch_action{stream});
}
