"""Errors of reconstructed fields, one value a sample (paper, Eq. recon_errors)."""

import numpy as np

from randsmap._mmap import Snapshots, block_rows, is_large
from randsmap._progress import steps
from randsmap._validation import check_matrix, check_vector

__all__ = ["relative_l2", "relative_linf", "conservation_error"]


def relative_l2(F, F_hat):
    """Relative L2 error of each reconstructed field, |f_hat - f|_2 / |f|_2.

    Parameters
    ----------
    F : array-like of shape (n_samples, n_cells)
        True fields.
    F_hat : array-like of shape (n_samples, n_cells)
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
    Paper, Eq. (recon_errors), e_2.

    Examples
    --------
    >>> relative_l2([[3.0, 4.0]], [[3.0, 3.0]])
    array([0.2])
    """
    return _by_blocks(F, F_hat, _relative_l2)


def relative_linf(F, F_hat):
    """Relative maximum error of each reconstructed field, |f_hat - f|_inf / |f|_inf.

    Parameters
    ----------
    F : array-like of shape (n_samples, n_cells)
        True fields.
    F_hat : array-like of shape (n_samples, n_cells)
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
    >>> relative_linf([[2.0, 4.0]], [[3.0, 4.0]])
    array([0.25])
    """
    return _by_blocks(F, F_hat, _relative_linf)


def conservation_error(F, F_hat, *, invariants="mass"):
    """Absolute error of the invariants of each reconstructed field, max_j |C_j.f_hat - C_j.f|.

    Parameters
    ----------
    F : array-like of shape (n_samples, n_cells)
        True fields.
    F_hat : array-like of shape (n_samples, n_cells)
        Reconstructed fields.
    invariants : "mass" or array-like of shape (n_cells,) or (n_cells, n_invariants)
        The matrix C; "mass" is one column of ones. For a decoder with weights or invariants of its own
        give its `invariant_matrix_`.

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
    >>> conservation_error([[0.25, 0.75]], [[0.5, 0.75]])
    array([0.25])
    """
    if isinstance(invariants, str):
        if invariants != "mass":
            raise ValueError(f"invariants must be 'mass' or an array, got {invariants!r}")
        return _by_blocks(F, F_hat, _mass_error)
    if np.ndim(invariants) == 1:
        C = check_vector(invariants, "invariants")[:, None]
    else:
        C = check_matrix(invariants, "invariants")
    n_cells = np.shape(F)[-1]
    if C.shape[0] != n_cells:
        raise ValueError(f"invariants must have a row for each of {n_cells} cells, got shape {C.shape}")
    return _by_blocks(F, F_hat, lambda F, F_hat: abs(F_hat @ C - F @ C).max(axis=1))


def unchecked_errors(F, F_hat):
    """Relative L2 and maximum error and error of the mass, (3, n), of finite arrays of one shape."""
    return np.array([_relative_l2(F, F_hat), _relative_linf(F, F_hat), _mass_error(F, F_hat)])


def _relative_l2(F, F_hat):
    return _relative(*_norms(F, F_hat, lambda X: np.sqrt(np.einsum("ij,ij->i", X, X))))


def _relative_linf(F, F_hat):
    return _relative(*_norms(F, F_hat, lambda X: abs(np.maximum(X.max(axis=1), -X.min(axis=1)))))


def _mass_error(F, F_hat):
    return abs(F_hat.sum(axis=1) - F.sum(axis=1))


def _by_blocks(F, F_hat, errors):
    """errors(F, F_hat) of checked pairs; of large memory-mapped arrays block by block."""
    if not (is_large(F) or is_large(F_hat)):
        return errors(*_check_pair(F, F_hat))
    pair = [Snapshots(X, name) if is_large(X) else check_matrix(X, name) for X, name in ((F, "F"), (F_hat, "F_hat"))]
    _check_shapes(*pair)
    n, M = pair[0].shape
    return np.concatenate([errors(*(X[a:b] for X in pair)) for a, b in steps(n, block_rows(M), "errors")])


def _check_pair(F, F_hat):
    F, F_hat = check_matrix(F, "F"), check_matrix(F_hat, "F_hat")
    _check_shapes(F, F_hat)
    return F, F_hat


def _check_shapes(F, F_hat):
    if F.shape != F_hat.shape:
        raise ValueError(f"F and F_hat must have the same shape, got {F.shape} and {F_hat.shape}")


def _norms(F, F_hat, norm):
    """Norms of the rows of F_hat - F and of F, up to a common factor a row.

    Rows whose squares may over- or underflow are first multiplied by a power of two.
    """
    with np.errstate(over="ignore", under="ignore"):
        error, size = norm(F_hat - F), norm(F)
    unsafe = np.flatnonzero(~((size > 1e-140) & (size < 1e140) & (error < 1e140)))
    if len(unsafe):
        F, F_hat = F[unsafe], F_hat[unsafe]
        exponent = np.frexp(np.maximum(abs(F).max(axis=1), abs(F_hat).max(axis=1)))[1]
        scale = np.ldexp(1.0, np.clip(-exponent, -1000, 1000))[:, None]
        error[unsafe], size[unsafe] = norm(F_hat * scale - F * scale), norm(F * scale)
    return error, size


def _relative(error, size):
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(error == 0, 0.0, error / size)
