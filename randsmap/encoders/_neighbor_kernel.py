"""Gaussian kernel of nearest neighbours only, for more samples than a full matrix allows.

Two points x and z are joined if |x - z| <= r(x) or r(z), where the reach r is the distance to the
(k + 1)-th nearest training point; a training point is the first of its own. So each sample is joined to
its k nearest others and to those that have it among theirs (union rule; ties all count), and a new
point that equals a sample has the same neighbours. No new point is without neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from randsmap import _parallel
from randsmap._linalg import distances as _distances
from randsmap._linalg.large_graphs import ProjectedNeighbors
from randsmap._linalg.neighbors import NeighborIndex

__all__ = ["blocked_product", "neighbor_kernel", "neighbor_sums", "neighbor_values", "row_blocks"]

# Relative slack of the squared reach, so that ties and rounding are not decided by the last digits
SLACK = 1e-9
# Values below are 0, as in the dense kernel.
SMALLEST_VALUE = 1e-300
# Squared distance to the nearest sample, in units of epsilon^2, beyond which differences of squared
# distances have lost digits.
FAR_DISTANCE = 2.0**20
# Rows of one task of a product, and new points extended at a time: they bound the scratch.
PRODUCT_ROWS, EXTENSION_ROWS = 4096, 2**14


def neighbor_kernel(
    X: NDArray[np.float64],
    rows: NDArray[np.float64],
    norms: NDArray[np.float64],
    centre: NDArray[np.float64],
    index: NeighborIndex | ProjectedNeighbors,
    n_neighbors: int,
    epsilon: float,
) -> tuple[csr_array, NDArray[np.float64]]:
    """Kernel exp(-|f_i - f_j|^2 / epsilon^2) of the joined samples, and their squared reaches.

    Parameters
    ----------
    X : ndarray of shape (n, dim)
        Samples; `rows`, `norms` and `centre` are `_distances.centred_rows` of them.
    index : NeighborIndex or ProjectedNeighbors
        Of `rows`.
    n_neighbors : int
        k, at most n - 2.
    epsilon : float

    Returns
    -------
    K : csr_array of shape (n, n)
        Symmetric, diagonal 1, no stored zeros, indices sorted.
    reach : ndarray of shape (n,)
        r^2, with its slack.
    """
    n = len(rows)
    distances, columns = index.query(rows, n_neighbors + 2)  # one more: does it tie with the last?
    distances *= distances
    reach = distances[:, n_neighbors] * (1 + SLACK)
    tied = distances[:, -1] <= reach
    squared = distances[~tied, :-1].ravel()
    columns = columns[~tied, :-1].ravel()
    i = np.repeat(np.flatnonzero(~tied), n_neighbors + 1)
    del distances
    if tied.any():
        among, j, d = _distances.pairs_within(X[tied], rows, norms, centre, reach[tied], np.full(n, -1.0))
        i = np.concatenate([i, np.flatnonzero(tied)[among]])
        columns, squared = np.concatenate([columns, j]), np.concatenate([squared, d])
    squared *= -_distances.kernel_scale(epsilon)
    values = np.exp(squared, out=squared)
    values[values < SMALLEST_VALUE] = 0
    values[i == columns] = 1
    directed = csr_array((values, (i, columns)), shape=(n, n))
    del i, columns, squared, values
    K = directed.maximum(directed.T.tocsr())
    K.eliminate_zeros()
    K.sort_indices()
    return K, reach


def neighbor_sums(
    X: NDArray[np.float64],
    rows: NDArray[np.float64],
    norms: NDArray[np.float64],
    centre: NDArray[np.float64],
    index: NeighborIndex | ProjectedNeighbors,
    reach: NDArray[np.float64],
    n_neighbors: int,
    weights: NDArray[np.float64],
    epsilon: float,
) -> NDArray[np.float64]:
    """The kernel sums of `_distances.kernel_sums` over joined samples, up to a factor for each row.

    The factor makes the largest kernel value of a row 1 (a shifted softmax), so that far from all
    samples nothing underflows and the nearest sample decides.
    """
    sums = np.empty((len(X), len(weights)))
    for start in range(0, len(X), EXTENSION_ROWS):
        block = X[start : start + EXTENSION_ROWS]
        _, j, values, first = neighbor_values(block, rows, norms, centre, index, reach, n_neighbors, epsilon)
        for p, w in enumerate(weights):
            sums[start : start + len(block), p] = np.add.reduceat(values * w[j], first)
    return sums


def neighbor_values(
    X: NDArray[np.float64],
    rows: NDArray[np.float64],
    norms: NDArray[np.float64],
    centre: NDArray[np.float64],
    index: NeighborIndex | ProjectedNeighbors,
    reach: NDArray[np.float64],
    n_neighbors: int,
    epsilon: float,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]:
    """Kernel values of a few rows X and the samples they are joined to, with the factors of
    `neighbor_sums`: row and sample of each value, the values, and the place of each row's first."""
    distances, _ = index.query(X - centre, n_neighbors + 1)
    with np.errstate(over="ignore"):
        own = distances[:, -1] ** 2 * (1 + SLACK)
    i, j, squared = _distances.pairs_within(X, rows, norms, centre, own, reach)
    first = np.searchsorted(i, np.arange(len(X)))
    with np.errstate(over="ignore"):
        nearest = np.minimum.reduceat(squared, first)
        far = nearest > FAR_DISTANCE * epsilon**2
        squared -= np.where(far, 0, nearest)[i]
        values = np.exp(squared * -_distances.kernel_scale(epsilon))
    for row in np.flatnonzero(far):
        part = slice(first[row], first[row + 1] if row + 1 < len(first) else None)
        values[part] = _distances.far_values(X[row] - centre, rows[j[part]], norms[j[part]], epsilon)
    values[values < SMALLEST_VALUE] = 0
    return i, j, values, first


def row_blocks(K: csr_array) -> list[csr_array]:
    """K (csr_array) as blocks of rows, the tasks of `blocked_product`; they share its memory."""
    n = K.shape[0]
    blocks = []
    for start in range(0, n, PRODUCT_ROWS):
        stop = min(start + PRODUCT_ROWS, n)
        a, b = K.indptr[start], K.indptr[stop]
        blocks.append(csr_array((K.data[a:b], K.indices[a:b], K.indptr[start : stop + 1] - a), shape=(stop - start, n)))
    return blocks


def blocked_product(blocks: list[csr_array], X: NDArray[np.float64]) -> NDArray[np.float64]:
    """K X for the `row_blocks` of K; each row is one sum in the order of its columns."""
    parts = [np.empty(0)] * len(blocks)

    def task(t):
        parts[t] = blocks[t] @ X

    _parallel.parallel_for(task, len(blocks))
    return np.concatenate(parts)
