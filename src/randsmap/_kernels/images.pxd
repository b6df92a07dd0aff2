cdef extern from "rk_images.h" nogil:
    cdef enum:
        RK_IMAGE_PAD_BEFORE
        RK_IMAGE_PAD_AFTER
    ctypedef struct rk_images_table:
        double (*rotate)(const double *padded, Py_ssize_t height, Py_ssize_t width,
                         double cosine, double sine, double *out) noexcept nogil
    const rk_images_table *rk_images_select() noexcept nogil
