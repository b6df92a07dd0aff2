"""What training fields say of their invariants: checks, constant cells and values, batch by batch."""

import copy
import math

import numpy as np

from randsmap._validation import check_matrix, check_number, check_vector
from randsmap.invariants._affine import AffineInvariants, invariant_values
from randsmap.invariants._bounds import check_bounds, check_within

__all__ = ["RunningInvariants", "constant_cells"]

_EPS = np.finfo(float).eps

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


class RunningInvariants:
    """What the fields seen so far say of their invariants, in O(M + q) numbers; batches extend it.

    The parameters are those of `AffineInvariants.from_data`, with its errors. The checks of all the fields
    seen against the invariants, whose values m may move with their mean, are exact:
    |C_j^T f_i - m_j| <= tol_i |C_j|^T |f_i| for all i if and only if the largest
    C_j^T f_i - tol_i |C_j|^T |f_i| is at most m_j and the smallest C_j^T f_i + tol_i |C_j|^T |f_i| at least m_j.
    """

    def __init__(self, M, *, invariants, values, tol, cell_weights, bounds=None, keep_constant_cells=True):
        self.bounds = check_bounds(bounds, M)
        if cell_weights is not None:
            cell_weights = check_vector(cell_weights, "cell_weights", length=M).copy()
            if not (cell_weights > 0).all():
                i = int(np.argmin(cell_weights))
                raise ValueError(f"cell_weights must be positive, got {cell_weights[i]} for cell {i}")
        self.cell_weights = cell_weights
        self.matrix = _check_invariants(invariants, M, cell_weights)
        q = self.matrix.shape[1]
        self.tol = tol if tol is None else check_number(tol, "invariant_tol", low=0)
        self.values = None
        if values is not None:
            if invariants is None:
                raise ValueError("invariant_values given without invariants (invariants=None)")
            self.values = check_vector([values] if np.ndim(values) == 0 else values, "invariant_values", length=q)
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
                f"numbers (|C|^T |f| = {scale[i, j]:.3g}): use a smaller unit"
            )
        if not (new.largest_scale <= largest).all():
            raise ValueError(
                "the sums of the invariants of so many fields are too large for "
                "floating-point numbers: use a smaller unit"
            )
        new.sums = [_extended_sum(total, column) for total, column in zip(self.sums, found.T)]
        new.scale_sum = self.scale_sum + scale.sum(axis=0)
        typical = new.scale_sum / n
        given = self.values
        if given is None:
            given = np.array([total[0] / n for total in new.sums])
        new.first = F[:1][0].copy() if self.first is None else self.first
        new.constant = constant_cells(F, new.first, self.constant)

        invariants = AffineInvariants(
            self.matrix, given, new.constant, new.first[new.constant], self.cell_weights, self.bounds
        )
        if self.values is not None:
            for j in np.flatnonzero(~(np.abs(invariants.values - given) <= tol * typical + 8 * _EPS * np.abs(given))):
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
                "it. If the deviation is noise, pass a larger invariant_tol"
            )
        return new, invariants


def _extended_sum(total, values):
    """A sum (high, low) of so far, with more values: as good as one correctly rounded sum."""
    terms = [*total, *values.tolist()]
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
            "field must be a row, not a column; cells of different size need cell_weights. If the "
            "deviation is noise, pass a larger invariant_tol; invariants=None decodes without "
            "invariants"
        )
