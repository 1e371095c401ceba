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
    uint64_t from, to;              /* elements of x, and of y */
    uint64_t step;                  /* elements of the source from one position to the next */
    double inverse;                 /* 1 / unit */
    bops_divisor by_unit, by_slope; /* where numbers have at most 31 bits */
} bops_resize_sampling;

/* The target is y or, backward, dx; the source is x or dy. */
typedef struct {
    const void *source;
    void *target;
} bops_resize_operands;

/* What Rust chose.
 * taps: elements of x along an extent that make one of y: 1, 2 or 4.
 * is_backward: whether the target is dx.
 * width: neighbours of the target that a thread makes, 1 or as many as 16 bytes hold.
 * is_vector: of several, whether they are made of as many neighbours of the source; else each follows from a position of its own, of the last extent.
 * is_doubled: whether both of two extents that are resized have twice as many elements in y as in x, and positions 2 i and 2 i + 1 of y lie at i - 1/4 and i + 1/4, or
 * with one tap at element i. Without is_vector the innermost extent is the first that is resized; neighbours of y or dy are in vectors, and accesses to half as many
 * neighbours of x or dx start at multiples of them. */
typedef struct {
    uint32_t taps, is_backward, width, is_vector, is_doubled;
} bops_resize_choice;

/* Lines are the elements of the target along its innermost extent, in parts of `width`, of which they are multiples; with is_doubled the extents that are resized are
 * those of x, and if the innermost is one, its parts are half as long. `inner`: what numbers of parts are divided
 * by: the parts of a line, and the other extents from the innermost on, without the outermost. `strides`: of the innermost
 * extent, and then outwards, in elements; `from` of those that are not resized. `sampling`: the number of what an extent is resized by, or
 * BOPS_RESIZE_SAMPLINGS. */
typedef struct {
    uint64_t parts;
    uint32_t rank, is_long;       /* rank: extents, at least 1. is_long: whether numbers of parts reach 2^31 */
    uint32_t samplings, has_long; /* samplings: extents that are resized. has_long: whether their numbers need more than 31 bits */
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
