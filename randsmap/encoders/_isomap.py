"""Isomap: coordinates of fields from the lengths of the shortest paths between them.

The distances along the graph of near neighbours go into classical scaling; those to a few landmarks suffice for it, and
for new fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from randsmap._interface.arrays import check_domain
from randsmap._interface.fields import FIELD_STATE
from randsmap._interface.parameters import Parameter, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Count, Part, check_fitted, immutable, restored_on_error, saved
from randsmap._interface.texts import shared_texts
from randsmap._kernels.linear_map import MOST_NEIGHBORS, geodesic_latents
from randsmap._linalg.distances import centre_of
from randsmap._linalg.large_graphs import neighbor_index
from randsmap._linalg.rows import spread_rows
from randsmap.encoders._base import FieldEncoder
from randsmap.encoders._diffusion_maps import eigenvector_signs

_Values = NDArray[np.float64]


@immutable
class GeodesicExtension:
    """Coordinates of new fields from the lengths of their shortest paths to landmarks, through a training field. y_p =
    sum_l w_pl (g_l^2 - s_l), where g_l is the least of |x - f_j| + G_jl over the nearest training fields f_j."""

    rows: _Values = saved(Array("n", "M"))  # the training fields less their centre
    centre: _Values = saved(Array("M"))
    lengths: _Values = saved(Array("n", "m", low=0))  # G, of the paths to the landmarks
    # means over the landmarks of the squares of G; then -v / (2 sqrt(eigenvalue)), of which each row has the sum 0
    weights: _Values = saved(Array("d+1", "m"))
    n_neighbors: int = saved(Parameter(int, low=1))
    # square roots of the cell weights, by which the training fields were multiplied; None: ones
    root: _Values | None = saved(Array("M", low=np.finfo(float).tiny, optional=True), default=None)

    def _restore(self):
        if self.n_neighbors >= len(self.rows):
            raise ValueError("more neighbours than samples")

    # the search among the training fields for neighbours
    index = cached_property(lambda self: neighbor_index(self.rows, self.n_neighbors + 1))

    def coordinates(self, X: _Values) -> _Values:
        """Coordinates (L, d) of fields X (L, M)."""

        distances, index, _ = self._neighbors(X, self.n_neighbors)
        out = np.empty((len(X), len(self.weights) - 1))
        geodesic_latents(distances, index, self.lengths, self.weights, out)
        return out

    def _neighbors(self, X, k):
        """Distances and indices of k neighbours (L, k), and the rows less the centre."""
        Z = (X if self.root is None else X * self.root) - self.centre
        return *self.index.query(Z, k), Z

    # -- Derivatives, of which there are none where a shortest path changes ------------------------------
    def jacobian(self, X: _Values) -> _Values:
        """dy/dx (L, d, M) at fields X (L, M)."""
        return self._by_tiles(lambda X: np.matmul(*self._slopes(X)), X)

    def jvp(self, X: _Values, V: _Values) -> _Values:
        """dy/dx v (L, d) for V (L, M)."""

        def derivative(X, V):
            slopes, directions = self._slopes(X)
            return (slopes @ (directions @ V[:, :, None]))[:, :, 0]

        return self._by_tiles(derivative, X, V)

    def vjp(self, X: _Values, U: _Values) -> _Values:
        """u dy/dx (L, M) for U (L, d)."""

        def derivative(X, U):
            slopes, directions = self._slopes(X)
            return ((U[:, None] @ slopes) @ directions)[:, 0]

        return self._by_tiles(derivative, X, U)

    def _slopes(self, X):
        """Derivatives of the coordinates by the distances to the neighbours (L, d, k), and of these by the field."""
        k = self.n_neighbors + 1  # one more for training fields, which are their own neighbours
        distances, index, Z = self._neighbors(X, k)
        paths, weights = self.lengths[index] + distances[:, :, None], self.weights[1:]
        # the path through the next field on it is as short as the path itself, and has its derivative
        left_out = distances == 0
        left_out[:, -1] |= distances[:, 0] > 0
        taken = np.where(left_out[:, :, None] & (paths > 0), np.inf, paths).argmin(axis=1)
        slopes = np.empty((len(X), len(weights), k))
        for j in range(k):
            slopes[:, :, j] = 2 * np.where(taken == j, paths[:, j], 0) @ weights.T
        directions = Z[:, None] - self.rows[index]
        directions /= np.where(distances > 0, distances, 1)[:, :, None]
        return slopes, directions if self.root is None else directions * self.root

    def _by_tiles(self, function: Callable[..., _Values], *arrays: _Values) -> _Values:
        """The results of the function for blocks of rows of the arrays."""
        size = max(1, (1 << 21) // (self.n_neighbors * max(self.lengths.shape[1], len(self.centre))))  # of 16 MB
        starts = range(0, max(1, len(arrays[0])), size)
        return np.concatenate([function(*(array[a : a + size] for array in arrays)) for a in starts])


@shared_texts
@estimator
class Isomap(FieldEncoder):
    """Isomap: coordinates whose distances approximate path lengths along the manifold of the fields.

    Use it to unroll a manifold so that distances along it are preserved. Use `DiffusionMaps` to preserve
    neighbourhoods, and `POD` for nearly linear data.

    Parameters
    ----------
    n_components
        Number of latent coordinates, at most n_samples - 1.
    n_neighbors
        Each sample is joined to its n_neighbors nearest others; n_samples - 1 and more: all pairs. Use few neighbours
        for a strongly curved manifold, and more if there are noise or gaps.
    n_landmarks
        If there are more samples, this number of them, spread evenly over the rows, determine the coordinates. Only the
        paths to these landmarks are computed and stored.
    cell_weights
        Positive weights v, such as cell volumes, of the distances: |f - g|^2 is the sum of v_i (f_i - g_i)^2. They may
        have the fields' shape. In a `ManifoldModel`, None means those of the decoder.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of the doubly centred matrix of squared path lengths, in descending order.
    landmarks_ : ndarray of shape (n_landmarks_used,)
        Indices of the samples to which path lengths are stored.
    n_parts_ : int
        Number of separate parts of the graph of neighbours, before they are joined. If it exceeds 1, distances between
        the parts are unreliable: more neighbours may be needed.
    n_features_in_ : int
        Number of cells of a field.

    Notes
    -----
    Path lengths are sums of distances of neighbours (Dijkstra's algorithm). Classical scaling gives the coordinates.
    Parts of the graph are joined by the shortest edge from each to the others. A path from a new field begins with the
    edge to one of its n_neighbors nearest samples. Its coordinates have kinks where another path becomes the shortest.
    At a sample, derivatives refer to paths through its n_neighbors nearest others; if these are equal to it,
    derivatives are 0. The rule for signs is that of `DiffusionMaps`.

    The estimator stores a copy of the fields and n_samples * n_landmarks path lengths.

    References
    ----------
    J. Tenenbaum, V. de Silva, J. Langford, Science 290 (2000). New fields: Y. Bengio et al., Advances in Neural
    Information Processing Systems 16 (2004). Landmarks: V. de Silva, J. Tenenbaum, ibid. 15 (2003).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 30)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> latents = randsmap.Isomap(n_components=1, n_neighbors=2).fit_transform(arc)
    >>> bool(abs(abs(latents[-1, 0] - latents[0, 0]) - np.pi) < 0.01)
    True
    """

    _state = {
        "n_features_in_": Count("M"),
        "eigenvalues_": Array("d", low=0),
        "landmarks_": Array("m", dtype=np.intp, low=0),
        "n_parts_": Parameter(int, low=1),
        "_n_features_out": Count("d"),
        "_encoding": Part(GeodesicExtension, M="M", m="m", d="d"),
        **FIELD_STATE,
    }

    n_components: int = parameter(int, default=2, kw_only=False, low=1)
    n_neighbors: int = parameter(int, default=5, low=1)
    n_landmarks: int = parameter(int, default=1000, low=2)
    cell_weights: ArrayLike | None = parameter(default=None, shown="array (M,) or None")

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        with restored_on_error(self):
            given = check_parameters(self)
            fields, root = self._weighted(X)
            F, n, d = fields.whole(), len(fields), given["n_components"]
            check_domain(F, "X")
            n_neighbors = min(given["n_neighbors"], n - 1)
            centre = centre_of(F)
            rows = np.ascontiguousarray(F - centre)
            index = neighbor_index(rows, n_neighbors + 1)
            landmarks = spread_rows(n, given["n_landmarks"])
            self.n_parts_, lengths = _path_lengths(rows, index, n_neighbors, landmarks)
            eigenvalues, V, squares = _scaling(lengths, landmarks, d)
            V *= eigenvector_signs(V, F[landmarks])
            kept = np.vstack([squares, (V / (-2 * np.sqrt(eigenvalues))).T])
            self.eigenvalues_, self.landmarks_, self._n_features_out = eigenvalues, landmarks, d
            self._encoding = GeodesicExtension(rows, centre, lengths, kept, n_neighbors, root)
            vars(self._encoding)["index"] = index
        return self

    def frozen_encoder(self, precision, tol):
        check_fitted(self, "_encoding")
        encoding = self._encoding
        if encoding.n_neighbors > MOST_NEIGHBORS:
            raise TypeError(
                f"an Isomap with n_neighbors={encoding.n_neighbors} cannot be frozen: an image holds at most "
                f"{MOST_NEIGHBORS}"
            )
        return {
            "encoder_centre": encoding.centre,
            "encoder_rows": encoding.rows.astype(precision),
            "encoder_lengths": encoding.lengths.astype(precision),
            "encoder_weights": encoding.weights,
            "encoder_root": encoding.root,
            "encoder_neighbors": encoding.n_neighbors,
        }


def _path_lengths(rows, index, n_neighbors, landmarks):
    """Number of parts of the graph of neighbours, and the lengths (n, m) of the shortest paths to the landmarks."""
    n = len(rows)
    distances, columns = index.query(rows, n_neighbors + 1)  # each field is its own neighbour
    edges = [np.repeat(np.arange(n), n_neighbors + 1)], [columns.ravel()], [distances.ravel()]
    parts = 0
    while True:
        i, j, lengths = map(np.concatenate, edges)
        # this format keeps edges of length 0; SciPy 1.13 needs 32-bit indices
        graph = csr_array((lengths, (i.astype(np.int32), j.astype(np.int32))), shape=(n, n))
        count, labels = connected_components(graph, directed=False)
        parts = parts or count
        if count == 1:
            return int(parts), np.ascontiguousarray(dijkstra(graph, directed=False, indices=landmarks).T)
        largest = np.bincount(labels).argmax()
        shortest, beyond = np.full(n, np.inf), np.zeros(n, np.intp)
        # the numbers of two parts differ in a bit: few searches for any number of parts
        for bit, side in product(range(int(count - 1).bit_length()), (0, 1)):
            there = (labels >> bit & 1) == side
            inside, outside = np.flatnonzero(there & (labels != largest)), np.flatnonzero(~there)
            nearest, among = neighbor_index(rows[outside], 1).query(rows[inside], 1)
            nearer = nearest[:, 0] < shortest[inside]
            shortest[inside[nearer]], beyond[inside[nearer]] = nearest[nearer, 0], outside[among[nearer, 0]]
        order = np.lexsort((shortest, labels))
        found = np.delete(order[np.unique(labels[order], return_index=True)[1]], largest)
        for known, new in zip(edges, (found, beyond[found], shortest[found])):
            known.append(new)


def _scaling(lengths, landmarks, d):
    """Classical scaling: leading eigenvalues, eigenvectors (m, d) and the means (m,) of the squared lengths (n, m)."""
    m, squared = len(landmarks), lengths[landmarks] ** 2
    if d > m - 1:
        raise ValueError(f"n_components must be at most the number of samples or landmarks less 1 = {m - 1}, got {d}")
    squared = (squared + squared.T) / 2  # the two directions of a path differ by round-off
    means = squared.mean(axis=0)
    B = (means[:, None] + means - squared - means.mean()) / 2
    eigenvalues, V = scipy.linalg.eigh(B, subset_by_index=[m - d, m - 1], overwrite_a=True, check_finite=False)
    eigenvalues, V = eigenvalues[::-1].copy(), V[:, ::-1]
    good = int((eigenvalues > m * np.finfo(float).eps * means.max()).sum())
    if good < d:
        same = f"the {m} landmarks are the same; raise n_landmarks" if lengths.any() else "all fields are the same"
        raise ValueError(
            f"the path lengths determine {good} coordinates, not {d}"
            + (". Ask for fewer components" if good else f": {same}")
        )
    return eigenvalues, V - V.mean(axis=0), means
