#include "rk_decode.h"

static void row(const double *z, ptrdiff_t K, const double *A, ptrdiff_t M, double *restrict out)
{
    ptrdiff_t k = 0;
    /* eight rows of A a pass over `out`: its loads and stores vanish beside the read of A */
    for (; k + 8 <= K; k += 8, A += 8 * M) {
        const double *restrict a0 = A, *restrict a1 = A + M, *restrict a2 = A + 2 * M,
                     *restrict a3 = A + 3 * M, *restrict a4 = A + 4 * M, *restrict a5 = A + 5 * M,
                     *restrict a6 = A + 6 * M, *restrict a7 = A + 7 * M;
        const double z0 = z[k], z1 = z[k + 1], z2 = z[k + 2], z3 = z[k + 3], z4 = z[k + 4],
                     z5 = z[k + 5], z6 = z[k + 6], z7 = z[k + 7];
#pragma omp simd
        for (ptrdiff_t j = 0; j < M; j++) {
            double s = out[j] + z0 * a0[j], t = z1 * a1[j];
            s += z2 * a2[j];
            t += z3 * a3[j];
            s += z4 * a4[j];
            t += z5 * a5[j];
            s += z6 * a6[j];
            t += z7 * a7[j];
            out[j] = s + t;
        }
    }
    for (; k < K; k++, A += M)
        for (ptrdiff_t j = 0; j < M; j++)
            out[j] += z[k] * A[j];
}

const rk_decode_table RK_TABLE(decode) = {.row = row};
