"""Exact affine invariants: fields that satisfy C^T f = m, decoded at any latent point, or any fields at all.

Notation as in `randsmap.invariants`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_columns, check_domain, check_out, check_samples
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import flattened
from randsmap._interface.labels import Labels, index_of
from randsmap._interface.parameters import Parameter
from randsmap._interface.state import Array, immutable, saved
from randsmap._kernels import decode as _kernel
from randsmap._linalg.gram import two_product, two_sum
from randsmap._linalg.products import multiply
from randsmap._linalg.rows import block_rows
from randsmap._linalg.scales import check_cell_weights
from randsmap._parallel import blas_threads
from randsmap.invariants import _bounds

_EPS = np.finfo(float).eps
_TINY = np.finfo(float).smallest_subnormal
# passes over nearly dependent rows: the second leaves amplified round-off, the third only round-off
_CORRECTIONS = 3
_Values = NDArray[np.float64]


@immutable
class AffineInvariants:
    """The constraints on every decoded field: C^T f = m, f = c on the constant cells, and bounds."""

    matrix: _Values = saved(Array("M", "q", empty=True))  # C, which may have dependent or zero columns
    values: _Values = saved(Array("q", empty=True))  # m; values of dependent columns follow from the others
    varying: bool = saved(Parameter(bool))  # every field has its own values, given for each row; m is their mean
    constant: NDArray[np.bool_] = saved(Array("M", dtype=bool))  # J0
    constant_values: _Values = saved(Array("constants", empty=True))  # c, of each constant cell
    independent: NDArray[np.intp] = saved(Array("rank", dtype=np.intp, low=0, empty=True))  # columns, on the cells S
    # T and W: T^-T e multiples of W, of which W V^1/2 has orthonormal rows, change C^T f by e in these columns
    triangle: _Values = saved(Array("rank", "rank", empty=True))
    directions: _Values = saved(Array("rank", "M", empty=True))
    cell_weights: _Values | None = saved(Array("M", low=_TINY, optional=True), default=None)  # of V; None: the identity
    # bounds, infinite for a cell without; at most 8 independent invariants may share cells
    lower: _Values | None = saved(Array("M", infinite=True, optional=True), default=None)
    upper: _Values | None = saved(Array("M", infinite=True, optional=True), default=None)

    @classmethod
    def of(
        cls,
        matrix: _Values,
        values: _Values,
        constant: NDArray[np.bool_],
        constant_values: _Values,
        cell_weights: _Values | None = None,
        bounds: tuple[_Values, _Values] | None = None,
        varying: bool = False,
    ) -> Self:
        """The constraints C, m, J0, c, V and bounds (lower, upper); ValueError if no field within these meets them."""
        independent, T, W = _independent_columns(matrix, constant, cell_weights)
        values, varying = np.array(values, dtype=float), bool(varying and len(independent))
        lower, upper = bounds or (None, None)
        return cls(matrix, values, varying, constant, constant_values, independent, T, W, cell_weights, lower, upper)

    def __post_init__(self) -> None:
        self._check_attainable(self.values[None, self.independent])
        if len(self.dependent):  # dependent columns are not part of the projection
            self.values[self.dependent] = self._implied(self.values[None])[0][0]

    def _restore(self) -> None:
        """Check the conditions that the declaration cannot express."""
        if np.count_nonzero(self.constant) != len(self.constant_values):
            raise ValueError("constant_values has not one value per constant cell")
        if len(self.independent) and self.independent.max() >= self.matrix.shape[1]:
            raise ValueError("independent names a column that matrix does not have")
        if not np.diag(self.triangle).all():
            raise ValueError("triangle is singular")
        if (self.lower is None) != (self.upper is None):
            raise ValueError("one of lower and upper is missing")
        _bounds.check_bounds((self.lower, self.upper), len(self.constant))
        self._check_attainable(self.values[None, self.independent])

    # C^T (rank, M) of the independent columns
    rows = cached_property(lambda self: np.ascontiguousarray(self.matrix[:, self.independent].T))

    @cached_property
    def projection(self) -> Any:
        """The compiled projection that is applied to each decoded row."""
        cells, held = np.flatnonzero(self.constant), np.ascontiguousarray(self.constant_values)
        values = self.values[self.independent]
        return _kernel.Projection(self.rows, values, self.directions, self.triangle, cells, held, self._kernel_bounds)

    @cached_property
    def _kernel_bounds(self):
        """Directions V^-1 |C_S|, bounds with the constant cells fixed, and V; ValueError if those are not within."""
        if self.lower is None:
            return None
        lower, upper = self.lower.copy(), self.upper.copy()
        c, cells = self.constant_values, np.flatnonzero(self.constant)
        for i in np.flatnonzero(~((lower[cells] <= c) & (c <= upper[cells])))[:1]:
            raise ValueError(
                f"cell {cells[i]} is {c[i]} in all training fields, outside its bounds "
                f"[{lower[cells[i]]}, {upper[cells[i]]}]; bounds=None decodes without them"
            )
        lower[cells] = upper[cells] = c + 0.0  # + 0.0 makes -0.0 positive, so that both bounds have the same bits
        directions = np.zeros(self.rows.shape)
        for direction, w in zip(directions, self.rows):
            direction[:] = _bounds.dual_direction(np.where(self.constant, 0.0, np.abs(w)), self.cell_weights)
        return directions, lower, upper, self.cell_weights

    # -- What the fields satisfy -----------------------------------------------------------------------
    # the columns of C that follow from the independent ones and from the constant cells
    dependent = property(lambda self: np.setdiff1d(np.arange(self.matrix.shape[1]), self.independent))

    @property
    def in_words(self) -> tuple[str, str]:
        """Descriptions of the invariant sums and of the bounds; "" for none."""
        return kept_in_words(self.matrix, self.cell_weights, self.lower, self.upper)

    def row_values(self, values: ArrayLike | None, n: int) -> _Values | None:
        """Values (n, rank) of the independent columns, of n fields whose values are as `values_of_rows` takes them.
        None: those of the fit. ValueError if these vary, if the value of a dependent column is not the implied one, or
        no field within the bounds has a value."""
        if values is None:
            if self.varying:
                raise ValueError(
                    "the training fields have different values of the invariants (invariant_tol >= 1), so the "
                    "values of the fields to decode must be given: invariant_values=. Functions without this argument "
                    "(some derivatives, JAX, PyTorch) need a fit to fields of equal values: scale the fields"
                )
            return None
        q = self.matrix.shape[1]
        if q == 0:
            raise ValueError("invariant_values given, but there are no invariants (invariants=None)")
        values = _bounds.values_of_rows(values, n, q)
        dependent = self.dependent
        if len(dependent):
            implied, size = self._implied(values)
            given = values[:, dependent]
            wrong = ~(np.abs(given - implied) <= 1e-6 * size + 8 * _EPS * np.abs(given))
            for i, k in np.argwhere(wrong)[:1]:
                raise ValueError(
                    f"invariant_values of row {i} has {given[i, k]} for column {dependent[k]} of the invariants, which "
                    f"is zero or depends on the other columns and on the constant cells, which imply {implied[i, k]}"
                )
        values = np.ascontiguousarray(values[:, self.independent])
        self._check_attainable(values, " in row {1}")
        return values

    def warn_of_dependent(self) -> None:
        """Warn of dependent columns that decoded fields will not satisfy to round-off."""
        dependent = self.dependent
        for j, tau in zip(dependent, self._rest(self.matrix[:, dependent].T) if len(dependent) else ()):
            if tau > 5e-15:  # the column may be violated by more than half of the documented 1e-14
                warn_caller(
                    f"column {j} of the invariants differs from a combination of the others by only {tau:.1e} of its "
                    f"size and is dropped: decoded fields satisfy it to {tau:.1e} of |C_{j}|^T |f|, not to round-off"
                )

    def _rest(self, C):
        """Distance of columns C^T (k, M) from the span of the independent ones, relative to the size of each entry."""
        # Two ways, both twice, which leaves the round-off of C alone: W is accurate to round-off of its norm, not of
        # each cell, for which the columns themselves are better unless they nearly depend on each other.
        C, rows = np.where(self.constant, 0.0, C), np.where(self.constant, 0.0, self.rows)
        by_directions = by_columns = C
        for _ in range(2 * (len(rows) > 0)):
            by_directions = self.adjoint(by_directions)
            moments = self.directions @ by_columns.T
            coefficients = scipy.linalg.solve_triangular(self.triangle, moments, check_finite=False)
            by_columns = by_columns - coefficients.T @ rows
        rest = np.fmin(np.abs(by_directions), np.abs(by_columns))
        typical = np.sqrt((C**2).sum(axis=1) / np.maximum(np.count_nonzero(C, axis=1), 1))
        size = np.maximum(np.abs(C), typical[:, None])
        return np.divide(rest, size, out=np.zeros_like(rest), where=size > 0).max(axis=1, initial=0)

    def _constant_part(self):
        """C_J0^T c and |C_J0|^T |c|, each (q,)."""
        field = np.zeros((1, len(self.matrix)))
        field[0, self.constant] = self.constant_values
        value, size = _bounds.invariant_values(self.matrix, field)
        return value[0], size[0]

    def _implied(self, values):
        """Values (n, dependent) that those of the independent columns imply, and their terms' magnitude."""
        dependent, (fixed, size) = self.dependent, self._constant_part()
        z = self.multipliers((values - fixed)[:, self.independent])
        R = self.directions @ self.matrix[:, dependent]  # C_dependent = C_independent T^-1 R on S
        return fixed[dependent] + z @ R, size[dependent] + np.abs(z) @ np.abs(R)

    def _check_attainable(self, values, where=""):
        """ValueError that names the first row of values (n, rank) that no field within the bounds has."""
        projection = self.projection
        if self.lower is None:
            return
        for column, w, total in zip(self.independent, self.rows, values.T):
            what = f"the value {{0}} of invariant {column}{where}"
            _bounds.check_attainable(total, w, *self._kernel_bounds[1:3], what, "the invariant")
        if len(set(projection.groups)) == len(self.rows):  # no two invariants share cells
            return
        for i in np.sort(np.unique(values, axis=0, return_index=True)[1]):
            if projection.project(np.zeros((1, len(self.constant))), values[i : i + 1]) != -1:
                raise ValueError(
                    f"no field within the bounds is found with the values {values[i].tolist()}{where.format(0, i)} "
                    f"of the invariants {self.independent.tolist()} together"
                )

    # -- Fields, tangents and coefficients -------------------------------------------------------------
    def project(self, F: _Values, values: _Values | None = None) -> _Values:
        """The nearest fields, in the V-weighted norm, with C^T f = m, f = c on J0, and in the bounds.

        F is (n, M), contiguous float64, and changed in place. values (n, rank), from `row_values`, are the m of each
        row. Afterwards |C_j^T f - m_j| <= a few eps (|C_j|^T |f| + |m_j|), and the bounds hold exactly; ValueError,
        which names the row, if a field overflows.
        """
        return _bounds.project_rows(self.projection, F, values)

    def multipliers(self, E: _Values) -> _Values:
        """The Lagrange multipliers E T^-1 (n, rank): fields (n, M) plus multipliers(E) W change C^T f by E."""
        if not len(self.rows):
            return E
        return scipy.linalg.solve_triangular(self.triangle, E.T, trans="T", check_finite=False).T

    def defects(self, F: _Values, values: _Values) -> _Values:
        """values - C^T f (n, rank) of fields F (n, M), rounded once; values (n, rank) or (rank,)."""
        return -_bounds.invariant_values(self.rows.T, F, minus=np.broadcast_to(values, (len(F), len(self.rows))))[0]

    def correct_coefficients(self, A: _Values, B: _Values) -> _Values:
        """A + (B - A C)(C_S^T V_S^-1 C_S)^-1 C_S^T V_S^-1, in place: then A C = B (P+1, q), over all cells.

        This is the smallest change, in the V-weighted norm of each row, on the cells S: the Lagrange-multiplier
        correction of the paper (Proposition RANDSMAP) with B = e_bias m^T, for every latent point, instead of its
        B = (Phi^+ 1) m^T, for the training points.
        """
        B = B[:, self.independent]
        # The round-off of A C is amplified where invariants nearly depend on each other: the sums are taken in twice
        # the precision, and the correction is repeated
        passes, size = (0, 1, _CORRECTIONS)[min(len(self.rows), 2)], block_rows(A.shape[1])
        for start in range(0, len(A), size):  # blocks, so that no array is as large as A
            part = slice(start, start + size)
            for _ in range(passes):
                with blas_threads(1):  # threads of such narrow products would wait for each other
                    multiply(self.multipliers(self.defects(A[part], B[part])), self.directions, out=A[part], add=True)
        return A

    def constrain_coefficients(self, R: _Values) -> _Values:
        """Coefficients R (P+1, M) of features [1 | phi], corrected in place: A C = e_bias m^T. Then C^T f(y) = m for
        every y, since the bias column of [1 | phi(y)] is 1; and f = c on the constant cells."""
        R[:, self.constant] = 0
        R[0, self.constant] = self.constant_values
        return self.correct_coefficients(R, self._bias_values(len(R)))

    def gather_coefficients(self, A: _Values, cells: NDArray[np.intp]) -> _Values:
        """Columns `cells` of A (P+1, M) that decode what the projection makes of whole fields [1 | phi] A. The
        projection adds (m - C^T f) T^-1 W to a field f, which is a correction of A: (e_bias m^T - A C) T^-1 W, here of
        these columns alone. On the constant cells A must hold their values."""
        gathered = np.ascontiguousarray(A[:, cells])
        if len(self.rows):
            # A C differs from e_bias m^T by the round-off of A, which is significant if A is huge
            defects = self.defects(A, self._bias_values(len(A))[:, self.independent])
            gathered += self.multipliers(defects) @ self.directions[:, cells]
        return gathered

    def _bias_values(self, n):
        """e_bias m^T (n, q)."""
        B = np.zeros((n, len(self.values)))
        B[0] = self.values
        return B

    def adjoint(self, U: _Values) -> _Values:
        """The transpose of the projection of tangents, applied to U (n, M): u - C T^-1 W u, and 0 on J0."""
        if len(self.rows):
            # C_S T^-1 is V_S W_S^T, in which nothing cancels where invariants nearly depend on each other
            W = self.directions
            U = U - (U @ W.T) @ (W if self.cell_weights is None else W * self.cell_weights)
        return np.where(self.constant, 0.0, U)

    # -- Other forms -----------------------------------------------------------------------------------
    def in_coordinates(self, matrix: _Values, directions: _Values) -> AffineInvariants:
        """The same invariants for coordinates x (r,) of fields, f = Q x on the cells S.

        The columns of Q (|S|, r) are orthonormal and span the fields that are decoded and V_S^-1 C_S, so that
        correcting coordinates is correcting fields. `matrix` is Q^T C_S, (r, q), and `directions` W_S Q, (rank, r).
        The constant cells have no coordinates: the values left for the others are m - C_J0^T c.
        """
        return replace(
            self,
            matrix=matrix,
            directions=directions,
            cell_weights=None,
            values=self.values - self._constant_part()[0],
            constant=np.zeros(len(matrix), dtype=bool),
            constant_values=np.zeros(0),
        )

    def frozen(self) -> dict[str, NDArray[Any] | None]:
        """The arrays by which an image of a frozen decoder (rk_image.h) projects fields."""
        independent, dependent = self.independent, self.dependent
        return {
            "invariants": self.rows,
            "values": np.full(len(independent), np.nan) if self.varying else self.values[independent],
            "directions": self.directions,
            "triangle": self.triangle,
            "constant_cells": np.flatnonzero(self.constant).astype(np.int64),
            "constant_values": self.constant_values,
            "cell_weights": self.cell_weights,
            "kept": independent.astype(np.int64),
            "dropped": dependent.astype(np.int64),
            "fixed": np.stack(self._constant_part()),
            "implied": self.directions @ self.matrix[:, dependent],
            **dict(zip(("bound_direction", "lower", "upper"), self._kernel_bounds or ())),
        }


def kept_in_words(matrix: Any, weights: Any, lower: Any, upper: Any) -> tuple[str, str]:
    """Descriptions of the sums of invariants C (M, q) and of bounds (M,); "" for none."""
    q = matrix.shape[1]
    sums = f"{q} invariants" if q > 1 else "an invariant" if q else ""
    if q == 1 and (matrix == 1).all():
        sums = "the mass (sum of the cells)"
    elif q == 1 and weights is not None and np.array_equal(matrix[:, 0], weights):
        sums = "the mass (sum of the cells by their weights)"
    words = []
    for bound, word in ((lower, "at least"), (upper, "at most")):
        if bound is not None and np.isfinite(bound).any():
            low, high = bound.min(), bound.max()
            words.append(f"{word} {low:g}" + ("" if low == high else f" to {high:g}, by the cell"))
    return sums, " and ".join(words)


# -- Projection of any fields on bounds and totals: { lower <= f <= upper, w_j . f = m_j } ---------
# Of one total a continuous quadratic knapsack problem; with lower = 0, no upper and w = v projection on the simplex.
def project_bounds(
    F: ArrayLike,
    *,
    lower: ArrayLike | None = 0.0,
    upper: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    total: ArrayLike | None = 1.0,
    cell_weights: ArrayLike | None = None,
    out: _Values | None = None,
) -> _Values:
    """Project fields onto bounds and given totals, such as the mass: the nearest fields that satisfy both.

    Parameters
    ----------
    F : array-like (n, M) or (M,)
        Fields, one per row; not changed. There may be no rows. Of (n, *shape), bounds and weights may have the shape.
    lower, upper : float, array (M,) or None, default=0.0, None
        Bounds of each cell; None: no bound.
    weights : array (M,), (M, q) or None, default=None
        Weights w of the totals, such as cell volumes; each column defines one total. None: ones. A cell of weight 0 is
        clipped. There are at most 64 columns, of which at most 8 may share cells.
    total : float, array (n,) or None, default=1.0
        Total w . f of the result, one for all rows or one per row. With weights (M, q): (q,), or (n, q) for each row.
        None: no condition; the fields are clipped.
    cell_weights : array (M,) or None, default=None
        v > 0: the distance is measured in the norm sum_i v_i f_i^2. None: ones.
    out : ndarray of the shape of F, float64, C-contiguous, or None, default=None
        Where to put the fields. May be F.

    Returns
    -------
    ndarray of the shape of F, float64
        `out` if given. The bounds hold exactly, and |w . f - total| <= 1e-14 (w . |f| + |total|). A field that
        satisfies both to 8 eps is not changed. Results are bit-identical for any number of threads.

    Raises
    ------
    ValueError, TypeError
        If an argument has the wrong shape or is not finite (bounds may be infinite), a lower bound exceeds the upper
        one, no field within the bounds has the total (the message names the row), or a number is neither 0 nor of
        magnitude 1e-140 to 1e140 (in F and bounds: the largest).

    Notes
    -----
    A row y of F becomes f_i = clip(y_i + t w_i / v_i, lower_i, upper_i), with the t for which the total is right.
    Newton's method on the convex dual, with bracketing, finds t in O(M) expected operations (L. Condat, Math. Program.
    158, 2016). Totals without common cells are independent. Totals that share cells have one multiplier each, from a
    semismooth Newton method whose line search is the problem of one total (J. Sun, J. Optim. Theory Appl. 94, 1997).

    Examples
    --------
    >>> import randsmap
    >>> randsmap.project_bounds([0.5, 1.0, -0.5])
    array([0.25, 0.75, 0.  ])
    >>> randsmap.project_bounds([[0.5, 1.0, -0.5]], upper=0.6, total=[0.9])
    array([[0.3, 0.6, 0. ]])
    """
    check_samples(F=F, total=total)
    single = np.ndim(F) == 1
    labels = Labels.of(F, samples=False) if single else None
    F, layout = flattened(np.asanyarray(F)[None] if single else F, "F")
    layout.metadata = labels or layout.metadata
    given = as_array(F, "F", min_rows=0)
    check_domain(given, "F")
    n, M = given.shape
    names = index_of(weights, -1)
    named = {"lower": lower, "upper": upper, "weights": weights, "cell_weights": cell_weights}
    lower, upper, weights, cell_weights = (
        layout.values(values, name, columns=name == "weights") for name, values in named.items()
    )
    limits = _bounds.check_bounds((lower, upper), M, "project_bounds")
    lower, upper = limits or (np.full(M, -np.inf), np.full(M, np.inf))
    several = np.ndim(weights) > 1
    check_columns(names if several else None, "weights", total=total)
    w = np.ones(M) if weights is None else as_array(weights, "weights", (M, None) if several else (M,))
    v = check_cell_weights(cell_weights, (M,))
    check_domain(w, "weights", each=True)
    values = None
    if total is not None:
        q = w.shape[1:]
        if several and np.shape(total) not in (q, (n, *q)):
            raise ValueError(f"total must have shape {q} or {(n, *q)}, got {np.shape(total)}")
        total = total if np.ndim(total) else np.full(n, total)
        values = as_array(total, "total", np.shape(total) if several else (n,))
        check_domain(values, "total", each=True)
    C = np.ascontiguousarray(w.reshape(M, -1)[:, : None if total is not None else 0].T)
    if several and values is not None:
        inside = np.clip(np.zeros(M), lower, upper)
        kept = AffineInvariants.of(C.T, C @ inside, np.zeros(M, dtype=bool), np.zeros(0), v, (lower, upper))
        projection, values = kept.projection, kept.row_values(values, n)
    else:
        if values is not None:
            _bounds.check_attainable(values, w, lower, upper, "the total {} (row {})", "weights . f")
            values = values[:, None]
        direction = np.array([_bounds.dual_direction(abs(w), v)] * len(C)).reshape(C.shape)
        none, q, bounds = np.zeros(0), len(C), (direction, lower, upper, v)  # these replace W and R
        cells = none.astype(np.intp)
        projection = _kernel.Projection(C, np.zeros(q), np.zeros((q, M)), np.ones((q, q)), cells, none, bounds)
    result = check_out(out, (M,) if single else (n, *layout.shape))
    rows = result.reshape(n, M)
    rows[:] = given
    _bounds.project_rows(projection, rows, values)
    return result


# -- The independent columns of C on the cells S, without C^T C ------------------------------------
def _independent_columns(
    matrix: _Values, constant: NDArray[np.bool_], cell_weights: _Values | None
) -> tuple[NDArray[np.intp], _Values, _Values]:
    """The columns of C (M, q) that are independent on the cells S, their T (rank, rank) and W (rank, M)."""
    (M, q), free = matrix.shape, np.flatnonzero(~constant)
    inverse_root = None if cell_weights is None else 1 / np.sqrt(cell_weights[free])
    scaled = matrix[free] if inverse_root is None else matrix[free] * inverse_root[:, None]
    # entries divided by square roots of weights may leave the numeric domain
    length = np.hypot.reduce(scaled, axis=0)
    length[length == 0] = 1
    scaled /= length
    if not len(free) or not q:
        return np.zeros(0, np.intp), np.zeros((0, 0)), np.zeros((0, M))
    Q, R, order = scipy.linalg.qr(scaled, mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(R))
    rank = int(np.count_nonzero(diagonal > max(len(free), q) * _EPS * diagonal[0]))
    independent = order[:rank].astype(np.intp)  # LAPACK has integers of 32 or 64 bits
    T, W = np.ascontiguousarray(np.triu(R[:rank, :rank] * length[independent])), np.zeros((rank, M))
    W[:, free] = Q[:, :rank].T if inverse_root is None else Q[:, :rank].T * inverse_root
    # the factorisation errs by eps over the last pivot, of columns of length 1
    if rank and diagonal[rank - 1] < 1e-3:
        weights = None if cell_weights is None else cell_weights[free]
        T, W[:, free] = _gram_schmidt(matrix[free][:, independent].T, weights)
    return independent, T, W


def _gram_schmidt(rows, weights):
    """T (rank, rank) and W (rank, n), W V W^T = 1 and C^T = T^T W V, of the rows C^T (rank, n), V the weights."""
    # The rest of a row that nearly depends on earlier ones is right to round-off of its own size: it is kept in two
    # numbers, and orthogonalised against the earlier rests until nothing changes
    rank = len(rows)
    T, W = np.zeros((rank, rank)), np.empty(rows.shape)
    rests: list[tuple[_Values, _Values]] = []
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
    return T, W
