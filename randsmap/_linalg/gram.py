"""Ridge regression by the Gram matrix Phi^T Phi, or Phi Phi^T: its sums over rows, its Cholesky factor, its accuracy.

The sums do not depend on the order of the blocks of rows. Each entry is a sum in two numbers, about 106 bits, of what
BLAS makes of the blocks (T. J. Dekker, Numer. Math. 18, 1971; T. Ogita, S. M. Rump, S. Oishi, SIAM J. Sci. Comput. 26,
2005), and is rounded once, when it is read. What another order or another tree changes is below 2^-100 of the largest
partial sum and does not reach the rounded number: until a sum cancels by about 2^40 of its terms, where its last bit
may differ.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv

from randsmap._interface.arrays import empty_aligned
from randsmap._kernels import ridge as _kernel
from randsmap._kernels import sums as _sums_kernel
from randsmap._linalg.products import cross, multiply, symmetric_eigen
from randsmap._linalg.rows import FeatureRows, Rows, centre, feature_matrix, less_means
from randsmap._parallel import blas_threads, parallel_rows

_Values = NDArray[np.float64]
_EPS, _TINY = np.finfo(float).eps, np.finfo(float).tiny
# Rows of one sum by BLAS, for batches of any size: the sums then do not depend on the batches
_BLOCK = 4096
# Largest number of points that are kept from batches: enough for distances between neighbours
_SAMPLE = 8192
TOO_LARGE = "features, or their squares, are too large for floating-point numbers: use smaller units for the latents"


class Solution(NamedTuple):
    """The result of one ridge regression."""

    coefficients: _Values  # A (P+1, M), the first row the bias
    solver: str  # the solver that was used
    n_iter: int = 1
    rank: int | None = None  # of the low-rank solver r, and its bound of |Phi (A - A*)| / |F|
    bound: float | None = None


def with_bias(R: _Values, mean: Any, field_mean: Any) -> _Values:
    """Coefficients of [1 | phi] for those R (P, M) of phi - mean(phi): the bias row is mean(F) - mean(phi) R."""
    A = empty_aligned((len(R) + 1, R.shape[1]))
    A[1:] = R
    A[0] = field_mean - multiply(mean[None], A[1:])[0]
    return A


# -- Sums ------------------------------------------------------------------------------------------
def sum_rows(width: int, M: int) -> int:
    """Rows of Phi (n, width) and of the fields (n, M) in a block: 4096, of wide ones a half, a quarter, ..."""
    # numbers of a block of features and fields (256 MB), which has 32 rows at least
    entries, fewest = 1 << 25, 32
    rows = _BLOCK
    while rows > fewest and rows * (width + M) > entries:
        rows //= 2  # so that multiples of 4096 are also multiples of this number
    return rows


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b and its rounding error (Knuth)."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a b and its rounding error (Dekker), of numbers below 1e300."""
    p = a * b
    a_high = 134217729.0 * a - (134217729.0 * a - a)
    b_high = 134217729.0 * b - (134217729.0 * b - b)
    a_low, b_low = a - a_high, b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


class CompensatedMatrix:
    """A matrix (P, N) of sums in two numbers each; `upper`: only the upper triangle counts."""

    def __init__(self, P: int, N: int, upper: bool) -> None:
        self.high, self.low, self.upper = np.zeros((P, N)), np.zeros((P, N)), upper

    def _by_rows(self, function, *arguments):
        def task(rows):
            function(self.high, self.low, rows.start, rows.stop, self.upper, *arguments)

        parallel_rows(task, len(self.high), 64)

    def add(self, X, a=None, b=None):
        """Add X + a b^T, a (P, 2) being in two numbers; b None: X alone."""
        self._by_rows(_sums_kernel.add, X, a, b)

    def merge(self, other):
        self.add(other.high)
        self.low += other.low

    def total(self, a=None, b=None):
        """high + low - a b^T, a (P, 2) and b (2, N) being in two numbers, as one."""
        out = np.empty(self.high.shape)
        self._by_rows(_sums_kernel.total, a, b, out)
        return out


class GramAccumulator:
    """Phi^T Phi and Phi^T F over blocks of rows; `centred`: of what is less its means.

    Each block is centred on its own means, so that no digits are lost to them (T. F. Chan, G. H. Golub and
    R. J. LeVeque, Amer. Statist. 37, 1983). The products of means are sums in two numbers too. One block alone is kept
    as it is: its sums are those of BLAS.
    """

    def __init__(self, width: int, M: int, centred: bool) -> None:
        self.n, self.centred, self._width, self._cells = 0, centred, width, M
        self.only: Any = None  # the first block's sums and means, before there are others

    def add(self, Phi: _Values, F: _Values) -> None:
        """Add a block of rows Phi (m, width), which may be overwritten, and their fields (m, M)."""
        mean = field_mean = None
        if self.centred:
            mean, field_mean = Phi.mean(axis=0), F.mean(axis=0)
            parallel_rows(lambda rows: np.subtract(Phi[rows], mean, out=Phi[rows]), len(Phi), 128)
            F = F - field_mean
            field_mean += F.mean(axis=0)  # round-off of the first mean
        block = np.empty((self._width, self._width))
        with blas_threads():
            _kernel.gram(Phi, False, False, block)
            self._include(len(Phi), block, cross(Phi, F), mean, field_mean)

    def _include(self, m, gram, products, mean, field_mean):
        """Add the sums and means of a block of m rows."""
        if not self.n:
            self.n, self.only = m, (gram, products, mean, field_mean)
            return
        self._in_two_numbers()
        self._accumulate(m, gram, products, mean, field_mean)
        self.n += m

    def _accumulate(self, m, gram, products, mean, field_mean):
        weighted = None
        if self.centred:
            sums = np.array(two_product(float(m), mean))
            _add(self.feature_sums, sums)
            _add(self.field_sums, np.array(two_product(float(m), field_mean)))
            weighted = np.ascontiguousarray(sums.T)
        self.gram.add(gram, weighted, mean)
        self.cross.add(products, weighted, field_mean)

    def _in_two_numbers(self):
        if self.only is None:
            return
        only, width, M = self.only, self._width, self._cells
        self.gram, self.cross = CompensatedMatrix(width, width, True), CompensatedMatrix(width, M, False)
        self.feature_sums, self.field_sums = np.zeros((2, width)), np.zeros((2, M))  # sums of rows
        self.only = None
        self._accumulate(self.n, *only)

    def merge(self, other: GramAccumulator) -> None:
        """Add what another has summed of the same features."""
        if not self.n or not other.n:
            vars(self).update(copy.deepcopy(vars(other)) if other.n else {})
            return
        if other.only is not None:
            self._include(other.n, *other.only)
            return
        self._in_two_numbers()
        self.n += other.n
        self.gram.merge(other.gram)
        self.cross.merge(other.cross)
        _add(self.feature_sums, other.feature_sums)
        _add(self.field_sums, other.field_sums)

    def totals(self, last: bool = False) -> tuple[Any, Any, Any, Any]:
        """G = Phi^T Phi (upper triangle), H = Phi^T F and, with `centred`, the means of both.

        Arrays that may be overwritten; `last`: no block follows, so that they need be no copies.
        """
        if self.only is not None:
            return self.only if last else copy.deepcopy(self.only)
        if not self.centred:
            return self.gram.total(), self.cross.total(), None, None
        features, fields = (np.array(two_sum(*pair)) for pair in (self.feature_sums, self.field_sums))
        mean, field_mean = _quotient(features, self.n), _quotient(fields, self.n)
        columns = np.ascontiguousarray(mean.T)
        return self.gram.total(columns, features), self.cross.total(columns, fields), mean[0], field_mean[0]


def _add(total, x):
    """total += x, both (2, N) in two numbers."""
    total[0], error = two_sum(total[0], x[0])
    total[1] += error + x[1]


def _quotient(x, n):
    """x / n, x (2, N) and the result in two numbers."""
    high = x[0] / n
    product, error = two_product(high, float(n))
    return np.array([high, (((x[0] - product) - error) + x[1]) / n])


# -- Accuracy --------------------------------------------------------------------------------------
def gram_is_accurate(norm: float, regularization: float) -> bool:
    """True if eps |Phi|^2 <= 1e-6 lambda, |Phi|^2 being `gram_norm`, or the trace of the Gram matrix, which is more."""
    # The round-off of the Gram matrix, eps |Phi|^2, over lambda bounds what it changes in the decoded fields. A norm
    # that overflows passes: the factorisation then raises with the reason.
    return not np.isfinite(norm) or bool(_EPS * norm <= 1e-6 * regularization)


def gram_norm(G: _Values, uncentred: float | None = None) -> float:
    """|Phi|^2, the largest eigenvalue of the Gram matrix G (upper triangle) of Phi without its mean, to a few per cent.

    uncentred : None if G is of rows less their mean; n, or the sum of weights, if G is [1 | Phi]^T [1 | Phi] of n rows;
        0 if G is [1 | Phi] [1 | Phi]^T
    """
    v, before = np.random.default_rng(0).standard_normal(len(G)), 0.0
    alpha: list[float] = []
    beta = [float(np.linalg.norm(v))]
    while len(alpha) < min(len(G), 12) and beta[-1] > 0:  # steps of the Lanczos method
        v = v / beta[-1]
        if uncentred == 0:
            v -= v.mean()
        w = dsymv(1.0, G.T, v, lower=1)
        if uncentred:  # the first row of G is the sum of the rows
            w -= G[0] * (G[0] @ v / uncentred)
        elif uncentred == 0:
            w -= w.mean()
        alpha.append(float(v @ w))
        w -= alpha[-1] * v
        if len(alpha) > 1:
            w -= beta[-1] * before
        before, v = v, w
        beta.append(float(np.linalg.norm(v)))
        if not np.isfinite(beta[-1]):
            return np.inf
    return float(scipy.linalg.eigvalsh_tridiagonal(alpha, beta[1 : len(alpha)])[-1]) if alpha else 0.0


# -- Solutions -------------------------------------------------------------------------------------
def cholesky_solve(
    G: _Values, H: _Values, regularization: float, auto: bool = True, others: str = "'auto' or 'svd'"
) -> bool:
    """H becomes (G + lambda I)^-1 H, by Cholesky in place; returns whether it succeeded.

    G : symmetric, of which the upper triangle is read and overwritten
    auto : do not try where lambda <= 10 eps trace(G); otherwise a failure raises an error that names `others`
    """
    trace = float(np.trace(G))
    if not np.isfinite(trace):
        raise ValueError(TOO_LARGE)
    smallest = 10 * _EPS * trace
    if auto and not regularization > smallest:
        return False
    # in exact arithmetic no pivot is below lambda; half of lambda leaves room for round-off
    pivot = _kernel.solve(G, regularization, smallest / 2, H)
    if pivot and not auto:
        raise np.linalg.LinAlgError(
            f"Cholesky factorisation failed at pivot {pivot} of {len(G)} with regularization (lambda) = "
            f"{regularization:g}: the Gram matrix of the features is numerically singular (its trace is {trace:.3g}). "
            f"Use a larger regularization, or solver={others} for the minimum-norm solution"
        )
    return not pivot


class Cholesky:
    """Cholesky of Phi^T Phi + lambda I (paper Eq. 15), or with `dual` of Phi Phi^T + lambda I (Eq. 16).
    Phi is less its mean where the bias is not penalised.

    With `auto`, results are None where round-off changes them by more than 1e-6, or the factorisation fails. Otherwise
    a failure is an error. `keep`: other lambdas will be asked for.
    """

    def __init__(self, rows: Any, *, dual: bool = False, auto: bool = True, keep: bool = False) -> None:
        self._rows, self._is_dual, self._auto, self._keep = rows, dual, auto, keep
        self._fields: Any = None  # fields of the sums
        self._sums: Any = None
        self._norm: float | None = None

    def solve(self, F: Any, regularization: float) -> Solution | None:
        """The solution for fields F (n, M), an array or Rows."""
        if self._is_dual:
            Phi, G = self._features_and_gram
            fields, field_mean = less_means(self._rows, F)
            G, H = G.copy(), fields[:].copy() if field_mean is None else fields[:]
        else:
            G, H, self._rows.mean, field_mean = self._sums_of(F)
        with blas_threads():
            if not self._solve_gram(G, H, regularization):
                return None
            A = cross(Phi, H) if self._is_dual else H
        if field_mean is not None:
            A = with_bias(A, self._rows.mean, field_mean)
        return Solution(A, "dual" if self._is_dual else "cholesky")

    def _sums_of(self, F):
        """Phi^T Phi, Phi^T F and the means, which may be overwritten; to the bit those of `partial_fit`."""
        sums = self._sums
        if sums is None or self._fields is not F:
            rows, fields, field_mean = self._rows, F, None
            centred = not rows.bias and rows.root is None
            if centred:
                rows.mean = None  # the accumulator computes it block by block
            elif rows.root is not None:
                fields, field_mean = less_means(rows, F)
            accumulator = GramAccumulator(rows.width, F.shape[1], centred)
            for start, stop, Phi in rows.blocks(sum_rows(rows.width, F.shape[1])):
                accumulator.add(Phi, fields[start:stop])
            sums = accumulator.totals(last=True)
            if not centred:
                sums = *sums[:2], rows.mean, field_mean
            self._fields, self._sums = (F, sums) if self._keep else (None, None)
        G, H, *means = sums
        return (G.copy(), H.copy(), *means) if self._keep else sums

    def weights(self, Z: _Values, regularization: float) -> _Values | None:
        """Z (Phi^T Phi + lambda I)^-1 Phi^T (L, n) for rows Z (L, P) less the mean of Phi."""
        Phi, G = self._features_and_gram
        with blas_threads():
            H = Phi @ Z.T if self._is_dual else np.ascontiguousarray(Z.T)
            if not self._solve_gram(G.copy(), H, regularization):
                return None
            return np.ascontiguousarray(H.T) if self._is_dual else H.T @ Phi.T

    @cached_property
    def _features_and_gram(self):
        """Phi, less its mean without a bias, and its Gram matrix."""
        rows = self._rows
        if rows.root is not None:
            centre(rows)
        Phi = rows.whole()
        if not rows.bias and rows.mean is None:
            rows.mean = Phi.mean(axis=0)
            Phi -= rows.mean
        G = np.empty((rows.n if self._is_dual else rows.width,) * 2)
        with blas_threads():
            _kernel.gram(Phi, self._is_dual, False, G)
        return Phi, G

    def _solve_gram(self, G, H, regularization):
        """True if H became (G + lambda I)^-1 H; with `auto` only where that is accurate."""
        if self._auto:
            if self._norm is None and not gram_is_accurate(np.trace(G), regularization):
                n: Any = 0 if self._is_dual else self._rows.total
                if not self._rows.bias or (self._is_dual and self._rows.root is not None):
                    n = None  # weighted samples: the norm with the bias, which is larger
                self._norm = gram_norm(G, n)
            if self._norm is not None and not gram_is_accurate(self._norm, regularization):
                return False
        return cholesky_solve(G, H, regularization, self._auto)


# -- Leverage --------------------------------------------------------------------------------------
class FeatureLeverage:
    """h(y) = psi (Psi^T Psi + lambda I)^-1 psi^T of feature rows psi = phi(y) less their mean, and 1/n more.

    Computed as offset + |psi W|^2 + |psi - psi Q Q^T|^2 / lambda: sums of squares, whose errors enter squared. W W^T is
    the inverse of Psi^T Psi + lambda I, or its part in the span of Q: orthonormal columns that span the rows of Psi,
    where these are fewer than its columns. Without a mean there is a bias, and the offset, otherwise 1/n (of weighted
    rows 1 over their sum), is 0.
    Reference: D. A. Belsley, E. Kuh and R. E. Welsch, Regression Diagnostics, Wiley (1980).
    """

    def __init__(self, W: _Values, mean: Any, offset: float, Q: Any = None, regularization: float = 0.0) -> None:
        self.W, self.mean, self.offset, self._Q, self._regularization = W, mean, offset, Q, regularization

    def values(self, features: Any, X: _Values) -> _Values:
        """h (L,) at points X (L, d)."""
        h = np.full(len(X), self.offset)
        for start, stop, Psi in self._rows(features, X).blocks(1024):
            with blas_threads():
                h[start:stop] += Rows(Psi @ self.W).norms2()
                if self._Q is not None:
                    h[start:stop] += Rows(Psi - (Psi @ self._Q) @ self._Q.T).norms2() / self._regularization
        return h

    def sizes(self, features: Any, X: _Values) -> _Values:
        """|psi|^2 (L,) at points X (L, d): over lambda, h without any training point."""
        return self._rows(features, X).norms2()

    def _rows(self, features, X):
        rows = FeatureRows(features, X, bias=self.mean is None)
        rows.mean = self.mean
        return rows


# -- Batches ---------------------------------------------------------------------------------------
class NormalEquations:
    """Sums over batches of rows of Phi = [1 | features] and of fields, in O(P^2 + P M) memory.

    With `centred` both are less their means, so that the bias is not penalised. Rows wait until they fill a block of
    the size that `fit` takes: the sums then have the same bits for any batches and any order of merging whole blocks,
    and a batch of one row costs no more per row than others. The features are fitted; d and M are the numbers of latent
    coordinates and of cells.
    """

    def __init__(self, features: Any, d: int, M: int, *, centred: bool = False) -> None:
        self.features, self.cells, self.n, self.centred = features, M, 0, centred
        self.width = FeatureRows(features, np.zeros((1, d)), bias=not centred).width
        self.incomplete = False  # an interrupt may leave a batch half added
        self.sums = GramAccumulator(self.width, M, centred)
        self._size = sum_rows(self.width, M)
        self.waiting: list[Any] = []  # (X, F) of rows that do not fill a block yet
        self._n_waiting = 0
        self.sample, self.stride = np.empty((0, d)), 1  # every 2^k-th point in their order, at most 8192 of them

    def check(self, X: _Values) -> None:
        """Raise the errors that the features of X may raise, before X is added."""
        self.check_complete()
        if hasattr(self.features, "activation_parameters"):
            _, W, b, _ = self.features.activation_parameters()
            size = np.abs(X).max(initial=0) * np.abs(W).sum(axis=0).max() + np.abs(b).max()
        else:
            Z = feature_matrix(self.features, X, self.width - (not self.centred))
            size = np.einsum("ij,ij->", Z, Z)
        if not np.isfinite(size):
            raise ValueError(TOO_LARGE)

    def check_complete(self) -> None:
        """Raise a ValueError if an interrupt left a batch half added."""
        if self.incomplete:
            raise ValueError(
                "an earlier partial_fit was interrupted while it added its batch, so the sums are "
                "incomplete: start anew with a new estimator"
            )

    def add(self, X: _Values, F: Any) -> None:
        """Add latent points (n, d) and their fields (n, M)."""
        self.incomplete = True
        self._add_rows(X, F)
        new = X[-self.n % self.stride :: self.stride]
        while len(self.sample) + len(new) > _SAMPLE:
            new = new[len(self.sample) % 2 :: 2]
            self.sample, self.stride = self.sample[::2], 2 * self.stride
        self.sample = np.concatenate([self.sample, new])
        self.n += len(X)
        self.incomplete = False

    def _add_rows(self, X, F):
        start = 0
        while start < len(X):
            stop = min(len(X), start + self._size - self._n_waiting)
            self.waiting.append((np.array(X[start:stop]), np.array(F[start:stop])))
            self._n_waiting += stop - start
            start = stop
            if self._n_waiting == self._size:
                self._sum(self.sums)
                self.waiting, self._n_waiting = [], 0

    def _sum(self, sums):
        X, F = self.waiting[0] if len(self.waiting) == 1 else map(np.concatenate, zip(*self.waiting))
        sums.add(FeatureRows(self.features, X, bias=not self.centred).whole(), F)

    def merge(self, other: NormalEquations) -> None:
        """Add all rows of another, of the same features; those that wait there come after those that wait here."""
        self.check_complete()
        other.check_complete()
        self.incomplete = True
        self.sums.merge(other.sums)
        for X, F in other.waiting:
            self._add_rows(X, F)
        stride = max(self.stride, other.stride)
        points = np.concatenate([part.sample[:: stride // part.stride] for part in (self, other)])
        while len(points) > _SAMPLE:
            points, stride = points[::2], 2 * stride
        self.sample, self.stride = points, stride
        self.n += other.n
        self.incomplete = False

    def totals(self) -> tuple[Any, Any, Any, Any]:
        """The sums over all rows so far, see `GramAccumulator.totals`."""
        self.check_complete()
        if not self.waiting:
            return self.sums.totals()
        sums = copy.deepcopy(self.sums)
        self._sum(sums)
        return sums.totals(last=True)

    def copy(self) -> NormalEquations:
        """A copy that more can be added to."""
        new = copy.copy(self)
        new.sums, new.waiting = copy.deepcopy(self.sums), list(self.waiting)
        return new

    def solve(self, regularization: float, solver: str) -> Solution:
        """Ridge coefficients A (P+1, M) of all rows. By Cholesky; with solver="auto" and lambda <= 10 eps trace(Phi^T
        Phi), or if Cholesky fails, the minimum-norm solution by the eigenvectors of Phi^T Phi (paper Eq. 18, Eq.
        20)."""
        G, A, mean, field_mean = self.totals()
        with blas_threads():  # as many threads as in `fit`: bit-identical results
            solved = cholesky_solve(G, A, regularization, solver == "auto", "'auto'")
            if not solved:
                G, H, _, _ = self.totals()  # the attempt has overwritten them
                eigenvalues, V = symmetric_eigen(G, lower=False, overwrite=True)
                # the squares: singular values of Phi below some 1e-7 of the largest are lost in the sums
                kept = eigenvalues > self.width * _EPS * eigenvalues[-1]
                V = V[:, kept]
                A = V @ ((V.T @ H) / (eigenvalues[kept] + regularization)[:, None])
        A = with_bias(A, mean, field_mean) if self.centred else A
        return Solution(A, "cholesky" if solved else "eigh")

    def leverage(self, regularization: float) -> FeatureLeverage:
        """The leverage in the regression on all rows."""
        G, _, mean, _ = self.totals()
        with blas_threads():
            eigenvalues, V = symmetric_eigen(G, lower=False, overwrite=True)
        shifted = np.maximum(eigenvalues, 0) + regularization
        kept = shifted > len(G) * _EPS * max(eigenvalues[-1], _TINY)  # the others are round-off
        W = np.ascontiguousarray(V[:, kept] / np.sqrt(shifted[kept]))
        return FeatureLeverage(W, mean, 1 / self.n if self.centred else 0.0)
