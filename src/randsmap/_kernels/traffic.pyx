"""LWR traffic flow: a trajectory advanced in time, with snapshots on the way."""

from libc.string cimport memcpy

cdef const rk_traffic_table *table = rk_traffic_select()

GHOSTS_LEFT = RK_LWR_GHOSTS_LEFT
GHOSTS_RIGHT = RK_LWR_GHOSTS_RIGHT


cdef void lwr_events(
    const rk_traffic_table *table, double *q, double *aside, Py_ssize_t n, double courant,
    double rho_max, double rounding, const Py_ssize_t *steps, const double *fractions,
    const Py_ssize_t *rows, Py_ssize_t n_events, double *out,
) noexcept nogil:
    """Advance q by steps[k] whole steps, then write row rows[k] of out (none if negative), k by k.

    With fractions[k] > 0 the row is the state after one more step of that part of dt; that step is
    taken in `aside` (an array like q), so what is written at one time does not depend on the others.
    """
    cdef const double *source
    cdef Py_ssize_t k
    for k in range(n_events):
        table.advance(q, n, steps[k], courant, rho_max, rounding)
        if rows[k] < 0:
            continue
        source = q
        if fractions[k] > 0:
            memcpy(aside, q, <size_t> n * sizeof(double))
            table.advance(aside, n, 1, courant * fractions[k], rho_max, rounding)
            source = aside
        memcpy(out + rows[k] * n, source, <size_t> n * sizeof(double))


def run(double[::1] state, double[::1] aside, double courant, double rho_max, double rounding,
        const Py_ssize_t[::1] steps, const double[::1] fractions, const Py_ssize_t[::1] rows,
        double[:, ::1] out):
    """`lwr_events` on state (GHOSTS_LEFT + n + GHOSTS_RIGHT), changed in place; out (n_rows, n)."""
    cdef Py_ssize_t n = state.shape[0] - RK_LWR_GHOSTS_LEFT - RK_LWR_GHOSTS_RIGHT
    if steps.shape[0] == 0:
        return
    with nogil:
        lwr_events(table, &state[RK_LWR_GHOSTS_LEFT], &aside[RK_LWR_GHOSTS_LEFT], n, courant,
                   rho_max, rounding, &steps[0], &fractions[0], &rows[0], steps.shape[0],
                   &out[0, 0])
