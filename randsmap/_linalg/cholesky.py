"""What the methods of ridge regression share: their result, and Cholesky where a Gram matrix is accurate enough."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv

from randsmap._kernels import ridge as _kernel

_EPS = np.finfo(float).eps


class Solution(NamedTuple):
    """Coefficients A (P+1, M), the solver used and its iterations; of the low-rank solver r and its bound of
    |Phi (A - A*)| / |F|."""

    coefficients: NDArray[np.float64]
    solver: str
    n_iter: int = 1
    rank: int | None = None
    bound: float | None = None


def with_bias(R: NDArray[np.float64], mean: Any, field_mean: Any) -> NDArray[np.float64]:
    """Coefficients of [1 | phi] for those R (P, M) of phi - mean(phi): the bias row is mean(F) - mean(phi) R."""
    A = np.empty((len(R) + 1, R.shape[1]))
    A[1:] = R
    np.dot(mean, A[1:], out=A[0])
    np.subtract(field_mean, A[0], out=A[0])
    return A


def gram_is_accurate(norm: float, regularization: float) -> bool:
    """Whether eps |Phi|^2 <= 1e-6 lambda, |Phi|^2 being `gram_norm`.

    The round-off of the Gram matrix, eps |Phi|^2, over lambda bounds what it changes in the decoded fields. A norm that
    overflows passes: the factorisation then raises with the reason.
    """
    return not np.isfinite(norm) or bool(_EPS * norm <= 1e-6 * regularization)


def gram_norm(G: NDArray[np.float64], uncentred: int | None = None) -> float:
    """|Phi|^2, the largest eigenvalue of the Gram matrix G (upper triangle) of Phi without its mean.

    uncentred : None if G is of rows less their mean; n if G is [1 | Phi]^T [1 | Phi] of n rows; 0 if G is
        [1 | Phi] [1 | Phi]^T
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


def singular_gram_error(
    pivot: int, size: int, regularization: float, trace: float, others: str
) -> np.linalg.LinAlgError:
    """The error of a Cholesky factorisation that the user has asked for and that failed."""
    return np.linalg.LinAlgError(
        f"Cholesky factorisation failed at pivot {pivot} of {size} with "
        f"regularization (lambda) = {regularization:g}: the Gram matrix of the features is "
        f"numerically singular (its trace is {trace:.3g}). Use a larger regularization, or "
        f"solver={others} for the minimum-norm solution"
    )


def cholesky_solve(
    G: NDArray[np.float64], H: NDArray[np.float64], regularization: float, auto: bool
) -> tuple[bool, float, int]:
    """H becomes (G + lambda I)^-1 H, by Cholesky in place.

    G : symmetric, of which the upper triangle is read and overwritten
    auto : do not try where lambda <= 10 eps trace(G)

    Returns whether it succeeded, the trace, and otherwise the failing pivot.
    """
    trace = float(np.trace(G))
    if not np.isfinite(trace):
        raise ValueError(
            "the squares of the features are too large for floating-point numbers: use smaller "
            "units for the latent coordinates"
        )
    smallest = 10 * _EPS * trace
    if auto and not regularization > smallest:
        return False, trace, 0
    # in exact arithmetic no pivot is below lambda; half of the bound leaves room for round-off
    pivot = _kernel.solve(G, regularization, smallest / 2, H)
    return not pivot, trace, pivot
