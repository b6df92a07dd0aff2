cdef extern from "rk_features.h" nogil:
    cdef enum:
        RK_ACTIVATIONS
    const char *rk_activation_name(int activation)
    ctypedef struct rk_features_table:
        void (*fused)(int activation, const double *Y, Py_ssize_t n, Py_ssize_t d,
                      const double *W, const double *b, Py_ssize_t P, double scale,
                      double *out, Py_ssize_t ld) noexcept nogil
    const rk_features_table *rk_features_select() noexcept nogil
