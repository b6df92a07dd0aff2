"""The C interface of frozen decoders for Cython: ``from randsmap.c_api cimport randsmap_open, randsmap_decode``.

The functions come through capsules when the module is imported, so there is nothing to link; ``randsmap.h``, where
they are described, is in the folder `randsmap.get_include()`.
"""

from libc.stdint cimport int64_t


cdef extern from "randsmap.h" nogil:
    ctypedef struct randsmap_decoder:
        pass
    ctypedef struct randsmap_info_t:
        size_t size
        int64_t n_components
        int64_t n_cells
        int64_t n_invariants
        int64_t n_features
        int64_t kind
        int64_t precision
    enum:
        RANDSMAP_ABI
        RANDSMAP_OK
        RANDSMAP_ERROR_ARGUMENT
        RANDSMAP_ERROR_MEMORY
        RANDSMAP_ERROR_FILE
        RANDSMAP_ERROR_IMAGE
        RANDSMAP_ERROR_VERSION
        RANDSMAP_ERROR_BYTE_ORDER
        RANDSMAP_ERROR_NOT_FINITE
        RANDSMAP_ERROR_OVERFLOW
        RANDSMAP_ERROR_CONVERGENCE
        RANDSMAP_ERROR_VALUES
        RANDSMAP_ERROR_UNSUPPORTED
        RANDSMAP_ERROR_FIELD
        RANDSMAP_FEATURES
        RANDSMAP_TABLE

cdef int randsmap_abi() noexcept nogil
cdef const char *randsmap_strerror(int status) noexcept nogil
cdef int randsmap_open(const char *path, randsmap_decoder **out) noexcept nogil
cdef int randsmap_view(const void *image, size_t size, randsmap_decoder **out) noexcept nogil
cdef void randsmap_close(randsmap_decoder *decoder) noexcept nogil
cdef int randsmap_info(const randsmap_decoder *decoder, randsmap_info_t *info) noexcept nogil
cdef ptrdiff_t randsmap_work(const randsmap_decoder *decoder, ptrdiff_t n) noexcept nogil
cdef int randsmap_decode(const randsmap_decoder *decoder, const double *z, ptrdiff_t n, double *out,
                         double *work) noexcept nogil
cdef int randsmap_decode_values(const randsmap_decoder *decoder, const double *z, const double *m, ptrdiff_t n,
                                double *out, double *work) noexcept nogil
cdef int randsmap_encode(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, double *z,
                         double *work) noexcept nogil
cdef int randsmap_encode_steps(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, ptrdiff_t steps,
                               double *z, double *work) noexcept nogil
cdef int randsmap_decode_jvp(const randsmap_decoder *decoder, const double *z, const double *v, ptrdiff_t p,
                             double *f, double *Jv, double *work) noexcept nogil
cdef int randsmap_vjp(const randsmap_decoder *decoder, const double *z, const double *u, double *out,
                      double *work) noexcept nogil
cdef int randsmap_error(const randsmap_decoder *decoder, const double *z, const double *f, ptrdiff_t n,
                        double coverage, int absolute, double *out) noexcept nogil
