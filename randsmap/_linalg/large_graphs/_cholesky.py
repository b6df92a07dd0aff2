"""Cholesky factorisation of large sparse matrices: nested dissection and dense fronts.

A k-d tree halves the vertices again and again by coordinates: their places in space, or numbers of steps to a few
vertices. Of the edges between two halves, the vertices on one side are a separator, which is eliminated after both.
At each node of the tree of separators a dense front is factored, and its update of the separators above is added to
the parent's front (multifrontal method). The sizes of all fronts are known before anything is factored.

References
----------
George, Nested dissection of a regular finite element mesh, SIAM J. Numer. Anal. 10 (1973). Duff and Reid, The
multifrontal solution of indefinite sparse symmetric linear equations, ACM Trans. Math. Softw. 9 (1983).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.sparse import csr_array

from randsmap._kernels import fronts as _kernel
from randsmap._kernels import neighbors as _tree

_Values = NDArray[np.float64]
# Vertices of a part that is not dissected any more
LEAF = 256


class SparseCholesky:
    """L L^T of sparse symmetric positive definite matrices of one graph, whose dissection says what a factor takes.

    `graph` (n, n) has a symmetric pattern, `coordinates` (n, c) are places of the vertices such that those joined are
    near to one another.
    """

    def __init__(self, graph: csr_array, coordinates: _Values) -> None:
        n, c = coordinates.shape
        depth = max(0, (-(-n // LEAF) - 1).bit_length())
        order = np.empty(n, np.intp)
        boxes, lowest = np.empty((2 ** (depth + 1) - 1, 2, c)), np.empty(2 ** (depth + 1) - 1)
        _tree.build(coordinates, depth, order, boxes, lowest, np.empty((2**depth - 1, 2)))
        home = _separators(graph, order, depth)
        nodes = _children_first(depth)
        rank = np.empty(len(nodes), np.intp)
        rank[nodes] = np.arange(len(nodes))
        home = rank[home]
        self.permutation = np.argsort(home, kind="stable")  # the vertices in the order of their elimination
        place = np.empty(n, np.intp)
        place[self.permutation] = np.arange(n)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(home, minlength=len(nodes)))])
        # For each node, children first: the range of its own vertices (places in `permutation`); the places of the
        # vertices above that it touches, ascending; the numbers of its children in this list
        self.fronts: list[tuple[int, int, NDArray[np.intp], tuple[int, ...]]] = []
        self._factors: list[tuple[int, int, NDArray[np.intp], _Values, _Values]] = []
        self.entries = self.operations = 0  # numbers of the factor, and multiplications to find it
        for number, node in enumerate(nodes):
            start, stop = bounds[number], bounds[number + 1]
            children = tuple(rank[[2 * node + 1, 2 * node + 2]]) if 2 * node + 2 < len(nodes) else ()
            rows = self.permutation[start:stop]
            touched = [place[_columns_of(graph, rows)]] + [self.fronts[c][2] for c in children]
            above = np.unique(np.concatenate(touched))
            above = above[np.searchsorted(above, stop) :]
            s, b = int(stop - start), len(above)
            self.fronts.append((int(start), int(stop), above, children))
            self.entries += s * (s + 1) // 2 + s * b
            self.operations += s * s * s // 3 + s * s * b + s * b * b

    def factor(self, matrix: csr_array) -> None:
        """Factor a matrix (n, n) of this graph, symmetric, every entry stored; a LinAlgError if it is not definite."""
        n = len(self.permutation)
        place = np.empty(n, np.intp)
        place[self.permutation] = np.arange(n)
        self._factors = []
        left: dict[int, _Values] = {}  # what children leave for their parents
        for number, (start, stop, above, children) in enumerate(self.fronts):
            s, b = stop - start, len(above)
            own = np.zeros((s, s), order="F")
            below = np.zeros((b, s), order="F")
            rest = np.zeros((b, b), order="F")
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
                _kernel.add(update, 0, 0, to_own, to_own, True, own)
                _kernel.add(update, c, 0, to_rest, to_own, False, below)
                _kernel.add(update, c, c, to_rest, to_rest, True, rest)
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
    """Numbers of steps (n, count) to each vertex of a graph of symmetric pattern from vertices far from one another.

    Steps to vertices that cannot be reached are more than all others.
    """
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


def _children_first(depth):
    """Nodes of the complete binary tree (the children of i are 2i + 1 and 2i + 2), a subtree at a time."""
    nodes, pending = [], [0]
    while pending:
        node = pending.pop()
        nodes.append(node)
        if 2 * node + 2 < 2 ** (depth + 1) - 1:
            pending += [2 * node + 1, 2 * node + 2]
    return np.array(nodes[::-1])


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
