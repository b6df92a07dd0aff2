"""Gaussian kernel of nearest neighbours only, for more samples than a full matrix allows.

Two points x and z are joined if |x - z| <= r(x) or r(z), where the radius r is the distance to the
(k + 1)-th nearest training point; a training point is the first of its own. So each sample is joined to
its k nearest others and to those that have it among theirs (union rule; ties all count), and a new
point that equals a sample has the same neighbours. No new point is without neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from randsmap import _parallel
from randsmap._linalg import distances as _distances
from randsmap._linalg.distances import CentredPoints

# Relative slack of the squared radii, so that ties and rounding are not decided by the last digits
SLACK = 1e-9
# Values below are 0, as in the dense kernel.
SMALLEST_VALUE = 1e-300


def neighbor_kernel(
    X: NDArray[np.float64], points: CentredPoints, index: Any, n_neighbors: int, epsilon: float
) -> tuple[csr_array, NDArray[np.float64]]:
    """Kernel exp(-|f_i - f_j|^2 / epsilon^2) of the joined samples, and their squared radii.

    `points` are the samples X (n, dim), `index` finds ``points.rows``, and n_neighbors is at most n - 2. The kernel
    (n, n) is symmetric with diagonal 1, sorted indices and no stored zeros.
    """
    n = len(X)
    distances, columns = index.query(points[0], n_neighbors + 2)  # one more: does it tie with the last?
    distances *= distances
    radii = distances[:, n_neighbors] * (1 + SLACK)
    tied = distances[:, -1] <= radii
    squared = distances[~tied, :-1].ravel()
    columns = columns[~tied, :-1].ravel()
    i = np.repeat(np.flatnonzero(~tied), n_neighbors + 1)
    del distances
    if tied.any():
        among, j, d = _distances.pairs_within(X[tied], points, radii[tied], np.full(n, -1.0))
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
    return K, radii


def neighbor_sums(X: NDArray[np.float64], extension: Any) -> NDArray[np.float64]:
    """The sums of `kernel_sums` over the samples that the rows X are joined to, up to a factor for each row.

    The factor makes the largest kernel value of a row 1 (a shifted softmax): far from all samples nothing underflows.
    """
    # points at a time: they bound the scratch
    extension_rows = 2**14
    weights = extension.weights
    sums = np.empty((len(X), len(weights)))
    for start in range(0, len(X), extension_rows):
        block = X[start : start + extension_rows]
        _, j, values, first = neighbor_values(block, extension)
        for p, w in enumerate(weights):
            sums[start : start + len(block), p] = np.add.reduceat(values * w[j], first)
    return sums


def neighbor_values(
    X: NDArray[np.float64], extension: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]:
    """Kernel values of a few rows X and the samples of a `NystroemExtension` they are joined to, with the factors of
    `neighbor_sums`: row and sample of each value, the values, and the place of each row's first."""
    # squared distances beyond, in units of epsilon^2, have lost digits of their differences
    far_distance = 2.0**20
    points, epsilon = extension.points, extension.width
    rows, norms, centre = points
    distances, _ = extension.index.query(X - centre, extension.n_neighbors + 1)
    own = distances[:, -1] ** 2 * (1 + SLACK)
    i, j, squared = _distances.pairs_within(X, points, own, extension.radii)
    first = np.searchsorted(i, np.arange(len(X)))
    nearest = np.minimum.reduceat(squared, first)
    far = nearest > far_distance * epsilon**2
    squared -= np.where(far, 0, nearest)[i]
    values = np.exp(squared * -_distances.kernel_scale(epsilon))
    for row in np.flatnonzero(far):
        part = slice(first[row], first[row + 1] if row + 1 < len(first) else None)
        values[part] = _distances.far_values(X[row] - centre, rows[j[part]], epsilon)
    values[values < SMALLEST_VALUE] = 0
    return i, j, values, first


def slabs(K: csr_array) -> list[csr_array]:
    """K (csr_array) as blocks of rows, the tasks of `blocked_product`; they share its memory."""
    product_rows = 4096
    n = K.shape[0]
    blocks = []
    for start in range(0, n, product_rows):
        stop = min(start + product_rows, n)
        a, b = K.indptr[start], K.indptr[stop]
        blocks.append(csr_array((K.data[a:b], K.indices[a:b], K.indptr[start : stop + 1] - a), shape=(stop - start, n)))
    return blocks


def blocked_product(blocks: list[csr_array], X: NDArray[np.float64]) -> NDArray[np.float64]:
    """K X for the `slabs` of K; each row is one sum in the order of its columns."""
    parts = [np.empty(0)] * len(blocks)

    def task(t):
        parts[t] = blocks[t] @ X

    _parallel.parallel_for(task, len(blocks))
    return np.concatenate(parts)
