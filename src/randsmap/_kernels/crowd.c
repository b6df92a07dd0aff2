/* Hughes' crowd model: potentials (rk_eikonal.h) and Godunov steps, eight trajectories at once. */
#include "rk_crowd.h"
#define RK_WIDTH_MAX 4
#include "rk_eikonal.h"

_Static_assert((int)RK_LANES == (int)RK_CROWD_LANES, "lanes");

typedef struct {
    lanes v_max, drop, critical; /* q(rho) = rho (v_max - drop rho), largest at `critical` */
} speed_law;

RK_INLINE lanes demand(lanes rho, const speed_law *law)
{
    const lanes r = smaller(rho, law->critical);
    return mul(r, sub(law->v_max, mul(law->drop, r)));
}

RK_INLINE lanes supply(lanes rho, const speed_law *law)
{
    const lanes r = larger(rho, law->critical);
    return mul(r, sub(law->v_max, mul(law->drop, r)));
}

/* Flux through a face from `lo` to `hi`. The potential's rises: `along` across it,
 * `aside` parallel to it. */
RK_INLINE lanes face_flux(lanes along, lanes aside, lanes demand_lo, lanes supply_lo,
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

typedef struct {
    const rk_crowd *crowd;
    const speed_law *law;
    const double *rho;
} crowding;

/* Crossing times dx / f(rho), f floored; walls keep theirs. */
static int times_of_crowd(const void *context, ptrdiff_t i, double *h)
{
    const crowding *const s = context;
    const ptrdiff_t n = s->crowd->grid.ny * RK_LANES;
    const lanes slowest = lanes_all(s->crowd->min_speed), dx = lanes_all(s->crowd->dx);
    int fixed = 0;
    for (ptrdiff_t k = 0; k < n; k += RK_LANES)
        if (h[k] != RK_FIXED) {
            const lanes rho = lanes_load(s->rho + i * n + k);
            const lanes speed = larger(sub(s->law->v_max, mul(s->law->drop, rho)), slowest);
            lanes_store(h + k, quotient(dx, speed));
        } else {
            fixed = 1;
        }
    return fixed;
}

/* Rise of the potential from a cell to the one `stride` further; 0 across a wall. */
RK_INLINE lanes rise(const double *p, ptrdiff_t stride, double open)
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

/* One step of rho in place, from the potential p. The flux of a face is computed once and used on both sides, so mass
 * is conserved to the rounding of the cells; walls' fluxes are products with 0, so nothing ever enters a wall. */
static void step(const rk_crowd *crowd, const speed_law *law, double *restrict rho,
                 const double *restrict p, double *restrict work)
{
    const ptrdiff_t nx = crowd->grid.nx, ny = crowd->grid.ny, n = ny * RK_LANES;
    const ptrdiff_t stride = n + 2 * RK_LANES;
    const lanes zero = lanes_all(0), quarter = lanes_all(0.25);
    const lanes ratio_x = lanes_all(crowd->ratio_x), ratio_y = lanes_all(crowd->ratio_y);
    double *const rise_left = work;     /* of the potential, across the left faces of column i */
    double *const slope = work + n;     /* column i: rise across its lower + its upper face */
    double *const flux_left = work + 2 * n;
    double *const wrap = work + 3 * n;  /* flux through the exit: from last column to first */
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
        double *const cells = rho + i * n;
        /* of the cell below: density, demand, supply, fluxes, rises of p on its left + its right */
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
                lanes_store(cells + k - RK_LANES, sub(sub(below, net_below),
                                                      mul(ratio_y, sub(flux, flux_low))));
                flux_low = flux;
            }
            below = here, demand_below = demand_here, supply_below = supply_here;
            net_below = net, rises_below = rises;
        }
        lanes_store(cells + n - RK_LANES,
                    sub(sub(below, net_below), mul(ratio_y, sub(zero, flux_low))));
    }
}

static void advance(const rk_crowd *crowd, double *rho, ptrdiff_t n_steps, double *p, double *h,
                    double *work)
{
    RK_ASSERT(crowd->grid.nx >= 2 && crowd->grid.ny >= 1 && n_steps >= 0);
    const speed_law law = {lanes_all(crowd->v_max), lanes_all(crowd->v_max / crowd->rho_max),
                           lanes_all(crowd->rho_max / 2)};
    const crowding context = {crowd, &law, rho};
    for (ptrdiff_t s = 0; s < n_steps; s++) {
        march(&crowd->grid, times_of_crowd, &context, h, p, work, crowd->grid.nx);
        step(crowd, &law, rho, p, work);
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
    .potentials = {.lanes = RK_LANES, .solve = solve},
    .prepare = prepare,
    .advance = advance,
    .extract = extract};
