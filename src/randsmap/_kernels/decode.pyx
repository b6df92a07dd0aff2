"""Decoding, in steps: features of a tile of latent points -> GEMM with A -> constants -> row projection."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from randsmap._kernels.blas cimport gemm
from randsmap._kernels.features cimport (
    FeatureMap, feature_tile, rk_features_select, rk_features_table,
)

cdef const rk_features_table *features_table = rk_features_select()
cdef const rk_projection_table *projection_table = rk_projection_select()
cdef const rk_decode_table *table = rk_decode_select()

FEW, MOST_BOXES = RK_DECODE_FEW, RK_MOST_BOXES


cdef class Projection:
    """Affine invariants in the orthonormal form of `rk_projection`; keeps its arrays alive.

    C, W (q, M); m (q,); R (q, q); index, value (n_constant,). bounds: None, or direction, lower and
    upper of `rk_bounds`, each (M,); then q <= 1 and W and R are not used.
    """

    def __cinit__(self, const double[:, ::1] C, const double[::1] m, const double[:, ::1] W,
                  const double[:, ::1] R, const Py_ssize_t[::1] index, const double[::1] value,
                  bounds=None):
        self.C, self.m, self.W, self.R, self.index, self.value = C, m, W, R, index, value
        self.view.M = C.shape[1]
        self.view.q = C.shape[0]
        self.view.n_constant = index.shape[0]
        if C.shape[0]:
            self.view.C = &C[0, 0]
            self.view.m = &m[0]
            self.view.W = &W[0, 0]
            self.view.R = &R[0, 0]
        if index.shape[0]:
            self.view.index = &index[0]
            self.view.value = &value[0]
        self.bounds = bounds
        if bounds is None or C.shape[1] == 0:
            return
        self.direction, self.lower, self.upper = bounds
        self.bounds_view.M = C.shape[1]
        self.bounds_view.w = self.view.C
        self.bounds_view.direction = &self.direction[0]
        self.bounds_view.lower = &self.lower[0]
        self.bounds_view.upper = &self.upper[0]
        self.bounds_view.uniform = rk_bounds_are_uniform(&self.bounds_view)
        self.view.bounds = &self.bounds_view

    def __reduce__(self):
        from numpy import asarray

        return Projection, (asarray(self.C), asarray(self.m), asarray(self.W), asarray(self.R),
                            asarray(self.index), asarray(self.value), self.bounds)

    def project(self, double[:, ::1] F, const double[:, ::1] values=None):
        """Project the rows of F (n, M) in place; the first row that is too large for it, or -1.

        values (n, q): m of each row; None: the m of the projection for all.
        """
        cdef Py_ssize_t bad
        cdef const double *given = NULL
        if F.shape[0] == 0 or F.shape[1] == 0:
            return -1
        if values is not None and values.shape[1]:
            given = &values[0, 0]
        cdef double *work = allocate(projection_table.workspace(&self.view))
        with nogil:
            bad = projection_table.project(&self.view, given, &F[0, 0], F.shape[0], F.shape[1],
                                           work)
        free(work)
        return bad


cdef class Boxes:
    """Boxes low, high (d, n) around the training points, n <= MOST_BOXES, and how far from them is far away.

    Distances are in units of 1 / weight (d,). A typed memoryview costs a microsecond, which is more than the check
    of a row: `farthest` trusts that its points are C-contiguous float64.
    """

    def __cinit__(self, const double[:, ::1] low, const double[:, ::1] high, const double[::1] weight, double limit):
        if (low.shape[1] > RK_MOST_BOXES or low.shape[1] == 0 or low.shape[0] != weight.shape[0]
                or high.shape[0] != low.shape[0] or high.shape[1] != low.shape[1]):
            raise ValueError("the boxes do not fit each other")
        self.low, self.high, self.weight, self.limit = low, high, weight, limit

    def __reduce__(self):
        from numpy import asarray

        return Boxes, (asarray(self.low), asarray(self.high), asarray(self.weight), self.limit)

    cdef double square(self, const double *y) noexcept nogil:
        return table.box_distance(y, &self.weight[0], self.low.shape[0], &self.low[0, 0], &self.high[0, 0],
                                  self.low.shape[1])

    def distance(self, const double[::1] y):
        """Distance of the point y (d,) from the nearest box."""
        return sqrt(self.square(&y[0]))

    def farthest(self, X):
        """The row of X (n, d) that is farthest from the boxes if it is farther than the limit, else -1."""
        cdef Py_buffer x
        cdef Py_ssize_t i, n, row = -1
        cdef double square, largest = self.limit * self.limit
        PyObject_GetBuffer(X, &x, PyBUF_C_CONTIGUOUS)
        n = x.shape[0] if x.ndim == 2 and x.shape[1] == self.low.shape[0] else 0
        for i in range(n):
            square = self.square(<const double *> x.buf + i * self.low.shape[0])
            if square > largest:
                row, largest = i, square
        PyBuffer_Release(&x)
        return row


cdef double *allocate(Py_ssize_t n) except NULL:
    cdef double *memory = <double *> malloc((<size_t> n + 1) * sizeof(double))
    if memory == NULL:
        raise MemoryError(f"no memory for {n} numbers")
    return memory


def dots(const double[:, ::1] C, const double[:, ::1] F, double[:, ::1] value,
         double[:, ::1] scale):
    """value[i, j] = C[j] . F[i] (compensated), scale[i, j] = |C[j]| . |F[i]|."""
    cdef Py_ssize_t i
    if value.shape[0] == 0 or value.shape[1] == 0 or F.shape[1] == 0:
        return
    with nogil:
        for i in range(F.shape[0]):
            projection_table.dots(&C[0, 0], C.shape[0], C.shape[1], &F[i, 0], &value[i, 0],
                                  &scale[i, 0])


cdef int check(bint features_fit, const double[:, ::1] A, Py_ssize_t P, Projection projection,
               Py_ssize_t n, const double[:, ::1] out) except -1:
    """The one place where arrays that a user may have replaced meet: nothing is read beyond its end."""
    if (not features_fit or A.shape[0] != P + 1 or out.shape[0] != n or out.shape[1] != A.shape[1]
            or (projection is not None and projection.view.M != A.shape[1])):
        raise ValueError(
            f"shapes do not fit: {P} features, coefficients ({A.shape[0]}, {A.shape[1]}), "
            f"fields ({out.shape[0]}, {out.shape[1]}) of {n} points")
    return 0


cdef void start_from_bias(const double *A, Py_ssize_t M, Py_ssize_t n, double *out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(out + i * M, A, <size_t> M * sizeof(double))


def decode(int activation, const double[:, ::1] Y, const double[:, ::1] W, const double[::1] b,
           double scale, const double[:, ::1] A, Projection projection, double[:, ::1] out):
    """out = [1 | phi(Y)] A for one tile of latent points, projected (projection None: not).

    Returns the first row that could not be projected because it is not finite or overflows, or -1.
    Y (n, d), W (d, P), b (P,), A (P + 1, M), out (n, M). Workspace: n * min(P, 768) doubles.
    """
    cdef Py_ssize_t n = Y.shape[0], d = Y.shape[1], P = W.shape[1], M = A.shape[1]
    cdef Py_ssize_t depth = P if n <= RK_DECODE_FEW else min(P, <Py_ssize_t> RK_DECODE_DEPTH)
    cdef Py_ssize_t k, j, size = 0, bad = -1
    cdef FeatureMap block
    cdef const rk_projection *view = NULL
    check(d == W.shape[0] and P == b.shape[0], A, P, projection, n, out)
    if n == 0 or M == 0:
        return -1
    if projection is not None:
        view = &projection.view
        size = projection_table.workspace(view)
    cdef double *features = allocate(max(n * depth, size) + d * depth)
    cdef double *weights = features + max(n * depth, size)
    with nogil:
        start_from_bias(&A[0, 0], M, n, &out[0, 0])
        block.activation = activation
        block.d = d
        block.scale = scale
        k = 0
        while k < P:  # a range of variable step would need the GIL
            block.P = min(depth, P - k)
            block.b = &b[k]
            block.W = &W[0, 0]
            if block.P < P:  # feature_tile reads contiguous weights
                for j in range(d):
                    memcpy(weights + j * block.P, &W[j, k], <size_t> block.P * sizeof(double))
                block.W = weights
            feature_tile(features_table, &block, &Y[0, 0], n, features, block.P)
            if n <= RK_DECODE_FEW:
                table.rows(features, n, block.P, block.P, &A[k + 1, 0], M, &out[0, 0])
            else:
                gemm(False, False, n, M, block.P, 1.0, features, block.P, &A[k + 1, 0], M, 1.0,
                     &out[0, 0], M)
            k += depth
        if view != NULL:
            bad = projection_table.project(view, NULL, &out[0, 0], n, M, features)
    free(features)
    return bad


def add_rows(const double[:, ::1] Z, const double[:, ::1] A, double[:, ::1] out):
    """out (n, M) += Z (n, K) A for a few rows, as C decodes frozen decoders."""
    if Z.shape[1] != A.shape[0] or out.shape[0] != Z.shape[0] or out.shape[1] != A.shape[1]:
        raise ValueError(f"shapes do not fit: {Z.shape[0]} rows of {Z.shape[1]} by {A.shape[0]} x {A.shape[1]}")
    if Z.shape[0] and Z.shape[1] and A.shape[1]:
        with nogil:
            table.rows(&Z[0, 0], Z.shape[0], Z.shape[1], Z.shape[1], &A[0, 0], A.shape[1], &out[0, 0])


def decode_features(const double[:, ::1] Z, const double[:, ::1] A, Projection projection,
                    double[:, ::1] out):
    """`decode` for features Z (n, P) that are already there (any feature map)."""
    cdef Py_ssize_t n = Z.shape[0], P = Z.shape[1], M = A.shape[1], bad = -1
    check(True, A, P, projection, n, out)
    if n == 0 or M == 0:
        return -1
    cdef double *work = allocate(0 if projection is None
                                     else projection_table.workspace(&projection.view))
    with nogil:
        start_from_bias(&A[0, 0], M, n, &out[0, 0])
        if P > 0 and n <= RK_DECODE_FEW:
            table.rows(&Z[0, 0], n, P, P, &A[1, 0], M, &out[0, 0])
        elif P > 0:
            gemm(False, False, n, M, P, 1.0, &Z[0, 0], P, &A[1, 0], M, 1.0, &out[0, 0], M)
        if projection is not None:
            bad = projection_table.project(&projection.view, NULL, &out[0, 0], n, M, work)
    free(work)
    return bad
