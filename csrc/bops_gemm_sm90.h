/* The C ABI of the products that only compute capability 9.0 has, beside that of the others in bops_gemm.h, which also declares gemm_wgmma for factors of
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
    uint32_t stages; /* of the ring, each for 128 of k */
    uint32_t quads;  /* 1: out and other have stride 1 along n, and four elements from any multiple of four on start at a multiple of their size, or
                        of 16 bytes if that is less */
    uint32_t right_across; /* 1: right has stride 1 along n; 0: along k */
} bops_gemm_few_rows_stream_choice;

/* Code for sm_90a; f16 and bf16; m at most 16. The strides of left and right other than 1 are multiples of 16 bytes below 2^40 bytes, and addresses are
 * multiples of 16 bytes; extents are below 2^31. At most two batch extents. left has stride 1 along k. No summed extents, no derivative. */
BOPS_FORM(bops_gemm_few_rows_stream, bops_dtype, bops_gemm_params, bops_gemm_few_rows_stream_choice, bops_gemm_operands)

/* What Rust chose for gemm_wgmma_words. */
typedef struct {
    uint32_t rows;      /* of a tile of 128 columns: 128, or 192 if the epilogue reads nothing */
    uint32_t splits;    /* as in bops_gemm_choice */
    uint32_t band_rows; /* rows of tiles of a band, which neighbouring blocks take column after column */
    uint32_t blocks;    /* as many as run at once */
    uint32_t reads;     /* 1: the epilogue reads dout, or the previous contents of out, and there is one split */
} bops_gemm_wgmma_words_choice;

/* As gemm_wgmma, for factors of f32 along k that are rounded to tf32; the dtype of the call is BOPS_F32, as are all operands. n is a multiple of four; out
 * and other have stride 1 along n, and their rows start at multiples of 16 bytes. Not both two batch extents and a summed extent. */
BOPS_FORM(bops_gemm_wgmma_words, bops_dtype, bops_gemm_params, bops_gemm_wgmma_words_choice, bops_gemm_operands)

/* Copies a factor of f32 so that its lines become columns: dense [outer.., length, lines rounded up to four], 0 behind the end of a row. */
bops_status bops_gemm_turn_prepare(const bops_gemm_repack_params *params);
bops_status bops_gemm_turn_launch(const bops_gemm_repack_params *params, const void *from, void *to, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
