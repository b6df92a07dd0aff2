/* B-splines of degree 7 on a uniform grid: tables of frozen decoders. */
#ifndef RK_SPLINE_H
#define RK_SPLINE_H

enum { RK_SPLINE_DEGREE = 7, RK_SPLINE_ORDER = RK_SPLINE_DEGREE + 1 };
/* Cells at each end of the grid that no point is looked up in: there the conditions at the ends are significant. */
enum { RK_TABLE_MARGIN = 3 };

/* The splines that are not 0 in a cell at its point u in [0, 1], and their derivatives in u, by de Boor's recurrence:
 * value and slope (RK_SPLINE_ORDER). */
static inline void rk_spline_weights(double u, double *value, double *slope)
{
    value[0] = 1;
    for (int k = 1; k <= RK_SPLINE_DEGREE; k++) {
        double saved = 0;
        if (k == RK_SPLINE_DEGREE) /* differences of the splines of one degree less */
            for (int j = 0; j <= k; j++)
                slope[j] = (j > 0 ? value[j - 1] : 0) - (j < k ? value[j] : 0);
        for (int j = 0; j < k; j++) {
            const double share = value[j] / k;
            value[j] = saved + (j + 1 - u) * share;
            saved = (u + (k - 1 - j)) * share;
        }
        value[k] = saved;
    }
}

#endif
