/* The eikonal solvers, written once for any number of lanes: crowd.c includes this after rk_lanes.h
 * with eight, eikonal.c with one.
 *
 * First-order upwind update: a, b the smaller neighbours along x and y,
 *     ((p - a)+)^2 + ((p - b)+)^2 / aspect^2 = h^2.
 * With the columns beside it fixed, a column is solved exactly by one chain of updates upwards, one
 * downwards and their minimum (a value depends on smaller ones only, so no dependence turns round).
 * The two chains are independent and interleaved to hide the latency of the square root, and the
 * chain is broken by a predicted branch wherever the neighbour in the chain is no lower: along
 * a front that moves in x nothing waits and no root is taken. Marching from the exit visits each
 * column once and checks the one before (no root: is p above the root of its equation?). Only if a
 * check fails, because an obstacle or a dense crowd makes a front flow back, repairing passes
 * follow until one finds nothing. */
#ifndef RK_EIKONAL_H
#define RK_EIKONAL_H
#include "rk_crowd.h"
#include "rk_lanes.h"
#include <float.h>

/* Constants of the update; `square` (aspect 1) is known at compile time where it matters. */
typedef struct {
    lanes q, one_plus_q, inverse, aspect, slack;
} coefficients;

RK_INLINE coefficients make_coefficients(const rk_grid *grid)
{
    const double q = 1 / (grid->aspect * grid->aspect);
    return (coefficients){lanes_all(q), lanes_all(1 + q), lanes_all(1 / (1 + q)),
                          lanes_all(grid->aspect), lanes_all(16 * DBL_EPSILON)};
}

/* Root of the equation with b below `ahead` = a + h: from b alone, or from both. */
RK_INLINE lanes two_sided(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes beside = square ? add(b, h) : add(b, mul(c->aspect, h));
    if (RK_LANES == 1 && !any_less(a, beside))
        return beside; /* a predicted branch: the chain waits for no selection */
    const lanes d = sub(a, b), d2 = mul(d, d), h2 = mul(h, h);
    const lanes both = square
        ? mul(add(add(a, b), root(sub(add(h2, h2), d2))), lanes_all(0.5))
        : mul(add(add(a, mul(c->q, b)), root(sub(mul(c->one_plus_q, h2), mul(c->q, d2)))),
              c->inverse);
    /* where the root's argument is negative, `beside` is taken */
    return if_less(a, beside, both, beside);
}

RK_INLINE lanes update(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes ahead = add(a, h);
    return if_less(b, ahead, two_sided(a, b, h, c, square), ahead);
}

/* One step of a column's chain: like update, but the root is taken only if some lane needs it. */
RK_INLINE lanes chain_update(lanes a, lanes b, const double *time, const double *value, int fixed,
                             const coefficients *c, int square)
{
    if (fixed && *time == RK_FIXED)
        return lanes_load(value);
    const lanes h = lanes_load(time), ahead = add(a, h);
    if (!any_less(b, ahead))
        return ahead;
    return if_less(b, ahead, two_sided(a, b, h, c, square), ahead);
}

/* One column from the one beside it alone; of p only the frame and (if `fixed`) fixed cells are
 * read. */
RK_INLINE void fresh_column(ptrdiff_t ny, const double *beside, const double *h, double *p,
                                double *work, int fixed, const coefficients *c, int square)
{
    const ptrdiff_t last = (ny - 1) * RK_LANES;
    double *const up = work, *const down = work + ny * RK_LANES;
    lanes u = lanes_load(p - RK_LANES), d = lanes_load(p + last + RK_LANES);
    for (ptrdiff_t k = 0; k <= last; k += RK_LANES) {
        const ptrdiff_t l = last - k;
        u = chain_update(lanes_load(beside + k), u, h + k, p + k, fixed, c, square);
        lanes_store(up + k, u);
        d = chain_update(lanes_load(beside + l), d, h + l, p + l, fixed, c, square);
        lanes_store(down + l, d);
    }
    for (ptrdiff_t k = 0; k <= last; k += RK_LANES)
        lanes_store(p + k, smaller(lanes_load(up + k), lanes_load(down + k)));
}

/* True if no cell of a column is above the root of its equation by more than a few ulp of p. Needs no square root. */
#if RK_WIDTH == 1
RK_INLINE int column_is_quiet(ptrdiff_t ny, ptrdiff_t stride, const double *restrict h,
                                  const double *restrict p, const coefficients *c, int square)
{
    /* with one lane the vector runs along y */
    const double q = square ? 1 : c->q.a, slack = c->slack.a;
    const double *lower = p - 1, *upper = p + 1;
    RK_FORGET(lower);
    RK_FORGET(upper);
    double above = 0; /* the number of these cells; a double, so that the loop is vectorised */
#pragma omp simd reduction(+ : above)
    for (ptrdiff_t j = 0; j < ny; j++) {
        const double left = p[j - stride], right = p[j + stride], low = lower[j], high = upper[j];
        const double a = left < right ? left : right, b = low < high ? low : high;
        const double da = p[j] > a ? p[j] - a : 0, db = p[j] > b ? p[j] - b : 0;
        const double allowed = h[j] * h[j] + slack * p[j] * (da + q * db);
        above += da * da + q * db * db > allowed ? 1 : 0;
    }
    return above == 0;
}
#endif

/* The two sides of that comparison for one cell. */
RK_INLINE void residual(const double *cell, ptrdiff_t stride, lanes time, const coefficients *c,
                            int square, lanes *above, lanes *allowed)
{
    const lanes zero = lanes_all(0), value = lanes_load(cell);
    const lanes a = smaller(lanes_load(cell - stride), lanes_load(cell + stride));
    const lanes b = smaller(lanes_load(cell - RK_LANES), lanes_load(cell + RK_LANES));
    const lanes da = larger(sub(value, a), zero), db = larger(sub(value, b), zero);
    const lanes weighted = square ? db : mul(c->q, db);
    *above = add(mul(da, da), mul(weighted, db));
    *allowed = add(mul(time, time), mul(mul(c->slack, value), add(da, weighted)));
}

#if RK_WIDTH > 1
RK_INLINE int column_is_quiet(ptrdiff_t ny, ptrdiff_t stride, const double *h, const double *p,
                                  const coefficients *c, int square)
{
    int above = 0;
    for (ptrdiff_t k = 0; k < ny * RK_LANES; k += RK_LANES) {
        lanes left, right;
        residual(p + k, stride, lanes_load(h + k), c, square, &left, &right);
        above |= any_less(right, left);
    }
    return !above;
}
#endif

/* Lowers the cells of a column that lie above the root of their equation. Only such cells change,
 * so a lane that has converged is left alone. */
RK_INLINE int repair_column(ptrdiff_t ny, ptrdiff_t stride, const double *h, double *p,
                                int upwards, const coefficients *c, int square)
{
    int found = 0;
    for (ptrdiff_t k = 0; k < ny; k++) {
        const ptrdiff_t at = (upwards ? k : ny - 1 - k) * RK_LANES;
        double *const cell = p + at;
        const lanes time = lanes_load(h + at);
        lanes left, right;
        residual(cell, stride, time, c, square, &left, &right);
        if (any_less(right, left)) {
            const lanes a = smaller(lanes_load(cell - stride), lanes_load(cell + stride));
            const lanes b = smaller(lanes_load(cell - RK_LANES), lanes_load(cell + RK_LANES));
            const lanes old = lanes_load(cell);
            const lanes lowered = smaller(old, update(a, b, time, c, square));
            lanes_store(cell, if_less(right, left, lowered, old));
            found |= any_less(lowered, old);
        }
    }
    return found;
}

/* Writes the crossing times of column i, RK_FIXED in fixed cells; true if there are fixed cells. */
typedef int (*column_times)(const void *context, ptrdiff_t i, double *h);

/* Repairing passes, rightwards and leftwards in turn, until one finds nothing. */
RK_INLINE void repair(const rk_grid *grid, const double *h, double *p, const coefficients *c,
                          int square)
{
    const ptrdiff_t nx = grid->nx, ny = grid->ny, stride = (ny + 2) * RK_LANES;
    int rightwards = 1, found;
    do {
        found = 0;
        for (ptrdiff_t k = 0; k < nx; k++) {
            const ptrdiff_t i = rightwards ? k : nx - 1 - k;
            double *const column = p + (i + 1) * stride + RK_LANES;
            const double *const times = h + i * ny * RK_LANES;
            if (!column_is_quiet(ny, stride, times, column, c, square)) {
                found |= repair_column(ny, stride, times, column, 1, c, square);
                found |= repair_column(ny, stride, times, column, 0, c, square);
            }
        }
        rightwards = !rightwards;
    } while (found);
}

/* A column's crossing times, then its potential from the column beside it. */
RK_INLINE void march_column(ptrdiff_t i, ptrdiff_t ny, column_times fill, const void *context,
                                const double *beside, double *h, double *p, double *work,
                                const coefficients *c, int square)
{
    if (fill(context, i, h))
        fresh_column(ny, beside, h, p, work, 1, c, square);
    else
        fresh_column(ny, beside, h, p, work, 0, c, square);
}

RK_INLINE void march_from(const rk_grid *grid, column_times fill, const void *context,
                              double *h, double *p, double *work, ptrdiff_t pivot, int square)
{
    const coefficients c = make_coefficients(grid);
    const ptrdiff_t nx = grid->nx, ny = grid->ny;
    const ptrdiff_t stride = (ny + 2) * RK_LANES, h_stride = ny * RK_LANES;
    double *const first = p + stride + RK_LANES;
    int quiet = 1;
    if (pivot > 0 && pivot < nx) /* the first column must not use old values */
        for (ptrdiff_t k = 0; k < h_stride; k++)
            first[pivot * stride + k] = RK_UNREACHED;
    /* A column is checked when both its neighbours are there, while all of it is in cache. */
    for (ptrdiff_t i = pivot - 1; i >= 0; i--) {
        march_column(i, ny, fill, context, first + (i + 1) * stride, h + i * h_stride,
                     first + i * stride, work, &c, square);
        if (i < pivot - 1)
            quiet &= column_is_quiet(ny, stride, h + (i + 1) * h_stride, first + (i + 1) * stride,
                                     &c, square);
    }
    for (ptrdiff_t i = pivot; i < nx; i++) {
        march_column(i, ny, fill, context, first + (i - 1) * stride, h + i * h_stride,
                     first + i * stride, work, &c, square);
        if (i > 0)
            quiet &= column_is_quiet(ny, stride, h + (i - 1) * h_stride, first + (i - 1) * stride,
                                     &c, square);
    }
    const ptrdiff_t ends[] = {0, nx - 1};
    for (int e = 0; e < 2; e++)
        quiet &= column_is_quiet(ny, stride, h + ends[e] * h_stride, first + ends[e] * stride, &c,
                                 square);
    if (!quiet)
        repair(grid, h, p, &c, square);
}

/* The potential of crossing times that `fill` gives, kept in h. p as prepared. */
static void march(const rk_grid *grid, column_times fill, const void *context, double *h, double *p,
                  double *work, ptrdiff_t pivot)
{
    RK_ASSERT(grid->nx >= 1 && grid->ny >= 1 && pivot >= 0 && pivot <= grid->nx);
    if (grid->aspect == 1)
        march_from(grid, fill, context, h, p, work, pivot, 1);
    else
        march_from(grid, fill, context, h, p, work, pivot, 0);
}

/* Fast sweeping (Zhao 2005): Gauss-Seidel over all cells in four orders, until a whole sweep lowers
 * nothing by more than rounding. */
static void sweep(const rk_grid *grid, const double *h, double *p)
{
    RK_ASSERT(grid->nx >= 1 && grid->ny >= 1);
    const coefficients c = make_coefficients(grid);
    const ptrdiff_t nx = grid->nx, ny = grid->ny, stride = (ny + 2) * RK_LANES;
    const lanes quiet = lanes_all(1 - 4 * DBL_EPSILON);
    int order = 0, lowered;
    do {
        lowered = 0;
        for (ptrdiff_t k = 0; k < nx; k++) {
            const ptrdiff_t i = order & 1 ? k : nx - 1 - k;
            for (ptrdiff_t l = 0; l < ny; l++) {
                const ptrdiff_t j = order & 2 ? ny - 1 - l : l;
                double *const cell = p + (i + 1) * stride + (j + 1) * RK_LANES;
                const lanes a = smaller(lanes_load(cell - stride), lanes_load(cell + stride));
                const lanes b = smaller(lanes_load(cell - RK_LANES), lanes_load(cell + RK_LANES));
                const lanes old = lanes_load(cell);
                const lanes value = update(a, b, lanes_load(h + (i * ny + j) * RK_LANES), &c, 0);
                lowered |= any_less(value, mul(old, quiet));
                /* a finished lane keeps its bits while others change */
                lanes_store(cell, if_less(value, mul(old, quiet), value, old));
            }
        }
        order = (order + 1) & 3;
    } while (lowered);
}

static int any_fixed(const unsigned char *kind, ptrdiff_t n)
{
    unsigned char any = RK_FREE;
    for (ptrdiff_t k = 0; k < n; k++)
        any |= kind[k];
    return any != RK_FREE;
}

/* Potential before a solve: 0 beyond exits and at sources, unreached in walls, and with `all` in
 * all other cells. exits: a flag for each row of the left side, of the right side, then one for the
 * bottom and one for the top. */
static void prepare(const rk_grid *grid, const unsigned char *kind, const unsigned char *exits,
                    int all, double *p)
{
    const ptrdiff_t nx = grid->nx, ny = grid->ny, stride = (ny + 2) * RK_LANES;
    const lanes unreached = lanes_all(RK_UNREACHED), zero = lanes_all(0);
    for (ptrdiff_t j = 1; j <= ny; j++) {
        lanes_store(p + j * RK_LANES, exits[j - 1] ? zero : unreached);
        lanes_store(p + (nx + 1) * stride + j * RK_LANES, exits[ny + j - 1] ? zero : unreached);
    }
    for (ptrdiff_t i = 0; i < nx; i++) {
        double *const column = p + (i + 1) * stride;
        lanes_store(column, exits[2 * ny] ? zero : unreached);
        lanes_store(column + (ny + 1) * RK_LANES, exits[2 * ny + 1] ? zero : unreached);
        if (!all && !any_fixed(kind + i * ny, ny))
            continue;
        for (ptrdiff_t j = 0; j < ny; j++)
            if (all || kind[i * ny + j] != RK_FREE)
                lanes_store(column + (j + 1) * RK_LANES,
                            kind[i * ny + j] == RK_SOURCE ? zero : unreached);
    }
}

typedef struct {
    const double *fields[RK_LANES];
    const unsigned char *kind;
    ptrdiff_t ny;
    double dx;
} slownesses;

static int times_of_slowness(const void *context, ptrdiff_t i, double *h)
{
    const slownesses *const s = context;
    const ptrdiff_t ny = s->ny;
    const double *columns[RK_LANES];
    for (int lane = 0; lane < RK_LANES; lane++)
        columns[lane] = s->fields[lane] + i * ny;
    lanes_from_fields(columns, ny, h);
    const lanes dx = lanes_all(s->dx), mark = lanes_all(RK_FIXED);
    for (ptrdiff_t k = 0; k < ny * RK_LANES; k += RK_LANES)
        lanes_store(h + k, mul(dx, lanes_load(h + k)));
    const unsigned char *const kind = s->kind + i * ny;
    const int fixed = any_fixed(kind, ny);
    for (ptrdiff_t j = 0; fixed && j < ny; j++)
        if (kind[j] != RK_FREE)
            lanes_store(h + j * RK_LANES, mark);
    return fixed;
}

static void solve(const rk_grid *grid, double dx, const double *slowness, const unsigned char *kind,
                  const unsigned char *exits, ptrdiff_t pivot, ptrdiff_t n_fields, int sweeping,
                  double *work, double *out)
{
    RK_ASSERT(n_fields >= 1 && n_fields <= RK_LANES);
    const ptrdiff_t nx = grid->nx, ny = grid->ny, n = nx * ny;
    double *const p = work, *const h = p + (nx + 2) * (ny + 2) * RK_LANES;
    slownesses context = {.kind = kind, .ny = ny, .dx = dx};
    for (ptrdiff_t lane = 0; lane < RK_LANES; lane++)
        /* a lane without a field repeats the first: it never adds work */
        context.fields[lane] = slowness + (lane < n_fields ? lane : 0) * n;
    prepare(grid, kind, exits, sweeping, p);
    if (sweeping) {
        for (ptrdiff_t i = 0; i < nx; i++)
            times_of_slowness(&context, i, h + i * ny * RK_LANES);
        sweep(grid, h, p);
    } else {
        march(grid, times_of_slowness, &context, h, p, h + n * RK_LANES, pivot);
    }
    for (ptrdiff_t i = 0; i < nx; i++) {
        double *fields[RK_LANES] = {0}; /* GCC 11 warns, since it does not know that n_fields is positive */
        for (ptrdiff_t lane = 0; lane < n_fields; lane++)
            fields[lane] = out + lane * n + i * ny;
        fields_from_lanes(p + ((i + 1) * (ny + 2) + 1) * RK_LANES, ny, n_fields, fields);
        for (ptrdiff_t lane = 0; lane < n_fields; lane++)
            for (ptrdiff_t j = 0; j < ny; j++)
                fields[lane][j] = fields[lane][j] < RK_UNREACHED ? fields[lane][j] : INFINITY;
    }
}

#endif
