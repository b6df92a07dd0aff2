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

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._linalg.gram import cholesky_solve, gram_is_accurate, gram_norm
from randsmap._linalg.products import remove_span, symmetric_eigen, without_span
from randsmap._linalg.rows import BLOCK
from randsmap._linalg.spectral import HatMatrix, held_out
from randsmap._linalg.svd import pivoted_cholesky
from randsmap._parallel import blas_threads

_EPS, _TINY = np.finfo(float).eps, np.finfo(float).tiny
_Values = NDArray[np.float64]


class Dual:
    """Solutions for any fields and lambda: by Cholesky where it is accurate, otherwise by the eigenvalues of J K J.

    K (n, n) is the kernel at the samples; without T its upper triangle is enough for Cholesky. T (n, t), t >= 0, are
    the unpenalised columns there; those that depend on others by round-off count as dependent.
    """

    def __init__(self, K: _Values, T: _Values) -> None:
        self.K, self._T = K, T
        self._is_linear = T.shape[1] > 1
        self.Q, self._from_basis = _basis_of(T)

    @cached_property
    def smallest(self) -> float:
        """lambda below which it counts as 0: the round-off of a kernel that is nearly constant."""
        return 10 * _EPS * float(np.linalg.norm(self.K))

    @cached_property
    def _basis_K(self):
        """Q^T K: of T^+ K, whose rows are as long as T is nearly dependent, C would show the round-off."""
        return self.Q.T @ self.K

    _norm = cached_property(lambda self: gram_norm(self.K))

    def _inner(self):
        """J K J, with the tail's space set apart: its eigenvalue is above all others."""
        inner = without_span(self.Q, self.K)
        if self.Q.size:
            # the norm of K, since J K J may be round-off
            inner += (2 * float(np.linalg.norm(self.K)) or 1.0) * (self.Q @ self.Q.T)
        return inner

    def solve(self, H: _Values, regularization: float) -> tuple[_Values, str]:
        """Fields H (n, M) become the kernel's coefficients C, in place; the tail's b (t, M), and the solver's name."""
        with blas_threads():
            inside = self.Q.T @ H
            remove_span(self.Q, H)
            if self._is_linear:  # many eigenvalues, which would take ten times as long as Cholesky
                accurate = regularization > self.smallest
            else:
                accurate = gram_is_accurate(self._norm, regularization)
            solved = accurate and cholesky_solve(without_span(self.Q, self.K), H, regularization)
            if not solved:
                self._solve_by_modes(H, regularization)
            remove_span(self.Q, H)
            b = self._from_basis @ (inside - self._basis_K @ H)
        return b, "cholesky" if solved else "eigenvalues"

    def weights(self, k: _Values, t: _Values, regularization: float) -> _Values:
        """Weights W (L, n) of the fields in those decoded where the kernel is k (L, n) and the tail t (L, m)."""
        with blas_threads():
            s = t @ self._from_basis
            H = np.ascontiguousarray((k - s @ self._basis_K).T)
            self.solve(H, regularization)
            return s @ self.Q.T + H.T

    @cached_property
    def modes(self) -> tuple[_Values, _Values, float]:
        """Eigenvalues above round-off, in descending order, and eigenvectors (n, r) of J K J; the round-off."""
        K, Q = self.K, self.Q
        if not K.diagonal().max(initial=0) > 0:  # a thin-plate spline: K is definite only without T
            K, Q = without_span(Q, K), Q[:, :0]
        eigenvalues, V = pivoted_cholesky(K, Q) if K.any() else (np.zeros(0), np.zeros((len(K), 0)))
        # round-off of the square roots of the eigenvalues, and of K
        floor = len(V) * _EPS * max(eigenvalues.max(initial=0), len(V) * _EPS * abs(K.diagonal()).max(initial=0))
        if self._is_linear:
            floor = max(floor, self.smallest / 10)
        kept = eigenvalues > floor
        return eigenvalues[kept], np.ascontiguousarray(V[:, kept]), floor

    def _solve_by_modes(self, H, regularization):
        eigenvalues, V, floor = self.modes
        size = max(1, BLOCK // max(1, len(H)))  # so that a block takes some MB
        for start in range(0, H.shape[1], size):
            cells = slice(start, start + size)
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
        eigenvalues, V, _ = self.modes
        return HatMatrix.with_tail(self.Q, V, eigenvalues, self._missed_without)

    def complete_hat(self) -> HatMatrix:
        """`hat` with the eigenvalues that are round-off, as 0 where they are below it: for any lambda > 0."""
        with blas_threads():
            eigenvalues, V = symmetric_eigen(self._inner(), overwrite=True)
        rank = self.Q.shape[1]
        n = len(V) - rank  # the last eigenvalues belong to the linear trend
        U = np.ascontiguousarray(np.hstack([self.Q, V[:, :n]]))
        squares = np.concatenate([np.full(rank, np.inf), np.maximum(eigenvalues[:n], 0)])
        return HatMatrix(U, squares, refit=self._missed_without)

    def residuals(self, F: _Values, regularization: float, groups: Sequence[NDArray[np.intp]] | None = None) -> _Values:
        """As `HatMatrix.residuals`, for one lambda: r_i / B_ii, or B_gg^-1 r_g, of r = B F."""
        root = self._inverse_root(regularization)
        with blas_threads():
            r, weight = root @ (root.T @ F), np.einsum("ij,ij->i", root, root)
            refit = partial(self._missed_without, F, regularization=regularization)
            scale = max(float(weight.max()), 1 / (float(np.linalg.norm(self.K)) + regularization))
            return held_out(r, weight, scale, lambda g: root[g] @ root[g].T, groups, refit)

    def _missed_without(self, F, held, regularization):
        """Residuals of the fields F[held] of a fit to the others, whose linear trend has their centre."""
        rest, T, K = np.delete(np.arange(len(F)), held), self._T.copy(), self.K
        T[:, 1:] -= T[rest, 1:].mean(axis=0)
        W = Dual(K[np.ix_(rest, rest)], T[rest]).weights(K[np.ix_(held, rest)], T[held], regularization)
        return F[held] - W @ F[rest]

    def _inverse_root(self, regularization):
        """S with S S^T = B(lambda): by Cholesky, or the eigenvectors of J K J where that fails or lambda is 0."""
        failed = True
        with blas_threads():
            if regularization:
                shifted = self._inner()
                shifted.flat[:: len(shifted) + 1] += regularization
                factor, failed = scipy.linalg.lapack.dpotrf(shifted.T, lower=1, overwrite_a=1)
            if failed:
                eigenvalues, V = symmetric_eigen(without_span(self.Q, self.K), overwrite=True)
                floor = 0.0 if regularization else max(len(V) * _EPS * eigenvalues[-1], self.smallest / 10)
                root = np.ascontiguousarray(V / np.sqrt(np.maximum(eigenvalues, floor) + regularization))
            else:
                root = np.triu(scipy.linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)[0].T)
            remove_span(self.Q, root)
        return root

    def leverage(self, regularization: float) -> tuple[Callable[..., _Values], _Values | None, _Values, bool]:
        """The leverage h = |w|^2 + v / lambda, v = k(y, y) - 2 k^T w + w^T K w; for lambda up to `smallest` v alone. A
        function of the kernel k (L, n) between points and the training points, the tail t (L, m) and k(y, y); h (n,) at
        the training points, 1 - lambda B_ii, None for v alone; h (n,) were each of them none; whether it is v alone."""
        if not regularization > self.smallest:
            regularization = 0.0
        root = self._inverse_root(regularization)

        def values(k: _Values, t: _Values, k_yy: float) -> _Values:
            with blas_threads():
                s = t @ self._from_basis
                w = s @ self.Q.T + ((k - s @ self._basis_K) @ root) @ root.T
                variance = np.maximum(k_yy + np.einsum("ij,ij->i", w @ self.K - 2 * k, w), 0)
            return np.einsum("ij,ij->i", w, w) + variance / regularization if regularization else variance

        diagonal = np.einsum("ij,ij->i", root, root)
        safe = np.maximum(diagonal, _TINY)
        if not regularization:
            return values, None, 1 / safe, True
        training = np.maximum(1 - regularization * diagonal, 0)
        return values, training, training / (regularization * safe), False


def _basis_of(T):
    """Orthonormal columns Q (n, r) that span those of T (n, t), and X (t, r): T^+ = X Q^T, of least norm."""
    n, t = T.shape
    if not t:
        return np.zeros((n, 0)), np.zeros((0, 0))
    with blas_threads(1):
        U, sigma, Vt = scipy.linalg.svd(T, full_matrices=False, check_finite=False)
    kept = sigma > max(T.shape) * _EPS * sigma[0]
    return np.ascontiguousarray(U[:, kept]), Vt[kept].T / sigma[kept]
