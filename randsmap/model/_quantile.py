"""Nonnegative fields on a line as the places of their mass: fronts and pulses that move."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.fields import FIELD_STATE
from randsmap._interface.parameters import Parameter, estimator, parameter
from randsmap._interface.state import Count, Part, check_fitted
from randsmap._kernels.linear_map import QUANTILES
from randsmap.invariants import AffineInvariants, InvariantParameters, RunningInvariants, common_values, round_off
from randsmap.maps.error_bar import HOW, ErrorBar
from randsmap.maps.linear_map import Basis
from randsmap.model._base import Model, model_texts
from randsmap.model._manifold import ManifoldModel
from randsmap.model._registration import Registration

_Values = NDArray[np.float64]


@model_texts
@estimator
class QuantileRegistration(Registration, Model):
    """A manifold model of nonnegative fields on a line, in terms of the quantiles of their mass.

    Use it for fronts and pulses that move: their quantiles, the inverses of the cumulative sums, have few modes and are
    easy to interpolate. Decoded fields are nonnegative and have the right mass by construction. Negative fields, fields
    without mass and planes raise a ValueError.

    Parameters
    ----------
    model
        A model without invariants, weights and bounds. It is cloned and fitted to the quantiles (n, 2 M + 1), in units
        of the length of the line.
    cell_weights
        Widths of the cells, in their order on the line; they define the mass. None: all equal.
    bounds
        Bounds of every decoded field, as of the decoders. The lower one is at least 0; None: 0. If the mass is a latent
        coordinate, it is limited to masses that the bounds allow.

    Attributes
    ----------
    model_ : ManifoldModel
        The fitted copy.
    n_own : int
        1 if the training fields have different masses: the first latent is then the mass, divided by the mean mass.
        Otherwise 0, and every decoded field has the mass of the training fields.
    invariants_ : AffineInvariants
        The mass and the bounds. Cells that are constant in training may change: fronts may reach them.
    n_features_in_ : int
        M, number of cells of a field.

    Notes
    -----
    Monotone cubic splines interpolate cumulative sums between the edges of the cells, and decoded quantiles between the
    levels (1 - cos(pi k / 2M)) / 2, which are dense at both ends. If two pulses are far apart, less than 1 / M of the
    mass between them is not resolved. Derivatives jump where a cell reaches a bound.

    References
    ----------
    D. Rim and K. T. Mandli, SIAM/ASA J. Uncertain. Quantif. 6 (2018) (displacement interpolation of reduced models);
    F. N. Fritsch and J. Butland, SIAM J. Sci. Stat. Comput. 5 (1984) (the splines).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x, centre = np.linspace(0, 1, 100), np.linspace(0.2, 0.8, 15)
    >>> pulses = np.exp(-(((x - centre[:, None]) / 0.04) ** 2))
    >>> model = randsmap.QuantileRegistration(randsmap.ManifoldModel(randsmap.POD(0.9999))).fit(pulses)
    >>> model.transform(pulses).shape[1] <= 3, bool(abs(model.reconstruct(pulses) - pulses).max() < 0.02)
    (True, True)
    """

    model: Any = parameter(kw_only=False, shown="ManifoldModel")
    cell_weights: ArrayLike | None = parameter(default=None, shown="array (M,) or None")
    bounds: Any = parameter(default="nonnegative", shown='(lower, upper), "nonnegative" or None')

    _state = {
        "n_features_in_": Count("M"),
        "model_": Part(ManifoldModel),
        "n_own": Parameter(int, low=0, high=1),
        "invariants_": Part(AffineInvariants, M="M"),
        "_round_off": Parameter(float, low=0, high=1),  # below 0, of the largest value of a field
        "calibrated_": Part(ErrorBar, optional=True),
        **FIELD_STATE,
    }

    def begin(self, F: _Values, dtype: Any, first: bool) -> None:
        if F.shape[1] < 4 or sum(length > 1 for length in self.field_shape_) > 1:
            raise ValueError(
                f"fields must have 4 cells at least, all along one axis, got the shape {self.field_shape_}: "
                "cells of a plane have no order. ShiftRegistration takes planes with one periodic axis"
            )
        for part in (self.model.encoder, self.model.decoder):
            for name in ("cell_weights", "bounds", "invariants", "invariant_values"):
                value = getattr(part, name, None)
                if value is not None and not (name == "invariants" and isinstance(value, str) and value == "auto"):
                    raise ValueError(
                        f"{name} of the inner {type(part).__name__} would apply to quantiles: leave them out. "
                        "The QuantileRegistration keeps the mass, and has cell_weights and bounds of its own"
                    )
        bounds = (None, None) if self.bounds is None else self.bounds
        if isinstance(bounds, (tuple, list)) and len(bounds) == 2 and bounds[0] is None:
            bounds = 0.0, bounds[1]
        kept: Any = {"invariants": "mass", "cell_weights": self.cell_weights, "bounds": bounds}
        if not first:
            kept |= {"invariant_tol": 1.0 if self.n_own else None, "invariant_values": self.invariants_.values}
        options: Any = {"n_cells": F.shape[1], "layout": self._field_shape, "keep_constant_cells": False}
        given = RunningInvariants.of(InvariantParameters(**kept), **options)
        if given.bounds is None or (given.bounds[0] < 0).any():
            raise ValueError(
                f"bounds must be 0 or more, since the fields are, got {self.bounds!r}. A lower bound None means 0"
            )
        if first:
            self._round_off = round_off(dtype)
        common = common_values(F := self._nonnegative(F), given, dtype)[0]
        if not first:
            if common is None:
                raise ValueError("all earlier fields have one mass, these vary: start with fields of different masses")
            return
        if common is None:
            weights = np.ones(F.shape[1]) if given.cell_weights is None else given.cell_weights
            kept |= {"invariant_tol": 1.0, "invariant_values": [float((F @ weights).mean())]}
        self.n_own = int(common is None)
        given = RunningInvariants.of(InvariantParameters(**kept), **options)
        self.invariants_: AffineInvariants = given.with_fields(F, dtype)[1]

    def _nonnegative(self, F: _Values) -> _Values:
        """The fields without round-off below 0; ValueError if they are negative."""
        lowest = F.min(axis=1, initial=0)
        bad = np.flatnonzero(lowest < -self._round_off * F.max(axis=1, initial=0))
        if len(bad):
            raise ValueError(
                f"the fields must be nonnegative, as a density, got {lowest[bad[0]]:.3g} in row {bad[0]}: a POD takes "
                "fields of any sign, and so does ShiftRegistration"
            )
        return np.maximum(F, 0)

    @property
    def basis(self) -> Basis:
        kept: Any = self.invariants_
        M, weights = self.n_features_in_, kept.cell_weights
        widths = np.ones(M) if weights is None else weights
        edges = np.concatenate([[0.0], np.cumsum(widths)])
        levels = (1 - np.cos(np.pi * np.arange(2 * M + 1) / (2 * M))) / 2
        return Basis(
            kind=QUANTILES,
            n_components=self.n_own + 2 * M + 1,
            n_own=self.n_own,
            n_cells=M,
            scale=self._round_off,
            low=float(kept.lower @ widths),  # of the mass
            high=float(kept.upper @ widths),
            arrays={"edges": edges / edges[-1], "levels": levels},
        )

    def registered(self, F: _Values) -> tuple[_Values, _Values]:
        F = self._nonnegative(F)
        for row in np.flatnonzero(F.max(axis=1, initial=0) == 0):
            raise ValueError(f"the field in row {row} has no mass, so it has no quantiles: leave it out")
        return super().registered(F)

    def closed_error_bar(self) -> NoReturn:
        raise AttributeError(f"errors of the {type(self.model).__name__} are those of quantiles, not of fields: {HOW}")

    def _restore(self) -> None:
        check_fitted(self, "model_")
        if self.model_.n_features_in_ != 2 * self.n_features_in_ + 1:
            raise ValueError(f"model_ has {self.model_.n_features_in_} quantiles, not 2 M + 1")
        if self.invariants_.lower is None or (self.invariants_.lower < 0).any():
            raise ValueError("invariants_ has no bounds of 0 or more")
