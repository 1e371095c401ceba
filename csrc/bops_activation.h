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

/* Operands of forward, of type `dtype`: dense, in the same order. */
typedef struct {
    const void *x;
    void *y; /* may be x */
} bops_activation_operands;

bops_status bops_activation_prepare(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype);
bops_status bops_activation_launch(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype,
                                   const bops_activation_operands *operands, bops_stream stream);

/* Operands of backward, of type `dtype`: dense, in the same order. */
typedef struct {
    const void *dy, *saved; /* saved: x, with from_y y; null for the identity */
    void *dx;               /* may be dy */
} bops_activation_backward_operands;

bops_status bops_activation_backward_prepare(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype);
bops_status bops_activation_backward_launch(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype,
                                            const bops_activation_backward_operands *operands, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
