"""Exact nearest neighbours of latent points, ties by index."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._kernels import neighbors as _kernel
from randsmap._parallel import parallel_rows

_Values = NDArray[np.float64]
# Largest number of points per leaf, by measurements
_LEAF = 8


def build_tree(points: _Values, leaf: int) -> tuple[NDArray[np.intp], int, _Values, _Values, _Values]:
    """A balanced k-d tree of points (n, d) with at most `leaf` in one: their order by leaves, its depth, and its boxes,
    lowest numbers and splits."""
    n, d = points.shape
    depth = max(0, (-(-n // leaf) - 1).bit_length())
    n_nodes = 2 ** (depth + 1) - 1
    order, split = np.empty(n, np.intp), np.empty((2**depth - 1, 2))
    boxes, lowest = np.empty((n_nodes, 2, d)), np.empty(n_nodes)
    _kernel.build(points, depth, order, boxes, lowest, split)
    return order, depth, boxes, lowest, split


class NeighborIndex:
    """Points (n, d) made ready for `query`: float64, C-contiguous, finite, copied. Plain arrays, so that it pickles."""

    def __init__(self, points: _Values) -> None:
        self.n_points, self.n_dims = _, d = points.shape
        # in many dimensions the boxes of a tree of random points prune nothing, and every pair is compared
        self.is_tree = d <= 6
        self._grid_arrays = self._build_grid(points) if d == 2 else None
        self._arrays: Any
        if self.is_tree:
            order, *tree = build_tree(points, _LEAF)
            self._arrays = (points[order], order.astype(np.float64), *tree)
        else:
            self._arrays = self._build_tiles(points)

    def _build_grid(self, points):
        """Cells of the plane with three points on average; None where they crowd in some of them."""
        per_cell, uneven = 3, 10  # above this mean occupancy of the cell of a point, the tree is faster
        n = len(points)
        low, high = points.min(axis=0), points.max(axis=0)
        extent = high - low
        if n < 64 or not (np.isfinite(extent).all() and (extent > 1e-100).all()):
            return None
        # square cells, at most one row or column for each point
        aspect = min(max(extent[0] / extent[1], 1 / n), n)
        nx = int(max(1, round((n / per_cell * aspect) ** 0.5)))
        shape = nx, ny = nx, int(max(1, round(n / per_cell / nx)))
        scale = shape / extent
        cell = [np.minimum(((points[:, j] - low[j]) * scale[j]).astype(np.intp), shape[j] - 1) for j in (0, 1)]
        number = cell[0] * ny + cell[1]
        count = np.bincount(number, minlength=nx * ny)
        if (count.astype(float) ** 2).sum() > uneven * n:
            return None
        order = np.argsort(number, kind="stable")
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.intp)
        bounds = []
        for j in (0, 1):
            above, below = np.full(shape[j] + 1, np.inf), np.full(shape[j] + 1, -np.inf)
            np.minimum.at(above, cell[j], points[:, j])
            np.maximum.at(below, cell[j] + 1, points[:, j])
            bounds += [np.minimum.accumulate(above[::-1])[::-1].copy(), np.maximum.accumulate(below)]
        return (nx, ny, *low, *scale, start, points[order], order.astype(np.float64), *bounds)

    def _build_tiles(self, points):
        n, d = points.shape
        center = points.mean(axis=0)
        largest = np.abs(points - center).max()
        tiles = np.empty((-(-n // 16), d, 16), np.float32)
        if 1e-130 < largest < 1e130:  # squares neither overflow nor vanish
            # largest scaled coordinate in [0.5, 1): single precision does not overflow
            scale = float(np.ldexp(1.0, -int(np.frexp(largest)[1])))
            _kernel.tiles(points, center, scale, tiles)
            radius = float(np.sqrt((((points - center) * scale) ** 2).sum(axis=1).max()))
        else:  # an infinite radius turns the filter off
            tiles.fill(0)
            center, scale, radius = np.zeros(d), 1.0, np.inf
        return points.copy(), tiles, center, scale, radius

    def query(self, Q: _Values, k: int) -> tuple[_Values, NDArray[np.intp]]:
        """Distances, increasing along a row, and indices (m, k) of the k <= n nearest points of each row of Q (m, d).
        Among equal distances the lower index comes first. The result does not depend on the threads, or on which
        queries come together, and points far from the origin lose no digits."""
        m = len(Q)
        distance, index = np.empty((m, k)), np.empty((m, k), np.intp)
        if not self.is_tree:
            parallel_rows(lambda part: _kernel.flat(*self._arrays, Q[part], distance[part], index[part]), m, 64)
            return distance, index
        size = max(2048, m // 32)  # queries of a task: enough to be worth a thread, and at most about 32 tasks
        # neighbouring queries share a packet: sort them by the leaf they fall into
        leaf, grid = np.empty(m, np.intp), None
        if self._grid_arrays is not None and k <= 8:  # more neighbours lie in too many cells: the tree is faster
            grid = _kernel.Grid(*self._grid_arrays)
            n_leaves = self._grid_arrays[0] * self._grid_arrays[1]
            parallel_rows(lambda part: _kernel.cells(grid, Q[part], leaf[part]), m, size)
        else:
            n_leaves = 2 ** self._arrays[2]
            parallel_rows(lambda part: _kernel.assign(*self._arrays, Q[part], leaf[part]), m, size)
        order, start = np.empty(m, np.intp), np.empty(n_leaves + 1, np.intp)
        _kernel.sort(leaf, start, order)
        parallel_rows(lambda part: _kernel.tree(*self._arrays, grid, Q, order[part], distance, index), m, size)
        return distance, index
