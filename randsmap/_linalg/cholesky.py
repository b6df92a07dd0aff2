"""Ridge regression by Cholesky of the Gram matrix, primal or dual, where that is accurate enough."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv

from randsmap._kernels import ridge as _kernel
from randsmap._linalg.products import cross
from randsmap._linalg.rows import less_means
from randsmap._linalg.sums import GramAccumulator, sum_rows
from randsmap._parallel import blas_threads

_EPS = np.finfo(float).eps
_Values = NDArray[np.float64]


class Solution(NamedTuple):
    """The result of one ridge regression."""

    coefficients: _Values  # A (P+1, M), the first row the bias
    solver: str  # the one used
    n_iter: int = 1
    rank: int | None = None  # of the low-rank solver r, and its bound of |Phi (A - A*)| / |F|
    bound: float | None = None


def with_bias(R: _Values, mean: Any, field_mean: Any) -> _Values:
    """Coefficients of [1 | phi] for those R (P, M) of phi - mean(phi): the bias row is mean(F) - mean(phi) R."""
    A = np.empty((len(R) + 1, R.shape[1]))
    A[1:] = R
    np.dot(mean, A[1:], out=A[0])
    np.subtract(field_mean, A[0], out=A[0])
    return A


# -- Accuracy --------------------------------------------------------------------------------------
def gram_is_accurate(norm: float, regularization: float) -> bool:
    """True if eps |Phi|^2 <= 1e-6 lambda, |Phi|^2 being `gram_norm`."""
    # The round-off of the Gram matrix, eps |Phi|^2, over lambda bounds what it changes in the decoded fields. A norm
    # that overflows passes: the factorisation then raises with the reason.
    return not np.isfinite(norm) or bool(_EPS * norm <= 1e-6 * regularization)


def gram_norm(G: _Values, uncentred: float | None = None) -> float:
    """|Phi|^2, the largest eigenvalue of the Gram matrix G (upper triangle) of Phi without its mean.

    uncentred : None if G is of rows less their mean; n, or the sum of weights, if G is [1 | Phi]^T [1 | Phi] of n rows;
        0 if G is [1 | Phi] [1 | Phi]^T
    """
    # twelve steps of the Lanczos method give the largest eigenvalue to a few per cent
    steps = 12
    v, before = np.random.default_rng(0).standard_normal(len(G)), 0.0
    alpha: list[float] = []
    beta = [float(np.linalg.norm(v))]
    while len(alpha) < min(len(G), steps) and beta[-1] > 0:
        v = v / beta[-1]
        if uncentred == 0:
            v -= v.mean()
        w = dsymv(1.0, G.T, v, lower=1)
        if uncentred:  # the first row of G is the sum of the rows
            w -= G[0] * (G[0] @ v / uncentred)
        elif uncentred == 0:
            w -= w.mean()
        alpha.append(float(v @ w))
        w -= alpha[-1] * v
        if len(alpha) > 1:
            w -= beta[-1] * before
        before, v = v, w
        beta.append(float(np.linalg.norm(v)))
        if not np.isfinite(beta[-1]):
            return np.inf
    return float(scipy.linalg.eigvalsh_tridiagonal(alpha, beta[1 : len(alpha)])[-1]) if alpha else 0.0


# -- Solutions -------------------------------------------------------------------------------------
def cholesky_solve(
    G: _Values, H: _Values, regularization: float, auto: bool = True, others: str = "'auto' or 'svd'"
) -> bool:
    """H becomes (G + lambda I)^-1 H, by Cholesky in place; returns whether it succeeded.

    G : symmetric, of which the upper triangle is read and overwritten
    auto : do not try where lambda <= 10 eps trace(G); otherwise a failure raises an error that names `others`
    """
    trace = float(np.trace(G))
    if not np.isfinite(trace):
        raise ValueError(
            "the squares of the features are too large for floating-point numbers: use smaller "
            "units for the latent coordinates"
        )
    smallest = 10 * _EPS * trace
    if auto and not regularization > smallest:
        return False
    # in exact arithmetic no pivot is below lambda; half of the bound leaves room for round-off
    pivot = _kernel.solve(G, regularization, smallest / 2, H)
    if pivot and not auto:
        raise np.linalg.LinAlgError(
            f"Cholesky factorisation failed at pivot {pivot} of {len(G)} with "
            f"regularization (lambda) = {regularization:g}: the Gram matrix of the features is "
            f"numerically singular (its trace is {trace:.3g}). Use a larger regularization, or "
            f"solver={others} for the minimum-norm solution"
        )
    return not pivot


class Cholesky:
    """Cholesky of Phi^T Phi + lambda I (paper Eq. vanillaTikhonov), or with `dual` of Phi Phi^T + lambda I (Eq.
    dualform). Phi is less its mean where the bias is not penalised.

    With `auto`, results are None where the round-off of the Gram matrix is felt by more than 1e-6, or the factorisation
    fails; otherwise a failure is an error. `keep`: other lambdas will be asked for.
    """

    def __init__(self, rows: Any, *, dual: bool = False, auto: bool = True, keep: bool = False) -> None:
        self._rows, self._is_dual, self._auto, self._keep = rows, dual, auto, keep
        self._fields: Any = None  # those of the sums
        self._sums: Any = None
        self._gram: Any = None
        self._norm: float | None = None

    def solve(self, F: Any, regularization: float) -> Solution | None:
        """The solution for fields F (n, M), an array or Rows."""
        if self._is_dual:
            return self._solve_dual(F, regularization)
        G, H, mean, field_mean = self._sums_of(F)
        if not self._rows.bias:
            self._rows.mean = mean
        if not self._solve_gram(G, H, regularization):
            return None
        return Solution(H if self._rows.bias else with_bias(H, mean, field_mean), "cholesky")

    def _sums_of(self, F):
        """Phi^T Phi, Phi^T F and the means, which may be overwritten; to the bit those of `partial_fit`."""
        sums = self._sums
        if sums is None or self._fields is not F:
            rows = self._rows
            centred, fields = not rows.bias and rows.root is None, F
            if centred:
                rows.mean = None  # the accumulator finds it, block by block
            elif rows.root is not None:
                fields, field_mean = less_means(rows, F)
            accumulator = GramAccumulator(rows.width, F.shape[1], centred)
            for start, stop, Phi in rows.blocks(sum_rows(rows.width, F.shape[1])):
                accumulator.add(Phi, fields[start:stop])
            sums = accumulator.totals()
            if rows.root is not None:
                sums = *sums[:2], rows.mean, field_mean
            self._fields, self._sums = (F, sums) if self._keep else (None, None)
        G, H, *means = sums
        return (G.copy(), H.copy(), *means) if self._keep else sums

    def _solve_dual(self, F, regularization):
        Phi, K = self._features_and_gram()
        fields, field_mean = less_means(self._rows, F)
        C = fields[:].copy() if field_mean is None else fields[:]
        with blas_threads():
            if not self._solve_gram(K.copy(), C, regularization):
                return None
            A = cross(Phi, C)
        return Solution(A if field_mean is None else with_bias(A, self._rows.mean, field_mean), "dual")

    def weights(self, Z: _Values, regularization: float) -> _Values | None:
        """Z (Phi^T Phi + lambda I)^-1 Phi^T (L, n) for rows Z (L, P) less the mean of Phi."""
        Phi, G = self._features_and_gram()
        with blas_threads():
            H = Phi @ Z.T if self._is_dual else np.ascontiguousarray(Z.T)
            if not self._solve_gram(G.copy(), H, regularization):
                return None
            return np.ascontiguousarray(H.T) if self._is_dual else H.T @ Phi.T

    def _features_and_gram(self):
        """Phi, less its mean without a bias, and its Gram matrix."""
        if self._gram is None:
            rows = self._rows
            if rows.root is not None:
                rows.centre()
            Phi = rows.whole()
            if not rows.bias and rows.mean is None:
                rows.mean = Phi.mean(axis=0)
                Phi -= rows.mean
            G = np.empty((rows.n if self._is_dual else rows.width,) * 2)
            with blas_threads():
                _kernel.gram(Phi, self._is_dual, False, G)
            self._gram = Phi, G
        return self._gram

    def _solve_gram(self, G, H, regularization):
        """True if H became (G + lambda I)^-1 H; with `auto` only where that is accurate."""
        if self._auto:
            if self._norm is None:
                n: Any = 0 if self._is_dual else self._rows.total
                if not self._rows.bias or (self._is_dual and self._rows.root is not None):
                    n = None  # of weighted samples the norm with the bias, which is more
                self._norm = gram_norm(G, n)
            if not gram_is_accurate(self._norm, regularization):
                return False
        return cholesky_solve(G, H, regularization, self._auto)
