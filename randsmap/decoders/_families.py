"""Families of decoders among which held-out errors choose, and their members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._linalg.radial import Radial, polynomial_tail
from randsmap._parallel import blas_threads
from randsmap.decoders._kernel import DoubleDiffusionMapsDecoder, KernelDecoder
from randsmap.decoders._knn import KNNDecoder
from randsmap.decoders._random_features import RFNNDecoder
from randsmap.features import (
    FourierFeatures,
    MaternFeatures,
    MonomialFeatures,
    MultiscaleFourierFeatures,
    SigmoidFeatures,
)

_Values = NDArray[np.float64]

SIGMOID, FOURIER, MULTISCALE_FOURIER, MATERN_FEATURES = "sigmoid", "fourier", "multiscale-fourier", "matern-features"
POLYNOMIAL = "polynomial"
GAUSSIAN, MULTI_GAUSSIAN, MATERN, THIN_PLATE = "gaussian", "multi-gaussian", "matern", "thin-plate"
KNN, DOUBLE_DIFFUSION_MAPS = "k-nn", "double-diffusion-maps"
FAMILIES = (
    SIGMOID,
    FOURIER,
    MULTISCALE_FOURIER,
    MATERN_FEATURES,
    POLYNOMIAL,
    GAUSSIAN,
    MULTI_GAUSSIAN,
    MATERN,
    THIN_PLATE,
    KNN,
    DOUBLE_DIFFUSION_MAPS,
)
_SCALE_FREE = (THIN_PLATE, KNN)  # a common factor of the scales changes nothing, but for lambda
_UNSCALED = (POLYNOMIAL,)
LENGTHS = 0.02, 100.0  # the shortest and the longest length scale
_MOST_FEATURES = 2000  # as many as samples, at most
_LOWEST_FREQUENCY = 0.0  # of the multi-Gaussian kernel; the highest is 1, in units of the trial's scales
_MAPS: dict[str, Any] = {
    SIGMOID: SigmoidFeatures,
    FOURIER: FourierFeatures,
    MULTISCALE_FOURIER: MultiscaleFourierFeatures,
    MATERN_FEATURES: MaternFeatures,
}

# family, nu, degree, length scale in standard deviations of the latents: where a search starts
_STARTS: tuple[tuple[str, float | None, int | None, float], ...] = (
    (KNN, None, None, 1.0),
    (THIN_PLATE, None, 1, 1.0),
    (GAUSSIAN, None, 1, 1.0),
    (MATERN, 1.5, 1, 3.0),
    (MATERN, 2.5, 1, 3.0),
    (GAUSSIAN, None, 1, 3.0),
    (MATERN, 2.5, 1, 10.0),
    (GAUSSIAN, None, 1, 10.0),
    (MATERN, 1.5, 1, 1.0),
    (MATERN, 1.5, 1, 10.0),
    (GAUSSIAN, None, 1, 0.3),
    (GAUSSIAN, None, 0, 1.0),
    (MATERN, 1.5, 0, 3.0),
    (MATERN, 2.5, 0, 3.0),
    (POLYNOMIAL, None, 2, 1.0),
    (POLYNOMIAL, None, 3, 1.0),
    (POLYNOMIAL, None, 4, 1.0),
    (DOUBLE_DIFFUSION_MAPS, None, None, 1.0),
    (SIGMOID, None, 0, 0.3),
    (MULTI_GAUSSIAN, None, 0, 0.3),
    (FOURIER, None, 0, 1.0),
    (MATERN_FEATURES, 1.5, 0, 3.0),
    (MULTISCALE_FOURIER, None, 0, 0.3),
    (SIGMOID, None, 0, 0.1),
    (SIGMOID, None, 0, 1.0),
    (FOURIER, None, 0, 3.0),
    (MATERN_FEATURES, 2.5, 0, 3.0),
)


def check_families(families: str | Iterable[str] | None) -> tuple[str, ...]:
    """The names of the families, each once; None: all. ValueError, which lists them, for others."""
    if families is None:
        return FAMILIES
    names = (families,) if isinstance(families, str) else tuple(families)
    known = ", ".join(map(repr, FAMILIES))
    if not names:
        raise ValueError(f"families must name at least one of {known}, got none")
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"families must be among {known}, or None for all, got {name!r}")
    return tuple(dict.fromkeys(names))


def starts_of(families: Sequence[str], d: int) -> list[list[Trial]]:
    """Where a search over these families for decoders of d latents starts: of each family its members."""
    order = dict.fromkeys(family for family, *_ in _STARTS if family in families)
    return [
        [Trial(kind, nu, degree, np.full(d, scale), np.nan) for kind, nu, degree, scale in _STARTS if kind == family]
        for family in order
    ]


@dataclass
class Trial:
    """A member of a family with its scales, at the best lambda, number of neighbours or rank of the path."""

    family: str
    nu: float | None
    degree: int | None
    scales: _Values  # in standard deviations of the latents
    value: float  # lambda over the largest eigenvalue, k, or the rank
    strength: float = np.nan  # lambda, a sample
    score: float = np.inf
    error: float = np.nan
    residuals: _Values | None = field(default=None, repr=False)

    @property
    def kind(self) -> tuple[str, float | None, int | None]:
        """Key that trials share if they differ in their scales alone."""
        return self.family, self.nu, self.degree

    @cached_property
    def identity(self) -> Any:
        """Equal for trials that are the same but for that value."""
        logs = np.log(self.scales)
        if self.family in _SCALE_FREE:
            logs = logs - logs[0]
        return self.kind, tuple(np.round(logs, 3))

    def at(self, value: float, strength: float = np.nan) -> Trial:
        """The trial at another value, not judged yet."""
        return Trial(self.family, self.nu, self.degree, self.scales, value, strength)

    def neighbors(self, step: float) -> list[Trial]:
        """Trials of the same kind whose scales, all or one of them, differ by a factor exp(+-step)."""
        d = len(self.scales)
        moves = [] if self.family in (*_SCALE_FREE, *_UNSCALED) else [np.ones(d)]
        if d > 1 and self.family not in _UNSCALED:
            moves += list(np.eye(d))
        found = [
            Trial(*self.kind, self.scales * np.exp(sign * step * move), np.nan) for move in moves for sign in (1, -1)
        ]
        return [t for t in found if LENGTHS[0] <= t.scales.min() and t.scales.max() <= LENGTHS[1]]

    def functions(self, X: _Values, seed: int) -> tuple[_Values, _Values]:
        """The kernel (n, n) at latents X (n, d) in standard deviations, and the functions that are not penalised.

        Of random features the kernel is Phi Phi^T.
        """
        points = X / self.scales
        feature_map = self._features(len(X), seed)
        if feature_map is None:
            kernel = Radial.named(self.family, self.nu, (_LOWEST_FREQUENCY, 1.0))
            return kernel.values(points), polynomial_tail(points - points.mean(axis=0), self.degree or 0)
        Phi = feature_map.fit_transform(points)
        Phi -= Phi.mean(axis=0)
        with blas_threads():
            return Phi @ Phi.T, polynomial_tail(points, 0)

    def per_sample(self, n: int) -> float:
        """Growth of the kernel's eigenvalues, and so of lambda, with the number n of samples."""
        # sigmoids are of size 1, so that products of P of them grow with P. Cosines have the factor sqrt(2 / P), after
        # which their products estimate a kernel, and the number of monomials does not depend on n.
        return float(n * (min(n, _MOST_FEATURES) if self.family == SIGMOID else 1))

    def regularization(self, n: int) -> float:
        return self.strength * self.per_sample(n)

    def decoder(self, units: _Values, n: int, seed: int) -> Any:
        """The decoder for n latents whose standard deviations are `units`."""
        scales = self.scales * units
        if self.family == KNN:
            return KNNDecoder(int(self.value), latent_scale=scales)
        if self.family == DOUBLE_DIFFUSION_MAPS:
            return DoubleDiffusionMapsDecoder(epsilon=1.0, rank=int(self.value), latent_scale=scales)
        regularization, feature_map = self.regularization(n), self._features(n, seed)
        if feature_map is not None:
            return RFNNDecoder(feature_map, latent_scale=scales, regularization=regularization)
        options = {"degree": self.degree, "regularization": regularization, **self._smoothness}
        if self.family == MULTI_GAUSSIAN:
            return KernelDecoder(MULTI_GAUSSIAN, min_frequency=_LOWEST_FREQUENCY, latent_scale=scales, **options)
        return KernelDecoder(self.family, length_scale=scales, latent_scale=None, **options)

    def _features(self, n, seed):
        """The feature map for n samples, None if there is none."""
        if self.family == POLYNOMIAL:
            return MonomialFeatures(self.degree)
        if self.family not in _MAPS:
            return None
        return _MAPS[self.family](n_features=min(n, _MOST_FEATURES), random_state=seed, **self._smoothness)

    @property
    def _smoothness(self) -> dict[str, Any]:
        return {} if self.nu is None else {"nu": self.nu}
