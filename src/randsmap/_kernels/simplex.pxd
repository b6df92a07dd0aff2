cdef extern from "rk_simplex.h" nogil:
    ctypedef struct rk_nystroem:
        Py_ssize_t n, d
        const double *rows
        const double *offset
        const double *values
    ctypedef struct rk_simplex_table:
        Py_ssize_t (*latent)(const double *Y, Py_ssize_t d, const double *y, const Py_ssize_t *neighbor,
                             Py_ssize_t m, Py_ssize_t k, double *work, double *weights) noexcept nogil
        Py_ssize_t (*encoder)(const rk_nystroem *map, const double *Y, const double *y,
                              const Py_ssize_t *neighbor, const Py_ssize_t *row, Py_ssize_t m,
                              Py_ssize_t k, double *work, double *weights) noexcept nogil
        void (*mix)(const double *F, Py_ssize_t M, const Py_ssize_t *neighbor,
                    const double *weights, Py_ssize_t m, Py_ssize_t k, double *out) noexcept nogil
        Py_ssize_t (*latent_workspace)(Py_ssize_t d, Py_ssize_t k) noexcept nogil
        Py_ssize_t (*encoder_workspace)(Py_ssize_t n, Py_ssize_t d, Py_ssize_t k) noexcept nogil
    const rk_simplex_table *rk_simplex_select() noexcept nogil
