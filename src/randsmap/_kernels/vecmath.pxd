cdef extern from "rk_vecmath.h" nogil:
    ctypedef struct rk_vecmath_table:
        void (*cos)(const double *x, double *out, Py_ssize_t n) noexcept nogil
        void (*exp)(const double *x, double *out, Py_ssize_t n) noexcept nogil
        void (*log)(const double *x, double *out, Py_ssize_t n) noexcept nogil
        void (*logistic)(const double *x, double *out, Py_ssize_t n) noexcept nogil
    const rk_vecmath_table *rk_vecmath_select() noexcept nogil
    const char *rk_cpu_name() noexcept nogil
