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

/* ---- where elements are not 0 ----------------------------------------------- */

typedef struct {
    const void *x;
    void *indices; /* null without rows */
    void *count;   /* null unless it is asked for */
} bops_nonzero_operands;

/* What Rust chose. bytes: of an element. width: elements of an access, 1 or as many as 16 bytes have, of an x whose elements are neighbours in row-major order. */
typedef struct {
    uint32_t bytes, width;
} bops_nonzero_choice;

/* Row by row an index, or one for each extent of x. `inner`: the extents of x from the innermost on, without the outermost. The workspace has 8 bytes for each block. */
typedef struct {
    bops_walk walk; /* the elements of x in row-major order, one to an access */
    bops_walked x;
    uint64_t mask;                     /* the bits of an element that are all 0 where it is */
    uint64_t tiles;                    /* that blocks share: 256 threads have 32 elements each where a vector has at least 4, else 16 */
    uint64_t rows, row, column;        /* rows that are written, and how far apart in the indices rows are, and positions along two extents */
    uint64_t fill;                     /* what the indices have behind the last position */
    uint32_t blocks;                   /* at least 1 */
    uint32_t index_bytes, count_bytes; /* 4 or 8 */
    uint32_t columns, is_long;         /* columns: extents of x, or 0 where a row is one number. is_long: whether numbers of elements reach 2^31 */
    bops_divisor inner[BOPS_POINTWISE_EXTENTS - 1];
} bops_nonzero_params;

/* Specialised for nothing: the choice tells kernels apart. */
BOPS_FORM(bops_nonzero, uint32_t, bops_nonzero_params, bops_nonzero_choice, bops_nonzero_operands)

/* ---- elements that go where indices name ----------------------------------- */

/* Threads of a block that sorts, and items of a thread, of which there are fewer where BOPS_SORT_FEW_TILES tiles of fewer hold all, but one of more does not. */
enum { BOPS_SORT_THREADS = 256, BOPS_SORT_ITEMS = 16, BOPS_SORT_ITEMS_FEW = 4, BOPS_SORT_FEW_TILES = 64 };

/* How far apart the entries of an extent are: elements of the indices, keys, and places of the source. */
typedef struct {
    uint64_t index, key, place;
} bops_scatter_entry_strides;

/* The workspace has the keys of entries in their order and then their places, 4 bytes each; with several tiles another array of keys and one of places, 256 counts
 * for each tile, of up to BOPS_SORT_FEW_TILES tiles for each digit of the keys, else once and 256 totals. */
typedef struct {
    const void *indices;
} bops_scatter_order_operands;

/* Entries in the order of their keys, those of a key in their own. A key is a row of y, a place a row of the source; entries that go nowhere have the key `keys`.
 * axis.apart: keys from one position to the next. `inner` and `strides` as those of lines, by single entries. */
typedef struct {
    bops_lookup_axis axis;
    uint64_t entries;      /* at least 1 */
    uint32_t keys, digits; /* digits: of 8 bits, in the largest key */
    uint32_t tiles;        /* of BOPS_SORT_THREADS * BOPS_SORT_ITEMS entries, or of fewer items */
    uint32_t rank, is_long;
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    bops_scatter_entry_strides strides[BOPS_MOVEMENT_EXTENTS];
} bops_scatter_order_params;

/* Specialised for nothing; there is nothing to choose. */
BOPS_FORM(bops_scatter_order, uint32_t, bops_scatter_order_params, uint32_t, bops_scatter_order_operands)

/* How far apart the units of an extent of a row are: of the source and of y. */
typedef struct {
    uint64_t source, y;
} bops_scatter_row_strides;

/* Rows, unit by unit. `inner` and `strides` as those of lines, by single units. */
typedef struct {
    uint64_t entries, units; /* units: of a row */
    uint64_t place, key;     /* units of the source from one place to the next, and of y from one key to the next */
    uint64_t blocks;
    uint32_t keys;
    uint32_t lanes;  /* threads side by side along a row, a power of two of at most 256 */
    uint32_t of_row; /* blocks of a row */
    uint32_t rank, is_long;
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    bops_scatter_row_strides strides[BOPS_MOVEMENT_EXTENTS];
} bops_scatter_rows;

typedef struct {
    const void *source;
    void *y;
} bops_scatter_operands;

/* How what goes to one place is combined. */
typedef uint32_t bops_scatter_combine;
enum { BOPS_SCATTER_ADD = 0, BOPS_SCATTER_MULTIPLY = 1, BOPS_SCATTER_MIN = 2, BOPS_SCATTER_MAX = 3 };

/* What Rust chose. unit_bytes: of an access, 16, which are neighbours on both sides, or those of an element. */
typedef struct {
    uint32_t unit_bytes;
} bops_scatter_choice;

/* y already has the base, if there is one. Behind what sorts the entries, from `parts` bytes of the workspace on, are two rows for each part of
 * the entries, in accumulators: what of it continues the part before, and what the next part continues. */
typedef struct {
    bops_scatter_rows rows;
    uint64_t parts;
    uint32_t part; /* entries that a team of threads combines */
    bops_scatter_combine combine;
    uint32_t has_base;
} bops_scatter_params;

/* Specialised for the type of elements. */
BOPS_FORM(bops_scatter, bops_dtype, bops_scatter_params, bops_scatter_choice, bops_scatter_operands)

typedef struct {
    bops_scatter_rows rows;
} bops_scatter_set_params;

/* The last entry of each key. Units are bits, of 1, 2, 4, 8 or 16 bytes. Specialised for nothing. */
BOPS_FORM(bops_scatter_set, uint32_t, bops_scatter_set_params, bops_scatter_choice, bops_scatter_operands)

/* What Rust chose. threads: of a block, a multiple of 32 of at most 256. is_wide: whether y and the base move in vectors of 16 bytes, of elements that are
 * combined. set_bytes: of an element of which the last is set, as bits, or 0 where they are combined. */
typedef struct {
    uint32_t threads, is_wide, set_bytes;
} bops_scatter_lines_choice;

typedef struct {
    const void *source;
    const void *indices;
    const void *base;
    void *y;
} bops_scatter_lines_operands;

/* Lines of y along the axis, each in the shared memory of a block, which writes all of it: 4 bytes and an accumulator for each element, 4 bytes where elements
 * are set. axis.apart: elements of y. `inner` and `strides` as those of lines of a lookup, by whole lines: elements of the indices, of y (key), and of the source
 * (place); `step`: from one entry of a line to the next. The base lies as y does. */
typedef struct {
    bops_lookup_axis axis;
    uint64_t lines;
    uint64_t entries; /* of a line, at least 1 and below 2^22 */
    bops_scatter_entry_strides step;
    bops_scatter_combine combine;
    uint32_t has_base, rank;
    bops_divisor inner[BOPS_MOVEMENT_EXTENTS - 1];
    bops_scatter_entry_strides strides[BOPS_MOVEMENT_EXTENTS];
} bops_scatter_lines_params;

/* Specialised for the type of elements that are combined. */
BOPS_FORM(bops_scatter_lines, bops_dtype, bops_scatter_lines_params, bops_scatter_lines_choice, bops_scatter_lines_operands)

#ifdef __cplusplus
}
#endif
#endif
