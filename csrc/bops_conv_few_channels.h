/* The C ABI of convolutions of few input channels and of the gradients of their weights, beside that of other convolutions in bops_conv.h. */
#ifndef BOPS_CONV_FEW_CHANNELS_H
#define BOPS_CONV_FEW_CHANNELS_H
#include "bops_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[n, k, o] = sum over c and r of x[n, c, stride * o + r + first] * weight[k, c, r] of one group, without dilation; the element of x is 0 beside the
 * extent. The gradient of the weight is dweight[k, c, r] = sum over n and o of x[n, c, stride * o + r + first] * dy[n, k, o], and that of the data
 * dx[n, c, i] = sum over k, r and o with stride * o + r + first = i of dy[n, k, o] * weight[k, c, r]. */
enum {
    BOPS_CONV_FEW_CHANNELS_MOST = 8,        /* channels of x */
    BOPS_CONV_FEW_CHANNELS_FILTERS = 64,    /* of a block */
    BOPS_CONV_FEW_CHANNELS_POSITIONS = 128, /* of a tile, at most */
    BOPS_CONV_FEW_CHANNELS_GROUP = 16,      /* neighbouring positions that are multiplied together */
    BOPS_CONV_FEW_CHANNELS_CHUNKS = 28,     /* chunks of a block of the gradient of the weight, at most */
    BOPS_CONV_FEW_CHANNELS_COLUMNS = 64     /* columns of the product of the gradient of the data, at most */
};

typedef struct {
    uint32_t samples, filters, channels;
    uint32_t y_extents[2], x_extents[2], kernel[2], stride[2];
    int32_t first[2];
    bops_conv_strides x, y, other;                          /* x and y: or their gradients; other: the pre-activation */
    uint64_t weight_filter, weight_channel, weight_axes[2]; /* elements; of the gradient of the weight those of a part */
    uint64_t bias_stride;
    double beta; /* of the gradient of the data */
    bops_activation activation;
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32; out is y, or the gradient of the data */
} bops_conv_few_channels_params;

/* What Rust chose. A pixel of x takes `padded` elements of shared memory, of which those beyond its channels are 0. Positions side by side begin a whole
 * number of chunks of 16 bytes apart, and the pixels under a row of the kernel are whole chunks. */
typedef struct {
    uint32_t rows, columns; /* of a tile of y; columns: a multiple of BOPS_CONV_FEW_CHANNELS_GROUP */
    uint32_t padded;        /* 4 or 8 */
    uint32_t parts;         /* blocks that share the tiles */
    uint32_t across;        /* 1: neighbouring columns of y lie closer to each other than neighbouring filters */
    uint32_t quads; /* 1: y and other have stride 1 along columns, with `across`, or filters, and four elements from any multiple of four on lie at a
                       multiple of 16 bytes, those of 16 bits of 8 */
    uint32_t
        light; /* 1: quads, y has the dtype of the call, there is no other, and the activation is none or a ReLU. Without `across` the filters are
                       a multiple of the elements in 16 bytes, and as many from any multiple of them on lie at a multiple of 16 bytes; with it the
                       columns of y are a multiple of four */
    uint32_t
        eights; /* of the gradient of the weight, 1: dy has stride 1 along columns, with `across`, or filters, and eight elements from any multiple
                        of eight on lie at a multiple of 16 bytes */
} bops_conv_few_channels_choice;

/* Of the gradient of the data. A cell is as many rows and columns of dx as the strides say, under which the same positions of dy lie: along an axis `taps`
 * from `lowest` beside the cell's own place on. */
typedef struct {
    uint32_t cells;          /* of a tile, side by side */
    uint32_t positions;      /* of dy that these see, from a multiple of eight on with `across`: a multiple of BOPS_CONV_FEW_CHANNELS_GROUP */
    uint32_t parts;          /* blocks that share the tiles */
    uint32_t across, eights; /* as above */
    int32_t lowest[2];
    uint32_t taps[2];
} bops_conv_few_channels_data_choice;

/* Absent operands are null. */
typedef struct {
    void *x; /* or its gradient */
    const void *weight, *bias;
    void *y; /* or its gradient */
    void *other;
} bops_conv_few_channels_operands;

/* Tensor cores of compute capability 8.0; f16, bf16, and f32 whose factors are rounded to tf32. */
BOPS_FORM(bops_conv_few_channels, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands)

/* Sums of the gradient of the weight, which gemm_dbias adds up: `parts` of them in f32, one after the other in the workspace, each of all filters. f16
 * and bf16. */
BOPS_FORM(bops_conv_few_channels_weight, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands)

/* The gradient of the data. Each row of a cell has at most BOPS_CONV_FEW_CHANNELS_COLUMNS / stride[0] products of taps[1], stride[1] and channels, rounded
 * up to eight. f16 and bf16. */
BOPS_FORM(bops_conv_few_channels_data, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_data_choice, bops_conv_few_channels_operands)

#ifdef __cplusplus
}
#endif
#endif
