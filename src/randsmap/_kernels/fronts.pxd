cdef void add_core(const double *update, Py_ssize_t stride, const Py_ssize_t *rows, Py_ssize_t n_rows,
                   const Py_ssize_t *columns, Py_ssize_t n_columns, bint lower, double *out,
                   Py_ssize_t out_stride) noexcept nogil
