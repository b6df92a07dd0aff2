"""Phi^T Phi and Phi^T F summed over row blocks in two numbers, whatever the order: see rk_sums.h.

`high` and `low` are (P, N); with `upper`, N >= P and only the entries right of and on the diagonal are used.
"""

cdef const rk_sums_table *table = rk_sums_select()


def add(double[:, ::1] high, double[:, ::1] low, Py_ssize_t start, Py_ssize_t stop, bint upper,
        const double[:, ::1] X, const double[:, ::1] a, const double[::1] b):
    """Rows start..stop: high + low += X[i] + a_i b; a (P, 2), in two numbers, and b (N,) may be None."""
    cdef Py_ssize_t i, j, N = high.shape[1]
    if N == 0:
        return
    with nogil:
        for i in range(start, stop):
            j = i if upper else 0
            if b is None:
                table.add(&high[i, j], &low[i, j], &X[i, j], NULL, NULL, N - j)
            else:
                table.add(&high[i, j], &low[i, j], &X[i, j], &a[i, 0], &b[j], N - j)


def total(const double[:, ::1] high, const double[:, ::1] low, Py_ssize_t start, Py_ssize_t stop, bint upper,
          const double[:, ::1] a, const double[:, ::1] b, double[:, ::1] out):
    """Rows start..stop of out: high + low - a_i b, rounded; a (P, 2) and b (2, N) are in two numbers, or None."""
    cdef Py_ssize_t i, j, N = high.shape[1]
    if N == 0:
        return
    with nogil:
        for i in range(start, stop):
            j = i if upper else 0
            if b is None:
                table.total(&high[i, j], &low[i, j], NULL, NULL, NULL, N - j, &out[i, j])
            else:
                table.total(&high[i, j], &low[i, j], &a[i, 0], &b[0, j], &b[1, j], N - j, &out[i, j])
