#include "rk_projection.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 8
#elif defined(__AVX2__) && defined(__FMA__)
#define WIDTH 4
#else
#define WIDTH 2
#endif
enum { LANES = 16, VECTORS = LANES / WIDTH, MAX_PASSES = 4, BLOCK = 256 };
typedef double vec __attribute__((vector_size(8 * WIDTH)));
typedef int64_t ivec __attribute__((vector_size(8 * WIDTH)));

static inline vec load(const double *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline vec absolute(vec v)
{
    return (vec)((ivec)v & INT64_MAX);
}

/* a * b - p for p = fl(a * b), exactly (barring under- and overflow). */
static inline vec product_error(vec a, vec b, vec p)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)p);
#elif defined(__AVX2__) && defined(__FMA__)
    return (vec)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)p);
#else
    /* Dekker 1971: halves of 26 bits multiply without error */
    const double split = 134217729.0; /* 2^27 + 1 */
    vec ta = split * a, tb = split * b;
    vec ah = ta - (ta - a), bh = tb - (tb - b);
    vec al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

/* s + x = sum + error exactly (Knuth's two-sum). */
#define TWO_SUM(sum, error, s, x)                                                                  \
    do {                                                                                           \
        (sum) = (s) + (x);                                                                         \
        __typeof__(sum) z_ = (sum) - (s);                                                          \
        (error) = ((s) - ((sum) - z_)) + ((x) - z_);                                               \
    } while (0)

typedef struct {
    vec sum[VECTORS], low[VECTORS], size[VECTORS];
} lanes;

static inline void accumulate(lanes *a, const double *x, const double *y)
{
    for (int v = 0; v < VECTORS; v++) {
        vec xv = load(x + v * WIDTH), yv = load(y + v * WIDTH);
        vec p = xv * yv, e = product_error(xv, yv, p), s, d;
        TWO_SUM(s, d, a->sum[v], p);
        a->sum[v] = s;
        a->low[v] += e + d;
        a->size[v] += absolute(p);
    }
}

/* m - x . y with a dot product as if in twice the precision (Ogita, Rump & Oishi 2005, Dot2), and
 * |x| . |y|. */
static double residual(double m, const double *x, const double *y, ptrdiff_t n, double *size)
{
    lanes a;
    memset(&a, 0, sizeof a);
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        accumulate(&a, x + i, y + i);
    if (i < n) {
        double xt[LANES] = {0}, yt[LANES] = {0};
        memcpy(xt, x + i, (size_t)(n - i) * sizeof *x);
        memcpy(yt, y + i, (size_t)(n - i) * sizeof *y);
        accumulate(&a, xt, yt);
    }
    double sum = m, low = 0, total = 0;
    for (int v = 0; v < VECTORS; v++)
        for (int l = 0; l < WIDTH; l++) {
            double s, e;
            TWO_SUM(s, e, sum, -a.sum[v][l]);
            sum = s;
            low += e - a.low[v][l];
            total += a.size[v][l];
        }
    *size = total;
    return sum + low;
}

static void dots(const double *C, ptrdiff_t q, ptrdiff_t M, const double *f, double *value,
                 double *scale)
{
    for (ptrdiff_t j = 0; j < q; j++)
        value[j] = -residual(0.0, C + j * M, f, M, scale + j);
}

/* False if C f is not finite. */
static int project_row(const rk_projection *p, double *restrict f, double *restrict t)
{
    const ptrdiff_t q = p->q, M = p->M;
    for (ptrdiff_t k = 0; k < p->n_constant; k++)
        f[p->index[k]] = p->value[k];
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        int over = 0, finite = 1;
        for (ptrdiff_t j = 0; j < q; j++) {
            double size;
            t[j] = residual(p->m[j], p->C + j * M, f, M, &size);
            over |= fabs(t[j]) > 2 * DBL_EPSILON * (size + fabs(p->m[j]));
            finite &= fabs(t[j]) + size <= DBL_MAX;
        }
        if (!finite)
            return 0;
        if (!over)
            return 1;
        for (ptrdiff_t j = 0; j < q; j++) { /* R^T z = t */
            for (ptrdiff_t k = 0; k < j; k++)
                t[j] -= p->R[k * q + j] * t[k];
            t[j] /= p->R[j * q + j];
        }
        for (ptrdiff_t i = 0; i < M; i += BLOCK) {
            /* the whole correction of a cell is added at once: one rounding of f */
            double step[BLOCK];
            const ptrdiff_t n = M - i < BLOCK ? M - i : BLOCK;
            for (ptrdiff_t k = 0; k < n; k++)
                step[k] = t[0] * p->W[i + k];
            for (ptrdiff_t j = 1; j < q; j++)
                for (ptrdiff_t k = 0; k < n; k++)
                    step[k] += t[j] * p->W[j * M + i + k];
            for (ptrdiff_t k = 0; k < n; k++)
                f[i + k] += step[k];
        }
    }
    return 1;
}

static ptrdiff_t project(const rk_projection *p, double *f, ptrdiff_t n, ptrdiff_t ld, double *work)
{
    ptrdiff_t bad = -1;
    RK_ASSERT(ld >= p->M && p->q >= 0);
    for (ptrdiff_t i = 0; i < n; i++)
        if (!project_row(p, f + i * ld, work) && bad < 0)
            bad = i;
    return bad;
}

const rk_projection_table RK_TABLE(projection) = {.project = project, .dots = dots};
