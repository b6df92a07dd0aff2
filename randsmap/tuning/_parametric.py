"""The models of fields at parameters, of which cross-validation errors choose one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import Bunch

from randsmap._interface.arrays import as_array, as_columns, check_samples
from randsmap._interface.fields import flattened
from randsmap._linalg.rows import Rows
from randsmap.encoders import POD
from randsmap.invariants import norm_weights, round_off
from randsmap.model import ManifoldModel, ParametricModel, QuantileRegistration
from randsmap.model._errors import held_out_errors, judged
from randsmap.model._parametric import check_pairs, kernel_search


def choose_parametric(
    models: Sequence[Any] | None,
    parameters: ArrayLike,
    snapshots: Any,
    *,
    groups: ArrayLike | None = None,
    invariants: Any = "auto",
    cell_weights: ArrayLike | None = None,
    bounds: Any = None,
    n_trials: int | None = None,
    random_state: int | None = 0,
) -> Bunch:
    """Select a model of fields by the errors of snapshots left out, and fit a `ParametricModel` of it.

    Parameters
    ----------
    models : sequence of ManifoldModel, ShiftRegistration and QuantileRegistration, or None
        Models of fields, not fitted. A later model is selected if its error is less than 0.9 times the smallest error
        before it. None: all modes of `POD`, then, for nonnegative fields on a line that are in memory, all modes of
        `QuantileRegistration`. Fewer coordinates would only lose accuracy, since the parameters are few.
    parameters : array-like of shape (n, p)
        Parameters, or times, of the snapshots.
    snapshots : array-like of shape (n, M) or (n, *shape)
        Fields.
    groups : array-like of shape (n,) or None, default=None
        Labels of groups, such as trajectories, that are left out as a whole. None: single snapshots are left out.
    invariants, cell_weights, bounds
        As of `POD` and `QuantileRegistration`, where `models` is None; others have their own.
    n_trials : int or None, default=None
        Of the search for the kernel of each model's latents. None: 40.
    random_state : int or None, default=0
        For the division into five folds, without groups. Of n > 1000 snapshots 5000 / n folds are left out, at least
        one. Kernels, their scales and the regularisation are those found for all snapshots, by errors of left-out ones.

    Returns
    -------
    Bunch
        best_model_ : ParametricModel, fitted on all snapshots, whose `held_out_` has its errors; held_out_errors_ :
        ndarray, the mean relative L2 error of the fields left out, of each model; best_index_ : int; repeated_values_ :
        dict, the column and the number of values of parameters on a grid: without groups, errors at new values may be
        far larger.

    Raises
    ------
    ValueError, TypeError
        As `ParametricModel.fit`; if invariants, cell_weights or bounds are given with models.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> t = np.linspace(0, 1, 40)
    >>> F = np.exp(-((np.linspace(0, 1, 30) - t[:, None]) ** 2) / 0.1)
    >>> models = [randsmap.ManifoldModel(randsmap.POD(d)) for d in (1, 8)]
    >>> result = randsmap.tuning.choose_parametric(models, t[:, None], F)
    >>> result.best_index_, result.best_model_.predict([0.5]).shape
    (1, (1, 30))
    >>> bool(randsmap.tuning.choose_parametric(None, t, F).held_out_errors_.min() < 1e-3)
    True
    """
    check_samples(parameters=parameters, snapshots=snapshots, groups=groups)
    X = as_columns(parameters)
    X = as_array(X, "parameters", min_rows=2)
    check_pairs(X, snapshots)
    kept = {"invariants": invariants, "cell_weights": cell_weights, "bounds": bounds}
    if models is None:
        models = _plain_models(snapshots, kept)
    else:
        auto = isinstance(invariants, str) and invariants == "auto"
        for name in [name for name in kept if not (auto if name == "invariants" else kept[name] is None)]:
            raise ValueError(f"{name} is for models=None, got models of fields as well: give {name} to each of these")
    weights = norm_weights(np.shape(snapshots)[1:], *models)  # all models are compared in one norm
    options: dict[str, Any] = {"parameters": X, "groups": groups, "random_state": random_state, "cell_weights": weights}
    regressor = None if n_trials is None else kernel_search(n_trials)
    fitted = [ParametricModel(model, regressor).fit(parameters, snapshots, groups=groups) for model in models]
    # a search in each fit without a part would take five times as long, and choose few numbers
    settled = [ParametricModel(model.model, clone(model.regressor_.best_decoder_)) for model in fitted]
    held_out = [held_out_errors(candidate, snapshots, **options) for candidate in settled]
    errors, best = [each.mean for each in held_out], 0
    for index, error in enumerate(errors):
        # the error of a model varies by a tenth between divisions into folds
        best = index if error < 0.9 * errors[best] else best
    fitted[best].held_out_ = judged(fitted[best], held_out[best], snapshots, X)
    counts = [len(np.unique(column)) for column in X.T] if X.shape[1] > 1 else []
    # a snapshot left out then has others at its value of a parameter
    repeated = {j: count for j, count in enumerate(counts) if 1 < count <= len(X) / 3}
    found = {"best_index_": best, "repeated_values_": repeated}
    return Bunch(best_model_=fitted[best], held_out_errors_=np.array(errors), **found)


def _plain_models(snapshots: Any, kept: dict[str, Any]) -> list[Any]:
    """All modes of the fields; and of their quantiles, if they are nonnegative and on a line."""
    rows, layout = flattened(snapshots, "snapshots")
    F, models = Rows.of(rows, "snapshots", min_rows=2), [ManifoldModel(POD(1.0, **kept))]
    invariants, bounds = kept.pop("invariants"), kept.pop("bounds")
    on_a_line = F.shape[1] > 3 and sum(length > 1 for length in layout.shape) == 1 and not F.mapped
    if on_a_line and (invariants is None or isinstance(invariants, str)):
        if isinstance(bounds, (tuple, list)) and len(bounds) == 2 and bounds[0] is not None:
            bounds = np.maximum(bounds[0], 0.0), bounds[1]
        kept["bounds"], fields = bounds, F[:]
        largest = fields.max(axis=1)
        if (largest > 0).all() and (fields.min(axis=1) >= -round_off(rows.dtype) * largest).all():
            models.append(QuantileRegistration(ManifoldModel(POD(1.0, invariants=None)), **kept))
    return models
