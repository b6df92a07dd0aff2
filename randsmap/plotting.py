"""Pictures of fields, embeddings, errors and of the data sets; needs the extra ``plots`` (matplotlib).

Pictures of one panel are drawn into the axes `ax`, or into those of a new figure, and return matplotlib's artists;
``artist.figure`` is the figure. Pictures of several panels return a new figure. Figures are made without pyplot: no
window opens, no global state changes, and ``figure.savefig(...)`` needs no display.

Fields are lines (n_cells,), planes (ny, nx), or values on a triangular mesh. A field can be an array in its shape,
flattened (with ``shape``), the only one of an array (1, ny, nx), or an xarray DataArray. Of fields of more than two
axes the middle plane is drawn.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, as_labels
from randsmap._interface.callers import public
from randsmap._interface.fields import flattened
from randsmap._interface.parameters import check_choice, check_count, check_number, document
from randsmap._io.progress import set_while_open

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection, QuadMesh
    from matplotlib.figure import Figure

__all__ = [
    "animate_comparison",
    "plot_comparison",
    "plot_conservation",
    "plot_embedding",
    "plot_error_vs_dimension",
    "plot_errors",
    "plot_field",
    "plot_fields",
    "plot_leverage",
    "plot_reconstructions",
    "plot_space_time",
    "plot_spectrum",
    "style",
]

SEQUENTIAL_COLORS = "viridis"
_CYCLIC_COLORS = "twilight"
_DIVERGING_COLORS = "RdBu_r"
_OBSTACLE_COLOR = "0.55"
# colours of Okabe and Ito, which colour-blind readers can distinguish
_TRUTH_COLOR, _DECODED_COLOR, _ALARM_COLOR = "0.6", "#0072B2", "#D55E00"
MOST_POINTS = 2000  # points in a picture: more would cover each other

_COMPARED = ("reference", "decoded", "error")

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#56B4E9")  # of curves, by Okabe and Ito
_STYLE: dict[Any, Any] = {
    **{"font.size": 7, "axes.titlesize": 7, "axes.labelsize": 7, "legend.fontsize": 6, "figure.titlesize": 7},
    **{"xtick.labelsize": 6, "ytick.labelsize": 6, "axes.linewidth": 0.6, "lines.linewidth": 1.0, "savefig.dpi": 600},
    **{f"{axis}tick.{which}.width": 0.6 for axis in "xy" for which in ("major", "minor")},
    **{"axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42, "svg.fonttype": "none"},
}
_width: ContextVar[float | None] = ContextVar("width", default=None)  # of figures in millimetres; 0: 89 or 183

_Mesh = tuple[ArrayLike, ArrayLike]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_TEXTS = {
    "fields": """\
truth, decoded : array_like (n_cells,) or (ny, nx), or DataArray
    Fields of one shape, of which one may be flattened.""",
    "shape": """\
shape : sequence of int, default=None
    Shape of fields that are given flattened, such as a model's ``field_shape_``.""",
    "positions": "positions : array_like (n_cells,), default=None\n    Ascending centres of the cells of lines.",
    "errors": "errors : array_like (n,)\n    At least 0. Errors of 0 are drawn at half the smallest other.",
    "label": 'label : str, default "relative L2 error"\n    Name of the errors.',
    "density": 'label : str, default "density"\n    Name of the field.',
    "plane": """\
extent : (float, float), default=None
    Length and width of fields in the plane, whose first axis goes to the right and second upwards. None: they are
    grey images, row 0 on top.
mask : array_like of bool, of a field's shape, default=None
    False where there is no field, such as in an obstacle; drawn grey.""",
    "values": """\
curves : dict of str to array_like (k,)
    Singular values or eigenvalues by the names of their curves.""",
    "dimensions": "dimensions : array_like (k,)\n    Numbers of latent coordinates, ascending.",
    "distances": "distances : array_like (k,)\n    Distances of the latent points, ascending.",
    "mass_label": 'label : str, default="relative mass error"\n    Name of the errors.',
    "curves": """\
curves : dict of str to array_like (k,) or (k, m)
    Values at each place by the names of their curves. Of several values the median is drawn, with a band from 5 to
    95 %.""",
    "ax": "ax : matplotlib Axes, default=None\n    Where to draw; by default a new figure.",
    "artists": "Returns\n-------\nlist of matplotlib artists",
    "figure": "Returns\n-------\nmatplotlib.figure.Figure",
    "raises": """\
ValueError, TypeError
    If an array does not have the shape or length described, or its values are not finite or ascending where they must.
ImportError
    If matplotlib is not installed.""",
}


def _documented(function: _Function) -> _Function:
    """Fill the shared texts of a docstring; before its examples it gets the section Raises, which all have."""
    if function.__doc__:  # not under python -OO
        function.__doc__ = re.sub(r"^( *)Examples$", r"\1{raises}\n\n\1Examples", function.__doc__, flags=re.M)
    return document(function, _TEXTS)


@contextmanager
def style(width: float | None = None) -> Iterator[None]:
    """Draw and save figures as journals print them, in a ``with`` block.

    Texts have 6 and 7 points and lines are thin. PDF and SVG files keep texts as texts.

    Parameters
    ----------
    width : float or None, default=None
        Width of new figures in millimetres. None: 89 (one column), or 183 (two columns) for figures of many panels.

    Yields
    ------
    None

    Raises
    ------
    ValueError, TypeError
        If the width is no positive number.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from randsmap.plotting import plot_field, style
    >>> with style(width=89):
    ...     line = plot_field([0.0, 1.0, 0.5], label="density")
    >>> float(25.4 * line.figure.get_figwidth())
    89.0
    """
    check_matplotlib()
    from matplotlib import rc_context

    chosen = 0 if width is None else check_number(width, "width", low=0, strict_low=True)
    with set_while_open(_width, chosen), rc_context(_STYLE):
        yield


@_documented
def plot_field(
    field: ArrayLike,
    *,
    shape: Sequence[int] | None = None,
    positions: ArrayLike | None = None,
    mesh: _Mesh | None = None,
    extent: tuple[float, float, float, float] | None = None,
    origin: str = "lower",
    label: str | None = None,
    colorbar: bool = True,
    ax: Axes | None = None,
    **style: Any,
) -> Artist:
    """One field: a line, a plane or values on a mesh.

    Parameters
    ----------
    field : array_like (n_cells,) or (ny, nx), or DataArray
        The values.
    {shape}
    {positions}
    mesh : (array_like (n_points, 2), array_like (n_triangles, 3)), default=None
        Points in the plane, and triangles as the indices of three points each.
    extent : (float, float, float, float), default=None
        For planes: left, right, bottom and top in coordinates; by default numbers of cells.
    origin : {"lower", "upper"}, default "lower"
        For planes: where row 0 is. "upper" for images.
    label : str, default=None
        Name of the field, at its axis or colour bar.
    colorbar : bool, default True
        Whether planes and meshes get one.
    {ax}
    **style
        Passed to matplotlib's ``plot``, ``imshow`` or ``tripcolor``.

    Returns
    -------
    matplotlib Line2D, AxesImage, or the collection that tripcolor makes

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x = np.linspace(-1, 1, 50)
    >>> line = randsmap.plotting.plot_field(np.exp(-(x**2)), positions=x, label="density")
    >>> image = randsmap.plotting.plot_field(np.outer(x, x).ravel(), shape=(50, 50), cmap="magma")
    >>> image.figure.savefig("field.png")  # doctest: +SKIP
    """
    values, mesh = _plot_values({"field": field}, shape, mesh)
    if values.ndim == 1 and mesh is None:
        cells, name = _cells(positions, len(values))
        _, ax = new_axes((5.6, 3.2), ax)
        look = {"color": _DECODED_COLOR, "linewidth": 1.2, "marker": "o" if len(values) == 1 else ""}
        (line,) = ax.plot(cells, values, **{**look, **style})
        ax.set_xlabel(name)
        if label is not None:
            ax.set_ylabel(label)
        return line
    figure, ax = new_axes((5.6, 4.4), ax)
    style = {"cmap": SEQUENTIAL_COLORS, **style}
    drawn: Any
    if mesh is None:
        check_choice(origin, "origin", ("lower", "upper"))
        drawn = ax.imshow(values, origin=origin, **_place(extent, values.shape), **style)
        ax.set(xlabel="column" if extent is None else "x", ylabel="row" if extent is None else "y")
    else:
        points, triangles = mesh
        shading = "gouraud" if len(values) == len(points) else "flat"
        drawn = ax.tripcolor(*points.T, triangles, values, **{"shading": shading, **style})
        drawn.set_rasterized(True)  # a vector file would hold a polygon a triangle
        ax.set(aspect="equal", xlabel="x", ylabel="y")
    if colorbar:
        figure.colorbar(drawn, ax=ax, label=label)
    return drawn


@_documented
def plot_comparison(
    truth: ArrayLike,
    decoded: ArrayLike,
    *,
    shape: Sequence[int] | None = None,
    positions: ArrayLike | None = None,
    mesh: _Mesh | None = None,
    extent: tuple[float, float, float, float] | None = None,
    origin: str = "lower",
    label: str | None = None,
    ax: Axes | Sequence[Axes] | None = None,
) -> list[Artist]:
    """A reference field, the decoded field and its error, side by side.

    Parameters
    ----------
    {fields}
    shape, positions, mesh, extent, origin
        As of `plot_field`.
    label : str, default=None
        Name of the field.
    ax : matplotlib Axes, or a sequence of them, default=None
        For lines two, for the fields and for the error, or one for both. For planes and meshes three: reference and
        decoded field, in one colour scale, and the error. By default those of a new figure.

    Returns
    -------
    list of three matplotlib artists
        Of reference, decoded field and error (decoded less reference).

    Examples
    --------
    >>> from randsmap.plotting import plot_comparison
    >>> reference, decoded, error = plot_comparison([0.0, 1.0, 0.5], [0.1, 0.9, 0.5], label="density")
    """
    truth, decoded, _ = _plot_values({"truth": truth, "decoded": decoded}, shape, mesh)
    place: dict[str, Any] = {"positions": positions, "mesh": mesh, "extent": extent, "origin": origin}
    if mesh is None and truth.ndim == 1:
        left, right = _several_axes(ax, 2, (8.4, 2.8), at_least=1)
        together: dict[str, Any] = {"linestyle": "--"} if left is right else {}
        lines = [
            plot_field(truth, ax=left, color=_TRUTH_COLOR, linewidth=3, **place),
            plot_field(decoded, ax=left, **place),
            _difference(truth, decoded, ax=right, **place, **together),
        ]
        for line, name in zip(lines, _COMPARED):
            line.set_label(name)
        left.set_ylabel(label or "")
        if right is not left:
            right.set_ylabel(_COMPARED[2])
        left.legend(fontsize="small", frameon=False)
        return lines
    height, width = (1.0, 1.0) if mesh is not None else truth.shape
    if extent is not None:
        height, width = extent[3] - extent[2], extent[1] - extent[0]
    axes = _several_axes(ax, 3, (9.6, (high := float(np.clip(3 * height / width, 1.0, 4.0))) + 1.4))
    scale = {"vmin": min(truth.min(), decoded.min()), "vmax": max(truth.max(), decoded.max())}
    drawn = [
        plot_field(field, ax=panel, colorbar=False, **scale, **place) for field, panel in zip((truth, decoded), axes)
    ]
    drawn.append(_difference(truth, decoded, ax=axes[2], **place))
    for artist, panels, name in ((drawn[1], axes[:2], label), (drawn[2], axes[2:], _COMPARED[2])):
        draw_bar_below(artist, panels, name, pad=0.02, fraction=max(0.06, 0.12 / high), aspect=25 * len(panels))
    for panel, name in zip(axes, _COMPARED):
        panel.set_title(name, fontsize="medium")
    for panel in axes[1:]:
        panel.set_ylabel("")
    return drawn


@_documented
def animate_comparison(
    truth: ArrayLike,
    decoded: ArrayLike,
    times: ArrayLike | None = None,
    *,
    shape: Sequence[int] | None = None,
    mesh: _Mesh | None = None,
    **options: Any,
) -> FuncAnimation:
    """`plot_comparison` of one field after another, in one scale.

    Parameters
    ----------
    truth, decoded : array_like (n, n_cells) or (n, ny, nx), or DataArray
        Fields, one per row.
    times : array_like (n,), default=None
        Times of the rows, written above them.
    shape, mesh, **options
        As of `plot_comparison`.

    Returns
    -------
    matplotlib FuncAnimation
        Its methods ``save("fields.gif")`` and ``to_jshtml()`` (for a notebook) draw the frames.

    Examples
    --------
    >>> from randsmap.plotting import animate_comparison
    >>> film = animate_comparison([[0.0, 1.0], [1.0, 0.0]], [[0.1, 0.9], [0.9, 0.1]], times=[0.0, 0.5])
    >>> "<img" in film.to_jshtml(fps=10)
    True
    """
    check_matplotlib()
    from matplotlib.animation import FuncAnimation

    both: Any = truth, decoded
    if len(both[0]) != len(both[1]) or not len(both[0]):
        raise ValueError(f"truth and decoded must be as many fields, 1 at least, got {len(both[0])} and {len(both[1])}")
    rows = [_plot_values({"truth": row, "decoded": other}, shape, mesh)[:2] for row, other in zip(*both)]
    times = None if times is None else as_array(times, "times", (len(rows),))
    frames = np.array([(*row, row[1] - row[0]) for row in rows])
    drawn: Any = plot_comparison(*rows[0], mesh=mesh, **options)
    largest = abs(frames[:, 2]).max() or 1.0
    for part, artist in enumerate(drawn):
        ends = (frames[:, :2].min(), frames[:, :2].max()) if part < 2 else (-largest, largest)
        if hasattr(artist, "set_clim"):
            artist.set_clim(*ends)
        else:
            artist.axes.update_datalim([(0, y) for y in ends], updatex=False)
            artist.axes.autoscale_view()

    def show(k):
        for artist, values in zip(drawn, frames[k]):
            (artist.set_array if hasattr(artist, "set_array") else artist.set_ydata)(values)
        if times is not None:
            drawn[0].figure.suptitle(f"t = {times[k]:g}")

    return FuncAnimation(drawn[0].figure, show, len(frames))


def _difference(truth, decoded, ax, mesh, **style):
    """Difference of two fields: a line about 0, or neutral at 0."""
    difference = decoded - truth
    if mesh is None and difference.ndim == 1:
        ax.axhline(0, color="0.8", linewidth=0.8)
        return plot_field(difference, ax=ax, **{"color": _ALARM_COLOR, **style})
    largest = abs(difference).max() or 1.0
    scale = {"cmap": _DIVERGING_COLORS, "vmin": -largest, "vmax": largest}
    return plot_field(difference, ax=ax, mesh=mesh, colorbar=False, **scale, **style)


@_documented
def plot_spectrum(curves: Mapping[str, ArrayLike], *, ax: Axes | None = None) -> list[Artist]:
    """Decay of singular values or eigenvalues, relative to the largest.

    {values} {ax} {artists}

    Examples
    --------
    >>> from randsmap.plotting import plot_spectrum
    >>> (line,) = plot_spectrum({"POD": [3.0, 1.0, 0.1]})
    """
    ordered = {name: np.sort(_checked_errors(values, name))[::-1] for name, values in curves.items()}
    relative = {name: values / (values.max(initial=0) or 1.0) for name, values in ordered.items()}
    places = {name: np.arange(1.0, len(values) + 1) for name, values in ordered.items()}
    return _curves(ax, places, relative, "mode", "value relative to the largest")


@_documented
def plot_error_vs_dimension(
    dimensions: ArrayLike, curves: Mapping[str, ArrayLike], *, label: str = "relative L2 error", ax: Axes | None = None
) -> list[Artist]:
    """Errors against the number of latent coordinates.

    {dimensions} {curves} {label} {ax} {artists}

    Examples
    --------
    >>> from randsmap.plotting import plot_error_vs_dimension
    >>> (line,) = plot_error_vs_dimension([1, 2, 3], {"POD": [0.3, 0.1, 0.02]})
    """
    dimensions = _ascending(dimensions, "dimensions", np.size(dimensions))
    return _curves(ax, dict.fromkeys(curves, dimensions), curves, "number of latent coordinates", label)


@_documented
def plot_conservation(
    distances: ArrayLike, curves: Mapping[str, ArrayLike], *, label: str = "relative mass error", ax: Axes | None = None
) -> list[Artist]:
    """Errors of the mass, or of another invariant, against the distance from the training data.

    {distances} {curves} {mass_label} {ax} {artists}

    Examples
    --------
    >>> from randsmap.plotting import plot_conservation
    >>> exact, other = plot_conservation([1, 2, 4], {"RANDSMAP": [1e-16, 0, 1e-16], "RFNN": [1e-4, 1e-3, 0.1]})
    """
    distances = _ascending(distances, "distances", np.size(distances))
    curves = {name: np.where(np.abs(values) < 1e-17, 1e-17, values) for name, values in curves.items()}
    lines = _curves(ax, dict.fromkeys(curves, distances), curves, "distance from the training data", label)
    if len(distances) and distances[0] > 0:
        _make_logarithmic(lines[0].axes, "x", distances)
    return lines


def _curves(ax, places, curves, name, label):
    """Lines of values (k,), or medians and bands of (k, m), on a logarithmic axis, with their names."""
    if not curves:
        raise ValueError("curves must name at least one")
    _, ax = new_axes((5.0, 3.4), ax)
    lines, low = [], []
    for (title, values), color in zip(curves.items(), itertools.cycle(_COLORS)):
        if len(values := np.asarray(values, float)) != len(places[title]):
            raise ValueError(f"{title} must have {len(places[title])} rows, one for each place, got {len(values)}")
        values = _checked_errors(values.ravel(), title).reshape(len(values), -1)
        middle = _above_zero(np.median(values, axis=1))
        lines += ax.plot(places[title], middle, "o-", color=color, markersize=3, label=plain(str(title)))
        if values.shape[1] > 1:
            band = np.maximum(np.percentile(values, [5, 95], axis=1), middle.min() / 10)
            ax.fill_between(places[title], *band, color=color, alpha=0.2, linewidth=0)
        low.append(middle)
    _frame_errors(ax, np.concatenate(low), name, label)
    return lines


@_documented
def plot_errors(
    errors: ArrayLike,
    times: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    label: str = "relative L2 error",
    ax: Axes | None = None,
) -> list[Artist]:
    """Errors of fields along time or the rows of an array, on a logarithmic axis.

    Parameters
    ----------
    {errors}
    times : array_like (n,), default=None
        Times of the fields; by default the numbers of the rows, within their groups.
    groups : array_like (n,), default=None
        Labels of groups, such as trajectories: one line for each, and the one of the largest mean stands out.
    {label}
    {ax}

    {artists}
        Without groups the points (of more than 2000 fields the median and the range of 300 intervals) and the line of
        the median. With groups their lines, in the order of their labels.

    Examples
    --------
    >>> from randsmap.plotting import plot_errors
    >>> fast, slow = plot_errors([0.01, 0.02, 0.1, 0.3], groups=["slow", "slow", "fast", "fast"])
    """
    errors = _checked_errors(errors, "errors")
    if times is not None:
        times = as_array(times, "times", (len(errors),))
    _, ax = new_axes((5.6, 3.2), ax)
    heights, name = _above_zero(errors), "row"
    if groups is None:
        artists = _errors_of_rows(ax, times, heights)
    else:
        artists, name = _errors_of_groups(ax, times, heights, groups), "row of the group"
    _frame_errors(ax, heights, name if times is None else "time", label)
    return artists


@_documented
def plot_leverage(
    leverage: ArrayLike,
    errors: ArrayLike,
    *,
    limit: float | None = None,
    label: str = "relative L2 error",
    ax: Axes | None = None,
) -> list[Artist]:
    """Errors of fields against their leverage, the distance from the training points of a decoder.

    Parameters
    ----------
    leverage : array_like (n,)
        A decoder's or a model's ``leverage`` of the fields' latents. Infinite ones are left out.
    {errors}
    limit : float, default=None
        The decoder's ``leverage_limit_``: points beyond it stand out.
    {label}
    {ax}

    {artists}
        The points within the limit, those beyond it if there are any, and the line of the limit if it is given.

    Examples
    --------
    >>> from randsmap.plotting import plot_leverage
    >>> points, beyond, line = plot_leverage([0.1, 0.5, 300.0], [0.01, 0.02, 0.7], limit=100.0)
    """
    errors = _checked_errors(errors, "errors")
    leverage = np.asarray(leverage, dtype=float)
    if leverage.shape != errors.shape:
        raise ValueError(f"leverage must have length {len(errors)}, got shape {leverage.shape}")
    drawn = ~np.isposinf(leverage)
    leverage, errors = _checked_errors(leverage[drawn], "leverage"), errors[drawn]
    _, ax = new_axes((5.6, 3.6), ax)
    beyond = leverage > (np.inf if limit is None else check_number(limit, "limit", low=0))
    across, heights, size = _above_zero(leverage), _above_zero(errors), _dot_size(len(errors))
    within = {"s": size, "color": _DECODED_COLOR, "linewidths": 0, "rasterized": True}
    artists: list[Artist] = [ax.scatter(across[~beyond], heights[~beyond], **within)]
    if beyond.any():
        outer = {"s": 2 * size, "color": _ALARM_COLOR, "marker": "^", "label": f"{beyond.sum()} beyond the limit"}
        artists.append(ax.scatter(across[beyond], heights[beyond], **outer))
    if limit is not None:
        artists.append(ax.axvline(limit, color="0.3", linestyle="--", linewidth=1, label=f"limit {limit:.3g}"))
        across = np.append(across, limit)
    _make_logarithmic(ax, "x", across)
    _frame_errors(ax, heights, "leverage", label)
    return artists


@_documented
def plot_space_time(
    fields: ArrayLike,
    times: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    label: str = "density",
    ax: Axes | None = None,
) -> QuadMesh:
    """Space-time diagram of a field on a line, such as one trajectory of traffic densities.

    Parameters
    ----------
    fields : array_like (n_times, n_cells), or DataArray
        Fields on a line, one per row; further axes must have length 1.
    times : array_like (n_times,)
        Times of the rows, ascending.
    {positions}
    {density}
    {ax}

    Returns
    -------
    matplotlib QuadMesh
        Time to the right, position upwards.

    Examples
    --------
    >>> from randsmap.plotting import plot_space_time
    >>> diagram = plot_space_time([[0.2, 0.8, 0.0], [0.0, 0.2, 0.8]], times=[0.0, 0.5])
    """
    fields = plot_series(fields, "fields", 1)
    times = _ascending(times, "times", len(fields))
    cells, name = _cells(positions, fields.shape[1])
    figure, ax = new_axes((6.4, 4.0), ax)
    # rasterized: a vector file would hold a polygon a cell
    mesh = ax.pcolormesh(cell_edges(times), cell_edges(cells), fields.T, cmap=SEQUENTIAL_COLORS, rasterized=True)
    ax.set(xlabel="time t", ylabel=name)
    figure.colorbar(mesh, ax=ax, label=label)
    return mesh


@_documented
def plot_fields(
    fields: ArrayLike,
    titles: Sequence[str] | None = None,
    *,
    shape: Sequence[int] | None = None,
    extent: tuple[float, float] | None = None,
    mask: ArrayLike | None = None,
    n_panels: int = 6,
    label: str | None = None,
) -> Figure:
    """Some fields in the plane, or images, side by side in one colour scale.

    Parameters
    ----------
    fields : array_like (n, n_x, n_y) or (n, n_x * n_y), or DataArray
        Fields, in their shape or flattened; or one, (n_x, n_y), with `shape`.
    titles : sequence of str (n,), default=None
        Titles of the fields, such as times.
    {shape}
    {plane}
    n_panels : int, default 6
        Largest number of rows shown, spread evenly from the first to the last.
    label : str, default=None
        Name of the field, at its colour bar. None: no colour bar.

    {figure}

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.plotting import plot_fields
    >>> figure = plot_fields(np.ones((2, 32)), ["t = 0", "t = 1"], shape=(8, 4), extent=(20.0, 10.0), label="density")
    """
    fields = plot_series(fields, "fields", 2, shape)
    titles = [""] * len(fields) if titles is None else list(map(str, titles))
    if len(titles) != len(fields):
        raise ValueError(f"titles must have length {len(fields)}, got {len(titles)}")
    rows = spread_rows(len(fields), check_count(n_panels, "n_panels"))
    hidden, extent, aspect = _plane(mask, extent, fields.shape[1:])
    count = len(rows)
    n_columns, width = (1 + (count > 3), 4.4) if aspect < 0.6 else (min(count, 3 if count in (5, 6, 9) else 4), 2.1)
    size = width * n_columns + (label is not None), width * min(aspect, 3) + 0.4
    figure, axes = new_panels(count, n_columns, size, 0.2, sharex=True, sharey=True)
    scale = {"vmin": min(fields.min(), 0.0), "vmax": max(fields.max(), np.finfo(float).tiny)}
    drawn = [_draw_panel(ax, fields[row], titles[row], hidden, extent, **scale) for ax, row in zip(axes, rows)]
    if extent is not None:
        for ax in axes[::n_columns]:
            ax.set_ylabel("y")
        _label_lowest(axes, n_columns, "x")
    if label is not None:
        figure.colorbar(drawn[0], ax=axes, label=label, fraction=0.04, pad=0.02)
    return figure


@_documented
def plot_embedding(
    latents: ArrayLike,
    color: ArrayLike | None = None,
    *,
    label: str | None = None,
    names: Sequence[str] | None = None,
    cyclic: bool = False,
    log: bool = False,
    ax: Axes | None = None,
) -> PathCollection:
    """Points in one, two or three dimensions, coloured by a value.

    Parameters
    ----------
    latents : array_like (n, 1), (n, 2) or (n, 3)
        The points; in one dimension they are drawn over the numbers of their rows.
    color, label : array_like (n,), str, default=None
        The value that colours them, such as an error, and its name at the colour bar.
    names : sequence of str, default=None
        Names of the coordinates; by default z1, z2, z3.
    cyclic : bool, default False
        Use a cyclic colour map, for angles.
    log : bool, default False
        Use a logarithmic colour scale.
    ax : matplotlib Axes, default=None
        Where to draw (three-dimensional axes for three columns); by default a new figure.

    Returns
    -------
    matplotlib PathCollection

    Examples
    --------
    >>> from randsmap.datasets import make_swiss_roll
    >>> from randsmap.plotting import plot_embedding
    >>> roll = make_swiss_roll(300, random_state=0)
    >>> points = plot_embedding(roll.data, roll.coordinates[:, 0], label="theta")
    """
    latents = as_array(latents, "latents")
    n, dimension = latents.shape
    if dimension not in (1, 2, 3):
        raise ValueError(f"latents must have 1, 2 or 3 columns, got {dimension}")
    names = [f"$z_{k + 1}$" for k in range(dimension)] if names is None else list(names)
    if len(names) != dimension:
        raise ValueError(f"names must have length {dimension}, got {len(names)}")
    if color is not None:
        color = as_array(color, "color", (n,))
    if ax is not None and hasattr(ax, "get_zlim") != (dimension == 3):
        raise ValueError(f"ax must be {max(dimension, 2)}-dimensional for latents of {dimension} columns")
    if dimension == 1:
        latents, names = np.column_stack([np.arange(float(n)), latents]), ["row", *names]

    figure, ax = new_axes((5.6, 4.4), ax, projection="3d" if dimension == 3 else None)
    style: dict[str, Any] = {"s": _dot_size(n), "rasterized": n > 5000}
    if color is not None:
        style |= {"c": color, "cmap": _CYCLIC_COLORS if cyclic else SEQUENTIAL_COLORS}
        if log and (color > 0).any():
            norm = log_colors(color[color > 0].min(), color.max())
            style |= {"c": np.maximum(color, color[color > 0].min()), "norm": norm}
    if dimension == 3:
        style["depthshade"] = False  # colours would fade with depth
    points = ax.scatter(*latents.T, linewidths=0, **style)
    ax.set(**dict(zip(("xlabel", "ylabel", "zlabel"), names)))
    ax.locator_params(axis="x", nbins=6)
    if color is not None:
        place: dict[str, Any] = {"pad": 0.12, "shrink": 0.8} if dimension == 3 else {"pad": 0.03}
        bar = figure.colorbar(points, ax=ax, label=label, **place)
        if "norm" in style:
            plain_decades(bar.ax.yaxis)
    return points


@_documented
def plot_reconstructions(
    truth: ArrayLike,
    reconstructions: Mapping[str, ArrayLike],
    *,
    shape: Sequence[int] | None = None,
    positions: ArrayLike | None = None,
    extent: tuple[float, float] | None = None,
    mask: ArrayLike | None = None,
    label: str = "density",
    n_columns: int | None = None,
    width: float | None = None,
) -> Figure:
    """One field next to its reconstructions, with their errors.

    Parameters
    ----------
    truth : array_like (n_cells,), (n_x, n_y) or (height, width), or DataArray
        The field: a line, a field in the plane, or an image.
    reconstructions : dict of str to array_like of the same shape, or flattened
        Its reconstructions, by the titles of their panels.
    {shape}
    {positions}
    {plane}
    {density}
    n_columns : int, default=None
        Reconstructions next to each other; by default 2, for long corridors 1.
    width : float, default=None
        Width of the figure in inches.

    {figure}
        Two panels for each reconstruction: lines and their difference, or the field and its absolute error in one
        logarithmic scale of three decades.

    Examples
    --------
    >>> from randsmap.plotting import plot_reconstructions
    >>> figure = plot_reconstructions([0.0, 1.0, 0.5], {"POD": [0.1, 0.9, 0.5], "kernel": [0.0, 1.1, 0.4]})
    """
    if n_columns is not None:
        n_columns = check_count(n_columns, "n_columns")
    named: dict[str, Any] = {"truth": truth}
    fields = plot_arrays(named | {str(name): field for name, field in reconstructions.items()}, shape)
    truth = fields["truth"]
    if len(fields) == 1:
        raise ValueError("reconstructions must name at least one field")
    hidden, extent, aspect = _plane(mask, extent, truth.shape)
    if truth.ndim == 1:
        positions, name = _cells(positions, len(truth))
        return _profiles(fields, positions, name, label, n_columns or 2, width)
    return _error_maps(fields, extent, hidden, aspect, label, n_columns, width)


def _profiles(fields, positions, name, label, n_columns, width):
    n_columns = min(n_columns, n_panels := len(fields) - 1)
    n_rows = -(-n_panels // n_columns)
    size, ratios = (3.7 * n_columns, 1.55) if width is None else (width, 1.28), [5, 2] * n_rows
    figure, axes = new_panels(2 * n_rows * n_columns, n_columns, size, 0.5, sharex=True, height_ratios=ratios)
    upper, lower = np.reshape(axes, (n_rows, 2, n_columns)).swapaxes(0, 1).reshape(2, -1)
    for ax in (*upper[n_panels:], *lower[n_panels:]):
        ax.remove()
    for above, below, (title, field) in zip(upper, lower, list(fields.items())[1:]):
        if above is not upper[0]:
            above.sharey(upper[0])
            below.sharey(lower[0])
        lines = plot_comparison(fields["truth"], field, ax=(above, below), positions=positions)
        above.get_legend().remove()
        above.set_title(title, fontsize="medium" if above.figure.get_figwidth() > 5 else "small")
        for ax in (above, below):
            ax.set(xlabel="", ylabel="")
            ax.label_outer()
    _label_lowest(lower[:n_panels], n_columns, name)
    figure.supylabel(label, fontsize="medium")
    figure.legend(lines, _COMPARED, loc="outside upper center", ncols=3, fontsize="small", frameon=False)
    return figure


def _error_maps(fields, extent, hidden, aspect, label, n_pairs, full_width):
    truth = fields["truth"]
    errors = {name: abs(field - truth) for name, field in fields.items() if field is not truth}
    high = max(error[~hidden].max(initial=0) for error in errors.values())
    high = high if high > 1e-280 else 1.0  # even without errors a logarithmic scale needs a positive number
    shown = truth[~hidden]
    style = {"vmin": min(shown.min(initial=0), 0), "vmax": shown.max(initial=0) or 1}
    error_style = {"cmap": "magma", "norm": log_colors(high / 1e3, high)}
    # pairs of field and error: long corridors one per row and in one column of a journal, images two
    n_pairs = n_pairs or (1 if aspect < 0.6 or 0 < (_width.get() or 0) < 120 else 2)
    width = (3.3 if aspect < 0.6 else 2.0) if full_width is None else (full_width - 0.4) / (2 * n_pairs)
    size, text = (2 * n_pairs * width + 0.4, width * min(aspect, 2) + 0.4), "x-small" if extent is None else "medium"
    figure, axes = new_panels(2 * len(fields), 2 * n_pairs, size, 1.4, sharex=True, sharey=True)
    for (name, field), left, right in zip(fields.items(), axes[::2], axes[1::2]):
        drawn = _draw_panel(left, field, name if name in errors else _COMPARED[0], hidden, extent, text, **style)
        if name in errors:
            # values below the scale get its lowest colour instead of a hole
            error = np.maximum(errors[name], high / 1e3)
            drawn_error = _draw_panel(right, error, "absolute error", hidden, extent, text, **error_style)
    for ax in axes if extent is not None else ():
        ax.set(xlabel="x", ylabel="y")
        ax.locator_params(axis="x", nbins=4)
        ax.label_outer()
    axes.pop(1).remove()  # the reference has no error
    bar_style = {"fraction": 0.03, "pad": 0.02, "shrink": 0.6, "aspect": 40}
    draw_bar_below(drawn, axes, label, **bar_style)
    figure.colorbar(drawn_error, ax=axes, label="absolute error", location="bottom", **bar_style)
    return figure


# --- what all pictures share: figures, axes, colours ---------------------------------------------
def check_matplotlib() -> None:
    """Raise an ImportError that says what to install if there is no matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ImportError("plotting needs matplotlib: pip install 'randsmap[plots]'") from None


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of that many inches, or of the width of `style`."""
    check_matplotlib()
    from matplotlib.figure import Figure

    if (width := _width.get()) is not None:
        width = (width or (89 if size[0] < 6.5 else 183)) / 25.4
        size = width, (size[1] - 0.9) * width / size[0] + 0.63  # texts, some 0.9 of the height, shrink by 0.7
    return Figure(figsize=size, layout="constrained")


def new_axes(size: tuple[float, float], ax: Any = None, projection: str | None = None) -> tuple[Figure, Any]:
    """The axes that are given and their figure, or a new figure of that many inches and its one axes."""
    if ax is not None:
        return ax.figure, ax
    figure = new_figure(size)
    return figure, figure.add_subplot(projection=projection)


def new_panels(
    count: int, n_columns: int, size: tuple[float, float], extra: float = 0.0, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes in columns; its width, the height of a row and what is added; options of subplots."""
    n_rows = -(-count // n_columns)
    figure = new_figure((size[0], n_rows * size[1] + extra))
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False, **options).ravel())
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count]


def _label_lowest(axes, n_columns, name):
    """Name the horizontal axis at the lowest panel of each column."""
    for ax in axes[-n_columns:]:
        ax.set_xlabel(name)
        ax.tick_params(labelbottom=True)
        ax.locator_params(axis="x", nbins=5)  # so that labels of neighbouring panels do not touch


def _several_axes(ax, count, size, at_least=None):
    """`count` axes: those given (one Axes for all if `at_least` is 1), or those of a new figure."""
    if ax is None:
        return list(new_figure(size).subplots(1, count))
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(axes) == 1 == at_least:
        return axes * count
    if len(axes) != count:
        raise ValueError(f"ax must be {'1 or ' if at_least else ''}{count} axes for such fields, got {len(axes)}")
    return axes


def _draw_panel(ax, values, title, hidden=None, extent=None, size="medium", **style):
    """A titled plane: a grey image without ticks, or with `extent` (length, width) a corridor along the first axis."""
    ax.set_title(title, fontsize=size)
    if hidden is not None:
        values = np.ma.masked_array(values, hidden)
        ax.set_facecolor(_OBSTACLE_COLOR)
        style = {"interpolation": "nearest", **style}
    if extent is None:
        ax.set(xticks=[], yticks=[])
        return ax.imshow(values, **{"origin": "upper", "cmap": "gray", **style})
    place = {"origin": "lower", "extent": (0, extent[0], 0, extent[1])}
    return ax.imshow(values.T, **place, **{"cmap": SEQUENTIAL_COLORS, **style})


def draw_bar_below(artist: Any, axes: list[Axes], label: str | None, **style: Any) -> Any:
    """A colour bar below the axes, with few ticks."""
    from matplotlib.ticker import MaxNLocator

    bar = axes[0].figure.colorbar(artist, ax=axes, location="bottom", **style)
    bar.set_label(label or "", loc="left")  # the power of ten stands to the right
    numbers: Any = bar.formatter
    bar.locator, numbers.useMathText = MaxNLocator(4), True
    numbers.set_powerlimits((-2, 3))
    bar.update_ticks()
    return bar


def log_colors(low: float, high: float) -> Any:
    """A logarithmic colour scale, also where both ends are the same."""
    from matplotlib.colors import LogNorm

    return LogNorm(low, max(high, 1.01 * low))


def _plot_values(fields, shape, mesh):
    """Values of fields by their names as they are drawn, (n_cells,) or (ny, nx), and the checked mesh or None."""
    if mesh is None:
        return [*plot_arrays(fields, shape).values(), None]
    fields = plot_arrays({name: np.asanyarray(field).reshape(-1) for name, field in fields.items()})
    for name, values in fields.items():
        points_and_triangles = check_mesh(mesh, len(values), name)
    return [*fields.values(), points_and_triangles]


def check_mesh(mesh: _Mesh, n_values: int, name: str) -> tuple[NDArray[np.float64], NDArray[np.integer[Any]]]:
    """Points and triangles of a mesh that has so many points or triangles."""
    try:
        points, triangles = mesh
    except (TypeError, ValueError):
        raise ValueError("mesh must be a pair: points (n_points, 2) and triangles (n_triangles, 3)") from None
    points, triangles = as_array(points, "points of the mesh", (None, 2)), np.asarray(triangles)
    if triangles.ndim != 2 or triangles.shape[1] != 3 or triangles.dtype.kind not in "iu" or not len(triangles):
        found = f"{triangles.dtype} of shape {triangles.shape}"
        raise ValueError(f"triangles of the mesh must be integers of shape (n_triangles, 3), got {found}")
    wrong = triangles[(triangles < 0) | (triangles >= len(points))]
    if len(wrong):
        raise ValueError(f"triangles of the mesh must name its points, 0 to {len(points) - 1}, got {wrong[0]}")
    if n_values not in (len(points), len(triangles)):
        sizes = f"{len(points)} points or {len(triangles)} triangles"
        raise ValueError(f"{name} must have a value for each of {sizes} of the mesh, got {n_values}")
    return points, triangles


def _place(extent, shape):
    """Extent and aspect of an image of (ny, nx) cells: square ones, as long as neither side becomes a stripe."""
    extent = (0, shape[1], 0, shape[0]) if extent is None else extent
    left, right, bottom, top = as_array(extent, "extent", (4,)).tolist()
    if not (right > left and top > bottom):
        raise ValueError(f"extent must be left < right and bottom < top, got {(left, right, bottom, top)}")
    ratio = (top - bottom) / (right - left)
    return {"extent": (left, right, bottom, top), "aspect": "equal" if 0.1 < ratio < 10 else "auto"}


def _checked_errors(values, name):
    values = as_array(values, name, (None,))
    if not len(values):
        raise ValueError(f"{name} must have at least 1 value, got none")
    if values.min() < 0:
        raise ValueError(f"{name} must be at least 0, got {values.min():g}")
    return values


def _above_zero(values):
    """Values for a logarithmic axis: 0 is replaced by half the smallest positive value."""
    positive = values[values > 0]
    return np.maximum(values, positive.min() / 2 if len(positive) else 1e-18)


def _errors_of_rows(ax, times, errors):
    times = np.arange(float(len(errors))) if times is None else times
    median = float(np.median(errors))
    if len(errors) <= MOST_POINTS:
        artists = ax.plot(times, errors, ".", color=_DECODED_COLOR, markersize=4, label="a field")
    else:
        count = 300  # intervals: about one for each point (1/72 inch) of the axis
        middles, parts = in_bins(times, errors, count)
        low, middle, high = ([f(part) for part in parts] for f in (np.min, np.median, np.max))
        artists = [
            ax.fill_between(middles, low, high, color=_DECODED_COLOR, alpha=0.3, linewidth=0, label="range"),
            *ax.plot(middles, middle, color=_DECODED_COLOR, linewidth=1, label=f"median of {len(errors) // count}"),
        ]
    return [*artists, ax.axhline(median, color=_ALARM_COLOR, linewidth=1, label=f"median {median:.3g}")]


def in_bins(x: NDArray[Any], values: NDArray[Any], count: int) -> tuple[NDArray[np.float64], list[NDArray[Any]]]:
    """Middles of those of `count` intervals of x that are not empty, and the values in each."""
    edges = np.linspace(x.min(), x.max(), count + 1)
    bins = np.clip(np.searchsorted(edges, x, "right") - 1, 0, count - 1)
    order = np.argsort(bins, kind="stable")
    filled, first = np.unique(bins[order], return_index=True)
    return (edges[filled] + edges[filled + 1]) / 2, np.split(values[order], first[1:])


def _errors_of_groups(ax, times, errors, groups):
    groups = as_labels(groups)
    if groups.shape != errors.shape:
        raise ValueError(f"groups must have length {len(errors)}, got shape {groups.shape}")
    labels, numbers = np.unique(groups, return_inverse=True)
    rows = [np.flatnonzero(numbers == k) for k in range(len(labels))]
    worst = int(np.argmax([errors[part].mean() for part in rows]))
    others = {"color": _DECODED_COLOR, "linewidth": 0.7, "alpha": float(np.clip(8 / len(rows), 0.25, 1.0))}
    label = f"{plain(f'group {labels[worst]}')} (largest mean)"
    alarm = {"color": _ALARM_COLOR, "linewidth": 1.4, "zorder": 3, "label": label}
    names, artists = iter(["each other group"]), []
    for k, part in enumerate(rows):
        x = np.arange(float(len(part))) if times is None else times[part]
        order = np.argsort(x, kind="stable")
        style = alarm if k == worst else {**others, "label": next(names, None)}
        marker = "." if len(part) < 30 else ""  # a group of one field is no line
        artists += ax.plot(x[order], errors[part][order], marker=marker, markersize=3, **style)
    return artists


def spread_rows(n: int, count: int) -> NDArray[np.intp]:
    """At most `count` of n rows, evenly from the first to the last."""
    return np.arange(n) if n <= count else np.linspace(0, n - 1, count).round().astype(np.intp)


def plain(text: str) -> str:
    """A text from elsewhere, cut and without what matplotlib would read as mathematics, hide (_a) or cannot draw."""
    text = re.sub("^_", " _", text.encode("utf-8", "backslashreplace").decode())
    return (text if len(text) <= 40 else f"{text[:39]}\u2026").replace("$", r"\$")


def _cells(positions, n_cells):
    """Positions of the cells of a line, and the label of the axis."""
    if positions is None:
        return np.arange(n_cells, dtype=float), "cell"
    return _ascending(positions, "positions", n_cells), "position x"


def plain_decades(axis: Any, count: int = 8) -> None:
    """Labels such as 0.06 instead of 6 x 10^-2, enough of them within one decade and at most `count`, about."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    if high < 8 * low:
        axis.set_major_locator(MaxNLocator(min(6, count)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=count))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _make_logarithmic(ax, which, values):
    """The x or y axis, on which these values are drawn."""
    if len(values) and values.min() == values.max():  # the axis would have length 0
        ax.set(**{f"{which}lim": (values[0] / 10, values[0] * 10)})
    ax.set(**{f"{which}scale": "log"})
    plain_decades(getattr(ax, f"{which}axis"))


def _frame_errors(ax, errors, name, label):
    """A grid, the logarithmic axis upwards, on which these errors are drawn, and a legend of what has a name."""
    _make_logarithmic(ax, "y", errors)
    ax.set(xlabel=name, ylabel=label)
    locator = ax.xaxis.get_major_locator()
    if name.startswith(("row", "mode", "number")) and type(locator).__name__ == "AutoLocator":  # not of the caller
        locator.set_params(integer=True, min_n_ticks=1)
    ax.grid(True, color="0.92")
    if names := ax.get_legend_handles_labels()[1]:
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
        letters = 125 * ax.figure.get_figwidth() / ax.xaxis.label.get_fontsize()  # in a line, about
        columns = int(np.clip(letters // (max(map(len, names)) + 8), 1, 3))
        ax.legend(ncols=columns, fontsize="small", frameon=False, columnspacing=1.2, **place)


def _dot_size(n):
    # many points cover one another: smaller dots keep the structure visible
    return float(np.clip(12000 / max(n, 1), 3.0, 16.0))


def _ascending(values, name, length):
    values = as_array(values, name, (length,))
    for k in np.flatnonzero(np.diff(values) < 0)[:1]:
        raise ValueError(f"{name} must be ascending, got {values[k + 1]:g} after {values[k]:g}")
    return values


def cell_edges(centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Borders half-way between neighbouring centres; the first and last reach as far outwards."""
    if len(centers) == 1:
        return np.array([centers[0] - 0.5, centers[0] + 0.5])
    middle = (centers[1:] + centers[:-1]) / 2
    return np.concatenate(([2 * centers[0] - middle[0]], middle, [2 * centers[-1] - middle[-1]]))


# --- arrays of fields for plotting ---------------------------------------------------------------
def plot_shape(shape: Any) -> tuple[int, ...]:
    """Axes of a field that are longer than 1; (n_cells,) of a line."""
    if isinstance(shape, (str, bytes)) or np.ndim(shape) != 1 or not np.size(shape):
        raise ValueError(f"shape must be the numbers of cells along the axes of a field, got {shape!r}")
    lengths = tuple(check_count(length, "shape") for length in np.asarray(shape).tolist())
    return tuple(length for length in lengths if length > 1) or (1,)


def plot_arrays(fields: Mapping[str, Any], shape: Any = None) -> dict[str, NDArray[np.float64]]:
    """Single fields for plotting, by name: lines (n_cells,) or planes (ny, nx), all of one shape, or an error."""
    if shape is None:  # the shape of the first array of two axes
        shapes = [tuple(length for length in np.shape(field) if length != 1) for field in fields.values()]
        shape = next((own for own in shapes if len(own) == 2), None)
    arrays = {name: _plot_array(field, name, shape) for name, field in fields.items()}
    first = next(iter(arrays))
    for name, values in arrays.items():
        if values.shape != arrays[first].shape:
            raise ValueError(f"{name} must have shape {arrays[first].shape} like {first}, got {values.shape}")
    return arrays


def _plot_array(field, name, shape):
    rows, layout = flattened(field, name)
    array = np.asanyarray(rows).reshape(-1, *layout.shape)  # a masked array stays one, so that the check refuses it
    if not array.size:
        raise ValueError(f"{name} must have cells, got shape {array.shape}")
    own = plot_shape(array.shape or (1,))
    cells = own if shape is None else plot_shape(shape)
    if array.size != math.prod(cells):
        count = " x ".join(map(str, cells)) + (f" = {math.prod(cells)}" if len(cells) > 1 else "")
        hint = f": give one of its fields, such as {name}[0]" if array.size % math.prod(cells) == 0 else ""
        raise ValueError(f"{name} must have {count} cells, got {array.size} in an array of shape {array.shape}{hint}")
    if own not in (cells, (array.size,)):
        raise ValueError(f"{name} must have shape {cells} or be flattened, got {array.shape}")
    if shape is None and len(cells) > 2:
        remedy = f"give one of its fields, such as {name}[0], or shape if it is one of more axes"
        raise ValueError(f"{name} must be a line or a plane, got shape {array.shape}: {remedy}")
    values = as_array(array.reshape(1, -1), name).reshape(cells)
    while values.ndim > 2:
        values = values[len(values) // 2]
    return values


def _plane(mask, extent, shape):
    """Cells of one field's shape that are hidden, length and width of the plane or None, and its height per width."""
    hidden, aspect = np.zeros(shape, dtype=bool), shape[0] / shape[-1]
    if mask is not None:
        if (mask := np.asarray(mask)).dtype != bool:
            raise ValueError(f"mask must be boolean of shape {tuple(shape)}, got {mask.dtype}")
        hidden = plot_arrays({"mask": mask}, shape)["mask"] == 0
    if extent is not None:
        extent = as_array(extent, "extent", (2,))
        if not extent.min() > 0:
            raise ValueError(f"extent must be positive, got {tuple(extent.tolist())}")
        aspect = extent[1] / extent[0]
    return hidden, extent, aspect


def plot_series(fields: Any, name: str, n_axes: int, shape: Any = None) -> NDArray[np.float64]:
    """Fields of an array, or one of this shape, as lines (n, n_cells) or planes (n, ny, nx); see `plot_arrays`."""
    rows, layout = flattened(fields, name)
    if shape is None:
        shape = layout.shape
    elif np.shape(fields) == tuple(np.ravel(shape)):
        rows = np.asanyarray(rows).reshape(1, -1)
    rows, cells = as_array(rows, name), plot_shape(shape)
    if len(cells) < n_axes == len(shape):
        cells = tuple(shape)
    if rows.shape[1] != math.prod(cells):
        raise ValueError(f"{name} must have {math.prod(cells)} columns, got {rows.shape[1]}")
    if len(cells) > n_axes == 1:
        raise ValueError(f"{name} must be lines, got fields of shape {cells}: give one of each, such as {name}[:, 0]")
    if len(cells) < n_axes:
        raise ValueError(f"{name} must be planes, got {rows.shape[1]} cells: shape must be two numbers, ny and nx")
    values = rows.reshape(len(rows), *cells)
    while values.ndim > 3:
        values = values[:, values.shape[1] // 2]
    return values


public(globals())
