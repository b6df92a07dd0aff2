"""Invariants and bounds as a user gives them: the parameters of estimators, and one value object made of them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_domain
from randsmap._interface.fields import FieldShape
from randsmap._interface.parameters import check_number, estimator, parameter
from randsmap._linalg.scales import check_cell_weights
from randsmap.invariants._bounds import check_bounds

# relative deviation from the invariants that the number type of the training data explains
_TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4}


@estimator
class InvariantParameters:
    """An estimator with these parameters, or some of them, whose fit gives `invariants_`.

    Parameters
    ----------
    invariants
        Linear invariants C to preserve. "mass": the sum of the cells, weighted by cell_weights if they are given.
        "auto": mass where all training fields have it to `invariant_tol`, or `invariant_values` gives it; otherwise
        none. `invariants_.in_words` says which. If all fields but a few have it, because of noise or of one wrong
        field, it warns. Batches and parts decide by their first fields.
        An array holds one invariant per column; for fields of a shape it may have (*shape,) or (*shape, q).
        Dependent or zero columns are allowed (a warning names a column that is dropped although it is not dependent
        to round-off). None: no invariant, only the constant cells.
    invariant_values
        Values m of the invariants. None: the mean over the training fields.
    invariant_tol
        The training fields must satisfy |C_j^T f_i - m_j| <= tol |C_j|^T |f_i|. None: 1e-6; 1e-4 for float32 and
        1e-2 for float16 fields. Below 1.0 every decoded field gets the one m, whatever its own values. From 1.0 on
        nothing is required of the fields: without `invariant_values` each has its own values (in- and outflow).
        Decoding latents then needs `invariant_values`; where fields are reconstructed or compared, their own are taken.
    cell_weights
        Positive weights, such as cell volumes, of the norm of fields: in it the correction is smallest, and errors are
        measured. They may have the fields' shape. In a `ManifoldModel`, None means those of the encoder.
    bounds
        Bounds of every decoded field, which hold exactly, in one projection with the invariants. Each bound is a
        number, one value per cell (in the fields' shape if they have one; infinite where a cell has none), or None;
        "nonnegative" is (0, None). At most 8 independent invariants may share cells, of at most 64. The training
        fields must be within the bounds up to 1e-12 of the largest value of a field (1e-5 for float32, 1e-2 for float16
        fields), and constant cells exactly.

    Attributes
    ----------
    invariant_values_ : ndarray (q,)
        m; the values of dependent columns are those that the others imply.
    invariant_matrix_ : ndarray (M, q)
        C.
    constant_cells_ : ndarray (M,) of bool
        Cells with one value in all training fields; they keep it in every decoded field.
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
