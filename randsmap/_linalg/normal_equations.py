"""Ridge regression on batches: sums of Phi^T Phi and Phi^T F, and the solution from them alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._linalg.cholesky import Solution, cholesky_solve, with_bias
from randsmap._linalg.products import symmetric_eigen
from randsmap._linalg.rows import FeatureRows, feature_matrix
from randsmap._linalg.spectral import FeatureLeverage
from randsmap._linalg.sums import GramAccumulator, sum_rows
from randsmap._parallel import blas_threads

_Values = NDArray[np.float64]
_EPS, _TINY = np.finfo(float).eps, np.finfo(float).tiny
# Points that are kept at most: enough for distances between neighbours
_SAMPLE = 8192


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
        self._sample, self.stride = np.empty((0, d)), 1  # every 2^k-th point

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
            raise ValueError(
                "the features of X, or their squares, are too large for floating-point numbers: "
                "use smaller units for the latent coordinates"
            )

    def check_complete(self) -> None:
        """Raise a ValueError if an interrupt left a batch half added."""
        if self.incomplete:
            raise ValueError(
                "an earlier partial_fit was interrupted while it added its batch, so the sums are "
                "incomplete: start anew with a new estimator"
            )

    # -- Batches ---------------------------------------------------------------------------------------
    def add(self, X: _Values, F: Any) -> None:
        """Add latent points (n, d) and their fields (n, M)."""
        self.incomplete = True
        self._add_rows(X, F)
        self._add_to_sample(X)
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

    def _add_to_sample(self, X):
        new = X[-self.n % self.stride :: self.stride]
        while len(self._sample) + len(new) > _SAMPLE:
            new = new[len(self._sample) % 2 :: 2]
            self._sample, self.stride = self._sample[::2], 2 * self.stride
        self._sample = np.concatenate([self._sample, new])

    def sample(self) -> _Values:
        """All latent points, or at most 8192 of them, evenly spread in their order."""
        return self._sample

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
        points = np.concatenate([part.sample()[:: stride // part.stride] for part in (self, other)])
        while len(points) > _SAMPLE:
            points, stride = points[::2], 2 * stride
        self._sample, self.stride = points, stride
        self.n += other.n
        self.incomplete = False

    def totals(self) -> tuple[Any, Any, Any, Any]:
        """The sums over all rows so far, see `GramAccumulator.totals`."""
        self.check_complete()
        if not self.waiting:
            return self.sums.totals()
        sums = copy.deepcopy(self.sums)
        self._sum(sums)
        return sums.totals()

    def copy(self) -> NormalEquations:
        """A copy that more can be added to."""
        new = copy.copy(self)
        new.sums, new.waiting = copy.deepcopy(self.sums), list(self.waiting)
        return new

    # -- Solutions -------------------------------------------------------------------------------------
    def solve(self, regularization: float, solver: str) -> Solution:
        """Ridge coefficients A (P+1, M) of all rows.

        By Cholesky; with solver="auto" and lambda <= 10 eps trace(Phi^T Phi), or if Cholesky fails, the minimum-norm
        solution by the eigenvectors of Phi^T Phi (paper Eqs. TikhSVD, MoorePenrose).
        """
        G, A, mean, field_mean = self.totals()
        name, auto = "cholesky", solver == "auto"
        if not (regularization > 0 or not auto) or not cholesky_solve(G, A, regularization, auto, "'auto'"):
            G, H, _, _ = self.totals()  # the attempt has overwritten them
            name = "eigh"
            with blas_threads():
                eigenvalues, V = scipy.linalg.eigh(G, lower=False, overwrite_a=True, check_finite=False)
                # the squares: singular values of Phi below some 1e-7 of the largest are lost in the sums
                kept = eigenvalues > self.width * _EPS * eigenvalues[-1]
                V = V[:, kept]
                A = V @ ((V.T @ H) / (eigenvalues[kept] + regularization)[:, None])
        return Solution(with_bias(A, mean, field_mean) if self.centred else A, name)

    def leverage(self, regularization: float) -> FeatureLeverage:
        """The leverage in the regression on all rows."""
        G, _, mean, _ = self.totals()
        with blas_threads():
            eigenvalues, V = symmetric_eigen(G, lower=False, overwrite=True)
        shifted = np.maximum(eigenvalues, 0) + regularization
        kept = shifted > len(G) * _EPS * max(eigenvalues[-1], _TINY)  # what is below is round-off
        W = np.ascontiguousarray(V[:, kept] / np.sqrt(shifted[kept]))
        return FeatureLeverage(W, mean, 1 / self.n if self.centred else 0.0)
