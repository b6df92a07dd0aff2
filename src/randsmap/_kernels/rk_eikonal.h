/* The eikonal solvers, written once for any number of lanes: crowd.c includes this after rk_lanes.h
 * with eight, eikonal.c with one.
 *
 * First-order upwind update: a, b the smaller neighbours along x and y,
 *     ((p - a)+)^2 + ((p - b)+)^2 / aspect^2 = h^2.
 * With the columns beside it fixed, a column is solved exactly by one chain of updates upwards, one
 * downwards and their minimum (a value depends on smaller ones only, so no dependence turns round).
 * The two chains are independent and interleaved to hide the latency of the square root, and a
 * link is broken by a predicted branch wherever the neighbour in the chain is no lower: along
 * a front that moves in x nothing waits and no root is taken. Marching from the exit visits each column
 * once; checking passes (no root: is p above the root of its equation?) then repair what an obstacle or a
 * dense crowd makes flow back, until a pass finds nothing. */
#ifndef RK_EIKONAL_H
#define RK_EIKONAL_H
#include "rk_crowd.h"
#include "rk_lanes.h"
#include <float.h>
#include <stdint.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Constants of the update; `square` (aspect 1) is known at compile time where it matters. */
typedef struct {
    lanes q, one_plus_q, inverse, aspect, slack;
} coefficients;

ALWAYS_INLINE coefficients make_coefficients(const rk_grid *grid)
{
    const double q = 1 / (grid->aspect * grid->aspect);
    return (coefficients){lanes_all(q), lanes_all(1 + q), lanes_all(1 / (1 + q)),
                          lanes_all(grid->aspect),
                          lanes_all(16 * DBL_EPSILON)};
}

/* Root of the equation with b below `ahead` = a + h: from b alone, or from both. */
ALWAYS_INLINE lanes two_sided(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes beside = square ? add(b, h) : add(b, mul(c->aspect, h));
    const lanes d = sub(a, b), d2 = mul(d, d), h2 = mul(h, h);
    const lanes both = square
        ? mul(add(add(a, b), root(sub(add(h2, h2), d2))), lanes_all(0.5))
        : mul(add(add(a, mul(c->q, b)), root(sub(mul(c->one_plus_q, h2), mul(c->q, d2)))),
              c->inverse);
    /* where the root's argument is negative, `beside` is taken */
    return if_less(a, beside, both, beside);
}

ALWAYS_INLINE lanes update(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes ahead = add(a, h);
    return if_less(b, ahead, two_sided(a, b, h, c, square), ahead);
}

/* A link of a column's chain: like update, but the root is taken only if some lane needs it. */
ALWAYS_INLINE lanes link(lanes a, lanes b, const double *time, const double *fixed,
                         const coefficients *c, int square)
{
    if (*time == RK_FIXED)
        return lanes_load(fixed);
    const lanes h = lanes_load(time), ahead = add(a, h);
    if (!any_less(b, ahead))
        return ahead;
    return if_less(b, ahead, two_sided(a, b, h, c, square), ahead);
}

/* One column from the one beside it alone; of p only fixed cells and the frame are read. */
ALWAYS_INLINE void fresh_column(ptrdiff_t ny, const double *beside, const double *h, double *p,
                                double *work, const coefficients *c, int square)
{
    const ptrdiff_t last = (ny - 1) * RK_LANES;
    double *const up = work, *const down = work + ny * RK_LANES;
    lanes u = lanes_load(p - RK_LANES), d = lanes_load(p + last + RK_LANES);
    for (ptrdiff_t k = 0; k <= last; k += RK_LANES) {
        const ptrdiff_t l = last - k;
        u = link(lanes_load(beside + k), u, h + k, p + k, c, square);
        lanes_store(up + k, u);
        d = link(lanes_load(beside + l), d, h + l, p + l, c, square);
        lanes_store(down + l, d);
    }
    for (ptrdiff_t k = 0; k <= last; k += RK_LANES)
        lanes_store(p + k, smaller(lanes_load(up + k), lanes_load(down + k)));
}

/* Lowers the cells of a column that lie above the root of their equation; says whether there were any.
 * Only such cells change, so a lane that has converged is left alone. */
ALWAYS_INLINE int repair_column(ptrdiff_t ny, ptrdiff_t stride, const double *h, double *p,
                                int upwards, const coefficients *c, int square)
{
    int found = 0;
    const lanes zero = lanes_all(0);
    for (ptrdiff_t k = 0; k < ny; k++) {
        const ptrdiff_t at = (upwards ? k : ny - 1 - k) * RK_LANES;
        double *const cell = p + at;
        const lanes a = smaller(lanes_load(cell - stride), lanes_load(cell + stride));
        const lanes b = smaller(lanes_load(cell - RK_LANES), lanes_load(cell + RK_LANES));
        const lanes old = lanes_load(cell), time = lanes_load(h + at);
        const lanes da = larger(sub(old, a), zero), db = larger(sub(old, b), zero);
        const lanes weighted = square ? db : mul(c->q, db);
        const lanes left = add(mul(da, da), mul(weighted, db));
        /* above h^2, by more than a rounding of p to a few ulp makes it */
        const lanes right = add(mul(time, time), mul(mul(c->slack, old), add(da, weighted)));
        if (any_less(right, left)) {
            const lanes lowered = smaller(old, update(a, b, time, c, square));
            lanes_store(cell, if_less(right, left, lowered, old));
            found |= any_less(lowered, old);
        }
    }
    return found;
}

#ifdef RK_SINGLE_LANE
/* repair_column's test for all cells of a column at once: with one lane the vector runs along y. */
ALWAYS_INLINE int column_is_quiet(ptrdiff_t ny, ptrdiff_t stride, const double *restrict h,
                                  const double *restrict p, double q)
{
    int64_t above = 0;
#pragma omp simd reduction(+ : above)
    for (ptrdiff_t j = 0; j < ny; j++) {
        const double left = p[j - stride], right = p[j + stride], low = p[j - 1], high = p[j + 1];
        const double a = left < right ? left : right, b = low < high ? low : high;
        const double da = p[j] > a ? p[j] - a : 0, db = p[j] > b ? p[j] - b : 0;
        above += da * da + q * db * db > h[j] * h[j] + 16 * DBL_EPSILON * p[j] * (da + q * db);
    }
    return !above;
}
#endif

ALWAYS_INLINE void march_from(const rk_grid *grid, const double *h, double *p, double *work,
                              ptrdiff_t pivot, int square)
{
    const coefficients c = make_coefficients(grid);
    const ptrdiff_t nx = grid->nx, ny = grid->ny;
    const ptrdiff_t stride = (ny + 2) * RK_LANES, h_stride = ny * RK_LANES;
    double *const first = p + stride + RK_LANES;
    for (ptrdiff_t i = pivot - 1; i >= 0; i--)
        fresh_column(ny, first + (i + 1) * stride, h + i * h_stride, first + i * stride, work, &c,
                     square);
    for (ptrdiff_t i = pivot; i < nx; i++)
        fresh_column(ny, first + (i - 1) * stride, h + i * h_stride, first + i * stride, work, &c,
                     square);
    int rightwards = 1, found;
    do {
        found = 0;
        for (ptrdiff_t k = 0; k < nx; k++) {
            const ptrdiff_t i = rightwards ? k : nx - 1 - k;
            double *const column = first + i * stride;
#ifdef RK_SINGLE_LANE
            if (column_is_quiet(ny, stride, h + i * h_stride, column, c.q.a))
                continue;
#endif
            if (repair_column(ny, stride, h + i * h_stride, column, 1, &c, square)) {
                repair_column(ny, stride, h + i * h_stride, column, 0, &c, square);
                found = 1;
            }
        }
        rightwards = !rightwards;
    } while (found);
}

static void march(const rk_grid *grid, const double *h, double *p, double *work, ptrdiff_t pivot)
{
    RK_ASSERT(grid->nx >= 1 && grid->ny >= 1 && pivot >= 0 && pivot <= grid->nx);
    if (grid->aspect == 1)
        march_from(grid, h, p, work, pivot, 1);
    else
        march_from(grid, h, p, work, pivot, 0);
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
                /* a lane that is done keeps its bits whatever its neighbours still do */
                lanes_store(cell, if_less(value, mul(old, quiet), value, old));
            }
        }
        order = (order + 1) & 3;
    } while (lowered);
}

/* Potential before a solve: 0 beyond exits and at sources, unreached elsewhere. exits: a flag for each row of
 * the left side, of the right side, then one for the bottom and one for the top. */
static void prepare(const rk_grid *grid, const unsigned char *kind, const unsigned char *exits,
                    double *p)
{
    const ptrdiff_t nx = grid->nx, ny = grid->ny;
    for (ptrdiff_t i = 0; i < nx + 2; i++)
        for (ptrdiff_t j = 0; j < ny + 2; j++) {
            int zero;
            if (j == 0 || j == ny + 1)
                zero = exits[2 * ny + (j != 0)] && i > 0 && i < nx + 1;
            else if (i == 0 || i == nx + 1)
                zero = exits[(i ? ny : 0) + j - 1];
            else
                zero = kind[(i - 1) * ny + j - 1] == RK_SOURCE;
            for (ptrdiff_t lane = 0; lane < RK_LANES; lane++)
                *p++ = zero ? 0 : RK_UNREACHED;
        }
}

static void solve(const rk_grid *grid, double dx, const double *restrict slowness,
                  const unsigned char *restrict kind, const unsigned char *exits, ptrdiff_t pivot,
                  ptrdiff_t n_fields, int sweeping, double *restrict work, double *restrict out)
{
    RK_ASSERT(n_fields >= 1 && n_fields <= RK_LANES);
    const ptrdiff_t nx = grid->nx, ny = grid->ny, n = nx * ny;
    double *const p = work, *const h = p + (nx + 2) * (ny + 2) * RK_LANES;
    const double *fields[RK_LANES];
    for (ptrdiff_t lane = 0; lane < RK_LANES; lane++)
        /* a lane without a field repeats the first: it never adds work */
        fields[lane] = slowness + (lane < n_fields ? lane : 0) * n;
    for (ptrdiff_t k = 0; k < n; k++)
        for (ptrdiff_t lane = 0; lane < RK_LANES; lane++)
            h[k * RK_LANES + lane] = kind[k] ? RK_FIXED : dx * fields[lane][k];
    prepare(grid, kind, exits, p);
    if (sweeping)
        sweep(grid, h, p);
    else
        march(grid, h, p, h + n * RK_LANES, pivot);
    for (ptrdiff_t lane = 0; lane < n_fields; lane++)
        for (ptrdiff_t i = 0; i < nx; i++) {
            const double *const column = p + ((i + 1) * (ny + 2) + 1) * RK_LANES + lane;
            for (ptrdiff_t j = 0; j < ny; j++)
                *out++ = column[j * RK_LANES] < RK_UNREACHED ? column[j * RK_LANES] : INFINITY;
        }
}

#endif
