"""The Nystroem extension of diffusion maps to new fields, its derivatives (paper, App. C, last paragraph), and the
kernel of nearest neighbours only, for more samples than a full matrix allows.

The coordinates of a field x are y_p = sum_j P_j c_pj with the transition probabilities P_j(x) ~
q_j^-alpha exp(-|x - f_j|^2 / epsilon^2) to the training fields f_j; the density of x itself cancels. Since
sum P = 1::

    dy_p/dx = (2 / epsilon^2) sum_j w_pj f_j,  w_pj = P_j (c_pj - y_p),

a covariance under P: sum_j w_pj = 0, so that the fields may all be taken from a point amid them.

Of nearest neighbours, each sample is joined to its k nearest others and to those that have it among theirs (union rule,
ties all count; see `DiffusionMaps`). A new point has at least one neighbour, and those of a sample if it equals one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from randsmap._interface.parameters import Parameter
from randsmap._interface.state import Array, immutable, saved
from randsmap._kernels.linear_map import FAR_SUM, FAR_WIDTHS, UNDERFLOWN_SUM  # see rk_image.h
from randsmap._linalg import distances
from randsmap._linalg.distances import EPSILON_RANGE, CentredPoints, far_values, kernel_scale, pairs_within
from randsmap._linalg.large_graphs import neighbor_index
from randsmap._linalg.rows import BLOCK, Rows
from randsmap._parallel import blas_threads, for_tiles, tile_rows

# Relative slack of the squared radii, so that ties and rounding are not decided by the last digits
_SLACK = 1e-9
# Smaller kernel values are 0, as in the dense kernel.
_SMALLEST_VALUE = 1e-300
_Values = NDArray[np.float64]


def neighbor_kernel(
    X: _Values, points: CentredPoints, index: Any, n_neighbors: int, epsilon: float
) -> tuple[csr_array, _Values]:
    """Kernel exp(-|f_i - f_j|^2 / epsilon^2) of the joined samples, and their squared radii. `points` are the samples X
    (n, dim), `index` finds ``points.rows``, and n_neighbors is at most n - 2. The kernel (n, n) is symmetric with
    diagonal 1, sorted indices and no stored zeros."""
    n = len(X)
    near, columns = index.query(points[0], n_neighbors + 2)  # one more, to find a tie with the last
    near *= near
    radii = near[:, n_neighbors] * (1 + _SLACK)
    tied = near[:, -1] <= radii
    squared, columns = near[~tied, :-1].ravel(), columns[~tied, :-1].ravel()
    i = np.repeat(np.flatnonzero(~tied), n_neighbors + 1)
    del near
    if tied.any():
        among, j, d = pairs_within(X[tied], points, radii[tied], np.full(n, -1.0))
        i = np.concatenate([i, np.flatnonzero(tied)[among]])
        columns, squared = np.concatenate([columns, j]), np.concatenate([squared, d])
    squared *= -kernel_scale(epsilon)
    values = np.exp(squared, out=squared)
    values[values < _SMALLEST_VALUE] = 0
    values[i == columns] = 1
    directed = csr_array((values, (i, columns)), shape=(n, n))
    del i, columns, squared, values
    K = directed.maximum(directed.T.tocsr())
    K.eliminate_zeros()
    K.sort_indices()
    return K, radii


@immutable
class NystroemExtension:
    """Coordinates of new fields from a kernel on the training fields."""

    rows: Any = saved(Array("n", "M"))  # the training fields less their centre; in a file, Rows of them as they are
    norms: Any = saved(Array("n", low=0))  # squared, of the rows; None in a file
    centre: Any = saved(Array("M"))
    weights: _Values = saved(Array("d+1", "n"))  # of the kernel sums: q^-alpha, for the denominator, and q^-alpha c
    width: float = saved(Parameter(float, low=EPSILON_RANGE[0], high=EPSILON_RANGE[1]))  # epsilon
    # square roots of the cell weights, by which the training fields were multiplied; None: ones
    root: _Values | None = saved(Array("M", low=np.finfo(float).tiny, optional=True), default=None)
    n_neighbors: Any = saved(Parameter(int, low=1, words=(None,)), default=None)  # None: all pairs
    # squared distances of neighbours
    radii: _Values | None = saved(Array("n", low=0, infinite=True, optional=True), default=None)

    def _restore(self):
        if not (self.weights[0] > 0).all():
            raise ValueError("the density weights must be positive")
        if (self.radii is None) != (self.n_neighbors is None):
            raise ValueError("the neighbours need both their number and their radii")
        if self.n_neighbors is not None and self.n_neighbors >= len(self.rows):
            raise ValueError("more neighbours than samples")

    # the search among the training fields for neighbours; whether these stay in their file, and if not, they; c (d, n)
    index = cached_property(lambda self: neighbor_index(self.rows, self.n_neighbors + 2))
    in_file = property(lambda self: self.norms is None)
    points = property(lambda self: (self.rows, self.norms, self.centre))
    values = property(lambda self: self.weights[1:] / self.weights[0])

    def squared_distances(self, X: _Values) -> _Values:
        """Squared distances (L, n) of fields X (L, M) to the training fields."""
        X = self.scaled(X)
        if self.in_file:
            return distances.squared_distances_by_columns(Rows(X), self.rows)
        return distances.squared_distances(X - self.centre, self.rows)

    def coordinates(self, X: _Values) -> _Values:
        """Coordinates (L, d) of fields X (L, M), with training fields in memory."""
        X = self.scaled(X)
        if self.n_neighbors is not None:
            out, rows = np.empty((len(X), len(self.weights) - 1)), 2**14  # rows per block bound the workspace
            for start in range(0, len(X), rows):
                _, j, kernel, first = self._neighbor_values(X[start : start + rows])
                sums = np.add.reduceat(kernel * self.weights[:, j], first, axis=1)
                out[start : start + rows] = (sums[1:] / sums[0]).T
            return out
        sums = distances.kernel_sums(X, self.points, self.weights, self.width)
        total = sums[:, :1]
        for i, x in self._far(X, total[:, 0]):
            sums[i] = self.weights @ far_values(x, self.rows, self.width)
        return sums[:, 1:] / total

    def coordinates_by_columns(self, X: Rows) -> _Values:
        """The same where training fields stay in their file, which is read once for many rows of X."""
        X = X if self.root is None else X.less(np.zeros(X.width), scale=self.root)
        out = np.empty((len(X), len(self.weights) - 1))
        size = max(1, BLOCK // len(self.rows))
        for start in range(0, len(X), size):
            rows = slice(start, min(start + size, len(X)))
            E = distances.squared_distances_by_columns(X.take(rows), self.rows)
            # the nearest training point's term becomes 1: the factor cancels in the ratio, and nothing underflows
            E -= E.min(axis=1, keepdims=True)
            sums = np.dot(distances.gaussian_in_place(E, self.width), self.weights.T)
            out[rows] = sums[:, 1:] / sums[:, :1]
        return out

    def scaled(self, X: _Values) -> _Values:
        """Vectors (..., M) times the square roots of the cell weights."""
        return X if self.root is None else X * self.root

    def transitions(self, X: _Values) -> _Values:
        """Transition probabilities P (L, n) from a few fields X (L, M) to the training fields."""
        X = self.scaled(X)
        if self.n_neighbors is not None:
            i, j, kernel, _ = self._neighbor_values(X)
            P = np.zeros((len(X), len(self.rows)))
            P[i, j] = kernel
        else:
            P = distances.kernel_rows(X, self.points, self.width)
            for i, x in self._far(X, P @ self.weights[0]):
                P[i] = far_values(x, self.rows, self.width)
        P *= self.weights[0]
        P /= P.sum(axis=1)[:, None]
        return P

    def _far(self, X, total):
        """(i, centred row) of the rows with kernel sums total (L,) that are too far for the kernel."""
        for i in np.flatnonzero(total < FAR_SUM):
            x = X[i] - self.centre
            if total[i] < UNDERFLOWN_SUM or np.linalg.norm(x) > FAR_WIDTHS * self.width:
                yield i, x

    def _neighbor_values(self, X):
        """Row and sample of each kernel value of a few rows X, the values, and the place of each row's first. A factor
        makes the largest value of a row 1 (a shifted softmax): far from all samples nothing underflows."""
        Z = X - self.centre
        own = self.index.query(Z, self.n_neighbors + 1)[0][:, -1] ** 2 * (1 + _SLACK)
        i, j, squared = pairs_within(X, self.points, own, self.radii)
        first = np.searchsorted(i, np.arange(len(X)))
        nearest = np.minimum.reduceat(squared, first)
        far = nearest > 2.0**20 * self.width**2  # their differences have lost digits
        squared -= np.where(far, 0, nearest)[i]
        values = np.exp(squared * -kernel_scale(self.width))
        for row in np.flatnonzero(far):
            part = slice(first[row], first[row + 1] if row + 1 < len(first) else None)
            values[part] = far_values(Z[row], self.rows[j[part]], self.width)
        values[values < _SMALLEST_VALUE] = 0
        return i, j, values, first

    def jacobian(self, X: _Values) -> _Values:
        """dy/dx (L, d, M) at fields X (L, M)."""
        values = self.values

        def derivative(X):
            moments = _moments(values, self.transitions(X)[:, None, :])
            return self.scaled((moments.reshape(-1, len(self.rows)) @ self.rows).reshape(len(X), len(values), -1))

        return self._in_tiles(derivative, np.empty((len(X), len(values), X.shape[1])), X)

    def jvp(self, X: _Values, V: _Values) -> _Values:
        """dy/dx v (L, d) for V (L, M), without forming dy/dx."""
        values = self.values

        def derivative(X, V):
            return _moments(self.scaled(V) @ self.rows.T, self.transitions(X)) @ values.T

        return self._in_tiles(derivative, np.empty((len(X), len(values))), X, V)

    def vjp(self, X: _Values, U: _Values) -> _Values:
        """u dy/dx (L, M) for U (L, d), without forming dy/dx."""
        values = self.values

        def derivative(X, U):
            return self.scaled(_moments(U @ values, self.transitions(X)) @ self.rows)

        return self._in_tiles(derivative, np.empty(X.shape), X, U)

    def _in_tiles(self, derivative, out, *given):
        """`out` (L, ...) filled with a derivative without the factor 2 / epsilon^2, by tiles of rows of the arrays
        given."""
        if self.in_file:
            raise ValueError("derivatives need the training fields in memory, not in their file: fit with copy=True")

        def part(a, b):
            out[a:b] = derivative(*(array[a:b] for array in given)) if b > a else 0
            out[a:b] *= 2 / self.width**2

        rows_each = out.shape[1] if out.ndim == 3 else 1
        with blas_threads(1):  # limited by memory bandwidth: more threads gain little
            for_tiles(part, len(out), tile_rows(rows_each * max(self.rows.shape)))
        return out


def _moments(c, P):
    """P (c - sum P c) over the last axis; the sum of the result is 0 to round-off."""
    w = c - (P * c).sum(axis=-1, keepdims=True)
    w *= P
    # the round-off of the sum again: multiplied by fields far from the origin it would not be small
    w -= P * w.sum(axis=-1, keepdims=True)
    return w
