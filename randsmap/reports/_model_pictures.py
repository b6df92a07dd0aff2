"""The pictures of a model's report, by the functions of `randsmap.plotting`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap import plotting
from randsmap.reports._evaluation import Evaluation, decoded_rows
from randsmap.reports._page import NARROW, WIDE, percent, picture

_MOST_CELLS = 1000  # of a line, or along each axis of a plane: as many as a picture has pixels
_SMALL = (5.0, 3.6)  # inches of a picture that shares its row of the page
_ERROR = "relative L2 error"


def model_pictures(
    model: Any,
    found: Evaluation,
    groups: NDArray[Any] | None,
    worst: list[int],
    shape: tuple[int, ...] | None,
    mesh: tuple[ArrayLike, ArrayLike] | None,
) -> Iterator[dict[str, Any]]:
    """The pictures one after another: errors, fields of the rows `worst`, embedding, leverage, invariants.

    `shape` is the shape of a field that is a plane, `mesh` the mesh that it lies on; both are None for a line.
    """
    yield _errors(found, groups)
    yield _fields(model, found, worst, shape, mesh)
    yield from _embeddings(found)
    if found.leverage is not None:
        yield _leverage(found)
    yield _invariants(found)


def _errors(found, groups):
    panels = [plotting.new_axes((width, 2.8)) for width in (WIDE, NARROW)]
    for _, ax in panels:
        plotting.plot_errors(found.l2, groups=groups, label=_ERROR, ax=ax)
    along = "the rows of the snapshots" if groups is None else "the rows of each group"
    return picture(
        "Errors",
        f"Errors of the decoded snapshots along {along}.",
        f"Plot of the {_ERROR} of {len(found.l2)} snapshots along {along}, from {found.l2.min():.3g} to "
        f"{found.l2.max():.3g}",
        *(figure for figure, _ in panels),
    )


def _leverage(found):
    figure, ax = plotting.new_axes(_SMALL)
    plotting.plot_leverage(found.leverage, found.l2[found.examined], limit=found.limit, ax=ax)
    return picture(
        "Errors and leverage",
        "Leverage measures how far a snapshot is from those that the decoder was fitted to. Beyond the limit a "
        "field is extrapolated.",
        f"Scatter plot of the relative L2 error of {len(found.leverage)} snapshots against their leverage",
        figure,
    )


def _invariants(found):
    title = f"Error of the {found.conserved}"
    figure, ax = plotting.new_axes(_SMALL)
    plotting.plot_errors(found.invariants, label=title.lower(), ax=ax)
    return picture(
        title,
        f"{title} of the decoded snapshots, relative to that of the snapshots, along their rows.",
        f"Plot of the {title.lower()} of {len(found.l2)} snapshots, at most {found.invariants.max():.2g}",
        figure,
    )


def _embeddings(found):
    """Latent coordinates by pairs, coloured by the row and by the error."""
    n, d = found.latents.shape
    some = np.arange(n)
    if n > plotting.MOST_POINTS:  # the largest errors among them
        n_worst = plotting.MOST_POINTS // 10
        worst = np.argpartition(-found.l2, n_worst)[:n_worst]
        some = np.union1d(plotting.spread_rows(n, plotting.MOST_POINTS - n_worst), worst)
    if d > 1:
        yield _embedding(found, some, (0, 1), np.arange(float(n)), "row")
    # of errors far below the largest nothing is to be seen but that they are
    errors = np.maximum(found.l2, 1e-6 * found.l2.max())
    for pair in [(0,)] if d == 1 else [(0, k) for k in range(1, min(d, 3))]:
        yield _embedding(found, some, pair, errors, _ERROR, log=True)


def _embedding(found, some, pair, values, label, log=False):
    """One or two latent coordinates of some snapshots, coloured by these values of all."""
    n, d = found.latents.shape
    order = some[np.argsort(values[some], kind="stable")]  # large errors above small ones
    points, names = found.latents[order][:, pair], [f"latent coordinate {k + 1}" for k in pair]
    if d == 1:
        points, names = np.column_stack([order, points]), ["row", *names]
    figure, ax = plotting.new_axes(_SMALL)
    plotting.plot_embedding(points, values[order], label=label, names=names, log=log, ax=ax)
    which = f"coordinate{'' if d == 1 else 's'} {' and '.join(str(k + 1) for k in pair)} of {d}"
    part = "" if len(some) == n else f"; {len(some)} of {n} snapshots"
    return picture(
        f"Embedding, by {'error' if log else label}",
        f"Latent {which}, coloured by the {label}{part}.",
        f"Scatter plot of latent {which} of {len(some)} snapshots, coloured by the {label}",
        figure,
    )


def _fields(model, found, worst, shape, mesh):
    """The worst fields, and one of the median error, next to their reconstructions."""
    typical = int(np.argsort(found.l2, kind="stable")[(len(found.l2) - 1) // 2])
    rows = worst if typical in worst else [*worst, typical]
    ordered = np.sort(rows)
    truth = found.snapshots[ordered]
    decoded = decoded_rows(model, found.latents[ordered], truth)
    pairs = [(truth[k], decoded[k]) for k in np.searchsorted(ordered, rows)]
    titles = [f"row {row}, {percent(found.l2[row])}" for row in rows]
    if shape is None and mesh is None:
        figures = [_lines(pairs, titles, width) for width in (WIDE, NARROW)]
    else:
        figures = [_planes(pairs, titles, shape, mesh, width) for width in (WIDE, NARROW)]
    last = "" if typical in worst else ", and last the one of the median error"
    planes = shape is not None and len(shape) > 2
    return picture(
        "Worst fields",
        f"Fields of the largest relative L2 errors, not near each other{last}: truth, decoded, and their difference."
        + (" Of the axes before the last two the middle is shown." if planes else ""),
        f"Rows {', '.join(map(str, rows))} of the snapshots, what the model makes of them, and the differences",
        *figures,
    )


def _lines(pairs, titles, width):
    """For each pair the two fields, and their difference next to them."""
    figure = plotting.new_figure((width, 1.7 * len(pairs) + 0.3))
    grid = list(figure.subplots(len(pairs), 2, squeeze=False, sharex=True, width_ratios=[3, 2]))
    for (truth, decoded), title, axes in zip(pairs, titles, grid):
        cells = _most_variable_cells(truth, decoded)
        artists = plotting.draw_compared_lines(truth[cells], decoded[cells], *axes, positions=cells)
        axes[0].set_title(title, fontsize="medium")
        for ax in axes:
            ax.set_xlabel("cell" if axes is grid[-1] else "")
            _small_ticks(ax)
    figure.legend(handles=artists, loc="outside upper left", ncols=3, fontsize="small", frameon=False)
    return figure


def _planes(pairs, titles, shape, mesh, width):
    """For each pair truth, decoded and difference next to each other."""
    if shape is None:
        across, up = np.maximum(np.ptp(np.asarray(mesh[0], dtype=float), axis=0), np.finfo(float).tiny)
        aspect, options = up / across, {"mesh": mesh}
    else:
        aspect = float(np.clip(shape[-2] / shape[-1], 0.1, 3.0))
        options = {"extent": (0.0, float(shape[-1]), 0.0, float(shape[-2]))}
    panel = min((width - 0.4) / 3, 2.2 / aspect)  # inches; at most 2.2 high, so that two rows fit on a screen
    figure = plotting.new_figure((3 * panel + 0.4, (panel * aspect + 0.9) * len(pairs)))
    grid = figure.subplots(len(pairs), 3, squeeze=False, sharex=True, sharey=True)
    for pair, title, axes in zip(pairs, titles, grid):
        fields = dict(zip(("truth", "decoded"), pair))
        if shape is not None:
            fields = {name: _coarse(field) for name, field in plotting.plot_arrays(fields, shape).items()}
        plotting.plot_comparison(**fields, ax=axes, **options)
        axes[0].set_title(f"{title}: truth", fontsize="medium")
        for ax in axes:
            _small_ticks(ax)
    return figure


def _small_ticks(ax):
    ax.tick_params(labelsize="small")
    ax.locator_params(axis="x", nbins=5)


def _most_variable_cells(truth, decoded):
    """Cells of a line that are drawn: all, or of many the extreme ones of each stretch."""
    n = len(truth)
    if n <= _MOST_CELLS:
        return np.arange(n)
    edges = np.linspace(0, n, _MOST_CELLS // 4 + 1).astype(int)
    kept = [0, n - 1]
    for values in (truth, decoded - truth):
        for pick in (np.argmin, np.argmax):
            kept += [a + int(pick(values[a:b])) for a, b in zip(edges[:-1], edges[1:])]
    return np.unique(kept)


def _coarse(field):
    """A plane of no more cells than can be seen."""
    rows, columns = (-(-size // _MOST_CELLS) for size in field.shape)
    return field[::rows, ::columns]
