// Sums of products in short chains of additions: docs/numerics.md, Sums of products.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace bops {
namespace gemm {

constexpr int chains_of_group = 64; // chains whose sums are added up one after another, before they go to the sums of all groups

// The sums of a thread. chain_steps: steps whose terms are one chain. are_kept: the sums of a group of chains lie in local memory, too, where those of
// all groups lie, since they are read and written once in many steps. The caller declares `memory` as a variable of its own, or all sums would lie there.
template <typename A, int rows, int columns, int chain_steps, bool are_kept> struct chained_sums {
    static constexpr int count = rows * columns, group_steps = chain_steps * chains_of_group;
    using memory = A[are_kept ? 2 * count : count];

    A sums[rows][columns] = {}; // of the chain that is under way; after `collect` all sums
    A of_group[are_kept ? 1 : rows][are_kept ? 1 : columns] = {};
    memory &beside;
    int steps = 0; // so far: those of the group, and of one group more if there are sums of groups. One number takes one register.

    __device__ __forceinline__ explicit chained_sums(memory &memory) : beside(memory) {}

    // Called when a step has been added to `sums`.
    __device__ __forceinline__ void end_step() {
        if (++steps % chain_steps != 0) return;
        A *const kept = of_memory();
        if constexpr (are_kept) keep(sums, kept, (steps - 1) % group_steps >= chain_steps);
        else move(sums, of_group);
        if (steps % group_steps != 0) return;
        const bool has_groups = steps > group_steps;
        if constexpr (are_kept)
#pragma unroll 8
            for (int i = 0; i < count; ++i) kept[count + i] = has_groups ? kept[count + i] + kept[i] : kept[i];
        else keep(of_group, kept, has_groups);
        steps = group_steps;
    }
    __device__ __forceinline__ void collect() {
        const A *const kept = of_memory();
        if constexpr (are_kept) {
            if (steps % group_steps >= chain_steps) add(kept);
        } else move(of_group, sums);
        if (steps >= group_steps) add(kept + (are_kept ? count : 0));
    }

  private:
    // y of threadIdx is 0, which the compiler does not know: it cannot keep in registers what begins at any index.
    __device__ __forceinline__ A *of_memory() const {
        uint32_t y;
        asm volatile("mov.u32 %0, %%tid.y;" : "=r"(y));
        return beside + y;
    }
    // Adds sums to others; they begin anew.
    static __device__ __forceinline__ void move(A (&from)[rows][columns], A (&to)[rows][columns]) {
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int j = 0; j < columns; ++j) to[i][j] += from[i][j], from[i][j] = A(0);
    }
    static __device__ __forceinline__ void keep(A (&from)[rows][columns], A *to, bool has_sums) {
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                A &kept = to[i * columns + j];
                kept = has_sums ? kept + from[i][j] : from[i][j];
                from[i][j] = A(0);
            }
    }
    __device__ __forceinline__ void add(const A *from) {
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int j = 0; j < columns; ++j) sums[i][j] += from[i * columns + j];
    }
};

} // namespace gemm
} // namespace bops
