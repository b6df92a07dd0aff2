"""Crowd flow: eikonal potentials, and Hughes' model advanced in time with snapshots on the way."""

from libc.string cimport memcpy

cdef const rk_crowd_table *table = rk_crowd_select()
cdef const rk_eikonal_table *one_lane = rk_eikonal_select()

LANES = RK_CROWD_LANES
FREE, SOURCE, WALL = RK_FREE, RK_SOURCE, RK_WALL


cdef inline const rk_eikonal_table *lanes_for(Py_ssize_t n_fields) noexcept nogil:
    # eight lanes cost as much as three or four fields one by one
    return &table.potentials if n_fields > 3 else one_lane


cdef void eikonal_fields(
    const rk_grid *grid, double dx, const double *slowness, const unsigned char *kind,
    const unsigned char *exits, Py_ssize_t pivot, Py_ssize_t n_fields, bint sweeping, double *work,
    double *out,
) noexcept nogil:
    """`solve` of rk_crowd.h for any number of fields, a group of lanes after the other."""
    cdef const rk_eikonal_table *eikonal
    cdef Py_ssize_t size, cells = grid.nx * grid.ny
    while n_fields > 0:
        eikonal = lanes_for(n_fields)
        size = min(n_fields, eikonal.lanes)
        eikonal.solve(grid, dx, slowness, kind, exits, pivot, size, sweeping, work, out)
        slowness += size * cells
        out += size * cells
        n_fields -= size


cdef void crowd_events(
    const rk_crowd *crowd, double *rho, double *p, double *h, double *work, double *aside,
    const Py_ssize_t *steps, const double *fractions, const Py_ssize_t *rows, Py_ssize_t n_events,
    bint normalised, double *out,
) noexcept nogil:
    """Advance rho by steps[k] steps, then write lane l to row rows[k, l] of out (none if < 0).

    With fractions[k] > 0 what is written is the state after one more step of that part of dt; that
    step is taken aside, so what is written at one time does not depend on the other times.
    """
    cdef Py_ssize_t cells = crowd.grid.nx * crowd.grid.ny
    cdef Py_ssize_t k, lane, row
    cdef rk_crowd shorter
    cdef double *source
    for k in range(n_events):
        table.advance(crowd, rho, steps[k], p, h, work)
        source = rho
        if fractions[k] > 0:
            memcpy(aside, rho, <size_t> (cells * RK_CROWD_LANES) * sizeof(double))
            shorter = crowd[0]
            shorter.ratio_x = crowd.ratio_x * fractions[k]
            shorter.ratio_y = crowd.ratio_y * fractions[k]
            table.advance(&shorter, aside, 1, p, h, work)
            source = aside
        for lane in range(RK_CROWD_LANES):
            row = rows[k * RK_CROWD_LANES + lane]
            if row >= 0:
                table.extract(source, crowd.grid.nx, crowd.grid.ny, lane, normalised,
                              out + row * cells)


def eikonal_work_size(Py_ssize_t n, Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `eikonal` for n fields."""
    return rk_eikonal_work(lanes_for(n).lanes, nx, ny)


def eikonal(const double[:, :, ::1] slowness, const unsigned char[:, ::1] kind,
            const unsigned char[::1] exits, double dx, double aspect, Py_ssize_t pivot,
            bint sweeping, double[::1] work, double[:, :, ::1] out):
    """`eikonal_fields` for fields (n, nx, ny); kind (nx, ny): FREE, SOURCE or WALL."""
    cdef rk_grid grid
    if out.shape[0] == 0 or out.shape[1] == 0 or out.shape[2] == 0:
        return
    grid.nx, grid.ny, grid.aspect = out.shape[1], out.shape[2], aspect
    with nogil:
        eikonal_fields(&grid, dx, &slowness[0, 0, 0], &kind[0, 0], &exits[0], pivot, out.shape[0],
                       sweeping, &work[0], &out[0, 0, 0])


def run_work_size(Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `run`."""
    return ((nx + 2) * (ny + 2) + 2 * nx * ny) * RK_CROWD_LANES + rk_crowd_work(ny)


def run(double[:, :, ::1] state, double[::1] work, const unsigned char[:, ::1] kind,
        const unsigned char[::1] exits, const double[:, ::1] open_x, const double[:, ::1] open_y,
        double dx, double dy, double dt, double v_max, double rho_max, double min_speed,
        const Py_ssize_t[::1] steps, const double[::1] fractions, const Py_ssize_t[:, ::1] rows,
        bint normalised, double[:, ::1] out):
    """`crowd_events` on state (nx, ny, LANES), changed in place; out (n_rows, nx * ny).

    kind (nx, ny): FREE or WALL; exits: see `prepare` in rk_eikonal.h; open_x (nx + 1, ny): 1 at
    open faces, its last row the exit; open_y (nx, ny + 1): dx / dy at open faces.
    """
    cdef Py_ssize_t nx = state.shape[0], ny = state.shape[1], cells = nx * ny, k, lane
    cdef rk_crowd crowd
    cdef double *p
    cdef double *h
    cdef double *aside
    cdef double *columns
    cdef const unsigned char *kinds
    if steps.shape[0] == 0 or out.shape[0] == 0:
        return
    crowd.grid.nx, crowd.grid.ny, crowd.grid.aspect = nx, ny, dy / dx
    crowd.v_max, crowd.rho_max, crowd.min_speed = v_max, rho_max, min_speed
    crowd.dx, crowd.ratio_x, crowd.ratio_y = dx, dt / dx, dt / dy
    crowd.open_x, crowd.open_y = &open_x[0, 0], &open_y[0, 0]
    p, kinds = &work[0], &kind[0, 0]
    with nogil:
        h = p + (nx + 2) * (ny + 2) * RK_CROWD_LANES
        aside = h + cells * RK_CROWD_LANES
        columns = aside + cells * RK_CROWD_LANES
        table.prepare(&crowd.grid, kinds, &exits[0], False, p)
        for k in range(cells):
            for lane in range(RK_CROWD_LANES):
                h[k * RK_CROWD_LANES + lane] = RK_FIXED if kinds[k] else 0.0
        crowd_events(&crowd, &state[0, 0, 0], p, h, columns, aside, &steps[0], &fractions[0],
                     &rows[0, 0], steps.shape[0], normalised, &out[0, 0])
