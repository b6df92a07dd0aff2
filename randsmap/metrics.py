"""Errors of reconstructed fields, one value a sample (paper, Eq. recon_errors)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.fields import flattened
from randsmap._interface.validation import check_choice, check_matrix, check_number, check_vector, renamed_arguments
from randsmap._io.progress import steps
from randsmap._linalg.rows import Snapshots, block_rows, is_large, row_blocks

__all__ = ["conservation_error", "relative_l2", "relative_linf", "scaled_l2", "scaled_linf"]

SMALLEST_SHARE = 1e-3  # of the median norm: what the errors of smaller fields are divided by
_LARGEST = np.finfo(float).max

_Values = NDArray[np.float64]


@renamed_arguments(F="y_true", F_hat="y_pred")
def relative_l2(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray[np.float64]:
    """Relative L2 error of each reconstructed field, |f_hat - f|_2 / |f|_2.

    Parameters
    ----------
    y_true : array-like of shape (n_samples, n_cells)
        True fields.
    y_pred : array-like of shape (n_samples, n_cells)
        Reconstructed fields.

    Returns
    -------
    ndarray of shape (n_samples,)
        Dimensionless; a field's error does not depend on the others, and squares neither over- nor
        underflow. For a field that is zero everywhere: 0 if it is reconstructed exactly, else inf.

    Raises
    ------
    ValueError
        If the shapes differ or a value is not finite.

    See Also
    --------
    scaled_l2 : For means over many fields, some of which may be empty.

    References
    ----------
    Paper, Eq. (recon_errors), e_2.

    Examples
    --------
    >>> from randsmap.metrics import relative_l2
    >>> relative_l2([[3.0, 4.0]], [[3.0, 3.0]])
    array([0.2])
    """
    return _by_blocks(y_true, y_pred, lambda F, F_hat: _errors(F, F_hat, _l2))


@renamed_arguments(F="y_true", F_hat="y_pred")
def relative_linf(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray[np.float64]:
    """Relative maximum error of each reconstructed field, |f_hat - f|_inf / |f|_inf.

    Parameters
    ----------
    y_true : array-like of shape (n_samples, n_cells)
        True fields.
    y_pred : array-like of shape (n_samples, n_cells)
        Reconstructed fields.

    Returns
    -------
    ndarray of shape (n_samples,)
        Dimensionless. For a field that is zero everywhere: 0 if it is reconstructed exactly, else inf.

    Raises
    ------
    ValueError
        If the shapes differ or a value is not finite.

    References
    ----------
    Paper, Eq. (recon_errors), e_inf.

    Examples
    --------
    >>> from randsmap.metrics import relative_linf
    >>> relative_linf([[2.0, 4.0]], [[3.0, 4.0]])
    array([0.25])
    """
    return _by_blocks(y_true, y_pred, lambda F, F_hat: _errors(F, F_hat, _linf))


def scaled_l2(
    y_true: ArrayLike, y_pred: ArrayLike, *, reference: float | ArrayLike | None = None
) -> NDArray[np.float64]:
    """L2 error of each reconstructed field over its norm, or over 1e-3 of the usual norm if that is more.

    The error that `tune`, `leave_one_out` and `ManifoldModel.score` average: finite for a field that is zero, and
    at most a thousand times the others' where a field is tiny beside them. All other fields have their relative
    error.

    Parameters
    ----------
    y_true : array-like of shape (n_samples, n_cells)
        True fields.
    y_pred : array-like of shape (n_samples, n_cells)
        Reconstructed fields.
    reference : float or array-like of shape (m, n_cells), optional
        The usual norm of a field, >= 0, or fields whose median norm, of those that are not zero, it is. None:
        y_true. Give it to compare errors of several parts of one data set.

    Returns
    -------
    ndarray of shape (n_samples,)
        |f_hat - f|_2 / max(|f|_2, 1e-3 reference), dimensionless; 0 for a field that is reconstructed exactly.

    Raises
    ------
    ValueError, TypeError
        If the shapes differ, a value is not finite, or reference is not a number >= 0.

    Examples
    --------
    >>> from randsmap.metrics import relative_l2, scaled_l2
    >>> y_true, y_pred = [[3.0, 4.0], [0.0, 0.0]], [[3.0, 3.0], [0.0, 0.001]]
    >>> scaled_l2(y_true, y_pred)
    array([0.2, 0.2])
    >>> relative_l2(y_true, y_pred)
    array([0.2, inf])
    """
    return _scaled(y_true, y_pred, reference, "l2")


def scaled_linf(
    y_true: ArrayLike, y_pred: ArrayLike, *, reference: float | ArrayLike | None = None
) -> NDArray[np.float64]:
    """Maximum error of each reconstructed field, scaled as in `scaled_l2` but by maximum norms.

    Parameters
    ----------
    y_true : array-like of shape (n_samples, n_cells)
        True fields.
    y_pred : array-like of shape (n_samples, n_cells)
        Reconstructed fields.
    reference : float or array-like of shape (m, n_cells), optional
        The usual maximum norm of a field, or fields whose median norm it is, as in `scaled_l2`.

    Returns
    -------
    ndarray of shape (n_samples,)
        |f_hat - f|_inf / max(|f|_inf, 1e-3 reference), dimensionless.

    Raises
    ------
    ValueError, TypeError
        As `scaled_l2`.

    Examples
    --------
    >>> from randsmap.metrics import scaled_linf
    >>> scaled_linf([[2.0, 4.0], [0.0, 0.0]], [[3.0, 4.0], [0.0, 0.001]])
    array([0.25, 0.25])
    """
    return _scaled(y_true, y_pred, reference, "linf")


def field_norms(y: ArrayLike, norm: str = "l2") -> NDArray[np.float64]:
    """Norm of each field, without overflow of squares; a large memory-mapped array is read by blocks."""
    size = _NORMS[check_choice(norm, "norm", tuple(_NORMS))]
    y = flattened(y, "y")[0]
    fields = Snapshots(y, "y") if is_large(y) else check_matrix(y, "y")
    with np.errstate(over="ignore", under="ignore"):
        norms = [np.ldexp(*_size(F, size)) for _, F in row_blocks(fields, "norms")]
    return np.minimum(np.concatenate(norms), _LARGEST)


def squarable_norms(y: ArrayLike) -> NDArray[np.float64]:
    """Norms of fields whose squares, and sums of them, neither over- nor underflow; ValueError for others."""
    norms = field_norms(y)
    largest = norms.max(initial=0.0)
    if largest and not 1e-140 < largest < 1e140:
        raise ValueError(
            f"the fields have norms up to {largest:.3g}, whose squares are no floating-point numbers: errors cannot be "
            "compared. Use a unit in which they are nearer to 1"
        )
    return norms


def median_norm(norms: ArrayLike) -> float:
    """Median of the norms of the fields that are not zero everywhere; 0 if all are.

    What scaled errors take as the usual norm.

    Examples
    --------
    >>> median_norm(field_norms([[3.0, 4.0], [0.0, 0.0], [0.0, 5.0]]))
    5.0
    """
    norms = np.asarray(norms)
    return float(np.median(norms[norms > 0])) if norms.any() else 0.0


@renamed_arguments(F="y_true", F_hat="y_pred")
def conservation_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, invariants: str | ArrayLike = "mass"
) -> NDArray[np.float64]:
    """Absolute error of the invariants of each reconstructed field, max_j |C_j.f_hat - C_j.f|.

    Parameters
    ----------
    y_true : array-like of shape (n_samples, n_cells)
        True fields.
    y_pred : array-like of shape (n_samples, n_cells)
        Reconstructed fields.
    invariants : "mass" or array-like of shape (n_cells,) or (n_cells, n_invariants)
        The matrix C, of flattened fields; "mass" is one column of ones. For a decoder with weights or invariants of its
        own give its `invariant_matrix_`.

    Returns
    -------
    ndarray of shape (n_samples,)
        In the unit of the invariants; the largest over the invariants.

    Raises
    ------
    ValueError
        If the shapes differ or a value is not finite.

    References
    ----------
    Paper, Eq. (recon_errors), e_con; there the fields' mass is 1.

    Examples
    --------
    >>> from randsmap.metrics import conservation_error
    >>> conservation_error([[0.25, 0.75]], [[0.5, 0.75]])
    array([0.25])
    """
    if isinstance(invariants, str):
        if invariants != "mass":
            raise ValueError(f"invariants must be 'mass' or an array, got {invariants!r}")
        return _by_blocks(y_true, y_pred, _mass_error)
    if np.ndim(invariants) == 1:
        C = check_vector(invariants, "invariants")[:, None]
    else:
        C = check_matrix(invariants, "invariants")
    n_cells = int(np.prod(np.shape(y_true)[1:]))
    if C.shape[0] != n_cells:
        raise ValueError(f"invariants must have a row for each of {n_cells} cells, got shape {C.shape}")
    return _by_blocks(y_true, y_pred, lambda F, F_hat: abs(F_hat @ C - F @ C).max(axis=1))


def unchecked_errors(F: _Values, F_hat: _Values, references: tuple[float, float] = (0.0, 0.0)) -> _Values:
    """L2 and maximum error and error of the mass, (3, n), of finite arrays of one shape.

    The first two are scaled by the references, median norms (L2, Linf); relative if those are 0.
    """
    l2, linf = references
    return np.array([_errors(F, F_hat, _l2, l2), _errors(F, F_hat, _linf, linf), _mass_error(F, F_hat)])


def scaled_distances(distances: _Values, sizes: _Values, reference: float) -> _Values:
    """Distances from fields of these norms as scaled errors: distance / max(norm, 1e-3 reference), 0 for 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(distances == 0, 0.0, distances / np.maximum(sizes, SMALLEST_SHARE * reference))


def selection_losses(errors: _Values, sizes: _Values, reference: float) -> _Values:
    """What candidates are chosen by: the mean of the scaled errors (n_candidates, n) of fields of these norms.

    A field smaller than 1e-3 of the reference counts at most 1 in it, as one that is lost: its scaled error may be
    a thousand times that of the others, and it would choose alone.
    """
    tiny = sizes < SMALLEST_SHARE * reference
    return np.where(tiny, np.minimum(errors, 1), errors).mean(axis=1)


def _l2(X: _Values) -> _Values:
    return np.sqrt(np.einsum("ij,ij->i", X, X))


def _linf(X: _Values) -> _Values:
    return abs(np.maximum(X.max(axis=1), -X.min(axis=1)))


_NORMS = {"l2": _l2, "linf": _linf}


def _scaled(y_true: ArrayLike, y_pred: ArrayLike, reference: float | ArrayLike | None, norm: str) -> _Values:
    fields = y_true if reference is None else reference
    usual = check_number(fields, "reference", low=0) if np.ndim(fields) == 0 else median_norm(field_norms(fields, norm))
    return _by_blocks(y_true, y_pred, lambda F, F_hat: _errors(F, F_hat, _NORMS[norm], usual))


def _mass_error(F: _Values, F_hat: _Values) -> _Values:
    return abs(F_hat.sum(axis=1) - F.sum(axis=1))


def _by_blocks(y_true: ArrayLike, y_pred: ArrayLike, errors: Callable[[_Values, _Values], _Values]) -> _Values:
    """errors(y_true, y_pred) of checked pairs; of large memory-mapped arrays block by block."""
    layouts = [flattened(y_true, "y_true"), flattened(y_pred, "y_pred")]
    shapes = [layout.shape for _, layout in layouts if layout is not None and len(layout.shape) > 1]
    if len(set(shapes)) > 1:
        raise ValueError(f"y_true and y_pred must have the same shape, got fields of shape {shapes[0]} and {shapes[1]}")
    named = ((layouts[0][0], "y_true"), (layouts[1][0], "y_pred"))
    pair: list[Any] = [Snapshots(y, name) if is_large(y) else check_matrix(y, name) for y, name in named]
    if pair[0].shape != pair[1].shape:
        raise ValueError(f"y_true and y_pred must have the same shape, got {pair[0].shape} and {pair[1].shape}")
    if not any(is_large(y) for y, _ in named):
        return errors(*pair)
    n, M = pair[0].shape
    return np.concatenate([errors(*(y[a:b] for y in pair)) for a, b in steps(n, block_rows(M), "errors")])


def _errors(F: _Values, F_hat: _Values, norm: Callable[[_Values], _Values], reference: float = 0.0) -> _Values:
    """|f_hat - f| / max(|f|, 1e-3 reference) of each row, without over- or underflow on the way; 0 for 0 / 0."""
    with np.errstate(over="ignore"):
        error, error_exponent = _size(F_hat - F, norm)
    far = np.flatnonzero(~np.isfinite(error))  # the difference itself overflows
    if len(far):
        error[far], error_exponent[far] = _size(F_hat[far] / 2 - F[far] / 2, norm)
        error_exponent[far] += 1
    size, exponent = _size(F, norm)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        small = np.flatnonzero(np.ldexp(size, exponent) < SMALLEST_SHARE * reference)
        size[small], exponent[small] = SMALLEST_SHARE * reference, 0
        return np.where(error == 0, 0.0, np.ldexp(error / size, error_exponent - exponent))


def _size(X: _Values, norm: Callable[[_Values], _Values]) -> tuple[_Values, NDArray[np.int32]]:
    """Norms of the rows as (s, e): s 2^e. Rows whose squares may over- or underflow are scaled before."""
    with np.errstate(over="ignore", under="ignore"):
        size, exponent = norm(X), np.zeros(len(X), dtype=np.int32)
    unsafe = np.flatnonzero(~((size > 1e-140) & (size < 1e140)))
    if len(unsafe):
        X = X[unsafe]
        exponent[unsafe] = np.frexp(abs(X).max(axis=1))[1]
        with np.errstate(under="ignore"):
            size[unsafe] = norm(np.ldexp(X, -exponent[unsafe, None]))
    return size, exponent
