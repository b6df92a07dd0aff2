"""Fronts of sparse Cholesky factors: what one leaves is added to the next. Bound by memory: no vectors."""


cdef void add_core(const double *update, Py_ssize_t stride, const Py_ssize_t *rows, Py_ssize_t n_rows,
                   const Py_ssize_t *columns, Py_ssize_t n_columns, bint lower, double *out,
                   Py_ssize_t out_stride) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef const double *source
    cdef double *column
    for j in range(n_columns):
        source = update + j * stride
        column = out + columns[j] * out_stride
        for i in range(j if lower else 0, n_rows):
            column[rows[i]] += source[i]


def add(const double[::1, :] update, Py_ssize_t i0, Py_ssize_t j0, const Py_ssize_t[::1] rows,
        const Py_ssize_t[::1] columns, bint lower, double[::1, :] out):
    """out[rows[i], columns[j]] += update[i0 + i, j0 + j], columns first in memory; with `lower` for i >= j only."""
    if rows.shape[0] and columns.shape[0]:
        with nogil:
            add_core(&update[i0, j0], update.shape[0], &rows[0], rows.shape[0], &columns[0], columns.shape[0],
                     lower, &out[0, 0], out.shape[0])
