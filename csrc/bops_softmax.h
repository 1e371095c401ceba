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
    uint32_t vectors;         /* 2, 4 or 8, backward also 1; where vec_bytes is not 16: 16 */
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

/* Lines along an axis of `dim` elements, `step` elements apart: `outer` blocks (strided as rows are) of `inner` lines side by side. Rows are
 * inner 1 and steps 1. */
typedef struct {
    uint64_t outer; /* below 2^32 */
    uint64_t dim;
    uint64_t inner;
    uint64_t extent1; /* outer = extent0 * extent1 * extent2; extent0 is implied */
    uint64_t extent2;
    bops_row_strides x, y;
    uint64_t x_step, y_step;
    double scale;
    uint32_t is_log;
    bops_dtype x_dtype; /* that of y, or f16 or bf16 where that of y is f32 */
} bops_softmax_params;

/* y may be x where their types agree. */
typedef struct {
    const void *x;
    void *y;
} bops_softmax_operands;

/* dtype: that of y, in whose accesses and elements a choice counts. Elements of x in 16 bits are read as the f32 that they stand for, in accesses of
 * half as many bytes; rows_shared refuses them. workspace: of split alone. */
bops_status bops_softmax_rows_resident_prepare(const bops_softmax_params *params, const bops_softmax_rows_resident_choice *choice, bops_dtype dtype);
bops_status bops_softmax_rows_resident_launch(const bops_softmax_params *params, const bops_softmax_rows_resident_choice *choice, bops_dtype dtype,
                                              const bops_softmax_operands *operands, void *workspace, bops_stream stream);
bops_status bops_softmax_rows_shared_prepare(const bops_softmax_params *params, const bops_softmax_rows_shared_choice *choice, bops_dtype dtype);
bops_status bops_softmax_rows_shared_launch(const bops_softmax_params *params, const bops_softmax_rows_shared_choice *choice, bops_dtype dtype,
                                            const bops_softmax_operands *operands, void *workspace, bops_stream stream);
bops_status bops_softmax_channels_resident_prepare(const bops_softmax_params *params, const bops_softmax_channels_resident_choice *choice,
                                                   bops_dtype dtype);
bops_status bops_softmax_channels_resident_launch(const bops_softmax_params *params, const bops_softmax_channels_resident_choice *choice,
                                                  bops_dtype dtype, const bops_softmax_operands *operands, void *workspace, bops_stream stream);
bops_status bops_softmax_split_prepare(const bops_softmax_params *params, const bops_softmax_split_choice *choice, bops_dtype dtype);
bops_status bops_softmax_split_launch(const bops_softmax_params *params, const bops_softmax_split_choice *choice, bops_dtype dtype,
                                      const bops_softmax_operands *operands, void *workspace, bops_stream stream);

typedef struct {
    uint64_t outer; /* below 2^32 */
    uint64_t dim;
    uint64_t inner;
    uint64_t extent1;
    uint64_t extent2;
    bops_row_strides y, dy, dx;
    uint64_t y_step, dy_step, dx_step;
    double scale;
    uint32_t is_log;
    bops_dtype dx_dtype; /* that of y, or f16 or bf16 where that of y is f32 */
} bops_softmax_backward_params;

/* dx may be dy where their types agree. */
typedef struct {
    const void *y, *dy;
    void *dx;
} bops_softmax_backward_operands;

/* dtype: that of y and dy, in whose accesses and elements a choice counts. workspace: of split alone. */
bops_status bops_softmax_backward_rows_resident_prepare(const bops_softmax_backward_params *params, const bops_softmax_rows_resident_choice *choice,
                                                        bops_dtype dtype);
bops_status bops_softmax_backward_rows_resident_launch(const bops_softmax_backward_params *params, const bops_softmax_rows_resident_choice *choice,
                                                       bops_dtype dtype, const bops_softmax_backward_operands *operands, void *workspace,
                                                       bops_stream stream);
bops_status bops_softmax_backward_rows_shared_prepare(const bops_softmax_backward_params *params, const bops_softmax_rows_shared_choice *choice,
                                                      bops_dtype dtype);
bops_status bops_softmax_backward_rows_shared_launch(const bops_softmax_backward_params *params, const bops_softmax_rows_shared_choice *choice,
                                                     bops_dtype dtype, const bops_softmax_backward_operands *operands, void *workspace,
                                                     bops_stream stream);
bops_status bops_softmax_backward_channels_resident_prepare(const bops_softmax_backward_params *params,
                                                            const bops_softmax_channels_resident_choice *choice, bops_dtype dtype);
bops_status bops_softmax_backward_channels_resident_launch(const bops_softmax_backward_params *params,
                                                           const bops_softmax_channels_resident_choice *choice, bops_dtype dtype,
                                                           const bops_softmax_backward_operands *operands, void *workspace, bops_stream stream);
bops_status bops_softmax_backward_channels_shared_prepare(const bops_softmax_backward_params *params,
                                                          const bops_softmax_backward_channels_shared_choice *choice, bops_dtype dtype);
bops_status bops_softmax_backward_channels_shared_launch(const bops_softmax_backward_params *params,
                                                         const bops_softmax_backward_channels_shared_choice *choice, bops_dtype dtype,
                                                         const bops_softmax_backward_operands *operands, void *workspace, bops_stream stream);
bops_status bops_softmax_backward_split_prepare(const bops_softmax_backward_params *params, const bops_softmax_split_choice *choice,
                                                bops_dtype dtype);
bops_status bops_softmax_backward_split_launch(const bops_softmax_backward_params *params, const bops_softmax_split_choice *choice, bops_dtype dtype,
                                               const bops_softmax_backward_operands *operands, void *workspace, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
