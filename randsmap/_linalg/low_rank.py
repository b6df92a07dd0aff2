"""Leading modes of fields, kernels and Gram matrices: orthogonal bases of what has low rank.

The package searches for leading modes in three ways, none of which can stand in for another:

- `lanczos.leading_eigenpairs`, for a few eigenvalues that lie close together, of a matrix known by its products. Block
  iteration as below takes 35 times as many products for two coordinates of a Swiss roll (n = 1500).
- `leading_directions`, for a few singular vectors, G and G^T in turn with an orthonormalisation between. Lanczos on
  G G^T squares the singular values: one of 1e-6 of the largest is wrong by 2e-7 (3e-12 here), one of 1e-9 altogether.
- `leading_modes`, for all the eigenvectors above round-off of a kernel, however many: a pivoted Cholesky factorisation
  counts them as it goes, and reads no more columns than that.

`pod_of_fields` has no number of modes but a tolerance: one random sketch of the rows, and a pass that measures what it
misses. `nystroem` makes modes of a product that Krylov iterations have computed anyway.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import ddot
from scipy.linalg.lapack import dgemqrt, dgeqrt, dormqr, dpstrf

from randsmap._linalg.eigen import symmetric_eigen
from randsmap._linalg.products import cross, multiply, times_transposed
from randsmap._linalg.rows import BLOCK, block_rows
from randsmap._parallel import blas_threads

__all__ = ["nystroem", "pod_of_fields"]

_EPS = np.finfo(float).eps


def leading_modes(K: NDArray[np.float64], tail: Any = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues (descending) and orthonormal eigenvectors of a kernel matrix, to round-off.

    tail : `dual.Tail` or None; of J K J instead, J the projection on the complement of its columns

    Smooth kernels have few eigenvalues above round-off. A pivoted Cholesky factorisation K = L L^T
    + E, |E| <= n eps max diag, finds them: with s columns it costs O(n^2 s), and the singular
    values of L are the roots of the eigenvalues, without the squaring. When s > n / 2 all
    eigenvalues are computed.

    References
    ----------
    H. Harbrecht, M. Peters and R. Schneider, On the low-rank approximation by the pivoted Cholesky
    decomposition, Appl. Numer. Math. 62 (2012).
    """
    n = len(K)
    # products of narrow blocks: more threads gain little, and lose on a busy machine
    with blas_threads(1):
        L, pivots, s, _ = dpstrf(K.T, tol=4 * _EPS * K.diagonal().max(), lower=1)
    if 2 * s > n:
        K = K if tail is None else tail.removed_from(K)
        with blas_threads():
            eigenvalues, V = symmetric_eigen(K)
        return eigenvalues[::-1], V[:, ::-1]
    with blas_threads(1):
        rows = np.empty((n, s))
        rows[pivots - 1] = np.tril(L[:, :s])
        if tail is not None:
            tail.remove(rows)
        V, sigma, _ = scipy.linalg.svd(rows, full_matrices=False, overwrite_a=True, check_finite=False)
    return sigma**2, V


_EXACT_POD = 1024  # cells up to which the fields' POD is made from all of them


def tall_qr(A: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q (p, min(p, k)) and R of a tall matrix, which is overwritten."""
    # many small BLAS calls: threads would only wait for one another
    with blas_threads(1 if A.shape[1] < 512 else None):
        Q, R = scipy.linalg.qr(A, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(Q), R


def orthonormal_beside(new: NDArray[np.float64], old: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns that span `new` beside the orthonormal columns of `old`; `new` may be overwritten."""
    for _ in range(2):  # once leaves the round-off of the subtraction
        if old.shape[1]:
            with blas_threads():
                new -= multiply(old, cross(old, new))
        new = tall_qr(new)[0]
    return new


def orthonormal_rows_beside(new: NDArray[np.float64], old: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal rows that span the rows `new` (k, P), k <= P, beside the orthonormal ones of `old`, in their order;
    `new` is overwritten. By Householder reflections, twice: once leaves the round-off of the subtraction."""
    k = len(new)
    for _ in range(2 if len(old) else 1):
        if len(old):
            new -= multiply(times_transposed(new, old), old)
        factors, blocks, _ = dgeqrt(min(32, k), new.T, overwrite_a=1)
        columns = np.eye(new.shape[1], k, order="F")
        new = dgemqrt(factors, blocks, columns, overwrite_c=1)[0].T
    return new


def nystroem(
    sketch: NDArray[np.float64], image: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Modes U (p, l) and eigenvalues (l,) of G W (W^T G W)^-1 (G W)^T for W = `sketch`, G W = `image`.

    The approximation is never above G, and the shift keeps it computable where G is singular
    (Frangella, Tropp and Udell 2023, Algorithm 2.1).
    """
    shift = np.sqrt(len(sketch)) * _EPS * np.linalg.norm(image)
    if not shift:
        return sketch, np.zeros(sketch.shape[1])
    while True:
        shifted = image + shift * sketch
        core = cross(sketch, shifted)
        try:
            C = scipy.linalg.cholesky((core + core.T) / 2, check_finite=False)
            break
        except np.linalg.LinAlgError:
            shift *= 10
    B = scipy.linalg.solve_triangular(C, shifted.T, trans="T", check_finite=False).T
    Q, R = tall_qr(B)
    with blas_threads(1 if len(R) < 512 else None):
        U, sigma, _ = scipy.linalg.svd(R, check_finite=False)
    return multiply(Q, U), np.maximum(sigma**2 - shift, 0)


def pod_of_fields(
    F: NDArray[np.float64], tolerance: float, most: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """B (n, k) and V^T (k, M) with |F - B V^T| <= tolerance (Frobenius), k least; V orthonormal.

    (F, None) if that does not halve the columns. Beyond some thousand cells the leading space is
    found by a randomised range finder (Halko, Martinsson and Tropp 2011), whose error is measured; it
    gives up, with (F, None), when a space of 4 `most` dimensions or more is not enough.
    """
    n, M = F.shape
    if M < 16 or not F.any():
        return F, None
    basis, B, rest = None, F, 0.0
    if M > _EXACT_POD:
        rng, size = np.random.default_rng(1), 128
        while True:
            if 2 * size > min(n, M):
                return F, None
            basis = tall_qr(cross(F, rng.standard_normal((n, size))))[0]
            B = multiply(F, basis)
            rest = _remainder(F, B, basis.T)
            if rest <= tolerance / 2:
                break
            if most is not None and size >= 4 * most:
                return F, None
            size *= 2
    V, tails = _right_singular_vectors(B)
    k = max(1, int(np.argmax(np.hypot(tails, rest) <= tolerance)))
    if 2 * k > M:
        return F, None
    V = np.ascontiguousarray(V[:, :k])
    if basis is not None:
        V = multiply(basis, V)
    return multiply(F, V), np.ascontiguousarray(V.T)


def _triangle(B, size=0):
    """R (min(n, M), M) of a QR factorisation of B (n, M), by row blocks of at least `size`."""
    M = B.shape[1]
    size, R = max(2048, 2 * M, size), np.empty((0, M))
    for start in range(0, len(B), size):
        block = B[start : start + size]
        stack = np.empty((len(R) + len(block), M), order="F")  # as LAPACK has it, which then needs no copy
        stack[: len(R)], stack[len(R) :] = R, block
        del block
        R = scipy.linalg.qr(stack, mode="raw", overwrite_a=True, check_finite=False)[1]
    return R


def _right_singular_vectors(B):
    """V (M, M), and for k = 0..M what the first k modes leave of |B|."""
    M = B.shape[1]
    _, sigma, Vt = scipy.linalg.svd(_triangle(B), full_matrices=True, check_finite=False)
    tails = np.zeros(M + 1)
    tails[: len(sigma)] = np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1]
    return Vt.T, tails


def _remainder(F, B, Vt):
    """|F - B V^T| in the Frobenius norm."""
    total = 0.0
    for start in range(0, len(F), 1024):
        part = multiply(B[start : start + 1024], Vt)
        part -= F[start : start + 1024]
        total += ddot(part.ravel(), part.ravel())
    return total**0.5


class CentredFields:
    """Fields F (n, M), an array or Snapshots, less a mean, times `root` (M,), 0 on constant cells, and without what the
    orthonormal rows `normals` (q, M) see, if these are given: ``self[a:b]`` and, of Snapshots, ``self.T[a:b]`` are new
    arrays.
    """

    def __init__(
        self,
        F: Any,
        mean: NDArray[np.float64],
        *,
        root: NDArray[np.float64] | None = None,
        constant: NDArray[np.bool_] | None = None,
        normals: NDArray[np.float64] | None = None,
    ) -> None:
        self._F, self._mean, self._root, self._constant = F, mean, root, constant
        self._normals = np.empty((0, len(mean))) if normals is None else normals
        self.shape: tuple[int, int] = F.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        G = self._scaled(self._F[rows], np.s_[:])
        if len(self._normals):
            G -= (G @ self._normals.T) @ self._normals
        return G

    def _scaled(self, F, cells):
        G = F - self._mean[cells]
        if self._constant is not None:
            G[:, self._constant[cells]] = 0
        if self._root is not None:
            G *= self._root[cells]
        return G

    @cached_property
    def _seen(self) -> NDArray[np.float64]:
        """What the normals see of each field, (n, q)."""
        size = block_rows(self.shape[1], 1)
        parts = [self._scaled(self._F[a : a + size], np.s_[:]) @ self._normals.T for a in range(0, len(self), size)]
        return np.concatenate(parts)

    def columns(self, start: int, stop: int) -> NDArray[np.float64]:
        """Cells start..stop of all fields, which are Snapshots."""
        G = self._scaled(self._F.columns(start, stop), np.s_[start:stop])
        if len(self._normals):
            G -= self._seen @ self._normals[:, start:stop]
        return G

    @property
    def T(self) -> _Transposed:
        return _Transposed(self)


class _Transposed:
    """The transpose of `CentredFields`, by blocks of its rows."""

    def __init__(self, fields: CentredFields) -> None:
        self._fields, self.shape = fields, fields.shape[::-1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, cells: slice) -> NDArray[np.float64]:
        start, stop, _ = cells.indices(len(self))
        return self._fields.columns(start, stop).T


_TRIANGLE = 2048  # rows of a triangle, made in one pass over a file, up to which no iterations read it again


def leading_directions(
    G: Any, count: Callable[..., int], few: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Singular values of G (n, M), its leading k = count(sigma, n, M) right singular vectors (k, M),
    and the energy |G|_F^2 / sigma_1^2.

    A QR factorisation of the longer side first, then the singular value decomposition of the
    triangle (T. F. Chan, 1982): backward stable, unlike the eigenvectors of G G^T. If no more than
    `few` are wanted, and these are few, block iteration: only they, as accurately, in less time.

    G is an array or, of rows in a file, an object with `shape`, ``G[a:b]`` and ``G.T[a:b]`` (new arrays). Its
    triangle is made a block at a time, of no more than min(n, M) + some thousand rows, and a wide G is read again for
    the vectors V = G^T U / sigma, which are orthonormal to eps sigma_1 / sigma alone: as far as they are determined.
    """
    n, M = G.shape
    mapped = not isinstance(G, np.ndarray)
    if few is not None and 8 * _block_size(few) <= min(n, M) and not (mapped and min(n, M) <= _TRIANGLE):
        found = _by_block_iteration(G, few)
        if found is not None:
            sigma, modes, energy = found
            return sigma, modes[: count(sigma, n, M)], energy
    if n >= M:
        _, sigma, Vt = scipy.linalg.svd(_triangle(G), check_finite=False)
        modes = Vt[: count(sigma, n, M)]
    elif mapped:
        _, sigma, Ut = scipy.linalg.svd(_triangle(G.T, BLOCK // n), check_finite=False)
        k = count(sigma, n, M)
        weights = np.divide(Ut[:k], sigma[:k, None], out=np.zeros((k, n)), where=sigma[:k, None] > 0)
        modes, size = np.empty((k, M)), max(1, BLOCK // n)
        for start in range(0, M, size):
            columns = np.ascontiguousarray(G.T[start : start + size].T)
            modes[:, start : start + size] = multiply(weights, columns)
    else:
        (qr, tau), R = scipy.linalg.qr(G.T, mode="raw", overwrite_a=True, check_finite=False)
        U, sigma, _ = scipy.linalg.svd(R[:n], check_finite=False)
        k = count(sigma, n, M)
        modes = np.zeros((M, k), order="F")
        modes[:n] = U[:, :k]
        work = int(dormqr("L", "N", qr, tau, modes, -1)[1][0])  # the query
        modes = dormqr("L", "N", qr, tau, modes, work, overwrite_c=1)[0].T
    return sigma, modes, np.sum((sigma / (sigma[0] or 1.0)) ** 2)


def _row_blocks(G):
    """(first, stop, rows) of an array, all of them, or of rows in a file some at a time."""
    size = len(G) if isinstance(G, np.ndarray) else block_rows(G.shape[1])
    for start in range(0, len(G), size):
        stop = min(start + size, len(G))
        yield start, stop, G if size == len(G) and isinstance(G, np.ndarray) else G[start:stop]


def _block_size(k):
    return k + max(k, 16)


def _by_block_iteration(G, k):
    """As `leading_directions`, of the k leading ones; None if that takes too long.

    Block power iteration with orthonormalisation on each side (Halko, Martinsson and Tropp, SIAM
    Rev. 53, 2011, Alg. 4.4) until |G v - s u| = 0 and |G^T u - s v| <= 1e-14 |G|_2 for each pair: as
    good as a backward stable decomposition. It gains a factor (sigma_b / sigma_k)^2 a step, b being
    the size of the block, and gives up on less than a digit in ten steps.
    """
    norm = math.hypot(*(np.linalg.norm(rows) for _, _, rows in _row_blocks(G)))
    if not 1e-100 < norm < 1e100:
        return None
    Q = np.random.default_rng(0).standard_normal((len(G), _block_size(k)))
    before, U, sigma, V = np.inf, None, None, None
    for step in itertools.count():
        B = _sum(cross(rows, Q[a:b]) for a, b, rows in _row_blocks(G))
        if step:
            error = np.linalg.norm(B @ U - V * sigma, axis=0).max()
            if error <= 1e-14 * sigma[0]:
                return sigma, V.T, (norm / sigma[0]) ** 2
            if step % 10 == 0:
                if error > 0.1 * before:
                    return None
                before = error
        W, image = tall_qr(B)[0], np.empty(Q.shape)
        for a, b, rows in _row_blocks(G):
            multiply(rows, W, image[a:b])
        Q, R = tall_qr(image)
        U, sigma, Vt = scipy.linalg.svd(R, check_finite=False)
        U, sigma, V = U[:, :k], sigma[:k], W @ Vt[:k].T


def _sum(arrays):
    total = next(arrays)
    for array in arrays:
        total += array
    return total
