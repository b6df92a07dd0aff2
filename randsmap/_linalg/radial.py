"""Smoothing with a radial kernel and an unpenalised polynomial tail: f(y) = T(y) b + k(y) C.

C and b solve [K + lambda I, T; T^T, 0] [C; b] = [F; 0], which is kriging with an unknown trend (the kernel a
covariance) and the smoothing spline (thin plate). With T = Q1 R and Q = [Q1 | Q2] orthogonal the kernel's part is

    C = B(lambda) F,    B(lambda) = Q2 (Q2^T K Q2 + lambda I)^-1 Q2^T,

and the residual at the points is lambda B F. One eigendecomposition of Q2^T K Q2 serves every lambda.

References
----------
G. Wahba, Spline models for observational data, SIAM (1990), Sec. 1.3 and 4.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._kernels import distances as _kernels
from randsmap._kernels import frozen as _frozen
from randsmap._linalg.distances import fill_pairs
from randsmap._linalg.eigen import symmetric_eigen
from randsmap._parallel import blas_threads

__all__ = [
    "Gaussian",
    "Matern",
    "PATH",
    "TailSolver",
    "TailProjection",
    "TailSpectrum",
    "ThinPlate",
    "held_out_once",
    "polynomial_tail",
    "smallest_regularization",
    "tail_spectrum",
]

_EPS = np.finfo(float).eps
_Values = NDArray[np.float64]
PATH: _Values = np.power(10.0, np.arange(-12, 3, dtype=np.float64))  # lambda over the largest eigenvalue


class _Radial:
    """A kernel g(scale |x - z|^2), by the number that `_kernels.distances` has for g."""

    def __init__(self, kernel: int, scale: float) -> None:
        self._kernel, self.scale = kernel, scale

    def values(self, X: _Values, Z: _Values | None = None) -> _Values:
        """The kernel between points X and Z (None: X)."""
        out = np.empty((len(X), len(X if Z is None else Z)))
        return fill_pairs(X, Z, self.scale, out, self._kernel)

    def slopes(self, X: _Values, Z: _Values) -> _Values:
        """Twice the kernel's derivative in |x - z|^2; 0 where there is none, at the points themselves."""
        return fill_pairs(X, Z, self.scale, np.empty((len(X), len(Z))), self._kernel, slopes=True)

    def frozen(self) -> dict[str, Any]:
        """How an image of a frozen decoder names the kernel."""
        kernel = self._kernel if self.scale else _kernels.SQUARED_DISTANCE
        return {"kind": _frozen.RADIAL_KERNEL, "function": kernel, "scale": self.scale}


class Gaussian(_Radial):
    """exp(-scale |x - z|^2)."""

    def __init__(self, scale: float) -> None:
        super().__init__(_kernels.GAUSSIAN, scale)


class Matern(_Radial):
    """The Matern kernel of smoothness nu = 0.5, 1.5 or 2.5 between points in units of the length scale.

    With s = sqrt(2 nu) |x - z|: exp(-s), (1 + s) exp(-s), (1 + s + s^2 / 3) exp(-s).
    """

    def __init__(self, nu: float) -> None:
        super().__init__({0.5: _kernels.MATERN_12, 1.5: _kernels.MATERN_32, 2.5: _kernels.MATERN_52}[nu], 2 * nu)


class ThinPlate(_Radial):
    """The thin-plate spline |x - z|^2 log |x - z|: conditionally positive definite, for tails of degree 1."""

    def __init__(self) -> None:
        super().__init__(_kernels.THIN_PLATE, 1.0)


def polynomial_tail(X: _Values, degree: int) -> _Values:
    """The tail's functions [1] or [1 | x] at points X (n, d)."""
    return np.ones((len(X), 1)) if degree == 0 else np.column_stack([np.ones(len(X)), X])


class TailProjection:
    """The orthogonal splitting [Q1 | Q2] by the tail's functions T (n, m) at the points.

    Columns of T that depend on others by round-off count as dependent.
    """

    def __init__(self, T: _Values) -> None:
        with blas_threads(1):
            (reflectors, tau), R, order = scipy.linalg.qr(T, mode="raw", pivoting=True, check_finite=False)
        R = np.triu(R[: T.shape[1]])
        diagonal = np.abs(np.diag(R))
        self.rank = int(np.count_nonzero(diagonal > max(T.shape) * _EPS * diagonal[0]))
        self._reflectors = np.asfortranarray(reflectors[:, : self.rank])
        self._tau, self._triangle, self._order = tau[: self.rank], R[: self.rank], order

    def rotated(self, B: _Values, transpose: bool = True) -> _Values:
        """Q^T B, or Q B."""
        out, _, info = scipy.linalg.lapack.dormqr(
            "L", "T" if transpose else "N", self._reflectors, self._tau, np.asfortranarray(B), max(64 * B.shape[1], 64)
        )
        if info:
            raise np.linalg.LinAlgError(f"dormqr: argument {-info}")
        return out

    def within(self, K: _Values) -> _Values:
        """Q2^T K Q2 of a symmetric K."""
        half = self.rotated(K)
        return self.rotated(np.ascontiguousarray(half.T))[self.rank :, self.rank :]

    def lifted(self, B: _Values) -> _Values:
        """Q2 B."""
        return self.rotated(np.vstack([np.zeros((self.rank, B.shape[1])), B]), transpose=False)

    def tail(self, rest: _Values) -> _Values:
        """The coefficients b (m, M) of least norm for which T b = rest in the span of T."""
        b = np.empty((len(self._order), rest.shape[1]))
        b[self._order] = np.linalg.lstsq(self._triangle, self.rotated(rest)[: self.rank], rcond=None)[0]
        return b


def smallest_regularization(K: _Values) -> float:
    """lambda below which the round-off of a kernel K that is nearly constant counts: 10 eps |K|_F."""
    return 10 * _EPS * float(np.linalg.norm(K))


class TailSpectrum:
    """B(lambda) for all lambda, by the eigenvalues (n - rank,) and eigenvectors of Q2^T K Q2.

    Parameters
    ----------
    K : ndarray (n, n)
        The kernel at the points.
    T : ndarray (n, m)
        The tail's functions there.
    F : ndarray (n, r)
        The fields, or coordinates of them.
    """

    def __init__(self, K: _Values, T: _Values, F: _Values) -> None:
        projection = TailProjection(T)
        with blas_threads():
            inner = projection.within(K)
            inner += inner.T
            inner *= 0.5
            eigenvalues, V = symmetric_eigen(inner, overwrite=True)
            self._modes = np.ascontiguousarray(projection.lifted(V))
            self._projected = self._modes.T @ F
        self._set(np.maximum(eigenvalues, 0), smallest_regularization(K))

    _values: Sequence[float] = tuple(PATH)

    def _set(self, eigenvalues, smallest):
        self.eigenvalues: _Values = eigenvalues
        self.largest: float = float(eigenvalues.max(initial=0))
        self.smallest: float = smallest

    @classmethod
    def of_features(cls, Phi: _Values, F: _Values) -> TailSpectrum:
        """That of K = Phi Phi^T and the constant, by the singular values of Phi (n, P): also of small lambda."""
        self = cls.__new__(cls)
        projection = TailProjection(np.ones((len(Phi), 1)))
        inner = projection.rotated(Phi)[1:]
        with blas_threads():
            if inner.shape[1] > len(inner):
                inner = scipy.linalg.qr(inner.T, mode="r", check_finite=False)[0][: len(inner)].T
            U, sigma, _ = scipy.linalg.svd(inner, check_finite=False)
            self._modes = np.ascontiguousarray(projection.lifted(U))
            self._projected = self._modes.T @ F
        eigenvalues = np.zeros(len(U))
        eigenvalues[: len(sigma)] = sigma**2
        self._set(eigenvalues, 0.0)
        self._values = (0.01 * PATH[0], 0.1 * PATH[0], *PATH)
        return self

    def path(self) -> Iterator[tuple[float, float]]:
        """`PATH`, and lambda, as far as it is felt: the smallest is where round-off begins."""
        for value in self._values:
            if value == PATH[-1] or value * self.largest >= self.smallest:
                yield value, max(value * self.largest, self.smallest)

    def _inverse(self, regularization):
        return 1 / np.maximum(self.eigenvalues + regularization, np.finfo(float).tiny)

    def held_out(self, regularization: float, groups: Sequence[NDArray[np.intp]] | None = None) -> _Values:
        """What the fields decoded without the sample, or without its whole group, miss (n, r).

        With r = B F that is r_i / B_ii, and B_gg^-1 r_g for a group g: leave-one-out as for the hat matrix I -
        lambda B (Wahba 1990, Sec. 4.2), which is exact with the tail's coefficients fitted anew.
        """
        w = self._inverse(regularization)
        with blas_threads():
            r = self._modes @ (w[:, None] * self._projected)
            if groups is None:
                return r / ((self._modes**2) @ w)[:, None]
            for g in groups:
                block = (self._modes[g] * w) @ self._modes[g].T
                try:
                    r[g] = np.linalg.solve(block, r[g])
                except np.linalg.LinAlgError:
                    r[g] = np.linalg.lstsq(block, r[g], rcond=None)[0]
        return r


def _smallest_kept(eigenvalues: _Values, smallest: float) -> float:
    """Below it the eigenvalues of Q2^T K Q2 are round-off."""
    return max(len(eigenvalues) * _EPS * eigenvalues.max(initial=0), smallest / 10)


def tail_spectrum(K: _Values, T: _Values) -> tuple[_Values, _Values, float]:
    """Eigenvectors (n, r) of [T | K] as a regression, eigenvalues (r,), those of the tail infinite, and error angle.

    U diag(s / (s + lambda)) U^T = I - lambda B(lambda) is its hat matrix.
    """
    projection = TailProjection(T)
    with blas_threads():
        inner = projection.within(K)
        inner += inner.T
        inner *= 0.5
        eigenvalues, V = symmetric_eigen(inner, overwrite=True)
        smallest = _smallest_kept(eigenvalues, smallest_regularization(K))
        kept = np.flatnonzero(eigenvalues > smallest)[::-1]
        Q1 = projection.rotated(np.eye(len(K), projection.rank), transpose=False)
        U = np.ascontiguousarray(np.hstack([Q1, projection.lifted(V[:, kept])]))
    angle = smallest / eigenvalues[kept[-1]] if len(kept) else 0.0
    return U, np.concatenate([np.full(projection.rank, np.inf), eigenvalues[kept]]), float(angle)


class TailSolver:
    """Coefficients of a kernel K (n, n) and a tail T (n, m) for any fields, from one factorisation.

    Cholesky where lambda > 10 eps |K|_F and the factorisation holds, otherwise eigenvalues, without those that are
    round-off: lambda_i + lambda <= eps max(n lambda_1, |K|_F). `name` says which.
    """

    def __init__(self, K: _Values, T: _Values, regularization: float) -> None:
        self._K, self._regularization, self._projection = K, regularization, TailProjection(T)
        with blas_threads():
            inner = self._projection.within(K)
            inner += inner.T
            inner *= 0.5
            n, smallest = len(inner), smallest_regularization(K)
            self.name, self._factor = "cholesky", None
            if regularization > smallest:
                shifted = inner.copy(order="F")
                shifted.flat[:: n + 1] += regularization
                with contextlib.suppress(np.linalg.LinAlgError):
                    self._factor = scipy.linalg.cho_factor(shifted, overwrite_a=True, check_finite=False)
            if self._factor is None:
                self.name = "eigenvalues"
                eigenvalues, V = symmetric_eigen(inner, overwrite=True)
                kept = eigenvalues + regularization > _smallest_kept(eigenvalues, smallest)
                self._modes, self._damped = V[:, kept], (eigenvalues[kept] + regularization)[:, None]

    def solve(self, F: _Values) -> tuple[_Values, _Values]:
        """Coefficients C (n, M) of the kernel and b (m, M) of the tail for fields F (n, M)."""
        projection = self._projection
        with blas_threads():
            rest = projection.rotated(F)[projection.rank :]
            if self._factor is not None:
                C = scipy.linalg.cho_solve(self._factor, rest, check_finite=False)
            else:
                C = self._modes @ ((self._modes.T @ rest) / self._damped)
            C = projection.lifted(C)
            return C, projection.tail(F - self._K @ C - self._regularization * C)


def held_out_once(
    K: _Values, T: _Values, F: _Values, regularization: float, groups: Sequence[NDArray[np.intp]] | None = None
) -> _Values:
    """`TailSpectrum.held_out` for one lambda, by a Cholesky factorisation where that holds."""
    projection = TailProjection(T)
    with blas_threads():
        inner = projection.within(K)
        inner += inner.T
        inner *= 0.5
        inner = np.asfortranarray(inner)
        inner.flat[:: len(inner) + 1] += regularization
        factor, failed = scipy.linalg.lapack.dpotrf(inner, lower=1, overwrite_a=1)
        if failed:
            return TailSpectrum(K, T, F).held_out(regularization, groups)
        inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
        inverse = np.tril(inverse)
        inverse += np.tril(inverse, -1).T
        B = projection.lifted(np.ascontiguousarray(projection.lifted(inverse).T))
        r = B @ F
        if groups is None:
            return r / np.diag(B)[:, None]
        for g in groups:
            r[g] = np.linalg.lstsq(B[np.ix_(g, g)], r[g], rcond=None)[0]
        return r
