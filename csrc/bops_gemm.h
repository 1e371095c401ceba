/* The C ABI of the CUDA kernels of matrix products, beside that of all others in bops.h, whose rules hold here. */
#ifndef BOPS_GEMM_H
#define BOPS_GEMM_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A product of matrices, out[z, m, n] = alpha * sum over s, k of left[z, s, m, k] * right[z, s, k, n], and what is done with its elements.
 * Transposes are strides. Left and right have the dtype of the call. */
enum { BOPS_GEMM_EXTENTS = 6 };

/* Element strides of a row, of a column and of each batch extent; 0 where a matrix has no such extent. */
typedef struct {
    uint64_t row, column;
    uint64_t batch[BOPS_GEMM_EXTENTS];
} bops_gemm_matrix;

/* A factor, which has the extents that are summed over as well. */
typedef struct {
    bops_gemm_matrix matrix;
    uint64_t summed[BOPS_GEMM_EXTENTS];
} bops_gemm_factor;

typedef uint32_t bops_gemm_epilogue;
enum {
    /* pre = v + bias, where it is wanted; out = activation(v + bias). */
    BOPS_GEMM_FORWARD = 0,
    /* `other` is dout; out = dout * activation'(v + bias), dense, its rows one after the other. Its column sums, before it is rounded, where they are
     * wanted. */
    BOPS_GEMM_DERIVATIVE = 1,
    /* out = v + beta * out; beta 0 does not read it. */
    BOPS_GEMM_GRADIENT = 2
};

typedef struct {
    uint64_t m, n, k;
    uint32_t batch_rank, summed_rank;  /* extents that there are, the last one varies fastest */
    uint64_t batch[BOPS_GEMM_EXTENTS]; /* fewer than 2^31 matrices together */
    uint64_t summed[BOPS_GEMM_EXTENTS];
    bops_gemm_factor left, right;
    bops_gemm_matrix out, other, bias;             /* other: pre or dout. bias: either its row or its column stride is 0, and it has no batch */
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32 */
    bops_gemm_epilogue epilogue;
    bops_activation activation;
    double alpha, beta;
} bops_gemm_params;

/* What Rust chose. Threads walk over a tile of out along its *fast* index, which is n, or m with `across`; the other index is the *slow* one. */
typedef struct {
    uint32_t tile;   /* rows and columns of a block's tile. simt: 128 (f64 64) or 32; mma, and bops_conv_simt of f32: 128 or 64 */
    uint32_t splits; /* blocks that share the sums of one tile. More than 1: they write their parts to `parts`, and gemm_finish follows */
    uint32_t across;
    uint32_t quads; /* 1: out, other and parts have stride 1 along the fast index, and four elements from any multiple of four on lie at a multiple
                             of 16 bytes, those of 16 bits of 8 */
    uint32_t
        left_bytes; /* mma: bytes of one access: 16, 8, 4 or those of an element. Of more than one element: they lie one after the other along k, or
                             with left_across along m, and every such run of a tile starts at a multiple of the bytes */
    uint32_t right_bytes;
    uint32_t left_across; /* mma: shared memory holds left as it lies along m. right_across: along n */
    uint32_t right_across;
} bops_gemm_choice;

/* Absent operands are null. parts: of the accumulator type, dense [split, z, slow, fast]. column_sums: of the accumulator type, a row of n elements for
 * each z and each tile along m. */
typedef struct {
    const void *left, *right, *bias;
    void *out, *other, *parts, *column_sums;
} bops_gemm_operands;

/* Registers and shared memory; any strides, all dtypes. */
bops_status bops_gemm_simt_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype);
bops_status bops_gemm_simt_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype,
                                  const bops_gemm_operands *operands, bops_stream stream);
/* Tensor cores of compute capability 8.0; any strides; f16, bf16, and f32 whose factors are rounded to tf32. Not left_across without right_across. */
bops_status bops_gemm_mma_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype);
bops_status bops_gemm_mma_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype, const bops_gemm_operands *operands,
                                 bops_stream stream);
/* What Rust chose for gemm_few_rows. */
typedef struct {
    uint32_t columns;      /* of a block: 32 or 16 */
    uint32_t right_across; /* right lies along n, with stride 1, its rows at multiples of an eighth of the columns; 0: along k, its columns at
                              multiples of 16 bytes, and k is a multiple of eight */
} bops_gemm_few_rows_choice;

/* Tensor cores of compute capability 8.0; f16 and bf16; m at most 16; left lies along k, its rows at multiples of 16 bytes, and k is a multiple of eight;
 * n is a multiple of an eighth of the columns where right lies along n. Nothing that is summed over besides k, no derivative. */
bops_status bops_gemm_few_rows_prepare(const bops_gemm_params *params, const bops_gemm_few_rows_choice *choice, bops_dtype dtype);
bops_status bops_gemm_few_rows_launch(const bops_gemm_params *params, const bops_gemm_few_rows_choice *choice, bops_dtype dtype,
                                      const bops_gemm_operands *operands, bops_stream stream);
/* What Rust chose for gemm_wgmma. Neither out nor other has a stride but 1 along n, bias has none along m. */
typedef struct {
    uint32_t rows, columns; /* of a tile: 128, and 192, which is for copies alone, or 128 */
    uint32_t splits;        /* as in bops_gemm_choice */
    uint32_t group;         /* rows of tiles that are walked over together */
    uint32_t blocks;        /* all of them run at once */
    uint32_t wide; /* 1: of out and other eight elements of 16 bits from any multiple of eight on lie at a multiple of 16 bytes, two of f32 from
                               any multiple of two on at one of 8 */
    uint32_t
        copies; /* 1: the copy engine stores out and pre, reads what the epilogue does, all of 16 bits: they are wide, n is a multiple of eight, and
                               there is one split */
    uint32_t reads;       /* 1: the epilogue reads dout, or what out was, in tiles of 128 columns and one split */
    uint32_t left_across; /* left lies along m, with stride 1; 0: along k. right_across: along n */
    uint32_t right_across;
} bops_gemm_wgmma_choice;

/* Tensor cores of compute capability 9.0, through code for sm_90a; f16 and bf16. The strides of left and right that are not 1 are multiples of 16 bytes
 * and less than 2^40, and so are the addresses; extents are below 2^31. At most two batch extents and one that is summed over. */
bops_status bops_gemm_wgmma_prepare(const bops_gemm_params *params, const bops_gemm_wgmma_choice *choice, bops_dtype dtype);
bops_status bops_gemm_wgmma_launch(const bops_gemm_params *params, const bops_gemm_wgmma_choice *choice, bops_dtype dtype,
                                   const bops_gemm_operands *operands, bops_stream stream);

/* A copy of a factor of 16-bit elements: lines whose elements lie one after the other, in the copy from multiples of 16 bytes on, dense
 * [outer.., lines, length rounded up to eight], 0 behind the end of a line. */
typedef struct {
    uint64_t lines, length; /* not 0 */
    uint64_t stride;        /* elements from one line to the next */
    uint32_t rank;          /* extents outside of lines, the last one varies fastest */
    uint32_t multiprocessors;
    uint64_t outer[BOPS_GEMM_EXTENTS], strides[BOPS_GEMM_EXTENTS];
} bops_gemm_repack_params;

bops_status bops_gemm_repack_prepare(const bops_gemm_repack_params *params);
bops_status bops_gemm_repack_launch(const bops_gemm_repack_params *params, const void *from, void *to, bops_stream stream);

/* The sums of the parts of a product and what is done with them. */
typedef struct {
    uint64_t split_stride;   /* elements from one part to the next */
    bops_gemm_matrix source; /* a part */
    uint32_t splits;         /* 0: every sum is 0 */
    uint32_t across, quads;  /* as in the product's choice; quads: the source too */
} bops_gemm_finish_choice;

enum { BOPS_GEMM_FINISH_ROWS = 32 }; /* of a tile of gemm_finish along the slow index, for column_sums */

bops_status bops_gemm_finish_prepare(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype);
/* source may be out or other, where it lies as they do. */
bops_status bops_gemm_finish_launch(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype, const void *source,
                                    const bops_gemm_operands *operands, bops_stream stream);

/* dpre = dout * activation'(pre), dense [z, m, n], and its column sums before it is rounded; either may be absent. */
typedef struct {
    uint64_t m, n;
    uint32_t batch_rank;
    uint64_t batch[BOPS_GEMM_EXTENTS]; /* fewer than 2^31 matrices together */
    bops_gemm_matrix dout, saved;
    bops_dtype dout_dtype, saved_dtype; /* that of dpre or BOPS_F32 */
    bops_activation activation;
    uint32_t from_out; /* saved is the result, of relu, sigmoid or tanh */
    uint32_t quads;    /* 1: n is a multiple of four; dout and saved have stride 1 along n, and four elements from any multiple of four on lie at a
                          multiple of 16 bytes, those of 16 bits of 8 */
    uint32_t vectors;  /* 1: the dtype of the call is not BOPS_F64, dout and saved are of it and have stride 1 along n, and their rows, like those of
                          dpre, are whole vectors of 16 bytes at multiples of 16 bytes */
    uint32_t rows;     /* of a tile along m: a row of column_sums; a multiple of BOPS_GEMM_DPRE_ROWS */
} bops_gemm_dpre_params;

enum { BOPS_GEMM_DPRE_ROWS = 32, BOPS_GEMM_DPRE_COLUMNS = 128 }; /* of a tile along m, the least, and along n */

/* saved is null for the identity. */
bops_status bops_gemm_dpre_prepare(const bops_gemm_dpre_params *params, bops_dtype dtype);
bops_status bops_gemm_dpre_launch(const bops_gemm_dpre_params *params, bops_dtype dtype, const void *dout, const void *saved, void *dpre,
                                  void *column_sums, bops_stream stream);

/* dbias = sum of the rows + beta * dbias. */
typedef struct {
    uint64_t rows, n; /* of column_sums */
    uint64_t stride;  /* of dbias */
    double beta;
} bops_gemm_dbias_params;

bops_status bops_gemm_dbias_prepare(const bops_gemm_dbias_params *params, bops_dtype dtype);
bops_status bops_gemm_dbias_launch(const bops_gemm_dbias_params *params, bops_dtype dtype, const void *column_sums, void *dbias, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
