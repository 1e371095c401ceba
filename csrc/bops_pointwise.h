/* The C ABI of the CUDA kernels of pointwise; the rules of bops.h hold here. */
#ifndef BOPS_POINTWISE_H
#define BOPS_POINTWISE_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions, in the order in which Rust declares them. */
typedef uint32_t bops_function;
enum {
    BOPS_FUNCTION_NEG = 0,
    BOPS_FUNCTION_SQRT = 1,
    BOPS_FUNCTION_EXP = 2,
    BOPS_FUNCTION_LOG = 3,
    BOPS_FUNCTION_SIGMOID = 4,
    BOPS_FUNCTION_TANH = 5,
    BOPS_FUNCTION_SILU = 6,
    BOPS_FUNCTION_SOFTPLUS = 7,
    BOPS_FUNCTION_LOG_SIGMOID = 8,
    BOPS_FUNCTION_GELU_ERF = 9,
    BOPS_FUNCTION_GELU_TANH = 10,
    BOPS_FUNCTION_ERF = 11,
    BOPS_FUNCTION_ERFC = 12,
    BOPS_FUNCTION_MISH = 13,
    BOPS_FUNCTION_SELU = 14,
    BOPS_FUNCTION_EXPM1 = 15,
    BOPS_FUNCTION_LOG1P = 16,
    BOPS_FUNCTION_EXP2 = 17,
    BOPS_FUNCTION_LOG2 = 18,
    BOPS_FUNCTION_LOG10 = 19,
    BOPS_FUNCTION_SIN = 20,
    BOPS_FUNCTION_COS = 21,
    BOPS_FUNCTION_TAN = 22,
    BOPS_FUNCTION_TANHSHRINK = 23,
    BOPS_FUNCTION_ASIN = 24,
    BOPS_FUNCTION_ACOS = 25,
    BOPS_FUNCTION_ATAN = 26,
    BOPS_FUNCTION_SINH = 27,
    BOPS_FUNCTION_COSH = 28,
    BOPS_FUNCTION_ASINH = 29,
    BOPS_FUNCTION_ACOSH = 30,
    BOPS_FUNCTION_ATANH = 31,
    BOPS_FUNCTION_LOGIT = 32,
    BOPS_FUNCTION_GATE = 33, /* from here on they have two arguments */
    BOPS_FUNCTION_ELU = 34,
    BOPS_FUNCTION_CELU = 35,
    BOPS_FUNCTION_POW = 36,
    BOPS_FUNCTION_XLOGY = 37,
    BOPS_FUNCTION_ATAN2 = 38,
    BOPS_FUNCTION_ADD = 39,
    BOPS_FUNCTION_SUB = 40,
    BOPS_FUNCTION_MUL = 41,
    BOPS_FUNCTION_DIV = 42
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
 * slots: values that are live at once and have registers: 4 or 8, with 8 extents 8; or then 0, where they lie in local memory. */
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
    uint32_t instruction[BOPS_POINTWISE_INSTRUCTIONS]; /* bytes, from the lowest: function, x, y, and the place of the result */
    uint64_t literal[BOPS_POINTWISE_LITERALS];         /* bits of the computing type */
    bops_walked input[BOPS_POINTWISE_INPUTS];          /* loaded into the slots of their numbers */
    bops_walked output[BOPS_POINTWISE_OUTPUTS];
} bops_pointwise_program_params;

typedef struct {
    const void *input[BOPS_POINTWISE_INPUTS];
    void *output[BOPS_POINTWISE_OUTPUTS]; /* may be inputs that lie alike */
} bops_pointwise_program_operands;

/* Specialised for the computing type, BOPS_F32 or BOPS_F64. */
BOPS_FORM(bops_pointwise_program, bops_dtype, bops_pointwise_program_params, bops_pointwise_program_choice, bops_pointwise_program_operands)

#ifdef __cplusplus
}
#endif
#endif
