#include "rk_gradients.h"
#include <string.h>

/* Features per block: their data stay in the first-level cache. */
enum { TILE = 512 };

RK_INLINE ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

/* t += c z */
RK_INLINE void add_multiple(double c, const double *restrict z, ptrdiff_t m, double *restrict t)
{
#pragma omp simd
    for (ptrdiff_t k = 0; k < m; k++)
        t[k] += c * z[k];
}

/* One function per kernel, called through a table: inlined they are slower. */
#define DEFINE(name)                                                                               \
    static void slope_row_##name(const double *restrict t, ptrdiff_t m, double scale,              \
                                 double *restrict s)                                               \
    {                                                                                              \
        rk_activation_row(RK_##name, 1, t, m, scale, s);                                           \
    }
RK_FOR_ACTIVATIONS(DEFINE)
#define ENTRY(name) slope_row_##name,
static void (*const slope_rows[])(const double *restrict, ptrdiff_t, double, double *restrict) = {
    RK_FOR_ACTIVATIONS(ENTRY)};

static void slopes(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                   const double *b, ptrdiff_t P, double scale, double *S)
{
    double t[TILE];
    for (ptrdiff_t k = 0; k < P; k += TILE) {
        const ptrdiff_t m = smaller(TILE, P - k);
        for (ptrdiff_t i = 0; i < n; i++) {
            memcpy(t, b + k, (size_t) m * sizeof *t);
            for (ptrdiff_t j = 0; j < d; j++)
                add_multiple(Y[i * d + j], W + j * P + k, m, t);
            slope_rows[activation](t, m, scale, S + i * P + k);
        }
    }
}

/* g = s z, or s (x - z): 0 where s is, however far away x. */
RK_INLINE void gradient(const double *restrict s, const double *x, const double *restrict z,
                        ptrdiff_t m, double *restrict g)
{
    if (!x) {
#pragma omp simd
        for (ptrdiff_t k = 0; k < m; k++)
            g[k] = s[k] * z[k];
        return;
    }
    const double c = *x;
#pragma omp simd
    for (ptrdiff_t k = 0; k < m; k++) {
        double v = s[k] * (c - z[k]);
        g[k] = s[k] == 0 ? 0 : v;
    }
}

static void directional(const double *S, const double *X, const double *Z, const double *V,
                        ptrdiff_t n, ptrdiff_t d, ptrdiff_t P, double *out)
{
    double t[TILE];
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t k = 0; k < P; k += TILE) {
            const ptrdiff_t m = smaller(TILE, P - k);
            const double *s = S + i * P + k;
            double *o = out + i * P + k; /* out may be s */
            memset(t, 0, (size_t) m * sizeof *t);
            for (ptrdiff_t j = 0; j < d; j++) {
                const double v = V[i * d + j], *restrict z = Z + j * P + k;
                if (v == 0) /* most of a coordinate's direction */
                    continue;
                if (X) {
                    const double x = X[i * d + j];
#pragma omp simd
                    for (ptrdiff_t l = 0; l < m; l++)
                        t[l] += v * (x - z[l]);
                } else {
                    add_multiple(v, z, m, t);
                }
            }
#pragma omp simd
            for (ptrdiff_t l = 0; l < m; l++) {
                double product = s[l] * t[l];
                o[l] = s[l] == 0 ? 0 : product;
            }
        }
}

static void contract(const double *S, const double *X, const double *Z, const double *H,
                     ptrdiff_t n, ptrdiff_t d, ptrdiff_t P, double *out)
{
    double g[TILE], t[TILE];
    for (ptrdiff_t i = 0; i < n; i++) {
        for (ptrdiff_t j = 0; j < d; j++)
            out[i * d + j] = 0;
        for (ptrdiff_t k = 0; k < P; k += TILE) {
            const ptrdiff_t m = smaller(TILE, P - k);
            const double *restrict s = S + i * P + k, *restrict h = H + i * P + k;
#pragma omp simd
            for (ptrdiff_t l = 0; l < m; l++)
                g[l] = s[l] * h[l];
            for (ptrdiff_t j = 0; j < d; j++) {
                double sum = 0;
                gradient(g, X ? X + i * d + j : NULL, Z + j * P + k, m, t);
#pragma omp simd reduction(+ : sum)
                for (ptrdiff_t l = 0; l < m; l++)
                    sum += t[l];
                out[i * d + j] += sum;
            }
        }
    }
}

const rk_gradients_table RK_TABLE(gradients) = {
    .slopes = slopes, .directional = directional, .contract = contract};
