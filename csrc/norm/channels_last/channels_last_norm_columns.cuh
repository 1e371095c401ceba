// Sums of channels over the blocks of a slab: what the kernels that take slabs of channels-last tensors share.
#pragma once
#include "channels_last_norm_resident.cuh"

namespace bops {

constexpr int slabs_threads = 256, slabs_warps = slabs_threads / 32; // few: a thread's registers hold rows

// Parts of a thread that are read together: two turns of eight teams take those of all multiprocessors of a large device.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int slabs_parts = 8;
#else
constexpr int slabs_parts = 9;
#endif

// Two sums of every channel over a warp's rows: [sum][warp][channel].
using slabs_columns = float[2][slabs_warps][resident_channels];

// Adds up the values of a warp's lanes, which have `vectors` vectors side by side; first: this thread's channel. Called by all threads of the block.
template <int width>
__device__ __forceinline__ void put_column(float (&to)[slabs_warps][resident_channels], float (&value)[width], uint32_t vectors, uint32_t first) {
    uint32_t left = width;
    sum_rows<width / 2>(value, vectors, left, first);
#pragma unroll
    for (int i = 0; i < width; ++i)
        if (i < left) to[threadIdx.x / 32][first + i] = value[i];
}

// Adds up the warps' values of a channel.
__device__ __forceinline__ float sum_warps(const float (&values)[slabs_warps][resident_channels], uint32_t channel) {
    float part[slabs_warps];
#pragma unroll
    for (int w = 0; w < slabs_warps; ++w) part[w] = values[w][channel];
    return tree_sum(part);
}

// Stores the block's sums of a tile's channels for the other blocks, from `to` on in both planes. Called by all threads of the block.
__device__ __forceinline__ void publish_columns(float *sums, float *others, uint64_t to, uint32_t channels, const slabs_columns &columns) {
    for (uint32_t i = threadIdx.x; i < 2 * channels; i += slabs_threads) {
        const uint32_t plane = i >= channels, c = i - (plane ? channels : 0);
        __stcg((plane ? others : sums) + to + c, sum_warps(columns[plane], c));
    }
}

// The sums of both planes of channel threadIdx.x of a tile over `chunks` chunks; first: where those of the tile's first channel lie in the first
// chunk. Called by all threads of the block.
__device__ __forceinline__ float2 gather_columns(const float *sums, const float *others, uint64_t first, uint32_t chunks, uint32_t all_channels,
                                                 uint32_t channels, slabs_columns &columns) {
    constexpr int batch = slabs_parts;
    const uint32_t quads = channels / 4, both = 2 * quads, quad = threadIdx.x % both, team = threadIdx.x / both, teams = slabs_threads / both;
    const float *const plane = (quad < quads ? sums : others) + first + quad % quads * 4;
    cascade<float> total[4];
    for (uint32_t chunk = team; chunk < chunks; chunk += batch * teams) {
        float4 part[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            const uint32_t at = chunk + u * teams;
            part[u] = at < chunks ? __ldcg(reinterpret_cast<const float4 *>(plane + uint64_t(at) * all_channels)) : float4();
        }
        float sum[4][2] = {};
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            const float value[4] = {part[u].x, part[u].y, part[u].z, part[u].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[i][u % 2] += value[i];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i].add(sum[i][0] + sum[i][1]);
    }
    float *const parts = &columns[0][0][0]; // [team][plane][channel]
    const float quad_total[4] = {total[0].total(), total[1].total(), total[2].total(), total[3].total()};
    put_values(parts + threadIdx.x * 4, quad_total);
    __syncthreads();
    float sum[4] = {}, other[4] = {};
    if (threadIdx.x < channels) {
        for (uint32_t k = 0; k < teams; k += 4) { // teams: a power of two from 4 on
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float *const from = parts + (k + i) * 2 * channels + threadIdx.x;
                sum[i] += from[0], other[i] += from[channels];
            }
        }
    }
    return make_float2(tree_sum(sum), tree_sum(other));
}

// Replaces the values of channels by those of their groups, if groups have several channels. Called by all threads of the block.
template <int count> __device__ __forceinline__ void sum_groups(float (&value)[count], uint32_t of_group, uint32_t channels, slabs_columns &columns) {
    float(&room)[slabs_warps][resident_channels] = columns[0];
    __syncthreads();
    if (threadIdx.x < channels)
#pragma unroll
        for (int k = 0; k < count; ++k) room[k][threadIdx.x] = value[k];
    __syncthreads();
    for (uint32_t low = threadIdx.x / 32 * of_group; low < channels; low += slabs_warps * of_group) {
        float sums[count] = {};
        for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32)
#pragma unroll
            for (int k = 0; k < count; ++k) sums[k] += room[k][low + i];
        warp_sum(sums, 32);
        for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32)
#pragma unroll
            for (int k = 0; k < count; ++k) room[k][low + i] = sums[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < count; ++k) value[k] = threadIdx.x < channels ? room[k][threadIdx.x] : 0.0f;
}

} // namespace bops
