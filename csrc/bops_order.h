/* The C ABI of the CUDA kernels of sort, top-k and of searches among sorted elements; the rules of bops.h hold here. */
#ifndef BOPS_ORDER_H
#define BOPS_ORDER_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Records of a thread, and the most threads of a tile: of keys of 32 and of 64 bits. A record is a key and the position that its element has along the line. */
enum { BOPS_ORDER_ITEMS = 8, BOPS_ORDER_THREADS = 512, BOPS_ORDER_THREADS_WIDE = 256 };

/* Records that a warp finds in a line at most, and positions of such a line; the most neighbours of a group. */
enum { BOPS_ORDER_FEW = 8, BOPS_ORDER_FEW_LENGTH = 8192, BOPS_ORDER_GROUP_MOST = 512 };

/* How an operand lies: lines along the other axes, and elements along a line. */
typedef struct {
    bops_walked lines;
    uint64_t step; /* from one element of a line to the next */
} bops_order_side;

/* How the bits of an element become its key. */
typedef struct {
    uint64_t sign;     /* the bit of the sign, or 0 of types without one */
    uint64_t infinity; /* the bits of infinity, or 0 of integers and bool */
    uint32_t is_bool, is_descending;
} bops_order_keys;

/* Of each line the first `kept` records in order are written. `values` and `indices` count where their operands are there. */
typedef struct {
    bops_walk walk; /* the lines, one to an access */
    bops_order_side x, values, indices;
    bops_order_keys keys;
    uint64_t lines, length, kept;
} bops_order_params;

/* What Rust chose.
 * threads: that share a tile, a power of two, up to the most of the keys. With fewer a block has several tiles, each of which is a whole line.
 * is_selected: whether each tile finds the records that it keeps before it sorts them.
 * group: of order_groups, the logarithm of how many neighbours are a group, from 32 to BOPS_ORDER_GROUP_MOST. */
typedef struct {
    uint32_t threads, is_selected, group;
} bops_order_choice;

typedef struct {
    const void *x;
    void *values, *indices;
} bops_order_operands;

/* Specialised for the bytes of an element. */
typedef struct {
    uint32_t bytes;
} bops_order_element;

/* The workspace has two buffers of records, which launches but the last write in turns; they have as many as the first two of these write. First all keys of the
 * buffers, then all positions. A buffer is [line][record]. */

/* Each tile keeps its first `kept` records; those of all tiles of a line are lines of the next launch, until a tile holds a whole line. */
BOPS_FORM(bops_order_tiles, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands)
/* Records of the least keys of groups; the first of these as by order_tiles, and of the elements of their groups the first, likewise. The buffers have as many records
 * as the launches need that write them in turns. Its tiles find what they keep. */
BOPS_FORM(bops_order_groups, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands)
/* At most BOPS_ORDER_FEW records of lines of at most BOPS_ORDER_FEW_LENGTH positions. There is nothing to choose, and no workspace. */
BOPS_FORM(bops_order_few, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands)
/* Tiles are sorted, and merged in pairs, launch by launch. */
BOPS_FORM(bops_order_merge, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands)
/* Lines are sorted by a byte of their keys in each pass. Behind the buffers are 256 counts for each tile, and 256 for each line. There is nothing to choose. */
BOPS_FORM(bops_order_radix, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands)

/* ---- searches among sorted elements ----------------------------------------- */

/* Values of a thread. */
enum { BOPS_SEARCH_SORTED_ITEMS = 4 };

/* The walk is that of the values, one to an access. `lines`: where the line begins in which each is sought. Keys rise. */
typedef struct {
    bops_walk walk;
    bops_walked indices, values, lines;
    bops_order_keys keys;
    uint64_t length, step; /* elements of a line, and from one of them to the next */
    uint32_t is_right;     /* whether the position is behind elements that equal the value */
} bops_search_sorted_params;

typedef struct {
    const void *sorted, *values;
    void *indices;
} bops_search_sorted_operands;

/* Specialised for the bytes of an element. There is nothing to choose, and no workspace. */
BOPS_FORM(bops_search_sorted, bops_order_element, bops_search_sorted_params, uint32_t, bops_search_sorted_operands)

#ifdef __cplusplus
}
#endif
#endif
