"""Fields by their coordinates in an orthonormal basis, exact to round-off: distances between fields are those between
coordinates."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from randsmap._linalg.products import multiply
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import error_scales, in_norm
from randsmap._linalg.svd import orthonormalize_rows_against, truncated_svd
from randsmap._parallel import blas_threads

_Values = NDArray[np.float64]
_EPS = np.finfo(float).eps
# Fields that are expressed in coordinates at a time
_BLOCK = 512


class FactoredRows(Rows):
    """Fields F (n, M) that are G Q on cells S, to round-off: coordinates G (n, r), orthonormal rows Q (r, M) = `basis`
    that are 0 on the other cells, r <= min(n, M) / 2. `origin` is how the fields came.

    A decoder that is linear in the fields can be fitted to G: its coefficients times Q are those for the fields. For
    ten candidates of `tune` (n = 720, M = 16384, r = 201) this saves two thirds of the time. Reference: P.-G.
    Martinsson, G. Quintana-Orti, N. Heavner and R. van de Geijn, Householder QR factorization with randomization for
    column pivoting (HQRRP), SIAM J. Sci. Comput. 39 (2017).
    """

    def __init__(
        self, array: _Values, coordinates: _Values, basis: _Values, origin: Any, free: Any, probes: _Values
    ) -> None:
        super().__init__(array)
        self.coordinates, self.basis, self.origin = coordinates, basis, origin
        self._free, self._probes = free, probes

    @classmethod
    def factor(cls, F: _Values, beside: _Values, free: NDArray[np.bool_], origin: Any = None) -> Self | None:
        """The factored fields F (n, M), or None where their rank is above min(n, M) / 2, or 0 and q = 0.

        Q spans the independent rows `beside` (q, M) too, which are 0 outside the cells S = `free` (M,).
        """
        # the estimate of |x|^2 from ten probes is too small by a factor of 100 once in 1e8 rows
        n_probes = 10
        # a direction must add more than round-off to a field of norm 1
        kept = 8 * _EPS
        # directions of 64 fields at a time: products of matrices at full speed
        panel = 64
        # A QR factorisation whose pivots are panels of 64 rows: the rows of which most is missing, by the estimate
        # |x|^2 ~ mean of (x g)^2 over Gaussian vectors g. The leading singular vectors of what is missing of a panel
        # are kept, and made orthogonal to the others twice more. It ends when nothing but round-off is missing.
        n, M = F.shape
        q, most = len(beside), min(n, M) // 2
        sizes = np.sqrt(np.einsum("ij,ij->i", F, F))
        if most <= q or not sizes.any():
            return None
        sizes = error_scales(sizes)
        if _has_rank(F, sizes, free, most + 1):
            return None
        probes = np.random.default_rng(0).standard_normal((n_probes, M))
        probes[:, ~free] = 0
        # rows that are not used take no memory
        Q, G, r = np.empty((most, M)), np.empty((n, most)), 0
        with blas_threads():
            missed = multiply(F, probes.T)
            new = orthonormalize_rows_against(beside.copy(), Q[:0]) if q else None
            while True:
                if new is not None:
                    k = len(new)
                    Q[r : r + k] = new
                    new = Q[r : r + k]
                    new[:, ~free] = 0  # up to round-off they are
                    columns = multiply(F, new.T)
                    G[:, r : r + k] = columns
                    missed -= multiply(columns, multiply(new, probes.T))
                    r += k
                estimates = np.sqrt(np.mean(missed**2, axis=1)) / sizes
                rows = np.argsort(-estimates, kind="stable")[:panel]
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
                new = truncated_svd(Rows(X), lambda sigma, *_: int(np.count_nonzero(sigma > kept)))[1]
                if not len(new):
                    break
                # a small singular value comes of cancellation: its direction may lie in the span of Q for the most part
                new = np.ascontiguousarray(new)
                new[:, ~free] = 0
                new = orthonormalize_rows_against(new, Q[:r])
        if r == 0:  # constant fields
            return None
        return cls(F, np.ascontiguousarray(G[:, :r]), np.ascontiguousarray(Q[:r]), origin, free, probes)

    def of_others(self, F: _Values) -> tuple[_Values, _Values]:
        """Coordinates (L, r) of other fields F (L, M), and the distance (L,) on S from what they stand for.

        Where that is no more than round-off, it is the estimate.
        """
        # below this part of the norm of a field, the estimate of its distance is enough
        negligible = 1e-14
        if not len(F):
            return np.empty((0, len(self.basis))), np.empty(0)
        with blas_threads():
            X = multiply(F, self.basis.T)
            missed = multiply(F, self._probes.T) - multiply(X, multiply(self.basis, self._probes.T))
            rest = np.sqrt(np.mean(missed**2, axis=1))
            far = np.flatnonzero(rest > negligible * np.sqrt(np.einsum("ij,ij->i", F, F)))
            for start in range(0, len(far), _BLOCK):
                part = far[start : start + _BLOCK]
                left = F[part] - multiply(X[part], self.basis)
                left[:, ~self._free] = 0
                rest[part] = np.sqrt(np.einsum("ij,ij->i", left, left))
        return X, rest


def _has_rank(F, sizes, free, r):
    """True if r rows of F at random are independent on r cells at random, so that the rank is at least r for sure."""
    rng, cells = np.random.default_rng(1), np.flatnonzero(free)
    if len(cells) < r:
        return False
    rows = np.sort(rng.choice(len(F), r, replace=False))
    part = F[np.ix_(rows, np.sort(rng.choice(cells, r, replace=False)))] / sizes[rows, None]
    with blas_threads(1):
        sigma = scipy.linalg.svdvals(part, overwrite_a=True, check_finite=False)
    return sigma[-1] > r * _EPS * sigma[0]


def _round_off(r):
    """Round-off of r products of sums over the cells, for a field of norm 1 (measured: 10 + 2 sqrt(r) eps)."""
    return (16 + 4 * np.sqrt(r)) * _EPS


class ReflectedRows:
    """Coordinates in a basis of rows (q, M) and fields F (n, M) on the cells S, by the reflections of their QR
    factorisation, to which rank does not matter."""

    def __init__(self, F: _Values, beside: _Values, free: NDArray[np.bool_]) -> None:
        # reflections are applied in blocks, wide enough for matrix products at full speed
        reflections = 256
        self._free = free
        q, n = len(beside), len(F)
        rows = np.vstack([beside, F])
        if not free.all():
            rows = rows[:, free]
        # products too narrow to gain from more threads, which lose much on a busy machine
        with blas_threads(1):
            # the factors overwrite the transposed rows, so R^T is their lower triangle
            self._factors, self._blocks, _ = lapack.dgeqrt(min(reflections, q + n), rows.T, overwrite_a=1)
        self.coordinates = np.ascontiguousarray(np.tril(self._factors.T[:, : q + n])[q:])

    def of_others(self, F: _Values) -> tuple[_Values, _Values]:
        """Coordinates (L, q + n) of fields F (L, M), and the distance (L,) on S from what they stand for."""
        r = self._factors.shape[1]
        out, rest = np.empty((len(F), r)), np.empty(len(F))
        for start in range(0, len(F), _BLOCK):
            part = slice(start, start + _BLOCK)
            fields = F[part].copy() if self._free.all() else F[part][:, self._free]
            with blas_threads(1):
                rotated, _ = lapack.dgemqrt(self._factors, self._blocks, fields.T, side="L", trans="T", overwrite_c=1)
            left = rotated.T[:, r:]
            out[part], rest[part] = rotated.T[:, :r], np.sqrt(np.einsum("ij,ij->i", left, left))
        return out, rest


def field_span(
    F: NDArray[Any], invariants: Any, origin: Any = None, *, few: bool = False, weights: Any = None
) -> tuple[Any, Any]:
    """Orthonormal basis of what linear decoders of the fields F (n, M) can return on the cells that are not constant.

    It spans the correction's directions and the fields, and has few dimensions if they have (`FactoredRows`), otherwise
    q + n (`ReflectedRows`), for which as many cells must not be constant. With `few` it is None in the second case. No
    Gram matrix is formed. The AffineInvariants, or None, come in its coordinates, too. It is orthonormal in the norm of
    the cells' weights: other fields are given to it `in_norm`.
    """
    M = F.shape[1]
    free = np.ones(M, dtype=bool) if invariants is None else ~invariants.constant
    normals = in_norm(np.zeros((0, M)) if invariants is None else invariants.directions, weights)
    F = in_norm(F, weights)
    basis: Any = FactoredRows.factor(F, normals, free, origin)
    if basis is None and few:
        return None, None
    if basis is None:
        basis = ReflectedRows(F, normals, free)
    if invariants is not None:
        # C^T f of f = V^-1/2 x
        rows = np.where(free, invariants.matrix.T, 0.0) / (1.0 if weights is None else np.sqrt(weights))
        C = np.ascontiguousarray(basis.of_others(rows)[0].T)
        invariants = invariants.in_coordinates(C, np.ascontiguousarray(basis.of_others(normals)[0]))
    return basis, invariants
