"""Leverage of points in ridge regression: what a unit of noise in the fields, and what was never seen, do there.

For features, h(y) = psi(y)^T (Psi^T Psi + lambda I)^-1 psi(y): with an unpenalised bias psi = phi - mean(phi), and 1/n
more. The same number, by the weights w(y) of the training points in the prediction, is

    h(y) = |w|^2 + |psi(y) - Psi^T w|^2 / lambda,

a sum of squares that w minimises, so that its errors enter squared; with a kernel for the features' products the second
term is the variance of kriging, k(y, y) - 2 k(y)^T w + w^T K w.

References
----------
C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, MIT Press (2006), Sec. 2.2 and 2.7 (the
variance, with explicit basis functions). D. A. Belsley, E. Kuh and R. E. Welsch, Regression Diagnostics, Wiley (1980).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._linalg.eigen import symmetric_eigen
from randsmap._linalg.radial import TailProjection, smallest_regularization
from randsmap._linalg.ridge import FeatureRows, damped_triangle, triangle
from randsmap._parallel import blas_threads

__all__ = ["KernelLeverage", "RidgeLeverage"]

_EPS = np.finfo(float).eps
_ROWS = 1024  # points at a time
_Values = NDArray[np.float64]


class RidgeLeverage:
    """h = offset + |psi W|^2 + |psi - psi Q Q^T|^2 / lambda, from orthogonal factorisations: no Gram matrix.

    Parameters
    ----------
    W : ndarray (w, r)
        W W^T is the inverse of Psi^T Psi + lambda I, or its part in the span of Q.
    mean : ndarray (w,) or None
        What is taken off the features, which then have no bias.
    offset : float
        1/n with a mean, otherwise 0.
    Q : ndarray (w, r) or None
        Orthonormal columns that span the rows of Psi, where these are fewer than its columns.
    regularization : float
        lambda, read beside Q.
    """

    def __init__(
        self, W: _Values, mean: Any = None, offset: float = 0.0, Q: Any = None, regularization: float = 0.0
    ) -> None:
        self.W, self.mean, self.offset, self._Q, self._regularization = W, mean, offset, Q, regularization

    @classmethod
    def of_rows(cls, rows: FeatureRows, regularization: float) -> RidgeLeverage:
        """Of all rows of the features, without bias where that is not penalised.

        Where lambda is 0, or not felt by Psi to round-off, (Psi^T Psi)^+ takes the inverse's place, which belongs to
        the minimum-norm solution.
        """
        if not rows.bias:
            rows.centre()
        offset, Q = 0.0 if rows.bias else 1 / rows.n, None
        with blas_threads():
            if rows.n >= rows.width:
                R = triangle(rows)
            else:
                Q, R = scipy.linalg.qr(rows.whole().T, mode="economic", overwrite_a=True, check_finite=False)
                R = scipy.linalg.qr(R.T, mode="r", overwrite_a=True, check_finite=False)[0]
            if np.sqrt(regularization) > max(rows.n, rows.width) * _EPS * np.linalg.norm(R):
                W = scipy.linalg.lapack.dtrtri(damped_triangle(R, regularization))[0]
            else:
                _, sigma, Vt = scipy.linalg.svd(R, full_matrices=False, check_finite=False)
                kept = sigma > max(rows.n, rows.width) * _EPS * sigma[0]
                W, regularization = (Vt[kept] / sigma[kept, None]).T, 0.0
            if Q is not None:
                W = Q @ W
        return cls(np.ascontiguousarray(W), rows.mean, offset, Q if regularization else None, regularization)

    @classmethod
    def of_gram(cls, G: _Values, regularization: float, mean: Any, offset: float) -> RidgeLeverage:
        """Of Psi^T Psi (upper triangle), which may be overwritten; less what is round-off in it."""
        with blas_threads():
            eigenvalues, V = symmetric_eigen(G, lower=False, overwrite=True)
            shifted = np.maximum(eigenvalues, 0) + regularization
            kept = shifted > len(G) * _EPS * max(eigenvalues[-1], np.finfo(float).tiny)
            return cls(np.ascontiguousarray(V[:, kept] / np.sqrt(shifted[kept])), mean, offset)

    def values(self, features: Any, X: _Values) -> _Values:
        """h (L,) at points X (L, d)."""
        return self._in_blocks(self._values, features, X)

    def _values(self, Psi):
        with blas_threads():
            h = self.offset + _squares(Psi @ self.W)
            if self._Q is None:
                return h
            return h + _squares(Psi - (Psi @ self._Q) @ self._Q.T) / self._regularization

    def sizes(self, features: Any, X: _Values) -> _Values:
        """|psi|^2 (L,) at points X (L, d): over lambda, h without any training point."""
        return self._in_blocks(_squares, features, X)

    def _in_blocks(self, function, features, X):
        rows = FeatureRows(features, X, bias=self.mean is None)
        rows.mean = self.mean
        out = np.empty(len(X))
        for a in range(0, len(X), _ROWS):
            b = min(a + _ROWS, len(X))
            Psi = np.empty((b - a, rows.width))
            rows.fill(a, b, Psi)
            out[a:b] = function(Psi)
        return out


class KernelLeverage:
    """h = |w|^2 + (k(y, y) - 2 k^T w + w^T K w) / lambda for kernel regression with an unpenalised tail.

    Where lambda is 0 or too small to be felt (see `smallest_regularization`), the variance alone, not over lambda.

    Parameters
    ----------
    K : ndarray (n, n)
        The kernel at the training points.
    T : ndarray (n, m)
        The tail's functions there; m may be 0.
    regularization : float

    Attributes
    ----------
    training : ndarray (n,) or None
        h at the training points, 1 - lambda B_ii (see `radial`); None where lambda is not felt.
    held_out : ndarray (n,)
        h at each training point if it were none.
    variance : bool
        Whether h is the variance alone.
    """

    def __init__(self, K: _Values, T: _Values, regularization: float) -> None:
        self._K, n = K, len(K)
        projection = TailProjection(T) if T.shape[1] else None
        rank = 0 if projection is None else projection.rank
        smallest = smallest_regularization(K)
        self.variance = not regularization > smallest
        self._regularization = 0.0 if self.variance else regularization
        with blas_threads():
            inner = K.copy() if projection is None else projection.within(K)
            inner += inner.T
            inner *= 0.5
            factor, failed = None, 1
            if not self.variance and len(inner):
                shifted = inner.copy(order="F")
                shifted.flat[:: len(inner) + 1] += regularization
                factor, failed = scipy.linalg.lapack.dpotrf(shifted, lower=1, overwrite_a=1)
            if not len(inner):
                root = np.zeros((n, 0))
            elif failed:
                eigenvalues, V = symmetric_eigen(inner, overwrite=True)
                floor = max(n * _EPS * eigenvalues[-1], smallest / 10) if self.variance else 0.0
                root = V / np.sqrt(np.maximum(eigenvalues, floor) + self._regularization)
            else:  # root root^T is the inverse of the inner matrix + lambda I
                root = scipy.linalg.lapack.dtrtri(factor, lower=1)[0].T
            if len(inner) and projection is not None:
                root = projection.lifted(root)
            self._root = np.ascontiguousarray(root)
            self._tail = np.linalg.pinv(T, rcond=max(T.shape) * _EPS) if rank else np.zeros((0, n))  # p = t tail
            self._tail_kernel = self._tail @ K
        diagonal = _squares(self._root)
        safe = np.maximum(diagonal, np.finfo(float).tiny)
        if self.variance:
            self.training, self.held_out = None, 1 / safe
        else:
            self.training = np.maximum(1 - regularization * diagonal, 0)
            self.held_out = self.training / (regularization * safe)

    def values(self, k: _Values, t: _Values, k_yy: float) -> _Values:
        """h (L,) from the kernel k (L, n) between the points and the training points, and the tail t (L, m)."""
        with blas_threads():
            if len(self._tail):
                w, rest = t @ self._tail, k - t @ self._tail_kernel
            else:
                w, rest = 0.0, k
            w = w + (rest @ self._root) @ self._root.T
            variance = np.maximum(k_yy + np.einsum("ij,ij->i", w @ self._K - 2 * k, w), 0)
        return variance if self.variance else _squares(w) + variance / self._regularization


def _squares(A: _Values) -> _Values:
    return np.einsum("ij,ij->i", A, A)
