/* The C ABI of the CUDA kernels of softmax; the rules of bops.h hold here. A form has its own choice, which Rust makes, and its own functions. */
#ifndef BOPS_SOFTMAX_H
#define BOPS_SOFTMAX_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fields that choices share:
 * vec_bytes: bytes of one access. Rows, or runs along inner, start at multiples of it and are a whole number of accesses, each of which is a vector.
 * vectors: of each tensor that a thread holds.
 * threads: of a block, a multiple of 32, at most 512 unless said otherwise.
 * cluster: blocks that share a row, at most 16. More than 1 needs compute capability 9.0.
 * grid: blocks of a launch.
 * overlaps: 1 if the launch begins while the previous kernel of the stream ends, and waits for it. Needs compute capability 9.0. */

/* inner is 1. A row stays in the registers of a part of a block, of a block or, backward, of a cluster. Elements of at most 4 bytes. */
typedef struct {
    uint32_t vec_bytes;       /* 16, 4 or 2 */
    uint32_t vectors;         /* 2, 4 or 8, backward also 1, and 8 of f32 only with a cluster; where vec_bytes is not 16: 16 */
    uint32_t threads_per_row; /* that hold a row in one block: a power of two up to 32, or a multiple of 32; of clusters at least 64 */
    uint32_t threads;         /* threads_per_row times the rows of a block, which is 1 of clusters */
    uint32_t cluster;         /* forward 1; backward more than 1 only with vec_bytes 16 and 8 vectors */
    uint32_t grid;            /* enough for all rows */
    uint32_t overlaps;
} bops_softmax_rows_resident_choice;

/* inner is 1. A row is staged in the shared memory of a cluster in accesses of 16 bytes: forward x, of the type of y; backward y, of f32, while
 * threads hold dy in 8 vectors. Needs compute capability 9.0. */
typedef struct {
    uint32_t threads; /* forward 256 or 512; backward at least 64, enough for the block's part of a row */
    uint32_t cluster; /* at least 2 */
    uint32_t grid;    /* cluster times the rows */
} bops_softmax_rows_shared_choice;

/* A tile of lines side by side stays in the registers of a block. Elements of at most 4 bytes. */
typedef struct {
    uint32_t vec_bytes; /* 16, 4 or 2; forward of 16-bit elements 8, 4 or 2 */
    uint32_t vectors;   /* forward 4, 8, 16, of f32 also 12, of 16-bit elements also 24 and 32; backward 4, 8; where vec_bytes is at most 4: 16 */
    uint32_t threads;   /* at most channel_bounds::threads of the kernel; a multiple of across */
    uint32_t across;    /* vectors side by side along inner that a tile has: a power of two up to 32 */
    uint32_t tiles;     /* of a block: 1, or forward 2, with 32 vectors and more than 128 threads a tile */
    uint32_t grid;      /* enough for all tiles */
    uint32_t overlaps;
} bops_softmax_channels_resident_choice;

/* Backward. A tile of lines side by side stays with a block in accesses of 16 bytes: y and, of 16-bit elements, the last of dy in shared memory, the
 * rest of dy in registers, 16 vectors of each. Elements of at most 4 bytes. */
typedef struct {
    uint32_t threads; /* of 16-bit elements at most 256 a tile */
    uint32_t across;  /* vectors side by side along inner that a tile has: a power of two up to 32 */
    uint32_t tiles;   /* of a block: 1, or of 16-bit elements 2 */
    uint32_t grid;    /* enough for all tiles */
    uint32_t overlaps;
} bops_softmax_backward_channels_shared_choice;

/* Three launches over chunks of lines: parts, merge, apply. They read their inputs twice, and take lines of any length, alignment and type. */
typedef struct {
    uint32_t vec_bytes; /* 16, 4 or 2; of f64: 8 */
    uint32_t chunks;    /* of a line: of a row 1024 accesses each, else 32 elements */
    uint32_t grid;      /* of each launch; blocks stride over chunks */
} bops_softmax_split_choice;

/* What tells compiled kernels of a form apart, besides its choice and whether lines fill every thread. */
typedef struct {
    bops_dtype dtype;   /* of y, and backward of dy, in whose accesses and elements a choice counts */
    bops_dtype x_dtype; /* of x, or backward of dx: `dtype`, or f16 or bf16 where that is f32. Its elements are accessed as the f32 that they stand
                           for, half as many bytes at once; forward, rows_shared refuses them */
    uint32_t is_log;
} bops_softmax_specialisation;

/* Lines along an axis of `dim` elements, of every tensor `steps` elements apart: `outer` blocks (strided as rows are) of `inner` lines side by side.
 * Rows are inner 1 and steps 1. Tensors in the order of the operands: x and y; backward y, dy and dx. */
typedef struct {
    uint64_t outer; /* below 2^32 */
    uint64_t dim;
    uint64_t inner;
    uint64_t extent1; /* outer = extent0 * extent1 * extent2; extent0 is implied */
    uint64_t extent2;
    bops_row_strides strides[3];
    uint64_t steps[3];
    double scale;
} bops_softmax_params;

/* ---- biases and masks ------------------------------------------------------ */

/* Threads of the largest team, and extents. */
enum { BOPS_SOFTMAX_MASKED_THREADS = 512, BOPS_SOFTMAX_MASKED_EXTENTS = 7 };

/* A team of threads takes a line.
 * width: elements of an access, 1 or, forward, as many of y as 16 bytes have. With several, the elements of a line of x and y are neighbours, and lines
 * start at multiples of an access and are a whole number of them.
 * is_held: forward, whether the team holds the line: a thread holds 32 elements, with a width of 1 it holds 16, of f64 8. If not, width is 1. */
typedef struct {
    uint32_t width, is_held;
    uint32_t threads; /* of a line: a power of two up to BOPS_SOFTMAX_MASKED_THREADS */
    uint32_t lines;   /* of a block, which has a multiple of 32 threads */
    uint32_t grid;    /* blocks, enough for all lines */
} bops_softmax_masked_choice;

/* Elements between those that the extents of the lines count. */
typedef struct {
    uint64_t strides[BOPS_SOFTMAX_MASKED_EXTENTS];
} bops_softmax_masked_strides;

/* Lines of any strides. Operands in this order: forward y, x, bias; backward dx, y, dy. Backward of log-softmax takes places at which y is -infinity for
 * masked. */
typedef struct {
    uint64_t dim;
    uint32_t lines, rank;
    uint32_t queries;                              /* under a causal mask, the innermost extent; else 0 */
    uint32_t extents[BOPS_SOFTMAX_MASKED_EXTENTS]; /* `rank` of them, outermost first */
    bops_softmax_masked_strides strides[3];
    uint64_t steps[3]; /* between the elements of a line */
    double scale;
    uint32_t has_bias, bias_is_f32; /* else of the type of x */
    uint32_t bias_is_neighbours;    /* whether accesses of the bias are as those of x */
} bops_softmax_masked_params;

/* y may be x where their types agree. The bias is for the form `masked`, and null without one. */
typedef struct {
    const void *x, *bias;
    void *y;
} bops_softmax_operands;

/* dx may be dy where their types agree. */
typedef struct {
    const void *y, *dy;
    void *dx;
} bops_softmax_backward_operands;

/* Declares a form of forward, for which `pass` is empty, or of backward. */
#define BOPS_SOFTMAX_FORM(form, pass)                                                                                                                \
    BOPS_FORM(bops_softmax_##pass##form, bops_softmax_specialisation, bops_softmax_params, bops_softmax_##form##_choice,                             \
              bops_softmax_##pass##operands)

BOPS_SOFTMAX_FORM(rows_resident, )
BOPS_SOFTMAX_FORM(rows_shared, )
BOPS_SOFTMAX_FORM(channels_resident, )
BOPS_SOFTMAX_FORM(split, )

BOPS_SOFTMAX_FORM(rows_resident, backward_)
BOPS_SOFTMAX_FORM(rows_shared, backward_)
BOPS_SOFTMAX_FORM(channels_resident, backward_)
BOPS_SOFTMAX_FORM(split, backward_)
BOPS_FORM(bops_softmax_backward_channels_shared, bops_softmax_specialisation, bops_softmax_params, bops_softmax_backward_channels_shared_choice,
          bops_softmax_backward_operands)

BOPS_FORM(bops_softmax_masked, bops_softmax_specialisation, bops_softmax_masked_params, bops_softmax_masked_choice, bops_softmax_operands)
BOPS_FORM(bops_softmax_backward_masked, bops_softmax_specialisation, bops_softmax_masked_params, bops_softmax_masked_choice,
          bops_softmax_backward_operands)

#ifdef __cplusplus
}
#endif
#endif
