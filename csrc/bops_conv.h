/* The C ABI of the CUDA kernels of convolutions, beside that of all others in bops.h, whose rules hold here. */
#ifndef BOPS_CONV_H
#define BOPS_CONV_H
#include "bops_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A convolution or its gradient as a product of matrices, out[z, m, n] = sum over t of gathered[z, m, t] * plain[z, t, n], whose left factor lies in
 * memory nowhere: its elements are those of a tensor at coordinates that m and t add up to, and 0 beside it. */

/* Digits of an index: one of a sample or a channel, the lead, and one of each spatial axis. */
enum { BOPS_CONV_DIGITS = 4, BOPS_CONV_AXES = 3 };

typedef struct {
    uint64_t extents[BOPS_CONV_DIGITS]; /* the last varies fastest */
    int64_t gathered[BOPS_CONV_DIGITS]; /* elements by which the gathered factor moves with each; with is_divided 0 but for the lead */
    int64_t coordinate[BOPS_CONV_AXES]; /* by which the coordinate along each axis moves, before it is divided */
    uint32_t lead_last;                 /* 1: the lead is the last digit, else the first; the axes keep their order */
} bops_conv_index;

typedef struct {
    int64_t extent;  /* the element is 0 where the coordinate is negative or not below it */
    int64_t stride;  /* elements; with is_divided alone */
    int64_t divisor; /* with is_divided alone: the element is 0 where the coordinate is no multiple of it */
} bops_conv_axis;

typedef struct {
    /* m, n, k, out, other, bias and what is done with sums. batch[0]: groups; then the first digits of rows, where rows of out do not lie one
     * after the other. k: terms. left and right are not read, summed_rank is 0. */
    bops_gemm_params product;
    bops_conv_index rows; /* (z without the group) * m + row */
    bops_conv_index terms;
    bops_conv_axis axes[BOPS_CONV_AXES];
    int64_t first_coordinate[BOPS_CONV_AXES]; /* that of row 0 and term 0, before it is divided */
    int64_t first_element;                    /* where that lies in the gathered factor; with is_divided 0 */
    uint64_t gathered_group;
    uint64_t plain_group, plain_column, plain_term[BOPS_CONV_DIGITS];
    uint64_t bias_group;
    bops_dtype gathered_dtype, plain_dtype; /* that of the call or BOPS_F32 */
    uint32_t is_divided;                    /* coordinates are divided: the gradient of the data of a convolution with strides */
} bops_conv_params;

/* What Rust chose. tile, splits, across and quads of `product` as for gemm; its others where a form says so. */
typedef struct {
    bops_gemm_choice product;
    uint32_t is_long; /* simt: coordinates and extents of digits need 64 bits. Else the extents are below 2^31, and the parts of a coordinate that
                         come of the row, with the first coordinate, and of the term are each within 2^30. tile 32 */
} bops_conv_choice;

/* Operands: left is the gathered factor, right the plain one. More than one split: gemm_finish follows, with params.product; not with a bias of more
 * than one group. */

/* Registers and shared memory; all dtypes. left_across, right_across: neighbouring threads take neighbouring rows, columns, rather than terms. f32 with
 * is_long 0: the choice is as that of mma, and factors are of f32. */
bops_status bops_conv_simt_prepare(const bops_conv_params *params, const bops_conv_choice *choice, bops_dtype dtype);
bops_status bops_conv_simt_launch(const bops_conv_params *params, const bops_conv_choice *choice, bops_dtype dtype,
                                  const bops_gemm_operands *operands, bops_stream stream);

/* Tensor cores of compute capability 8.0; f16, bf16, and f32 whose factors are rounded to tf32. Factors have the dtype of the call.
 * left_bytes, right_bytes: of one access, 16 or those of an element. 16: so many bytes of elements, from any multiple of their number on, lie one after
 * the other along the terms, or with left_across, right_across along rows and columns, and start at a multiple of 16 bytes; those of the gathered
 * factor have one coordinate along each axis. left_across needs right_across and left_bytes 16. */
bops_status bops_conv_mma_prepare(const bops_conv_params *params, const bops_conv_choice *choice, bops_dtype dtype);
bops_status bops_conv_mma_launch(const bops_conv_params *params, const bops_conv_choice *choice, bops_dtype dtype, const bops_gemm_operands *operands,
                                 bops_stream stream);

/* Depthwise: every channel of out by itself, out[n, c, o] = sum over r of gathered[n, c / repeats, o + r + first] * weight[c, r]; the element is 0
 * beside the extent. The gradient of the weight is dweight[c, r] = sum over n and o of gathered[n, c / repeats, o + r + first] * plain[n, c, o]. */
enum { BOPS_CONV_DEPTHWISE_AXES = 2, BOPS_CONV_DEPTHWISE_THREADS = 128 };

typedef struct {
    uint64_t sample, channel, axes[BOPS_CONV_DEPTHWISE_AXES]; /* elements */
} bops_conv_strides;

typedef struct {
    uint32_t samples, channels;                     /* channels of out */
    uint32_t out_extents[BOPS_CONV_DEPTHWISE_AXES]; /* of the gradient of the weight: those of plain */
    uint32_t gathered_extents[BOPS_CONV_DEPTHWISE_AXES];
    int32_t first[BOPS_CONV_DEPTHWISE_AXES];
    uint32_t repeats;
    bops_conv_strides gathered, out, other; /* out: of the gradient of the weight plain; other: the pre-activation */
    uint64_t weight_channel;                /* elements */
    int64_t weight_first, weight_axes[BOPS_CONV_DEPTHWISE_AXES];
    uint64_t bias_stride;
    double beta;
    bops_activation activation;
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32 */
} bops_conv_depthwise_params;

/* What Rust chose. A block has threads of `lanes` neighbouring channels or vectors of them, side by side, which take strips of them in turn. */
typedef struct {
    uint32_t kernel;   /* both its extents: 3, 5, and but for its own gradient 7 */
    uint32_t channels; /* of a thread: 1, or 4, which lie one after the other, are aligned to their bytes and gathered from as many */
    uint32_t lanes;    /* a power of two up to 32 */
    uint32_t rows,
        columns; /* of out that a thread has: any rows, of all samples one after the other, and 8 columns of one channel of 16 bits with kernels up to 5, 2 of four channels with
                               greater ones, else 4 */
    uint32_t gathered_run; /* channels 1: 4 or 8: so many columns from any multiple of them on lie one after the other and are aligned to their bytes
                               or to 16, and the window's margin is the same on both sides. Else 1 */
    uint32_t out_run;      /* the same of out and other, of the gradient of the weight of plain */
    uint32_t light;        /* 1: there is neither beta nor other, the activation is none or a ReLU, out is of the dtype of the call, and with
                               channels 1 out_run is 4 or 8. Not of the gradient of the weight */
} bops_conv_depthwise_choice;

typedef struct {
    const void *gathered;
    const void *plain; /* the weight; of its gradient, that of y */
    const void *bias;  /* may be null */
    void *out;         /* of the gradient of the weight: f32, a row of channels and r for each block of a channel */
    void *other;       /* may be null */
} bops_conv_depthwise_operands;

/* Forward and the gradient of the data; f32, f16 and bf16. */
bops_status bops_conv_depthwise_prepare(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype);
bops_status bops_conv_depthwise_launch(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype,
                                       const bops_conv_depthwise_operands *operands, bops_stream stream);

/* Sums of the gradient of the weight, which gemm_dbias adds up. */
bops_status bops_conv_depthwise_weight_prepare(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype);
bops_status bops_conv_depthwise_weight_launch(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype,
                                              const bops_conv_depthwise_operands *operands, bops_stream stream);

/* Sums of dy along runs: part[p][c] = sum over the p-th BOPS_CONV_SUMS_LOADS * threads * vector elements of channel c, taken run after run. Where that
 * is all of a channel, dbias[c] = sum + beta * dbias[c] instead. */
typedef struct {
    uint64_t channels;
    uint64_t runs, run;                  /* of each channel, and elements of a run, one after the other */
    uint64_t run_stride, channel_stride; /* elements */
    uint32_t vector;        /* elements of one access of at most 16 bytes, a power of two, which every run is a whole number of and starts at */
    bops_dtype dbias_dtype; /* any */
    uint64_t dbias_stride;
    double beta;
} bops_conv_backward_bias_params;

enum { BOPS_CONV_SUMS_THREADS = 256, BOPS_CONV_SUMS_LOADS = 16 };

/* dtype: that of dy. parts: of the accumulator type, or dbias. */
bops_status bops_conv_backward_bias_prepare(const bops_conv_backward_bias_params *params, bops_dtype dtype);
bops_status bops_conv_backward_bias_launch(const bops_conv_backward_bias_params *params, bops_dtype dtype, const void *dy, void *parts,
                                           bops_stream stream);

/* Sums of dy down columns of channels: part[p][c] = sum over the rows that the p-th of `parts` takes in turn. */
typedef struct {
    uint64_t channels, rows, row_stride; /* a channel lies beside the next; both a whole number of 16 bytes, which dy starts at a multiple of */
    uint32_t lanes;                      /* threads side by side, 16 bytes of channels each: a power of two up to 32 */
    uint32_t parts;
} bops_conv_column_sums_params;

/* As for bops_conv_backward_bias. */
bops_status bops_conv_column_sums_prepare(const bops_conv_column_sums_params *params, bops_dtype dtype);
bops_status bops_conv_column_sums_launch(const bops_conv_column_sums_params *params, bops_dtype dtype, const void *dy, void *parts,
                                         bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
