"""Exact affine invariants: decoded fields that satisfy C^T f = m at every latent point.

Notation as in `randsmap.invariants`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._interface.state import NOT_SAVED, Array
from randsmap._interface.validation import check_matrix
from randsmap._kernels import decode as _kernel
from randsmap._linalg.rows import Snapshots, block_rows
from randsmap._linalg.sums import two_product, two_sum
from randsmap.invariants._bounds import Reach, check_bounds, dual_direction, project_rows
from randsmap.invariants._running import RunningInvariants
from randsmap.invariants._values import invariant_values

__all__ = ["AffineInvariants", "invariant_values"]

_EPS = np.finfo(float).eps
_TINY = np.finfo(float).smallest_subnormal
# what is promised is 1e-14; a dropped column that may miss by more than half of it is warned of
_UNNOTICED = 5e-15
# pivot (of columns of length 1) below which the QR factorisation, which errs by eps over it, is not enough
_NEARLY_DEPENDENT = 1e-3
# corrections of coefficients; the second leaves what invariants that nearly depend on each other amplify
_CORRECTIONS = 3


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
    pivoted QR, V_S^-1/2 C_S = Q T in the columns kept, with rank decided at max(|S|, q) eps. W = Q^T V_S^-1/2
    (zero on J0) then moves a field by the multiples T^-T e to change C^T f by e.

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
        "_C": NOT_SAVED,
        "_reach": NOT_SAVED,
        "projection": NOT_SAVED,
    }

    matrix: NDArray[np.float64]
    values: NDArray[np.float64]
    constant: NDArray[np.bool_]
    constant_values: NDArray[np.float64]
    cell_weights: NDArray[np.float64] | None
    lower: NDArray[np.float64] | None
    upper: NDArray[np.float64] | None
    kept: NDArray[np.intp]
    projection: Any
    _n_cells: int
    _reach: Reach | None

    def __init__(
        self,
        matrix: NDArray[np.float64],
        values: NDArray[np.float64],
        constant: NDArray[np.bool_],
        constant_values: NDArray[np.float64],
        cell_weights: NDArray[np.float64] | None = None,
        bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    ) -> None:
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
        self.kept = order[:rank].astype(np.intp)  # of 32 or 64 bits, as LAPACK has it

        self._T = np.ascontiguousarray(np.triu(R[:rank, :rank] * length[self.kept]))
        self._W = np.zeros((rank, M))
        self._W[:, free] = Q[:, :rank].T if inverse_root is None else Q[:, :rank].T * inverse_root
        if rank and diagonal[rank - 1] < _NEARLY_DEPENDENT:
            self._T, self._W[:, free] = _gram_schmidt(
                matrix[free][:, self.kept].T, None if cell_weights is None else cell_weights[free]
            )

        self.values = np.array(values, dtype=float)
        if len(self.dropped):
            self.values[self.dropped] = self._implied(self.values[None])[0][0]
        self._make_projection()

    @classmethod
    def from_data(
        cls,
        F: NDArray[np.float64] | Snapshots,
        *,
        invariants: ArrayLike | str | None = "mass",
        values: ArrayLike | None = None,
        tol: float | None = None,
        cell_weights: ArrayLike | None = None,
        bounds: Any = None,
        keep_constant_cells: bool = True,
        dtype: DTypeLike = np.float64,
    ) -> AffineInvariants:
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
            |C_j^T f_i - m_j| <= tol |C_j|^T |f_i| is required; not at all from 1 on. None: 1e-6, for
            float32 data 1e-4, for float16 data 1e-2.
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

        Warns
        -----
        UserWarning
            If a column is dropped that is not, to round-off, a combination of the others.
        """
        running = RunningInvariants(
            F.shape[1],
            invariants=invariants,
            values=values,
            tol=tol,
            cell_weights=cell_weights,
            bounds=bounds,
            keep_constant_cells=keep_constant_cells,
        )
        return cls.from_batch(running, F, dtype)[1]

    @classmethod
    def from_batch(
        cls, running: RunningInvariants, F: NDArray[np.float64] | Snapshots, dtype: DTypeLike = np.float64
    ) -> tuple[RunningInvariants, AffineInvariants]:
        """`running` with the fields F (n, M), of number type `dtype`, and the invariants of all its fields.

        Raises
        ------
        ValueError
            Naming a row of F, if the fields do not satisfy them.
        """
        first = not running.n
        running, batch = running.extended(F, dtype)
        invariants = cls._of(running)
        running.check(batch, invariants.values)
        if first:
            invariants._warn_of_dropped()
        return running, invariants

    @classmethod
    def from_merged(
        cls, running: RunningInvariants, other: RunningInvariants
    ) -> tuple[RunningInvariants, AffineInvariants]:
        """`running` with the fields of another, whose parameters are the same, and the invariants of all of them.

        Raises
        ------
        ValueError
            If the fields of both do not satisfy them together.
        """
        running = running.merged(other)
        invariants = cls._of(running)
        running.check_merged(invariants.values)
        return running, invariants

    @classmethod
    def _of(cls, running):
        return cls(
            running.matrix,
            running.expected,
            running.constant,
            running.first[running.constant],
            running.cell_weights,
            running.bounds,
        )

    def _make_projection(self) -> None:
        self._C = np.ascontiguousarray(self.matrix[:, self.kept].T)
        self._reach, bounds = None, None
        if self.lower is not None:
            bounds = self._bounds_of_kernel()
        self.projection = self._projection(self.values[self.kept], self.constant_values, bounds)

    def _projection(self, values, constant_values, bounds=None):
        """The kernel's projection on C^T f = values of the columns kept, and on values of the constant cells."""
        return _kernel.Projection(
            self._C,
            values,
            self._W,
            self._T,
            np.flatnonzero(self.constant),
            np.ascontiguousarray(constant_values),
            bounds,
        )

    def tangent_projection(self) -> Any:
        """The `Projection` of derivatives of decoded fields: C^T g = 0, and 0 on the constant cells."""
        return self._projection(np.zeros(len(self.kept)), np.zeros(np.count_nonzero(self.constant)))

    def frozen(self) -> dict[str, NDArray[Any] | None]:
        """The arrays by which an image of a frozen decoder (rk_image.h) projects fields."""
        kept, dropped = self.kept, self.dropped
        arrays: dict[str, NDArray[Any] | None] = {
            "invariants": self._C,
            "values": self.values[kept],
            "directions": self._W,
            "triangle": self._T,
            "constant_cells": np.flatnonzero(self.constant).astype(np.int64),
            "constant_values": self.constant_values,
            "cell_weights": self.cell_weights,
            "kept": kept.astype(np.int64),
            "dropped": dropped.astype(np.int64),
            "fixed": np.stack(self._of_constant_cells()),
            "implied": self._W @ self.matrix[:, dropped],
        }
        if self.lower is not None:
            arrays.update(zip(("bound_direction", "lower", "upper"), self._bounds_of_kernel()))
        return arrays

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

    def _check_reach(self, values: NDArray[np.float64], where: Callable[[int], str]) -> None:
        if self._reach is None:
            return
        missed = self._reach.missed(values)
        for i in np.flatnonzero(missed)[:1]:
            raise ValueError(
                f"the value {values[i]} of invariant {self.kept[0]}{where(i)} is out of reach by "
                f"{missed[i]:.3g}: within the bounds the invariant is in {self._reach}"
            )

    def _restore(self) -> None:
        if np.count_nonzero(self.constant) != len(self.constant_values):
            raise ValueError("constant_values has not one value a constant cell")
        if len(self.kept) and self.kept.max() >= self.matrix.shape[1]:
            raise ValueError("kept names a column that matrix does not have")
        if not np.diag(self._T).all():
            raise ValueError("_T is singular")
        for name in ("cell_weights", "lower", "upper"):
            setattr(self, name, getattr(self, name, None))
        if (self.lower is None) != (self.upper is None):
            raise ValueError("one of lower and upper is missing")
        self.lower, self.upper = check_bounds((self.lower, self.upper), len(self.constant)) or (None, None)
        self._make_projection()

    @property
    def n_cells(self) -> int:
        """M, also of invariants that are expressed in coordinates."""
        return getattr(self, "_n_cells", len(self.matrix))

    @property
    def in_words(self) -> tuple[str, str]:
        """What sums and what bounds every field keeps; "" for none."""
        q, weights = self.matrix.shape[1], self.cell_weights
        sums = f"{q} invariants" if q > 1 else "an invariant" if q else ""
        if q == 1 and (self.matrix == 1).all():
            sums = "the mass (sum of the cells)"
        elif q == 1 and weights is not None and np.array_equal(self.matrix[:, 0], weights):
            sums = "the mass (sum of the cells by their weights)"
        if self.lower is None or self.upper is None:
            return sums, ""
        words = []
        for bound, word in ((self.lower, "at least"), (self.upper, "at most")):
            low, high = bound.min(), bound.max()
            if np.isfinite(bound).any():
                words.append(f"{word} {low:g}" + ("" if low == high else f" to {high:g}, by the cell"))
        return sums, " and ".join(words)

    @property
    def dropped(self) -> NDArray[np.intp]:
        """The columns of C that follow from those kept and from the constant cells."""
        return np.setdiff1d(np.arange(self.matrix.shape[1]), self.kept)

    def free_cells(self, F: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The cells (n, M) of fields F that are not constant, and strictly between their bounds."""
        free = np.broadcast_to(~self.constant, F.shape)
        if self.lower is None or self.upper is None:
            return free
        return free & (self.lower < F) & (F < self.upper)

    def normals(self) -> NDArray[np.float64]:
        """W (rank, M): W V^1/2 has orthonormal rows that span V^-1/2 C_S (0 on constant cells)."""
        return self._W

    def defects(self, F: NDArray[np.float64]) -> NDArray[np.float64]:
        """m - C^T f (n, rank) of the independent invariants of the fields F (n, M)."""
        return self._defects(F, np.broadcast_to(self.values[self.kept], (len(F), len(self.kept))))

    def _defects(self, F, values):
        return -invariant_values(self._C.T, F, minus=values)[0]

    def multipliers(self, E: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Lagrange multipliers E T^-1 (n, rank): adding ``multipliers(E) @ normals()`` to fields (n, M)
        changes their C^T f, of the columns kept, by E (n, rank)."""
        return scipy.linalg.solve_triangular(self._T, E.T, trans="T", check_finite=False).T

    def _of_constant_cells(self):
        """C_J0^T c and |C_J0|^T |c|, each (q,)."""
        field = np.zeros((1, len(self.matrix)))
        field[0, self.constant] = self.constant_values
        value, size = invariant_values(self.matrix, field)
        return value[0], size[0]

    def _implied(self, values):
        """Values (n, dropped) of the dropped columns that those of the others imply, and their terms' magnitude."""
        dropped, (fixed, size) = self.dropped, self._of_constant_cells()
        z = self.multipliers((values - fixed)[:, self.kept]) if len(self.kept) else np.zeros((len(values), 0))
        R = self._W @ self.matrix[:, dropped]  # C_dropped = C_kept T^-1 R on S
        return fixed[dropped] + z @ R, size[dropped] + np.abs(z) @ np.abs(R)

    def _warn_of_dropped(self) -> None:
        """Say which dropped columns decoded fields will not satisfy to round-off, and how well they will."""
        dropped = self.dropped
        if not len(dropped):
            return
        C = np.where(self.constant, 0.0, self.matrix[:, dropped].T)
        kept = np.where(self.constant, 0.0, self.matrix[:, self.kept].T)
        # Two ways, both twice, which leaves the round-off of C alone. W of columns that are not nearly dependent is
        # right to round-off of its norm, not of each cell, where the columns themselves are better; W of those that
        # are is the better one.
        by_normals = by_columns = C
        with np.errstate(all="ignore"):  # columns whose ratio overflows
            for _ in range(2 * (len(self.kept) > 0)):
                by_normals = self.project_adjoint(by_normals)
                coefficients = scipy.linalg.solve_triangular(self._T, self._W @ by_columns.T, check_finite=False)
                by_columns = by_columns - coefficients.T @ kept
        rest = np.fmin(np.abs(by_normals), np.abs(by_columns))
        typical = np.sqrt((C**2).sum(axis=1) / np.maximum(np.count_nonzero(C, axis=1), 1))
        size = np.maximum(np.abs(C), typical[:, None])
        miss = np.divide(rest, size, out=np.zeros_like(rest), where=size > 0).max(axis=1, initial=0)
        for j, tau in zip(dropped, miss):
            if tau > _UNNOTICED:
                warnings.warn(
                    f"column {j} of the invariants is a combination of the others but for {tau:.1e} of its size, "
                    f"too little to be told from it, and is dropped: decoded fields will satisfy it to {tau:.1e} "
                    f"of |C|^T |f|, C the column, not to round-off",
                    UserWarning,
                    stacklevel=6,
                )

    def correct_coefficients(self, A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
        """A + (B - A C)(C_S^T V_S^-1 C_S)^-1 C_S^T V_S^-1, in place: then A C = B (over all cells).

        The smallest change, in the V-weighted norm of each row, that does so on the cells S: the
        Lagrange-multiplier correction of the paper (Proposition RANDSMAP) with B = e_bias m^T, for
        every latent point, in place of its B = (Phi^+ 1) m^T, for the training points. Round-off of A C is
        amplified where invariants nearly depend on each other; with several of them the sums are taken in
        twice the precision, and the correction is repeated.

        Parameters
        ----------
        A : ndarray (P+1, M)
        B : ndarray (P+1, q)
        """
        B = B[:, self.kept]
        if len(self.kept) == 1:
            multipliers, size = self.multipliers(B - A @ self._C.T), block_rows(A.shape[1], 1)
            for start in range(0, len(A), size):  # never an array as large as A
                A[start : start + size] += multipliers[start : start + size] @ self._W
        elif len(self.kept):
            size = block_rows(A.shape[1])
            for start in range(0, len(A), size):
                part = slice(start, start + size)
                for _ in range(_CORRECTIONS):
                    A[part] += self._correction(A[part], B[part])
        return A

    def _correction(self, A, B, cells=np.s_[:]):
        """What A (P+1, M) needs to have A C = B (P+1, rank), in these cells."""
        return self.multipliers(self._defects(A, B)) @ self._W[:, cells]

    def _values_of_bias(self, n):
        """e_bias m^T (n, q)."""
        B = np.zeros((n, len(self.values)))
        B[0] = self.values
        return B

    def constrain_coefficients(self, R: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients R (P+1, M) of features [1 | phi], corrected in place: A C = e_bias m^T.

        Then C^T f(y) = m for every y, since the bias column of [1 | phi(y)] is 1; and f = c on the
        constant cells.
        """
        return self.correct_coefficients(self.assign_constants(R), self._values_of_bias(len(R)))

    def assign_constants(self, A: NDArray[np.float64]) -> NDArray[np.float64]:
        """A[:, J0] = e_bias c^T, in place."""
        A[:, self.constant] = 0
        A[0, self.constant] = self.constant_values
        return A

    def gather_coefficients(self, A: NDArray[np.float64], cells: NDArray[np.intp]) -> NDArray[np.float64]:
        """Columns `cells` of A (P+1, M) that decode what the projection makes of whole fields [1 | phi] A.

        The projection adds (m - C^T f) T^-1 W to a field f, which is a correction of A: (e_bias m^T - A C)
        T^-1 W, here of these columns alone. A C is e_bias m^T but for the round-off of A, which
        matters where A is huge; its sums over all cells are taken in twice the precision. On the
        constant cells A must hold their values.
        """
        gathered = np.ascontiguousarray(A[:, cells])
        if len(self.kept):
            gathered += self._correction(A, self._values_of_bias(len(A))[:, self.kept], cells)
        return gathered

    def project_adjoint(self, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """The transpose of `tangent_projection`, applied to U (n, M): u - C T^-1 W u, and 0 on J0.

        C_S T^-1 is V_S W_S^T, in which nothing cancels where invariants nearly depend on each other.
        """
        if len(self.kept):
            W = self._W
            U = U - (U @ W.T) @ (W if self.cell_weights is None else W * self.cell_weights)
        if self.constant.any():
            U = np.where(self.constant, 0.0, U)
        return U

    def in_coordinates(self, matrix: NDArray[np.float64], normals: NDArray[np.float64]) -> AffineInvariants:
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
        other = copy.copy(self)
        other.matrix, other.kept, other.cell_weights = matrix, self.kept, None
        other.values = self.values - self._of_constant_cells()[0]
        other.constant, other.constant_values = np.zeros(len(matrix), dtype=bool), np.zeros(0)
        other._T, other._W = self._T, normals
        other._make_projection()
        return other

    def project(
        self, F: NDArray[np.float64], values: NDArray[np.float64] | None = None, *, first: int = 0
    ) -> NDArray[np.float64]:
        """The nearest fields, in the V-weighted norm, with C^T f = m, f = c on J0, and in the bounds.

        F is (n, M), contiguous float64, and changed in place. values (n, rank), from `row_values`, are
        the m of each row. Afterwards |C_j^T f - m_j| <= a few eps (|C_j|^T |f| + |m_j|), and the bounds
        hold exactly; ValueError if a field overflows: it is named, the first as number `first`.
        """
        return project_rows(self.projection, F, values, first)

    def row_values(self, values: ArrayLike, n: int) -> NDArray[np.float64]:
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
        q = self.matrix.shape[1]
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
        if len(self.dropped):
            implied, size = self._implied(values)
            given = values[:, self.dropped]
            wrong = ~(np.abs(given - implied) <= 1e-6 * size + 8 * _EPS * np.abs(given))
            for i, k in np.argwhere(wrong)[:1]:
                raise ValueError(
                    f"invariant_values of row {i} has {given[i, k]} for column {self.dropped[k]} of the "
                    "invariants, which is zero or depends on the other columns and on the constant "
                    f"cells, which imply {implied[i, k]}"
                )
        values = np.ascontiguousarray(values[:, self.kept])
        if len(self.kept):
            self._check_reach(values[:, 0], lambda i: f" in row {i}")
        return values


def _gram_schmidt(
    rows: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """T (rank, rank) and W (rank, n), W V W^T = 1 and C^T = T^T W V, of the rows C^T (rank, n), V the weights.

    What is left of a row that nearly depends on those before it is right to round-off of its own size: it
    is kept in two numbers, and orthogonalised against theirs until nothing changes.
    """
    rank = len(rows)
    exponents = -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1]
    rows = np.ldexp(rows, exponents)  # exact, and squares and halves of products stay in range
    T, W = np.zeros((rank, rank)), np.empty(rows.shape)
    rests: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for j, high in enumerate(rows):
        low = np.zeros(high.shape)
        for _ in range(_CORRECTIONS):
            for i, (other, other_low) in enumerate(rests):
                a = (high @ W[i]) / T[i, i]
                T[i, j] += a * T[i, i]
                product, error = two_product(a, other)
                high, rounding = two_sum(high, -product)
                high, low = two_sum(high, low + rounding - error - a * other_low)
        rests.append((high, low))
        direction = high if weights is None else high / weights
        T[j, j] = np.sqrt(high @ direction)
        W[j] = direction / T[j, j]
    return np.ldexp(T, -exponents.T), W


def _column_norms(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean norms of the columns, without overflow of the squares."""
    peak = np.abs(X).max(axis=0, initial=0)
    safe = np.where(peak > 0, peak, 1)
    return peak * np.sqrt(((X / safe) ** 2).sum(axis=0))
