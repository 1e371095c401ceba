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

// What a block has of a sample and a head of keys: some of the queries of all heads that share it, and the keys of a part that one of them sees. `tile`: the
// multiple of keys that parts are of.
struct share_of_block {
    uint32_t sample, kv_head, first_row, shared_by, queries;
    int count, begin, end; // rows, and keys from the first on and without the last
    sight sees;

    __device__ __forceinline__ share_of_block(const split_arguments &a, uint32_t rows, uint32_t tile)
        : shared_by(a.of.shared_by), queries(a.of.queries) {
        const uint32_t row_tile = blockIdx.x % a.row_tiles, group = blockIdx.x / a.row_tiles / a.parts, all_rows = shared_by * queries;
        sample = group / a.of.kv_heads, kv_head = group % a.of.kv_heads, first_row = row_tile * rows;
        count = int(min(all_rows - first_row, rows));
        sees = sight(a.of, a.at.lengths, sample);
        const uint32_t first_query = first_row % queries;
        const bool is_one_head = first_query + count <= queries;
        const int lowest = is_one_head ? int(first_query) : 0, highest = is_one_head ? int(first_query) + count - 1 : int(queries) - 1;
        // All blocks share the keys that the sample has: its parts are shorter where it has fewer keys than there is room for.
        const uint32_t per_block = (uint32_t(sees.length) + a.parts - 1) / a.parts;
        const int64_t keys = min(a.keys_per_part, max((per_block + tile - 1) / tile, 2u) * tile), from = part(a) * keys;
        begin = int(max(from, int64_t(sees.first_key(lowest)))), end = int(min(from + keys, int64_t(sees.last_key(highest))));
    }
    static __device__ __forceinline__ uint32_t part(const split_arguments &a) { return blockIdx.x / a.row_tiles % a.parts; }
    // The block's first row among those of all samples and heads.
    static __device__ __forceinline__ uint64_t first_of_rows(const split_arguments &a, uint32_t rows) {
        return uint64_t(blockIdx.x / a.row_tiles / a.parts) * (a.of.shared_by * a.of.queries) + blockIdx.x % a.row_tiles * rows;
    }
    __device__ __forceinline__ uint32_t head(int row) const { return kv_head * shared_by + (first_row + row) / queries; }
    __device__ __forceinline__ uint32_t query(int row) const { return (first_row + row) % queries; }
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

// Columns of y from `column` on, of a row whose weighted values and weights, about an exponential of `top`, have these sums; and its lse.
template <bool in_twos, typename A> __device__ __forceinline__ void write_row(const split_arguments &a, uint64_t sample, uint64_t head,
                                                                              uint64_t query, int column, A top, A total, four<A> sum) {
    const bops_attention_params &p = a.of;
    const A factor = total == A(0) ? A(0) : A(1) / total;
#pragma unroll
    for (int c = 0; c < 4; ++c) sum.at[c] *= factor;
    char *const y = static_cast<char *>(a.at.y) + (sample * p.y.sample + head * p.y.head) * bytes_of<A>(p.dtype);
    store_four<A>(y, query * p.y.row, p.y.column, uint32_t(column), int(p.value_depth) - column, p.dtype, a.vectors & BOPS_ATTENTION_Y, A(0), sum);
    if (a.at.lse != nullptr && column == 0)
        static_cast<A *>(a.at.lse)[sample * p.lse.sample + head * p.lse.head + query * p.lse.row] =
            total == A(0) ? -A(INFINITY) : (in_twos ? top * A(0.69314718055994530942) : top) + logarithm_of(total);
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
    write_row<in_twos>(a, row / p.queries / p.heads, row / p.queries % p.heads, row % p.queries, column, top, total, sum);
}

} // namespace attention
} // namespace bops
