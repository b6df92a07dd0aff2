/* Orthogonal projection of decoded fields on their affine invariants, with compensated sums.
 *
 * Compiled without contraction; sums run over 16 interleaved lanes whatever the instruction level,
 * so every level gives the same bits. */
#ifndef RK_PROJECTION_H
#define RK_PROJECTION_H
#include "rk_dispatch.h"

/* C (q, M) one invariant a row, values m (q); directions W (q, M) = Q^T V^-1/2, zero on the
 * constant cells; triangle R (q, q) upper: C V^-1/2 = R^T Q^T on the other cells. index/value (n_constant):
 * the constant cells. */
typedef struct {
    ptrdiff_t M, q, n_constant;
    const double *C, *m, *W, *R;
    const ptrdiff_t *index;
    const double *value;
} rk_projection;

typedef struct {
    /* For n fields f (n, M) with row stride ld, in place: constants assigned, then projected until
     * |C f - m| <= 2 eps (|C| |f| + |m|) or four times. work: q doubles. Returns the first row
     * whose C f is not finite, which cannot be projected, -1 without one. */
    ptrdiff_t (*project)(const rk_projection *projection, double *f, ptrdiff_t n, ptrdiff_t ld,
                         double *work);
    /* value[j] = C_j . f, as if in twice the precision, scale[j] = |C_j| . |f| */
    void (*dots)(const double *C, ptrdiff_t q, ptrdiff_t M, const double *f, double *value,
                 double *scale);
} rk_projection_table;
RK_TABLES(projection)

#endif
