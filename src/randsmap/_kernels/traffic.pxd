cdef extern from "rk_traffic.h" nogil:
    cdef enum:
        RK_LWR_GHOSTS_LEFT
        RK_LWR_GHOSTS_RIGHT
    ctypedef struct rk_traffic_table:
        void (*advance)(double *q, Py_ssize_t n, Py_ssize_t n_steps, double courant,
                        double rho_max, double rounding) noexcept nogil
    const rk_traffic_table *rk_traffic_select() noexcept nogil
