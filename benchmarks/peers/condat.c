/* L. Condat, Fast projection onto the simplex and the l1 ball, Math. Program. 158 (2016), the
 * algorithm proposed there (Fig. 2 / Sec. 3): x (n rows of M) = projection of y on
 * { x >= 0, sum x = a }. `work` is for 2 M doubles. A peer of the comparison, not part of the package. */
#include <stddef.h>

static void one(const double *y, double *x, ptrdiff_t M, double a, double *work)
{
    double *v = work, *waiting = work + M, rho = y[0] - a;
    ptrdiff_t n = 1, n_waiting = 0, before;
    v[0] = y[0];
    for (ptrdiff_t i = 1; i < M; i++) {
        if (!(y[i] > rho))
            continue;
        rho += (y[i] - rho) / (double)(n + 1);
        if (!(rho > y[i] - a)) {
            for (ptrdiff_t k = 0; k < n; k++)
                waiting[n_waiting++] = v[k];
            n = 0;
            rho = y[i] - a;
        }
        v[n++] = y[i];
    }
    for (ptrdiff_t k = 0; k < n_waiting; k++)
        if (waiting[k] > rho) {
            v[n++] = waiting[k];
            rho += (waiting[k] - rho) / (double)n;
        }
    do {
        ptrdiff_t kept = 0, left = n;
        before = n;
        for (ptrdiff_t k = 0; k < n; k++)
            if (v[k] > rho)
                v[kept++] = v[k];
            else
                rho += (rho - v[k]) / (double)--left;
        n = kept;
    } while (n != before && n > 0);
    for (ptrdiff_t i = 0; i < M; i++)
        x[i] = y[i] > rho ? y[i] - rho : 0;
}

void condat(const double *y, double *x, ptrdiff_t n, ptrdiff_t M, double a, double *work)
{
    for (ptrdiff_t i = 0; i < n; i++)
        one(y + i * M, x + i * M, M, a, work);
}
