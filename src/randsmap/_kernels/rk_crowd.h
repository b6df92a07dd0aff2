/* Crowd flow (Hughes): eikonal potential and conservative Godunov step, eight fields at once.
 *
 * Arrays of cells: (nx, ny, RK_CROWD_LANES), column i at x_i, lanes innermost. A potential has a
 * frame of ghost cells: (nx + 2, ny + 2, RK_CROWD_LANES). Lanes do not influence one another, to
 * the last bit. */
#ifndef RK_CROWD_H
#define RK_CROWD_H
#include "rk_dispatch.h"

enum { RK_CROWD_LANES = 8 };
/* Potential of cells that nothing has reached; stands for infinity, but differences of it are 0. */
#define RK_UNREACHED 1e140
/* Crossing time that marks a cell of fixed potential, 0 (source) or RK_UNREACHED (wall), in all
 * lanes. Its square is finite and above those of potentials: no check asks to lower such a cell. */
#define RK_FIXED 1e154

typedef struct {
    ptrdiff_t nx, ny;
    double aspect; /* dy / dx */
} rk_grid;

typedef struct {
    rk_grid grid;
    double v_max, rho_max, min_speed;
    double dx;
    double ratio_x, ratio_y;  /* dt / dx, dt / dy */
    /* (nx + 1, ny): 1 at faces that people can cross, 0 at walls. Face i is left of column i; nx
     * is the exit, face 0 is closed to the potential. */
    const double *open_x;
    /* (nx, ny + 1): dx / dy at open faces, 0 at walls. Face j is below cell j. */
    const double *open_y;
} rk_crowd;

/* What a cell is. */
enum rk_cell { RK_FREE = 0, RK_SOURCE = 1, RK_WALL = 2 };

typedef struct {
    ptrdiff_t lanes;
    /* Potentials of |grad p| = slowness, 1 to `lanes` fields (n_fields, nx, ny), infinite where
     * nothing reaches. kind (nx, ny); exits: see `prepare` in rk_eikonal.h. work: rk_eikonal_work
     * doubles. By column marching: columns before `pivot` from right to left, then the others from
     * left to right (pivot: 1 + the last column with a source, nx if there are sources in the
     * frame), then repairs. Or by fast sweeping: all cells updated in four alternating orders. */
    void (*solve)(const rk_grid *grid, double dx, const double *slowness, const unsigned char *kind,
                  const unsigned char *exits, ptrdiff_t pivot, ptrdiff_t n_fields, int sweeping,
                  double *work, double *out);
} rk_eikonal_table; /* eikonal.c: one lane */
RK_TABLES(eikonal)

typedef struct {
    rk_eikonal_table potentials; /* RK_CROWD_LANES lanes */
    /* Potential p (nx + 2, ny + 2) before the first step: frame and walls. */
    void (*prepare)(const rk_grid *grid, const unsigned char *kind, const unsigned char *exits,
                    int all, double *p);
    /* n_steps steps of rho (nx, ny). p as prepared or as the last call left it; h (nx, ny):
     * RK_FIXED in walls, anything else elsewhere; work: rk_crowd_work doubles. */
    void (*advance)(const rk_crowd *crowd, double *rho, ptrdiff_t n_steps, double *p, double *h,
                    double *work);
    /* lane of `cells` (n, RK_CROWD_LANES) to out (n), divided by its sum if normalised. */
    void (*extract)(const double *cells, ptrdiff_t nx, ptrdiff_t ny, ptrdiff_t lane, int normalised,
                    double *out);
} rk_crowd_table;
RK_TABLES(crowd)

/* Doubles of workspace of `advance`. */
static inline ptrdiff_t rk_crowd_work(ptrdiff_t ny) { return 4 * ny * RK_CROWD_LANES; }

/* Doubles of workspace of `solve`: a potential, crossing times, two columns. */
static inline ptrdiff_t rk_eikonal_work(ptrdiff_t lanes, ptrdiff_t nx, ptrdiff_t ny)
{
    return ((nx + 2) * (ny + 2) + nx * ny + 2 * ny) * lanes;
}

#endif
