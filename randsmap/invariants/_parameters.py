"""The invariant parameters and attributes that estimators share, and their documentation."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from randsmap._interface.fields import cellwise
from randsmap._interface.state import NOT_SAVED, Part, document
from randsmap.invariants._affine import AffineInvariants
from randsmap.invariants._running import RunningInvariants

__all__ = ["InvariantParameters", "document_invariants", "invariant_options"]

_Class = TypeVar("_Class", bound=type)


def invariant_options(estimator: Any, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """The parameters of an estimator for `AffineInvariants.from_data`, those of cells as rows; shape: of a field."""
    bounds = getattr(estimator, "bounds", None)
    if isinstance(bounds, (tuple, list)) and len(bounds) == 2:
        bounds = tuple(cellwise(bound, shape, name="a bound") for bound in bounds)
    return {
        "invariants": cellwise(estimator.invariants, shape, name="invariants", columns=True),
        "values": estimator.invariant_values,
        "tol": estimator.invariant_tol,
        "cell_weights": cellwise(estimator.cell_weights, shape, name="cell_weights"),
        "bounds": bounds,
    }


class InvariantParameters:
    """The parameters and attributes of the estimators whose fields satisfy invariants.

    A subclass stores `invariants`, `invariant_values`, `invariant_tol`, `cell_weights` and `bounds`;
    `document_invariants` describes them in its docstring.
    """

    invariants: Any
    invariant_values: Any
    invariant_tol: float | None
    cell_weights: Any
    bounds: Any
    invariants_: AffineInvariants
    invariant_values_: NDArray[np.float64]
    invariant_matrix_: NDArray[np.float64]
    constant_cells_: NDArray[np.bool_]

    def _fit_invariants(
        self, F: NDArray[np.float64], dtype: DTypeLike, *, keep_constant_cells: bool = True
    ) -> AffineInvariants:
        """The invariants of the training fields F (n, M), which came in the type `dtype`."""
        try:
            return AffineInvariants.from_data(
                F,
                **invariant_options(self, getattr(self, "field_shape_", None)),
                keep_constant_cells=keep_constant_cells,
                dtype=dtype,
            )
        except ValueError as error:
            d, M = getattr(self, "n_features_in_", 0), F.shape[1]
            if d <= M:
                raise
            raise ValueError(
                f"X, the latents, has {d} columns and y, the fields, only {M}: are they swapped? As they are, {error}"
            ) from None

    def _invariants(self, F: NDArray[np.float64], dtype: DTypeLike) -> AffineInvariants:
        """The invariants that `fit` uses."""
        return self._fit_invariants(F, dtype)

    def _running_invariants(self, M: int) -> RunningInvariants:
        """The invariants of no fields yet, of M cells."""
        return RunningInvariants(M, **invariant_options(self, getattr(self, "field_shape_", None)))

    # what a model file holds of them (see randsmap._interface.state)
    _invariant_state = {
        "invariants_": Part(AffineInvariants, M="M"),
        "invariant_values_": NOT_SAVED,
        "invariant_matrix_": NOT_SAVED,
        "constant_cells_": NOT_SAVED,
    }

    def _store_invariants(self, invariants: AffineInvariants) -> None:
        self.invariants_ = invariants
        self._name_invariants()

    def _name_invariants(self) -> None:
        self.invariant_values_ = self.invariants_.values
        self.invariant_matrix_ = self.invariants_.matrix
        self.constant_cells_ = self.invariants_.constant

    def _restore(self) -> None:
        getattr(super(), "_restore", lambda: None)()
        self._name_invariants()


_PARAMETERS = """\
invariants : "mass", array (M,) or (M, q), or None, default={default}
    C. "mass" is the sum of the cells, weighted by cell_weights if they are given. Several
    columns are several invariants; fields of a shape may have (*shape,) or (*shape, q). Dependent or zero columns
    are allowed (a warning tells of a column that is dropped as dependent although it is not so to round-off). None:
    no invariant, only the constant cells.
invariant_values : float, array (q,) or None
    m. None: taken from the training fields (their mean).
invariant_tol : float or None
    The training fields must satisfy |C_j^T f_i - m_j| <= tol |C_j|^T |f_i|. None: 1e-6; 1e-4
    for float32 and 1e-2 for float16 fields. From 1.0 on nothing is required of them: for fields whose
    values vary (in- and outflow), which are given again, a row each, when decoding."""
_WEIGHTS = """\
cell_weights : array (M,) or None
    Positive weights, such as cell volumes, of the norm in which the correction is smallest; they may have the
    fields' shape."""
_BOUNDS = """\
bounds : (lower, upper), "nonnegative" or None
    Bounds of every decoded field, which then hold exactly, in the one projection with the
    invariants: each bound a number, one value a cell (in the fields' shape, too), or None; "nonnegative" is
    (0, None). At
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


def document_invariants(cls: _Class) -> _Class:
    """Fill {invariant_parameters}, {cell_weights}, {bounds} and {invariant_attributes} in a docstring."""
    default = inspect.signature(cls).parameters["invariants"].default
    texts = {
        "invariant_parameters": _PARAMETERS.replace("{default}", '"mass"' if default == "mass" else repr(default)),
        "cell_weights": _WEIGHTS,
        "bounds": _BOUNDS,
        "invariant_attributes": _ATTRIBUTES,
    }
    return document(cls, texts)
