"""Projection of fields on their invariants, and boxes around the training points."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport sqrt
from libc.stdlib cimport free

from randsmap._kernels cimport allocate

cdef const rk_projection_table *projection_table = rk_projection_select()
cdef const rk_decode_table *table = rk_decode_select()

FEW, MOST_BOXES = RK_DECODE_FEW, RK_MOST_BOXES


cdef class Projection:
    """Affine invariants in the orthonormal form of `rk_projection`; keeps its arrays alive.

    C, W (q, M); m (q,); R (q, q); index, value (n_constant,). bounds: None, or direction (q, M), lower, upper (M,)
    and v (M,) or None of `rk_bounds`. ValueError if these are too many invariants for it.
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
        self.direction, self.lower, self.upper, self.weights = bounds
        self.bounds_view.M, self.bounds_view.q = C.shape[1], C.shape[0]
        self.bounds_view.w, self.bounds_view.W, self.bounds_view.R = self.view.C, self.view.W, self.view.R
        if C.shape[0]:
            self.bounds_view.direction = &self.direction[0, 0]
        if self.weights is not None:
            self.bounds_view.v = &self.weights[0]
        self.bounds_view.lower = &self.lower[0]
        self.bounds_view.upper = &self.upper[0]
        if not rk_bounds_prepare(&self.bounds_view):
            raise ValueError("with bounds, at most 8 invariants may share cells, of at most 64")
        self.view.bounds = &self.bounds_view

    @property
    def groups(self):
        """Of each invariant the first of those that it shares movable cells with; with bounds."""
        return [self.bounds_view.group[j] for j in range(self.view.q)]

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

    def push(self, const double[:, ::1] F, double[:, :, ::1] T):
        """In place, the derivatives of `project` at its results F (n, M) of tangents T (n, p, M): of a tangent that is
        too large no numbers."""
        cdef Py_ssize_t i, k
        if T.shape[0] == 0 or T.shape[1] == 0 or T.shape[2] == 0:
            return
        cdef double *work = allocate(projection_table.workspace(&self.view))
        with nogil:
            for i in range(T.shape[0]):
                for k in range(T.shape[1]):
                    projection_table.push(&self.view, &F[i, 0], &T[i, k, 0], work)
        free(work)

    def pull(self, const double[:, ::1] F, double[:, ::1] U):
        """In place, with bounds, the transposed derivatives at F (n, M) of functionals U (n, M)."""
        cdef Py_ssize_t i
        if U.shape[0] == 0 or U.shape[1] == 0:
            return
        cdef double *work = allocate(projection_table.workspace(&self.view))
        with nogil:
            for i in range(U.shape[0]):
                projection_table.pull(&self.view, &F[i, 0], &U[i, 0], work)
        free(work)


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
