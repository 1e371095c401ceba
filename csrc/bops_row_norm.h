/* The C ABI of the CUDA kernels of layer_norm and rms_norm; the rules of bops.h hold here. */
#ifndef BOPS_ROW_NORM_H
#define BOPS_ROW_NORM_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t bops_row_norm_variant;
enum {
    /* Forward. The row stays in registers, of a part of a block, a block or a cluster. Threads up to 1024 for rms_norm of 4-byte elements where 4
     * vectors a thread are the whole row of one block. */
    BOPS_ROW_NORM_RESIDENT = 0,
    /* Forward of 16-bit elements. The row stays in shared memory, of a block of 256 threads or a cluster of them; as many threads a row.
     * vec_bytes 16. */
    BOPS_ROW_NORM_SHARED = 1,
    /* Forward. Chunks of rows: moments, merge, apply; reads x twice. Any length, alignment and dtype. */
    BOPS_ROW_NORM_SPLIT = 2,
    /* Backward. Teams, of a part of a block up to a cluster, walk over rows with fixed columns (8, 16 or 32 a thread; with dh not 32, with
     * a cluster not 8; 8 needs 256 threads); parameter gradients stay on chip until one partial row a team is written. One row stride
     * below 2^32 a tensor; vec_bytes 16. */
    BOPS_ROW_NORM_BACKWARD_PERSISTENT = 3,
    /* Backward. One launch whose blocks own a row of dx or a strip of columns of the parameter gradients; in place two. vec_bytes 16,
     * rows of at most 8192 columns; grid = rows + ceil(cols * element bytes / 128). */
    BOPS_ROW_NORM_BACKWARD_FEW_ROWS = 4,
    /* Backward. Chunks of rows: sums, merge, apply; reads dy and x twice. Any length, alignment and dtype. */
    BOPS_ROW_NORM_BACKWARD_SPLIT = 5,
    /* Backward. There are no rows or no columns: the parameter gradients are set to zero. */
    BOPS_ROW_NORM_BACKWARD_ZERO = 6,
    /* Forward. Teams, blocks or clusters, walk over rows; vectors are staged through shared memory: threads * stages * 16 bytes of it.
     * threads == threads_per_row, a multiple of 32; vectors 8 with stages 21, rms_norm with weight_dtype == dtype also 4 with 13 and up to
     * 1024 threads. grid: cluster times teams, at most as many as are resident. vec_bytes 16. */
    BOPS_ROW_NORM_RING = 7,
    /* Backward. The same; threads * stages * 32 bytes of shared memory; vectors 4, stages 13, f32 also 11; flushes 0,
     * partial_rows = teams * ceil(ceil(rows / teams) / flush_rows). */
    BOPS_ROW_NORM_BACKWARD_RING = 8,
    /* Forward of layer_norm, 16-bit elements, parameters of the same type. The row stays in registers, as it came, and fills the threads that hold
     * it. Those of a block: threads == threads_per_row, a multiple of 32 from 64 to 512, of 4 vectors. Those of a warp: threads 64, of 3 to 8 vectors,
     * no residual, one row stride a tensor. vec_bytes 16. */
    BOPS_ROW_NORM_PACKED = 9,
    /* Backward without dh. Teams of `cluster` blocks wherever they lie, up to 160, walk over rows and give each other their sums through the workspace;
     * compute capability 9.0. threads == threads_per_row, those that read, 256, of layer_norm of 16-bit elements 512; vectors 2, of 16-bit elements
     * 1 and two rows a turn; stages 6. grid: cluster times teams, all resident. One row stride below 2^32 a tensor; vec_bytes 16. The workspace
     * has grid * rows of a turn * 256 bytes more than the partial rows. */
    BOPS_ROW_NORM_BACKWARD_COOPERATIVE = 10
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_row_norm_variant variant;
    uint32_t vec_bytes;       /* bytes of one access to x, y, dy, ..: 16, 4 or 2 (f64: 8). Rows start at multiples of it and are a whole
                                 number of it; parameters start at multiples of the smaller of 16 and as many of their elements. */
    uint32_t vectors;         /* RESIDENT, PERSISTENT, FEW_ROWS: vectors per thread */
    uint32_t threads;         /* of a block; a multiple of 32, at most 512 but where a variant says otherwise; PERSISTENT: 256 or 512, the room
                                 for threads_per_row times rows */
    uint32_t threads_per_row; /* in one block: a power of two up to 32 or a multiple of 32; PERSISTENT with 16 or 32 columns a thread: at
                                 least 32. A block holds threads / threads_per_row rows, with a cluster 1 */
    uint32_t cluster;         /* blocks that share a row, 1..16 but where a variant says otherwise; more than 1 needs compute capability 9.0 and
                                 threads_per_row > 32 */
    uint32_t stages;          /* PERSISTENT: rows in flight, 1..4 */
    uint32_t grid;            /* blocks, a multiple of cluster; RESIDENT, SHARED, PACKED: enough for all rows */
    uint32_t flush_rows;      /* backward PERSISTENT, SPLIT, COOPERATIVE: rows that one accumulator takes before it is added to the next level */
    uint32_t flushes;         /* the same: flushes that the next level takes before a partial row is written. PERSISTENT: 0 is no next
                                 level, for blocks of one row */
    uint32_t chunks;          /* SPLIT: chunks of a row; a chunk is 1024 accesses. PERSISTENT: see late_blocks */
    uint32_t overlaps;        /* all but SPLIT, column sums too: 1 launches them while the previous kernel of the stream ends; they wait for it. Needs
                                 compute capability 9.0. RESIDENT: 2 lets the next kernel do the same at once */
    uint32_t late_blocks;     /* PERSISTENT without a cluster, rms_norm: the last blocks of the grid, which begin as others end. Those take `chunks`
                              turns, these the rows that are left */
    uint64_t partial_rows;    /* backward PERSISTENT, SPLIT, COOPERATIVE: rows of partial parameter gradients in the workspace */
} bops_row_norm_choice;

typedef struct {
    uint64_t rows; /* below 2^32 */
    uint64_t cols;
    uint64_t extent1; /* rows = extent0 * extent1 * extent2; extent0 is implied */
    uint64_t extent2;
    bops_row_strides x, residual, y, h;
    double eps;
    double weight_offset; /* added to the weight; rms_norm only */
} bops_row_norm_params;

/* Operands of forward; absent ones are null. x, residual, y and h have dtype `dtype`; weight, bias have `weight_dtype`, which is
 * `dtype` or BOPS_F32; mean and rstd are dense, one element a row, of the accumulator type. rms_norm has no bias and no mean.
 * h is absent exactly when residual is. y may be x, h may be residual. */
typedef struct {
    const void *x, *residual, *weight, *bias;
    void *y, *h, *mean, *rstd;
} bops_row_norm_operands;

bops_status bops_layer_norm_prepare(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                    bops_dtype weight_dtype);
bops_status bops_layer_norm_launch(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype,
                                   const bops_row_norm_operands *operands, void *workspace, bops_stream stream);
bops_status bops_rms_norm_prepare(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype);
bops_status bops_rms_norm_launch(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype,
                                 const bops_row_norm_operands *operands, void *workspace, bops_stream stream);

typedef struct {
    uint64_t rows; /* below 2^32 */
    uint64_t cols;
    uint64_t extent1;
    uint64_t extent2;
    bops_row_strides dy, x, dh, dx;
    double weight_offset;
} bops_row_norm_backward_params;

/* Operands of backward; absent ones are null. dy, x, dh and dx have dtype `dtype`; weight, dweight, dbias `weight_dtype`. With a
 * residual, x is the forward's h, dh is the gradient that reaches h from elsewhere and dx serves x and residual alike.
 * rms_norm has no mean and no dbias. dx may be dy. */
typedef struct {
    const void *dy, *x, *weight, *mean, *rstd, *dh;
    void *dx, *dweight, *dbias;
} bops_row_norm_backward_operands;

bops_status bops_layer_norm_backward_prepare(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                             bops_dtype weight_dtype, uint32_t has_dh);
bops_status bops_layer_norm_backward_launch(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                            bops_dtype weight_dtype, const bops_row_norm_backward_operands *operands, void *workspace,
                                            bops_stream stream);
bops_status bops_rms_norm_backward_prepare(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                           bops_dtype weight_dtype, uint32_t has_dh);
bops_status bops_rms_norm_backward_launch(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                          bops_dtype weight_dtype, const bops_row_norm_backward_operands *operands, void *workspace,
                                          bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
