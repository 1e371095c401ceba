// What the forms of attention for few queries share: what their parts leave in the workspace, and the kernel that merges them.
#pragma once
#include "attention.cuh"

namespace bops {
namespace attention {

constexpr int merge_threads = 256;

struct split_arguments {
    bops_attention_params of;
    bops_attention_operands at;
    uint32_t vectors, parts, keys_per_part, row_tiles, width;
    void *workspace;
};

// Where the workspace has the largest scores and the sums of exponentials: behind the rows of all queries and parts.
template <typename A> __device__ __forceinline__ A *statistics(const split_arguments &a) {
    const uint64_t rows = uint64_t(a.of.samples) * a.of.heads * a.of.queries;
    return static_cast<A *>(a.workspace) + rows * a.parts * a.width;
}

// The exponential of what a part's largest score is below the largest of all.
template <bool in_twos, typename A> __device__ __forceinline__ A share_of(A difference) {
    if constexpr (in_twos) return exp2f(difference);
    else return exponential(difference);
}

// Combines a value of all threads of a block; each of them gets the result.
template <typename A, typename F> __device__ __forceinline__ A across_block(A value, A *warps, const F &combine) {
    value = across_row<32>(value, combine);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
    for (int warp = 1; warp < merge_threads / 32; ++warp) value = combine(value, warps[warp]);
    return value;
}

// One block a query: groups of threads take turns at the parts, and are added up in their order. in_twos: the largest scores are exponents of two.
template <typename A, int padded, bool in_twos> __global__ void __launch_bounds__(merge_threads, 2)
    attention_split_merge(const __grid_constant__ split_arguments a) {
    constexpr int across = padded / 4, groups = merge_threads / across;
    __shared__ A sums[groups][padded], totals[groups], warps[merge_threads / 32];
    const bops_attention_params &p = a.of;
    const uint64_t row = blockIdx.x;
    const A *const of_parts = statistics<A>(a) + row * a.parts * 2;
    const A *const values = static_cast<const A *>(a.workspace) + row * a.parts * a.width;
    const int thread = int(threadIdx.x), column = thread % across * 4;
    // 1. The largest score.
    A top = -A(INFINITY);
    for (uint32_t part = uint32_t(thread); part < a.parts; part += merge_threads) top = max(top, of_parts[part * uint64_t(2)]);
    top = across_block(top, warps, [](A x, A y) { return max(x, y); });
    const A about = top == -A(INFINITY) ? A(0) : top;
    // 2. Sums about it. A part whose sum of exponentials is 0 saw nothing and wrote no values; of NaN it did.
    four<A> sum = {};
    A total = 0;
#pragma unroll 2
    for (uint32_t part = uint32_t(thread) / across; part < a.parts; part += groups) {
        const A factor = share_of<in_twos>(of_parts[part * uint64_t(2)] - about), of_part = of_parts[part * uint64_t(2) + 1];
        total += factor * of_part;
        if (of_part == A(0) || column >= int(a.width)) continue;
        const four<A> value = load_four(values + uint64_t(part) * a.width + column);
#pragma unroll
        for (int c = 0; c < 4; ++c) sum.at[c] += factor * value.at[c];
    }
    *reinterpret_cast<four<A> *>(&sums[thread / across][column]) = sum;
    if (column == 0) totals[thread / across] = total;
    __syncthreads();
    if (thread >= across) return;
        // 3. The outputs.
#pragma unroll
    for (int n = 1; n < groups; ++n) {
        total = n == 1 ? totals[0] + totals[1] : total + totals[n];
#pragma unroll
        for (int c = 0; c < 4; ++c) sum.at[c] += sums[n][column + c];
    }
    const uint64_t head = row / p.queries % p.heads, sample = row / p.queries / p.heads, query = row % p.queries;
    const A factor = total == A(0) ? A(0) : A(1) / total;
#pragma unroll
    for (int c = 0; c < 4; ++c) sum.at[c] *= factor;
    char *const y = static_cast<char *>(a.at.y) + (sample * p.y.sample + head * p.y.head) * bytes_of<A>(p.dtype);
    store_four<A>(y, query * p.y.row, p.y.column, uint32_t(column), int(p.value_depth) - column, p.dtype, a.vectors & BOPS_ATTENTION_Y, A(0), sum);
    if (a.at.lse != nullptr && thread == 0)
        static_cast<A *>(a.at.lse)[sample * p.lse.sample + head * p.lse.head + query * p.lse.row] =
            total == A(0) ? -A(INFINITY) : (in_twos ? top * A(0.69314718055994530942) : top) + logarithm_of(total);
}

} // namespace attention
} // namespace bops
