"""Exact affine invariants: decoded fields that satisfy C^T f = m at every latent point.

Notation as in the package's documentation: fields are rows, F is (n, M); C is (M, q), one invariant
a column (ones for mass, cell volumes on a mesh); J0 are the cells that never change in the training
data, S the others; V is the diagonal matrix of cell weights.
"""

import copy
import inspect
import math

import numpy as np
import scipy.linalg

from randsmap._blocks import row_blocks
from randsmap._docstrings import document
from randsmap._kernels import decode as _kernel
from randsmap._parallel import parallel_for
from randsmap._state import DERIVED, Array, Part
from randsmap._tangents import free_tangents, free_tangents_adjoint
from randsmap._validation import check_matrix, check_number, check_vector
from randsmap.bounds import Reach, check_bounds, dual_direction, check_within, project_rows

__all__ = ["ActiveBounds", "AffineInvariants", "InvariantParameters", "RunningInvariants",
           "constant_cells", "decode_rows", "document_invariants", "invariant_values"]

_EPS = np.finfo(float).eps
_TINY = np.finfo(float).smallest_subnormal
_TILE = 256
# relative deviation that the number type of the training data explains
_TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4}


def constant_cells(F, first=None, mask=None):
    """Mask (M,) of the cells with one and the same value in every row of F (n, M).

    Values are compared exactly; 0.0 and -0.0 are the same value. Given `first` (M,) and `mask`: of
    the cells in the mask those with the value of `first` in every row.
    """
    first = F[:1][0] if first is None else first
    mask = np.ones(F.shape[1], dtype=bool) if mask is None else mask.copy()
    rows = max(1, (1 << 18) // max(1, F.shape[1]))  # most cells drop out early
    for start in range(0, len(F), rows):
        active = np.flatnonzero(mask)
        if not len(active):
            break
        block = F[start : start + rows]
        if len(active) < F.shape[1]:
            block = block[:, active]
        mask[active] = (block == first[active]).all(axis=0)
    return mask


def invariant_values(C, F):
    """C_j^T f_i and |C_j|^T |f_i| for fields F (n, M) and invariants C (M, q), each (n, q).

    The first is a compensated dot product (Ogita, Rump & Oishi 2005): as if computed in twice the
    working precision and rounded.
    """
    rows = np.ascontiguousarray(C.T)
    value, scale = np.zeros((len(F), len(rows))), np.zeros((len(F), len(rows)))
    for start, block in row_blocks(F, "checking"):
        def task(i):
            part = slice(i * _TILE, (i + 1) * _TILE)
            there = slice(start + part.start, start + part.stop)
            _kernel.dots(rows, block[part], value[there], scale[there])

        parallel_for(task, -(-len(block) // _TILE))
    return value, scale


class AffineInvariants:
    """What every decoded field satisfies: C^T f = m, and f = c on the constant cells.

    Parameters
    ----------
    matrix : ndarray (M, q)
        C, one invariant a column. Dependent and zero columns are allowed.
    values : ndarray (q,)
        m. The values of dependent columns are replaced by those that the others imply.
    constant : ndarray (M,) of bool
        J0, the constant cells.
    constant_values : ndarray
        c, the value of each constant cell.
    cell_weights : ndarray (M,) or None
        The diagonal of V, positive; None: the identity.
    bounds : (ndarray (M,), ndarray (M,)) or None
        Lower and upper bounds of the fields, infinite where there is none. Then at most one
        independent invariant, without negative entries on S.

    Attributes
    ----------
    matrix, values, constant, constant_values, cell_weights
        As given (values made consistent).
    lower, upper : ndarray (M,), or None without bounds
    kept : ndarray of int
        The independent columns of C on the cells S; the other columns follow from them.
    projection : Projection
        The orthonormal form that the decode kernel applies to each row.

    Notes
    -----
    C^T C is never formed: the columns of V_S^-1/2 C_S are scaled to length 1 and factored by a
    pivoted QR, with rank decided at max(|S|, q) eps.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.invariants import AffineInvariants
    >>> fields = np.array([[0.0, 0.25, 0.75], [0.0, 0.5, 0.5]])
    >>> invariants = AffineInvariants.from_data(fields, invariants="mass")
    >>> invariants.values, invariants.constant
    (array([1.]), array([ True, False, False]))
    >>> invariants.project(np.array([[0.1, 0.5, 1.0]]))
    array([[0.  , 0.25, 0.75]])
    """

    _state = {
        "constant": Array("M", dtype=bool),
        "constant_values": Array("constants", empty=True),
        "cell_weights": Array("M", low=_TINY, optional=True),
        "matrix": Array("M", "q", empty=True),
        "values": Array("q", empty=True),
        "kept": Array("rank", dtype=np.intp, low=0, empty=True),
        "lower": Array("M", infinite=True, optional=True),
        "upper": Array("M", infinite=True, optional=True),
        "_T": Array("rank", "rank", empty=True),
        "_W": Array("rank", "M", empty=True),
        "_C": DERIVED,
        "_reach": DERIVED,
        "projection": DERIVED,
    }

    def __init__(self, matrix, values, constant, constant_values, cell_weights=None, bounds=None):
        self.matrix, self.cell_weights = matrix, cell_weights
        self.lower, self.upper = bounds or (None, None)
        self.constant, self.constant_values = constant, constant_values
        M, q = matrix.shape
        free = np.flatnonzero(~constant)
        inverse_root = None if cell_weights is None else 1 / np.sqrt(cell_weights[free])

        scaled = matrix[free]
        if inverse_root is not None:
            scaled *= inverse_root[:, None]
        length = _column_norms(scaled)
        length[length == 0] = 1
        scaled /= length
        if len(free) and q:
            Q, R, order = scipy.linalg.qr(scaled, mode="economic", pivoting=True,
                                          check_finite=False)
            diagonal = np.abs(np.diag(R))
            rank = int(np.count_nonzero(diagonal > max(len(free), q) * _EPS * diagonal[0]))
        else:
            Q, R, order, rank = np.zeros((len(free), 0)), np.zeros((0, q)), np.arange(q), 0
        order = order.astype(np.intp)  # of 32 or 64 bits, as LAPACK has it
        self.kept, dropped = order[:rank], order[rank:]

        # V^-1/2 C_kept = Q T on S; W = Q^T V^-1/2, zero on the constant cells
        T = R[:rank, :rank] * length[self.kept]
        W = np.zeros((rank, M))
        W[:, free] = Q[:, :rank].T if inverse_root is None else Q[:, :rank].T * inverse_root

        self.values = self._consistent(values, T, R[:rank, rank:] * length[dropped], dropped)
        self._T, self._W = np.ascontiguousarray(np.triu(T)), W
        self._make_projection()

    def _make_projection(self):
        self._C = np.ascontiguousarray(self.matrix[:, self.kept].T)
        self._reach, bounds = None, None
        if self.lower is not None:
            bounds = self._bounds_of_kernel()
        self.projection = _kernel.Projection(
            self._C, self.values[self.kept], self._W, self._T,
            np.flatnonzero(self.constant), np.ascontiguousarray(self.constant_values), bounds,
        )

    def _bounds_of_kernel(self):
        """Directions V^-1 C_S and bounds, the constant cells fixed; ValueError if no field can be."""
        if len(self.kept) > 1:
            raise ValueError(f"bounds go with at most one invariant, got {len(self.kept)} independent "
                             "ones: fields with several invariants cannot be projected on bounds")
        lower, upper = self.lower.copy(), self.upper.copy()
        c, cells = self.constant_values, np.flatnonzero(self.constant)
        for i in np.flatnonzero(~((lower[cells] <= c) & (c <= upper[cells])))[:1]:
            raise ValueError(f"cell {cells[i]} is {c[i]} in all training fields, outside its bounds "
                             f"[{lower[cells[i]]}, {upper[cells[i]]}]; bounds=None decodes without them")
        lower[cells] = upper[cells] = c + 0.0  # 0.0 beside -0.0 of the other bound would not matter
        direction = np.zeros(len(self.constant))
        for w in self._C:
            for i in np.flatnonzero((w < 0) & ~self.constant)[:1]:
                raise ValueError("bounds go with an invariant of weights >= 0, but invariant "
                                 f"{self.kept[0]} has the weight {w[i]} for cell {i}")
            direction = dual_direction(np.where(self.constant, 0.0, w), self.cell_weights)
            self._reach = Reach(w, lower, upper)
            self._check_reach(self.values[self.kept], lambda i: "")
        return direction, lower, upper

    def _check_reach(self, values, where):
        missed = self._reach.missed(values)
        for i in np.flatnonzero(missed)[:1]:
            raise ValueError(
                f"the value {values[i]} of invariant {self.kept[0]}{where(i)} is out of reach by "
                f"{missed[i]:.3g}: within the bounds the invariant is in {self._reach}")

    def _restore(self):
        if np.count_nonzero(self.constant) != len(self.constant_values):
            raise ValueError("constant_values has not one value a constant cell")
        if len(self.kept) and self.kept.max() >= self.matrix.shape[1]:
            raise ValueError("kept names a column that matrix does not have")
        if not np.diag(self._T).all():
            raise ValueError("_T is singular")
        self.lower, self.upper = getattr(self, "lower", None), getattr(self, "upper", None)
        if (self.lower is None) != (self.upper is None):
            raise ValueError("one of lower and upper is missing")
        if self.lower is not None:
            self.lower, self.upper = check_bounds((self.lower, self.upper), len(self.constant))
        self._make_projection()

    def _consistent(self, values, T, R_dropped, dropped):
        """m with the value of each dropped column implied by the kept columns and the constants."""
        field = np.zeros((1, len(self.matrix)))
        field[0, self.constant] = self.constant_values
        fixed = invariant_values(self.matrix, field)[0][0]
        values = np.array(values, dtype=float)
        values[dropped] = fixed[dropped]
        if len(T) and len(dropped):
            # C_dropped = C_kept T^-1 R_dropped on S
            z = scipy.linalg.solve_triangular(T, (values - fixed)[self.kept], trans="T",
                                              check_finite=False)
            values[dropped] += R_dropped.T @ z
        return values

    @classmethod
    def from_data(cls, F, *, invariants="mass", values=None, tol=None, cell_weights=None,
                  bounds=None, keep_constant_cells=True, dtype=np.float64):
        """Build the invariants of training fields and check that the fields satisfy them.

        Parameters
        ----------
        F : ndarray (n, M)
            Training fields, contiguous float64.
        invariants : "mass", array (M,) or (M, q), or None
            C. "mass" is the weighted sum of the cells: C = cell_weights, or ones without
            weights. None: no invariant, constant cells only.
        values : float, array (q,) or None
            m. None: the mean over the training fields.
        tol : float or None
            |C_j^T f_i - m_j| <= tol |C_j|^T |f_i| is required. None: 1e-6, for float32 data 1e-4,
            for float16 data 1e-2.
        cell_weights : array (M,) or None
            Positive weights of the norm in which the projection is orthogonal.
        bounds : (lower, upper), "nonnegative" or None
            See `randsmap.bounds.check_bounds`. The training fields must be within.
        keep_constant_cells : bool
            False: no cell is treated as constant.
        dtype : dtype
            Number type the fields came in.

        Raises
        ------
        ValueError
            If an argument has the wrong shape or is not finite, if weights are not positive, or if
            the training fields do not satisfy the invariants or the bounds.
        """
        running = RunningInvariants(
            F.shape[1], invariants=invariants, values=values, tol=tol, cell_weights=cell_weights,
            bounds=bounds, keep_constant_cells=keep_constant_cells)
        return running.extended(F, dtype)[1]

    def correct_coefficients(self, A, B):
        """A + (B - A C)(C_S^T V_S^-1 C_S)^-1 C_S^T V_S^-1, in place: then A C = B (over all cells).

        The smallest change, in the V-weighted norm of each row, that does so on the cells S: the
        Lagrange-multiplier correction of the paper (Proposition RANDSMAP) with B = e_bias m^T, for
        every latent point, in place of its B = (Phi^+ 1) m^T, for the training points.

        Parameters
        ----------
        A : ndarray (P+1, M)
        B : ndarray (P+1, q)
        """
        if len(self.kept):
            A += self._steps(B[:, self.kept] - A @ self._C.T) @ self._W
        return A

    def constrain_coefficients(self, R):
        """Coefficients R (P+1, M) of features [1 | phi], corrected in place: A C = e_bias m^T.

        Then C^T f(y) = m for every y, since the bias column of [1 | phi(y)] is 1; and f = c on the
        constant cells.
        """
        A = self.assign_constants(R)
        B = np.zeros((len(A), len(self.values)))
        B[0] = self.values
        return self.correct_coefficients(A, B)

    def assign_constants(self, A):
        """A[:, J0] = e_bias c^T, in place."""
        A[:, self.constant] = 0
        A[0, self.constant] = self.constant_values
        return A

    @property
    def n_cells(self):
        """M, also of invariants that are expressed in coordinates."""
        return getattr(self, "_n_cells", len(self.matrix))

    def normals(self):
        """W (rank, M): W V^1/2 has orthonormal rows that span V^-1/2 C_S (0 on constant cells)."""
        return self._W

    def tangent_projection(self):
        """The `Projection` of derivatives of decoded fields: C^T g = 0, and 0 on the constant cells."""
        constant = np.flatnonzero(self.constant)
        return _kernel.Projection(self._C, np.zeros(len(self.kept)), self._W, self._T, constant,
                                  np.zeros(len(constant)))

    def in_coordinates(self, matrix, normals):
        """The same invariants for coordinates x (r,) of fields, f = Q x on the cells S.

        The columns of Q (|S|, r) are orthonormal and span the fields that are decoded and V_S^-1 C_S,
        so that correcting coordinates is correcting fields. The constant cells have no coordinates:
        the values left for the others are m - C_J0^T c.

        Parameters
        ----------
        matrix : ndarray (r, q)
            Q^T C_S.
        normals : ndarray (rank, r)
            W_S Q.
        """
        field = np.zeros((1, len(self.matrix)))
        field[0, self.constant] = self.constant_values
        other = copy.copy(self)
        other._n_cells = self.n_cells
        other.matrix, other.kept, other.cell_weights = matrix, self.kept, None
        other.values = self.values - invariant_values(self.matrix, field)[0][0]
        other.constant, other.constant_values = np.zeros(len(matrix), dtype=bool), np.zeros(0)
        other._T, other._W = self._T, normals
        other._make_projection()
        return other

    def project_adjoint(self, U):
        """The transpose of `tangent_projection`, applied to U (n, M): u - C T^-1 W u, and 0 on J0."""
        if len(self.kept):
            t = scipy.linalg.solve_triangular(self._T, self._W @ U.T, check_finite=False)
            U = U - t.T @ self._C
        if self.constant.any():
            U = np.where(self.constant, 0.0, U)
        return U

    def gather_coefficients(self, A, cells):
        """Columns `cells` of A (P+1, M) that decode what the projection makes of whole fields [1 | phi] A.

        The projection adds (m - C^T f) T^-1 W to a field f, which is a correction of A: (e_bias m^T - A C)
        T^-1 W, here of these columns alone. A C is e_bias m^T but for the round-off of A, which
        matters where A is huge; its sums over all cells are taken in twice the precision. On the
        constant cells A must hold their values.
        """
        gathered = np.ascontiguousarray(A[:, cells])
        if len(self.kept):
            E = -invariant_values(np.ascontiguousarray(self._C.T), A)[0]
            E[0] += self.values[self.kept]
            gathered += self._steps(E) @ self._W[:, cells]
        return gathered

    def _steps(self, E):
        """E T^-1 (n, rank): what to multiply W by to change C^T f by E (n, rank)."""
        return scipy.linalg.solve_triangular(self._T, E.T, trans="T", check_finite=False).T

    def project(self, F, values=None, *, first=0):
        """The nearest fields, in the V-weighted norm, with C^T f = m, f = c on J0, and in the bounds.

        F is (n, M), contiguous float64, and changed in place. values (n, rank), from `row_values`, are
        the m of each row. Afterwards |C_j^T f - m_j| <= a few eps (|C_j|^T |f| + |m_j|), and the bounds
        hold exactly; ValueError if a field overflows: it is named, the first as number `first`.
        """
        return project_rows(self.projection, F, values, first)

    def row_values(self, values, n):
        """Values m of each of n fields, for the independent columns: (n, rank).

        Parameters
        ----------
        values : float, array (q,), (n,) if q is 1, or (n, q)
            One-dimensional: one value an invariant, for all rows; or, with one invariant, one value a
            row.
        n : int

        Raises
        ------
        ValueError
            If there are no invariants, values have another shape, the value of a dependent column
            is not the one that the others imply, or no field within the bounds has the value; the message
            names row and column.
        """
        q, kept = self.matrix.shape[1], self.kept
        if q == 0:
            raise ValueError("invariant_values given, but there are no invariants (invariants=None)")
        shape = np.shape(values)
        if shape not in {(), (q,), (n, q)} | ({(n,)} if q == 1 else set()) or (shape == () and q > 1):
            raise ValueError(
                f"invariant_values must have shape ({q},) for all rows" + (" or be a number" if q == 1 else "")
                + (f", or ({n},) or" if q == 1 else ", or") + f" ({n}, {q}) for each, got {shape}")
        values = np.asarray(values)
        values = values[:, None] if shape == (n,) and q == 1 and n != 1 else np.atleast_2d(values)
        values = np.array(np.broadcast_to(
            check_matrix(values, "invariant_values", min_rows=0), (n, q)))
        dropped = np.setdiff1d(np.arange(q), kept)
        if len(dropped):
            implied, size = self._implied(values, dropped)
            given = values[:, dropped]
            wrong = ~(np.abs(given - implied) <= 1e-6 * size + 8 * _EPS * np.abs(given))
            for i, k in np.argwhere(wrong)[:1]:
                raise ValueError(
                    f"invariant_values of row {i} has {given[i, k]} for column {dropped[k]} of the "
                    "invariants, which is zero or depends on the other columns and on the constant "
                    f"cells, which imply {implied[i, k]}")
        values = np.ascontiguousarray(values[:, kept])
        if self._reach is not None:
            self._check_reach(values[:, 0], lambda i: f" in row {i}")
        return values

    def _implied(self, values, dropped):
        """Values of the dropped columns that those of the others imply, and their terms' magnitude."""
        field = np.zeros((1, len(self.matrix)))
        field[0, self.constant] = self.constant_values
        fixed, size = (x[0] for x in invariant_values(self.matrix, field))
        z = scipy.linalg.solve_triangular(self._T, (values - fixed)[:, self.kept].T, trans="T",
                                          check_finite=False) if len(self.kept) else np.zeros((0, len(values)))
        R = self._W @ self.matrix[:, dropped]
        return fixed[dropped] + z.T @ R, size[dropped] + np.abs(z.T) @ np.abs(R)


class ActiveBounds:
    """Derivatives of fields projected on bounds: 0 in cells on their bound or constant, C^T g = 0.

    f = clip(z + t d) has the derivative dz + d dt in the free cells, and dt = -w . dz / w . d over them.

    Parameters
    ----------
    invariants : AffineInvariants
    F : ndarray (n, M)
        The projected fields.
    cells : ndarray (k,) of int, or None
        Only these cells are wanted.
    """

    def __init__(self, invariants, F, cells=None):
        self.free = (invariants.lower < F) & (F < invariants.upper) & ~invariants.constant
        self.cells, self.n_cells = cells, F.shape[1] if cells is None else len(cells)
        self._normal = (invariants._C[0] if len(invariants.kept) else None), invariants.cell_weights

    def push(self, T):
        """Tangents of the projected fields, of those T (n, M) or (n, M, d) of the fields before it."""
        if T.ndim == 2:
            T = free_tangents(T, self.free, *self._normal)
        else:
            T = free_tangents(T.swapaxes(1, 2), self.free[:, None], *self._normal).swapaxes(1, 2)
        return T if self.cells is None else T[:, self.cells]

    def pull(self, U):
        """The transpose: U (n, k) on the wanted cells to (n, M)."""
        if self.cells is not None:
            whole = np.zeros(self.free.shape)
            np.add.at(whole, (slice(None), self.cells), U)
            U = whole
        return free_tangents_adjoint(U, self.free, *self._normal)


def decode_rows(decode, n, invariants, invariant_values, cells, out):
    """Rows or some cells of fields whose whole must be projected, into out (n, M) or (n, k).

    Parameters
    ----------
    decode : callable
        ``decode(a, b, projection, F)`` puts the fields of rows a to b into F (b - a, M), projected
        unless projection is None.
    invariants : AffineInvariants
    invariant_values : as for `AffineInvariants.row_values`, or None
    cells : ndarray (k,) of int, or None
        None: all.
    """
    values = None if invariant_values is None else invariants.row_values(invariant_values, n)

    def fill(a, b, F):
        if values is None:
            decode(a, b, invariants.projection, F)
        else:
            decode(a, b, None, F)
            invariants.project(F, values[a:b], first=a)

    if cells is None:
        fill(0, n, out)
        return
    M = len(invariants.constant)
    rows = max(1, min(n, max(_TILE, (1 << 22) // M)))
    memory = np.empty((rows, M))
    for a in range(0, n, rows):
        b = min(a + rows, n)
        fill(a, b, memory[: b - a])
        out[a:b] = memory[: b - a, cells]


class RunningInvariants:
    """What the fields seen so far say of their invariants, in O(M + q) numbers; batches extend it.

    The parameters are those of `AffineInvariants.from_data`, with its errors. The checks of all the fields seen against the
    invariants, whose values m may move with their mean, are exact: |C_j^T f_i - m_j| <= tol_i |C_j|^T
    |f_i| for all i if and only if the largest C_j^T f_i - tol_i |C_j|^T |f_i| is at most m_j and the
    smallest C_j^T f_i + tol_i |C_j|^T |f_i| at least m_j.
    """

    def __init__(self, M, *, invariants, values, tol, cell_weights, bounds=None,
                 keep_constant_cells=True):
        self.bounds = check_bounds(bounds, M)
        if cell_weights is not None:
            cell_weights = check_vector(cell_weights, "cell_weights", length=M).copy()
            if not (cell_weights > 0).all():
                i = int(np.argmin(cell_weights))
                raise ValueError(
                    f"cell_weights must be positive, got {cell_weights[i]} for cell {i}")
        self.cell_weights = cell_weights
        self.matrix = _check_invariants(invariants, M, cell_weights)
        q = self.matrix.shape[1]
        self.tol = tol if tol is None else check_number(tol, "invariant_tol", low=0)
        self.values = None
        if values is not None:
            if invariants is None:
                raise ValueError("invariant_values given without invariants (invariants=None)")
            self.values = check_vector([values] if np.ndim(values) == 0 else values,
                                       "invariant_values", length=q)
        self.n, self.first = 0, None
        self.constant = np.full(M, bool(keep_constant_cells))
        self.sums = [(0.0, 0.0)] * q  # of C_j^T f, each in two numbers
        self.scale_sum, self.largest_scale = np.zeros(q), np.zeros(q)
        self.lowest, self.highest = np.full(q, -np.inf), np.full(q, np.inf)

    def extended(self, F, dtype=np.float64):
        """Itself with the fields F (n, M), of number type `dtype`, and the AffineInvariants of all.

        ValueError, which names a row of F, if the fields do not satisfy them.
        """
        if self.bounds is not None:
            check_within(F, *self.bounds, dtype)
        tol = _TOLERANCE.get(np.dtype(dtype), 1e-6) if self.tol is None else self.tol
        found, scale = invariant_values(self.matrix, F)
        n = self.n + len(F)
        new = copy.copy(self)
        new.n = n
        new.largest_scale = np.fmax(self.largest_scale, scale.max(axis=0, initial=0))
        largest = np.finfo(float).max / (4 * n)  # sums over the samples must not overflow either
        good = (scale <= largest) & np.isfinite(found)
        if not good.all():
            i, j = np.argwhere(~good)[0]
            raise ValueError(
                f"the terms of invariant {j} of the training field {i} are too large for floating-point "
                f"numbers (|C|^T |f| = {scale[i, j]:.3g}): use a smaller unit")
        if not (new.largest_scale <= largest).all():
            raise ValueError("the sums of the invariants of so many fields are too large for "
                             "floating-point numbers: use a smaller unit")
        new.sums = [_extended_sum(total, column) for total, column in zip(self.sums, found.T)]
        new.scale_sum = self.scale_sum + scale.sum(axis=0)
        typical = new.scale_sum / n
        given = self.values
        if given is None:
            given = np.array([total[0] / n for total in new.sums])
        new.first = F[:1][0].copy() if self.first is None else self.first
        new.constant = constant_cells(F, new.first, self.constant)

        invariants = AffineInvariants(self.matrix, given, new.constant, new.first[new.constant],
                                      self.cell_weights, self.bounds)
        if self.values is not None:
            for j in np.flatnonzero(~(np.abs(invariants.values - given)
                                      <= tol * typical + 8 * _EPS * np.abs(given))):
                raise ValueError(
                    f"invariant_values[{j}] is {given[j]}, but column {j} of the invariants is "
                    "zero or depends on the other columns and on the constant cells, which imply "
                    f"{invariants.values[j]}"
                )
        where = " of this batch" if self.n else ""
        _check_fields(found, scale, typical, invariants.values, tol, where)
        new.lowest = np.fmax(self.lowest, (found - tol * scale).max(axis=0, initial=-np.inf))
        new.highest = np.fmin(self.highest, (found + tol * scale).min(axis=0, initial=np.inf))
        slack = 8 * _EPS * (typical + np.abs(invariants.values))
        bad = ~((new.lowest - slack <= invariants.values) & (invariants.values <= new.highest + slack))
        for j in np.flatnonzero(bad):  # fields of an earlier batch, from which this one moved the mean
            i = int(np.argmax(np.abs(found[:, j] - self.sums[j][0] / max(self.n, 1))))
            raise ValueError(
                f"the training fields do not satisfy invariant {j}: with field {i}{where}, whose value is "
                f"{found[i, j]}, their mean is {invariants.values[j]}, and earlier fields do not have "
                "it. If the deviation is noise, pass a larger invariant_tol")
        return new, invariants


def _extended_sum(total, values):
    """A sum (high, low) of so far, with more values: as good as one correctly rounded sum."""
    terms = [*total, *values.tolist()]
    high = math.fsum(terms)
    return high, math.fsum([*terms, -high])


class InvariantParameters:
    """The parameters and attributes of the estimators whose fields satisfy invariants.

    A subclass stores `invariants`, `invariant_values`, `invariant_tol`, `cell_weights` and `bounds`;
    `document_invariants` describes them in its docstring.
    """

    def _fit_invariants(self, F, dtype, *, keep_constant_cells=True):
        """The invariants of the training fields F (n, M), which came in the type `dtype`."""
        if isinstance(self.invariants, AffineInvariants):  # as `tune` and `leave_one_out` have them
            return self.invariants
        return AffineInvariants.from_data(
            F, invariants=self.invariants, values=self.invariant_values, tol=self.invariant_tol,
            cell_weights=self.cell_weights, bounds=self.bounds,
            keep_constant_cells=keep_constant_cells, dtype=dtype,
        )

    def _invariants(self, F, dtype):
        """The invariants that `fit` uses."""
        return self._fit_invariants(F, dtype)

    def _running_invariants(self, M):
        """The invariants of no fields yet, of M cells."""
        return RunningInvariants(
            M, invariants=self.invariants, values=self.invariant_values, tol=self.invariant_tol,
            cell_weights=self.cell_weights, bounds=self.bounds)

    # what a model file holds of them (see randsmap._state)
    _invariant_state = {
        "invariants_": Part(AffineInvariants, M="M"),
        "invariant_values_": DERIVED,
        "invariant_matrix_": DERIVED,
        "constant_cells_": DERIVED,
    }

    def _store_invariants(self, invariants):
        self.invariants_ = invariants
        self._name_invariants()

    def _name_invariants(self):
        self.invariant_values_ = self.invariants_.values
        self.invariant_matrix_ = self.invariants_.matrix
        self.constant_cells_ = self.invariants_.constant

    def _restore(self):
        getattr(super(), "_restore", lambda: None)()
        self._name_invariants()

    def _projection(self):
        """What the decode kernel applies to every row."""
        return self.invariants_.projection


_PARAMETERS = """\
invariants : "mass", array (M,) or (M, q), or None, default={default}
    C. "mass" is the sum of the cells, weighted by cell_weights if they are given. Several
    columns are several invariants; dependent or zero columns are allowed. None: no
    invariant, only the constant cells.
invariant_values : float, array (q,) or None
    m. None: taken from the training fields (their mean).
invariant_tol : float or None
    The training fields must satisfy |C_j^T f_i - m_j| <= tol |C_j|^T |f_i|. None: 1e-6; 1e-4
    for float32 and 1e-2 for float16 fields."""
_WEIGHTS = """\
cell_weights : array (M,) or None
    Positive weights, such as cell volumes, of the norm in which the correction is smallest."""
_BOUNDS = """\
bounds : (lower, upper), "nonnegative" or None
    Bounds of every decoded field, which then hold exactly, in the one projection with the
    invariants: each bound a number, one value a cell, or None; "nonnegative" is (0, None). At
    most one independent invariant, with weights >= 0. The training fields must be within, but
    for 1e-12 of the largest value of a field (1e-5 for float32, 1e-2 for float16 fields), and
    constant cells exactly."""
_ATTRIBUTES = """\
invariant_values_ : ndarray (q,)
    m; the values of dependent columns are those that the others imply.
invariant_matrix_ : ndarray (M, q)
    C.
constant_cells_ : ndarray (M,) of bool
    Cells with one value in all training fields; they keep it in every decoded field.
invariants_ : AffineInvariants
    All of these, with the projection of fields on them."""


def document_invariants(cls):
    """Fill {invariant_parameters}, {cell_weights}, {bounds} and {invariant_attributes} in a docstring."""
    default = inspect.signature(cls).parameters["invariants"].default
    texts = {"invariant_parameters": _PARAMETERS.replace(
                 "{default}", '"mass"' if default == "mass" else repr(default)),
             "cell_weights": _WEIGHTS, "bounds": _BOUNDS, "invariant_attributes": _ATTRIBUTES}
    return document(cls, texts)


def _column_norms(X):
    """Euclidean norms of the columns, without overflow of the squares."""
    peak = np.abs(X).max(axis=0, initial=0)
    safe = np.where(peak > 0, peak, 1)
    return peak * np.sqrt(((X / safe) ** 2).sum(axis=0))


def _check_invariants(invariants, M, cell_weights):
    """C as an own (M, q) float64 array."""
    if invariants is None:
        return np.zeros((M, 0))
    if isinstance(invariants, str):
        if invariants != "mass":
            raise ValueError(f"invariants must be 'mass', None or an array, got {invariants!r}")
        return (np.ones(M) if cell_weights is None else cell_weights)[:, None].copy()
    C = invariants if hasattr(invariants, "toarray") else np.asanyarray(invariants)
    if C.ndim == 1:
        C = C[:, None]
    C = check_matrix(C, "invariants", min_columns=0)
    if len(C) != M:
        raise ValueError(
            f"invariants must have one row a cell, ({M},) or ({M}, q), got {np.shape(invariants)}")
    return C.copy()


def _check_fields(found, scale, typical, values, tol, where=""):
    """ValueError naming the worst training field if one does not satisfy its invariants."""
    excess = np.abs(found - values)
    # the second term is round-off: a field of zeros among fields whose invariant is 0
    bad = ~(excess <= tol * scale + 8 * _EPS * (typical + np.abs(values)))
    if bad.any():
        ratio = np.where(bad, excess / np.maximum(scale, np.finfo(float).tiny), 0)
        i, j = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        raise ValueError(
            f"the training fields do not satisfy invariant {j}: field {i}{where} has the value "
            f"{found[i, j]}, expected {values[j]} to within {tol * scale[i, j]:.3g}. Usual causes: one "
            "field must be a row, not a column; cells of different size need cell_weights. If the "
            "deviation is noise, pass a larger invariant_tol; invariants=None decodes without "
            "invariants"
        )
