/* High-resolution Godunov scheme for the LWR equation (LeVeque, Finite Volume Methods for
 * Hyperbolic Problems, 2002, chapters 6, 11 and 12; the scheme of Clawpack's `traffic_1D`, order 2,
 * van Leer).
 *
 * With jumps W_i = q_i - q_{i-1} and Courant numbers nu_i = (v dt/dx)(1 - (q_{i-1} + q_i)/R) the
 * flux through face i, times dt/dx, is
 *     G_i = Godunov flux + |nu_i| (1 - |nu_i|) / 2 * phi(W_up / W_i) W_i,
 * where W_up is the jump at the neighbouring face upwind and phi is van Leer's limiter, written as
 * phi(r) W = 2 W W_up / (W + W_up) where W W_up > 0, else 0: one division a face.
 * The Roe flux with entropy fix of a concave flux function is the flux of the upwind density, moved
 * to the sonic density R/2 where it lies beyond it (transonic rarefaction).
 *
 * Mass: a face has one flux, used by both sides, so the total changes by the rounding of q + (G_i - G_{i+1}) alone. The
 * caller makes the initial densities multiples of a quantum u >= ulp(max q), here the fluxes are rounded to such
 * multiples too, and then every sum and difference is a multiple of u small enough for 53 bits: no rounding is left and
 * the total stays the same number for ever. This also avoids subnormal numbers.
 *
 * The loops run along the cells: lanes across trajectories gained 3 % at most, and need a
 * transposition, padding, and a second kernel for the single trajectory. The results are the same
 * at any vector length because nothing is summed across cells and products are not contracted. */
#include "rk_traffic.h"
#include "rk_simd.h"

enum { BLOCK = 512 }; /* faces at a time: their fluxes stay in the L1 cache */

static void face_fluxes(const double *restrict q, double *restrict flux, ptrdiff_t n, double speed,
                        double rho_max, double rounding)
{
    const double sonic = rho_max / 2, *q_0 = q - 2, *q_1 = q - 1, *q_3 = q + 1;
    RK_FORGET(q_0);
    RK_FORGET(q_1);
    RK_FORGET(q_3);
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++) {
        const double left = q_1[i], right = q[i];
        const double jump = right - left;
        const double jump_left = left - q_0[i], jump_right = q_3[i] - right;
        const double excess = rho_max - (left + right);
        const double jump_upwind = excess > 0 ? jump_left : jump_right;
        const double product = jump * jump_upwind;
        const double quotient = product / (product > 0 ? jump + jump_upwind : 1);
        const double half_limited = product > 0 ? quotient : 0;
        const double demand = left < sonic ? left : sonic;
        const double supply = right > sonic ? right : sonic;
        const double upwind = excess > 0 ? demand : supply;
        const double nu = fabs(speed * excess);
        const double g = speed * upwind * (rho_max - upwind) + nu * (1 - nu) * half_limited;
        flux[i] = (g + rounding) - rounding;
    }
}

static void step(double *q, ptrdiff_t n, double speed, double rho_max, double rounding)
{
    /* Faces first - 2, first - 1 and those of a block. Cells are updated two behind the faces, which
     * need the old values of two cells to the left. */
    double flux[2 + BLOCK], flux_0 = 0;
    flux[0] = flux[1] = 0; /* not read before they are written; compilers cannot know */
    q[-2] = q[n - 2];
    q[-1] = q[n - 1];
    q[n] = q[0];
    for (ptrdiff_t first = 0; first < n; first += BLOCK) {
        const ptrdiff_t length = n - first < BLOCK ? n - first : BLOCK;
        face_fluxes(q + first, flux + 2, length, speed, rho_max, rounding);
        if (first == 0)
            flux_0 = flux[2];
        double *restrict cell = q + first - 2;
#pragma omp simd
        for (ptrdiff_t k = first == 0 ? 2 : 0; k < length; k++)
            cell[k] += flux[k] - flux[k + 1];
        flux[0] = flux[length];
        flux[1] = flux[length + 1];
    }
    q[n - 2] += flux[0] - flux[1];
    q[n - 1] += flux[1] - flux_0;
}

static void advance(double *q, ptrdiff_t n, ptrdiff_t n_steps, double courant, double rho_max,
                    double rounding)
{
    RK_ASSERT(n >= 2);
    for (ptrdiff_t k = 0; k < n_steps; k++)
        step(q, n, courant / rho_max, rho_max, rounding);
}

const rk_traffic_table RK_TABLE(traffic) = {.advance = advance};
