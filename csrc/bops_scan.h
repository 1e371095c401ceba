/* The C ABI of the CUDA kernels of scans; the rules of bops.h hold here. */
#ifndef BOPS_SCAN_H
#define BOPS_SCAN_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of rows: threads of a block, neighbours of a chunk, and chunks of a thread in a tile. */
enum { BOPS_SCAN_THREADS = 256, BOPS_SCAN_WIDTH = 8, BOPS_SCAN_CHUNKS = 2 };
/* Of columns: lines side by side in a block, the most threads that share one, and positions of a thread in a tile, of types of 8 and of 4 bytes. */
enum { BOPS_SCAN_ACROSS = 16, BOPS_SCAN_DEEP = 32, BOPS_SCAN_STEPS = 8, BOPS_SCAN_STEPS_F32 = 16 };
/* Totals of tiles, and of groups of tiles, that are combined one after another. */
enum { BOPS_SCAN_CHAIN = 8 };

/* How two values become one; the greatest of two is NaN if one is, and of equal ones the later. The least is the greatest of negated values, of integers
 * of those with inverted bits. GREATEST_AT keeps the position as well. */
typedef uint32_t bops_scan_combine;
enum { BOPS_SCAN_ADD = 0, BOPS_SCAN_MULTIPLY = 1, BOPS_SCAN_GREATEST = 2, BOPS_SCAN_GREATEST_AT = 3, BOPS_SCAN_LOG_ADD_EXP = 4 };

typedef struct {
    bops_scan_combine combine;
} bops_scan_choice;

/* How an operand lies. is_run: elements along a line are neighbours in whole chunks that start at multiples of 16 bytes. */
typedef struct {
    bops_walked lines;
    uint64_t step; /* from one element of a line to the next */
    uint32_t is_run;
} bops_scan_side;

/* Lines are divided into pieces of `tiles` tiles. If there are several, a first launch writes the total of each to the workspace, [line][piece], a second one
 * makes of them what lies before each, and a third one scans. */
typedef struct {
    bops_walk walk; /* the lines, one to an access */
    bops_scan_side x, y, indices;
    uint64_t lines, length, pieces;
    uint64_t blocks;  /* of a launch over all pieces */
    uint64_t groups;  /* of columns: blocks that take the lines of one piece */
    int64_t least;    /* of integers: what the greatest of no values is */
    uint32_t threads; /* that share a line: a power of two, of rows up to 256, of columns up to 32 */
    uint32_t tiles;
    uint32_t is_reverse, is_exclusive, is_least;
} bops_scan_params;

typedef struct {
    const void *x;
    void *y, *indices;
} bops_scan_operands;

/* Specialised for the computing type: BOPS_F32, BOPS_F64, or BOPS_I64 of all integers. */
BOPS_FORM(bops_scan_rows, bops_dtype, bops_scan_params, bops_scan_choice, bops_scan_operands)
BOPS_FORM(bops_scan_columns, bops_dtype, bops_scan_params, bops_scan_choice, bops_scan_operands)

#ifdef __cplusplus
}
#endif
#endif
