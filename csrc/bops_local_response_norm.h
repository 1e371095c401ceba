/* The C ABI of the CUDA kernels of local_response_norm; the rules of bops.h hold here. */
#ifndef BOPS_LOCAL_RESPONSE_NORM_H
#define BOPS_LOCAL_RESPONSE_NORM_H
#include "bops_channel_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Forward. */
typedef struct {
    uint64_t batch, channels, spatial;
    bops_channel_strides x, y;
    uint64_t size, before; /* channels of a window: c - before .. c + size - before - 1; size is at most 2 * channels + 2 */
    double scale, beta, k; /* scale: alpha over the size that the caller gave */
    uint32_t half_powers;  /* which roots give d^-beta: 1 for beta 0.5, 2 for beta 1, 3 for beta 0.75, each with a normal k; 0 for other numbers */
} bops_local_response_norm_params;

/* Operands of forward. */
typedef struct {
    const void *x;
    void *y;
} bops_local_response_norm_operands;

/* Backward; fields as those of forward. */
typedef struct {
    uint64_t batch, channels, spatial;
    bops_channel_strides dy, x, dx;
    uint64_t size, before;
    double scale, beta, k;
    uint32_t half_powers;
} bops_local_response_norm_backward_params;

/* Operands of backward. */
typedef struct {
    const void *dy, *x;
    void *dx;
} bops_local_response_norm_backward_operands;

/* walk: a thread owns neighbouring positions and walks over channels with the window in registers. Any x, y, dy, dx with spatial stride 1, dtype
 * not f64, size 3, 5, 7 or 9. A thread owns one element if half_powers is 0. */
typedef struct {
    uint32_t vector_bytes;   /* of one access: those of 4 elements or of 1. Spatial extent, strides and starts are multiples of it */
    uint32_t thread_vectors; /* accesses of a channel that a thread owns: 1, with one element an access also 2 or 4 */
    uint32_t chunk_channels; /* channels that a block gives results for */
    uint32_t chunks;         /* chunks that make all channels, at most 65535 */
} bops_local_response_norm_walk_choice;

/* rows: the threads of a position own all its channels, 16 bytes each, and give each other the values next to theirs. Channel stride 1, strides,
 * starts and the bytes of all channels multiples of 16, at most 256 such vectors, dtype not f64, size 3, 5, 7 or 9. */
typedef struct {
    uint32_t block_threads; /* at most 256: as many whole positions as they have room for */
} bops_local_response_norm_rows_choice;

/* tile: a tile of the channels of some positions lies in shared memory. Channel stride 1, dtype not f64. */
typedef struct {
    uint32_t vector_bytes;     /* of one access: 16, or those of an element. Extent of the channels, strides and starts are multiples of it */
    uint32_t block_threads;    /* at most 256 */
    uint32_t position_threads; /* threads that share a position; they divide block_threads */
    uint32_t chunk_channels;   /* channels that a block gives results for: whole vectors */
    uint32_t chunks;           /* chunks that make all channels, at most 65535 */
} bops_local_response_norm_tile_choice;

/* direct: a thread owns an element and reads its whole window. Any strides, dtype and size. */
typedef struct {
    uint32_t channels_first; /* 1: neighbouring threads take neighbouring channels; 0: neighbouring positions */
} bops_local_response_norm_direct_choice;

/* Declares a form of forward, for which `pass` is empty, or of backward, of which `direct` has a workspace: one element of the accumulator type for
 * each element of x. The type of the elements tells compiled kernels of a form apart, besides the choice, the size and whether half_powers is 0. */
#define BOPS_LOCAL_RESPONSE_NORM_FORM(form, pass)                                                                                                    \
    BOPS_FORM(bops_local_response_norm_##pass##form, bops_dtype, bops_local_response_norm_##pass##params, bops_local_response_norm_##form##_choice,  \
              bops_local_response_norm_##pass##operands)

BOPS_LOCAL_RESPONSE_NORM_FORM(walk, )
BOPS_LOCAL_RESPONSE_NORM_FORM(rows, )
BOPS_LOCAL_RESPONSE_NORM_FORM(tile, )
BOPS_LOCAL_RESPONSE_NORM_FORM(direct, )

BOPS_LOCAL_RESPONSE_NORM_FORM(walk, backward_)
BOPS_LOCAL_RESPONSE_NORM_FORM(rows, backward_)
BOPS_LOCAL_RESPONSE_NORM_FORM(tile, backward_)
BOPS_LOCAL_RESPONSE_NORM_FORM(direct, backward_)

#ifdef __cplusplus
}
#endif
#endif
