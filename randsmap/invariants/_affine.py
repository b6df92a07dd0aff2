"""Exact affine invariants: decoded fields that satisfy C^T f = m at every latent point.

Notation as in the package's documentation: fields are rows, F is (n, M); C is (M, q), one invariant
a column (ones for mass, cell volumes on a mesh); J0 are the cells that never change in the training
data, S the others; V is the diagonal matrix of cell weights.
"""

import copy

import numpy as np
import scipy.linalg

from randsmap._estimator import DERIVED, Array
from randsmap._kernels import decode as _kernel
from randsmap._mmap import row_blocks
from randsmap._parallel import parallel_for
from randsmap._validation import check_matrix
from randsmap.invariants._bounds import Reach, check_bounds, dual_direction, project_rows

__all__ = ["AffineInvariants", "invariant_values"]

_EPS = np.finfo(float).eps
_TINY = np.finfo(float).smallest_subnormal
_TILE = 256


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
            Q, R, order = scipy.linalg.qr(scaled, mode="economic", pivoting=True, check_finite=False)
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
            self._C,
            self.values[self.kept],
            self._W,
            self._T,
            np.flatnonzero(self.constant),
            np.ascontiguousarray(self.constant_values),
            bounds,
        )

    def _bounds_of_kernel(self):
        """Directions V^-1 C_S and bounds, the constant cells fixed; ValueError if no field can be."""
        if len(self.kept) > 1:
            raise ValueError(
                f"bounds go with at most one invariant, got {len(self.kept)} independent "
                "ones: fields with several invariants cannot be projected on bounds"
            )
        lower, upper = self.lower.copy(), self.upper.copy()
        c, cells = self.constant_values, np.flatnonzero(self.constant)
        for i in np.flatnonzero(~((lower[cells] <= c) & (c <= upper[cells])))[:1]:
            raise ValueError(
                f"cell {cells[i]} is {c[i]} in all training fields, outside its bounds "
                f"[{lower[cells[i]]}, {upper[cells[i]]}]; bounds=None decodes without them"
            )
        lower[cells] = upper[cells] = c + 0.0  # 0.0 beside -0.0 of the other bound would not matter
        direction = np.zeros(len(self.constant))
        for w in self._C:
            for i in np.flatnonzero((w < 0) & ~self.constant)[:1]:
                raise ValueError(
                    "bounds go with an invariant of weights >= 0, but invariant "
                    f"{self.kept[0]} has the weight {w[i]} for cell {i}"
                )
            direction = dual_direction(np.where(self.constant, 0.0, w), self.cell_weights)
            self._reach = Reach(w, lower, upper)
            self._check_reach(self.values[self.kept], lambda i: "")
        return direction, lower, upper

    def _check_reach(self, values, where):
        missed = self._reach.missed(values)
        for i in np.flatnonzero(missed)[:1]:
            raise ValueError(
                f"the value {values[i]} of invariant {self.kept[0]}{where(i)} is out of reach by "
                f"{missed[i]:.3g}: within the bounds the invariant is in {self._reach}"
            )

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
            z = scipy.linalg.solve_triangular(T, (values - fixed)[self.kept], trans="T", check_finite=False)
            values[dropped] += R_dropped.T @ z
        return values

    @classmethod
    def from_data(
        cls,
        F,
        *,
        invariants="mass",
        values=None,
        tol=None,
        cell_weights=None,
        bounds=None,
        keep_constant_cells=True,
        dtype=np.float64,
    ):
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
            See `randsmap.invariants._bounds.check_bounds`. The training fields must be within.
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
        from randsmap.invariants._running import RunningInvariants  # which makes these

        running = RunningInvariants(
            F.shape[1],
            invariants=invariants,
            values=values,
            tol=tol,
            cell_weights=cell_weights,
            bounds=bounds,
            keep_constant_cells=keep_constant_cells,
        )
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
            A += self.multipliers(B[:, self.kept] - A @ self._C.T) @ self._W
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

    def normals(self):
        """W (rank, M): W V^1/2 has orthonormal rows that span V^-1/2 C_S (0 on constant cells)."""
        return self._W

    def tangent_projection(self):
        """The `Projection` of derivatives of decoded fields: C^T g = 0, and 0 on the constant cells."""
        constant = np.flatnonzero(self.constant)
        return _kernel.Projection(
            self._C, np.zeros(len(self.kept)), self._W, self._T, constant, np.zeros(len(constant))
        )

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
            gathered += self.multipliers(E) @ self._W[:, cells]
        return gathered

    def defects(self, F):
        """m - C^T f (n, rank) of the independent invariants of the fields F (n, M)."""
        return self.values[self.kept] - invariant_values(np.ascontiguousarray(self._C.T), F)[0]

    def multipliers(self, E):
        """E T^-1 (n, rank): the multiples of the `normals` that change C^T f by E (n, rank)."""
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
                f"invariant_values must have shape ({q},) for all rows"
                + (" or be a number" if q == 1 else "")
                + (f", or ({n},) or" if q == 1 else ", or")
                + f" ({n}, {q}) for each, got {shape}"
            )
        values = np.asarray(values)
        values = values[:, None] if shape == (n,) and q == 1 and n != 1 else np.atleast_2d(values)
        values = np.array(np.broadcast_to(check_matrix(values, "invariant_values", min_rows=0), (n, q)))
        dropped = np.setdiff1d(np.arange(q), kept)
        if len(dropped):
            implied, size = self._implied(values, dropped)
            given = values[:, dropped]
            wrong = ~(np.abs(given - implied) <= 1e-6 * size + 8 * _EPS * np.abs(given))
            for i, k in np.argwhere(wrong)[:1]:
                raise ValueError(
                    f"invariant_values of row {i} has {given[i, k]} for column {dropped[k]} of the "
                    "invariants, which is zero or depends on the other columns and on the constant "
                    f"cells, which imply {implied[i, k]}"
                )
        values = np.ascontiguousarray(values[:, kept])
        if self._reach is not None:
            self._check_reach(values[:, 0], lambda i: f" in row {i}")
        return values

    def _implied(self, values, dropped):
        """Values of the dropped columns that those of the others imply, and their terms' magnitude."""
        field = np.zeros((1, len(self.matrix)))
        field[0, self.constant] = self.constant_values
        fixed, size = (x[0] for x in invariant_values(self.matrix, field))
        z = (
            scipy.linalg.solve_triangular(self._T, (values - fixed)[:, self.kept].T, trans="T", check_finite=False)
            if len(self.kept)
            else np.zeros((0, len(values)))
        )
        R = self._W @ self.matrix[:, dropped]
        return fixed[dropped] + z.T @ R, size[dropped] + np.abs(z.T) @ np.abs(R)


def _column_norms(X):
    """Euclidean norms of the columns, without overflow of the squares."""
    peak = np.abs(X).max(axis=0, initial=0)
    safe = np.where(peak > 0, peak, 1)
    return peak * np.sqrt(((X / safe) ** 2).sum(axis=0))
