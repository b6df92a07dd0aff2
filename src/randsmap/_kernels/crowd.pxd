cdef extern from "rk_crowd.h" nogil:
    cdef enum:
        RK_CROWD_LANES
        RK_EXIT_RIGHT
    const double RK_UNREACHED
    const double RK_WALL_TIME
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
        void (*march)(const rk_grid *grid, const double *h, double *p, double *work,
                      Py_ssize_t pivot) noexcept nogil
        void (*sweep)(const rk_grid *grid, const double *h, double *p) noexcept nogil
    const rk_eikonal_table *rk_eikonal_select() noexcept nogil
    ctypedef struct rk_crowd_table:
        void (*march)(const rk_grid *grid, const double *h, double *p, double *work,
                      Py_ssize_t pivot) noexcept nogil
        void (*sweep)(const rk_grid *grid, const double *h, double *p) noexcept nogil
        void (*advance)(const rk_crowd *crowd, double *rho, Py_ssize_t n_steps, double *p, double *h,
                        double *work) noexcept nogil
        void (*extract)(const double *cells, Py_ssize_t nx, Py_ssize_t ny, Py_ssize_t lane,
                        int normalised, double *out) noexcept nogil
    const rk_crowd_table *rk_crowd_select() noexcept nogil
    Py_ssize_t rk_crowd_work(Py_ssize_t ny) noexcept nogil



cdef void eikonal_group(
    const rk_grid *grid, double dx, const double *slowness, const unsigned char *kind,
    const unsigned char *exits, Py_ssize_t pivot, Py_ssize_t n_fields, bint sweeping, double *work,
    double *out,
) noexcept nogil

cdef void crowd_events(
    const rk_crowd *crowd, double *rho, double *p, double *h, double *work, double *aside,
    const Py_ssize_t *steps, const double *fractions, const Py_ssize_t *rows, Py_ssize_t n_events,
    bint normalised, double *out,
) noexcept nogil
