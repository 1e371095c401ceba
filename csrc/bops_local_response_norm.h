/* The C ABI of the CUDA kernels of local_response_norm; the rules of bops.h hold here. */
#ifndef BOPS_LOCAL_RESPONSE_NORM_H
#define BOPS_LOCAL_RESPONSE_NORM_H
#include "bops_channel_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t bops_local_response_norm_variant;
enum {
    /* A thread owns neighbouring positions and walks over channels with the window in registers. Any x, y, dy, dx with spatial stride 1,
     * dtype not f64, size 3, 5, 7 or 9. */
    BOPS_LOCAL_RESPONSE_NORM_WALK = 0,
    /* A tile of the channels of some positions lies in shared memory. Channel stride 1, dtype not f64. */
    BOPS_LOCAL_RESPONSE_NORM_TILE = 1,
    /* A thread owns an element and reads its whole window. Any strides, dtype and size. */
    BOPS_LOCAL_RESPONSE_NORM_DIRECT = 2,
    /* The threads of a position own all its channels, 16 bytes each, and give each other the values next to theirs. Channel stride 1,
     * vec_bytes 16, at most 256 vectors of channels, dtype not f64, size 3, 5, 7 or 9. */
    BOPS_LOCAL_RESPONSE_NORM_ROWS = 3
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_local_response_norm_variant variant;
    uint32_t vec_bytes; /* bytes of one access. WALK: those of 4 elements or of 1; TILE: 16 or those of an element. Spatial extent (TILE: channels),
                           strides and starts are multiples of it */
    uint32_t parts;     /* WALK: accesses that a thread owns: 1, with one element an access also 2 or 4 */
    uint32_t threads;   /* TILE, DIRECT: of a block, at most 256; ROWS: the room for whole positions */
    uint32_t columns;   /* TILE: threads that share a position; they divide `threads` */
    uint32_t chunk;     /* WALK, TILE: channels that a block gives results for; a multiple of a vector in a TILE */
    uint32_t chunks;    /* WALK, TILE: chunks that make all channels, at most 65535 */
    uint32_t is_last;   /* DIRECT: 1 where neighbouring threads take neighbouring channels, 0 where they take neighbouring positions */
} bops_local_response_norm_choice;

typedef struct {
    uint64_t batch, channels, spatial;
    bops_channel_strides x, y;
    uint64_t size;         /* channels of a window: c - size / 2 .. c + size - size / 2 - 1; at most 2 * channels + 2 */
    double scale, beta, k; /* scale: alpha over the size that the caller gave */
} bops_local_response_norm_params;

/* Operands of forward, of type `dtype`. */
typedef struct {
    const void *x;
    void *y;
} bops_local_response_norm_operands;

bops_status bops_local_response_norm_prepare(const bops_local_response_norm_params *params, const bops_local_response_norm_choice *choice,
                                             bops_dtype dtype);
bops_status bops_local_response_norm_launch(const bops_local_response_norm_params *params, const bops_local_response_norm_choice *choice,
                                            bops_dtype dtype, const bops_local_response_norm_operands *operands, bops_stream stream);

typedef struct {
    uint64_t batch, channels, spatial;
    bops_channel_strides dy, x, dx;
    uint64_t size;
    double scale, beta, k;
} bops_local_response_norm_backward_params;

/* Operands of backward, of type `dtype`. */
typedef struct {
    const void *dy, *x;
    void *dx;
} bops_local_response_norm_backward_operands;

bops_status bops_local_response_norm_backward_prepare(const bops_local_response_norm_backward_params *params,
                                                      const bops_local_response_norm_choice *choice, bops_dtype dtype);
/* workspace, DIRECT: one element of the accumulator type for each element of x. */
bops_status bops_local_response_norm_backward_launch(const bops_local_response_norm_backward_params *params,
                                                     const bops_local_response_norm_choice *choice, bops_dtype dtype,
                                                     const bops_local_response_norm_backward_operands *operands, void *workspace, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
