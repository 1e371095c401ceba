// The gradients of attention. Weights are computed again from lse: a tile of them, p = exp(score - lse), and the tile of what scores receive,
// ds = p (dy v - delta) with delta = dy y, give dq = scale ds k, dk = scale ds^T q and dv = p^T dy (Dao, FlashAttention-2, arXiv:2307.08691). A block has a
// tile of rows and goes over tiles of columns in a fixed order: rows are queries and columns keys, or, for dk and dv, the other way round.
#pragma once
#include "attention.cuh"

namespace bops {
namespace attention {

enum class of_block { queries, keys, bias }; // what a block computes the gradient of

// As forward_tile; `keys` are rows of a step of weights times a matrix.
template <typename A, int padded> struct backward_tile;
template <> struct backward_tile<float, 32> {
    static constexpr int rows = 64, columns = 64, threads = 128, wide = 8, depth = 32, keys = 64, blocks = 2;
};
template <> struct backward_tile<float, 64> {
    static constexpr int rows = 64, columns = 64, threads = 128, wide = 16, depth = 32, keys = 32, blocks = 3;
};
template <> struct backward_tile<float, 128> {
    static constexpr int rows = 64, columns = 64, threads = 128, wide = 16, depth = 16, keys = 8, blocks = 2;
};
template <> struct backward_tile<float, 256> {
    static constexpr int rows = 32, columns = 64, threads = 128, wide = 16, depth = 16, keys = 4, blocks = 2;
};
template <> struct backward_tile<double, 64> {
    static constexpr int rows = 32, columns = 32, threads = 128, wide = 16, depth = 16, keys = 8, blocks = 2;
};
template <> struct backward_tile<double, 256> {
    static constexpr int rows = 16, columns = 32, threads = 128, wide = 16, depth = 16, keys = 4, blocks = 1;
};

template <typename A, int padded> struct backward_memory {
    using tile = backward_tile<A, padded>;
    static constexpr int of_scores = tile::columns * (tile::depth + pad), of_values = tile::keys * (padded + pad);
    static constexpr int step = of_scores > of_values ? of_scores : of_values;
    A first[tile::rows * (padded + pad)];  // rows of q or k
    A second[tile::rows * (padded + pad)]; // rows of dy or v
    A weights[tile::rows * (tile::columns + pad)];
    A steps[2][step];
    uint32_t sees[tile::threads / 32][tile::columns / 32]; // where columns are queries: those that see a key, a bit for each; of each warp
};

template <typename A> struct backward_arguments {
    bops_attention_backward_params of;
    bops_attention_backward_operands at;
    const A *delta;
    uint32_t vectors, tiles;
};

// The weight of a key that a query does not see. No exponential has its sign, which tells it from a weight that is as small: the score receives 0, whatever dy
// and v hold.
template <typename A> __device__ __forceinline__ A no_weight() { return -A(0); }
__device__ __forceinline__ bool is_no_weight(float weight) { return __float_as_uint(weight) == 0x80000000u; }
__device__ __forceinline__ bool is_no_weight(double weight) { return uint64_t(__double_as_longlong(weight)) == uint64_t(1) << 63; }

// The least finite number: its exponential is 0 beside every lse but NaN, as that of -infinity is.
template <typename A> __device__ __forceinline__ A lowest() {
    if constexpr (sizeof(A) == 8) return -1.7976931348623157e308;
    else return -3.40282347e38f;
}

template <typename A, int padded, of_block way> struct backward_work {
    using tile = backward_tile<A, padded>;
    using memory = backward_memory<A, padded>;
    static constexpr bool is_keys = way == of_block::keys, is_bias = way == of_block::bias;
    static constexpr int wide = tile::wide, high = tile::threads / wide;
    static constexpr int rows = tile::rows / high, columns = tile::columns / wide, results = padded / wide; // of a thread
    static constexpr int resident_row = padded + pad, weight_row = tile::columns + pad;
    using by_rows = carrier<A, tile::threads, tile::columns, tile::depth>;
    using by_columns = carrier<A, tile::threads, tile::keys, padded>;
    static constexpr int most = is_bias || by_rows::each > by_columns::each ? by_rows::each : by_columns::each;

    const backward_arguments<A> &a;
    memory &m;
    const place_in_tile<tile> at;
    int now = 0;
    bool has_kept = false;

    __device__ __forceinline__ backward_work(const backward_arguments<A> &a_, memory &m_) : a(a_), m(m_) {}

    // Goes over the columns that a tile of rows of one sample and head has; those of the bias from column `only` on, one tile. sums: of ds times q or k, and of
    // the transposed weights times dy; of the bias of ds.
    template <typename First, typename Second>
    __device__ __forceinline__ void add(uint32_t sample, uint32_t head, int first_row, int only, First &sums, Second &weighted,
                                        A (&of_sums)[is_bias ? 1 : rows * results], A (&of_weighted)[is_bias ? 1 : rows * results]) {
        const bops_attention_params &p = a.of.of;
        const uint32_t bytes = bytes_of<A>(p.dtype), kv_head = head / p.shared_by;
        const matrix q = matrix_of(a.at.q, p.q, sample, head, bytes, a.vectors & BOPS_ATTENTION_Q);
        const matrix k = matrix_of(a.at.k, p.k, sample, kv_head, bytes, a.vectors & BOPS_ATTENTION_K);
        const matrix v = matrix_of(a.at.v, p.v, sample, kv_head, bytes, a.vectors & BOPS_ATTENTION_V);
        const matrix dy = matrix_of(a.at.dy, a.of.dy, sample, head, bytes, a.vectors & BOPS_ATTENTION_DY);
        const matrix &one = is_keys ? q : k, &other = is_keys ? dy : v; // what comes in tiles of columns
        const sight sees(p, a.at.lengths, sample);
        const score_rule<A> rule(p, a.at.bias, sample, head);
        const A *const lse = lse_of(sample, head);
        const A *const delta = a.delta + (uint64_t(sample) * p.heads + head) * p.queries;

        const int count = is_keys ? sees.queries : sees.length; // of columns
        const int last_row = min(first_row + tile::rows, is_keys ? sees.length : sees.queries) - 1;
        int first, end;
        if (is_keys) first = sees.first_query(first_row), end = last_row < first_row ? 0 : sees.last_query(last_row);
        else first = sees.first_key(first_row), end = sees.last_key(last_row);
        first = first / tile::columns * tile::columns;
        if (is_bias && only >= 0) first = max(first, only), end = min(end, only + tile::columns);
        if (first >= end) return;

        // What is used next is fetched while a step is computed.
        carried<A> held[most];
        const auto part_by_rows = [&](int from, int column, uint32_t depth) -> part_of {
            return {uint32_t(from), count - from, uint32_t(column), int(depth) - column};
        };
        const auto part_by_columns = [&](int row, uint32_t depth) -> part_of { return {uint32_t(first + row), count - first - row, 0, int(depth)}; };
        // Weights and what scores receive are 0 where a query sees no key; its q and dy, which these are multiplied by, have to be as well.
        const auto counts = [&](const part_of &part, int row) {
            const uint32_t at = part.row - uint32_t(first) + uint32_t(row);
            return !is_keys || (m.sees[threadIdx.x / 32][at / 32] >> at % 32 & 1) != 0;
        };
        // has_next: 0, 1 for a step by rows, 2 for one by columns.
        const auto carry = [&](int has_next, const matrix &from, const part_of &part, const auto &compute) {
            if (has_next == 1) by_rows::fetch(held, from, part, p.dtype);
            if constexpr (!is_bias)
                if (has_next == 2) by_columns::fetch(held, from, part, p.dtype, counts);
            compute();
            if (has_next == 1) by_rows::put(held, m.steps[now ^ 1], from, part, p.dtype);
            if constexpr (!is_bias)
                if (has_next == 2) by_columns::put(held, m.steps[now ^ 1], from, part, p.dtype, counts);
            now ^= 1;
            __syncthreads();
        };
        carry(1, one, part_by_rows(first, 0, p.depth), [] {});

        A *const weights = m.weights + at.y * weight_row + at.x;
        A slopes[rows * columns]; // of the soft cap: in local memory, and used with it alone
        for (; first < end; first += tile::columns) {
            if constexpr (is_keys) note_which_see(lse, first, count);
            // 1. Products of queries and keys, and weights from them.
            {
                A scores[rows][columns] = {};
#pragma unroll 1
                for (int column = 0; column < int(p.depth); column += tile::depth) {
                    const bool is_last = column + tile::depth >= int(p.depth);
                    const part_of part = !is_last  ? part_by_rows(first, column + tile::depth, p.depth)
                                         : is_keys ? part_by_columns(0, p.value_depth)
                                                   : part_by_rows(first, 0, p.value_depth);
                    carry(is_last && is_keys ? 2 : 1, is_last ? other : one, part, [&] {
                        add_rows_by_rows<tile::depth, resident_row, tile::depth + pad, high, wide>(m.first + at.y * resident_row + column,
                                                                                                   m.steps[now] + at.x * (tile::depth + pad), scores);
                        if (is_last) weigh(scores, weights, slopes, sees, rule, lse, first_row, last_row, first);
                    });
                }
            }
            // 2. The transposed weights times dy.
            if constexpr (is_keys) {
#pragma unroll 1
                for (int row = 0; row < tile::columns; row += tile::keys) {
                    const bool is_last = row + tile::keys == tile::columns;
                    const part_of part = is_last ? part_by_rows(first, 0, p.value_depth) : part_by_columns(row + tile::keys, p.value_depth);
                    carry(is_last ? 1 : 2, other, part, [&] {
                        add_rows_by_columns<tile::keys, weight_row, padded + pad, high, wide>(m.weights + at.y * weight_row + row,
                                                                                              m.steps[now] + at.x * 4, weighted);
                    });
                }
            }
            // 3. Products of dy and v, and what the scores receive.
            {
                A products[rows][columns] = {};
#pragma unroll 1
                for (int column = 0; column < int(p.value_depth); column += tile::depth) {
                    const bool is_last = column + tile::depth >= int(p.value_depth);
                    const bool has_next = !is_bias || !is_last || first + tile::columns < end;
                    const part_of part = !is_last  ? part_by_rows(first, column + tile::depth, p.value_depth)
                                         : is_bias ? part_by_rows(first + tile::columns, 0, p.depth)
                                                   : part_by_columns(0, p.depth);
                    carry(!has_next             ? 0
                          : is_last && !is_bias ? 2
                                                : 1,
                          is_last ? one : other, part, [&] {
                              add_rows_by_rows<tile::depth, resident_row, tile::depth + pad, high, wide>(
                                  m.second + at.y * resident_row + column, m.steps[now] + at.x * (tile::depth + pad), products);
                              if (!is_last) return;
                              A deltas[is_keys ? columns : rows];
                              of_queries(deltas, delta, 1, first_row, first);
#pragma unroll
                              for (int i = 0; i < rows; ++i)
#pragma unroll
                                  for (int j = 0; j < columns; ++j) {
                                      A &place = weights[i * high * weight_row + j * wide];
                                      A ds = place * (products[i][j] - deltas[is_keys ? j : i]);
                                      if (!is_bias && p.soft_cap != 0) ds *= slopes[i * columns + j];
                                      if (is_no_weight(place)) ds = A(0);
                                      if constexpr (is_bias) sums[i][j] += ds;
                                      else place = ds;
                                  }
                          });
                }
            }
            // 4. Those times keys or queries.
            if constexpr (!is_bias) {
#pragma unroll 1
                for (int row = 0; row < tile::columns; row += tile::keys) {
                    const bool is_last = row + tile::keys == tile::columns, has_next = !is_last || first + tile::columns < end;
                    const part_of part = is_last ? part_by_rows(first + tile::columns, 0, p.depth) : part_by_columns(row + tile::keys, p.depth);
                    carry(!has_next ? 0
                          : is_last ? 1
                                    : 2,
                          one, part, [&] {
                              add_rows_by_columns<tile::keys, weight_row, padded + pad, high, wide>(m.weights + at.y * weight_row + row,
                                                                                                    m.steps[now] + at.x * 4, sums);
                          });
                }
                keep(sums, of_sums);
                if constexpr (is_keys) keep(weighted, of_weighted);
                has_kept = true;
            }
        }
    }

    // The terms of a tile are a chain, whose sums go to those of earlier ones in local memory.
    using chain_memory = A[is_bias ? 1 : rows * results];
    template <typename Sums> __device__ __forceinline__ void keep(Sums &sums, chain_memory &memory) {
        A *const kept = in_local_memory(memory);
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int n = 0; n < results; ++n) {
                A &to = kept[i * results + n];
                to = has_kept ? to + sums[i][n] : sums[i][n];
                sums[i][n] = A(0);
            }
    }
    template <typename Sums> __device__ __forceinline__ void collect(Sums &sums, chain_memory &memory) const {
        if (!has_kept) return;
        const A *const kept = in_local_memory(memory);
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int n = 0; n < results; ++n) sums[i][n] = kept[i * results + n];
    }

    // Only the warp itself reads what it notes.
    __device__ __forceinline__ void note_which_see(const A *lse, int first, int count) {
        const int lane = int(threadIdx.x) % 32;
        __syncwarp();
#pragma unroll
        for (int n = 0; n < tile::columns / 32; ++n) {
            const int query = first + n * 32 + lane;
            const uint32_t sees = __ballot_sync(~0u, query < count && lse[query * a.of.of.lse.row] != -A(INFINITY));
            if (lane == 0) m.sees[threadIdx.x / 32][n] = sees;
        }
        __syncwarp();
    }

    __device__ __forceinline__ const A *lse_of(uint32_t sample, uint32_t head) const {
        const bops_attention_strides &lse = a.of.of.lse;
        return static_cast<const A *>(a.at.lse) + sample * lse.sample + head * lse.head;
    }

    // A number of each query among the thread's rows or columns.
    template <int size> __device__ __forceinline__ void of_queries(A (&to)[size], const A *from, uint64_t step, int first_row, int first) const {
        const int queries = int(a.of.of.queries);
#pragma unroll
        for (int i = 0; i < size; ++i) {
            const int query = is_keys ? first + at.x + i * wide : first_row + at.y + i * high;
            to[i] = query < queries ? from[query * step] : A(0);
        }
    }

    // Makes weights of products.
    __device__ __forceinline__ void weigh(A (&scores)[rows][columns], A *weights, A (&slopes)[rows * columns], const sight &sees,
                                          const score_rule<A> &rule, const A *lse, int first_row, int last_row, int first) const {
        const bops_attention_params &p = a.of.of;
        const bool is_whole = rule.is_plain(p) && first_row + tile::rows == last_row + 1 &&
                              (is_keys ? sees.first_query(last_row) <= first && sees.last_query(first_row) >= first + tile::columns
                                       : sees.first_key(last_row) <= first && sees.last_key(first_row) >= first + tile::columns);
        // In shared memory a loop of few instructions finds scores.
        if (!is_whole) {
#pragma unroll
            for (int i = 0; i < rows; ++i)
#pragma unroll
                for (int j = 0; j < columns; ++j) weights[i * high * weight_row + j * wide] = scores[i][j];
#pragma unroll 1
            for (int i = 0; i < rows; ++i) {
                const int row = first_row + at.y + i * high;
                const int from = is_keys ? sees.first_query(row) : sees.first_key(row), to = is_keys ? sees.last_query(row) : sees.last_key(row);
#pragma unroll 2
                for (int j = 0; j < columns; ++j) {
                    const int column = first + at.x + j * wide;
                    A &score = weights[i * high * weight_row + j * wide];
                    A slope = 0;
                    const bool is_seen = column >= from && column < to;
                    if (is_seen) score = rule.score(p, score, is_keys ? column : row, is_keys ? row : column, slope);
                    // -infinity says that the key is not seen. Without a mask of Bools, which hides keys by it, one that is seen has a number instead.
                    if (!is_seen) score = -A(INFINITY);
                    else if (score == -A(INFINITY) && p.mask != BOPS_ATTENTION_BOOL) score = lowest<A>();
                    slopes[i * columns + j] = slope;
                }
            }
#pragma unroll
            for (int i = 0; i < rows; ++i)
#pragma unroll
                for (int j = 0; j < columns; ++j) scores[i][j] = weights[i * high * weight_row + j * wide];
        }
        const A scale = is_whole ? A(p.scale) : A(1);
        A logarithms[is_keys ? columns : rows];
        of_queries(logarithms, lse, p.lse.row, first_row, first);
#pragma unroll
        for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                const A score = scores[i][j] * scale, logarithm = logarithms[is_keys ? j : i];
                const bool is_hidden = logarithm == -A(INFINITY) || (!is_whole && score == -A(INFINITY));
                weights[i * high * weight_row + j * wide] = is_hidden ? no_weight<A>() : exponential(score - logarithm);
            }
    }

    // Puts the rows of q and dy, or of k and v, into shared memory.
    __device__ __forceinline__ void put_rows(uint32_t sample, uint32_t head, int first_row) {
        const bops_attention_params &p = a.of.of;
        const uint32_t bytes = bytes_of<A>(p.dtype);
        const matrix one = is_keys ? matrix_of(a.at.k, p.k, sample, head, bytes, a.vectors & BOPS_ATTENTION_K)
                                   : matrix_of(a.at.q, p.q, sample, head, bytes, a.vectors & BOPS_ATTENTION_Q);
        const matrix other = is_keys ? matrix_of(a.at.v, p.v, sample, head, bytes, a.vectors & BOPS_ATTENTION_V)
                                     : matrix_of(a.at.dy, a.of.dy, sample, head, bytes, a.vectors & BOPS_ATTENTION_DY);
        const sight sees(p, a.at.lengths, sample);
        const int left = (is_keys ? sees.length : sees.queries) - first_row;
        put_tile<A, tile::threads, tile::rows, padded>(m.first, one, first_row, left, int(p.depth), p.dtype);
        put_tile<A, tile::threads, tile::rows, padded>(m.second, other, first_row, left, int(p.value_depth), p.dtype);
    }

    // Sums of queries that see no key, and of keys beyond the length, are left out: in them 0 was multiplied by what other rows hold.
    __device__ __forceinline__ void store(void *to, const bops_attention_gradient &g, bool is_vector, uint32_t sample, uint32_t head, int first_row,
                                          uint32_t depth, A scale, const A (&sums)[rows][results]) const {
        if (to == nullptr) return;
        const bops_attention_params &p = a.of.of;
        const int length = is_keys ? sight(p, a.at.lengths, sample).length : 0;
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const int row = first_row + at.y + i * high;
            if (row >= int(is_keys ? p.keys : p.queries)) continue;
            const bool counts = is_keys ? row < length : lse_of(sample, head)[row * p.lse.row] != -A(INFINITY);
            const uint64_t start = sample * g.strides.sample + head * g.strides.head + row * g.strides.row;
#pragma unroll
            for (int n = 0; n < results / 4; ++n) {
                const int column = (at.x + n * wide) * 4;
                four<A> values;
#pragma unroll
                for (int c = 0; c < 4; ++c) values.at[c] = counts ? sums[i][n * 4 + c] * scale : A(0);
                store_four<A>(static_cast<char *>(to), start, g.strides.column, column, int(depth) - column, p.dtype, is_vector, A(g.beta), values);
            }
        }
    }
};

} // namespace attention
} // namespace bops
