/* The C ABI of the CUDA kernels of pooling, in the family window; the rules of bops.h hold here. */
#ifndef BOPS_POOL_H
#define BOPS_POOL_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Spatial axes, and terms that are added up one after another before their sum is a term. */
enum { BOPS_POOL_AXES = 3, BOPS_POOL_CHAIN = 16, BOPS_POOL_TILE_ROWS = 2 };

typedef uint32_t bops_pooling;
enum { BOPS_POOLING_MAX = 0, BOPS_POOLING_AVERAGE = 1, BOPS_POOLING_NORM1 = 2, BOPS_POOLING_NORM2 = 3 };

/* A spatial axis. input + before + after and dilation * (kernel - 1) are below 2^31. */
typedef struct {
    uint32_t input, output;
    uint32_t kernel; /* places of a window, of adaptive windows of the longest */
    uint32_t dilation, before, after;
    bops_divisor stride;
} bops_pool_axis;

/* Elements from one position to the next. */
typedef struct {
    uint64_t sample, channel, spatial[BOPS_POOL_AXES];
} bops_pool_strides;

/* What Rust chose.
 * width: neighbours of a thread: channels if is_channels_last, which are neighbours in every tensor, or backward elements of dx along the last axis; an access of
 * 16 bytes to x, y, dy and dx starts at a multiple of it. 1 allows any strides.
 * kernel: 2 or 3, or 0, which allows any windows; of norms, of adaptive and of dilated windows it is 0. Forward it is that of the last two axes; it is 0 with
 * is_channels_last, unless has_tiles.
 * has_tiles, which backward has with every kernel but 0: windows of one element along the first axis, and of `kernel` along the others, with a stride of 2, and one
 * element of padding before those of 3, none before those of 2. Without is_channels_last, x and dx have twice as many elements along the last axis as y and dy, in
 * whole vectors; accesses to half as many elements of y, dy and offsets start at multiples of them. There are no indices.
 * has_planes: backward, averages over whole planes, which are one axis of the last. dx has no gaps, and samples of dy are a multiple of their channels apart. */
typedef struct {
    uint32_t width, is_channels_last, kernel, has_tiles, has_planes;
} bops_pool_choice;

/* A part is an output, backward an element of dx, or `width` neighbours; or a tile, of BOPS_POOL_TILE_ROWS rows of windows, with is_channels_last
 * and a kernel of 2 of one. `inner`: what numbers of parts are divided by: with is_channels_last the parts of the channels,
 * and those of the spatial axes from the last on; else those of the spatial axes from the last on, and the channels. Samples are the rest. */
typedef struct {
    bops_pool_axis axes[BOPS_POOL_AXES];
    uint64_t parts;
    bops_divisor inner[4];
    uint32_t is_long; /* whether numbers of parts reach 2^31 */
    uint32_t is_adaptive;
    bops_pooling pooling;
    uint32_t excludes_padding;
    double factor;            /* of averages: 1 by what each is divided by, or 0 if windows differ */
    uint32_t has_int_offsets; /* offsets are I32, else U8 */
    bops_pool_strides x, y, dy, dx, offsets, indices;
} bops_pool_params;

typedef struct {
    const void *x;
    void *y, *offsets, *indices; /* offsets and indices: null if they are not written */
} bops_pool_operands;

/* Specialised for the type of x. */
BOPS_FORM(bops_pool, bops_dtype, bops_pool_params, bops_pool_choice, bops_pool_operands)

/* What Rust chose: as bops_pool_choice; `lanes`: threads that share a window, `across`: parts of a block that are neighbours; both powers of two, lanes * across at
 * most 256. is_flat: the elements of each window follow one another, in accesses of 16 bytes that start at multiples of it. */
typedef struct {
    uint32_t width, is_channels_last, lanes, across, is_flat;
} bops_pool_wide_choice;

/* Parts are those of bops_pool_params. Specialised for the type of x. */
BOPS_FORM(bops_pool_wide, bops_dtype, bops_pool_params, bops_pool_wide_choice, bops_pool_operands)

/* x: of norms, y: of norm2, offsets: of max. */
typedef struct {
    const void *dy, *offsets, *x, *y;
    void *dx;
} bops_pool_backward_operands;

/* Specialised for the type of x. */
BOPS_FORM(bops_pool_backward, bops_dtype, bops_pool_params, bops_pool_choice, bops_pool_backward_operands)

#ifdef __cplusplus
}
#endif
#endif
