"""Ridge regression on batches: the sums Phi^T Phi and Phi^T F, and what is solved from them alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._linalg.leverage import RidgeLeverage
from randsmap._linalg.ridge import FeatureRows, cholesky_solve, feature_matrix, not_definite, with_bias
from randsmap._linalg.sums import Sums, Totals, sum_rows
from randsmap._parallel import blas_threads

__all__ = ["NormalEquations"]

_EPS = np.finfo(float).eps
_SAMPLE = 8192  # points that are kept, at most


class NormalEquations:
    """Sums over batches of rows of Phi = [1 | features] and of fields, in O(P^2 + P M) memory.

    `centred`: of the features and fields less their means, so that the bias is not penalised.

    Rows wait until they are a block, as many as `fit` takes at a time: one batch or many, whole blocks in any order
    and merged in any tree, the sums have the same bits, and batches of one row cost no more a row than others. Some
    latent points are kept, see `sample`.
    """

    features: Any
    _sample: NDArray[np.float64] | None = None  # in pickles of before

    def __init__(self, features: Any, d: int, M: int, *, centred: bool = False) -> None:
        self.features, self.cells, self.n, self._bias = features, M, 0, not centred
        self.width = FeatureRows(features, np.zeros((1, d)), bias=self._bias).width
        size = sum_rows(self.width, M)
        self.incomplete = False  # an interrupt may leave a batch half added
        self._X, self._F, self._waiting = np.empty((size, d)), np.empty((size, M)), 0
        self._sums = Sums(self.width, M, centred)
        self._sample, self._kept, self._stride = np.empty((_SAMPLE, d)), 0, 1  # every 2^k-th point

    @property
    def centred(self) -> bool:
        """Whether the bias is not penalised."""
        return not self._bias

    def check(self, X: NDArray[np.float64]) -> None:
        """The errors that the features of X may raise, before X is added."""
        self._check_complete()
        with np.errstate(over="ignore", invalid="ignore"):
            if hasattr(self.features, "activation_parameters"):
                _, W, b, _ = self.features.activation_parameters()
                size = np.abs(X).max(initial=0) * np.abs(W).sum(axis=0).max() + np.abs(b).max()
            else:
                Z = feature_matrix(self.features, X, self.width - self._bias)
                size = np.einsum("ij,ij->", Z, Z)
        if not np.isfinite(size):
            raise ValueError(
                "the features of X, or their squares, are too large for floating-point numbers: "
                "use smaller units for the latent coordinates"
            )

    def _check_complete(self):
        if self.incomplete:
            raise ValueError(
                "an earlier partial_fit was interrupted while it added its batch, so the sums are "
                "incomplete: start anew with a new estimator"
            )

    def add(self, X: NDArray[np.float64], F: Any) -> None:
        """Add latent points (n, d) and their fields (n, M)."""
        self.incomplete = True
        self._sum_up(X, F)
        self._keep(X)
        self.n += len(X)
        self.incomplete = False

    def _sum_up(self, X, F):
        start = 0
        while start < len(X):
            at = self._waiting
            count = min(len(self._X) - at, len(X) - start)
            self._X[at : at + count] = X[start : start + count]
            self._F[at : at + count] = F[start : start + count]
            start += count
            self._waiting += count
            if self._waiting == len(self._X):
                self._sum(self._sums)
                self._waiting = 0

    def _keep(self, X):
        if self._sample is None:
            return
        new = X[-self.n % self._stride :: self._stride]
        while self._kept + len(new) > _SAMPLE:
            new = new[self._kept % 2 :: 2]
            half = self._sample[: self._kept : 2].copy()
            self._kept, self._stride = len(half), 2 * self._stride
            self._sample[: self._kept] = half
        self._sample[self._kept : self._kept + len(new)] = new
        self._kept += len(new)

    def sample(self) -> NDArray[np.float64] | None:
        """All latent points if they are no more than 8192, otherwise so many or fewer, evenly spread in their order."""
        return None if self._sample is None else self._sample[: self._kept]

    def leverage(self, regularization: float) -> RidgeLeverage:
        """The leverage in the regression on all rows."""
        sums = self.totals()
        return RidgeLeverage.of_gram(sums.G, regularization, sums.mean, 0.0 if self._bias else 1 / self.n)

    def _sum(self, sums):
        rows = FeatureRows(self.features, self._X[: self._waiting], bias=self._bias)
        sums.add(rows.whole(), self._F[: self._waiting])

    def merge(self, other: NormalEquations) -> None:
        """Add all rows of another, of the same features; those that wait there come after those that wait here."""
        self._check_complete()
        other._check_complete()
        self.incomplete = True
        self._sums.merge(other._sums)
        self._sum_up(other._X[: other._waiting], other._F[: other._waiting])
        self._keep_both(other)
        self.n += other.n
        self.incomplete = False

    def _keep_both(self, other):
        if self._sample is None or other._sample is None:
            self._sample = None
            return
        stride = max(self._stride, other._stride)
        both = np.concatenate([sums.sample()[:: stride // sums._stride] for sums in (self, other)])
        while len(both) > _SAMPLE:
            both, stride = both[::2], 2 * stride
        self._sample[: len(both)], self._kept, self._stride = both, len(both), stride

    def totals(self) -> Totals:
        """The sums over all rows so far, as new arrays."""
        self._check_complete()
        if not self._waiting:
            return self._sums.totals()
        sums = self._sums.copy()
        self._sum(sums)
        return sums.totals()

    def solve(self, regularization: float, solver: str) -> tuple[NDArray[np.float64], str]:
        """Ridge coefficients A (P+1, M) of all rows, and the name of the solver used.

        Cholesky; with solver="auto" and lambda <= 10 eps trace(Phi^T Phi), or if it fails, the
        minimum-norm solution by the eigenvectors of Phi^T Phi (paper Eqs. TikhSVD, MoorePenrose), of
        which only those with eigenvalues above (P+1) eps times the largest are resolved: singular values of
        Phi below some 1e-7 of the largest are lost, which a singular value decomposition would keep.
        """
        sums = self.totals()
        if regularization > 0 or solver == "cholesky":
            A, trace, pivot = cholesky_solve(sums.G, sums.H, regularization, solver == "auto")
            if A is not None:
                return self._coefficients(A, sums), "cholesky"
            if solver == "cholesky":
                raise not_definite(pivot, self.width, regularization, trace, "'auto'")
            sums = self.totals()  # the attempt has overwritten them
        with blas_threads():
            eigenvalues, V = scipy.linalg.eigh(sums.G, lower=False, overwrite_a=True, check_finite=False)
            keep = eigenvalues > self.width * _EPS * eigenvalues[-1]
            V = V[:, keep]
            A = V @ ((V.T @ sums.H) / (eigenvalues[keep] + regularization)[:, None])
        return self._coefficients(A, sums), "eigh"

    def _coefficients(self, A, sums):
        return A if self._bias else with_bias(A, sums.mean, sums.field_mean)

    def __deepcopy__(self, memo):
        new = copy.copy(self)
        new._X, new._F, new._sums = self._X.copy(), self._F.copy(), self._sums.copy()
        new._sample = None if self._sample is None else self._sample.copy()
        return new

    def __getstate__(self) -> dict[str, Any]:
        waiting = slice(self._waiting)  # the rest of the buffer holds nothing
        return {**vars(self), "_X": self._X[waiting].copy(), "_F": self._F[waiting].copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_G" in state:  # a pickle of before fields were centred
            sums = {"G": state.pop("_G"), "H": state.pop("_H"), "n": state["n"] - state["_waiting"]}
            state.update(_sums=Sums.of_single(**sums), _bias=True)
        missing = {"features", "cells", "n", "width", "_bias", "_X", "_F", "_waiting", "_sums"} - state.keys()
        if missing:
            raise ValueError(
                "this pickle of a decoder fitted by partial_fit is of a version of randsmap whose sums this one "
                f"cannot read ({', '.join(sorted(missing))} missing): fit it anew"
            )
        self.__dict__.update(state)
        X, F, waiting = self._X, self._F, self._waiting
        size = sum_rows(self.width, self.cells)  # another one before
        self._X, self._F, self._waiting = np.empty((size, X.shape[1])), np.empty((size, self.cells)), 0
        self._sum_up(X[:waiting], F[:waiting])
