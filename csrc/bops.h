/* The C ABI of the CUDA kernels; convolution has a header of its own, bops_conv.h. Fixed-width types only, so that one bindings file serves every target.
 *
 * Every op has a params struct, `prepare` and `launch`. `prepare` sets function attributes and forces the module load of the
 * kernels that `launch` will use with the same params and choice; it may be slow. `launch` only launches, on `stream`, and returns the status of that launch.
 * Neither validates: Rust has checked every size, stride, alignment and pointer before. */
#ifndef BOPS_H
#define BOPS_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaError_t; 0 is success. */
typedef int32_t bops_status;
/* A CUstream. */
typedef void *bops_stream;

typedef uint32_t bops_dtype;
enum { BOPS_F64 = 0, BOPS_F32 = 1, BOPS_F16 = 2, BOPS_BF16 = 3 };

/* ---- rows ---------------------------------------------------------------- */

/* Element strides of the three outer extents of a tensor of rows: row r of `rows` is
 * (i0, i1, i2) = (r / (extent1 * extent2), r / extent2 % extent1, r % extent2), at i0 * s0 + i1 * s1 + i2 * s2.
 * The elements of one row are contiguous. */
typedef struct {
    uint64_t s0, s1, s2;
} bops_row_strides;

/* ---- copy ----------------------------------------------------------------- */

bops_status bops_copy_prepare(void);
/* Both pointers are multiples of 16. The yardstick of the benchmarks: reads and writes once. */
bops_status bops_copy_launch(const void *from, void *to, uint64_t bytes, bops_stream stream);

/* ---- layer_norm, rms_norm ------------------------------------------------ */

typedef uint32_t bops_row_norm_variant;
enum {
    /* Forward. The row stays in registers, of a part of a block, a block or a cluster. Threads up to 1024 for rms_norm of 4-byte elements where 4
     * vectors a thread are the whole row of one block. */
    BOPS_ROW_NORM_RESIDENT = 0,
    /* Forward of 16-bit elements. The row stays in shared memory, of a block of 256 threads or a cluster of them; as many threads a row.
     * vec_bytes 16. */
    BOPS_ROW_NORM_SHARED = 1,
    /* Forward. Chunks of rows: moments, merge, apply; reads x twice. Any length, alignment and dtype. */
    BOPS_ROW_NORM_SPLIT = 2,
    /* Backward. Teams, of a part of a block up to a cluster, walk over rows with fixed columns (8, 16 or 32 a thread; with dh not 32, with
     * a cluster not 8; 8 needs 256 threads); parameter gradients stay on chip until one partial row a team is written. One row stride
     * below 2^32 a tensor; vec_bytes 16. */
    BOPS_ROW_NORM_BACKWARD_PERSISTENT = 3,
    /* Backward. One launch whose blocks own a row of dx or a strip of columns of the parameter gradients; in place two. vec_bytes 16,
     * rows of at most 8192 columns; grid = rows + ceil(cols * element bytes / 128). */
    BOPS_ROW_NORM_BACKWARD_FEW_ROWS = 4,
    /* Backward. Chunks of rows: sums, merge, apply; reads dy and x twice. Any length, alignment and dtype. */
    BOPS_ROW_NORM_BACKWARD_SPLIT = 5,
    /* Backward. There are no rows or no columns: the parameter gradients are set to zero. */
    BOPS_ROW_NORM_BACKWARD_ZERO = 6,
    /* Forward. Teams, blocks or clusters, walk over rows; vectors are staged through shared memory: threads * stages * 16 bytes of it.
     * threads == threads_per_row, a multiple of 32; vectors 8 with stages 21, rms_norm with weight_dtype == dtype also 4 with 13 and up to
     * 1024 threads. grid: cluster times teams, at most as many as are resident. vec_bytes 16. */
    BOPS_ROW_NORM_RING = 7,
    /* Backward. The same; threads * stages * 32 bytes of shared memory; vectors 4, stages 13, f32 also 11; flushes 0,
     * partial_rows = teams * ceil(ceil(rows / teams) / flush_rows). */
    BOPS_ROW_NORM_BACKWARD_RING = 8,
    /* Forward of layer_norm, 16-bit elements, parameters of the same type. The row stays in registers, as it came, and fills the threads that hold
     * it. Those of a block: threads == threads_per_row, a multiple of 32 from 64 to 512, of 4 vectors. Those of a warp: threads 64, of 3 to 8 vectors,
     * no residual, one row stride a tensor. vec_bytes 16. */
    BOPS_ROW_NORM_PACKED = 9,
    /* Backward without dh. Teams of `cluster` blocks wherever they lie, up to 160, walk over rows and give each other their sums through the workspace;
     * compute capability 9.0. threads == threads_per_row, those that read, 256, of layer_norm of 16-bit elements 512; vectors 2, of 16-bit elements
     * 1 and two rows a turn; stages 6. grid: cluster times teams, all resident. One row stride below 2^32 a tensor; vec_bytes 16. The workspace
     * has grid * rows of a turn * 256 bytes more than the partial rows. */
    BOPS_ROW_NORM_BACKWARD_COOPERATIVE = 10
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_row_norm_variant variant;
    uint32_t vec_bytes;       /* bytes of one access to x, y, dy, ..: 16, 4 or 2 (f64: 8). Rows start at multiples of it and are a whole
                                 number of it; parameters start at multiples of the smaller of 16 and as many of their elements. */
    uint32_t vectors;         /* RESIDENT, PERSISTENT, FEW_ROWS: vectors per thread */
    uint32_t threads;         /* of a block; a multiple of 32, at most 512 but where a variant says otherwise; PERSISTENT: 256 or 512, the room
                                 for threads_per_row times rows */
    uint32_t threads_per_row; /* in one block: a power of two up to 32 or a multiple of 32; PERSISTENT with 16 or 32 columns a thread: at
                                 least 32. A block holds threads / threads_per_row rows, with a cluster 1 */
    uint32_t cluster;         /* blocks that share a row, 1..16 but where a variant says otherwise; more than 1 needs compute capability 9.0 and
                                 threads_per_row > 32 */
    uint32_t stages;          /* PERSISTENT: rows in flight, 1..4 */
    uint32_t grid;            /* blocks, a multiple of cluster; RESIDENT, SHARED, PACKED: enough for all rows */
    uint32_t flush_rows;      /* backward PERSISTENT, SPLIT, COOPERATIVE: rows that one accumulator takes before it is added to the next level */
    uint32_t flushes;         /* the same: flushes that the next level takes before a partial row is written. PERSISTENT: 0 is no next
                                 level, for blocks of one row */
    uint32_t chunks;          /* SPLIT: chunks of a row; a chunk is 1024 accesses. PERSISTENT: see late_blocks */
    uint32_t overlaps;        /* all but SPLIT, column sums too: 1 launches them while the previous kernel of the stream ends; they wait for it. Needs
                                 compute capability 9.0. RESIDENT: 2 lets the next kernel do the same at once */
    uint32_t late_blocks;     /* PERSISTENT without a cluster, rms_norm: the last blocks of the grid, which begin as others end. Those take `chunks`
                              turns, these the rows that are left */
    uint64_t partial_rows;    /* backward PERSISTENT, SPLIT, COOPERATIVE: rows of partial parameter gradients in the workspace */
} bops_row_norm_choice;

typedef struct {
    uint64_t rows; /* below 2^32 */
    uint64_t cols;
    uint64_t extent1; /* rows = extent0 * extent1 * extent2; extent0 is implied */
    uint64_t extent2;
    bops_row_strides x, residual, y, h;
    double eps;
    double weight_offset; /* added to the weight; rms_norm only */
} bops_row_norm_params;

/* Operands of forward; absent ones are null. x, residual, y and h have dtype `dtype`; weight, bias have `weight_dtype`, which is
 * `dtype` or BOPS_F32; mean and rstd are dense, one element a row, of the accumulator type. rms_norm has no bias and no mean.
 * h is absent exactly when residual is. y may be x, h may be residual. */
typedef struct {
    const void *x, *residual, *weight, *bias;
    void *y, *h, *mean, *rstd;
} bops_row_norm_operands;

bops_status bops_layer_norm_prepare(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                    bops_dtype weight_dtype);
bops_status bops_layer_norm_launch(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype,
                                   const bops_row_norm_operands *operands, void *workspace, bops_stream stream);
bops_status bops_rms_norm_prepare(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype);
bops_status bops_rms_norm_launch(const bops_row_norm_params *params, const bops_row_norm_choice *choice, bops_dtype dtype, bops_dtype weight_dtype,
                                 const bops_row_norm_operands *operands, void *workspace, bops_stream stream);

typedef struct {
    uint64_t rows; /* below 2^32 */
    uint64_t cols;
    uint64_t extent1;
    uint64_t extent2;
    bops_row_strides dy, x, dh, dx;
    double weight_offset;
} bops_row_norm_backward_params;

/* Operands of backward; absent ones are null. dy, x, dh and dx have dtype `dtype`; weight, dweight, dbias `weight_dtype`. With a
 * residual, x is the forward's h, dh is the gradient that reaches h from elsewhere and dx serves x and residual alike.
 * rms_norm has no mean and no dbias. dx may be dy. */
typedef struct {
    const void *dy, *x, *weight, *mean, *rstd, *dh;
    void *dx, *dweight, *dbias;
} bops_row_norm_backward_operands;

bops_status bops_layer_norm_backward_prepare(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                             bops_dtype weight_dtype, uint32_t has_dh);
bops_status bops_layer_norm_backward_launch(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                            bops_dtype weight_dtype, const bops_row_norm_backward_operands *operands, void *workspace,
                                            bops_stream stream);
bops_status bops_rms_norm_backward_prepare(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                           bops_dtype weight_dtype, uint32_t has_dh);
bops_status bops_rms_norm_backward_launch(const bops_row_norm_backward_params *params, const bops_row_norm_choice *choice, bops_dtype dtype,
                                          bops_dtype weight_dtype, const bops_row_norm_backward_operands *operands, void *workspace,
                                          bops_stream stream);

/* ---- activations ---------------------------------------------------------- */

typedef uint32_t bops_activation;
enum { BOPS_IDENTITY = 0, BOPS_RELU = 1, BOPS_GELU_ERF = 2, BOPS_GELU_TANH = 3, BOPS_SILU = 4, BOPS_SIGMOID = 5, BOPS_TANH = 6 };

/* ---- batch_norm, group_norm, instance_norm --------------------------------- */

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

/* ---- local_response_norm ---------------------------------------------------- */

typedef uint32_t bops_local_response_norm_variant;
enum {
    /* A thread owns neighbouring positions and walks over channels with the window in registers. Any x, y, dy, dx with spatial stride 1,
     * dtype not f64, size 3, 5, 7 or 9. */
    BOPS_LOCAL_RESPONSE_NORM_WALK = 0,
    /* A tile of the channels of some positions lies in shared memory. Channel stride 1, dtype not f64. */
    BOPS_LOCAL_RESPONSE_NORM_TILE = 1,
    /* A thread owns an element and reads its whole window. Any strides, dtype and size. */
    BOPS_LOCAL_RESPONSE_NORM_DIRECT = 2,
    /* The threads of a position own all its channels, 16 bytes each, and give each other the values next to theirs. Channel stride 1,
     * vec_bytes 16, at most 256 vectors of channels, dtype not f64, size 3, 5, 7 or 9. */
    BOPS_LOCAL_RESPONSE_NORM_ROWS = 3
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_local_response_norm_variant variant;
    uint32_t vec_bytes; /* bytes of one access. WALK: those of 4 elements or of 1; TILE: 16 or those of an element. Spatial extent (TILE: channels),
                           strides and starts are multiples of it */
    uint32_t parts;     /* WALK: accesses that a thread owns: 1, with one element an access also 2 or 4 */
    uint32_t threads;   /* TILE, DIRECT: of a block, at most 256; ROWS: the room for whole positions */
    uint32_t columns;   /* TILE: threads that share a position; they divide `threads` */
    uint32_t chunk;     /* WALK, TILE: channels that a block gives results for; a multiple of a vector in a TILE */
    uint32_t chunks;    /* WALK, TILE: chunks that make all channels, at most 65535 */
    uint32_t is_last;   /* DIRECT: 1 where neighbouring threads take neighbouring channels, 0 where they take neighbouring positions */
} bops_local_response_norm_choice;

typedef struct {
    uint64_t batch, channels, spatial;
    bops_channel_strides x, y;
    uint64_t size;         /* channels of a window: c - size / 2 .. c + size - size / 2 - 1; at most 2 * channels + 2 */
    double scale, beta, k; /* scale: alpha over the size that the caller gave */
} bops_local_response_norm_params;

/* Operands of forward, of type `dtype`. */
typedef struct {
    const void *x;
    void *y;
} bops_local_response_norm_operands;

bops_status bops_local_response_norm_prepare(const bops_local_response_norm_params *params, const bops_local_response_norm_choice *choice,
                                             bops_dtype dtype);
bops_status bops_local_response_norm_launch(const bops_local_response_norm_params *params, const bops_local_response_norm_choice *choice,
                                            bops_dtype dtype, const bops_local_response_norm_operands *operands, bops_stream stream);

typedef struct {
    uint64_t batch, channels, spatial;
    bops_channel_strides dy, x, dx;
    uint64_t size;
    double scale, beta, k;
} bops_local_response_norm_backward_params;

/* Operands of backward, of type `dtype`. */
typedef struct {
    const void *dy, *x;
    void *dx;
} bops_local_response_norm_backward_operands;

bops_status bops_local_response_norm_backward_prepare(const bops_local_response_norm_backward_params *params,
                                                      const bops_local_response_norm_choice *choice, bops_dtype dtype);
/* workspace, DIRECT: one element of the accumulator type for each element of x. */
bops_status bops_local_response_norm_backward_launch(const bops_local_response_norm_backward_params *params,
                                                     const bops_local_response_norm_choice *choice, bops_dtype dtype,
                                                     const bops_local_response_norm_backward_operands *operands, void *workspace, bops_stream stream);

/* ---- softmax --------------------------------------------------------------- */

typedef uint32_t bops_softmax_variant;
enum {
    /* inner is 1. The row stays in registers, of a part of a block, a block or, backward, a cluster. */
    BOPS_SOFTMAX_ROWS_RESIDENT = 0,
    /* inner is 1. Chunks of rows: parts, merge, apply; reads its inputs twice. Any length, alignment and dtype. */
    BOPS_SOFTMAX_ROWS_SPLIT = 1,
    /* A line stays in the registers of threads / tiles / across threads of a block. */
    BOPS_SOFTMAX_CHANNELS_RESIDENT = 2,
    /* Chunks of lines: parts, merge, apply; reads its inputs twice. Any length, alignment and dtype. */
    BOPS_SOFTMAX_CHANNELS_SPLIT = 3,
    /* inner is 1. The row is staged in the shared memory of a cluster: forward x, by blocks of 256 or 512 threads; backward, of f32 alone, y,
     * by blocks of `threads` whose threads hold dy. vec_bytes 16. */
    BOPS_SOFTMAX_ROWS_SHARED = 4,
    /* Backward. A line stays with threads / tiles / across threads of a block: y and the last dy of 16-bit elements in shared memory, the rest
     * of dy in registers. vec_bytes 16. */
    BOPS_SOFTMAX_CHANNELS_SHARED = 5
};

/* What Rust chose. A field that a variant does not mention is zero. */
typedef struct {
    bops_softmax_variant variant;
    uint32_t vec_bytes; /* bytes of one access: 16, 4 or 2 (f64: 8); CHANNELS_RESIDENT forward of 16-bit elements: 8, 4 or 2. Rows or runs start
                           at multiples of it and are a whole number of it. */
    uint32_t vectors;   /* RESIDENT: vectors per thread and tensor. Rows: 2, 4, 8, backward also 1; of 4 and 2 bytes 16. Channels: forward 4, 8, 16,
                           of f32 12, of 16-bit elements 24 and 32, too; backward 4, 8; of 4 and 2 bytes 16. CHANNELS_SHARED: 16. ROWS_SHARED
                           backward: 8 */
    uint32_t threads;   /* of a block; a multiple of 32, at most 512; channels: at most channel_bounds::threads of the kernel;
                           CHANNELS_SHARED: of 16-bit elements at most 256 a tile */
    uint32_t across;    /* RESIDENT, SHARED. Rows: threads of a row in one block, a power of two up to 32 or a multiple of 32; a block
                           holds threads / across rows, with a cluster 1. Channels: vectors side by side along inner, of a tile: a power of two
                           up to 32; threads is a multiple of it. */
    uint32_t cluster;   /* ROWS_RESIDENT backward, ROWS_SHARED: blocks that share a row, 1..16; more than 1 needs compute capability 9.0, 16-byte
                           vectors, 4 or 8 of them, and across > 32. ROWS_SHARED: at least 2 */
    uint32_t grid;      /* blocks; RESIDENT, SHARED: enough for all */
    uint32_t chunks;    /* SPLIT: parts of a line; rows: of 1024 accesses, channels: of 32 elements */
    uint32_t
        overlaps; /* RESIDENT, CHANNELS_SHARED: 1 launches while the previous kernel of the stream ends and waits for it. Needs compute capability 9.0 */
    uint32_t tiles; /* CHANNELS_RESIDENT, CHANNELS_SHARED: that a block takes, 1 or, of 16-bit elements, 2: forward 32 vectors and more than 128
                           threads a tile */
} bops_softmax_choice;

/* Lines along an axis of `dim` elements, `step` elements apart: `outer` blocks (strided as rows are) of `inner` lines side by side. Rows are
 * inner 1 and steps 1. */
typedef struct {
    uint64_t outer; /* below 2^32 */
    uint64_t dim;
    uint64_t inner;
    uint64_t extent1; /* outer = extent0 * extent1 * extent2; extent0 is implied */
    uint64_t extent2;
    bops_row_strides x, y;
    uint64_t x_step, y_step;
    double scale;
    uint32_t is_log;
    bops_dtype x_dtype; /* that of y, or f16 or bf16 where that of y is f32 */
} bops_softmax_params;

/* y may be x where their types agree. */
typedef struct {
    const void *x;
    void *y;
} bops_softmax_operands;

/* dtype: that of y, in whose accesses and elements the choice is. Elements of x in 16 bits are read as the f32 that they stand for, in accesses of
 * half as many bytes. There is no ROWS_SHARED of such x. */
bops_status bops_softmax_prepare(const bops_softmax_params *params, const bops_softmax_choice *choice, bops_dtype dtype);
bops_status bops_softmax_launch(const bops_softmax_params *params, const bops_softmax_choice *choice, bops_dtype dtype,
                                const bops_softmax_operands *operands, void *workspace, bops_stream stream);

typedef struct {
    uint64_t outer; /* below 2^32 */
    uint64_t dim;
    uint64_t inner;
    uint64_t extent1;
    uint64_t extent2;
    bops_row_strides y, dy, dx;
    uint64_t y_step, dy_step, dx_step;
    double scale;
    uint32_t is_log;
    bops_dtype dx_dtype; /* that of y, or f16 or bf16 where that of y is f32 */
} bops_softmax_backward_params;

/* dx may be dy where their types agree. */
typedef struct {
    const void *y, *dy;
    void *dx;
} bops_softmax_backward_operands;

/* dtype: that of y and dy, in whose accesses and elements the choice is. */
bops_status bops_softmax_backward_prepare(const bops_softmax_backward_params *params, const bops_softmax_choice *choice, bops_dtype dtype);
bops_status bops_softmax_backward_launch(const bops_softmax_backward_params *params, const bops_softmax_choice *choice, bops_dtype dtype,
                                         const bops_softmax_backward_operands *operands, void *workspace, bops_stream stream);

/* ---- activation ------------------------------------------------------------ */

/* What Rust chose: bytes of one access, 16 or those of an element. Every operand starts at a multiple of it. */
typedef struct {
    uint32_t vec_bytes;
} bops_activation_choice;

typedef struct {
    uint64_t elements;
    bops_activation activation;
    uint32_t from_y; /* backward: `saved` is the result, of relu, sigmoid or tanh */
} bops_activation_params;

/* Operands of forward, of type `dtype`: dense, in the same order. */
typedef struct {
    const void *x;
    void *y; /* may be x */
} bops_activation_operands;

bops_status bops_activation_prepare(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype);
bops_status bops_activation_launch(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype,
                                   const bops_activation_operands *operands, bops_stream stream);

/* Operands of backward, of type `dtype`: dense, in the same order. */
typedef struct {
    const void *dy, *saved; /* saved: x, with from_y y; null for the identity */
    void *dx;               /* may be dy */
} bops_activation_backward_operands;

bops_status bops_activation_backward_prepare(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype);
bops_status bops_activation_backward_launch(const bops_activation_params *params, const bops_activation_choice *choice, bops_dtype dtype,
                                            const bops_activation_backward_operands *operands, bops_stream stream);

/* ---- gemm ------------------------------------------------------------------ */

/* A product of matrices, out[z, m, n] = alpha * sum over s, k of left[z, s, m, k] * right[z, s, k, n], and what is done with its elements.
 * Transposes are strides. Left and right have the dtype of the call. */
enum { BOPS_GEMM_EXTENTS = 6 };

/* Element strides of a row, of a column and of each batch extent; 0 where a matrix has no such extent. */
typedef struct {
    uint64_t row, column;
    uint64_t batch[BOPS_GEMM_EXTENTS];
} bops_gemm_matrix;

/* A factor, which has the extents that are summed over as well. */
typedef struct {
    bops_gemm_matrix matrix;
    uint64_t summed[BOPS_GEMM_EXTENTS];
} bops_gemm_factor;

typedef uint32_t bops_gemm_epilogue;
enum {
    /* pre = v + bias, where it is wanted; out = activation(v + bias). */
    BOPS_GEMM_FORWARD = 0,
    /* `other` is dout; out = dout * activation'(v + bias), dense, its rows one after the other. Its column sums, before it is rounded, where they are
     * wanted. */
    BOPS_GEMM_DERIVATIVE = 1,
    /* out = v + beta * out; beta 0 does not read it. */
    BOPS_GEMM_GRADIENT = 2
};

typedef struct {
    uint64_t m, n, k;
    uint32_t batch_rank, summed_rank;  /* extents that there are, the last one varies fastest */
    uint64_t batch[BOPS_GEMM_EXTENTS]; /* fewer than 2^31 matrices together */
    uint64_t summed[BOPS_GEMM_EXTENTS];
    bops_gemm_factor left, right;
    bops_gemm_matrix out, other, bias;             /* other: pre or dout. bias: either its row or its column stride is 0, and it has no batch */
    bops_dtype out_dtype, other_dtype, bias_dtype; /* that of the call or BOPS_F32 */
    bops_gemm_epilogue epilogue;
    bops_activation activation;
    double alpha, beta;
} bops_gemm_params;

/* What Rust chose. Threads walk over a tile of out along its *fast* index, which is n, or m with `across`; the other index is the *slow* one. */
typedef struct {
    uint32_t tile;   /* rows and columns of a block's tile. simt: 128 (f64 64) or 32; mma: 128 or 64 */
    uint32_t splits; /* blocks that share the sums of one tile. More than 1: they write their parts to `parts`, and gemm_finish follows */
    uint32_t across;
    uint32_t quads; /* 1: out, other and parts have stride 1 along the fast index, and four elements from any multiple of four on lie at a multiple
                             of 16 bytes, those of 16 bits of 8 */
    uint32_t
        left_bytes; /* mma: bytes of one access: 16, 8, 4 or those of an element. Of more than one element: they lie one after the other along k, or
                             with left_across along m, and every such run of a tile starts at a multiple of the bytes */
    uint32_t right_bytes;
    uint32_t left_across; /* mma: shared memory holds left as it lies along m. right_across: along n */
    uint32_t right_across;
} bops_gemm_choice;

/* Absent operands are null. parts: of the accumulator type, dense [split, z, slow, fast]. column_sums: of the accumulator type, a row of n elements for
 * each z and each tile along m. */
typedef struct {
    const void *left, *right, *bias;
    void *out, *other, *parts, *column_sums;
} bops_gemm_operands;

/* Registers and shared memory; any strides, all dtypes. */
bops_status bops_gemm_simt_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype);
bops_status bops_gemm_simt_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype,
                                  const bops_gemm_operands *operands, bops_stream stream);
/* Tensor cores of compute capability 8.0; any strides; f16, bf16, and f32 whose factors are rounded to tf32. Not left_across without right_across. */
bops_status bops_gemm_mma_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype);
bops_status bops_gemm_mma_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype, const bops_gemm_operands *operands,
                                 bops_stream stream);

/* The sums of the parts of a product and what is done with them. */
typedef struct {
    uint64_t split_stride;   /* elements from one part to the next */
    bops_gemm_matrix source; /* a part */
    uint32_t splits;         /* 0: every sum is 0 */
    uint32_t across, quads;  /* as in the product's choice; quads: the source too */
} bops_gemm_finish_choice;

enum { BOPS_GEMM_FINISH_ROWS = 32 }; /* of a tile of gemm_finish along the slow index, for column_sums */

bops_status bops_gemm_finish_prepare(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype);
/* source may be out or other, where it lies as they do. */
bops_status bops_gemm_finish_launch(const bops_gemm_params *params, const bops_gemm_finish_choice *choice, bops_dtype dtype, const void *source,
                                    const bops_gemm_operands *operands, bops_stream stream);

/* dpre = dout * activation'(pre), dense [z, m, n], and its column sums before it is rounded; either may be absent. */
typedef struct {
    uint64_t m, n;
    uint32_t batch_rank;
    uint64_t batch[BOPS_GEMM_EXTENTS]; /* fewer than 2^31 matrices together */
    bops_gemm_matrix dout, saved;
    bops_dtype dout_dtype, saved_dtype; /* that of dpre or BOPS_F32 */
    bops_activation activation;
    uint32_t from_out; /* saved is the result, of relu, sigmoid or tanh */
    uint32_t quads;    /* 1: n is a multiple of four; dout and saved have stride 1 along n, and four elements from any multiple of four on lie at a
                          multiple of 16 bytes, those of 16 bits of 8 */
} bops_gemm_dpre_params;

enum { BOPS_GEMM_DPRE_ROWS = 128 }; /* of a tile along m: a row of column_sums */

/* saved is null for the identity. */
bops_status bops_gemm_dpre_prepare(const bops_gemm_dpre_params *params, bops_dtype dtype);
bops_status bops_gemm_dpre_launch(const bops_gemm_dpre_params *params, bops_dtype dtype, const void *dout, const void *saved, void *dpre,
                                  void *column_sums, bops_stream stream);

/* dbias = sum of the rows + beta * dbias. */
typedef struct {
    uint64_t rows, n; /* of column_sums */
    uint64_t stride;  /* of dbias */
    double beta;
} bops_gemm_dbias_params;

bops_status bops_gemm_dbias_prepare(const bops_gemm_dbias_params *params, bops_dtype dtype);
bops_status bops_gemm_dbias_launch(const bops_gemm_dbias_params *params, bops_dtype dtype, const void *column_sums, void *dbias, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
