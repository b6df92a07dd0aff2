"""Fields that span few dimensions: their coordinates in an orthonormal basis, exact to round-off."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dgemqrt, dgeqrt

from randsmap._linalg.low_rank import multiply, orthonormal_rows_beside, times_transposed
from randsmap._parallel import blas_threads

__all__ = ["FactoredFields"]

_EPS = np.finfo(float).eps
_PANEL = 64  # fields whose directions the basis gains at a time
_PROBES = 10  # |x|^2 from 10 of them is too small by a factor of 100 once in 1e8 rows
_KEPT = 8 * _EPS  # of a field's norm: what a direction adds at least
_NEGLIGIBLE = 1e-14  # of a field's norm: below, an estimate of what is missing of it will do
_SHARE = 2  # a basis of more than 1/2 of the fields or cells gains nothing
_TINY = 1e-3  # of the median norm: what a smaller field misses is relative to that
_BLOCK = 512  # fields that are compared with their coordinates at a time


class FactoredFields:
    """Fields F (n, M) on cells S as G Q, G (n, r), with orthonormal rows Q (r, M), to round-off, r <= min(n, M) / 2.

    `of` makes them. A decoder that is linear in the fields can be fitted to their coordinates G: its coefficients
    times Q are those of the fields.

    Attributes
    ----------
    array : ndarray (n, M)
        The fields.
    coordinates : ndarray (n, r)
        G.
    basis : ndarray (r, M)
        Q, zero on the cells that are not in S.
    origin : (dtype, FieldShape) or None
        How the fields came.

    Notes
    -----
    `of` is a QR factorisation whose pivots are panels of 64 rows: those of which most is missing, by the estimate
    |x|^2 ~ mean of (x g)^2 over 10 Gaussian vectors g. With X = L Q' for what is missing of a panel, the directions of
    the leading singular vectors of L are kept, and made orthogonal to the others twice more. It ends when nothing but
    round-off is missing of any row.

    References
    ----------
    P.-G. Martinsson, G. Quintana-Orti, N. Heavner and R. van de Geijn, Householder QR factorization with randomization
    for column pivoting (HQRRP), SIAM J. Sci. Comput. 39 (2017).
    """

    ndim = 2

    def __init__(
        self,
        array: NDArray[np.float64],
        coordinates: NDArray[np.float64],
        basis: NDArray[np.float64],
        origin: Any,
        free: NDArray[np.bool_],
        probes: NDArray[np.float64],
    ) -> None:
        self.array, self.coordinates, self.basis, self.origin = array, coordinates, basis, origin
        self.shape = array.shape
        self._free, self._probes = free, probes

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: Any) -> NDArray[np.float64]:
        return self.array[rows]

    @classmethod
    def of(
        cls, F: NDArray[np.float64], beside: NDArray[np.float64], free: NDArray[np.bool_], origin: Any = None
    ) -> Self | None:
        """The factored fields F (n, M), or None where their rank is above min(n, M) / 2, or 0 and q = 0.

        Parameters
        ----------
        F : ndarray (n, M)
        beside : ndarray (q, M)
            Independent rows that Q spans too, zero on the cells that are not in S.
        free : ndarray (M,) of bool
            The cells S.
        """
        n, M = F.shape
        q, most = len(beside), min(n, M) // _SHARE
        sizes = np.sqrt(np.einsum("ij,ij->i", F, F))
        if most <= q or not 1e-140 < sizes.max() < 1e140:  # squares may over- or underflow
            return None
        sizes = np.maximum(sizes, _TINY * np.median(sizes[sizes > 0]))
        if _has_rank(F, sizes, free, most + 1):
            return None
        probes = np.random.default_rng(0).standard_normal((_PROBES, M))
        probes[:, ~free] = 0
        # rows that are not used take no memory
        Q, G, r = np.empty((most, M)), np.empty((n, most)), 0
        with blas_threads():
            missed = times_transposed(F, probes)
            new = orthonormal_rows_beside(beside.copy(), Q[:0]) if q else None
            while True:
                if new is not None:
                    k = len(new)
                    Q[r : r + k] = new
                    new = Q[r : r + k]
                    new[:, ~free] = 0  # but for round-off they are
                    columns = times_transposed(F, new)
                    G[:, r : r + k] = columns
                    missed -= multiply(columns, times_transposed(new, probes))
                    r += k
                estimates = np.sqrt(np.mean(missed**2, axis=1)) / sizes
                rows = np.argsort(-estimates, kind="stable")[:_PANEL]
                rows = rows[estimates[rows] > _round_off(r)]
                if not len(rows):
                    break
                rows = rows[: most - r]
                if not len(rows):
                    return None
                scales = sizes[rows, None]
                X = F[rows] / scales
                X[:, ~free] = 0
                X -= multiply(G[rows, :r] / scales, Q[:r])
                new = _leading_directions(X, Q[:r], free)
                if new is None:
                    break
        if r == 0:  # constant fields
            return None
        return cls(F, np.ascontiguousarray(G[:, :r]), np.ascontiguousarray(Q[:r]), origin, free, probes)

    def of_others(self, F: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates (L, r) of other fields F (L, M), and the distance (L,) on S from what they stand for.

        Where that is no more than round-off, it is the estimate.
        """
        if not len(F):
            return np.empty((0, len(self.basis))), np.empty(0)
        with blas_threads():
            X = times_transposed(F, self.basis)
            missed = times_transposed(F, self._probes) - multiply(X, times_transposed(self.basis, self._probes))
            rest = np.sqrt(np.mean(missed**2, axis=1))
            far = np.flatnonzero(rest > _NEGLIGIBLE * np.sqrt(np.einsum("ij,ij->i", F, F)))
            for start in range(0, len(far), _BLOCK):
                part = far[start : start + _BLOCK]
                left = F[part] - multiply(X[part], self.basis)
                left[:, ~self._free] = 0
                rest[part] = np.sqrt(np.einsum("ij,ij->i", left, left))
        return X, rest


def _has_rank(F, sizes, free, r):
    """Whether r rows of F at random are independent on r cells at random, so that the rank is at least r for sure."""
    rng, cells = np.random.default_rng(1), np.flatnonzero(free)
    if len(cells) < r:
        return False
    rows = np.sort(rng.choice(len(F), r, replace=False))
    part = F[np.ix_(rows, np.sort(rng.choice(cells, r, replace=False)))] / sizes[rows, None]
    with blas_threads(1):
        sigma = scipy.linalg.svdvals(part, overwrite_a=True, check_finite=False)
    return sigma[-1] > r * _EPS * sigma[0]


def _round_off(r):
    """What r products of sums over the cells may leave of a field of norm 1 (measured: 10 + 2 sqrt(r) eps)."""
    return (16 + 4 * np.sqrt(r)) * _EPS


def _leading_directions(X, Q, free):
    """Orthonormal rows that span X (k, M), on the cells S, but for round-off, beside the rows of Q; X is overwritten.
    None if there is nothing but round-off."""
    k, M = X.shape
    factors, blocks, _ = dgeqrt(min(32, k), X.T, overwrite_a=1)
    _, sigma, Vt = scipy.linalg.svd(np.triu(factors[:k]).T, check_finite=False)
    kept = int(np.count_nonzero(sigma > _KEPT))
    if not kept:
        return None
    directions = np.zeros((M, kept), order="F")
    directions[:k] = Vt[:kept].T
    new = dgemqrt(factors, blocks, directions, overwrite_c=1)[0].T
    new[:, ~free] = 0
    # a small singular value comes of cancellation: its direction may lie in the span of Q for the most part
    return orthonormal_rows_beside(new, Q)
