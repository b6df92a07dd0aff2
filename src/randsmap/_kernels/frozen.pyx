"""The C interface of frozen decoders (randsmap.h) for arrays, and the numbers of which images are made."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, malloc

cdef extern from "rk_image.h" nogil:
    const char *RK_IMAGE_MAGIC
    int RK_IMAGE_VERSION, RK_IMAGE_ORDER, RK_IMAGE_ALIGNMENT
    int RK_FLOAT64, RK_FLOAT32, RK_INT64
    int RK_SPLINE_ORDER, RK_TABLE_MARGIN
    void rk_spline_weights(double u, double *value, double *slope)
    int RK_IDENTITY, RK_FEATURE_MAP, RK_RADIAL_KERNEL, RK_MULTI_GAUSSIAN
    int RK_SECTIONS, RK_N_PARAMETERS
    const char *rk_section_name(int id)
    const char *rk_parameter_name(int number)

MAGIC, VERSION, ORDER, ALIGNMENT = RK_IMAGE_MAGIC, RK_IMAGE_VERSION, RK_IMAGE_ORDER, RK_IMAGE_ALIGNMENT
TYPES = {"float64": RK_FLOAT64, "float32": RK_FLOAT32, "int64": RK_INT64}
SECTIONS = {rk_section_name(i).decode().lower(): i for i in range(1, RK_SECTIONS)}
PARAMETERS = [rk_parameter_name(i).decode().lower() for i in range(RK_N_PARAMETERS)]
IDENTITY, FEATURE_MAP, RADIAL_KERNEL, MULTI_GAUSSIAN = (
    RK_IDENTITY, RK_FEATURE_MAP, RK_RADIAL_KERNEL, RK_MULTI_GAUSSIAN)
FEATURES, TABLE = RANDSMAP_FEATURES, RANDSMAP_TABLE
ABI = randsmap_abi()


ORDER_OF_SPLINES, MARGIN = RK_SPLINE_ORDER, RK_TABLE_MARGIN


def spline_weights(const double[::1] u, double[:, ::1] out):
    """out (n, 8): the splines of a table that are not 0 in a cell, at points u (n,) of it in [0, 1]."""
    cdef double slope[16]
    cdef Py_ssize_t i
    for i in range(u.shape[0]):
        rk_spline_weights(u[i], &out[i, 0], slope)


def checksum(const unsigned char[::1] image):
    """The checksum of an image, a multiple of 8 bytes long."""
    return rk_image_checksum(&image[0], image.shape[0])


def message(int status):
    """What a status means."""
    return randsmap_strerror(status).decode()


cdef double *workspace(const randsmap_decoder *decoder, Py_ssize_t n) except NULL:
    cdef double *work = <double *> malloc(<size_t> randsmap_work(decoder, n) * sizeof(double))
    if work == NULL:
        raise MemoryError("no memory for decoding")
    return work


cdef class Decoder:
    """An open decoder; `image` (contiguous bytes) is kept and not copied, and cannot be resized or closed meanwhile."""

    cdef randsmap_decoder *decoder
    cdef Py_buffer buffer
    cdef bint held
    cdef readonly object image
    cdef readonly Py_ssize_t n_components, n_cells, n_invariants, n_features, kind, precision
    cdef readonly bint single, has_encoder

    def __cinit__(self, image):
        cdef randsmap_info_t info
        cdef int status
        PyObject_GetBuffer(image, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        if self.buffer.len == 0:
            raise ValueError("an image of no bytes")
        with nogil:
            status = randsmap_view(self.buffer.buf, self.buffer.len, &self.decoder)
        if status:
            raise ValueError(message(status))
        self.image = image
        info.size = sizeof(info)
        randsmap_info(self.decoder, &info)
        self.n_components, self.n_cells, self.n_invariants = info.n_components, info.n_cells, info.n_invariants
        self.n_features, self.kind, self.precision = info.n_features, info.kind, info.precision
        self.single, self.has_encoder = rk_image_is_single(self.decoder), rk_image_has_encoder(self.decoder)

    def __dealloc__(self):
        randsmap_close(self.decoder)
        if self.held:
            PyBuffer_Release(&self.buffer)

    def row(self, Y, out):
        """Status of decoding the array Y (n, d) into `out` (n, M), or -1 if these are not float64, C-contiguous
        and of those shapes, or overlap: a few microseconds' worth of checks in a fraction of one."""
        cdef Py_buffer y, f
        cdef int status = -1
        cdef Py_ssize_t n
        cdef double *work
        PyObject_GetBuffer(Y, &y, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        try:
            PyObject_GetBuffer(out, &f, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
            try:
                n = y.shape[0] if y.ndim == 2 else 0
                if (n > 0 and not self.single and y.shape[1] == self.n_components and f.ndim == 2 and f.shape[0] == n
                        and f.shape[1] == self.n_cells and y.format[0] == c"d" and y.format[1] == 0
                        and f.format[0] == c"d" and f.format[1] == 0
                        and (<size_t> y.buf | <size_t> f.buf) % 8 == 0
                        and (<char *> y.buf + y.len <= <char *> f.buf or <char *> f.buf + f.len <= <char *> y.buf)):
                    work = workspace(self.decoder, n)
                    with nogil:
                        status = randsmap_decode(self.decoder, <const double *> y.buf, n, <double *> f.buf, work)
                    free(work)
            finally:
                PyBuffer_Release(&f)
        finally:
            PyBuffer_Release(&y)
        return status

    def decode(self, const double[:, ::1] Y, const double[:, ::1] values, double[:, ::1] out):
        """Fields out (n, M) of points Y (n, d); values (n, q) of the invariants, or None. Returns the status."""
        cdef int status
        cdef Py_ssize_t n = Y.shape[0]
        cdef double *work
        if n == 0:
            return RANDSMAP_OK
        work = workspace(self.decoder, n)
        with nogil:
            if values is None:
                status = randsmap_decode(self.decoder, &Y[0, 0], n, &out[0, 0], work)
            else:
                status = randsmap_decode_values(self.decoder, &Y[0, 0], &values[0, 0], n, &out[0, 0], work)
        free(work)
        return status

    def decode_jvp(self, const double[:, ::1] Y, const double[:, :, ::1] V, double[:, ::1] F, double[:, :, ::1] out):
        """Fields F (n, M) and derivatives out (n, p, M) along V (n, p, d), or with None the coordinates.

        Returns the status of the first point that fails.
        """
        cdef int status = RANDSMAP_OK, s
        cdef Py_ssize_t i, n = Y.shape[0], p = out.shape[1]
        cdef const double *v = NULL
        cdef double *work
        if n == 0 or p == 0:
            return RANDSMAP_OK
        work = workspace(self.decoder, p)
        with nogil:
            for i in range(n):
                if V is not None:
                    v = &V[i, 0, 0]
                s = randsmap_decode_jvp(self.decoder, &Y[i, 0], v, p, &F[i, 0], &out[i, 0, 0], work)
                status = status if status else s
        free(work)
        return status

    def vjp(self, const double[:, ::1] Y, const double[:, ::1] U, double[:, ::1] out):
        """Products out (n, d) = J^T u for U (n, M). Returns the status of the first point that fails."""
        cdef int status = RANDSMAP_OK, s
        cdef Py_ssize_t i, n = Y.shape[0]
        cdef double *work
        if n == 0:
            return RANDSMAP_OK
        work = workspace(self.decoder, 1)
        with nogil:
            for i in range(n):
                s = randsmap_vjp(self.decoder, &Y[i, 0], &U[i, 0], &out[i, 0], work)
                status = status if status else s
        free(work)
        return status

    def encode(self, const double[:, ::1] F, double[:, ::1] out):
        """Latent points out (n, d) of fields F (n, M). Returns the status."""
        cdef int status
        cdef double *work
        if F.shape[0] == 0:
            return RANDSMAP_OK
        work = workspace(self.decoder, F.shape[0])
        with nogil:
            status = randsmap_encode(self.decoder, &F[0, 0], F.shape[0], &out[0, 0], work)
        free(work)
        return status
