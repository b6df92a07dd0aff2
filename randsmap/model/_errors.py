"""Errors of a model's fields on snapshots, and on snapshots that it is fitted without."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

from randsmap._interface.arrays import check_samples
from randsmap._interface.fields import field_rows, flattened
from randsmap._io.progress import steps
from randsmap._linalg.rows import Rows, taken
from randsmap._linalg.scales import median_norm
from randsmap.decoders._auto import check_groups
from randsmap.invariants import norm_weights
from randsmap.metrics import conservation_error, field_norms, scaled_linf
from randsmap.model._base import Errors, decoded_errors, relative_errors
from randsmap.model._held_out import HeldOutErrors, trajectories_in_words
from randsmap.model._manifold import fitted_parts


def reconstruction_errors(
    model: Any, snapshots: ArrayLike, *, parameters: ArrayLike | None = None
) -> dict[str, NDArray[np.float64]]:
    """Errors of each snapshot's reconstruction, or of the field that is predicted at its parameters.

    Parameters
    ----------
    model : ManifoldModel or ParametricModel
        A fitted model; with `parameters` a ParametricModel.
    snapshots : array-like of shape (n, M) or (n, *shape)
        A large memory-mapped array is read by blocks.
    parameters : array-like of shape (n, p) or None
        Parameters of the snapshots, at which the model predicts. None: the snapshots are encoded and decoded.

    Returns
    -------
    dict of str to ndarray (n,)
        "relative_l2" and "relative_linf", scaled as by `metrics.scaled_l2`; "conservation_error", absolute, of the
        invariants of the model's decoder (of the mass if it has none); and if the decoder has bounds "outside_bounds",
        the largest distance of a cell from them.

    Raises
    ------
    ValueError
        If there are no snapshots, or they do not fit the model.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> F = np.random.default_rng(0).uniform(size=(30, 8))
    >>> model = randsmap.ManifoldModel(randsmap.POD(3)).fit(F)
    >>> errors = randsmap.model.reconstruction_errors(model, F)
    >>> sorted(errors), errors["relative_l2"].shape
    (['conservation_error', 'relative_l2', 'relative_linf'], (30,))
    """
    check_samples(snapshots=snapshots, parameters=parameters)
    fitted = model if parameters is None else model.model_
    F = Rows.of(field_rows(fitted, snapshots, name="snapshots"), "snapshots", min_rows=0)
    if not len(F):
        raise ValueError("there are no snapshots to evaluate the model on")
    # blocks must not differ in what their errors are relative to
    return decoded_errors(*_latents(model, snapshots, parameters), F, _measures(fitted, F))


def held_out_errors(
    model: Any,
    snapshots: Any,
    *,
    parameters: NDArray[np.float64] | None = None,
    groups: ArrayLike | None = None,
    random_state: int | None = 0,
    cell_weights: NDArray[np.float64] | None = None,
) -> HeldOutErrors:
    """Errors of the model's fields at snapshots that it is fitted without, in up to five parts; fits may fail.

    Of n > 1000 snapshots 5000 / n parts are left out, at least one: each costs a fit. `cell_weights` are by default the
    model's.
    """
    rows, layout = flattened(snapshots, "snapshots")
    n = len(Rows.of(rows, "snapshots"))
    labels = check_groups(groups, n)
    most = 5  # scikit-learn's number
    folds: Any = KFold(min(most, n), shuffle=True, random_state=random_state)
    if labels is not None:
        folds = GroupKFold(min(most, labels.max() + 1))
    splits = list(folds.split(np.empty((n, 1)), groups=labels))[: max(1, 5000 // n)]
    measures = {"l2": relative_errors(Rows.of(rows, "snapshots"), layout.shape, cell_weights, model)}
    errors, turns = np.full(n, np.nan), 0
    for _, (train, test) in zip(steps(len(splits), 1, "held-out errors"), splits, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the fit to all snapshots gives them
            # a search needs two groups at least
            known = None if labels is None or len(np.unique(labels[train])) < 2 else labels[train]
            try:
                fitted, fields = clone(model), layout.restored(taken(rows, train, "snapshots"))
                if parameters is None:
                    fitted_parts(fitted, fields, known)
                else:
                    fitted.fit(parameters[train], fields, groups=known)
                left_out = taken(rows, test, "snapshots")
                there = None if parameters is None else parameters[test]
                decoding, latents = _latents(fitted, layout.restored(left_out), there)
                errors[test] = decoded_errors(decoding, latents, Rows.of(left_out), measures)["l2"]
            except (ValueError, ArithmeticError, np.linalg.LinAlgError):
                continue
        turns += 1
    judged = np.flatnonzero(~np.isnan(errors))
    return HeldOutErrors(
        rows=judged,
        errors=errors[judged],
        n_snapshots=n,
        n_turns=turns,
        n_groups=0 if labels is None else int(labels.max()) + 1,
        at_parameters=parameters is not None,
        along_trajectories=labels is None and trajectories_in_words(snapshots) is not None,
    )


def _latents(model: Any, snapshots: Any, parameters: Any) -> tuple[Any, Any]:
    """The model that decodes, and the latents of snapshots or of parameters."""
    if parameters is None:
        return model, model.transform(snapshots)
    return model.model_, model.latents(parameters)


def _measures(model: Any, F: Rows) -> dict[str, Errors]:
    """Functions of fields and decoded fields; the norms they are relative to are those of all snapshots F."""
    decoder, weights = getattr(model, "decoder_", None), norm_weights(model.field_shape_, model)
    C, kept = getattr(decoder, "invariant_matrix_", None), getattr(decoder, "invariants_", None)
    mass = "mass" if weights is None else weights
    measures: dict[str, Errors] = {
        "relative_l2": relative_errors(F, model.field_shape_, model),
        "relative_linf": partial(scaled_linf, reference=median_norm(field_norms(F, "linf"))),
        "conservation_error": partial(conservation_error, invariants=mass if C is None or C.shape[1] == 0 else C),
    }
    if kept is not None and kept.lower is not None:
        measures["outside_bounds"] = lambda _, F: abs(F - F.clip(kept.lower, kept.upper)).max(axis=1)
    return measures
