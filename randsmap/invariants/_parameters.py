"""The invariant parameters that estimators declare, and the fitted attributes that follow from them."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.parameters import Parameter, document
from randsmap.invariants._affine import AffineInvariants

_Class = TypeVar("_Class", bound=type)

INVARIANT_PARAMETERS = {
    "invariants": Parameter(
        object,
        """
        Linear invariants C to preserve. "mass": the sum of the cells, weighted by cell_weights if they are given. An
        array holds one invariant per column; for fields of a shape it may have (*shape,) or (*shape, q). Dependent or
        zero columns are allowed (a warning names a column that is dropped although it is not dependent to round-off).
        None: no invariant, only the constant cells.""",
        shown='"mass", array (M,) or (M, q), or None',
    ),
    "invariant_values": Parameter(
        object,
        "Values m of the invariants. None: the mean over the training fields.",
        shown="float, array (q,) or None",
    ),
    "invariant_tol": Parameter(
        object,
        """
        The training fields must satisfy |C_j^T f_i - m_j| <= tol |C_j|^T |f_i|. None: 1e-6; 1e-4 for float32 and 1e-2
        for float16 fields. From 1.0 on nothing is required of the fields: their values may vary (in- and outflow),
        and are given for each row when decoding.""",
        shown="float or None",
    ),
    "cell_weights": Parameter(
        object,
        """
        Positive weights, such as cell volumes, of the norm in which the correction is smallest; they may have the
        fields' shape.""",
        shown="array (M,) or None",
    ),
    "bounds": Parameter(
        object,
        """
        Bounds of every decoded field, which hold exactly, in one projection with the invariants. Each bound is a
        number, one value per cell (in the fields' shape if they have one), or None; "nonnegative" is (0, None). At
        most one independent invariant, with weights >= 0. The training fields must be within the bounds up to 1e-12
        of the largest value of a field (1e-5 for float32, 1e-2 for float16 fields), and constant cells exactly.""",
        shown='(lower, upper), "nonnegative" or None',
    ),
}
_ATTRIBUTES = """\
invariant_values_ : ndarray (q,)
    m; the values of dependent columns are those that the others imply.
invariant_matrix_ : ndarray (M, q)
    C.
constant_cells_ : ndarray (M,) of bool
    Cells with one value in all training fields; they keep it in every decoded field.
invariants_ : AffineInvariants
    All of these, with the projection of fields on them."""


class InvariantParameters:
    """An estimator with the parameters `INVARIANT_PARAMETERS` (or some of them), whose fit sets `invariants_`."""

    invariants: Any
    invariant_values: Any
    invariant_tol: float | None
    cell_weights: Any
    bounds: Any
    invariants_: AffineInvariants

    @property
    def invariant_values_(self) -> NDArray[np.float64]:
        """Values m of the invariants."""
        return self.invariants_.values

    @property
    def invariant_matrix_(self) -> NDArray[np.float64]:
        """Matrix C of the invariants."""
        return self.invariants_.matrix

    @property
    def constant_cells_(self) -> NDArray[np.bool_]:
        """Mask of the cells with one value in all training fields."""
        return self.invariants_.constant


def document_invariants(cls: _Class) -> _Class:
    """Fill {invariant_parameters}, {cell_weights}, {bounds} and {invariant_attributes} in a docstring."""
    given = inspect.signature(cls).parameters
    entries = {
        name: INVARIANT_PARAMETERS[name].entry(name, given[name].default)
        for name in INVARIANT_PARAMETERS
        if name in given
    }
    first = [entries.get(name, "") for name in ("invariants", "invariant_values", "invariant_tol")]
    return document(cls, {"invariant_parameters": "\n".join(first), "invariant_attributes": _ATTRIBUTES, **entries})
