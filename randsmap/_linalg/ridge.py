"""Ridge regression on features: min |F - T b - Phi A|^2 + lambda |A|^2, T a constant or nothing.

`RidgeFactor` holds what solutions, smoother weights, held-out residuals and leverages for several lambdas share. There
are five methods: Cholesky of the Gram matrix (`primal.Primal`) or of the kernel matrix (`dual.Dual`), orthogonal
factorisations of Phi (`spectral.Spectral`), the span of a few points' features (`low_rank_ridge.LowRank`), and
conjugate gradients (`krylov.Krylov`). `choose` names those worth trying, by one table of costs; a method that would not
be accurate returns None, and the next one is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._io.progress import steps
from randsmap._kernels import ridge as _kernel
from randsmap._linalg.cholesky import Solution, singular_gram_error, with_bias
from randsmap._linalg.dual import Dual
from randsmap._linalg.krylov import Krylov, available_memory
from randsmap._linalg.low_rank_ridge import LARGEST_SHARE, PROBES, STEP, TESTS, LowRank
from randsmap._linalg.primal import Primal
from randsmap._linalg.rows import FeatureRows, Rows, block_rows
from randsmap._linalg.spectral import FeatureLeverage, HatMatrix, Spectral
from randsmap._parallel import blas_threads

# Multiplications of a direct solution, some 0.1 s, below which nothing cheaper is looked for
_WORTHWHILE = 2e9
# min(n, P+1) from which "auto" considers the Krylov solver: below, it gains less than it costs
_KRYLOV_SIZE = 4000
# Matrices of direct solvers may take this share of the available memory
_MEMORY_SHARE = 0.9
_EPS = np.finfo(float).eps
_Values = NDArray[np.float64]


# -- The choice of a method ------------------------------------------------------------------------
def operations(method: str, n: int, P: int, M: int, k: int, r: int = 0) -> float:
    """Multiplications of solutions for k lambdas of n rows, P features and M fields' cells.

    method : "primal", "dual"; "lowrank" with r columns; "krylov" for r products of Phi^T Phi with a vector, alone
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
    """Methods to be tried for k lambdas, in this order, for a parameter `solver` of decoders.

    A cheaper method than a direct one must halve the multiplications, where these take 0.1 s or more.
    """
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
    most = max(2 * STEP, min(n, P) // LARGEST_SHARE)
    if forced:
        several = k > 1 and direct >= _WORTHWHILE and operations("lowrank", n, P, M, k, most) <= direct / 2
        return min(n, P) // 2 if several else most
    if direct < _WORTHWHILE:
        return 0
    if k > 1 and operations("lowrank", n, P, M, k, most) <= direct / 2:
        most = min(n, P) // 2  # one pass serves all lambdas
    while most > 0 and operations("lowrank", n, P, M, k, most) > direct / 2:
        most -= 8
    return most if most >= STEP else 0


def _direct_fits(n, P, M):
    """Whether the matrices of a direct method fit in memory."""
    numbers = n * (n + P + M) + P * M if n < P else P * (P + 2 * M + 2048)
    memory = available_memory()
    return memory is None or 8 * numbers <= _MEMORY_SHARE * memory


# -- All methods -----------------------------------------------------------------------------------
class RidgeFactor:
    """Ridge regressions on the same feature rows, for several lambdas.

    Parameters
    ----------
    rows : FeatureRows (n, P+1) or (n, P)
        Phi. With its bias column the bias is penalised like the other coefficients, as in the paper; without, it is
        not: T is the constant, and features and fields are less their means.
    regularizations : sequence of float
        The lambdas that will be asked for: costs depend on their number, the low-rank space on their size.
    solver : {"auto", "cholesky", "svd", "lowrank", "krylov"}
        As of the decoders.
    tol : float or None
        Bound of |Phi (A - A*)| / |F| for "lowrank" (None: 1e-8) and "krylov" (None: 1e-7).
    max_iter : int
        For "krylov".
    cells : int or None
        Number of right-hand sides by which costs are estimated, if other than those of F.
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
        self._fields = self._centred_fields = self._points = self._Z = None

    # -- Solutions -------------------------------------------------------------------------------------
    def solve(self, F: Any, regularization: float) -> Solution:
        """Coefficients of the fields F (n, M), an array or Rows, with a bias row.

        Raises
        ------
        ValueError
            If solver="krylov" or "lowrank" and lambda is 0, or memory-mapped fields do not fit in memory.
        numpy.linalg.LinAlgError
            If solver="cholesky" and the matrix is not numerically positive definite.
        """
        if self._solver in ("krylov", "lowrank") and not regularization > 0:
            raise ValueError(
                f"solver={self._solver!r} needs regularization (lambda) > 0, got "
                f"{regularization:g}; solver='svd' gives the minimum-norm solution"
            )
        for method in self._methods(F.shape[1], regularization):
            found = getattr(self, f"_by_{method}")(F, regularization)
            if found is not None:
                return found
        raise AssertionError("the last method answers or raises")

    def path(self, F: Any, regularizations: Sequence[float]) -> Iterator[Solution]:
        """The solutions for several lambdas."""
        for regularization in regularizations:
            yield self.solve(F, regularization)

    def _methods(self, M, regularization):
        if self._solver == "auto" and not regularization > 0:
            return ["spectral"]
        return choose(self._rows.n, self._rows.width, self._cells or M, max(1, len(self._lambdas)), self._solver)

    def _by_lowrank(self, F, regularization):
        return self._low_rank(F.shape[1]).solve(F, regularization)

    def _by_krylov(self, F, regularization):
        """None, in "auto", where it is found to be no cheaper than a direct method that fits in memory."""
        # iterations per right-hand side that are expected after preconditioning
        krylov_iterations = 10
        rows, tol = self._rows, 1e-7 if self._tol is None else self._tol
        mapped = isinstance(F, Rows) and F.mapped
        if self._solver == "krylov":
            F = _in_memory(F) if mapped else F
            krylov = Krylov(rows, F, regularization, tol)
            krylov.precondition()
            return krylov.solve(self._max_iter)
        if mapped:
            return None
        n, P, first = rows.n, rows.width, Krylov.first_rank
        fits = _direct_fits(n, P, self._cells or F.shape[1])
        # products that take half as long as the direct method's Gram matrix; more take more than is gained
        affordable = operations("dual" if n < P else "primal", n, P, 0, 0) / 2 / operations("krylov", n, P, 0, 1, 1)
        most = max(1, int((affordable - first) // krylov_iterations))
        krylov = Krylov(rows, F, regularization, tol, most if fits else None)
        cheap = krylov.n_columns <= most
        if cheap or not fits:
            found = krylov.precondition(max(first, min(n, P) // 32))
            cheap = found and krylov.rank + krylov_iterations * krylov.n_columns <= affordable
            if regularization > 10 * _EPS * krylov.trace:
                if not fits:
                    krylov.precondition()
                if cheap or not fits:
                    return krylov.solve(self._max_iter)
        krylov.close()
        rows.mean = None  # the direct method finds it in the pass over the features that it makes anyway
        return None

    def _by_primal(self, F, regularization):
        return self._primal.solve(F, regularization)

    def _by_dual(self, F, regularization):
        if isinstance(F, Rows) and F.mapped:  # what follows would copy the fields
            return self._of_unit_fields(self._by_dual, F, regularization)
        Phi, dual = self._dual
        auto = self._solver != "cholesky"
        if auto and not dual.cholesky_is_accurate(regularization):
            return None
        fields, mean = self._less_mean(F)
        C = fields[:].copy() if mean is None else fields[:]
        with blas_threads():
            solved, trace, pivot = dual.cholesky(C, regularization, auto)
            if solved:
                A = np.empty((self._rows.width, F.shape[1]))
                _kernel.cross(Phi, C, False, A)
                return self._completed(Solution(A, "dual"), mean)
        if not auto:
            raise singular_gram_error(pivot, len(Phi), regularization, trace, "'auto' or 'svd'")
        return None

    def _by_spectral(self, F, regularization):
        if isinstance(F, Rows) and F.mapped and self._rows.n < self._rows.width:
            return self._of_unit_fields(self._by_spectral, F, regularization)
        fields, mean = self._less_mean(F)
        return self._completed(self._spectral.solve(fields, regularization), mean)

    def _of_unit_fields(self, solve, F, regularization):
        """Coefficients A = W F of fields in a file, W (P+1, n) being those of the unit fields."""
        found = solve(np.eye(self._rows.n), regularization)
        if found is None:
            return None
        A, mean = np.zeros((len(found.coefficients), F.shape[1])), None
        if not self._rows.bias:  # what cancels in W F otherwise
            F = F.centred()
            mean = F.mean
        with blas_threads():
            for start, stop in steps(len(F), block_rows(F.shape[1]), "fitting"):
                _kernel.cross(np.ascontiguousarray(found.coefficients[:, start:stop].T), F[start:stop], True, A)
        if mean is not None:
            A[0] += mean
        return Solution(A, *found[1:])

    def _less_mean(self, F):
        """What a method without T is asked for: the fields less their mean, and that; the rows are then less theirs."""
        if self._rows.bias:
            return F, None
        self._rows.centre()
        if self._fields is not F or not self._keep:
            self._fields, self._centred_fields = F, (F if isinstance(F, Rows) else Rows(F)).centred()
        return self._centred_fields, self._centred_fields.mean

    def _completed(self, solution, mean):
        if mean is None:
            return solution
        return Solution(with_bias(solution.coefficients, self._rows.mean, mean), *solution[1:])

    # -- Methods, made when they are asked for -----------------------------------------------------------
    def _low_rank(self, M):
        if self._made_low_rank is None:
            rows, forced = self._rows, self._solver == "lowrank"
            most = affordable_rank(rows.n, rows.width, self._cells or M, max(1, len(self._lambdas)), forced=forced)
            self._made_low_rank = LowRank(rows, most, self._lambdas, self._tol, forced=forced)
        return self._made_low_rank

    _made_low_rank: LowRank | None = None

    @cached_property
    def _primal(self):
        return Primal(self._rows, auto=self._solver != "cholesky", keep=self._keep)

    @cached_property
    def _dual(self):
        """Phi, less its mean without a bias, and the kernel's factor."""
        rows = self._rows
        Phi = rows.whole()
        if not rows.bias and rows.mean is None:
            rows.mean = Phi.mean(axis=0)
            Phi -= rows.mean
        with blas_threads():
            K = Rows(Phi).gram(dual=True)
        return Phi, Dual(K, uncentred=0 if rows.bias else None)

    @cached_property
    def _spectral(self):
        return Spectral(self._rows, always=self._solver == "svd")

    # -- What needs no fields ----------------------------------------------------------------------------
    def weights(self, points: FeatureRows, regularization: float) -> _Values:
        """Weights W (L, n) of the fields in those decoded at other points: W F is phi(Z) A.

        Raises
        ------
        numpy.linalg.LinAlgError
            As `solve`.
        """
        rows = self._rows
        if not rows.bias:
            rows.centre()
        points.mean = rows.mean
        for method in self._methods(points.n, regularization):
            W = None
            if method == "lowrank":
                W = self._low_rank(points.n).weights(points, regularization)
                if W is not None:
                    return W
            elif method != "krylov":
                W = getattr(self, f"_weights_by_{method}")(points, regularization)
            if W is not None:
                return W if rows.bias else W + 1 / rows.n
        raise AssertionError("the last method answers or raises")

    def _rows_at(self, points):
        if self._points is not points:
            self._points, self._Z = points, points.whole()
        return self._Z

    def _weights_by_primal(self, points, regularization):
        return self._primal.weights(self._rows_at(points), regularization)

    def _weights_by_dual(self, points, regularization):
        Phi, dual = self._dual
        auto = self._solver != "cholesky"
        if auto and not dual.cholesky_is_accurate(regularization):
            return None
        with blas_threads():
            H = Phi @ self._rows_at(points).T
            solved, trace, pivot = dual.cholesky(H, regularization, auto)
        if solved:
            return np.ascontiguousarray(H.T)
        if not auto:
            raise singular_gram_error(pivot, len(Phi), regularization, trace, "'auto' or 'svd'")
        return None

    def _weights_by_spectral(self, points, regularization):
        return self._spectral.weights(self._rows_at(points), regularization)

    def hat(self) -> HatMatrix:
        """The hat matrix of every lambda.

        Where it is worth while, without singular values whose squares are below `tol` times the smallest of the
        lambdas: no part of I - H then changes by more than `tol` of itself.
        """
        least = min(self._lambdas, default=0.0)
        if self._solver in ("auto", "lowrank") and least > 0:
            space = self._low_rank(0).space_for(least)
            if space is not None:
                return Spectral(space).hat()
        if not self._rows.bias:
            self._rows.centre()
        return Spectral(self._rows).hat()

    def residuals(self, F: _Values, regularization: float, groups: Sequence[NDArray[np.intp]] | None = None) -> _Values:
        """Errors of the fields decoded without each sample or its group, see `HatMatrix.residuals`."""
        return self._hat.residuals(F, regularization, groups)

    @cached_property
    def _hat(self):
        return self.hat()

    def leverage(self, regularization: float) -> FeatureLeverage:
        """Leverage of any point."""
        if not self._rows.bias:
            self._rows.centre()
        return Spectral(self._rows).leverage(regularization)


def _in_memory(F):
    """All of the memory-mapped fields, which the Krylov solver's compression reads several times."""
    memory = available_memory()
    if memory is not None and 8 * F.shape[0] * F.shape[1] > _MEMORY_SHARE * memory:
        raise ValueError(
            f"solver='krylov' needs the fields in memory ({8e-9 * F.shape[0] * F.shape[1]:.3g} GB, "
            f"{1e-9 * memory:.3g} GB are available); 'auto' and 'cholesky' read them by blocks"
        )
    return F[:]
