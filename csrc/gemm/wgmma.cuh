// What a warpgroup and the copy engine of compute capability 9.0 do: wgmma, cp.async.bulk.tensor, setmaxnreg.
//
// A *step* of a factor is its tile over 128 bytes of k, 64 elements of 16 bits or 32 of f32, in shared memory as the copy engine swizzles lines of 128
// bytes: the chunk of 16 bytes with number c of line l lies at place c ^ l % 8 of the line; eight lines, an atom, begin at a multiple of 1024 bytes.
//
//   along k: [row][k of the step]. Atoms of eight rows follow each other; an instruction takes 32 bytes of every line.
//   across:  [64 rows][k][row of those], blocks of 64 rows, of f32 of 32. Atoms of eight k follow each other; 16 of k are two of them. wgmma reads only
//            16-bit elements that lie across.
#pragma once
#include <cuda.h>

#include "../common/mbarrier.cuh"

namespace bops {
namespace gemm {

// The instructions exist for sm_90a only. Compiled for other targets these functions do nothing, and no kernel that calls them is launched.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BOPS_SM_90A 1
#endif
#ifdef BOPS_SM_90A
constexpr bool has_sm_90a = true;
#else
constexpr bool has_sm_90a = false;
#endif

constexpr uint32_t most_shared_bytes = 227 << 10;                                    // of a block, on compute capability 9.0
constexpr int wgmma_line_bytes = 128, wgmma_atom_bytes = 1024;                       // bytes of a line, and of eight lines
template <typename T> constexpr int wgmma_depth = wgmma_line_bytes / int(sizeof(T)); // k of a step
constexpr int across_block_bytes = wgmma_depth<uint16_t> * wgmma_line_bytes;         // of 64 rows of a step of 16-bit elements that lie across

// ---- descriptors of factors in shared memory ---------------------------------------

// The descriptor of a factor in shared memory, without its address: distances in units of 16 bytes, and the swizzle of 128 bytes. The second distance
// leads from one atom to the next; for a factor that lies across, the first distance leads to the next 64 rows.
template <bool across> __device__ __forceinline__ constexpr uint64_t wgmma_layout() {
    constexpr uint64_t first = across ? across_block_bytes / 16 : 1, second = wgmma_atom_bytes / 16;
    return (uint64_t(1) << 62) | (second << 32) | (first << 16);
}
// The descriptor for 64 rows that lie in every other atom.
__device__ __forceinline__ uint64_t wgmma_descriptor_of_other_atoms(uint32_t at) {
    constexpr uint64_t layout = (uint64_t(1) << 62) | (uint64_t(2 * wgmma_atom_bytes / 16) << 32) | (uint64_t(1) << 16);
    return layout | ((at & 0x3ffff) >> 4);
}
// The descriptor of the rows from `row` on, a multiple of 64, over 32 bytes of k, or across over 16 of k: number k_part of the step at `step`.
template <bool across> __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t step, int row, int k_part) {
    const uint32_t at = step + uint32_t(row * wgmma_line_bytes + k_part * (across ? 2 * wgmma_atom_bytes : 32));
    return wgmma_layout<across>() | ((at & 0x3ffff) >> 4); // the bits above 18 tell which block of a cluster the address belongs to
}

// ---- products ---------------------------------------------------------------------

// Called before the first product, and again whenever threads have used the registers of sums.
__device__ __forceinline__ void wgmma_fence() {
#ifdef BOPS_SM_90A
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wgmma_commit() {
#ifdef BOPS_SM_90A
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until at most `pending` committed groups are unfinished.
template <int pending> __device__ __forceinline__ void wgmma_wait() {
#ifdef BOPS_SM_90A
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
#endif
}
// Keeps the compiler from reading the sums before this point.
template <int count> __device__ __forceinline__ void settle(float (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// clang-format off
#define BOPS_SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define BOPS_SUMS_32(i) BOPS_SUMS_8(i), BOPS_SUMS_8(i + 8), BOPS_SUMS_8(i + 16), BOPS_SUMS_8(i + 24)
#define BOPS_PLACES_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BOPS_PLACES_128 BOPS_PLACES_64 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BOPS_PLACES_192 BOPS_PLACES_128 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define BOPS_WGMMA_64(type) \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" BOPS_PLACES_64 "}, " \
                 "%32, %33, p, 1, 1, %35, %36; }" \
                 : BOPS_SUMS_32(0) \
                 : "l"(left), "l"(right), "r"(adds), "n"(int(left_across)), "n"(int(right_across)) : "memory")
#define BOPS_WGMMA_128(type) \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" BOPS_PLACES_128 "}, " \
                 "%64, %65, p, 1, 1, %67, %68; }" \
                 : BOPS_SUMS_32(0), BOPS_SUMS_32(32) \
                 : "l"(left), "l"(right), "r"(adds), "n"(int(left_across)), "n"(int(right_across)) : "memory")
#define BOPS_WGMMA_192(type) \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {" BOPS_PLACES_192 "}, " \
                 "%96, %97, p, 1, 1, %99, %100; }" \
                 : BOPS_SUMS_32(0), BOPS_SUMS_32(32), BOPS_SUMS_32(64) \
                 : "l"(left), "l"(right), "r"(adds), "n"(int(left_across)), "n"(int(right_across)) : "memory")
// clang-format on

// sums = left * right, or sums += left * right if `adds` is not 0: 64 rows and `columns` columns over 16 of k, by a warpgroup. Sum i of a lane is in
// row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and column 8 * (i / 4) + lane % 4 * 2 + i % 2.
template <typename T, int columns, bool left_across, bool right_across>
__device__ __forceinline__ void wgmma(float (&d)[columns / 2], uint64_t left, uint64_t right, int adds) {
#ifdef BOPS_SM_90A
    if constexpr (std::is_same_v<T, __half>) {
        if constexpr (columns == 64) BOPS_WGMMA_64("f16");
        else if constexpr (columns == 128) BOPS_WGMMA_128("f16");
        else BOPS_WGMMA_192("f16");
    } else {
        if constexpr (columns == 64) BOPS_WGMMA_64("bf16");
        else if constexpr (columns == 128) BOPS_WGMMA_128("bf16");
        else BOPS_WGMMA_192("bf16");
    }
#endif
}

// As wgmma of 16-bit elements, for f32 whose last bits do not count (tf32): over 8 of k, with both factors along k.
__device__ __forceinline__ void wgmma_words(float (&d)[32], uint64_t left, uint64_t right, int adds) {
#ifdef BOPS_SM_90A
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" BOPS_PLACES_64 "}, "
                 "%32, %33, p, 1, 1; }"
                 : BOPS_SUMS_32(0)
                 : "l"(left), "l"(right), "r"(adds)
                 : "memory");
#endif
}
__device__ __forceinline__ void wgmma_words(float (&d)[64], uint64_t left, uint64_t right, int adds) {
#ifdef BOPS_SM_90A
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" BOPS_PLACES_128 "}, "
                 "%64, %65, p, 1, 1; }"
                 : BOPS_SUMS_32(0), BOPS_SUMS_32(32)
                 : "l"(left), "l"(right), "r"(adds)
                 : "memory");
#endif
}
__device__ __forceinline__ void wgmma_words(float (&d)[96], uint64_t left, uint64_t right, int adds) {
#ifdef BOPS_SM_90A
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k8.f32.tf32.tf32 {" BOPS_PLACES_192 "}, "
                 "%96, %97, p, 1, 1; }"
                 : BOPS_SUMS_32(0), BOPS_SUMS_32(32), BOPS_SUMS_32(64)
                 : "l"(left), "l"(right), "r"(adds)
                 : "memory");
#endif
}
#undef BOPS_SUMS_8
#undef BOPS_SUMS_32
#undef BOPS_PLACES_64
#undef BOPS_WGMMA_64
#undef BOPS_PLACES_128
#undef BOPS_WGMMA_128
#undef BOPS_PLACES_192
#undef BOPS_WGMMA_192

// ---- registers ----------------------------------------------------------------------

// Sets the number of registers that each thread of a warpgroup holds from here on.
template <int registers> __device__ __forceinline__ void release_registers() {
#ifdef BOPS_SM_90A
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <int registers> __device__ __forceinline__ void claim_registers() {
#ifdef BOPS_SM_90A
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

// ---- copies ---------------------------------------------------------------------------

__device__ __forceinline__ void prefetch_map(const CUtensorMap &map) {
#ifdef BOPS_SM_90A
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// Where a box begins: two indices in the matrix, first that along which elements are neighbours, two of the batch, and one that is summed over.
struct box_place {
    int inner, outer, batch[2], summed;
};

// Starts a copy of a box to `to`; `barrier` counts its bytes.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap &map, const box_place &at, uint32_t barrier) {
#ifdef BOPS_SM_90A
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(at.inner), "r"(at.outer), "r"(at.batch[0]), "r"(at.batch[1]), "r"(at.summed)
                 : "memory");
#endif
}

// Starts to store the box that lies in shared memory at `from`; what lies beyond the matrix is not written. Of `at`, inner, outer and batch count.
// Called by one thread of a warp after all threads of the warp have called publish_stores and synchronised.
__device__ __forceinline__ void store_box(const CUtensorMap &map, const box_place &at, uint32_t from) {
#ifdef BOPS_SM_90A
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map), "r"(from), "r"(at.inner),
                 "r"(at.outer), "r"(at.batch[0]), "r"(at.batch[1]), "r"(at.summed)
                 : "memory");
#endif
}
// Makes a group of the boxes that this thread has stored since the last call.
__device__ __forceinline__ void commit_boxes() {
#ifdef BOPS_SM_90A
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Waits until at most `pending` groups of this thread have still to be read from shared memory.
template <int pending> __device__ __forceinline__ void wait_for_boxes() {
#ifdef BOPS_SM_90A
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
#endif
}
// Makes this thread's stores to shared memory visible to the copy engine.
__device__ __forceinline__ void publish_stores() {
#ifdef BOPS_SM_90A
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Stores four matrices of eight rows of eight 16-bit elements: lane 8 i + j gives the address of row j of matrix i. Of each matrix a lane has two
// elements of row lane / 4, in columns lane % 4 * 2 and the next one.
__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&words)[4]) {
#ifdef BOPS_SM_90A
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
#endif
}

// Loads four such matrices from shared memory.
__device__ __forceinline__ void load_matrices(uint32_t from, uint32_t (&words)[4]) {
#ifdef BOPS_SM_90A
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
#endif
}

// ---- turns ----------------------------------------------------------------------------

// A barrier of the threads of one warpgroup; each warpgroup has a barrier number of its own.
__device__ __forceinline__ void synchronize_group(int number) { asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory"); }
// A turn of two warpgroups: the one that calls wait_for_turn goes on once the other has called give_turn, which does not wait.
__device__ __forceinline__ void wait_for_turn(int number) { asm volatile("bar.sync %0, 256;" ::"r"(number) : "memory"); }
__device__ __forceinline__ void give_turn(int number) { asm volatile("bar.arrive %0, 256;" ::"r"(number) : "memory"); }

} // namespace gemm
} // namespace bops
