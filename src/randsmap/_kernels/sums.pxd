cdef extern from "rk_sums.h" nogil:
    ctypedef struct rk_sums_table:
        void (*add)(double *high, double *low, const double *x, const double *a, const double *b,
                    Py_ssize_t n) noexcept nogil
        void (*total)(const double *high, const double *low, const double *a, const double *b_high,
                      const double *b_low, Py_ssize_t n, double *out) noexcept nogil
    const rk_sums_table *rk_sums_select() noexcept nogil
