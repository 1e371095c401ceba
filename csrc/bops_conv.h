/* The C ABI of the CUDA kernels of convolutions, beside that of all others in bops.h, whose rules hold here. */
#ifndef BOPS_CONV_H
#define BOPS_CONV_H
#include "bops_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A convolution or its gradient as a product of matrices, out[z, m, n] = sum over terms t of gathered[z, m, t] * plain[z, t, n]. The left factor is
 * not in memory as a matrix: m and t together give coordinates in a tensor, and the factor's element is the tensor's, or 0 if a coordinate is outside
 * the tensor. */

enum {
    BOPS_CONV_DIGITS = 4, /* digits of an index: the lead, which is a sample or a channel, and one for each spatial axis */
    BOPS_CONV_AXES = 3    /* spatial axes, at most */
};

/* What an index m or t adds to the place of an element. */
typedef struct {
    uint64_t extents[BOPS_CONV_DIGITS]; /* of the digits; the last one varies fastest */
    int64_t gathered[BOPS_CONV_DIGITS]; /* strides of the gathered factor in elements; if is_divided, 0 except for the lead */
    int64_t coordinate[BOPS_CONV_AXES]; /* steps of the coordinate along each axis, before it is divided */
    uint32_t lead_last;                 /* 1: the lead is the last digit; 0: the first. The axes keep their order */
} bops_conv_index;

/* An axis of the gathered tensor. */
typedef struct {
    int64_t extent;  /* coordinates from 0 to extent - 1 are inside the tensor */
    int64_t stride;  /* elements; used only if is_divided */
    int64_t divisor; /* used only if is_divided: a coordinate that is no multiple of it counts as outside the tensor */
} bops_conv_axis;

typedef struct {
    /* m, n, k (the number of terms), out, other, bias and the epilogue. batch[0] is the number of groups; the further batch extents are the first
     * digits of rows that have a stride of their own in out. left and right are unused, summed_rank is 0. */
    bops_gemm_params product;
    bops_conv_index rows; /* index: (z without the group) * m + row */
    bops_conv_index terms;
    bops_conv_axis axes[BOPS_CONV_AXES];
    int64_t first_coordinate[BOPS_CONV_AXES];                         /* coordinates of row 0 and term 0, before they are divided */
    int64_t first_element;                                            /* offset of row 0 and term 0 in the gathered factor; 0 if is_divided */
    uint64_t gathered_group;                                          /* stride of a group in the gathered factor */
    uint64_t plain_group, plain_column, plain_term[BOPS_CONV_DIGITS]; /* strides in the plain factor */
    uint64_t bias_group;                                              /* stride of a group in the bias */
    bops_dtype gathered_dtype, plain_dtype;                           /* that of the call or BOPS_F32 */
    uint32_t is_divided; /* 1: coordinates are divided, as in the gradient of the data of a convolution with strides */
} bops_conv_params;

/* What Rust chose. tile, splits, across and quads of `product` mean what they mean for gemm; each form says what its other fields mean. */
typedef struct {
    bops_gemm_choice product;
    uint32_t is_long; /* simt. 1: coordinates and digits are computed in 64 bits, in tiles of 32. 0: extents are below 2^31, and both the part of a
                         coordinate that comes from the row with first_coordinate and the part that comes from the term are within +-2^30 */
} bops_conv_choice;

/* Operands of all forms: left is the gathered factor, right the plain one. If there is more than one split, gemm_finish follows with params.product; then
 * there is no bias unless there is one group. */

/* Registers and shared memory; all dtypes. left_across and right_across: 1 if neighbouring threads load neighbouring rows (columns of the plain factor), 0
 * if neighbouring terms. For f32 with is_long 0 the choice is as for conv_mma, and both factors are f32. */
BOPS_FORM(bops_conv_simt, bops_dtype, bops_conv_params, bops_conv_choice, bops_gemm_operands)

/* Tensor cores of compute capability 8.0; f16, bf16, and f32, which is rounded to tf32. Both factors have the dtype of the call.
 * left_bytes, right_bytes: bytes of one access, which are 16 or those of one element. 16 means: 16 bytes of elements, from any multiple of that many
 * on, are contiguous along the terms, or along rows and columns with left_across and right_across, and start at a multiple of 16 bytes; in the gathered
 * factor such elements have equal coordinates along every axis. left_across needs right_across and left_bytes 16. */
BOPS_FORM(bops_conv_mma, bops_dtype, bops_conv_params, bops_conv_choice, bops_gemm_operands)

/* Depthwise convolutions: out[n, c, o] = sum over r of gathered[n, c / repeats, o + r + first] * weight[c, r]; elements outside the tensor are 0. The
 * gradient of the weight is dweight[c, r] = sum over n and o of gathered[n, c / repeats, o + r + first] * plain[n, c, o]. */
enum {
    BOPS_CONV_DEPTHWISE_AXES = 2,     /* spatial axes */
    BOPS_CONV_DEPTHWISE_THREADS = 128 /* threads of a block */
};

typedef struct {
    uint64_t sample, channel, axes[BOPS_CONV_DEPTHWISE_AXES]; /* elements */
} bops_conv_strides;

typedef struct {
    uint32_t samples, channels;                     /* channels: of out */
    uint32_t out_extents[BOPS_CONV_DEPTHWISE_AXES]; /* for the gradient of the weight: of plain, in place of out */
    uint32_t gathered_extents[BOPS_CONV_DEPTHWISE_AXES];
    int32_t first[BOPS_CONV_DEPTHWISE_AXES];
    uint32_t repeats;                       /* channels of out for each channel of gathered */
    bops_conv_strides gathered, out, other; /* out: for the gradient of the weight those of plain; other: those of the pre-activation */
    uint64_t weight_channel;                /* elements */
    int64_t weight_first, weight_axes[BOPS_CONV_DEPTHWISE_AXES];
    uint64_t bias_stride;
    double beta;
    bops_activation activation;
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32 */
} bops_conv_depthwise_params;

/* What Rust chose. A strip is some columns and rows of out, of one channel or of four neighbouring ones. In a block `lanes` neighbouring threads have
 * neighbouring channels, or fours of channels, of one strip; the block's threads / lanes such teams have one strip each. */
typedef struct {
    uint32_t kernel;       /* rows, and columns, of the kernel: 3, 5 or 7; for the gradient of the weight 3 or, with 1 channel, 5 */
    uint32_t channels;     /* of a thread: 1, or 4 that are contiguous, aligned to their size, and gathered from four channels */
    uint32_t lanes;        /* a power of two up to 32 */
    uint32_t rows;         /* of a strip, counted through the samples one after the other; any number */
    uint32_t columns;      /* of a strip: 8 of one channel of 16 bits and kernels up to 5; 2 of four channels and kernels of 7; else 4 */
    uint32_t gathered_run; /* with channels 1, 4 or 8: that many columns of gathered, from any multiple of it on, are contiguous and aligned to their
                              size or to 16 bytes, whichever is less, and the window reaches as far to the left as to the right. Else 1 */
    uint32_t out_run; /* what gathered_run is, for out and other, or for plain in the gradient of the weight; without the condition on the window */
    uint32_t
        light; /* 1: no beta and no other, no activation but a ReLU, out has the dtype of the call, and with channels 1 out_run is 4 or 8. Not used
                         by the gradient of the weight */
} bops_conv_depthwise_choice;

typedef struct {
    const void *gathered;
    const void *plain; /* the weight; for its gradient dy */
    const void *bias;  /* may be null */
    void *out;         /* for the gradient of the weight: f32 sums, dense [group of strips][channel][r] */
    void *other;       /* may be null */
} bops_conv_depthwise_operands;

/* Forward and the gradient of the data; f32, f16 and bf16. */
BOPS_FORM(bops_conv_depthwise, bops_dtype, bops_conv_depthwise_params, bops_conv_depthwise_choice, bops_conv_depthwise_operands)

/* Partial sums of the gradient of the weight, which gemm_dbias adds up; f32, f16 and bf16. */
BOPS_FORM(bops_conv_depthwise_weight, bops_dtype, bops_conv_depthwise_params, bops_conv_depthwise_choice, bops_conv_depthwise_operands)

/* Sums of dy for each channel, along runs of contiguous elements: parts[p][c] is the sum over part p of channel c, which is
 * BOPS_CONV_SUMS_LOADS * BOPS_CONV_SUMS_THREADS * vector elements, taken run after run. If one part is the whole channel,
 * dbias[c] = sum + beta * dbias[c] is written instead. */
typedef struct {
    uint64_t channels;
    uint64_t runs, run;                  /* runs of a channel, and contiguous elements of a run */
    uint64_t run_stride, channel_stride; /* elements */
    uint32_t vector;        /* elements of one access of at most 16 bytes, a power of two: every run is a multiple of it and aligned to its size */
    bops_dtype dbias_dtype; /* any */
    uint64_t dbias_stride;
    double beta;
} bops_conv_backward_bias_params;

enum {
    BOPS_CONV_SUMS_THREADS = 256, /* threads of a block */
    BOPS_CONV_SUMS_LOADS = 16     /* accesses of a thread in a part of a channel: two batches of 8 that are in flight together */
};

/* dtype: of dy. parts: of the accumulator type; or dbias, if one part is the whole channel. */
bops_status bops_conv_backward_bias_prepare(const bops_conv_backward_bias_params *params, bops_dtype dtype);
bops_status bops_conv_backward_bias_launch(const bops_conv_backward_bias_params *params, bops_dtype dtype, const void *dy, void *parts,
                                           bops_stream stream);

/* Sums of dy for each channel, if channels are contiguous: parts[p][c] is the sum over the rows (positions) that part p of `parts` takes. */
typedef struct {
    uint64_t channels, rows, row_stride; /* channels and row_stride are multiples of 16 bytes, to which dy is aligned */
    uint32_t lanes;                      /* threads side by side, each with 16 bytes of channels: a power of two up to 32 */
    uint32_t parts;
} bops_conv_column_sums_params;

/* dtype: of dy. parts: of the accumulator type. */
bops_status bops_conv_column_sums_prepare(const bops_conv_column_sums_params *params, bops_dtype dtype);
bops_status bops_conv_column_sums_launch(const bops_conv_column_sums_params *params, bops_dtype dtype, const void *dy, void *parts,
                                         bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
