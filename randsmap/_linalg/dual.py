"""Penalised regression in its dual form: a kernel K = Phi Phi^T at the samples, and unpenalised columns T.

f(y) = T(y) b + k(y) C, where C and b solve [K + lambda I, T; T^T, 0] [C; b] = [F; 0]: kernel ridge regression without
T, or with a constant; kriging with an unknown trend, and the smoothing spline, with T = [1 | y]. With the orthogonal
projection J on the complement of T's columns

    C = B(lambda) F,    B(lambda) = J (J K J + lambda I)^-1 J,

and the residual at the samples is lambda B F.

References
----------
G. Wahba, Spline models for observational data, SIAM (1990), Sec. 1.3 and 4.2. C. E. Rasmussen and C. K. I. Williams,
Gaussian Processes for Machine Learning, MIT Press (2006), Sec. 2.7 (the variance, with explicit basis functions).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from randsmap._linalg.cholesky import cholesky_solve, gram_is_accurate, gram_norm
from randsmap._linalg.products import cross, symmetric_eigen
from randsmap._linalg.rows import BLOCK
from randsmap._linalg.spectral import HatMatrix, solve_or_least_squares
from randsmap._linalg.svd import pivoted_cholesky
from randsmap._parallel import blas_threads

_EPS, _TINY = np.finfo(float).eps, np.finfo(float).tiny
_Values = NDArray[np.float64]


class Tail:
    """The unpenalised columns T (n, t), t >= 0. Columns that depend on others by round-off count as dependent."""

    def __init__(self, T: _Values) -> None:
        n, t = T.shape
        self.columns = T
        if not t:
            self.Q, self.inverse = np.zeros((n, 0)), np.zeros((0, n))
            return
        with blas_threads(1):
            Q, R, order = scipy.linalg.qr(T, mode="economic", pivoting=True, check_finite=False)
        diagonal = np.abs(np.diag(R))
        rank = int(np.count_nonzero(diagonal > max(T.shape) * _EPS * diagonal[0]))
        self.Q = np.ascontiguousarray(Q[:, :rank])
        self.inverse = np.empty((t, n))  # T^+, of least norm
        self.inverse[order] = np.linalg.lstsq(R[:rank], self.Q.T, rcond=None)[0]

    @property
    def rank(self) -> int:
        """Number of independent columns."""
        return self.Q.shape[1]

    def remove(self, B: _Values) -> None:
        """B (n, m), C-contiguous, becomes J B. Twice, for the round-off of the first subtraction."""
        for _ in range(2 if self.rank and B.size else 0):
            dgemm(-1.0, cross(self.Q, B).T, self.Q.T, beta=1.0, c=B.T, overwrite_c=True)

    def removed_from(self, K: _Values) -> _Values:
        """J K J of a symmetric K, a new array: K - Q R^T - R Q^T, R = K Q - Q (Q^T K Q) / 2."""
        inner = K.copy()
        if self.rank:
            R = K @ self.Q
            R -= self.Q @ (0.5 * (self.Q.T @ R))
            left, right = np.hstack([self.Q, R]), np.hstack([R, self.Q])
            dgemm(-1.0, right.T, left.T, trans_a=True, beta=1.0, c=inner.T, overwrite_c=True)
        return inner

    def set_apart(self, inner: _Values) -> None:
        """Add s Q Q^T to J K J in place: eigenvalues s of the tail's space, above all others."""
        if self.rank:
            inner += (2 * float(np.linalg.norm(inner)) or 1.0) * (self.Q @ self.Q.T)


def _column_blocks(B):
    """Slices of the columns of B (n, M), so that a block takes some MB."""
    size = max(1, BLOCK // max(1, len(B)))
    return [slice(start, start + size) for start in range(0, B.shape[1], size)]


class Dual:
    """Solutions for any fields and lambda: by Cholesky where it is accurate, otherwise by the eigenvalues of J K J.

    Parameters
    ----------
    K : ndarray (n, n)
        The kernel at the samples; for `cholesky` without T its upper triangle is enough.
    T : ndarray (n, t) or None
        The unpenalised columns there; None: none.
    uncentred : 0 or None
        As of `gram_norm`.

    """

    def __init__(self, K: _Values, T: _Values | None = None, *, uncentred: int | None = None) -> None:
        self.K, self.tail = K, Tail(np.zeros((len(K), 0)) if T is None else T)
        self._uncentred = uncentred
        self._norm: float | None = None
        self._modes: Any = None

    @cached_property
    def smallest(self) -> float:
        """lambda below which it counts as 0: the round-off of a kernel that is nearly constant."""
        return 10 * _EPS * float(np.linalg.norm(self.K))

    def cholesky_is_accurate(self, regularization: float) -> bool:
        """Whether `solve` uses Cholesky for this lambda, if the factorisation does not fail."""
        # kernels with a linear trend have many eigenvalues, which would take ten times as long as Cholesky
        if self.tail.columns.shape[1] > 1:
            return regularization > self.smallest
        if self._norm is None:
            self._norm = gram_norm(self.K, self._uncentred)
        return gram_is_accurate(self._norm, regularization)

    def cholesky(self, H: _Values, regularization: float, auto: bool = True) -> tuple[bool, float, int]:
        """H (n, M), of which J H is 0 or T has no columns, becomes (J K J + lambda I)^-1 H; see `cholesky_solve`."""
        return cholesky_solve(self.tail.removed_from(self.K), H, regularization, auto)

    def solve(self, H: _Values, regularization: float) -> tuple[_Values, str]:
        """Fields H (n, M) become the kernel's coefficients C, in place; the tail's b (t, M), and the solver's name."""
        tail = self.tail
        with blas_threads():
            b = tail.inverse @ H
            tail.remove(H)
            name = "eigenvalues"
            if self.cholesky_is_accurate(regularization) and self.cholesky(H, regularization)[0]:
                name = "cholesky"
            else:
                self._solve_by_modes(H, regularization)
            tail.remove(H)
            b -= (tail.inverse @ self.K) @ H
        return b, name

    def weights(self, k: _Values, t: _Values, regularization: float) -> _Values:
        """Weights W (L, n) of the fields in those decoded where the kernel is k (L, n) and the tail t (L, m)."""
        with blas_threads():
            W = t @ self.tail.inverse
            H = np.ascontiguousarray((k - W @ self.K).T)
            self.solve(H, regularization)
            W += H.T
        return W

    # -- All lambdas -----------------------------------------------------------------------------------
    def modes(self) -> tuple[_Values, _Values, float]:
        """Eigenvalues above round-off, in descending order, and eigenvectors (n, r) of J K J; the round-off."""
        if self._modes is None:
            K, tail = self.K, self.tail if self.tail.rank else None
            if not K.diagonal().max(initial=0) > 0:  # a thin-plate spline's, which is definite without T alone
                K, tail = self.tail.removed_from(K), None
            eigenvalues, V = pivoted_cholesky(K, tail) if K.any() else (np.zeros(0), np.zeros((len(K), 0)))
            # round-off of the roots of the eigenvalues, and of K itself
            floor = len(V) * _EPS * max(eigenvalues.max(initial=0), len(V) * _EPS * abs(K.diagonal()).max(initial=0))
            if self.tail.columns.shape[1] > 1:
                floor = max(floor, self.smallest / 10)
            kept = eigenvalues > floor
            self._modes = eigenvalues[kept], np.ascontiguousarray(V[:, kept]), floor
        return self._modes

    def _solve_by_modes(self, H, regularization):
        eigenvalues, V, floor = self.modes()
        for cells in _column_blocks(H):
            part = np.ascontiguousarray(H[:, cells])
            inside = V.T @ part
            C = V @ (inside / (eigenvalues + regularization)[:, None])
            if regularization > floor:  # else only round-off is left
                part -= V @ inside
                part -= V @ (V.T @ part)  # the round-off of the first subtraction
                C += part / regularization
            H[:, cells] = C

    def hat(self) -> HatMatrix:
        """The hat matrix of every lambda."""
        eigenvalues, V, floor = self.modes()
        angle = floor / eigenvalues[-1] if len(eigenvalues) else 0.0
        return HatMatrix.with_tail(self.tail.Q, V, eigenvalues, angle)

    def complete_hat(self) -> HatMatrix:
        """`hat` with the eigenvalues that are round-off, as 0 where they are below it: for any lambda > 0."""
        rank = self.tail.rank
        with blas_threads():
            inner = self.tail.removed_from(self.K)
            self.tail.set_apart(inner)
            eigenvalues, V = symmetric_eigen(inner, overwrite=True)
        n = len(V) - rank  # the last are those of the tail
        U = np.ascontiguousarray(np.hstack([self.tail.Q, V[:, :n]]))
        return HatMatrix(U, np.concatenate([np.full(rank, np.inf), np.maximum(eigenvalues[:n], 0)]))

    def residuals(self, F: _Values, regularization: float, groups: Sequence[NDArray[np.intp]] | None = None) -> _Values:
        """As `HatMatrix.residuals`, for one lambda: r_i / B_ii, or B_gg^-1 r_g, of r = B F."""
        root = self._inverse_root(regularization)
        if root is None:
            return self.complete_hat().residuals(F, regularization, groups)
        with blas_threads():
            r = root @ (root.T @ F)
            if groups is None:
                return r / np.einsum("ij,ij->i", root, root)[:, None]
            for g in groups:
                r[g] = solve_or_least_squares(root[g] @ root[g].T, r[g])
        return r

    def _inverse_root(self, regularization):
        """S with S S^T = B(lambda), by Cholesky; None if that fails."""
        with blas_threads():
            shifted = self.tail.removed_from(self.K)
            self.tail.set_apart(shifted)
            shifted.flat[:: len(shifted) + 1] += regularization
            factor, failed = scipy.linalg.lapack.dpotrf(shifted.T, lower=1, overwrite_a=1)
            if failed:
                return None
            root = np.triu(scipy.linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)[0].T)
            self.tail.remove(root)
        return root

    # -- Leverage --------------------------------------------------------------------------------------
    def leverage(self, regularization: float) -> KernelLeverage:
        """h = |w|^2 + (k(y, y) - 2 k^T w + w^T K w) / lambda; for lambda up to `smallest`, the bracket alone."""
        if not regularization > self.smallest:
            regularization = 0.0
        root = self._inverse_root(regularization) if regularization else None
        if root is None:
            with blas_threads():
                eigenvalues, V = symmetric_eigen(self.tail.removed_from(self.K), overwrite=True)
                floor = max(len(V) * _EPS * eigenvalues[-1], self.smallest / 10) if not regularization else 0.0
                root = np.ascontiguousarray(V / np.sqrt(np.maximum(eigenvalues, floor) + regularization))
                self.tail.remove(root)
        return KernelLeverage(self, root, regularization)


class KernelLeverage:
    """Leverage h at any point; `Dual.leverage` makes it.

    Attributes
    ----------
    training : ndarray (n,) or None
        h at the training points, 1 - lambda B_ii; None where lambda counts as 0.
    held_out : ndarray (n,)
        h at each training point if it were none.
    variance : bool
        Whether h is the variance alone.
    """

    def __init__(self, dual: Dual, root: _Values, regularization: float) -> None:
        self._K, self._root, self._regularization = dual.K, root, regularization
        self.variance = not regularization
        self._inverse = dual.tail.inverse
        with blas_threads():
            self._inverse_K = self._inverse @ self._K
        diagonal = np.einsum("ij,ij->i", root, root)
        safe = np.maximum(diagonal, _TINY)
        self.training: _Values | None = None
        if self.variance:
            self.held_out = 1 / safe
        else:
            self.training = np.maximum(1 - regularization * diagonal, 0)
            self.held_out = self.training / (regularization * safe)

    def values(self, k: _Values, t: _Values, k_yy: float) -> _Values:
        """h (L,) from the kernel k (L, n) between the points and the training points, and the tail t (L, m)."""
        with blas_threads():
            w = t @ self._inverse
            w += ((k - t @ self._inverse_K) @ self._root) @ self._root.T
            variance = np.maximum(k_yy + np.einsum("ij,ij->i", w @ self._K - 2 * k, w), 0)
        if self.variance:
            return variance
        return np.einsum("ij,ij->i", w, w) + variance / self._regularization
