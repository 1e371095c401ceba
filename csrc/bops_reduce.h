/* The C ABI of the CUDA kernels of reductions; the rules of bops.h hold here. */
#ifndef BOPS_REDUCE_H
#define BOPS_REDUCE_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Threads of a block, columns of accesses side by side in a block, and accesses of a thread that are in flight at once. */
enum { BOPS_REDUCE_THREADS = 256, BOPS_REDUCE_ACROSS = 32, BOPS_REDUCE_BATCH = 8 };

/* How values become one; the greatest of two is NaN if one is. The least is the greatest of negated values. Of exponentials it is the logarithm of their sum,
 * of moments the sum of the squares of differences from the mean, of positions that of the first of the greatest, and a count is of values that are not 0.
 * ANY stands for what bops_reduce_results say. */
typedef uint32_t bops_combine;
enum {
    BOPS_COMBINE_ADD = 0,
    BOPS_COMBINE_MULTIPLY = 1,
    BOPS_COMBINE_GREATEST = 2,
    BOPS_COMBINE_EXPONENTIALS = 3,
    BOPS_COMBINE_MOMENTS = 4,
    BOPS_COMBINE_POSITION = 5,
    BOPS_COMBINE_COUNT = 6,
    BOPS_COMBINE_ANY = 7
};

/* What becomes of each value before. Negative integers are those with all bits inverted, of which there are as many. */
typedef uint32_t bops_each;
enum {
    BOPS_EACH_VALUE = 0,
    BOPS_EACH_MAGNITUDE = 1, /* only where values are added up or the greatest is taken */
    BOPS_EACH_SQUARE = 2,    /* only where values are added up */
    BOPS_EACH_NEGATIVE = 3,  /* only for the greatest and its position */
    BOPS_EACH_NONZERO = 4,   /* only where values are counted */
    BOPS_EACH_ZERO = 5       /* only where values are counted */
};

/* What becomes of the result. */
typedef uint32_t bops_finish;
enum {
    BOPS_FINISH_TOTAL = 0,
    BOPS_FINISH_MEAN = 1,
    BOPS_FINISH_ROOT = 2,
    BOPS_FINISH_NEGATIVE = 3,
    BOPS_FINISH_ROOT_OF_MEAN = 4,
    BOPS_FINISH_NONE = 5 /* whether it is 0 */
};

/* Where results go. What is reduced to an output is divided into pieces. If there are several, or none, a second launch combines the results of
 * pieces, which lie in the workspace as [piece][output]. Bytes of each: of a sum, product or greatest those of a value, of exponentials twice, of moments
 * three times as many, of a count 8, of a position 16; of ANY 24 of f32, else 32. A value has 4 bytes in f32, else 8. */
typedef struct {
    bops_walk kept; /* the outputs, one to an access */
    bops_walked out;
    uint64_t outputs, pieces;
    double count;     /* what a mean is divided by */
    uint32_t threads; /* that share the pieces of an output in the second launch: a power of two up to 256 */
    bops_finish finish;
    bops_combine combine;
} bops_reduce_results;

/* What Rust chose.
 * vec_bytes: bytes of one access to elements that are neighbours, 16 or those of an element, as of f64 always. They start at a multiple of it.
 * extents: that the walk of what is reduced may have: 1, of neighbours all along, or 8.
 * rows: outputs of a team at once, 1 or 4; more than 1 only where there is one piece, an output has at most two accesses of a thread and extents is 1.
 * Of what is no sum or greatest extents are 8 and rows 1. combine is not ANY. */
typedef struct {
    bops_combine combine;
    uint32_t vec_bytes, extents, rows;
} bops_reduce_choice;

/* The elements of one output are neighbours. A team of threads takes a piece of it. */
typedef struct {
    bops_reduce_results results;
    bops_walk reduced;         /* in accesses */
    bops_walked in, in_kept;   /* along what is reduced, in accesses, and along the outputs */
    uint64_t accesses, blocks; /* of an output; of the first launch */
    uint32_t threads;          /* of a team: a power of two up to 256 */
    uint32_t batches;          /* of a piece, BOPS_REDUCE_BATCH accesses of a thread each */
    bops_each each;
} bops_reduce_rows_params;

/* The elements of neighbouring outputs are neighbours. BOPS_REDUCE_ACROSS threads side by side have an access each. */
typedef struct {
    bops_reduce_results results;
    bops_walk kept, reduced;      /* outputs in accesses; what is reduced, one by one */
    bops_walked in, in_kept, out; /* along what is reduced; along the outputs, in accesses */
    uint64_t items, groups;       /* reduced to an output; blocks that take the accesses of a piece */
    uint64_t out_step;            /* from an output of an access to the next */
    uint32_t deep;                /* threads that share outputs: a power of two up to 8 */
    uint32_t batches;             /* of a piece, BOPS_REDUCE_BATCH accesses of a thread each */
    bops_each each;
} bops_reduce_columns_params;

typedef struct {
    const void *in;
    void *out;
} bops_reduce_operands;

/* Specialised for the dtype of the input. */
BOPS_FORM(bops_reduce_rows, bops_dtype, bops_reduce_rows_params, bops_reduce_choice, bops_reduce_operands)
BOPS_FORM(bops_reduce_columns, bops_dtype, bops_reduce_columns_params, bops_reduce_choice, bops_reduce_operands)

/* ---- of programs, and of any layout ---------------------------------------- */

/* combine: ADD, of f32 with 8 slots, or ANY.
 * slots: values that are live at once and have registers: 8; or 0, where they lie in local memory. */
typedef struct {
    bops_combine combine;
    uint32_t slots;
} bops_reduce_program_choice;

/* Values are as in bops_pointwise_program_params. Strides of an input are those along the outputs, of which there are `kept_extents`, then those along what
 * is reduced. */
typedef struct {
    bops_reduce_results results;
    bops_walk reduced; /* one by one */
    uint64_t items, groups;
    uint32_t threads;    /* that share an output: a power of two up to 256 */
    uint32_t rounds;     /* values of a thread in a piece */
    uint32_t is_columns; /* whether neighbouring threads have neighbouring outputs; otherwise what is reduced to one */
    uint32_t kept_extents;
    bops_each each;
    uint32_t inputs, instructions;
    uint32_t result;
    uint64_t instruction[BOPS_POINTWISE_INSTRUCTIONS];
    uint64_t literal[BOPS_POINTWISE_LITERALS];
    bops_walked input[BOPS_POINTWISE_INPUTS];
} bops_reduce_program_params;

typedef struct {
    const void *input[BOPS_POINTWISE_INPUTS];
    void *out;
} bops_reduce_program_operands;

/* Specialised for the computing type: BOPS_F32, BOPS_F64, BOPS_I32, BOPS_U32 or BOPS_I64. Integers are combined in 64 bits, which wrap. */
BOPS_FORM(bops_reduce_program, bops_dtype, bops_reduce_program_params, bops_reduce_program_choice, bops_reduce_program_operands)

/* ---- of programs, along lines ------------------------------------------------ */

/* What Rust chose.
 * dtype: with is_uniform that of all inputs, not BOPS_F64, in accesses of 16 bytes; else BOPS_F32, for inputs of any types that compute in it, in accesses of
 * four elements. Accesses lie at multiples of their size.
 * slots: values that are live at once: with is_uniform 4, else 8. */
typedef struct {
    bops_dtype dtype;
    uint32_t is_uniform, slots;
} bops_reduce_lines_choice;

/* What is reduced to an output is a line of each input: neighbours, or one repeated element. A team of threads takes a piece of it. Values are as in
 * bops_pointwise_program_params. */
typedef struct {
    bops_reduce_results results;
    uint64_t accesses, blocks; /* of an output; of the first launch */
    uint32_t threads;          /* of a team: a power of two up to 256 */
    uint32_t rounds;           /* accesses of a thread in a piece: a multiple of 4 */
    bops_each each;
    uint32_t inputs, instructions;
    uint32_t result;
    uint64_t instruction[BOPS_POINTWISE_INSTRUCTIONS];
    uint64_t literal[BOPS_POINTWISE_LITERALS];
    bops_walked input[BOPS_POINTWISE_INPUTS]; /* strides along the outputs; is_repeated along the line */
} bops_reduce_lines_params;

/* Specialised for the combination, BOPS_COMBINE_ADD. */
BOPS_FORM(bops_reduce_lines, bops_combine, bops_reduce_lines_params, bops_reduce_lines_choice, bops_reduce_program_operands)

#ifdef __cplusplus
}
#endif
#endif
