"""Fronts of sparse Cholesky factors: what one leaves is added to the next. Bound by memory: no vectors."""


def add(const double[::1, :] update, Py_ssize_t i0, Py_ssize_t j0, const Py_ssize_t[::1] rows,
        const Py_ssize_t[::1] columns, bint lower, double[::1, :] out):
    """out[rows[i], columns[j]] += update[i0 + i, j0 + j], columns first in memory; with `lower` for i >= j only."""
    cdef Py_ssize_t i, j
    cdef const double *source
    cdef double *column
    if rows.shape[0] == 0:
        return
    with nogil:
        for j in range(columns.shape[0]):
            source = &update[i0, j0 + j]
            column = &out[0, columns[j]]
            for i in range(j if lower else 0, rows.shape[0]):
                column[rows[i]] += source[i]
