"""What training fields say of their invariants: checks, constant cells and values, batch by batch."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._interface.validation import check_matrix, check_number, check_vector
from randsmap._linalg.rows import Snapshots, row_blocks
from randsmap.invariants._bounds import check_bounds, check_cell_weights, check_within
from randsmap.invariants._values import invariant_values

__all__ = ["RunningInvariants", "constant_cells", "default_tolerance"]

_EPS = np.finfo(float).eps

# relative deviation that the number type of the training data explains
_TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4}
_VARYING = (
    "If the values vary from field to field (in- and outflow), pass invariant_tol=1.0, and the values of "
    "each row when decoding (predict's invariant_values=); if the deviation is noise, a larger invariant_tol"
)


def constant_cells(
    F: NDArray[np.float64], first: NDArray[np.float64] | None = None, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
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


def default_tolerance(dtype: Any) -> float:
    """Relative deviation from their invariants that fields of this number type may have."""
    return _TOLERANCE.get(np.dtype(dtype), 1e-6)


class _Batch(NamedTuple):
    """Fields being added: C_j^T f_i and |C_j|^T |f_i| (n, q), their tolerance, and how messages name them."""

    found: NDArray[np.float64]
    scale: NDArray[np.float64]
    tol: float
    where: str


class RunningInvariants:
    """What the fields seen so far say of their invariants, in O(M + q) numbers; batches extend it.

    `AffineInvariants.from_batch` adds a batch. The parameters are those of `AffineInvariants.from_data`, with
    its errors. The checks of all the fields seen against the invariants, whose values m may move with their
    mean, are exact: |C_j^T f_i - m_j| <= tol_i |C_j|^T |f_i| for all i if and only if the largest C_j^T f_i -
    tol_i |C_j|^T |f_i| is at most m_j and the smallest C_j^T f_i + tol_i |C_j|^T |f_i| at least m_j. From
    tol = 1 on nothing is required of the fields: their values may vary.
    """

    first: NDArray[np.float64]

    def __init__(
        self,
        M: int,
        *,
        invariants: ArrayLike | str | None,
        values: ArrayLike | None,
        tol: float | None,
        cell_weights: ArrayLike | None,
        bounds: Any = None,
        keep_constant_cells: bool = True,
    ) -> None:
        self.bounds = check_bounds(bounds, M)
        if cell_weights is not None:
            cell_weights = check_cell_weights(cell_weights, M).copy()
        self.cell_weights = cell_weights
        self.matrix = _check_invariants(invariants, M, cell_weights)
        q = self.matrix.shape[1]
        self.tol = tol if tol is None else check_number(tol, "invariant_tol", low=0)
        self.values = None
        if values is not None:
            if invariants is None:
                raise ValueError("invariant_values given without invariants (invariants=None)")
            self.values = check_vector([values] if np.ndim(values) == 0 else values, "invariant_values", length=q)
        self.n = 0
        self.constant = np.full(M, bool(keep_constant_cells))
        self.sums, self.scale_sums = [(0.0, 0.0)] * q, [(0.0, 0.0)] * q  # of C_j^T f and |C_j|^T |f|, in two numbers
        self.largest_scale = np.zeros(q)
        self.lowest, self.highest = np.full(q, -np.inf), np.full(q, np.inf)

    @property
    def expected(self) -> NDArray[np.float64]:
        """m as given, otherwise the mean over the fields."""
        if self.values is not None:
            return self.values
        return self._mean(self.sums)

    def _mean(self, sums):
        return np.array([total[0] / self.n for total in sums])

    def extended(
        self, F: NDArray[np.float64] | Snapshots, dtype: DTypeLike = np.float64
    ) -> tuple[RunningInvariants, _Batch]:
        """Itself with the fields F (n, M), of number type `dtype`, yet to be checked against the invariants."""
        if self.bounds is not None:
            check_within(F, *self.bounds, dtype)
        tol = default_tolerance(dtype) if self.tol is None else self.tol
        new = copy.copy(self)
        if not self.n:
            new.first = F[:1][0] + 0.0  # 0.0 and -0.0 are one value, whichever came first
        parts = []
        for _, block in row_blocks(F, "checking"):  # of a file one pass
            parts.append(invariant_values(self.matrix, block))
            new.constant = constant_cells(block, new.first, new.constant)
        found, scale = (np.concatenate(part) for part in zip(*parts))
        new.n = self.n + len(F)
        new.largest_scale = np.fmax(self.largest_scale, scale.max(axis=0, initial=0))
        largest = _largest(new.n)
        good = (scale <= largest) & np.isfinite(found)
        if not good.all():
            i, j = np.argwhere(~good)[0]
            raise ValueError(
                f"the terms of invariant {j} of the training field {i} are too large for floating-point "
                f"numbers (|C|^T |f| = {scale[i, j]:.3g}): use a smaller unit"
            )
        new._check_size()
        new.sums = [_extended_sum(total, column.tolist()) for total, column in zip(self.sums, found.T)]
        new.scale_sums = [_extended_sum(total, column.tolist()) for total, column in zip(self.scale_sums, scale.T)]
        if tol < 1:
            new.lowest = np.fmax(self.lowest, (found - tol * scale).max(axis=0, initial=-np.inf))
            new.highest = np.fmin(self.highest, (found + tol * scale).min(axis=0, initial=np.inf))
        return new, _Batch(found, scale, tol, " of this batch" if self.n else "")

    def merged(self, other: RunningInvariants) -> RunningInvariants:
        """Itself with the fields that another of the same parameters has seen, yet to be checked against them."""
        new = copy.copy(self)
        new.n = self.n + other.n
        new.largest_scale = np.fmax(self.largest_scale, other.largest_scale)
        new._check_size()
        new.sums = [_extended_sum(*pair) for pair in zip(self.sums, other.sums)]
        new.scale_sums = [_extended_sum(*pair) for pair in zip(self.scale_sums, other.scale_sums)]
        new.constant = self.constant & other.constant & (self.first == other.first)
        new.lowest, new.highest = np.fmax(self.lowest, other.lowest), np.fmin(self.highest, other.highest)
        return new

    def _check_size(self):
        if not (self.largest_scale <= _largest(self.n)).all():
            raise ValueError(
                "the sums of the invariants of so many fields are too large for "
                "floating-point numbers: use a smaller unit"
            )

    def check_merged(self, values: NDArray[np.float64]) -> None:
        """ValueError if not all fields satisfy the invariants with these values."""
        for j in self._missed(values):
            raise ValueError(
                f"the training fields of the two do not satisfy invariant {j} together: their mean is {values[j]}, "
                f"and some of one of them do not have it. {_VARYING}"
            )

    def _missed(self, values):
        """The invariants whose values are not those of all the fields seen."""
        slack = 8 * _EPS * (self._mean(self.scale_sums) + np.abs(values))
        return np.flatnonzero(~((self.lowest - slack <= values) & (values <= self.highest + slack)))

    def check(self, batch: _Batch, values: NDArray[np.float64]) -> None:
        """ValueError if the fields do not satisfy the invariants with these values, which dependent columns
        have from the others; it names a field of the last batch."""
        found, scale, tol, where = batch
        typical, given = self._mean(self.scale_sums), self.values
        if given is not None:
            for j in np.flatnonzero(~(np.abs(values - given) <= tol * typical + 8 * _EPS * np.abs(given))):
                raise ValueError(
                    f"invariant_values[{j}] is {given[j]}, but column {j} of the invariants is "
                    "zero or depends on the other columns and on the constant cells, which imply "
                    f"{values[j]}"
                )
        if tol < 1:
            _check_fields(found, scale, typical, values, tol, where)
        for j in self._missed(values):  # fields of an earlier batch, from which this one moved the mean
            before = self.sums[j][0] - math.fsum(found[:, j].tolist())
            i = int(np.argmax(np.abs(found[:, j] - before / max(self.n - len(found), 1))))
            raise ValueError(
                f"the training fields do not satisfy invariant {j}: with field {i}{where}, whose value is "
                f"{found[i, j]}, their mean is {values[j]}, and earlier fields do not have it. {_VARYING}"
            )


def _largest(n):
    """What |C_j|^T |f_i| may be at most, so that sums over n fields do not overflow either."""
    return np.finfo(float).max / (4 * n)


def _extended_sum(total, values):
    """A sum (high, low) of so far, with more values: as good as one correctly rounded sum, in any order."""
    terms = [*total, *values]
    high = math.fsum(terms)
    return high, math.fsum([*terms, -high])


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
        raise ValueError(f"invariants must have one row a cell, ({M},) or ({M}, q), got {np.shape(invariants)}")
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
            "field must be a row, not a column; cells of different size need cell_weights. "
            f"{_VARYING}; invariants=None decodes without invariants"
        )
