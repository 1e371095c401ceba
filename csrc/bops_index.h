/* The C ABI of the CUDA kernels of ops with indices; the rules of bops.h hold here. */
#ifndef BOPS_INDEX_H
#define BOPS_INDEX_H
#include "bops_movement.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elements that indices name ------------------------------------------- */

/* How far apart the positions of an extent of y are: units of y, units of x, and elements of the indices. */
typedef struct {
    uint64_t y, x, index;
} bops_lookup_strides;

/* Which positions an index may name, and how far apart these are, in units of x. */
typedef struct {
    uint64_t extent, apart;
    uint32_t dtype;    /* of the indices: BOPS_I64, BOPS_I32 or BOPS_U32 */
    uint32_t from_end; /* whether an index below 0 counts from the end */
} bops_lookup_axis;

typedef struct {
    const void *x;
    const void *indices;
    void *y;
    uint32_t *missing;
} bops_lookup_operands;

/* Lines are the units along the innermost extent of y, in parts of `width` of which the last may be shorter. `inner`: what numbers of parts are divided
 * by: the parts of a line, and the other extents from the innermost on, without the outermost. `strides`: of the innermost extent, and then outwards. */
typedef struct {
    bops_lookup_axis axis;
    uint64_t parts, line;
    uint64_t fill;          /* what y has where an index is out of range, as often as it fits */
    uint32_t rank, is_long; /* rank: extents, at least 1. is_long: whether numbers of parts reach 2^31 */
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    bops_lookup_strides strides[BOPS_MOVEMENT_EXTENTS];
} bops_lookup_params;

/* Any strides. The choice is that of copies of any strides. Specialised for nothing: the choice tells kernels apart. */
BOPS_FORM(bops_lookup, uint32_t, bops_lookup_params, bops_copy_strided_choice, bops_lookup_operands)

/* What Rust chose. lanes: threads that take a part of a line together, a power of two from 32 to 256. */
typedef struct {
    uint32_t lanes;
} bops_lookup_rows_choice;

/* Vectors of a thread in a part of a line. */
enum { BOPS_LOOKUP_VECTORS = 4 };

/* Lines of neighbouring vectors of 16 bytes, each of which one index names. `moved`: its units are these vectors, and its parts have lanes *
 * BOPS_LOOKUP_VECTORS of them; strides[0] is (1, 1, 0). */
typedef struct {
    bops_lookup_params moved;
} bops_lookup_rows_params;

/* Specialised for nothing: one kernel serves every choice. */
BOPS_FORM(bops_lookup_rows, uint32_t, bops_lookup_rows_params, bops_lookup_rows_choice, bops_lookup_operands)

/* Elements of the indices, in `rank` extents: `inner` and `strides` as those of lines, by single elements. */
typedef struct {
    bops_lookup_axis axis;
    uint64_t elements;
    uint32_t rank, is_long;
    uint32_t blocks; /* each thread of which takes every so many elements */
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    uint64_t strides[BOPS_MOVEMENT_EXTENTS];
} bops_lookup_missing_params;

/* Counts the indices that are out of range. Specialised for nothing; there is nothing to choose. */
BOPS_FORM(bops_lookup_missing, uint32_t, bops_lookup_missing_params, uint32_t, bops_lookup_operands)

#ifdef __cplusplus
}
#endif
#endif
