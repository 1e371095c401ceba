// PTX mbarriers: barriers in shared memory, named by their addresses, at which threads, bulk copies and stores of other blocks arrive. mbarriers need
// compute capability 9.0; compiled for earlier ones the functions of this file do nothing, and no kernel that uses them is launched there.
#pragma once
#include "memory.cuh"

namespace bops {

// The address, in the shared memory of block `rank` of the cluster, that corresponds to `address` in this block's.
__device__ __forceinline__ uint32_t remote_address(uint32_t address, uint32_t rank) {
    uint32_t remote = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
#endif
    return remote;
}

namespace mbarrier {

// Called by one thread. A phase of the barrier is complete after `arrivals` arrivals and the bytes announced by `expect`.
__device__ __forceinline__ void initialize(uint32_t barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
#endif
}
// Called by the thread that initialized barriers, before the __syncthreads after which other threads use them.
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
// Arrives, and announces bytes that copies will bring: the phase is not complete before they have arrived.
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}
// Waits until the phase of this parity is complete: 0 for the first phase, 1 for the second, and so on in turn. The phase before the first counts as
// complete, so that waiting for parity 1 on a fresh barrier returns at once. of_cluster: also acquires what other blocks of the cluster have stored.
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
// Stores values at the address that corresponds to `to` in block `rank`; that block's `barrier` counts their bytes.
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
