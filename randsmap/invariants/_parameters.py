"""The invariant parameters that estimators declare, and the fitted attributes that follow from them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from numpy.typing import ArrayLike

from randsmap._interface.parameters import estimator, parameter


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
        1e-2 for float16 fields. From 1.0 on nothing is required of the fields: without `invariant_values` each field
        has its own values (in- and outflow). Decoding latents then needs `invariant_values`; where fields are
        reconstructed or compared, their own are taken.
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
