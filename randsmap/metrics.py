"""Errors of reconstructed fields, one value per sample (paper, Eq. D.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_domain, check_samples, real_numbers
from randsmap._interface.callers import public
from randsmap._interface.fields import flattened
from randsmap._interface.parameters import check_number, document
from randsmap._linalg.rows import Rows, block_rows
from randsmap._linalg.scales import SMALLEST_SHARE, check_cell_weights, in_norm, median_norm

__all__ = ["conservation_error", "relative_l2", "relative_linf", "scaled_l2", "scaled_linf"]

_Values = NDArray[np.float64]

_TEXTS = {
    "fields": """\
y_true, y_pred : array-like of shape (n_samples, n_cells)
    True and reconstructed fields.""",
    "returns_relative": """\
ndarray of shape (n_samples,)
    Dimensionless. The error of a field does not depend on the others. For a field that is zero everywhere:
    0 if it is reconstructed exactly, else inf.""",
    "reference": """\
reference : float or array-like of shape (m, n_cells), default=None
    The usual norm of a field, >= 0, or fields from which it is computed: the median of the norms that are not 0.
    None: y_true. Give it to compare errors of several parts of one data set.""",
    "returns_scaled": """\
ndarray of shape (n_samples,)
    |f - y| / max(|y|, 1e-3 reference), dimensionless; 0 for a field that is decoded exactly.""",
    "weights": """\
cell_weights : array-like of shape (n_cells,), or of a field, default=None
    Positive weights v, such as cell volumes: |f|^2 is then the sum of v_i f_i^2. None: ones.""",
    "raises": """\
ValueError, TypeError
    If the shapes differ, a value is not finite or beyond 1e140, or another argument is not as described.""",
    "example": """\
>>> from randsmap import metrics
>>> y_true, y_pred = [[3.0, 4.0], [0.0, 0.0]], [[3.0, 3.0], [0.0, 0.001]]
>>> metrics.relative_l2(y_true, y_pred), metrics.scaled_l2(y_true, y_pred)
(array([0.2, inf]), array([0.2, 0.2]))
>>> metrics.relative_linf(y_true, y_pred), metrics.scaled_linf(y_true, y_pred)
(array([0.25,  inf]), array([0.25, 0.25]))
>>> metrics.conservation_error(y_true, y_pred)
array([1.   , 0.001])""",
}
_documented = partial(document, texts=_TEXTS)


@_documented
def relative_l2(y_true: ArrayLike, y_pred: ArrayLike, *, cell_weights: ArrayLike | None = None) -> _Values:
    """Relative L2 error of each decoded field, |f - y|_2 / |y|_2, of decoded fields f and true fields y.

    For means over many fields, some of which may be zero, use `scaled_l2`.

    {fields} {weights} {returns_relative} {raises} {example}
    """
    return _scaled(y_true, y_pred, "l2", 0.0, cell_weights)


@_documented
def relative_linf(y_true: ArrayLike, y_pred: ArrayLike) -> _Values:
    """Relative maximum error of each decoded field, |f - y|_inf / |y|_inf, of decoded fields f and true fields y.

    {fields} {returns_relative} {raises} {example}
    """
    return _scaled(y_true, y_pred, "linf", 0.0)


@_documented
def scaled_l2(
    y_true: ArrayLike, y_pred: ArrayLike, *, reference: ArrayLike | None = None, cell_weights: ArrayLike | None = None
) -> _Values:
    """L2 error of each decoded field, relative to the norm of the true field or to 1e-3 of the usual norm if that is
    larger.

    `tune`, `leave_one_out` and `ManifoldModel.score` average this error. It is finite for a field that is zero, and at
    most 1000 times as large for a very small field as for others.

    {fields} {weights} {reference} {returns_scaled} {raises} {example}
    """
    return _scaled(y_true, y_pred, "l2", reference, cell_weights)


@_documented
def scaled_linf(y_true: ArrayLike, y_pred: ArrayLike, *, reference: ArrayLike | None = None) -> _Values:
    """Maximum error of each reconstructed field, scaled as in `scaled_l2` but by maximum norms.

    {fields} {reference} {returns_scaled} {raises} {example}
    """
    return _scaled(y_true, y_pred, "linf", reference)


@_documented
def conservation_error(y_true: ArrayLike, y_pred: ArrayLike, *, invariants: str | ArrayLike = "mass") -> _Values:
    """Absolute error of the invariants of each field, the largest |C_j^T f - C_j^T y|.

    Parameters
    ----------
    {fields}
    invariants : "mass" or array-like of shape (n_cells,) or (n_cells, n_invariants), default="mass"
        The matrix C, of flattened fields; "mass" is one column of ones. For a decoder with weights or invariants of its
        own give its `invariant_matrix_`.

    Returns
    -------
    ndarray of shape (n_samples,)
        In the unit of the invariants; the largest over the invariants.

    {raises} {example}
    """
    if isinstance(invariants, str):
        if invariants != "mass":
            raise ValueError(f"invariants must be 'mass' or an array, got {invariants!r}")
        return _by_blocks(y_true, y_pred, lambda F, F_hat: abs(F_hat.sum(axis=1) - F.sum(axis=1)))
    layout = flattened(y_true, "y_true")[1]
    C = real_numbers(layout.values(invariants, "invariants", columns=True), "invariants")
    C = as_array(C[:, None] if C.ndim == 1 else C, "invariants")
    if len(C) != layout.n_cells:
        raise ValueError(f"invariants must have a row for each of {layout.n_cells} cells, got shape {C.shape}")
    return _by_blocks(y_true, y_pred, lambda F, F_hat: abs(F_hat @ C - F @ C).max(axis=1))


def field_norms(y: Any, norm: str = "l2", name: str = "y", cell_weights: ArrayLike | None = None) -> _Values:
    """Norm of each field; a large memory-mapped array is read by blocks."""
    rows, layout = flattened(y, name)
    fields = Rows.of(rows, name)
    weights, size = check_cell_weights(cell_weights, layout), NORMS[norm]
    return np.concatenate([size(in_norm(check_domain(F, name), weights)) for _, _, F in fields.blocks(what="norms")])


def scaled_distances(distances: _Values, sizes: _Values, reference: float) -> _Values:
    """Scaled errors of fields with these norms: distance / max(norm, 1e-3 reference), and 0 for 0 / 0."""
    return np.where(distances == 0, 0.0, distances / np.maximum(sizes, SMALLEST_SHARE * reference))


def selection_losses(errors: _Values, sizes: _Values, reference: float) -> _Values:
    """Mean scaled errors of candidates (n_candidates, n); of tiny fields at most 1 each, or they would select alone."""
    return np.where(sizes < SMALLEST_SHARE * reference, np.minimum(errors, 1), errors).mean(axis=1)


# no arrays of squares or magnitudes; checked fields are below 1e140, so that squares do not overflow
NORMS: dict[str, Callable[[_Values], _Values]] = {
    "l2": lambda X: np.sqrt(np.einsum("ij,ij->i", X, X)),
    "linf": lambda X: abs(np.maximum(X.max(axis=1), -X.min(axis=1))),
}


def _scaled(
    y_true: ArrayLike, y_pred: ArrayLike, norm: str, reference: ArrayLike | None, cell_weights: Any = None
) -> _Values:
    layout, size = flattened(y_true, "y_true")[1], NORMS[norm]
    if reference is not None and np.ndim(reference) == 0:
        usual = check_number(reference, "reference", low=0)
    else:
        fields, name = (y_true, "y_true") if reference is None else (reference, "reference")
        layout.compare(fields, name, whose="y_true")
        usual = median_norm(field_norms(fields, norm, name, cell_weights))
    weights = check_cell_weights(cell_weights, layout)

    def errors(F, F_hat):
        return scaled_distances(size(in_norm(F_hat - F, weights)), size(in_norm(F, weights)), usual)

    return _by_blocks(y_true, y_pred, errors)


def _by_blocks(y_true: ArrayLike, y_pred: ArrayLike, errors: Callable[[_Values, _Values], _Values]) -> _Values:
    """The result of errors(y_true, y_pred) for checked pairs; large memory-mapped arrays are read by blocks."""
    (true, layout), (predicted, other) = flattened(y_true, "y_true"), flattened(y_pred, "y_pred")
    shapes = layout.shape, other.shape
    if min(map(len, shapes)) > 1 and shapes[0] != shapes[1]:
        raise ValueError(f"y_true and y_pred must have the same shape, got fields of shape {shapes[0]} and {shapes[1]}")
    check_samples(y_true=y_true, y_pred=y_pred)
    layout.compare(y_pred, "y_pred", whose="y_true")
    true, predicted = Rows.of(true, "y_true"), Rows.of(predicted, "y_pred")
    if true.shape != predicted.shape:
        raise ValueError(f"y_true and y_pred must have the same shape, got {true.shape} and {predicted.shape}")
    size = block_rows(true.width) if true.mapped or predicted.mapped else max(len(true), 1)
    blocks = true.blocks(size, "errors")
    return np.concatenate([errors(check_domain(F, "y_true"), predicted[start:stop]) for start, stop, F in blocks])


public(globals())
