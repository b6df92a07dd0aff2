"""State of random-feature decoders between batches; rules for batches and merging."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import hash as hash_of
from numpy.typing import NDArray

from randsmap._interface.arrays import cache_aligned
from randsmap.decoders._base import is_fitted
from randsmap.decoders._fits import RidgeFit
from randsmap.decoders._regularization import batch_regularization
from randsmap.features import FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap.invariants import AffineInvariants, RunningInvariants


@dataclass(frozen=True, eq=False)
class Batches:
    """Fitted features, and sums over the batches so far."""

    features: Any
    latent_scale: NDArray[np.float64]
    sums: Any = None  # NormalEquations; None: no batch yet
    running: RunningInvariants | None = None
    invariants: AffineInvariants | None = None

    def with_fields(self, F: Any, dtype: Any) -> Batches:
        """The invariants with those of one more batch; its rows are not in the sums yet."""
        if self.running is None:
            return self
        running, invariants = self.running.with_fields(F, dtype)
        return replace(self, running=running, invariants=invariants)

    def merged(self, other: Batches) -> Batches:
        """The sums of both."""
        running = invariants = None
        if self.running is not None and other.running is not None:
            running, invariants = self.running.merged(other.running)
        # of a copy: an error or an interrupt leaves these sums as they are
        sums = self.sums.copy()
        sums.merge(other.sums)
        return replace(self, sums=sums, running=running, invariants=invariants)

    def solve(self, regularization: float, solver: str) -> RidgeFit:
        """The fit to all batches."""
        sums = self.sums
        solution = sums.solve(regularization, solver)
        A = solution.coefficients
        if self.invariants is not None:
            A = self.invariants.constrain_coefficients(A)
        return RidgeFit(
            features=self.features,
            latent_scale=self.latent_scale,
            coefficients=cache_aligned(A),
            synthesis=None,
            invariants=self.invariants,
            projected=self.invariants is not None,
            solver=solution.solver,
            n_iter=solution.n_iter,
            rank=solution.rank,
            bound=solution.bound,
            points=sums.sample(),
            n_samples=sums.n,
            regularization=float(regularization),
            free_bias=sums.centred,
            sums=sums,
        )


# -- Which decoders take batches -------------------------------------------------------------------
def check_streamable(decoder: Any) -> bool:
    """True; ValueError with the reason if the parameters of a decoder do not allow batches."""
    if decoder.solver in ("svd", "krylov", "lowrank"):
        raise ValueError(
            f"partial_fit needs solver='auto' or 'cholesky', got {decoder.solver!r}, which needs all samples at once"
        )
    if decoder.output_rank is not None:
        raise ValueError(f"partial_fit needs output_rank=None, got {decoder.output_rank!r}: modes need all samples")
    if decoder.constraint != "everywhere":
        raise ValueError(
            f"partial_fit needs constraint='everywhere', got {decoder.constraint!r}, which needs all samples at once"
        )
    features = decoder.features
    if decoder.stream is not None or is_fitted(features) or not (features is None or is_map(features)):
        # `partial_fit` refuses what is no feature map
        return True
    if features is None:
        raise ValueError(
            "partial_fit needs features whose number is known: give FourierFeatures(n_features=...), a map that is "
            "fitted already, or all latent points to fit_features before"
        )
    if isinstance(features, SigmoidFeatures) and features.latent_box is None:
        raise ValueError(
            "partial_fit cannot take the centres of SigmoidFeatures from the bounding box of data that "
            "it has not seen: give SigmoidFeatures(n_features=..., latent_box=(low, high)), a map "
            "that is fitted already, or all latent points to fit_features before"
        )
    if not isinstance(features, (FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures)):
        raise ValueError(
            f"partial_fit cannot fit {features!r} to one batch of the data: fit it before, "
            "to data that represent all batches"
        )
    if not isinstance(features.n_features, numbers.Integral):
        raise ValueError(
            f"partial_fit needs an integer n_features, got {features.n_features!r}, a multiple of a number of samples "
            "that is not known: give a count, or a map that is fitted already"
        )
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
            reason = "comes from fit or a model file, which keep" if from_fit else "has"
            raise ValueError(
                f"merge needs two decoders after partial_fit, but {name} {type(decoder).__name__} {reason} no sums "
                "that could be added"
            )
    ours._field_shape.check(theirs._field_shape, "the other decoder's y", (), "this decoder's")
    here, there = _settings(ours), _settings(theirs)
    for name in here | there:
        if hash_of(here.get(name)) != hash_of(there.get(name)):  # equal to the bit
            raise ValueError(
                f"decoders that differ in {name} cannot be merged: got {_shown(here.get(name))} and "
                f"{_shown(there.get(name))}. All parts of the data need one and the same decoder to start from"
            )


def _settings(decoder):
    """By name, what two decoders must have in common to be merged."""
    batches = decoder.stream
    # in the order in which a difference is reported: causes before what follows from them
    settings = {
        "the number of latent coordinates": decoder.n_features_in_,
        "the number of cells": batches.sums.cells,
        "the shape of the fields": decoder.field_shape_,
        "latent_scale": batches.latent_scale,
        **_feature_settings(batches.features),
        "center": batches.sums.centred,
        "regularization": batch_regularization(decoder),
        "solver": decoder.solver,
    }
    if batches.running is not None:
        given = batches.running.given
        settings |= {
            "invariants": given.matrix,
            "invariant_values": given.values,
            "invariant_tol": given.tol,
            "cell_weights": given.cell_weights,
            "bounds": given.bounds,
        }
    return settings


def _feature_settings(features):
    """By name, what makes two fitted feature maps one function."""
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


def _shown(value):
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"an array {value.shape} that begins with {value.ravel()[:3]}"
    return repr(value)
