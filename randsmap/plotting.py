"""Pictures of the data sets and of embeddings; needs the extra ``plots`` (matplotlib).

Each function returns a `matplotlib.figure.Figure` made without pyplot: nothing opens a window, no
global state changes, and ``figure.savefig(...)`` works with and without a display. Matplotlib is
imported on the first call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from randsmap import _validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_space_time", "plot_crowd", "plot_images", "plot_embedding", "plot_reconstructions"]

_SEQUENTIAL_COLORS = "viridis"
_CYCLIC_COLORS = "twilight"
_OBSTACLE_COLOR = "0.55"


def plot_space_time(
    fields: ArrayLike,
    times: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    label: str = "density",
    ax: Axes | None = None,
) -> Figure:
    """Space-time diagram of a field on a line, such as one trajectory of traffic densities.

    Parameters
    ----------
    fields : array_like (n_times, n_cells)
        One field a row.
    times : array_like (n_times,)
        Times of the rows, ascending; equal steps are not needed, a field's colour reaches half-way
        to the next time.
    positions : array_like (n_cells,), optional
        Centres of the cells, ascending; by default their numbers.
    label : str, default "density"
        Name of the field at the colour bar.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Time to the right, position upwards.

    Raises
    ------
    ValueError, TypeError
        If the shapes do not agree, values are not finite, or times or positions descend.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.plotting import plot_space_time
    >>> figure = plot_space_time(np.eye(5), np.arange(5.0))
    """
    fields = _validation.check_matrix(fields, "fields")
    n_times, n_cells = fields.shape
    times = _ascending(times, "times", n_times)
    if positions is None:
        cells, name = np.arange(n_cells, dtype=float), "cell"
    else:
        cells, name = _ascending(positions, "positions", n_cells), "position x"
    figure, ax = _figure_and_axes(ax, (6.4, 4.0))
    # rasterized: a vector file would hold a polygon a cell
    mesh = ax.pcolormesh(_edges(times), _edges(cells), fields.T, cmap=_SEQUENTIAL_COLORS, rasterized=True)
    ax.set(xlabel="time t", ylabel=name)
    figure.colorbar(mesh, ax=ax, label=label)
    return figure


def plot_crowd(
    fields: ArrayLike,
    times: ArrayLike | None = None,
    *,
    shape: tuple[int, int],
    extent: tuple[float, float] | None = None,
    obstacle: ArrayLike | None = None,
    n_panels: int = 4,
    label: str = "density",
) -> Figure:
    """Snapshots of a field in a corridor with an obstacle, in one colour scale.

    Parameters
    ----------
    fields : array_like (n, n_x * n_y)
        One field a row, flattened from (n_x, n_y).
    times : array_like (n,), optional
        Times of the rows, the panels' titles.
    shape : (int, int)
        Cells along and across the corridor, n_x and n_y.
    extent : (float, float), optional
        Length and width of the corridor; by default the numbers of cells.
    obstacle : array_like of bool, (n_x, n_y) or (n_x * n_y,), optional
        True in the cells of the obstacle, which are drawn grey.
    n_panels : int, default 4
        At most so many rows are shown, spread evenly from the first to the last.
    label : str, default "density"
        Name of the field at the colour bar.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError, TypeError
        If the shapes do not agree or values are not finite.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.plotting import plot_crowd
    >>> obstacle = np.zeros((8, 4), dtype=bool)
    >>> obstacle[3:5, 1:3] = True
    >>> figure = plot_crowd(np.ones((2, 32)), [0.0, 1.0], shape=(8, 4), obstacle=obstacle)
    """
    shape = _check_pair(shape, "shape")
    fields, times, rows = _check_panels(fields, times, "times", shape, n_panels)
    length, width = _validation.check_vector(shape if extent is None else extent, "extent", length=2)
    if not (length > 0 and width > 0):
        raise ValueError(f"extent must be positive, got {extent!r}")
    solid = np.zeros(shape, dtype=bool)
    if obstacle is not None:
        solid = np.asarray(obstacle)
        if solid.dtype != bool or solid.size != shape[0] * shape[1]:
            raise ValueError(
                f"obstacle must be boolean with {shape[0] * shape[1]} cells, got {solid.dtype} of shape {solid.shape}"
            )
        solid = solid.reshape(shape)

    n_columns = 1 if len(rows) < 4 else 2
    n_rows = -(-len(rows) // n_columns)
    panel = 4.4
    figure = _new_figure((panel * n_columns + 0.9, n_rows * (panel * min(width / length, 2) + 0.62)))
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    high = max(fields.max(), np.finfo(float).tiny)
    for ax, row in zip(axes.flat, rows):
        picture = np.ma.masked_array(fields[row].reshape(shape), solid)
        drawn = ax.imshow(
            picture.T,
            origin="lower",
            extent=(0, length, 0, width),
            vmin=min(fields.min(), 0.0),
            vmax=high,
            cmap=_SEQUENTIAL_COLORS,
            interpolation="nearest",
        )
        ax.set_facecolor(_OBSTACLE_COLOR)
        if times is not None:
            ax.set_title(f"t = {times[row]:g}", fontsize="medium")
    used = _remove_unused(axes, len(rows))
    for ax in axes[:, 0]:
        ax.set_ylabel("y")
    for ax in used[-n_columns:]:  # the lowest of its column
        ax.set_xlabel("x")
        ax.tick_params(labelbottom=True)
        ax.locator_params(axis="x", nbins=5)  # so that neighbouring panels' labels do not touch
    figure.colorbar(drawn, ax=used, label=label, fraction=0.04, pad=0.02)
    return figure


def plot_images(
    images: ArrayLike, angles: ArrayLike | None = None, *, shape: tuple[int, int], n_panels: int = 6
) -> Figure:
    """A grid of images, in one grey scale, with their angles.

    Parameters
    ----------
    images : array_like (n, height * width)
        One image a row, flattened row by row.
    angles : array_like (n,), optional
        Angles in radians, the panels' titles in degrees.
    shape : (int, int)
        Height and width.
    n_panels : int, default 6
        At most so many rows are shown. Without angles they are spread evenly from the first row to
        the last; with angles they are those nearest to equal parts of a full turn.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError, TypeError
        If the shapes do not agree or values are not finite.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from randsmap.datasets import make_rotated_images
    >>> from randsmap.plotting import plot_images
    >>> rotated = make_rotated_images(60, shape=32)
    >>> figure = plot_images(rotated.data, rotated.angles, shape=rotated.shape)
    """
    shape = _check_pair(shape, "shape")
    images, angles, rows = _check_panels(images, angles, "angles", shape, n_panels)
    if angles is not None and len(rows) < len(images):
        wanted = 2 * np.pi * np.arange(len(rows)) / len(rows)
        rows = [int(np.argmin(np.abs(np.exp(1j * angles) - np.exp(1j * angle)))) for angle in wanted]
    n_columns = min(len(rows), 3 if len(rows) in (5, 6, 9) else 4)
    n_rows = -(-len(rows) // n_columns)
    panel = 2.1
    figure = _new_figure((panel * n_columns, n_rows * (panel * min(shape[0] / shape[1], 3) + 0.3)))
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for ax, row in zip(axes.flat, rows):
        ax.imshow(
            images[row].reshape(shape),
            cmap="gray",
            vmin=images[rows].min(),
            vmax=images[rows].max(),
            interpolation="nearest",
        )
        ax.set(xticks=[], yticks=[])
        if angles is not None:
            ax.set_title(f"θ = {np.rad2deg(angles[row]):.4g}°", fontsize="medium")
    _remove_unused(axes, len(rows))
    return figure


def plot_embedding(
    latents: ArrayLike,
    color: ArrayLike | None = None,
    *,
    label: str | None = None,
    names: Sequence[str] | None = None,
    cyclic: bool = False,
    ax: Axes | None = None,
) -> Figure:
    """Points in two or three dimensions, coloured by a coordinate.

    Parameters
    ----------
    latents : array_like (n, 2) or (n, 3)
        The points.
    color : array_like (n,), optional
        The value that colours them, such as an intrinsic coordinate of the data.
    label : str, optional
        Name of that value at the colour bar.
    names : sequence of str, optional
        Names of the axes; by default y1, y2, y3.
    cyclic : bool, default False
        Colours that meet at their ends, for an angle of a full turn.
    ax : matplotlib Axes, optional
        Where to draw (three-dimensional axes for three columns); by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError, TypeError
        If the shapes do not agree, values are not finite, or there are not two or three columns.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from randsmap.datasets import make_swiss_roll
    >>> from randsmap.plotting import plot_embedding
    >>> roll = make_swiss_roll(300, random_state=0)
    >>> figure = plot_embedding(roll.data, roll.coordinates[:, 0], label="theta")
    """
    latents = _validation.check_matrix(latents, "latents")
    n, dimension = latents.shape
    if dimension not in (2, 3):
        raise ValueError(f"latents must have 2 or 3 columns, got {dimension}")
    names = [f"y{k + 1}" for k in range(dimension)] if names is None else list(names)
    if len(names) != dimension:
        raise ValueError(f"names must have length {dimension}, got {len(names)}")
    if color is not None:
        color = _validation.check_vector(color, "color", length=n)
    if ax is not None and hasattr(ax, "get_zlim") != (dimension == 3):
        raise ValueError(f"ax must be {dimension}-dimensional for latents of {dimension} columns")

    figure, ax = _figure_and_axes(ax, (5.6, 4.4), "3d" if dimension == 3 else None)
    # many points cover one another: smaller dots keep the structure visible
    size = float(np.clip(12000 / n, 3.0, 16.0))
    style = {"s": size, "linewidths": 0, "rasterized": n > 5000}
    if dimension == 3:
        style["depthshade"] = False  # fading with depth would falsify the colours
    if color is not None:
        style |= {"c": color, "cmap": _CYCLIC_COLORS if cyclic else _SEQUENTIAL_COLORS}
    points = ax.scatter(*latents.T, **style)
    ax.set(**dict(zip(("xlabel", "ylabel", "zlabel"), names)))
    if color is not None:
        figure.colorbar(
            points, ax=ax, label=label, pad=0.12 if dimension == 3 else 0.03, shrink=0.8 if dimension == 3 else 1.0
        )
    return figure


def plot_reconstructions(
    truth: ArrayLike,
    reconstructions: Mapping[str, ArrayLike],
    *,
    positions: ArrayLike | None = None,
    extent: tuple[float, float] | None = None,
    mask: ArrayLike | None = None,
    label: str = "density",
) -> Figure:
    """One field beside its reconstructions, with their errors.

    Parameters
    ----------
    truth : array_like (n_cells,), (n_x, n_y) or (height, width)
        The field itself: a profile, a field in the plane, or an image.
    reconstructions : dict of str to array_like of the same shape
        What decoders made of it, by the names that the panels get.
    positions : array_like (n_cells,), optional
        For a profile: centres of the cells, ascending; by default their numbers.
    extent : (float, float), optional
        For a field in the plane, whose first axis goes to the right and second upwards: its length
        and width. A two-dimensional field without it is drawn as a grey image, row 0 on top.
    mask : array_like of bool, of the same shape, optional
        False where there is no field, such as in an obstacle; drawn grey.
    label : str, default "density"
        Name of the field.

    Returns
    -------
    matplotlib.figure.Figure
        Profiles: a panel a reconstruction, with the field and the error. Fields in the plane: a row a
        reconstruction, with its absolute error in one logarithmic scale of three decades.

    Raises
    ------
    ValueError, TypeError
        If the shapes do not agree or values are not finite.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.plotting import plot_reconstructions
    >>> x = np.linspace(-1, 1, 50)
    >>> figure = plot_reconstructions(np.exp(-x**2), {"half": np.exp(-x**2) / 2}, positions=x)
    """
    truth = np.asarray(truth, dtype=float)
    if truth.ndim not in (1, 2) or truth.size == 0:
        raise ValueError(f"truth must have one or two axes and cells, got shape {truth.shape}")
    fields = {"truth": truth}
    for name, field in reconstructions.items():
        fields[str(name)] = np.asarray(field, dtype=float)
    for name, field in fields.items():
        if field.shape != truth.shape:
            raise ValueError(f"{name} must have shape {truth.shape} like truth, got {field.shape}")
        _validation.check_vector(field.ravel(), name)
    if len(fields) == 1:
        raise ValueError("reconstructions must name at least one field")
    if mask is not None:
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != truth.shape:
            raise ValueError(f"mask must be boolean of shape {truth.shape}, got {mask.dtype} of shape {mask.shape}")
    if truth.ndim == 1:
        if positions is None:
            positions, name = np.arange(len(truth), dtype=float), "cell"
        else:
            positions, name = _ascending(positions, "positions", len(truth)), "position x"
        return _profiles(truth, fields, positions, name, label)
    if extent is not None:
        extent = _validation.check_vector(extent, "extent", length=2)
    return _error_maps(truth, fields, extent, mask, label)


def _profiles(truth, fields, positions, name, label):
    n_panels = len(fields) - 1
    n_columns = 1 if n_panels == 1 else 2
    n_rows = -(-n_panels // n_columns)
    figure = _new_figure((3.7 * n_columns, 2.3 * n_rows + 0.5))
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    for ax, (title, field) in zip(axes.flat, list(fields.items())[1:]):
        ax.plot(positions, truth, color="0.6", linewidth=3, label="truth")
        ax.plot(positions, field, color="#0072B2", linewidth=1.2, label="reconstruction")
        style = {"color": "#D55E00", "linewidth": 0.9, "linestyle": "--"}
        ax.plot(positions, field - truth, label="reconstruction \u2212 truth", **style)
        ax.set_title(title, fontsize="medium")
    used = _remove_unused(axes, n_panels)
    for ax in used[-n_columns:]:
        ax.set_xlabel(name)
        ax.tick_params(labelbottom=True)
    figure.supylabel(label, fontsize="medium")
    figure.legend(
        *used[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize="small", frameon=False
    )
    return figure


def _error_maps(truth, fields, extent, mask, label):
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    hidden = np.zeros(truth.shape, dtype=bool) if mask is None else ~mask
    errors = {name: abs(field - truth) for name, field in fields.items() if field is not truth}
    high = max(max(error[~hidden].max(initial=0) for error in errors.values()), np.finfo(float).tiny * 1e4)
    if extent is None:
        aspect, style, place = truth.shape[0] / truth.shape[1], {"cmap": "gray"}, {}
    else:
        aspect, style = extent[1] / extent[0], {"cmap": _SEQUENTIAL_COLORS}
        place = {"origin": "lower", "extent": (0, extent[0], 0, extent[1])}
    style |= {"vmin": min(truth[~hidden].min(initial=0), 0), "vmax": truth[~hidden].max(initial=0) or 1}
    # pairs of field and error: long corridors one beside the other, images two pairs a row
    n_pairs, width = (1, 3.3) if aspect < 0.6 else (2, 2.0)
    n_rows = -(-len(fields) // n_pairs)
    figure = _new_figure((2 * n_pairs * width + 0.4, n_rows * (width * min(aspect, 2) + 0.4) + 0.9))
    axes = figure.subplots(n_rows, 2 * n_pairs, squeeze=False, sharex=True, sharey=True)
    pairs = axes.reshape(n_rows * n_pairs, 2)
    pairs[0, 1].remove()  # truth has no error
    for ax in pairs[len(fields) :].flat:
        ax.remove()
    for pair, (name, field) in zip(pairs, fields.items()):
        shown = _draw_plane(pair[0], field, hidden, place, style, name)
        if field is not truth:
            # what is smaller than the scale gets the scale's lowest colour, not a hole
            error = _draw_plane(
                pair[1],
                np.maximum(errors[name], high / 1e3),
                hidden,
                place,
                {"cmap": "magma", "norm": LogNorm(high / 1e3, high)},
                "absolute error",
            )
    if extent is not None:
        for ax in axes[:, 0]:
            ax.set_ylabel("y")
        for ax in axes[-1]:
            ax.set_xlabel("x")
    beside = [pairs[0, 0], *pairs[1 : len(fields)].flat]
    style = {"location": "bottom", "fraction": 0.03, "pad": 0.02, "shrink": 0.6, "aspect": 40}
    bar = figure.colorbar(shown, ax=beside, label=label, **style)
    bar.locator, bar.formatter.useMathText = MaxNLocator(5), True
    bar.formatter.set_powerlimits((-2, 3))
    bar.update_ticks()
    figure.colorbar(error, ax=beside, label="absolute error", **style)
    return figure


def _draw_plane(ax, values, hidden, place, style, title):
    picture = np.ma.masked_array(values, hidden)
    drawn = ax.imshow(picture.T if place else picture, interpolation="nearest", **place, **style)
    ax.set_facecolor(_OBSTACLE_COLOR)
    ax.set_title(title, fontsize="medium" if place else "x-small")
    if not place:
        ax.set(xticks=[], yticks=[])
    return drawn


def check_matplotlib() -> None:
    """Raise an ImportError that says what to install if there is no matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ImportError("plotting needs matplotlib: pip install 'randsmap[plots]'") from None


def _new_figure(size):
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _figure_and_axes(ax, size, projection=None):
    if ax is not None:
        return ax.figure, ax
    figure = _new_figure(size)
    return figure, figure.add_subplot(projection=projection)


def _check_pair(shape, name):
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ValueError(f"{name} must be two numbers of cells, got {shape!r}")
    return tuple(_validation.check_count(size, name) for size in shape)


def _check_panels(fields, labels, name, shape, n_panels):
    fields = _validation.check_matrix(fields, "fields", n_columns=shape[0] * shape[1])
    if labels is not None:
        labels = _validation.check_vector(labels, name, length=len(fields))
    n_panels = min(_validation.check_count(n_panels, "n_panels"), len(fields))
    return fields, labels, np.linspace(0, len(fields) - 1, n_panels).round().astype(int)


def _remove_unused(axes, n_used):
    for ax in axes.flat[n_used:]:
        ax.remove()
    return list(axes.flat[:n_used])


def _ascending(values, name, length):
    values = _validation.check_vector(values, name, length=length)
    if (np.diff(values) < 0).any():
        k = int(np.argmax(np.diff(values) < 0))
        raise ValueError(f"{name} must be ascending, got {values[k + 1]:g} after {values[k]:g}")
    return values


def _edges(centers):
    """Borders half-way between neighbouring centres; the first and last reach as far outwards."""
    if len(centers) == 1:
        return np.array([centers[0] - 0.5, centers[0] + 0.5])
    middle = (centers[1:] + centers[:-1]) / 2
    return np.concatenate(([2 * centers[0] - middle[0]], middle, [2 * centers[-1] - middle[-1]]))
