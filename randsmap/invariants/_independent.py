"""The independent columns of C on the cells S, factored without C^T C, by a pivoted QR.

Notation as in `randsmap.invariants`. The columns of V_S^-1/2 C_S are scaled to length 1 and factored, V_S^-1/2 C_S =
Q T in the independent columns, with rank decided at max(|S|, q) eps. W = Q^T V_S^-1/2 is zero on J0.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._linalg.sums import two_product, two_sum

_EPS = np.finfo(float).eps
# passes over what nearly depends on each other: the second leaves what it amplifies, the third only round-off
CORRECTIONS = 3


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
    """T (rank, rank) and W (rank, n), W V W^T = 1 and C^T = T^T W V, of the rows C^T (rank, n), V the weights."""
    # The rest of a row that nearly depends on earlier ones is right to round-off of its own size: it is kept in two
    # numbers, and orthogonalised against the earlier rests until nothing changes
    rank = len(rows)
    T, W = np.zeros((rank, rank)), np.empty(rows.shape)
    rests: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for j, high in enumerate(rows):
        low = np.zeros(high.shape)
        for _ in range(CORRECTIONS):
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
