#include "rk_distances.h"
#include "rk_vecmath_inline.h"

/* The GEMM form |x|^2 + |z|^2 - 2 x.z has an error of about u s, s = |x|^2 + |z|^2 of the centred
 * rows, whatever the distance. Below CANCELLED * s the distance is recomputed by differences, so the
 * relative error is at most about u / CANCELLED everywhere. */
#define CANCELLED 0x1p-9
/* What counts in the Gaussian kernel is the error u s / eps^2 of the exponent, so nothing is done
 * up to this value of s / eps^2 (2e-13), and beyond it only exponents above NEGLIGIBLE are redone:
 * smaller kernel values are below 4e-18. */
#define EXPONENT_SAFE 0x1p10
#define NEGLIGIBLE (-40.)
/* log(1e-300): smaller kernel values are set to 0, which keeps subnormal numbers out of products. */
#define FLUSH (-690.7755278982137)

#define UNROLL 32 /* columns whose sums stay in registers in the direct tile */

static void center(const double *restrict X, ptrdiff_t n, ptrdiff_t M, const double *restrict c,
                   double *restrict out, double *restrict norms)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *x = X + i * M;
        double *o = out + i * M;
        double s = 0;
        if (c) {
#pragma omp simd reduction(+ : s)
            for (ptrdiff_t k = 0; k < M; k++) {
                double d = x[k] - c[k];
                o[k] = d;
                s += d * d;
            }
        } else {
#pragma omp simd reduction(+ : s)
            for (ptrdiff_t k = 0; k < M; k++) {
                o[k] = x[k];
                s += x[k] * x[k];
            }
        }
        if (norms) norms[i] = s;
    }
}

static double direct_pair(const double *restrict x, const double *restrict z, ptrdiff_t M)
{
    /* four chains hide the latency of the addition */
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    ptrdiff_t k = 0, quarter = M / 4 & ~(ptrdiff_t) 7;
    if (quarter) {
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (k = 0; k < quarter; k++) {
            double d0 = x[k] - z[k], d1 = x[k + quarter] - z[k + quarter];
            double d2 = x[k + 2 * quarter] - z[k + 2 * quarter];
            double d3 = x[k + 3 * quarter] - z[k + 3 * quarter];
            s0 += d0 * d0;
            s1 += d1 * d1;
            s2 += d2 * d2;
            s3 += d3 * d3;
        }
        k = 4 * quarter;
    }
    double rest = 0;
    for (; k < M; k++) {
        double d = x[k] - z[k];
        rest += d * d;
    }
    return ((s0 + s1) + (s2 + s3)) + rest;
}

static void direct_rows(const double *X, ptrdiff_t m, const double *Z, ptrdiff_t n, ptrdiff_t M,
                        double *tile, ptrdiff_t ld)
{
    for (ptrdiff_t j = 0; j < n; j++) /* a row of Z serves all the rows of X */
        for (ptrdiff_t i = 0; i < m; i++)
            tile[i * ld + j] = direct_pair(X + i * M, Z + j * M, M);
}

static void direct(const double *restrict X, ptrdiff_t m, const double *restrict Z, ptrdiff_t n,
                   ptrdiff_t M, double *restrict block, double *restrict tile, ptrdiff_t ld)
{
    RK_ASSERT(ld % UNROLL == 0 && ld >= n);
    ptrdiff_t n_padded = (n + UNROLL - 1) / UNROLL * UNROLL;
    for (ptrdiff_t k = 0; k < M; k++) {
        for (ptrdiff_t j = 0; j < n; j++)
            block[k * ld + j] = Z[j * M + k];
        for (ptrdiff_t j = n; j < n_padded; j++)
            block[k * ld + j] = 0;
    }
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t j0 = 0; j0 < n_padded; j0 += UNROLL) {
            double sum[UNROLL] = {0};
            for (ptrdiff_t k = 0; k < M; k++) {
                double x = X[i * M + k];
                const double *z = block + k * ld + j0;
#pragma omp simd
                for (int j = 0; j < UNROLL; j++) {
                    double d = x - z[j];
                    sum[j] += d * d;
                }
            }
#pragma omp simd
            for (int j = 0; j < UNROLL; j++)
                tile[i * ld + j0 + j] = sum[j];
        }
}

static void distances(double *restrict tile, ptrdiff_t ld, const double *X, ptrdiff_t m,
                      const double *Z, ptrdiff_t n, ptrdiff_t M, const double *restrict nx,
                      const double *restrict nz)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        double *restrict row = tile + i * ld;
        double a = nx[i];
        int cancelled = 0;
#pragma omp simd reduction(| : cancelled)
        for (ptrdiff_t j = 0; j < n; j++) {
            double s = a + nz[j], d = s - 2 * row[j];
            int bad = !(d >= CANCELLED * s && d <= 1.7976931348623157e308); /* NaN, inf too */
            cancelled |= bad;
            row[j] = bad ? -1 : d;
        }
        if (cancelled)
            for (ptrdiff_t j = 0; j < n; j++)
                if (row[j] < 0) row[j] = direct_pair(X + i * M, Z + j * M, M);
    }
}

static inline double kernel_value(double e)
{
    double k = rk_exp_clamped(e < FLUSH ? FLUSH : e);
    return e < FLUSH ? 0 : k;
}

static void gaussian(double *restrict tile, ptrdiff_t ld, const double *X, ptrdiff_t m,
                     const double *Z, ptrdiff_t n, ptrdiff_t M, const double *restrict nx,
                     const double *restrict nz, double nz_max, double scale)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        double *restrict row = tile + i * ld;
        double a = nx[i], twice = 2 * scale;
        if ((a + nz_max) * scale <= EXPONENT_SAFE) {
#pragma omp simd
            for (ptrdiff_t j = 0; j < n; j++) {
                double e = twice * row[j] - (a + nz[j]) * scale;
                row[j] = kernel_value(e < 0 ? e : 0);
            }
            continue;
        }
        for (ptrdiff_t j = 0; j < n; j++) {
            double s = a + nz[j], e = (2 * row[j] - s) * scale;
            /* written so that NaN, from overflow, is recomputed too */
            int bad = !(s * scale <= EXPONENT_SAFE) && !(e <= NEGLIGIBLE);
            row[j] = bad ? 1 : (e < 0 ? e : 0);
        }
        for (ptrdiff_t j = 0; j < n; j++)
            if (row[j] > 0) row[j] = -direct_pair(X + i * M, Z + j * M, M) * scale;
#pragma omp simd
        for (ptrdiff_t j = 0; j < n; j++)
            row[j] = kernel_value(row[j]);
    }
}

static void gaussian_of(double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n, double scale)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        double *restrict row = tile + i * ld;
#pragma omp simd
        for (ptrdiff_t j = 0; j < n; j++)
            row[j] = kernel_value(-row[j] * scale);
    }
}

static void reflect(double *tile, ptrdiff_t ld, ptrdiff_t n, double diagonal)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        tile[i * ld + i] = diagonal;
        for (ptrdiff_t j = i + 1; j < n; j++)
            tile[j * ld + i] = tile[i * ld + j];
    }
}

#define STORE(name, real)                                                                          \
    static void name(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,          \
                     real *restrict out, ptrdiff_t ldo)                                            \
    {                                                                                              \
        for (ptrdiff_t i = 0; i < m; i++)                                                          \
            for (ptrdiff_t j = 0; j < n; j++)                                                      \
                out[i * ldo + j] = (real) tile[i * ld + j];                                        \
    }
STORE(store, double)
STORE(store_f, float)

/* Blocks of 8 x 8: a cache line of each of 8 rows in, a cache line of each of 8 rows out. */
#define STORE_T(name, real)                                                                        \
    static void name(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,          \
                     real *restrict out_t, ptrdiff_t ldo)                                          \
    {                                                                                              \
        ptrdiff_t i = 0;                                                                           \
        for (; i + 8 <= m; i += 8)                                                                 \
            for (ptrdiff_t j = 0; j < n; j++) {                                                    \
                const double *t = tile + i * ld + j;                                               \
                real *o = out_t + j * ldo + i;                                                     \
                o[0] = (real) t[0], o[1] = (real) t[ld];                                           \
                o[2] = (real) t[2 * ld], o[3] = (real) t[3 * ld];                                  \
                o[4] = (real) t[4 * ld], o[5] = (real) t[5 * ld];                                  \
                o[6] = (real) t[6 * ld], o[7] = (real) t[7 * ld];                                  \
            }                                                                                      \
        for (; i < m; i++)                                                                         \
            for (ptrdiff_t j = 0; j < n; j++)                                                      \
                out_t[j * ldo + i] = (real) tile[i * ld + j];                                      \
    }
STORE_T(store_t, double)
STORE_T(store_t_f, float)

static void weighted_sums(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                          const double *restrict W, ptrdiff_t ldw, ptrdiff_t q,
                          double *restrict sums)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        const double *restrict k = tile + i * ld;
        ptrdiff_t p = 0;
        for (; p + 4 <= q; p += 4) {
            const double *w0 = W + p * ldw, *w1 = w0 + ldw, *w2 = w1 + ldw, *w3 = w2 + ldw;
            double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
            for (ptrdiff_t j = 0; j < n; j++) {
                s0 += k[j] * w0[j];
                s1 += k[j] * w1[j];
                s2 += k[j] * w2[j];
                s3 += k[j] * w3[j];
            }
            sums[i * q + p] += s0;
            sums[i * q + p + 1] += s1;
            sums[i * q + p + 2] += s2;
            sums[i * q + p + 3] += s3;
        }
        for (; p < q; p++) {
            const double *w = W + p * ldw;
            double s = 0;
#pragma omp simd reduction(+ : s)
            for (ptrdiff_t j = 0; j < n; j++)
                s += k[j] * w[j];
            sums[i * q + p] += s;
        }
    }
}

static void bracket(const double *restrict D, ptrdiff_t n, ptrdiff_t i0, ptrdiff_t i1, double lo,
                    double hi, double *restrict inside, ptrdiff_t capacity, ptrdiff_t *n_below,
                    ptrdiff_t *n_inside)
{
    ptrdiff_t below = 0, kept = 0, last = capacity - 1;
    for (ptrdiff_t i = i0; i < i1; i++) {
        const double *row = D + i * n;
        ptrdiff_t b = 0;
#pragma omp simd reduction(+ : b)
        for (ptrdiff_t j = i + 1; j < n; j++)
            b += row[j] < lo;
        below += b;
        for (ptrdiff_t j = i + 1; j < n; j++) { /* no branch to mispredict: store, then keep or not */
            inside[kept < last ? kept : last] = row[j];
            kept += (row[j] >= lo) & (row[j] <= hi);
        }
    }
    *n_below = below;
    *n_inside = kept;
}

const rk_distances_table RK_TABLE(distances) = {
    .center = center,
    .direct = direct,
    .direct_rows = direct_rows,
    .distances = distances,
    .gaussian = gaussian,
    .gaussian_of = gaussian_of,
    .reflect = reflect,
    .store = store,
    .store_f = store_f,
    .store_t = store_t,
    .store_t_f = store_t_f,
    .weighted_sums = weighted_sums,
    .bracket = bracket,
};
