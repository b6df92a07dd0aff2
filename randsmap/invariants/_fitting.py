"""Invariants and bounds as a user gives them, and what training fields say of them, checked batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._interface.arrays import as_array, check_beside, check_domain
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import FieldShape
from randsmap._interface.parameters import check_number, estimator, parameter
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import check_cell_weights
from randsmap.invariants._affine import AffineInvariants
from randsmap.invariants._bounds import check_bounds, check_within, invariant_values

_EPS = np.finfo(float).eps
# relative deviation from the invariants that the number type of the training data explains
_TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4}
_Values = NDArray[np.float64]
_Sums = tuple[tuple[float, float], ...]  # of each invariant: a sum in two numbers, high and low
_VARYING = (
    "If the values vary from field to field (in- and outflow), pass invariant_tol=1.0, and the values of "
    "each row when decoding (predict's invariant_values=); if the deviation is noise, a larger invariant_tol; "
    "invariants=None decodes without invariants"
)


@estimator
class InvariantParameters:
    """An estimator with these parameters, or some of them, whose fit gives `invariants_`.

    Parameters
    ----------
    invariants
        Linear invariants C^T f = m that every decoded field satisfies. "mass": the sum over all cells, weighted by
        cell_weights. "auto": the mass if all training fields have the same, or if `invariant_values` gives it;
        otherwise none (`invariants_.in_words` says which). An array (M,), (M, q) or (*shape, q) holds one invariant per
        column; dependent columns are dropped. None: no invariants. Constant cells are exact in each case.
    invariant_values
        Values m of the invariants. None: the mean over the training fields.
    invariant_tol
        The training fields must satisfy |C_j^T f_i - m_j| <= tol |C_j|^T |f_i|. None: 1e-6; 1e-4 for float32 and 1e-2
        for float16 fields. From 1.0 on there is no such condition: without `invariant_values`, each field has its own
        values (in- and outflow), which decoding then needs.
    cell_weights
        Positive weights, such as cell volumes. They define the mass, the norm of the correction and of all errors. In a
        `ManifoldModel`, None means those of the encoder.
    bounds
        Bounds that every decoded field satisfies exactly, by one projection on bounds and invariants. Each is a number,
        one value per cell (infinite for none), or None; "nonnegative" is (0, None). At most 8 independent invariants
        may share cells, of at most 64. The training fields must lie within the bounds.

    Attributes
    ----------
    invariant_values_ : ndarray (q,)
        m; the values of dependent columns are those that the others imply.
    invariant_matrix_ : ndarray (M, q)
        C.
    constant_cells_ : ndarray (M,) of bool
        Cells with one value in all training fields; decoded fields have the same value there.
    invariants_ : AffineInvariants
        All of these, with the projection of fields on them.
    """

    invariants: ArrayLike | None = parameter(default="auto", shown='"auto", "mass", array (M,) or (M, q), or None')
    invariant_values: float | ArrayLike | None = parameter(default=None, shown="float, array (q,) or None")
    invariant_tol: float | None = parameter(default=None, shown="float or None")
    cell_weights: ArrayLike | None = parameter(default=None, shown="array (M,) or None")
    bounds: Any = parameter(default=None, shown='(lower, upper), "nonnegative" or None')

    invariant_values_ = property(attrgetter("invariants_.values"), doc="Values m of the invariants.")
    invariant_matrix_ = property(attrgetter("invariants_.matrix"), doc="Matrix C of the invariants.")
    constant_cells_ = property(
        attrgetter("invariants_.constant"), doc="Mask of the cells with one value in all training fields."
    )


def norm_weights(shape: FieldShape | tuple[int, ...], *given: Any) -> _Values | None:
    """Weights (M,) of the norm of fields of a shape: the first of those given, estimators have theirs; None: ones."""
    for each in given:
        if any(hasattr(each, name) for name in ("fit", "predict", "inverse_transform")):
            parts = (getattr(each, name, None) for name in ("cell_weights", "model", "decoder", "encoder"))
            weights = norm_weights(shape, *parts)
        else:
            weights = check_cell_weights(each, shape)
        if weights is not None:
            return weights
    return None


def _check_matrix(invariants, n_cells, cell_weights):
    """A float64 copy (M, q) of C."""
    if invariants is None:
        return np.zeros((n_cells, 0))
    if isinstance(invariants, str):
        if invariants not in ("auto", "mass"):
            raise ValueError(f"invariants must be 'auto', 'mass', None or an array, got {invariants!r}")
        return (np.ones(n_cells) if cell_weights is None else cell_weights)[:, None].copy()
    C = invariants if hasattr(invariants, "toarray") else np.asanyarray(invariants)
    if C.ndim == 1:
        C = C[:, None]
    C = as_array(C, "invariants", min_columns=0)
    if len(C) != n_cells:
        hint = f". Reshape your data: reshape({n_cells}, -1)" if C.size % n_cells == 0 else ""
        raise ValueError(
            f"invariants must have one row per cell, ({n_cells},) or ({n_cells}, q), got {np.shape(invariants)}{hint}"
        )
    check_domain(C, "invariants")
    return C.copy()


# -- Training fields -------------------------------------------------------------------------------
def common_values(
    F: _Values | Rows, given: RunningInvariants, dtype: DTypeLike = np.float64
) -> tuple[_Values | None, str]:
    """Values of the invariants that all training fields have in common; or None, and the reason why they have none.
    ValueError if something other than the invariants is wrong, such as values outside the bounds."""
    try:
        return given.with_fields(F, dtype)[1].values, ""
    except ValueError as error:
        given.without_invariants().with_fields(F, dtype)
        return None, str(error)


def _warn_of_nearly_common(rows, matrix, reason):
    """Warn if most fields have one mass except for noise: other masses may be unintended."""
    parts = [
        (invariant_values(matrix, block)[0], invariant_values(matrix, block - rows[:1])[1])
        for _, _, block in rows.blocks(what="checking")
    ]
    masses, changes = (np.concatenate(part) for part in zip(*parts))
    # small relative to the mass and to the variation of the fields: with a large background all masses are nearly equal
    if np.median(np.abs(masses - np.median(masses))) <= 1e-2 * min(abs(np.median(masses)), np.median(changes)):
        warn_caller(
            "invariants='auto' enforces no mass: most training fields have nearly the same mass, but some do not. "
            f"Decoded fields will not conserve it. Pass invariants=None if this is intended. Details: {reason}"
        )


def fit_estimator(
    estimator: Any,
    F: _Values | Rows,
    dtype: DTypeLike,
    X: Any = None,
    *,
    layout: FieldShape | None = None,
    keep_constant_cells: bool = True,
) -> AffineInvariants:
    """The invariants of training fields F (n, M), which came as `dtype`, with the parameters of an estimator.

    `layout` is that of the fields of an estimator that is not fitted. ValueError if the fields do not satisfy the
    invariants or the bounds, or the latents X and F look swapped; warns of columns that are dropped although they are
    not, to round-off, combinations of the others.
    """
    d, M = X.shape[1] if isinstance(X, np.ndarray) and X.ndim == 2 else 0, F.shape[1]
    try:
        given = RunningInvariants.of(estimator, M, layout=layout, keep_constant_cells=keep_constant_cells)
        found = given.with_fields(F, dtype)[1]
        if d > M and given.if_common and not found.matrix.shape[1]:
            mass = InvariantParameters(invariants="mass", invariant_tol=1e-4)
            if common_values(X, RunningInvariants.of(mass, d))[0] is not None:
                raise ValueError("rows of X have equal sums, rows of y do not. If this is right, pass invariants=None")
        return found
    except ValueError as error:
        if d <= M:
            raise
        raise ValueError(
            f"X, the latents, has {d} columns and y, the fields, only {M}: are they swapped? If not: {error}"
        ) from None


def constant_cells(F: _Values, first: _Values, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The cells of the mask (M,) with exactly the value of `first` (M,) in every row of F (n, M); -0.0 is 0.0."""
    rows = max(1, (1 << 18) // max(1, F.shape[1]))
    for start in range(0, len(F), rows):
        if not mask.any():  # the usual case after the first rows
            break
        mask = mask & (F[start : start + rows] == first).all(axis=0)
    return mask


@dataclass(frozen=True, eq=False)
class RunningInvariants:
    """Linear invariants C^T f = m and bounds of fields, checked, and statistics of the fields seen so far.

    They are O(M + q) numbers. The checks of all the fields seen are exact, although their values m move with the mean:
    |C_j^T f_i - m_j| <= tol_i |C_j|^T |f_i| for all i if and only if the largest C_j^T f_i - tol_i |C_j|^T |f_i| is
    at most m_j and the smallest C_j^T f_i + tol_i |C_j|^T |f_i| at least m_j. From tol = 1 on nothing is required
    of the fields: their values may vary.
    """

    matrix: _Values  # C (M, q), one invariant per column
    values: _Values | None  # m (q,); None: the mean over the training fields
    tol: float | None  # None: by number type
    cell_weights: _Values | None  # of the norm in which the projection is orthogonal
    bounds: tuple[_Values, _Values] | None  # infinite: no bound
    if_common: bool  # True: no invariants if the training fields have no common values
    constant: NDArray[np.bool_]  # (M,): the cells with one value in all fields seen, if such cells are to keep it
    first: _Values  # (M,): the first field
    sums: _Sums  # of C_j^T f_i
    scale_sums: _Sums  # of |C_j|^T |f_i|
    lowest: _Values  # (q,): least value that m may have
    highest: _Values
    n: int = 0  # fields seen

    @classmethod
    def of(
        cls, parameters: Any, n_cells: int, *, layout: FieldShape | None = None, keep_constant_cells: bool = True
    ) -> RunningInvariants:
        """Those that an estimator with some of the `InvariantParameters` has for fields of `n_cells` cells, none seen.
        Arrays may have the shape and the labels of a field, which `layout` has; None: the estimator's, of rows of cells
        if it has none. ValueError if a parameter is not valid."""
        names = ("invariants", "invariant_values", "invariant_tol", "bounds")
        invariants, values, tol, bounds = (getattr(parameters, name, None) for name in names)
        check_beside(None, {"invariant_values": values}, invariants=invariants)
        layout = layout or getattr(parameters, "_field_shape", None) or FieldShape((n_cells,))
        if isinstance(bounds, (tuple, list)) and len(bounds) == 2:
            bounds = tuple(layout.values(bound, "bounds") for bound in bounds)
        limits = check_bounds(bounds, n_cells)
        weights = check_cell_weights(getattr(parameters, "cell_weights", None), layout)
        matrix = _check_matrix(layout.values(invariants, "invariants", columns=True), n_cells, weights)
        q = matrix.shape[1]
        if tol is not None:
            tol = check_number(tol, "invariant_tol", low=0)
        if values is not None:
            if invariants is None:
                raise ValueError("invariant_values given without invariants (invariants=None)")
            values = as_array([values] if np.ndim(values) == 0 else values, "invariant_values", (q,))
            check_domain(values, "invariant_values")
        if_common = isinstance(invariants, str) and invariants == "auto" and values is None
        constant, none = np.full(n_cells, keep_constant_cells), ((0.0, 0.0),) * q
        statistics = constant, np.zeros(n_cells), none, none, np.full(q, -np.inf), np.full(q, np.inf)
        return cls(matrix, values, tol, weights, limits, if_common, *statistics)

    def without_invariants(self) -> RunningInvariants:
        """The bounds and constant cells alone."""
        bounds = replace(self, matrix=self.matrix[:, :0], values=None, if_common=False)
        return replace(bounds, sums=(), scale_sums=(), lowest=self.lowest[:0], highest=self.highest[:0])

    def with_fields(
        self, F: _Values | Rows, dtype: DTypeLike = np.float64
    ) -> tuple[RunningInvariants, AffineInvariants]:
        """The statistics with the fields F (n, M), which came as `dtype`, and the invariants of all fields. ValueError,
        which names a row of F, if the fields do not satisfy the invariants or the bounds."""
        rows = F if isinstance(F, Rows) else Rows(F)
        first = self.first if self.n else rows[:1][0] + 0.0  # 0.0 and -0.0 are one value, whichever came first
        constant, parts = self.constant, []
        for start, _, block in rows.blocks(what="checking"):  # one pass of a file
            if self.bounds is not None:
                check_within(block, *self.bounds, dtype, start)
            parts.append(invariant_values(self.matrix, block))
            constant = constant_cells(block, first, constant)
        found, scale = (np.concatenate(part) for part in zip(*parts))
        tol = _TOLERANCE.get(np.dtype(dtype), 1e-6) if self.tol is None else self.tol
        lowest, highest = -np.inf, np.inf
        if tol < 1:
            lowest = (found - tol * scale).max(axis=0, initial=-np.inf)
            highest = (found + tol * scale).min(axis=0, initial=np.inf)
        new = self._plus(len(rows), constant, first, found.T.tolist(), scale.T.tolist(), lowest, highest)
        invariants = new.invariants()
        try:
            new.check(found, scale, tol, invariants.values, " of this batch" if self.n else "")
        except ValueError as error:
            if not self.if_common:
                raise
            _warn_of_nearly_common(rows, self.matrix, error)
            new = new.without_invariants()
            invariants = new.invariants()
        if not self.n:
            invariants.warn_of_dependent()
        return replace(new, if_common=False), invariants  # the first fields decide

    def merged(self, other: RunningInvariants) -> tuple[RunningInvariants, AffineInvariants]:
        """The statistics with the fields that another of the same parameters has seen, and the invariants of all.
        ValueError if the fields of both do not satisfy the invariants together."""
        constant = self.constant & other.constant & (self.first == other.first)
        seen = other.sums, other.scale_sums, other.lowest, other.highest
        new = self._plus(other.n, constant, self.first, *seen)
        invariants = new.invariants()
        for j in new.missed(invariants.values):
            raise ValueError(
                f"the training fields of the two decoders have different values of invariant {j}: their mean is "
                f"{invariants.values[j]}, and some fields of one decoder deviate from it. {_VARYING}"
            )
        return new, invariants

    def _plus(self, n, constant, first, sums, scale_sums, lowest, highest):
        """The statistics with n more fields, of which these are the sums and what their values may be."""
        return replace(
            self,
            n=self.n + n,
            constant=constant,
            first=first,
            sums=_added(self.sums, sums),
            scale_sums=_added(self.scale_sums, scale_sums),
            lowest=np.fmax(self.lowest, lowest),
            highest=np.fmin(self.highest, highest),
        )

    def invariants(self) -> AffineInvariants:
        """The invariants of the fields seen."""
        values = self._mean(self.sums) if self.values is None else self.values
        first, varying = self.first[self.constant], self.values is None and self.tol is not None and self.tol >= 1
        return AffineInvariants.of(self.matrix, values, self.constant, first, self.cell_weights, self.bounds, varying)

    def _mean(self, sums):
        return np.array([high / self.n for high, _ in sums])

    def missed(self, values: _Values) -> NDArray[np.intp]:
        """The invariants that some of the fields seen do not have with these values."""
        slack = 8 * _EPS * (self._mean(self.scale_sums) + np.abs(values))
        return np.flatnonzero(~((self.lowest - slack <= values) & (values <= self.highest + slack)))

    def check(self, found: Any, scale: Any, tol: float, values: _Values, where: str) -> None:
        """ValueError that names a field of the last batch if the fields do not satisfy the invariants."""
        typical, given = self._mean(self.scale_sums), self.values
        if given is not None:
            for j in np.flatnonzero(~(np.abs(values - given) <= tol * typical + 8 * _EPS * np.abs(given))):
                raise ValueError(
                    f"invariant_values[{j}] is {given[j]}, but column {j} of the invariants is zero or depends on the "
                    f"other columns and on the constant cells, which imply {values[j]}"
                )
        excess = np.abs(found - values)
        # the second term is round-off: a field of zeros among fields whose invariant is 0
        bad = ~(excess <= tol * scale + 8 * _EPS * (typical + np.abs(values)))
        if tol < 1 and bad.any():
            ratio = np.where(bad, excess / np.maximum(scale, np.finfo(float).tiny), 0)
            i, j = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
            raise ValueError(
                f"the training fields do not satisfy invariant {j}: field {i}{where} has the value "
                f"{found[i, j]}, expected {values[j]} to within {tol * scale[i, j]:.3g}. Usual causes: one "
                f"field must be a row, not a column; cells of different size need cell_weights. {_VARYING}"
            )
        for j in self.missed(values):  # this batch has moved the mean away from fields of earlier batches
            before = self.sums[j][0] - math.fsum(found[:, j].tolist())
            i = int(np.argmax(np.abs(found[:, j] - before / max(self.n - len(found), 1))))
            raise ValueError(
                f"the training fields do not satisfy invariant {j}: with field {i}{where}, whose value is "
                f"{found[i, j]}, their mean is {values[j]}, and earlier fields deviate from it. {_VARYING}"
            )


def _added(totals, columns):
    """Add numbers to each double-double sum (high, low); the result does not depend on their order."""
    sums = []
    for total, column in zip(totals, columns):
        terms = [*total, *column]
        high = math.fsum(terms)
        sums.append((high, math.fsum([*terms, -high])))
    return tuple(sums)
