// Attention of few queries: y = softmax(scores) v, where reading keys and values is the work. The keys of a sample are split in parts. A block takes the queries of
// all heads that share a head of keys through one part, so that each key is read once, and writes the largest score, the sum of exponentials and the sums of
// weighted values; a second kernel merges the parts in their order (Dao et al., Flash-Decoding for long-context inference, 2023).
// Compiled once for all architectures.
#include "split.cuh"

namespace bops {
namespace attention {
namespace {

constexpr int split_threads = 128, stages = 4;
// Blocks of an SM, as many as its shared memory has room for. ptxas, which does not know how much they take, would else make registers spill for more of them.
constexpr int split_blocks = 3;
constexpr int chunk_bytes = 16, stage_bytes = 16384; // of an access, and of a tile of keys, or of values, in shared memory
constexpr int keys_of_group = 8;                     // of a tile, of which a thread adds up the values

// per_chunk, chunks: elements of a chunk and chunks of a row in shared memory. keys: of a tile. lanes: threads that share two keys of a tile, of whose products with
// queries each adds up some chunks. groups: of keys, in each of which a thread has a chunk of the values.
template <int element, int padded> struct split_tile {
    static constexpr int per_chunk = chunk_bytes / element, chunks = padded / per_chunk, keys = stage_bytes / chunk_bytes / chunks;
    static constexpr int lanes = 2 * split_threads / keys, groups = split_threads / chunks;
    static_assert(groups * keys_of_group == keys && lanes <= 32, "every thread has two keys, and eight");
};

template <typename T, int padded, int rows> struct split_memory {
    using A = accumulator_t<T>;
    static constexpr int keys = split_tile<sizeof(T), padded>::keys;
    packed<chunk_bytes> stage[stages][stage_bytes / chunk_bytes]; // at the end, the sums of groups of keys
    A queries[rows * padded];
    A weights[rows * keys];
    A largest[rows], total[rows], factor[rows];
    uint32_t head[rows], query[rows];
    int from[rows], to[rows]; // the keys of the block's part that a row sees, from the first on and without the last
    static_assert(split_tile<sizeof(T), padded>::groups * rows * padded * sizeof(A) <= stages * stage_bytes, "sums of groups fit");
};

// The chunk of a row of keys: threads that read the same chunk of neighbouring rows at once find them in other banks.
template <int lanes> __device__ __forceinline__ int mixed(int row, int chunk) { return chunk ^ (row * lanes & 7); }

// Fills a tile with rows from `first` on, of which `rows_left` are there, and `columns` columns; rows that are not there, and those in no page, are 0.
template <typename T, typename tile, bool is_mixed, typename M>
__device__ __forceinline__ void fill_stage(packed<chunk_bytes> *stage, const M &from, int first, int rows_left, int columns, bops_dtype dtype) {
    using A = accumulator_t<T>;
    constexpr int each = stage_bytes / chunk_bytes / split_threads,
                  together = 4; // chunks of a thread, and those whose rows are looked up before any is asked for
    constexpr uint64_t nowhere = ~uint64_t(0);
#pragma unroll 1
    for (int start = int(threadIdx.x); start < each * split_threads; start += together * split_threads) {
        uint64_t at[together];
#pragma unroll
        for (int n = 0; n < together; ++n) {
            const int place = start + n * split_threads, row = place / tile::chunks, column = place % tile::chunks * tile::per_chunk;
            if (row >= rows_left || column >= columns || !from.find(uint32_t(first + row), at[n])) at[n] = nowhere;
        }
#pragma unroll
        for (int n = 0; n < together; ++n) {
            const int place = start + n * split_threads, row = place / tile::chunks, chunk = place % tile::chunks, column = chunk * tile::per_chunk;
            if (column >= columns) continue;
            packed<chunk_bytes> *const to = stage + row * tile::chunks + (is_mixed ? mixed<tile::lanes>(row, chunk) : chunk);
            if (from.is_vector && at[n] != nowhere) {
                copy_async<chunk_bytes>(to, from.base + (at[n] + column) * sizeof(T));
                continue;
            }
            packed<chunk_bytes> values = {};
            if (at[n] != nowhere) {
                A wide[tile::per_chunk];
#pragma unroll
                for (int e = 0; e < tile::per_chunk; ++e)
                    wide[e] = column + e < columns ? load_element<A>(from.base, at[n] + (column + e) * from.column, dtype, false) : A(0);
                values = pack<T, chunk_bytes>(wide);
            }
            *to = values;
        }
    }
}

template <typename T, int padded, int rows> __global__ void __launch_bounds__(split_threads, split_blocks)
    attention_split(const __grid_constant__ split_arguments a) {
    using A = accumulator_t<T>;
    using tile = split_tile<sizeof(T), padded>;
    using memory = split_memory<T, padded, rows>;
    constexpr int per_chunk = tile::per_chunk, lanes = tile::lanes;
    extern __shared__ __align__(16) unsigned char shared[];
    memory &m = *reinterpret_cast<memory *>(shared);

    // 1. The rows of the block, which are queries of heads that share a head of keys, and the keys of its part that one of them sees.
    const bops_attention_params &p = a.of;
    const share_of_block share(a, rows, tile::keys);
    const sight &sees = share.sees;
    const uint32_t sample = share.sample, kv_head = share.kv_head;
    const int count = share.count, begin = share.begin, end = share.end, thread = int(threadIdx.x);
    A *const of_parts = statistics<A>(a);
    if (begin >= end) {
        if (thread < count) {
            const uint64_t at = ((share.first_of_rows(a, rows) + thread) * a.parts + share.part(a)) * 2;
            of_parts[at] = -A(INFINITY), of_parts[at + 1] = A(0);
        }
        return;
    }
    const uint32_t bytes = bytes_of<A>(p.dtype);
    const auto k = keys_of<true>(a.at.k, p.k, p, a.at.pages, sample, kv_head, bytes, a.vectors & BOPS_ATTENTION_K);
    const auto v = keys_of<true>(a.at.v, p.v, p, a.at.pages, sample, kv_head, bytes, a.vectors & BOPS_ATTENTION_V);
    const int first = begin / tile::keys * tile::keys, tiles = (end - first + tile::keys - 1) / tile::keys;
    // Tiles of keys and of values take turns.
    const auto fill = [&](int number) {
        const int at = first + number / 2 * tile::keys;
        packed<chunk_bytes> *const stage = m.stage[number % stages];
        if (number < 2 * tiles) {
            if (number % 2 == 0) fill_stage<T, tile, true>(stage, k, at, end - at, int(p.depth), p.dtype);
            else fill_stage<T, tile, false>(stage, v, at, end - at, int(p.value_depth), p.dtype);
        }
        copy_commit();
    };
#pragma unroll 1
    for (int number = 0; number < stages - 1; ++number) fill(number);
    if (thread < rows) {
        const int row = min(thread, count - 1), query = int(share.query(row));
        m.head[thread] = share.head(row), m.query[thread] = uint32_t(query);
        m.from[thread] = max(sees.first_key(query), begin), m.to[thread] = min(sees.last_key(query), end);
        m.largest[thread] = -A(INFINITY), m.total[thread] = A(0);
    }
    __syncthreads();
#pragma unroll 1
    for (int at = thread; at < rows * padded; at += split_threads) {
        const int row = at / padded, column = at % padded;
        A value = A(0);
        if (row < count && column < int(p.depth)) {
            const uint64_t place = sample * p.q.sample + m.head[row] * p.q.head + m.query[row] * p.q.row + column * p.q.column;
            value = load_element<A>(a.at.q, place, p.dtype, false);
        }
        m.queries[at] = value;
    }

    const int lane = thread % lanes, key_of_lane = thread / lanes, chunks_of_keys = (int(p.depth) + per_chunk - 1) / per_chunk;
    const int chunk_of_values = thread % tile::chunks, key_of_group = thread / tile::chunks * keys_of_group;
    const bool has_values = chunk_of_values * per_chunk < int(p.value_depth);
    A results[rows][per_chunk] = {};
#pragma unroll 1
    for (int number = 0; number < tiles; ++number) {
        // 2. Products of queries and keys. What was read last is free to be filled once all threads are here.
        copy_wait(stages - 2);
        __syncthreads();
        fill(2 * number + stages - 1);
        {
            const packed<chunk_bytes> *const keys = m.stage[2 * number % stages] + key_of_lane * tile::chunks;
            A products[2][rows] = {};
#pragma unroll 1
            for (int chunk = lane; chunk < chunks_of_keys; chunk += lanes) {
                // The second key has its chunks in the same order: the rows between them are a multiple of 8 lanes apart.
                const int place = mixed<lanes>(key_of_lane, chunk);
                A one[per_chunk], other[per_chunk];
                unpack<T>(keys[place], one);
                unpack<T>(keys[place + tile::keys / 2 * tile::chunks], other);
#pragma unroll
                for (int four_rows = 0; four_rows < rows; four_rows += 4) {
                    if (four_rows >= count) continue;
#pragma unroll
                    for (int i = four_rows; i < four_rows + 4; ++i) {
                        packed<chunk_bytes> words[per_chunk * sizeof(A) / chunk_bytes];
#pragma unroll
                        for (int w = 0; w < int(per_chunk * sizeof(A)) / chunk_bytes; ++w) {
                            words[w] = reinterpret_cast<const packed<chunk_bytes> *>(m.queries + i * padded + chunk * per_chunk)[w];
                            A query[chunk_bytes / sizeof(A)];
                            unpack<A>(words[w], query);
#pragma unroll
                            for (int e = 0; e < chunk_bytes / int(sizeof(A)); ++e) {
                                const int column = w * (chunk_bytes / int(sizeof(A))) + e;
                                products[0][i] += query[e] * one[column], products[1][i] += query[e] * other[column];
                            }
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < rows; ++i) {
                if (i >= count) continue;
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    products[n][i] = across_row<lanes>(products[n][i], [](A x, A y) { return x + y; });
                    if (lane == 0) m.weights[i * tile::keys + key_of_lane + n * (tile::keys / 2)] = products[n][i];
                }
            }
        }
        __syncthreads();
        // 3. Scores of a row by a warp, how they change its largest one, and weights.
        const int first_key = first + number * tile::keys;
#pragma unroll 1
        for (int row = thread / 32; row < count; row += split_threads / 32) {
            const score_rule<A> rule(p, a.at.bias, sample, m.head[row]);
            const uint32_t query = m.query[row];
            const int from_key = m.from[row], to_key = m.to[row];
            A *const weights = m.weights + row * tile::keys;
            const A before = m.largest[row];
            A top = before;
#pragma unroll 1
            for (int at = thread % 32; at < tile::keys; at += 32) {
                const int key = first_key + at;
                uint64_t place;
                A slope;
                const bool is_seen = key >= from_key && key < to_key && k.find(uint32_t(key), place);
                const A score = is_seen ? rule.score(p, weights[at], query, uint32_t(key), slope) : -A(INFINITY);
                weights[at] = score, top = max(top, score);
            }
            top = across_row<32>(top, [](A x, A y) { return max(x, y); });
            // A row that sees nothing so far has no largest score.
            const A about = top == -A(INFINITY) ? A(0) : top, factor = exponential(before - about);
            A added = 0;
#pragma unroll 1
            for (int at = thread % 32; at < tile::keys; at += 32) added += weights[at] = exponential(weights[at] - about);
            added = across_row<32>(added, [](A x, A y) { return x + y; });
            __syncwarp(); // every lane has read what the first one replaces
            if (thread % 32 == 0) m.largest[row] = top, m.total[row] = m.total[row] * factor + added, m.factor[row] = factor;
        }
        // 4. Weights times values.
        copy_wait(stages - 2);
        __syncthreads();
        fill(2 * number + stages);
        if (!has_values) continue;
        const packed<chunk_bytes> *const values = m.stage[(2 * number + 1) % stages] + key_of_group * tile::chunks + chunk_of_values;
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            if (i >= count) continue;
            const A factor = m.factor[i];
#pragma unroll
            for (int e = 0; e < per_chunk; ++e) results[i][e] *= factor;
        }
#pragma unroll
        for (int four_keys = 0; four_keys < keys_of_group; four_keys += 4) {
            A value[4][per_chunk];
#pragma unroll
            for (int j = 0; j < 4; ++j) unpack<T>(values[(four_keys + j) * tile::chunks], value[j]);
#pragma unroll
            for (int i = 0; i < rows; ++i) {
                if (i >= count) continue;
                const four<A> weights = load_four(m.weights + i * tile::keys + key_of_group + four_keys);
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int e = 0; e < per_chunk; ++e) results[i][e] += weights.at[j] * value[j][e];
            }
        }
    }

    // 5. The sums of groups of keys, in their order, and what the softmax of each row has seen.
    __syncthreads();
    A *const sums = reinterpret_cast<A *>(m.stage);
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int e = 0; e < per_chunk; ++e)
            if (i < count) sums[(thread / tile::chunks * rows + i) * padded + chunk_of_values * per_chunk + e] = results[i][e];
    __syncthreads();
    const uint64_t first_of_rows = share.first_of_rows(a, rows);
    A *const to = static_cast<A *>(a.workspace) + (first_of_rows * a.parts + share.part(a)) * a.width;
#pragma unroll 1
    for (int at = thread; at < count * padded; at += split_threads) {
        const int row = at / padded, column = at % padded;
        if (column >= int(a.width)) continue;
        A sum = 0;
        for (int n = 0; n < tile::groups; ++n) sum += sums[(n * rows + row) * padded + column];
        to[uint64_t(row) * a.parts * a.width + column] = sum;
    }
    if (thread < count) {
        const uint64_t at = ((first_of_rows + thread) * a.parts + share.part(a)) * 2;
        of_parts[at] = m.largest[thread], of_parts[at + 1] = m.total[thread];
    }
}

template <typename Action> bops_status with_split(bops_dtype dtype, const bops_attention_params &p, const bops_attention_split_choice &c,
                                                  const bops_attention_operands &o, void *workspace, const Action &action) {
    return for_float(dtype, [&](auto tag) -> bops_status {
        using T = typename decltype(tag)::type;
        return for_value<64, 128, 256>(c.padded, [&](auto padded) -> bops_status {
            const auto of_rows = [&](auto rows) -> bops_status {
                const uint64_t row_tiles = tiles_of(uint64_t(p.shared_by) * p.queries, rows);
                const split_arguments a = {p, o, c.vectors, c.parts, c.keys_per_part, uint32_t(row_tiles), (p.value_depth + 3) / 4 * 4, workspace};
                const uint64_t blocks = row_tiles * c.parts * p.kv_heads * p.samples, queries = uint64_t(p.samples) * p.heads * p.queries;
                const bops_status status =
                    action(attention_split<T, padded, rows>, shape_of(blocks, split_threads, sizeof(split_memory<T, padded, rows>)), a);
                if (status != 0) return status;
                return action(attention_split_merge<accumulator_t<T>, padded, false>, shape_of(queries, merge_threads, 0), a);
            };
            // Elements of 16 bits have one for 8 rows.
            if constexpr (sizeof(T) == 2) return for_value<8>(c.rows, of_rows);
            else return for_value<4, 8>(c.rows, of_rows);
        });
    });
}

} // namespace
} // namespace attention
} // namespace bops

BOPS_DEFINE_FORM(bops_attention_split, bops_dtype, bops_attention_params, bops_attention_split_choice, bops_attention_operands,
                 bops::attention::with_split)
