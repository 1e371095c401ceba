// Barriers in shared memory at which threads, bulk copies and the stores of other blocks arrive (PTX mbarrier), named by their addresses. Compute
// capability 9.0: before it these do nothing, and no kernel that waits is launched.
#pragma once
#include "memory.cuh"

namespace bops {

// The place in the shared memory of block `rank` of the cluster that `address` is in one's own.
__device__ __forceinline__ uint32_t remote_address(uint32_t address, uint32_t rank) {
    uint32_t remote = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
#endif
    return remote;
}

namespace mbarrier {

// arrivals: that make a turn of it. By one thread.
__device__ __forceinline__ void initialize(uint32_t barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
#endif
}
// After those, before the barrier of threads behind which others use them.
__device__ __forceinline__ void fence_initialized() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}
// Arrives; the turn lasts until as many bytes have come.
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}
// Until the turn of this parity is over: 0 for the first, 1 for the one after. The turn before the first counts as over.
// of_cluster: what other blocks have stored is then seen.
template <bool of_cluster = false> __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    uint32_t done = 0;
    while (!done)
        if constexpr (of_cluster)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(barrier), "r"(parity)
                         : "memory");
        else
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(barrier), "r"(parity)
                         : "memory");
#endif
}
// Stores values at `to` in block `rank`, whose `barrier` counts their bytes.
template <int count> __device__ __forceinline__ void store_remote(uint32_t to, const float (&value)[count], uint32_t barrier, uint32_t rank) {
    static_assert(count == 2 || count == 4, "");
#if __CUDA_ARCH__ >= 900
    const uint32_t there = remote_address(to, rank), remote_barrier = remote_address(barrier, rank);
    if constexpr (count == 4)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there), "f"(value[0]),
                     "f"(value[1]), "f"(value[2]), "f"(value[3]), "r"(remote_barrier)
                     : "memory");
    else
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(there), "f"(value[0]),
                     "f"(value[1]), "r"(remote_barrier)
                     : "memory");
#endif
}

} // namespace mbarrier
} // namespace bops
