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
    uint32_t splits;  /* units of work that share the sums of a tile. More than 1: they write their parts to `parts`, and gemm_finish follows */
    uint32_t blocks;  /* as many as run at once */
    uint32_t across;  /* as in bops_gemm_choice */
    uint32_t quads;
    uint32_t
        light; /* 1: no beta and no other, no activation but a ReLU, the fast extent is a multiple of eight, and eight elements of out, or of parts,
                       from any multiple of eight on are contiguous and start at a multiple of 16 bytes */
    uint32_t of_weight;    /* 1: the gradient of the weight, whose terms are positions */
    uint32_t right_across; /* 1: the plain factor has stride 1 along its columns, as always in the gradient of the weight; 0: along k */
} bops_conv_wgmma_choice;

/* Tensor cores of compute capability 9.0, through code for sm_90a; f16, bf16, and f32, which is rounded to tf32 and has neither of_weight nor
 * right_across. There is one group, and the first spatial axis of every operand has extent 1.
 * product.k and product.summed[0] are the channels of the gathered factor and the kernel elements, in the order of the terms; in the gradient of the
 * weight they are the positions and 1. product.right has the strides of the plain factor along k (as row) and along the kernel elements (as summed[0]).
 * Channels are the fastest index of the gathered factor, and of the rows or terms; in the gradient of the weight they are a multiple of 64. Strides other
 * than 1 are multiples of 16 bytes below 2^40 bytes, and addresses are multiples of 16 bytes. Coordinates of the first position are in [-128, 127], as is
 * the coordinate of the last position less the extent; the last kernel element is at most 255 from the first, and positions are at most 8 apart.
 * parts: dense [split][z][slow][fast], as for gemm. */
BOPS_FORM(bops_conv_wgmma, bops_dtype, bops_conv_params, bops_conv_wgmma_choice, bops_gemm_operands)

/* to[outer][column][row] = from[outer][row][column]. A row of `to` has `pitch` elements; those from `rows` on are undefined. */
typedef struct {
    uint64_t outer, rows, columns;     /* not 0; fewer than 2^31 tiles of 64 by 64 */
    uint64_t outer_stride, row_stride; /* elements of from, whose columns are contiguous */
    uint64_t pitch;                    /* rows rounded up to 16 bytes */
    uint32_t element_bytes;            /* 2 or 4 */
    uint32_t
        vector; /* elements of one load, at most 16 bytes: 1, 2, 4 or 8. The columns are a multiple of it, and that many elements from any multiple
                        of it on are aligned to their size */
} bops_conv_turn_params;

bops_status bops_conv_turn_prepare(const bops_conv_turn_params *params);
bops_status bops_conv_turn_launch(const bops_conv_turn_params *params, const void *from, void *to, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
