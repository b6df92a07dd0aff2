"""The affine projection on C^T f = m, as linear algebra of the independent columns of C.

Notation as in `randsmap.invariants`. C^T C is never formed: the columns of V_S^-1/2 C_S are scaled to length 1 and
factored by a pivoted QR, V_S^-1/2 C_S = Q T in the independent columns, with rank decided at max(|S|, q) eps.
W = Q^T V_S^-1/2 (zero on J0) then moves a field by the multiples T^-T e to change C^T f by e.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._linalg.rows import block_rows
from randsmap._linalg.sums import two_product, two_sum
from randsmap.invariants._values import invariant_values

_EPS = np.finfo(float).eps
# corrections of coefficients; the second leaves what invariants that nearly depend on each other amplify
_CORRECTIONS = 3


@dataclass(frozen=True, eq=False)
class Projector:
    """The independent invariants in the form in which fields and coefficients are corrected.

    Attributes
    ----------
    rows : ndarray (rank, M)
        C^T of the independent columns.
    triangle : ndarray (rank, rank)
        T.
    directions : ndarray (rank, M)
        W: W V^1/2 has orthonormal rows that span V^-1/2 C_S, 0 on constant cells.
    constant : ndarray (M,) of bool
        The constant cells J0.
    cell_weights : ndarray (M,) or None
        The diagonal of V.
    """

    rows: NDArray[np.float64]
    triangle: NDArray[np.float64]
    directions: NDArray[np.float64]
    constant: NDArray[np.bool_]
    cell_weights: NDArray[np.float64] | None

    def multipliers(self, E: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Lagrange multipliers E T^-1 (n, rank): fields (n, M) plus multipliers(E) W change C^T f by E."""
        return scipy.linalg.solve_triangular(self.triangle, E.T, trans="T", check_finite=False).T

    def defects(self, F: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """values - C^T f (n, rank) of fields F (n, M), rounded once."""
        return -invariant_values(self.rows.T, F, minus=np.broadcast_to(values, (len(F), len(self.rows))))[0]

    def correction(
        self, A: NDArray[np.float64], B: NDArray[np.float64], cells: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        """The change of A (P+1, M), in these cells, that makes A C = B (P+1, rank)."""
        directions = self.directions if cells is None else self.directions[:, cells]
        return self.multipliers(self.defects(A, B)) @ directions

    def correct(self, A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
        """A + (B - A C)(C_S^T V_S^-1 C_S)^-1 C_S^T V_S^-1, in place: then A C = B (P+1, rank), over all cells.

        This is the smallest change, in the V-weighted norm of each row, on the cells S: the Lagrange-multiplier
        correction of the paper (Proposition RANDSMAP) with B = e_bias m^T, for every latent point, instead of its
        B = (Phi^+ 1) m^T, for the training points.
        """
        # The round-off of A C is amplified where invariants nearly depend on each other: with several of them the
        # sums are taken in twice the precision, and the correction is repeated.
        if len(self.rows) == 1:
            multipliers, size = self.multipliers(B - A @ self.rows.T), block_rows(A.shape[1], 1)
            for start in range(0, len(A), size):  # never an array as large as A
                A[start : start + size] += multipliers[start : start + size] @ self.directions
        elif len(self.rows):
            size = block_rows(A.shape[1])
            for start in range(0, len(A), size):
                part = slice(start, start + size)
                for _ in range(_CORRECTIONS):
                    A[part] += self.correction(A[part], B[part])
        return A

    def adjoint(self, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """The transpose of the projection of tangents, applied to U (n, M): u - C T^-1 W u, and 0 on J0.

        C_S T^-1 is V_S W_S^T, in which nothing cancels where invariants nearly depend on each other.
        """
        if len(self.rows):
            W = self.directions
            U = U - (U @ W.T) @ (W if self.cell_weights is None else W * self.cell_weights)
        if self.constant.any():
            U = np.where(self.constant, 0.0, U)
        return U

    def rest(self, C: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distance of columns C^T (k, M) from the span of the independent ones, relative to the size of each entry."""
        # Two ways, both twice, which leaves the round-off of C alone. W of columns that are not nearly dependent is
        # accurate to round-off of its norm, not of each cell, for which the columns themselves are better; for
        # nearly dependent columns W is the better one.
        C, rows = np.where(self.constant, 0.0, C), np.where(self.constant, 0.0, self.rows)
        by_directions = by_columns = C
        for _ in range(2 * (len(rows) > 0)):
            by_directions = self.adjoint(by_directions)
            moments = self.directions @ by_columns.T
            coefficients = scipy.linalg.solve_triangular(self.triangle, moments, check_finite=False)
            by_columns = by_columns - coefficients.T @ rows
        rest = np.fmin(np.abs(by_directions), np.abs(by_columns))
        typical = np.sqrt((C**2).sum(axis=1) / np.maximum(np.count_nonzero(C, axis=1), 1))
        size = np.maximum(np.abs(C), typical[:, None])
        return np.divide(rest, size, out=np.zeros_like(rest), where=size > 0).max(axis=1, initial=0)


def independent_columns(
    matrix: NDArray[np.float64], constant: NDArray[np.bool_], cell_weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """The columns of C (M, q) that are independent on the cells S, their T (rank, rank) and W (rank, M)."""
    (M, q), free = matrix.shape, np.flatnonzero(~constant)
    inverse_root = None if cell_weights is None else 1 / np.sqrt(cell_weights[free])
    scaled = matrix[free] if inverse_root is None else matrix[free] * inverse_root[:, None]
    length = _column_norms(scaled)
    length[length == 0] = 1
    scaled /= length
    if not len(free) or not q:
        return np.zeros(0, np.intp), np.zeros((0, 0)), np.zeros((0, M))
    Q, R, order = scipy.linalg.qr(scaled, mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(R))
    rank = int(np.count_nonzero(diagonal > max(len(free), q) * _EPS * diagonal[0]))
    independent = order[:rank].astype(np.intp)  # of 32 or 64 bits, as LAPACK has it
    T, W = np.ascontiguousarray(np.triu(R[:rank, :rank] * length[independent])), np.zeros((rank, M))
    W[:, free] = Q[:, :rank].T if inverse_root is None else Q[:, :rank].T * inverse_root
    # the factorisation errs by eps over the last pivot, of columns of length 1
    if rank and diagonal[rank - 1] < 1e-3:
        weights = None if cell_weights is None else cell_weights[free]
        T, W[:, free] = _gram_schmidt(matrix[free][:, independent].T, weights)
    return independent, T, W


def _gram_schmidt(rows, weights):
    """T (rank, rank) and W (rank, n), W V W^T = 1 and C^T = T^T W V, of the rows C^T (rank, n), V the weights.

    What is left of a row that nearly depends on those before it is right to round-off of its own size: it
    is kept in two numbers, and orthogonalised against theirs until nothing changes.
    """
    rank = len(rows)
    T, W = np.zeros((rank, rank)), np.empty(rows.shape)
    rests: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for j, high in enumerate(rows):
        low = np.zeros(high.shape)
        for _ in range(_CORRECTIONS):
            for i, (other, other_low) in enumerate(rests):
                a = (high @ W[i]) / T[i, i]
                T[i, j] += a * T[i, i]
                product, error = two_product(a, other)
                high, rounding = two_sum(high, -product)
                high, low = two_sum(high, low + rounding - error - a * other_low)
        rests.append((high, low))
        direction = high if weights is None else high / weights
        T[j, j] = np.sqrt(high @ direction)
        W[j] = direction / T[j, j]
    return T, W


def _column_norms(X):
    """Euclidean norms of the columns; entries over square roots of weights may be beyond the numeric domain."""
    peak = np.abs(X).max(axis=0, initial=0)
    safe = np.where(peak > 0, peak, 1)
    return peak * np.sqrt(((X / safe) ** 2).sum(axis=0))
