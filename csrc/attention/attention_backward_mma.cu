// attention_backward_mma: the gradients of q, k and v on tensor cores of compute capability 8.0 and later, through mma.sync, by the formulas of backward.cuh. A
// block has a tile of queries and goes over keys, or the other way round; rows of weights stay within four lanes, as in attention_mma.
// Compiled once for all architectures.
#include "mma.cuh"

namespace bops {
namespace attention {
namespace {

// row_blocks: blocks of 16 rows that a warp has. columns: of a tile.
// Registers hold, of each row, `padded` sums of the gradient of q, or twice as many of those of k and v; a weight for each column; and as many products of dy
// and v. Where scores are not plain a slope comes to each weight, and tiles are smaller.
template <int padded, bool is_keys, bool is_plain> struct mma_backward_tile;
template <bool is_plain> struct mma_backward_tile<32, false, is_plain> { static constexpr int row_blocks = 2, columns = is_plain ? 64 : 32; };
template <bool is_plain> struct mma_backward_tile<64, false, is_plain> { static constexpr int row_blocks = 2, columns = is_plain ? 64 : 32; };
template <bool is_plain> struct mma_backward_tile<128, false, is_plain> { static constexpr int row_blocks = is_plain ? 2 : 1, columns = 32; };
template <bool is_plain> struct mma_backward_tile<32, true, is_plain> { static constexpr int row_blocks = 2, columns = 32; };
template <bool is_plain> struct mma_backward_tile<64, true, is_plain> { static constexpr int row_blocks = is_plain ? 2 : 1, columns = 32; };
template <bool is_plain> struct mma_backward_tile<128, true, is_plain> { static constexpr int row_blocks = 1, columns = is_plain ? 64 : 32; };

constexpr int warps = 4, blocks = 2;          // warps of a block, and blocks that an SM has room for, so that a thread has up to 255 registers
constexpr int delta_lanes = 8;                // that share a query in the first launch
constexpr int delta_rows = 128 / delta_lanes; // queries of a block

// What a query's weights follow from: 2^(score - logarithm), where scores and the logarithm of the sum are exponents of two, and the sum of dy y.
struct alignas(8) query_sums {
    float logarithm, delta;
};

struct mma_backward_arguments {
    bops_attention_backward_params of;
    bops_attention_backward_operands at;
    query_sums *sums; // of each query, [samples, heads, queries]
    uint32_t tiles;
};

// A query that sees no key has no logarithm; with this one all of its weights are 0.
constexpr float no_logarithm = INFINITY;

template <typename T> __global__ void __launch_bounds__(delta_rows *delta_lanes)
    attention_backward_mma_delta(const __grid_constant__ mma_backward_arguments a) {
    const bops_attention_params &p = a.of.of;
    const uint64_t number = blockIdx.x * uint64_t(delta_rows) + threadIdx.x / delta_lanes;
    const bool is_there = number < uint64_t(p.samples) * p.heads * p.queries;
    const uint64_t query = number % p.queries, head = number / p.queries % p.heads, sample = number / p.queries / p.heads;
    float sum = 0;
    if (is_there) {
        const T *const y = static_cast<const T *>(a.at.y) + sample * p.y.sample + head * p.y.head + query * p.y.row;
        const T *const dy = static_cast<const T *>(a.at.dy) + sample * a.of.dy.sample + head * a.of.dy.head + query * a.of.dy.row;
        for (uint32_t column = threadIdx.x % delta_lanes * 8; column < p.value_depth; column += delta_lanes * 8) {
            float left[8], right[8];
            unpack<T, 16>(load<16>(y + column), left), unpack<T, 16>(load<16, false>(dy + column), right);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum += left[i] * right[i];
        }
    }
    sum = across_row<delta_lanes>(sum, [](float x, float y) { return x + y; });
    if (!is_there || threadIdx.x % delta_lanes != 0) return;
    const float lse = static_cast<const float *>(a.at.lse)[sample * p.lse.sample + head * p.lse.head + query * p.lse.row];
    const bool is_empty = lse == -INFINITY;
    // An infinity of another meaning leaves no number behind.
    a.sums[number] = {is_empty ? no_logarithm : lse == INFINITY ? NAN : lse * log2_of_e, is_empty ? 0.0f : sum};
}

// Makes scores of products; those of keys that a query does not see are -infinity. row, column: of the lane's first score; with is_keys rows are keys. slopes:
// of the soft cap.
template <bool is_keys, bool is_plain, int row_blocks, int column_blocks>
__device__ __forceinline__ void find_scores(float (&scores)[row_blocks][column_blocks][4], const bops_attention_params &p, const sight &sees,
                                            const score_rule<float> &rule, int row, int column,
                                            float (&slopes)[is_plain ? 1 : row_blocks * column_blocks * 4]) {
#pragma unroll
    for (int i = 0; i < row_blocks; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int of_row = row + 16 * i + 8 * h;
            const int from = is_keys ? sees.first_query(of_row) : sees.first_key(of_row),
                      to = is_keys ? sees.last_query(of_row) : sees.last_key(of_row);
#pragma unroll
            for (int j = 0; j < column_blocks; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float &score = scores[i][j][2 * h + e];
                    const int of_column = column + 8 * j + e;
                    const bool is_seen = of_column >= from && of_column < to;
                    if constexpr (is_plain) score = is_seen ? score : -INFINITY;
                    else {
                        float &slope = slopes[(i * column_blocks + j) * 4 + 2 * h + e];
                        slope = 0;
                        score = is_seen ? rule.score(p, score, is_keys ? of_column : of_row, is_keys ? of_row : of_column, slope) : -INFINITY;
                    }
                }
        }
}

// Writes the gradient of a warp's rows, of which those that do not count are 0, through the lines at `to`.
template <typename T, int padded, int row_blocks, typename Counts>
__device__ __forceinline__ void leave_gradient(const float (&sums)[row_blocks][padded / 8][4], uint32_t to, void *base,
                                               const bops_attention_gradient &g, uint64_t sample, uint64_t head, uint32_t depth, int first, int rows,
                                               int lane, float scale, const Counts &counts) {
    if (base == nullptr) return;
    T *const out = static_cast<T *>(base) + sample * g.strides.sample + head * g.strides.head;
    const float beta = float(g.beta);
    __syncwarp();
    if (beta != 0) bring_lines<T, padded, row_blocks * 16>(to, out, g.strides.row, depth, first, rows, lane);
#pragma unroll
    for (int i = 0; i < row_blocks; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int line = not_ahead(16 * i + 8 * h + lane / 4), row = first + line;
            const bool does_count = row < rows && counts(row);
#pragma unroll
            for (int n = 0; n < padded / 8; ++n) {
                const uint32_t at = two_address<padded>(to, line, n, lane);
                float one = does_count ? sums[i][n][2 * h] * scale : 0.0f, other = does_count ? sums[i][n][2 * h + 1] * scale : 0.0f;
                if (beta != 0) {
                    const float2 before = unpack_two<T>(gemm::load_word(at));
                    one += beta * before.x, other += beta * before.y;
                }
                store_word(at, pack_two<T>(one, other));
            }
        }
    leave_lines<T, padded, row_blocks * 16>(to, out, g.strides.row, depth, first, rows, lane);
}

// dq: a tile of queries to a block.
template <typename T, int padded, bool is_plain> __global__ void __launch_bounds__(warps * 32, blocks)
    attention_backward_mma_queries(const __grid_constant__ mma_backward_arguments a) {
    using tile = mma_backward_tile<padded, false, is_plain>;
    constexpr int threads = warps * 32, row_blocks = tile::row_blocks, warp_rows = row_blocks * 16, rows = warps * warp_rows;
    constexpr int keys = tile::columns, key_blocks = keys / 8;
    constexpr uint32_t step = lines_bytes<padded, keys>, resident = lines_bytes<padded, rows>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t queries = shared_address(shared), ring = queries + 2 * resident;
    const bops_attention_params &p = a.of.of;
    const place_of_block block(a.tiles, p.heads);
    const uint32_t kv_head = block.head / p.shared_by;
    const sight sees(p, a.at.lengths, block.sample);
    const int first_row = int(block.tile) * rows, last_row = min(first_row + rows, int(p.queries)) - 1;

    // 1. The rows of q and dy, and the tiles of keys that one of them sees.
    const char *const k = matrix_of(a.at.k, p.k, block.sample, kv_head, 2, true).base;
    const char *const v = matrix_of(a.at.v, p.v, block.sample, kv_head, 2, true).base;
    copy_lines<padded, threads, rows>(queries, matrix_of(a.at.q, p.q, block.sample, block.head, 2, true).base, p.q.row * 2, p.depth, first_row,
                                      int(p.queries) - first_row);
    copy_lines<padded, threads, rows>(queries + resident, matrix_of(a.at.dy, a.of.dy, block.sample, block.head, 2, true).base, a.of.dy.row * 2,
                                      p.value_depth, first_row, int(p.queries) - first_row);
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
    __shared__ query_sums kept_sums[rows];
    if (threadIdx.x == 0) kept_sees = sees, kept_end = keys_end;
    if (threadIdx.x < warps) {
        const int warp_first = first_row + int(threadIdx.x) * warp_rows, warp_last = min(warp_first + warp_rows, int(p.queries)) - 1;
        warps_see[threadIdx.x] = {sees.first_key(warp_first), sees.last_key(warp_last), sees.first_key(warp_last), sees.last_key(warp_first)};
    }
    for (int row = int(threadIdx.x); row < rows; row += threads)
        kept_sums[row] = first_row + row < int(p.queries)
                             ? a.sums[(uint64_t(block.sample) * p.heads + block.head) * p.queries + uint32_t(first_row + row)]
                             : query_sums{no_logarithm, 0.0f};
    const uint32_t query_start = queries + lines_bytes<padded, warp_rows> * (threadIdx.x / 32) + left_start<padded>(int(threadIdx.x) % 32);
    const score_rule<float> rule(p, a.at.bias, block.sample, block.head);
    const float scale = is_plain ? float(p.scale * 1.44269504088896340736) : log2_of_e; // from scores to exponents of two
    float sums[row_blocks][padded / 8][4] = {};

#pragma unroll 1
    for (bool has_tiles = first < keys_end; has_tiles; first += keys, has_tiles = first < kept_end) {
        copy_wait(0);
        __syncthreads(); // all copies of this tile have arrived, and no warp reads the place that is filled next
        fetch(now == ring ? ring + 2 * step : ring, first + keys, kept_end, kept_sees.length);
        const int thread = int(not_ahead(threadIdx.x)), lane = thread & 31, warp = thread >> 5;
        const uint32_t at_queries = not_ahead(query_start), at = now;
        now = now == ring ? ring + 2 * step : ring;
        const warp_sight warp_sees = warps_see[warp];
        if (warp_sees.misses(first, keys)) continue;

        // 2. Products of queries and keys, and weights from them.
        float weights[row_blocks][key_blocks][4] = {};
        add_lines_by_lines<T, padded>(weights, at_queries, at + right_start<padded>(lane));
        const bool is_whole = is_plain && warp_sees.has_all(first, keys);
        float slopes[is_plain ? 1 : row_blocks * key_blocks * 4];
        if (!is_whole)
            find_scores<false, is_plain>(weights, p, kept_sees, rule, first_row + warp * warp_rows + lane / 4, first + lane % 4 * 2, slopes);
        const query_sums *const of_warp = kept_sums + warp * warp_rows + lane / 4;
#pragma unroll
        for (int i = 0; i < row_blocks; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float logarithm = of_warp[16 * i + 8 * h].logarithm;
#pragma unroll
                for (int j = 0; j < key_blocks; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float &weight = weights[i][j][2 * h + e];
                        weight = power_of_two(weight * scale - logarithm);
                        if (!is_plain) weight *= slopes[(i * key_blocks + j) * 4 + 2 * h + e];
                    }
            }

        // 3. Products of dy and v, and what the scores receive, rounded to T.
        float products[row_blocks][key_blocks][4] = {};
        add_lines_by_lines<T, padded>(products, at_queries + resident, at + step + right_start<padded>(lane));
        uint32_t received[row_blocks][keys / 16][4];
#pragma unroll
        for (int i = 0; i < row_blocks; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float delta = of_warp[16 * i + 8 * h].delta;
#pragma unroll
                for (int j = 0; j < key_blocks; ++j) {
                    float pair[2];
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const float weight = weights[i][j][2 * h + e];
                        pair[e] = weight * (products[i][j][2 * h + e] - delta);
                        if (!is_whole) pair[e] = weight == 0 ? 0.0f : pair[e]; // hidden, whatever dy and v hold
                    }
                    word_of(received, i, j, h) = pack_two<T>(pair[0], pair[1]);
                }
            }

        // 4. Those times keys.
        add_weighted_lines<T, padded>(sums, received, at + right_across_start<padded>(lane));
    }

    // 5. The gradient passes through the queries' place, of which a warp has a share to itself.
    copy_wait(0);
    __syncthreads(); // without tiles of keys the queries may still be on their way
    const int thread = int(not_ahead(threadIdx.x)), lane = thread & 31, warp = thread >> 5;
    leave_gradient<T, padded>(sums, queries + lines_bytes<padded, warp_rows> * warp, a.at.dq, a.of.dq, block.sample, block.head, p.depth,
                              first_row + warp * warp_rows, int(p.queries), lane, float(p.scale),
                              [&](int row) { return kept_sums[row - first_row].logarithm != no_logarithm; });
}

// The queries of the first of the heads that share keys.
struct shared_queries {
    const char *q, *dy;
    const query_sums *sums;
};

// dk and dv: a tile of keys to a block, which goes over the queries of all heads that share it.
template <typename T, int padded, bool is_plain> __global__ void __launch_bounds__(warps * 32, blocks)
    attention_backward_mma_keys(const __grid_constant__ mma_backward_arguments a) {
    using tile = mma_backward_tile<padded, true, is_plain>;
    constexpr int threads = warps * 32, row_blocks = tile::row_blocks, warp_rows = row_blocks * 16, rows = warps * warp_rows;
    constexpr int queries = tile::columns, query_blocks = queries / 8;
    constexpr uint32_t step = lines_bytes<padded, queries>, resident = lines_bytes<padded, rows>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t keys = shared_address(shared), ring = keys + 2 * resident, ring_sums = ring + 4 * step;
    const bops_attention_params &p = a.of.of;
    place_of_block block(a.tiles, p.kv_heads);
    block.tile = a.tiles - 1 - block.tile; // under a causal mask the first tile has the most queries
    const sight sees(p, a.at.lengths, block.sample);
    const int first_row = int(block.tile) * rows, last_row = min(first_row + rows, sees.length) - 1;

    // 1. The rows of k and v, and the tiles of queries that see one of them.
    copy_lines<padded, threads, rows>(keys, matrix_of(a.at.k, p.k, block.sample, block.head, 2, true).base, p.k.row * 2, p.depth, first_row,
                                      sees.length - first_row);
    copy_lines<padded, threads, rows>(keys + resident, matrix_of(a.at.v, p.v, block.sample, block.head, 2, true).base, p.v.row * 2, p.value_depth,
                                      first_row, sees.length - first_row);
    const int start = sees.first_query(first_row) / queries * queries, end = last_row < first_row ? 0 : sees.last_query(last_row);
    const uint64_t first_head = uint64_t(block.head) * p.shared_by;
    const shared_queries of_first = {matrix_of(a.at.q, p.q, block.sample, first_head, 2, true).base,
                                     matrix_of(a.at.dy, a.of.dy, block.sample, first_head, 2, true).base,
                                     a.sums + (block.sample * uint64_t(p.heads) + first_head) * p.queries};
    const auto fetch = [&](uint32_t place, const shared_queries &of, uint32_t head, int from) {
        const int left = int(p.queries) - from;
        const uint32_t to = ring + place * 2 * step;
        copy_lines<padded, threads, queries>(to, of.q + head * p.q.head * 2, p.q.row * 2, p.depth, from, left);
        copy_lines<padded, threads, queries>(to + step, of.dy + head * a.of.dy.head * 2, a.of.dy.row * 2, p.value_depth, from, left);
        const int row = int(not_ahead(threadIdx.x));
        if (row < queries) {
            const query_sums *const at = of.sums + uint64_t(head) * p.queries;
            gemm::copy_or_zero<8>(ring_sums + (place * queries + row) * uint32_t(sizeof(query_sums)), row < left ? at + from + row : at,
                                  row < left ? 8 : 0);
        }
    };
    const bool has_tiles = start < end && p.shared_by > 0;
    if (has_tiles) fetch(0, of_first, 0, start);
    copy_commit();

    // What is looked up once for a tile is kept in shared memory, since the sums take nearly all registers.
    __shared__ sight kept_sees;
    __shared__ shared_queries kept_queries;
    __shared__ int kept_start, kept_end;
    __shared__ warp_sight warps_see[warps];
    if (threadIdx.x == 0) kept_sees = sees, kept_queries = of_first, kept_start = start, kept_end = end;
    if (threadIdx.x < warps) {
        const int warp_first = first_row + int(threadIdx.x) * warp_rows, warp_last = min(warp_first + warp_rows, sees.length) - 1;
        warps_see[threadIdx.x] = {sees.first_query(warp_first), sees.last_query(warp_last), sees.first_query(warp_last), sees.last_query(warp_first)};
    }
    const uint32_t key_start = keys + lines_bytes<padded, warp_rows> * (threadIdx.x / 32) + left_start<padded>(int(threadIdx.x) % 32);
    const float scale = is_plain ? float(p.scale * 1.44269504088896340736) : log2_of_e; // from scores to exponents of two
    float of_keys[row_blocks][padded / 8][4] = {}, of_values[row_blocks][padded / 8][4] = {};

    uint32_t now = 0, head = 0;
    int first = start;
#pragma unroll 1
    for (bool has_more = has_tiles; has_more;) {
        copy_wait(0);
        __syncthreads(); // all copies of this tile have arrived, and no warp reads the place that is filled next
        const int of_tile = first;
        const uint32_t of_head = head, at = ring + now * 2 * step;
        const query_sums *const sums = reinterpret_cast<const query_sums *>(shared + (ring_sums - keys)) + now * queries;
        first += queries;
        if (first >= kept_end) first = kept_start, ++head;
        has_more = head < p.shared_by;
        now ^= 1;
        if (has_more) fetch(now, kept_queries, head, first);
        copy_commit();
        const int thread = int(not_ahead(threadIdx.x)), lane = thread & 31, warp = thread >> 5;
        // Weights of queries that see no key are 0; what they are multiplied by has to be as well.
        bool has_empty = sums[lane].logarithm == no_logarithm;
        if (queries > 32) has_empty |= sums[queries - 32 + lane].logarithm == no_logarithm;
        if (__any_sync(~0u, has_empty)) {
            constexpr int chunks = padded / 8;
            for (int n = thread; n < queries * chunks; n += threads)
                if (sums[n / chunks].logarithm == no_logarithm) {
                    const uint32_t zeros[4] = {};
                    gemm::store_chunk(at + chunk_address<padded>(n / chunks, n % chunks), zeros);
                    gemm::store_chunk(at + step + chunk_address<padded>(n / chunks, n % chunks), zeros);
                }
            __syncthreads();
        }
        const uint32_t at_keys = not_ahead(key_start);
        const warp_sight warp_sees = warps_see[warp];
        if (warp_sees.misses(of_tile, queries)) continue;

        // 2. Products of keys and queries, and weights from them, rounded to T for the product with dy.
        float weights[row_blocks][query_blocks][4] = {};
        add_lines_by_lines<T, padded>(weights, at_keys, at + right_start<padded>(lane));
        const bool is_whole = is_plain && warp_sees.has_all(of_tile, queries);
        float slopes[is_plain ? 1 : row_blocks * query_blocks * 4];
        if (!is_whole) {
            const score_rule<float> rule(p, a.at.bias, block.sample, first_head + of_head);
            find_scores<true, is_plain>(weights, p, kept_sees, rule, first_row + warp * warp_rows + lane / 4, of_tile + lane % 4 * 2, slopes);
        }
        uint32_t rounded[row_blocks][queries / 16][4];
#pragma unroll
        for (int j = 0; j < query_blocks; ++j) {
            const float logarithm[2] = {sums[8 * j + lane % 4 * 2].logarithm, sums[8 * j + lane % 4 * 2 + 1].logarithm};
#pragma unroll
            for (int i = 0; i < row_blocks; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float *const pair = weights[i][j] + 2 * h;
#pragma unroll
                    for (int e = 0; e < 2; ++e) pair[e] = power_of_two(pair[e] * scale - logarithm[e]);
                    word_of(rounded, i, j, h) = pack_two<T>(pair[0], pair[1]);
                    if (!is_plain)
#pragma unroll
                        for (int e = 0; e < 2; ++e) pair[e] *= slopes[(i * query_blocks + j) * 4 + 2 * h + e];
                }
        }
        add_weighted_lines<T, padded>(of_values, rounded, at + step + right_across_start<padded>(lane));

        // 3. Products of v and dy, and what the scores receive, rounded to T for the product with q.
        float products[row_blocks][query_blocks][4] = {};
        add_lines_by_lines<T, padded>(products, at_keys + resident, at + step + right_start<padded>(lane));
#pragma unroll
        for (int j = 0; j < query_blocks; ++j) {
            const float delta[2] = {sums[8 * j + lane % 4 * 2].delta, sums[8 * j + lane % 4 * 2 + 1].delta};
#pragma unroll
            for (int i = 0; i < row_blocks; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float pair[2];
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const float weight = weights[i][j][2 * h + e];
                        pair[e] = weight * (products[i][j][2 * h + e] - delta[e]);
                        if (!is_whole) pair[e] = weight == 0 ? 0.0f : pair[e]; // hidden, whatever dy and v hold
                    }
                    word_of(rounded, i, j, h) = pack_two<T>(pair[0], pair[1]);
                }
        }
        add_weighted_lines<T, padded>(of_keys, rounded, at + right_across_start<padded>(lane));
    }

    // 4. The gradients pass through the place of keys and values, of which a warp has a share to itself.
    copy_wait(0);
    __syncthreads(); // without tiles of queries the keys may still be on their way
    const int thread = int(not_ahead(threadIdx.x)), lane = thread & 31, warp = thread >> 5, warp_first = first_row + warp * warp_rows;
    const uint32_t to = keys + lines_bytes<padded, warp_rows> * warp;
    const int length = kept_sees.length;
    const auto counts = [&](int row) { return row < length; };
    leave_gradient<T, padded>(of_keys, to, a.at.dk, a.of.dk, block.sample, block.head, p.depth, warp_first, int(p.keys), lane, float(p.scale),
                              counts);
    leave_gradient<T, padded>(of_values, to + resident, a.at.dv, a.of.dv, block.sample, block.head, p.value_depth, warp_first, int(p.keys), lane,
                              1.0f, counts);
}

// ---- host -----------------------------------------------------------------------------------------------------------------

mma_backward_arguments arguments_of(const bops_attention_backward_params &p, const bops_attention_backward_operands &o, void *workspace,
                                    uint64_t tiles) {
    return {p, o, static_cast<query_sums *>(workspace), uint32_t(tiles)};
}

template <typename F> bops_status for_half(bops_dtype dtype, const F &f) { return for_types<__half, __nv_bfloat16>(dtype, f); }

template <typename Action> bops_status with_delta(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_mma_choice &,
                                                  const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_half(dtype, [&](auto tag) {
        const uint64_t rows = uint64_t(p.of.samples) * p.of.heads * p.of.queries;
        return action(attention_backward_mma_delta<typename decltype(tag)::type>, shape_of(tiles_of(rows, delta_rows), delta_rows * delta_lanes, 0),
                      arguments_of(p, o, workspace, 0));
    });
}

// Calls f(type_tag<T>, padded, is_plain).
template <typename F> bops_status for_kernel(bops_dtype dtype, const bops_attention_mma_choice &c, const F &f) {
    return for_half(dtype, [&](auto tag) {
        return for_value<32, 64, 128>(
            c.padded, [&](auto padded) { return for_flag(c.is_plain != 0, [&](auto is_plain) { return f(tag, padded, is_plain); }); });
    });
}

template <typename Action> bops_status with_queries(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_mma_choice &c,
                                                    const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_kernel(dtype, c, [&](auto tag, auto padded, auto is_plain) {
        using tile = mma_backward_tile<padded, false, is_plain>;
        constexpr int rows = warps * tile::row_blocks * 16;
        const uint64_t tiles = tiles_of(p.of.queries, rows);
        return action(attention_backward_mma_queries<typename decltype(tag)::type, padded, is_plain>,
                      shape_of(tiles * p.of.heads * p.of.samples, warps * 32, lines_bytes<padded, 2 * rows + 4 * tile::columns>),
                      arguments_of(p, o, workspace, tiles));
    });
}

template <typename Action> bops_status with_keys(bops_dtype dtype, const bops_attention_backward_params &p, const bops_attention_mma_choice &c,
                                                 const bops_attention_backward_operands &o, void *workspace, const Action &action) {
    return for_kernel(dtype, c, [&](auto tag, auto padded, auto is_plain) {
        using tile = mma_backward_tile<padded, true, is_plain>;
        constexpr int rows = warps * tile::row_blocks * 16;
        const uint64_t tiles = tiles_of(p.of.keys, rows);
        return action(attention_backward_mma_keys<typename decltype(tag)::type, padded, is_plain>,
                      shape_of(tiles * p.of.kv_heads * p.of.samples, warps * 32,
                               lines_bytes<padded, 2 * rows + 4 * tile::columns> + 2 * tile::columns * sizeof(query_sums)),
                      arguments_of(p, o, workspace, tiles));
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_backward_mma_delta, bops_dtype, bops_attention_backward_params, bops_attention_mma_choice,
                 bops_attention_backward_operands, bops::attention::with_delta)
BOPS_DEFINE_FORM(bops_attention_backward_mma_queries, bops_dtype, bops_attention_backward_params, bops_attention_mma_choice,
                 bops_attention_backward_operands, bops::attention::with_queries)
BOPS_DEFINE_FORM(bops_attention_backward_mma_keys, bops_dtype, bops_attention_backward_params, bops_attention_mma_choice,
                 bops_attention_backward_operands, bops::attention::with_keys)
