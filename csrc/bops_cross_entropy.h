/* The C ABI of the CUDA kernels of cross-entropy, a part of the family softmax; the rules of bops.h hold here. */
#ifndef BOPS_CROSS_ENTROPY_H
#define BOPS_CROSS_ENTROPY_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Threads of the largest team and of a block that adds up lines, extents, and lines that such a block adds up. */
enum { BOPS_CROSS_ENTROPY_THREADS = 512, BOPS_CROSS_ENTROPY_EXTENTS = 7, BOPS_CROSS_ENTROPY_TOTAL = 4096 };

typedef uint32_t bops_loss_reduction;
enum { BOPS_LOSS_MEAN = 0, BOPS_LOSS_SUM = 1, BOPS_LOSS_NONE = 2 };

/* A team of threads takes a line.
 * width: elements of an access, 1 or as many as 16 bytes have, of f64 1. With several, the elements of a line of x, and backward of dx, are neighbours, and
 * lines start at multiples of an access and are a whole number of them. */
typedef struct {
    uint32_t width;
    uint32_t threads; /* of a line: a power of two up to BOPS_CROSS_ENTROPY_THREADS */
    uint32_t lines;   /* of a block, which has a multiple of 32 threads */
    uint32_t grid;    /* blocks, enough for all lines */
    uint32_t totals;  /* blocks that add up all lines, unless there is no reduction: one, or as many as have BOPS_CROSS_ENTROPY_TOTAL lines each */
} bops_cross_entropy_choice;

/* Elements between those that the extents of the lines count. */
typedef struct {
    uint64_t strides[BOPS_CROSS_ENTROPY_EXTENTS];
} bops_cross_entropy_strides;

/* Lines of any strides. Operands in this order: x, targets, loss or dloss, logsumexp, dx. Forward with a reduction, the workspace has the loss of each line,
 * for the mean also what it adds to the divisor, and the sums of several blocks of either. */
typedef struct {
    uint64_t dim;                                 /* elements of a line */
    uint32_t lines, rank;                         /* `lines` may be 0 forward, with a reduction */
    uint32_t extents[BOPS_CROSS_ENTROPY_EXTENTS]; /* `rank` of them, outermost first */
    bops_dtype targets;                           /* I64, I32 or U32; of probabilities F32 or the type of x */
    bops_cross_entropy_strides strides[5];
    uint64_t steps[3]; /* between the elements of a line of x, of dx and of probabilities */
    int64_t ignored;   /* the target of lines that do not count, if `has_ignored` */
    uint32_t has_ignored;
    uint32_t has_logsumexp;
    bops_loss_reduction reduction;
    uint32_t has_missing;
    uint32_t has_options;       /* a weight, label smoothing, a z-loss or probabilities, for which there are kernels of their own */
    uint32_t has_probabilities; /* targets are the probabilities of all classes */
    uint32_t has_weight;
    uint32_t has_f32_weight; /* else the weight has the type of x */
    uint64_t weight_step;    /* between the elements of the weight */
    double keep, smooth;     /* what the target's loss counts, and that of each class beside it */
    double z;                /* what the square of logsumexp counts */
} bops_cross_entropy_params;

typedef struct {
    const void *x, *targets, *weight; /* weight: null unless `has_weight` */
    void *loss, *logsumexp, *divisor; /* logsumexp: null unless `has_logsumexp`; divisor: of the mean */
    uint32_t *missing;                /* null unless `has_missing` */
} bops_cross_entropy_operands;

/* dx may be x. */
typedef struct {
    const void *dloss, *x, *targets, *weight, *divisor, *logsumexp;
    void *dx;
} bops_cross_entropy_backward_operands;

/* Specialised for the type of x. */
BOPS_FORM(bops_cross_entropy, bops_dtype, bops_cross_entropy_params, bops_cross_entropy_choice, bops_cross_entropy_operands)
BOPS_FORM(bops_cross_entropy_backward, bops_dtype, bops_cross_entropy_params, bops_cross_entropy_choice, bops_cross_entropy_backward_operands)

#ifdef __cplusplus
}
#endif
#endif
