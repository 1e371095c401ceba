/* The C ABI of convolutions of few input channels and of the gradients of their weights, beside that of other convolutions in bops_conv.h. */
#ifndef BOPS_CONV_FEW_CHANNELS_H
#define BOPS_CONV_FEW_CHANNELS_H
#include "bops_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[n, k, o] = sum over c and r of gathered[n, c, stride * o + r + first] * weight[k, c, r] of one group, without dilation; the element is 0 beside
 * the extent. The gradient of the weight is dweight[k, c, r] = sum over n and o of gathered[n, c, stride * o + r + first] * plain[n, k, o]. */
enum {
    BOPS_CONV_FEW_CHANNELS_MOST = 8,        /* channels of gathered */
    BOPS_CONV_FEW_CHANNELS_FILTERS = 64,    /* of a block */
    BOPS_CONV_FEW_CHANNELS_POSITIONS = 128, /* of a tile, at most */
    BOPS_CONV_FEW_CHANNELS_GROUP = 16,      /* neighbouring positions that are multiplied together */
    BOPS_CONV_FEW_CHANNELS_CHUNKS = 28      /* chunks of a block of the gradient of the weight, at most */
};

typedef struct {
    uint32_t samples, filters, channels;
    uint32_t out_extents[2], gathered_extents[2], kernel[2], stride[2]; /* out: of the gradient of the weight plain */
    int32_t first[2];
    bops_conv_strides gathered, out, other;                 /* other: the pre-activation */
    uint64_t weight_filter, weight_channel, weight_axes[2]; /* elements; of the gradient of the weight those of a part */
    uint64_t bias_stride;
    bops_activation activation;
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32 */
} bops_conv_few_channels_params;

/* What Rust chose. A pixel of gathered takes `padded` elements of shared memory, of which those beyond its channels are 0. Positions side by side begin a
 * whole number of chunks of 16 bytes apart, and the pixels under a row of the kernel are whole chunks. */
typedef struct {
    uint32_t rows, columns; /* of a tile of out; columns: a multiple of BOPS_CONV_FEW_CHANNELS_GROUP */
    uint32_t padded;        /* 4 or 8 */
    uint32_t parts;         /* blocks that share the tiles */
    uint32_t across;        /* 1: neighbouring columns of out lie closer to each other than neighbouring filters */
    uint32_t
        quads; /* 1: out and other have stride 1 along columns, with `across`, or filters, and four elements from any multiple of four on lie at a
                       multiple of 16 bytes, those of 16 bits of 8 */
    uint32_t
        light; /* 1: quads, out has the dtype of the call, there is no other, and the activation is none or a ReLU. Without `across` the filters are
                       a multiple of the elements in 16 bytes, and as many from any multiple of them on lie at a multiple of 16 bytes; with it the
                       columns of out are a multiple of four */
    uint32_t eights; /* of the gradient of the weight, 1: plain has stride 1 along columns, with `across`, or filters, and eight elements from any
                        multiple of eight on lie at a multiple of 16 bytes */
} bops_conv_few_channels_choice;

typedef struct {
    const void *gathered;
    const void *plain; /* the weight; of its gradient, that of y */
    const void *bias;  /* may be null */
    void *out;         /* of the gradient of the weight null */
    void *other;       /* may be null */
} bops_conv_few_channels_operands;

/* Tensor cores of compute capability 8.0; f16, bf16, and f32 whose factors are rounded to tf32. */
BOPS_FORM(bops_conv_few_channels, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands)

/* Sums of the gradient of the weight, which gemm_dbias adds up: `parts` of them in f32, one after the other in the workspace, each of all filters. f16
 * and bf16. */
BOPS_FORM(bops_conv_few_channels_weight, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands)

#ifdef __cplusplus
}
#endif
#endif
