"""Reports: pages of one HTML file each, with the pictures in it, that need nothing else to be read.

The studies' reports (`randsmap.studies`) share its templates, style sheet and pictures. There is no script, and
whatever comes from a result or a file is escaped. Needs the extra ``studies`` (jinja2, matplotlib).
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import inspect
import io
import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

import randsmap
from randsmap import plotting
from randsmap._interface.arrays import as_labels, check_samples
from randsmap._interface.callers import extrapolation_ignored, public
from randsmap._interface.fields import field_rows, flattened, named
from randsmap._interface.texts import shared_texts
from randsmap._io.files import save_arrays, write_atomically
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import error_scales, in_norm
from randsmap.invariants import decoding_part, norm_weights, own_values
from randsmap.maps.extrapolation import leverage_cost
from randsmap.model._errors import facts_in_words, folds_in_words

__all__ = ["write_model_report"]

_Values = NDArray[np.float64]
_Table = list[tuple[str, ...]]  # header and rows

MOST_EXAMINED = 5000  # snapshots whose leverage is computed: a share of them is right to 1 or 2 per cent
_MOST_CELLS = 1000  # along each axis of a plane: as many as a picture has pixels
DPI = 144  # one and a half times that of the page, on which an inch is 96 pixels
_POWER = re.compile(r"[-+]?\d[\d.]*e-\d+")
WIDE, NARROW = 10.4, 4.6  # inches of pictures as wide as the page, and as a phone
_SMALL = (5.0, 3.6)  # inches of a picture that shares its row of the page
_ERROR = "relative L2 error"
_MOST_ROWS = 12  # of the tables of groups, worst rows and trials, which then fit on a screen
# fitted attributes of results -> in words
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
    "held_out_error_": "cross-validation error",
    "on_edge_": "at the boundary of the search range",
}
# parameters whose names are unclear alone -> in words
_NAMED = {
    ("POD", "n_components"): "n_components (a fraction: of the energy)",
    ("BlendedDecoder", "limit"): "largest distance from a training field",
}
# estimators within a fitted one -> in words
_PARTS = {
    "regressor_": "Regression of latents",
    "model_": "Model inside",
    "encoder_": "Encoder",
    "decoder_": "Decoder",
    "best_decoder_": "Decoder chosen",
    "features_": "Features",
}


@shared_texts
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
    figures: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a report of a model on snapshots: one HTML file that needs nothing else.

    It shows the embedding, the errors, the worst fields and their reconstructions, errors of the mass or of other
    invariants, the leverage, and the tuned values. `randsmap.plotting` draws its pictures one by one.

    Parameters
    ----------
    model : ManifoldModel, or another fitted object with transform and inverse_transform
    snapshots : array_like (n, n_cells) or (n, ny, nx)
        One field per row, preferably some that the model was not fitted to.
    path : path
        The file, written whole or not at all; its folder is made if missing.
    parameters : array_like (n, p), default=None
        Parameters of the snapshots: the report is of the fields that a ParametricModel predicts there.
    groups : array_like (n,), default=None
        Labels of trajectories or other groups, each of which is a line in the picture of the errors.
    shape : sequence of int, default=None
        Shape of a field; by default the model's ``field_shape_``.
    mesh : (array_like (n_points, 2), array_like (n_triangles, 3)), default=None
        Points and triangles of a mesh, for fields with a value for each point or triangle.
    title, command : str, default="A model and its snapshots", ""
        Title of the page, and the command that repeats it.
    figures : path, default=None
        Folder for the pictures as PDF files, drawn in `randsmap.plotting.style`, and their arrays in figures.npz.

    Returns
    -------
    Path

    Raises
    ------
    ValueError, TypeError
        If snapshots are not a finite array of the model's cells, or groups, shape or mesh do not agree with them.
    ImportError
        If jinja2 is not installed. Without matplotlib the report has no pictures and says what to install.

    Examples
    --------
    >>> import pathlib, tempfile
    {bumps}
    >>> model = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder(random_state=0)).fit(bumps)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     randsmap.reports.write_model_report(model, bumps, pathlib.Path(folder, "report.html")).name
    'report.html'
    """
    template = page_template("randsmap.reports", "model.html")
    check_samples(snapshots=snapshots, parameters=parameters, groups=groups)
    field_rows(model if parameters is None else model.model_, snapshots, name="snapshots")
    rows, layout = flattened(snapshots, "snapshots")
    if np.ndim(rows) != 2:
        raise ValueError(f"snapshots must have a row for each field, got shape {np.shape(rows)}")
    if shape is None and not layout.plain:
        shape = layout.shape
    n, M = np.shape(rows)
    labels = None if groups is None else as_labels(groups)
    if labels is not None and labels.shape != (n,):
        raise ValueError(f"groups must have a label for each of {n} snapshots, got shape {labels.shape}")
    shape = getattr(model, "field_shape_", None) if shape is None else shape
    if shape is not None:  # that is drawn: (ny, nx), after an index into the axes before; None of a line
        shape, given = plotting.plot_shape(shape), shape
        if int(np.prod(shape)) != M:
            raise ValueError(f"shape must have the {M} cells of a field, got {' x '.join(map(str, given))}")
        shape = shape if len(shape) > 1 else None
    if mesh is not None:
        plotting.check_mesh(mesh, M, "a field")
    latents, given = None, model
    if parameters is not None:
        latents, model = model.latents(parameters), model.model_
        if len(latents) != n:
            raise ValueError(f"parameters must have a row for each of {n} snapshots, got {len(latents)}")
    found = evaluate(model, rows, latents)
    worst = worst_rows(found.l2, labels)
    examples = _examples(model, found, worst)
    if figures is not None:
        names = ("latents", "l2", "linf", "invariants", "examined", "leverage")
        arrays = {name: array for name in names if (array := getattr(found, name)) is not None}
        arrays |= dict(zip(("rows", "truth", "decoded"), examples))
        Path(figures).mkdir(parents=True, exist_ok=True)
        write_atomically(Path(figures, "figures.npz"), lambda file: save_arrays(file, arrays))
    return write_page(
        path,
        template,
        title=title,
        date=datetime.date.today().isoformat(),
        version=randsmap.__version__,
        sentences=[
            *facts_in_words(given, rows, labels),
            *_sentences(model, found, worst[0]),
            *_error_bar(given, found, parameters),
        ],
        has_leverage=found.leverage is not None,
        summary=_summary(found),
        worst=_worst_table(found, labels),
        groups=None if labels is None else _group_table(found, labels),
        settings=list(settings(model)),
        trials=_trials(decoding_part(model)),
        pictures=drawn(lambda: model_pictures(found, labels, worst, examples, shape, mesh), figures),
        command=command,
    )


# --- figures of the model ------------------------------------------------------------------------
@dataclass(frozen=True)
class Evaluation:
    """Figures of a model on n snapshots of M cells."""

    snapshots: Rows  # (n, M)
    latents: _Values  # (n, d)
    l2: _Values  # (n,), errors of the decoded fields
    linf: _Values
    invariants: _Values  # (n,), the largest |C_j.f_hat - C_j.f| / |C_j|.|f|; of the mass if the model has none
    n_invariants: int  # of the model
    ranges: tuple[float, float, float, float]  # lowest value of the snapshots and of the decoded fields, and highest
    examined: NDArray[np.intp]  # rows of `leverage`: at most about 5000, with those of the largest errors
    leverage: _Values | None  # None if the model has none or it would take minutes
    limit: float  # the model's `leverage_limit_`

    @property
    def conserved(self) -> str:
        """Name of the quantity of the errors `invariants`."""
        return "invariants" if self.n_invariants > 1 else "mass"


def decoded_rows(model: Any, latents: _Values, F: _Values) -> _Values:
    """Decoded fields (n, M) of the fields F, whatever their shape, without warnings of latents that are far away."""
    with extrapolation_ignored():
        return np.asarray(model.inverse_transform(latents, **own_values(model, F))).reshape(len(latents), -1)


def evaluate(model: Any, snapshots: ArrayLike, latents: _Values | None = None) -> Evaluation:
    """Encode and decode snapshots (n, M), or decode latents (n, d) of them; a large mapping is read once, by blocks."""
    rows = Rows.of(snapshots, "snapshots")
    C = np.asarray(getattr(decoding_part(model), "invariant_matrix_", np.empty((0, 0))))
    n_invariants = C.shape[1]
    weights = norm_weights(getattr(model, "field_shape_", (rows.width,)), model)
    if not n_invariants:
        C = np.ones((rows.width, 1)) if weights is None else weights[:, None]
    parts = []
    for start, stop, F in rows.blocks(what="evaluating"):
        Y = np.asarray(model.transform(named(model, F))) if latents is None else latents[start:stop]
        F_hat = decoded_rows(model, Y, F)
        extremes = np.transpose([F.min(axis=1), F_hat.min(axis=1), F.max(axis=1), F_hat.max(axis=1)])
        scale = abs(F) @ abs(C)
        broken = abs(F_hat @ C - F @ C) / np.where(scale > 0, scale, 1.0)
        # of fields near the largest numbers a sum may overflow: that is an infinite error
        broken = np.nan_to_num(broken, nan=np.inf).max(axis=1)
        parts.append((Y, _norms(F, weights), _norms(F_hat - F, weights), broken, extremes))
    Y, sizes, distances, invariants, extremes = map(np.concatenate, zip(*parts, strict=True))
    if not sizes.any() and distances.any():
        raise ValueError("snapshots are 0 in every cell: errors have nothing to be relative to")
    l2, linf = (distance / error_scales(size) for size, distance in zip(sizes.T, distances.T))
    examined, leverage, limit = some_rows(l2, MOST_EXAMINED), None, np.nan
    if hasattr(model, "leverage") and leverage_cost(decoding_part(model)) <= 1e12:  # more would take minutes
        leverage, limit = np.asarray(model.leverage(Y[examined])), float(model.leverage_limit_)
    ranges = (*extremes[:, :2].min(axis=0), *extremes[:, 2:].max(axis=0))
    return Evaluation(rows, Y, l2, linf, invariants, n_invariants, ranges, examined, leverage, limit)


def worst_rows(errors: _Values, groups: NDArray[Any] | None, count: int = 3) -> list[int]:
    """Rows of the largest errors, the largest first, each of another group or at least a twentieth of all rows away."""
    left, rows = errors.astype(float), np.arange(len(errors))  # without rows that would look the same
    if groups is not None and len(np.unique(groups)) < count:
        groups = None
    chosen: list[int] = []
    while len(chosen) < count and left.max(initial=-1) >= 0:
        row = int(np.argmax(left))
        chosen.append(row)
        left[abs(rows - row) <= len(rows) // 20 if groups is None else groups == groups[row]] = -1
    return chosen


def some_rows(errors: _Values, most: int) -> NDArray[np.intp]:
    """All rows, or of many `most`: the tenth part those of the largest errors, the others evenly spread."""
    if len(errors) <= most:
        return np.arange(len(errors))
    n_worst = most // 10
    worst = np.argpartition(-errors, n_worst)[:n_worst]
    return np.union1d(plotting.spread_rows(len(errors), most - n_worst), worst)


def _norms(F, weights):
    return np.transpose([np.linalg.norm(in_norm(F, weights), axis=1), np.linalg.norm(F, np.inf, axis=1)])


# --- pictures, by the functions of `randsmap.plotting` ------------------------------------------------
def model_pictures(
    found: Evaluation, groups: Any, worst: list[int], examples: Any, shape: Any, mesh: Any
) -> Iterator[dict[str, Any]]:
    """Errors, `examples` of fields, embedding, leverage, invariants; shape and mesh are None for lines."""
    yield _errors(found, groups)
    yield _fields(found, worst, shape, mesh, *examples)
    yield from _embeddings(found)
    if found.leverage is not None:
        what = "Leverage measures how far a snapshot is from those that the decoder was fitted to."
        caption = f"{what} Beyond the limit a field is extrapolated."
        given = found.leverage, found.l2[found.examined]
        yield _small("Errors and leverage", caption, plotting.plot_leverage, *given, limit=found.limit)
    title = f"Error of the {found.conserved}"
    caption = f"{title} of the decoded snapshots, relative to that of the snapshots, along their rows."
    yield _small(title, caption, plotting.plot_errors, found.invariants, label=title.lower())


def _small(title, caption, plot, *arrays, **options):
    """A picture by a function of `plotting` that shares its row of the page."""
    figure, ax = plotting.new_axes(_SMALL)
    plot(*arrays, ax=ax, **options)
    return picture(title, caption, figure)


def _errors(found, groups):
    panels = [plotting.new_axes((width, 2.8)) for width in (WIDE, NARROW)]
    for _, ax in panels:
        plotting.plot_errors(found.l2, groups=groups, label=_ERROR, ax=ax)
    rows = "the snapshots" if groups is None else "each group"
    return picture(
        "Errors", f"Errors of the decoded snapshots along the rows of {rows}.", *(each for each, _ in panels)
    )


def _embeddings(found):
    """One or two latent coordinates of some snapshots, coloured by the row and by the error."""
    n, d = found.latents.shape
    some = some_rows(found.l2, plotting.MOST_POINTS)
    part = "" if len(some) == n else f"; {len(some)} of {n} snapshots"
    # errors far below the largest are visible as small only
    values = {"row": np.arange(float(n)), _ERROR: np.maximum(found.l2, 1e-6 * found.l2.max())}
    shown = [((0,), _ERROR)] if d == 1 else [((0, 1), "row"), *(((0, k), _ERROR) for k in range(1, min(d, 3)))]
    for pair, label in shown:
        order = some[np.argsort(values[label][some], kind="stable")]  # large errors above small ones
        points, names = found.latents[order][:, pair], [f"$z_{k + 1}$" for k in pair]
        if d == 1:
            points, names = np.column_stack([order, points]), ["row", *names]
        which = f"coordinate{'' if d == 1 else 's'} {' and '.join(str(k + 1) for k in pair)} of {d}"
        title, caption = f"Embedding, by {label}", f"Latent {which}, coloured by the {label}{part}."
        style = {"label": label, "names": names, "log": label == _ERROR}
        yield _small(title, caption, plotting.plot_embedding, points, values[label][order], **style)


def _examples(model, found, worst):
    """Rows of the worst fields, and of one with the median error, these fields (k, M), and their reconstructions."""
    typical = int(np.argsort(found.l2, kind="stable")[(len(found.l2) - 1) // 2])
    rows = worst if typical in worst else [*worst, typical]
    truth, places = found.snapshots[np.sort(rows)], np.argsort(np.argsort(rows))
    return rows, truth[places], decoded_rows(model, found.latents[np.sort(rows)], truth)[places]


def _fields(found, worst, shape, mesh, rows, truth, decoded):
    pairs, titles = list(zip(truth, decoded)), [f"row {row}, {percent(found.l2[row])}" for row in rows]
    last = "" if len(rows) == len(worst) else ", and last the one of the median error"
    planes = shape is not None and len(shape) > 2
    return picture(
        "Worst fields",
        f"Fields of the largest relative L2 errors, not near each other{last}: reference, decoded, and error."
        + (" Of the axes before the last two the middle is shown." if planes else ""),
        *(_compared(pairs, titles, shape, mesh, width) for width in (WIDE, NARROW)),
    )


def _compared(pairs, titles, shape, mesh, width):
    """For each pair truth, decoded and difference next to each other: lines in two axes, planes and meshes in three."""
    n, lines = len(pairs), shape is None and mesh is None
    if lines:
        size, options = (width, 1.7 * n + 0.3), {"ncols": 2, "width_ratios": [3, 2]}
    else:
        aspect = 1.0 if shape is None else float(np.clip(shape[-2] / shape[-1], 0.1, 3.0))
        if shape is None:
            across, up = np.maximum(np.ptp(np.asarray(mesh[0], dtype=float), axis=0), np.finfo(float).tiny)
            aspect = up / across
        panel = min((width - 0.4) / 3, 2.2 / aspect)  # inches; at most 2.2 high, so that two rows fit on a screen
        size, options = (3 * panel + 0.4, (panel * aspect + 0.55) * n + 0.6), {"ncols": 3}
    figure = plotting.new_figure(size)
    grid = list(figure.subplots(n, squeeze=False, sharex=True, sharey="col", **options))
    drawn = list[Any]()
    for pair, title, axes in zip(pairs, titles, grid):
        drawn.append(plotting.plot_comparison(ax=axes, label="field", **_as_seen(*pair, shape, mesh)))
        axes[0].set_title(title if lines else f"{title}:\nreference", fontsize="medium")
        if lines and axes is not grid[0]:
            axes[0].get_legend().remove()
        for ax in axes:
            ax.tick_params(labelsize="small")
            ax.locator_params(axis="x", nbins=5)
            if lines or axes is not grid[-1]:
                ax.set_xlabel("cell" if axes is grid[-1] else "")
    for column in () if lines else ((0, 1), (2,)):  # one scale, whose bar is below the last row
        shown = [row[k] for row in drawn for k in column]
        low, high = np.transpose([artist.get_clim() for artist in shown])
        for artist in shown:
            artist.set_clim(low.min(), high.max())
        for row in drawn[:-1]:
            row[column[-1]].colorbar.remove()
    return figure


def _as_seen(truth, decoded, shape, mesh):
    """Arguments of `plot_comparison`: planes with no more cells than are visible."""
    if shape is None:
        return {"truth": truth, "decoded": decoded, "mesh": mesh}
    planes = plotting.plot_arrays({"truth": truth, "decoded": decoded}, shape)
    rows, columns = (slice(None, None, -(-size // _MOST_CELLS)) for size in planes["truth"].shape)
    coarse = {name: plane[rows, columns] for name, plane in planes.items()}
    return {**coarse, "extent": (0.0, float(shape[-1]), 0.0, float(shape[-2]))}


# --- words and tables ----------------------------------------------------------------------------
def _sentences(model: Any, found: Evaluation, worst: int) -> Iterator[str]:
    (n, M), d, part = found.snapshots.shape, found.latents.shape[1], decoding_part(model)
    encoder = getattr(getattr(model, "model_", model), "encoder_", model)
    what = f"{_counted(n, 'snapshot')} of {_counted(M, 'cell')}; {_counted(d, 'latent coordinate')}"
    yield f"{what}; encoder: {type(encoder).__name__}; decoder: {type(part).__name__}."
    blend = getattr(part, "best_decoder_", part)
    if isinstance(blend, randsmap.BlendedDecoder):
        names = [type(each).__name__ for each in blend.decoders_]
        parts = " and ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        median = "the median of the fields of its parts: " if len(names) > 1 else "the field of its part: "
        yield f"The {type(part).__name__} gives {median}{parts} (listed below)."
    mean, highest = percent(found.l2.mean()), percent(found.l2[worst])
    yield f"Relative L2 error: {mean} in the mean, at most {highest} (row {worst})."
    what, bounds = part.invariants_.in_words if hasattr(part, "invariants_") else ("its invariants", "")
    largest = found.invariants.max()
    if not found.n_invariants:
        yield f"The model enforces no invariants; the largest relative error of the mass is {percent(largest)}."
    elif largest < 1e-8:
        yield f"The model conserves {what}: the largest relative error is {largest:.2g}."
    else:
        yield f"The model conserves {what} of its training fields; the snapshots differ by {percent(largest)}."
    low, decoded_low, high, decoded_high = found.ranges
    kept = f", which the model bounds: {bounds}" if bounds else ""
    yield f"Values: {low:.4g} to {high:.4g} in the snapshots, {decoded_low:.4g} to {decoded_high:.4g} decoded{kept}."
    folded = folds_in_words(model, found.snapshots)
    if folded is not None:
        yield f"{folded[0].upper()}{folded[1:]}."
    if found.leverage is not None:
        beyond = int(np.count_nonzero(found.leverage > found.limit))
        who = _counted(beyond, "snapshot") if beyond else "No snapshot"
        examined = "" if len(found.leverage) == n else f" of {len(found.leverage)} that were examined"
        verb = "lies" if beyond <= 1 else "lie"
        yield f"{who}{examined} {verb} beyond the leverage limit {found.limit:.3g}, where fields are extrapolated."


def _error_bar(model: Any, found: Evaluation, parameters: Any) -> Iterator[str]:
    """How often the error bar holds for the snapshots, if the model has one that does not take minutes."""
    quick = getattr(model, "calibrated_", None) or leverage_cost(decoding_part(model)) <= 1e12
    if quick and hasattr(model, "error_bar_") and hasattr(model, "leverage_points"):
        points = model.leverage_points(found.latents if parameters is None else parameters)
        bar = model.error_bar_.at(points, 0.9)
        widths = f"{percent(np.median(bar))} in the median, {percent(bar.max())} at most"
        share = f"It holds for {np.mean(found.l2 <= bar):.0%} of these snapshots."
        yield f"Error bar for 90 % of new snapshots: {widths}. {share}"


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
        texts = percents(figures) if name.startswith("relative") else [f"{figure:.3g}" for figure in figures]
        rows.append((name, *texts, str(row)))
    return rows


def _worst_table(found: Evaluation, labels: NDArray[Any] | None) -> _Table:
    worst = np.argsort(-found.l2, kind="stable")[:_MOST_ROWS]
    columns = [("row", *map(str, worst))]
    if labels is not None:
        columns.append(("group", *map(_cut, labels[worst])))
    columns += [("L2 error", *percents(found.l2[worst])), ("Linf error", *percents(found.linf[worst]))]
    header = "mass error" if found.conserved == "mass" else "invariants’ error"
    columns.append((header, *(f"{error:.1e}" for error in found.invariants[worst])))
    if found.leverage is not None:
        leverage = {row: f"{value:.3g}" for row, value in zip(found.examined, found.leverage)}
        columns.append(("leverage", *(leverage.get(row, "") for row in worst)))
    latents = found.latents[worst, :6].T
    columns += [(f"z{k}", *(f"{y:.4g}" for y in values)) for k, values in enumerate(latents, 1)]
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


def settings(model: Any) -> Iterator[tuple[str, _Table]]:
    """(what it is, class, [(name, value)]) of the model and all fitted parts of it."""
    for attribute, name in _PARTS.items():
        part = getattr(model, attribute, None)
        if hasattr(part, "get_params"):
            rows: _Table = [("", "value"), *((_NAMED.get((type(part).__name__, k), k), v) for k, v in _changed(part))]
            found = {text: getattr(part, key, None) for key, text in _FOUND.items()}
            show = {_FOUND["held_out_error_"]: percent}
            rows += [(k, show.get(k, _value)(v)) for k, v in found.items() if v is not None and np.size(v)]
            rows += [(f"part {k}", _value(each)) for k, each in enumerate(getattr(part, "decoders_", ()), 1)]
            yield f"{name}: {type(part).__name__}", rows
            yield from settings(part)


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
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _trials(decoder: Any) -> tuple[int, _Table] | None:
    """(number of all, header and the best rows) of the record of a search; None where there is none."""
    results = getattr(decoder, "results_", None)
    if results is None:
        return None
    best = np.argsort(results["score"], kind="stable")[:_MOST_ROWS]
    columns, unused = [], {"degree": -1, "n_neighbors": 0, "rank": 0}  # values of families without this parameter
    for name, values in results.items():
        values = np.asarray(values)
        if len(np.unique(values)) > 1 or name in ("family", "error"):
            show = percent if name == "error" else _value
            texts = ("" if value == unused.get(name) else show(value).replace("nan", "") for value in values[best])
            columns.append((name, *texts))
    return len(results["score"]), list(zip(*columns))


# --- pages from templates ---------------------------------------------------------------------------
def picture(title: str, caption: str, *figures: Any) -> dict[str, Any]:
    """A picture as the templates take it, of one figure, or of one for broad and one for narrow pages."""
    kinds = ("",) if len(figures) == 1 else ("broad", "narrow")
    return {"title": title, "caption": caption, "images": list(map(_image, figures, kinds)), "figure": figures[0]}


def drawn(
    pictures: Callable[[], Iterable[dict[str, Any]]], folder: str | os.PathLike[str] | None = None
) -> list[dict[str, Any]] | None:
    """The pictures, which are also written to a folder for print; None if matplotlib, with its Pillow, is missing."""
    try:
        shown = list(pictures())
        with plotting.style() if folder is not None else contextlib.nullcontext():
            for each in pictures() if folder is not None else ():
                path = Path(folder or "", re.sub(r"\W+", "-", each["title"].lower()).strip("-") + ".pdf")
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, partial(each["figure"].savefig, format="pdf"))
        return shown
    except ImportError:
        return None


def _image(figure, kind):
    """A PNG on the page, with a palette: base64, pixels, width in inches and class of its element."""
    from PIL import Image  # matplotlib cannot do without it

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, facecolor="white")
    file.seek(0)
    with Image.open(file) as picture:
        # a palette takes a third of the bytes and makes no difference to the eye
        small = picture.convert("RGB").quantize(255, dither=Image.Dither.NONE)
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    data, inches = base64.b64encode(file.getvalue()).decode(), float(figure.get_size_inches()[0])
    return {"data": data, "width": small.width, "height": small.height, "inches": inches, "kind": kind}


def page_template(package: str, name: str) -> Any:
    """A template of a package, which may extend and import those of `randsmap.reports`; ImportError without jinja2."""
    try:
        import jinja2
    except ImportError:
        raise ImportError("reports need jinja2: pip install 'randsmap[studies]'") from None
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in (package, "randsmap.reports")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["numbers"] = _unbroken
    return environment.get_template(name)


def write_page(path: str | os.PathLike[str], template: Any, **content: Any) -> Path:
    """Write a page, whole or not at all; its folder is made if missing. `content` has the names of the template."""
    # nothing that identifies the machine
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    cores = f"{os.cpu_count()} cores ({randsmap.get_num_threads()} used), Python {platform.python_version()}"
    machine = f"Written on {platform.system()} {platform.machine()} with {cores}, {packages}."
    text = template.render(machine=machine, **content)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))
    return path


def _unbroken(text):
    """Escaped text with numbers such as 8.9e-16 that no browser breaks behind the hyphen."""
    from markupsafe import Markup, escape

    return Markup(_POWER.sub(r'<span class="number">\g<0></span>', str(escape(text))))  # noqa: S704  (escaped)


def percents(errors: Iterable[float | None]) -> list[str]:
    """Relative errors in per cent, with decimals that give the smallest three digits; "" for None."""
    shown = [None if error is None else 100 * float(error) for error in errors]
    # four decimals are enough; a value that would become 0 keeps significant digits
    sizes = [abs(value) for value in shown if value is not None and 1e-3 < abs(value) < math.inf]
    decimals = min(max(2 - math.floor(math.log10(min(sizes, default=1.0))), 0), 4)
    styles = (".2g" if value and abs(value) < 10.0**-decimals else f".{decimals}f" for value in shown)
    return ["" if value is None else f"{value:{style}} %" for value, style in zip(shown, styles)]


def percent(error: float) -> str:
    """A relative error in words: "3.14 %"."""
    return percents([error])[0]


public(globals())
