"""Crowd flow: eikonal potentials, and Hughes' model advanced in time with snapshots on the way."""

from libc.string cimport memcpy

cdef const rk_crowd_table *table = rk_crowd_select()
cdef const rk_eikonal_table *one_lane = rk_eikonal_select()

LANES = RK_CROWD_LANES
FREE, SOURCE, WALL = RK_FREE, RK_SOURCE, RK_WALL


cdef inline const rk_eikonal_table *lanes_for(Py_ssize_t n_fields) noexcept nogil:
    # eight lanes cost as much as three or four fields one by one
    return &table.potentials if n_fields > 3 else one_lane


def eikonal_work_size(Py_ssize_t n, Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `eikonal` for n fields."""
    return rk_eikonal_work(lanes_for(n).lanes, nx, ny)


def eikonal(const double[:, :, ::1] slowness, const unsigned char[:, ::1] kind,
            const unsigned char[::1] exits, double dx, double aspect, Py_ssize_t pivot,
            bint sweeping, double[::1] work, double[:, :, ::1] out):
    """`solve` of rk_crowd.h for any number of fields (n, nx, ny), a group of lanes after the other; kind (nx, ny):
    FREE, SOURCE or WALL."""
    cdef rk_grid grid
    cdef const rk_eikonal_table *solver
    cdef Py_ssize_t size, first = 0, n = out.shape[0]
    if out.shape[0] == 0 or out.shape[1] == 0 or out.shape[2] == 0:
        return
    grid.nx, grid.ny, grid.aspect = out.shape[1], out.shape[2], aspect
    with nogil:
        while first < n:
            solver = lanes_for(n - first)
            size = min(n - first, solver.lanes)
            solver.solve(&grid, dx, &slowness[first, 0, 0], &kind[0, 0], &exits[0], pivot, size, sweeping, &work[0],
                         &out[first, 0, 0])
            first += size


def run_work_size(Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `run`."""
    return ((nx + 2) * (ny + 2) + 2 * nx * ny) * RK_CROWD_LANES + rk_crowd_work(ny)


def run(double[:, :, ::1] state, double[::1] work, const unsigned char[:, ::1] kind,
        const unsigned char[::1] exits, const double[:, ::1] open_x, const double[:, ::1] open_y,
        double dx, double dy, double dt, double v_max, double rho_max, double min_speed,
        const Py_ssize_t[::1] steps, const double[::1] fractions, const Py_ssize_t[:, ::1] rows,
        bint normalised, double[:, ::1] out):
    """Advance a state (nx, ny, LANES) by steps[k] steps, then write lane l to row rows[k, l] of out (n_rows, nx * ny)
    (none if < 0), k by k.

    With fractions[k] > 0 what is written is the state after one more step of that part of dt; that
    step is taken aside, so what is written at one time does not depend on the other times.

    kind (nx, ny): FREE or WALL; exits: see `prepare` in rk_eikonal.h; open_x (nx + 1, ny): 1 at
    open faces, its last row the exit; open_y (nx, ny + 1): dx / dy at open faces.
    """
    cdef Py_ssize_t nx = state.shape[0], ny = state.shape[1], cells = nx * ny, k, lane
    cdef rk_crowd crowd, shorter
    cdef double *rho = &state[0, 0, 0]
    cdef double *p
    cdef double *h
    cdef double *aside
    cdef double *columns
    cdef double *source
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
        for k in range(steps.shape[0]):
            table.advance(&crowd, rho, steps[k], p, h, columns)
            source = rho
            if fractions[k] > 0:
                memcpy(aside, rho, <size_t> (cells * RK_CROWD_LANES) * sizeof(double))
                shorter = crowd
                shorter.ratio_x, shorter.ratio_y = crowd.ratio_x * fractions[k], crowd.ratio_y * fractions[k]
                table.advance(&shorter, aside, 1, p, h, columns)
                source = aside
            for lane in range(RK_CROWD_LANES):
                if rows[k, lane] >= 0:
                    table.extract(source, nx, ny, lane, normalised, &out[rows[k, lane], 0])
