"""Phi^T Phi and Phi^T F over blocks of rows, as sums that do not depend on the order of the blocks.

Each entry is a sum in two numbers, about 106 bits, of what BLAS makes of the blocks (T. J. Dekker, Numer. Math. 18,
1971; T. Ogita, S. M. Rump, S. Oishi, SIAM J. Sci. Comput. 26, 2005), and is rounded once, when it is read. What
another order or another tree changes is below 2^-100 of the largest partial sum and does not reach the rounded
number: until a sum cancels by about 2^40 of its terms, where its last bit may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._kernels import ridge as _ridge
from randsmap._kernels import sums as _kernel
from randsmap._linalg.products import cross
from randsmap._parallel import blas_threads, parallel_rows

# Rows that BLAS sums, whatever the batches: the sums then do not depend on them
_BLOCK = 1024
# Rows of the sums that a thread adds at a time
_TASK = 64


def sum_rows(width: int, M: int) -> int:
    """Rows of Phi (n, width) and of the fields (n, M) in a block: 1024, of very wide ones a half, a quarter, ..."""
    # numbers of a block of features and fields (256 MB), which has 32 rows at least
    entries, fewest = 1 << 25, 32
    rows = _BLOCK
    while rows > fewest and rows * (width + M) > entries:
        rows //= 2  # so that what is cut at multiples of 1024 is cut at multiples of it
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

    def add(self, X, a, b):
        """Add X + a b^T, a (P, 2) being in two numbers; b None: X alone."""
        parallel_rows(
            lambda rows: _kernel.add(self.high, self.low, rows.start, rows.stop, self.upper, X, a, b), len(X), _TASK
        )

    def merge(self, other):
        _kernel.merge(self.high, self.low, other.high, other.low)

    def total(self, a=None, b=None):
        """high + low - a b^T, a (P, 2) and b (2, N) being in two numbers, as one."""
        out = np.empty(self.high.shape)
        parallel_rows(
            lambda rows: _kernel.total(self.high, self.low, rows.start, rows.stop, self.upper, a, b, out),
            len(out),
            _TASK,
        )
        return out


class GramAccumulator:
    """Phi^T Phi and Phi^T F over blocks of rows; `centred`: of what is less its means.

    Each block is centred on its own means, so that no digits are lost to them (T. F. Chan, G. H. Golub and
    R. J. LeVeque, Amer. Statist. 37, 1983). The products of means are sums in two numbers too.
    """

    def __init__(self, width: int, M: int, centred: bool) -> None:
        self.n, self.centred = 0, centred
        self.gram, self.cross = CompensatedMatrix(width, width, True), CompensatedMatrix(width, M, False)
        self.feature_sums, self.field_sums = np.zeros((2, width)), np.zeros((2, M))  # sums of rows, in two numbers

    def add(self, Phi: NDArray[np.float64], F: NDArray[np.float64]) -> None:
        """Add a block of rows Phi (m, width), which may be overwritten, and their fields (m, M)."""
        m = len(Phi)
        weighted = mean = field_mean = None
        if self.centred:
            mean, field_mean = Phi.mean(axis=0), F.mean(axis=0)
            Phi -= mean
            F = F - field_mean
            field_mean += F.mean(axis=0)  # to the last digits
            weighted = self._add_means(m, mean, field_mean)
        block = np.empty(self.gram.high.shape)
        with blas_threads():
            _ridge.gram(Phi, False, False, block)
        self.gram.add(block, weighted, mean)
        del block  # as large as the sums
        with blas_threads():
            products = cross(Phi, F)
        self.cross.add(products, weighted, field_mean)
        self.n += m

    def _add_means(self, m, mean, field_mean):
        """Add m times the means of a block; returns that of the features."""
        weighted = np.array(two_product(float(m), mean))
        _add(self.feature_sums, weighted)
        _add(self.field_sums, np.array(two_product(float(m), field_mean)))
        return np.ascontiguousarray(weighted.T)

    def merge(self, other: GramAccumulator) -> None:
        """Add what another has summed of the same features."""
        self.n += other.n
        self.gram.merge(other.gram)
        self.cross.merge(other.cross)
        _add(self.feature_sums, other.feature_sums)
        _add(self.field_sums, other.field_sums)

    def totals(self) -> tuple[Any, Any, Any, Any]:
        """G = Phi^T Phi (upper triangle), H = Phi^T F and, with `centred`, the means of both: all new arrays."""
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
