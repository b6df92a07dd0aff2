/* The geometric median of fields that are kept near another one, and the nearest of some points, a point at a time. */
#ifndef RK_BLEND_H
#define RK_BLEND_H
#include "rk_dispatch.h"

typedef struct {
    /* place (k): the rows of X (n, d) that are nearest to y (d), by distance2 (k), their squared distances, then by
     * `order` (n). Rows are sorted by their first coordinate; a sum of squares has the order of rk_neighbors.h. */
    void (*nearest)(const double *X, const int64_t *order, ptrdiff_t n, ptrdiff_t d, const double *y, ptrdiff_t k,
                    double *distance2, ptrdiff_t *place);
    /* The same of rows in any order, wide or narrow, then by their place: of coordinates that exclude none. */
    void (*nearest_rows)(const double *wide, const float *narrow, ptrdiff_t n, ptrdiff_t d, const double *y,
                         ptrdiff_t k, double *distance2, ptrdiff_t *place);
    /* x (r) minimises the sum of distances sqrt(|x - p|^2 + smoothing^2) from K fields p, part k at P + k stride. These
     * are moved before to the distance `limit` from `near` (r) if they are further; NULL: no limit. `state` has
     * state_size doubles, which `push` and `pull` read. x is NaN where a distance overflows. */
    void (*median)(double *P, ptrdiff_t stride, ptrdiff_t K, ptrdiff_t r, const double *near, double limit,
                   double smoothing, double *x, double *state);
    /* out (r): the derivative of x as the fields move by T, part k at T + k stride, and `near` by `towards` */
    void (*push)(double *state, const double *T, ptrdiff_t stride, ptrdiff_t K, ptrdiff_t r, const double *towards,
                 double smoothing, double *out);
    /* The transpose: of g (r) the gradients S, part k at S + k stride, and that in `near`, `back` (r) */
    void (*pull)(double *state, const double *g, ptrdiff_t K, ptrdiff_t r, double smoothing, double *S,
                 ptrdiff_t stride, double *back);
    ptrdiff_t (*state_size)(ptrdiff_t K, ptrdiff_t r);
} rk_blend_table;
RK_TABLES(blend)

#endif
