"""The report of a model on snapshots."""

from __future__ import annotations

import datetime
import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

import randsmap
from randsmap import plotting
from randsmap._interface.arrays import as_labels
from randsmap._interface.fields import field_rows, flattened
from randsmap.model._held_out import facts_in_words, folds_in_words
from randsmap.reports._evaluation import Evaluation, decoding_part, evaluate, worst_rows
from randsmap.reports._model_pictures import model_pictures
from randsmap.reports._page import drawn, page_template, percent, percents, write_page

_Table = list[tuple[str, ...]]  # header and rows

_MOST_ROWS = 12  # of the tables of groups, worst rows and trials, which then fit on a screen
# fitted attributes that tell what was found -> in words
_FOUND = {
    "epsilon_": "kernel width epsilon",
    "selected_": "eigenvectors",
    "eigenvalues_": "eigenvalues",
    "singular_values_": "singular values",
    "latent_scale_": "latent scale",
    "regularization_": "regularization used",
    "solver_": "solver",
    "rank_": "rank",
    "chosen_invariants_": "invariants",
    "held_out_error_": "held-out error",
    "on_edge_": "on an edge of the search",
}
# estimators within a fitted one -> in words
_PARTS = {
    "model_": "Model of the shifted fields",
    "encoder_": "Encoder",
    "decoder_": "Decoder",
    "best_decoder_": "Decoder chosen",
    "features_": "Features",
}


def write_model_report(
    model: Any,
    snapshots: ArrayLike,
    path: str | os.PathLike[str],
    *,
    parameters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    shape: Sequence[int] | None = None,
    mesh: tuple[ArrayLike, ArrayLike] | None = None,
    title: str = "A model and its snapshots",
    command: str = "",
) -> Path:
    """Write a report of a model on snapshots: one HTML file that needs nothing else.

    It shows the embedding, the errors, the worst fields and their reconstructions, errors of the mass or of other
    invariants, the leverage, and the tuned values.

    Parameters
    ----------
    model : ManifoldModel, or another fitted object with transform and inverse_transform
    snapshots : array_like (n, n_cells) or (n, ny, nx)
        One field per row, preferably some that the model was not fitted to.
    path : path
        The file, written whole or not at all; its folder is made if missing.
    parameters : array_like (n, p), optional
        Parameters of the snapshots: the report is of the fields that a ParametricModel predicts there.
    groups : array_like (n,), optional
        Labels of trajectories or other groups, each of which is a line in the picture of the errors.
    shape : sequence of int, optional
        Shape of a field; by default the model's ``field_shape_``.
    mesh : (array_like (n_points, 2), array_like (n_triangles, 3)), optional
        Points and triangles of a mesh, for fields with a value for each point or triangle.
    title, command : str
        Title of the page, and the command that repeats it.

    Returns
    -------
    Path

    Raises
    ------
    ValueError, TypeError
        If snapshots are not a finite array of the model's cells, or groups, shape or mesh do not agree with them.
    ImportError
        If jinja2 is not installed. Without matplotlib the report has no pictures and says what to install.

    See Also
    --------
    randsmap.plotting : The pictures, one by one.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, randsmap
    >>> from randsmap.reports import write_model_report
    >>> x = np.linspace(0, 1, 50)
    >>> bumps = np.exp(-((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2)
    >>> bumps /= bumps.sum(axis=1, keepdims=True)
    >>> model = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder(random_state=0)).fit(bumps)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_model_report(model, bumps, pathlib.Path(folder, "report.html"))
    ...     path.name
    'report.html'
    """
    template = page_template("randsmap.reports", "model.html")
    field_rows(model, snapshots, name="snapshots")
    rows, layout = flattened(snapshots, "snapshots")
    if np.ndim(rows) != 2:
        raise ValueError(f"snapshots must have a row for each field, got shape {np.shape(rows)}")
    if shape is None and not layout.plain:
        shape = layout.shape
    n, M = np.shape(rows)
    labels = None if groups is None else _checked_groups(groups, n)
    shape = _checked_shape(getattr(model, "field_shape_", None) if shape is None else shape, M)
    if mesh is not None:
        plotting.check_mesh(mesh, M, "a field")
    latents = None
    if parameters is not None:
        latents, model = model.latents(parameters), model.model_
        if len(latents) != n:
            raise ValueError(f"parameters must have a row for each of {n} snapshots, got {len(latents)}")
    found = evaluate(model, rows, latents)
    worst = worst_rows(found.l2, labels)
    return write_page(
        path,
        template,
        title=title,
        date=datetime.date.today().isoformat(),
        version=randsmap.__version__,
        sentences=[*facts_in_words(model, rows, labels), *_sentences(model, found, worst[0])],
        has_leverage=found.leverage is not None,
        summary=_summary(found),
        worst=_worst_table(found, labels),
        groups=None if labels is None else _group_table(found, labels),
        settings=list(_settings(model)),
        trials=_trials(decoding_part(model)),
        pictures=drawn(model_pictures(model, found, labels, worst, shape, mesh)),
        command=command,
    )


def _checked_groups(groups: ArrayLike, n: int) -> NDArray[Any]:
    labels = as_labels(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must have a label for each of {n} snapshots, got shape {labels.shape}")
    return labels


def _checked_shape(shape: Sequence[int] | None, M: int) -> tuple[int, ...] | None:
    """The shape that is drawn of a field: (ny, nx), after an index into the axes before; None of a line."""
    if shape is None:
        return None
    drawn = plotting.plot_shape(shape)
    if int(np.prod(drawn)) != M:
        raise ValueError(f"shape must have the {M} cells of a field, got {' x '.join(map(str, shape))}")
    return drawn if len(drawn) > 1 else None


# --- words and tables ----------------------------------------------------------------------------


def _sentences(model: Any, found: Evaluation, worst: int) -> Iterator[str]:
    n, M = found.snapshots.shape
    d = found.latents.shape[1]
    part = decoding_part(model)
    encoder = getattr(getattr(model, "model_", model), "encoder_", model)
    yield (
        f"{_counted(n, 'snapshot')} of {_counted(M, 'cell')}, in {_counted(d, 'latent coordinate')} by "
        f"{type(encoder).__name__}, decoded by {type(part).__name__}."
    )
    blend = getattr(part, "best_decoder_", part)
    if isinstance(blend, randsmap.BlendedDecoder):
        names = [type(each).__name__ for each in blend.decoders_]
        parts = " and ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        median = "the median of the fields of its parts: " if len(names) > 1 else "the field of its part: "
        yield f"The {type(part).__name__} gives {median}{parts} (listed below)."
    yield (
        f"Relative L2 error: {percent(found.l2.mean())} in the mean, at most {percent(found.l2[worst])} (row {worst})."
    )
    what, bounds = part.invariants_.in_words if hasattr(part, "invariants_") else ("its invariants", "")
    largest = found.invariants.max()
    if not found.n_invariants:
        yield f"The model promises to keep nothing exactly; the mass is off by {percent(largest)} at most."
    elif largest < 1e-8:
        yield f"The model keeps {what}: the largest relative error is {largest:.2g}."
    else:
        yield f"The model keeps {what} of its training fields; those of the snapshots differ by {percent(largest)}."
    low, high, decoded_low, decoded_high = found.ranges
    yield (
        f"Values: {low:.4g} to {high:.4g} in the snapshots, {decoded_low:.4g} to {decoded_high:.4g} decoded"
        + (f", which the model keeps {bounds}." if bounds else ".")
    )
    folded = folds_in_words(model, found.snapshots)
    if folded is not None:
        yield f"{folded[0].upper()}{folded[1:]}."
    if found.leverage is not None:
        beyond = int(np.count_nonzero(found.leverage > found.limit))
        who = _counted(beyond, "snapshot") if beyond else "No snapshot"
        examined = "" if len(found.leverage) == n else f" of {len(found.leverage)} that were examined"
        verb = "lies" if beyond <= 1 else "lie"
        yield f"{who}{examined} {verb} beyond the leverage limit {found.limit:.3g}, where fields are extrapolated."


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _summary(found: Evaluation) -> _Table:
    quantities = {
        "relative L2 error": found.l2,
        "relative Linf error": found.linf,
        f"error of the {found.conserved}, relative": found.invariants,
    }
    if found.leverage is not None:
        quantities["leverage"] = found.leverage
    rows: _Table = [("", "mean", "median", "5 %", "95 %", "largest", "in row")]
    for name, values in quantities.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        row = int(np.argmax(values))
        row = found.examined[row] if name == "leverage" else row
        rows.append((name, *(f"{figure:.3g}" for figure in figures), str(row)))
    return rows


def _worst_table(found: Evaluation, labels: NDArray[Any] | None) -> _Table:
    worst = np.argsort(-found.l2, kind="stable")[:_MOST_ROWS]
    columns = [("row", *map(str, worst))]
    if labels is not None:
        columns.append(("group", *map(_cut, labels[worst])))
    columns.append(("L2 error", *percents(found.l2[worst])))
    columns.append(("Linf error", *percents(found.linf[worst])))
    header = "mass error" if found.conserved == "mass" else "invariants’ error"
    columns.append((header, *(f"{error:.1e}" for error in found.invariants[worst])))
    if found.leverage is not None:
        leverage = {row: f"{value:.3g}" for row, value in zip(found.examined, found.leverage)}
        columns.append(("leverage", *(leverage.get(row, "") for row in worst)))
    for k in range(min(found.latents.shape[1], 6)):
        columns.append((f"y{k + 1}", *(f"{y:.4g}" for y in found.latents[worst, k])))
    return list(zip(*columns))


def _cut(label: Any) -> str:
    text = str(label)
    return text if len(text) <= 30 else f"{text[:29]}\u2026"


def _group_table(found: Evaluation, labels: NDArray[Any]) -> tuple[int, _Table]:
    """(number of groups, header and rows of those with the largest mean errors)."""
    names, numbers = np.unique(labels, return_inverse=True)
    means = np.bincount(numbers, found.l2) / np.bincount(numbers)
    worst = np.argsort(-means, kind="stable")[:_MOST_ROWS]
    members = [np.flatnonzero(numbers == k) for k in worst]
    largest = [own[np.argmax(found.l2[own])] for own in members]
    columns = [
        ("group", *(_cut(names[k]) for k in worst)),
        ("snapshots", *(str(len(own)) for own in members)),
        ("mean L2 error", *percents(means[worst])),
        ("largest", *percents(found.l2[largest])),
        ("in row", *map(str, largest)),
    ]
    return len(names), list(zip(*columns))


def _settings(model: Any) -> Iterator[tuple[str, _Table]]:
    """(what it is, class, [(name, value)]) of the model and all fitted parts of it."""
    for attribute, name in _PARTS.items():
        part = getattr(model, attribute, None)
        if part is None or not hasattr(part, "get_params"):
            continue
        rows: _Table = [("", "value"), *_changed(part)]
        found = {text: getattr(part, key, None) for key, text in _FOUND.items()}
        rows += [(text, _value(value)) for text, value in found.items() if value is not None and np.size(value)]
        rows += [(f"part {k + 1}", _value(each)) for k, each in enumerate(getattr(part, "decoders_", ()))]
        yield f"{name}: {type(part).__name__}", rows
        yield from _settings(part)


def _changed(estimator: Any) -> list[tuple[str, str]]:
    """[(name, value)] of the parameters that are not their defaults."""
    defaults = inspect.signature(type(estimator)).parameters
    found = []
    for name, value in estimator.get_params(deep=False).items():
        default: Any = defaults[name].default if name in defaults else inspect.Parameter.empty
        scalars = np.ndim(value) == 0 and np.ndim(default) == 0
        if value is not default and not (scalars and _value(value) == _value(default)):
            found.append((name, _value(value)))
    return found


def _value(value: Any) -> str:
    """A parameter or a fitted attribute in short."""
    if isinstance(value, BaseEstimator):
        return f"{type(value).__name__}({', '.join(f'{name}={text}' for name, text in _changed(value))})"
    if isinstance(value, (list, tuple)) and any(isinstance(each, BaseEstimator) for each in value):
        return f"{len(value)} of {', '.join(dict.fromkeys(type(each).__name__ for each in value))}"
    if isinstance(value, (np.ndarray, list, tuple)):
        value = np.asarray(value)
        if value.size > 12 or value.ndim > 1:
            return f"array of shape {value.shape}"
        return ", ".join(map(_value, value.tolist()))
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    return str(value)


def _trials(decoder: Any) -> tuple[int, _Table] | None:
    """(number of all, header and the best rows) of the record of a search; None where there is none."""
    results = getattr(decoder, "results_", None)
    if results is None:
        return None
    best = np.argsort(results["score"], kind="stable")[:_MOST_ROWS]
    columns = []
    for name, values in results.items():
        values = np.asarray(values)
        if len(np.unique(values)) > 1 or name in ("family", "error"):
            unused = _UNUSED.get(name)
            texts = ("" if value == unused else _value(value).replace("nan", "") for value in values[best])
            columns.append((name, *texts))
    return len(results["score"]), list(zip(*columns))


_UNUSED = {"degree": -1, "n_neighbors": 0, "rank": 0}  # of families that have no such parameter
