"""The figures of a study's report, from the arrays and rows of a `StudyResult`.

Each is a matplotlib Figure made without pyplot, as in `randsmap.plotting`. A picture whose arrays a study lacks is left
out. Where a study has more decoders than can be told apart, the best of each kind is shown.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from randsmap import plotting
from randsmap.reports._page import NARROW, WIDE, Picture, percent
from randsmap.studies._result import StudyResult
from randsmap.studies._table import features_text

__all__ = ["detail_pictures", "main_pictures", "overview_pictures", "study_pictures"]

# of Okabe and Ito, which the colour-blind can tell apart
OURS, THEIRS = "#0072B2", "0.45"
# kinds of decoders (what their labels begin with) and their colours where they share a panel
KINDS = {
    ("RANDSMAP", "RFNN"): "#0072B2",
    ("Kernel",): "#D55E00",
    ("DDM",): "#009E73",
    ("k-NN",): "#000000",
    ("POD", "Quadratic"): "#CC79A7",
}
OTHER_KIND, TUNED_ENCODER = "#E69F00", "#56B4E9"
N_POINTS = 1000  # at most so many points in a scatter plot: more only cover one another
N_BINS = 24  # of an intrinsic coordinate
SLOT = 0.165  # inches of a row of the overview
_OVERVIEW = (
    ("test", "rel_l2", "L2 error, test"),
    ("test", "rel_linf", "Linf error, test"),
    ("test", "conservation", "mass error, test"),
    ("train", "seconds", "training time (s)"),
    ("test", "seconds", "inference time (s)"),
)
_OVERVIEW_NARROW = (_OVERVIEW[0], _OVERVIEW[-1])


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
        yield from overview_pictures(result, part)
        yield from main_pictures(result, part)
        yield from detail_pictures(result, part)


def main_pictures(result: StudyResult, part: str) -> Iterator[Picture]:
    """The data, their embedding and one field (reconstructions, of points) of a part, as far as it has them."""
    yield from _data_and_embedding(result, part, _size(result, part))
    if _has_field(result, part):
        yield from _one_field(result, part, _size(result, part))
    else:
        yield from _reconstructed_points(result, part, _size(result, part))


def detail_pictures(result: StudyResult, part: str) -> Iterator[Picture]:
    """The other pictures of a part: reconstructions of fields, errors along intrinsic coordinates, the map of DDM."""
    if _has_field(result, part):
        yield from _reconstructed_points(result, part, _size(result, part))
    yield from _error_against_intrinsic(result, part, _size(result, part))
    yield from _ddm_map(result, part, _size(result, part))


def _has_field(result, part):
    return f"{part}/field/truth" in result.arrays


def _size(result, part):
    return f", N = {part[1:]}" if len(result.part_names) > 1 else ""


def overview_pictures(result: StudyResult, part: str) -> Iterator[Picture]:
    """Errors and times of all decoders of a part, a row each, ours beside the paper's."""
    rows = result.part_rows(part)
    best: dict[str, float] = {}
    for row in rows:
        if row["split"] == "test":
            best[row["decoder"]] = min(row["rel_l2_median"], best.get(row["decoder"], np.inf))
    slots = [
        (label, fraction)
        for label in sorted(best, key=lambda label: best[label])
        for fraction in dict.fromkeys(row["features_per_sample"] for row in rows if row["decoder"] == label)
    ]
    theirs = any(row[f"paper_{quantity}_median"] is not None for row in rows for _, quantity, _ in _OVERVIEW)
    masses = any(row["conservation_median"] is not None for row in rows)
    wide = [panel for panel in _OVERVIEW if masses or panel[1] != "conservation"]
    yield Picture(
        f"Errors and times of all decoders{_size(result, part)}",
        "Best test error on top. Medians over the runs, with bars from 5 to 95 % of them."
        + (" The paper's times are of its own machine." if theirs else ""),
        f"Dot plots of test errors and times, a row for each of {len(slots)} decoders and feature counts; the figures "
        "are in the tables",
        _overview(rows, slots, wide, WIDE, theirs),
        _overview(rows, slots, _OVERVIEW_NARROW, NARROW, theirs),
    )


def _overview(rows, slots, panels, width, theirs):
    from matplotlib.lines import Line2D

    # a ring about the dot: neither hides the other where they agree
    ring = {"markerfacecolor": "none", "markersize": 7, "elinewidth": 0.7, "color": THEIRS, "zorder": 2}
    dot = {"markersize": 4, "elinewidth": 1.2, "color": OURS, "zorder": 3}
    figure = plotting.new_figure((width, SLOT * len(slots) + 0.9))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    place = {slot: k for k, slot in enumerate(slots)}
    banded = list(dict.fromkeys(label for label, _ in slots))[1::2]
    for ax, (split, quantity, name) in zip(axes, panels):
        for row in rows:
            y = place.get((row["decoder"], row["features_per_sample"]))
            if row["split"] == split and y is not None:
                _mark(ax, row, "paper_", quantity, y, **ring)
                _mark(ax, row, "", quantity, y, **dot)
        ax.set_xscale("log")
        plotting.plain_decades(ax.xaxis, 5)
        ax.set_xlabel(name, fontsize=9)
        ax.tick_params(labelsize=8)
        ax.tick_params(axis="y", length=0)
        ax.tick_params(axis="x", rotation=45)
        ax.grid(True, axis="x", color="0.92")
        for (label, _), y in place.items():
            if label in banded:
                ax.axhspan(y - 0.5, y + 0.5, color="0.96", zorder=0)
        ax.set_axisbelow(True)
    axes[0].set_yticks(range(len(slots)), [_slot_text(slots, k) for k in range(len(slots))])
    axes[0].set_ylim(len(slots) - 0.5, -0.5)
    marks = []
    for style, name in ((dot, "ours"), (ring, "the paper's"))[: 1 + theirs]:
        style = {"marker": "o", "linewidth": style["elinewidth"], **style}
        del style["elinewidth"]
        marks.append(Line2D([], [], label=name, **style))
    figure.legend(handles=marks, loc="outside upper left", ncols=2, fontsize=8, frameon=False)
    return figure


def _slot_text(slots, k):
    """The decoder's name, once, and the feature count."""
    label, fraction = slots[k]
    if fraction is None:
        return plotting.plain(label)
    count = features_text(fraction)
    return count if k and slots[k - 1][0] == label else f"{plotting.plain(label)}, {count}"


def _mark(ax, row, whose, quantity, y, **style):
    """A median with a bar to its percentiles, where there are any."""
    middle, low, high = (row.get(f"{whose}{quantity}_{k}") for k in ("median", "p05", "p95"))
    if middle is None:
        return
    bar = None if None in (low, high) else [[max(middle - low, 0)], [max(high - middle, 0)]]
    ax.errorbar(max(middle, 1e-17), y, xerr=bar, fmt="o", **style)


def _get(result, part, *keys):
    """The arrays of a part, or None if one of them is not there."""
    arrays = [result.arrays.get(f"{part}/{key}") for key in keys]
    return None if any(array is None for array in arrays) else arrays


def _features(fraction):
    return "" if fraction is None or np.isnan(fraction) else f", {features_text(fraction)}"


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
        figure = plotting.new_figure((5.0, 3.9))
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
    """[(title, colour, array of each key)] of the decoders that have them: of each kind the one of least mean error."""
    best = {}
    for label in result.arrays.get(f"{part}/decoders", np.array([])).tolist():
        found = _get(result, part, *(f"decoder/{label}/{key}" for key in ("errors", *keys)))
        if found is not None:
            error, color = float(found[0].mean()), _kind(label)
            if color not in best or error < best[color][0]:
                size = result.arrays.get(f"{part}/decoder/{label}/features_per_sample", np.nan)
                best[color] = error, (label + _features(float(size)), color, *found[1:])
    return [shown for _, shown in sorted(best.values(), key=lambda pair: pair[0])]


def _kind(label):
    """Of a decoder, as the colour that stands for it."""
    if label.endswith("-encoder"):
        return TUNED_ENCODER
    return next((color for starts, color in KINDS.items() if label.startswith(starts)), OTHER_KIND)


_OF_KINDS = "the best decoder of each kind (the others are in the tables)"


def _reconstructed_points(result, part, size):
    truth = result.arrays.get(f"{part}/test/points")
    shown = _decoded(result, part, "points", "errors")
    if truth is None or not shown:
        return
    names = result.arrays[f"{part}/point_names"].tolist()
    yield Picture(
        f"Reconstructions of the test set{size}",
        f"In the space of {', '.join(names)}: the truth, and the reconstructions by {_OF_KINDS}, coloured by the "
        "sample's error in one scale.",
        f"Scatter plots in three dimensions, one of the truth and one for each of {len(shown)} decoders",
        *(
            _point_clouds(truth, shown, names, _elevation(result), *layout)
            for layout in ((WIDE, 3 if len(shown) < 6 else 4), (NARROW, 2))
        ),
    )


def _point_clouds(truth, shown, names, elevation, width, n_columns):
    from matplotlib.colors import LogNorm

    some = _thinned(len(truth))
    errors = np.concatenate([error for *_, error in shown])
    positive = errors[errors > 0]
    low, high = np.percentile(positive, [1, 99]) if positive.size else (0.1, 1.0)
    norm = LogNorm(low, max(high, 1.01 * low))
    n_columns = min(n_columns, len(shown) + 1)
    n_rows = -(-(len(shown) + 1) // n_columns)
    figure = plotting.new_figure((width, 0.95 * min(width / n_columns, 2.6) * n_rows + 0.6))
    figure.get_layout_engine().set(rect=(0, 0, 0.96, 1))  # the layout knows nothing of z labels
    # one view for all panels, that of the truth; statistics of a bad reconstruction may lie anywhere
    # or be undefined (NaN), where negative densities make a variance negative
    low, high = np.nanmin(truth, axis=0), np.nanmax(truth, axis=0)
    margin = 0.15 * (high - low) + 1e-12
    box = (low - margin, high + margin)
    axes = []
    for k, (title, points, error) in enumerate([("truth", truth, None), *((x[0], *x[2:]) for x in shown)]):
        ax = figure.add_subplot(n_rows, n_columns, k + 1, projection="3d")
        axes.append(ax)
        ax.view_init(elev=elevation)
        inside = ((points[some] >= box[0]) & (points[some] <= box[1])).all(axis=1)
        kept = some[inside]
        style = {"c": "0.4"} if error is None else {"c": error[kept], "cmap": "viridis", "norm": norm}
        drawn = ax.scatter(*points[kept].T, s=4, linewidths=0, depthshade=False, **style)
        outside = len(some) - len(kept)
        title = plotting.plain(title)
        ax.set_title(title + (f"\n({outside} of {len(some)} not in view)" if outside else ""), fontsize=9, pad=0)
        ax.set(xlim=(box[0][0], box[1][0]), ylim=(box[0][1], box[1][1]), zlim=(box[0][2], box[1][2]))
        for name, set_label in zip(names, (ax.set_xlabel, ax.set_ylabel, ax.set_zlabel)):
            set_label(name, fontsize=8, labelpad=-8)
        # one view: the truth's numbers are everyone's
        ax.tick_params(labelsize=7, pad=-4, **({} if k == 0 else {"labelcolor": "none"}))
        ax.locator_params(nbins=4)
    place = {"location": "bottom", "shrink": 0.6, "fraction": 0.04, "pad": 0.02}
    bar = figure.colorbar(drawn, ax=axes, label="relative L2 error", **place)
    plotting.plain_decades(bar.ax.xaxis)
    return figure


def _one_field(result, part, size):
    truth = result.arrays.get(f"{part}/field/truth")
    fields = {title: field for title, _, field in _decoded(result, part, "field")}
    if truth is None or not fields:
        return
    x, y, mask = (result.arrays.get(f"{part}/field/{key}") for key in ("x", "y", "mask"))
    options = {"positions": x} if truth.ndim == 1 else {}
    if truth.ndim == 2 and x is not None and y is not None:
        options = {"extent": [_length(x), _length(y)], "mask": mask}
    kind = "intensity" if result.rows[0]["dataset"] == "mri" else "density"
    n_columns = (2, 1) if "extent" in options else (3, 2)  # of corridors; of profiles and images
    yield Picture(
        f"One field of the test set{size}",
        f"One field, and what is made of it by {_OF_KINDS}; errors in "
        + ("the same scale." if truth.ndim == 1 else "one logarithmic scale."),
        f"One field of the test set and its reconstruction and error by {len(fields)} decoders",
        *(
            plotting.plot_reconstructions(
                truth, fields, label=f"{kind} (share of the total)", width=w, n_columns=n, **options
            )
            for w, n in zip((WIDE, NARROW), n_columns)
        ),
    )


def _length(centers):
    return float((centers[-1] - centers[0]) * len(centers) / max(len(centers) - 1, 1)) or 1.0


def _error_against_intrinsic(result, part, size):
    found = _get(result, part, "test/intrinsic", "intrinsic_names")
    shown = _decoded(result, part, "errors")
    if found is None or not shown or not _has_field(result, part):
        return
    name = str(found[1][0])
    values = found[0][:, 0]
    turn = "angle" in name.lower()
    if turn:
        values, name = np.rad2deg(values), f"{name} (degrees)"
    edges = np.linspace(values.min(), values.max(), N_BINS + 1)
    bins = np.clip(np.searchsorted(edges, values, "right") - 1, 0, N_BINS - 1)
    kept = np.unique(bins)
    figure = plotting.new_figure((5.0, 3.9))
    ax = figure.add_subplot()
    for title, color, errors in shown:
        medians = [np.median(errors[bins == k]) for k in kept]
        ax.plot(
            (edges[kept] + edges[kept + 1]) / 2,
            medians,
            ".-",
            color=color,
            linewidth=1.3,
            markersize=4,
            label=plotting.plain(title),
        )
    ax.set(yscale="log", xlabel=name, ylabel="relative L2 error")
    plotting.plain_decades(ax.yaxis)
    ax.grid(True, color="0.92")
    if turn:
        ax.set_xticks([0, 90, 180, 270, 360])
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    yield Picture(
        f"Error against {name}{size}",
        f"Median of the relative L2 error of the test samples in {N_BINS} intervals of {name}, of {_OF_KINDS}.",
        f"Lines of the median error against {name}, one for each of {len(shown)} decoders",
        figure,
    )


def _ddm_map(result, part, size):
    found = _get(result, part, "ddm/weights", "ddm/ranks", "ddm/errors")
    if found is None:
        return
    from matplotlib.colors import LogNorm

    weights, ranks, errors = found
    rule = _get(result, part, "ddm/rule_ranks", "ddm/rule_errors")
    figure = plotting.new_figure((5.0, 3.9))
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
    plotting.plain_decades(ax.yaxis)
    bar = figure.colorbar(mesh, ax=ax, label="mean relative L2 error (validation)")
    plotting.plain_decades(bar.ax.yaxis)
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    yield Picture(
        f"DDM over (w2, r){size}",
        caption,
        "Colour map of the validation error of DDM over w2 and r, with the paper's star and the printed rule's points",
        figure,
    )
