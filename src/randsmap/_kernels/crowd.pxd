cdef extern from "rk_crowd.h" nogil:
    cdef enum:
        RK_CROWD_LANES
        RK_FREE
        RK_SOURCE
        RK_WALL
    const double RK_FIXED
    ctypedef struct rk_grid:
        Py_ssize_t nx
        Py_ssize_t ny
        double aspect
    ctypedef struct rk_crowd:
        rk_grid grid
        double v_max
        double rho_max
        double min_speed
        double dx
        double ratio_x
        double ratio_y
        const double *open_x
        const double *open_y
    ctypedef struct rk_eikonal_table:
        Py_ssize_t lanes
        void (*solve)(const rk_grid *grid, double dx, const double *slowness,
                      const unsigned char *kind, const unsigned char *exits, Py_ssize_t pivot,
                      Py_ssize_t n_fields, int sweeping, double *work, double *out) noexcept nogil
    ctypedef struct rk_crowd_table:
        rk_eikonal_table potentials
        void (*prepare)(const rk_grid *grid, const unsigned char *kind, const unsigned char *exits,
                        int all, double *p) noexcept nogil
        void (*advance)(const rk_crowd *crowd, double *rho, Py_ssize_t n_steps, double *p,
                        double *h, double *work) noexcept nogil
        void (*extract)(const double *cells, Py_ssize_t nx, Py_ssize_t ny, Py_ssize_t lane,
                        int normalised, double *out) noexcept nogil
    const rk_eikonal_table *rk_eikonal_select() noexcept nogil
    const rk_crowd_table *rk_crowd_select() noexcept nogil
    Py_ssize_t rk_crowd_work(Py_ssize_t ny) noexcept nogil
    Py_ssize_t rk_eikonal_work(Py_ssize_t lanes, Py_ssize_t nx, Py_ssize_t ny) noexcept nogil
