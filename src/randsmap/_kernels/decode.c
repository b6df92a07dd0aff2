#include "rk_decode.h"

/* Columns at a time: those of eight rows of A stay in the second cache for all the points, and are read ahead. */
enum { COLUMNS = 1024, FLOATS = 512 };

#define DEFINE(single, real)                                                                       \
    /* out[:n] += z[0:8] A[0:8, :n], rows of A apart by M */                                       \
    static inline void eight_rows##single(const double *z, const real *A, ptrdiff_t M,             \
                                          ptrdiff_t n, double *restrict out)                       \
    {                                                                                              \
        const real *restrict a0 = A, *restrict a1 = A + M, *restrict a2 = A + 2 * M,               \
                   *restrict a3 = A + 3 * M, *restrict a4 = A + 4 * M, *restrict a5 = A + 5 * M,   \
                   *restrict a6 = A + 6 * M, *restrict a7 = A + 7 * M;                             \
        const double z0 = z[0], z1 = z[1], z2 = z[2], z3 = z[3], z4 = z[4], z5 = z[5], z6 = z[6],  \
                     z7 = z[7];                                                                    \
        _Pragma("omp simd")                                                                        \
        for (ptrdiff_t j = 0; j < n; j++) {                                                        \
            double s = out[j] + z0 * a0[j], t = z1 * a1[j];                                        \
            s += z2 * a2[j];                                                                       \
            t += z3 * a3[j];                                                                       \
            s += z4 * a4[j];                                                                       \
            t += z5 * a5[j];                                                                       \
            s += z6 * a6[j];                                                                       \
            t += z7 * a7[j];                                                                       \
            out[j] = s + t;                                                                        \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static inline void one_row##single(double z, const real *restrict a, ptrdiff_t M,              \
                                       double *restrict out)                                       \
    {                                                                                              \
        for (ptrdiff_t j = 0; j < M; j++)                                                          \
            out[j] += z * a[j];                                                                    \
    }                                                                                              \
                                                                                                   \
    /* Eight rows of A a pass over `out`: its loads and stores vanish beside the read of A. Only   \
     * the first latent point waits for memory, the others find the eight rows in cache. */        \
    static void rows_to##single(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K,          \
                                const real *A, ptrdiff_t M, double *const *out)                    \
    {                                                                                              \
        ptrdiff_t k = 0;                                                                           \
        const ptrdiff_t step = n > 1 ? COLUMNS : M;                                                \
        for (; k + 8 <= K; k += 8)                                                                 \
            for (ptrdiff_t j = 0; j < M; j += step)                                                \
                for (ptrdiff_t i = 0; i < n; i++)                                                  \
                    eight_rows##single(Z + i * ldz + k, A + k * M + j, M,                          \
                                       M - j < step ? M - j : step, out[i] + j);                   \
        for (; k < K; k++)                                                                         \
            for (ptrdiff_t i = 0; i < n; i++)                                                      \
                one_row##single(Z[i * ldz + k], A + k * M, M, out[i]);                             \
    }                                                                                              \
                                                                                                   \
    /* Four rows of A a pass over u: a sum alone waits for its own additions. */                   \
    static void adjoint##single(const real *restrict A, ptrdiff_t K, ptrdiff_t M,                  \
                                const double *restrict u, double *restrict out)                    \
    {                                                                                              \
        ptrdiff_t k = 0;                                                                           \
        for (; k + 4 <= K; k += 4) {                                                               \
            const real *restrict a = A + k * M, *restrict b = a + M, *restrict c = b + M, *restrict d = c + M; \
            double s = 0, t = 0, v = 0, w = 0;                                                     \
            _Pragma("omp simd reduction(+ : s, t, v, w)")                                          \
            for (ptrdiff_t j = 0; j < M; j++) {                                                    \
                s += a[j] * u[j], t += b[j] * u[j];                                                \
                v += c[j] * u[j], w += d[j] * u[j];                                                \
            }                                                                                      \
            out[k] = s, out[k + 1] = t, out[k + 2] = v, out[k + 3] = w;                            \
        }                                                                                          \
        for (; k < K; k++) {                                                                       \
            const real *restrict a = A + k * M;                                                    \
            double s = 0;                                                                          \
            _Pragma("omp simd reduction(+ : s)")                                                   \
            for (ptrdiff_t j = 0; j < M; j++)                                                      \
                s += a[j] * u[j];                                                                  \
            out[k] = s;                                                                            \
        }                                                                                          \
    }
DEFINE(, double)
DEFINE(_single, float)

/* As `rows_to_single`, with the same bits: rows of A become doubles once for all the points. */
static void rows_to_floats(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const float *A, ptrdiff_t M,
                           double *const *out)
{
    double block[8 * FLOATS], *to[RK_DECODE_FEW];
    ptrdiff_t k = 0;
    if (n < 3) {
        rows_to_single(Z, n, ldz, K, A, M, out);
        return;
    }
    for (; k + 8 <= K; k += 8)
        for (ptrdiff_t j = 0; j < M; j += FLOATS) {
            const ptrdiff_t some = M - j < FLOATS ? M - j : FLOATS;
            for (ptrdiff_t a = 0; a < 8; a++)
                for (ptrdiff_t i = 0; i < some; i++)
                    block[a * some + i] = A[(k + a) * M + j + i];
            for (ptrdiff_t i = 0; i < n; i++)
                to[i] = out[i] + j;
            rows_to(Z + k, n, ldz, 8, block, some, to);
        }
    rows_to_single(Z + k, n, ldz, K - k, A + k * M, M, out);
}

static void to_single(const double *restrict x, ptrdiff_t n, float *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = (float)x[i];
}

static void add_single(const float *restrict x, ptrdiff_t n, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] += x[i];
}

static double box_distance(const double *y, const double *weight, ptrdiff_t d, const double *low, const double *high,
                           ptrdiff_t n)
{
    double squares[RK_MOST_BOXES] = {0}, least;
    for (ptrdiff_t j = 0; j < d; j++) {
        const double x = y[j], w = weight[j], *restrict a = low + j * n, *restrict b = high + j * n;
#pragma omp simd
        for (ptrdiff_t k = 0; k < n; k++) {
            double below = a[k] - x, above = x - b[k];
            double out = below > above ? below : above;
            out = out > 0 ? w * out : 0;
            squares[k] += out * out;
        }
    }
    least = squares[0];
    for (ptrdiff_t k = 1; k < n; k++)
        least = squares[k] < least ? squares[k] : least;
    return least;
}

const rk_decode_table RK_TABLE(decode) = {.rows_to = rows_to, .rows_to_single = rows_to_floats,
    .adjoint = adjoint, .adjoint_single = adjoint_single,
    .to_single = to_single, .add_single = add_single, .box_distance = box_distance};
