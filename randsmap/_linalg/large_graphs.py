"""Graphs of near neighbours among 1e4 samples and more: finding them, and the leading eigenpairs of their kernel.

Two functions, each of which returns None or a plain index where the ordinary way is as fast
(docs/sparse-diffusion-maps.md has the figures). `neighbor_index` searches wide rows in their leading principal
coordinates: with V (M, r) orthonormal, y = V^T x and rho = |x - V y|, |y - y'|^2 + (rho - rho')^2 <= |x - x'|^2
excludes points from the nearest. The others are compared by the sums of `NeighborIndex`, with the same neighbours,
order among equals and bits.

`inverted_eigenpairs` is Lanczos on a shifted inverse (Ericsson and Ruhe, The spectral transformation Lanczos method,
Math. Comp. 35, 1980), by a sparse Cholesky factor of dense fronts. A k-d tree halves the vertices again and again; of
the edges between two halves, the vertices on one side are a separator, which is eliminated after both. Each front's
update of the separators above is added to its parent's. References: George, Nested dissection of a regular finite
element mesh, SIAM J. Numer. Anal. 10 (1973). Duff and Reid, The multifrontal solution of indefinite sparse symmetric
linear equations, ACM Trans. Math. Softw. 9 (1983).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, lapack
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from randsmap import _parallel
from randsmap._kernels import fronts as _fronts
from randsmap._kernels import neighbors as _kernel
from randsmap._linalg.distances import squared_distances
from randsmap._linalg.neighbors import NeighborIndex, build_tree
from randsmap._linalg.rows import Rows
from randsmap._linalg.svd import block_size, leading_eigenpairs, truncated_svd

_Values = NDArray[np.float64]


# -- Neighbours ------------------------------------------------------------------------------------
# Number of points below which the other searches are faster
SMALLEST = 5000
# Points per leaf at most
LEAF = 16
# Points that are bounded together: they fit in the cache
CHUNK = 8192
# Largest cost of this search, relative to bounds by all columns or to all pairs in single precision
ALLOWED = 0.5


def neighbor_index(points: _Values, k: int) -> NeighborIndex | ProjectedNeighbors:
    """The index to search these points (n, M), finite and centred, for their k nearest: the projected one where
    that prunes most of the pairs of a sample."""
    n, M = points.shape
    sample, rank = points[:: -(-n // 512)], None
    if n >= SMALLEST and M > 16 and 8 * k <= n and sample.any():
        # any orthonormal directions bound distances
        _, modes, _ = truncated_svd(Rows(sample), lambda *_: min(64, M // 4, len(sample) // 4))
        rank = _best_rank(points, modes.T, k)
    if rank is None:
        return NeighborIndex(points)
    return ProjectedNeighbors(points, np.ascontiguousarray(modes[:rank].T))


def _projected(points, directions):
    """Coordinates V^T x and the norm of the remainder of each point, (n, r + 1)."""
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
    bound_cost = 0.2  # cost of a bound by one coordinate, over one column of an exact comparison
    n, M = points.shape
    chosen = np.arange(0, n, -(-n // 32))
    farthest = np.partition(squared_distances(points[chosen], points), k - 1)[:, k - 1]
    others = _projected(points[:: -(-n // 4096)], directions)
    queries = _projected(points[chosen], directions)
    most = directions.shape[1]
    ranks = np.array([r for r in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48) if r < most] + [most])
    starts = np.concatenate([[0], ranks[:-1]])
    passed = np.zeros(len(ranks))
    left = _left_at(ranks, others)
    for y, reach in zip(queries, farthest):
        kept = np.cumsum(np.add.reduceat((others[:, :-1] - y[:-1]) ** 2, starts, axis=1), axis=1)
        lower = kept + (left - _left_at(ranks, y[None])) ** 2
        passed += (lower <= reach).sum(axis=0)
    passed *= n / len(others) / len(chosen)
    # some 30 points are bounded for each neighbour
    cost = np.maximum(passed, k) * M + 30 * bound_cost * k * (ranks + 1)
    best = int(np.argmin(cost))
    worst = passed[best] * M + bound_cost * n * (ranks[best] + 1)  # the case that every point needs a bound
    return int(ranks[best]) if worst < ALLOWED * bound_cost * n * M else None


def _left_at(ranks, coordinates):
    """Norms of the remainders of points after the leading coordinates, (n, len(ranks))."""
    squares = coordinates**2
    return np.sqrt(np.stack([squares[:, r:].sum(axis=1) for r in ranks], axis=1))


def _group_bounds(leaf, n_leaves):
    """Where groups of about 64 of the sorted leaf numbers begin, and the end; each within a subtree."""
    together = 1
    while 2 * together <= n_leaves and len(leaf) * together < 64 * n_leaves:
        together *= 2
    starts = np.flatnonzero(np.diff(leaf // together, prepend=-1))
    within = np.arange(len(leaf)) - np.repeat(starts, np.diff(starts, append=len(leaf)))
    return np.append(np.flatnonzero(within % 128 == 0), len(leaf))


class ProjectedNeighbors:
    """Points (n, M), not copied, made ready for `query`, like `NeighborIndex`; `directions` (M, r) are V."""

    def __init__(self, points: _Values, directions: _Values) -> None:
        self.n_points, self.n_dims = n, _ = points.shape
        self._points, self._directions = points, directions
        coordinates = _projected(points, directions)
        self._order, depth, boxes, lowest, split = build_tree(coordinates, LEAF)
        self._coordinates, self._tree = coordinates[self._order], (depth, boxes, lowest, split)
        self._start = n * np.arange(0, 2**depth + 1, min(2, 2**depth)) // 2**depth  # cells of two leaves: the best
        counts = np.diff(self._start)
        self._centres = np.add.reduceat(self._coordinates, self._start[:-1], axis=0) / counts[:, None]
        away = self._coordinates - np.repeat(self._centres, counts, axis=0)
        self._radii = np.sqrt(np.maximum.reduceat(np.einsum("ij,ij->i", away, away), self._start[:-1]))
        # bound of the round-off in a distance of these coordinates; |x| = |(y, rho)|
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
        coordinates, leaf = _projected(Q, self._directions), np.empty(m, np.intp)
        _kernel.assign(self._coordinates, lowest, depth, boxes, lowest, split, coordinates, leaf)
        order = np.argsort(leaf, kind="stable")
        coordinates = coordinates[order]
        bounds = _group_bounds(leaf[order], 2**depth)

        def task(i):
            rows = order[bounds[i] : bounds[i + 1]]
            distance[rows], index[rows] = self._search(Q[rows], coordinates[bounds[i] : bounds[i + 1]], k)

        with _parallel.blas_threads(1):
            _parallel.parallel_for(task, len(bounds) - 1)
        return distance, index

    def _search(self, Q, y, k):
        """`query` for a group of queries that are close to each other; y are their coordinates."""
        together = 16  # queries whose candidates are compared together: the best of 4 to 64
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
        return _ranges(self._start[cells], self._start[cells + 1])

    def _squared(self, others, away, own):
        """Squared distances (m, c) of some points from the queries of a group, less the bound of the round-off.

        `others` (c, r + 1) and `away` (m, r + 1) are relative to the group's centre, `own` the squares of the latter.
        """
        sizes = np.einsum("ij,ij->i", others, others)
        squares = away @ others.T
        squares *= -2
        squares += (1 - self._rounding) * own[:, None]
        squares += (1 - self._rounding) * sizes
        return squares


# -- Eigenpairs -------------------------------------------------------------------------------------
# Nanoseconds, measured with one thread (only their ratios matter)
COST = {
    "product": 1.0,  # with an entry of S, for each vector of Lanczos
    "orthogonalisation": 40,  # of a row, for each vector of Lanczos
    "factorisation": 0.03,  # a multiplication
    "assembly": 15,  # memory moved for an entry of the factor
    "solution": 0.9,  # with an entry of the factor, for each vector
}
# Where the inverse is tried: measured on kernels of two to five parameters, with 2e4 to 2e5 samples
LIMITS = {
    "steps": 5,  # of Lanczos on S, times the root of the gap 1 - xi
    "inverted steps": 12,  # of Lanczos on the inverse
    "dissection": 1000,  # nanoseconds for an entry of S that make it worth while
    "share": 0.7,  # of the time of Lanczos on S that the inverse may take by these estimates
    "entries": 40,  # numbers of the factor for each entry of S
}


def inverted_eigenpairs(S: csr_array, count: int, constraint: _Values) -> tuple[_Values, _Values] | None:
    """As `leading_eigenpairs` for a sparse S, where this is faster than Lanczos on S; otherwise None. S (n, n) is
    symmetric with eigenvalues in (-1, 1], a vertex of a graph in space each row. `constraint` is its unit eigenvector
    to the eigenvalue 1, positive, which is left out."""
    n = len(constraint)
    # harmless: rounding errors over this shift would spoil the trivial eigenvector alone, which is left out
    shift = 1e-8
    components = _eigenspace_of_one(S, constraint)
    ones = _other_vectors(components, constraint, count)
    if ones.shape[1] == count:
        return np.ones(count), ones
    # Coordinates give the time of Lanczos on S and a dissection of the graph; averages over neighbours break ties
    p = block_size(count)
    coordinates = step_coordinates(S, count=4)
    for _ in range(2):
        coordinates = (S @ (coordinates * constraint[:, None])) / constraint[:, None]
    gap = max(_gap(S, constraint, components, coordinates), 1e-12)
    direct = LIMITS["steps"] / gap**0.5 * p * (COST["product"] * S.nnz + COST["orthogonalisation"] * n)
    if direct < LIMITS["dissection"] * S.nnz:
        return None
    factor = SparseCholesky(S, np.ascontiguousarray(coordinates))
    for_entry = COST["assembly"] + LIMITS["inverted steps"] * p * COST["solution"]
    inverted = COST["factorisation"] * factor.operations + for_entry * factor.entries
    if inverted > LIMITS["share"] * direct or factor.entries > LIMITS["entries"] * S.nnz:
        return None
    A = -S
    A.setdiag(1 + shift - S.diagonal())
    scale = shift + gap  # Lanczos needs a norm of about 1

    def inverse(X):
        return _left(components, factor.solve(_left(components, X))) * scale

    try:
        factor.factor(A)
        # relative to the inverse's norm: eigenvalues next to 1 lie far apart there
        _, U = leading_eigenpairs(inverse, n, count - ones.shape[1], constraint, tolerance=1e-13)
    except np.linalg.LinAlgError:
        return None
    # another step with S: parts of other eigenvectors are negligible for the inverse, but not for S
    U = np.hstack([ones, np.linalg.qr(inverse(U))[0]])
    SU = S @ U
    eigenvalues = np.einsum("ij,ij->j", U, SU)
    if np.linalg.norm(SU - U * eigenvalues, axis=0).max() > 1e-12:
        return None
    return eigenvalues, U


def _eigenspace_of_one(S, constraint):
    """Orthonormal sparse columns, to round-off: the constraint restricted to each component of the graph."""
    number, label = connected_components(S, directed=False)
    lengths = np.sqrt(np.bincount(label, constraint**2))
    return csr_array((constraint / lengths[label], label, np.arange(len(label) + 1)), shape=(len(label), number))


def _other_vectors(components, constraint, count):
    """At most `count` orthonormal vectors of that space that are orthogonal to the constraint: columns of the
    reflection that takes it to the first component."""
    w = components.T @ constraint  # of length 1
    w[0] += 1
    w /= np.linalg.norm(w)
    k = min(count, len(w) - 1)
    return components @ (np.eye(len(w), k, -1) - 2 * np.outer(w, w[1 : k + 1]))


def _left(components, X):
    """X (n, p) without its part in the eigenspace."""
    return X - components @ (components.T @ X)


def _gap(S, constraint, components, coordinates):
    """An upper bound of 1 - xi: the least Rayleigh quotient of I - S among linear functions of the coordinates."""
    trial = _left(components, (coordinates - constraint**2 @ coordinates) * constraint[:, None])
    Q, R = np.linalg.qr(trial)
    kept = abs(np.diag(R)) > 1e-10 * abs(np.diag(R)).max()
    if not kept.any():
        return 1.0
    Q = Q[:, kept]
    return float(1 - eigh(Q.T @ (S @ Q), eigvals_only=True)[-1])


# -- Sparse Cholesky factors ------------------------------------------------------------------------
# Vertices of a part that is not dissected further
PART = 256


class SparseCholesky:
    """L L^T of sparse symmetric positive definite matrices of one graph, whose dissection says what a factor takes.

    `graph` (n, n) has a symmetric pattern, `coordinates` (n, c) are places of the vertices such that those joined are
    near to one another.
    """

    def __init__(self, graph: csr_array, coordinates: _Values) -> None:
        n = len(coordinates)
        order, depth, *_ = build_tree(coordinates, PART)
        home = _separators(graph, order, depth)
        nodes = np.array(_children_first(depth))
        rank = np.empty(len(nodes), np.intp)
        rank[nodes] = np.arange(len(nodes))
        home = rank[home]
        self.permutation = np.argsort(home, kind="stable")  # the vertices in the order of their elimination
        self._place = place = np.empty(n, np.intp)
        place[self.permutation] = np.arange(n)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(home, minlength=len(nodes)))])
        # For each node, children first: the range of its own vertices (places in `permutation`); the places of the
        # vertices above that it touches, ascending; the numbers of its children in this list
        self.fronts: list[tuple[int, int, NDArray[np.intp], tuple[int, ...]]] = []
        self._factors: list[tuple[int, int, NDArray[np.intp], _Values, _Values]] = []
        self.entries = self.operations = 0  # numbers of the factor, and multiplications to find it
        for number, node in enumerate(nodes):
            start, stop = map(int, bounds[number : number + 2])
            children = tuple(rank[[2 * node + 1, 2 * node + 2]]) if 2 * node + 2 < len(nodes) else ()
            touched = [place[_columns_of(graph, self.permutation[start:stop])]] + [self.fronts[c][2] for c in children]
            above = np.unique(np.concatenate(touched))
            above = above[np.searchsorted(above, stop) :]
            s, b = stop - start, len(above)
            self.fronts.append((start, stop, above, children))
            self.entries += s * (s + 1) // 2 + s * b
            self.operations += s * s * s // 3 + s * s * b + s * b * b

    def factor(self, matrix: csr_array) -> None:
        """Factor a matrix (n, n) of this graph, symmetric, every entry stored; a LinAlgError if it is not definite."""
        place = self._place
        self._factors = []
        left: dict[int, _Values] = {}  # updates from children for their parents
        for number, (start, stop, above, children) in enumerate(self.fronts):
            s, b = stop - start, len(above)
            own, below, rest = (np.zeros(shape, order="F") for shape in ((s, s), (b, s), (b, b)))
            rows = self.permutation[start:stop]
            first, last = matrix.indptr[rows], matrix.indptr[rows + 1]
            entries = _ranges(first, last)
            i = np.repeat(np.arange(s), last - first)
            j = place[matrix.indices[entries]]
            inside = (j >= start) & (j < stop)
            own[i[inside], j[inside] - start] = matrix.data[entries[inside]]
            beyond = j >= stop
            below[np.searchsorted(above, j[beyond]), i[beyond]] = matrix.data[entries[beyond]]
            for child in children:
                update = left.pop(child)
                touched = self.fronts[child][2]
                c = int(np.searchsorted(touched, stop))
                to_own, to_rest = touched[:c] - start, np.searchsorted(above, touched[c:])
                _fronts.add(update, 0, 0, to_own, to_own, True, own)
                _fronts.add(update, c, 0, to_rest, to_own, False, below)
                _fronts.add(update, c, c, to_rest, to_rest, True, rest)
            if s:
                own, info = lapack.dpotrf(own, lower=1, clean=1, overwrite_a=1)
                if info:
                    raise np.linalg.LinAlgError("the sparse matrix is not positive definite")
                if b:
                    below = blas.dtrsm(1.0, own, below, side=1, lower=1, trans_a=1, overwrite_b=1)
                    rest = blas.dsyrk(-1.0, below, beta=1.0, c=rest, lower=1, overwrite_c=1)
                self._factors.append((start, stop, above, own, below))
            left[number] = rest

    def solve(self, B: _Values) -> _Values:
        """A^-1 B for B (n, p), A being the matrix that was factored last."""
        X = np.ascontiguousarray(B[self.permutation])
        for start, stop, above, own, below in self._factors:
            x = blas.dtrsm(1.0, own, X[start:stop].T, side=1, lower=1, trans_a=1)
            X[start:stop] = x.T
            X[above] -= below @ x.T
        for start, stop, above, own, below in reversed(self._factors):
            x = X[start:stop] - below.T @ X[above]
            X[start:stop] = blas.dtrsm(1.0, own, x.T, side=1, lower=1, overwrite_b=1).T
        out = np.empty_like(X)
        out[self.permutation] = X
        return out


def step_coordinates(graph: csr_array, count: int) -> _Values:
    """Numbers of steps (n, count) to each vertex of a graph of symmetric pattern from vertices far from one another;
    more than all others to vertices that cannot be reached."""
    out = np.empty((graph.shape[0], count))
    nearest = _steps(graph, 0)
    for c in range(count):
        out[:, c] = _steps(graph, int(np.argmax(nearest)))
        nearest = out[:, : c + 1].min(axis=1)
    return out


def _steps(graph, start):
    """Numbers of steps from a vertex to all others: breadth first."""
    steps = np.full(graph.shape[0], -1, np.int32)
    steps[start] = distance = 0
    front = np.array([start])
    while len(front):
        distance += 1
        reached = _columns_of(graph, front)
        steps[reached[steps[reached] < 0]] = distance
        front = np.flatnonzero(steps == distance)
    steps[steps < 0] = 2 * distance
    return steps


def _columns_of(graph, rows):
    """Columns of the entries of these rows, one after the other."""
    start, stop = graph.indptr[rows], graph.indptr[rows + 1]
    return graph.indices[_ranges(start, stop)]


def _ranges(start, stop):
    """The numbers start[i], ..., stop[i] - 1 for all i, one after the other."""
    length = (stop - start).astype(np.intp)
    first = np.cumsum(length) - length
    return np.repeat(start - first, length) + np.arange(length.sum())


def _children_first(depth, node=0):
    """Nodes of the complete binary tree (the children of i are 2i + 1 and 2i + 2), a subtree at a time."""
    if depth == 0:
        return [node]
    return [*_children_first(depth - 1, 2 * node + 1), *_children_first(depth - 1, 2 * node + 2), node]


def _separators(graph, order, depth):
    """The node of the tree that each vertex belongs to: a separator, or one of the 2^depth leaves."""
    n = len(order)
    leaf = np.empty(n, np.int32)
    bounds = n * np.arange(2**depth + 1) // 2**depth
    leaf[order] = np.repeat(np.arange(2**depth, dtype=np.int32), np.diff(bounds))
    home = leaf.astype(np.intp) + (2**depth - 1)
    i = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.indptr))
    j = graph.indices
    crossing = leaf[i] < leaf[j]
    i, j = i[crossing], j[crossing]
    # The level at which the halves part an edge; 0 is the root
    level = depth - np.frexp((leaf[i] ^ leaf[j]).astype(float))[1]
    by_level = np.argsort(level, kind="stable")
    i, j = i[by_level], j[by_level]
    bounds = np.searchsorted(level[by_level], np.arange(depth + 1))
    inner = 2**depth - 1
    for ell in range(depth):
        edge = slice(bounds[ell], bounds[ell + 1])
        a, b = i[edge], j[edge]
        whole = (home[a] >= inner) & (home[b] >= inner)  # an end in a separator above has parted it already
        sides = [np.unique(side[whole]) for side in (a, b)]
        nodes = [leaf[side] >> (depth - ell) for side in sides]
        fewer = np.argmin([np.bincount(node, minlength=2**ell) for node in nodes], axis=0)
        for which, (side, node) in enumerate(zip(sides, nodes)):
            taken = fewer[node] == which
            home[side[taken]] = node[taken] + (2**ell - 1)
    return home
