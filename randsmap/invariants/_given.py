"""Invariants and bounds as a user gives them: one value object made of the estimators' flat parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_domain
from randsmap._interface.fields import FieldShape
from randsmap._interface.parameters import check_number
from randsmap._linalg.scales import check_cell_weights
from randsmap.invariants._bounds import check_bounds

# relative deviation from the invariants that the number type of the training data explains
_TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4}


@dataclass(frozen=True, eq=False)
class Invariants:
    """Linear invariants C^T f = m and bounds of fields f, checked, before any field was seen."""

    matrix: NDArray[np.float64]  # C (M, q), one invariant per column
    values: NDArray[np.float64] | None = None  # m (q,); None: the mean over the training fields
    # |C_j^T f_i - m_j| <= tol |C_j|^T |f_i| is required of training fields, nothing from 1 on; None: by number type
    tol: float | None = None
    cell_weights: NDArray[np.float64] | None = None  # of the norm in which the projection is orthogonal
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None  # infinite where there is none
    if_common: bool = False  # the invariants only if the training fields have common values, otherwise none
    keep_constant_cells: bool = True  # cells with one value in all training fields keep it in every field

    @classmethod
    def of(
        cls,
        n_cells: int,
        *,
        invariants: ArrayLike | str | None = "mass",
        values: ArrayLike | None = None,
        tol: float | None = None,
        cell_weights: ArrayLike | None = None,
        bounds: Any = None,
        keep_constant_cells: bool = True,
    ) -> Invariants:
        """The parameters of fields of `n_cells` cells, checked; ValueError if one is not valid.

        `invariants` is C, "mass" for the sum of the cells by their weights, "auto" for mass if it is common, which it
        must be if `values` are given, or None; `values` may be a number if q is 1; `bounds` as in `check_bounds`.
        """
        limits = check_bounds(bounds, n_cells)
        weights = check_cell_weights(cell_weights, (n_cells,))
        matrix = _check_matrix(invariants, n_cells, weights)
        if tol is not None:
            tol = check_number(tol, "invariant_tol", low=0)
        if values is not None:
            if invariants is None:
                raise ValueError("invariant_values given without invariants (invariants=None)")
            values = [values] if np.ndim(values) == 0 else values
            values = as_array(values, "invariant_values", (matrix.shape[1],))
            check_domain(values, "invariant_values")
        if_common = isinstance(invariants, str) and invariants == "auto" and values is None
        return cls(matrix, values, tol, weights, limits, if_common, keep_constant_cells)

    @classmethod
    def of_estimator(
        cls, estimator: Any, n_cells: int, *, layout: FieldShape | None = None, **changes: Any
    ) -> Invariants:
        """The parameters of an estimator, with changes, whose arrays may have the shape and the labels of a field.

        `layout` has these; None: the estimator's, of rows of cells if it has none.
        """
        names = {"values": "invariant_values", "tol": "invariant_tol"}
        names |= {name: name for name in ("invariants", "cell_weights", "bounds")}
        given: dict[str, Any] = {argument: getattr(estimator, name, None) for argument, name in names.items()}
        given.update(changes)
        layout = layout or getattr(estimator, "_field_shape", None) or FieldShape((n_cells,))
        if isinstance(given["bounds"], (tuple, list)) and len(given["bounds"]) == 2:
            given["bounds"] = tuple(layout.values(bound, "bounds") for bound in given["bounds"])
        given["invariants"] = layout.values(given["invariants"], "invariants", columns=True)
        given["cell_weights"] = layout.values(given["cell_weights"], "cell_weights")
        return cls.of(n_cells, **given)

    def tolerance(self, dtype: Any) -> float:
        """Relative deviation from their invariants that fields of this number type may have."""
        return _TOLERANCE.get(np.dtype(dtype), 1e-6) if self.tol is None else self.tol


def norm_weights(shape: FieldShape | tuple[int, ...], *given: Any) -> NDArray[np.float64] | None:
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
    """C as an own (M, q) float64 array."""
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
        raise ValueError(
            f"invariants must have one row per cell, ({n_cells},) or ({n_cells}, q), got {np.shape(invariants)}"
        )
    check_domain(C, "invariants")
    return C.copy()
