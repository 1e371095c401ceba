// attention_split_mma: attention of few queries on tensor cores of compute capability 8.0 and later. As in attention_split a block takes the queries of all heads
// that share a head of keys through one part of the keys. Its warps take turns at tiles of the part, each with a ring of tiles and a softmax of its own, so that a
// warp waits for memory alone, and not for others; at the end of the part they are merged in their order.
// Compiled once for all architectures.
#include "mma.cuh"
#include "split.cuh"

namespace bops {
namespace attention {
namespace {

constexpr int warps = 4, threads = warps * 32, rows = 16; // of a block; rows: those of a product
constexpr float slack = 8;                                // powers of two by which weights may exceed 1 before sums are scaled down

// keys: of a tile, whose keys and whose values are a slot of the ring each. blocks: that an SM has room for.
template <int padded> struct split_mma_tile {
    static constexpr int keys = padded == 64 ? 32 : 16, slots = padded == 256 ? 2 : 5, blocks = 2;
    static constexpr uint32_t slot_bytes = lines_bytes<padded, keys>, ring_bytes = slots * slot_bytes;
};

struct split_mma_arguments {
    split_arguments split;
    uint32_t is_plain; // scores are products times a positive scale
};

// Copies tiles of a warp to its ring. What is not there, or in no page, becomes 0.
template <int padded, int keys> struct tile_carrier {
    static constexpr int chunks = padded / 8, together = 32 / chunks;   // chunks of a line, and lines that a warp copies together
    static constexpr int repeat = together % 8 == 0 ? 1 : 8 / together; // groups of lines after which chunks are in the same order again
    static_assert(keys <= 32 && keys % together == 0 && keys / together % repeat == 0, "a lane looks a line up, and every line is copied");
    const char *from; // the lane's chunk of its first line of key 0
    uint64_t row_bytes;
    uint32_t place[repeat];    // where the lane's chunk of each group of lines lies in a tile, without the groups before it
    bool has_chunk, is_simple; // is_simple: a tile is lines of `padded` columns that follow one another

    __device__ __forceinline__ tile_carrier(const paged_matrix &of, uint32_t depth, int lane) {
        const int chunk = lane % chunks;
        has_chunk = chunk * 8 < int(depth), is_simple = of.page == 0 && depth == padded, row_bytes = of.row * 2;
        from = of.base + uint64_t(lane / chunks) * row_bytes + chunk * 16;
#pragma unroll
        for (int i = 0; i < repeat; ++i) place[i] = chunk_address<padded>(i * together + lane / chunks, chunk) - lines_bytes<padded, together> * i;
    }

    // Starts the copies of keys from `first` on: those from `begin` on and without `end`. Returns which of them are there, a bit each.
    __device__ __forceinline__ uint32_t copy(uint32_t to, const paged_matrix &of, int first, int begin, int end, int lane) const {
        if (is_simple && first >= begin && first + keys <= end) {
            const char *at = from + uint64_t(uint32_t(first)) * row_bytes;
#pragma unroll
            for (int i = 0; i < keys / together; ++i) {
                copy_async<16>(to + place[i % repeat] + lines_bytes<padded, together> * i, at);
                at += together * row_bytes;
            }
            return keys == 32 ? ~0u : (1u << keys) - 1;
        }
        uint64_t row = 0;
        const int key = first + lane;
        const bool is_there = lane < keys && key >= begin && key < end && of.find(uint32_t(key), row);
        const uint32_t there = __ballot_sync(~0u, is_there);
#pragma unroll
        for (int i = 0; i < keys / together; ++i) {
            const int line = i * together + lane / chunks;
            const uint64_t start = __shfl_sync(~0u, (unsigned long long)row, line);
            const bool copies = (there >> line & 1) != 0 && has_chunk;
            const char *const at = of.base + (start + lane % chunks * 8) * 2;
            gemm::copy_or_zero<16>(to + place[i % repeat] + lines_bytes<padded, together> * i, copies ? at : of.base, copies ? 16 : 0);
        }
        return there;
    }
};

template <typename T, int padded> __global__ void __launch_bounds__(threads, split_mma_tile<padded>::blocks)
    attention_split_mma(const __grid_constant__ split_mma_arguments arguments) {
    using tile = split_mma_tile<padded>;
    constexpr int keys = tile::keys, key_blocks = keys / 8, result_blocks = padded / 8, slots = tile::slots;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ uint32_t head[rows], query[rows];
    __shared__ uint32_t there[warps][4]; // keys of a tile that are there, a bit each: of the one that is used, and of two that are on their way
    __shared__ float largest_of[warps][rows], total_of[warps][rows];

    // 1. The rows of the block, which are queries of heads that share a head of keys, and the keys of its part that one of them sees.
    const split_arguments &a = arguments.split;
    const bops_attention_params &p = a.of;
    const share_of_block share(a, rows, warps * keys);
    const sight &sees = share.sees;
    const uint32_t sample = share.sample, kv_head = share.kv_head;
    const int count = share.count, begin = share.begin, end = share.end, thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32;
    float *const of_parts = statistics<float>(a);
    if (begin >= end) {
        if (a.parts == 1) {
#pragma unroll 1
            for (int at = thread; at < count * padded / 4; at += threads) {
                const int row = at / (padded / 4), column = at % (padded / 4) * 4;
                if (column < int(a.width)) write_row<true>(a, sample, share.head(row), share.query(row), column, -INFINITY, 0.0f, four<float>{});
            }
        } else if (thread < count) {
            const uint64_t at = ((share.first_of_rows(a, rows) + thread) * a.parts + share.part(a)) * 2;
            of_parts[at] = -INFINITY, of_parts[at + 1] = 0;
        }
        return;
    }

    // 2. A warp has every fourth tile. Tiles of keys and of values take turns in its ring.
    const paged_matrix k = keys_of<true>(a.at.k, p.k, p, a.at.pages, sample, kv_head, 2, true);
    const paged_matrix v = keys_of<true>(a.at.v, p.v, p, a.at.pages, sample, kv_head, 2, true);
    const uint32_t queries = shared_address(shared), ring = queries + lines_bytes<padded, rows> + uint32_t(warp) * tile::ring_bytes;
    const tile_carrier<padded, keys> of_keys(k, p.depth, lane), of_values(v, p.value_depth, lane);
    const int first = begin / keys * keys + warp * keys;
    int filled = 0, fill_slot = 0;
    const auto fill = [&] {
        const int at = first + filled / 2 * warps * keys;
        if (at < end) {
            const uint32_t to = ring + uint32_t(fill_slot) * tile::slot_bytes;
            if (filled % 2 == 0) {
                const uint32_t of_tile = of_keys.copy(to, k, at, begin, end, lane);
                if (lane == 0) there[warp][filled / 2 % 4] = of_tile;
            } else {
                of_values.copy(to, v, at, begin, end, lane);
            }
        }
        copy_commit();
        ++filled, fill_slot = fill_slot + 1 == slots ? 0 : fill_slot + 1;
    };
#pragma unroll 1
    for (int i = 0; i < slots - 1; ++i) fill();
    if (thread < rows) {
        const int row = min(thread, count - 1);
        head[thread] = share.head(row), query[thread] = share.query(row);
    }
    __syncthreads();
#pragma unroll 1
    for (int at = thread; at < rows * padded / 2; at += threads) {
        const int row = at / (padded / 2), column = at % (padded / 2) * 2;
        const uint16_t *const q = static_cast<const uint16_t *>(a.at.q) + sample * p.q.sample + head[row] * p.q.head + query[row] * p.q.row;
        uint32_t word = 0;
        if (row < count && column < int(p.depth)) word = q[column * p.q.column];
        if (row < count && column + 1 < int(p.depth)) word |= uint32_t(q[(column + 1) * p.q.column]) << 16;
        store_word(queries + chunk_address<padded>(row, column / 8) + column % 8 * 2, word);
    }
    __syncthreads();

    const bool is_plain = arguments.is_plain != 0;
    const float scale = is_plain ? float(p.scale * 1.44269504088896340736) : log2_of_e; // from scores to exponents of two
    const uint32_t query_start = queries + left_start<padded>(lane);
    // The keys that the lane's rows see, and those that all rows of the block see.
    int from_key[2], to_key[2], all_from = begin, all_to = end;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int of_row = int(query[lane / 4 + 8 * h]);
        from_key[h] = sees.first_key(of_row), to_key[h] = sees.last_key(of_row);
        all_from = max(all_from, from_key[h]), all_to = min(all_to, to_key[h]);
    }
    all_from = across_row<32>(all_from, [](int x, int y) { return max(x, y); }),
    all_to = across_row<32>(all_to, [](int x, int y) { return min(x, y); });
    constexpr uint32_t every_key = keys == 32 ? ~0u : (1u << keys) - 1;
    float results[1][result_blocks][4] = {};
    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}; // of rows lane / 4 and lane / 4 + 8; largest: an exponent that weights are about
    int used = 0, use_slot = 0;
    const auto use = [&] {
        // What was read last is free to be filled once all lanes are here.
        copy_wait(slots - 2);
        __syncwarp();
        fill();
        const uint32_t slot = ring + uint32_t(use_slot) * tile::slot_bytes;
        use_slot = use_slot + 1 == slots ? 0 : use_slot + 1;
        return slot;
    };
#pragma unroll 1
    for (int at = first; at < end; at += warps * keys, ++used) {
        // 3. Products of queries and keys.
        float scores[1][key_blocks][4] = {};
        const uint32_t at_keys = use();
        add_lines_by_lines<T, padded>(scores, query_start, at_keys + right_start<padded>(lane));

        // 4. Scores, those of keys that a row does not see are -infinity; what weights are about, which follows the largest score of a row once that is too far above;
        // and weights, rounded to T.
        const uint32_t there_now = there[warp][used % 4];
        const bool is_whole = is_plain && there_now == every_key && at >= all_from && at + keys <= all_to;
        float factor[2] = {1, 1};
        uint32_t weights[1][keys / 16][4] = {};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (8 * h >= count) continue;
            if (!is_whole) {
                const int row = lane / 4 + 8 * h;
                const score_rule<float> rule(p, a.at.bias, sample, head[row]);
#pragma unroll
                for (int j = 0; j < key_blocks; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float &score = scores[0][j][2 * h + e], slope;
                        const int line = 8 * j + lane % 4 * 2 + e, key = at + line;
                        const bool is_seen = (there_now >> line & 1) != 0 && key >= from_key[h] && key < to_key[h];
                        if (!is_seen) score = -INFINITY;
                        else if (!is_plain) score = rule.score(p, score, query[row], uint32_t(key), slope);
                    }
            }
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < key_blocks; ++j) top = max(top, max(scores[0][j][2 * h], scores[0][j][2 * h + 1]));
            top = across_row<4>(top, [](float x, float y) { return max(x, y); }) * scale;
            if (top > largest[h] + slack) factor[h] = power_of_two(largest[h] - top), largest[h] = top;
            // A row that sees nothing so far has no largest score.
            const float about = largest[h] == -INFINITY ? 0.0f : largest[h];
            float added = 0;
#pragma unroll
            for (int j = 0; j < key_blocks; ++j) {
                const float *const pair = scores[0][j] + 2 * h;
                const float one = power_of_two(pair[0] * scale - about), other = power_of_two(pair[1] * scale - about);
                added += one + other;
                word_of(weights, 0, j, h) = pack_two<T>(one, other);
            }
            sum[h] = sum[h] * factor[h] + added;
        }
        if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
            for (int n = 0; n < result_blocks; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) results[0][n][i] *= factor[i / 2];
        }

        // 5. Weights times values.
        const uint32_t at_values = use();
        add_weighted_lines<T, padded>(results, weights, at_values + right_across_start<padded>(lane));
    }

    // 6. The sums of the warps, merged in their order in the place of the tiles.
    copy_wait(0);
    __syncthreads();
    float *const sums = reinterpret_cast<float *>(shared + lines_bytes<padded, rows>);
    static_assert(uint32_t(rows * padded) * sizeof(float) <= tile::ring_bytes, "sums of a warp fit");
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = lane / 4 + 8 * h;
        const float total = across_row<4>(sum[h], [](float x, float y) { return x + y; });
        if (lane % 4 == 0) largest_of[warp][row] = largest[h], total_of[warp][row] = total;
#pragma unroll
        for (int n = 0; n < result_blocks; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) sums[(warp * rows + row) * padded + n * 8 + lane % 4 * 2 + e] = results[0][n][2 * h + e];
    }
    __syncthreads();
    const uint64_t first_of_rows = share.first_of_rows(a, rows);
    float *const to = static_cast<float *>(a.workspace) + (first_of_rows * a.parts + share.part(a)) * a.width;
#pragma unroll 1
    for (int at = thread; at < count * padded / 4; at += threads) {
        const int row = at / (padded / 4), column = at % (padded / 4) * 4;
        if (column >= int(a.width)) continue;
        float top = -INFINITY, total = 0;
        four<float> value = {};
#pragma unroll
        for (int n = 0; n < warps; ++n) top = max(top, largest_of[n][row]);
#pragma unroll
        for (int n = 0; n < warps; ++n) {
            // A warp that saw nothing multiplied values by 0, and they may be NaN. Of a score of NaN the sum is NaN.
            const float of_warp = total_of[n][row];
            if (of_warp == 0) continue;
            const float share_of_warp = top == -INFINITY ? 1.0f : power_of_two(largest_of[n][row] - top);
            const four<float> of_values = load_four(sums + (n * rows + row) * padded + column);
            total += share_of_warp * of_warp;
#pragma unroll
            for (int c = 0; c < 4; ++c) value.at[c] += share_of_warp * of_values.at[c];
        }
        if (a.parts == 1) {
            write_row<true>(a, sample, head[row], query[row], column, top, total, value);
            continue;
        }
        *reinterpret_cast<four<float> *>(to + uint64_t(row) * a.parts * a.width + column) = value;
        if (column == 0) {
            const uint64_t place = ((first_of_rows + row) * a.parts + share.part(a)) * 2;
            of_parts[place] = top, of_parts[place + 1] = total;
        }
    }
}

template <typename Action> bops_status with_split_mma(bops_dtype dtype, const bops_attention_params &p, const bops_attention_split_choice &c,
                                                      const bops_attention_operands &o, void *workspace, const Action &action) {
    return for_types<__half, __nv_bfloat16>(dtype, [&](auto tag) -> bops_status {
        using T = typename decltype(tag)::type;
        return for_value<64, 128, 256>(c.padded, [&](auto padded) -> bops_status {
            const uint64_t row_tiles = tiles_of(uint64_t(p.shared_by) * p.queries, rows);
            const split_arguments split = {p, o, c.vectors, c.parts, c.keys_per_part, uint32_t(row_tiles), (p.value_depth + 3) / 4 * 4, workspace};
            // Smaller scales could make 0 of a factor, and NaN of a score that is not seen.
            const bool is_plain = p.soft_cap == 0 && p.mask == BOPS_ATTENTION_UNMASKED && p.scale >= 0x1p-100;
            const uint64_t blocks = row_tiles * c.parts * p.kv_heads * p.samples, queries = uint64_t(p.samples) * p.heads * p.queries;
            const size_t bytes = lines_bytes<padded, rows> + warps * split_mma_tile<padded>::ring_bytes;
            const bops_status status = action(attention_split_mma<T, padded>, shape_of(blocks, threads, bytes), split_mma_arguments{split, is_plain});
            // With one part its block has written y.
            if (status != 0 || c.parts == 1) return status;
            return action(attention_split_merge<float, padded, true>, shape_of(queries, merge_threads, 0), split);
        });
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_split_mma, bops_dtype, bops_attention_params, bops_attention_split_choice, bops_attention_operands,
                 bops::attention::with_split_mma)
