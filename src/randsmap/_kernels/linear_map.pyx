"""The linear map from latent points to fields (rk_image.h), made of arrays or of an image, and how images are written."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free
from libc.string cimport memset

from randsmap._kernels cimport allocate
from randsmap._kernels.blas cimport gemm, single_gemm

MAGIC, VERSION, ORDER, ALIGNMENT = RK_IMAGE_MAGIC, RK_IMAGE_VERSION, RK_IMAGE_ORDER, RK_IMAGE_ALIGNMENT
TYPES = {"float64": RK_FLOAT64, "float32": RK_FLOAT32, "int64": RK_INT64}
SECTIONS = {rk_section_name(i).decode().lower(): i for i in range(1, RK_SECTIONS)}
PARAMETERS = [rk_parameter_name(i).decode().lower() for i in range(RK_N_PARAMETERS)]
IDENTITY, FEATURE_MAP, RADIAL_KERNEL, MULTI_GAUSSIAN = (
    RK_IDENTITY, RK_FEATURE_MAP, RK_RADIAL_KERNEL, RK_MULTI_GAUSSIAN)
MONOMIALS, MIXTURE, MEDIAN, SHIFT, QUANTILES = RK_MONOMIALS, RK_MIXTURE, RK_MEDIAN, RK_SHIFT, RK_QUANTILES
MOST_PARTS, MOST_DEPTH, MOST_NEIGHBORS = RK_MOST_PARTS, RK_MOST_DEPTH, RK_MOST_NEIGHBORS
MOST_ENCODED, MOST_MIXED = RK_MOST_ENCODED, RK_MOST_MIXED
FEATURES, TABLE = RANDSMAP_FEATURES, RANDSMAP_TABLE
DAMPING, LEAST_DAMPING, MOST_STEPS = RK_DAMPING, RK_LEAST_DAMPING, RK_MOST_STEPS
FAR_SUM, UNDERFLOWN_SUM, FAR_WIDTHS = RK_FAR_SUM, RK_UNDERFLOWN_SUM, RK_FAR_WIDTHS
ORDER_OF_SPLINES, MARGIN = RK_SPLINE_ORDER, RK_TABLE_MARGIN
ABI = randsmap_abi()


def in_units(const double[:, ::1] Y, const double[::1] lengths, double[:, ::1] out):
    """out = Y / lengths, no further than the largest number."""
    cdef Py_ssize_t i
    if Y.shape[1] != lengths.shape[0] or out.shape[0] != Y.shape[0] or out.shape[1] != Y.shape[1]:
        raise ValueError(f"points ({Y.shape[0]}, {Y.shape[1]}) in units of {lengths.shape[0]} lengths")
    for i in range(Y.shape[0] if Y.shape[1] else 0):
        rk_in_units(&Y[i, 0], NULL, &lengths[0], Y.shape[1], &out[i, 0])


def far_values(const double[::1] z, const double[:, ::1] rows, double width, double[::1] out):
    """out (n,): a Gaussian kernel between the point z and far rows (n, r), up to a common factor."""
    cdef rk_matrix F
    if rows.shape[1] != z.shape[0] or out.shape[0] != rows.shape[0] or rows.shape[0] == 0 or rows.shape[1] == 0:
        raise ValueError(f"rows ({rows.shape[0]}, {rows.shape[1]}) do not fit a point ({z.shape[0]},)")
    F.rows, F.columns, F.wide, F.narrow = rows.shape[0], rows.shape[1], &rows[0, 0], NULL
    with nogil:
        rk_far_values(&F, &z[0], width, &out[0])


def geodesic_latents(const double[:, ::1] distances, const Py_ssize_t[:, ::1] index, const double[:, ::1] lengths,
                     const double[:, ::1] weights, double[:, ::1] out):
    """out (n, d): coordinates by rk_geodesic of points at these distances (n, k) from the rows `index` of the lengths."""
    cdef rk_matrix G
    cdef Py_ssize_t i, n = out.shape[0], d = out.shape[1], k = index.shape[1]
    cdef double *g
    if (distances.shape[0] != n or index.shape[0] != n or distances.shape[1] != k or weights.shape[0] != d + 1
            or weights.shape[1] != lengths.shape[1] or k == 0 or lengths.shape[1] == 0):
        raise ValueError(f"paths by {k} neighbours do not give latents ({n}, {d})")
    G.rows, G.columns, G.wide, G.narrow = lengths.shape[0], lengths.shape[1], &lengths[0, 0], NULL
    g = allocate(G.columns)
    with nogil:
        for i in range(n):
            rk_geodesic(&G, &weights[0, 0], d, &distances[i, 0], &index[i, 0], k, g, &out[i, 0])
    free(g)


def medians(const double[:, :, ::1] P, Py_ssize_t first, Py_ssize_t last, double smoothing, double[:, ::1] out):
    """out (n, r): the geometric medians of the points P (K, n, r), of rows `first` to `last`."""
    cdef Py_ssize_t K = P.shape[0], r = P.shape[2], stride = P.shape[1] * P.shape[2], i
    cdef const rk_blend_table *table = rk_blend_select()
    cdef double *state
    if out.shape[0] != P.shape[1] or out.shape[1] != r or not 0 <= first <= last <= P.shape[1] or K == 0:
        raise ValueError(f"medians of {K} times ({P.shape[1]}, {r}) are not ({out.shape[0]}, {out.shape[1]})")
    if r == 0 or first == last:
        return
    state = allocate(table.state_size(K, r))
    with nogil:
        for i in range(first, last):
            table.median(<double *> &P[0, i, 0], stride, K, r, NULL, 0, smoothing, &out[i, 0], state)
    free(state)


def checksum(const unsigned char[::1] image):
    """The checksum of an image, a multiple of 8 bytes long."""
    return rk_image_checksum(&image[0], image.shape[0])


def message(int status):
    """The meaning of a status."""
    return randsmap_strerror(status).decode()


cdef class Map:
    """A linear map, open for reading: of `source`, which is not copied, an image or arrays by the names of `SECTIONS`.

    Arrays decode batches by GEMM, an image row by row. The parts of a median are other maps, "parts". Several threads may
    use one. Methods return a status, of the first point that fails.
    """

    def __cinit__(self, source):
        cdef randsmap_info_t info
        cdef int status
        if isinstance(source, dict):
            status = self.read_arrays(source)
        else:
            self.hold(source, PyBUF_SIMPLE)
            if self.buffers[0].len == 0:
                raise ValueError("an image of no bytes")
            with nogil:
                status = randsmap_view(self.buffers[0].buf, self.buffers[0].len, &self.map)
        if status:
            raise ValueError(message(status))
        self.source = source
        info.size = sizeof(info)
        randsmap_info(self.map, &info)
        self.n_components, self.n_cells, self.n_invariants = info.n_components, info.n_cells, info.n_invariants
        self.n_features, self.kind, self.precision = info.n_features, info.kind, info.precision
        self.single, self.has_encoder = rk_image_is_single(self.map), rk_image_has_encoder(self.map)
        self.n_own = rk_image_own(self.map)
        self.depth = rk_image_depth(self.map)
        self.is_affine = rk_image_is_affine(self.map)

    cdef Py_buffer *hold(self, source, int flags) except NULL:
        cdef Py_buffer *buffer = &self.buffers[self.n_buffers]
        PyObject_GetBuffer(source, buffer, flags)
        self.n_buffers += 1
        return buffer

    cdef int read_arrays(self, dict arrays) except -1:
        cdef rk_section sections[RK_SECTIONS]
        cdef rk_section *section
        cdef Py_buffer *array
        cdef randsmap_decoder *parts[RK_MOST_PARTS]
        cdef Map part
        cdef Py_ssize_t n_parts = 0
        cdef randsmap_decoder *input = NULL
        memset(sections, 0, sizeof(sections))
        for name, value in arrays.items():
            if name == "input":
                part = value.kernel
                input = part.map
                continue
            if name == "parts":
                if len(value) > RK_MOST_PARTS:
                    raise ValueError(f"{len(value)} parts, expected at most {RK_MOST_PARTS}")
                for each in value:
                    part = each.kernel
                    parts[n_parts] = part.map
                    n_parts += 1
                continue
            array = self.hold(value, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
            section = &sections[<int> SECTIONS[name]]
            section.type = RK_FLOAT64 if array.format[0] == c"d" else RK_FLOAT32 if array.format[0] == c"f" else RK_INT64
            if array.ndim not in (1, 2) or array.itemsize != (4 if section.type == RK_FLOAT32 else 8):
                raise ValueError(f"{name} is no vector or matrix of numbers of the map")
            section.rows = array.shape[0] if array.ndim == 2 else 1
            section.columns = array.shape[array.ndim - 1]
            section.data = array.buf
        return rk_map_of(sections, <rk_gemm> gemm, <rk_single_gemm> single_gemm, parts, n_parts, input, &self.map)

    def __dealloc__(self):
        randsmap_close(self.map)
        for i in range(self.n_buffers):
            PyBuffer_Release(&self.buffers[i])

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
                    work = allocate(rk_work(self.map, n))
                    with nogil:
                        status = rk_decode(self.map, <const double *> y.buf, NULL, n, <double *> f.buf, work)
                    free(work)
            finally:
                PyBuffer_Release(&f)
        finally:
            PyBuffer_Release(&y)
        return status

    def decode(self, const double[:, ::1] Y, const double[:, ::1] values, double[:, ::1] out):
        """Fields out (n, M) of points Y (n, d); values (n, rank) of the independent invariants, or None."""
        cdef int status
        cdef Py_ssize_t n = Y.shape[0]
        cdef const double *m = NULL
        cdef double *work
        self.check(Y.shape[1] == self.n_components and out.shape[0] == n and out.shape[1] == self.n_cells)
        if n == 0:
            return RANDSMAP_OK
        if values is not None and values.shape[1]:
            m = &values[0, 0]
        work = allocate(rk_work(self.map, n))
        with nogil:
            status = rk_decode(self.map, &Y[0, 0], m, n, &out[0, 0], work)
        free(work)
        return status

    def decode_values(self, const double[:, ::1] Y, const double[:, ::1] values, double[:, ::1] out):
        """`decode` with the values (n, q) of all invariants, the dependent ones too."""
        cdef int status
        cdef double *work
        self.check(Y.shape[1] == self.n_components and out.shape[0] == Y.shape[0] and out.shape[1] == self.n_cells
                   and values.shape[0] == Y.shape[0] and values.shape[1] == self.n_invariants)
        if Y.shape[0] == 0:
            return RANDSMAP_OK
        work = allocate(rk_work(self.map, 1))
        with nogil:
            status = randsmap_decode_values(self.map, &Y[0, 0], &values[0, 0], Y.shape[0], &out[0, 0], work)
        free(work)
        return status

    def tangents(self, const double[:, ::1] Y, const double[:, :, ::1] V, double[:, :, ::1] out):
        """Derivatives out (n, p, M) of the fields at Y (n, d) along V (n, p, d), or with None the coordinates."""
        cdef int status
        cdef Py_ssize_t n = Y.shape[0], p = out.shape[1]
        cdef const double *v = NULL
        cdef double *work
        self.check(Y.shape[1] == self.n_components and out.shape[0] == n and out.shape[2] == self.n_cells
                   and (p == self.n_components if V is None else V.shape[0] == n and V.shape[1] == p
                        and V.shape[2] == self.n_components))
        if n == 0 or p == 0:
            return RANDSMAP_OK
        if V is not None:
            v = &V[0, 0, 0]
        work = allocate(rk_tangents_work(self.map, n, p))
        with nogil:
            status = rk_tangents(self.map, &Y[0, 0], v, n, p, &out[0, 0, 0], work)
        free(work)
        return status

    def cotangents(self, const double[:, ::1] Y, const double[:, ::1] U, double[:, ::1] out):
        """Products out (n, d) = J^T u for U (n, M)."""
        cdef int status
        cdef double *work
        self.check(Y.shape[1] == self.n_components and U.shape[0] == Y.shape[0] and U.shape[1] == self.n_cells
                   and out.shape[0] == Y.shape[0] and out.shape[1] == self.n_components)
        if Y.shape[0] == 0:
            return RANDSMAP_OK
        work = allocate(rk_cotangents_work(self.map, Y.shape[0]))
        with nogil:
            status = rk_cotangents(self.map, &Y[0, 0], &U[0, 0], Y.shape[0], &out[0, 0], work)
        free(work)
        return status

    def nearest(self, const double[:, ::1] F, const double[::1] weights, Py_ssize_t steps, double[:, ::1] Y):
        """Points Y (n, d) moved by `steps` so that their fields are nearer to F (n, M); weights (M,) of cells or None."""
        cdef const double *w = NULL
        cdef double *work
        self.check(F.shape[1] == self.n_cells and Y.shape[0] == F.shape[0] and Y.shape[1] == self.n_components
                   and (weights is None or weights.shape[0] == self.n_cells))
        if F.shape[0] == 0:
            return
        work = allocate(rk_nearest_work(self.map))
        if weights is not None:
            w = &weights[0]
        with nogil:
            rk_nearest(self.map, &F[0, 0], w, F.shape[0], steps, &Y[0, 0], work)
        free(work)

    def encode(self, const double[:, ::1] F, Py_ssize_t steps, double[:, ::1] out):
        """Latent points out (n, d) of fields F (n, M), after `steps` of `nearest`, or with -1 the image's own number."""
        cdef int status
        cdef double *work
        self.check(F.shape[1] == self.n_cells and out.shape[0] == F.shape[0] and out.shape[1] == self.n_components)
        if F.shape[0] == 0:
            return RANDSMAP_OK
        work = allocate(rk_work(self.map, F.shape[0]))
        with nogil:
            status = randsmap_encode_steps(self.map, &F[0, 0], F.shape[0], steps, &out[0, 0], work)
        free(work)
        return status

    def registered(self, const double[:, ::1] F, double[:, ::1] out):
        """Coordinates of a registration and what it carries (n, own + cells) of fields F (n, M)."""
        cdef int status = RANDSMAP_OK, of_row
        cdef Py_ssize_t i, cells = rk_registered_cells(self.map), own = out.shape[1] - cells
        cdef double *work
        self.check(rk_is_registration(self.map) and F.shape[1] == self.n_cells and out.shape[0] == F.shape[0]
                   and out.shape[1] == self.n_components)
        work = allocate(rk_work(self.map, 1))
        with nogil:
            for i in range(F.shape[0]):
                of_row = rk_registered(self.map, &F[i, 0], &out[i, 0], &out[i, 0] + own, work)
                status = status if status else of_row
        free(work)
        return status

    cdef int check(self, bint fits) except -1:
        """The one place where arrays meet the map: nothing is read beyond its end."""
        if not fits:
            raise ValueError(f"shapes do not fit a map from {self.n_components} coordinates to {self.n_cells} cells")
        return 0
