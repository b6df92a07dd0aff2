"""Forecasts: trajectories continued in the latents of a model, by dynamics that are learned from snapshots."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import Bunch
from sklearn.utils.validation import has_fit_parameter

from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.callers import extrapolation_ignored, warn_caller
from randsmap._interface.fields import FIELD_STATE, FieldOutputMixin, field_rows, flattened
from randsmap._interface.parameters import Parameter, check_count, check_number, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Count, Part, check_fitted, not_frozen, restored_on_error
from randsmap._linalg.rows import Rows, spread_rows, taken
from randsmap._linalg.scales import SMALLEST_SHARE, median_norm
from randsmap.decoders import KernelDecoder, RFNNDecoder
from randsmap.decoders._auto import check_groups, search_threads
from randsmap.decoders._base import is_fitted
from randsmap.encoders import POD
from randsmap.features import MonomialFeatures
from randsmap.invariants import AffineInvariants, norm_weights, own_values
from randsmap.maps.error_bar import members
from randsmap.maps.linear_map import LinearMap
from randsmap.metrics import field_norms, scaled_l2
from randsmap.model._base import Model, model_texts
from randsmap.model._manifold import ManifoldModel, fitted_parts

_Values = NDArray[np.float64]
_Rows = NDArray[np.intp]
_Make = Callable[[_Values], Any]  # of states, a regressor that is not fitted


# -- Dynamics --------------------------------------------------------------------------------------
def _states(flow: Bunch, past: _Values, steps: _Values) -> _Values:
    """Inputs (m, p) of the regressor from the last latents `past` (m, lag, d) and the steps (m, lag) after them."""
    now, rates = past[:, -1], np.diff(past, axis=1) / steps[:, :-1, None]
    angles = now[:, flow.angles]
    columns = [np.delete(now, flow.angles, axis=1), np.cos(angles), np.sin(angles)]
    columns.append(rates[:, ::-1].reshape(len(now), -1))
    return np.hstack([*columns, steps[:, -1:]] if flow.timed else columns)


def _fitted(make: _Make, states: _Values, rates: _Values, groups: _Rows) -> Any:
    """The regressor that is made for these states, fitted to their rates."""
    regressor = make(states)
    known = {"groups": groups} if has_fit_parameter(regressor, "groups") and np.ptp(groups) else {}
    return regressor.fit(states, rates[:, 0] if rates.shape[1] == 1 else rates, **known)


def _continued(flow: Bunch, regressor: Any, past: _Values, steps: _Values) -> _Values:
    """Latents (m, n, d) that follow `past` (m, lag, d); `steps` (m, lag - 1 + n) begin between the first two."""
    lag, found = past.shape[1], []
    box = np.minimum(flow.box[0], past.min(axis=1)), np.maximum(flow.box[1], past.max(axis=1))
    for part in sliding_window_view(steps, lag, axis=1).swapaxes(0, 1):
        now, rates = past[:, -1], np.asarray(regressor.predict(_states(flow, past, part)))
        if rates.size != now.size:
            raise ValueError(f"regressor must predict rates of shape {now.shape}, got shape {rates.shape}")
        found.append(np.clip(now + part[:, -1:] * rates.reshape(now.shape), *box))
        past = np.concatenate([past[:, 1:], found[-1][:, None]], axis=1)
    return np.stack(found, axis=1)


# start of the search: kind, True if all inputs have one unit, length scale, regularisation
_STARTS: list[tuple[str, bool, float, float]] = [
    ("constant", False, 1.0, 1e12),
    *(("linear", False, 1.0, strength) for strength in (1e-12, 1e-6)),
    *(("quadratic", False, 1.0, strength) for strength in (1e-10, 1e-6)),
    *(("gaussian", alike, length, 1e-7) for alike in (True, False) for length in (0.7, 2.0, 6.0)),
    *(("thin-plate", alike, 1.0, 1e-5) for alike in (True, False)),
]


def _regressor(kind: str, alike: bool, length: float, strength: float, states: _Values) -> Any:
    """A regressor from states (m, p), not fitted. In its units their variances add up to 1."""
    (m, p), variances = states.shape, states.var(axis=0)
    units = np.sqrt(np.full(p, variances.sum() or 1.0) if alike else p * np.where(variances > 0, variances, 1.0))
    if kind in ("gaussian", "thin-plate") and m > 2 * p:  # fewer pairs would be interpolated by the linear trend
        return KernelDecoder(kind, length_scale=length, latent_scale=units, degree=1, regularization=strength)
    degree = 2 if kind == "quadratic" and m > p * (p + 3) else 1
    return RFNNDecoder(MonomialFeatures(degree), latent_scale=units, regularization=strength * m)


# -- Trajectories ----------------------------------------------------------------------------------
def _trajectories(n: int, labels: _Rows, times: Any, lag: int) -> tuple[list[_Rows], _Values, float]:
    """Rows of each trajectory that has a pair, steps (n,) from a row to the next of it, and their unit, the median."""
    at = np.arange(float(n)) if times is None else as_array(times, "times", (n,))
    paths = [path for path in members(labels) if len(path) > lag]
    pairs = sorted(len(path) - lag for path in paths)
    if sum(pairs[:-1]) < 2 and (len(paths) != 1 or pairs[0] + lag < 4 * (lag + 1)):  # too few to learn from
        raise ValueError(
            f"snapshots must hold three trajectories of more than lag={lag} fields, two of {lag + 2}, or one of "
            f"{4 * (lag + 1)}, got {n} fields in {labels.max() + 1} trajectories"
        )
    steps = np.full(n, np.nan)
    for path in paths:
        steps[path[:-1]] = np.diff(at[path])
    row = np.nanargmin(steps)
    if steps[row] <= 0:
        raise ValueError(
            f"times must increase along each trajectory, but row {row} with {at[row]} is not followed by a larger one"
        )
    step = float(np.nanmedian(steps))
    steps = np.nan_to_num(steps / step, nan=1.0)
    return paths, np.ones(n) if np.abs(steps - 1).max() < 1e-3 else steps, step  # documented: of a step


def _parts(paths: list[_Rows], lag: int) -> list[tuple[list[_Rows], list[_Rows]]]:
    """Trajectories to learn from and left-out ones: a fifth in turn, or the last quarters of a single one. The last but
    one is forecast from the half before it, if this half has at least 20 rows."""
    if len(paths) == 1:
        path, quarter = paths[0], len(paths[0]) // 4
        cuts = [len(path) - k * quarter for k in (1, 2)][: 2 if quarter >= 10 else 1]
        return [([path[:cut]], [path[cut - lag : cut + quarter]]) for cut in cuts]
    turns = list(KFold(min(5, len(paths)), shuffle=True, random_state=0).split(paths))
    # at a bounded cost, but of nine trajectories at least (documented), which coverage=0.9 needs
    some = turns[: max(1, 5000 // sum(map(len, paths)), -(-9 // (len(paths) // len(turns))))]
    return [([paths[i] for i in learn], [paths[i] for i in left_out]) for learn, left_out in some]


def _windows(paths: list[_Rows], lag: int, ahead: int, skip: int = 0) -> _Rows:
    """Windows (m, lag + ahead) of successive rows, -1 after the end; the first rows of each path are included."""
    found = []
    for path in paths:
        rows = sliding_window_view(np.append(path[skip:], np.full(ahead - 1, -1)), lag + ahead)
        found.append(rows[spread_rows(len(rows), max(1, 30 // len(paths)))])
    return np.concatenate(found)


def _errors(turn: Bunch, make: _Make, at: _Rows) -> _Values:
    """Errors (s, k) of left-out trajectories at some of the steps ahead; infinite where one has ended."""
    starts, ahead = np.split(turn.windows, [turn.lag], axis=1)
    regressor, steps = _fitted(make, *turn.pairs), turn.steps[turn.windows[:, :-1]]
    paths = _continued(turn, regressor, turn.Z[starts], steps)[:, at]
    found = np.full(paths.shape[:2], np.inf)
    for start, path, rows, errors in zip(starts[:, -1], paths, ahead[:, at], found):
        there = rows >= 0
        if there.any():
            fields = np.asarray(_decoded(turn.model, path[there], turn.F[start : start + 1]))
            errors[there] = turn.measure(turn.F[rows[there]], fields.reshape(len(fields), -1))
    return found


def _bars(errors: _Values, runs: _Rows, coverage: float) -> list[float]:
    """Conformal quantiles of errors (k, h), while enough trajectories `runs` (k,) last; all steps for a single one."""
    bars: list[float] = []
    for column in errors.T:
        there = np.isfinite(column)
        level = round(coverage * (1 + 1 / (len(np.unique(runs[there])) if np.ptp(runs) else there.sum())), 9)
        if level > 1 and np.ptp(runs):  # windows of one trajectory are alike, and count as one
            break
        bars.append(np.quantile(column[there], min(1.0, level), method="higher"))
    return bars


def _latents(model: Any, snapshots: Any, paths: list[_Rows], angles: Any) -> _Values:
    """Latents (n, d) of snapshots, whose angles have no jump along the trajectories."""
    Z = np.array(model.transform(snapshots), dtype=np.float64, order="C")
    for path in paths:
        Z[np.ix_(path, angles)] = np.unwrap(Z[np.ix_(path, angles)], axis=0)
    return Z


def _decoded(model: Any, latents: _Values, start: Any) -> Any:
    """Fields at latents (n, d), with the values of the invariants of the initial field."""
    values = {name: np.repeat(value, len(latents), axis=0) for name, value in own_values(model, start).items()}
    return model.inverse_transform(latents, **values)


def _tuned(settings: list[list[Bunch]], farthest: int, given: Any) -> tuple[int, _Make]:
    """The setting and the regressor, unless it is given, of the best cross-validation errors a few steps ahead."""
    farthest = min(farthest, max((turn.windows >= 0).sum(axis=1).max() - turn.lag for turn in settings[0]))  # these go
    at = np.unique(np.geomspace(1, farthest, 8).round().astype(int)) - 1
    scores: dict[Any, float] = {}
    makes: dict[Any, _Make] = {}

    def judge(number: int, candidate: Any) -> None:
        key = number, candidate
        if key in scores:
            return
        makes[key] = partial(_regressor, *candidate) if given is None else lambda states: clone(given)
        errors = np.concatenate([_errors(turn, makes[key], at) for turn in settings[number]])
        means = np.nanmean(np.where(np.isfinite(errors), errors, np.nan), axis=0) + 1e-12  # ignores round-off
        longer = 0.2 * (settings[number][0].lag - settings[0][0].lag)  # required gain per field
        scores[key] = float(np.log(means.mean()) + np.log(means).mean()) + longer

    def ranked() -> list[Any]:
        return sorted(scores, key=scores.__getitem__)

    for start in _STARTS if given is None else [()]:
        judge(0, start)
    # elsewhere the leaders, and the linear ones, which more fields before make better than others
    leaders = [candidate for _, candidate in ranked()[:3]] + [start for start in _STARTS if start[0] == "linear"]
    for number in range(1, len(settings)):
        for candidate in leaders if given is None else [()]:
            judge(number, candidate)
    for _ in range(2 if given is None else 0):
        number, (kind, alike, length, strength) = ranked()[0]
        for factor in (0.03, 30.0):
            judge(number, (kind, alike, length, strength * factor))
        for factor in (0.6, 1.7) if kind == "gaussian" else ():
            judge(number, (kind, alike, length * factor, strength))
    best = ranked()[0]
    return best[0], makes[best]


def _fitted_model(model: Any, snapshots: Any, groups: Any) -> Any:
    """The model if it is fitted, else a copy that is fitted to the snapshots."""
    if is_fitted(model):
        warn_caller(
            "model is fitted: if it was fitted to these trajectories, errors and error bars are too small. Pass "
            "clone(model) to have it fitted without the trajectories that are left out"
        )
        return model
    model = clone(model)
    if isinstance(model, ManifoldModel):
        fitted_parts(model, snapshots, groups if np.ptp(groups) else None)
    else:
        model.fit(snapshots)
    return model


# -- The forecast ----------------------------------------------------------------------------------
@model_texts
@estimator
class LatentForecast(FieldOutputMixin, Model):
    """Forecasts of trajectories: snapshots are encoded, and the steps of the latent coordinates are learned.

    Use it if snapshots of trajectories are available and no equation is. Use `SampledModel` if the equation is
    known, and `ParametricModel` if fields are needed at given times or parameters only.

    Parameters
    ----------
    model
        With `transform` and `inverse_transform`. It is cloned and fitted. A fitted one is used as it is, with a
        warning: errors on the fields of its fit may be too small. None: `POD` of at most 60 modes, by cross-validation.
    regressor
        Regressor from states to rates (see Notes). None: the best of linear and quadratic functions and kernels.
    lag
        Number of fields that determine the next one: 2 for waves, where one field does not determine the direction.
        "auto": 1, 2 or 3, by cross-validation: one more field must lower the error by a tenth.

    Attributes
    ----------
    model_, regressor_ : estimator
        The fitted copies.
    lag_ : int
        The number of fields that determine the next one.
    step_ : float
        Time from a forecast field to the next: the median step of the snapshots (1 without `times`).
    held_out_errors_ : ndarray (k, h)
        Errors, as by `metrics.scaled_l2`, of k forecasts 1 to h <= 100 steps ahead; infinite where a trajectory had
        ended. Trajectories are left out in five parts; of a single trajectory, the last two quarters are.
    n_features_in_ : int
        Number M of cells of a field.

    Notes
    -----
    The regressor learns rate_k = (z_{k+1} - z_k) step_ / (t_{k+1} - t_k) of latents z at times t, from the state (z_k,
    rate_{k-1}, ..., rate_{k-lag+1}). Angles enter as cosine and sine. If steps differ by more than 1e-3, the next step
    is a further input. At most 4000 pairs are used. A latent leaves its range by at most the geometric mean of this
    range and the largest one. Fields satisfy the model's bounds and invariants, with the present values.

    References
    ----------
    P. J. Schmid, J. Fluid Mech. 656 (2010); B. Peherstorfer and K. Willcox, Comput. Meth. Appl. Mech. Eng. 306 (2016).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x, t = np.linspace(0, 1, 40), np.arange(60) * 0.1
    >>> waves = 1 + np.sin(2 * np.pi * x) * np.cos(t)[:, None] + np.cos(2 * np.pi * x) * np.sin(t)[:, None]
    >>> forecast = randsmap.LatentForecast(randsmap.POD(2)).fit(waves[:50])
    >>> fields, errors = forecast.forecast(waves[:50], 10, return_error=True)
    >>> bool(abs(fields - waves[50:]).max() < 1e-6), fields.shape, errors.shape
    (True, (10, 40), (10,))
    """

    model: Any = parameter(default=None, kw_only=False, shown="ManifoldModel, ShiftRegistration, POD or None")
    regressor: Any = parameter(default=None, kw_only=False, shown="regressor or None")
    lag: int | str = parameter(int, default=1, words=("auto",), low=1)

    _state = {
        "n_features_in_": Count("M"),
        "model_": Part("transform", n_in="M", n_out="d"),
        "regressor_": Part("predict", n_in="p", n_out="d"),
        "lag_": Parameter(int, low=1),
        "_angles": Array("a", dtype=np.intp, low=0, empty=True),  # latents that are angles
        "_timed": Parameter(bool),  # steps differ, so that the length of the next one is an input
        "_box": Array(2, "d", infinite=True),  # lowest and highest latents
        "step_": Parameter(float, low=0, strict=True),
        "held_out_errors_": Array("k", "h", low=0, infinite=True),
        "_usual": Parameter(float, low=0),  # norm of the snapshots
        "_runs": Array("k", dtype=np.intp, low=0),  # the trajectory of each
        **FIELD_STATE,
    }

    leverage_from = "model"
    freeze = not_frozen("an image does not step in time. randsmap.export.fmu makes a unit that does")

    def fit(self, snapshots: ArrayLike, groups: ArrayLike | None = None, times: ArrayLike | None = None) -> Self:
        """Fit the model to the snapshots, and the regressor to the motion of their latents.

        Parameters
        ----------
        snapshots : array-like (n, M) or (n, *shape)
            Fields in the order of time, as for the model.
        groups : array-like (n,) or None
            Labels of trajectories, whose fields need not stand side by side. None: a single trajectory.
        times : array-like (n,) or None
            Times of the snapshots, which increase along each trajectory. None: all steps are equal.

        {result_of_fit}
        """
        with restored_on_error(self), extrapolation_ignored():
            lag = check_parameters(self)["lag"]
            needed = {"model": ("transform", "inverse_transform"), "regressor": ("fit", "predict", "get_params")}
            for name, methods in needed.items():
                part = getattr(self, name)
                if part is not None and (isinstance(part, type) or not all(hasattr(part, each) for each in methods)):
                    raise TypeError(f"{name} must be an estimator with {', '.join(methods)}, got {part!r}")
            check_samples(snapshots=snapshots, groups=groups, times=times)
            F = Rows.of(field_rows(self, snapshots, reset=True, name="snapshots"), "snapshots")
            labels: Any = np.zeros(len(F), dtype=np.intp) if groups is None else check_groups(groups, len(F), least=1)
            lags = (1, 2, 3) if lag == "auto" else (lag,)
            paths, steps, self.step_ = _trajectories(len(F), labels, times, lags[0])
            shortest = min(map(len, paths))
            room = shortest // 4 if len(paths) == 1 else shortest - 1  # for more in all trajectories
            with search_threads(len(F)):
                self._learn(snapshots, F, labels, paths, steps, [n for n in lags if n == lags[0] or n < room])
            self.n_features_in_ = F.width
        return self

    def _learn(
        self, snapshots: Any, F: Rows, labels: _Rows, paths: list[_Rows], steps: _Values, lags: list[int]
    ) -> None:
        """Choose lag, modes and regressor, measure cross-validation errors, and fit to all trajectories."""
        parts = _parts(paths, max(lags))
        if self.model is None:
            most = min(sum(map(len, learn)) for learn, _ in parts) - 1
            found = [(POD(1 - rest).fit(snapshots).n_components_, few) for rest, few in ((1e-4, 40), (1e-10, 60))]
            models: list[Any] = [ManifoldModel(POD(k)) for k in dict.fromkeys(min(most, *pair) for pair in found)]
        else:
            models = [_fitted_model(self.model, snapshots, labels) if is_fitted(self.model) else self.model]

        def learned(model: Any, learn: list[_Rows], most: int, lag: int) -> Bunch:
            """Latents, where they may go, and states, rates and numbers of trajectories to fit a regressor to."""
            angles = list(getattr(getattr(model, "encoder_", model), "angles", ()))
            Z = _latents(model, snapshots, paths, angles)
            seen = Z[np.concatenate(learn)]
            ranges = np.ptp(seen, axis=0)
            margin = np.sqrt(ranges * np.delete(ranges, angles).max(initial=0.0))
            margin[angles] = np.inf
            box = np.stack([seen.min(axis=0) - margin, seen.max(axis=0) + margin])
            windows = np.concatenate([sliding_window_view(path, lag + 1) for path in learn])
            if len(windows) > most:  # evenly from trajectories of any number
                windows = windows[np.sort(np.random.default_rng(0).permutation(len(windows))[:most])]
            past, between = Z[windows[:, :-1]], steps[windows[:, :-1]]
            rates = (Z[windows[:, -1]] - past[:, -1]) / between[:, -1:]
            timed = bool((steps != 1).any())
            found = Bunch(model=model, Z=Z, box=box, angles=np.array(angles, dtype=np.intp), timed=timed)
            return Bunch(pairs=(_states(found, past, between), rates, labels[windows[:, 0]]), **found)

        weights = norm_weights(self.field_shape_, models[0])
        self._usual = median_norm(field_norms(F, cell_weights=weights))
        measure = partial(scaled_l2, reference=self._usual, cell_weights=weights)
        farthest = min(100, max(len(path) - max(lags) for _, left_out in parts for path in left_out))
        settings: list[list[Bunch]] = []
        for model in models:
            turns: list[list[Bunch]] = [[] for _ in lags]
            for learn, left_out in parts:
                rows = np.sort(np.concatenate(learn))
                others = self._field_shape.restored(taken(flattened(snapshots, "snapshots")[0], rows, "snapshots"))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # the fit to all snapshots warns
                    fitted = _fitted_model(model, others, labels[rows])
                for own, lag in zip(turns, lags):
                    windows = _windows(left_out, lag, farthest, max(lags) - lag)
                    turn = Bunch(F=F, measure=measure, steps=steps, lag=lag, windows=windows)
                    own.append(Bunch(**turn, **learned(fitted, learn, 700, lag)))
            settings += turns
        best, make = _tuned([turns[:3] for turns in settings], farthest, self.regressor)
        turns_of_best = settings[best]
        chosen, self.lag_ = models[best // len(lags)], lags[best % len(lags)]
        self.held_out_errors_ = np.concatenate([_errors(turn, make, np.arange(farthest)) for turn in turns_of_best])
        self._runs = np.concatenate([labels[turn.windows[:, 0]] for turn in turns_of_best])
        self.model_ = chosen if is_fitted(chosen) else _fitted_model(chosen, snapshots, labels)
        whole = learned(self.model_, paths, 4000, self.lag_)
        self._angles, self._timed = whole.angles, whole.timed
        self.regressor_, self._box = _fitted(make, *whole.pairs), whole.box

    def forecast(
        self, fields: ArrayLike, n_steps: int, *, return_error: bool | str = False, coverage: float = 0.9
    ) -> Any:
        """Fields that follow the last one of a trajectory.

        Parameters
        ----------
        fields : array-like (k, M) or (k, *field_shape_)
            History of one trajectory (others have calls of their own), k >= ``lag_``; the last row is the present.
        n_steps : int
            Number of fields, `step_` apart as those of the history.
        return_error : bool or "absolute"
            Return a tuple of the fields and their error bars (n_steps,): relative L2 errors (in the norm of the cells'
            weights) that are not exceeded with probability `coverage`. "absolute": the L2 errors.
        coverage : float
            The probability, of trajectories as those of `fit` are; above 0, at most 1.

        Returns
        -------
        ndarray (n_steps, M) or (n_steps, *field_shape_)
            A DataArray if the model was fitted to one. With return_error a tuple.

        {raises}

        Notes
        -----
        Errors are conformal quantiles of `held_out_errors_` up to a step, and grow like it beyond. k trajectories tell
        those for coverage <= k / (k + 1): for a larger one they are infinite, with a warning. A single trajectory tells
        how its own last quarter would have been forecast, and no more.
        """
        check_fitted(self, "regressor_")
        n_steps = check_count(n_steps, "n_steps")
        how = Parameter(bool, words=("absolute",)).check(return_error, "return_error")
        coverage = check_number(coverage, "coverage", low=0, high=1, strict_low=True)
        rows, lag = field_rows(self.model_, fields, name="fields"), self.lag_
        n = len(Rows.of(rows, "fields", min_rows=0))
        if n < lag:
            raise ValueError(f"fields must hold at least the last {lag} of a trajectory (lag), got {n}")
        last = taken(rows, np.arange(n - lag, n), "fields")
        with extrapolation_ignored():
            past = _latents(self.model_, last, [np.arange(lag)], self._angles)
            flow = Bunch(angles=self._angles, timed=self._timed, box=self._box)
            (path,) = _continued(flow, self.regressor_, past[None], np.ones((1, lag - 1 + n_steps)))
        found = _decoded(self.model_, path, last[-1:])
        if not how:
            return found
        bars = _bars(self.held_out_errors_, self._runs, coverage)
        if not bars:
            runs = len(np.unique(self._runs))
            needed = np.ceil(round(coverage / (1 - coverage), 9)) if coverage < 1 else np.inf
            warn_caller(
                f"the error bars are infinite: coverage={coverage} needs {needed:.0f} trajectories, and the {runs} of "
                f"the fit support coverage <= {runs}/{runs + 1}. Fit to more trajectories, or pass a smaller coverage"
            )
            bars = [np.inf]
        ahead = np.arange(1, n_steps + 1)
        bounds = np.maximum.accumulate(bars)[np.minimum(ahead, len(bars)) - 1] * np.maximum(1.0, ahead / len(bars))
        if how == "absolute":
            fields = np.asarray(found).reshape(n_steps, -1)
            norms = field_norms(fields, cell_weights=norm_weights(self.field_shape_, self.model_))
            bounds = bounds * np.maximum(norms, SMALLEST_SHARE * self._usual)  # as errors are scaled
        return found, bounds

    @property
    def step_map(self) -> LinearMap:
        """The map from latents to those of the next step, within their box; TypeError if there is no such map."""
        check_fitted(self, "regressor_")
        d = self._box.shape[1]
        plain = self.lag_ == 1 and not self._timed and not len(self._angles)
        found: Any = getattr(self.regressor_, "linear_map", None) if plain else None
        arrays, centre = getattr(getattr(found, "basis", None), "arrays", {}), np.zeros(d)
        units, rows = np.ones(d) if arrays.get("lengths") is None else arrays["lengths"], np.empty(0, np.intp)
        # position of the latents (z - centre) / units among the functions
        if "powers" in arrays:
            rows = np.nonzero((arrays["powers"] == np.eye(d)[:, None]).all(axis=2))[1]
            centre = units * arrays["offsets"]
        elif "tail_centre" in arrays:
            rows, centre = np.arange(-d, 0), arrays["tail_centre"]
        if len(rows) != d or found.combinations is not None:
            raise TypeError(
                "C takes a step of a forecast with lag=1, equal steps and a regressor with linear functions (None, "
                f"KernelDecoder(degree=1)), got lag={self.lag_} and {self.regressor_!r}"
            )
        A = found.A.copy()
        A[0] += centre
        A[1:][rows, np.arange(d)] += units
        box = AffineInvariants.of(np.zeros((d, 0)), np.zeros(0), np.zeros(d, bool), np.zeros(0), None, tuple(self._box))
        return LinearMap(found.basis, A, box)

    def closed_error_bar(self) -> Any:
        raise AttributeError("errors of forecasts grow with the steps: forecast(..., return_error=True) returns them")

    def _restore(self) -> None:
        known = len(self._angles) + self._timed + self.lag_ * self._box.shape[1]
        if not hasattr(self.model_, "inverse_transform") or self.regressor_.n_features_in_ != known:
            raise ValueError(f"model_ must decode, and regressor_ take {known} numbers")
        angles, (lowest, highest) = self._angles, self._box
        if len(np.unique(angles)) < len(angles) or angles.max(initial=0) >= len(lowest) or (lowest > highest).any():
            raise ValueError("_angles must be latents, each once, and _box hold their lowest and highest values")
        if np.isinf(self.held_out_errors_).all(axis=0).any():
            raise ValueError("held_out_errors_ must have a finite one at every step")
