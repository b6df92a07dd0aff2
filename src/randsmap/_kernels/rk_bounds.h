/* Projection of fields on { lower <= f <= upper, w . f = m }.
 *
 * Compiled without contraction; sums run over 16 interleaved lanes whatever the instruction level,
 * so every level gives the same bits. */
#ifndef RK_BOUNDS_H
#define RK_BOUNDS_H
#include "rk_dispatch.h"

/* w (M) the invariant, direction (M) >= 0: w / v, v the cell weights; 0 where a cell is only
 * clipped. w is NULL without an invariant. lower <= upper (M), infinite where there is no bound, both
 * the value of a cell that is constant. uniform: w = direction = 1 and the bounds are those of the
 * first cell, everywhere. */
typedef struct {
    ptrdiff_t M;
    const double *w, *direction, *lower, *upper;
    int uniform;
} rk_bounds;

static inline int rk_bounds_are_uniform(const rk_bounds *b)
{
    int uniform = b->w != NULL;
    for (ptrdiff_t i = 0; uniform && i < b->M; i++)
        uniform = b->w[i] == 1 && b->direction[i] == 1 && b->lower[i] == b->lower[0]
                  && b->upper[i] == b->upper[0];
    return uniform;
}

/* What became of a row. */
enum rk_row_status { RK_ROW_PROJECTED = 0, RK_NOT_FINITE, RK_NO_CONVERGENCE };

typedef struct {
    /* doubles of work that `row` needs */
    ptrdiff_t (*workspace)(const rk_bounds *bounds);
    /* The nearest field to f (M) in the norm weighted by v, in place: within the bounds, and
     * |w . f - m| <= 64 eps (|w| . |f| + |m|). RK_NOT_FINITE if f is not finite or too large for it,
     * RK_NO_CONVERGENCE where no field that satisfies both is found, or there is none. */
    enum rk_row_status (*row)(const rk_bounds *bounds, double m, double *f, double *work);
} rk_bounds_table;
RK_TABLES(bounds)

#endif
