"""Fields at new parameters or times: a regression from parameters to the latents of a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from randsmap._interface.arrays import as_columns, check_samples, validate_data
from randsmap._interface.callers import extrapolation_ignored, warn_caller
from randsmap._interface.fields import FieldOutputMixin, field_rows, flattened, named
from randsmap._interface.parameters import estimator, parameter
from randsmap._interface.state import Array, Count, Part, check_fitted, restored_on_error
from randsmap._linalg.rows import Rows, spread_rows
from randsmap._linalg.scales import error_scales, standard_deviations
from randsmap._linalg.svd import principal_coordinates
from randsmap.decoders import AutoDecoder
from randsmap.decoders._auto import GAUSSIAN, MATERN, THIN_PLATE
from randsmap.decoders._base import available_if, require
from randsmap.encoders import POD
from randsmap.invariants import decoding_part, norm_weights
from randsmap.maps.error_bar import ErrorBar, eighths, found_error_bar, members, unknown_errors, with_error
from randsmap.maps.extrapolation import FACTOR, in_limits
from randsmap.maps.frozen import OTHERWISE, freeze
from randsmap.metrics import field_norms
from randsmap.model._base import HeldOutErrors, Model, TangentDerivatives, decoded_errors, model_texts, relative_errors

_Values = NDArray[np.float64]


@model_texts
@estimator
class ParametricModel(TangentDerivatives, FieldOutputMixin, Model):
    """Fields as functions of parameters or time: snapshots are encoded, and the latents are interpolated.

    Use it for fields at new parameters or times, without an equation; `tuning.choose_parametric` selects the model.
    Use `LatentForecast` to continue trajectories, and `SampledModel` if the equation is known.

    Parameters
    ----------
    model
        Cloned, and fitted to the snapshots.
    regressor
        A regressor from parameters (n, p) to latents (n, d); cloned. None: an `AutoDecoder` of thin-plate, Gaussian and
        Matern kernels. It selects the kernel, a length scale for each parameter and the regularisation by leave-one-out
        or leave-group-out errors, and starts with the interpolating thin-plate spline of scaled parameters.

    Attributes
    ----------
    model_, regressor_ : estimator
        The fitted copies.
    n_features_in_ : int
        p, number of parameters.
    held_out_ : HeldOutErrors or None
        Cross-validation errors of `tuning.choose_parametric`, as of `ManifoldModel`. None after `fit`.

    Notes
    -----
    Predicted fields are decoded fields: if the decoder preserves the mass, every prediction has this mass, at any
    parameter. If only predictions are needed, use many latents, such as ``POD(0.99999)``.

    The phase theta of a `ShiftRegistration` is unwrapped from each snapshot to its neighbour: along a single parameter,
    or along the shortest tree that joins the parameters, within groups first. Of equally short connections, the one
    with the smallest difference of theta is used. If theta then jumps by a full turn between some neighbours, and never
    by half a turn, the parameters form a circle. Cosine and sine of theta are then interpolated. `fit` warns of gaps,
    also between groups, in which theta may turn by more than a third.

    References
    ----------
    J. S. Hesthaven and S. Ubbiali, J. Comput. Phys. 363 (2018), for linear encoders.

    Examples
    --------
    {bumps}
    >>> model = randsmap.ManifoldModel(randsmap.POD(3), randsmap.RANDSMAPDecoder(random_state=0))
    >>> parametric = randsmap.ParametricModel(model, randsmap.KernelDecoder(length_scale=1.0, regularization=1e-8))
    >>> fields = parametric.fit(np.linspace(0.3, 0.7, 40), bumps).predict([0.45, 0.55])
    >>> fields.shape, bool(abs(fields.sum(axis=1) - 1).max() < 1e-14)
    ((2, 50), True)
    """

    model: Any = parameter(kw_only=False, shown="ManifoldModel, ShiftRegistration or QuantileRegistration")
    regressor: Any = parameter(default=None, kw_only=False, shown="regressor or None", of_columns=True)

    _state = {
        "n_features_in_": Count("p"),
        "model_": Part("transform", n_in="M", n_out="d"),
        "regressor_": Part("predict", n_in="p", n_out="k"),
        "_roles": Array("k", dtype=np.intp, low=0, high=2),  # latent, cosine of a latent, sine behind all latents
        "held_out_": Part(HeldOutErrors, optional=True),
        "calibrated_": Part(ErrorBar, optional=True),
        "_missed": Array(2, "n", low=0, optional=True),  # distances from the modes, and from those without the block
    }

    _field_shape = property(attrgetter("model_._field_shape"))
    leverage_from = "regressor"
    error_bar_ = property(found_error_bar)

    def fit(self, parameters: ArrayLike, snapshots: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Fit the model to the snapshots, and the regressor to their latents.

        Parameters
        ----------
        {parameters}
        snapshots : array-like (n, M) or (n, *shape)
            Fields, in rows or of any shape, as for `ManifoldModel`.
        groups : array-like (n,) or None
            Labels of groups, such as trajectories, that the search for the regressor leaves out as a whole; otherwise
            fields left out have neighbours in time, which every candidate predicts well. The `fit` of the regressor
            must accept groups, as that of `AutoDecoder` (None) does.

        {result_of_fit}

        Warns
        -----
        UserWarning
            If the latents of snapshots with equal parameters differ by more than 1e-3 of the standard deviation:
            predictions lie in between. If theta of neighbouring parameters differs by more than a third of a turn. If
            there are more parameters than cells: the arguments may be swapped.
        """
        with restored_on_error(self):
            check_samples(parameters=parameters, snapshots=snapshots, groups=groups)
            X = validate_data(self, as_columns(parameters), reset=True, min_samples=2, name="parameters")
            check_pairs(X, snapshots)
            Rows.of(flattened(snapshots, "snapshots")[0], "snapshots")
            regressor = kernel_search() if self.regressor is None else clone(self.regressor, safe=False)
            if groups is not None and not has_fit_parameter(regressor, "groups"):
                raise ValueError(
                    f"groups are for a regressor whose fit takes them, as AutoDecoder's, got {regressor!r}"
                )
            self.model_ = clone(self.model).fit(snapshots)
            encoded = np.asarray(self.model_.transform(snapshots))
            latents, held_out = np.array(encoded), {} if groups is None else {"groups": groups}
            roles = np.zeros(latents.shape[1], dtype=np.intp)
            for j in self._angles:
                theta = latents[:, j].copy()
                latents[:, j] = _unwrapped(theta, X, groups)
                if np.isnan(latents[:, j]).any():
                    latents[:, j], roles[j] = np.cos(theta), 1
                    latents, roles = np.column_stack([latents, np.sin(theta)]), np.append(roles, 2)
            self._roles = roles
            _warn_of_undetermined(X, latents)
            self.regressor_ = regressor.fit(X, latents[:, 0] if latents.shape[1] == 1 else latents, **held_out)
            self.held_out_: HeldOutErrors | None = None
            self.calibrated_ = self._missed = None
            pod: Any = getattr(self.model_, "encoder_", self.model_)
            if isinstance(pod, POD) and getattr(self.model_, "decoder_", None) is None:
                rows = Rows.of(flattened(snapshots, "snapshots")[0])
                weights = pod.invariants_.cell_weights
                centred = rows.less(pod.mean_, scale=None if weights is None else np.sqrt(weights))
                known = np.sqrt(np.maximum(centred.norms2() - np.square(encoded).sum(axis=1), 0))
                self._missed = np.stack([known, _missed_by_others(centred, X, encoded.shape[1])])
        return self

    def latents(self, parameters: ArrayLike) -> _Values:
        """Latents at parameters.

        {parameters} {returns_latents} {raises}
        """
        check_fitted(self, "regressor_")
        return self._latents_at(validate_data(self, as_columns(parameters), reset=False, name="parameters"))

    def _latents_at(self, X: _Values) -> _Values:
        """Latents at parameters (n, p)."""
        if not len(X):  # scikit-learn's regressors want some rows
            return np.asarray(self.model_.transform(named(self.model_, np.empty((0, *self.field_shape_)))))
        return self._latents_of(np.array(self.regressor_.predict(X)).reshape(len(X), -1))

    def _latents_of(self, found: _Values) -> _Values:
        """Latents of what the regressor predicts."""
        found[:, self._roles == 1] = np.arctan2(found[:, self._roles == 2], found[:, self._roles == 1])
        latents: _Values = found[:, self._roles < 2]
        for j in self._angles:
            latents[:, j] = _wrapped(latents[:, j])
        return latents

    _angles = property(lambda self: getattr(self.model_, "angles", ()))

    def _l2_errors(self, latents: Any, fields: Rows) -> _Values:
        """Errors of the fields at latents."""
        measures = {"l2": relative_errors(fields, self.field_shape_, self)}
        return decoded_errors(self.model_, latents, fields, measures)["l2"]

    def closed_error_bar(self) -> ErrorBar:
        """What decoded fields change if latents are regressed without a snapshot, and the error bar of the model."""
        fit: Any = getattr(self.regressor_, "fitted", None)
        if fit is None or fit.fields_of(fit.training_fields).shape[1] != len(self._roles):
            raise unknown_errors(self.regressor_)
        if self._missed is None and not hasattr(type(self.model_), "error_bar_"):
            raise unknown_errors(self.model_)

        def judge(rows: NDArray[np.intp], G: _Values) -> tuple[_Values, Any]:
            latents = self._latents_of(fit.fields_of(G))
            fields = Rows(np.asarray(self.model_.inverse_transform(latents)).reshape(len(latents), -1))
            norms = error_scales(field_norms(fields, cell_weights=norm_weights(self.field_shape_, self)))

            def errors(G_missed: _Values, kind: int) -> _Values:
                moved = self._latents_of(fit.fields_of(G - G_missed))
                if self._missed is not None:
                    known = self._missed[kind][rows] / norms
                else:
                    bar = self.model_.error_bar_  # near its points it is that of points as near, not of those left out
                    known = bar.errors
                    if kind or len(known) != len(rows):
                        known = bar.at(self.model_.leverage_points(moved), 0.5)
                return np.hypot(self._l2_errors(moved, fields), known)

            return norms, errors

        with extrapolation_ignored():
            return fit.error_bar(judge).with_growth_of(lambda: self.model_.error_bar_)

    def predict(
        self, parameters: ArrayLike, *, return_error: bool | str = False, coverage: float = 0.9, **options: Any
    ) -> Any:
        """Fields at parameters.

        Parameters
        ----------
        {parameters}
        {return_error}
        **options
            Passed to the model's `inverse_transform`: invariant_values, cells, out, ...

        {returns_fields} {raises}
        """
        check_samples(parameters=parameters, invariant_values=options.get("invariant_values"))
        latents = self.latents(parameters)
        fields = self.model_.inverse_transform(latents, **options)
        return with_error(fields, self, self.leverage_points(parameters), return_error, coverage)

    def check_available(self, method: str) -> bool:
        return (self.regressor is None or require(self.regressor, "jacobian")) and require(self.model, "jvp")

    def tangents_at(self, parameters: ArrayLike) -> tuple[Callable[..., _Values], _Values]:
        """Tangents of the model at the latents, along those of the latents."""
        X, latents = self.leverage_points(parameters), self.latents(parameters)
        slopes = np.zeros((0, len(self._roles), X.shape[1]))
        if len(X):
            slopes = np.array(self.regressor_.jacobian(X)).reshape(len(X), -1, X.shape[1])
        cosine, sine = self._roles == 1, self._roles == 2
        if sine.any() and len(X):
            found = np.asarray(self.regressor_.predict(X))[:, :, None]
            turned = found[:, cosine] * slopes[:, sine] - found[:, sine] * slopes[:, cosine]
            slopes[:, cosine] = turned / (found[:, cosine] ** 2 + found[:, sine] ** 2)
        slopes = slopes[:, self._roles < 2]
        jvp = getattr(self.model_, "inverse_jvp", None) or self.model_.jvp  # the encoder decodes itself
        size = len(X), self._field_shape.n_cells
        return lambda V: np.reshape(jvp(latents, (slopes @ V[:, :, None])[:, :, 0]), size), X

    def _leverages(self) -> list[tuple[Any, bool]]:
        """The parts that have a leverage, and whether it is that of parameters."""
        parts = (self.regressor_, True), (self.model_, False)
        known = [(part, of_parameters) for part, of_parameters in parts if hasattr(part, "leverage")]
        return known if known or not require(self.regressor_, "leverage") else []

    @available_if(lambda self: hasattr(self.model, "leverage") or self._check_leverage())
    def leverage(self, X: ArrayLike) -> _Values:
        """100 times the larger of two leverages over their limits: that of parameters, and that of their latents.

        The regressor tells how far parameters are from those of the snapshots, the decoder of the model, if it has one,
        whether it has seen fields like these.

        Parameters
        ----------
        X : array-like (n, p) or (n,)
            Parameters.

        {returns_leverage}

        {raises}
        AttributeError
            If neither part has a leverage.
        """
        check_fitted(self, "regressor_")
        X = validate_data(self, as_columns(X, "X"), reset=False)
        with extrapolation_ignored():
            latents = self._latents_at(X)
        found = [(part.leverage(X if own else latents), part.leverage_limit_) for part, own in self._leverages()]
        largest: _Values = FACTOR * np.max([in_limits(*each) for each in found], axis=0)
        return largest

    leverage_limit_ = FACTOR

    @property
    def leverage_(self) -> float:
        """The larger of the parts' `leverage_`, of their training points, in the same units."""
        return float(FACTOR * max(in_limits(part.leverage_, part.leverage_limit_) for part, _ in self._leverages()))

    def freeze(self, **options: Any) -> Any:
        """Regressor and model as one immutable block of memory, which decodes parameters without Python.

        Parameters
        ----------
        **options
            Of the `freeze` of the decoder of the model: precision, tol, kind, latents, max_bytes, error_bar, distil.
            They are for the decoder alone, `latents` too; the regressor has float64.

        Returns
        -------
        FrozenDecoder
            Whose n_components is the number of parameters.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As the decoder's own `freeze`, or if the regressor is no decoder of the package.
        """
        check_fitted(self, "regressor_")
        part: Any = self.model_ if hasattr(self.model_, "carrier") else decoding_part(self.model_)
        found: Any = getattr(self.regressor_, "linear_map", None)
        if not hasattr(part, "freeze") and options.get("distil") is None:
            reason = f"C does not support a {type(part).__name__}. {OTHERWISE}"
        elif self._roles.any():
            reason = "its phase runs around a circle of parameters: C does not support its cosine and sine"
        else:
            unknown = f"C does not support a {type(self.regressor_).__name__}: use a decoder of the package"
            reason = unknown if found is None else found.basis.not_frozen
        if reason:
            raise TypeError(f"{type(self).__name__} cannot be frozen: {reason}")
        return getattr(part, "freeze", partial(freeze, part))(**options, regressor=self)

    def leverage_points(self, X: Any) -> Any:
        return validate_data(self, as_columns(X), reset=False)

    def score(self, parameters: ArrayLike, snapshots: ArrayLike) -> float:
        """Minus the mean of `metrics.scaled_l2` over the predicted fields (0 at best).

        Parameters
        ----------
        {parameters}
        snapshots : array-like (n, M)
            True fields at these parameters.

        {returns_float} {raises}
        """
        check_samples(parameters=parameters, snapshots=snapshots)
        F = Rows.of(field_rows(self.model_, snapshots, name="snapshots"), "snapshots")
        return -float(self._l2_errors(self.latents(parameters), F).mean())


def check_pairs(X: NDArray[np.float64], snapshots: Any) -> None:
    """ValueError unless there are as many snapshots as rows of parameters X (n, p); warns if they look swapped."""
    p, (n, *shape) = X.shape[1], np.shape(snapshots) or (1,)
    cells = int(np.prod(shape))
    swapped = f"the parameters have {p} columns, the snapshots {cells}: are they swapped?" if p > cells else ""
    if len(X) != n:
        rows = f"parameters and snapshots must have the same number of rows, got {len(X)} and {n}"
        raise ValueError(f"{rows}; {swapped}" if swapped else rows)
    if swapped:
        warn_caller(swapped)


def kernel_search(n_trials: int = 40) -> AutoDecoder:
    """The regressor by default: random features and neighbours are for more coordinates than parameters."""
    kernels = THIN_PLATE, GAUSSIAN, MATERN
    return AutoDecoder(n_trials=n_trials, families=kernels, invariants=None, random_state=0)


def _missed_by_others(rows: Rows, X: _Values, k: int) -> _Values:
    """For each block of the parameters X, the 90 % quantile of the errors of k modes of the other snapshots."""
    few, missed = spread_rows(len(X), max(50, min(300, (1 << 26) // rows.width))), np.empty(len(X))
    G = principal_coordinates(rows[few])[1]
    for own in members(eighths(X)):
        out = np.isin(few, own)
        apart = G[out] - G[~out].mean(axis=0)
        modes = np.linalg.svd(G[~out] - G[~out].mean(axis=0), full_matrices=False)[2][:k]
        missed[own] = np.quantile(np.linalg.norm(apart - apart @ modes.T @ modes, axis=1), 0.9) if out.any() else 0.0
    return missed


def _wrapped(theta: _Values) -> _Values:
    """Angles in [-pi, pi), as in C: an angle within these limits does not change."""
    theta = np.fmod(theta, 2 * np.pi)
    return theta + 2 * np.pi * (theta < -np.pi) - 2 * np.pi * (theta >= np.pi)


def _unwrapped(theta: _Values, X: _Values, groups: Any) -> _Values:
    """Angles without jumps along the shortest tree (R. C. Prim, 1957) of parameters X; NaN if neighbours have one."""
    n, Z = len(X), np.asfortranarray(X / standard_deviations(X))  # column order is faster here
    labels = np.zeros(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    apart = 2 * float(np.linalg.norm(np.ptp(Z, axis=0)))  # groups are joined last
    out, parent, distance = theta.copy(), np.zeros(n, dtype=np.intp), np.full(n, np.inf)
    joined, current, steps, distance[0] = np.zeros(n, dtype=bool), 0, np.zeros(n), 0.0
    for _ in range(n):
        joined[current] = True
        steps[current] = _wrapped(theta[current] - theta[parent[current]])
        out[current] = out[parent[current]] + steps[current]
        away = np.linalg.norm(Z - Z[current], axis=1)
        away += apart * (labels != labels[current])
        away += 1e-9 * abs(_wrapped(theta - theta[current]))  # ties are decided by theta
        closer = ~joined & (away < distance)
        parent[closer], distance[closer] = current, away[closer]
        current = int(np.argmin(np.where(joined, np.inf, distance)))
    distance[labels != labels[parent]] = 0
    pairs = []  # each point and its neighbours in all directions: points without a nearer neighbour
    for i, from_i in enumerate(Z - z for z in Z):
        near = np.einsum("ij,ij->i", from_i, from_i)
        left = np.flatnonzero(near)
        while len(left):
            j = left[np.argmin(near[left])]
            pairs.append((i, j))
            left = left[(from_i @ from_i[j])[left] <= near[j] / 2]  # points that are not nearer to j than to i
    i, j = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    jumps, third = np.abs(out[i] - out[j]), 2 * np.pi / 3
    # at a discontinuity there are jumps of a turn and none of half a turn; runs of different speeds have both
    turned = (jumps > 2 * third) & (labels[i] == labels[j])
    torn = turned.any() and not (jumps[~turned] > third).any()
    # a step of more than half a turn in the widest gap looks small: other steps in its direction estimate it
    wide, away = int(np.argmax(distance)), Z - Z[parent]
    largest = float(max(abs(steps).max(), 0 if torn else jumps.max(initial=0)))
    alike = (distance > 0) & (abs(away @ away[wide]) > 0.9 * distance * distance[wide]) & (np.arange(n) != wide)
    across = float(distance[wide] * abs(steps[alike]).sum() / max(distance[alike].sum(), 1e-300))
    if max(largest, across) > third:
        gap = f", by {across:.3g} from {X[parent[wide]]} to {X[wide]} if it changes as fast as elsewhere"
        warn_caller(
            f"theta of neighbouring parameters differs by up to {largest:.3g}{gap if across > largest else ''}: the "
            "direction of motion is uncertain, and predictions in between too. Add snapshots at more parameters"
        )
    return np.full(n, np.nan) if torn else out


def _warn_of_undetermined(parameters: _Values, latents: _Values) -> None:
    """Warn if snapshots of equal parameters have different latents."""
    first, group = np.unique(parameters, axis=0, return_index=True, return_inverse=True)[1:]
    others = first[np.ravel(group)]
    # documented: 1e-3 standard deviations of the latents
    rows = np.flatnonzero(np.abs(latents - latents[others]).max(axis=1) > 1e-3 * latents.std(axis=0).max())
    for row in rows[:1]:
        other, most = others[row], 6  # number of parameters in a message
        values = ", ".join(f"{value:g}" for value in parameters[row, :most])
        values += ", ..." if parameters.shape[1] > most else ""
        warn_caller(
            f"the parameters do not determine the field: {len(rows)} of {len(parameters)} snapshots differ from others "
            f"with the same parameters, such as row {row} from row {other}, both at ({values}). Predicted fields are "
            "averages of these. Is a parameter missing, such as the time or one that distinguishes trajectories?"
        )
