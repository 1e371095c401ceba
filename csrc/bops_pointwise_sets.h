/* The C ABI of the CUDA kernel of programs of several sets of operands; the rules of bops.h hold here. */
#ifndef BOPS_POINTWISE_SETS_H
#define BOPS_POINTWISE_SETS_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most numbers and shared scalars of a program, elements of a block, and words of the sets of a launch, which with the rest fit into 4 KiB of
 * parameters. */
enum { BOPS_SETS_NUMBERS = 32, BOPS_SETS_SCALARS = 8, BOPS_SETS_BLOCK = 4096, BOPS_SETS_WORDS = 368 };

/* What Rust chose.
 * slots: values that are live at once and have registers: 4 or 8. */
typedef struct {
    uint32_t slots;
} bops_pointwise_sets_choice;

/* As bops_pointwise_program_params, of inputs without the scalars that all sets share. Those are numbers: scalar k is that at number[k]. */
typedef struct {
    uint32_t inputs, outputs, instructions, scalars;
    uint32_t result[BOPS_POINTWISE_OUTPUTS];
    uint64_t instruction[BOPS_POINTWISE_INSTRUCTIONS];
    uint64_t literal[BOPS_SETS_NUMBERS];
    bops_dtype scalar_dtype[BOPS_SETS_SCALARS];
    uint32_t number[BOPS_SETS_SCALARS];
    bops_dtype input[BOPS_POINTWISE_INPUTS], output[BOPS_POINTWISE_OUTPUTS];
} bops_pointwise_sets_params;

/* Sets, each of 2 + inputs + outputs words: the number of its first block, its elements, which are not 0, and the addresses of its operands, dense and aligned
 * for accesses to 4 elements, of which outputs may be inputs. Sets have BOPS_SETS_BLOCK elements to a block. */
typedef struct {
    const void *scalar[BOPS_SETS_SCALARS];
    uint64_t word[BOPS_SETS_WORDS];
    uint32_t sets, blocks;
} bops_pointwise_sets_operands;

/* Specialised for the computing type, BOPS_F32. Inputs and scalars are of types that compute in it, and BOPS_BOOL; outputs of any. */
BOPS_FORM(bops_pointwise_sets, bops_dtype, bops_pointwise_sets_params, bops_pointwise_sets_choice, bops_pointwise_sets_operands)

#ifdef __cplusplus
}
#endif
#endif
