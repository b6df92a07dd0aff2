/* LWR traffic flow q_t + (v q (1 - q/R))_x = 0 on a periodic grid. */
#ifndef RK_TRAFFIC_H
#define RK_TRAFFIC_H
#include "rk_dispatch.h"

/* Ghost cells before the first and after the last cell of a state. */
enum { RK_LWR_GHOSTS_LEFT = 2, RK_LWR_GHOSTS_RIGHT = 1 };

typedef struct {
    /* q: n >= 2 cells, the ghost cells before and after them; courant = v dt/dx;
     * fluxes are rounded to multiples of ulp(rounding), see traffic.c. */
    void (*advance)(double *q, ptrdiff_t n, ptrdiff_t n_steps, double courant, double rho_max,
                    double rounding);
} rk_traffic_table;
RK_TABLES(traffic)

#endif
