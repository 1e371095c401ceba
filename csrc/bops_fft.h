/* The C ABI of the CUDA kernels of Fourier transforms; the rules of bops.h hold here. */
#ifndef BOPS_FFT_H
#define BOPS_FFT_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most points that a block holds, of f32 and of f64, the most stages of a pass, and the most passes. */
enum { BOPS_FFT_POINTS = 4096, BOPS_FFT_POINTS_F64 = 2048, BOPS_FFT_STAGES = 8, BOPS_FFT_PASSES = 6 };

/* What a pass does beside transforming. TURNS exchange the parts of what is read, of results before anything else, and of what is written. CHIRPS multiply by
 * the chirp what is read, and results. CONVOLVES multiplies results by its transform. In COLUMNS neighbouring threads have neighbouring lines. */
enum {
    BOPS_FFT_TURNS_READ = 1,
    BOPS_FFT_TURNS_RESULT = 2,
    BOPS_FFT_TURNS_WRITTEN = 4,
    BOPS_FFT_CHIRPS_READ = 8,
    BOPS_FFT_CHIRPS_RESULT = 16,
    BOPS_FFT_CONVOLVES = 32,
    BOPS_FFT_READS_COLUMNS = 64,
    BOPS_FFT_WRITES_COLUMNS = 128
};

/* How the numbers of an operand are read or written: pairs, real numbers, pairs of half a spectrum; those of the workspace; and the conjugates of the chirp,
 * around 0, which lie nowhere. */
typedef uint32_t bops_fft_kind;
enum { BOPS_FFT_PAIRS = 0, BOPS_FFT_REAL = 1, BOPS_FFT_HALF = 2, BOPS_FFT_WORK = 3, BOPS_FFT_CHIRP = 4 };

typedef struct {
    uint32_t points; /* of the lines of its passes that hold most */
    uint32_t passes;
} bops_fft_choice;

/* A pass over `lines` lines of `points` points: those of the tensor, each of them `inners`. Line i of these begins `i inner` points after the first, and its points
 * are `step` apart. */
typedef struct {
    uint64_t lines;
    uint64_t blocks;
    uint64_t from_work, to_work; /* ranges of the workspace, in pairs from its start */
    double factor;               /* of what is written */
    bops_fft_kind from, to;
    uint32_t flags;
    uint32_t points, inners;
    uint32_t of_group, line_step; /* lines of a block, and from one to the next in its memory */
    uint32_t from_inner, from_step, to_inner, to_step;
    uint32_t whole;  /* results are multiplied by roots of unity of so many points, unless it is 0 */
    uint32_t padded; /* points of a line in the workspace */
    uint32_t stages;
    uint32_t radix[BOPS_FFT_STAGES]; /* in the order 8, 4, 2, 7, 5, 3 */
} bops_fft_pass;

typedef struct {
    bops_walk walk; /* the lines of the tensor, one to an access */
    bops_walked x, y;
    uint64_t x_step, x_part, y_step, y_part; /* along the axis, and between parts */
    uint64_t spectrum;                       /* the transform of the chirp in the workspace, in pairs from its start */
    double inner;                            /* what bins other than 0 and n/2 are multiplied by */
    uint32_t points;                         /* of a line of the tensor */
    uint32_t x_is_packed, y_is_packed;       /* parts are neighbours that start at multiples of both */
    uint32_t passes;
    bops_fft_pass pass[BOPS_FFT_PASSES];
} bops_fft_params;

typedef struct {
    const void *x;
    void *y;
} bops_fft_operands;

/* Specialised for the type: BOPS_F32 or BOPS_F64. */
BOPS_FORM(bops_fft, bops_dtype, bops_fft_params, bops_fft_choice, bops_fft_operands)

#ifdef __cplusplus
}
#endif
#endif
