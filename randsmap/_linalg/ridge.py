"""Ridge regression on Phi = [1 | features]: A = argmin |F - Phi A|^2 + lambda |A|^2.

The bias row is penalised like the others, as in the paper's formula (Eq. vanillaTikhonov).
"""

import numpy as np
import scipy.linalg

from randsmap._kernels import features as _features_kernel
from randsmap._kernels import ridge as _kernel
from randsmap._parallel import blas_threads, parallel_for
from randsmap._progress import steps
from randsmap._validation import check_matrix

__all__ = [
    "FeatureRows",
    "cholesky_solve",
    "feature_matrix",
    "filtered_solution",
    "left_spectrum",
    "not_definite",
    "ridge",
    "ridge_smoother",
    "singular_system",
    "sum_rows",
]

_BLOCK = 2048  # rows of Phi in memory at a time: enough for SYRK and GEMM to run at full speed
_ENTRIES, _FEWEST = 1 << 23, 32  # of a block of both, and rows that it has at least
_TILE = 64  # rows of features a task computes
_EPS = np.finfo(float).eps


def feature_matrix(features, X, P=None):
    """Features (n, P) by the transformer's own `transform`, as contiguous float64."""
    Z = check_matrix(features.transform(X), "the features' transform(X)", n_columns=P)
    if len(Z) != len(X):
        raise ValueError(f"the features' transform(X) must have {len(X)} rows, got {len(Z)}")
    return Z


class FeatureRows:
    """Rows of Phi = [1 | features of X] on demand (paper Eq. RFNNBasis).

    They are computed block by block, so that Phi need not be stored whole: the package's own maps
    by their kernel, any other transformer by its `transform`.
    """

    def __init__(self, features, X):
        self.n = len(X)
        self._X, self._features = X, features
        if hasattr(features, "activation_parameters"):
            self._map = features.activation_parameters()
            self.width = self._map[1].shape[1] + 1
        else:
            self._map = None
            self.width = feature_matrix(features, X[:1]).shape[1] + 1

    def fill(self, start, stop, out):
        """Rows start..stop into out (stop - start, width)."""
        out[:, 0] = 1
        if self._map is None:
            out[:, 1:] = feature_matrix(self._features, self._X[start:stop], self.width - 1)
            return
        activation, weights, offsets, scale = self._map

        def task(i):
            a, b = start + i * _TILE, min(start + (i + 1) * _TILE, stop)
            _features_kernel.features(activation, self._X[a:b], weights, offsets, scale, out[a - start : b - start, 1:])

        with blas_threads(1):
            parallel_for(task, -(-(stop - start) // _TILE))

    def whole(self):
        """All of Phi, (n, width)."""
        out = np.empty((self.n, self.width))
        self.fill(0, self.n, out)
        return out

    def blocks(self, size=_BLOCK):
        """(start, stop, block of Phi) over all rows; the block's memory is reused."""
        memory = np.empty((min(size, self.n), self.width))
        for start, stop in steps(self.n, size, "fitting"):
            block = memory[: stop - start]
            self.fill(start, stop, block)
            yield start, stop, block


def ridge(rows, F, regularization, solver="auto"):
    """Ridge coefficients A (P+1, M) of the fields F (n, M), and the name of the solver used.

    The rule of "auto": Cholesky if lambda > 10 eps trace(Phi^T Phi) - below that the round-off of
    the Gram matrix is as large as lambda - otherwise, or when it fails, the minimum-norm solution
    by a singular value decomposition of Phi.

    Parameters
    ----------
    rows : FeatureRows
    F : ndarray (n, M), contiguous float64
    regularization : float, lambda >= 0
    solver : {"auto", "cholesky", "svd"}

    Returns
    -------
    A : ndarray (P+1, M)
    solver : {"cholesky", "dual", "svd"}
        "dual" is the Cholesky factorisation of Phi Phi^T + lambda I, used when n < P+1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If solver="cholesky" and the matrix is not numerically positive definite.
    """
    if solver != "svd" and (regularization > 0 or solver == "cholesky"):
        method = _ridge_dual if rows.n < rows.width else _ridge_primal
        A, trace, pivot = method(rows, F, regularization, solver == "auto")
        if A is not None:
            return A, "dual" if method is _ridge_dual else "cholesky"
        if solver == "cholesky":
            raise not_definite(pivot, min(rows.n, rows.width), regularization, trace, "'auto' or 'svd'")
    return filtered_solution(*singular_system(rows, F), regularization), "svd"


def ridge_smoother(rows, points, regularization, solver="auto"):
    """Weights W (L, n): W F is phi(Z) A, A the ridge coefficients of any fields F (n, M).

    One right-hand side a point of Z in place of one a cell, in the systems and by the rule of `ridge`.

    Parameters
    ----------
    rows, points : FeatureRows
        Of the latents that are fitted and of those that are decoded.
    regularization, solver : as for `ridge`

    Raises
    ------
    numpy.linalg.LinAlgError
        As `ridge`.
    """
    Z = points.whole()
    if solver != "svd" and (regularization > 0 or solver == "cholesky"):
        Phi, dual = rows.whole(), rows.n < rows.width
        G = np.empty((min(Phi.shape),) * 2)
        with blas_threads():
            _kernel.gram(Phi, dual, False, G)
            right = Phi @ Z.T if dual else np.ascontiguousarray(Z.T)
            H, trace, pivot = cholesky_solve(G, right, regularization, solver == "auto")
            if H is not None:
                return np.ascontiguousarray(H.T) if dual else H.T @ Phi.T
        if solver == "cholesky":
            raise not_definite(pivot, len(G), regularization, trace, "'auto' or 'svd'")
    A = filtered_solution(*singular_system(rows, np.eye(rows.n)), regularization)
    with blas_threads():
        return Z @ A


def not_definite(pivot, size, regularization, trace, others):
    """The error of a Cholesky factorisation that the user has asked for and that failed."""
    return np.linalg.LinAlgError(
        f"Cholesky factorisation failed at pivot {pivot} of {size} with "
        f"regularization (lambda) = {regularization:g}: the Gram matrix of the features is "
        f"numerically singular (its trace is {trace:.3g}). Use a larger regularization, or "
        f"solver={others} for the minimum-norm solution"
    )


def sum_rows(width, M):
    """Rows of Phi and of the fields that are summed at a time."""
    return max(_FEWEST, min(_BLOCK, _ENTRIES // (width + M)))


def cholesky_solve(G, H, regularization, auto):
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


def _ridge_primal(rows, F, regularization, auto):
    """A = (Phi^T Phi + lambda I)^-1 Phi^T F (paper Eq. vanillaTikhonov), summed over row blocks."""
    p = rows.width
    G, H = np.empty((p, p)), np.empty((p, F.shape[1]))
    for start, stop, Phi in rows.blocks(sum_rows(p, F.shape[1])):
        fields = F[start:stop]
        with blas_threads():
            _kernel.gram(Phi, False, start > 0, G)
            _kernel.cross(Phi, fields, start > 0, H)
    with blas_threads():
        return cholesky_solve(G, H, regularization, auto)


def _ridge_dual(rows, F, regularization, auto):
    """A = Phi^T (Phi Phi^T + lambda I)^-1 F (paper Eq. dualform)."""
    Phi, G = rows.whole(), np.empty((rows.n, rows.n))
    with blas_threads():
        _kernel.gram(Phi, True, False, G)
        H, trace, pivot = cholesky_solve(G, F[:].copy(), regularization, auto)
        if H is None:
            return None, trace, pivot
        A = np.empty((rows.width, F.shape[1]))
        _kernel.cross(Phi, H, False, A)
    return A, trace, 0


def singular_system(rows, F):
    """Sigma, V^T and U^T F of the singular value decomposition Phi = U Sigma V^T (no Gram matrix).

    More rows than columns are first reduced by orthogonal factorisations of row blocks, so that
    memory stays O(P^2 + P M) here too.
    """
    with blas_threads():
        if rows.n <= rows.width:
            Phi, G = rows.whole(), F[:]
        else:
            Phi = G = None
            for start, stop, block in rows.blocks(max(_BLOCK, rows.width)):
                stack = block if Phi is None else np.vstack([Phi, block])
                right = F[start:stop] if Phi is None else np.vstack([G, F[start:stop]])
                QtF, Phi = scipy.linalg.qr_multiply(stack, right.T, mode="right")
                G = QtF.T
        U, sigma, Vt = _svd(Phi)
        return sigma, Vt, U.T @ G, max(rows.n, rows.width) * _EPS


def _svd(Phi):
    try:
        return scipy.linalg.svd(Phi, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:  # divide and conquer did not converge; QR iteration does
        return scipy.linalg.svd(Phi, full_matrices=False, check_finite=False, lapack_driver="gesvd")


def left_spectrum(rows):
    """U (n, r), sigma^2 (r,) of Phi = U Sigma V^T, over sigma > max(n, P+1) eps sigma_1, and the
    angle by which round-off may have turned the space that U spans."""
    cut = max(rows.n, rows.width) * _EPS
    with blas_threads():
        U, sigma, _ = _svd(rows.whole())
    sigma = sigma[sigma > cut * sigma[0]]
    return np.ascontiguousarray(U[:, : len(sigma)]), sigma**2, cut * sigma[0] / sigma[-1]


def filtered_solution(sigma, Vt, UtF, cut, regularization):
    """A = V diag(sigma / (sigma^2 + lambda)) U^T F over sigma > cut * sigma_1 (paper Eq. TikhSVD).

    For lambda = 0 the minimum-norm least-squares solution (paper Eq. MoorePenrose).
    """
    keep = sigma > cut * sigma[0]
    sigma = sigma[keep]
    weights = 1 / (sigma + regularization / sigma)  # sigma^2 might overflow
    with blas_threads():
        return Vt[keep].T @ (weights[:, None] * UtF[keep])
