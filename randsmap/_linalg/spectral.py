"""Ridge regression by orthogonal factorisations of Phi: no Gram matrix, so that the smallest lambda keeps its digits.

Round-off is amplified by |Phi| / sqrt(lambda), not by its square (A. Bjoerck, Numerical Methods for Least Squares
Problems, SIAM 1996, Sec. 2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from randsmap._linalg.gram import FeatureLeverage, Solution, with_bias
from randsmap._linalg.rows import centre, less_means
from randsmap._linalg.svd import triangle
from randsmap._parallel import blas_threads

_EPS, _TINY = np.finfo(float).eps, np.finfo(float).tiny
# Rows of Phi in a block of the QR factorisation, or as many as it has columns if that is more
_BLOCK = 2048
# Numbers in a block of rows of the hat matrix (16 MB)
_ENTRIES = 1 << 21
_Values = NDArray[np.float64]
_Refit = Callable[[_Values, NDArray[np.intp], float], _Values]
PATH: _Values = np.power(10.0, np.arange(-12, 3, dtype=np.float64))  # lambda over the largest eigenvalue


def lambda_path(largest: float, smallest: float | None = None) -> Iterator[tuple[float, float]]:
    """(value, lambda) for values of `PATH`, lambda = value * largest, the largest eigenvalue of a kernel. The path
    begins at `smallest`, below which lambda counts as the round-off of the kernel; None: eigenvalues are squares of
    singular values, which allow two more values, down to 1e-14."""
    values = PATH if smallest is not None else np.concatenate([[0.01 * PATH[0], 0.1 * PATH[0]], PATH])
    for value in values:
        if value == PATH[-1] or value * largest >= (smallest or 0.0):
            yield float(value), max(float(value) * largest, smallest or 0.0)


class Spectral:
    """argmin |F - Phi A|^2 + lambda |A|^2 from a triangle R: by QR of [R; sqrt(lambda) I], or the singular values of R.

    Singular values are used for each lambda with `always`; otherwise for lambda <= 10 eps |Phi|_F^2 alone, where the
    minimum-norm solution is wanted (paper Eq. 18, Eq. 20). Rows without a bias are less their mean.
    """

    def __init__(self, rows: Any, *, always: bool = False) -> None:
        self._rows, self._always = rows, always
        self._units: Any = None
        self._fields: Any = None  # the fields of the triangle
        self._field_mean: Any = None
        self._triangle: Any = None
        self._singular: Any = None

    def solve(self, F: Any, regularization: float, cut: float | None = None) -> Solution:
        """The solution for fields F (n, M), with solver "qr" or "svd".

        cut : singular values below this part of the largest are left out; None: round-off, at least max(n, P, 16) eps
        """
        if self._triangle is None or self._fields is not F:
            fields, self._field_mean = less_means(self._rows, F)
            self._fields, self._triangle, self._singular = F, self._triangular_system(fields), None
        R, QtF, basis = self._triangle
        with blas_threads():
            size = np.linalg.norm(R)
            by_qr = not self._always and regularization > 10 * _EPS * size**2 > 0
            if by_qr:
                A = _damped_solution(R, QtF, regularization)
            else:
                U, sigma, Vt = self._singular = self._singular or _svd(R)
                kept = sigma > (self._round_off(size) if cut is None else cut) * sigma[0]
                damped = 1 / (sigma[kept] + regularization / sigma[kept])  # sigma^2 might overflow
                A = Vt[kept].T @ (damped[:, None] * (U[:, kept].T @ QtF))
            A = A if basis is None else basis @ A
        A = A if self._field_mean is None else with_bias(A, self._rows.mean, self._field_mean)
        return Solution(A, "qr" if by_qr else "svd")

    def weights(self, Z: _Values, regularization: float) -> _Values:
        """Z A (L, n) for the coefficients A of the n unit fields, rows Z being less the mean of Phi."""
        if self._units is None:
            self._units = np.eye(self._rows.n)
        A = self.solve(self._units, regularization).coefficients
        with blas_threads():
            return Z @ (A if self._rows.bias else A[1:])

    def _round_off(self, size):
        """Relative round-off of singular values, for rows (with their mean) of Frobenius norm `size`."""
        rows = self._rows
        mean = 0.0 if rows.mean is None else np.sqrt(rows.total) * np.linalg.norm(rows.mean)
        return max(16, rows.n, rows.width) * _EPS * np.hypot(1.0, mean / max(size, _TINY))

    def _triangular_system(self, F=None):
        """R, Q^T F (None without fields), and orthonormal columns B with Phi = Q R B^T, or None for the identity."""
        rows = self._rows
        with blas_threads():
            if rows.n >= rows.width:
                return *_tall_triangle(rows, F), None
            return _wide_triangle(rows.whole(), None if F is None else F[:])

    def hat(self) -> HatMatrix:
        """The hat matrix of every lambda, without singular values that are round-off."""
        centre(self._rows)
        with blas_threads():
            A = self._rows.whole()
            if A.shape[1] > len(A):  # U belongs to the triangle
                A = scipy.linalg.qr(A.T, mode="r", overwrite_a=True, check_finite=False)[0][: len(A)].T
            U, sigma, _ = _svd(A)
        sigma = sigma[sigma > self._round_off(np.linalg.norm(sigma)) * sigma[0]]
        root = np.ones(len(U)) if self._rows.root is None else self._rows.root
        constant = np.full((len(U), int(not self._rows.bias)), self._rows.total**-0.5) * root[:, None]
        return HatMatrix.with_tail(constant, np.ascontiguousarray(U[:, : len(sigma)]), sigma**2)

    def leverage(self, regularization: float) -> FeatureLeverage:
        """Of all points; where lambda is 0 or below the round-off of Phi, that of the minimum-norm solution."""
        rows = self._rows
        centre(rows)
        R, _, basis = self._triangular_system()
        with blas_threads():
            size = np.linalg.norm(R)
            round_off = self._round_off(size)
            if np.sqrt(regularization) > round_off * size:
                W = lapack.dtrtri(np.triu(_damped_qr(R, regularization)[0]))[0]
            else:
                _, sigma, Vt = _svd(R)
                kept = sigma > round_off * sigma[0]
                W, regularization = (Vt[kept] / sigma[kept, None]).T, 0.0
            W = W if basis is None else basis @ W
        offset, Q = 0.0 if rows.bias else 1 / rows.total, basis if regularization else None
        return FeatureLeverage(np.ascontiguousarray(W), rows.mean, offset, Q, regularization)


def _tall_triangle(rows, F):
    """R (P, P) and Q^T F of Phi = Q R by blocks of rows, so that memory is that of P^2 + P M numbers."""
    size = max(_BLOCK, rows.width)
    if F is None:
        return triangle((block for _, _, block in rows.blocks(size)), rows.width), None
    R = G = None
    for start, stop, block in rows.blocks(size):
        stack = block if R is None else np.vstack([R, block])
        right = F[start:stop] if R is None else np.vstack([G, F[start:stop]])
        QtF, R = scipy.linalg.qr_multiply(stack, right.T, mode="right")
        G = QtF.T
    return R, G


def _wide_triangle(Phi, F):
    """R (n, n), Q^T F and B of a wide Phi = Q R B^T: it is reduced to its row space first."""
    B, L = scipy.linalg.qr(Phi.T, mode="economic", overwrite_a=True, check_finite=False)
    if F is None:
        return scipy.linalg.qr(L.T, mode="r", overwrite_a=True, check_finite=False)[0], None, B
    QtF, R = scipy.linalg.qr_multiply(L.T, F.T, mode="right")
    return R, QtF.T, B


def _svd(A):
    try:
        return scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:  # divide and conquer did not converge; QR iteration does
        return scipy.linalg.svd(A, full_matrices=False, check_finite=False, lapack_driver="gesvd")


def _damped_qr(R, regularization):
    p = len(R)
    below = np.sqrt(regularization) * np.eye(p, order="F")
    return lapack.dtpqrt(p, min(32, p), np.asfortranarray(R), below, overwrite_b=1)[:3]


def _damped_solution(R, C, regularization):
    """argmin |C - R X|^2 + lambda |X|^2 for an upper triangle R."""
    (R, below, T), C = _damped_qr(R, regularization), np.asfortranarray(C)
    C = lapack.dtpmqrt(len(R), below, T, C, np.zeros(C.shape, order="F"), trans="T", overwrite_b=1)[0]
    return np.ascontiguousarray(scipy.linalg.solve_triangular(R, C, check_finite=False))


class HatMatrix:
    """H = U diag(s / (s + lambda)) U^T for every lambda: the decoded fields at the training points are H F.

    U (n, r) has orthonormal columns; s (r,) are the squared singular values of Phi or eigenvalues of the kernel,
    infinite for what is not penalised. I - H is computed as (I - U U^T) + U diag(lambda / (s + lambda)) U^T.
    refit(F, held, lambda) gives what the fields F[held] of some rows miss if the others are fitted alone; None: by a
    regression on U sqrt(s), where the other rows determine the tail.
    """

    def __init__(self, U: _Values, squares: _Values, refit: _Refit | None = None) -> None:
        self.U, self.squares, self._refit = U, squares, refit or self._refitted
        self._fields: Any = None
        self._rest: Any = None
        self.uncertain: set[int] = set()  # rows that are determined by the others only up to amplified round-off

    @classmethod
    def with_tail(cls, Q: _Values, U: _Values, squares: _Values, refit: _Refit | None = None) -> HatMatrix:
        """The hat matrix of a regression with an unpenalised tail Q (orthonormal); U and s of Phi without it."""
        n, rank = Q.shape
        if not rank:
            return cls(U, squares, refit)
        with blas_threads():  # U is orthogonal to the tail only as far as its singular values reach
            both = np.hstack([Q, U[:, : n - rank]])
            U = np.ascontiguousarray(scipy.linalg.qr(both, mode="economic", check_finite=False)[0])
        return cls(U, np.concatenate([np.full(rank, np.inf), squares[: n - rank]]), refit)

    @property
    def largest(self) -> float:
        """The largest finite s, 0 if there is none."""
        return float(self.squares[np.isfinite(self.squares)].max(initial=0))

    @blas_threads()
    def distances(
        self, F: _Values, columns: NDArray[np.intp], regularizations: _Values, shifts: Any = None, normals: Any = None
    ) -> _Values:
        """Norms (n_lambdas, n) of `residuals` over some columns of F, less shifts[k] @ normals, for each lambda."""
        distances = np.zeros((len(regularizations), len(F)))
        step = max(16, _ENTRIES // len(F))
        for start in range(0, len(columns), step):
            cells = columns[start : start + step]
            part = F[:, cells]
            for k, value in enumerate(regularizations):
                E = self.residuals(part, value)
                if shifts is not None:
                    E -= shifts[k] @ normals[:, cells]
                distances[k] = np.hypot(distances[k], np.linalg.norm(E, axis=1))
        return distances

    @blas_threads()
    def residuals(
        self, F: _Values, regularization: float, groups: Sequence[NDArray[np.intp]] | None = None, least: float = 1e-8
    ) -> _Values:
        """Error (n, M) of the fields F (n, M) decoded without the sample, or without its whole group. With r = (I - H)
        F it is r_i / (1 - H_ii) (D. M. Allen, Technometrics 16, 1974), and (I - H)_gg^-1 r_g of a group g: the same as
        refitting without them, for lambda = 0 by minimum-norm solutions."""
        U = self.U
        complete = U.shape[1] == len(U)
        if self._fields is not F:
            self._fields, self._inside = F, U.T @ F
            self._rest = None if complete else F - U @ self._inside
        damped = 1 / np.maximum(self.squares + regularization, _TINY)
        damped *= 1 if complete else regularization  # no part is over lambda, unless U spans the whole space
        r, weight = U @ (damped[:, None] * self._inside), (U**2) @ damped
        if not complete:
            r += self._rest
            weight += 1 - np.einsum("ij,ij->i", U, U)

        def block(g):
            inside = (U[g] * damped) @ U[g].T
            return inside if complete else np.eye(len(g)) - U[g] @ U[g].T + inside

        scale = float(damped.max(initial=0)) if complete else 1.0
        return held_out(r, weight, scale, block, groups, lambda held: self._refit(F, held, regularization), least)

    def _refitted(self, F, held, regularization):
        rest, free = np.delete(np.arange(len(F)), held), np.isinf(self.squares)
        T, Z = self.U[:, free], self.U[:, ~free] * np.sqrt(self.squares[~free])
        Q, R = scipy.linalg.qr(T[rest], mode="economic", check_finite=False)
        A, B = (part - Q @ (Q.T @ part) for part in (Z[rest], F[rest]))
        if regularization:
            below = np.sqrt(regularization) * np.eye(A.shape[1])
            A, B = np.vstack([A, below]), np.vstack([B, np.zeros((len(below), F.shape[1]))])
        cut = max(A.shape) * _EPS
        a, _, _, sigma = np.linalg.lstsq(A, B, rcond=cut)
        kept = sigma[sigma > cut * sigma[:1]]
        if len(kept) and kept[-1] < 1e-9 * max(kept[0], np.sqrt(self.largest)):  # rows have the round-off of all
            self.uncertain.update(held.tolist())
        b = np.linalg.lstsq(R, Q.T @ (F[rest] - Z[rest] @ a), rcond=None)[0]
        return F[held] - T[held] @ b - Z[held] @ a


def held_out(
    r: _Values,
    weight: _Values,
    scale: float,
    block: Callable[[NDArray[np.intp]], _Values],
    groups: Sequence[NDArray[np.intp]] | None,
    refit: Callable[[NDArray[np.intp]], _Values],
    least: float = 1e-8,
) -> _Values:
    """r_i / weight_i or block(g)^-1 r_g, in place; refit(rows) where the rest alone hardly determines the rows. Weights
    below 1e-8 of `scale`, which is at least the largest of them over n, have lost half of their digits, those below
    `least` of it too many."""
    least *= scale
    if groups is None:
        lost = ~(weight > least)
        r /= np.where(lost, 1.0, weight)[:, None]
        for g in np.flatnonzero(lost)[:, None]:
            r[g] = refit(g)
        return r
    for g in groups:
        A = block(g)
        norm, (factor, failed) = float(np.abs(A).sum(axis=0).max()), lapack.dpotrf(A, lower=1)
        known = not failed and lapack.dpocon(factor, norm, uplo="L")[0] * norm > least
        r[g] = lapack.dpotrs(factor, r[g], lower=1)[0] if known else refit(g)
    return r
