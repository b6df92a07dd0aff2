"""The figures of a study's report, from the arrays and rows of a `StudyResult`.

Each picture is a matplotlib Figure made without pyplot, as in `randsmap.plotting`. A picture whose
arrays a study lacks is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from randsmap import plotting
from randsmap.studies._result import StudyResult
from randsmap.studies._table import features_text, percent

__all__ = ["Picture", "study_pictures"]

# Okabe and Ito's colours, which the colour-blind can tell apart
COLORS = {
    "RANDSMAP-RFF": "#0072B2",
    "RANDSMAP-MS-RFF": "#009E73",
    "RANDSMAP-Sig": "#D55E00",
    "RFNN-RFF": "#0072B2",
    "RFNN-MS-RFF": "#009E73",
    "RFNN-Sig": "#CC79A7",
    "DDM": "#E69F00",
    "k-NN": "#000000",
}
SPARE_COLORS = ("#56B4E9", "#8B5A2B", "#7F7F7F", "#B2A400", "#4B0082", "#5F9EA0", "#A52A2A", "#2F4F4F")
MARKERS = {1.0: "o", 0.5: "s", 0.25: "^", None: "D"}
SPARE_MARKERS = ("X", "P", "v", "*", "<", ">", "h", "p")
N_POINTS = 1000  # at most so many points in a scatter plot: more only cover one another


@dataclass(frozen=True)
class Picture:
    """A figure with what stands below it and what it is for those who cannot see it."""

    title: str
    caption: str
    alt: str
    figure: Any
    wide: bool = False  # takes the whole width of the page


def study_pictures(result: StudyResult) -> Iterator[Picture]:
    """The pictures of a study, one after another.

    Parameters
    ----------
    result : StudyResult

    Yields
    ------
    Picture

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    for part in result.part_names:
        size = f", N = {part[1:]}" if len(result.part_names) > 1 else ""
        yield from _error_against_time(result, part, size)
        yield from _data_and_embedding(result, part, size)
        yield from _reconstructed_points(result, part, size)
        yield from _one_field(result, part, size)
        yield from _error_against_intrinsic(result, part, size)
        yield from _ddm_map(result, part, size)


def _error_against_time(result, part, size):
    rows = result.part_rows(part)
    styles = _styles(rows)
    for split, quantity, name, what in (
        ("train", "rel_l2", "mean relative L2 error", "training"),
        ("test", "rel_l2", "mean relative L2 error", "inference"),
        ("test", "rel_linf", "mean relative Linf error", "inference"),
    ):
        figure = plotting.new_figure((4.6, 3.8))
        ax = figure.add_subplot()
        theirs = set()  # several of our rows may stand beside the same one of the paper's
        for row in (row for row in rows if row["split"] == split):
            color, marker = styles[row["decoder"], row["features_per_sample"]]
            point = tuple(row.get(f"paper_{q}_median") for q in ("seconds", quantity))
            if None not in point and point not in theirs:
                theirs.add(point)
                style = {"elinewidth": 0.7, "markerfacecolor": "none", "alpha": 0.75, "zorder": 2}
                _point(ax, row, "paper_", quantity, fmt=marker, color=color, **style)
            style = {"elinewidth": 1, "markeredgecolor": "white", "markeredgewidth": 0.4, "zorder": 3}
            _point(ax, row, "", quantity, fmt=marker, color=color, **style)
        ax.set(
            xscale="log",
            yscale="log",
            xlabel=f"{what} time (s)",
            ylabel=name,
            title=f"{'Training' if split == 'train' else 'Test'} set{size}",
        )
        _plain_decades(ax.yaxis)
        ax.grid(True, which="major", color="0.9")
        ax.set_axisbelow(True)
        yield Picture(
            f"{name[0].upper()}{name[1:]} against {what} time{size}",
            "Filled: ours, with bars from 5 to 95 % of the runs in both directions."
            + (" Open: the paper's figures, on the paper's machine." if theirs else ""),
            f"Scatter plot of {name} on the {split} set against {what} time, a point a decoder and "
            "feature count; the figures are in the tables",
            figure,
        )
    yield _legend(rows, styles, size)


def _styles(rows):
    """{(decoder, P / N): (colour, marker)}; what the paper lacks gets markers of its own."""
    labels = list(dict.fromkeys((row["decoder"], bool(row.get("extra"))) for row in rows))
    spare = [label for label, _ in labels if label not in COLORS]
    styles = {}
    for row in rows:
        label, fraction = row["decoder"], row["features_per_sample"]
        if label in COLORS:
            styles[label, fraction] = COLORS[label], MARKERS.get(fraction, "d")
        else:
            base = max((known for known in COLORS if label.startswith(known)), key=len, default=None)
            k = spare.index(label)
            color = COLORS[base] if base else SPARE_COLORS[k % len(SPARE_COLORS)]
            styles[label, fraction] = color, SPARE_MARKERS[k % len(SPARE_MARKERS)]
    return styles


def _point(ax, row, whose, quantity, **style):
    """A median with bars to its percentiles, where there are any, in both directions."""
    middles, bars = [], []
    for q in ("seconds", quantity):
        middle, low, high = (row.get(f"{whose}{q}_{k}") for k in ("median", "p05", "p95"))
        middles.append(middle)
        bars.append(None if None in (low, high) else [[max(middle - low, 0)], [max(high - middle, 0)]])
    ax.errorbar(*middles, xerr=bars[0], yerr=bars[1], markersize=6, **style)


def _plain_decades(axis):
    """Labels such as 0.06 instead of 6 x 10^-2, and enough of them within one decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    if high < 8 * low:
        axis.set_major_locator(MaxNLocator(6))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _legend(rows, styles, size):
    from matplotlib.lines import Line2D

    entries = {}
    for row in rows:
        label, fraction = row["decoder"], row["features_per_sample"]
        color, marker = styles[label, fraction]
        # what has one mark for all feature counts stands once
        text = label + (_features(fraction) if label in COLORS else "")
        entries[text] = Line2D([], [], color=color, marker=marker, linestyle="none", label=text)
    n_columns = 2 if len(entries) > 12 else 1
    n_rows = -(-len(entries) // n_columns)
    figure = plotting.new_figure((4.6, max(3.8, 0.2 * n_rows + 0.3)))
    figure.legend(handles=list(entries.values()), loc="center", ncols=n_columns, fontsize=8, frameon=False)
    return Picture(
        f"Marks of the three panels{size}",
        "A colour a feature map or method, a mark a feature count.",
        "Legend: " + "; ".join(line.get_label() for line in entries.values()),
        figure,
    )


def _features(fraction):
    if fraction is None or np.isnan(fraction):
        return ""
    return f", {features_text(fraction)}"


def _get(result, part, *keys):
    """The arrays of a part, or None if one of them is not there."""
    arrays = [result.arrays.get(f"{part}/{key}") for key in keys]
    return None if any(array is None for array in arrays) else arrays


def _thinned(n, n_shown=N_POINTS):
    return np.arange(n) if n <= n_shown else np.linspace(0, n - 1, n_shown).round().astype(int)


def _data_and_embedding(result, part, size):
    color = result.arrays.get(f"{part}/train/color")
    label = str(result.arrays.get(f"{part}/color_name", ""))
    turn = result.rows[0]["dataset"] == "mri" and "angle" in label.lower()
    for key, title in (("points", "Training data"), ("latents", "Embedding of the training data")):
        points = result.arrays.get(f"{part}/train/{key}")
        if points is None or points.shape[1] < 2:
            continue
        dimension = min(points.shape[1], 3)
        if key == "latents":
            names = [f"latent coordinate {k + 1}" for k in range(dimension)]
        else:
            names = result.arrays[f"{part}/point_names"].tolist()
        what = (
            f"{dimension} coordinates" if points.shape[1] <= 3 else f"the first three of {points.shape[1]} coordinates"
        )
        some = _thinned(len(points), 2000)
        figure = plotting.new_figure((4.9, 3.9))
        ax = figure.add_subplot(projection="3d" if dimension == 3 else None)
        if dimension == 3:
            ax.view_init(elev=_elevation(result))
        colors = None if color is None else color[some]
        plotting.plot_embedding(points[some, :3], colors, label=label, names=names, cyclic=turn, ax=ax)
        ax.tick_params(labelsize=7)
        for axis in (ax.xaxis, ax.yaxis, getattr(ax, "zaxis", ax.xaxis)):
            axis.label.set_size(8)
        ax.locator_params(nbins=5)
        yield Picture(
            f"{title}{size}",
            f"{title}, {what}, coloured by {label}.",
            f"Scatter plot of {title.lower()} in {what}, coloured by {label}",
            figure,
        )


def _elevation(result):
    """A roll is seen from above, along its axis; all else as usual."""
    return 65 if result.rows[0]["dataset"] == "swiss_roll" else 30


def _decoded(result, part, *keys):
    """[(title, array of each key)] of the decoders that have them."""
    found = []
    for label in result.arrays.get(f"{part}/decoders", np.array([])).tolist():
        arrays = _get(result, part, *(f"decoder/{label}/{key}" for key in keys))
        if arrays is not None:
            size = result.arrays.get(f"{part}/decoder/{label}/features_per_sample", np.nan)
            found.append((label + _features(float(size)), *arrays))
    return found


def _reconstructed_points(result, part, size):
    from matplotlib.colors import LogNorm

    truth = result.arrays.get(f"{part}/test/points")
    shown = _decoded(result, part, "points", "errors")
    if truth is None or not shown:
        return
    names = result.arrays[f"{part}/point_names"].tolist()
    some = _thinned(len(truth))
    errors = np.concatenate([error for _, _, error in shown])
    positive = errors[errors > 0]
    low, high = np.percentile(positive, [1, 99]) if positive.size else (0.1, 1.0)
    norm = LogNorm(low, max(high, 1.01 * low))
    n_rows = -(-(len(shown) + 1) // 3)
    figure = plotting.new_figure((8.4, 2.75 * n_rows + 0.5))
    figure.get_layout_engine().set(rect=(0, 0, 0.96, 1))  # the layout knows nothing of z labels
    # one view for all panels, that of the truth; statistics of a bad reconstruction may lie anywhere
    # or be undefined (NaN), where negative densities make a variance negative
    low, high = np.nanmin(truth, axis=0), np.nanmax(truth, axis=0)
    margin = 0.15 * (high - low) + 1e-12
    box = (low - margin, high + margin)
    axes = []
    for k, (title, points, error) in enumerate([("truth", truth, None), *shown]):
        ax = figure.add_subplot(n_rows, 3, k + 1, projection="3d")
        axes.append(ax)
        ax.view_init(elev=_elevation(result))
        inside = ((points[some] >= box[0]) & (points[some] <= box[1])).all(axis=1)
        kept = some[inside]
        style = {"c": "0.4"} if error is None else {"c": error[kept], "cmap": "viridis", "norm": norm}
        drawn = ax.scatter(*points[kept].T, s=4, linewidths=0, depthshade=False, **style)
        outside = len(some) - len(kept)
        ax.set_title(title + (f"\n({outside} of {len(some)} not in view)" if outside else ""), fontsize=9, pad=0)
        ax.set(xlim=(box[0][0], box[1][0]), ylim=(box[0][1], box[1][1]), zlim=(box[0][2], box[1][2]))
        for name, set_label in zip(names, (ax.set_xlabel, ax.set_ylabel, ax.set_zlabel)):
            set_label(name, fontsize=7, labelpad=-6)
        ax.tick_params(labelsize=6, pad=-3)
        ax.locator_params(nbins=4)
    bar = figure.colorbar(
        drawn, ax=axes, label="relative L2 error", location="bottom", shrink=0.6, fraction=0.04, pad=0.02
    )
    _plain_decades(bar.ax.xaxis)
    yield Picture(
        f"Reconstructions of the test set{size}",
        f"In the space of {', '.join(names)}: the truth, then each decoder's reconstruction at its best "
        "feature count, coloured by the sample's error in one scale.",
        f"Scatter plots in three dimensions, one of the truth and one for each of {len(shown)} decoders",
        figure,
        wide=True,
    )


def _one_field(result, part, size):
    truth = result.arrays.get(f"{part}/field/truth")
    fields = dict(_decoded(result, part, "field"))
    if truth is None or not fields:
        return
    x, y, mask = (result.arrays.get(f"{part}/field/{key}") for key in ("x", "y", "mask"))
    options = {"positions": x} if truth.ndim == 1 else {}
    if truth.ndim == 2 and x is not None and y is not None:
        options = {"extent": [_length(x), _length(y)], "mask": mask}
    kind = "intensity" if result.rows[0]["dataset"] == "mri" else "density"
    figure = plotting.plot_reconstructions(truth, fields, label=f"{kind} (share of the total)", **options)
    yield Picture(
        f"One field of the test set{size}",
        "One field and what each decoder, at its best feature count, makes of it; errors in "
        + ("the same scale." if truth.ndim == 1 else "one logarithmic scale."),
        f"One field of the test set and its reconstruction and error by {len(fields)} decoders",
        figure,
        wide=True,
    )


def _length(centers):
    return float((centers[-1] - centers[0]) * len(centers) / max(len(centers) - 1, 1)) or 1.0


def _error_against_intrinsic(result, part, size):
    found = _get(result, part, "test/intrinsic", "intrinsic_names")
    shown = _decoded(result, part, "errors")
    if found is None or not shown or f"{part}/field/truth" not in result.arrays:
        return
    name = str(found[1][0])
    values = found[0][:, 0]
    if "angle" in name.lower():
        values, name = np.rad2deg(values), f"{name} (degrees)"
    n_rows = -(-len(shown) // 3)
    figure = plotting.new_figure((8.4, 1.9 * n_rows + 0.4))
    axes = figure.subplots(n_rows, 3, squeeze=False, sharex=True, sharey=True)
    some = _thinned(len(values))
    for ax, (title, errors) in zip(axes.flat, shown):
        ax.plot(values[some], errors[some], ".", markersize=2.5, color="#0072B2", rasterized=True)
        ax.axhline(errors.mean(), color="#D55E00", linewidth=1)
        ax.set_title(f"{title}\nmean {100 * errors.mean():.3g} %", fontsize=8)
        ax.grid(True, color="0.92")
        ax.tick_params(labelsize=7)
    ax.set_yscale("log")
    _plain_decades(ax.yaxis)
    if "degrees" in name:
        ax.set_xticks([0, 90, 180, 270, 360])
    used = plotting._remove_unused(axes, len(shown))
    for ax in used[-3:]:
        ax.tick_params(labelbottom=True)
        ax.set_xlabel(name, fontsize=8)
    for ax in axes[:, 0]:
        ax.set_ylabel("relative L2 error", fontsize=8)
    yield Picture(
        f"Error against {name}{size}",
        f"Relative L2 error of each test sample against {name}; the line is the mean.",
        f"Scatter plots of the error against {name}, one for each of {len(shown)} decoders",
        figure,
        wide=True,
    )


def _ddm_map(result, part, size):
    found = _get(result, part, "ddm/weights", "ddm/ranks", "ddm/errors")
    if found is None:
        return
    from matplotlib.colors import LogNorm

    weights, ranks, errors = found
    rule = _get(result, part, "ddm/rule_ranks", "ddm/rule_errors")
    figure = plotting.new_figure((4.9, 3.9))
    ax = figure.add_subplot()
    finite = errors[np.isfinite(errors) & (errors > 0)]
    if not finite.size:
        return
    low = finite.min() if rule is None else min(finite.min(), np.nanmin(rule[1]))
    # a singular kernel's errors of many orders of magnitude would leave no colours for the rest
    norm = LogNorm(low, max(min(finite.max(), 10.0, 1e3 * low), 1.01 * low))
    mesh = ax.pcolormesh(
        plotting._edges(weights.astype(float)),
        np.exp(plotting._edges(np.log(ranks.astype(float)))),
        errors.T,
        norm=norm,
        cmap="viridis_r",
        rasterized=True,
    )
    caption = "Mean relative L2 validation error of DDM over its kernel's scale w2 and its number of modes r."
    if rule is not None:
        best = int(np.nanargmin(rule[1]))
        ax.plot(weights, rule[0], color="white", linewidth=2.5)
        ax.plot(weights, rule[0], "o-", color="#D55E00", markersize=4, linewidth=1.2, label="r by the printed rule")
        ax.plot(
            weights[best],
            rule[0][best],
            "D",
            color="#D55E00",
            markersize=9,
            markeredgecolor="white",
            label=f"best of the rule: {percent(rule[1][best])}",
        )
        caption += (
            f" By the printed eigenvalue rule the best is w2 = {weights[best]:.3g} with "
            f"r = {int(rule[0][best])}: {percent(rule[1][best])}."
        )
    k = np.unravel_index(np.nanargmin(np.where(np.isfinite(errors), errors, np.inf)), errors.shape)
    ax.plot(
        weights[k[0]],
        ranks[k[1]],
        "s",
        color="none",
        markeredgecolor="black",
        markersize=10,
        markeredgewidth=1.6,
        label=f"lowest of the map: {percent(errors[k])}",
    )
    caption += f" Lowest of the map: w2 = {weights[k[0]]:.3g}, r = {int(ranks[k[1]])}: {percent(errors[k])}."
    starred = result.arrays.get(f"{part}/ddm/starred")
    if starred is not None:
        ax.plot(*starred, "*", color="#F0E442", markeredgecolor="black", markersize=15, label="the paper's star")
        caption += f" The paper's star: w2 = {starred[0]:g}, r = {int(starred[1])}."
    ax.set(xlabel="kernel scale w2 (of the median distance)", ylabel="number of modes r", yscale="log")
    _plain_decades(ax.yaxis)
    bar = figure.colorbar(mesh, ax=ax, label="mean relative L2 error (validation)")
    _plain_decades(bar.ax.yaxis)
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    yield Picture(
        f"DDM over (w2, r){size}",
        caption,
        "Colour map of the validation error of DDM over w2 and r, with the paper's star and the printed rule's points",
        figure,
    )
