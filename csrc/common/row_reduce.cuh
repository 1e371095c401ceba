// Rows held on chip by a team of threads: sub-warp, several warps of a block, or the blocks of a cluster; and their reductions,
// in an order that depends on the team's shape alone.
#pragma once
#include "memory.cuh"

namespace bops {

// The element offset of a row (see bops_row_strides).
__device__ __forceinline__ uint64_t row_offset(uint64_t row, const bops_row_strides &s, uint64_t extent1, uint64_t extent2) {
    if (extent1 == 1 && extent2 == 1) return row * s.s0;
    // rows < 2^32, and the extents divide it
    const uint32_t inner = uint32_t(row) / uint32_t(extent2), i2 = uint32_t(row) - inner * uint32_t(extent2);
    const uint32_t i0 = inner / uint32_t(extent1), i1 = inner - i0 * uint32_t(extent1);
    return i0 * s.s0 + i1 * s.s1 + i2 * s.s2;
}

// ---- a team inside one block: blockDim = (threads of a row, rows); up to 32 a power of two, beyond a multiple of 32 -----------

constexpr int team_slots = 64;

struct row_team {
    uint32_t threads, lane, warp, warps, slot;

    __device__ __forceinline__ row_team()
        : threads(blockDim.x), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), warps((blockDim.x + 31) >> 5),
          slot(threadIdx.y * ((warps + 3) & ~3u)) {}
};

template <typename A> struct alignas(16) quad { A v[4]; };

template <int count, typename A> __device__ __forceinline__ void warp_sum(A (&value)[count], uint32_t threads) {
    if (threads >= 32) {
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1)
#pragma unroll
            for (int k = 0; k < count; ++k) value[k] += __shfl_xor_sync(~0u, value[k], offset);
    } else {
        for (uint32_t offset = threads >> 1; offset > 0; offset >>= 1)
#pragma unroll
            for (int k = 0; k < count; ++k) value[k] += __shfl_xor_sync(~0u, value[k], offset);
    }
}

// Sums `count` values over a team; every thread gets the totals. `slots` must not be in use by an earlier sum that some
// thread may still read: alternate between two.
template <int count, typename A>
__device__ __forceinline__ void team_sum(A (&value)[count], const row_team &team, A (*slots)[team_slots]) {
    warp_sum(value, team.threads);
    if (team.warps == 1) return;
    const uint32_t padded = (team.warps + 3) & ~3u, index = team.warp + team.lane;
    if (team.lane == 0 || (team.warp == team.warps - 1 && index < padded)) {
#pragma unroll
        for (int k = 0; k < count; ++k) slots[k][team.slot + index] = team.lane == 0 ? value[k] : A(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < count; ++k) {
        quad<A> total = *reinterpret_cast<const quad<A> *>(&slots[k][team.slot]);
        for (uint32_t w = 4; w < padded; w += 4) {
            const quad<A> next = *reinterpret_cast<const quad<A> *>(&slots[k][team.slot + w]);
#pragma unroll
            for (int i = 0; i < 4; ++i) total.v[i] += next.v[i];
        }
        value[k] = (total.v[0] + total.v[1]) + (total.v[2] + total.v[3]);
    }
}

// ---- clusters -------------------------------------------------------------------------------------------------------------

constexpr int max_cluster = 16;

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Gives every block of the cluster the values of all: slots[k][rank]. All threads of a block hold the same `value`.
// A block may run one exchange ahead of the others, so alternate between two slot arrays. The caller has seen one cluster
// barrier before the first exchange: a block's shared memory exists once it has started.
template <int count>
__device__ __forceinline__ void cluster_gather(const float (&value)[count], float (*slots)[max_cluster], uint32_t rank, uint32_t cluster) {
#if __CUDA_ARCH__ >= 900
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread < cluster) {
#pragma unroll
        for (int k = 0; k < count; ++k) {
            uint32_t remote;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(uint32_t(__cvta_generic_to_shared(&slots[k][rank]))), "r"(thread));
            asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value[k]) : "memory");
        }
    }
    cluster_arrive();
    cluster_wait();
#endif
}

// ---- moments --------------------------------------------------------------------------------------------------------------

// Moments of a set about `shift`, a value near its mean: sums of d = x - shift and of d^2.
template <typename A> struct moments { A shift, sum, square; };

// Adds to `total` (moments about total.shift) a set of `count` elements whose moments are about another shift.
template <typename A> __device__ __forceinline__ void merge(moments<A> &total, const moments<A> &part, A count) {
    const A e = part.shift - total.shift;
    total.sum += part.sum + count * e;
    total.square += part.square + e * (A(2) * part.sum + count * e);
}

// NaN stays NaN.
template <typename A> __device__ __forceinline__ A at_least_zero(A v) { return v < A(0) ? A(0) : v; }

template <typename A> __device__ __forceinline__ A reciprocal_root(A v) {
    if constexpr (sizeof(A) == 8) return 1.0 / sqrt(v);
    else return 1.0f / sqrtf(v);
}

} // namespace bops
