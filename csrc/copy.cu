// The copy kernel: the yardstick of the benchmarks, which reads and writes every byte once.
// Compiled once for all architectures.
#include "common/launch.cuh"
#include "common/memory.cuh"

namespace bops {
namespace {

constexpr int copy_threads = 256; // of a block
constexpr int copy_vectors = 1;   // vectors of 16 bytes of a thread: longer bursts of a block lose bandwidth

__global__ void __launch_bounds__(copy_threads) copy(const char *from, char *to, uint64_t bytes) {
    const uint64_t vectors = bytes / 16;
    for (uint64_t block = blockIdx.x; block * (copy_threads * copy_vectors) * 16 < bytes; block += gridDim.x) {
        const uint64_t first = block * (copy_threads * copy_vectors) + threadIdx.x;
        packed<16> data[copy_vectors];
#pragma unroll
        for (int v = 0; v < copy_vectors; ++v)
            if (first + v * copy_threads < vectors) data[v] = load<16, false>(from + (first + v * copy_threads) * 16);
#pragma unroll
        for (int v = 0; v < copy_vectors; ++v)
            if (first + v * copy_threads < vectors) store<16, false>(to + (first + v * copy_threads) * 16, data[v]);
    }
    if (blockIdx.x == 0 && threadIdx.x < bytes % 16) to[vectors * 16 + threadIdx.x] = from[vectors * 16 + threadIdx.x];
}

} // namespace
} // namespace bops

bops_status bops_copy_prepare(void) { return bops::prepare(bops::copy, {}); }

bops_status bops_copy_launch(const void *from, void *to, uint64_t bytes, bops_stream stream) {
    const uint64_t per_block = uint64_t(bops::copy_threads * bops::copy_vectors) * 16, blocks = (bytes + per_block - 1) / per_block;
    if (blocks == 0) return 0;
    bops::launch_shape shape;
    shape.grid = dim3(uint32_t(blocks < 0x7fffffff ? blocks : 0x7fffffff)), shape.block = dim3(bops::copy_threads);
    return bops::launch(bops::copy, shape, stream, static_cast<const char *>(from), static_cast<char *>(to), bytes);
}
