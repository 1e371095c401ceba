// Access to global memory: loads, stores, asynchronous copies, and what the L2 keeps.
#pragma once
#include "dtype.cuh"

namespace bops {

// Compute capability 9.0 and later have clusters, bulk copies, barriers that count the bytes of copies, and launches that overlap. A kernel that is
// chosen only there begins with `if (!has_sm_90) return;`, so that for earlier architectures its body compiles to nothing.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool has_sm_90 = false;
#else
constexpr bool has_sm_90 = true;
#endif

__device__ __forceinline__ uint32_t shared_address(const void *shared) { return uint32_t(__cvta_generic_to_shared(shared)); }

// L2 policies: lines that are the first, or the last, to be evicted.
__device__ __forceinline__ uint64_t evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint64_t evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// A load that does not use the non-coherent path: in place, the kernel writes the same elements later. The load is volatile, so that it stays ahead
// of the work that follows it in the source. streamed: the cache line is the first to be evicted.
template <int bytes, bool streamed = true> __device__ __forceinline__ packed<bytes> load(const void *from) {
    packed<bytes> to;
    if constexpr (bytes == 16 && streamed)
        asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                     : "l"(from)
                     : "memory");
    else if constexpr (bytes == 16)
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                     : "l"(from)
                     : "memory");
    else if constexpr (bytes == 8) asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(to.word[0]), "=r"(to.word[1]) : "l"(from) : "memory");
    else if constexpr (bytes == 4) asm volatile("ld.global.u32 %0, [%1];" : "=r"(to.word[0]) : "l"(from) : "memory");
    else if constexpr (bytes == 2) asm volatile("ld.global.u16 %0, [%1];" : "=h"(to.word[0]) : "l"(from) : "memory");
    else {
        uint16_t byte;
        asm volatile("ld.global.u8 %0, [%1];" : "=h"(byte) : "l"(from) : "memory");
        to.word[0] = uint8_t(byte);
    }
    return to;
}

template <int bytes, bool streamed = true> __device__ __forceinline__ void store(void *to, const packed<bytes> &from) {
    if constexpr (bytes == 16 && streamed) __stcs(static_cast<uint4 *>(to), make_uint4(from.word[0], from.word[1], from.word[2], from.word[3]));
    else *static_cast<packed<bytes> *>(to) = from;
}

// A load whose line the L2 keeps longer than the lines that are written meanwhile: memory serves a launch that reads and writes long tensors once
// faster if written lines are evicted first.
__device__ __forceinline__ packed<16> load_kept(const void *from) {
    packed<16> to;
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                 : "l"(from), "l"(evict_last())
                 : "memory");
    return to;
}

// A load whose line the L2 evicts first. If everything is read before anything is written, this makes room for the results.
__device__ __forceinline__ packed<8> load_leaving(const void *from) {
    packed<8> to;
    asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(to.word[0]), "=r"(to.word[1])
                 : "l"(from), "l"(evict_first())
                 : "memory");
    return to;
}

// A load for which the L2 fetches the whole line of 128 bytes, since other blocks read the rest of it at about the same time.
template <int bytes> __device__ __forceinline__ packed<bytes> load_line(const void *from) {
    packed<bytes> to;
    if constexpr (bytes == 16)
        asm volatile("ld.global.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                     : "l"(from)
                     : "memory");
    else if constexpr (bytes == 8)
        asm volatile("ld.global.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(to.word[0]), "=r"(to.word[1]) : "l"(from) : "memory");
    else to = load<bytes>(from);
    return to;
}

// A store that stays one instruction where the compiler would split an assigned vector into words, as it does after long computations. Volatile: other
// accesses keep their order around it.
template <int bytes> __device__ __forceinline__ void store_whole(void *to, const packed<bytes> &from) {
    if constexpr (bytes == 16)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from.word[0]), "r"(from.word[1]), "r"(from.word[2]), "r"(from.word[3])
                     : "memory");
    else if constexpr (bytes == 8) asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from.word[0]), "r"(from.word[1]) : "memory");
    else store<bytes, false>(to, from);
}

// `count` consecutive parameters of type P, which nothing writes while the kernel runs.
template <typename P, int count> struct parameter_vector {
    // Bytes of one load, loads of the vector, and parameters of one load.
    static constexpr int bytes = count * int(sizeof(P)) < 16 ? count * int(sizeof(P)) : 16;
    static constexpr int loads = count * int(sizeof(P)) / bytes;
    static constexpr int per_load = bytes / int(sizeof(P));
    packed<bytes> part[loads];

    // Sets every parameter to 1 or to 0.
    __device__ __forceinline__ void fill(bool one) {
        // The bits of 1, in 16-bit types of two neighbours.
        const uint32_t bits = !one ? 0 : std::is_same_v<P, __half> ? 0x3c003c00u : std::is_same_v<P, __nv_bfloat16> ? 0x3f803f80u : 0x3f800000u;
#pragma unroll
        for (int i = 0; i < loads; ++i)
#pragma unroll
            for (int j = 0; j < (bytes + 3) / 4; ++j) {
                if constexpr (std::is_same_v<P, double>) part[i].word[j] = one && j % 2 ? 0x3ff00000u : 0;
                else part[i].word[j] = bits;
            }
    }

    __device__ __forceinline__ void load(const P *from) {
#pragma unroll
        for (int i = 0; i < loads; ++i) {
            const P *p = from + i * per_load;
            if constexpr (bytes == 16) {
                const uint4 v = __ldg(reinterpret_cast<const uint4 *>(p));
                part[i].word[0] = v.x, part[i].word[1] = v.y, part[i].word[2] = v.z, part[i].word[3] = v.w;
            } else if constexpr (bytes == 8) {
                const uint2 v = __ldg(reinterpret_cast<const uint2 *>(p));
                part[i].word[0] = v.x, part[i].word[1] = v.y;
            } else if constexpr (bytes == 4) {
                part[i].word[0] = __ldg(reinterpret_cast<const unsigned *>(p));
            } else {
                part[i].word[0] = __ldg(reinterpret_cast<const unsigned short *>(p));
            }
        }
    }
    template <typename A> __device__ __forceinline__ void get(A (&to)[count]) const {
#pragma unroll
        for (int i = 0; i < loads; ++i) {
            accumulator_t<P> values[per_load];
            unpack<P>(part[i], values);
#pragma unroll
            for (int j = 0; j < per_load; ++j) to[i * per_load + j] = A(values[j]);
        }
    }
};

// Asynchronous copy into shared memory. After its own wait a thread may read what it copied itself; other threads need a barrier.
template <int bytes> __device__ __forceinline__ void copy_async(uint32_t to, const void *global) {
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(bytes) : "memory");
}
template <int bytes> __device__ __forceinline__ void copy_async(void *shared, const void *global) {
    copy_async<bytes>(shared_address(shared), global);
}
// copy_async of 16 bytes for which the L2 fetches the whole line, as for load_line.
__device__ __forceinline__ void copy_async_line(uint32_t to, const void *global) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
// copy_async of 16 bytes with an L2 policy.
__device__ __forceinline__ void copy_async_cached(uint32_t to, const void *global, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "l"(policy) : "memory");
}
__device__ __forceinline__ void copy_async_cached(void *shared, const void *global, uint64_t policy) {
    copy_async_cached(shared_address(shared), global, policy);
}
// An address that stays in one register. Otherwise ptxas 13.0 splits an address into a uniform register and another one, and for a copy with an L2 policy
// it then emits an illegal instruction (error 715). No address reaches the bound of `min`, so the value does not change.
__device__ __forceinline__ uint32_t whole_address(const void *shared) { return min(shared_address(shared), 0x7fffffffu); }
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `pending` committed groups, 0 to 3, are in flight.
__device__ __forceinline__ void copy_wait(uint32_t pending) {
    if (pending == 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
    else if (pending == 2) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (pending == 3) asm volatile("cp.async.wait_group 3;" ::: "memory");
    else asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// Waits until at most `pending` committed groups, 0 to 27, are in flight. In unrolled loops `pending` is a constant and one instruction is left;
// otherwise this is a table of branches.
__device__ __forceinline__ void copy_wait_groups(int pending) {
#define BOPS_WAIT(n)                                                                                                                                 \
    case n: asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); break;
    // clang-format off
    switch (pending) {
        BOPS_WAIT(1) BOPS_WAIT(2) BOPS_WAIT(3) BOPS_WAIT(4) BOPS_WAIT(5) BOPS_WAIT(6) BOPS_WAIT(7) BOPS_WAIT(8) BOPS_WAIT(9)
        BOPS_WAIT(10) BOPS_WAIT(11) BOPS_WAIT(12) BOPS_WAIT(13) BOPS_WAIT(14) BOPS_WAIT(15) BOPS_WAIT(16) BOPS_WAIT(17) BOPS_WAIT(18)
        BOPS_WAIT(19) BOPS_WAIT(20) BOPS_WAIT(21) BOPS_WAIT(22) BOPS_WAIT(23) BOPS_WAIT(24) BOPS_WAIT(25) BOPS_WAIT(26) BOPS_WAIT(27)
        default: asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    // clang-format on
#undef BOPS_WAIT
}

// Programmatic dependent launch. allow_dependents lets the next kernel of the stream be scheduled. wait_for_dependency waits until the previous
// kernel has ended and its writes are visible.
__device__ __forceinline__ void allow_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_dependency() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// First statement of a kernel that may be launched before the previous one has ended: waits for that one, then lets the next kernel of the stream be
// scheduled. In this order at most one waiting kernel occupies the chip.
__device__ __forceinline__ void follow_previous() {
    wait_for_dependency();
    allow_dependents();
}

} // namespace bops
