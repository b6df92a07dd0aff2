"""Exact nearest neighbours of wide rows, searched in their leading principal coordinates.

With V (M, r) orthonormal, y = V^T x and rho = |x - V y|,

    |y - y'|^2 + (rho - rho')^2 <= |x - x'|^2,

so distances of the r + 1 numbers (y, rho) exclude points from the nearest. The other points are compared in all M
columns by the sums of `NeighborIndex`, with the same neighbours, order among equals and bits. The points are in the
leaves of a k-d tree of the r + 1 numbers, and a group of near queries searches the leaves that its balls reach.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from randsmap import _parallel
from randsmap._kernels import neighbors as _kernel
from randsmap._linalg.neighbors import NeighborIndex

_Values = NDArray[np.float64]
# Points below which the other searches have nothing to gain from this one
SMALLEST = 5000
# Points per leaf at most
LEAF = 16
# Points that are bounded together: they fit in the cache
CHUNK = 8192
# Part of the cost of bounding by all columns, or of comparing all pairs in single precision, that this may have
ALLOWED = 0.5


def neighbor_index(points: _Values, k: int) -> NeighborIndex | ProjectedNeighbors:
    """The index to search these points (n, M), finite and centred, for their k nearest: the projected one where
    that prunes most of the pairs of a sample."""
    n, M = points.shape
    if n < SMALLEST or M <= 16 or 8 * k > n:
        return NeighborIndex(points)
    sample = points[:: -(-n // 512)]
    if not sample.any():
        return NeighborIndex(points)
    directions = _principal_directions(sample, min(64, M // 4, len(sample) // 4))
    rank = _best_rank(points, directions, k)
    if rank is None:
        return NeighborIndex(points)
    directions = np.ascontiguousarray(directions[:, :rank])
    return ProjectedNeighbors(points, directions, _projected(points, directions))


def _principal_directions(rows, count):
    """The leading right singular vectors of rows (m, M), (M, count), orthonormal to round-off."""
    # any orthonormal directions bound distances: half the time of `svd.truncated_svd`, which would be more accurate
    if len(rows) <= rows.shape[1]:
        V = rows.T @ np.linalg.eigh(rows @ rows.T)[1][:, : -count - 1 : -1]
    else:
        V = np.linalg.eigh(rows.T @ rows)[1][:, : -count - 1 : -1]
    return np.linalg.qr(V)[0]


def _projected(points, directions):
    """Coordinates V^T x and the length of what they leave of each point, (n, r + 1)."""
    out = np.empty((len(points), directions.shape[1] + 1))

    def task(block):
        y = points[block] @ directions
        rest = points[block] - y @ directions.T
        out[block, :-1] = y
        out[block, -1] = np.sqrt(np.einsum("ij,ij->i", rest, rest))

    with _parallel.blas_threads(1):
        _parallel.parallel_rows(task, len(points), 1024)
    return out


def _best_rank(points, directions, k):
    """Number of coordinates for the cheapest search of k neighbours, by a sample of the pairs; None: comparing all
    pairs is cheaper."""
    # bounding a distance by one coordinate takes this part of one column of an exact comparison
    bound_cost = 0.2
    n, M = points.shape
    chosen = np.arange(0, n, -(-n // 32))
    squared, _ = _search_among(points, np.arange(n), points[chosen], k)
    others = _projected(points[:: -(-n // 4096)], directions)
    queries = _projected(points[chosen], directions)
    most = directions.shape[1]
    ranks = np.array([r for r in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48) if r < most] + [most])
    starts = np.concatenate([[0], ranks[:-1]])
    passed = np.zeros(len(ranks))
    left = _left_at(ranks, others)
    for y, nearest in zip(queries, squared):
        kept = np.cumsum(np.add.reduceat((others[:, :-1] - y[:-1]) ** 2, starts, axis=1), axis=1)
        lower = kept + (left - _left_at(ranks, y[None])) ** 2
        passed += (lower <= nearest[-1]).sum(axis=0)
    passed *= n / len(others) / len(chosen)
    # some 30 points are bounded for each neighbour
    cost = np.maximum(passed, k) * M + 30 * bound_cost * k * (ranks + 1)
    best = int(np.argmin(cost))
    worst = passed[best] * M + bound_cost * n * (ranks[best] + 1)  # should every point be bounded
    return int(ranks[best]) if worst < ALLOWED * bound_cost * n * M else None


def _left_at(ranks, coordinates):
    """Lengths of what is left of points by the leading coordinates, (n, len(ranks))."""
    squares = coordinates**2
    return np.sqrt(np.stack([squares[:, r:].sum(axis=1) for r in ranks], axis=1))


def _search_among(points, chosen, Q, k):
    """Squared distances and numbers (m, k) of the k nearest of some points to rows Q (m, M)."""
    squared = np.full((len(Q), k), np.inf)
    numbers = np.full((len(Q), k), np.iinfo(np.intp).max, np.intp)
    _kernel.among(points, chosen, Q, squared, numbers)
    return squared, numbers


def _group_bounds(leaf, n_leaves):
    """Where groups of about 64 of the sorted leaf numbers begin, and the end; each within a subtree."""
    group = 64
    together = 1
    while 2 * together <= n_leaves and len(leaf) * together < group * n_leaves:
        together *= 2
    starts = np.flatnonzero(np.diff(leaf // together, prepend=-1))
    within = np.arange(len(leaf)) - np.repeat(starts, np.diff(starts, append=len(leaf)))
    return np.append(np.flatnonzero(within % (2 * group) == 0), len(leaf))


class ProjectedNeighbors:
    """Points (n, M), not copied, made ready for `query`, like `NeighborIndex`. Made by `neighbor_index`.

    `directions` (M, r) are V, `coordinates` (n, r + 1) the numbers (y, rho) of the points.
    """

    def __init__(self, points: _Values, directions: _Values, coordinates: _Values) -> None:
        # Leaves per cell: the best of 1 to 8
        cell = 2
        self.n_points, self.n_dims = points.shape
        self._points, self._directions = points, directions
        n, d = coordinates.shape
        depth = max(0, (-(-n // LEAF) - 1).bit_length())
        self._order = np.empty(n, np.intp)
        boxes, lowest = np.empty((2 ** (depth + 1) - 1, 2, d)), np.empty(2 ** (depth + 1) - 1)
        split = np.empty((2**depth - 1, 2))
        _kernel.build(coordinates, depth, self._order, boxes, lowest, split)
        self._coordinates = coordinates[self._order]
        self._tree = (depth, boxes, lowest, split)
        self._start = n * np.arange(0, 2**depth + 1, min(cell, 2**depth)) // 2**depth
        counts = np.diff(self._start)
        self._centres = np.add.reduceat(self._coordinates, self._start[:-1], axis=0) / counts[:, None]
        away = self._coordinates - np.repeat(self._centres, counts, axis=0)
        self._radii = np.sqrt(np.maximum.reduceat(np.einsum("ij,ij->i", away, away), self._start[:-1]))
        # what rounding may have added to a distance of these coordinates; |x| = |(y, rho)|
        self._rounding = 8 * np.finfo(float).eps * self.n_dims
        norms = np.sqrt(np.einsum("ij,ij->i", self._coordinates, self._coordinates))
        self._norms = np.maximum.reduceat(norms, self._start[:-1])

    def query(self, Q: _Values, k: int) -> tuple[_Values, NDArray[np.intp]]:
        """Distances and indices (m, k) of the k nearest points of each row of Q (m, M)."""
        m = len(Q)
        distance, index = np.empty((m, k)), np.empty((m, k), np.intp)
        if not m:
            return distance, index
        depth, boxes, lowest, split = self._tree
        n = self.n_points
        if Q is self._points:
            coordinates, order = self._coordinates, self._order
            leaf = np.repeat(np.arange(2**depth), np.diff(n * np.arange(2**depth + 1) // 2**depth))
        else:
            coordinates, leaf = _projected(Q, self._directions), np.empty(m, np.intp)
            _kernel.assign(self._coordinates, lowest, depth, boxes, lowest, split, coordinates, leaf)
            order = np.argsort(leaf, kind="stable")
            coordinates, leaf = coordinates[order], leaf[order]
        bounds = _group_bounds(leaf, 2**depth)

        def task(i):
            rows = order[bounds[i] : bounds[i + 1]]
            distance[rows], index[rows] = self._search(Q[rows], coordinates[bounds[i] : bounds[i + 1]], k)

        with _parallel.blas_threads(1):
            _parallel.parallel_for(task, len(bounds) - 1)
        return distance, index

    def _search(self, Q, y, k):
        """The same for a group of near queries, whose coordinates are y."""
        # Queries whose candidates are compared together: the best of 4 to 64
        together = 16
        centre = y.mean(axis=0)
        away = y - centre
        own = np.einsum("ij,ij->i", away, away)
        apart = self._centres - centre
        apart = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        squared = np.full((len(Q), k), np.inf)
        numbers = np.full((len(Q), k), np.iinfo(np.intp).max, np.intp)
        parts = [slice(i, i + together) for i in range(0, len(Q), together)]

        def compare(part, places):
            _kernel.among(self._points, self._order[places], Q[part], squared[part], numbers[part])

        # the k nearest of the nearest cells, by these coordinates, bound the distances
        nearest = np.argsort(apart)
        held = np.cumsum(np.diff(self._start)[nearest])
        places = self._places(nearest[: np.searchsorted(held, min(4 * k, self.n_points)) + 1])
        lower = self._squared(self._coordinates[places] - centre, away, own)
        chosen = lower <= np.partition(lower, k - 1, axis=1)[:, k - 1 : k]
        compared = [np.sort(places[chosen[part].any(axis=0)]) for part in parts]
        for part, some in zip(parts, compared):
            compare(part, some)

        # the cells within reach of the group, of these the ones within reach of a query, and of their points likewise
        slack = self._rounding * (np.sqrt(np.einsum("ij,ij->i", y, y).max()) + self._norms)
        reach = np.sqrt(squared[:, -1:]) * (1 + self._rounding)
        near = np.flatnonzero(apart <= np.sqrt(own.max()) + reach.max() + slack + self._radii)
        lower = self._squared(self._centres[near] - centre, away, own)
        near = near[(lower <= (reach + (slack + self._radii)[near]) ** 2).any(axis=0)]
        near = near[np.argsort(apart[near])]
        ends = np.cumsum(np.diff(self._start)[near])
        for cells in np.split(near, np.searchsorted(ends, np.arange(CHUNK, ends[-1], CHUNK))):
            if not len(cells):
                continue
            places = self._places(cells)
            lower = self._squared(self._coordinates[places] - centre, away, own)
            reach = np.sqrt(squared[:, -1:]) * (1 + self._rounding) + slack[cells].max()
            chosen = lower <= reach**2
            for part, some in zip(parts, compared):
                new = places[chosen[part].any(axis=0)]
                compare(part, new[some[np.searchsorted(some[:-1], new)] != new])
        return np.sqrt(squared), numbers

    def _places(self, cells):
        """Places in the tree of the points of some cells, one cell after the other."""
        count = self._start[cells + 1] - self._start[cells]
        return np.repeat(self._start[cells] - np.cumsum(count) + count, count) + np.arange(count.sum())

    def _squared(self, others, away, own):
        """Squared distances (m, c) of some points from the queries of a group, less what rounding may have added.

        `others` (c, r + 1) and `away` (m, r + 1) are relative to the group's centre, `own` the squares of the latter.
        """
        sizes = np.einsum("ij,ij->i", others, others)
        squares = away @ others.T
        squares *= -2
        squares += (1 - self._rounding) * own[:, None]
        squares += (1 - self._rounding) * sizes
        return squares
