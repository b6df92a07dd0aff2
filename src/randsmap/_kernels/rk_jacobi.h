#ifndef RK_JACOBI_H
#define RK_JACOBI_H
#include <float.h>
#include <math.h>
#include <stddef.h>

/* One-sided Jacobi: rotates the d columns of the rows x d matrix B until those of its first m rows
 * are orthogonal; square[c] are their squared norms. */
static inline void rk_orthogonalise(double *B, ptrdiff_t m, ptrdiff_t rows, ptrdiff_t d, double *square)
{
    for (int sweep = 0, turned = 1; turned && sweep < 30; sweep++) {
        turned = 0;
        for (ptrdiff_t p = 0; p + 1 < d; p++)
            for (ptrdiff_t q = p + 1; q < d; q++) {
                double a = 0, b = 0, c = 0;
                for (ptrdiff_t i = 0; i < m; i++) {
                    double x = B[i * d + p], y = B[i * d + q];
                    a += x * x, b += y * y, c += x * y;
                }
                if (!(fabs(c) > 4 * DBL_EPSILON * sqrt(a) * sqrt(b)))
                    continue;
                turned = 1;
                double z = (b - a) / (2 * c);
                double t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z));
                double cs = 1 / sqrt(1 + t * t), sn = cs * t;
                for (ptrdiff_t i = 0; i < rows; i++) {
                    double x = B[i * d + p], y = B[i * d + q];
                    B[i * d + p] = cs * x - sn * y;
                    B[i * d + q] = sn * x + cs * y;
                }
            }
    }
    for (ptrdiff_t c = 0; c < d; c++) {
        square[c] = 0;
        for (ptrdiff_t i = 0; i < m; i++)
            square[c] += B[i * d + c] * B[i * d + c];
    }
}

#endif
