/* The C ABI of the CUDA kernels of matrix products, beside that of all others in bops.h, whose rules hold here. */
#ifndef BOPS_GEMM_H
#define BOPS_GEMM_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A product of matrices, out[z, m, n] = alpha * sum over s, k of left[z, s, m, k] * right[z, s, k, n], followed by an epilogue. Transposes are strides.
 * left and right have the dtype of the call.
 * BOPS_GEMM_EXTENTS: batch extents, and summed extents, at most: those of a tensor of rank 8 besides its rows and columns. */
enum { BOPS_GEMM_EXTENTS = 6 };

/* Element strides of a row, of a column and of each batch extent; 0 where a matrix has no such extent. */
typedef struct {
    uint64_t row, column;
    uint64_t batch[BOPS_GEMM_EXTENTS];
} bops_gemm_matrix;

/* A factor, which also has strides of the extents that are summed over. */
typedef struct {
    bops_gemm_matrix matrix;
    uint64_t summed[BOPS_GEMM_EXTENTS];
} bops_gemm_factor;

/* What becomes of v = alpha * sum. */
typedef uint32_t bops_gemm_epilogue;
enum {
    /* pre = v + bias, stored if `other` is not null; out = activation(v + bias). */
    BOPS_GEMM_FORWARD = 0,
    /* `other` is dout; out = dout * activation'(v + bias), dense and row-major. If column_sums is not null, the columns of out are summed before they
     * are rounded. */
    BOPS_GEMM_DERIVATIVE = 1,
    /* out = v + beta * out; if beta is 0, out is not read. */
    BOPS_GEMM_GRADIENT = 2
};

typedef struct {
    uint64_t m, n, k;
    uint32_t batch_rank, summed_rank;  /* how many of the extents below there are; the last one varies fastest */
    uint64_t batch[BOPS_GEMM_EXTENTS]; /* fewer than 2^31 matrices together */
    uint64_t summed[BOPS_GEMM_EXTENTS];
    bops_gemm_factor left, right;
    bops_gemm_matrix out, other, bias;             /* other: pre or dout. bias: its row or its column stride is 0, and it has no batch */
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32 */
    bops_gemm_epilogue epilogue;
    bops_activation activation;
    double alpha, beta;
} bops_gemm_params;

/* What Rust chose. Threads walk over a tile of out along its *fast* index, which is n, or m if `across`; the other index is the *slow* one. */
typedef struct {
    uint32_t tile;   /* rows and columns of a block's tile. simt: 128 (f64 64) or 32; mma, and bops_conv_simt of f32: 128 or 64 */
    uint32_t splits; /* blocks that share the sums of one tile. More than 1: they write their parts to `parts`, and gemm_finish follows */
    uint32_t across;
    uint32_t quads; /* 1: out, other and parts have stride 1 along the fast index, and four elements from any multiple of four on start at a multiple
                            of their size, or of 16 bytes if that is less */
    uint32_t
        left_bytes; /* mma: bytes of one access: 16, 8, 4 or those of one element. If it has several elements, they are contiguous along k, or along m
                            with left_across, and every access of a tile is aligned to its size */
    uint32_t right_bytes;
    uint32_t left_across;  /* mma. 1: shared memory holds left with rows contiguous, as it is in global memory; 0: with k contiguous */
    uint32_t right_across; /* mma. 1: shared memory holds right with columns contiguous; 0: with k contiguous */
} bops_gemm_choice;

/* Absent operands are null. parts: of the accumulator type, dense [split, z, slow, fast]. column_sums: of the accumulator type, a row of n elements for
 * each z and each tile along m. */
typedef struct {
    const void *left, *right, *bias;
    void *out, *other, *parts, *column_sums;
} bops_gemm_operands;

/* Registers and shared memory; any strides, all dtypes. */
BOPS_FORM(bops_gemm_simt, bops_dtype, bops_gemm_params, bops_gemm_choice, bops_gemm_operands)

/* Tensor cores of compute capability 8.0; any strides; f16, bf16, and f32, which is rounded to tf32. Not left_across without right_across. */
BOPS_FORM(bops_gemm_mma, bops_dtype, bops_gemm_params, bops_gemm_choice, bops_gemm_operands)

/* What Rust chose for gemm_few_rows. */
typedef struct {
    uint32_t columns; /* of a block: 32 or 16 */
    uint32_t
        right_across; /* 1: right has stride 1 along n, and its rows start at multiples of columns / 8 elements; 0: stride 1 along k, and its columns
                              start at multiples of 16 bytes */
} bops_gemm_few_rows_choice;

/* Tensor cores of compute capability 8.0; f16 and bf16; m at most 16; left has stride 1 along k, its rows start at multiples of 16 bytes, and k is a
 * multiple of eight. With right_across n is a multiple of columns / 8. No summed extents, no derivative. */
BOPS_FORM(bops_gemm_few_rows, bops_dtype, bops_gemm_params, bops_gemm_few_rows_choice, bops_gemm_operands)

/* What Rust chose for gemm_wgmma. out and other have stride 1 along n, bias has stride 0 along m. */
typedef struct {
    uint32_t rows;      /* of a tile: 128 */
    uint32_t columns;   /* of a tile: 128, or 192 if `copies` and not `reads` */
    uint32_t splits;    /* as in bops_gemm_choice */
    uint32_t band_rows; /* rows of tiles of a band, which neighbouring blocks take column after column */
    uint32_t blocks;    /* as many as run at once */
    uint32_t wide; /* 1: in out and other eight elements of 16 bits from any multiple of eight on start at a multiple of 16 bytes, and two of f32 from
                         any multiple of two on at a multiple of 8 bytes */
    uint32_t
        copies; /* 1: the copy engine stores out and pre, and loads what the epilogue reads. All of these are wide and of 16 bits, n is a multiple of
                         eight, and there is one split */
    uint32_t reads;        /* 1: the epilogue reads dout, or the previous contents of out; tiles have 128 columns, and there is one split */
    uint32_t left_across;  /* 1: left has stride 1 along m; 0: along k */
    uint32_t right_across; /* 1: right has stride 1 along n; 0: along k */
} bops_gemm_wgmma_choice;

/* Tensor cores of compute capability 9.0, through code for sm_90a; f16 and bf16. The strides of left and right other than 1 are multiples of 16 bytes
 * below 2^40 bytes, and addresses are multiples of 16 bytes; extents are below 2^31. At most two batch extents and one summed extent. */
BOPS_FORM(bops_gemm_wgmma, bops_dtype, bops_gemm_params, bops_gemm_wgmma_choice, bops_gemm_operands)

/* A copy of a factor of 16-bit elements, whose lines are contiguous. In the copy lines start at multiples of 16 bytes: dense
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

/* Adds up the parts of a product's sums and applies the epilogue. */
typedef struct {
    uint64_t split_stride;   /* elements from one part to the next */
    bops_gemm_matrix source; /* a part */
    uint32_t splits;         /* 0: every sum is 0 */
    uint32_t across, quads;  /* as in the product's choice; quads holds for the source, too */
} bops_gemm_finish_choice;

/* Extent of a tile of gemm_finish along the slow index. column_sums has a line for each such extent: a larger one leaves fewer lines to add up, and
 * fewer blocks. */
enum { BOPS_GEMM_FINISH_ROWS = 32 };

bops_status bops_gemm_finish_prepare(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype);
/* source may be out or other, if it has their layout. */
bops_status bops_gemm_finish_launch(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype, const void *source,
                                    const bops_gemm_operands *operands, bops_stream stream);

/* dpre = dout * activation'(pre), dense [z, m, n], and its column sums before it is rounded; either may be null. */
typedef struct {
    uint64_t m, n;
    uint32_t batch_rank;
    uint64_t batch[BOPS_GEMM_EXTENTS]; /* fewer than 2^31 matrices together */
    bops_gemm_matrix dout, saved;
    bops_dtype dout_dtype, saved_dtype; /* that of dpre or BOPS_F32 */
    bops_activation activation;
    uint32_t from_out; /* 1: saved is the output of a relu, sigmoid or tanh; 0: pre */
    uint32_t quads;    /* 1: n is a multiple of four; dout and saved have stride 1 along n, and four elements from any multiple of four on start at a
                          multiple of their size, or of 16 bytes if that is less */
    uint32_t vectors; /* 1: the dtype of the call is not BOPS_F64, dout and saved are of it and have stride 1 along n, and the rows of dout, saved and
                          dpre start and end at multiples of 16 bytes */
    uint32_t rows;    /* of a tile along m, which is a row of column_sums: a multiple of BOPS_GEMM_DPRE_ROWS */
} bops_gemm_dpre_params;

enum {
    BOPS_GEMM_DPRE_ROWS = 32,    /* the least rows of a tile of dpre */
    BOPS_GEMM_DPRE_COLUMNS = 128 /* columns of every tile of dpre */
};

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
