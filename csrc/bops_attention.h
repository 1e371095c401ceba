/* The C ABI of the CUDA kernels of attention; the rules of bops.h hold here. A form has its own functions. */
#ifndef BOPS_ATTENTION_H
#define BOPS_ATTENTION_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operands whose accesses are of four neighbours: columns lie side by side, there is a multiple of four of them, and rows start at multiples of four
 * elements of an address that is a multiple of as many bytes, at most 16. */
enum {
    BOPS_ATTENTION_Q = 1,
    BOPS_ATTENTION_K = 2,
    BOPS_ATTENTION_V = 4,
    BOPS_ATTENTION_Y = 8,
    BOPS_ATTENTION_DY = 16,
    BOPS_ATTENTION_DQ = 32,
    BOPS_ATTENTION_DK = 64,
    BOPS_ATTENTION_DV = 128
};

typedef struct {
    uint32_t padded;  /* columns of a tile, at least depth and value_depth: 32, 64, 128 or 256, of f64 and of the gradient of the bias 64 or 256 */
    uint32_t vectors; /* the sum of the numbers of the operands that are accessed in fours */
} bops_attention_choice;

/* What a score is changed by, besides lengths, windows and caps. */
typedef uint32_t bops_attention_mask;
enum {
    BOPS_ATTENTION_UNMASKED = 0,
    BOPS_ATTENTION_BOOL = 1,     /* a key is seen where it is true */
    BOPS_ATTENTION_BIAS = 2,     /* added, of the type of q */
    BOPS_ATTENTION_BIAS_WIDE = 3 /* added, of the type of sums */
};

/* Elements from one sample, head, row and column to the next. Rows are queries or keys; of the bias rows are queries and columns are keys, and a stride
 * is 0 where it is broadcast. */
typedef struct {
    uint64_t sample, head, row, column;
} bops_attention_strides;

/* Keys and values lie in pages of a pool: those of a sample from k * page on, and before (k + 1) * page, are the rows of the page that its number k names.
 * There numbers are those of `count` pages: another one names no page, whose keys are not seen. A page of 0 keys: keys lie one after another. */
typedef struct {
    uint64_t count;
    uint64_t sample, column; /* elements from one sample's numbers, and from one number, to the next */
    uint32_t page;           /* keys of one */
    bops_dtype dtype;        /* I32, I64 or U32 */
} bops_attention_pages;

/* Query i of a sample of `length` keys sees key j if j < length and -left <= j - (i + shift) <= right, where shift is length - queries if `from_end`,
 * else 0. A length that is not given is `keys`. */
typedef struct {
    uint32_t samples, heads, kv_heads, queries, keys, depth, value_depth; /* queries and keys are below 2^31 - 256 */
    uint32_t shared_by;                                                   /* heads of q that share one of the kv_heads of k and v */
    uint32_t from_end;
    int64_t left, right;       /* at most 2^40, also where there is no bound */
    bops_dtype dtype, lengths; /* of q; of the lengths, I32, I64 or U32 */
    uint32_t has_lengths;
    bops_attention_mask mask;
    uint64_t length_stride;
    bops_attention_pages pages;                   /* backward has none */
    bops_attention_strides q, k, v, y, lse, bias; /* the columns of lse are one; where there are pages, samples of k and v are pages */
    double scale, soft_cap;                       /* a soft_cap of 0 is none */
} bops_attention_params;

/* The bias, the lengths and the pages are null where there are none; so is lse, of the type of sums, where it is not asked for. */
typedef struct {
    const void *q, *k, *v, *bias, *lengths, *pages;
    void *y, *lse;
} bops_attention_operands;

/* The keys of a sample and a head are split in parts, each with a block for each tile of `rows` of the queries of all heads that share that one. What the parts
 * of a row give is merged in their order.
 * K and V of `vectors` here: rows are whole vectors of 16 bytes, and start at multiples of one. */
typedef struct {
    uint32_t padded;  /* elements of a row in shared memory, at least depth and value_depth: 64, 128 or 256 */
    uint32_t rows;    /* 4, but of 16 bits, or 8; on tensor cores 16 */
    uint32_t vectors; /* as in bops_attention_choice */
    uint32_t parts;   /* of the keys */
    uint32_t
        keys_per_part; /* a multiple of the keys of a tile, of which 16 KiB hold rows of `padded` elements; on tensor cores of 64, with `padded` 64 of 128 */
} bops_attention_split_choice;

/* Tensor cores: elements are f16 or bf16. Rows of q, k, v and y are whole vectors of 16 bytes, and start at multiples of one; there are no pages. */
typedef struct {
    uint32_t padded;   /* columns of a tile, at least depth and value_depth: 32, 64, 128 or 256 */
    uint32_t is_plain; /* scores are products times a scale of at least 2^-100; no soft cap, no mask */
} bops_attention_mma_choice;

/* The gradient of an operand has its type. It becomes its sum and beta times what is there, which with beta 0 is not read. */
typedef struct {
    bops_attention_strides strides;
    double beta;
} bops_attention_gradient;

typedef struct {
    bops_attention_params of;
    bops_attention_strides dy;
    bops_attention_gradient dq, dk, dv, dbias;
    uint32_t bias_samples, bias_heads, bias_queries, bias_keys; /* extents of the bias: 1 where it is broadcast */
} bops_attention_backward_params;

/* Gradients that are not asked for are null: of the form of queries the others are, of that of keys dk or dv may be. */
typedef struct {
    const void *q, *k, *v, *y, *lse, *dy, *bias, *lengths;
    void *dq, *dk, *dv, *dbias;
} bops_attention_backward_operands;

/* The specialisation is the type of q. */
BOPS_FORM(bops_attention_simt, bops_dtype, bops_attention_params, bops_attention_choice, bops_attention_operands)

/* The specialisation is the type of q. */
BOPS_FORM(bops_attention_mma, bops_dtype, bops_attention_params, bops_attention_mma_choice, bops_attention_operands)

/* The specialisation is the type of q. The workspace holds, of the type of sums, for each query and part a row of value_depth sums of weighted values, rounded up
 * to a multiple of 4, and behind all of these for each query and part the largest score and the sum of exponentials of differences from it. */
BOPS_FORM(bops_attention_split, bops_dtype, bops_attention_params, bops_attention_split_choice, bops_attention_operands)

/* As bops_attention_split, of f16 and bf16 on tensor cores. Rows of k and v are whole vectors of 16 bytes, and start at multiples of one. The largest scores in the
 * workspace are exponents of two. */
BOPS_FORM(bops_attention_split_mma, bops_dtype, bops_attention_params, bops_attention_split_choice, bops_attention_operands)

/* The workspace holds the sum of dy * y of each query, a dense [samples, heads, queries] of the type of sums, which the first of these forms writes and the
 * others read. */
BOPS_FORM(bops_attention_backward_delta, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands)
BOPS_FORM(bops_attention_backward_queries, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands)
BOPS_FORM(bops_attention_backward_keys, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands)
BOPS_FORM(bops_attention_backward_bias, bops_dtype, bops_attention_backward_params, bops_attention_choice, bops_attention_backward_operands)

/* Tensor cores, of rows of at most 128 columns. Rows of y, dy and the gradients are whole vectors as well; there is no gradient of the bias. The workspace
 * holds two numbers of f32 for each query, a dense [samples, heads, queries, 2], which the first of these forms writes and the others read. */
BOPS_FORM(bops_attention_backward_mma_delta, bops_dtype, bops_attention_backward_params, bops_attention_mma_choice, bops_attention_backward_operands)
BOPS_FORM(bops_attention_backward_mma_queries, bops_dtype, bops_attention_backward_params, bops_attention_mma_choice,
          bops_attention_backward_operands)
BOPS_FORM(bops_attention_backward_mma_keys, bops_dtype, bops_attention_backward_params, bops_attention_mma_choice, bops_attention_backward_operands)

#ifdef __cplusplus
}
#endif
#endif
