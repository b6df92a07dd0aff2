/* Orthogonal projection of decoded fields on their affine invariants, with compensated sums.
 *
 * Compiled without contraction; sums run over 16 interleaved lanes whatever the instruction level,
 * so every level gives the same bits. */
#ifndef RK_PROJECTION_H
#define RK_PROJECTION_H
#include "rk_bounds.h"

/* C (q, M) one invariant a row, values m (q); directions W (q, M) = Q^T V^-1/2, zero on the
 * constant cells; triangle R (q, q) upper: C V^-1/2 = R^T Q^T on the other cells. index/value (n_constant):
 * the constant cells. bounds: NULL, or bounds of the fields, which have C, W and R too. weights (M): V, NULL for the
 * identity; `pull` alone reads it. */
typedef struct {
    ptrdiff_t M, q, n_constant;
    const double *C, *m, *W, *R;
    const ptrdiff_t *index;
    const double *value;
    const rk_bounds *bounds;
    const double *weights;
} rk_projection;

typedef struct {
    /* doubles of work that `project`, `push` and `pull` need */
    ptrdiff_t (*workspace)(const rk_projection *projection);
    /* For n fields f (n, M) with row stride ld, in place: constants assigned, then projected until
     * |C f - m| <= 2 eps (|C| |f| + |m|) or four times; with bounds as `rk_bounds_table.row` does.
     * m is row i of values (n, q), or with NULL the projection's m. Returns -1, or the first row
     * that cannot be projected: its number i where C f is not finite, -2 - i where the passes do not
     * converge (invariants that are nearly dependent) or no field within the bounds is found. */
    ptrdiff_t (*project)(const rk_projection *projection, const double *values, double *f,
                         ptrdiff_t n, ptrdiff_t ld, double *work);
    /* The derivative of `project` at its result f (M), of a tangent g (M), in place: C g = 0, and 0 on the
     * constant cells and on those at their bounds. Returns as `project` does for one row. */
    ptrdiff_t (*push)(const rk_projection *projection, const double *f, double *g, double *work);
    /* Its transpose; f is read with bounds only. */
    void (*pull)(const rk_projection *projection, const double *f, double *u, double *work);
    /* value[j] = C_j . f, as if in twice the precision, scale[j] = |C_j| . |f| */
    void (*dots)(const double *C, ptrdiff_t q, ptrdiff_t M, const double *f, double *value,
                 double *scale);
} rk_projection_table;
RK_TABLES(projection)

#endif
