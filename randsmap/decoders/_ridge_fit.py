"""What a fit of random features keeps, of one batch or of many, and which decoders take batches and can be merged."""

from __future__ import annotations

import numbers
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from joblib import hash as hash_of
from numpy.typing import NDArray

from randsmap._interface.parameters import Parameter, check_number
from randsmap._interface.state import NOT_SAVED, Array, Part, immutable, saved
from randsmap._linalg.gram import FeatureLeverage, Solution
from randsmap._linalg.products import multiply
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows
from randsmap._linalg.spectral import Spectral
from randsmap.decoders._base import Fit, constrained, is_fitted
from randsmap.features import SigmoidFeatures
from randsmap.invariants import AffineInvariants, RunningInvariants
from randsmap.maps.error_bar import judged_rows
from randsmap.maps.extrapolation import Leverage
from randsmap.maps.linear_map import LinearMap, feature_basis

_Values = NDArray[np.float64]
PAPER = 1e-3  # lambda of the paper, with features that are given
_SMALLEST = np.finfo(float).smallest_subnormal
_SOLVERS = ("cholesky", "dual", "qr", "lowrank", "krylov", "svd", "eigh")


@immutable
class RidgeFit(Fit):
    """A fit of random features: f(y) = [1 | phi(y)] A, or [1 | phi(y)] B [mean; U^T] with modes of the fields."""

    features: Any = saved(Part("transform", n_in="d", n_out="P"))  # phi, fitted
    latent_scale: _Values = saved(Array("d", low=_SMALLEST))
    free_bias: bool = saved(Parameter(bool))  # the bias is not penalised
    projected: bool = saved(Parameter(bool))  # True if every decoded field is projected on the invariants
    invariants: AffineInvariants | None = saved(Part(AffineInvariants, optional=True, M="M"), default=None)
    synthesis: _Values | None = saved(Array("K+1", "M", optional=True, single=True), default=None)  # [mean; U^T]
    points: Any = saved(Array("n", "d"), default=None)  # training points; after batches a subset
    sketch: _Values | None = saved(Array("s", "k", optional=True), default=None)  # for up to 2000 points
    truncated: _Values | None = saved(Array("s", low=0, optional=True), default=None)  # errors of the modes
    n_samples: int = saved(Parameter(int, low=1), default=0)
    weights: _Values | None = saved(Array("n", low=_SMALLEST, optional=True), default=None)  # of the points
    # A (P+1, M) or B (P+1, r) with the bias in the first row. This and the next five are set by `completed`
    coefficients: Any = saved(Array("P+1", "K", single=True), default=None)
    bias: _Values | None = saved(Array("M", optional=True), default=None)
    solver: str = saved(Parameter(str, words=_SOLVERS), default="")
    n_iter: int = saved(Parameter(int, low=0), default=1)
    rank: int | None = saved(Parameter(int, low=0, words=(None,)), default=None)
    bound: float | None = saved(Parameter(object), default=None)
    regularization: float = saved(Parameter(float, low=0), default=0.0)
    # for batches; a model file holds `factor` and the next two, the arguments of `FeatureLeverage`
    sums: Any = saved(NOT_SAVED, default=None)  # NormalEquations
    running: RunningInvariants | None = saved(NOT_SAVED, default=None)
    factor: _Values | None = saved(Array("w", "r", optional=True), default=None)
    factor_mean: _Values | None = saved(Array("P", optional=True), default=None)
    factor_offset: float = saved(Parameter(float, low=0, high=1), default=0.0)

    training_points = property(lambda self: self.points)

    def _restore(self) -> None:
        M = self.coefficients.shape[1]
        if self.synthesis is None and self.invariants is not None and len(self.invariants.constant) != M:
            raise ValueError(f"coefficients of {M} cells, invariants of {len(self.invariants.constant)}")

    def completed(self, solution: Solution, regularization: float, F: Any = None) -> RidgeFit:
        """The fit with the coefficients of the fields F, or of what stands for them."""
        # modes are orthogonal to the invariants, and their mean satisfies them: no combination needs a correction
        kept = self.invariants if self.projected and self.synthesis is None else None
        A, *others = solution
        known: dict[str, Any] = dict(zip(("solver", "n_iter", "rank", "bound"), others))
        return replace(self, coefficients=constrained(A, F, kept), regularization=float(regularization), **known)

    def storable(self) -> RidgeFit:
        """The fit as a model file holds it: with the factor of the leverage instead of the sums."""
        if self.sums is None:
            return self
        found = self.sums.leverage(self.regularization)
        return replace(self, sums=None, factor=found.W, factor_mean=found.mean, factor_offset=found.offset)

    # -- Batches -----------------------------------------------------------------------------------
    def with_fields(self, F: Any, dtype: Any) -> RidgeFit:
        """The invariants with those of one more batch; its rows are not in the sums yet."""
        if self.running is None:
            return self
        running, invariants = self.running.with_fields(F, dtype)
        return replace(self, running=running, invariants=invariants)

    def merged(self, other: RidgeFit) -> RidgeFit:
        """The sums of both."""
        running = invariants = None
        if self.running is not None and other.running is not None:
            running, invariants = self.running.merged(other.running)
        sums = self.sums.copy()  # an error or an interrupt leaves the old sums unchanged
        sums.merge(other.sums)
        return replace(self, sums=sums, running=running, invariants=invariants)

    def solve(self, regularization: float, solver: str, dtype: str) -> RidgeFit:
        """The fit to all batches."""
        fit = replace(self, points=self.sums.sample, n_samples=self.sums.n)
        return fit.completed(self.sums.solve(regularization, solver), regularization).rounded(dtype)

    # -- Results ------------------------------------------------------------------------------------
    @property
    def A(self) -> _Values:
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
        basis, projected = feature_basis(self.features), self.invariants if self.projected else None
        if self.synthesis is None:
            return LinearMap(basis, self.coefficients, projected, None, self.bias)
        return LinearMap(basis, self.synthesis, projected, self.coefficients, self.bias)

    def left_out(self, G, groups=None):
        X, weights, n = self.points, self.weights, len(self.points)
        if len(G) < n:  # each point of a subset counts as several
            some = judged_rows(n)
            X, weights = X[some], (np.ones(n) if weights is None else weights)[some] * (n / len(some))
        rows = FeatureRows(self.features, X, bias=not self.free_bias, weights=weights)
        root = np.ones((len(G), 1)) if rows.root is None else rows.root[:, None]
        hat = RidgeFactor(rows, [self.regularization], "auto" if weights is None else "svd").hat()
        return hat.residuals(root * G, self.regularization, groups) / root

    @cached_property
    def leverage(self) -> Leverage:
        if self.sums is not None:
            ridge = self.sums.leverage(self.regularization)
        elif self.factor is not None:
            ridge = FeatureLeverage(self.factor, self.factor_mean, self.factor_offset)
        else:
            rows = FeatureRows(self.features, self.points, bias=not self.free_bias, weights=self.weights)
            ridge = Spectral(rows).leverage(self.regularization)
        training = ridge.values(self.features, self.points)
        own = training if self.weights is None else self.weights * training  # shares of samples in their own fields
        free, highest = np.maximum(1 - own, np.finfo(float).eps), np.inf
        if self.regularization:
            held_out = training / free
            highest = float(ridge.sizes(self.features, self.points).mean()) / self.regularization
        else:  # the minimum-norm solution has no variance at an interpolated point
            held_out = np.where(free > 1e-8, training / free, training)
        return Leverage(lambda X: ridge.values(self.features, X), self.points, training, held_out, highest)


# -- lambda ----------------------------------------------------------------------------------------
def fixed_regularization(decoder: Any) -> float | None:
    """lambda >= 0 of a decoder's parameters; None if cross-validation chooses it."""
    regularization = decoder.regularization
    training = getattr(decoder, "constraint", "") == "training"
    if regularization is None:
        return PAPER if getattr(decoder, "features", None) is not None or training else None
    if not isinstance(regularization, str) or regularization != "auto":
        return check_number(regularization, "regularization", low=0)
    if training:
        raise ValueError("constraint='training' has no closed form of cross-validation: give a regularization")
    return None


def batch_regularization(decoder: Any) -> float:
    """lambda for `partial_fit`, which knows no cross-validation errors: None is the paper's."""
    regularization = PAPER if decoder.regularization is None else fixed_regularization(decoder)
    if regularization is None:
        raise ValueError('partial_fit needs a number for regularization, got "auto", which needs all samples')
    return regularization


# -- Which decoders take batches -------------------------------------------------------------------
def check_streamable(decoder: Any) -> bool:
    """True; ValueError with the reason if the parameters of a decoder do not allow batches."""
    features, needed = decoder.features, None
    otherwise = "or a map that is fitted already, or all latent points to fit_features before"
    if decoder.solver in ("svd", "krylov", "lowrank"):
        needed = f"solver='auto' or 'cholesky', got {decoder.solver!r}, which needs all samples at once"
    elif decoder.output_rank is not None:
        needed = f"output_rank=None, got {decoder.output_rank!r}: modes need all samples"
    elif decoder.constraint != "everywhere":
        needed = f"constraint='everywhere', got {decoder.constraint!r}, which needs all samples at once"
    elif decoder.stream is not None or is_fitted(features) or not (features is None or is_map(features)):
        return True  # `partial_fit` raises if it is no feature map
    elif features is None:
        needed = f"features whose number is known: give FourierFeatures(n_features=...), {otherwise}"
    elif isinstance(features, SigmoidFeatures) and features.latent_box is None:
        box = "SigmoidFeatures(n_features=..., latent_box=(low, high))"
        needed = f"centres that do not come from the bounding box of data that it has not seen: give {box}, {otherwise}"
    elif not hasattr(features, "activation_parameters"):
        needed = f"features that one batch determines, not {features!r}: fit it before, to data that represent all"
    elif not isinstance(features.n_features, numbers.Integral):
        needed = f"an integer n_features, got {features.n_features!r} of the samples, which are not known, {otherwise}"
    if needed is not None:
        raise ValueError(f"partial_fit needs {needed}")
    return True


def is_map(features: Any) -> bool:
    """True if it is a feature map."""
    return hasattr(features, "transform") and not isinstance(features, type)


# -- Which decoders can be merged ------------------------------------------------------------------
def check_mergeable(ours: Any, theirs: Any) -> None:
    """TypeError or ValueError if the batches of two decoders cannot be added."""
    if type(theirs) is not type(ours):
        raise TypeError(f"merge needs another {type(ours).__name__}, got {type(theirs).__name__}")
    for decoder, name in ((ours, "this"), (theirs, "the other")):
        if decoder.stream is None or decoder.stream.sums is None:
            from_fit = decoder.stream is None and decoder.__sklearn_is_fitted__()
            which = f"{name} {type(decoder).__name__} " + (
                "comes from fit or a file, which keep" if from_fit else "has"
            )
            raise ValueError(f"merge needs two decoders after partial_fit, but {which} no sums to add")
    ours._field_shape.check(theirs._field_shape, "the other decoder's y", (), "this decoder's")
    here, there = _settings(ours), _settings(theirs)
    for name in here | there:
        if hash_of(here.get(name)) != hash_of(there.get(name)):  # equal to the bit
            raise ValueError(
                f"decoders that differ in {name} cannot be merged: got {here.get(name)!r:.100} and "
                f"{there.get(name)!r:.100}. Start all parts of the data from copies of one decoder"
            )


def _settings(decoder):
    """{name: value} that two decoders must have in common to be merged."""
    fit = decoder.stream
    # as in the sums and the choice of "auto", since parameters may have changed; causes come before effects
    settings = {
        "the number of latent coordinates": decoder.n_features_in_,
        "the number of cells": fit.sums.cells,
        "the shape of the fields": decoder.field_shape_,
        "latent_scale": fit.latent_scale,
        **_feature_settings(fit.features),
        "center": fit.sums.centred,
        "regularization": batch_regularization(decoder),
        "solver": decoder.solver,
    }
    if fit.running is not None:
        given = fit.running
        settings |= {"invariants": given.matrix, "invariant_values": given.values, "invariant_tol": given.tol}
        settings |= {"cell_weights": given.cell_weights, "bounds": given.bounds}
    return settings


def _feature_settings(features):
    """{name: value} by which two fitted feature maps are the same function."""
    settings = {"the class of their features": type(features).__name__}
    if hasattr(features, "activation_parameters"):
        names = (f"the {name} of their features" for name in ("kind", "weights", "offsets", "scale"))
        return settings | dict(zip(names, features.activation_parameters()))
    for name, value in sorted(vars(features).items()):
        if hasattr(value, "get_params"):
            settings |= {f"{inner} ({name})": found for inner, found in _feature_settings(value).items()}
        elif "random_state" not in name:
            settings[f"{name} of their features"] = value
    return settings
