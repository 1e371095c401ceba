/* The C ABI of the CUDA kernels: what all families share. Each family adds a header of its own, bops_<family>.h. Fixed-width types only, so
 * that one bindings file serves every target.
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

/* Declares the two functions of a form. `specialisation_type` tells its compiled kernels apart, besides the choice; `workspace` is null where a
 * form needs none. */
#define BOPS_FORM(form, specialisation_type, params_type, choice_type, operands_type)                                                                \
    bops_status form##_prepare(const specialisation_type *of, const params_type *params, const choice_type *choice);                                 \
    bops_status form##_launch(const specialisation_type *of, const params_type *params, const choice_type *choice, const operands_type *operands,    \
                              void *workspace, bops_stream stream);

typedef uint32_t bops_dtype;
enum {
    BOPS_F64 = 0,
    BOPS_F32 = 1,
    BOPS_F16 = 2,
    BOPS_BF16 = 3,
    BOPS_I64 = 4,
    BOPS_I32 = 5,
    BOPS_U32 = 6,
    BOPS_BOOL = 7, /* a byte, 0 or 1; others that are read count as 1 */
    BOPS_U8 = 8,
    BOPS_I8 = 9,
    BOPS_F8E4M3 = 10, /* OCP 8-bit floating point, without infinities */
    BOPS_F8E5M2 = 11  /* OCP 8-bit floating point */
};

/* ---- rows ---------------------------------------------------------------- */

/* Element strides of the three outer extents of a tensor of rows: row r of `rows` is
 * (i0, i1, i2) = (r / (extent1 * extent2), r / extent2 % extent1, r % extent2), at i0 * s0 + i1 * s1 + i2 * s2.
 * The elements of one row are contiguous. */
typedef struct {
    uint64_t s0, s1, s2;
} bops_row_strides;

/* ---- activations ---------------------------------------------------------- */

typedef uint32_t bops_activation;
enum { BOPS_IDENTITY = 0, BOPS_RELU = 1, BOPS_GELU_ERF = 2, BOPS_GELU_TANH = 3, BOPS_SILU = 4, BOPS_SIGMOID = 5, BOPS_TANH = 6 };

/* ---- copy ----------------------------------------------------------------- */

bops_status bops_copy_prepare(void);
/* Both pointers are multiples of 16. The yardstick of the benchmarks: reads and writes once. */
bops_status bops_copy_launch(const void *from, void *to, uint64_t bytes, bops_stream stream);

#ifdef __cplusplus
}
#endif
#endif
