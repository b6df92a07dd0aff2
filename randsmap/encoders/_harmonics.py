"""Which eigenvectors of diffusion maps are new directions, and which only repeat earlier ones.

Local linear regression of Dsilva, Talmon, Coifman and Kevrekidis, "Parsimonious representation of nonlinear dynamical
systems through manifold learning: A chemotaxis case study", Appl. Comput. Harmon. Anal. 44 (2018), 759-773.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 512  # rows of the regressions' weight matrix held at once
_Values = NDArray[np.float64]


def non_harmonic_selection(eigenvectors: _Values, n_components: int) -> tuple[NDArray[np.intp], _Values]:
    """Which n_components eigenvectors (n, n_candidates) have the largest `local_linear_residuals`, and the residuals.
    The indices are 1-based and ascending. Residuals above 1 (worse than predicting 0) count as 1; of equal ones the
    earlier eigenvector is selected."""
    residuals = local_linear_residuals(eigenvectors)
    return np.sort(np.argsort(-np.minimum(residuals, 1), kind="stable")[:n_components]) + 1, residuals


def local_linear_residuals(eigenvectors: _Values, *, max_samples: int = 2000) -> _Values:
    """Residual r_k of predicting each eigenvector from those before it by local linear regression.

    Eigenvector phi_k at point i is predicted by the linear function of Phi_{k-1} = (phi_1 ... phi_{k-1}) that fits
    the *other* points best, weighted with exp(-|Phi_{k-1}(i) - Phi_{k-1}(j)|^2 / eps^2), where eps is a third of
    the median distance of the Phi_{k-1}; r_k^2 is the sum of squared errors over the sum of phi_k^2, and r_1 = 1. It
    is near 0 for a harmonic and near 1 for a new direction. Dsilva et al. 2018, Eqs. (10)-(13).

    Of more points than max_samples, a subset is drawn with a fixed seed: the cost grows with their square.
    """
    if len(eigenvectors) > max_samples:
        chosen = np.random.default_rng(0).choice(len(eigenvectors), max_samples, replace=False)
        eigenvectors = eigenvectors[np.sort(chosen)]
    sizes = np.linalg.norm(eigenvectors, axis=0)
    if not sizes.all():
        raise ValueError(f"eigenvector {int(np.argmin(sizes)) + 1} is zero on the points used")

    residuals = np.ones(eigenvectors.shape[1])
    for k in range(1, len(residuals)):
        predicted = _leave_one_out_predictions(eigenvectors[:, :k], eigenvectors[:, k])
        residuals[k] = np.linalg.norm(eigenvectors[:, k] - predicted) / sizes[k]
    return residuals


def neighbor_residual(X: _Values, y: _Values) -> float:
    """Residual |y - prediction| / |y| of y (n,) from the nearest other rows of X (n, d), at most 1. As
    `local_linear_residuals`, but the weights are those of 3 d + 5 nearest neighbours, down to exp(-2) at the furthest:
    they resolve oscillations that weights of one width for all points do not. Dsilva et al. 2018, Eqs. (10)-(13)."""
    from scipy.spatial import cKDTree

    n, d = X.shape
    distances, rows = cKDTree(X).query(X, min(n, 3 * d + 6))
    own = rows == np.arange(n)[:, None]  # without the point itself, which may come after its copies
    own[~own.any(axis=1), -1] = True
    distances, rows = (values[~own].reshape(n, -1) for values in (distances, rows))
    reach = distances[:, -1:]
    W = np.exp(-2 * np.divide(distances, reach, out=np.zeros_like(distances), where=reach > 0) ** 2)
    a, b = np.triu_indices(d)
    terms = _plane_terms(X, y, a, b)
    blocks = [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
    moments = np.concatenate([np.einsum("ij,ijk->ik", W[block], terms[rows[block]]) for block in blocks])
    missed = np.linalg.norm(y - _weighted_planes(moments, X, a, b, y.mean()))
    return min(float(missed / np.linalg.norm(y)), 1.0)


def _plane_terms(X, y, a, b):
    """Products to be summed over the rows for a plane: 1, x_j, x_a x_b, y, x_j y."""
    return np.column_stack((np.ones(len(X)), X, X[:, a] * X[:, b], y, X * y[:, None]))


def _leave_one_out_predictions(X, y):
    """Local linear prediction of y (n,) at each row of X (n, d) from all the other rows."""
    from scipy.spatial.distance import cdist, pdist

    n, d = X.shape
    bandwidth = np.median(pdist(X)) / 3
    if bandwidth == 0:  # more than half of the points coincide: no regression is possible
        return np.full(n, y.mean())
    # the moments about each point come from moments about the origin, one product of matrices for many points
    a, b = np.triu_indices(d)
    terms = _plane_terms(X, y, a, b)
    predicted = np.empty(n)
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        W = cdist(X[rows], X, "sqeuclidean")
        W /= -(bandwidth**2)
        np.exp(W, out=W)
        W[np.arange(rows.stop - start), np.arange(start, rows.stop)] = 0  # not the point itself
        predicted[rows] = _weighted_planes(W @ terms, X[rows], a, b, y.mean())
    return predicted


def _weighted_planes(moments, centers, a, b, default):
    """Value at its centre of each weighted least-squares plane, from weighted sums of the terms."""
    (m, d), p = centers.shape, len(a)
    alone = moments[:, 0] < np.finfo(float).tiny
    means = moments / np.where(alone, 1.0, moments[:, 0])[:, None]
    mean, products, y_mean, xy = np.split(means, [1, 1 + d, 1 + d + p, 2 + d + p], axis=1)[1:]
    second = np.empty((m, d, d))
    second[:, a, b] = second[:, b, a] = products
    covariance = second - mean[:, :, None] * mean[:, None, :]
    # a ridge of the size of the rounding: points with too few neighbours for a plane stay solvable
    rounding = 64 * np.finfo(float).eps * np.trace(second, axis1=1, axis2=2) + np.finfo(float).tiny
    covariance[:, np.arange(d), np.arange(d)] += rounding[:, None]
    slope = np.linalg.solve(covariance, (xy - mean * y_mean)[:, :, None])[:, :, 0]
    value = y_mean[:, 0] + np.einsum("ij,ij->i", slope, centers - mean)
    return np.where(alone, default, value)
