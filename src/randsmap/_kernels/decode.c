#include "rk_decode.h"

/* out += z[0:8] A[0:8, :] */
static inline void eight_rows(const double *z, const double *A, ptrdiff_t M, double *restrict out)
{
    const double *restrict a0 = A, *restrict a1 = A + M, *restrict a2 = A + 2 * M,
                 *restrict a3 = A + 3 * M, *restrict a4 = A + 4 * M, *restrict a5 = A + 5 * M,
                 *restrict a6 = A + 6 * M, *restrict a7 = A + 7 * M;
    const double z0 = z[0], z1 = z[1], z2 = z[2], z3 = z[3], z4 = z[4], z5 = z[5], z6 = z[6],
                 z7 = z[7];
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

static void rows(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const double *A,
                 ptrdiff_t M, double *out)
{
    ptrdiff_t k = 0;
    /* Eight rows of A a pass over `out`: its loads and stores vanish beside the read of A. Only the
     * first latent point waits for memory, the others find the eight rows in cache. */
    for (; k + 8 <= K; k += 8)
        for (ptrdiff_t i = 0; i < n; i++)
            eight_rows(Z + i * ldz + k, A + k * M, M, out + i * M);
    for (; k < K; k++)
        for (ptrdiff_t i = 0; i < n; i++) {
            double *restrict f = out + i * M;
            for (ptrdiff_t j = 0; j < M; j++)
                f[j] += Z[i * ldz + k] * A[k * M + j];
        }
}

const rk_decode_table RK_TABLE(decode) = {.rows = rows};
