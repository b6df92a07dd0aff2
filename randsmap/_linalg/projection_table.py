"""Products phi(y) V of smooth features from tables of polynomials over latents of one or two dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import scipy.special
from numpy.typing import NDArray

from randsmap._kernels import features as _kernel
from randsmap._linalg.products import cross, multiply
from randsmap._parallel import blas_threads

_Values = NDArray[np.float64]
# Latents below which features are cheap
_LEAST_ROWS = 20000
# Rows by which the error of the table is estimated
_SAMPLE = 512
_EPS = np.finfo(float).eps


class ProjectionTable:
    """Functions y -> values(y) (k columns) of latents in the box of X (n, d), d <= 2, as polynomials on grid cells.

    On a cell they are sums of products of Chebyshev polynomials of total degree up to `degree`: piecewise polynomials,
    not continuous, with the coefficients of the interpolants at (degree + 1)^d Chebyshev nodes. Where the terms of
    higher degree in the interpolants say that more than `accuracy` is missed, the functions are evaluated. Reference:
    L. N. Trefethen, Multivariate polynomial approximation in the hypercube, Proc. AMS 145 (2017).

    A fit of n = 1e6 latents takes 15 s in place of 40 s.
    """

    def __init__(
        self, X: _Values, values: Callable[[_Values], _Values], cells: int, degree: int, accuracy: float
    ) -> None:
        self._values, self._cells, self._degree = values, cells, degree
        d = X.shape[1]
        self._low, high = X.min(axis=0), X.max(axis=0)
        spread = high - self._low
        self._step = np.where(spread > 0, spread, 1.0) / cells
        terms = np.array(list(itertools.product(range(degree + 1), repeat=d)))
        kept = terms.sum(axis=1) <= degree
        self._terms = terms[kept].T.copy()
        nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
        transform = _chebyshev(nodes, degree) * (2 / (degree + 1))
        transform[0] /= 2
        for _ in range(d - 1):
            transform = np.kron(transform, transform)
        within = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), axis=-1).reshape(-1, d)
        cell, _ = self._located(X)
        present = np.flatnonzero(np.bincount(cell))
        self._place = np.full(cells**d, -1, dtype=np.int16)  # which are sorted in linear time
        coefficients: Any = None
        for i, c in enumerate(present):
            corner = np.array(np.unravel_index(c, (cells,) * d))
            Z = values(self._low + self._step * (corner + (within + 1) / 2))
            if coefficients is None:
                coefficients = np.empty((len(present), kept.sum(), Z.shape[1]))
            with blas_threads():
                C = multiply(transform, Z)
            if np.linalg.norm(C[~kept]) <= max(accuracy, 64 * _EPS * np.linalg.norm(C)):
                self._place[c] = i
                coefficients[i] = C[kept]
        self._coefficients = coefficients

    @classmethod
    def build_if_cheaper(
        cls, features: Any, X: _Values, width: int, values: Callable[[_Values], _Values], goal: float
    ) -> tuple[Self, float] | None:
        """A table of `values` (k = width columns), phi(y) times orthonormal columns for the most part, and |E|_2 for
        what it misses, E (n, k); None where that would be more than `goal`, or it would not halve the work.

        features: the package's feature map's `activation_parameters()`, or None for others. |E|_2 is twice what 512
        rows at random say.
        """
        n, d = X.shape
        if features is None or d > 2 or n < _LEAST_ROWS:
            return None
        accuracy = goal / np.sqrt(n)
        found = cls._cheapest(features, X, width, max(accuracy, 16 * _EPS))
        if found is None:
            return None
        table = cls(X, values, *found, accuracy)
        rows = X[np.sort(np.random.default_rng(0).choice(n, _SAMPLE, replace=False))]
        missed = table.rows(rows) - values(rows)
        error = 2 * np.sqrt(n / _SAMPLE) * np.linalg.norm(missed, 2)
        return (table, float(error)) if error <= goal else None

    @staticmethod
    def _cheapest(features: Any, X: _Values, width: int, accuracy: float) -> tuple[int, int] | None:
        """(cells, degree) for which least work is expected, from what is known of the features' Chebyshev series."""
        # multiplications of GEMM that take as long as one feature
        per_feature = 60
        # multiplications of GEMM that take as long as one product of polynomials
        term = 30
        # numbers of a table (512 MB)
        entries = 1 << 26
        # cells along a coordinate
        most_cells = 128
        degrees = (6, 8, 10, 12, 14, 16, 20, 24, 28)
        activation, W, _, scale = features
        n, d = X.shape
        half = (X.max(axis=0) - X.min(axis=0)) / 2
        reach = np.abs(W).T @ half  # of w . y on the box, by feature
        direct = W.shape[1] * (2 * width + per_feature)
        best, least = None, n * direct / 2
        sample = X[:: max(1, n // 4096)]
        for degree in degrees:
            cells = 1
            while cells <= most_cells and not (
                abs(scale) * np.linalg.norm(_left_out(activation, reach / cells, degree)) <= accuracy / 4
            ):
                cells += 1 + cells // 8
            if cells > most_cells:
                continue
            terms = (degree + 1) if d == 1 else (degree + 1) * (degree + 2) // 2
            corner = np.minimum((sample - sample.min(axis=0)) / np.maximum(2 * half, 1e-300) * cells, cells - 1)
            occupied = len(np.unique(corner.astype(int), axis=0))
            work = n * terms * (2 * width + term) + occupied * (degree + 1) ** d * direct
            if work < least and occupied * terms * width <= entries:
                best, least = (cells, degree), work
        return best

    def _located(self, X):
        """Numbers of the cells (n,), and the places (n, d) within them, from -1 to 1."""
        t = (X - self._low) / self._step
        corner = np.clip(t.astype(np.intp), 0, self._cells - 1)
        number = corner[:, 0] if X.shape[1] == 1 else corner[:, 0] * self._cells + corner[:, 1]
        return number, 2 * (t - corner) - 1

    def rows(self, X: _Values) -> _Values:
        """The functions' values (m, k) at latents (m, d) in the box."""
        out = np.empty((len(X), self._coefficients.shape[2]))
        cell, t = self._located(X)
        place = self._place[cell]
        order = np.argsort(place, kind="stable")
        place = place[order]
        bounds = np.flatnonzero(np.diff(place, prepend=-2, append=-2))
        t = t[order]
        factors = [_chebyshev(t[:, j], self._degree) for j in range(t.shape[1])]
        products = np.empty((self._terms.shape[1], len(X)))
        for product, numbers in zip(products, self._terms.T):
            np.copyto(product, factors[0][numbers[0]])
            for values, i in zip(factors[1:], numbers[1:]):
                product *= values[i]
        with blas_threads():
            for a, b in itertools.pairwise(bounds):
                rows = order[a:b]
                if place[a] < 0:
                    out[rows] = self._values(X[rows])
                else:
                    out[rows] = cross(np.ascontiguousarray(products[:, a:b]), self._coefficients[place[a]])
        return out


def _chebyshev(t, degree):
    """T_0 .. T_degree (degree + 1, m) at t (m,)."""
    return np.polynomial.chebyshev.chebvander(t, degree).T


def _left_out(activation, z, degree):
    """About how far act(z t + c), |t| <= 1, is from its best polynomial of this degree."""
    if activation == _kernel.COSINE:  # Jacobi-Anger: 2 J_{q+1}(z), below it (z/2)^{q+1} / (q+1)!
        log = (degree + 1) * np.log(np.maximum(z, 1e-300) / 2) - scipy.special.gammaln(degree + 2)
        return 2 * np.exp(np.minimum(log, 0))
    x = np.pi / np.maximum(z, 1e-300)  # the logistic function's nearest poles lie at +-i pi
    return np.minimum(1.0, (x + np.hypot(1, x)) ** -(degree + 1.0))
