"""Held-out errors of fields at parameters, and the model of fields with the least of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils import Bunch

from randsmap import metrics
from randsmap._interface.arrays import as_array
from randsmap._io.progress import steps
from randsmap._linalg.scales import median_norm
from randsmap.invariants import norm_weights
from randsmap.model import ParametricModel


def choose_parametric(
    models: Sequence[Any],
    parameters: ArrayLike,
    snapshots: Any,
    *,
    groups: ArrayLike | None = None,
    random_state: int | None = 0,
) -> Bunch:
    """Fit a `ParametricModel` of the model that predicts snapshots left out best.

    Parameters
    ----------
    models : sequence of ManifoldModel
        Models of fields, not fitted. A later one is chosen if its error is less than 0.9 times that of the best before.
    parameters : array-like of shape (n, p)
        Parameters, or times, of the snapshots.
    snapshots : array-like of shape (n, M) or (n, *shape)
        Fields.
    groups : array-like of shape (n,) or None
        Labels of groups, such as trajectories, that are left out as a whole. None: single snapshots are left out.
    random_state : int or None, default=0
        For the division into five folds, without groups.

    Returns
    -------
    Bunch
        best_model_ : ParametricModel, fitted on all snapshots; held_out_errors_ : ndarray, the mean relative L2 error
        of the fields left out, of each model; best_index_ : int; repeated_values_ : dict, the column and the number of
        values of parameters on a grid: without groups, errors at new values may be far larger.

    Raises
    ------
    ValueError, TypeError
        As `ParametricModel.fit`.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> t = np.linspace(0, 1, 40)
    >>> F = np.exp(-((np.linspace(0, 1, 30) - t[:, None]) ** 2) / 0.1)
    >>> models = [randsmap.ManifoldModel(randsmap.POD(d)) for d in (1, 8)]
    >>> result = randsmap.tuning.choose_parametric(models, t[:, None], F)
    >>> result.best_index_, result.best_model_.predict([0.5]).shape
    (1, (1, 30))
    """
    X = as_array(parameters, "parameters", min_rows=2)
    labels = None if groups is None else np.asarray(groups)
    candidates = [ParametricModel(model) for model in models]
    weights = norm_weights(np.shape(snapshots)[1:], *models)  # one norm for all
    errors = [_held_out_error(candidate, X, snapshots, labels, random_state, weights) for candidate in candidates]
    best = 0
    for index, error in enumerate(errors):
        # the error of one and the same model moves by a tenth from one division into folds to another
        if error < 0.9 * errors[best]:
            best = index
    fitted = candidates[best].fit(X, snapshots, groups=labels)
    return Bunch(
        best_model_=fitted, held_out_errors_=np.array(errors), best_index_=best, repeated_values_=_repeated_values(X)
    )


def _repeated_values(X: NDArray[np.float64]) -> dict[int, int]:
    """{parameter: number of its values} of those that take few values each; empty for a single parameter."""
    counts = [len(np.unique(column)) for column in X.T]
    most = len(X) / 3  # a snapshot left out then has others at its value of a parameter
    return {j: count for j, count in enumerate(counts) if len(counts) > 1 and 1 < count <= most}


def _held_out_error(
    model: ParametricModel,
    X: NDArray[np.float64],
    snapshots: Any,
    groups: NDArray[Any] | None,
    random_state: int | None,
    weights: NDArray[np.float64] | None,
) -> float:
    """Mean relative L2 error of fields left out, by folds."""
    most = 5  # scikit-learn's number; each fold costs a fit of the model
    if groups is None:
        folds: Any = KFold(min(most, len(X)), shuffle=True, random_state=random_state)
    else:
        folds = GroupKFold(min(most, len(np.unique(groups))))
    reference = median_norm(metrics.field_norms(snapshots, cell_weights=weights))
    errors = np.empty(len(X))
    splits = folds.split(X, groups=groups)
    for _, (train, test) in zip(steps(folds.get_n_splits(), 1, "held-out errors"), splits, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the fit to all snapshots gives them again
            # a search needs two groups at least
            known = None if groups is None or len(np.unique(groups[train])) < 2 else groups[train]
            fitted = clone(model).fit(X[train], snapshots[train], groups=known)
            predicted = fitted.predict(X[test])
        errors[test] = metrics.scaled_l2(snapshots[test], predicted, reference=reference, cell_weights=weights)
    return float(errors.mean())
