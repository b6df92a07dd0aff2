"""Ridge regression on Phi = [1 | features]: A = argmin |F - Phi A|^2 + lambda |A|^2.

The bias row is penalised like the others, as in the paper's formula (Eq. vanillaTikhonov), or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.linalg.blas import dsymv

from randsmap._io.progress import steps
from randsmap._kernels import ridge as _kernel
from randsmap._linalg.rows import FeatureRows, Rows, Snapshots, block_rows, feature_matrix
from randsmap._linalg.sums import Sums, Totals, sum_rows
from randsmap._parallel import blas_threads

__all__ = [
    "FeatureRows",
    "Products",
    "RidgeSmoother",
    "cholesky_solve",
    "damped_triangle",
    "feature_matrix",
    "filtered_solution",
    "left_spectrum",
    "not_definite",
    "ridge",
    "singular_system",
    "triangle",
]

_BLOCK = 2048  # rows of Phi in memory at a time: enough for SYRK and GEMM to run at full speed
_EPS = np.finfo(float).eps


def less_mean(F: Any, size: int = _BLOCK) -> Rows:
    """The fields less their mean, see `Rows.centred`."""
    return (F if isinstance(F, Rows) else Rows(F)).centred(size)


def with_bias(R: NDArray[np.float64], mean: Any, field_mean: Any) -> NDArray[np.float64]:
    """Coefficients of [1 | phi] for those R (P, M) of phi - mean(phi): the bias row is mean(F) - mean(phi) R."""
    A = np.empty((len(R) + 1, R.shape[1]))
    A[1:] = R
    return set_bias(A, mean, field_mean)


def set_bias(A: NDArray[np.float64], mean: Any, field_mean: Any) -> NDArray[np.float64]:
    """The bias row of A (P+1, M) in place, see `with_bias`."""
    np.dot(mean, A[1:], out=A[0])
    np.subtract(field_mean, A[0], out=A[0])
    return A


class Products:
    """What solutions for several lambdas of one regression share: sums over the rows, or the dual Gram matrix, the
    square of its norm, and the triangle of a QR factorisation."""

    totals: Totals | None = None
    dual: Any = None
    triangle: Any = None
    _square: float | None = None

    def resolved(self, G: NDArray[np.float64], regularization: float, uncentred: int | None) -> bool:
        """`resolved`, with |Phi|^2 found once."""
        if self._square is None:
            self._square = _squared_norm(G, uncentred)
        return _is_resolved(self._square, regularization)


def ridge(
    rows: FeatureRows, F: Any, regularization: float, solver: str = "auto", products: Products | None = None
) -> tuple[NDArray[np.float64], str]:
    """Ridge coefficients A (P+1, M) of the fields F (n, M), and the name of the solver used.

    The rule of "auto": Cholesky of a Gram matrix if `resolved` - the round-off of that matrix is then felt
    by no more than 1e-6 - otherwise the QR factorisation of Phi itself, extended by sqrt(lambda) I. For
    lambda <= 10 eps trace(Phi^T Phi), or when Cholesky fails, the minimum-norm solution by a singular value
    decomposition of Phi.

    Parameters
    ----------
    rows : FeatureRows
        Without bias, the bias is not penalised: means of features and fields are taken off first.
    F : ndarray (n, M), contiguous float64, or Snapshots
    regularization : float, lambda >= 0
    solver : {"auto", "cholesky", "svd"}
    products : Products or None
        Where another lambda for the same rows and fields has left, and finds, the products of matrices.

    Returns
    -------
    A : ndarray (P+1, M)
    solver : {"cholesky", "dual", "qr", "svd"}
        "dual" is the Cholesky factorisation of Phi Phi^T + lambda I, used when n < P+1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If solver="cholesky" and the matrix is not numerically positive definite.
    """
    trace, centred = 0.0, not rows.bias
    if rows.n < rows.width and isinstance(F, Snapshots):  # what follows would copy the fields
        return _of_unit_fields(rows, F, *ridge(rows, np.eye(rows.n), regularization, solver, products))
    is_resolved = resolved if products is None else products.resolved
    if solver != "svd" and (regularization > 0 or solver == "cholesky"):
        auto = solver == "auto"
        if rows.n >= rows.width:
            totals = None if products is None else products.totals
            if totals is None:
                sums = Sums(rows.width, F.shape[1], centred)
                for start, stop, Phi in rows.blocks(sum_rows(rows.width, F.shape[1])):
                    sums.add(Phi, F[start:stop])
                totals = sums.totals()
                del sums  # which are twice as large
            if products is not None:
                products.totals, totals = totals, totals._replace(G=totals.G.copy(), H=totals.H.copy())
            trace, pivot = float(np.trace(totals.G)), 0
            if not auto or is_resolved(totals.G, regularization, None if centred else totals.n):
                A, trace, pivot = cholesky_solve(totals.G, totals.H, regularization, auto)
                if A is not None:
                    return (with_bias(A, totals.mean, totals.field_mean) if centred else A), "cholesky"
            rows.mean = totals.mean
        else:
            A, trace, pivot = _ridge_dual(rows, F, regularization, auto, products)
            if A is not None:
                return A, "dual"
        if solver == "cholesky":
            raise not_definite(pivot, min(rows.n, rows.width), regularization, trace, "'auto' or 'svd'")
    if centred:
        rows.centre()
        F = less_mean(F)
    if solver == "auto" and regularization > 10 * _EPS * trace > 0:
        A, used = _damped_solution(rows, F, regularization, products), "qr"
    else:
        A, used = filtered_solution(*singular_system(rows, F), regularization), "svd"
    return (with_bias(A, rows.mean, F.mean) if centred else A), used


def _of_unit_fields(rows, F, weights, solver):
    """Coefficients A = W F of fields in a file, W (P+1, n) being those of the unit fields."""
    A, size, mean = np.zeros((len(weights), F.shape[1])), block_rows(F.shape[1]), None
    if not rows.bias:  # what cancels in W F otherwise
        F = less_mean(F)
        mean = F.mean
    with blas_threads():
        for start, stop in steps(len(F), size, "fitting"):
            _kernel.cross(np.ascontiguousarray(weights[:, start:stop].T), F[start:stop], True, A)
    if mean is not None:
        A[0] += mean
    return A, solver


class RidgeSmoother:
    """Weights W (L, n) with which ridge regressions decode: W F is phi(Z) A, A the coefficients of fields F (n, M).

    One right-hand side a point of Z in place of one a cell, in the systems and by the rule of `ridge`.

    Parameters
    ----------
    rows : FeatureRows
        Of the n latents that are fitted. Without bias, their mean is taken off.
    points : callable
        Gives the rows [1 |] phi(Z) (L, width) less `rows.mean` of the points that are decoded.
    """

    def __init__(self, rows: Any, points: Callable[[], NDArray[np.float64]]) -> None:
        if not rows.bias:
            rows.centre()
        self._rows, self._Z = rows, points()
        self._gram: Any = None

    def weights(self, regularization: float, solver: str = "auto") -> NDArray[np.float64]:
        """W for one lambda; the Gram matrix is made once.

        Raises
        ------
        numpy.linalg.LinAlgError
            As `ridge`.
        """
        W = self._weights(regularization, solver)
        return W if self._rows.bias else W + 1 / self._rows.n

    def _weights(self, regularization, solver):
        rows, Z, trace = self._rows, self._Z, 0.0
        if solver != "svd" and (regularization > 0 or solver == "cholesky"):
            dual, auto = rows.n < rows.width, solver == "auto"
            if self._gram is None:
                Phi = rows.whole()
                G = np.empty((min(Phi.shape),) * 2)
                with blas_threads():
                    _kernel.gram(Phi, dual, False, G)
                self._gram = Phi, G
            Phi, G = self._gram[0], self._gram[1].copy()
            H, pivot = None, 0
            with blas_threads():
                trace = float(np.trace(G))
                if not auto or resolved(G, regularization, (0 if dual else rows.n) if rows.bias else None):
                    right = Phi @ Z.T if dual else np.ascontiguousarray(Z.T)
                    H, trace, pivot = cholesky_solve(G, right, regularization, auto)
                if H is not None:
                    return np.ascontiguousarray(H.T) if dual else H.T @ Phi.T
            if solver == "cholesky":
                raise not_definite(pivot, len(G), regularization, trace, "'auto' or 'svd'")
        if solver == "auto" and regularization > 10 * _EPS * trace > 0:
            A = _damped_solution(rows, np.eye(rows.n), regularization)
        else:
            A = filtered_solution(*singular_system(rows, np.eye(rows.n)), regularization)
        with blas_threads():
            return Z @ A


_RESOLVED = 1e-6  # what the round-off of a Gram matrix may change in the decoded fields, at most


def resolved(G: NDArray[np.float64], regularization: float, uncentred: int | None = None) -> bool:
    """Whether eps |Phi|^2 <= 1e-6 lambda for the Gram matrix G (upper triangle) of Phi without its mean.

    uncentred: G is [1 | Phi]^T [1 | Phi] of so many rows, or, if 0, [1 | Phi] [1 | Phi]^T; None: the mean is not in it.
    """
    return _is_resolved(_squared_norm(G, uncentred), regularization)


def _is_resolved(square, regularization):
    # of what overflows the factorisation says what is wrong
    return not np.isfinite(square) or _EPS * square <= _RESOLVED * regularization


def _squared_norm(G, uncentred):
    """|Phi|^2, the largest eigenvalue of G as `resolved` has it, by a few steps of the Lanczos method."""
    v, before = np.random.default_rng(0).standard_normal(len(G)), 0.0
    alpha: list[float] = []
    beta = [float(np.linalg.norm(v))]
    while len(alpha) < min(len(G), 12) and beta[-1] > 0:
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
    return float(scipy.linalg.eigvalsh_tridiagonal(alpha, beta[1 : len(alpha)])[-1])


def not_definite(pivot: int, size: int, regularization: float, trace: float, others: str) -> np.linalg.LinAlgError:
    """The error of a Cholesky factorisation that the user has asked for and that failed."""
    return np.linalg.LinAlgError(
        f"Cholesky factorisation failed at pivot {pivot} of {size} with "
        f"regularization (lambda) = {regularization:g}: the Gram matrix of the features is "
        f"numerically singular (its trace is {trace:.3g}). Use a larger regularization, or "
        f"solver={others} for the minimum-norm solution"
    )


def cholesky_solve(
    G: NDArray[np.float64], H: NDArray[np.float64], regularization: float, auto: bool
) -> tuple[NDArray[np.float64] | None, float, int]:
    """Cholesky solve in place; (H or None, trace, failing pivot)."""
    trace = float(np.trace(G))
    if not np.isfinite(trace):
        raise ValueError(
            "the squares of the features are too large for floating-point numbers: use smaller "
            "units for the latent coordinates"
        )
    smallest = 10 * _EPS * trace
    if auto and not regularization > smallest:
        return None, trace, 0
    # in exact arithmetic no pivot is below lambda; half of the bound leaves room for round-off
    pivot = _kernel.solve(G, regularization, smallest / 2, H)
    return (None if pivot else H), trace, pivot


def _ridge_dual(rows, F, regularization, auto, products=None):
    """A = Phi^T (Phi Phi^T + lambda I)^-1 F (paper Eq. dualform)."""
    centred = not rows.bias
    if products is not None and products.dual is not None:
        Phi, G = products.dual[0], products.dual[1].copy()
    else:
        Phi, G = rows.whole(), np.empty((rows.n, rows.n))
        if centred:
            if rows.mean is None:
                rows.mean = Phi.mean(axis=0)
                Phi -= rows.mean
        with blas_threads():
            _kernel.gram(Phi, True, False, G)
        if products is not None:
            products.dual = Phi, G.copy()
    if centred:
        F = less_mean(F)
    with blas_threads():
        trace = float(np.trace(G))
        is_resolved = resolved if products is None else products.resolved
        if auto and not is_resolved(G, regularization, None if centred else 0):
            return None, trace, 0
        H, trace, pivot = cholesky_solve(G, F[:] if centred else F[:].copy(), regularization, auto)
        if H is None:
            return None, trace, pivot
        A = np.empty((rows.width, F.shape[1]))
        _kernel.cross(Phi, H, False, A)
    return (with_bias(A, rows.mean, F.mean) if centred else A), trace, 0


def _triangular_system(rows, F):
    """R (P, P) and Q^T F of a QR factorisation of Phi, n >= P, by row blocks: memory stays O(P^2 + P M)."""
    Phi = G = None
    for start, stop, block in rows.blocks(max(_BLOCK, rows.width)):
        stack = block if Phi is None else np.vstack([Phi, block])
        right = F[start:stop] if Phi is None else np.vstack([G, F[start:stop]])
        QtF, Phi = scipy.linalg.qr_multiply(stack, right.T, mode="right")
        G = QtF.T
    return Phi, G


def triangle(rows: FeatureRows) -> NDArray[np.float64]:
    """R (P, P) of a QR factorisation of Phi, n >= P, by row blocks."""
    R: Any = None
    for _, _, block in rows.blocks(max(_BLOCK, rows.width)):
        stack = block if R is None else np.vstack([R, block])
        R = scipy.linalg.qr(stack, mode="r", check_finite=False)[0][: rows.width]
    return R


def _damped_solution(rows, F, regularization, products=None):
    """argmin |F - Phi A|^2 + lambda |A|^2 by orthogonal factorisations of Phi and of [R; sqrt(lambda) I].

    No Gram matrix: round-off is amplified by |Phi| / sqrt(lambda), not by its square (A. Bjoerck, Numerical
    Methods for Least Squares Problems, 1996, Sec. 2.7). A wide Phi is reduced to its row space first.
    """
    with blas_threads():
        if rows.n >= rows.width:
            triangle = None if products is None else products.triangle
            if triangle is None:
                triangle = _triangular_system(rows, F)
            if products is not None:
                products.triangle = triangle
            return _damped(*triangle, regularization)
        Q, R = scipy.linalg.qr(rows.whole().T, mode="economic", overwrite_a=True, check_finite=False)
        QtF, R = scipy.linalg.qr_multiply(R.T, F[:].T, mode="right")
        return Q @ _damped(R, QtF.T, regularization)


def _damped_qr(R, regularization):
    p = len(R)
    below = np.sqrt(regularization) * np.eye(p, order="F")
    return lapack.dtpqrt(p, min(32, p), np.asfortranarray(R), below, overwrite_b=1)[:3]


def damped_triangle(R: NDArray[np.float64], regularization: float) -> NDArray[np.float64]:
    """The triangle of a QR factorisation of [R; sqrt(lambda) I] for an upper triangle R."""
    return np.triu(_damped_qr(R, regularization)[0])


def _damped(R, C, regularization):
    """argmin |C - R X|^2 + lambda |X|^2 for an upper triangle R."""
    p = len(R)
    R, below, T = _damped_qr(R, regularization)
    C, _, _ = lapack.dtpmqrt(p, below, T, np.asfortranarray(C), np.zeros(C.shape, order="F"), trans="T", overwrite_b=1)
    return np.ascontiguousarray(scipy.linalg.solve_triangular(R, C, check_finite=False))


def singular_system(
    rows: FeatureRows, F: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Sigma, V^T and U^T F of the singular value decomposition Phi = U Sigma V^T (no Gram matrix).

    More rows than columns are first reduced by orthogonal factorisations of row blocks.
    """
    with blas_threads():
        Phi, G = (rows.whole(), F[:]) if rows.n <= rows.width else _triangular_system(rows, F)
        U, sigma, Vt = _svd(Phi)
        return sigma, Vt, U.T @ G, max(rows.n, rows.width) * _EPS


def _svd(Phi):
    try:
        return scipy.linalg.svd(Phi, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:  # divide and conquer did not converge; QR iteration does
        return scipy.linalg.svd(Phi, full_matrices=False, check_finite=False, lapack_driver="gesvd")


def left_spectrum(rows: FeatureRows) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """U (n, r), sigma^2 (r,) of Phi = U Sigma V^T, over sigma > max(n, P+1) eps sigma_1, and the
    angle by which round-off may have turned the space that U spans.

    Rows without bias: of Phi without its mean, see `with_constant`.
    """
    if not rows.bias:
        rows.centre()
    cut = max(rows.n, rows.width) * _EPS
    with blas_threads():
        U, sigma, _ = _svd(rows.whole())
    sigma = sigma[sigma > cut * sigma[0]]
    angle = cut * sigma[0] / sigma[-1] if len(sigma) else 0.0
    U, squares = np.ascontiguousarray(U[:, : len(sigma)]), sigma**2
    return (U, squares, angle) if rows.bias else (*with_constant(U, squares), angle)


def with_constant(
    U: NDArray[np.float64], squares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left singular vectors and squares beside the constant vector, which no lambda damps: its square is infinite.

    U diag(s / (s + lambda)) U^T is then the hat matrix of a regression whose bias is not penalised.
    """
    n = len(U)
    with blas_threads():  # U is orthogonal to the constant only as far as its singular values reach
        Q = scipy.linalg.qr(np.hstack([np.ones((n, 1)), U[:, : n - 1]]), mode="economic", check_finite=False)[0]
    return np.ascontiguousarray(Q), np.concatenate([[np.inf], squares[: n - 1]])


def filtered_solution(
    sigma: NDArray[np.float64], Vt: NDArray[np.float64], UtF: NDArray[np.float64], cut: float, regularization: float
) -> NDArray[np.float64]:
    """A = V diag(sigma / (sigma^2 + lambda)) U^T F over sigma > cut * sigma_1 (paper Eq. TikhSVD).

    For lambda = 0 the minimum-norm least-squares solution (paper Eq. MoorePenrose).
    """
    keep = sigma > cut * sigma[0]
    sigma = sigma[keep]
    weights = 1 / (sigma + regularization / sigma)  # sigma^2 might overflow
    with blas_threads():
        return Vt[keep].T @ (weights[:, None] * UtF[keep])
