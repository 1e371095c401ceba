/* The C ABI of the CUDA kernels of activation; the rules of bops.h hold here. */
#ifndef BOPS_ACTIVATION_H
#define BOPS_ACTIVATION_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What Rust chose: bytes of one access, 16 or those of an element. Every operand starts at a multiple of it. */
typedef struct {
    uint32_t vec_bytes;
} bops_activation_choice;

typedef struct {
    uint64_t elements;
    bops_activation activation;
    uint32_t from_y; /* backward: `saved` is the result, of relu, sigmoid or tanh */
} bops_activation_params;

/* Operands of forward: dense, in the same order. */
typedef struct {
    const void *x;
    void *y; /* may be x */
} bops_activation_operands;

BOPS_FORM(bops_activation, bops_dtype, bops_activation_params, bops_activation_choice, bops_activation_operands)

/* Operands of backward: dense, in the same order. */
typedef struct {
    const void *dy, *saved; /* saved: x, with from_y y; null for the identity */
    void *dx;               /* may be dy */
} bops_activation_backward_operands;

BOPS_FORM(bops_activation_backward, bops_dtype, bops_activation_params, bops_activation_choice, bops_activation_backward_operands)

#ifdef __cplusplus
}
#endif
#endif
