/* The C ABI of the CUDA kernels of pointwise; the rules of bops.h hold here. */
#ifndef BOPS_POINTWISE_H
#define BOPS_POINTWISE_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions, in the order in which Rust declares them, whose numbers these are. Bools are 0 or 1 among the values of a program. */
typedef uint32_t bops_function;
enum {
    BOPS_FUNCTION_NEG,
    BOPS_FUNCTION_SQRT,
    BOPS_FUNCTION_ABS,
    BOPS_FUNCTION_SIGN,
    BOPS_FUNCTION_CEIL,
    BOPS_FUNCTION_FLOOR,
    BOPS_FUNCTION_ROUND,
    BOPS_FUNCTION_TRUNC,
    BOPS_FUNCTION_FRAC,
    BOPS_FUNCTION_RECIPROCAL,
    BOPS_FUNCTION_SQUARE,
    BOPS_FUNCTION_RSQRT,
    BOPS_FUNCTION_CBRT,
    BOPS_FUNCTION_RELU,
    BOPS_FUNCTION_RELU6,
    BOPS_FUNCTION_SOFTSIGN,
    BOPS_FUNCTION_HARDSIGMOID,
    BOPS_FUNCTION_HARDSWISH,
    BOPS_FUNCTION_LEAKY_RELU,
    BOPS_FUNCTION_PRELU,
    BOPS_FUNCTION_HARDTANH,
    BOPS_FUNCTION_HARDSHRINK,
    BOPS_FUNCTION_SOFTSHRINK,
    BOPS_FUNCTION_THRESHOLD,
    BOPS_FUNCTION_MAXIMUM,
    BOPS_FUNCTION_MINIMUM,
    BOPS_FUNCTION_FMAX,
    BOPS_FUNCTION_FMIN,
    BOPS_FUNCTION_COPYSIGN,
    BOPS_FUNCTION_FMOD,
    BOPS_FUNCTION_REMAINDER,
    BOPS_FUNCTION_DIV_FLOOR,
    BOPS_FUNCTION_DIV_TRUNC,
    BOPS_FUNCTION_HYPOT,
    BOPS_FUNCTION_HEAVISIDE,
    BOPS_FUNCTION_ISNAN,
    BOPS_FUNCTION_ISINF,
    BOPS_FUNCTION_ISFINITE,
    BOPS_FUNCTION_SIGNBIT,
    BOPS_FUNCTION_LOGICAL_NOT,
    BOPS_FUNCTION_BITWISE_NOT,
    BOPS_FUNCTION_POPCOUNT,
    BOPS_FUNCTION_EQ,
    BOPS_FUNCTION_NE,
    BOPS_FUNCTION_LT,
    BOPS_FUNCTION_LE,
    BOPS_FUNCTION_GT,
    BOPS_FUNCTION_GE,
    BOPS_FUNCTION_LOGICAL_AND,
    BOPS_FUNCTION_LOGICAL_OR,
    BOPS_FUNCTION_LOGICAL_XOR,
    BOPS_FUNCTION_BITWISE_AND,
    BOPS_FUNCTION_BITWISE_OR,
    BOPS_FUNCTION_BITWISE_XOR,
    BOPS_FUNCTION_SHIFT_LEFT,
    BOPS_FUNCTION_SHIFT_RIGHT,
    BOPS_FUNCTION_GCD,
    BOPS_FUNCTION_LCM,
    BOPS_FUNCTION_WHERE,
    BOPS_FUNCTION_CLAMP,
    BOPS_FUNCTION_LERP,
    BOPS_FUNCTION_ADDCMUL,
    BOPS_FUNCTION_ADDCDIV,
    BOPS_FUNCTION_FMA,
    BOPS_FUNCTION_EXP,
    BOPS_FUNCTION_LOG,
    BOPS_FUNCTION_SIGMOID,
    BOPS_FUNCTION_TANH,
    BOPS_FUNCTION_SILU,
    BOPS_FUNCTION_SOFTPLUS,
    BOPS_FUNCTION_LOG_SIGMOID,
    BOPS_FUNCTION_GELU_ERF,
    BOPS_FUNCTION_GELU_TANH,
    BOPS_FUNCTION_ERF,
    BOPS_FUNCTION_ERFC,
    BOPS_FUNCTION_MISH,
    BOPS_FUNCTION_SELU,
    BOPS_FUNCTION_EXPM1,
    BOPS_FUNCTION_LOG1P,
    BOPS_FUNCTION_EXP2,
    BOPS_FUNCTION_LOG2,
    BOPS_FUNCTION_LOG10,
    BOPS_FUNCTION_SIN,
    BOPS_FUNCTION_COS,
    BOPS_FUNCTION_TAN,
    BOPS_FUNCTION_TANHSHRINK,
    BOPS_FUNCTION_ASIN,
    BOPS_FUNCTION_ACOS,
    BOPS_FUNCTION_ATAN,
    BOPS_FUNCTION_SINH,
    BOPS_FUNCTION_COSH,
    BOPS_FUNCTION_ASINH,
    BOPS_FUNCTION_ACOSH,
    BOPS_FUNCTION_ATANH,
    BOPS_FUNCTION_LOGIT,
    BOPS_FUNCTION_ELU,
    BOPS_FUNCTION_CELU,
    BOPS_FUNCTION_POW,
    BOPS_FUNCTION_XLOGY,
    BOPS_FUNCTION_ATAN2,
    BOPS_FUNCTION_SINC,
    BOPS_FUNCTION_LGAMMA,
    BOPS_FUNCTION_DIGAMMA,
    BOPS_FUNCTION_ZETA,
    BOPS_FUNCTION_IGAMMA,
    BOPS_FUNCTION_IGAMMAC,
    BOPS_FUNCTION_IGAMMA_GRAD_A,
    BOPS_FUNCTION_BETAINC,
    BOPS_FUNCTION_ERFINV,
    BOPS_FUNCTION_NDTRI,
    BOPS_FUNCTION_LOG_NDTR,
    BOPS_FUNCTION_ERFCX,
    BOPS_FUNCTION_BESSEL_J0,
    BOPS_FUNCTION_BESSEL_J1,
    BOPS_FUNCTION_BESSEL_Y0,
    BOPS_FUNCTION_BESSEL_Y1,
    BOPS_FUNCTION_I0,
    BOPS_FUNCTION_I0E,
    BOPS_FUNCTION_I1,
    BOPS_FUNCTION_I1E,
    BOPS_FUNCTION_MODIFIED_BESSEL_K0,
    BOPS_FUNCTION_MODIFIED_BESSEL_K1,
    BOPS_FUNCTION_SCALED_MODIFIED_BESSEL_K0,
    BOPS_FUNCTION_SCALED_MODIFIED_BESSEL_K1,
    BOPS_FUNCTION_LOGADDEXP,
    BOPS_FUNCTION_LOGADDEXP2,
    BOPS_FUNCTION_LDEXP,
    BOPS_FUNCTION_NEXTAFTER,
    BOPS_FUNCTION_NAN_TO_NUM,
    BOPS_FUNCTION_ADD,
    BOPS_FUNCTION_SUB,
    BOPS_FUNCTION_MUL,
    BOPS_FUNCTION_DIV,
};

/* How much arithmetic functions are. Kernels of single functions are compiled for those of a cost and a number of arguments. */
typedef uint32_t bops_cost;
enum { BOPS_COST_LIGHT, BOPS_COST_EXPONENTIAL, BOPS_COST_DIGITS, BOPS_COST_SPECIAL, BOPS_COST_SERIES, BOPS_COST_INTEGRAL };

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
    bops_pointwise_argument x, y, z;
    bops_function function;
    bops_cost cost;     /* of the function */
    uint32_t arguments; /* 1 to 3: later ones do not count */
} bops_pointwise_function_params;

typedef struct {
    const void *x, *y, *z; /* null for a number */
    void *out;             /* may be an argument that lies alike */
} bops_pointwise_function_operands;

/* Operands have the dtype that the form is specialised for. With accesses of 16 bytes the result of a light function of one or two arguments, or the first
 * argument of one of three, may be BOPS_BOOL. */
BOPS_FORM(bops_pointwise_function, bops_dtype, bops_pointwise_function_params, bops_pointwise_function_choice, bops_pointwise_function_operands)

/* ---- programs ------------------------------------------------------------- */

/* What Rust chose.
 * dtype: with is_uniform, for which extents is 1, that of all operands, not BOPS_F64; else the computing type.
 * extents: that the walk may have: 1, where operands that are not repeated are dense; 4, of walks that are not long; 8: all, one position to an access.
 * slots: values that are live at once and have registers: of f32 4, or 8; with 8 extents of f32 and integers 8; or with 8 extents 0, where they lie in local
 * memory. */
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
    uint32_t result[BOPS_POINTWISE_OUTPUTS]; /* where the values of outputs are */
    uint64_t
        instruction[BOPS_POINTWISE_INSTRUCTIONS]; /* bytes, from the lowest: function, x, y, z, the place of the result, number of arguments, cost */
    uint64_t literal[BOPS_POINTWISE_LITERALS];    /* bits of the computing type */
    bops_walked input[BOPS_POINTWISE_INPUTS];     /* loaded into the slots of their numbers */
    bops_walked output[BOPS_POINTWISE_OUTPUTS];
} bops_pointwise_program_params;

typedef struct {
    const void *input[BOPS_POINTWISE_INPUTS];
    void *output[BOPS_POINTWISE_OUTPUTS]; /* may be inputs that lie alike */
} bops_pointwise_program_operands;

/* Specialised for the computing type: BOPS_F32, BOPS_F64, BOPS_I32, BOPS_U32 or BOPS_I64. Inputs are of types that compute in it, and BOPS_BOOL; outputs
 * of any. */
BOPS_FORM(bops_pointwise_program, bops_dtype, bops_pointwise_program_params, bops_pointwise_program_choice, bops_pointwise_program_operands)

/* ---- programs with sources ------------------------------------------------ */

/* The most sources, and numbers of a program that has some. */
enum { BOPS_POINTWISE_SOURCES = 4, BOPS_POINTWISE_SOURCE_LITERALS = 64 };

/* What a source gives: the position along an extent, or random numbers. */
typedef uint32_t bops_source_kind;
enum { BOPS_SOURCE_INDEX, BOPS_SOURCE_UNIFORM, BOPS_SOURCE_BERNOULLI, BOPS_SOURCE_RANDINT, BOPS_SOURCE_NORMAL, BOPS_SOURCE_EXPONENTIAL };

/* A source: an operand whose elements would be their own numbers, which are an index, or the positions of random numbers. */
typedef struct {
    bops_walked walked;
    bops_source_kind kind;
    uint32_t stream;
    uint32_t digits;      /* of uniform numbers: 1 to 24, of f64 to 53 */
    uint32_t seed_stride; /* elements between the words of the seed */
    uint64_t range;       /* of integers how many there are, at most 2^32; bools are true of words below it */
    int64_t low;          /* the least integer */
} bops_pointwise_source;

/* What Rust chose.
 * extents: 4: accesses of 16 bytes of walks that are not long, of any extents; 8: one position to an access.
 * slots: 8 in registers, with 8 extents not of f64; or with 8 extents 0, where values lie in local memory. */
typedef struct {
    uint32_t extents, slots;
} bops_pointwise_source_choice;

/* As bops_pointwise_program_params; sources are in the slots behind those of the inputs. */
typedef struct {
    bops_walk walk;
    uint32_t inputs, sources, outputs, instructions;
    uint32_t result[BOPS_POINTWISE_OUTPUTS];
    uint64_t instruction[BOPS_POINTWISE_INSTRUCTIONS];
    uint64_t literal[BOPS_POINTWISE_SOURCE_LITERALS];
    bops_walked input[BOPS_POINTWISE_INPUTS];
    bops_pointwise_source source[BOPS_POINTWISE_SOURCES];
    bops_walked output[BOPS_POINTWISE_OUTPUTS];
} bops_pointwise_source_params;

typedef struct {
    const void *input[BOPS_POINTWISE_INPUTS];
    const uint32_t *seed[BOPS_POINTWISE_SOURCES]; /* two words, and one; of random sources */
    const uint32_t *offset[BOPS_POINTWISE_SOURCES];
    void *output[BOPS_POINTWISE_OUTPUTS]; /* may be inputs that lie alike */
} bops_pointwise_source_operands;

/* Specialised for the computing type, as bops_pointwise_program. */
BOPS_FORM(bops_pointwise_source, bops_dtype, bops_pointwise_source_params, bops_pointwise_source_choice, bops_pointwise_source_operands)

#ifdef __cplusplus
}
#endif
#endif
