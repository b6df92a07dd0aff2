cdef extern from "rk_bounds.h" nogil:
    ctypedef struct rk_bounds:
        Py_ssize_t M, q
        const double *w
        const double *direction
        const double *lower
        const double *upper
        const double *W
        const double *R
        const double *v
        unsigned char group[64]
    bint rk_bounds_prepare(rk_bounds *bounds) noexcept nogil


cdef extern from "rk_projection.h" nogil:
    ctypedef struct rk_projection:
        Py_ssize_t M, q, n_constant
        const double *C
        const double *m
        const double *W
        const double *R
        const Py_ssize_t *index
        const double *value
        const rk_bounds *bounds
    ctypedef struct rk_projection_table:
        Py_ssize_t (*workspace)(const rk_projection *projection) noexcept nogil
        Py_ssize_t (*project)(const rk_projection *projection, const double *values, double *f,
                              Py_ssize_t n, Py_ssize_t ld, double *work) noexcept nogil
        Py_ssize_t (*push)(const rk_projection *projection, const double *f, double *g, double *work) noexcept nogil
        void (*pull)(const rk_projection *projection, const double *f, double *u, double *work) noexcept nogil
        void (*dots)(const double *C, Py_ssize_t q, Py_ssize_t M, const double *f, double *value,
                     double *scale) noexcept nogil
    const rk_projection_table *rk_projection_select() noexcept nogil


cdef extern from "rk_decode.h" nogil:
    cdef enum:
        RK_DECODE_FEW
        RK_MOST_BOXES
    ctypedef struct rk_decode_table:
        double (*box_distance)(const double *y, const double *weight, Py_ssize_t d, const double *low,
                               const double *high, Py_ssize_t n) noexcept nogil
    const rk_decode_table *rk_decode_select() noexcept nogil


cdef class Projection:
    cdef rk_projection view  # pointers into the arrays below
    cdef rk_bounds bounds_view
    cdef object bounds
    cdef const double[:, ::1] direction
    cdef const double[::1] lower
    cdef const double[::1] upper
    cdef const double[::1] weights
    cdef const double[:, ::1] C
    cdef const double[::1] m
    cdef const double[:, ::1] W
    cdef const double[:, ::1] R
    cdef const Py_ssize_t[::1] index
    cdef const double[::1] value


cdef class Boxes:
    cdef const double[:, ::1] low
    cdef const double[:, ::1] high
    cdef const double[::1] weight
    cdef double limit
    cdef double square(self, const double *y) noexcept nogil
