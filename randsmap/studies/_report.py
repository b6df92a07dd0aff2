"""Reports of studies: one HTML file each, and an index over several, from the pages in ``templates``.

Without matplotlib they have no pictures. A picture whose arrays a study lacks is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from randsmap import plotting
from randsmap.reports import NARROW, WIDE, drawn, page_template, percent, picture, write_page
from randsmap.studies import _result
from randsmap.studies._claims import FAILS, HOLDS, UNKNOWN, Claim, judge
from randsmap.studies._result import StudyResult, best_rows, case_text, documented, features_text, slot

REPORT, INDEX = "report.html", "index.html"
# the verdicts in the order of the page, and their classes in the style sheet
_KINDS = {FAILS: "bad", UNKNOWN: "open", HOLDS: "good"}
# from the palette of Okabe and Ito, which colour-blind readers can distinguish
OURS, THEIRS = "#0072B2", "0.45"
# beginnings of the decoders' labels, and the colour of that kind where they share a panel
KINDS = {
    ("RANDSMAP", "RFNN"): "#0072B2",
    ("Kernel",): "#D55E00",
    ("DDM",): "#009E73",
    ("k-NN",): "#000000",
    ("POD", "Quadratic"): "#CC79A7",
}
OTHER_KIND, TUNED_ENCODER = "#E69F00", "#56B4E9"
_OF_KINDS = "the best decoder of each kind (the others are in the tables)"
_OVERVIEW = (
    ("test", "rel_l2", "relative L2 error, test"),
    ("test", "conservation", "relative mass error, test"),
    ("test", "seconds", "inference time (s)"),
)
_SMALL = (5.0, 3.9)  # inches of a picture that shares its row of the page
_LEGEND = {"fontsize": "small", "frameon": False, "ncols": 2}


@documented
def write_report(
    result: StudyResult, folder: str | os.PathLike[str], figures: str | os.PathLike[str] | None = None
) -> Path:
    """Write the report of a study into a folder.

    {result} {folder} {figures} {returns_page} {raises_import} {example}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     studies.write_report(result, folder).name
    'report.html'
    """
    claims = judge([result], missing=False)
    return write_page(
        Path(folder) / REPORT,
        page_template("randsmap.studies", REPORT),  # an error is raised before the pictures are drawn
        title=result.title,
        result=result,
        sentences=sentences(result, claims),
        parts=[
            {
                "name": f"N = {part[1:]}",
                "summary": _result.summary_text(result.part_rows(part)),
                "tables": [
                    (title, _result.table_text(rows)) for title, rows in _result.split_tables(result.part_rows(part))
                ],
                "pictures": drawn(partial(part_pictures, result, part), figures),
            }
            for part in result.part_names
        ],
        verdicts=_by_verdict(claims),
        legend=_result.legend(result.rows),
        edges=_edges(result),
    )


def _by_verdict(claims: Sequence[Claim]) -> list[tuple[str, str, list[Claim]]]:
    """(verdict, class, its claims), the claims that do not hold first."""
    parts = [(word, kind, [claim for claim in claims if claim["verdict"] == word]) for word, kind in _KINDS.items()]
    return [part for part in parts if part[2]]


@documented
def write_index(results: Sequence[StudyResult], folder: str | os.PathLike[str]) -> Path:
    """Write an index over several studies, with the verdicts on the paper's claims over all of them.

    Parameters
    ----------
    {results}
    folder : path
        The folder that holds the studies' folders. Reports are linked if they are there.

    {returns_page} {raises_import} {example}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     studies.write_index([result], folder).name
    'index.html'
    """
    folder = Path(folder)
    return write_page(
        folder / INDEX,
        page_template("randsmap.studies", INDEX),
        title="The paper’s studies, run again",
        results=results,
        verdicts=_by_verdict(judge(results)),
        rows=[(result.title, _link(result, folder), result.section, *_summary(result)) for result in results],
    )


def _edges(result):
    """The tuned values at the boundary of their grid."""
    return [
        f"{case_text(*slot(row))}, N = {row['n_train']}: "
        f"{(row['parameter'] or 'value').removeprefix('features__')} = {row['hyperparameter']:.4g}"
        for row in result.rows
        if row["on_edge"] and row["split"] == result.rows[0]["split"]
    ]


def _best(rows, quantity="rel_l2"):
    """Best test error, and the decoder that has it, in words; "" if no row has one."""
    best = best_rows(rows, quantity)
    return f"{percent(best[0][f'{quantity}_median'])} ({case_text(*slot(best[0]))})" if best else ""


def _largest_mass_error(rows, kind, closed_form=False):
    """Largest mass error of decoders of a kind, in the paper's closed form or not, in words; "" if there is none."""
    of_kind = [row for row in rows if row["decoder"].startswith(kind)]
    errors = [row["conservation_median"] for row in of_kind if row["decoder"].endswith("-training") == closed_form]
    known = [error for error in errors if error is not None]
    return f"{max(known):.1e}" if known else ""


def sentences(result, claims):
    """Summary of the study, a sentence each."""
    found = []
    for part in result.part_names:
        size = f"N = {part[1:]}: " if len(result.part_names) > 1 else ""
        rows = result.part_rows(part, "test")
        if best := _best(rows):
            text = f"{size}Best test error: {best}"
            known, theirs = _best([row for row in rows if not row["extra"]]), _best(rows, "paper_rel_l2")
            text += f"; of the paper's decoders: {known}" if known not in ("", best) else ""
            found.append(f"{text}. The paper reports {theirs}." if theirs else f"{text}.")
    if exact := _largest_mass_error(result.rows, "RANDSMAP"):
        text = f"Relative mass error: RANDSMAP {exact}"
        if printed := _largest_mass_error(result.rows, "RANDSMAP", closed_form=True):
            text += f", in the paper's closed form {printed}"
        if plain := _largest_mass_error(result.rows, "RFNN"):
            text += f", RFNN {plain}"
        found.append(f"{text}.")
    if claims:
        holds, fails, unknown = (sum(claim["verdict"] == word for claim in claims) for word in (HOLDS, FAILS, UNKNOWN))
        of_claims = f"Of {len(claims)} claims of the paper {holds} hold by these figures"
        found.append(f"{of_claims}, {fails} do not, {unknown} cannot be compared.")
    return found


def _summary(result):
    """Cells of the index: lowest test error, conservation, edges, runs."""
    options = result.options
    runs = f"{options['runs']} runs, seed {options['seed']}{', quick' if options['quick'] else ''}"
    return _best(result.rows), _largest_mass_error(result.rows, "RANDSMAP"), str(len(_edges(result))), runs


def _link(result, folder):
    """Address of the report relative to the index; None if it is not there."""
    for place in (folder / result.name, *sorted(folder.glob(f"{result.name}-*"))):
        try:
            command = json.loads((place / "result.json").read_text())["command"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if command == result.command and (place / REPORT).is_file():
            return quote(f"{place.name}/{REPORT}")
    return None


# --- pictures -------------------------------------------------------------------------------------------
def part_pictures(result: StudyResult, part: str) -> Iterator[dict[str, Any]]:
    """The pictures of one training size, each with "folded" if it is one of the details."""
    arrays = {key.removeprefix(f"{part}/"): array for key, array in result.arrays.items() if key.startswith(f"{part}/")}
    dataset, size = result.rows[0]["dataset"], f", N = {part[1:]}" if len(result.part_names) > 1 else ""
    points, details = _reconstructed_points(arrays, dataset), _ddm_map(arrays)
    if "field/truth" in arrays:
        points, details = _one_field(arrays, dataset), chain(points, _error_against_intrinsic(arrays), details)
    shown = chain(_errors_and_times(result.part_rows(part)), _data_and_embedding(arrays, dataset), points)
    for folded, pictures in ((False, shown), (True, details)):
        yield from ({**each, "title": each["title"] + size, "folded": folded} for each in pictures)


def _errors_and_times(rows):
    """Errors and times of all decoders, one row per decoder, ours next to the paper's."""
    slots = [key for best in best_rows(rows) for key in dict.fromkeys(map(slot, rows)) if key[0] == best["decoder"]]
    theirs = any(row[f"paper_{quantity}_median"] is not None for row in rows for _, quantity, _ in _OVERVIEW)
    masses = any(row["conservation_median"] is not None for row in rows)
    panels = [panel for panel in _OVERVIEW if masses or panel[1] != "conservation"]
    yield picture(
        "Errors and times of all decoders",
        "Best test error on top. Medians over the runs, with bars from 5 to 95 % of them."
        + (" The paper's times are of its own machine." if theirs else ""),
        _overview(rows, slots, panels, WIDE, theirs),
        _overview(rows, slots, [panels[0], panels[-1]], NARROW, theirs),
    )
    yield from _accuracy_against_time(rows)


def _overview(rows, slots, panels, width, theirs):
    # a ring about the dot: neither hides the other if they agree
    ring = {"markerfacecolor": "none", "markersize": 7, "elinewidth": 0.7, "color": THEIRS, "zorder": 2}
    dot = {"markersize": 4, "elinewidth": 1.2, "color": OURS, "zorder": 3}
    figure = plotting.new_figure((width, 0.19 * len(slots) + 1.5))  # a line of small text is 0.19 inches high
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    place = {key: k for k, key in enumerate(slots)}
    banded = list(dict.fromkeys(label for label, _ in slots))[1::2]
    for ax, (split, quantity, name) in zip(axes, panels):
        shown = [row for row in rows if row["split"] == split and slot(row) in place]
        heights = [place[slot(row)] for row in shown]
        marks = [_marks(ax, shown, heights, quantity, **dot)]
        marks += [_marks(ax, shown, heights, f"paper_{quantity}", **ring)] if theirs else []
        ax.set_xscale("log")
        plotting.plain_decades(ax.xaxis, 5 if width == WIDE else 3)
        ax.set_xlabel(name if width == WIDE else name.replace(" error, ", "\nerror, ").replace(" (", "\n("))
        ax.tick_params(labelsize="small")
        ax.tick_params(axis="y", length=0)
        ax.grid(True, axis="x", color="0.92")
        for (label, _), y in place.items():
            if label in banded:
                ax.axhspan(y - 0.5, y + 0.5, color="0.96", zorder=0)
        ax.set_axisbelow(True)
    names = [  # the name of each decoder, once
        features_text(fraction) if before == label else case_text(plotting.plain(label), fraction)
        for (before, _), (label, fraction) in pairwise([(None, None), *slots])
    ]
    axes[0].set_yticks(range(len(slots)), names)
    axes[0].set_ylim(len(slots) - 0.5, -0.5)
    figure.legend(marks, ("ours", "the paper's")[: len(marks)], loc="outside upper left", **_LEGEND)
    return figure


def _accuracy_against_time(rows):
    """Test error against the time to decode the test set; a line joins the decoders that no other beats in both."""
    known = [row for row in rows if row["split"] == "test" and row["rel_l2_median"] and row["seconds_median"]]
    if not known:
        return
    (figure, ax), front, kinds = plotting.new_axes(_SMALL), [], {}
    for row in sorted(known, key=lambda row: (row["seconds_median"], row["rel_l2_median"])):
        at = row["seconds_median"], row["rel_l2_median"]
        of_kind = ((", ".join(starts), c) for starts, c in KINDS.items() if row["decoder"].startswith(starts))
        kind, color = next(of_kind, ("others", OTHER_KIND))
        kinds[kind] = ax.plot(*at, "o", color=color, markersize=4)[0]
        if not front or at[1] < front[-1][1]:
            front.append((*at, plotting.plain(case_text(*slot(row)))))
    ax.step(*list(zip(*front))[:2], where="post", color="0.6", linewidth=0.8, zorder=1)
    ax.set(xscale="log", yscale="log", xlabel="inference time (s)", ylabel="relative L2 error, test")
    ax.margins(0.12)
    figure.legend(kinds.values(), kinds, loc="outside upper center", **_LEGEND)
    named = list[float]()  # heights of the named points in the axes: names must not overlap
    for time, error, name in reversed(front):
        x, y = ax.transLimits.transform(ax.transScale.transform((time, error)))
        if all(abs(y - other) > 0.07 for other in named):
            named.append(y)
            place = {"xytext": (-4, -4), "ha": "right", "va": "top"} if x > 0.35 else {"xytext": (3, 3)}
            ax.annotate(name, (time, error), textcoords="offset points", fontsize="x-small", **place)
    for axis in (ax.xaxis, ax.yaxis):
        plotting.plain_decades(axis)
    caption = "Median error and time of each decoder. The line joins those that no other decoder beats in both."
    yield picture("Accuracy against time", caption, figure)


def _marks(ax, rows, heights, quantity, **style):
    """Medians with bars to their percentiles, where there are any."""
    figures = [[row[f"{quantity}_{name}"] for name in _result.PERCENTILES] for row in rows]
    middle, low, high = np.array(figures, dtype=float).T  # None becomes NaN, which is not drawn
    bars = np.maximum([middle - low, high - middle], 0)
    return ax.errorbar(np.maximum(middle, 1e-17), heights, xerr=bars, fmt="o", **style)


# --- points --------------------------------------------------------------------------------------
def _decoded(arrays, *keys):
    """[(title, colour, array of each key)] of the decoders that have them: of each kind the one of least mean error."""
    best = {}
    for label in arrays.get("decoders", np.array([])).tolist():
        found = [arrays.get(f"decoder/{label}/{key}") for key in ("errors", *keys)]
        if any(array is None for array in found):
            continue
        error, color = float(found[0].mean()), TUNED_ENCODER
        if not label.endswith("-encoder"):
            color = next((color for starts, color in KINDS.items() if label.startswith(starts)), OTHER_KIND)
        if color not in best or error < best[color][0]:
            fraction = float(arrays.get(f"decoder/{label}/features_per_sample", np.nan))
            title = case_text(label, None if np.isnan(fraction) else fraction)
            best[color] = error, (title, color, *found[1:])
    return [shown for _, shown in sorted(best.values(), key=lambda pair: pair[0])]


def _view(ax, dataset):
    """A roll is seen along its axis, whose name and numbers would cover others; all else as usual."""
    ax.locator_params(nbins=4)
    if dataset == "swiss_roll":
        ax.set(zticks=[], zlabel="")
    ax.view_init(**({"elev": 80, "azim": -90} if dataset == "swiss_roll" else {"elev": 30}))


def _data_and_embedding(arrays, dataset):
    color, label = arrays.get("train/color"), str(arrays.get("color_name", "")).replace("(angle)", "(rad)")
    label += " (rad)" if label == "angle" else ""
    for key, title in (("points", "Training data"), ("latents", "Embedding of the training data")):
        points = arrays.get(f"train/{key}", np.empty((0, 0)))
        d, dimension = points.shape[1], min(points.shape[1], 3)
        if d < 2:
            continue
        names = arrays["point_names"] if key == "points" else [f"$z_{k + 1}$" for k in range(dimension)]
        what = f"{d} coordinates" if d == dimension else f"the first three of {d} coordinates"
        some = plotting.spread_rows(len(points), plotting.MOST_POINTS)
        figure, ax = plotting.new_axes(_SMALL, projection="3d" if dimension == 3 else None)
        style = {"label": label, "names": names, "cyclic": "(rad)" in label}
        plotting.plot_embedding(points[some, :3], None if color is None else color[some], ax=ax, **style)
        if dimension == 3:
            _view(ax, dataset)
        ax.tick_params(labelsize="small")
        for axis in (ax.xaxis, ax.yaxis, getattr(ax, "zaxis", ax.xaxis)):
            axis.label.set_size("small")
        yield picture(title, f"{title}, {what}, coloured by {label}.", figure)


def _reconstructed_points(arrays, dataset):
    truth, shown = arrays.get("test/points"), _decoded(arrays, "points", "errors")
    if truth is None or not shown:
        return
    names, columns = arrays["point_names"].tolist(), 3 if len(shown) < 6 else 4
    clouds = [("reference", truth, None), *((title, points, error) for title, _, points, error in shown)]
    figures = (
        _point_clouds(clouds, names, dataset, width, min(n, len(clouds))) for width, n in ((WIDE, columns), (NARROW, 2))
    )
    yield picture(
        "Reconstructions of the test set",
        f"In the space of {', '.join(names)}: the reference, and the reconstructions by {_OF_KINDS}, coloured by the "
        "sample's error in one scale.",
        *figures,
    )


def _point_clouds(clouds, names, dataset, width, n_columns):
    truth = clouds[0][1]
    some = plotting.spread_rows(len(truth), plotting.MOST_POINTS // 2)
    errors = np.concatenate([error for *_, error in clouds[1:]])
    positive = errors[errors > 0]
    norm = plotting.log_colors(*(np.percentile(positive, [1, 99]) if positive.size else (0.1, 1.0)))
    figure, axes = plotting.new_panels(
        len(clouds), n_columns, (width, 0.95 * min(width / n_columns, 2.6) + 0.4), subplot_kw={"projection": "3d"}
    )
    figure.get_layout_engine().set(rect=(0, 0.02, 0.96, 0.98), h_pad=0.15)  # the layout ignores z labels
    # one view for all panels, that of the reference; statistics of a bad reconstruction may lie anywhere
    # or be undefined (NaN), where negative densities make a variance negative
    low, high = np.nanmin(truth, axis=0), np.nanmax(truth, axis=0)
    margin = 0.15 * (high - low) + 1e-12
    low, high = low - margin, high + margin
    for ax, (title, points, error) in zip(axes, clouds):
        inside = some[((points[some] >= low) & (points[some] <= high)).all(axis=1)]
        colored = error is not None
        style = {"c": error[inside], "cmap": plotting.SEQUENTIAL_COLORS, "norm": norm} if colored else {"c": "0.4"}
        drawn = ax.scatter(*points[inside].T, s=4, linewidths=0, depthshade=False, **style)
        outside = len(some) - len(inside)
        title = plotting.plain(title) + (f"\n({outside} of {len(some)} not in view)" if outside else "")
        ax.set_title(title, fontsize="medium", pad=0)
        ax.set(**{f"{axis}lim": ends for axis, ends in zip("xyz", zip(low, high))})
        for name, axis in zip(names, "xyz"):
            getattr(ax, f"set_{axis}label")(name, fontsize="small", labelpad=-8)
        _view(ax, dataset)
        # one view: the reference's numbers hold for all panels
        ax.tick_params(labelsize="x-small", pad=-4, **({"labelcolor": "none"} if colored else {}))
    place = {"location": "bottom", "shrink": 0.6, "fraction": 0.04, "pad": 0.05}
    bar = figure.colorbar(drawn, ax=axes, label="relative L2 error", **place)
    plotting.plain_decades(bar.ax.xaxis)
    return figure


# --- fields and errors ---------------------------------------------------------------------------
def _one_field(arrays, dataset):
    truth = arrays["field/truth"]
    fields = {title: field for title, _, field in _decoded(arrays, "field")}
    if not fields:
        return
    x, y, mask = (arrays.get(f"field/{key}") for key in ("x", "y", "mask"))
    n_columns, options = (3, 2), {}  # of profiles and images
    if truth.ndim == 1:
        options = {"positions": x}
    elif x is not None and y is not None:
        extent = [float(np.ptp(plotting.cell_edges(centers))) or 1.0 for centers in (x, y)]
        n_columns, options = (2, 1), {"extent": extent, "mask": mask}  # of corridors
    label = f"{'intensity' if dataset == 'mri' else 'density'} (share of the total)"
    figures = (
        plotting.plot_reconstructions(truth, fields, label=label, width=w, n_columns=n, **options)
        for w, n in zip((WIDE, NARROW), n_columns)
    )
    yield picture(
        "One field of the test set",
        f"One field, and its reconstructions by {_OF_KINDS}; errors in "
        + ("the same scale." if truth.ndim == 1 else "one logarithmic scale."),
        *figures,
    )


def _error_against_intrinsic(arrays):
    shown = _decoded(arrays, "errors")
    if "test/intrinsic" not in arrays or not shown:
        return
    name, values = str(arrays["intrinsic_names"][0]), arrays["test/intrinsic"][:, 0]
    turn = "angle" in name.lower()
    if turn:
        values, name = np.rad2deg(values), f"{name} (degrees)"
    n_bins = 24  # of 15 degrees, and some 300 of the 8000 test samples of the traffic study in each
    figure, ax = plotting.new_axes(_SMALL)
    for title, color, errors in shown:
        middles, parts = plotting.in_bins(values, errors, n_bins)
        style = {"color": color, "linewidth": 1.3, "markersize": 4, "label": plotting.plain(title)}
        ax.plot(middles, [np.median(part) for part in parts], ".-", **style)
    ax.set(yscale="log", xlabel=name, ylabel="relative L2 error")
    plotting.plain_decades(ax.yaxis)
    ax.grid(True, color="0.92")
    if turn:
        ax.set_xticks([0, 90, 180, 270, 360])
    figure.legend(loc="outside upper center", **_LEGEND)
    yield picture(
        f"Error against {name}",
        f"Median of the relative L2 error of the test samples in {n_bins} intervals of {name}, of {_OF_KINDS}.",
        figure,
    )


def _ddm_map(arrays):
    errors = arrays.get("ddm/errors", np.empty((0, 0)))
    known = np.isfinite(errors) & (errors > 0)
    if not known.any():
        return
    weights, ranks, rule = arrays["ddm/weights"], arrays["ddm/ranks"], arrays.get("ddm/rule_errors")
    figure, ax = plotting.new_axes(_SMALL)
    low = errors[known].min() if rule is None else min(errors[known].min(), np.nanmin(rule))
    # errors of a singular kernel span many orders of magnitude and would leave no colours for the rest
    norm = plotting.log_colors(low, min(errors[known].max(), 10.0, 1e3 * low))
    edges = plotting.cell_edges(weights.astype(float)), np.exp(plotting.cell_edges(np.log(ranks.astype(float))))
    mesh = ax.pcolormesh(*edges, errors.T, norm=norm, cmap=f"{plotting.SEQUENTIAL_COLORS}_r", rasterized=True)
    i, j = np.unravel_index(np.argmin(np.where(known, errors, np.inf)), errors.shape)
    square = {"marker": "s", "color": "none", "markersize": 10, "markeredgewidth": 1.6, "markeredgecolor": "black"}
    marks = [(weights[i], ranks[j], f"lowest of the map: {percent(errors[i, j])}", square)]
    if rule is not None and "ddm/rule_ranks" in arrays:
        by_rule, best = arrays["ddm/rule_ranks"], int(np.nanargmin(rule))
        ax.plot(weights, by_rule, color="white", linewidth=2.5)
        ax.plot(weights, by_rule, "o-", color="#D55E00", markersize=4, linewidth=1.2, label="r by the printed rule")
        diamond = {"marker": "D", "color": "#D55E00", "markersize": 9, "markeredgecolor": "white"}
        marks.append((weights[best], by_rule[best], f"best of the rule: {percent(rule[best])}", diamond))
    if "ddm/starred" in arrays:
        star = {"marker": "*", "color": "#F0E442", "markersize": 15, "markeredgecolor": "black"}
        marks.append((*arrays["ddm/starred"], "the paper's star", star))
    caption = "Mean relative L2 validation error of DDM over its kernel's scale w2 and its number of modes r."
    for w2, r, label, style in marks:
        ax.plot(w2, r, label=label, linestyle="none", **style)
        caption += f" {label[0].upper()}{label[1:]}, at w2 = {w2:.3g} and r = {int(r)}."
    ax.set(xlabel="kernel scale w2 (of the median distance)", ylabel="number of modes r", yscale="log")
    bar = figure.colorbar(mesh, ax=ax, label="mean relative L2 error (validation)")
    for axis in (ax.yaxis, bar.ax.yaxis):
        plotting.plain_decades(axis)
    figure.legend(loc="outside upper center", **_LEGEND)
    yield picture("DDM over (w2, r)", caption, figure)
