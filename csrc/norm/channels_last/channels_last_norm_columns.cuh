// Sums of channels over the rows of a block, and over the blocks of a slab.
#pragma once
#include "channels_last_norm_tiles.cuh"

namespace bops {

// Channels of a tile, at most, of the forms `resident` and `slabs`. With so many the 256 threads of `slabs`, each of which has four channels of one
// of two sums, are four teams, which share the chunks.
constexpr uint32_t resident_channels = 128;

// Adds up the values of those lanes of a warp that have the same vector of a row: lanes at distances of `mask`, .. , 16. In each step two lanes share
// the channels between them, as long as there is more than one: at the end a lane has `left` channels from `first` on.
template <int half, int width> __device__ __forceinline__ void sum_rows(float (&value)[width], uint32_t mask, uint32_t &left, uint32_t &first) {
    if constexpr (half > 0) {
        if (mask < 32) {
            const bool is_upper = threadIdx.x & mask;
            first += is_upper ? half : 0, left = half;
#pragma unroll
            for (int i = 0; i < half; ++i) {
                const float other = is_upper ? value[i] : value[i + half], mine = is_upper ? value[i + half] : value[i];
                value[i] = mine + __shfl_xor_sync(~0u, other, mask);
            }
            sum_rows<half / 2>(value, mask * 2, left, first);
        }
    } else {
        for (; mask < 32; mask *= 2) value[0] += __shfl_xor_sync(~0u, value[0], mask);
    }
}

// Sums of channels over the 8 or 16 warps of a block.
template <int warps> struct warp_columns {
    alignas(16) float values[warps][resident_channels];

    // Adds up the values of each warp. Called by all threads; vectors: of a row, a power of two. A barrier must lie between this and `total`.
    template <int width> __device__ __forceinline__ void put(float (&value)[width], uint32_t vectors) {
        uint32_t left = width, first = threadIdx.x % vectors * width;
        sum_rows<width / 2>(value, vectors, left, first);
        float *const to = &values[threadIdx.x / 32][first];
#pragma unroll
        for (int i = 0; i < width; ++i)
            if (i < left) to[i] = value[i];
    }
    __device__ __forceinline__ float total(uint32_t channel) const {
        float part[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) {
            part[w] = values[w][channel];
            if constexpr (warps > 8) part[w] += values[w + 8][channel];
        }
        return tree_sum(part);
    }
};

// ---- slabs ------------------------------------------------------------------------------------------------------------------

constexpr int slabs_threads = 256; // of a block: so few, because a thread needs many registers for the rows that stay there
constexpr int slabs_warps = slabs_threads / 32;

// Sums of chunks that a thread reads together: with eight teams, two turns take those of 144 chunks, or 128, and a large device has no more SMs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int slabs_parts = 8;
#else
constexpr int slabs_parts = 9;
#endif

// The slabs of a tensor: some tiles of channels in all chunks, or all tiles in the chunks of some samples. In a slab every block has one tile in one
// chunk.
struct slab_order {
    uint32_t chunks, tiles;    // of a slab
    uint32_t of_chunks, count; // slabs that take the same chunks; all slabs

    __device__ __forceinline__ slab_order(const channel_last_shape &g) {
        chunks = gridDim.x >= g.chunks * g.tiles ? gridDim.x / g.tiles : g.chunks, tiles = gridDim.x / chunks;
        of_chunks = g.tiles / tiles, count = g.samples * g.chunks / chunks * of_chunks;
    }
    // What this block takes in a slab.
    template <int width> __device__ __forceinline__ channel_tile<width> tile(const channel_last_shape &g, uint32_t slab) const {
        return {g, slab / of_chunks * chunks + blockIdx.x / tiles, slab % of_chunks * tiles + blockIdx.x % tiles};
    }
};

// Two sums of every channel over a block's rows.
struct slab_columns {
    warp_columns<slabs_warps> sums[2];

    // Stores the sums of a tile's channels for the other blocks, from `to` on in both planes. Called by all threads of the block.
    __device__ __forceinline__ void publish(float *first, float *second, uint64_t to, uint32_t channels) const {
        for (uint32_t i = threadIdx.x; i < 2 * channels; i += slabs_threads) {
            const uint32_t plane = i >= channels, c = i - (plane ? channels : 0);
            __stcg((plane ? second : first) + to + c, sums[plane].total(c));
        }
    }

    // The sums of both planes of channel threadIdx.x of a tile over all chunks of a sample; from: where those of the tile's first channel lie in the
    // first chunk. What sums[0] held is lost. Called by all threads of the block.
    __device__ __forceinline__ float2 gather(const float *first, const float *second, uint64_t from, const channel_last_shape &g, uint32_t channels) {
        constexpr int batch = slabs_parts;
        const uint32_t quads = channels / 4, both = 2 * quads, quad = threadIdx.x % both, team = threadIdx.x / both, teams = slabs_threads / both;
        const float *const plane = (quad < quads ? first : second) + from + quad % quads * 4;
        cascade<float> total[4];
        for (uint32_t chunk = team; chunk < g.chunks; chunk += batch * teams) {
            float4 part[batch];
#pragma unroll
            for (int u = 0; u < batch; ++u) {
                const uint32_t at = chunk + u * teams;
                part[u] = at < g.chunks ? __ldcg(reinterpret_cast<const float4 *>(plane + uint64_t(at) * g.channels)) : float4();
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
        float *const parts = &sums[0].values[0][0]; // [team][plane][channel]
        const float quad_total[4] = {total[0].total(), total[1].total(), total[2].total(), total[3].total()};
        put_values(parts + threadIdx.x * 4, quad_total);
        __syncthreads();
        float sum[4] = {}, other[4] = {};
        if (threadIdx.x < channels) {
            for (uint32_t k = 0; k < teams; k += 4) { // teams: a power of two from 4 on
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float *const of_team = parts + (k + i) * 2 * channels + threadIdx.x;
                    sum[i] += of_team[0], other[i] += of_team[channels];
                }
            }
        }
        return make_float2(tree_sum(sum), tree_sum(other));
    }

    // Replaces the values of channels by those of their groups, if groups have several channels. What sums[0] held is lost. Called by all threads of
    // the block.
    template <int count> __device__ __forceinline__ void sum_groups(float (&value)[count], uint32_t of_group, uint32_t channels) {
        if (of_group <= 1) return;
        float(&room)[slabs_warps][resident_channels] = sums[0].values;
        __syncthreads();
        if (threadIdx.x < channels)
#pragma unroll
            for (int k = 0; k < count; ++k) room[k][threadIdx.x] = value[k];
        __syncthreads();
        for (uint32_t low = threadIdx.x / 32 * of_group; low < channels; low += slabs_warps * of_group) {
            float totals[count] = {};
            for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32)
#pragma unroll
                for (int k = 0; k < count; ++k) totals[k] += room[k][low + i];
            warp_sum(totals, 32);
            for (uint32_t i = threadIdx.x % 32; i < of_group; i += 32)
#pragma unroll
                for (int k = 0; k < count; ++k) room[k][low + i] = totals[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < count; ++k) value[k] = threadIdx.x < channels ? room[k][threadIdx.x] : 0.0f;
    }
};

} // namespace bops
