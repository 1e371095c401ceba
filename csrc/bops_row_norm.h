/* The C ABI of the CUDA kernels of layer_norm and rms_norm; the rules of bops.h hold here.
 *
 * Each form has a choice struct, `prepare` and `launch`. Two fields mean the same in every choice:
 *   grid      blocks of the launch
 *   overlaps  1: the launch begins while the previous kernel of the stream ends, and its blocks wait for that. Compute capability 9.0
 * If a choice has the field `vec_bytes`, these are the bytes of one access to x, y, dy and the like: 16, 4 or 2, for f64 8. The other forms access
 * 16 bytes at once and do not take f64. Rows start at multiples of the access and are a whole number of accesses. Parameters start at multiples of 16
 * bytes, or of the bytes of as many parameters as an access has elements, if those are fewer. A vector is what one access moves. */
#ifndef BOPS_ROW_NORM_H
#define BOPS_ROW_NORM_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tells compiled kernels of a form apart, besides its choice. */
typedef struct {
    bops_dtype dtype;        /* of x, residual, y and h; of dy, x, dh and dx */
    bops_dtype weight_dtype; /* of the parameters and their gradients: `dtype` or BOPS_F32 */
    uint32_t is_centered;    /* 1: layer_norm. 0: rms_norm, which does not subtract the mean */
    uint32_t has_dh;         /* backward: 1 where dh comes in; forward: 0 */
} bops_row_norm_specialisation;

/* Declares a form of forward, for which `pass` is empty, or of backward. */
#define BOPS_ROW_NORM_FORM(form, pass)                                                                                                               \
    BOPS_FORM(bops_row_norm_##pass##form, bops_row_norm_specialisation, bops_row_norm_##pass##params, bops_row_norm_##pass##form##_choice,           \
              bops_row_norm_##pass##operands)

/* ---- forward --------------------------------------------------------------- */

typedef struct {
    uint64_t rows; /* below 2^32 */
    uint64_t cols;
    uint64_t extent1; /* rows = extent0 * extent1 * extent2; extent0 is implied */
    uint64_t extent2;
    bops_row_strides x, residual, y, h;
    double eps;
    double weight_offset; /* added to the weight; rms_norm only */
} bops_row_norm_params;

/* Absent operands are null. mean and rstd are dense, one element a row, of the accumulator type. rms_norm has no bias and no mean. h is there if and
 * only if residual is. y may be x, h may be residual. */
typedef struct {
    const void *x, *residual, *weight, *bias;
    void *y, *h, *mean, *rstd;
} bops_row_norm_operands;

/* A row stays in the registers of part of a block, of a block or of a cluster. */
typedef struct {
    uint32_t vec_bytes;       /* not 8 */
    uint32_t vectors;         /* of a thread: 2 or 4; 8 of 4-byte elements and of clusters; 16 where vec_bytes is not 16 */
    uint32_t threads_per_row; /* in one block: a power of two up to 32 or a multiple of 32; of clusters at least 64 */
    uint32_t threads;         /* of a block: threads_per_row times the rows of a block, of which clusters have one; a multiple of 32, at most 512.
                                   Up to 1024 for whole rows of rms_norm, 4-byte elements and 4 vectors, without a cluster */
    uint32_t cluster;         /* blocks that share a row, 1 to 16. More than 1: compute capability 9.0 and vec_bytes 16 */
    uint32_t is_whole;        /* 1: every vector of every thread exists */
    uint32_t grid;            /* enough for all rows */
    uint32_t overlaps;
    uint32_t lets_next_overlap; /* 1, beside `overlaps`: the next kernel of the stream may begin at once, too */
} bops_row_norm_resident_choice;

BOPS_ROW_NORM_FORM(resident, )

/* layer_norm of 16-bit elements with parameters of the same type. A row stays in the registers of a block as it came, 16-bit elements in pairs, and
 * fills them: cols = threads * 4 vectors. */
typedef struct {
    uint32_t threads; /* a multiple of 32 from 64 to 512 */
    uint32_t grid;    /* = rows */
    uint32_t overlaps;
} bops_row_norm_packed_choice;

BOPS_ROW_NORM_FORM(packed, )

/* layer_norm of 16-bit elements with parameters of the same type. A row stays in the registers of a warp as it came, 16-bit elements in pairs, and fills
 * them: cols = 32 * `vectors` vectors. A block has two rows. No residual; the rows of each tensor lie at one stride. */
typedef struct {
    uint32_t vectors; /* of a lane: 3 to 8 */
    uint32_t grid;    /* = ceil(rows / 2) */
    uint32_t overlaps;
} bops_row_norm_packed_warp_choice;

BOPS_ROW_NORM_FORM(packed_warp, )

/* 16-bit elements. A row stays in the shared memory of a block of 256 threads, or of a cluster of them. */
typedef struct {
    uint32_t cluster; /* blocks that share a row, 1 to 16. More than 1: compute capability 9.0 */
    uint32_t grid;    /* = rows * cluster */
    uint32_t overlaps;
} bops_row_norm_shared_choice;

BOPS_ROW_NORM_FORM(shared, )

/* Teams, blocks or clusters, walk over rows and read ahead through rings of vectors in shared memory, threads * slots * 16 bytes a block. Compute
 * capability 9.0; parameters of the type of x. */
typedef struct {
    uint32_t vectors;  /* of a row and a thread: 8, or of 16-bit elements of rms_norm 4 */
    uint32_t slots;    /* of a thread's ring: 21 for 8 vectors, 13 for 4 */
    uint32_t threads;  /* of a block: a multiple of 32 up to 512, with 4 vectors up to 1024 */
    uint32_t cluster;  /* blocks that share a row, 1 to 16 */
    uint32_t is_whole; /* 1: every vector of every thread exists */
    uint32_t grid;     /* cluster times teams */
    uint32_t overlaps;
} bops_row_norm_ring_choice;

BOPS_ROW_NORM_FORM(ring, )

/* Any rows, in three launches: moments of chunks of rows, their merge, the output; reads x twice. Workspace: 3 numbers of the accumulator type for
 * each chunk, and for each row. */
typedef struct {
    uint32_t vec_bytes;
    uint32_t chunks; /* of a row, 1024 vectors each */
    uint32_t grid;   /* of the first and the third launch; blocks stride over chunks */
} bops_row_norm_split_choice;

BOPS_ROW_NORM_FORM(split, )

/* ---- backward -------------------------------------------------------------- */

typedef struct {
    uint64_t rows; /* below 2^32 */
    uint64_t cols;
    uint64_t extent1;
    uint64_t extent2;
    bops_row_strides dy, x, dh, dx;
    double weight_offset;
} bops_row_norm_backward_params;

/* Absent operands are null. With a residual, x is the forward's h, dh is the gradient that reaches h from elsewhere and dx serves x and
 * residual alike. rms_norm has no mean and no dbias. dx may be dy. */
typedef struct {
    const void *dy, *x, *weight, *mean, *rstd, *dh;
    void *dx, *dweight, *dbias;
} bops_row_norm_backward_operands;

/* If the gradient of a parameter is wanted, all forms but few_rows write *partial rows* to the start of the workspace: sums over some rows for every
 * column, [dweight, and of layer_norm dbias][partial_rows][cols rounded up to 32], of the accumulator type. `parameters` adds them up. A thread adds up
 * rows in an accumulator, so that chains of additions stay short. Three fields mean the same in every choice:
 *   flush_rows    rows that an accumulator takes. It is then added to an accumulator of the next level or, if there is none, written as a partial row
 *   flushes       accumulators that one of the next level takes before it is written as a partial row
 *   partial_rows  partial rows in the workspace */

/* Teams walk over rows and stage whole rows through shared memory. A team is a part of a block, a block or a cluster, and each of its threads keeps its
 * columns. The rows of each tensor lie at one stride below 2^32. A thread has vectors * 16 / element bytes columns: 8 (256 threads, no cluster), 16, or 32
 * (no dh). */
typedef struct {
    uint32_t vectors;         /* of a row and a thread */
    uint32_t threads_per_row; /* in one block: 16, 32 or a multiple of 32; not 16 with 16 or 32 columns; more than 32 with a cluster */
    uint32_t threads;         /* of a block, 256 or 512: room for threads_per_row times the rows of a block, of which clusters have one */
    uint32_t cluster;         /* blocks that share a row, 1 to 16. More than 1: compute capability 9.0 */
    uint32_t stages;          /* rows of a team in flight, 1 to 4 */
    uint32_t grid;            /* a multiple of cluster */
    uint32_t overlaps;
    uint32_t flush_rows;
    uint32_t flushes;     /* 0: there is no next level; for blocks of one row */
    uint32_t late_blocks; /* rms_norm without a cluster: the last blocks of the grid, which begin as others end and take the rows that are left */
    uint32_t early_turns; /* with late blocks: rows that each team of the other blocks takes */
    uint32_t partial_rows;
} bops_row_norm_backward_persistent_choice;

BOPS_ROW_NORM_FORM(persistent, backward_)

/* One launch, in which a block computes a row of dx or a strip of columns of the parameters' gradients. If dx is dy in place, rows and strips have a
 * launch each. Rows have at most 8192 columns. */
typedef struct {
    uint32_t grid; /* = rows + ceil(cols * element bytes / 128) */
    uint32_t overlaps;
} bops_row_norm_backward_few_rows_choice;

BOPS_ROW_NORM_FORM(few_rows, backward_)

/* Teams, blocks or clusters, walk over rows and read dy and x ahead through rings of vectors in shared memory, threads * slots * 32 bytes a block.
 * Compute capability 9.0; parameters of the type of x. */
typedef struct {
    uint32_t vectors;  /* of a row and a thread: 4 */
    uint32_t slots;    /* of a thread's ring: 13, of f32 also 11; layer_norm of f32: 11 */
    uint32_t threads;  /* of a block: a multiple of 32 up to 512 */
    uint32_t cluster;  /* blocks that share a row, 1 to 16 */
    uint32_t is_whole; /* 1: every vector of every thread exists */
    uint32_t grid;     /* cluster times teams */
    uint32_t overlaps;
    uint32_t flush_rows;
    uint32_t partial_rows; /* = teams * ceil(ceil(rows / teams) / flush_rows) */
} bops_row_norm_backward_ring_choice;

BOPS_ROW_NORM_FORM(ring, backward_)

enum {
    /* Turns that a block's ring holds: the turn that is summed, the four before it, whose sums are on their way, and the one that arrives.
     * A turn takes 32 KB of an SM, whose shared memory has no room for a seventh. */
    BOPS_ROW_NORM_COOPERATIVE_STAGES = 6,
    /* Turns of a team whose sums have places in the workspace: a power of two above the ten turns that blocks may be apart. */
    BOPS_ROW_NORM_COOPERATIVE_TURNS = 16,
    /* The most blocks of a team, five for each lane of the warp that receives their sums: more than an H200 has SMs. */
    BOPS_ROW_NORM_COOPERATIVE_TEAM = 160,
    /* Bytes of a message, with which a block tells its team the sums of a row. */
    BOPS_ROW_NORM_COOPERATIVE_MESSAGE = 16
};

/* Teams of blocks, on whichever SMs they run, walk over rows and give each other their sums through the workspace, which has room for grid * (rows of
 * a turn) * BOPS_ROW_NORM_COOPERATIVE_TURNS messages behind the partial rows. No dh. Compute capability 9.0. All blocks are resident at once. The rows of
 * each tensor lie at one stride below 2^32. */
typedef struct {
    uint32_t vectors;     /* of a row and a thread: 2, of 16-bit elements 1 and two rows a turn */
    uint32_t readers;     /* threads of a block that read rows: 256, of layer_norm of 16-bit elements 512 */
    uint32_t team_blocks; /* blocks that share a row */
    uint32_t grid;        /* team_blocks times teams */
    uint32_t overlaps;
    uint32_t flush_rows;
    uint32_t flushes;
    uint32_t partial_rows;
} bops_row_norm_backward_cooperative_choice;

BOPS_ROW_NORM_FORM(cooperative, backward_)

/* Any rows, in three launches: sums of chunks of rows, their merge, the gradients; reads dy and x twice. Workspace behind the partial rows: 2 numbers
 * of the accumulator type for each chunk, and for each row. */
typedef struct {
    uint32_t vec_bytes;
    uint32_t chunks; /* of a row, 1024 vectors each */
    uint32_t grid;   /* of the first and the third launch; blocks stride over chunks */
    uint32_t flush_rows;
    uint32_t flushes;
    uint32_t partial_rows;
} bops_row_norm_backward_split_choice;

BOPS_ROW_NORM_FORM(split, backward_)

/* The launch that follows a form: dweight and dbias are the sums of the partial rows in the workspace, zeros if there are none. */
typedef struct {
    uint32_t partial_rows;
    uint32_t overlaps;
} bops_row_norm_backward_parameters_choice;

BOPS_ROW_NORM_FORM(parameters, backward_)

#ifdef __cplusplus
}
#endif
#endif
