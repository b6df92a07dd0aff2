"""Kernel decoders: double diffusion maps, and ridge regression with the feature maps' kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import cache_aligned, empty_aligned, validate_data
from randsmap._interface.parameters import check_choice, check_count, check_parameters, estimator, parameter
from randsmap._interface.state import Part
from randsmap._kernels import ridge as _ridge
from randsmap._linalg import distances as _distances
from randsmap._linalg.radial import Radial
from randsmap._linalg.rows import Rows
from randsmap._linalg.svd import pivoted_cholesky
from randsmap._parallel import blas_threads
from randsmap.decoders._base import (
    FIT_STATE,
    FieldRegressor,
    LatentScaling,
    LinearDecoder,
    check_fields,
    check_unread,
    coordinates_of,
    fit_weighted,
    fitted_scale,
    full_fields,
    lift,
    of_fit,
    weighted_samples,
)
from randsmap.decoders._fits import KERNELS, HarmonicFit, KernelFit
from randsmap.features import check_frequency_range, check_length_scale
from randsmap.invariants import InvariantParameters, fit_estimator
from randsmap.maps.bases import in_units


def retained_modes(eigenvalues: NDArray[np.float64], n: int, rank: int | str) -> int:
    """Number r of geometric harmonics kept: see `rank` of `DoubleDiffusionMapsDecoder` (paper, App. D)."""
    largest = eigenvalues[0]
    if isinstance(rank, str):
        return int(np.count_nonzero(eigenvalues > n * largest * 2.0**-53 * largest))
    return min(rank, int(np.count_nonzero(eigenvalues > n * np.finfo(float).eps * largest)))


@estimator
class DoubleDiffusionMapsDecoder(LatentScaling, InvariantParameters, LinearDecoder, FieldRegressor):
    """Double diffusion maps: geometric harmonics of a Gaussian kernel on the latent points.

    Parameters
    ----------
    epsilon
        Width of the kernel exp(-|y - y'|^2 / epsilon^2), in units of latent_scale. None: epsilon_scale times the median
        distance between the latent points.
    epsilon_scale
        That factor; the paper's w_2.
    rank
        Number r of harmonics. "rule": the eigenvalues lambda_i > delta lambda_1 with delta = n lambda_1 2^-53, the
        paper's. A number keeps that many, at most n, but never one with lambda_i <= n eps lambda_1, which is round-off.

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
    f(y) = F^T V L^-1 V^T k(y) with the leading eigenpairs (V, L) of the kernel matrix
    (paper, Sec. 3 and App. C, Eq. (DoubleDMs_mat)), of the fields less their mean if centred. The harmonics
    k(y) V L^-1 are r functions of y, so a decoded row costs n r + r M operations; where n M is less, the product is
    formed in advance.

    At full rank, which the rule keeps for well-conditioned kernels, this is kernel interpolation. Latent points that
    coincide make the kernel singular: their harmonics are dropped and the fields there averaged. Farther than about
    26 epsilon from all latent points the kernel is 0 and the decoded field about the mean field, with center=False 0
    except in the constant cells, projected on the invariants. Never NaN.

    Without invariants mass is not conserved (paper, Prop. DDM_cons). The projection on them never increases the
    (weighted) L2 error. Memory is that of the coefficients, r numbers per cell, and of some blocks of the fields.

    References
    ----------
    N. Evangelou et al., Double diffusion maps and their latent harmonics for scientific computations in latent space,
    J. Comput. Phys. 485 (2023). R. R. Coifman and S. Lafon, Geometric harmonics, Appl. Comput. Harmon. Anal. 21 (2006).

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap import DoubleDiffusionMapsDecoder
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> decoder = DoubleDiffusionMapsDecoder().fit(latents, fields)
    >>> decoder.predict([[0.5]]).round(6)
    array([[0.25, 0.75]])
    """

    _state = {**FIT_STATE, "_fitted": Part(HarmonicFit, d="d", M="M")}

    epsilon: float | None = parameter(float, default=None, words=(None,), low=0, strict=True)
    epsilon_scale: float = parameter(float, default=1.0, low=0, strict=True)
    rank: int | str = parameter(default="rule", shown='"rule" or int')

    invariants_ = of_fit("invariants")
    epsilon_ = of_fit("epsilon")
    rank_ = of_fit("rank")
    eigenvalues_ = of_fit("eigenvalues")

    def _harmonics(self, X):
        """Kernel width, eigenvalues (r,), eigenvectors V (n, r) and the weights that make k(y) harmonics at y."""
        check_parameters(self)
        if isinstance(self.rank, str):
            check_choice(self.rank, "rank", ("rule",))
        else:
            check_count(self.rank, "rank", high=len(X), high_name="n_samples")
        K, epsilon = _distances.gaussian_of_data(X, self.epsilon, self.epsilon_scale)
        eigenvalues, V = pivoted_cholesky(K)
        r = retained_modes(eigenvalues, len(X), self.rank)
        eigenvalues, V = eigenvalues[:r].copy(), V[:, :r]
        return epsilon, eigenvalues, V, np.ascontiguousarray(V / eigenvalues)

    def weights_of(self, X, Z, fields):
        scale, centred = fitted_scale(self.latent_scale, X), check_parameters(self)["center"]
        points, Z = in_units(X, scale), in_units(Z, scale)
        epsilon, _, V, weights = self._harmonics(points)
        K = Radial.gaussian(_distances.kernel_scale(epsilon)).values(Z, points)
        mean = V.mean(axis=0) if centred else 0.0
        with blas_threads():
            right = (V - mean).T if fields is None else (V - mean).T @ fields
            W = (K @ weights - mean) @ right
        if not centred:
            return W
        return W + (1 / len(X) if fields is None else fields.mean(axis=0))

    def fit_state(self, X, y):
        X = validate_data(self, X, reset=True, min_samples=2)
        n = len(X)
        F, dtype, layout = check_fields(y, n, blocks=True)
        self._keep_fields(layout)
        invariants = fit_estimator(self, F, dtype, X)
        scale, centred = fitted_scale(self.latent_scale, X), check_parameters(self)["center"]
        points = in_units(X, scale)
        epsilon, eigenvalues, V, weights = self._harmonics(points)
        r = len(eigenvalues)
        coef = np.zeros((r + 1, F.shape[1]))
        rows = F if isinstance(F, Rows) else Rows(F)
        rows = rows.centred() if centred else rows
        with blas_threads():
            for start, stop, block in rows.blocks(what="fitting"):
                _ridge.cross(np.ascontiguousarray(V[start:stop]), block, True, coef[1:])
        if centred:
            coef[0] = rows.mean - V.mean(axis=0) @ coef[1:]
        coef = invariants.constrain_coefficients(coef)
        expanded = None
        if n * F.shape[1] <= r * (n + F.shape[1]):
            expanded = empty_aligned((n + 1, F.shape[1]))
            expanded[0] = coef[0]
            with blas_threads():
                np.dot(weights, coef[1:], out=expanded[1:])
            weights = None
        return HarmonicFit(epsilon, eigenvalues, cache_aligned(coef), scale, points, weights, expanded, invariants)


@estimator
class KernelDecoder(LatentScaling, InvariantParameters, LinearDecoder, FieldRegressor):
    """Kernel ridge regression with a bias: the limit of infinitely many random features; splines.

    Parameters
    ----------
    kernel
        "gaussian": exp(-|y - y'|^2 / (2 length_scale^2)), the limit of `FourierFeatures`.
        "multi-gaussian": the mean of exp(-s^2 |y - y'|^2 / 2) over s in
        [min_frequency, max_frequency], the limit of `MultiscaleFourierFeatures` for many scales.
        "matern": the Matern kernel of smoothness nu, the limit of `MaternFeatures`. "thin-plate": r^2 log r of the
        distance r in units of length_scale, which needs degree=1.
    length_scale
        Length scale of the kernel, in units of latent_scale; one per coordinate if an array. "multi-gaussian" refuses
        other values than the default.
    nu
        Smoothness of the Matern kernel: fields are as often differentiable in mean square. Read by "matern" alone.
    degree
        1: a linear function of the latents is added whose coefficients are not penalised (a tail: universal
        kriging), nor is the constant then. 0: the constant alone.
    max_frequency
        Upper end of the interval of scales (inverse lengths, in inverse units of latent_scale) of "multi-gaussian". The
        other kernels refuse other values.
    min_frequency
        Lower end, at least 0.
    regularization
        lambda >= 0. At 0, or below rounding error, the minimum-norm solution without the eigenvalues below
        n eps lambda_1.

    Attributes
    ----------
    coef_ : ndarray (n+1, M) or (n+d+1, M)
        Coefficients of [1 | k(y, y_1), ..., k(y, y_n)] and, with degree=1, of the d coordinates
        (y - mean) / length_scale; the first row is the bias.
    solver_ : {"cholesky", "eigenvalues"}
        The second if the round-off of the kernel matrix would change the result by more than 1e-6,
        eps |K| > 1e-6 lambda.

    Notes
    -----
    The dual form of ridge regression on Phi = [1 | features] (paper Eq. dualform) needs only Phi Phi^T, whose
    expectation is 1 1^T + K: f(y) = (1 + k(y)) H, H = (1 1^T + K + lambda I)^-1 F, which is [1 | k(y)] A with the bias
    row 1^T H above H. That is center=False, where the bias is penalised; with center=True K and F are centred instead
    of adding 1 1^T: f(y) = mean(F) + (k(y) - mean k) H. Fields decoded by P Fourier features with the same lambda and
    center approach these as P^(-1/2). Theorem 1 of the paper is the same for the multi-scale map with many scales.

    With a linear tail f(y) = T(y) b + k(y) C, T = [1 | y], solves [K + lambda I, T; T^T, 0] [C; b] = [F; 0] (G. Wahba,
    Spline models for observational data, SIAM 1990): with kernel="thin-plate" and latent_scale=None
    scipy.interpolate.RBFInterpolator with smoothing = lambda and degree 1.

    Without invariants mass is not conserved. Far from all latent points a kernel other than thin plate is 0 and,
    without a tail, the field is the bias row: a weighted mean of the training fields (with center=False a multiple,
    below 1, of one), projected on the invariants. The coefficients take as much memory as the fields in double
    precision; `RANDSMAPDecoder` with output_rank needs less.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap import KernelDecoder
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> decoder = KernelDecoder(length_scale=0.5, regularization=1e-8)
    >>> decoder.fit(latents, fields).predict([[0.5]]).round(4)
    array([[0.25, 0.75]])
    """

    _state = {**FIT_STATE, "_fitted": Part(KernelFit, d="d", M="M")}

    kernel: str = parameter(str, default="gaussian", kw_only=False, words=KERNELS)
    length_scale: float | ArrayLike = parameter(default=1.0, shown="float or array (d,)")
    nu: float = parameter(default=1.5, shown="float (0.5, 1.5 or 2.5)")
    degree: int = parameter(int, default=0, low=0, high=1)
    max_frequency: float = parameter(float, default=1.0, low=0, strict=True)
    min_frequency: float = parameter(float, default=1e-3, low=0)
    regularization: float = parameter(float, default=1e-3, low=0)

    invariants_ = of_fit("invariants")
    solver_ = of_fit("solver")

    fit = fit_weighted

    def fit_state(self, X, y, sample_weight=None):
        X = validate_data(self, X, reset=True, min_samples=2)
        self._check_kernel()
        as_they_are, regularization = sample_weight is None, float(self.regularization)
        if not as_they_are and not regularization:
            raise ValueError("sample_weight needs regularization > 0: at regularization=0 the decoder interpolates")
        F, dtype, layout = check_fields(y, len(X), blocks=as_they_are, factored=as_they_are)
        self._keep_fields(layout)
        weights, X, F = weighted_samples(sample_weight, X, F)
        fit = self._unsolved(X, weights)
        invariants = fit_estimator(self, full_fields(F), dtype, X)
        A, solver = self._solved_for(fit, X, coordinates_of(F), regularization)
        A = cache_aligned(invariants.constrain_coefficients(lift(A, F)))
        return replace(fit, coefficients=A, invariants=invariants, solver=solver, regularization=regularization)

    def _solved_for(self, fit, X, F, regularization):
        """[b_0; C; b] of the fields F, an array or Rows, and the name of the solver."""
        n, has_tail = len(X), fit.centre is not None
        repeated = 0 if regularization else n - len(np.unique(fit.points, axis=0))
        if has_tail and repeated:
            raise ValueError(
                f"with degree={self.degree} and regularization=0 latent points must differ, got "
                f"{repeated} repetitions: give a regularization > 0"
            )
        # the fields are copied once, to where the coefficients will be
        A = np.empty((1 + n + (X.shape[1] if has_tail else 0), F.shape[1]))
        C = A[1 : n + 1]
        (F if isinstance(F, Rows) else Rows(F)).fill(0, n, C)
        if fit.weights is not None:
            C *= np.sqrt(fit.weights)[:, None]
        b, solver = fit.dual(X).solve(C, regularization)
        if fit.weights is not None:
            C *= np.sqrt(fit.weights)[:, None]
        if len(b):
            A[0], A[n + 1 :] = b[0], b[1:]
        else:
            np.sum(C, axis=0, out=A[0])  # the kernel is 1 + k
        return A, solver

    def _check_kernel(self):
        kernel = check_choice(self.kernel, "kernel", KERNELS)
        unread = ("length_scale",) if kernel == "multi-gaussian" else ("max_frequency", "min_frequency")
        check_unread(self, unread if kernel == "matern" else (*unread, "nu"), f"with kernel={kernel!r}")
        if kernel == "matern" and self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}")
        check_parameters(self)
        if self.degree == 0 and kernel == "thin-plate":
            raise ValueError('kernel="thin-plate" needs degree=1, got 0')

    def _unsolved(self, X, weights=None):
        """The fit to training points X (n, d) without its coefficients."""
        self._check_kernel()
        scale, frequencies = fitted_scale(self.latent_scale, X, weights), None
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

    # -- What needs no fields ----------------------------------------------------------------------------
    def eigenpairs(self, X, least):
        hat = self._unsolved(X).dual(X).hat()
        return hat.U, hat.squares

    def weights_of(self, X, Z, fields):
        fit, regularization = self._unsolved(X), float(self.regularization)
        k, T = fit.kernel(Z), fit.tail(Z)
        if fields is None:
            return fit.dual(X).weights(k, T, regularization)
        A, _ = self._solved_for(fit, X, fields, regularization)
        C, b = A[1 : len(X) + 1], np.vstack([A[:1], A[len(X) + 1 :]])
        with blas_threads():
            return k @ C + T @ b if fit.free_bias else k @ C
