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

/* A *group* shares statistics: a channel over all samples (groups = 0), or a group of channels of one sample. It is `segments` runs of `spatial`
 * elements, one a sample or one a channel, in which parameters are constant.
 *
 * A form is one way to compute forward or backward. Each has a struct of what Rust chose, a function that prepares its kernels and one that launches
 * them. What all choices say alike:
 *   blocks     of the grid of the form's main kernel.
 *   threads    of a block, unless the form says otherwise.
 *   overlaps   1: the form's first kernel may start while the previous kernel of the stream ends. Needs compute capability 9.0.
 * Unless a form says otherwise it moves vectors of 16 bytes, to which segments (channels last: rows) are aligned and of which they are a whole number,
 * serves f32, f16 and bf16, and takes its statistics from the batch (uses_running = 0). A *short* activation is identity, relu or silu. */

/* What shares a group. */
typedef uint32_t bops_norm_team;
enum {
    BOPS_NORM_CLUSTER = 0, /* the blocks of a cluster */
    BOPS_NORM_GRID = 1,    /* any blocks of a cooperative launch, wherever they lie */
};

/* ---- contiguous: the spatial stride of every tensor is 1 ---- */

/* `split`: segments are divided into parts. The first launch takes the moments of parts, backward their sums; the second merges those of a group; the
 * third writes the output, backward dx and dresidual. The first and the third read x, backward also dy. With uses_running forward is the third launch
 * alone, and backward is the first, which writes dx and dresidual too, and the second. Any dtype and alignment. */
typedef struct {
    uint32_t access_bytes;   /* of one load or store: 16, 4 or 2, for f64 8 */
    uint32_t threads;        /* of a part: a power of two up to 32, or 256; a block has 256 */
    uint32_t accesses;       /* of a thread in a part: a multiple of 4 */
    uint32_t parts;          /* of a segment, of threads * accesses accesses each */
    uint32_t writes_gapless; /* forward, 1: the output is written in vectors of 16 bytes that may span two channels. The channels of a sample lie
                                 without gaps in every tensor, start at multiples of 16 bytes and are a whole number of vectors together; a segment
                                 has 16 bytes or more */
    uint32_t later_overlaps; /* `overlaps` of the launches after the first */
} bops_channel_norm_split_choice;

/* `stripe`, groups = 0: a block holds a few channels of every sample in shared memory. In a sample these channels form a *run*: they lie without gaps,
 * start at a multiple of 16 bytes and are a whole number of vectors together, though a segment need not be. With a residual, y or dresidual it serves
 * no activation but relu. */
typedef struct {
    uint32_t channels;        /* of a block: 1, 2, 4 or 8 */
    uint32_t samples_at_once; /* the block has a thread for each vector of the run in so many samples */
    uint32_t threads;         /* up to 512 */
    uint32_t blocks;
    uint32_t in_registers; /* forward, 1: registers hold the channels; 16-bit elements, at most relu, 256 threads, 13 samples a thread */
    uint32_t overlaps;
} bops_channel_norm_stripe_choice;

/* `segment`, groups > 0 and a group is one segment: a block holds a group in registers; backward, x of 16-bit elements lies in shared memory. Short
 * activations, no residual; backward, dx is wanted. */
typedef struct {
    uint32_t vectors; /* of a thread: up to 8, backward 4 */
    uint32_t threads; /* up to 512 */
    uint32_t blocks;  /* one a group */
    uint32_t overlaps;
} bops_channel_norm_segment_choice;

/* `single`, forward: a team, which is a block or a cluster, takes one group into shared memory. */
typedef struct {
    uint32_t cluster_blocks;   /* of a team */
    uint32_t vectors;          /* of a thread */
    uint32_t register_vectors; /* 0, 2 or 4 of them stay in registers; not 0 only with `overlaps`, a short activation and no residual */
    uint32_t threads;          /* up to 1024 */
    uint32_t blocks;
    uint32_t overlaps;
    uint32_t stagger_cycles;  /* clock cycles between the starts of the first blocks of a multiprocessor; 0: they start at once */
    uint32_t multiprocessors; /* where blocks are staggered: of the device */
    uint32_t residents;       /* where blocks are staggered: blocks that share a multiprocessor */
} bops_channel_norm_single_choice;

/* `single`, backward with groups > 0: a team takes one group into shared memory, in rows of 32 vectors of dy and of x, each of which a warp takes. A
 * second launch adds up the gradients of parameters. */
typedef struct {
    uint32_t cluster_blocks; /* of a team */
    uint32_t vectors;        /* of a thread: up to 27 */
    uint32_t threads;        /* up to 640 */
    uint32_t blocks;
    uint32_t
        merges_samples;  /* 1: the teams of all samples are one cluster, which adds up the gradients of parameters; no second launch, no workspace */
    uint32_t keeps_dpre; /* 1: dpre of silu and 16-bit elements stays in shared memory, in 16 more bytes a vector */
    uint32_t overlaps;
    uint32_t stagger_cycles;  /* clock cycles between the starts of the first blocks of a multiprocessor, with a short activation; 0: at once */
    uint32_t multiprocessors; /* where blocks are staggered: of the device */
    uint32_t residents;       /* where blocks are staggered: blocks that share a multiprocessor */
} bops_channel_norm_backward_single_choice;

/* `single_masked`, backward with groups = 0, relu, and a residual or y that tells where relu passes the gradient: a team takes one group of dy and x
 * into shared memory. */
typedef struct {
    uint32_t cluster_blocks; /* of a team */
    uint32_t vectors;        /* of a thread: up to 8 */
    uint32_t threads;        /* up to 448 */
    uint32_t blocks;
    uint32_t overlaps;
} bops_channel_norm_backward_single_masked_choice;

/* `held`, backward: teams walk over groups. A warp beside a block's `threads` threads fetches vectors ahead into a ring of places in shared memory. In a
 * step each of the threads takes a vector of dy and one of x, all together a part of one segment or several whole segments, so a place has threads * 32
 * bytes.
 *   A cluster: the first 4 steps of a group go on to registers, none if the activation is not short. Up to 480 threads; no residual, y or dresidual.
 *   A grid, with one block a multiprocessor: the first 10 steps go on to registers, and there are up to 352 threads; with relu or silu 6 steps and up to
 *   384 threads. A grid serves no other activation, and a residual, y or dresidual only with reads_extra.
 * The ring has more places than a group has steps that do not go on to registers. Compute capability 9.0. */
typedef struct {
    bops_norm_team team;
    uint32_t team_blocks; /* of a team */
    uint32_t steps;       /* of a group in one block */
    uint32_t places;      /* of the ring: up to 32 */
    uint32_t threads;     /* that hold vectors */
    uint32_t blocks;      /* team_blocks times teams */
    uint32_t
        reads_extra; /* 1, in a grid with groups = 0 and relu: a residual or y passes through the ring as well. A place has threads * 48 bytes, 10
                              steps go on to registers, and there are up to 352 threads */
    uint32_t overlaps;
} bops_channel_norm_backward_held_choice;

/* `relay`, forward: teams walk over groups, which stay in a ring of places in shared memory until they are written. In a block several kinds of warps
 * work at once: `threads` threads write one group; as many, or half as many in a cluster with silu, add up the next one; 64 more, in a grid 96, with
 * repeated_steps 160, fetch vectors and merge moments. In all a block has at most 896 threads, relay_threads of channel_norm_relay.cuh. In a step each
 * thread that writes takes two vectors, so a place has threads * 32 bytes. The ring has more places than a group has steps, beside those for a residual.
 * No activation but relu and silu. With a residual groups = 0, the activation is at most relu, and 32 more threads fetch it. Compute capability 9.0. */
typedef struct {
    bops_norm_team team;      /* in a grid a block a multiprocessor */
    uint32_t team_blocks;     /* of a team, in a grid up to 160 */
    uint32_t steps;           /* of a group in one block */
    uint32_t places;          /* of the ring: up to 32 */
    uint32_t residual_places; /* of them, for a residual; 0 without one */
    uint32_t repeated_steps;  /* in a grid whose groups do not fit: steps of a group in one block that are fetched twice; else 0 */
    uint32_t repeated_places; /* places for each of the two readings of repeated steps; the ring has more other places than there are other steps */
    uint32_t arriving_places; /* in a grid: places that are being filled at once */
    uint32_t threads;         /* that write: up to 416; with a residual or in a grid 384; with repeated_steps 352; in a cluster with silu 512 */
    uint32_t blocks;          /* team_blocks times teams, at most as many as are resident */
    uint32_t overlaps;
} bops_channel_norm_relay_choice;

/* `relay`, backward with groups = 0: as forward, with a place of threads * 64 bytes for the vectors of dy and x of a step. No residual, y or dresidual,
 * no activation but relu and silu, and in a grid none but relu. */
typedef struct {
    bops_norm_team team;
    uint32_t team_blocks;     /* of a team, in a grid up to 160 */
    uint32_t steps;           /* of a group in one block */
    uint32_t places;          /* of the ring: up to 32 */
    uint32_t arriving_places; /* in a grid: places that are being filled at once */
    uint32_t threads;         /* that write: up to 416, in a grid 384 */
    uint32_t blocks;          /* team_blocks times teams */
    uint32_t overlaps;
} bops_channel_norm_backward_relay_choice;

/* ---- channels last: the channel stride of every tensor is 1 ----
 *
 * A row is the channels of one position. A block takes a *tile* of channels in a *chunk* of the rows of a sample. Where is_merged is 1 the rows of all
 * samples lie at one stride and count as those of one sample (groups = 0). */

/* `split`: the first launch takes the moments of chunks, backward their sums; the second merges those of a group; the third writes the output, backward
 * dx and dresidual. The first and the third read x, backward also dy. With uses_running forward is the third launch alone, and backward is the first,
 * which writes dx and dresidual too, and the second. Any dtype and alignment. */
typedef struct {
    uint32_t access_bytes; /* 16, or one element */
    uint32_t tile_vectors; /* accesses of a tile: up to 64 */
    uint32_t chunks;       /* of a sample */
    uint32_t is_merged;
    uint32_t threads; /* up to 512 */
    uint32_t blocks;  /* they take tiles and chunks in turn */
    uint32_t overlaps;
} bops_channels_last_norm_split_choice;

/* `cooperative`: one cooperative launch, of at most one block a multiprocessor, does what the launches of `split` do. Rows pass through a ring in shared
 * memory, and the last of them stay there for the second reading. */
typedef struct {
    uint32_t tile_vectors; /* up to 32, backward 16 */
    uint32_t chunks;       /* of a sample */
    uint32_t is_merged;
    uint32_t threads;      /* 512 */
    uint32_t blocks;       /* they take tiles and chunks in turn */
    uint32_t ring_batches; /* of 4 rows of a thread, of threads * 64 bytes a tensor */
    uint32_t tensors;      /* that pass through the ring: 1; backward 2, or 3 where y or the residual is read beside dy and x */
} bops_channels_last_norm_cooperative_choice;

/* `cluster`: each block of a cluster takes one chunk of a tile, which stays in its shared memory. A tile is whole groups and divides the channels; it has
 * at most 256 channels, and no more than `threads`. No num_batches, no running statistics of samples. Compute capability 9.0. */
typedef struct {
    uint32_t tile_vectors;
    uint32_t chunks; /* of a sample */
    uint32_t is_merged;
    uint32_t cluster_blocks; /* chunks; backward also chunks of all samples, which needs no second launch and no workspace */
    uint32_t threads;        /* up to 512 */
    uint32_t thread_rows;    /* rows of a thread: all of its chunk */
    uint32_t tensors;        /* that pass through shared memory: 1; backward 2, or 3 where y or the residual is read beside dy and x */
    uint32_t blocks;
    uint32_t overlaps;
} bops_channels_last_norm_cluster_choice;

/* `resident`, forward of one sample or of merged ones: one cooperative launch with a block for every tile and chunk. Rows pass through a ring in shared
 * memory. The last of them stay there, and others stay in registers. */
typedef struct {
    uint32_t tile_vectors; /* a power of two up to 32, of at most 128 channels, that divides the vectors of a row */
    uint32_t chunks;
    uint32_t is_merged;
    uint32_t threads;        /* 512 */
    uint32_t blocks;         /* tiles times chunks */
    uint32_t ring_batches;   /* of 4 rows of a thread: 6, before compute capability 9.0 4 */
    uint32_t cached_batches; /* that the L2 is asked to keep between the two walks over the rows */
} bops_channels_last_norm_resident_choice;

/* `slabs`: one cooperative launch takes slabs one after another, with a block for every tile and chunk of a slab, most of which stays on chip. A slab is
 * whole samples if `blocks` is a multiple of `chunks` times all tiles, else some tiles of one sample. The form serves one sample, merged ones, or groups
 * > 0; no activation, no residual. A tile is whole groups, divides the channels, and has at least 128 bytes. Forward: no num_batches, no running statistics
 * of samples. Backward: dx is wanted. */
typedef struct {
    uint32_t tile_vectors; /* of a row: a power of two, of at most 128 channels */
    uint32_t chunks;       /* of a sample */
    uint32_t is_merged;
    uint32_t threads; /* 256 */
    uint32_t blocks;
    uint32_t ring_batches;   /* batches of 4 rows of a thread, backward 2: 13, or 9 before compute capability 9.0. Backward with several slabs a chunk
                                 has at least as many batches */
    uint32_t cached_batches; /* that the L2 is asked to keep between the two walks over a slab */
    uint32_t overlaps;
} bops_channels_last_norm_slabs_choice;

/* `rows`, groups > 0: one launch with a block for every tile and chunk, whose rows stay in registers. A tile is whole groups, divides the channels, and
 * has at most 512 channels; no vector has channels of three groups. No num_batches, no running statistics of samples.
 *   Forward: the chunks of a sample are the blocks of a cluster. A group lies in at most 16 vectors. Compute capability 9.0.
 *   Backward: no activation, dx is wanted. The chunks of all samples are the blocks of a cluster, which needs compute capability 9.0, or the launch is
 *   cooperative, and then samples * chunks * 64 is at least the channels of a tile. */
typedef struct {
    uint32_t tile_vectors;
    uint32_t chunks;         /* of a sample */
    uint32_t cluster_blocks; /* backward, 0: the launch is cooperative */
    uint32_t threads; /* up to 640: a multiple of 32 and of 4 * tile_vectors; in a cluster threads / tile_vectors is 4, 8, 12 or a multiple of 16 */
    uint32_t thread_rows; /* rows of a thread: all of its chunk. In a cluster 4, or 8 with up to 480 threads; else 1, 2, 4, or 8 with up to 320 */
    uint32_t overlaps;
} bops_channels_last_norm_rows_choice;

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

/* What the kernels of all forms are compiled for. */
typedef struct {
    bops_dtype dtype;
    bops_dtype weight_dtype; /* of the parameters and their gradients: `dtype` or BOPS_F32 */
    uint32_t has_residual;   /* 1: there is a residual; backward, its gradient is wanted */
} bops_channel_norm_specialisation;

#define BOPS_CHANNEL_NORM_FORM(form, choice_type, pass)                                                                                              \
    BOPS_FORM(bops_##form, bops_channel_norm_specialisation, bops_channel_norm_##pass##params, choice_type, bops_channel_norm_##pass##operands)

BOPS_CHANNEL_NORM_FORM(channel_norm_split, bops_channel_norm_split_choice, )
BOPS_CHANNEL_NORM_FORM(channel_norm_stripe, bops_channel_norm_stripe_choice, )
BOPS_CHANNEL_NORM_FORM(channel_norm_segment, bops_channel_norm_segment_choice, )
BOPS_CHANNEL_NORM_FORM(channel_norm_single, bops_channel_norm_single_choice, )
BOPS_CHANNEL_NORM_FORM(channel_norm_relay, bops_channel_norm_relay_choice, )
BOPS_CHANNEL_NORM_FORM(channels_last_norm_split, bops_channels_last_norm_split_choice, )
BOPS_CHANNEL_NORM_FORM(channels_last_norm_cooperative, bops_channels_last_norm_cooperative_choice, )
BOPS_CHANNEL_NORM_FORM(channels_last_norm_cluster, bops_channels_last_norm_cluster_choice, )
BOPS_CHANNEL_NORM_FORM(channels_last_norm_resident, bops_channels_last_norm_resident_choice, )
BOPS_CHANNEL_NORM_FORM(channels_last_norm_slabs, bops_channels_last_norm_slabs_choice, )
BOPS_CHANNEL_NORM_FORM(channels_last_norm_rows, bops_channels_last_norm_rows_choice, )
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_split, bops_channel_norm_split_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_stripe, bops_channel_norm_stripe_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_segment, bops_channel_norm_segment_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_single, bops_channel_norm_backward_single_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_single_masked, bops_channel_norm_backward_single_masked_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_held, bops_channel_norm_backward_held_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channel_norm_backward_relay, bops_channel_norm_backward_relay_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channels_last_norm_backward_split, bops_channels_last_norm_split_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channels_last_norm_backward_cooperative, bops_channels_last_norm_cooperative_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channels_last_norm_backward_cluster, bops_channels_last_norm_cluster_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channels_last_norm_backward_slabs, bops_channels_last_norm_slabs_choice, backward_)
BOPS_CHANNEL_NORM_FORM(channels_last_norm_backward_rows, bops_channels_last_norm_rows_choice, backward_)

#ifdef __cplusplus
}
#endif
#endif
