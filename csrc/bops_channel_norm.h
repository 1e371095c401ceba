/* The C ABI of the CUDA kernels of batch_norm, group_norm and instance_norm; the rules of bops.h hold here. */
#ifndef BOPS_CHANNEL_NORM_H
#define BOPS_CHANNEL_NORM_H
#include "bops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element strides: element (n, c, s) lies at n * batch + c * channel + s * spatial. In all tensors of one call spatial is 1 (contiguous)
 * or in all channel is 1 (channels last). */
typedef struct {
    uint64_t batch, channel, spatial;
} bops_channel_strides;

/* Variants below 16 serve contiguous layouts, those from 16 on channels last. A *group* shares statistics: a channel (groups = 0) or a
 * group of channels of one sample. It is `segments` runs of `spatial` elements, one a sample or one a channel, in which parameters are constant. */
typedef uint32_t bops_channel_norm_variant;
enum {
    /* Parts of segments: moments or sums, merge, apply; reads its inputs twice. Any alignment and dtype. With uses_running: apply alone, or backward
     * sums and merge, where the sums write dx. threads: of a part, a power of two up to 32 or 256; a block has 256. vectors: accesses of a
     * thread in a part, a multiple of 4. chunks: parts of a segment, of threads * vectors accesses. stages: forward, 1 where the output goes in
     * accesses of 16 bytes over gapless channels: spatial of 16 bytes at least, samples that start at multiples of 16 bytes and are a whole
     * number of them. overlaps: of the launches after the first. */
    BOPS_CHANNEL_NORM_SPLIT = 0,
    /* Every team, a block or `cluster` blocks, takes one group into shared memory, threads * vectors * 16 bytes a block, backward 32. vec_bytes 16;
     * threads up to 1024, backward 640 and 27 vectors, and is_merged: 1 where the teams of all samples make one cluster, which needs no workspace;
     * stages: 1 where silu and 16-bit elements have dpre kept, in 16 bytes more; stagger_cycles, multiprocessors and residents, backward without long
     * activations. Backward with groups = 0: relu with a residual or y, threads up to 448, 8 vectors. Forward, cached: 2 or 4 where registers hold so
     * many of a thread's vectors, with overlaps, no residual and no activation other than relu and silu. */
    BOPS_CHANNEL_NORM_SINGLE = 1,
    /* Teams walk over groups, fetched ahead by 32 further threads of a block through `stages` places in shared memory, up to 32, each of threads * 16
     * bytes, backward 32. In a step a block's threads take a part of one segment, or several whole segments; vectors: steps of a group in one block.
     * The first 12 steps of a group, backward 4, go to registers, but none with an activation other than relu and silu; there are more places than
     * other steps. No residual, y or dresidual. grid: cluster times teams, at most as many as are resident. vec_bytes 16, threads up to 480. Compute
     * capability 9.0. */
    BOPS_CHANNEL_NORM_HELD = 2,
    /* groups = 0, with a residual, y or dresidual no activation but relu: a block holds `vectors` channels, 1, 2, 4 or 8, of every sample in shared
     * memory. Their runs in a sample are gapless, start at multiples of 16 bytes and are a whole number of them. chunks: samples that the block's
     * threads take at once, one thread for every 16 bytes of a run; threads up to 512. stages: forward of 16-bit elements, without an activation but
     * relu, 1 where registers hold them, in up to 256 threads of 13 samples. */
    BOPS_CHANNEL_NORM_STRIPE = 3,
    /* As HELD, but groups stay in shared memory: `threads` threads of a block write one out, as many, or forward with silu half as many, add up the
     * next, and 64 further ones fetch and merge. A step has two vectors of a thread that writes, and a place is of threads * 32 bytes, backward 64;
     * there are more places, up to 32, than steps of a group. threads up to 416, forward with silu 512; backward groups = 0; no activation other than
     * relu and silu. Forward with a residual, where groups = 0 and the activation is at most relu: 32 threads and `chunks` of the places are for that,
     * beside more than the steps of a group; threads up to 384. Backward no residual, y or dresidual; tensors: where it is not 0, a cooperative launch
     * without activation but relu, a block a multiprocessor: `cluster` blocks, any number up to 160, are a team wherever they lie, 96 threads fetch and
     * merge, so many places are being filled at once, and threads are up to 384. */
    BOPS_CHANNEL_NORM_RELAY = 4,
    /* One cooperative launch, a block a multiprocessor: `cluster` blocks, any number, are a team wherever they lie. Forward as RELAY, with as many threads
     * that add up as write, up to 384, cluster up to 160, and tensors: places that are being filled at once. Groups that do not fit: cached: steps of a
     * group in one block that are read twice; chunks: places for each reading, the others are more than the other steps. Backward as HELD: of a group
     * 10 steps go to registers and threads are up to 352; with relu or silu 6 and 384. Other activations: not served. With a residual forward is as
     * RELAY; backward serves groups = 0 with relu and a residual or y, which tensors: 3 says: a place is of threads * 48 bytes, and the steps in registers
     * and threads are as without an activation. */
    BOPS_CHANNEL_NORM_COOPERATIVE = 5,
    /* A block has a group of one segment, with groups > 0: in registers, backward x of 16-bit elements in shared memory. vectors up to 8, backward 4,
     * and threads up to 512. vec_bytes 16; no activation other than relu and silu, no residual; backward dx is wanted. */
    BOPS_CHANNEL_NORM_SEGMENT = 6,
    /* Channels last. A block of `threads` threads, up to 512, takes the channels of `vectors` accesses, up to 64, in one of `chunks` parts of
     * the rows of a sample; a row is a position. is_merged: 1 where the rows of all samples lie at one stride and count as those of one sample
     * (groups 0). Moments or sums, merge, apply; reads its inputs twice. Any alignment and dtype; vec_bytes 16 or one element. With
     * uses_running: apply alone, or backward sums and merge, where the sums write dx. */
    BOPS_CHANNEL_NORM_LAST_SPLIT = 16,
    /* The same in one cooperative launch of at most one block a multiprocessor. Rows pass through shared memory, and the last of them stay there:
     * stages: batches of 4 rows of a thread, each of threads * 64 bytes, backward for every one of `tensors`: 2, or 3 where y or the
     * residual is read beside dy and x. vec_bytes 16, no f64, no uses_running. */
    BOPS_CHANNEL_NORM_LAST_COOPERATIVE = 17,
    /* Tiles of whole groups, of at most 256 channels and `threads`, that divide the channels. The chunks of a tile, and backward with several samples
     * also those of all samples, are the `cluster` blocks of a cluster; the latter needs no workspace. stages: rows of a thread, which are all of its
     * chunk. threads up to 512; vec_bytes 16, no f64, no uses_running, no num_batches, no running statistics of samples. Compute capability 9.0. */
    BOPS_CHANNEL_NORM_LAST_CLUSTER = 18,
    /* Forward of one sample, or of merged ones: as the cooperative, with a block for every tile and chunk and further rows in registers.
     * vectors: a power of two up to 32, of at most 128 channels, that divides the vectors of a row. threads 512; stages 6, before compute
     * capability 9.0 4.
     * Backward without activation, residual and y, of one sample, of merged ones, or with groups; dx is wanted: slabs one after another, which are
     * samples, if grid is a multiple of chunks and all tiles, else tiles of a sample; grid has a block for every tile and chunk of a slab. Tiles of
     * whole groups, from 128 bytes on, as above. threads 256; stages: batches of 2 rows of a thread, 13, before 9.0 9, and with several slabs at most
     * those of a chunk. */
    BOPS_CHANNEL_NORM_LAST_RESIDENT = 19,
    /* With groups: one launch with a block for every tile and chunk, whose rows stay in registers. Tiles of whole groups, of at most 512 channels, that
     * divide the channels; no vector has channels of three groups. stages: rows of a thread, which are all of its chunk. threads: a multiple of 32
     * and of 4 * vectors, up to 640, with 8 rows fewer. vec_bytes 16, no f64, no uses_running, no num_batches, no running statistics of samples.
     * Forward, where a group lies in at most 16 vectors: the chunks of a sample are the `cluster` blocks of a cluster. Backward without activation,
     * residual and y, where dx is wanted: the chunks of all samples are; without a cluster, in a cooperative launch, samples * chunks * 64 is at
     * least the channels of a tile. stages with clusters: 4, or 8 with up to 480 threads; threads / vectors is 4, 8, 12 or a multiple of 16.
     * Without: 1, 2, 4, or 8 with up to 320. */
    BOPS_CHANNEL_NORM_LAST_ROWS = 20,
    /* Forward without activation and residual, of one sample, of merged ones, or with groups: slabs as those of the resident variant backward, of
     * any number of batches. threads 256; stages: batches of 4 rows of a thread, 13, before 9.0 9. vec_bytes 16, no f64, no uses_running, no
     * num_batches, no running statistics of samples. */
    BOPS_CHANNEL_NORM_LAST_SLABS = 21
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_channel_norm_variant variant;
    uint32_t vec_bytes; /* bytes of one access to x, residual, y, dy, dx: 16, 4 or 2 (f64: 8). Segments start at multiples of it and are a whole
                           number of it */
    uint32_t vectors;   /* per thread */
    uint32_t threads;   /* of a block */
    uint32_t cluster;   /* blocks that share a group */
    uint32_t grid;      /* blocks */
    uint32_t stages;
    uint32_t chunks;   /* parts of a segment that are reduced apart */
    uint32_t overlaps; /* 1: launched while the previous kernel of the stream ends; needs compute capability 9.0 */
    uint32_t is_merged;
    uint32_t tensors;
    uint32_t cached;          /* channels last, cooperative and resident: batches of 4 rows of a thread, or 2, that the L2 is asked to keep */
    uint32_t stagger_cycles;  /* between the starts of the first blocks of a multiprocessor, or 0 */
    uint32_t multiprocessors; /* where blocks are staggered */
    uint32_t residents;       /* blocks that share a multiprocessor there */
} bops_channel_norm_choice;

typedef struct {
    uint64_t batch, channels, spatial;
    uint64_t groups; /* statistics of a group of channels of one sample; 0: of one channel over batch and spatial */
    bops_channel_strides x, residual, y;
    double eps;
    double momentum; /* weight of this batch in the running statistics */
    bops_activation activation;
    uint32_t uses_running;  /* 1: running_mean and running_var are the statistics, and are not written */
    uint32_t is_cumulative; /* 1: momentum is 1 / (num_batches + 1) */
} bops_channel_norm_params;

/* Operands of forward; absent ones are null. weight and bias, one element a channel, have `weight_dtype`, which is `dtype` or BOPS_F32; the
 * statistics are of the accumulator type: mean and rstd one a group, running_mean and running_var one a channel. num_batches is
 * one int64. y may be x or residual. */
typedef struct {
    const void *x, *residual, *weight, *bias;
    void *running_mean, *running_var, *num_batches, *y, *mean, *rstd;
} bops_channel_norm_operands;

bops_status bops_batch_norm_prepare(const bops_channel_norm_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                    bops_dtype weight_dtype, uint32_t has_residual);
bops_status bops_batch_norm_launch(const bops_channel_norm_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                   bops_dtype weight_dtype, const bops_channel_norm_operands *operands, void *workspace, bops_stream stream);
bops_status bops_group_norm_prepare(const bops_channel_norm_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                    bops_dtype weight_dtype);
bops_status bops_group_norm_launch(const bops_channel_norm_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                   bops_dtype weight_dtype, const bops_channel_norm_operands *operands, void *workspace, bops_stream stream);

typedef struct {
    uint64_t batch, channels, spatial;
    uint64_t groups;
    bops_channel_strides dy, x, residual, y, dx, dresidual;
    double eps; /* with the running statistics: rstd = 1 / sqrt(running_var + eps) */
    bops_activation activation;
    uint32_t uses_running;
} bops_channel_norm_backward_params;

/* Operands of backward; absent ones are null. With an activation, the pre-activation is computed again from x, the statistics, weight, bias
 * and residual; where y is there instead (relu), its sign decides. mean and rstd, or running_mean and running_var. dx may be dy or x. */
typedef struct {
    const void *dy, *x, *residual, *y, *weight, *bias, *mean, *rstd, *running_mean, *running_var;
    void *dx, *dresidual, *dweight, *dbias;
} bops_channel_norm_backward_operands;

bops_status bops_batch_norm_backward_prepare(const bops_channel_norm_backward_params *params, const bops_channel_norm_choice *choice,
                                             bops_dtype dtype, bops_dtype weight_dtype, uint32_t has_residual);
bops_status bops_batch_norm_backward_launch(const bops_channel_norm_backward_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                            bops_dtype weight_dtype, const bops_channel_norm_backward_operands *operands, void *workspace,
                                            bops_stream stream);
bops_status bops_group_norm_backward_prepare(const bops_channel_norm_backward_params *params, const bops_channel_norm_choice *choice,
                                             bops_dtype dtype, bops_dtype weight_dtype);
bops_status bops_group_norm_backward_launch(const bops_channel_norm_backward_params *params, const bops_channel_norm_choice *choice, bops_dtype dtype,
                                            bops_dtype weight_dtype, const bops_channel_norm_backward_operands *operands, void *workspace,
                                            bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
