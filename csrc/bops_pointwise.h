/* The C ABI of the CUDA kernels of pointwise; the rules of bops.h hold here. */
#ifndef BOPS_POINTWISE_H
#define BOPS_POINTWISE_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions, in the order in which Rust declares them. Bools are 0 or 1 among the values of a program. */
typedef uint32_t bops_function;
enum {
    BOPS_FUNCTION_NEG = 0,
    BOPS_FUNCTION_SQRT = 1,
    BOPS_FUNCTION_EXP = 2,
    BOPS_FUNCTION_LOG = 3,
    BOPS_FUNCTION_SIGMOID = 4,
    BOPS_FUNCTION_TANH = 5,
    BOPS_FUNCTION_ISNAN = 6,
    BOPS_FUNCTION_ISINF = 7,
    BOPS_FUNCTION_ISFINITE = 8,
    BOPS_FUNCTION_SIGNBIT = 9,
    BOPS_FUNCTION_LOGICAL_NOT = 10,
    BOPS_FUNCTION_BITWISE_NOT = 11,
    BOPS_FUNCTION_POPCOUNT = 12,
    BOPS_FUNCTION_ADD = 13,
    BOPS_FUNCTION_SUB = 14,
    BOPS_FUNCTION_MUL = 15,
    BOPS_FUNCTION_DIV = 16,
    BOPS_FUNCTION_EQ = 17,
    BOPS_FUNCTION_NE = 18,
    BOPS_FUNCTION_LT = 19,
    BOPS_FUNCTION_LE = 20,
    BOPS_FUNCTION_GT = 21,
    BOPS_FUNCTION_GE = 22,
    BOPS_FUNCTION_LOGICAL_AND = 23,
    BOPS_FUNCTION_LOGICAL_OR = 24,
    BOPS_FUNCTION_LOGICAL_XOR = 25,
    BOPS_FUNCTION_BITWISE_AND = 26,
    BOPS_FUNCTION_BITWISE_OR = 27,
    BOPS_FUNCTION_BITWISE_XOR = 28,
    BOPS_FUNCTION_SHIFT_LEFT = 29,
    BOPS_FUNCTION_SHIFT_RIGHT = 30,
    BOPS_FUNCTION_DIV_FLOOR = 31,
    BOPS_FUNCTION_DIV_TRUNC = 32,
    BOPS_FUNCTION_REMAINDER = 33,
    BOPS_FUNCTION_FMOD = 34,
    BOPS_FUNCTION_MAXIMUM = 35,
    BOPS_FUNCTION_MINIMUM = 36,
    BOPS_FUNCTION_WHERE = 37
};

/* The most extents of a walk, and inputs, outputs, instructions and numbers of a program. */
enum {
    BOPS_POINTWISE_EXTENTS = 8,
    BOPS_POINTWISE_INPUTS = 16,
    BOPS_POINTWISE_OUTPUTS = 8,
    BOPS_POINTWISE_INSTRUCTIONS = 64,
    BOPS_POINTWISE_LITERALS = 128
};

/* An extent that numbers of accesses are divided by: of a number n below 2^31 the quotient is ((2 n * multiplier) >> 32) >> shift, in long walks of one
 * below 2^40 it is ((2^24 n * multiplier) >> 64) >> shift. */
typedef struct {
    uint32_t extent, shift;
    uint64_t multiplier;
} bops_divisor;

/* The positions, neighbours along the innermost extent to an access. `inner` are the extents in accesses, from the innermost on, without the outermost. The
 * innermost is a whole number of accesses, unless it is the only one. */
typedef struct {
    uint64_t elements;
    uint32_t rank;    /* extents; 0 for one element */
    uint32_t is_long; /* whether numbers of accesses reach 2^31 */
    bops_divisor inner[BOPS_POINTWISE_EXTENTS - 1];
} bops_walk;

/* How an operand lies in the walk. */
typedef struct {
    uint64_t strides[BOPS_POINTWISE_EXTENTS]; /* elements from access to access: along the outermost extent, then along those of `inner` */
    bops_dtype dtype;
    uint32_t is_repeated; /* whether all elements of an access are one; otherwise they are neighbours */
    uint32_t is_dense;    /* whether the element of each position lies at that number */
} bops_walked;

/* ---- one function --------------------------------------------------------- */

/* What Rust chose.
 * vec_bytes: bytes of one access to elements that are neighbours, 16 or those of an element. They start at a multiple of it.
 * extents: that the walk may have: 1, where operands that are not repeated are dense; 4, of walks that are not long; with vec_bytes below 16 all. */
typedef struct {
    uint32_t vec_bytes, extents;
} bops_pointwise_function_choice;

/* An argument of a function: an operand, or without one a number, of which these are the bits of the computing type. */
typedef struct {
    bops_walked walked;
    uint64_t literal;
    uint32_t is_literal;
} bops_pointwise_argument;

typedef struct {
    bops_walk walk;
    bops_walked out;
    bops_pointwise_argument x, y;
    bops_function function;
    uint32_t arguments; /* 1: y does not count */
} bops_pointwise_function_params;

typedef struct {
    const void *x, *y; /* null for a number */
    void *out;         /* may be x or y if they lie alike */
} bops_pointwise_function_operands;

/* Operands have the dtype that the form is specialised for. */
BOPS_FORM(bops_pointwise_function, bops_dtype, bops_pointwise_function_params, bops_pointwise_function_choice, bops_pointwise_function_operands)

/* ---- programs ------------------------------------------------------------- */

/* What Rust chose.
 * dtype: with is_uniform, for which extents is 1, that of all operands, not BOPS_F64; else the computing type.
 * extents: that the walk may have: 1, where operands that are not repeated are dense; 4, of walks that are not long; 8: all, one position to an access.
 * slots: values that are live at once and have registers: 4 or 8, with 8 extents and of integers 8; or with 8 extents 0, where they lie in local memory. */
typedef struct {
    bops_dtype dtype;
    uint32_t is_uniform, extents, slots;
} bops_pointwise_program_choice;

/* Where a value is: in a slot, by its number; in the accumulator, which has the last instruction's result and is overwritten by each instruction; or from
 * BOPS_VALUE_LITERAL on the number at the rest of it. As the place of a result the accumulator keeps it in no slot. */
enum { BOPS_VALUE_LAST = 127, BOPS_VALUE_LITERAL = 128 };

typedef struct {
    bops_walk walk;
    uint32_t inputs, outputs, instructions;
    uint32_t result[BOPS_POINTWISE_OUTPUTS];           /* where the values of outputs are */
    uint64_t instruction[BOPS_POINTWISE_INSTRUCTIONS]; /* bytes, from the lowest: function, x, y, z, the place of the result, number of arguments */
    uint64_t literal[BOPS_POINTWISE_LITERALS];         /* bits of the computing type */
    bops_walked input[BOPS_POINTWISE_INPUTS];          /* loaded into the slots of their numbers */
    bops_walked output[BOPS_POINTWISE_OUTPUTS];
} bops_pointwise_program_params;

typedef struct {
    const void *input[BOPS_POINTWISE_INPUTS];
    void *output[BOPS_POINTWISE_OUTPUTS]; /* may be inputs that lie alike */
} bops_pointwise_program_operands;

/* Specialised for the computing type: BOPS_F32, BOPS_F64, BOPS_I32, BOPS_U32 or BOPS_I64. Inputs are of types that compute in it, and BOPS_BOOL; outputs
 * of any. */
BOPS_FORM(bops_pointwise_program, bops_dtype, bops_pointwise_program_params, bops_pointwise_program_choice, bops_pointwise_program_operands)

#ifdef __cplusplus
}
#endif
#endif
