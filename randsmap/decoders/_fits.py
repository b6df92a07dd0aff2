"""The immutable results of fits, what decoders keep, decode with and save; and what ridge regression makes them of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import cache_aligned
from randsmap._interface.parameters import Parameter
from randsmap._interface.state import NOT_SAVED, Array, Part, immutable, saved
from randsmap._linalg import distances as _distances
from randsmap._linalg.cholesky import Solution
from randsmap._linalg.dual import Dual
from randsmap._linalg.normal_equations import NormalEquations
from randsmap._linalg.products import multiply
from randsmap._linalg.radial import Radial, polynomial_tail
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows
from randsmap._linalg.spectral import FeatureLeverage, Spectral
from randsmap._linalg.svd import pivoted_cholesky
from randsmap.decoders._base import Fit, coordinates_of, full_fields, lift
from randsmap.invariants import AffineInvariants
from randsmap.maps.bases import feature_basis, in_blocks, in_units, kernel_basis, reduced_basis, tailed_basis
from randsmap.maps.extrapolation import Leverage
from randsmap.maps.linear_map import LinearMap

KERNELS = ("gaussian", "multi-gaussian", "matern", "thin-plate")
_SMALLEST = np.finfo(float).smallest_subnormal
_SOLVERS = ("cholesky", "dual", "qr", "lowrank", "krylov", "svd", "eigh")


# -- Random features -------------------------------------------------------------------------------
@immutable
class RidgeFit(Fit):
    """A fit of random features: f(y) = [1 | phi(y)] A, or [1 | phi(y)] B [mean; U^T] with modes of the fields."""

    features: Any = saved(Part("transform", n_in="d", n_out="P"))  # phi, fitted
    latent_scale: NDArray[np.float64] = saved(Array("d", low=_SMALLEST))
    coefficients: NDArray[np.float64] = saved(Array("P+1", "K"))  # A (P+1, M) or B (P+1, r), the first row the bias
    synthesis: NDArray[np.float64] | None = saved(Array("K+1", "M", optional=True))  # [mean; U^T] (r+1, M)
    invariants: AffineInvariants | None = saved(Part(AffineInvariants, optional=True, M="M"))
    projected: bool = saved(Parameter(bool))  # every decoded field, on the invariants
    solver: str = saved(Parameter(str, words=_SOLVERS))  # this and the next three as of `Solution`
    n_iter: int = saved(Parameter(int, low=0))
    rank: int | None = saved(Parameter(int, low=0, words=(None,)))
    bound: float | None = saved(Parameter(object))
    points: NDArray[np.float64] = saved(Array("n", "d"))  # training points, after batches some of them
    n_samples: int = saved(Parameter(int, low=1))
    regularization: float = saved(Parameter(float, low=0))
    free_bias: bool = saved(Parameter(bool))  # the bias is not penalised
    sums: NormalEquations | None = saved(NOT_SAVED, default=None)  # of batches; a model file has `factor`
    # arguments of `FeatureLeverage`
    factor: NDArray[np.float64] | None = saved(Array("w", "r", optional=True), default=None)
    factor_mean: NDArray[np.float64] | None = saved(Array("P", optional=True), default=None)
    factor_offset: float = saved(Parameter(float, low=0, high=1), default=0.0)
    weights: NDArray[np.float64] | None = saved(Array("n", low=_SMALLEST, optional=True), default=None)  # of the points

    def _restore(self) -> None:
        M = self.coefficients.shape[1]
        if self.synthesis is None and self.invariants is not None and len(self.invariants.constant) != M:
            raise ValueError(f"coefficients of {M} cells, invariants of {len(self.invariants.constant)}")

    def storable(self) -> RidgeFit:
        """The fit as a model file holds it: with the factor of the leverage in place of the sums."""
        if self.sums is None:
            return self
        found = self.sums.leverage(self.regularization)
        return replace(self, sums=None, factor=found.W, factor_mean=found.mean, factor_offset=found.offset)

    @property
    def A(self) -> NDArray[np.float64]:
        """Coefficients (P+1, M) of [1 | phi]."""
        if self.synthesis is None:
            return self.coefficients
        A = multiply(self.coefficients, np.ascontiguousarray(self.synthesis[1:]))
        A[0] += self.synthesis[0]
        return A

    @property
    def modes(self) -> tuple[Any, Any, Any]:
        """B (P+1, r), U (M, r) and the mean field (M,); None each without modes."""
        if self.synthesis is None:
            return None, None, None
        return self.coefficients, self.synthesis[1:].T, self.synthesis[0]

    @cached_property
    def linear_map(self) -> LinearMap:
        """The map from latents to fields."""
        basis, projected = feature_basis(self.features), self.invariants if self.projected else None
        if self.synthesis is None:
            return LinearMap(basis, self.coefficients, projected)
        return LinearMap(reduced_basis(basis, self.coefficients), self.synthesis, projected)

    @property
    def training_points(self) -> NDArray[np.float64]:
        return self.points

    @property
    def leverage_cost(self) -> float:
        if self.solver == "krylov":  # which avoids that factorisation
            return np.inf
        n, P = len(self.points), len(self.coefficients)
        return 0.0 if self.factor is not None else float(n) * P * min(n, P)

    @cached_property
    def leverage(self) -> Leverage:
        """The leverage of any point."""
        if self.sums is not None:
            ridge = self.sums.leverage(self.regularization)
        elif self.factor is not None:
            ridge = FeatureLeverage(self.factor, self.factor_mean, self.factor_offset)
        else:
            rows = FeatureRows(self.features, self.points, bias=not self.free_bias, weights=self.weights)
            ridge = RidgeFactor(rows, []).leverage(self.regularization)
        training = ridge.values(self.features, self.points)
        own = training if self.weights is None else self.weights * training  # share of a sample in its decoded field
        free, highest = np.maximum(1 - own, np.finfo(float).eps), np.inf
        if self.regularization:
            held_out = training / free
            highest = float(ridge.sizes(self.features, self.points).mean()) / self.regularization
        else:  # the minimum-norm solution knows no variance of a point that is met whatever the others are
            alone = 1e-8  # 1 - leverage below which a sample is met whatever the others are
            held_out = np.where(free > alone, training / free, training)
        return Leverage(lambda X: ridge.values(self.features, X), self.points, training, held_out, highest)


@dataclass(frozen=True, eq=False)
class RidgeProblem:
    """A regression on random features, but for lambda."""

    features: Any
    latent_scale: NDArray[np.float64]
    rows: FeatureRows
    points: NDArray[np.float64]
    F: Any  # the fields, or with `output_rank` their coordinates in the modes
    synthesis: NDArray[np.float64] | None  # mean and modes
    invariants: AffineInvariants | None
    regularizations: list[float]  # that will be asked for
    factor: RidgeFactor | None  # None: constraint="training"
    weights: NDArray[np.float64] | None  # of the points

    def fit(self, regularization: float) -> RidgeFit:
        """The fit for one of the regularizations."""
        A, solution = self._coefficients(regularization)
        return RidgeFit(
            features=self.features,
            latent_scale=self.latent_scale,
            coefficients=A,
            synthesis=self.synthesis,
            invariants=self.invariants,
            projected=self.factor is not None and self.invariants is not None,
            solver=solution.solver,
            n_iter=solution.n_iter,
            rank=solution.rank,
            bound=solution.bound,
            points=self.points,
            n_samples=len(self.points),
            regularization=float(regularization),
            free_bias=not self.rows.bias,
            weights=self.weights,
        )

    def _coefficients(self, regularization):
        if self.factor is None:
            A = _training_constrained(self.rows, self.F, regularization, self.invariants)
            return cache_aligned(A), Solution(A, "svd")
        solution = self.factor.solve(coordinates_of(self.F), regularization)
        # modes are orthogonal to the invariants, and their mean satisfies them: no combination needs a correction
        if self.synthesis is not None:
            return solution.coefficients, solution
        A = lift(solution.coefficients, self.F)
        if self.invariants is not None:
            A = self.invariants.constrain_coefficients(A)
        return cache_aligned(A), solution


def _training_constrained(rows, F, regularization, invariants):
    """The paper's closed form (Eq. ShurAfinal0): A C = (Phi^+ 1) m^T, by a truncated SVD of Phi.

    For mass it equals the printed V (Sigma^2 + lambda)^-1 Sigma U^T (F - [1 - U (1 + lambda Sigma^-2) U^T 1] 1^T / M);
    this form holds for any C and V.
    """
    fields = np.hstack([full_fields(F)[:], np.ones((rows.n, 1))])
    spectral = Spectral(rows, always=True)
    truncation = 1e-8  # relative cut of singular values, delta_S in the paper's implementation details
    A = spectral.solve(fields, regularization, truncation).coefficients[:, :-1]
    pseudo_bias = spectral.solve(fields, 0.0, truncation).coefficients[:, -1:]
    return invariants.correct_coefficients(A, pseudo_bias * invariants.values)


# -- Kernels ---------------------------------------------------------------------------------------
@immutable
class KernelFit(Fit):
    """A fit of kernel ridge regression, f(y) = [1 | k(y) | y] A, y from the tail's centre; before it is solved no A."""

    kind: str = saved(Parameter(str, words=KERNELS))  # the decoder's parameter `kernel`
    nu: float | None = saved(Parameter(float, low=0.5, high=2.5, words=(None,)))  # of "matern"
    frequencies: NDArray[np.float64] | None = saved(Array(2, low=0, optional=True))  # of "multi-gaussian"
    latent_scale: NDArray[np.float64] = saved(Array("d", low=_SMALLEST))  # units of the latents
    lengths: NDArray[np.float64] = saved(Array("d", low=_SMALLEST))  # units of the kernel
    centre: NDArray[np.float64] | None = saved(Array("d", optional=True))  # mean of the points, if there is a tail
    free_bias: bool = saved(Parameter(bool))  # the constant is not penalised
    points: NDArray[np.float64] = saved(Array("n", "d"))  # training points in units of the lengths
    coefficients: Any = saved(Array("P+1", "M"), default=None)  # A (n+1, M), with a tail (n+d+1, M)
    invariants: Any = saved(Part(AffineInvariants, M="M"), default=None)
    solver: str = saved(Parameter(str, words=("cholesky", "eigenvalues")), default="")
    regularization: float = saved(Parameter(float, low=0), default=0.0)
    weights: NDArray[np.float64] | None = saved(Array("n", low=_SMALLEST, optional=True), default=None)  # of the points

    def _restore(self) -> None:
        if (self.kind == "multi-gaussian") != (self.frequencies is not None):
            raise ValueError("frequencies belong to the multi-Gaussian kernel")
        if (self.kind == "matern") != (self.nu in (0.5, 1.5, 2.5)):
            raise ValueError("nu belongs to the Matern kernel, and must be 0.5, 1.5 or 2.5")

    @property
    def radial(self) -> Radial:
        """The kernel."""
        return Radial.named(self.kind, self.nu, self.frequencies)

    @property
    def penalised_bias(self) -> float:
        """Constant that a penalised bias adds to the kernel."""
        return 0.0 if self.free_bias else 1.0

    def kernel(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The kernel of the regression between latents X (n, d) and the training points."""
        return self.radial.values(in_units(X, self.lengths), self.points) + self.penalised_bias

    def tail(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The functions that are not penalised at latents X (n, d): [1 | x], x in units of the kernel's lengths from
        the training points' mean; the constant; or none."""
        if self.centre is None:
            return np.ones((len(X), int(self.free_bias)))
        return polynomial_tail(in_units(X - self.centre, self.lengths), 1)

    def dual(self, X: NDArray[np.float64]) -> Dual:
        """The regression on the training points X; with weights its rows and columns are `weighted`."""
        K, T = self.radial.values(self.points) + self.penalised_bias, self.tail(X)
        return Dual(K if self.weights is None else self.weighted(self.weighted(K).T), self.weighted(T))

    def weighted(self, A: NDArray[np.float64]) -> NDArray[np.float64]:
        """A (n, m), a row for each training point, times the roots of their weights."""
        return A if self.weights is None else np.ascontiguousarray(A * np.sqrt(self.weights)[:, None])

    @property
    def training_points(self) -> NDArray[np.float64]:
        return self.points * self.lengths

    @cached_property
    def linear_map(self) -> LinearMap:
        """The map from latents to fields."""
        basis = kernel_basis(self.radial, self.points, lengths=self.lengths)
        if self.centre is not None:
            basis = tailed_basis(basis, self.centre, self.lengths)
        return LinearMap(basis, self.coefficients, self.invariants)

    @cached_property
    def leverage(self) -> Leverage:
        """The leverage of any point."""
        points = self.training_points
        dual = self.dual(points)
        weights = np.ones(len(points)) if self.weights is None else self.weights
        own = float(dual.K[0, 0] / weights[0])
        values, training, held_out, is_variance = dual.leverage(self.regularization)
        held_out = held_out / weights

        def at(X: NDArray[np.float64]) -> NDArray[np.float64]:
            T, x = self.tail(X), in_units(X, self.lengths)

            def leverage(k, part):
                return values(self.weighted((k + self.penalised_bias).T).T, T[part], own)

            return in_blocks(self.radial, self.points, x, leverage)

        highest = (own if is_variance else own / self.regularization) or np.inf
        return Leverage(at, points, at(points) if training is None else training / weights, held_out, highest)


# -- Geometric harmonics ---------------------------------------------------------------------------
@immutable
class HarmonicFit(Fit):
    """A fit of geometric harmonics: f(y) = [1 | k(y) W] A."""

    # width of the Gaussian kernel k, in units of `latent_scale`
    epsilon: float = saved(Parameter(float, low=_distances.EPSILON_RANGE[0], high=_distances.EPSILON_RANGE[1]))
    eigenvalues: NDArray[np.float64] = saved(Array("r", low=0))
    coefficients: NDArray[np.float64] = saved(Array("r+1", "M"))  # A, the first row the bias
    latent_scale: NDArray[np.float64] = saved(Array("d", low=_SMALLEST))
    points: NDArray[np.float64] = saved(Array("n", "d"))  # training points in units of the latents
    weights: NDArray[np.float64] | None = saved(Array("n", "r", optional=True))  # W; None if W A is cheaper
    expanded: NDArray[np.float64] | None = saved(Array("n+1", "M", optional=True))  # then that product
    invariants: AffineInvariants = saved(Part(AffineInvariants, M="M"))

    def _restore(self) -> None:
        if (self.weights is None) == (self.expanded is None):
            raise ValueError("one of weights and expanded must be there, not both")

    @property
    def rank(self) -> int:
        """Number of harmonics."""
        return len(self.eigenvalues)

    @property
    def radial(self) -> Radial:
        """The kernel."""
        return Radial.gaussian(_distances.kernel_scale(self.epsilon))

    @property
    def training_points(self) -> NDArray[np.float64]:
        return self.points * self.latent_scale

    @cached_property
    def linear_map(self) -> LinearMap:
        """The map from latents to fields."""
        basis = kernel_basis(self.radial, self.points, self.weights, self.latent_scale)
        return LinearMap(basis, self.coefficients if self.expanded is None else self.expanded, self.invariants)

    @cached_property
    def leverage(self) -> Leverage:
        """The leverage of any point, 1 - k^T V L^-1 V^T k."""
        if self.weights is None:
            V = pivoted_cholesky(self.radial.values(self.points))[1][:, : len(self.eigenvalues)]
        else:
            V = self.weights * self.eigenvalues
        scaled = np.ascontiguousarray(V / np.sqrt(self.eigenvalues))

        def at(X: NDArray[np.float64]) -> NDArray[np.float64]:
            x = in_units(X, self.latent_scale)
            squares = in_blocks(self.radial, self.points, x, lambda K, _: np.square(K @ scaled).sum(axis=1))
            return np.maximum(1 - squares, 0)

        # harmonics that are dropped count as if they had the smallest eigenvalue kept
        inverse = np.square(scaled).sum(axis=1)
        inverse += np.maximum(1 - np.square(V).sum(axis=1), 0) / self.eigenvalues[-1]
        points = self.training_points
        return Leverage(at, points, at(points), 1 / inverse, highest=1.0)
