// The gradient of the bias of attention: what scores receive, summed over the extents along which the bias is broadcast.
// Compiled once for all architectures.
#include "backward.cuh"

namespace bops {
namespace attention {
namespace {

template <typename A, int padded> __global__ void __launch_bounds__(backward_tile<A, padded>::threads, backward_tile<A, padded>::blocks)
    attention_backward_bias(const __grid_constant__ backward_arguments<A> a) {
    using work_type = backward_work<A, padded, of_block::bias>;
    using tile = typename work_type::tile;
    extern __shared__ __align__(16) unsigned char shared[];
    work_type work(a, *reinterpret_cast<typename work_type::memory *>(shared));
    const bops_attention_backward_params &b = a.of;
    const bops_attention_params &p = b.of;
    // 1. The elements of the bias that the block has, and what is summed for them. A bias of one query and several queries sums over all tiles of queries.
    const bool has_queries = b.bias_queries > 1, has_keys = b.bias_keys > 1;
    const uint32_t key_tiles = has_keys ? (b.bias_keys + tile::columns - 1) / tile::columns : 1;
    const uint32_t query_tiles = has_queries ? (b.bias_queries + tile::rows - 1) / tile::rows : 1;
    uint32_t rest = blockIdx.x;
    const int first_key = int(rest % key_tiles) * tile::columns;
    rest /= key_tiles;
    const int first_query = int(rest % query_tiles) * tile::rows;
    rest /= query_tiles;
    const uint32_t head = rest % b.bias_heads, sample = rest / b.bias_heads;
    const uint32_t heads = b.bias_heads > 1 ? 1 : p.heads, samples = b.bias_samples > 1 ? 1 : p.samples;
    // 2. The sums.
    A sums[work_type::rows][work_type::columns] = {};
    typename work_type::chain_memory none;
#pragma unroll 1
    for (uint32_t s = sample; s < sample + samples; ++s)
#pragma unroll 1
        for (uint32_t h = head; h < head + heads; ++h)
#pragma unroll 1
            for (int row = first_query; row < (has_queries ? first_query + 1 : int(p.queries)); row += tile::rows) {
                __syncthreads();
                work.put_rows(s, h, row);
                work.add(s, h, row, has_keys ? first_key : -1, sums, sums, none, none);
            }
    // 3. The sums of a tile, where the bias has one query or one key.
    __syncthreads();
    A *const tile_of = work.m.weights;
#pragma unroll
    for (int i = 0; i < work_type::rows; ++i)
#pragma unroll
        for (int j = 0; j < work_type::columns; ++j)
            tile_of[(work.at.y + i * work_type::high) * work_type::weight_row + work.at.x + j * work_type::wide] = sums[i][j];
    __syncthreads();
    const int rows = has_queries ? min(tile::rows, int(b.bias_queries) - first_query) : 1;
    const int columns = has_keys ? min(tile::columns, int(b.bias_keys) - first_key) : 1;
    const int high = has_queries ? 1 : tile::rows, wide = has_keys ? 1 : tile::columns;
    const bool is_wide = p.mask == BOPS_ATTENTION_BIAS_WIDE;
#pragma unroll 1
    for (int element = int(threadIdx.x); element < rows * columns; element += tile::threads) {
        const int row = element / columns, column = element % columns;
        A sum = 0;
#pragma unroll 1
        for (int i = row; i < row + high; ++i) {
            A of_row = 0;
#pragma unroll 1
            for (int j = column; j < column + wide; ++j) of_row += tile_of[i * work_type::weight_row + j];
            sum += of_row;
        }
        const bops_attention_strides &to = b.dbias.strides;
        const uint64_t place = sample * to.sample + head * to.head + (first_query + row) * to.row + (first_key + column) * to.column;
        if (b.dbias.beta != 0) sum += A(b.dbias.beta) * load_element<A>(a.at.dbias, place, p.dtype, is_wide);
        store_element<A>(a.at.dbias, place, p.dtype, is_wide, sum);
    }
}

template <typename Action> bops_status with_bias(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_choice &c,
                                                 const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_sums(dtype, [&](auto tag) -> bops_status {
        using A = typename decltype(tag)::type;
        return for_value<64, 256>(c.padded, [&](auto padded) -> bops_status {
            using tile = backward_tile<A, padded>;
            const uint64_t key_tiles = p.bias_keys > 1 ? tiles_of(p.bias_keys, tile::columns) : 1;
            const uint64_t query_tiles = p.bias_queries > 1 ? tiles_of(p.bias_queries, tile::rows) : 1;
            const backward_arguments<A> a = {p, o, static_cast<const A *>(workspace), c.vectors, 0};
            return action(attention_backward_bias<A, padded>,
                          shape_of(key_tiles * query_tiles * p.bias_heads * p.bias_samples, tile::threads, sizeof(backward_memory<A, padded>)), a);
        });
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_backward_bias, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands,
                 bops::attention::with_bias)
