"""Ridge regression by the Gram matrix of the features: n >= P."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._linalg.cholesky import (
    Solution,
    cholesky_solve,
    gram_is_accurate,
    gram_norm,
    singular_gram_error,
    with_bias,
)
from randsmap._linalg.rows import Rows
from randsmap._linalg.sums import GramAccumulator, sum_rows
from randsmap._parallel import blas_threads

_Values = NDArray[np.float64]


class Primal:
    """Cholesky of Phi^T Phi + lambda I (paper Eq. vanillaTikhonov), Phi less its mean where T is a constant.

    The sums over rows are those of `partial_fit`, to the bit.

    Parameters
    ----------
    rows : rows of Phi (n, P), n >= P
    auto : bool
        Return None where the round-off of the Gram matrix is felt by more than 1e-6, or the factorisation fails.
        Otherwise an error is raised if it does.
    keep : bool
        Whether other lambdas will be asked for.
    """

    def __init__(self, rows: Any, *, auto: bool = True, keep: bool = False) -> None:
        self._rows, self._auto, self._keep = rows, auto, keep
        self._fields: Any = None
        self._statistics: Any = None
        self._gram: Any = None
        self._norm: float | None = None

    def _is_accurate(self, G, regularization, uncentred):
        if self._norm is None:
            self._norm = gram_norm(G, uncentred)
        return gram_is_accurate(self._norm, regularization)

    def solve(self, F: Any, regularization: float) -> Solution | None:
        """The solution for fields F (n, M)."""
        rows, statistics = self._rows, self._statistics
        if self._fields is not F or statistics is None:
            if not rows.bias:
                rows.mean = None  # the accumulator finds it, block by block
            sums = GramAccumulator(rows.width, F.shape[1], not rows.bias)
            for start, stop, Phi in rows.blocks(sum_rows(rows.width, F.shape[1])):
                sums.add(Phi, F[start:stop])
            statistics = sums.statistics()
            del sums  # which are twice as large
            self._fields, self._statistics = (F, statistics) if self._keep else (None, None)
        G, H = statistics.G, statistics.H
        if not rows.bias:
            rows.mean = statistics.mean
        if self._auto and not self._is_accurate(G, regularization, rows.n if rows.bias else None):
            return None
        if self._keep:
            G, H = G.copy(), H.copy()
        solved, trace, pivot = cholesky_solve(G, H, regularization, self._auto)
        if not solved and not self._auto:
            raise singular_gram_error(pivot, len(G), regularization, trace, "'auto' or 'svd'")
        if not solved:
            return None
        return Solution(H if rows.bias else with_bias(H, statistics.mean, statistics.field_mean), "cholesky")

    def weights(self, Z: _Values, regularization: float) -> _Values | None:
        """(Z (Phi^T Phi + lambda I)^-1) Phi^T (L, n) for rows Z (L, P) less the mean of Phi, which are less it too."""
        if self._gram is None:
            Phi = self._rows.whole()
            with blas_threads():
                G = Rows(Phi).gram()
            self._gram = Phi, G
        Phi, G = self._gram
        if self._auto and not self._is_accurate(G, regularization, self._rows.n if self._rows.bias else None):
            return None
        H = np.ascontiguousarray(Z.T)
        with blas_threads():
            solved, trace, pivot = cholesky_solve(G.copy(), H, regularization, self._auto)
            if solved:
                return H.T @ Phi.T
        if not self._auto:
            raise singular_gram_error(pivot, len(G), regularization, trace, "'auto' or 'svd'")
        return None
