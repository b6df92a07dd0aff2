"""Kernel decoders: ridge regression with the feature maps' kernels, and double diffusion maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import empty_aligned
from randsmap._interface.parameters import Parameter, check_choice, check_count, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Part, immutable, saved
from randsmap._interface.texts import shared_texts
from randsmap._linalg import distances as _distances
from randsmap._linalg.distances import Radial, polynomial_tail
from randsmap._linalg.dual import Dual
from randsmap._linalg.products import cross
from randsmap._linalg.rows import Rows
from randsmap._linalg.svd import pivoted_cholesky, sketched
from randsmap._parallel import blas_threads
from randsmap.decoders import _base
from randsmap.features import check_frequency_range, check_length_scale
from randsmap.invariants import AffineInvariants, InvariantParameters
from randsmap.maps.error_bar import HOW
from randsmap.maps.extrapolation import Leverage
from randsmap.maps.linear_map import LinearMap, in_blocks, in_units, kernel_basis

_Values = NDArray[np.float64]
KERNELS = ("gaussian", "multi-gaussian", "matern", "thin-plate")
_SMALLEST = np.finfo(float).smallest_subnormal


@immutable
class KernelFit(_base.Fit):
    """A fit of kernel ridge regression, f(z) = [1 | k(z) | z] A, z from the tail's centre; before it is solved no A."""

    kind: str = saved(Parameter(str, words=KERNELS))  # the decoder's parameter `kernel`
    nu: float | None = saved(Parameter(float, low=0.5, high=2.5, words=(None,)))  # of "matern"
    frequencies: _Values | None = saved(Array(2, low=0, optional=True))  # of "multi-gaussian"
    latent_scale: _Values = saved(Array("d", low=_SMALLEST))  # units of the latents
    lengths: _Values = saved(Array("d", low=_SMALLEST))  # units of the kernel
    centre: _Values | None = saved(Array("d", optional=True))  # mean of the points, if there is a linear trend
    free_bias: bool = saved(Parameter(bool))  # the constant is not penalised
    points: _Values = saved(Array("n", "d"))  # training points in units of the lengths
    coefficients: Any = saved(Array("P+1", "M", single=True), default=None)  # A (n+1, M), with a tail (n+d+1, M)
    bias: _Values | None = saved(Array("M", optional=True), default=None)
    invariants: Any = saved(Part(AffineInvariants, M="M"), default=None)
    solver: str = saved(Parameter(str, words=("cholesky", "eigenvalues", "sums")), default="")
    regularization: float = saved(Parameter(float, low=0), default=0.0)
    weights: _Values | None = saved(Array("n", low=_SMALLEST, optional=True), default=None)  # of the points

    training_points = property(lambda self: self.points * self.lengths)

    def _restore(self) -> None:
        if (self.kind == "multi-gaussian") != (self.frequencies is not None):
            raise ValueError("frequencies belong to the multi-Gaussian kernel")
        if (self.kind == "matern") != (self.nu in (0.5, 1.5, 2.5)):
            raise ValueError("nu belongs to the Matern kernel, and must be 0.5, 1.5 or 2.5")

    radial = property(lambda self: Radial.named(self.kind, self.nu, self.frequencies))
    penalised_bias = property(lambda self: 0.0 if self.free_bias else 1.0)  # the constant that is added to the kernel

    def kernel(self, X: _Values) -> _Values:
        """The kernel of the regression between latents X (n, d) and the training points."""
        return self.radial.values(in_units(X, self.lengths), self.points) + self.penalised_bias

    def tail(self, X: _Values) -> _Values:
        """The functions that are not penalised at latents X (n, d): [1 | x], x in units of the kernel's lengths from
        the training points' mean; the constant; or none."""
        if self.centre is None:
            return np.ones((len(X), int(self.free_bias)))
        return polynomial_tail(in_units(X - self.centre, self.lengths), 1)

    def dual(self, X: _Values) -> Dual:
        """The regression on the training points X; with weights its rows and columns are `weighted`."""
        K, T = self.radial.values(self.points) + self.penalised_bias, self.tail(X)
        return Dual(K if self.weights is None else self.weighted(self.weighted(K).T), self.weighted(T))

    def weighted(self, A: _Values) -> _Values:
        """A (n, m), a row for each training point, times the roots of their weights."""
        return A if self.weights is None else np.ascontiguousarray(A * np.sqrt(self.weights)[:, None])

    @property
    def training_fields(self) -> _Values:
        """Decoded fields and lambda C, what they miss (over the weights of the samples)."""
        self._check_all_known()
        A, n = sketched(self.coefficients, getattr(self.invariants, "cell_weights", None)), len(self.points)
        missed = self.regularization * A[1 : n + 1]
        missed = missed if self.weights is None else missed / self.weights[:, None]
        return LinearMap(self.linear_map.basis, A).fields(self.training_points) + missed

    def _check_all_known(self):
        if self.solver == "sums":
            raise AttributeError(f"a fit with n_centers has no cross-validation errors in closed form: {HOW}")

    def left_out(self, G, groups=None):
        self._check_all_known()
        missed = self.dual(self.training_points).residuals(self.weighted(G), self.regularization, groups)
        return missed if self.weights is None else missed / np.sqrt(self.weights)[:, None]

    @cached_property
    def linear_map(self) -> LinearMap:
        basis = kernel_basis(self.radial, self.points, self.lengths, self.centre)
        return LinearMap(basis, self.coefficients, self.invariants, None, self.bias)

    @cached_property
    def leverage(self) -> Leverage:
        points = self.training_points
        dual, weights = self.dual(points), np.ones(len(points)) if self.weights is None else self.weights
        own = float(dual.K[0, 0] / weights[0])
        values, training, held_out, is_variance = dual.leverage(self.regularization)

        def at(X: _Values) -> _Values:
            T, x = self.tail(X), in_units(X, self.lengths)

            def leverage(k, part):
                return values(self.weighted((k + self.penalised_bias).T).T, T[part], own)

            return in_blocks(self.radial, self.points, x, leverage)

        highest = (own if is_variance else own / self.regularization) or np.inf
        training = at(points) if training is None else training / weights
        return Leverage(at, points, training, held_out / weights, highest)


@shared_texts
@estimator
class KernelDecoder(_base.RidgeDecoder, InvariantParameters, _base.FieldRegressor):
    """Kernel ridge regression from latent coordinates to fields (Gaussian, Matern or thin-plate spline).

    Use it for up to a few thousand snapshots. It is the limit of `RANDSMAPDecoder` for infinitely many features,
    without draws. Use `RANDSMAPDecoder` for more snapshots, and `AutoDecoder` to select the parameters.

    Parameters
    ----------
    kernel
        "gaussian": exp(-|z - z'|^2 / (2 length_scale^2)). "multi-gaussian": the mean of exp(-s^2 |z - z'|^2 / 2) over s
        in [min_frequency, max_frequency], for several length scales. "matern": the Matern kernel of smoothness nu, for
        less smooth fields. "thin-plate": r^2 log r of the distance r in units of length_scale, which needs degree=1.
    length_scale
        Length scale of the kernel, in units of latent_scale; an array has one per coordinate. Not for "multi-gaussian".
    nu
        Smoothness of the Matern kernel. The other kernels do not use it.
    degree
        1: add a linear trend in the latents, which is not penalised (universal kriging). 0: the constant alone.
    max_frequency
        Upper end of the interval of scales s of "multi-gaussian" (inverse lengths, in inverse units of latent_scale).
        With other kernels it must have its default.
    min_frequency
        Lower end of this interval, at least 0.
    regularization
        lambda >= 0. At 0, or below rounding error, the minimum-norm solution without the eigenvalues below
        n eps lambda_1.
    n_centers
        Centre the kernel at this number of random samples only; the coefficients are fitted to all n samples. The fit
        then takes n n_centers^2 operations and memory for n_centers^2 numbers. Leverage refers to the centres.

    Attributes
    ----------
    coef_ : ndarray (n+1, M) or (n+d+1, M)
        Coefficients of [1 | k(z, z_1), ..., k(z, z_n)] and, with degree=1, of the d coordinates (z - mean) /
        length_scale; the first row is the bias. With `n_centers`, the centres replace the n samples.
    solver_ : {"cholesky", "eigenvalues", "sums"}
        "sums" with `n_centers`. "eigenvalues" if the round-off of the kernel matrix would change the result by more
        than 1e-6: eps |K| > 1e-6 lambda.

    Notes
    -----
    This is the dual form of ridge regression on Phi = [1 | features] (paper Eq. 16), with Phi Phi^T replaced by its
    expectation 1 1^T + K: f(z) = (1 + k(z)) H, H = (1 1^T + K + lambda I)^-1 F. With center=True, K and F are centred,
    and 1 1^T is left out: f(z) = mean(F) + (k(z) - mean k) H. Fields of P Fourier features with the same lambda and
    center approach these fields as P^(-1/2) (Theorem 1 of the paper, also for the multi-scale map).

    With a linear trend, f(z) = T(z) b + k(z) H with T(z) = [1 | z]. The coefficients solve [K + lambda I, T; T^T, 0]
    [H; b] = [F; 0] (G. Wahba, Spline models for observational data, SIAM 1990). With kernel="thin-plate" and
    latent_scale=None this is scipy.interpolate.RBFInterpolator with smoothing = lambda and degree 1.

    Far from all training points, kernels other than "thin-plate" are 0. Without a linear trend the field is then the
    bias row, projected on the invariants. The coefficients take as much memory as the fields in double precision;
    `RANDSMAPDecoder` with output_rank needs less.

    Examples
    --------
    {curve}
    >>> decoder = randsmap.KernelDecoder(length_scale=0.5, regularization=1e-8)
    >>> decoder.fit(latents, fields).predict([[0.5]]).round(4)
    array([[0.25, 0.75]])
    """

    _state = {**_base.FIT_STATE, "_fitted": Part(KernelFit, d="d", M="M")}

    kernel: str = parameter(str, default="gaussian", kw_only=False, words=KERNELS)
    length_scale: float | ArrayLike = parameter(default=1.0, shown="float or array (d,)", of_columns=True)
    nu: float = parameter(default=1.5, shown="float (0.5, 1.5 or 2.5)")
    degree: int = parameter(int, default=0, low=0, high=1)
    max_frequency: float = parameter(float, default=1.0, low=0, strict=True)
    min_frequency: float = parameter(float, default=1e-3, low=0)
    regularization: float = parameter(float, default=1e-3, low=0)
    n_centers: int | None = parameter(int, default=None, low=1, words=(None,))

    invariants_ = _base.of_fit("invariants")
    solver_ = _base.of_fit("solver")

    def fit_state(self, X, y, sample_weight=None):
        self._check_kernel()
        if sample_weight is not None and not self.regularization:
            raise ValueError("sample_weight needs regularization > 0: at regularization=0 the decoder interpolates")
        X, F, weights, invariants = self._training_data(X, y, sample_weight)
        fit = self._solved(X, _base.coordinates_of(F), weights)
        return replace(fit, coefficients=_base.constrained(fit.coefficients, F, invariants), invariants=invariants)

    def _solved(self, X, F, weights=None):
        """The fit to fields F, an array or Rows, without invariants."""
        if self._has_centers(len(X)):
            return self._at_centers(X, F if isinstance(F, Rows) else Rows(F), weights)
        fit, regularization, (n, d) = self._unsolved(X, weights), float(self.regularization), X.shape
        repeated = 0 if regularization or not self.degree else n - len(np.unique(fit.points, axis=0))
        if repeated:
            raise ValueError(
                f"with degree={self.degree} and regularization=0 latent points must differ, got {repeated} repetitions:"
                " give a regularization > 0"
            )
        # the fields are copied once, into the array of the coefficients: [b_0; C; b]
        A = np.empty((1 + n + d * self.degree, F.shape[1]))
        C = A[1 : n + 1]
        for start, stop, block in (F if isinstance(F, Rows) else Rows(F)).blocks():
            C[start:stop] = block
        if weights is not None:
            C *= np.sqrt(weights)[:, None]
        b, solver = fit.dual(X).solve(C, regularization)
        if weights is not None:
            C *= np.sqrt(weights)[:, None]
        if len(b):
            A[0], A[n + 1 :] = b[0], b[1:]
        else:
            np.sum(C, axis=0, out=A[0])  # the kernel is 1 + k
        return replace(fit, coefficients=A, solver=solver, regularization=regularization)

    def _has_centers(self, n):
        return self.n_centers is not None and self.n_centers < n

    def _at_centers(self, X, F, weights):
        """The fit with kernels at some of the points alone, C = W a with |a|^2 = C^T K C, by sums over all of them. A.
        J. Smola and B. Schoelkopf, Sparse greedy matrix approximation for machine learning, ICML (2000)."""
        if weights is not None:
            raise ValueError(f"n_centers={self.n_centers} accepts no sample_weight: use n_centers=None")
        some = np.sort(np.random.RandomState(0).permutation(len(X))[: self.n_centers])
        fit, regularization = self._unsolved(X), float(self.regularization)
        fit = replace(fit, points=fit.points[some])
        dual, tail, F = fit.dual(X[some]), fit.tail(X[some]), F.centred() if fit.free_bias else F
        eigenvalues, V, _ = dual.modes
        t, W = tail.shape[1], V / np.sqrt(eigenvalues)
        # [tail | kernel] P is the tail, and the combinations W of the kernel at the centres
        P = np.block([[np.eye(t), -np.linalg.lstsq(tail, dual.K @ W, rcond=None)[0]], [np.zeros((len(W), t)), W]])
        normal, found = np.zeros((P.shape[1],) * 2), np.zeros((P.shape[1], F.shape[1]))
        penalty, factor = np.zeros((P.shape[1], 1)), cast(Any, None)
        with blas_threads():
            for _ in range(3):  # normal equations, corrected twice for the round-off of their sums
                A, right = P @ found, np.zeros((len(P), F.shape[1]))
                for start, stop, block in F.blocks(2048):
                    both = np.hstack([fit.tail(X[start:stop]), fit.kernel(X[start:stop])])
                    right += both.T @ (block - both @ A)
                    if factor is None:
                        Phi = both @ P
                        normal += cross(Phi, Phi)
                if factor is None:
                    regularization = max(regularization, 10 * np.finfo(float).eps * np.trace(normal[t:, t:]))
                    # round-off of the trend, if latents do not span all directions, each in its own units
                    least = len(X) * np.finfo(float).eps * np.append(1.0, np.square(fit.points).max(axis=0))[:t]
                    penalty[:t, 0] = 1e-12 * np.maximum(normal.diagonal()[:t], np.maximum(least, 1e-280))
                    penalty[t:] = regularization
                    normal[np.diag_indices_from(normal)] += penalty[:, 0]
                    factor = scipy.linalg.cho_factor(normal, overwrite_a=True, check_finite=False)
                found += scipy.linalg.cho_solve(factor, P.T @ right - penalty * found, check_finite=False)
            A = P @ found
        b, C = A[:1] + F.mean if t else A.sum(axis=0)[None], A[t:]  # the kernel is 1 + k without a tail
        share = regularization * len(some) / len(X)  # lambda of a fit to the centres alone
        return replace(fit, coefficients=np.vstack([b, C, A[1:t]]), solver="sums", regularization=share)

    def _check_kernel(self):
        kernel = check_choice(self.kernel, "kernel", KERNELS)
        unread = ("length_scale",) if kernel == "multi-gaussian" else ("max_frequency", "min_frequency")
        _base.check_unread(self, unread if kernel == "matern" else (*unread, "nu"), f"with kernel={kernel!r}")
        if kernel == "matern" and self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}")
        check_parameters(self)
        if self.degree == 0 and kernel == "thin-plate":
            raise ValueError('kernel="thin-plate" needs degree=1, got 0')

    def _unsolved(self, X, weights=None):
        """The fit to training points X (n, d) without its coefficients."""
        self._check_kernel()
        scale, frequencies = _base.fitted_scale(self.latent_scale, X, weights), None
        if self.kernel == "multi-gaussian":
            frequencies, lengths = np.array(check_frequency_range(self.min_frequency, self.max_frequency)), scale
        else:
            lengths = check_length_scale(self.length_scale, X.shape[1]) * scale
            if not np.isfinite(lengths).all() or not lengths.all():
                raise ValueError(f"length_scale={self.length_scale!r} in units {scale} is out of the range of floats")
        return KernelFit(
            kind=self.kernel,
            nu=float(self.nu) if self.kernel == "matern" else None,
            frequencies=frequencies,
            latent_scale=scale,
            lengths=lengths,
            centre=np.average(X, axis=0, weights=weights) if self.degree else None,
            free_bias=bool(self.degree or self.center),
            points=in_units(X, lengths),
            weights=weights,
        )

    def eigenpairs(self, X, least):
        if self._has_centers(len(X)):
            raise ValueError(f"the spectrum needs kernels at all samples, got n_centers={self.n_centers}: use None")
        hat = self._unsolved(X).dual(X).hat()
        return hat.U, hat.squares

    def round_off(self, X):
        return self._unsolved(X).dual(X).smallest

    def weights_of(self, X, Z, fields):
        if fields is not None or self._has_centers(len(X)):
            return self._solved(X, np.eye(len(X)) if fields is None else fields).decode(Z)
        fit = self._unsolved(X)
        return fit.dual(X).weights(fit.kernel(Z), fit.tail(Z), float(self.regularization))


# -- Double diffusion maps -------------------------------------------------------------------------
def retained_modes(eigenvalues: _Values, n: int, rank: int | str) -> int:
    """Number r of geometric harmonics kept: see `rank` of `DoubleDiffusionMapsDecoder` (paper, App. D)."""
    largest = eigenvalues[0]
    if isinstance(rank, str):
        return int(np.count_nonzero(eigenvalues > n * largest * 2.0**-53 * largest))
    return min(rank, int(np.count_nonzero(eigenvalues > n * np.finfo(float).eps * largest)))


def folds_of(parts: Sequence[NDArray[np.intp]], most: int) -> list[NDArray[np.intp]]:
    """The parts of the samples in as many folds, at most."""
    folds = np.array_split(np.arange(len(parts)), min(most, len(parts)))
    return [np.concatenate([parts[i] for i in fold]) for fold in folds]


def harmonic_residuals(
    kernel: Radial, X: _Values, G: _Values, folds: Sequence[NDArray[np.intp]], ranks: Sequence[int]
) -> dict[int, _Values]:
    """By rank, what geometric harmonics on points X (n, d) miss of G (n, r) if each fold is held out in turn."""
    out, found = {rank: np.empty_like(G) for rank in ranks if rank <= len(X)}, 0
    for held in folds:
        rest = np.setdiff1d(np.arange(len(X)), held)
        eigenvalues, V = pivoted_cholesky(kernel.values(X[rest]))
        r = retained_modes(eigenvalues, len(rest), len(rest))
        found, V, mean = max(found, r), V[:, :r], G[rest].mean(axis=0)
        with blas_threads():
            C = V.T @ (G[rest] - mean)
            H = kernel.values(X[held], X[rest]) @ (V / eigenvalues[:r]) - V.mean(axis=0)
            missed, first = G[held] - mean, 0
            for rank, residuals in out.items():
                missed -= H[:, first:rank] @ C[first:rank]
                residuals[held], first = missed, rank
    largest = next((rank for rank in out if rank >= found), None)
    return {rank: residuals for rank, residuals in out.items() if largest is None or rank <= largest}


@immutable
class HarmonicFit(_base.Fit):
    """A fit of geometric harmonics: f(z) = [1 | k(z) W] A."""

    # width of the Gaussian kernel k, in units of `latent_scale`
    epsilon: float = saved(Parameter(float, low=_distances.EPSILON_RANGE[0], high=_distances.EPSILON_RANGE[1]))
    eigenvalues: _Values = saved(Array("r", low=0))
    coefficients: _Values = saved(Array("r+1", "M", single=True))  # A, the first row the bias
    latent_scale: _Values = saved(Array("d", low=_SMALLEST))
    points: _Values = saved(Array("n", "d"))  # training points in units of the latents
    weights: Any = saved(Array("n", "r", optional=True))  # W; None if W A is cheaper
    expanded: _Values | None = saved(Array("n+1", "M", optional=True, single=True), default=None)  # that product
    bias: _Values | None = saved(Array("M", optional=True), default=None)
    invariants: Any = saved(Part(AffineInvariants, M="M"), default=None)
    sketch: _Values | None = saved(Array("n", "k", optional=True), default=None)

    training_points = property(lambda self: self.points * self.latent_scale)

    def _restore(self) -> None:
        if (self.weights is None) == (self.expanded is None):
            raise ValueError("one of weights and expanded must be there, not both")

    rank = property(lambda self: len(self.eigenvalues))
    radial = property(lambda self: Radial.gaussian(_distances.kernel_scale(self.epsilon)))

    def left_out(self, G, groups=None):
        parts = np.random.default_rng(0).permutation(len(G))[:, None] if groups is None else groups
        return harmonic_residuals(self.radial, self.points, G, folds_of(parts, 10), [self.rank])[self.rank]

    @cached_property
    def linear_map(self) -> LinearMap:
        basis = kernel_basis(self.radial, self.points, self.latent_scale)
        A = self.coefficients if self.expanded is None else self.expanded
        combinations = None if self.weights is None else np.vstack([np.zeros((1, self.rank)), self.weights])
        return LinearMap(basis, A, self.invariants, combinations, self.bias)

    @cached_property
    def leverage(self) -> Leverage:
        """The leverage of any point, 1 - k^T V L^-1 V^T k."""
        if self.weights is None:
            V = pivoted_cholesky(self.radial.values(self.points))[1][:, : self.rank]
        else:
            V = self.weights * self.eigenvalues
        scaled = np.ascontiguousarray(V / np.sqrt(self.eigenvalues))

        def at(X: _Values) -> _Values:
            x = in_units(X, self.latent_scale)
            squares = in_blocks(self.radial, self.points, x, lambda K, _: np.square(K @ scaled).sum(axis=1))
            return np.maximum(1 - squares, 0)

        # dropped harmonics count with the smallest eigenvalue of the others
        inverse = np.square(scaled).sum(axis=1)
        inverse += np.maximum(1 - np.square(V).sum(axis=1), 0) / self.eigenvalues[-1]
        return Leverage(at, self.training_points, at(self.training_points), 1 / inverse, highest=1.0)


@shared_texts
@estimator
class DoubleDiffusionMapsDecoder(_base.LatentScaling, InvariantParameters, _base.LinearDecoder, _base.FieldRegressor):
    """Double diffusion maps: geometric harmonics of a Gaussian kernel on the latent points.

    Use it for dense snapshots in many coordinates (about 10). For few coordinates compare it with `KernelDecoder`.

    Parameters
    ----------
    epsilon
        Width of the kernel exp(-|z - z'|^2 / epsilon^2), in units of latent_scale. None: epsilon_scale times the median
        distance between the latent points.
    epsilon_scale
        Factor of the median distance; the paper's w_2. Not used if epsilon is given.
    rank
        Number r of harmonics. "rule": the rule of the paper, eigenvalues lambda_i > delta lambda_1 with delta = n
        lambda_1 2^-53. A number keeps at most this many; lambda_i <= n eps lambda_1 are round-off.

    Attributes
    ----------
    epsilon_ : float
        Kernel width used.
    rank_ : int
        Number r of harmonics kept.
    eigenvalues_ : ndarray (r,)
        Their eigenvalues, in descending order.
    coef_ : ndarray (r+1, M)
        Coefficients of [1 | harmonics]; with center=False the first row, the bias, is 0 without invariants.

    Notes
    -----
    f(z) = F^T U L^-1 U^T k(z) with the leading eigenpairs (U, L) of the kernel matrix (paper, Sec. 3 and App. C, Eq.
    C.13). With center=True, F is the fields less their mean. The harmonics k(z) U L^-1 are r functions of z, so
    decoding a row costs n r + r M operations. If n M is less, the product of the other factors is formed in advance.

    For well-conditioned kernels the rule keeps the full rank. This is kernel interpolation; fields at equal latent
    points are averaged. At more than about 26 epsilon from all training points the kernel is 0, and the field is the
    bias row, projected on the invariants. Without invariants mass is not conserved (paper, App. C).

    References
    ----------
    N. Evangelou et al., Double diffusion maps and their latent harmonics for scientific computations in latent space,
    J. Comput. Phys. 485 (2023). R. R. Coifman and S. Lafon, Geometric harmonics, Appl. Comput. Harmon. Anal. 21 (2006).

    Examples
    --------
    {curve}
    >>> decoder = randsmap.DoubleDiffusionMapsDecoder().fit(latents, fields)
    >>> decoder.predict([[0.5]]).round(6)
    array([[0.25, 0.75]])
    """

    _state = {**_base.FIT_STATE, "_fitted": Part(HarmonicFit, d="d", M="M")}

    epsilon: float | None = parameter(float, default=None, words=(None,), low=0, strict=True)
    epsilon_scale: float = parameter(float, default=1.0, low=0, strict=True)
    rank: int | str = parameter(int, default="rule", low=1, words=("rule",))

    invariants_ = _base.of_fit("invariants")
    epsilon_ = _base.of_fit("epsilon")
    rank_ = _base.of_fit("rank")
    eigenvalues_ = _base.of_fit("eigenvalues")

    def weights_of(self, X, Z, fields):
        return self._harmonic_fit(X, np.eye(len(X)) if fields is None else fields).decode(Z)

    def fit_state(self, X, y):
        X, F, _, invariants = self._training_data(X, y)
        fit = self._harmonic_fit(X, _base.coordinates_of(F))
        A, weights, expanded = _base.constrained(fit.coefficients, F, invariants), fit.weights, None
        (n, r), M = weights.shape, A.shape[1]
        if n * M <= r * (n + M):
            expanded = empty_aligned((n + 1, M))
            expanded[0] = A[0]
            with blas_threads():
                np.dot(weights, A[1:], out=expanded[1:])
            weights = None
        known = {"invariants": invariants, "sketch": sketched(_base.full_fields(F), invariants.cell_weights)}
        return replace(fit, coefficients=A, weights=weights, expanded=expanded, **known)

    def _harmonic_fit(self, X, F):
        """The fit to fields F, an array or Rows, without invariants."""
        given = check_parameters(self)
        if not isinstance(self.rank, str):
            check_count(self.rank, "rank", high=len(X), high_name="n_samples")
        scale = _base.fitted_scale(self.latent_scale, X)
        points = in_units(X, scale)
        K, epsilon = _distances.gaussian_of_data(points, self.epsilon, self.epsilon_scale)
        eigenvalues, V = pivoted_cholesky(K)
        r = retained_modes(eigenvalues, len(X), self.rank)
        eigenvalues, V = eigenvalues[:r].copy(), V[:, :r]
        rows = F if isinstance(F, Rows) else Rows(F)
        rows = rows.centred() if given["center"] else rows
        A = np.zeros((r + 1, F.shape[1]))
        with blas_threads():
            A[1:] = rows.transposed_times(V).T
        if given["center"]:
            A[0] = rows.mean - V.mean(axis=0) @ A[1:]
        return HarmonicFit(epsilon, eigenvalues, A, scale, points, np.ascontiguousarray(V / eigenvalues))
