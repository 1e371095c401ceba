/* The C ABI of the CUDA kernels that resize tensors; the rules of bops.h hold here. */
#ifndef BOPS_RESIZE_H
#define BOPS_RESIZE_H
#include "bops_movement.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most extents that are resized. */
enum { BOPS_RESIZE_SAMPLINGS = 3 };

/* How the positions of an extent of y lie in that of x: position o at (slope * o + start) / unit. */
typedef struct {
    int64_t slope, start, unit;
    uint64_t from, to; /* elements of x, and of y */
    uint64_t step;     /* elements of the source from one position to the next */
} bops_resize_sampling;

/* The target is y or, backward, dx; the source is x or dy. */
typedef struct {
    const void *source;
    void *target;
} bops_resize_operands;

/* What Rust chose.
 * taps: elements of x along an extent that make one of y: 1, 2 or 4.
 * is_backward: whether the target is dx. */
typedef struct {
    uint32_t taps, is_backward;
} bops_resize_choice;

/* `inner`: what numbers of elements are divided by, the extents of the target from the innermost on, without the outermost. `strides`: of the innermost
 * extent, and then outwards, in elements; `from` of those that are not resized. `sampling`: the number of what an extent is resized by, or
 * BOPS_RESIZE_SAMPLINGS. */
typedef struct {
    uint64_t elements;
    uint32_t rank, is_long;         /* rank: extents, at least 1. is_long: whether numbers of elements reach 2^31 */
    uint32_t samplings, has_long;   /* samplings: extents that are resized. has_long: whether their numbers need more than 31 bits */
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    bops_movement_strides strides[BOPS_MOVEMENT_EXTENTS];
    uint32_t sampling[BOPS_MOVEMENT_EXTENTS];
    bops_resize_sampling of[BOPS_RESIZE_SAMPLINGS];
} bops_resize_params;

BOPS_FORM(bops_resize, bops_dtype, bops_resize_params, bops_resize_choice, bops_resize_operands)

#ifdef __cplusplus
}
#endif
#endif
