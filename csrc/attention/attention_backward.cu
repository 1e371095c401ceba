// The gradients of q, k and v of attention.
// Compiled once for all architectures.
#include "backward.cuh"

namespace bops {
namespace attention {
namespace {

constexpr int delta_rows = 4; // of a block, each of a warp

template <typename A> __global__ void __launch_bounds__(delta_rows * 32) attention_backward_delta(const __grid_constant__ backward_arguments<A> a) {
    const bops_attention_params &p = a.of.of;
    const uint64_t number = blockIdx.x * uint64_t(delta_rows) + threadIdx.x / 32;
    if (number >= uint64_t(p.samples) * p.heads * p.queries) return;
    const uint64_t query = number % p.queries, head = number / p.queries % p.heads, sample = number / p.queries / p.heads;
    const uint64_t y = sample * p.y.sample + head * p.y.head + query * p.y.row;
    const uint64_t dy = sample * a.of.dy.sample + head * a.of.dy.head + query * a.of.dy.row;
    A sum = 0;
    for (uint32_t column = threadIdx.x % 32; column < p.value_depth; column += 32)
        sum +=
            load_element<A>(a.at.y, y + column * p.y.column, p.dtype, false) * load_element<A>(a.at.dy, dy + column * a.of.dy.column, p.dtype, false);
    sum = across_row<32>(sum, [](A x, A y) { return x + y; });
    if (threadIdx.x % 32 == 0) const_cast<A *>(a.delta)[number] = sum;
}

template <typename A, int padded> __global__ void __launch_bounds__(backward_tile<A, padded>::threads, backward_tile<A, padded>::blocks)
    attention_backward_queries(const __grid_constant__ backward_arguments<A> a) {
    using work_type = backward_work<A, padded, of_block::queries>;
    extern __shared__ __align__(16) unsigned char shared[];
    work_type work(a, *reinterpret_cast<typename work_type::memory *>(shared));
    const place_of_block block(a.tiles, a.of.of.heads);
    const int first_row = int(block.tile) * work_type::tile::rows;
    A sums[work_type::rows][work_type::results] = {};
    work.put_rows(block.sample, block.head, first_row);
    typename work_type::chain_memory of_sums;
    work.add(block.sample, block.head, first_row, -1, sums, sums, of_sums, of_sums);
    work.collect(sums, of_sums);
    work.store(a.at.dq, a.of.dq, a.vectors & BOPS_ATTENTION_DQ, block.sample, block.head, first_row, a.of.of.depth, A(a.of.of.scale), sums);
}

template <typename A, int padded> __global__ void __launch_bounds__(backward_tile<A, padded>::threads, backward_tile<A, padded>::blocks)
    attention_backward_keys(const __grid_constant__ backward_arguments<A> a) {
    using work_type = backward_work<A, padded, of_block::keys>;
    extern __shared__ __align__(16) unsigned char shared[];
    work_type work(a, *reinterpret_cast<typename work_type::memory *>(shared));
    const bops_attention_params &p = a.of.of;
    const place_of_block block(a.tiles, p.kv_heads);
    const int first_row = int(block.tile) * work_type::tile::rows;
    A sums[work_type::rows][work_type::results] = {}, weighted[work_type::rows][work_type::results] = {};
    typename work_type::chain_memory of_sums, of_weighted;
    work.put_rows(block.sample, block.head, first_row);
#pragma unroll 1
    for (uint32_t head = 0; head < p.shared_by; ++head)
        work.add(block.sample, block.head * p.shared_by + head, first_row, -1, sums, weighted, of_sums, of_weighted);
    work.collect(sums, of_sums);
    work.collect(weighted, of_weighted);
    work.store(a.at.dk, a.of.dk, a.vectors & BOPS_ATTENTION_DK, block.sample, block.head, first_row, p.depth, A(p.scale), sums);
    work.store(a.at.dv, a.of.dv, a.vectors & BOPS_ATTENTION_DV, block.sample, block.head, first_row, p.value_depth, A(1), weighted);
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename A> backward_arguments<A> arguments_of(const bops_attention_backward_params &p, const bops_attention_choice &c,
                                                         const bops_attention_backward_operands &o, void *workspace, uint64_t tiles) {
    return {p, o, static_cast<const A *>(workspace), c.vectors, uint32_t(tiles)};
}

template <typename Action> bops_status with_delta(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_choice &c,
                                                  const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_sums(dtype, [&](auto tag) -> bops_status {
        using A = typename decltype(tag)::type;
        const uint64_t rows = uint64_t(p.of.samples) * p.of.heads * p.of.queries;
        return action(attention_backward_delta<A>, shape_of(tiles_of(rows, delta_rows), delta_rows * 32, 0), arguments_of<A>(p, c, o, workspace, 0));
    });
}

// Calls f(type_tag<A>, padded).
template <typename F> bops_status for_tile(bops_dtype dtype, uint32_t padded, const F &f) {
    return for_sums(dtype, [&](auto tag) -> bops_status {
        const auto with = [&](auto of) { return f(tag, of); };
        if constexpr (sizeof(typename decltype(tag)::type) == 8) return for_value<64, 256>(padded, with);
        else return for_value<32, 64, 128, 256>(padded, with);
    });
}

template <typename Action> bops_status with_queries(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_choice &c,
                                                    const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_tile(dtype, c.padded, [&](auto tag, auto padded) {
        using A = typename decltype(tag)::type;
        using tile = backward_tile<A, padded>;
        const uint64_t tiles = tiles_of(p.of.queries, tile::rows);
        return action(attention_backward_queries<A, padded>,
                      shape_of(tiles * p.of.heads * p.of.samples, tile::threads, sizeof(backward_memory<A, padded>)),
                      arguments_of<A>(p, c, o, workspace, tiles));
    });
}

template <typename Action> bops_status with_keys(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_choice &c,
                                                 const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_tile(dtype, c.padded, [&](auto tag, auto padded) {
        using A = typename decltype(tag)::type;
        using tile = backward_tile<A, padded>;
        const uint64_t tiles = tiles_of(p.of.keys, tile::rows);
        return action(attention_backward_keys<A, padded>,
                      shape_of(tiles * p.of.kv_heads * p.of.samples, tile::threads, sizeof(backward_memory<A, padded>)),
                      arguments_of<A>(p, c, o, workspace, tiles));
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_backward_delta, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands,
                 bops::attention::with_delta)
BOPS_DEFINE_FORM(bops_attention_backward_queries, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands,
                 bops::attention::with_queries)
BOPS_DEFINE_FORM(bops_attention_backward_keys, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands,
                 bops::attention::with_keys)
