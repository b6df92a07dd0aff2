"""Crowd flow: eikonal potentials, and Hughes' model advanced in time with snapshots on the way."""

from libc.math cimport INFINITY
from libc.string cimport memcpy

cdef const rk_crowd_table *table = rk_crowd_select()

LANES = RK_CROWD_LANES
FREE, SOURCE, WALL = 0, 1, 2


cdef void set_frame(const rk_grid *grid, const unsigned char *left, const unsigned char *right,
                    bint bottom, bint top, double *p) noexcept nogil:
    """Ghost cells of a potential: 0 beyond exits, unreached beyond walls.

    left, right: a flag for each row (NULL: wall); bottom, top: for the whole side.
    """
    cdef Py_ssize_t i, j, lane, column = (grid.ny + 2) * RK_CROWD_LANES
    cdef double *first = p
    cdef double *last = p + (grid.nx + 1) * column
    for lane in range(RK_CROWD_LANES):
        for i in range(grid.nx + 2):
            p[i * column + lane] = 0.0 if bottom else RK_UNREACHED
            p[(i + 1) * column - RK_CROWD_LANES + lane] = 0.0 if top else RK_UNREACHED
        for j in range(grid.ny):
            first[(j + 1) * RK_CROWD_LANES + lane] = \
                0.0 if left != NULL and left[j] else RK_UNREACHED
            last[(j + 1) * RK_CROWD_LANES + lane] = \
                0.0 if right != NULL and right[j] else RK_UNREACHED


cdef void eikonal_group(
    const rk_crowd_table *table, const rk_grid *grid, double dx, const double *slowness,
    const unsigned char *kind, const unsigned char *exits, bint from_right, Py_ssize_t n_fields,
    bint sweeping, double *h, double *p, double *work, double *out,
) noexcept nogil:
    """Potentials of 1 to LANES fields; exits: left, right (ny flags each), bottom, top (1 each)."""
    cdef Py_ssize_t cells = grid.nx * grid.ny
    cdef Py_ssize_t i, j, lane, k, at
    cdef const double *field
    for k in range(cells):
        for lane in range(RK_CROWD_LANES):
            # lanes without a field repeat the first: they never add work
            field = slowness + (lane if lane < n_fields else 0) * cells
            h[k * RK_CROWD_LANES + lane] = RK_WALL_TIME if kind[k] == 2 else dx * field[k]
    set_frame(grid, exits, exits + grid.ny, exits[2 * grid.ny], exits[2 * grid.ny + 1], p)
    if sweeping or not from_right:
        for i in range(grid.nx):
            for j in range(grid.ny):
                at = ((i + 1) * (grid.ny + 2) + j + 1) * RK_CROWD_LANES
                for lane in range(RK_CROWD_LANES):
                    p[at + lane] = 0.0 if kind[i * grid.ny + j] == 1 else RK_UNREACHED
    if sweeping:
        table.sweep(grid, h, p)
    else:
        table.march(grid, h, p, work, from_right)
    for i in range(grid.nx):
        for j in range(grid.ny):
            at = ((i + 1) * (grid.ny + 2) + j + 1) * RK_CROWD_LANES
            for lane in range(n_fields):
                out[lane * cells + i * grid.ny + j] = \
                    p[at + lane] if p[at + lane] < RK_UNREACHED else INFINITY


cdef void crowd_events(
    const rk_crowd_table *table, const rk_crowd *crowd, double *rho, double *p, double *h,
    double *work, double *aside, const Py_ssize_t *steps, const double *fractions,
    const Py_ssize_t *rows, Py_ssize_t n_events, bint normalised, double *out,
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


def eikonal_work_size(Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `eikonal`."""
    return framed(nx, ny) + nx * ny * RK_CROWD_LANES + rk_crowd_work(ny)


def eikonal(const double[:, :, ::1] slowness, const unsigned char[:, ::1] kind,
            const unsigned char[::1] exits, double dx, double aspect, bint from_right, bint sweeping,
            double[::1] work, double[:, :, ::1] out):
    """`eikonal_group` for fields (n, nx, ny), n at most LANES, kind (nx, ny) FREE, SOURCE or WALL."""
    cdef rk_grid grid
    cdef double *h
    cdef double *column
    if out.shape[0] == 0 or out.shape[1] == 0 or out.shape[2] == 0:
        return
    grid.nx, grid.ny, grid.aspect = out.shape[1], out.shape[2], aspect
    with nogil:
        h = &work[0] + framed(grid.nx, grid.ny)
        column = h + grid.nx * grid.ny * RK_CROWD_LANES
        eikonal_group(table, &grid, dx, &slowness[0, 0, 0], &kind[0, 0], &exits[0], from_right,
                      out.shape[0], sweeping, h, &work[0], column, &out[0, 0, 0])


def run_work_size(Py_ssize_t nx, Py_ssize_t ny):
    """Length of the array `work` of `run`."""
    return framed(nx, ny) + 2 * nx * ny * RK_CROWD_LANES + rk_crowd_work(ny)


def run(double[:, :, ::1] state, double[::1] work, const unsigned char[:, ::1] kind,
        const double[:, ::1] open_x, const double[:, ::1] open_y, double dx, double dy, double dt,
        double v_max, double rho_max, double min_speed, const Py_ssize_t[::1] steps,
        const double[::1] fractions, const Py_ssize_t[:, ::1] rows, bint normalised,
        double[:, ::1] out):
    """`crowd_events` on state (nx, ny, LANES), changed in place; out (n_rows, nx * ny).

    kind (nx, ny): FREE or WALL; open_x (nx + 1, ny): 1 at open faces, its last row the exit; open_y
    (nx, ny + 1): dx / dy at open faces.
    """
    cdef Py_ssize_t nx = state.shape[0], ny = state.shape[1], k, lane
    cdef Py_ssize_t cells = nx * ny
    cdef rk_crowd crowd
    cdef double *p
    cdef double *h
    cdef double *aside
    cdef double *column
    cdef const unsigned char *walls
    cdef Py_ssize_t j
    if steps.shape[0] == 0 or out.shape[0] == 0:
        return
    crowd.grid.nx, crowd.grid.ny, crowd.grid.aspect = nx, ny, dy / dx
    crowd.v_max, crowd.rho_max, crowd.min_speed = v_max, rho_max, min_speed
    crowd.dx, crowd.ratio_x, crowd.ratio_y = dx, dt / dx, dt / dy
    crowd.open_x, crowd.open_y = &open_x[0, 0], &open_y[0, 0]
    with nogil:
        p = &work[0]
        h = p + framed(nx, ny)
        aside = h + cells * RK_CROWD_LANES
        column = aside + cells * RK_CROWD_LANES
        set_frame(&crowd.grid, NULL, NULL, False, False, p)
        walls = &kind[0, 0]
        for lane in range(RK_CROWD_LANES):
            for j in range(ny):
                if open_x[nx, j] != 0:
                    p[((nx + 1) * (ny + 2) + j + 1) * RK_CROWD_LANES + lane] = 0
            for k in range(cells):
                h[k * RK_CROWD_LANES + lane] = RK_WALL_TIME if walls[k] == 2 else 0.0
        crowd_events(table, &crowd, &state[0, 0, 0], p, h, column, aside, &steps[0], &fractions[0],
                     &rows[0, 0], steps.shape[0], normalised, &out[0, 0])
