"""The C interface of frozen decoders as capsules: see c_api.pxd and randsmap.h."""

from randsmap._kernels cimport linear_map as c


cdef int randsmap_abi() noexcept nogil:
    return c.randsmap_abi()


cdef const char *randsmap_strerror(int status) noexcept nogil:
    return c.randsmap_strerror(status)


cdef int randsmap_open(const char *path, randsmap_decoder **out) noexcept nogil:
    return c.randsmap_open(path, out)


cdef int randsmap_view(const void *image, size_t size, randsmap_decoder **out) noexcept nogil:
    return c.randsmap_view(image, size, out)


cdef void randsmap_close(randsmap_decoder *decoder) noexcept nogil:
    c.randsmap_close(decoder)


cdef int randsmap_info(const randsmap_decoder *decoder, randsmap_info_t *info) noexcept nogil:
    return c.randsmap_info(decoder, info)


cdef ptrdiff_t randsmap_work(const randsmap_decoder *decoder, ptrdiff_t n) noexcept nogil:
    return c.randsmap_work(decoder, n)


cdef int randsmap_decode(const randsmap_decoder *decoder, const double *z, ptrdiff_t n, double *out,
                         double *work) noexcept nogil:
    return c.randsmap_decode(decoder, z, n, out, work)


cdef int randsmap_decode_values(const randsmap_decoder *decoder, const double *z, const double *m, ptrdiff_t n,
                                double *out, double *work) noexcept nogil:
    return c.randsmap_decode_values(decoder, z, m, n, out, work)


cdef int randsmap_encode(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, double *z,
                         double *work) noexcept nogil:
    return c.randsmap_encode(decoder, f, n, z, work)


cdef int randsmap_encode_steps(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, ptrdiff_t steps,
                               double *z, double *work) noexcept nogil:
    return c.randsmap_encode_steps(decoder, f, n, steps, z, work)


cdef int randsmap_decode_jvp(const randsmap_decoder *decoder, const double *z, const double *v, ptrdiff_t p,
                             double *f, double *Jv, double *work) noexcept nogil:
    return c.randsmap_decode_jvp(decoder, z, v, p, f, Jv, work)


cdef int randsmap_vjp(const randsmap_decoder *decoder, const double *z, const double *u, double *out,
                      double *work) noexcept nogil:
    return c.randsmap_vjp(decoder, z, u, out, work)


cdef int randsmap_error(const randsmap_decoder *decoder, const double *z, const double *f, ptrdiff_t n,
                        double coverage, int absolute, double *out) noexcept nogil:
    return c.randsmap_error(decoder, z, f, n, coverage, absolute, out)
