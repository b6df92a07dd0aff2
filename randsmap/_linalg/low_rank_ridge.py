"""Ridge regression at the cost of the rank of Phi: A = V alpha, V the features at few latent points.

Smooth features of low-dimensional latents have few singular values that matter compared with sqrt(lambda). With an
orthonormal V whose span holds the features, Phi V is all that the regression needs of Phi.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy.special
from numpy.typing import NDArray
from scipy.linalg.blas import ddot

from randsmap._io.progress import steps
from randsmap._kernels import features as _kernel
from randsmap._linalg import gram
from randsmap._linalg.products import cross, multiply
from randsmap._linalg.rows import FeatureRows, Rows, centre
from randsmap._linalg.spectral import Spectral
from randsmap._linalg.svd import orthonormalize_rows_against
from randsmap._parallel import blas_threads

_Values = NDArray[np.float64]
# Latent points whose features V gains at a time
STEP = 64
# Gaussian probes of the features outside V. The bound tau is too small if a chi-squared variable of 10 degrees of
# freedom is below 1 / _MARGIN: once in 150000 fits
PROBES = 10
_MARGIN = 2.0
# Points that test V before the pass over all points
TESTS = 64
# Points among which the farthest are sought
_CANDIDATES = 16384
_SLACK = np.log(10.0)  # of the extrapolated logarithm of tau
# Largest number of entries of Phi V that is kept (256 MB); a larger Phi V is computed anew in every pass
_STORED = 1 << 25
# Number of latent points below which features are cheap, so that no table of Phi V is made
_LEAST_ROWS = 20000
# Rows by which the error of the table is estimated
_SAMPLE = 512
_EPS = np.finfo(float).eps


class LowRank:
    """Ridge regressions within the span V of few points' features, each as far as its error is bounded by `tol`: see
    docs/low-rank.md (V is Q there) for the bound, whose tau >= |Phi (I - V V^T)|_2^2 comes from probes of a fixed seed.

    It is the feature rows [1 |] Phi V too, less `mean`, as FeatureRows are those of Phi. Without bias in `rows`, the
    bias is not penalised: means of features and fields are taken off. V has at most `most` columns, enough for the
    least of the `regularizations` that is possible. `tol` is the largest bound of |Phi (A - A*)| / |F|; None: 1e-8.
    Unless `forced` it is no more than that.

    Added to it are |E|_2 (|F - Phi A| / (2 sqrt(lambda)) + |alpha|), E being the error of a table of Phi V (see
    `ProjectionTable`) and the round-off of features whose mean is taken off, and the round-off of alpha. References:
    T. F. Gonzalez, Theor. Comput. Sci. 38 (1985), for points each farthest from those before; N. Halko, P.-G.
    Martinsson and J. A. Tropp, SIAM Rev. 53 (2011), Sec. 4.3, for the probes.
    """

    def __init__(
        self, rows: FeatureRows, most: int, regularizations: Sequence[float], tol: float | None, *, forced: bool
    ) -> None:
        self.n, self.bias, self.total, self.root = rows.n, rows.bias, rows.total, None
        self.mean: _Values | None = None
        self.tol = 1e-8 if tol is None else tol if forced else min(tol, 1e-8)
        self._features = rows.without_bias()
        P = self._features.width
        self._most = min(most, P)
        rng = np.random.default_rng(0)
        few = self.n <= _CANDIDATES
        self._some = np.arange(self.n) if few else np.sort(rng.choice(self.n, _CANDIDATES, replace=False))
        tests = rng.choice(self._some, min(self.n, TESTS), replace=False)
        self._tests = self._features.take(tests).whole()
        if not self.bias:
            self._features.mean = self._tests.mean(axis=0)
            self._tests -= self._features.mean
        self._per_test = self.n / len(tests)
        self._energy = self._test_energy()
        self._farthest = farthest_points(self._features.metric_points(self._some))
        self._Vt = np.empty((0, P))
        self._probes = rng.standard_normal((PROBES, P))
        # results of a pass over the features
        self._is_projected = False
        self._fields: Any = None
        self._sums: Any = None
        self._Z: _Values | None = None
        self.tau = np.inf
        # errors |E|_2 that a table of Phi V may have (0: no table), and that its rows have
        self._table_goal = self._row_error = 0.0
        self._table: ProjectionTable | None = None
        self._is_useful = False
        for value in sorted(regularizations):  # V grows for the least lambda that it can serve
            # one pass in most cases: the bound by probes is 20 times the tests'
            if self.grow(self.tol * value / (2 * _MARGIN * PROBES)):
                self._table_goal = self.tol * np.sqrt(value) / 8
                self._is_useful = self.rank > 0  # 0: all latents are equal
                break

    # columns of V, and of Phi V with the bias
    rank = property(lambda self: len(self._Vt))
    width = property(lambda self: self.rank + self.bias)

    # -- The space -----------------------------------------------------------------------------------
    def _test_energy(self):
        return self._per_test * float(np.square(self._tests).sum())

    def grow(self, goal: float, *, once: bool = False) -> bool:
        """Add columns to V until the points that test it say tau <= goal (`once`: 64 more, or as many as there are);
        False if that takes too many, or will, by the decay so far, or none is left."""
        while once or self._energy > goal:
            left = self._most - self.rank
            if left <= 0:
                return False
            points = [i for _, i in zip(range(min(STEP, left)), self._farthest)]
            if not points:  # V spans the features of all points
                return not once
            new = self._features.take(self._some[points]).whole()
            with blas_threads(1):  # products too narrow to gain from more threads
                before, halfway = self._energy, self._add(new, goal, once)
            if once:
                break
            if self._energy > goal:  # does the decay so far show that `most` columns are not enough
                first, second = np.log(halfway / before), np.log(self._energy / halfway)
                gain = 3 if second < first else 1  # of later columns over the last ones, at most: does the decay grow
                rest = gain * second * (self._most - self.rank) / (len(new) - len(new) // 2)
                if np.log(self._energy) + rest > np.log(max(goal, 1e-300)) + _SLACK:
                    return False
        return True

    def _add(self, new, goal, once):
        """Add to V the span of features `new` (k, P), or unless `once` as much as `goal` needs; the energy halfway."""
        new = orthonormalize_rows_against(new, self._Vt)
        seen = multiply(self._tests, new.T)
        energies = self._energy - self._per_test * np.cumsum(np.einsum("ij,ij->j", seen, seen))
        enough = int(np.argmax(energies <= goal / 2)) // 8 * 8 + 8
        if not once and energies[-1] <= goal / 2 and enough < len(new):  # the last step need not be a whole one
            new, seen = new[:enough], np.ascontiguousarray(seen[:, :enough])
        self._tests -= multiply(seen, new)
        self._Vt = np.vstack([self._Vt, new])
        self._energy = self._test_energy()
        return max(energies[(len(new) - 1) // 2], self._energy)

    def _project(self, F):
        """Phi V and tau in one pass over the features; with fields F (n, M) also the sums for their solutions."""
        if self._is_projected and (F is None or self._fields is F):
            return
        self.mean = self._norm = self._Z = None
        self._cholesky, self._spectral = gram.Cholesky(self), Spectral(self)
        self._is_projected, self._fields = True, F
        self._right = np.vstack([self._Vt, self._probes - multiply(multiply(self._probes, self._Vt.T), self._Vt)])
        table = ProjectionTable.build_if_cheaper(
            self._features.activation_parameters,
            self._features.points,
            len(self._right),
            lambda X: multiply(self._features.at(X).whole(), self._right.T),
            self._table_goal,
        )
        self._table, self._row_error = table or (None, 0.0)
        if not self.bias:  # round-off of Phi and decoded fields while they contain the mean, the larger part
            self._row_error += 8 * _EPS * float(np.sqrt(self.n) * np.linalg.norm(self._features.mean))
        if self.n * len(self._right) <= _STORED:
            self._Z = self.whole()
        if F is None:
            if self._Z is None:  # for tau
                deque(self.blocks(), maxlen=0)
            return
        # the Gram matrix of Phi V, the products with the fields, and the energy of these, less their mean
        sums, energy = gram.GramAccumulator(self.width, F.shape[1], not self.bias), 0.0
        reference = np.zeros(F.shape[1]) if self.bias else F[:1][0]
        for start, stop, Z in self.blocks(gram.sum_rows(self.width, F.shape[1])):
            fields = F[start:stop]
            energy += float(np.square(fields - reference).sum())
            sums.add(Z, fields)
        self._sums = sums.totals()
        if not self.bias:
            energy -= self.n * np.sum((self._sums[3] - reference) ** 2)
        self._energy_of_fields = max(energy, 0.0)

    def _projections(self, size):
        """(start, stop, rows of Phi times [V, probes outside V]) over all rows."""
        if self._table is None:
            for start, stop, block in self._features.blocks(size):
                with blas_threads():
                    Z = multiply(block, self._right.T)
                yield start, stop, Z
            return
        # blocks of rows are sorted by the cells of the table; each cell then has enough rows for matrix products
        for first, last in steps(self.n, 16384, "fitting"):
            Z = self._table.rows(self._features.points[first:last])
            for start in range(first, last, size):
                stop = min(start + size, last)
                yield start, stop, Z[start - first : stop - first]

    def _computed(self, size):
        """(start, stop, rows of [1 |] Phi V) over all rows, from a pass over the features, which finds tau."""
        energy = 0.0
        for start, stop, Z in self._projections(size):
            energy += np.linalg.norm(Z[:, self.rank :]) ** 2
            yield start, stop, np.hstack([np.ones((stop - start, int(self.bias))), Z[:, : self.rank]])
        self.tau = _MARGIN * energy

    def blocks(self, size: int = 2048) -> Iterator[tuple[int, int, _Values]]:
        """(start, stop, rows of [1 |] Phi V less `mean`) over all rows, as those of FeatureRows."""
        source = self._computed(size) if self._Z is None else Rows(self._Z).blocks(size, "fitting")
        for start, stop, Z in source:
            yield start, stop, Z.copy() if self.mean is None else Z - self.mean

    def whole(self) -> _Values:
        """All of [1 |] Phi V less `mean`, (n, width)."""
        out = np.empty((self.n, self.width))
        for start, stop, block in self.blocks():
            out[start:stop] = block
        return out

    # -- The regression --------------------------------------------------------------------------------
    def _certificate(self, regularization):
        """c with |Phi (A - A*)| <= c |F - Phi A|, for the A of `solve`; infinite where nothing is known."""
        ratio = self.tau / regularization if regularization > 0 else np.inf
        c = ratio * (1 + ratio)
        return c / (1 - c) if c < 1 else np.inf

    def _passes(self, F, regularization):
        """Passes over the features, each with 64 more columns, as long as they may bring the bound down to `tol`."""
        for _ in range(3 if self._is_useful else 0):
            self._project(F)
            # neither a small residual nor more columns would gain that much
            if not self._certificate(regularization) <= 1e4 * self.tol:
                return
            yield
            if not self.grow(0.0, once=True):
                return
            self._is_projected = False

    def solve(self, F: Any, regularization: float) -> gram.Solution | None:
        """The solution for fields F (n, M), always the same; None where its bound is more than `tol`."""
        for _ in self._passes(F, regularization):
            alpha, bound = self._solve_projected(F, regularization)
            if bound <= self.tol:
                return gram.Solution(self._full_coefficients(alpha), "lowrank", 1, self.rank, bound)
        return None

    def _solve_projected(self, F, regularization):
        """alpha (width, M), A = V alpha, and the bound of |Phi (A - A*)| / |F|."""
        G, H, mean, _ = self._sums
        energy, size = self._energy_of_fields or 1.0, float(np.sqrt(np.trace(G)))
        alpha = H.copy()
        if self._norm is None:
            self._norm = gram.gram_norm(G, self.n if self.bias else None)
        solved = gram.gram_is_accurate(self._norm, regularization) and gram.cholesky_solve(
            G.copy(), alpha, regularization
        )
        for squared in (True, False) if solved else (False,):
            if not squared:  # the round-off of the Gram matrix would be significant
                self.mean = mean
                alpha = self._spectral.solve(F, regularization).coefficients[int(not self.bias) :]
            length = ddot(alpha.ravel(), alpha.ravel())
            # |F - Z alpha|^2 = |F|^2 - alpha^T (H + lambda alpha), Z^T Z alpha being H - lambda alpha
            left = energy - ddot(alpha.ravel(), H.ravel()) - regularization * length
            left = float(np.sqrt(min(max(left / energy, 0.0) + 8 * _EPS * self.n, 1.0)))  # with its round-off
            a = float(np.sqrt(length / energy))
            bound = self._certificate(regularization) * left + _round_off(size, regularization, a, left, squared)
            bound += self._row_error * (left / (2 * np.sqrt(regularization)) + a)
            if bound <= self.tol:
                break
        return alpha, bound

    def _full_coefficients(self, alpha):
        _, _, mean, field_mean = self._sums
        with blas_threads():
            R = cross(self._Vt, np.ascontiguousarray(alpha[int(self.bias) :]))
            if self.bias:
                return np.vstack([alpha[:1], R])
            # mean(phi) is the reference and what the rows less it have for a mean, seen through V
            return np.vstack([field_mean - (self._features.mean @ R + mean @ alpha), R])

    def weights(self, points: FeatureRows, regularization: float) -> _Values | None:
        """Weights (L, n) of the fields, less their mean without a bias, in those decoded at `points`, always the same;
        None where |Phi (A - A*)| <= tol |F| is not known for all fields."""
        for _ in self._passes(None, regularization):
            if self._certificate(regularization) + self._row_error / np.sqrt(regularization) > self.tol:
                continue
            centre(self)
            features = points.without_bias()
            features.mean = self._features.mean
            Z = np.hstack([np.ones((points.n, int(self.bias))), features.times(self._Vt.T)])
            Z = Z if self.mean is None else Z - self.mean
            size, largest = float(np.linalg.norm(self.whole())), 0.5 / np.sqrt(regularization)
            W = None
            if _round_off(size, regularization, largest, 1.0, True) <= self.tol:
                W = self._cholesky.weights(Z, regularization)
            return self._spectral.weights(Z, regularization) if W is None else W
        return None

    def covers(self, least: float) -> bool:
        """True if no square of a singular value that V leaves out is above `tol` times `least`."""
        if self._is_useful:
            self._project(None)
        return self._is_useful and self.tau <= self.tol * least


def _round_off(size: float, regularization: float, alpha: float, left: float, squared: bool) -> float:
    """Round-off of |Phi (A - A*)| / |F|, by the Gram matrix of Phi V (`squared`) or by its QR factorisation.

    size : |Phi V|; alpha, left : |A| and |F - Phi A| over |F|
    """
    # A perturbation E of Phi V changes the fields by |E| (|A| + |F - Phi A| / (2 sqrt(lambda))), one of its Gram matrix
    # and products by (|E A| + ...) / (2 sqrt(lambda)); |E| is some eps |Phi V|
    some, steep = 8 * _EPS, size / (2 * np.sqrt(regularization))
    return float(some * ((1 + size * alpha) * (1 + steep) if squared else 1 + size * alpha + steep * left))


def farthest_points(points: _Values) -> Iterator[int]:
    """Indices of points (n, d), each the farthest from those before, until the others are equal to one of them."""
    distances = np.einsum("ij,ij->i", points, points)  # from their mean
    while distances.max(initial=0) > 0:
        yield (i := int(np.argmax(distances)))
        step = points - points[i]
        np.minimum(distances, np.einsum("ij,ij->i", step, step), out=distances)


# -- Tables of Phi V -------------------------------------------------------------------------------
class ProjectionTable:
    """Functions z -> values(z) (k columns) of latents in the box of X (n, d), d <= 2, as polynomials on grid cells.

    On a cell they are sums of products of Chebyshev polynomials of total degree up to `degree`: piecewise polynomials,
    not continuous, with the coefficients of the interpolants at (degree + 1)^d Chebyshev nodes. Where the terms of
    higher degree in the interpolants say that more than `accuracy` is missed, the functions are evaluated. Reference:
    L. N. Trefethen, Multivariate polynomial approximation in the hypercube, Proc. AMS 145 (2017).

    A fit of n = 1e6 latents takes 15 s instead of 40 s.
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
        known = goal and features is not None and d <= 2 and n >= _LEAST_ROWS
        accuracy = goal / np.sqrt(n)
        found = cls._cheapest(features, X, width, max(accuracy, 16 * _EPS)) if known else None
        if found is None:
            return None
        table = cls(X, values, *found, accuracy)
        rows = X[np.sort(np.random.default_rng(0).choice(n, _SAMPLE, replace=False))]
        missed = table.rows(rows) - values(rows)
        error = 2 * np.sqrt(n / _SAMPLE) * np.linalg.norm(missed, 2)
        return (table, float(error)) if error <= goal else None

    @staticmethod
    def _cheapest(features: Any, X: _Values, width: int, accuracy: float) -> tuple[int, int] | None:
        """(cells, degree) of the least expected work, by the Chebyshev series of the features."""
        per_feature, term = (
            60,
            30,
        )  # multiplications of GEMM that take as long as a feature, or a product of polynomials
        entries, most_cells = 1 << 26, 128  # numbers of a table (512 MB), and cells along a coordinate
        activation, W, _, scale = features
        n, d = X.shape
        half = (X.max(axis=0) - X.min(axis=0)) / 2
        reach = np.abs(W).T @ half  # of w . y on the box, by feature
        direct = W.shape[1] * (2 * width + per_feature)
        best, least = None, n * direct / 2
        sample = X[:: max(1, n // 4096)]
        for degree in (6, 8, 10, 12, 14, 16, 20, 24, 28):
            enough, cells = accuracy / 4 / abs(scale), 1
            while cells <= most_cells and not np.linalg.norm(_left_out(activation, reach / cells, degree)) <= enough:
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
        order = np.argsort(self._place[cell], kind="stable")
        place, t = self._place[cell[order]], t[order]
        bounds = np.flatnonzero(np.diff(place, prepend=-2, append=-2))
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
    """Approximate error of the best polynomial of this degree for act(z t + c), |t| <= 1."""
    if activation == _kernel.COSINE:  # Jacobi-Anger: 2 J_{q+1}(z), below it (z/2)^{q+1} / (q+1)!
        log = (degree + 1) * np.log(np.maximum(z, 1e-300) / 2) - scipy.special.gammaln(degree + 2)
        return 2 * np.exp(np.minimum(log, 0))
    x = np.pi / np.maximum(z, 1e-300)  # the logistic function's nearest poles lie at +-i pi
    return np.minimum(1.0, (x + np.hypot(1, x)) ** -(degree + 1.0))
