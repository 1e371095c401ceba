// attention_mma: attention on tensor cores of compute capability 8.0 and later, through mma.sync. A block has a tile of queries, each of its warps a share
// of them with all keys of a tile, so that a row of scores stays within four lanes (Dao, FlashAttention-2, arXiv:2307.08691).
// Compiled once for all architectures.
#include "mma.cuh"

namespace bops {
namespace attention {
namespace {

// row_blocks: blocks of 16 queries that a warp has; with two of them each element of k and v that is read from shared memory is used twice. keys: of a tile.
// Registers hold `padded` sums of each query and a score for each key, and without spills nothing larger.
template <int padded, bool is_plain> struct mma_forward_tile;
template <bool is_plain> struct mma_forward_tile<32, is_plain> { static constexpr int row_blocks = 2, keys = 64; };
template <bool is_plain> struct mma_forward_tile<64, is_plain> { static constexpr int row_blocks = 2, keys = 96; };
template <bool is_plain> struct mma_forward_tile<128, is_plain> { static constexpr int row_blocks = 2, keys = is_plain ? 64 : 32; };
template <bool is_plain> struct mma_forward_tile<256, is_plain> { static constexpr int row_blocks = 1, keys = 32; };

constexpr int warps = 4, blocks = 2; // warps of a block, and blocks that an SM has room for, so that a thread has up to 255 registers

struct mma_forward_arguments {
    bops_attention_params of;
    bops_attention_operands at;
    uint32_t tiles;
};

// Powers of two by which weights may exceed 1 before sums are scaled down: what was added up is not scaled again for every small rise of a row's largest score.
constexpr float slack = 8;

// is_plain: a score is a product times the scale, and one instruction makes the argument of an exponential of the product.
template <typename T, int padded, bool is_plain> __global__ void __launch_bounds__(warps * 32, blocks)
    attention_mma(const __grid_constant__ mma_forward_arguments a) {
    using tile = mma_forward_tile<padded, is_plain>;
    constexpr int threads = warps * 32, row_blocks = tile::row_blocks, warp_rows = row_blocks * 16, rows = warps * warp_rows;
    constexpr int keys = tile::keys, key_blocks = keys / 8, result_blocks = padded / 8;
    constexpr uint32_t step = lines_bytes<padded, keys>; // bytes of a tile of keys, and of one of values
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t queries = shared_address(shared), ring = queries + lines_bytes<padded, rows>;

    const bops_attention_params &p = a.of;
    const place_of_block block(a.tiles, p.heads);
    const uint32_t kv_head = block.head / p.shared_by;
    const sight sees(p, a.at.lengths, block.sample);
    const int first_row = int(block.tile) * rows, last_row = min(first_row + rows, int(p.queries)) - 1;

    // 1. The queries, and the tiles of keys that one of them sees.
    const char *const k = matrix_of(a.at.k, p.k, block.sample, kv_head, 2, true).base;
    const char *const v = matrix_of(a.at.v, p.v, block.sample, kv_head, 2, true).base;
    copy_lines<padded, threads, rows>(queries, matrix_of(a.at.q, p.q, block.sample, block.head, 2, true).base, p.q.row * 2, p.depth, first_row,
                                      int(p.queries) - first_row);
    const int keys_end = sees.last_key(last_row);
    int first = sees.first_key(first_row) / keys * keys;
    uint32_t now = ring;
    const auto fetch = [&](uint32_t to, int from, int end, int length) {
        if (from < end) {
            copy_lines<padded, threads, keys>(to, k, p.k.row * 2, p.depth, from, length - from);
            copy_lines<padded, threads, keys>(to + step, v, p.v.row * 2, p.value_depth, from, length - from);
        }
        copy_commit();
    };
    fetch(now, first, keys_end, sees.length);

    // What is looked up once for a tile is kept in shared memory, since the sums take nearly all registers.
    __shared__ sight kept_sees;
    __shared__ int kept_end;
    __shared__ warp_sight warps_see[warps];
    if (threadIdx.x == 0) kept_sees = sees, kept_end = keys_end;
    if (threadIdx.x < warps) {
        const int warp_first = first_row + int(threadIdx.x) * warp_rows, warp_last = min(warp_first + warp_rows, int(p.queries)) - 1;
        warps_see[threadIdx.x] = {sees.first_key(warp_first), sees.last_key(warp_last), sees.first_key(warp_last), sees.last_key(warp_first)};
    }
    const uint32_t query_start = queries + lines_bytes<padded, warp_rows> * (threadIdx.x / 32) + left_start<padded>(int(threadIdx.x) % 32);
    const score_rule<float> rule(p, a.at.bias, block.sample, block.head);
    const float scale = is_plain ? float(p.scale * 1.44269504088896340736) : log2_of_e; // from scores to exponents of two
    float results[row_blocks][result_blocks][4] = {};
    float largest[row_blocks][2], sum[row_blocks][2]; // of rows lane / 4 and lane / 4 + 8 of a block; largest: an exponent that weights are about
#pragma unroll
    for (int i = 0; i < row_blocks; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) largest[i][h] = -INFINITY, sum[i][h] = 0;

#pragma unroll 1
    for (bool has_tiles = first < keys_end; has_tiles; first += keys, has_tiles = first < kept_end) {
        copy_wait(0);
        __syncthreads(); // all copies of this tile have arrived, and no warp reads the place that is filled next
        fetch(now == ring ? ring + 2 * step : ring, first + keys, kept_end, kept_sees.length);
        const int thread = int(not_ahead(threadIdx.x)), lane = thread & 31, warp = thread >> 5;
        const uint32_t at_queries = not_ahead(query_start), at_keys = now + right_start<padded>(lane);
        const uint32_t at_values = now + step + right_across_start<padded>(lane);
        now = now == ring ? ring + 2 * step : ring;
        const warp_sight warp_sees = warps_see[warp];
        if (warp_sees.misses(first, keys)) continue;

        // 2. Products of queries and keys.
        float scores[row_blocks][key_blocks][4] = {};
        add_lines_by_lines<T, padded>(scores, at_queries, at_keys);

        // 3. Scores. Those that a query does not see are -infinity.
        const bool is_whole = is_plain && warp_sees.has_all(first, keys);
        if (!is_whole) {
            const sight sees = kept_sees;
            const int query_of_lane = first_row + warp * warp_rows + lane / 4;
#pragma unroll
            for (int i = 0; i < row_blocks; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int query = query_of_lane + 16 * i + 8 * h;
                    const int from = sees.first_key(query), to = sees.last_key(query);
#pragma unroll
                    for (int j = 0; j < key_blocks; ++j)
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            float &score = scores[i][j][2 * h + e], slope;
                            const int key = first + 8 * j + lane % 4 * 2 + e;
                            const bool is_seen = key >= from && key < to;
                            if (is_plain) score = is_seen ? score : -INFINITY;
                            else score = is_seen ? rule.score(p, score, query, key, slope) : -INFINITY;
                        }
                }
        }

        // 4. What weights are about: it follows the largest score of a row once that is too far above.
        float before[row_blocks][2];
        bool has_risen = false;
#pragma unroll
        for (int i = 0; i < row_blocks; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float top = -INFINITY;
#pragma unroll
                for (int j = 0; j < key_blocks; ++j) top = max(top, max(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
                top = across_row<4>(top, [](float x, float y) { return max(x, y); }) * scale;
                before[i][h] = largest[i][h];
                const bool rises = top > largest[i][h] + slack;
                if (rises) largest[i][h] = top;
                has_risen |= rises;
            }
        if (__any_sync(~0u, has_risen)) {
#pragma unroll
            for (int i = 0; i < row_blocks; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    // Of a row that does not rise it is 1, also if it sees nothing so far.
                    const float factor = before[i][h] == largest[i][h] ? 1.0f : power_of_two(before[i][h] - largest[i][h]);
                    sum[i][h] *= factor;
#pragma unroll
                    for (int n = 0; n < result_blocks; ++n) results[i][n][2 * h] *= factor, results[i][n][2 * h + 1] *= factor;
                }
        }

        // 5. Weights, rounded to T.
        uint32_t weights[row_blocks][keys / 16][4];
#pragma unroll
        for (int i = 0; i < row_blocks; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float about = largest[i][h] == -INFINITY ? 0.0f : largest[i][h];
                float added = 0;
#pragma unroll
                for (int j = 0; j < key_blocks; ++j) {
                    const float *const pair = scores[i][j] + 2 * h;
                    const float one = power_of_two(pair[0] * scale - about), other = power_of_two(pair[1] * scale - about);
                    added += one + other;
                    word_of(weights, i, j, h) = pack_two<T>(one, other);
                }
                sum[i][h] += added;
            }

        // 6. Weights times values.
        add_weighted_lines<T, padded>(results, weights, at_values);
    }

    // 7. The outputs. Rows of y pass through the queries' place, of which a warp has a share to itself, and leave in chunks.
    copy_wait(0);
    __syncthreads(); // without tiles of keys the queries may still be on their way
    const int thread = int(not_ahead(threadIdx.x)), lane = thread & 31, warp = thread >> 5, warp_first = first_row + warp * warp_rows;
    float *const lse = static_cast<float *>(a.at.lse);
    const uint32_t to = queries + lines_bytes<padded, warp_rows> * warp;
#pragma unroll
    for (int i = 0; i < row_blocks; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int line = 16 * i + 8 * h + lane / 4, query = warp_first + line;
            const float total = across_row<4>(sum[i][h], [](float x, float y) { return x + y; });
            const bool is_empty = total == 0.0f; // values were multiplied by 0, and may be NaN
            const float inverse = 1.0f / total;
#pragma unroll
            for (int n = 0; n < result_blocks; ++n) {
                const float *const pair = results[i][n] + 2 * h;
                store_word(two_address<padded>(to, line, n, lane), is_empty ? 0 : pack_two<T>(pair[0] * inverse, pair[1] * inverse));
            }
            if (lse != nullptr && lane % 4 == 0 && query < int(p.queries))
                lse[block.sample * p.lse.sample + block.head * p.lse.head + query * p.lse.row] =
                    is_empty ? -INFINITY : largest[i][h] * ln_of_2 + logarithm_of(total);
        }
    T *const y = static_cast<T *>(a.at.y) + block.sample * p.y.sample + block.head * p.y.head;
    leave_lines<T, padded, warp_rows>(to, y, p.y.row, p.value_depth, warp_first, int(p.queries), lane);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_attention_params &p, const bops_attention_mma_choice &c,
                                                   const bops_attention_operands &o, void *, const Action &action) {
    return for_types<__half, __nv_bfloat16>(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return for_value<32, 64, 128, 256>(c.padded, [&](auto padded) {
            return for_flag(c.is_plain != 0, [&](auto is_plain) {
                using tile = mma_forward_tile<padded, is_plain>;
                constexpr int rows = warps * tile::row_blocks * 16;
                const uint64_t tiles = tiles_of(p.queries, rows);
                const launch_shape shape = shape_of(tiles * p.heads * p.samples, warps * 32, lines_bytes<padded, rows + 4 * tile::keys>);
                return action(attention_mma<T, padded, is_plain>, shape, mma_forward_arguments{p, o, uint32_t(tiles)});
            });
        });
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_mma, bops_dtype, bops_attention_params, bops_attention_mma_choice, bops_attention_operands,
                 bops::attention::with_kernel)
