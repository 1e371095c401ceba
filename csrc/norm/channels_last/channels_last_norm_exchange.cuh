// What the channels-last forms whose blocks exchange sums in clusters share. A block without others, a cluster of one, leaves the sums to itself.
#pragma once
#include "channels_last_norm_tiles.cuh"

namespace bops {

constexpr int cluster_threads = 512;       // of a block of the form `cluster`, at most
constexpr uint32_t cluster_channels = 256; // of a tile, at most: each has a thread of the block
// Threads in the launch bounds of those specialisations that do not spill under them. A bound of 1024 threads leaves each 64 registers, so that several
// blocks share an SM.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int cluster_bound = cluster_threads;
#else
constexpr int cluster_bound = 1024;
#endif

// Partial results of the threads of a block in shared memory: [part][vector of the tile][lane]. The pitch keeps the threads of a warp, whose
// neighbours have neighbouring vectors, on different banks.
struct lane_parts {
    uint32_t pitch, vectors;

    __host__ __device__ __forceinline__ lane_parts(uint32_t lanes, uint32_t of_tile)
        : pitch((lanes + 31) / 32 * 32 + (31 + of_tile) / of_tile), vectors(of_tile) {}
    __host__ __device__ __forceinline__ uint32_t room(uint32_t parts) const { return parts * vectors * pitch; }
    __device__ __forceinline__ uint32_t at(uint32_t part, uint32_t vector) const { return (part * vectors + vector) * pitch; }
};

// The tile of a block in a cluster of `blocks` blocks, which take the chunks of one sample or of several.
template <int width> __device__ __forceinline__ channel_tile<width> cluster_tile(const channel_last_shape &g, uint32_t blocks) {
    const uint32_t unit = blockIdx.x / blocks, of_samples = unit / g.tiles;
    return {g, of_samples * blocks + (blockIdx.x - unit * blocks), unit - of_samples * g.tiles};
}

// Lanes that together merge what a block has of one group, or of one channel. A group has partial results of several vectors or channels, a channel
// has only one for each row that the block reads side by side. Wider teams have fewer results for each lane, narrower ones let a warp merge more at
// once.
constexpr uint32_t group_team = 32;
constexpr uint32_t channel_team = 8;
// Partial results that a lane of `group_team` or `channel_team` reads together, so that their latencies overlap. Each takes 3 registers.
constexpr int parts_ahead = 4;

// Values that the blocks of a cluster write into this one's shared memory, each at the place where it has them in its own.
struct cluster_mailbox {
    alignas(8) uint64_t arrived;

    // thread: number in the block; bytes: of all values that come here. Called by all threads before any wait for other blocks.
    __device__ __forceinline__ void open(uint32_t blocks, uint32_t thread, uint32_t bytes) {
        if (blocks == 1) return;
        if (thread == 0) {
            mbarrier::initialize(shared_address(&arrived), 1), mbarrier::expect(shared_address(&arrived), bytes);
            mbarrier::fence_initialized();
        }
        cluster_arrive();
    }
    // Waits until all blocks have opened their mailboxes, and for the threads of this one. Called by all threads, before the first `send`.
    __device__ __forceinline__ void synchronize(uint32_t blocks) {
        __syncthreads();
        if (blocks > 1) cluster_wait();
    }
    // Writes to where `here` is in the shared memory of block `rank`.
    __device__ __forceinline__ void send(uint32_t blocks, float2 *here, float2 value, uint32_t rank) {
        if (blocks > 1) mbarrier::store_remote(shared_address(here), {value.x, value.y}, shared_address(&arrived), rank);
        else *here = value;
    }
    __device__ __forceinline__ void send(uint32_t blocks, float4 *here, const moments<float> &m, uint32_t rank) {
        if (blocks > 1) mbarrier::store_remote(shared_address(here), {m.shift, m.sum, m.square, 0.0f}, shared_address(&arrived), rank);
        else *here = make_float4(m.shift, m.sum, m.square, 0.0f);
    }
    // Waits until all values have arrived.
    __device__ __forceinline__ void wait() { mbarrier::wait<true>(shared_address(&arrived), 0); }
    // As wait, for all threads of a block that may be alone.
    __device__ __forceinline__ void wait_all(uint32_t blocks) {
        if (blocks > 1) wait();
        else __syncthreads();
    }
};

// Moments of the threads of a block in shared memory.
struct lane_moments {
    float2 *sums;
    float *shifts;

    __device__ __forceinline__ void put(uint32_t place, float shift, float sum, float square) const {
        shifts[place] = shift, sums[place] = make_float2(sum, square);
    }
    __device__ __forceinline__ moments<float> get(uint32_t place) const { return {shifts[place], sums[place].x, sums[place].y}; }
};

// The channels of a vector in parts of one group each. folds: they belong to at most two groups, of which the first has `split`; otherwise every
// channel is a part.
template <int width, bool folds = true> struct vector_parts {
    static constexpr int count = folds ? 2 : width;
    uint32_t split;

    // Sums over the channels of each part.
    __device__ __forceinline__ void fold(const float (&value)[width], float (&to)[count]) const {
#pragma unroll
        for (int k = 0; k < count; ++k) to[k] = 0;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (folds) to[0] += i < split ? value[i] : 0.0f, to[1] += i < split ? 0.0f : value[i];
            else to[i] = value[i];
        }
    }
    // The shift of each part, from its sums over `rows` rows, and of each channel.
    __device__ __forceinline__ void shifts(float (&part)[count], uint32_t rows, float (&shift)[width]) const {
#pragma unroll
        for (int k = 0; k < count; ++k) {
            const uint32_t elements = rows * (!folds ? 1 : k == 0 ? split : width - split);
            part[k] = rounded_product(part[k], __fdividef(1.0f, float(max(elements, 1u))));
        }
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (folds) shift[i] = i < split ? part[0] : part[1];
            else shift[i] = part[i];
        }
    }
};

// Calls sum(), which adds up moments about a shift, and once more if moves() says that it has moved the shift; see `recenter`.
template <typename Sum, typename Moves> __device__ __forceinline__ void sum_about_mean(const Sum &sum, const Moves &moves) {
    for (bool is_first = true;; is_first = false) {
        sum();
        if (__builtin_expect(!is_first || !moves(), true)) return;
    }
}

} // namespace bops
