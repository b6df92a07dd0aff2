cdef extern from "rk_gradients.h" nogil:
    ctypedef struct rk_gradients_table:
        void (*slopes)(int activation, const double *Y, Py_ssize_t n, Py_ssize_t d, const double *W,
                       const double *b, Py_ssize_t P, double scale, double *S) noexcept nogil
    const rk_gradients_table *rk_gradients_select() noexcept nogil
