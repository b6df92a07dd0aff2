/* Projection of fields on { lower <= f <= upper, w . f = m } for one or several w.
 *
 * Compiled without contraction; sums run over 16 interleaved lanes whatever the instruction level,
 * so every level gives the same bits. */
#ifndef RK_BOUNDS_H
#define RK_BOUNDS_H
#include "rk_dispatch.h"

/* invariants that share movable cells, and all that go with bounds */
enum { RK_MOST_TOGETHER = 8, RK_MOST_BOUNDED = 64 };

/* w (q, M) the invariants, direction (q, M) >= 0: |w| / v, v the cell weights; 0 where a cell is only clipped. lower <=
 * upper (M), infinite where there is no bound, both the value of a cell that is constant. W (q, M), R (q, q) and
 * v (M), NULL for ones, as in rk_projection; fields need them of invariants that share cells, derivatives of all.
 * rk_bounds_prepare sets the others. uniform: w = direction = 1 and the bounds are those of the first cell, everywhere.
 * apart: each group of invariants that share movable cells is projected apart; else w is a single row >= 0, or NULL
 * without an invariant. group: of each invariant the first of its group; together: the size of the largest group. */
typedef struct {
    ptrdiff_t M, q;
    const double *w, *direction, *lower, *upper, *W, *R, *v;
    int uniform, apart, together;
    unsigned char group[RK_MOST_BOUNDED];
} rk_bounds;

/* 0 if there are too many invariants, or too many in a group */
static inline int rk_bounds_prepare(rk_bounds *b)
{
    const ptrdiff_t M = b->M;
    if (b->q > RK_MOST_BOUNDED)
        return 0;
    b->apart = b->q > 1, b->together = b->q > 0;
    for (ptrdiff_t j = 0; j < b->q; j++)
        b->group[j] = (unsigned char)j;
    for (ptrdiff_t i = 0; i < M; i++) {
        ptrdiff_t first = -1;
        for (ptrdiff_t j = 0; j < b->q; j++) {
            const double w = b->w[j * M + i];
            b->apart |= w < 0;
            if (w == 0 || !(b->lower[i] < b->upper[i]))
                continue;
            first = first < 0 ? b->group[j] : first;
            const int other = b->group[j];
            if (other != first) /* the two groups are one, which has the smaller name */
                for (ptrdiff_t k = 0; k < b->q; k++)
                    if (b->group[k] == other || b->group[k] == first)
                        b->group[k] = (unsigned char)(other < first ? other : first);
            first = b->group[j];
        }
    }
    for (ptrdiff_t j = 0; j < b->q; j++) {
        int size = 0;
        for (ptrdiff_t k = 0; k < b->q; k++)
            size += b->group[k] == j;
        b->together = size > b->together ? size : b->together;
    }
    b->uniform = b->w != NULL && !b->apart;
    for (ptrdiff_t i = 0; b->uniform && i < M; i++)
        b->uniform = b->w[i] == 1 && b->direction[i] == 1 && b->lower[i] == b->lower[0]
                     && b->upper[i] == b->upper[0];
    return b->together <= RK_MOST_TOGETHER;
}

/* The status of a row. */
enum rk_row_status { RK_ROW_PROJECTED = 0, RK_NOT_FINITE, RK_NO_CONVERGENCE };

typedef struct {
    /* doubles of work that `row` needs */
    ptrdiff_t (*workspace)(const rk_bounds *bounds);
    /* The nearest field to f (M) in the norm weighted by v, in place: within the bounds, and
     * |w . f - m| <= 64 eps (|w| . |f| + |m|) for each w and its m. RK_NOT_FINITE if f is not finite or too large for
     * it, RK_NO_CONVERGENCE where no field that satisfies all is found, or there is none. */
    enum rk_row_status (*row)(const rk_bounds *bounds, const double *m, double *f, double *work);
} rk_bounds_table;
RK_TABLES(bounds)

#endif
