"""Ridge regression on features: min |F - T b - Phi A|^2 + lambda |A|^2, T a constant or nothing.

`RidgeFactor` holds what solutions, smoother weights and held-out residuals for several lambdas share. A method is an
object with `solve(F, lambda)` and `weights(points, lambda)`, which return None where it would not be accurate; the next
one is then asked. `choose` names those worth trying, by one table of costs:

- "primal", "dual": Cholesky of the Gram matrix of the features or of the samples (`gram.Cholesky`)
- "spectral": orthogonal factorisations of Phi (`spectral.Spectral`)
- "lowrank": the span of a few points' features (`low_rank_ridge.LowRank`)
- "krylov": conjugate gradients (`krylov.Krylov`), for solutions alone
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._linalg.gram import Cholesky, Solution
from randsmap._linalg.krylov import Krylov, available_memory
from randsmap._linalg.low_rank_ridge import PROBES, STEP, TESTS, LowRank
from randsmap._linalg.rows import FeatureRows, Rows, centre
from randsmap._linalg.spectral import HatMatrix, Spectral
from randsmap._parallel import blas_threads

# Multiplications of a direct solution, about 0.1 s, below which no cheaper method is searched for
_WORTHWHILE = 2e9
# min(n, P+1) from which "auto" considers the Krylov solver: below, it gains less than it costs
_KRYLOV_SIZE = 4000
# Matrices of direct solvers may take this share of the available memory
_MEMORY_SHARE = 0.9
_EPS = np.finfo(float).eps
_Values = NDArray[np.float64]


# -- The choice of a method ------------------------------------------------------------------------
def operations(method: str, n: int, P: int, M: int, k: int, r: int = 0) -> float:
    """Multiplications of a method's solutions for k lambdas of n rows, P features and M fields' cells.

    r : columns of the space of "lowrank"; for "krylov" products of Phi^T Phi with a vector, which alone are counted
    """
    small = min(n, P)
    solve = k * (small**3 / 6 + small**2 * M)
    if method == "primal":
        return n * P**2 / 2 + n * P * M + solve
    if method == "dual":
        return P * n**2 / 2 + k * n * P * M + solve
    if method == "krylov":
        return 2 * n * P * r
    basis = P * r * (2 * r + 6 * STEP + 2 * min(n, TESTS))
    projection = n * P * (r + PROBES) + n * r**2 / 2 + n * r * M
    return basis + projection + k * (r**3 / 6 + r**2 * M + P * r * M)


def choose(n: int, P: int, M: int, k: int, solver: str) -> list[str]:
    """Methods to be tried for k lambdas, in this order, for a parameter `solver` of decoders. A cheaper method than a
    direct one must halve the multiplications, where these take 0.1 s or more."""
    direct = "dual" if n < P else "primal"
    if solver == "cholesky":
        return [direct]
    if solver in ("svd", "krylov"):
        return ["spectral" if solver == "svd" else solver]
    methods = ["lowrank"] if affordable_rank(n, P, M, k, forced=solver == "lowrank") else []
    if not _direct_fits(n, P, M) or (k == 1 and min(n, P) >= _KRYLOV_SIZE):
        methods.append("krylov")
    return [*methods, direct, "spectral"]


def affordable_rank(n: int, P: int, M: int, k: int, *, forced: bool = False) -> int:
    """Columns of a low-rank space with which k solutions cost half of direct ones; 0 where these are cheap anyway."""
    direct = operations("dual" if n < P else "primal", n, P, M, k)

    def halves(r: int) -> bool:
        return operations("lowrank", n, P, M, k, r) <= direct / 2

    most = max(2 * STEP, min(n, P) // 6)  # beyond, it is no faster than a direct method
    if direct < _WORTHWHILE:
        return most if forced else 0
    if k > 1 and halves(most):
        most = min(n, P) // 2  # one pass serves all lambdas
    while not (forced or halves(most)) and most > 0:
        most -= 8
    return most if forced or most >= STEP else 0


def _direct_fits(n, P, M):
    """True if the matrices of a direct method fit in memory."""
    numbers = n * (n + P + M) + P * M if n < P else P * (P + 2 * M + 2048)
    memory = available_memory()
    return memory is None or 8 * numbers <= _MEMORY_SHARE * memory


# -- All methods -----------------------------------------------------------------------------------
class RidgeFactor:
    """Ridge regressions on the same feature rows Phi, for several lambdas; `solver`, `max_iter` as of the decoders.

    With the rows' bias column the bias is penalised like the other coefficients, as in the paper; without, it is not:
    T is the constant, and features and fields are less their means. Costs depend on the number of `regularizations`
    that will be asked for, the low-rank space on their size, and on the number of right-hand sides, `cells` or that of
    the fields. `tol` bounds |Phi (A - A*)| / |F| for "lowrank" (None: 1e-8) and "krylov" (None: 1e-7).
    """

    def __init__(
        self,
        rows: FeatureRows,
        regularizations: Sequence[float],
        solver: str = "auto",
        *,
        tol: float | None = None,
        max_iter: int = 500,
        cells: int | None = None,
    ) -> None:
        self._rows, self._solver, self._tol, self._max_iter, self._cells = rows, solver, tol, max_iter, cells
        self._lambdas = [value for value in regularizations if value > 0]
        self._keep = len(regularizations) > 1
        self._made: dict[str, Any] = {}

    def _methods(self, M, regularization):
        """Names of the methods to be tried for M right-hand sides."""
        if self._solver == "auto" and not regularization > 0:
            return ["spectral"]
        names = choose(self._rows.n, self._rows.width, self._cells or M, max(1, len(self._lambdas)), self._solver)
        # the low-rank space is tested on samples without weights
        return [name for name in names if name != "lowrank" or self._rows.root is None]

    def _method(self, name, M):
        """The method of that name, made on first use."""
        if name not in self._made:
            if name == "spectral":
                made: Any = Spectral(self._rows, always=self._solver == "svd")
            elif name == "lowrank":
                made = self._low_rank(M)
            else:
                made = Cholesky(self._rows, dual=name == "dual", auto=self._solver != "cholesky", keep=self._keep)
            self._made[name] = made
        return self._made[name]

    def _low_rank(self, M):
        """None where no space is cheap enough."""
        rows, forced = self._rows, self._solver == "lowrank"
        most = affordable_rank(rows.n, rows.width, self._cells or M, max(1, len(self._lambdas)), forced=forced)
        return LowRank(rows, most, self._lambdas, self._tol, forced=forced) if most else None

    def solve(self, F: Any, regularization: float) -> Solution:
        """Coefficients of the fields F (n, M), an array or Rows, with a bias row. A ValueError if solver="krylov" or
        "lowrank" and lambda is 0, or memory-mapped fields do not fit in memory; a LinAlgError if solver="cholesky" and
        the matrix is not numerically positive definite."""
        if self._solver in ("krylov", "lowrank") and not regularization > 0:
            raise ValueError(
                f"solver={self._solver!r} needs regularization (lambda) > 0, got "
                f"{regularization:g}; solver='svd' gives the minimum-norm solution"
            )
        mapped = isinstance(F, Rows) and F.mapped
        for name in self._methods(F.shape[1], regularization):
            if name == "krylov":
                found = self._by_krylov(F, regularization, mapped)
            elif mapped and name in ("dual", "spectral") and self._rows.n < self._rows.width:
                found = self._of_unit_fields(self._method(name, F.shape[1]), F, regularization)
            else:
                found = self._method(name, F.shape[1]).solve(F, regularization)
            if found is not None:
                return found
        raise AssertionError("the last method answers or raises")

    def _of_unit_fields(self, method, F, regularization):
        """Coefficients A = W F of fields in a file, which are not copied, W (P+1, n) being those of the unit fields."""
        found = method.solve(np.eye(self._rows.n), regularization)
        if found is None:
            return None
        F = F if self._rows.bias else F.centred()  # the mean would cancel in W F
        with blas_threads():
            A = F.transposed_times(found.coefficients.T).T
        if F.mean is not None:
            A[0] += F.mean
        return Solution(A, *found[1:])

    def _by_krylov(self, F, regularization, mapped):
        """None in "auto" if the method is no faster than a direct method that fits in memory."""
        rows, tol = self._rows, 1e-7 if self._tol is None else self._tol
        if self._solver == "krylov":
            memory, numbers = available_memory(), F.shape[0] * F.shape[1]
            if mapped and memory is not None and 8 * numbers > _MEMORY_SHARE * memory:
                raise ValueError(
                    f"solver='krylov' needs the fields in memory ({8e-9 * numbers:.3g} GB, {1e-9 * memory:.3g} GB are "
                    "available); 'auto' and 'cholesky' read them by blocks"
                )
            krylov = Krylov(rows, F[:], regularization, tol)
            krylov.precondition()
            return krylov.solve(self._max_iter)
        if mapped:
            return None
        n, P, first, iterations = rows.n, rows.width, Krylov.first_rank, 10  # expected per right-hand side
        fits = _direct_fits(n, P, self._cells or F.shape[1])
        # products that take half as long as the direct method's Gram matrix; more take more than is gained
        affordable = operations("dual" if n < P else "primal", n, P, 0, 0) / 2 / operations("krylov", n, P, 0, 1, 1)
        most = max(1, int((affordable - first) // iterations))
        krylov = Krylov(rows, F, regularization, tol, most if fits else None)
        if krylov.n_columns <= most or not fits:
            found = krylov.precondition(max(first, min(n, P) // 32))
            cheap = found and krylov.rank + iterations * krylov.n_columns <= affordable
            if regularization > 10 * _EPS * krylov.trace and (cheap or not fits):
                if not fits:
                    krylov.precondition()
                return krylov.solve(self._max_iter)
        krylov.bar.close()
        rows.mean = None  # the direct method computes it in its pass over the features
        return None

    def weights(self, points: FeatureRows, regularization: float) -> _Values:
        """Weights W (L, n) of the fields in those decoded at other points: W F is phi(Z) A. Errors as of `solve`."""
        rows = self._rows
        centre(rows)
        points.mean = rows.mean
        for name in self._methods(points.n, regularization):
            if name == "krylov":
                continue
            method = self._method(name, points.n)
            W = method.weights(points if name == "lowrank" else points.whole(), regularization)
            if W is not None:
                return W if rows.bias else W + 1 / rows.n
        raise AssertionError("the last method answers or raises")

    def hat(self) -> HatMatrix:
        """The hat matrix of every lambda. Where it is worth while, without singular values whose squares are below
        `tol` times the smallest of the lambdas: no part of I - H then changes by more than `tol` of itself."""
        least = min(self._lambdas, default=0.0)
        low_rank = self._low_rank(0) if self._solver in ("auto", "lowrank") and least > 0 else None
        return Spectral(low_rank if low_rank is not None and low_rank.covers(least) else self._rows).hat()
