/* The C ABI of the products that compute capability 9.0 alone has, beside that of the others in bops_gemm.h, which also has gemm_wgmma for factors of
 * 16 bits. */
#ifndef BOPS_GEMM_SM90_H
#define BOPS_GEMM_SM90_H
#include "bops_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What Rust chose for gemm_few_rows_stream. */
typedef struct {
    uint32_t splits; /* blocks of a cluster that share the sums of 64 columns: 1, 2 or 4 */
    uint32_t stages; /* of 128 of k that a block has in flight or in use */
    uint32_t quads;  /* 1: out and other have stride 1 along n, and four elements from any multiple of four on lie at a multiple of 16 bytes, those
                              of 16 bits of 8 */
    uint32_t right_across; /* right lies along n, with stride 1; 0: along k */
} bops_gemm_few_rows_stream_choice;

/* Code for sm_90a; f16 and bf16; m at most 16. The strides of left and right that are not 1 are multiples of 16 bytes and less than 2^40, and so are the
 * addresses; extents are below 2^31. At most two batch extents. left lies along k. Nothing that is summed over besides k, no derivative. */
bops_status bops_gemm_few_rows_stream_prepare(const bops_gemm_params *params, const bops_gemm_few_rows_stream_choice *choice, bops_dtype dtype);
bops_status bops_gemm_few_rows_stream_launch(const bops_gemm_params *params, const bops_gemm_few_rows_stream_choice *choice, bops_dtype dtype,
                                             const bops_gemm_operands *operands, bops_stream stream);

/* What Rust chose for gemm_wgmma_words. */
typedef struct {
    uint32_t rows;   /* of a tile, which has 128 columns: 128, or 192, which is for epilogues that read nothing */
    uint32_t splits; /* as in bops_gemm_choice */
    uint32_t group;  /* rows of tiles that are walked over together */
    uint32_t blocks; /* all of them run at once */
    uint32_t reads;  /* 1: the epilogue reads dout, or what out was, in one split */
} bops_gemm_wgmma_words_choice;

/* As gemm_wgmma, of factors of f32 that are rounded to tf32 and lie along k; all operands are f32. n is a multiple of four; out and other have stride 1 along
 * n, and their rows begin at multiples of 16 bytes. Not two batch extents and one that is summed over. */
bops_status bops_gemm_wgmma_words_prepare(const bops_gemm_params *params, const bops_gemm_wgmma_words_choice *choice);
bops_status bops_gemm_wgmma_words_launch(const bops_gemm_params *params, const bops_gemm_wgmma_words_choice *choice,
                                         const bops_gemm_operands *operands, bops_stream stream);

/* A copy of a factor of f32 whose lines have become columns: dense [outer.., length, lines rounded up to four], 0 behind the end of a row. */
bops_status bops_gemm_turn_prepare(const bops_gemm_repack_params *params);
bops_status bops_gemm_turn_launch(const bops_gemm_repack_params *params, const void *from, void *to, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
