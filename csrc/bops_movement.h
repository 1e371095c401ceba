/* The C ABI of the CUDA kernels that move elements; the rules of bops.h hold here. */
#ifndef BOPS_MOVEMENT_H
#define BOPS_MOVEMENT_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most extents. */
enum { BOPS_MOVEMENT_EXTENTS = 8 };

/* How far apart the units of an extent are, in units, which are one access of a thread each: of y, and of x, where they may lie backwards. */
typedef struct {
    uint64_t to;
    int64_t from;
} bops_movement_strides;

typedef struct {
    const void *x;
    void *y;
} bops_movement_operands;

/* ---- copies of any strides ------------------------------------------------ */

/* What Rust chose.
 * unit_bytes: of what moves as one, 1, 2, 4, 8 or 16. Units start at multiples of it on both sides.
 * width: units of a thread: 1, or as many neighbours of y as 16 bytes hold, which start at multiples of 16. */
typedef struct {
    uint32_t unit_bytes, width;
} bops_copy_strided_choice;

/* Lines are the units along the innermost extent, in parts of `width` of which the last may be shorter. `inner`: what numbers of parts are divided by:
 * the parts of a line, and the other extents from the innermost on, without the outermost. `strides`: of the innermost extent, and then outwards. */
typedef struct {
    uint64_t parts, line, from, to; /* from, to: the units where x and y begin */
    uint32_t rank, is_long;         /* rank: extents, at least 1. is_long: whether numbers of parts reach 2^31 */
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    bops_movement_strides strides[BOPS_MOVEMENT_EXTENTS];
    uint32_t tail_bytes; /* behind the last unit; of one line of neighbours on both sides */
} bops_copy_strided_params;

/* Specialised for nothing: the choice tells kernels apart. */
BOPS_FORM(bops_copy_strided, uint32_t, bops_copy_strided_params, bops_copy_strided_choice, bops_movement_operands)

/* ---- copies in tiles ------------------------------------------------------ */

/* What Rust chose.
 * unit_bytes: 1, 2, 4 or 8.
 * access_bytes: of one access to neighbours on both sides: 16, where lines and what lies between them are multiples of it; or unit_bytes. */
typedef struct {
    uint32_t unit_bytes, access_bytes;
} bops_copy_tiles_choice;

/* A row is a line of x, a column a line of y. `outer`: the other extents, innermost first. A tile is one of `column_tiles`, of `row_tiles`, and of the
 * positions of the other extents; there are fewer than 2^31. */
typedef struct {
    uint64_t tiles, rows, columns, from, to; /* rows: units of a row, columns: those of a column */
    bops_movement_strides row, column;       /* from one unit of a row to the next, 1 in x; from one unit of a column to the next, 1 in y */
    uint32_t rank;                           /* of outer */
    bops_divisor column_tiles, row_tiles;
    bops_divisor outer[BOPS_MOVEMENT_EXTENTS - 2];
    bops_movement_strides strides[BOPS_MOVEMENT_EXTENTS - 2];
} bops_copy_tiles_params;

/* Specialised for nothing: the choice tells kernels apart. */
BOPS_FORM(bops_copy_tiles, uint32_t, bops_copy_tiles_params, bops_copy_tiles_choice, bops_movement_operands)

/* ---- padding -------------------------------------------------------------- */

/* What positions have that read no element: a constant; or they read another one, mirrored, the nearest, or that at the other end. */
typedef uint32_t bops_outside;
enum { BOPS_OUTSIDE_CONSTANT = 0, BOPS_OUTSIDE_REFLECT = 1, BOPS_OUTSIDE_REPLICATE = 2, BOPS_OUTSIDE_CIRCULAR = 3 };

/* Along an extent position i reads element (i - before) / dilation of `extent`. */
typedef struct {
    int64_t before;
    uint64_t extent;
    uint64_t dilation;
    uint64_t has_edge; /* 0: position i reads element i, whatever the others say */
} bops_pad_edge;

typedef struct {
    bops_copy_strided_params moved; /* without a tail */
    bops_pad_edge edges[BOPS_MOVEMENT_EXTENTS];
    uint64_t value; /* as often as it fits */
    bops_outside outside;
} bops_pad_params;

/* The choice is that of copies of any strides. Specialised for nothing. */
BOPS_FORM(bops_pad, uint32_t, bops_pad_params, bops_copy_strided_choice, bops_movement_operands)

#ifdef __cplusplus
}
#endif
#endif
