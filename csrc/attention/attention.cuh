// What forward and backward of attention share: tiles of queries and keys in shared memory, products of tiles, and which keys a query sees.
//
// Elements become numbers of the type of sums, A, on their way to shared memory, so that one kernel serves f32, f16 and bf16. A tile has `high` by `wide`
// threads. Of a tile of scores thread (y, x) has rows y + i * high and columns x + j * wide; of a tile of results it has the same rows, and groups of four
// columns from 4 x + g * 4 wide on.
#pragma once
#include "../bops_attention.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../common/memory.cuh"

namespace bops {
namespace attention {

constexpr int pad = 4; // elements behind a row of a tile, so that neighbouring rows begin in other banks

template <typename A> struct alignas(16) four { A at[4]; };

template <typename A> __device__ __forceinline__ four<A> load_four(const A *from) { return *reinterpret_cast<const four<A> *>(from); }

__device__ __forceinline__ float exponential(float t) { return expf(t); }
__device__ __forceinline__ double exponential(double t) { return exp(t); }
__device__ __forceinline__ float logarithm_of(float t) { return logf(t); }
__device__ __forceinline__ double logarithm_of(double t) { return log(t); }
__device__ __forceinline__ float tangent(float t) { return tanhf(t); }
__device__ __forceinline__ double tangent(double t) { return tanh(t); }

// One element of the type of q or, if `is_wide`, of A.
template <typename A> __device__ __forceinline__ A load_element(const void *base, uint64_t at, bops_dtype dtype, bool is_wide) {
    if (sizeof(A) == 8 || is_wide || dtype == BOPS_F32) return static_cast<const A *>(base)[at];
    const uint16_t bits = static_cast<const uint16_t *>(base)[at];
    return dtype == BOPS_F16 ? A(__half2float(__ushort_as_half(bits))) : A(__uint_as_float(uint32_t(bits) << 16));
}
template <typename A> __device__ __forceinline__ void store_element(void *base, uint64_t at, bops_dtype dtype, bool is_wide, A value) {
    if (sizeof(A) == 8 || is_wide || dtype == BOPS_F32) static_cast<A *>(base)[at] = value;
    else if (dtype == BOPS_F16) static_cast<__half *>(base)[at] = __float2half_rn(float(value));
    else static_cast<__nv_bfloat16 *>(base)[at] = __float2bfloat16_rn(float(value));
}

// Four neighbours on their way from global to shared memory, with the bits that they have there.
template <typename A> struct carried { uint32_t word[sizeof(A)]; };

// A matrix of one sample and head.
struct matrix {
    const char *base;
    uint64_t row, column;
    bool is_vector;

    // Where row i begins, in elements. Every row is there.
    __device__ __forceinline__ bool find(uint32_t i, uint64_t &at) const { return at = i * row, true; }
};

// A matrix whose rows lie in pages, if a page has rows.
struct paged_matrix : matrix {
    const char *numbers; // of the sample
    uint64_t count, number, page_stride;
    uint32_t page;
    bops_dtype dtype;

    // Whether row i is in a page, and where it begins.
    __device__ __forceinline__ bool find(uint32_t i, uint64_t &at) const {
        if (page == 0) return matrix::find(i, at);
        const uint64_t which = i / page * number;
        // A number below 0 becomes one beyond all pages.
        uint64_t of;
        if (dtype == BOPS_I64) of = uint64_t(reinterpret_cast<const int64_t *>(numbers)[which]);
        else if (dtype == BOPS_I32) of = uint64_t(int64_t(reinterpret_cast<const int32_t *>(numbers)[which]));
        else of = reinterpret_cast<const uint32_t *>(numbers)[which];
        at = of * page_stride + i % page * row;
        return of < count;
    }
};

template <typename A> __device__ __forceinline__ uint32_t bytes_of(bops_dtype dtype) { return sizeof(A) == 8 ? 8 : dtype == BOPS_F32 ? 4 : 2; }

__device__ __forceinline__ matrix matrix_of(const void *base, const bops_attention_strides &s, uint64_t sample, uint64_t head, uint32_t bytes,
                                            bool is_vector) {
    return {static_cast<const char *>(base) + (sample * s.sample + head * s.head) * bytes, s.row, s.column, is_vector};
}

// Keys or values of a sample and a head of k and v, which lie in pages only if they may.
template <bool is_paged> __device__ __forceinline__ auto keys_of(const void *base, const bops_attention_strides &s, const bops_attention_params &p,
                                                                 const void *pages, uint64_t sample, uint64_t head, uint32_t bytes, bool is_vector) {
    if constexpr (is_paged) {
        const uint64_t number = p.pages.dtype == BOPS_I64 ? 8 : 4;
        return paged_matrix{matrix_of(base, s, p.pages.page == 0 ? sample : 0, head, bytes, is_vector),
                            static_cast<const char *>(pages) + sample * p.pages.sample * number,
                            p.pages.count,
                            p.pages.column,
                            s.sample,
                            p.pages.page,
                            p.pages.dtype};
    } else {
        return matrix_of(base, s, sample, head, bytes, is_vector);
    }
}

// Four neighbours in one access; 0 unless `is_there`.
template <typename A, typename M>
__device__ __forceinline__ carried<A> fetch_four(const M &of, uint32_t row, uint32_t column, bool is_there, bops_dtype dtype) {
    carried<A> to = {};
    uint64_t at;
    if (!is_there || !of.find(row, at)) return to;
    at += column;
    if (sizeof(A) == 4 && dtype != BOPS_F32) {
        const packed<8> words = load<8, false>(of.base + at * 2);
        to.word[0] = words.word[0], to.word[1] = words.word[1];
        return to;
    }
#pragma unroll
    for (int i = 0; i < int(sizeof(A)) / 4; ++i) {
        const packed<16> words = load<16, false>(of.base + at * sizeof(A) + i * 16);
#pragma unroll
        for (int j = 0; j < 4; ++j) to.word[i * 4 + j] = words.word[j];
    }
    return to;
}

// Four neighbours, one by one; those from `left` on are 0.
template <typename A, typename M>
__device__ __forceinline__ four<A> gather_four(const M &of, uint32_t row, uint32_t column, int left, bops_dtype dtype) {
    four<A> to = {};
    uint64_t at;
    if (left <= 0 || !of.find(row, at)) return to;
    at += column * of.column;
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (c < left) to.at[c] = load_element<A>(of.base, at + c * of.column, dtype, false);
    return to;
}

template <typename A> __device__ __forceinline__ four<A> widen_four(const carried<A> &from, bops_dtype dtype) {
    four<A> to;
    if constexpr (sizeof(A) == 8) {
#pragma unroll
        for (int c = 0; c < 4; ++c) to.at[c] = __hiloint2double(int(from.word[2 * c + 1]), int(from.word[2 * c]));
    } else if (dtype == BOPS_F32) {
#pragma unroll
        for (int c = 0; c < 4; ++c) to.at[c] = __uint_as_float(from.word[c]);
    } else if (dtype == BOPS_F16) {
#pragma unroll
        for (int c = 0; c < 4; ++c) to.at[c] = __half2float(__ushort_as_half(uint16_t(from.word[c / 2] >> (c % 2 * 16))));
    } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) to.at[c] = __uint_as_float(c % 2 ? from.word[c / 2] & 0xffff0000u : from.word[c / 2] << 16);
    }
    return to;
}

// The place of a thread in a tile.
template <typename shape> struct place_in_tile {
    static constexpr int high = shape::threads / shape::wide, wide = shape::wide;
    int y, x;
    __device__ __forceinline__ place_in_tile() : y(int(threadIdx.x) / wide), x(int(threadIdx.x) % wide) {}
};

// The part of a matrix that a step takes: from a row and a column on, of which so many are there.
struct part_of {
    uint32_t row;
    int rows_left;
    uint32_t column;
    int columns_left;
};

// Which rows of a part count: all.
struct every_row {
    __device__ __forceinline__ bool operator()(const part_of &, int) const { return true; }
};

// Takes `rows` rows of `columns` columns into shared memory, of which a row has columns + pad elements; those that do not count are 0. What has no vectors is
// read when it is put.
template <typename A, int threads, int rows, int columns> struct carrier {
    static constexpr int across = columns / 4, each = rows * across / threads;
    static_assert(each * threads == rows * across, "every thread carries as much");

    template <typename M, typename Counts = every_row>
    static __device__ __forceinline__ void fetch(carried<A> *held, const M &from, const part_of &part, bops_dtype dtype, const Counts &counts = {}) {
        if (!from.is_vector) return;
#pragma unroll
        for (int n = 0; n < each; ++n) {
            const int at = int(threadIdx.x) + n * threads, row = at / across, column = at % across * 4;
            const bool is_there = row < part.rows_left && column < part.columns_left && counts(part, row);
            held[n] = fetch_four<A>(from, part.row + row, part.column + column, is_there, dtype);
        }
    }
    template <typename M, typename Counts = every_row> static __device__ __forceinline__ void put(const carried<A> *held, A *to, const M &from,
                                                                                                  const part_of &part, bops_dtype dtype,
                                                                                                  const Counts &counts = {}) {
        const auto put_four = [&](int row, int column, const four<A> &values) {
            *reinterpret_cast<four<A> *>(to + row * (columns + pad) + column) = values;
        };
        if (from.is_vector) {
#pragma unroll
            for (int n = 0; n < each; ++n) {
                const int at = int(threadIdx.x) + n * threads;
                put_four(at / across, at % across * 4, widen_four<A>(held[n], dtype));
            }
            return;
        }
#pragma unroll 1
        for (int at = int(threadIdx.x); at < rows * across; at += threads) {
            const int row = at / across, column = at % across * 4;
            const int left = row < part.rows_left && counts(part, row) ? part.columns_left - column : 0;
            put_four(row, column, gather_four<A>(from, part.row + row, part.column + column, left, dtype));
        }
    }
};

// Puts a whole tile of `rows` rows and `columns` columns into shared memory.
template <typename A, int threads, int rows, int columns>
__device__ __forceinline__ void put_tile(A *to, const matrix &from, uint32_t first_row, int rows_left, int columns_left, bops_dtype dtype) {
#pragma unroll 1
    for (int at = int(threadIdx.x); at < rows * columns / 4; at += threads) {
        const int row = at / (columns / 4), column = at % (columns / 4) * 4, left = row < rows_left ? columns_left - column : 0;
        *reinterpret_cast<four<A> *>(to + row * (columns + pad) + column) =
            from.is_vector ? widen_four<A>(fetch_four<A>(from, first_row + row, column, left > 0, dtype), dtype)
                           : gather_four<A>(from, first_row + row, column, left, dtype);
    }
}

// sums[i][j] += the sum over `depth` columns of a row of the left tile times a row of the right one.
template <int depth, int left_row, int right_row, int high, int wide, typename A, int rows, int columns>
__device__ __forceinline__ void add_rows_by_rows(const A *left, const A *right, A (&sums)[rows][columns]) {
#pragma unroll 1
    for (int k = 0; k < depth; k += 4) {
        four<A> b[columns];
#pragma unroll
        for (int j = 0; j < columns; ++j) b[j] = load_four(right + j * wide * right_row + k);
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const four<A> a = load_four(left + i * high * left_row + k);
#pragma unroll
            for (int c = 0; c < 4; ++c)
#pragma unroll
                for (int j = 0; j < columns; ++j) sums[i][j] += a.at[c] * b[j].at[c];
        }
    }
}

// sums[i][n] += the sum over `depth` columns of a row of the left tile times a column of the right one.
template <int depth, int left_row, int right_row, int high, int wide, typename A, int rows, int columns>
__device__ __forceinline__ void add_rows_by_columns(const A *left, const A *right, A (&sums)[rows][columns]) {
#pragma unroll 1
    for (int k = 0; k < depth; k += 4) {
        four<A> a[rows];
#pragma unroll
        for (int i = 0; i < rows; ++i) a[i] = load_four(left + i * high * left_row + k);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            four<A> b[columns / 4];
#pragma unroll
            for (int g = 0; g < columns / 4; ++g) b[g] = load_four(right + (k + c) * right_row + g * 4 * wide);
#pragma unroll
            for (int i = 0; i < rows; ++i)
#pragma unroll
                for (int n = 0; n < columns; ++n) sums[i][n] += a[i].at[c] * b[n / 4].at[n % 4];
        }
    }
}

// Where sums of chains lie that are added up in local memory, since they are read and written once in many steps. y of threadIdx is 0, which the compiler does not
// know: it cannot keep in registers what begins at any index.
template <typename A> __device__ __forceinline__ A *in_local_memory(A *memory) {
    uint32_t y;
    asm volatile("mov.u32 %0, %%tid.y;" : "=r"(y));
    return memory + y;
}

// The keys of a sample, and which of them its queries see.
struct sight {
    int32_t length, queries;
    int32_t before, after; // query i sees the keys j for which before <= j - i <= after and j < length

    sight() = default;
    __device__ __forceinline__ sight(const bops_attention_params &p, const void *lengths, uint64_t sample) {
        length = int32_t(p.keys), queries = int32_t(p.queries);
        if (p.has_lengths) {
            const uint64_t at = sample * p.length_stride;
            int64_t given;
            if (p.lengths == BOPS_I64) given = static_cast<const int64_t *>(lengths)[at];
            else if (p.lengths == BOPS_I32) given = static_cast<const int32_t *>(lengths)[at];
            else given = static_cast<const uint32_t *>(lengths)[at];
            length = int32_t(min(max(given, int64_t(0)), int64_t(length)));
        }
        const int64_t shift = p.from_end ? int64_t(length) - queries : 0;
        // Beyond 32 bits nothing is hidden.
        before = int32_t(max(shift - p.left, -int64_t(INT32_MAX))), after = int32_t(min(shift + p.right, int64_t(INT32_MAX)));
    }
    // The keys that query i sees, from the first on and without the last.
    __device__ __forceinline__ int first_key(int i) const { return within(int64_t(i) + before, length); }
    __device__ __forceinline__ int last_key(int i) const { return i < queries ? within(int64_t(i) + after + 1, length) : 0; }
    // The queries that see key j.
    __device__ __forceinline__ int first_query(int j) const { return within(int64_t(j) - after, queries); }
    __device__ __forceinline__ int last_query(int j) const { return j < length ? within(int64_t(j) - before + 1, queries) : 0; }

  private:
    static __device__ __forceinline__ int within(int64_t at, int count) { return int(min(max(at, int64_t(0)), int64_t(count))); }
};

// What becomes of products of queries and keys.
template <typename A> struct score_rule {
    const char *bias; // of the sample and head

    __device__ __forceinline__ score_rule(const bops_attention_params &p, const void *bias_, uint64_t sample, uint64_t head)
        : bias(static_cast<const char *>(bias_)) {
        const uint32_t bytes = p.mask == BOPS_ATTENTION_BOOL ? 1 : p.mask == BOPS_ATTENTION_BIAS_WIDE ? uint32_t(sizeof(A)) : bytes_of<A>(p.dtype);
        if (p.mask != BOPS_ATTENTION_UNMASKED) bias += (sample * p.bias.sample + head * p.bias.head) * bytes;
    }
    static __device__ __forceinline__ bool is_plain(const bops_attention_params &p) { return p.soft_cap == 0 && p.mask == BOPS_ATTENTION_UNMASKED; }
    // The score of a product, of a query that sees the key unless the mask hides it: then it is -infinity. slope: of the soft cap.
    __device__ __forceinline__ A score(const bops_attention_params &p, A product, uint32_t query, uint32_t key, A &slope) const {
        A t = product * A(p.scale);
        slope = A(1);
        if (p.soft_cap != 0) {
            const A part = tangent(t / A(p.soft_cap));
            t = A(p.soft_cap) * part, slope = (A(1) - part) * (A(1) + part);
        }
        if (p.mask == BOPS_ATTENTION_UNMASKED) return t;
        const uint64_t at = query * p.bias.row + key * p.bias.column;
        if (p.mask == BOPS_ATTENTION_BOOL) return bias[at] != 0 ? t : -A(INFINITY);
        return t + load_element<A>(bias, at, p.dtype, p.mask == BOPS_ATTENTION_BIAS_WIDE);
    }
};

// Combines a value of the `wide` threads of a row; each of them gets the result.
template <int wide, typename A, typename F> __device__ __forceinline__ A across_row(A value, const F &combine) {
#pragma unroll
    for (int offset = wide / 2; offset > 0; offset >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// Stores columns of a row from `column` on, of which `left` are there: values, with beta times what is there.
template <typename A> __device__ __forceinline__ void store_four(char *base, uint64_t row, uint64_t column_stride, uint32_t column, int left,
                                                                 bops_dtype dtype, bool is_vector, A beta, four<A> values) {
    const uint64_t at = row + column * column_stride;
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (beta != A(0) && c < left) values.at[c] += beta * load_element<A>(base, at + c * column_stride, dtype, false);
    if (is_vector && left > 0) {
        if (sizeof(A) == 8 || dtype == BOPS_F32) {
            *reinterpret_cast<four<A> *>(base + at * sizeof(A)) = values;
        } else if constexpr (sizeof(A) == 4) {
            const packed<8> words = dtype == BOPS_F16 ? pack<__half, 8>(values.at) : pack<__nv_bfloat16, 8>(values.at);
            *reinterpret_cast<packed<8> *>(base + at * 2) = words;
        }
        return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (c < left) store_element<A>(base, at + c * column_stride, dtype, false, values.at[c]);
}

// Which tile, head and sample a block has. Tiles of one head follow each other; the last tile comes first, since under a causal mask it has the most keys.
struct place_of_block {
    uint32_t tile, head, sample;
    __device__ __forceinline__ place_of_block(uint32_t tiles, uint32_t heads) {
        tile = tiles - 1 - blockIdx.x % tiles;
        const uint32_t rest = blockIdx.x / tiles;
        head = rest % heads, sample = rest / heads;
    }
};

inline launch_shape shape_of(uint64_t blocks, int threads, size_t shared_bytes) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(blocks)), shape.block = dim3(uint32_t(threads)), shape.shared_bytes = uint32_t(shared_bytes);
    return shape;
}

inline uint64_t tiles_of(uint64_t count, uint64_t tile) { return (count + tile - 1) / tile; }

// Calls f(type_tag<A>) with the type of sums.
template <typename F> bops_status for_sums(bops_dtype dtype, const F &f) { return dtype == BOPS_F64 ? f(type_tag<double>{}) : f(type_tag<float>{}); }

} // namespace attention
} // namespace bops
