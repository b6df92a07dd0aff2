/* Crowd flow (Hughes): eikonal potential and conservative Godunov step, RK_LANES fields at once.
 *
 * Arrays of cells: (nx, ny, RK_LANES), column i at x_i, lanes innermost. A potential has a frame of
 * ghost cells: (nx + 2, ny + 2, RK_LANES). Lanes do not influence one another, to the last bit. */
#ifndef RK_CROWD_H
#define RK_CROWD_H
#include "rk_dispatch.h"

enum { RK_CROWD_LANES = 8 };
/* Potential of cells that nothing has reached; stands for infinity, but differences of it are 0. */
#define RK_UNREACHED 1e150
/* Crossing time of a wall cell: no update of it is below RK_UNREACHED. */
#define RK_WALL_TIME 1e152
#define RK_EXIT_RIGHT (-1)

typedef struct {
    ptrdiff_t nx, ny;
    double aspect; /* dy / dx */
} rk_grid;

typedef struct {
    rk_grid grid;
    double v_max, rho_max, min_speed;
    double dx;
    double ratio_x, ratio_y;  /* dt / dx, dt / dy */
    const double *open_x;     /* (nx + 1, ny): 1 at faces that people can cross, 0 at walls; face i is left
                                 of column i; face nx is the exit, face 0 is closed to the potential */
    const double *open_y;     /* (nx, ny + 1): dx / dy at open faces, 0 at walls; face j is below cell j */
} rk_crowd;

/* Potential p of |grad p| = slowness; h (nx, ny) holds dx * slowness, the time to cross a cell along x
 * (RK_WALL_TIME in walls). On entry p is 0 at sources (ghost cells beyond exits included) and RK_UNREACHED
 * elsewhere, the ghosts of walls included. `work`: rk_crowd_work doubles for eight lanes. */
typedef struct {
    /* Column marching: columns before `pivot` from right to left, then the others from left to right
     * (pivot: 1 + the last column with a source, nx if sources are in the frame), then repairs.
     * RK_EXIT_RIGHT: all sources are ghosts beyond the last column; only the frame of p is read. */
    void (*march)(const rk_grid *grid, const double *h, double *p, double *work, ptrdiff_t pivot);
    /* Fast sweeping: all cells updated in four alternating orders. */
    void (*sweep)(const rk_grid *grid, const double *h, double *p);
} rk_eikonal_table; /* one field: lanes = 1 */
RK_TABLES(eikonal)

typedef struct {
    void (*march)(const rk_grid *grid, const double *h, double *p, double *work, ptrdiff_t pivot);
    void (*sweep)(const rk_grid *grid, const double *h, double *p);
    /* n_steps steps of rho (nx, ny). p: potential, its frame set (0 beyond the exit, RK_UNREACHED
     * elsewhere); h (nx, ny): RK_WALL_TIME in walls, anything else elsewhere. */
    void (*advance)(const rk_crowd *crowd, double *rho, ptrdiff_t n_steps, double *p, double *h,
                    double *work);
    /* lane of `cells` (n, RK_LANES) to out (n), divided by its sum if normalised. */
    void (*extract)(const double *cells, ptrdiff_t nx, ptrdiff_t ny, ptrdiff_t lane, int normalised,
                    double *out);
} rk_crowd_table;
RK_TABLES(crowd)

/* Doubles of scratch that `march` and `advance` need. */
static inline ptrdiff_t rk_crowd_work(ptrdiff_t ny) { return 4 * ny * RK_CROWD_LANES; }

#endif
