/* The C ABI of the CUDA kernels of systems of equations and of factors of matrices; the rules of bops.h hold here. */
#ifndef BOPS_LINALG_H
#define BOPS_LINALG_H
#include "bops_pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a batch of matrices lies. */
typedef struct {
    bops_walked matrices;
    uint64_t row, column; /* from row to row, and from column to column */
} bops_linalg_side;

/* ---- triangular systems ----------------------------------------------------- */

/* Systems that a block solves, and rows of a block of the matrix. */
enum { BOPS_TRIANGULAR_SOLVE_TILE = 32 };

/* `T Y = alpha C`, T lower triangular. The walk is that of the matrices, one to an access. */
typedef struct {
    bops_walk walk;
    bops_linalg_side a, b, x;
    uint64_t n, systems, panels; /* panels: blocks of a matrix */
    uint64_t groups;             /* all blocks */
    double alpha;
    uint32_t is_reversed; /* whether row i is the ith from the last, and likewise the columns of T */
    uint32_t is_unit;     /* whether the diagonal is 1 */
} bops_triangular_solve_params;

typedef struct {
    const void *a, *b;
    void *x; /* may be b */
} bops_triangular_solve_operands;

/* Specialised for the type: BOPS_F32 or BOPS_F64. There is nothing to choose, and no workspace. */
BOPS_FORM(bops_triangular_solve, bops_dtype, bops_triangular_solve_params, uint32_t, bops_triangular_solve_operands)

/* ---- Cholesky factors ------------------------------------------------------- */

/* Rows and columns of a tile. */
enum { BOPS_CHOLESKY_TILE = 32 };

/* `A = L L^T`. The walk is that of the matrices, one to an access. */
typedef struct {
    bops_walk walk;
    bops_linalg_side a, factor;
    bops_walked info;
    uint64_t n;
    uint64_t groups; /* matrices */
} bops_cholesky_params;

typedef struct {
    const void *a;
    void *factor;
    int32_t *info; /* null if it is not asked for */
} bops_cholesky_operands;

/* Specialised for the type: BOPS_F32 or BOPS_F64. There is nothing to choose, and no workspace. */
BOPS_FORM(bops_cholesky, bops_dtype, bops_cholesky_params, uint32_t, bops_cholesky_operands)

#ifdef __cplusplus
}
#endif
#endif
