/* Hughes' crowd model: column-marching eikonal solver and Godunov step.
 *
 * Eikonal. First-order upwind update: a, b the smaller neighbours along x and y,
 *     ((p - a)+)^2 + ((p - b)+)^2 / aspect^2 = h^2.
 * With the columns beside it fixed, a column is solved exactly by one chain of updates upwards, one
 * downwards and their minimum (a value depends on smaller ones only, so no dependence turns round).
 * The two chains are independent and interleaved to hide the latency of the square root, and a
 * link is broken by a predicted branch wherever the neighbour in the chain is no lower: along
 * a front that moves in x nothing waits and no root is taken. Marching from the exit visits each column
 * once; checking passes (no root: is p above the root of its equation?) then repair what an obstacle or a
 * dense crowd makes flow back, until a pass finds nothing. */
#include "rk_crowd.h"
#include "rk_lanes.h"
#include <float.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

_Static_assert((int)RK_LANES == (int)RK_CROWD_LANES, "lanes");

/* Constants of the update; `square` (aspect 1) is known at compile time where it matters. */
typedef struct {
    lanes q, one_plus_q, inverse, aspect, slack;
} coefficients;

ALWAYS_INLINE coefficients make_coefficients(const rk_grid *grid)
{
    const double q = 1 / (grid->aspect * grid->aspect);
    return (coefficients){lanes_all(q), lanes_all(1 + q), lanes_all(1 / (1 + q)),
                          lanes_all(grid->aspect),
                          /* of ((p-a)+)^2 + q ((p-b)+)^2 - h^2 at a p rounded to a few ulp, over h p */
                          lanes_all(32 * DBL_EPSILON * (1 + q))};
}

/* Root of the equation with b below `ahead` = a + h: from b alone, or from both. */
ALWAYS_INLINE lanes two_sided(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes beside = square ? add(b, h) : add(b, mul(c->aspect, h));
    const lanes d = sub(a, b), d2 = mul(d, d), h2 = mul(h, h);
    const lanes both = square
        ? mul(add(add(a, b), root(larger(sub(add(h2, h2), d2), lanes_all(0)))), lanes_all(0.5))
        : mul(add(add(a, mul(c->q, b)),
                  root(larger(sub(mul(c->one_plus_q, h2), mul(c->q, d2)), lanes_all(0)))),
              c->inverse);
    return if_less(a, beside, both, beside);
}

ALWAYS_INLINE lanes update(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes ahead = add(a, h);
    return smaller(if_less(b, ahead, two_sided(a, b, h, c, square), ahead),
                   lanes_all(RK_UNREACHED));
}

/* A link of a column's chain: like update, but the root is taken only if some lane needs it. */
ALWAYS_INLINE lanes link(lanes a, lanes b, lanes h, const coefficients *c, int square)
{
    const lanes ahead = smaller(add(a, h), lanes_all(RK_UNREACHED));
    if (!any_less(b, ahead))
        return ahead;
    return smaller(if_less(b, ahead, two_sided(a, b, h, c, square), ahead),
                   lanes_all(RK_UNREACHED));
}

/* One column from the one on its right alone. */
ALWAYS_INLINE void fresh_column(ptrdiff_t ny, const double *right, const double *h, double *p,
                                double *work, const coefficients *c, int square)
{
    double *const down = work;
    lanes u = lanes_all(RK_UNREACHED), d = u;
    const ptrdiff_t last = (ny - 1) * RK_LANES;
    for (ptrdiff_t k = 0; k <= last; k += RK_LANES) {
        u = link(lanes_load(right + k), u, lanes_load(h + k), c, square);
        lanes_store(p + k, u);
        d = link(lanes_load(right + last - k), d, lanes_load(h + last - k), c, square);
        lanes_store(down + last - k, d);
    }
    for (ptrdiff_t k = 0; k <= last; k += RK_LANES)
        lanes_store(p + k, smaller(lanes_load(p + k), lanes_load(down + k)));
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
        const lanes db2 = mul(db, db);
        const lanes left = add(mul(da, da), square ? db2 : mul(c->q, db2));
        const lanes right = mul(time, add(time, mul(c->slack, old)));
        if (__builtin_expect(any_less(right, left), 0)) {
            const lanes lowered = smaller(old, update(a, b, time, c, square));
            lanes_store(cell, if_less(right, left, lowered, old));
            found = 1;
        }
    }
    return found;
}

ALWAYS_INLINE void march_from(const rk_grid *grid, const double *h, double *p, double *work,
                              int from_right, int square)
{
    const coefficients c = make_coefficients(grid);
    const ptrdiff_t nx = grid->nx, ny = grid->ny;
    const ptrdiff_t stride = (ny + 2) * RK_LANES, h_stride = ny * RK_LANES;
    double *const first = p + stride + RK_LANES;
    if (from_right)
        for (ptrdiff_t i = nx - 1; i >= 0; i--)
            fresh_column(ny, first + (i + 1) * stride, h + i * h_stride, first + i * stride, work,
                         &c, square);
    int rightwards = from_right, found;
    do {
        found = 0;
        for (ptrdiff_t k = 0; k < nx; k++) {
            const ptrdiff_t i = rightwards ? k : nx - 1 - k;
            double *const column = first + i * stride;
            if (repair_column(ny, stride, h + i * h_stride, column, 1, &c, square)) {
                repair_column(ny, stride, h + i * h_stride, column, 0, &c, square);
                found = 1;
            }
        }
        rightwards = !rightwards;
    } while (found);
}

static void march(const rk_grid *grid, const double *h, double *p, double *work, int from_right)
{
    RK_ASSERT(grid->nx >= 1 && grid->ny >= 1);
    if (grid->aspect == 1)
        march_from(grid, h, p, work, from_right, 1);
    else
        march_from(grid, h, p, work, from_right, 0);
}

/* Fast sweeping (Zhao 2005): Gauss-Seidel over all cells in four orders, until a whole sweep lowers
 * nothing by more than rounding. */
static void sweep(const rk_grid *grid, const double *h, double *p)
{
    RK_ASSERT(grid->nx >= 1 && grid->ny >= 1);
    const coefficients c = make_coefficients(grid);
    const ptrdiff_t nx = grid->nx, ny = grid->ny, stride = (ny + 2) * RK_LANES;
    const lanes quiet = lanes_all(1 - 4 * DBL_EPSILON);
    int order = 0, lowered, still = 0;
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
        still = lowered ? 0 : still + 1;
    } while (!still);
}

/* -- Godunov step -------------------------------------------------------------------------------- */

typedef struct {
    lanes v_max, drop, critical; /* q(rho) = rho (v_max - drop rho), largest at `critical` */
} speed_law;

ALWAYS_INLINE lanes demand(lanes rho, const speed_law *law)
{
    const lanes r = smaller(rho, law->critical);
    return mul(r, sub(law->v_max, mul(law->drop, r)));
}

ALWAYS_INLINE lanes supply(lanes rho, const speed_law *law)
{
    const lanes r = larger(rho, law->critical);
    return mul(r, sub(law->v_max, mul(law->drop, r)));
}

/* Flux through a face from `lo` to `hi`; the potential rises by `along` across it, `aside` along it. */
ALWAYS_INLINE lanes face_flux(lanes along, lanes aside, lanes demand_lo, lanes supply_lo,
                              lanes demand_hi, lanes supply_hi)
{
    const lanes zero = lanes_all(0);
    const lanes steepness = root(larger(add(mul(along, along), mul(aside, aside)),
                                        lanes_all(DBL_MIN)));
    const lanes direction = quotient(along, steepness);
    const lanes amount = if_less(along, zero, smaller(demand_lo, supply_hi),
                                 smaller(demand_hi, supply_lo));
    return mul(sub(zero, direction), amount);
}

ALWAYS_INLINE lanes crossing_time(lanes rho, const rk_crowd *crowd, const speed_law *law)
{
    const lanes speed = larger(sub(law->v_max, mul(law->drop, rho)), lanes_all(crowd->min_speed));
    return quotient(lanes_all(crowd->dx), speed);
}

/* Rise of the potential from a cell to the one `stride` further; 0 across a wall. */
ALWAYS_INLINE lanes rise(const double *p, ptrdiff_t stride, double open)
{
    return mul(lanes_all(open), sub(lanes_load(p + stride), lanes_load(p)));
}

/* Rise across the lower plus across the upper face of each cell of a column. */
static void column_slope(ptrdiff_t ny, const double *p, const double *open_y, double *slope)
{
    lanes low = lanes_all(0); /* below the first cell is a wall */
    for (ptrdiff_t j = 0; j < ny; j++) {
        const lanes high = rise(p + j * RK_LANES, RK_LANES, open_y[j + 1]);
        lanes_store(slope + j * RK_LANES, add(low, high));
        low = high;
    }
}

ALWAYS_INLINE void finish_cell(const rk_crowd *crowd, const speed_law *law, lanes old, lanes net_x,
                               lanes net_y, double *cell, double *time)
{
    const lanes rho = sub(sub(old, net_x), net_y);
    lanes_store(cell, rho);
    if (*time != RK_WALL_TIME)
        lanes_store(time, crossing_time(rho, crowd, law));
}

/* One step of rho in place, from the potential p; h becomes the crossing times of the new state.
 * A face's flux is computed once and serves both its sides, so mass is kept to the rounding of the
 * cells; walls' fluxes are products with 0, so nothing ever enters a wall. */
static void step(const rk_crowd *crowd, const speed_law *law, double *restrict rho,
                 const double *restrict p, double *restrict h, double *restrict work)
{
    const ptrdiff_t nx = crowd->grid.nx, ny = crowd->grid.ny, n = ny * RK_LANES;
    const ptrdiff_t stride = n + 2 * RK_LANES;
    const lanes zero = lanes_all(0), quarter = lanes_all(0.25);
    const lanes ratio_x = lanes_all(crowd->ratio_x), ratio_y = lanes_all(crowd->ratio_y);
    double *const rise_left = work;     /* of the potential, across the left faces of column i */
    double *const slope = work + n;     /* of column i: rise across the lower + across the upper face */
    double *const flux_left = work + 2 * n;
    double *const wrap = work + 3 * n;  /* flux through the exit, from the last column to the first */
    const double *const first = p + stride + RK_LANES, *const last = first + (nx - 1) * stride;

    column_slope(ny, last, crowd->open_y + (nx - 1) * (ny + 1), slope);
    for (ptrdiff_t j = 0; j < ny; j++) {
        const ptrdiff_t k = j * RK_LANES;
        const lanes lo = lanes_load(rho + (nx - 1) * n + k), hi = lanes_load(rho + k);
        const lanes flux = face_flux(rise(last + k, stride, crowd->open_x[nx * ny + j]),
                                     mul(quarter, lanes_load(slope + k)), demand(lo, law),
                                     supply(lo, law), demand(hi, law), supply(hi, law));
        lanes_store(wrap + k, flux);
        lanes_store(flux_left + k, flux);
        /* the potential is not periodic: left of the first column nothing slopes */
        lanes_store(rise_left + k, zero);
    }
    column_slope(ny, first, crowd->open_y, slope);

    for (ptrdiff_t i = 0; i < nx; i++) {
        const double *const pc = first + i * stride;
        const double *const open_x = crowd->open_x + (i + 1) * ny;
        const double *const open_y = crowd->open_y + i * (ny + 1);
        const double *const open_next = open_y + (i < nx - 1 ? ny + 1 : 0);
        double *const cells = rho + i * n, *const times = h + i * n;
        /* of the cell below: its density, demand, supply, fluxes, rises of p on its left and right */
        lanes below = zero, demand_below = zero, supply_below = zero, net_below = zero,
              flux_low = zero, rises_below = zero, slope_low = zero;
        for (ptrdiff_t j = 0; j < ny; j++) {
            const ptrdiff_t k = j * RK_LANES;
            const lanes here = lanes_load(cells + k);
            const lanes demand_here = demand(here, law), supply_here = supply(here, law);
            const lanes rise_right = rise(pc + k, stride, open_x[j]);
            lanes flux_right;
            if (i < nx - 1) {
                const lanes right = lanes_load(cells + n + k);
                const lanes slope_high = rise(pc + stride + k, RK_LANES, open_next[j + 1]);
                const lanes slope_next = add(slope_low, slope_high);
                flux_right = face_flux(rise_right,
                                       mul(quarter, add(lanes_load(slope + k), slope_next)),
                                       demand_here, supply_here, demand(right, law),
                                       supply(right, law));
                lanes_store(slope + k, slope_next);
                slope_low = slope_high;
            } else {
                flux_right = lanes_load(wrap + k);
            }
            const lanes net = mul(ratio_x, sub(flux_right, lanes_load(flux_left + k)));
            lanes_store(flux_left + k, flux_right);
            const lanes rises = add(lanes_load(rise_left + k), rise_right);
            lanes_store(rise_left + k, rise_right);
            if (j) {
                /* the face between the cell below and this one */
                const lanes flux = face_flux(rise(pc + k - RK_LANES, RK_LANES, open_y[j]),
                                             mul(quarter, add(rises_below, rises)), demand_below,
                                             supply_below, demand_here, supply_here);
                finish_cell(crowd, law, below, net_below, mul(ratio_y, sub(flux, flux_low)),
                            cells + k - RK_LANES, times + k - RK_LANES);
                flux_low = flux;
            }
            below = here, demand_below = demand_here, supply_below = supply_here;
            net_below = net, rises_below = rises;
        }
        finish_cell(crowd, law, below, net_below, mul(ratio_y, sub(zero, flux_low)),
                    cells + n - RK_LANES, times + n - RK_LANES);
    }
}

static void advance(const rk_crowd *crowd, double *rho, ptrdiff_t n_steps, double *p, double *h,
                    double *work)
{
    RK_ASSERT(crowd->grid.nx >= 2 && crowd->grid.ny >= 1 && n_steps >= 0);
    const speed_law law = {lanes_all(crowd->v_max), lanes_all(crowd->v_max / crowd->rho_max),
                           lanes_all(crowd->rho_max / 2)};
    if (n_steps == 0)
        return;
    for (ptrdiff_t k = 0; k < crowd->grid.nx * crowd->grid.ny * RK_LANES; k += RK_LANES)
        if (h[k] != RK_WALL_TIME)
            lanes_store(h + k, crossing_time(lanes_load(rho + k), crowd, &law));
    for (ptrdiff_t s = 0; s < n_steps; s++) {
        march(&crowd->grid, h, p, work, 1);
        step(crowd, &law, rho, p, h, work);
    }
}

static void extract(const double *cells, ptrdiff_t nx, ptrdiff_t ny, ptrdiff_t lane, int normalised,
                    double *out)
{
    /* column by column: the rounding of the sum is that of nx + ny additions, not nx ny */
    double total = 0;
    for (ptrdiff_t i = 0; i < nx; i++) {
        double sum = 0;
        for (ptrdiff_t k = i * ny; k < (i + 1) * ny; k++)
            sum += out[k] = cells[k * RK_LANES + lane];
        total += sum;
    }
    if (normalised)
        for (ptrdiff_t k = 0; k < nx * ny; k++)
            out[k] /= total;
}

const rk_crowd_table RK_TABLE(crowd) = {
    .march = march, .sweep = sweep, .advance = advance, .extract = extract};
