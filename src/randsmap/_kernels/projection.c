#include "rk_projection.h"
#include "rk_simd.h"
#include <float.h>

/* FAR: a residual of so many eps after the last pass is no round-off. */
enum { MAX_PASSES = 4, FAR = 32, BLOCK = 256 };
#define NOTHING 0x1p-80 /* second-order round-off */

typedef struct {
    rk_vec sum[RK_SUM_VECTORS], low[RK_SUM_VECTORS], size[RK_SUM_VECTORS];
} sums;

static inline void accumulate(sums *a, const double *x, const double *y)
{
    for (int v = 0; v < RK_SUM_VECTORS; v++) {
        rk_vec xv = v_load(x + v * RK_WIDTH), yv = v_load(y + v * RK_WIDTH);
        rk_vec p = xv * yv, e = v_product_error(xv, yv, p), s, d;
        RK_TWO_SUM(s, d, a->sum[v], p);
        a->sum[v] = s;
        a->low[v] += e + d;
        a->size[v] += v_abs(p);
    }
}

/* m - x . y with a dot product as if in twice the precision (Ogita, Rump & Oishi 2005, Dot2), and
 * |x| . |y|. */
static double residual(double m, const double *x, const double *y, ptrdiff_t n, double *size)
{
    sums a;
    memset(&a, 0, sizeof a);
    ptrdiff_t i = 0;
    for (; i + RK_SUM_LANES <= n; i += RK_SUM_LANES)
        accumulate(&a, x + i, y + i);
    if (i < n) {
        double xt[RK_SUM_LANES] = {0}, yt[RK_SUM_LANES] = {0};
        memcpy(xt, x + i, (size_t)(n - i) * sizeof *x);
        memcpy(yt, y + i, (size_t)(n - i) * sizeof *y);
        accumulate(&a, xt, yt);
    }
    double sum = m, low = 0, total = 0;
    for (int v = 0; v < RK_SUM_VECTORS; v++)
        for (int l = 0; l < RK_WIDTH; l++) {
            double s, e;
            RK_TWO_SUM(s, e, sum, -v_lane(a.sum[v], l));
            sum = s;
            low += e - v_lane(a.low[v], l);
            total += v_lane(a.size[v], l);
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

/* Cells that the invariants determine to be 0 never are in numbers of which each pass leaves the round-off: what is
 * nothing beside the terms |C_j| . |f| that there were (q) is 0. */
static void settle(const rk_projection *p, const double *terms, double *f)
{
    for (ptrdiff_t i = 0; i < p->M; i++) {
        int movable = 0, nothing = 1; /* constant cells are not */
        for (ptrdiff_t j = 0; j < p->q; j++) {
            movable |= p->W[j * p->M + i] != 0;
            nothing &= fabs(p->C[j * p->M + i] * f[i]) <= NOTHING * terms[j];
        }
        f[i] = movable && nothing ? 0 : f[i];
    }
}

/* Residual of C_j . f if cells are multiples of the smallest positive number. */
static double coarseness(const double *c, ptrdiff_t M)
{
    double size = (double)M;
    for (ptrdiff_t i = 0; i < M; i++)
        size += fabs(c[i]);
    return size * DBL_TRUE_MIN;
}

/* work holds 2 q doubles */
static enum rk_row_status correct(const rk_projection *p, const double *m, double *restrict f,
                                  double *restrict work)
{
    const ptrdiff_t q = p->q, M = p->M;
    double *restrict t = work, *restrict terms = work + q;
    for (int pass = 0;; pass++) {
        int over = 0, far = 0, finite = 1;
        for (ptrdiff_t j = 0; j < q; j++) {
            double size;
            t[j] = residual(m[j], p->C + j * M, f, M, &size);
            if (pass == 0)
                terms[j] = size;
            over |= fabs(t[j]) > 2 * DBL_EPSILON * (size + fabs(m[j]));
            const double limit = FAR * DBL_EPSILON * (size + fabs(m[j]));
            far |= pass >= MAX_PASSES && fabs(t[j]) > limit && fabs(t[j]) > limit + coarseness(p->C + j * M, M);
            finite &= fabs(t[j]) + size <= DBL_MAX;
        }
        if (!finite)
            return RK_NOT_FINITE;
        if (!over)
            return RK_ROW_PROJECTED;
        if (pass == MAX_PASSES && far) {
            settle(p, terms, f);
            continue;
        }
        if (pass >= MAX_PASSES)
            return far ? RK_NO_CONVERGENCE : RK_ROW_PROJECTED;
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
}

static enum rk_row_status project_row(const rk_projection *p, const double *m, double *f, double *t)
{
    for (ptrdiff_t k = 0; k < p->n_constant; k++)
        f[p->index[k]] = p->value[k];
    if (p->bounds)
        return RK_TABLE(bounds).row(p->bounds, m, f, t);
    return correct(p, m, f, t);
}

static ptrdiff_t project(const rk_projection *p, const double *values, double *f, ptrdiff_t n,
                         ptrdiff_t ld, double *work)
{
    ptrdiff_t bad = -1;
    RK_ASSERT(ld >= p->M && p->q >= 0);
    for (ptrdiff_t i = 0; i < n; i++) {
        const enum rk_row_status status =
            project_row(p, values ? values + i * p->q : p->m, f + i * ld, work);
        if (status != RK_ROW_PROJECTED && bad == -1)
            bad = status == RK_NOT_FINITE ? i : -2 - i;
    }
    return bad;
}

/* -- Derivatives ----------------------------------------------------------------------------------- */

/* x less (along . x) step */
static void reduce(const double *along, const double *step, double *x, ptrdiff_t M)
{
    double size;
    const double t = residual(0, along, x, M, &size);
#pragma omp simd
    for (ptrdiff_t i = 0; i < M; i++)
        x[i] += t * step[i];
}

/* The square of the weighted norm of x; v x goes to `weighed`. */
static double square_of(const rk_bounds *b, const double *x, double *weighed)
{
    double size;
#pragma omp simd
    for (ptrdiff_t i = 0; i < b->M; i++)
        weighed[i] = b->v ? b->v[i] * x[i] : x[i];
    return -residual(0, weighed, x, b->M, &size);
}

#define DEPENDENT 1e-10 /* remainder of an invariant after those before it, on the free cells */

/* to = x on the free cells, which are strictly between their bounds, and 0 on the others; x may be `to` */
static void free_part(const rk_bounds *b, const double *restrict f, const double *x, double *to)
{
    const double *restrict l = b->lower, *restrict u = b->upper;
#pragma omp simd
    for (ptrdiff_t i = 0; i < b->M; i++)
        to[i] = ((l[i] < f[i]) & (f[i] < u[i])) ? x[i] : 0;
}

/* The derivative of the projection on bounds at its result f is I - sum_j B_j V_j^T on the free cells, 0 on the others:
 * the rows of B (rank, M) are an orthogonal basis, in the weighted norm, of the invariants' directions on the free cells,
 * and V_j = v B_j over the square of the norm of B_j. B and V (each q M) go to `work`, g is 0 on the other cells. Returns
 * the rank. */
static ptrdiff_t free_basis(const rk_bounds *b, const double *f, double *work, double *g)
{
    const ptrdiff_t M = b->M;
    double *const B = work, *const V = work + b->q * M;
    ptrdiff_t rank = 0;
    free_part(b, f, g, g);
    for (ptrdiff_t j = 0; j < b->q; j++) {
        double *row = B + rank * M, *weighed = V + rank * M;
        free_part(b, f, b->W + j * M, row);
        ptrdiff_t cells = 0, last = 0;
        for (ptrdiff_t i = 0; i < M; i++)
            if (row[i] != 0)
                cells++, last = i;
        if (cells == 1) /* the only free cell of an invariant cannot move: exactly 0, without the round-off of 1 - 1 */
            g[last] = 0;
        const double before = square_of(b, row, weighed);
        for (int pass = 0; pass < 3; pass++) /* as many passes as nearly dependent rows need */
            for (ptrdiff_t l = 0; l < rank; l++)
                reduce(V + l * M, B + l * M, row, M);
        const double square = rank ? square_of(b, row, weighed) : before;
        if (!(square > DEPENDENT * DEPENDENT * before) || !(square <= DBL_MAX))
            continue;
        for (ptrdiff_t i = 0; i < M; i++)
            weighed[i] *= 1 / square;
        rank++;
    }
    return rank;
}

static ptrdiff_t push(const rk_projection *p, const double *f, double *g, double *work)
{
    const ptrdiff_t M = p->M, q = p->q;
    if (p->bounds) {
        const ptrdiff_t rank = free_basis(p->bounds, f, work, g);
        for (int pass = 0; pass < 2; pass++) /* one pass leaves the round-off of a large correction */
            for (ptrdiff_t j = 0; j < rank; j++)
                reduce(work + (q + j) * M, work + j * M, g, M);
        return -1;
    }
    for (ptrdiff_t k = 0; k < p->n_constant; k++)
        g[p->index[k]] = 0;
    double *zeros = work + 2 * q;
    for (ptrdiff_t j = 0; j < q; j++)
        zeros[j] = 0;
    const enum rk_row_status status = correct(p, zeros, g, work);
    return status == RK_ROW_PROJECTED ? -1 : status == RK_NOT_FINITE ? 0 : -2;
}

static void pull(const rk_projection *p, const double *f, double *u, double *work)
{
    const ptrdiff_t M = p->M, q = p->q;
    double size;
    if (p->bounds) {
        for (ptrdiff_t j = free_basis(p->bounds, f, work, u) - 1; j >= 0; j--)
            reduce(work + j * M, work + (q + j) * M, u, M);
        return;
    }
    for (ptrdiff_t j = 0; j < q; j++)
        work[j] = residual(0, p->W + j * M, u, M, &size);
    for (ptrdiff_t j = 0; j < q; j++) {
        const double *W = p->W + j * M;
        for (ptrdiff_t i = 0; i < M; i++)
            u[i] += work[j] * (p->weights ? W[i] * p->weights[i] : W[i]);
    }
    for (ptrdiff_t k = 0; k < p->n_constant; k++)
        u[p->index[k]] = 0;
}

static ptrdiff_t workspace(const rk_projection *p)
{
    const ptrdiff_t derivatives = (p->bounds ? 2 * p->M : 3) * p->q;
    const ptrdiff_t rows = p->bounds ? RK_TABLE(bounds).workspace(p->bounds) : 0;
    return rows > derivatives ? rows : derivatives;
}

const rk_projection_table RK_TABLE(projection) = {
    .workspace = workspace, .project = project, .push = push, .pull = pull, .dots = dots};
