"""The invariant parameters and attributes that estimators share, and their documentation."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from randsmap._interface.state import Part, document
from randsmap.invariants._affine import AffineInvariants
from randsmap.invariants._running import fit_estimator

__all__ = ["InvariantParameters", "document_invariants"]

_Class = TypeVar("_Class", bound=type)


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

    @property
    def invariant_values_(self) -> NDArray[np.float64]:
        return self.invariants_.values

    @property
    def invariant_matrix_(self) -> NDArray[np.float64]:
        return self.invariants_.matrix

    @property
    def constant_cells_(self) -> NDArray[np.bool_]:
        return self.invariants_.constant

    def _invariants(self, F: NDArray[np.float64], dtype: DTypeLike) -> AffineInvariants:
        """The invariants that `fit` uses."""
        return fit_estimator(self, F, dtype)

    def _store_invariants(self, invariants: AffineInvariants) -> None:
        self.invariants_ = invariants

    # what a model file holds of them (see randsmap._interface.state)
    _invariant_state = {"invariants_": Part(AffineInvariants, M="M")}


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
