cdef extern from "rk_traffic.h" nogil:
    cdef enum:
        RK_LWR_GHOSTS_LEFT
        RK_LWR_GHOSTS_RIGHT
    ctypedef struct rk_traffic_table:
        void (*advance)(double *q, Py_ssize_t n, Py_ssize_t n_steps, double courant,
                        double rho_max, double rounding) noexcept nogil
    const rk_traffic_table *rk_traffic_select() noexcept nogil


cdef void lwr_events(
    const rk_traffic_table *table, double *q, double *aside, Py_ssize_t n, double courant,
    double rho_max, double rounding, const Py_ssize_t *steps, const double *fractions,
    const Py_ssize_t *rows, Py_ssize_t n_events, double *out,
) noexcept nogil
