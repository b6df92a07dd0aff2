"""Convex weights of the k-NN decoder (paper App. B) and the fields they mix."""
from libc.stdlib cimport free

from randsmap._kernels cimport allocate

cdef const rk_simplex_table *table = rk_simplex_select()


def latent(const double[:, ::1] Y, const double[:, ::1] y, const Py_ssize_t[:, ::1] neighbor,
           double[:, ::1] weights):
    """weights (m, k): least |y - sum_k a_k Y[neighbor_k]|, then least |a|, for the rows y (m, d).

    Returns the first row whose iteration did not end by itself, -1 without one.
    """
    cdef Py_ssize_t m = weights.shape[0], k = weights.shape[1], d = Y.shape[1], bad
    cdef double *work
    if m == 0:
        return -1
    work = allocate(table.latent_workspace(d, k))
    with nogil:
        bad = table.latent(&Y[0, 0], d, &y[0, 0], &neighbor[0, 0], m, k, work, &weights[0, 0])
    free(work)
    return bad


def encoder(const double[:, ::1] rows, const double[::1] offset, const double[:, ::1] values,
            const double[:, ::1] Y, const double[:, ::1] y, const Py_ssize_t[:, ::1] neighbor,
            const Py_ssize_t[:, ::1] row, double[:, ::1] weights):
    """weights (m, k): least |y - encode(sum_k a_k f_k)|; rows, offset, values as in rk_simplex.h.

    Returns the first row whose iteration did not end by itself, -1 without one.
    """
    cdef Py_ssize_t m = weights.shape[0], k = weights.shape[1], bad
    cdef rk_nystroem map_
    cdef double *work
    if m == 0:
        return -1
    work = allocate(table.encoder_workspace(rows.shape[1], values.shape[0], k))
    with nogil:
        map_.n, map_.d = rows.shape[1], values.shape[0]
        map_.rows, map_.offset, map_.values = &rows[0, 0], &offset[0], &values[0, 0]
        bad = table.encoder(&map_, &Y[0, 0], &y[0, 0], &neighbor[0, 0], &row[0, 0], m, k, work,
                            &weights[0, 0])
    free(work)
    return bad


def mix(const double[:, ::1] F, const Py_ssize_t[:, ::1] neighbor, const double[:, ::1] weights,
        double[:, ::1] out):
    """out (m, M) = sum_k weights[:, k] F[neighbor[:, k]]."""
    if out.shape[0] == 0 or out.shape[1] == 0:
        return
    with nogil:
        table.mix(&F[0, 0], F.shape[1], &neighbor[0, 0], &weights[0, 0], weights.shape[0],
                  weights.shape[1], &out[0, 0])
