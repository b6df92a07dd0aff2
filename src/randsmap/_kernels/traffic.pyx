"""LWR traffic flow: a trajectory advanced in time, with snapshots on the way."""

from libc.string cimport memcpy

cdef const rk_traffic_table *table = rk_traffic_select()

GHOSTS_LEFT = RK_LWR_GHOSTS_LEFT
GHOSTS_RIGHT = RK_LWR_GHOSTS_RIGHT


def run(double[::1] state, double[::1] aside, double courant, double rho_max, double rounding,
        const Py_ssize_t[::1] steps, const double[::1] fractions, const Py_ssize_t[::1] rows,
        double[:, ::1] out):
    """Advance a state (GHOSTS_LEFT + n + GHOSTS_RIGHT) by steps[k] whole steps, then write row rows[k] of out (n_rows, n)
    (none if negative), k by k.

    With fractions[k] > 0 the row is the state after one more step of that part of dt; that step is
    taken in `aside` (an array like state), so what is written at one time does not depend on the others.
    """
    cdef Py_ssize_t n = state.shape[0] - RK_LWR_GHOSTS_LEFT - RK_LWR_GHOSTS_RIGHT, k
    cdef double *q = &state[RK_LWR_GHOSTS_LEFT]
    cdef double *later = &aside[RK_LWR_GHOSTS_LEFT]
    cdef double *source
    with nogil:
        for k in range(steps.shape[0]):
            table.advance(q, n, steps[k], courant, rho_max, rounding)
            if rows[k] < 0:
                continue
            source = q
            if fractions[k] > 0:
                memcpy(later, q, <size_t> n * sizeof(double))
                table.advance(later, n, 1, courant * fractions[k], rho_max, rounding)
                source = later
            memcpy(&out[rows[k], 0], source, <size_t> n * sizeof(double))
