/* The C ABI of convolutions of few input channels and of the gradients of their weights, beside that of other convolutions in bops_conv.h. */
#ifndef BOPS_CONV_FEW_CHANNELS_H
#define BOPS_CONV_FEW_CHANNELS_H
#include "bops_conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[n, k, o] = sum over c and r of x[n, c, stride * o + r + first] * weight[k, c, r], for one group without dilation; elements outside x are 0. The
 * gradient of the weight is dweight[k, c, r] = sum over n and o of x[n, c, stride * o + r + first] * dy[n, k, o], and that of the data
 * dx[n, c, i] = sum over k, r and o with stride * o + r + first = i of dy[n, k, o] * weight[k, c, r].
 * A chunk is 16 bytes of shared memory, which one ldmatrix address selects.
 * POSITIONS, FILTERS, CHUNKS and COLUMNS set how many sums a thread of the four warps of a block has: 64 forward and in the gradient of the data, 112 in
 * the gradient of the weight. With larger numbers each element in shared memory serves more products, but sums take more registers; with more filters of
 * a block, x is loaded less often. CHUNKS are seven for each warp: windows of 7 x 7 pixels of 16 bits, padded to 4 channels, have 28. */
enum {
    BOPS_CONV_FEW_CHANNELS_MOST = 8,        /* channels of x, at most: 16-bit elements of a chunk */
    BOPS_CONV_FEW_CHANNELS_FILTERS = 64,    /* filters of a block */
    BOPS_CONV_FEW_CHANNELS_POSITIONS = 128, /* positions of a tile, at most: two groups for each warp */
    BOPS_CONV_FEW_CHANNELS_GROUP = 16,      /* neighbouring positions that one instruction multiplies */
    BOPS_CONV_FEW_CHANNELS_CHUNKS = 28,     /* chunks of the windows that a block of the gradient of the weight has sums for, at most */
    BOPS_CONV_FEW_CHANNELS_COLUMNS = 64     /* columns of the product in the gradient of the data, at most */
};

typedef struct {
    uint32_t samples, filters, channels;
    uint32_t y_extents[2], x_extents[2], kernel[2], stride[2];
    int32_t first[2];
    bops_conv_strides x, y, other;                          /* x, y: or their gradients; other: the pre-activation */
    uint64_t weight_filter, weight_channel, weight_axes[2]; /* strides in elements; for the gradient of the weight those of a part */
    uint64_t bias_stride;
    double beta; /* of the gradient of the data */
    bops_activation activation;
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32; out is y or the gradient of the data */
} bops_conv_few_channels_params;

/* What Rust chose. A pixel of x takes `padded` elements of shared memory, of which those beyond its channels are 0. The distance between neighbouring
 * positions is a whole number of chunks. */
typedef struct {
    uint32_t rows, columns; /* of a tile of y; columns: a multiple of BOPS_CONV_FEW_CHANNELS_GROUP */
    uint32_t padded;        /* 4 or 8 */
    uint32_t parts;         /* blocks that share the tiles */
    uint32_t across;        /* 1: neighbouring columns of y are closer to each other in memory than neighbouring filters */
    uint32_t quads; /* 1: y and other have stride 1 along filters, or along columns with `across`, and four elements from any multiple of four on
                               start at a multiple of their size, or of 16 bytes if that is less */
    uint32_t light; /* 1: quads, y has the dtype of the call, no other, no activation but a ReLU. With `across` the columns of y are a multiple of
                               four; without it the filters are a multiple of the elements in 16 bytes, and that many from any multiple of it on start at a
                               multiple of 16 bytes */
    uint32_t
        eights; /* gradient of the weight. 1: dy has stride 1 along filters, or along columns with `across`, and eight elements from any multiple of
                        eight on start at a multiple of 16 bytes */
} bops_conv_few_channels_choice;

/* For the gradient of the data. A cell is stride[0] rows by stride[1] columns of dx: all its elements see the same positions of dy, which along axis a are
 * taps[a] positions from the cell's own index + lowest[a] on. */
typedef struct {
    uint32_t cells; /* neighbouring cells of a tile */
    uint32_t
        positions;  /* positions of a row of dy that these see, a multiple of BOPS_CONV_FEW_CHANNELS_GROUP. With `across` they start at a multiple of
                           eight */
    uint32_t parts; /* blocks that share the tiles */
    uint32_t across, eights; /* as in bops_conv_few_channels_choice */
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

/* Forward. Tensor cores of compute capability 8.0; f16, bf16, and f32, which is rounded to tf32. */
BOPS_FORM(bops_conv_few_channels, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands)

/* Partial sums of the gradient of the weight, which gemm_dbias adds up: f32, dense [parts][gradient] in the workspace. f16 and bf16. */
BOPS_FORM(bops_conv_few_channels_weight, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands)

/* The gradient of the data. The product has a column for each row of a cell, tap along the columns of dy, column of the cell and channel, where those of
 * one row of a cell are rounded up to eight: at most BOPS_CONV_FEW_CHANNELS_COLUMNS in all. f16 and bf16. */
BOPS_FORM(bops_conv_few_channels_data, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_data_choice, bops_conv_few_channels_operands)

#ifdef __cplusplus
}
#endif
#endif
