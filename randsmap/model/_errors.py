"""Errors of a model's fields on snapshots, and on snapshots that it is fitted without."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import field_rows, flattened, named
from randsmap._io.progress import steps
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import Rows, taken
from randsmap._linalg.scales import error_scales, in_norm, median_norm, standard_deviations
from randsmap.decoders import AutoDecoder
from randsmap.decoders._auto import check_groups
from randsmap.invariants import decoding_part, norm_weights
from randsmap.maps.error_bar import nearest_other, neighbors_in_file, same_points
from randsmap.metrics import conservation_error, field_norms, scaled_linf
from randsmap.model._base import Errors, HeldOutErrors, decoded_errors, model_texts, relative_errors
from randsmap.model._manifold import ManifoldModel, fitted_parts
from randsmap.model._parametric import ParametricModel

_Values = NDArray[np.float64]
WARNINGS = "snapshots follow each other", "nearly equal latents"  # beginnings of `cautions_in_words`


@model_texts
def reconstruction_errors(
    model: Any, snapshots: ArrayLike, *, parameters: ArrayLike | None = None
) -> dict[str, _Values]:
    """Errors of each snapshot's reconstruction, or of the field that is predicted at its parameters.

    Parameters
    ----------
    model : ManifoldModel or ParametricModel
        A fitted model; with `parameters` a ParametricModel.
    snapshots : array-like of shape (n, M) or (n, *shape), n >= 1
        A large memory-mapped array is read by blocks.
    parameters : array-like of shape (n, p) or None, default=None
        Parameters of the snapshots, at which the model predicts. None: the snapshots are encoded and decoded.

    Returns
    -------
    dict of str to ndarray (n,)
        "relative_l2" and "relative_linf", scaled as by `metrics.scaled_l2`. "conservation_error", absolute, of the
        invariants of the part that decodes, or of the mass if it has none. "outside_bounds" if it has bounds: the
        largest violation in a cell.

    {raises}

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
    # errors in all blocks must be relative to the same norms
    return decoded_errors(*_latents(model, snapshots, parameters), F, _measures(fitted, F))


def held_out_errors(
    model: Any,
    snapshots: Any,
    *,
    parameters: _Values | None = None,
    groups: ArrayLike | None = None,
    random_state: int | None = 0,
    cell_weights: _Values | None = None,
) -> HeldOutErrors:
    """Errors of the model's fields at snapshots that it is fitted without, in up to five parts; fits may fail.

    Equal snapshots, or those of equal parameters, are left out together. Of n > 1000 snapshots 5000 / n parts are left
    out, at least one, with groups two: each costs a fit. If that is no search, up to 12 groups are left out alone, with
    n <= 400. `cell_weights` are by default the model's.
    """
    rows, layout = flattened(snapshots, "snapshots")
    F = Rows.of(rows, "snapshots")
    n = len(F)
    labels = check_groups(groups, n)
    searching: Any = getattr(model, "decoder", None) or model  # the part that is fitted with the labels of groups
    if isinstance(model, ParametricModel):
        searching = AutoDecoder() if model.regressor is None else model.regressor
    most, searches = 5, has_fit_parameter(searching, "groups")  # 5 is scikit-learn's default
    if labels is not None and parameters is None and not searches:
        most = min(12, max(most, 5000 // n))
    together: Any = labels
    if labels is None:  # equal parameters, or equal snapshots, found by random combinations of their cells
        places = parameters if parameters is not None else F.times(np.random.default_rng(0).normal(size=(F.width, 3)))
        together = check_groups(same_points(np.reshape(places, (n, -1))), n, least=1)
        together = np.arange(n) if np.ptp(together) == 0 else together
    mixed: Any = {} if labels is not None else {"shuffle": True, "random_state": random_state}
    folds = GroupKFold(min(most, together.max() + 1), **mixed)
    least = 1 if labels is None else 2  # what an error bar needs
    splits = list(folds.split(np.empty((n, 1)), groups=together))[: max(least, 5000 // n)]
    measures = {"l2": relative_errors(F, layout.shape, cell_weights, model)}
    sample = Sample(rows, norm_weights(layout.shape, cell_weights, model))
    errors, turn, turns = np.full(n, np.nan), np.zeros(n, np.intp), 0
    for _, (train, test) in zip(steps(len(splits), 1, "cross-validation"), splits, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the fit to all snapshots warns
            # a search needs two groups at least
            known = None if labels is None or len(np.unique(labels[train])) < 2 else labels[train]
            try:
                fitted, fields = clone(model), layout.restored(taken(rows, train, "snapshots"))
                data = (fields,) if parameters is None else (parameters[train], fields)
                if isinstance(fitted, ManifoldModel):
                    fitted_parts(fitted, fields, known)
                else:
                    fitted.fit(*data, **({"groups": known} if searches else {}))
                left_out = taken(rows, test, "snapshots")
                there = None if parameters is None else parameters[test]
                decoding, latents = _latents(fitted, layout.restored(left_out), there)
                errors[test] = decoded_errors(decoding, latents, Rows.of(left_out), measures)["l2"]
            except (ValueError, ArithmeticError, np.linalg.LinAlgError):
                continue
        turn[test], turns = turns, turns + 1
    judged = np.flatnonzero(~np.isnan(errors))
    return HeldOutErrors(
        rows=judged,
        errors=errors[judged],
        groups=together[judged],
        n_snapshots=n,
        n_turns=turns,
        n_groups=0 if labels is None else int(labels.max()) + 1,
        at_parameters=parameters is not None,
        along_trajectories=labels is None and trajectories_in_words(sample) is not None,
        turns=turn[judged],
    )


def _latents(model: Any, snapshots: Any, parameters: Any) -> tuple[Any, Any]:
    """The model that decodes, and the latents of snapshots or of parameters."""
    if parameters is None:
        return model, model.transform(snapshots)
    return (model.model_, model.latents(parameters)) if hasattr(model, "latents") else (model, parameters)


def judged(model: Any, held_out: HeldOutErrors, snapshots: Any, points: Any = None) -> HeldOutErrors:
    """Cross-validation errors with what an error bar needs of the fitted model: their latents, or `points`."""
    rows, layout = flattened(snapshots, "snapshots")
    if not len(held_out.rows):  # all fits to a part have failed
        return held_out
    fields = taken(rows, held_out.rows, "snapshots")
    if points is not None:
        points = points[held_out.rows]
    else:
        points = np.asarray(model.leverage_points(model.transform(layout.restored(fields))), float)
    norms = error_scales(field_norms(fields, cell_weights=norm_weights(layout.shape, model)))
    return replace(held_out, points=np.ascontiguousarray(points), norms=norms)


def calibrate(estimator: Any, X: ArrayLike, y: Any = None, *, groups: ArrayLike | None = None) -> Any:
    """Compute the error bar of a fitted decoder or model by fits without parts of its training data.

    Decoders have error bars from single fields left out. Use this to leave out whole groups, to include the encoder of
    a model (`autotune` and ``randsmap fit`` do so), and for other packages' regressors.

    Parameters
    ----------
    estimator : fitted decoder, ManifoldModel, ShiftRegistration or ParametricModel
        Clones of it are fitted up to 5 times, with groups up to 12 times unless they search.
    X : array-like (n, ...)
        The data of its fit: latents, snapshots, or parameters.
    y : array-like (n, M) or (n, *shape), or None, default=None
        The fields, for decoders and ParametricModel.
    groups : array-like (n,) or None, default=None
        Labels of groups that are left out as a whole. None: snapshots at random, equal ones together.

    Returns
    -------
    estimator
        The same object; ``predict(..., return_error=True)`` uses the error bar.

    Raises
    ------
    sklearn.exceptions.NotFittedError, ValueError, TypeError
        If it is not fitted, the arrays do not fit to it, or all fits without a part fail.

    Warns
    -----
    UserWarning
        Without groups, if the fields of a decoder follow each other as in trajectories.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> latents = np.random.default_rng(0).uniform(size=(60, 1))
    >>> fields = np.hstack([np.sin(6 * latents), np.cos(6 * latents)])
    >>> decoder = randsmap.KernelDecoder(regularization=1e-6).fit(latents, fields)
    >>> decoder = randsmap.model.calibrate(decoder, latents, fields, groups=np.arange(60) // 6)
    >>> decoder.predict([[0.5]], return_error=True)[1].shape
    (1,)
    """
    check_is_fitted(estimator)
    check_samples(X=X, y=y, groups=groups)
    fields, points = (X, None) if y is None else (y, as_array(X if np.ndim(X) > 1 else np.reshape(X, (-1, 1)), "X"))
    if points is not None and len(points) != np.shape(fields)[0]:
        raise ValueError(f"X and y must have the same number of rows, got {len(points)} and {np.shape(fields)[0]}")
    found = judged(estimator, held_out_errors(estimator, fields, parameters=points, groups=groups), fields, points)
    if found.error_bar is None:
        raise ValueError(f"{type(estimator).__name__} has no error bar: {found.in_words}")
    if hasattr(estimator, "held_out_"):
        estimator.held_out_ = found
    elif found.along_trajectories:
        warn_caller(f"the {trajectories_in_words(fields)}")
    estimator.calibrated_ = found.error_bar.with_growth_of(estimator.closed_error_bar)
    return estimator


def _measures(model: Any, F: Rows) -> dict[str, Errors]:
    """Functions of fields and decoded fields; the norms they are relative to are those of all snapshots F."""
    decoder, weights = decoding_part(model), norm_weights(model.field_shape_, model)
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


# -- What errors mean, in words ------------------------------------------------------------------------
def facts_in_words(model: Any, snapshots: Any, groups: Any = None) -> Iterator[str]:
    """Sentences before a model's errors on snapshots: its cross-validation error, and whether it was fitted to them."""
    held_out, along = getattr(model, "held_out_", None), None
    words = "no cross-validation error is stored: randsmap fit, autotune and choose_parametric find it"
    yield f"When the model was fitted: {words if held_out is None else held_out.in_words}."
    sample = Sample.of(snapshots, model)
    if groups is None and (held_out is None or not (held_out.n_groups or held_out.along_trajectories)):
        along = trajectories_in_words(sample)
    if along is not None:
        yield f"The {along}."
    known = _known_share(model.model_ if hasattr(model, "regressor_") else model, sample.F)
    if known >= 0.995:
        yield "The model was fitted to these snapshots: these are training errors, new snapshots may have larger ones."
    elif known > 0:
        yield f"The model was fitted to {100 * known:.1f} % of these snapshots: new snapshots may have larger errors."


def _known_share(model: Any, F: _Values) -> float:
    """Share of the fields with the latents of a training field; 0 if the latter are not known."""
    fit = getattr(getattr(model, "decoder_", None), "fitted", None)
    points = getattr(model, "training_latents_", None) if fit is None else fit.training_points
    options = {"projection": 0} if getattr(model, "projection", 0) else {}  # training latents are those before steps
    Y = np.asarray(model.transform(named(model, F), **options))
    if points is None or points.shape[1] != Y.shape[1]:  # they differ if fields were shifted before
        return 0.0
    unit = standard_deviations(points)
    distances, _ = NeighborIndex(np.ascontiguousarray(points / unit)).query(np.ascontiguousarray(Y / unit), 1)
    return float(np.mean(distances[:, 0] <= 1e-6))  # the tolerance includes fields in single precision


def cautions_in_words(model: Any, snapshots: Any, groups: Any = None) -> Iterator[str]:
    """Sentences on what makes errors misleading: trajectories without groups, equal latents of different fields."""
    sample = Sample.of(snapshots, model)
    along = None if groups is not None else trajectories_in_words(sample)
    yield from filter(None, (along, folds_in_words(model, sample)))


def trajectories_in_words(snapshots: Any) -> str | None:
    """A sentence if the nearest field of many snapshots is a neighbour in the file, which chance does not explain."""
    sample = Sample.of(snapshots)
    share = neighbors_in_file(sample.rows, sample.nearest) if len(sample.rows) > 2 else 0
    if not share:
        return None
    return (
        f"{WARNINGS[0]} as in trajectories: for {share:.0%} of them the nearest field is a neighbour in "
        "the file. If single snapshots are left out, their neighbours in time are in the fit, and errors of new "
        "trajectories may be far larger. Groups are needed: groups=labels, --groups FILE in the shell, with a label "
        "of the trajectory for each snapshot"
    )


def folds_in_words(model: Any, snapshots: Any) -> str | None:
    """A sentence with the rows if nearly equal latents belong to different fields."""
    sample = Sample.of(snapshots, model)
    rows, points = sample.rows, sample.points
    if len(rows) < 3:
        return None
    Y = np.asarray(model.transform(named(model, sample.F)))
    Y = Y / standard_deviations(Y)
    others, unlike = nearest_other(Y), np.linalg.norm(points - points[sample.nearest], axis=1)
    apart = np.linalg.norm(points - points[others], axis=1)
    spread = np.sqrt((points**2).sum(axis=1).mean())
    # differences that are large, also compared with the distances of samples: otherwise the embedding may be steep
    folded = (np.linalg.norm(Y - Y[others], axis=1) < 0.01) & (apart > 0.25 * spread) & (apart > 3 * unlike)
    if not folded.any():
        return None
    worst = np.flatnonzero(folded)[np.argsort(-apart[folded], kind="stable")]
    pairs = list(dict.fromkeys(tuple(sorted((int(rows[i]), int(rows[others[i]])))) for i in worst))
    shown = ", ".join(f"{i} and {j}" for i, j in pairs[:3])
    return (
        f"{WARNINGS[1]} belong to different fields, as in a folded embedding: rows {shown}"
        f"{', ...' if len(pairs) > 3 else ''} ({int(folded.sum())} of {len(rows)} snapshots, fields apart by up to "
        f"{apart[folded].max() / spread:.0%} of their standard deviation). No decoder can tell these fields apart"
    )


class Sample:
    """Some rows of snapshots, in stretches if there are many: fields F, points (n, r) about as far apart as these."""

    def __init__(self, snapshots: Any, weights: _Values | None = None) -> None:
        everything = Rows.of(flattened(snapshots, "snapshots")[0], "snapshots", min_rows=0)
        n, M = everything.shape
        self.rows, chosen = np.arange(n), slice(None)
        most = max(200, min(2000, (1 << 27) // M))  # 1 GB at most, and pairs in a fraction of a second
        if n > most:  # twenty stretches
            starts, length = np.linspace(0, n - most // 20, 20).astype(int), most // 20
            self.rows = chosen = (starts[:, None] + np.arange(length)).ravel()
        self.F = everything[chosen]
        points = in_norm(self.F - self.F.mean(axis=0), weights)
        size = 128  # random combinations keep distances to 6 %
        if M > size:
            points = points @ (np.random.default_rng(0).standard_normal((M, size)) / np.sqrt(size))
        self.points = np.ascontiguousarray(points)

    @classmethod
    def of(cls, snapshots: Any, model: Any = None) -> Sample:
        if isinstance(snapshots, cls):
            return snapshots
        return cls(snapshots, norm_weights(getattr(model, "field_shape_", np.shape(snapshots)[1:]), model))

    nearest = cached_property(lambda self: nearest_other(self.points))  # other point of each
