"""Crowd flow: eikonal potentials, and Hughes' model advanced in time with snapshots on the way."""

from libc.math cimport INFINITY
from libc.string cimport memcpy

cdef const rk_crowd_table *table = rk_crowd_select()
cdef const rk_eikonal_table *one_lane = rk_eikonal_select()

LANES = RK_CROWD_LANES
FREE, SOURCE, WALL = 0, 1, 2
EXIT_RIGHT = RK_EXIT_RIGHT


cdef void set_frame(const rk_grid *grid, Py_ssize_t lanes, const unsigned char *exits,
                    double *p) noexcept nogil:
    """Ghost cells of a potential: 0 beyond exits, unreached beyond walls.

    exits: a flag for each row of the left side, of the right side, then one for the bottom and the top.
    """
    cdef Py_ssize_t i, j, lane, ny = grid.ny, column = (ny + 2) * lanes
    cdef double *last = p + (grid.nx + 1) * column
    for lane in range(lanes):
        for i in range(grid.nx + 2):
            p[i * column + lane] = 0.0 if exits[2 * ny] else RK_UNREACHED
            p[(i + 1) * column - lanes + lane] = 0.0 if exits[2 * ny + 1] else RK_UNREACHED
        for j in range(ny):
            p[(j + 1) * lanes + lane] = 0.0 if exits[j] else RK_UNREACHED
            last[(j + 1) * lanes + lane] = 0.0 if exits[ny + j] else RK_UNREACHED


cdef void eikonal_group(
    const rk_grid *grid, double dx, const double *slowness, const unsigned char *kind,
    const unsigned char *exits, Py_ssize_t pivot, Py_ssize_t n_fields, bint sweeping, double *work,
    double *out,
) noexcept nogil:
    """Potentials of 1 to LANES fields (n_fields, nx, ny); see rk_crowd.h for pivot, set_frame for exits."""
    cdef Py_ssize_t lanes = 1 if n_fields == 1 else RK_CROWD_LANES
    cdef Py_ssize_t nx = grid.nx, ny = grid.ny, cells = nx * ny
    cdef Py_ssize_t i, j, lane, k
    cdef double *p = work
    cdef double *h = p + (nx + 2) * (ny + 2) * lanes
    cdef double *columns = h + cells * lanes
    cdef double *inner = p + (ny + 3) * lanes
    cdef double value
    for k in range(cells):
        for lane in range(lanes):
            # a lane without a field repeats the first: it never adds work
            h[k * lanes + lane] = RK_WALL_TIME if kind[k] == 2 \
                else dx * slowness[(lane if lane < n_fields else 0) * cells + k]
    set_frame(grid, lanes, exits, p)
    if sweeping or pivot != RK_EXIT_RIGHT:
        for i in range(nx):
            for j in range(ny):
                for lane in range(lanes):
                    inner[(i * (ny + 2) + j) * lanes + lane] = \
                        0.0 if kind[i * ny + j] == 1 else RK_UNREACHED
    if sweeping:
        if lanes == 1:
            one_lane.sweep(grid, h, p)
        else:
            table.sweep(grid, h, p)
    elif lanes == 1:
        one_lane.march(grid, h, p, columns, pivot)
    else:
        table.march(grid, h, p, columns, pivot)
    for i in range(nx):
        for j in range(ny):
            for lane in range(n_fields):
                value = inner[(i * (ny + 2) + j) * lanes + lane]
                out[lane * cells + i * ny + j] = value if value < RK_UNREACHED else INFINITY


cdef void crowd_events(
    const rk_crowd *crowd, double *rho, double *p, double *h, double *work, double *aside,
    const Py_ssize_t *steps, const double *fractions, const Py_ssize_t *rows, Py_ssize_t n_events,
    bint normalised, double *out,
) noexcept nogil:
    """Advance rho by steps[k] whole steps, then write lane l to row rows[k, l] of out (none if < 0).

    With fractions[k] > 0 what is written is the state after one more step of that part of dt; that step
    is taken aside, so what is written at one time does not depend on the other times.
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


cdef inline Py_ssize_t framed(Py_ssize_t nx, Py_ssize_t ny) noexcept nogil:
    return (nx + 2) * (ny + 2) * RK_CROWD_LANES


cdef inline Py_ssize_t group_size(Py_ssize_t n) noexcept nogil:
    # eight lanes cost as much as three or four fields one by one
    return min(n, RK_CROWD_LANES) if n > 3 else 1


def eikonal_work_size(Py_ssize_t n, Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `eikonal` for n fields."""
    if group_size(n) == 1:
        return (nx + 2) * (ny + 2) + nx * ny + 2 * ny
    return framed(nx, ny) + nx * ny * RK_CROWD_LANES + rk_crowd_work(ny)


def eikonal(const double[:, :, ::1] slowness, const unsigned char[:, ::1] kind,
            const unsigned char[::1] exits, double dx, double aspect, Py_ssize_t pivot, bint sweeping,
            double[::1] work, double[:, :, ::1] out):
    """Potentials of fields (n, nx, ny), group by group; kind (nx, ny): FREE, SOURCE or WALL."""
    cdef Py_ssize_t done = 0, n = out.shape[0], size
    cdef rk_grid grid
    if out.shape[0] == 0 or out.shape[1] == 0 or out.shape[2] == 0:
        return
    grid.nx, grid.ny, grid.aspect = out.shape[1], out.shape[2], aspect
    with nogil:
        while done < n:
            size = group_size(n - done)
            eikonal_group(&grid, dx, &slowness[done, 0, 0], &kind[0, 0], &exits[0], pivot, size,
                          sweeping, &work[0], &out[done, 0, 0])
            done += size


def run_work_size(Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `run`."""
    return framed(nx, ny) + 2 * nx * ny * RK_CROWD_LANES + rk_crowd_work(ny)


def run(double[:, :, ::1] state, double[::1] work, const unsigned char[:, ::1] kind,
        const unsigned char[::1] exits,
        const double[:, ::1] open_x, const double[:, ::1] open_y, double dx, double dy, double dt,
        double v_max, double rho_max, double min_speed, const Py_ssize_t[::1] steps,
        const double[::1] fractions, const Py_ssize_t[:, ::1] rows, bint normalised,
        double[:, ::1] out):
    """`crowd_events` on state (nx, ny, LANES), changed in place; out (n_rows, nx * ny).

    kind (nx, ny): FREE or WALL; exits: see `set_frame`; open_x (nx + 1, ny): 1 at open faces, its last
    row the exit; open_y (nx, ny + 1): dx / dy at open faces.
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
        h = p + framed(nx, ny)
        aside = h + cells * RK_CROWD_LANES
        columns = aside + cells * RK_CROWD_LANES
        set_frame(&crowd.grid, RK_CROWD_LANES, &exits[0], p)
        for k in range(cells):
            for lane in range(RK_CROWD_LANES):
                h[k * RK_CROWD_LANES + lane] = RK_WALL_TIME if kinds[k] == 2 else 0.0
        crowd_events(&crowd, &state[0, 0, 0], p, h, columns, aside, &steps[0], &fractions[0],
                     &rows[0, 0], steps.shape[0], normalised, &out[0, 0])
