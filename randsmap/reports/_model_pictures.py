"""The pictures of a model's report, by the functions of `randsmap.plotting`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap import plotting
from randsmap.reports._evaluation import Evaluation, decoded_rows
from randsmap.reports._page import NARROW, WIDE, Picture, percent

__all__ = ["model_pictures"]

_MOST_POINTS = 2000  # of an embedding: more only cover one another
_MOST_CELLS = 1000  # of a line, or along each axis of a plane
_TALLEST = 2.2  # inches of a plane
_ERROR = "relative L2 error"


def model_pictures(
    model: Any,
    found: Evaluation,
    groups: NDArray[Any] | None,
    worst: list[int],
    shape: tuple[int, ...] | None,
    mesh: tuple[ArrayLike, ArrayLike] | None,
) -> Iterator[Picture]:
    """The pictures one after another: errors, worst fields, embedding, leverage, invariants.

    Parameters
    ----------
    model : fitted model
    found : Evaluation
    groups : ndarray (n,) or None
    worst : list of int
        Rows of the fields of the largest errors that are shown.
    shape, mesh
        Of a field that is a plane or lies on a mesh; both None of a line.
    """
    yield _errors(found, groups)
    yield _fields(model, found, worst, shape, mesh)
    yield from _embeddings(found)
    if found.leverage is not None:
        figure, ax = _panel()
        plotting.plot_leverage(found.leverage, found.l2[found.looked_at], limit=found.limit, ax=ax)
        yield Picture(
            "Errors and leverage",
            "Leverage says how far a snapshot is from those that the decoder was fitted to, as the fit sees it. Beyond "
            "the limit a field is a guess.",
            f"Scatter plot of the relative L2 error of {len(found.leverage)} snapshots against their leverage",
            figure,
        )
    yield _invariants(found)


def _panel(width: float = 5.0, height: float = 3.6) -> tuple[Any, Any]:
    figure = plotting.new_figure((width, height))
    return figure, figure.add_subplot()


def _errors(found: Evaluation, groups: NDArray[Any] | None) -> Picture:
    figures = []
    for width in (WIDE, NARROW):
        figure, ax = _panel(width, 2.8)
        plotting.plot_errors(found.l2, groups=groups, label=_ERROR, ax=ax)
        figures.append(figure)
    along = "the rows of the snapshots" if groups is None else "the rows of each group"
    return Picture(
        "Errors",
        f"Errors of the decoded snapshots along {along}.",
        f"Plot of the {_ERROR} of {len(found.l2)} snapshots along {along}, from {found.l2.min():.3g} to "
        f"{found.l2.max():.3g}",
        *figures,
    )


def _invariants(found: Evaluation) -> Picture:
    name = "invariants" if found.kept and found.n_invariants > 1 else "mass"
    figure, ax = _panel()
    plotting.plot_errors(found.invariants, label=f"error of the {name}", ax=ax)
    return Picture(
        f"Error of the {name}",
        f"Error of the {name} of the decoded snapshots, relative to that of the snapshots, along their rows.",
        f"Plot of the error of the {name} of {len(found.l2)} snapshots, at most {found.invariants.max():.2g}",
        figure,
    )


def _embeddings(found: Evaluation) -> Iterator[Picture]:
    """Latent coordinates by pairs, coloured by the row and by the error."""
    n, d = found.latents.shape
    some = np.arange(n)
    if n > _MOST_POINTS:  # the largest errors among them
        worst = np.argpartition(-found.l2, _MOST_POINTS // 10)[: _MOST_POINTS // 10]
        some = np.union1d(np.linspace(0, n - 1, _MOST_POINTS - len(worst)).round().astype(int), worst)
    pairs = [(0,)] if d == 1 else [(0, k) for k in range(1, min(d, 3))]
    # of errors far below the largest nothing is to be seen but that they are
    colors = [(np.maximum(found.l2, 1e-6 * found.l2.max()), _ERROR, True)]
    if d > 1:
        colors.insert(0, (np.arange(float(n)), "row", False))
    for values, label, log in colors:
        for pair in pairs if log else pairs[:1]:
            figure, ax = _panel()
            names = [f"latent coordinate {k + 1}" for k in pair]
            order = some[np.argsort(values[some], kind="stable")]  # large errors above small ones
            points = found.latents[order][:, pair]
            if d == 1:
                points, names = np.column_stack([order, points]), ["row", *names]
            plotting.plot_embedding(points, values[order], label=label, names=names, log=log, ax=ax)
            which = f"coordinate{'' if d == 1 else 's'} {' and '.join(str(k + 1) for k in pair)} of {d}"
            yield Picture(
                f"Embedding, by {'error' if log else label}",
                f"Latent {which}, coloured by the {label}"
                + ("" if len(some) == n else f"; {len(some)} of {n} snapshots")
                + ".",
                f"Scatter plot of latent {which} of {len(some)} snapshots, coloured by the {label}",
                figure,
            )


def _fields(
    model: Any,
    found: Evaluation,
    worst: list[int],
    shape: tuple[int, ...] | None,
    mesh: tuple[ArrayLike, ArrayLike] | None,
) -> Picture:
    """The worst fields, and one of the median error, beside their reconstructions."""
    typical = int(np.argsort(found.l2, kind="stable")[(len(found.l2) - 1) // 2])
    rows = worst if typical in worst else [*worst, typical]
    ordered = np.sort(rows)
    decoded = dict(zip(ordered.tolist(), decoded_rows(model, found.latents[ordered])))
    truth = dict(zip(ordered.tolist(), found.fields(ordered)))
    compare, aspect = _comparison(shape, mesh)

    def draw(width: float) -> Any:
        figure, panels = _grid(width, len(rows), aspect)
        for k, (axes, row) in enumerate(zip(panels, rows)):
            artists = compare(truth[row], decoded[row], axes)
            text = f"row {row}, {percent(found.l2[row])}"
            axes[0].set_title(text if aspect is None else f"{text}: truth", fontsize="medium")
            for ax in axes:
                ax.tick_params(labelsize="small")
                ax.locator_params(axis="x", nbins=5)
                if ax.get_legend() is not None:
                    ax.get_legend().remove()
                if aspect is None and k < len(rows) - 1:
                    ax.set_xlabel("")
        if aspect is None:  # one legend, where it hides nothing
            figure.legend(handles=artists, loc="outside upper left", ncols=3, fontsize="small", frameon=False)
        return figure

    last = "" if typical in worst else ", and last the one of the median error"
    planes = shape is not None and len(shape) > 2
    return Picture(
        "Worst fields",
        f"Fields of the largest relative L2 errors, not near each other{last}: truth, decoded, and their difference."
        + (" Of the axes before the last two the middle is shown." if planes else ""),
        f"Rows {', '.join(map(str, rows))} of the snapshots, what the model makes of them, and the differences",
        draw(WIDE),
        draw(NARROW),
    )


def _grid(width: float, n_fields: int, aspect: float | None) -> tuple[Any, list[Any]]:
    """A figure, and for each field its axes beside each other: two of lines, three of planes."""
    if aspect is None:
        figure = plotting.new_figure((width, 1.7 * n_fields + 0.3))
        return figure, list(figure.subplots(n_fields, 2, squeeze=False, sharex=True, width_ratios=[3, 2]))
    panel = min((width - 0.4) / 3, _TALLEST / aspect)
    figure = plotting.new_figure((3 * panel + 0.4, (panel * aspect + 0.9) * n_fields))
    return figure, list(figure.subplots(n_fields, 3, squeeze=False, sharex=True, sharey=True))


def _comparison(
    shape: tuple[int, ...] | None, mesh: tuple[ArrayLike, ArrayLike] | None
) -> tuple[Callable[[NDArray[np.float64], NDArray[np.float64], Any], Any], float | None]:
    """A function (truth, decoded, axes) that draws fields, and height over width of one; None of lines."""
    if mesh is not None:
        points = np.asarray(mesh[0], dtype=float)
        width, height = np.maximum(np.ptp(points, axis=0), np.finfo(float).tiny)
        return lambda truth, decoded, ax: plotting.plot_comparison(truth, decoded, mesh=mesh, ax=ax), height / width
    if shape is None:

        def lines(truth: NDArray[np.float64], decoded: NDArray[np.float64], ax: Any) -> Any:
            cells = _telling_cells(truth, decoded)
            artists = plotting.plot_comparison(truth[cells], decoded[cells], positions=cells, ax=ax)
            for each in ax:
                each.set_xlabel("cell")
            return artists

        return lines, None
    extent = 0.0, float(shape[-1]), 0.0, float(shape[-2])

    def planes(truth: NDArray[np.float64], decoded: NDArray[np.float64], ax: Any) -> Any:
        return plotting.plot_comparison(
            *map(_coarse, plotting.plot_arrays({"truth": truth, "decoded": decoded}, shape).values()),
            extent=extent,
            ax=ax,
        )

    return planes, float(np.clip(shape[-2] / shape[-1], 0.1, 3.0))


def _telling_cells(truth: NDArray[np.float64], decoded: NDArray[np.float64]) -> NDArray[np.intp]:
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


def _coarse(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """A plane of no more cells than can be seen."""
    rows, columns = (-(-size // _MOST_CELLS) for size in field.shape)
    return field[::rows, ::columns]
