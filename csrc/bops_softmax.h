/* The C ABI of the CUDA kernels of softmax; the rules of bops.h hold here. */
#ifndef BOPS_SOFTMAX_H
#define BOPS_SOFTMAX_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t bops_softmax_variant;
enum {
    /* inner is 1. The row stays in registers, of a part of a block, a block or, backward, a cluster. */
    BOPS_SOFTMAX_ROWS_RESIDENT = 0,
    /* inner is 1. Chunks of rows: parts, merge, apply; reads its inputs twice. Any length, alignment and dtype. */
    BOPS_SOFTMAX_ROWS_SPLIT = 1,
    /* A line stays in the registers of threads / tiles / across threads of a block. */
    BOPS_SOFTMAX_CHANNELS_RESIDENT = 2,
    /* Chunks of lines: parts, merge, apply; reads its inputs twice. Any length, alignment and dtype. */
    BOPS_SOFTMAX_CHANNELS_SPLIT = 3,
    /* inner is 1. The row is staged in the shared memory of a cluster: forward x, by blocks of 256 or 512 threads; backward, of f32 alone, y,
     * by blocks of `threads` whose threads hold dy. vec_bytes 16. */
    BOPS_SOFTMAX_ROWS_SHARED = 4,
    /* Backward. A line stays with threads / tiles / across threads of a block: y and the last dy of 16-bit elements in shared memory, the rest
     * of dy in registers. vec_bytes 16. */
    BOPS_SOFTMAX_CHANNELS_SHARED = 5
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_softmax_variant variant;
    uint32_t vec_bytes; /* bytes of one access: 16, 4 or 2 (f64: 8); CHANNELS_RESIDENT forward of 16-bit elements: 8, 4 or 2. Rows or runs start
                           at multiples of it and are a whole number of it. */
    uint32_t vectors;   /* RESIDENT: vectors per thread and tensor. Rows: 2, 4, 8, backward also 1; of 4 and 2 bytes 16. Channels: forward 4, 8, 16,
                           of f32 12, of 16-bit elements 24 and 32, too; backward 4, 8; of 4 and 2 bytes 16. CHANNELS_SHARED: 16. ROWS_SHARED
                           backward: 8 */
    uint32_t threads;   /* of a block; a multiple of 32, at most 512; channels: at most channel_bounds::threads of the kernel;
                           CHANNELS_SHARED: of 16-bit elements at most 256 a tile */
    uint32_t across;    /* RESIDENT, SHARED. Rows: threads of a row in one block, a power of two up to 32 or a multiple of 32; a block
                           holds threads / across rows, with a cluster 1. Channels: vectors side by side along inner, of a tile: a power of two
                           up to 32; threads is a multiple of it. */
    uint32_t cluster;   /* ROWS_RESIDENT backward, ROWS_SHARED: blocks that share a row, 1..16; more than 1 needs compute capability 9.0, 16-byte
                           vectors, 4 or 8 of them, and across > 32. ROWS_SHARED: at least 2 */
    uint32_t grid;      /* blocks; RESIDENT, SHARED: enough for all */
    uint32_t chunks;    /* SPLIT: parts of a line; rows: of 1024 accesses, channels: of 32 elements */
    uint32_t
        overlaps; /* RESIDENT, CHANNELS_SHARED: 1 launches while the previous kernel of the stream ends and waits for it. Needs compute capability 9.0 */
    uint32_t tiles; /* CHANNELS_RESIDENT, CHANNELS_SHARED: that a block takes, 1 or, of 16-bit elements, 2: forward 32 vectors and more than 128
                           threads a tile */
} bops_softmax_choice;

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

/* dtype: that of y, in whose accesses and elements the choice is. Elements of x in 16 bits are read as the f32 that they stand for, in accesses of
 * half as many bytes. There is no ROWS_SHARED of such x. */
bops_status bops_softmax_prepare(const bops_softmax_params *params, const bops_softmax_choice *choice, bops_dtype dtype);
bops_status bops_softmax_launch(const bops_softmax_params *params, const bops_softmax_choice *choice, bops_dtype dtype,
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

/* dtype: that of y and dy, in whose accesses and elements the choice is. */
bops_status bops_softmax_backward_prepare(const bops_softmax_backward_params *params, const bops_softmax_choice *choice, bops_dtype dtype);
bops_status bops_softmax_backward_launch(const bops_softmax_backward_params *params, const bops_softmax_choice *choice, bops_dtype dtype,
                                         const bops_softmax_backward_operands *operands, void *workspace, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
