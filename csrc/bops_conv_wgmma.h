/* The C ABI of conv_wgmma and of the copies that it reads, beside that of other convolutions in bops_conv.h. */
#ifndef BOPS_CONV_WGMMA_H
#define BOPS_CONV_WGMMA_H
#include "bops_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What Rust chose. */
typedef struct {
    uint32_t columns; /* of a tile of 128 rows: 128 or 64 */
    uint32_t splits;  /* units that share the sums of a tile. More than 1: they write their parts to `parts`, and gemm_finish follows */
    uint32_t blocks;  /* all of them run at once */
    uint32_t across;  /* as in bops_gemm_choice */
    uint32_t quads;
    uint32_t
        light; /* 1: there is neither beta nor other, the activation is none or a ReLU, the fast index is a multiple of eight, and so many elements
                       of out, or of parts, from any multiple of eight on lie one after the other, at a multiple of 16 bytes */
    uint32_t of_weight;    /* the gradient of the weight: terms are positions */
    uint32_t right_across; /* the plain factor has stride 1 along its columns, as it has in the gradient of the weight, else along k */
} bops_conv_wgmma_choice;

/* Tensor cores of compute capability 9.0, through code for sm_90a; f16, bf16, and f32 that is rounded to tf32, which has neither of_weight nor
 * right_across. One group, and the first spatial axis of all has extent 1.
 * product.k and product.summed[0] are the channels of the gathered factor and the kernel elements, in the order of terms; of the gradient of the weight
 * the positions and 1. product.right has the strides of the plain factor along k, as row, and along the kernel elements, as summed[0].
 * Channels are the fastest index of the gathered factor and of the rows or terms; those of the gradient of the weight are a multiple of 64. Strides but
 * those of 1 are multiples of 16 bytes and below 2^40, and addresses multiples of 16 bytes. Coordinates of the first position, and of the last less
 * the extent, are in [-128, 127], the last kernel element is at most 255 from the first, and positions are at most 8 apart.
 * parts: dense [split][z][slow][fast], as of the products of gemm. */
bops_status bops_conv_wgmma_prepare(const bops_conv_params *params, const bops_conv_wgmma_choice *choice, bops_dtype dtype);
bops_status bops_conv_wgmma_launch(const bops_conv_params *params, const bops_conv_wgmma_choice *choice, bops_dtype dtype,
                                   const bops_gemm_operands *operands, bops_stream stream);

/* to[outer][column][row] = from[outer][row][column]; a row of `to` takes `pitch` elements, of which those from `rows` on are undefined. */
typedef struct {
    uint64_t outer, rows, columns;     /* not 0; fewer than 2^31 tiles of 64 by 64 */
    uint64_t outer_stride, row_stride; /* elements of from; columns lie one after the other */
    uint64_t pitch;                    /* rows rounded up to 16 bytes */
    uint32_t element_bytes;            /* 2 or 4 */
    uint32_t vector; /* 1, 2, 4 or 8, of at most 16 bytes: the columns are a multiple of it, and so many from any multiple of it on are aligned to
                        their bytes */
} bops_conv_turn_params;

bops_status bops_conv_turn_prepare(const bops_conv_turn_params *params);
bops_status bops_conv_turn_launch(const bops_conv_turn_params *params, const void *from, void *to, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
