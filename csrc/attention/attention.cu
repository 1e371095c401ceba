// Attention: y = softmax(scores) v, one block a tile of queries. Keys come in tiles, of which those that no query of the block sees are left out; the largest
// score so far and the sum of exponentials about it follow the tiles (Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867;
// Dao, FlashAttention-2, arXiv:2307.08691).
// Compiled once for all architectures.
#include "attention.cuh"

namespace bops {
namespace attention {
namespace {

// rows, columns: queries and keys of a tile. wide: threads along a row. depth: columns of a step of q k; a step of weights times v has as many keys as fill
// the same memory.
template <typename A, int padded> struct forward_tile;
template <> struct forward_tile<float, 32> {
    static constexpr int rows = 128, columns = 64, threads = 128, wide = 8, depth = 32, keys = 64, blocks = 2;
};
template <> struct forward_tile<float, 64> {
    static constexpr int rows = 128, columns = 64, threads = 128, wide = 8, depth = 32, keys = 32, blocks = 2;
};
template <> struct forward_tile<float, 128> {
    static constexpr int rows = 64, columns = 64, threads = 128, wide = 16, depth = 32, keys = 16, blocks = 2;
};
template <> struct forward_tile<float, 256> {
    static constexpr int rows = 32, columns = 128, threads = 128, wide = 32, depth = 16, keys = 8, blocks = 2;
};
template <> struct forward_tile<double, 64> {
    static constexpr int rows = 32, columns = 32, threads = 128, wide = 16, depth = 16, keys = 8, blocks = 2;
};
template <> struct forward_tile<double, 256> {
    static constexpr int rows = 16, columns = 32, threads = 128, wide = 16, depth = 16, keys = 4, blocks = 1;
};

template <typename A, int padded> struct forward_memory {
    using tile = forward_tile<A, padded>;
    static constexpr int of_scores = tile::columns * (tile::depth + pad), of_values = tile::keys * (padded + pad);
    static constexpr int step = of_scores > of_values ? of_scores : of_values;
    A queries[tile::rows * (padded + pad)];
    A weights[tile::rows * (tile::columns + pad)];
    A steps[2][step];
};

template <typename A> struct forward_arguments {
    bops_attention_params of;
    bops_attention_operands at;
    uint32_t vectors, tiles;
};

constexpr int tiles_of_chains = 4; // whose terms are added one after another, before the sum goes to those of earlier chains

template <typename A, int padded, bool is_paged> __global__ void __launch_bounds__(forward_tile<A, padded>::threads, forward_tile<A, padded>::blocks)
    attention_simt(const __grid_constant__ forward_arguments<A> a) {
    using tile = forward_tile<A, padded>;
    using memory = forward_memory<A, padded>;
    constexpr int wide = tile::wide, high = tile::threads / wide;
    constexpr int rows = tile::rows / high, columns = tile::columns / wide, results = padded / wide; // of a thread
    constexpr int query_row = padded + pad, weight_row = tile::columns + pad;
    constexpr int value_steps = tile::columns / tile::keys;
    using of_keys = carrier<A, tile::threads, tile::columns, tile::depth>;
    using of_values = carrier<A, tile::threads, tile::keys, padded>;
    extern __shared__ __align__(16) unsigned char shared[];
    memory &m = *reinterpret_cast<memory *>(shared);

    const bops_attention_params &p = a.of;
    const place_of_block block(a.tiles, p.heads);
    const place_in_tile<tile> at;
    const uint32_t bytes = bytes_of<A>(p.dtype), kv_head = block.head / p.shared_by;
    const matrix q = matrix_of(a.at.q, p.q, block.sample, block.head, bytes, a.vectors & BOPS_ATTENTION_Q);
    const auto k = keys_of<is_paged>(a.at.k, p.k, p, a.at.pages, block.sample, kv_head, bytes, a.vectors & BOPS_ATTENTION_K);
    const auto v = keys_of<is_paged>(a.at.v, p.v, p, a.at.pages, block.sample, kv_head, bytes, a.vectors & BOPS_ATTENTION_V);
    const sight sees(p, a.at.lengths, block.sample);
    const score_rule<A> rule(p, a.at.bias, block.sample, block.head);
    const int first_row = int(block.tile) * tile::rows, last_row = min(first_row + tile::rows, int(p.queries)) - 1;

    // 1. The queries, and the tiles of keys that one of them sees.
    put_tile<A, tile::threads, tile::rows, padded>(m.queries, q, first_row, int(p.queries) - first_row, int(p.depth), p.dtype);
    const int keys_end = sees.last_key(last_row);
    int first = sees.first_key(first_row) / tile::columns * tile::columns;
    const int score_steps = (int(p.depth) + tile::depth - 1) / tile::depth;

    constexpr int most = of_keys::each > of_values::each ? of_keys::each : of_values::each;
    carried<A> held[most];
    A results_of[rows][results] = {};
    A memory_of_chains[rows * (results + 1)]; // the sums of earlier chains, and what their exponentials are about
    int chains = 0, tiles_of_chain = 0;
    A largest[rows], sum[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) largest[i] = -A(INFINITY), sum[i] = A(0);
    int now = 0;
    if (first < keys_end) {
        const part_of part = {uint32_t(first), sees.length - first, 0, int(p.depth)};
        of_keys::fetch(held, k, part, p.dtype);
        of_keys::put(held, m.steps[0], k, part, p.dtype);
    }
    __syncthreads();

    // Adds the sums of earlier chains to those of this one.
    const auto end_chain = [&] {
        if (chains == 0) return;
        const A *const kept = in_local_memory(memory_of_chains);
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const A factor = exponential(kept[rows * results + i] - (largest[i] == -A(INFINITY) ? A(0) : largest[i]));
#pragma unroll
            for (int n = 0; n < results; ++n) results_of[i][n] += kept[i * results + n] * factor;
        }
    };

    for (; first < keys_end; first += tile::columns) {
        const int keys_left = sees.length - first;
        // 2. Products of queries and keys. While a step is computed the next one is fetched.
        A scores[rows][columns] = {};
#pragma unroll 1
        for (int step = 0; step < score_steps; ++step) {
            const bool is_last = step + 1 == score_steps;
            const int done = is_last ? 0 : (step + 1) * tile::depth;
            const part_of part = {uint32_t(first), keys_left, uint32_t(done), int(is_last ? p.value_depth : p.depth) - done};
            if (is_last) of_values::fetch(held, v, part, p.dtype);
            else of_keys::fetch(held, k, part, p.dtype);
            add_rows_by_rows<tile::depth, query_row, tile::depth + pad, high, wide>(m.queries + at.y * query_row + step * tile::depth,
                                                                                    m.steps[now] + at.x * (tile::depth + pad), scores);
            if (is_last) of_values::put(held, m.steps[now ^ 1], v, part, p.dtype);
            else of_keys::put(held, m.steps[now ^ 1], k, part, p.dtype);
            now ^= 1;
            if (!is_last) __syncthreads();
        }
        // 3. Scores, and how they change the largest one of each row.
        A *const weights = m.weights + at.y * weight_row + at.x;
        const bool is_whole = !is_paged && rule.is_plain(p) && sees.first_key(last_row) <= first &&
                              sees.last_key(first_row) >= first + tile::columns && first_row + tile::rows <= int(p.queries);
        // In shared memory a loop of few instructions finds scores.
        if (!is_whole) {
#pragma unroll
            for (int i = 0; i < rows; ++i)
#pragma unroll
                for (int j = 0; j < columns; ++j) weights[i * high * weight_row + j * wide] = scores[i][j];
#pragma unroll 1
            for (int i = 0; i < rows; ++i) {
                const int query = first_row + at.y + i * high, from = sees.first_key(query), to = sees.last_key(query);
#pragma unroll 2
                for (int j = 0; j < columns; ++j) {
                    const int key = first + at.x + j * wide;
                    A &score = weights[i * high * weight_row + j * wide], slope;
                    uint64_t place;
                    const bool is_seen = key >= from && key < to && k.find(uint32_t(key), place);
                    score = is_seen ? rule.score(p, score, query, key, slope) : -A(INFINITY);
                }
            }
#pragma unroll
            for (int i = 0; i < rows; ++i)
#pragma unroll
                for (int j = 0; j < columns; ++j) scores[i][j] = weights[i * high * weight_row + j * wide];
        }
        const A scale = is_whole ? A(p.scale) : A(1);
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            A top = largest[i];
#pragma unroll
            for (int j = 0; j < columns; ++j) top = max(top, scores[i][j] *= scale);
            top = across_row<wide>(top, [](A x, A y) { return max(x, y); });
            // A row that sees nothing so far has no largest score.
            const A about = top == -A(INFINITY) ? A(0) : top;
            const A factor = exponential(largest[i] - about);
            largest[i] = top;
            A added = 0;
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                const A weight = exponential(scores[i][j] - about);
                added += weight;
                weights[i * high * weight_row + j * wide] = weight;
            }
#pragma unroll
            for (int n = 0; n < results; ++n) results_of[i][n] *= factor;
            sum[i] = sum[i] * factor + added;
        }
        __syncthreads();
        // 4. Weights times values.
#pragma unroll 1
        for (int step = 0; step < value_steps; ++step) {
            const bool is_last = step + 1 == value_steps, has_next = !is_last || first + tile::columns < keys_end;
            // After the last step of values, done is the tile.
            const int done = (step + 1) * tile::keys;
            const part_of part = {uint32_t(first + done), keys_left - done, 0, int(is_last ? p.depth : p.value_depth)};
            if (!is_last) of_values::fetch(held, v, part, p.dtype);
            else if (has_next) of_keys::fetch(held, k, part, p.dtype);
            add_rows_by_columns<tile::keys, weight_row, padded + pad, high, wide>(m.weights + at.y * weight_row + step * tile::keys,
                                                                                  m.steps[now] + at.x * 4, results_of);
            if (!is_last) of_values::put(held, m.steps[now ^ 1], v, part, p.dtype);
            else if (has_next) of_keys::put(held, m.steps[now ^ 1], k, part, p.dtype);
            now ^= 1;
            __syncthreads();
        }
        if (++tiles_of_chain == tiles_of_chains && first + tile::columns < keys_end) {
            end_chain();
            A *const kept = in_local_memory(memory_of_chains);
#pragma unroll
            for (int i = 0; i < rows; ++i) {
#pragma unroll
                for (int n = 0; n < results; ++n) kept[i * results + n] = results_of[i][n], results_of[i][n] = A(0);
                kept[rows * results + i] = largest[i];
            }
            tiles_of_chain = 0, ++chains;
        }
    }

    end_chain();

    // 5. The outputs.
    char *const y = static_cast<char *>(a.at.y) + (block.sample * p.y.sample + block.head * p.y.head) * bytes;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        const int query = first_row + at.y + i * high;
        const A total = across_row<wide>(sum[i], [](A x, A y) { return x + y; });
        if (query >= int(p.queries)) continue;
        // A row that sees nothing multiplied values by 0, which may be NaN.
        const A factor = A(1) / total;
#pragma unroll
        for (int g = 0; g < results / 4; ++g) {
            const int column = (at.x + g * wide) * 4;
            four<A> values;
#pragma unroll
            for (int c = 0; c < 4; ++c) values.at[c] = total == A(0) ? A(0) : results_of[i][g * 4 + c] * factor;
            store_four<A>(y, query * p.y.row, p.y.column, column, int(p.value_depth) - column, p.dtype, a.vectors & BOPS_ATTENTION_Y, A(0), values);
        }
        if (a.at.lse != nullptr && at.x == 0)
            static_cast<A *>(a.at.lse)[block.sample * p.lse.sample + block.head * p.lse.head + query * p.lse.row] =
                total == A(0) ? -A(INFINITY) : largest[i] + logarithm_of(total);
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_attention_params &p, const bops_attention_choice &c,
                                                   const bops_attention_operands &o, void *, const Action &action) {
    return for_sums(dtype, [&](auto tag) -> bops_status {
        using A = typename decltype(tag)::type;
        const auto with = [&](auto padded) -> bops_status {
            using tile = forward_tile<A, padded>;
            const uint64_t tiles = tiles_of(p.queries, tile::rows);
            const forward_arguments<A> a = {p, o, c.vectors, uint32_t(tiles)};
            const launch_shape shape = shape_of(tiles * p.heads * p.samples, tile::threads, sizeof(forward_memory<A, padded>));
            return for_flag(p.pages.page != 0, [&](auto is_paged) { return action(attention_simt<A, padded, is_paged>, shape, a); });
        };
        if constexpr (sizeof(A) == 8) return for_value<64, 256>(c.padded, with);
        else return for_value<32, 64, 128, 256>(c.padded, with);
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_simt, bops_dtype, bops_attention_params, bops_attention_choice, bops_attention_operands, bops::attention::with_kernel)
