"""The eikonal equation |grad T| = slowness on a rectangular grid."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap import _parallel
from randsmap._interface.arrays import aligned, check_out, real_numbers
from randsmap._interface.fields import FieldShape
from randsmap._interface.labels import Labels
from randsmap._interface.parameters import check_choice, check_number
from randsmap._kernels import crowd

_SIDES = ("left", "right", "bottom", "top")


def solve_eikonal(
    slowness: ArrayLike,
    spacing: float | tuple[float, float],
    sources: ArrayLike | None = None,
    *,
    exits: str | Sequence[str] = (),
    obstacles: ArrayLike | None = None,
    method: str = "marching",
    out: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Travel times T with |grad T| = slowness and T = 0 at the sources.

    First-order upwind scheme (Godunov) [1]_: with a, b the smaller neighbours of a cell along the two axes, T solves
    ((T - a)+ / dx)^2 + ((T - b)+ / dy)^2 = slowness^2.

    Parameters
    ----------
    slowness : array_like (nx, ny) or (n_fields, nx, ny)
        Time per length in each cell, positive and finite; ignored in obstacles. A batch shares sources, exits and
        obstacles.
    spacing : float or (float, float)
        Cell width, of square cells or along the two axes.
    sources : array_like of bool (nx, ny), or sequence of (i, j), optional
        Cells where T = 0.
    exits : str or sequence of str, default ()
        Sides of the grid beyond which T = 0, at the centres of ghost cells: "left", "right" (of axis 0), "bottom",
        "top" (of axis 1).
    obstacles : array_like of bool (nx, ny), optional
        Cells that nothing crosses.
    method : {"marching", "sweeping"}, default "marching"
        "sweeping": the fast sweeping method of [1]_, about 5 times slower; the two agree to round-off.
    out : ndarray, the shape of slowness, optional
        C-contiguous float64 array for the result.

    Returns
    -------
    ndarray, the shape of slowness
        Travel times, infinite in obstacles and in cells that no path from a source reaches.

    Raises
    ------
    ValueError, TypeError
        If there is no source and no exit, or a source lies outside the grid or in an obstacle.

    Notes
    -----
    Halving the spacing halves the error (near a point source, as h log(1/h)). Results are the same bits in any batch
    and for any number of threads.

    References
    ----------
    .. [1] H. Zhao, A fast sweeping method for eikonal equations, Math. Comp. 74 (2005) 603-627.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.datasets import solve_eikonal
    >>> solve_eikonal(np.ones((3, 4)), 1.0, [(0, 0)])[0]
    array([0., 1., 2., 3.])
    >>> wall = np.zeros((3, 4), bool)
    >>> wall[1, :3] = True
    >>> solve_eikonal(np.ones((3, 4)), 1.0, exits="right", obstacles=wall)[:, 0]
    array([ 6., inf,  1.])
    """
    fields, shape = _check_fields(slowness)
    dx, dy = check_pair((spacing, spacing) if isinstance(spacing, numbers.Real) else spacing, "spacing")
    grid = fields.shape[1:]
    layout = FieldShape(grid, Labels.of(slowness, samples=len(shape) == 3))
    for mask, name in ((sources, "sources"), (obstacles, "obstacles")):
        if getattr(mask, "shape", ()) == grid:
            layout.compare(mask, name, samples=False, whose="slowness")
    kind = np.zeros(grid, np.uint8)
    if obstacles is not None:
        kind[check_mask(obstacles, "obstacles", grid)] = crowd.WALL
    if sources is not None:
        _mark_sources(sources, kind)
    left, right, bottom, top = _check_exits(exits)
    if not (left or right or bottom or top or (kind == crowd.SOURCE).any()):
        raise ValueError("there must be a source cell or an exit, got neither")
    check_choice(method, "method", ("marching", "sweeping"))
    _check_slowness(fields, kind, max(dx, dy), min(dx, dy))
    out = check_out(out, shape)
    if np.may_share_memory(out, fields):  # columns are read while others are written
        fields = fields.copy()
    flags = np.repeat(np.array([left, right, bottom, top], np.uint8), [grid[1], grid[1], 1, 1])
    travel_times(fields, kind, flags, dx, dy, out.reshape(fields.shape), method == "sweeping")
    return out


def travel_times(
    fields: NDArray[np.float64],
    kind: NDArray[np.uint8],
    exits: NDArray[np.uint8],
    dx: float,
    dy: float,
    out: NDArray[np.float64],
    sweeping: bool = False,
) -> None:
    """The kernel on fields (n, nx, ny) that were checked; exits: flags as the kernel takes them."""
    n, nx, ny = fields.shape
    sources = np.flatnonzero(kind == crowd.SOURCE)
    if exits[ny:].any():
        pivot = nx
    else:
        pivot = int(sources[-1]) // ny + 1 if len(sources) else 0

    def task(part):
        work = np.empty(crowd.eikonal_work_size(len(out[part]), nx, ny))
        crowd.eikonal(fields[part], kind, exits, dx, dy / dx, pivot, sweeping, work, out[part])

    _parallel.parallel_rows(task, n, 64)


def check_pair(pair: Any, name: str) -> tuple[float, float]:
    """A pair of positive numbers, along x and y."""
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair of numbers, got {pair!r}") from None
    return (check_number(x, name, low=0.0, strict_low=True), check_number(y, name, low=0.0, strict_low=True))


def check_mask(mask: ArrayLike, name: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """A boolean mask of this shape; numbers would hide a mask given the wrong way round."""
    mask = real_numbers(mask, name)
    if mask.dtype != bool:
        raise TypeError(f"{name} must be a boolean mask, got dtype {mask.dtype}")
    if mask.shape != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {mask.shape}")
    return mask


def _check_fields(slowness):
    fields = aligned(np.asarray(real_numbers(slowness, "slowness"), dtype=np.float64, order="C"))
    if fields.ndim not in (2, 3):
        raise ValueError(f"slowness must have shape (nx, ny) or (n_fields, nx, ny), got {fields.shape}")
    if 0 in fields.shape[-2:]:
        raise ValueError(f"slowness must have at least one cell, got shape {fields.shape}")
    return fields.reshape(-1 if fields.size else 0, *fields.shape[-2:]), fields.shape


def _mark_sources(sources, kind):
    sources = real_numbers(sources, "sources")
    if sources.dtype == bool:
        cells = np.argwhere(check_mask(sources, "sources", kind.shape))
    else:
        cells = sources if sources.size else np.empty((0, 2), int)
        if cells.ndim != 2 or cells.shape[1] != 2 or cells.dtype.kind not in "iu":
            raise ValueError(
                "sources must be a boolean mask or a sequence of index pairs (i, j), "
                f"got shape {sources.shape}, dtype {sources.dtype}"
            )
    for i, j in cells.tolist():
        if not (0 <= i < kind.shape[0] and 0 <= j < kind.shape[1]):
            raise ValueError(f"sources must lie in the grid of shape {kind.shape}, got ({i}, {j})")
        if kind[i, j] == crowd.WALL:
            raise ValueError(f"sources must not lie in obstacles, got ({i}, {j})")
        kind[i, j] = crowd.SOURCE


def _check_exits(exits):
    exits = (exits,) if isinstance(exits, str) else tuple(exits)
    for side in exits:
        check_choice(side, "exits", _SIDES)
    return [side in exits for side in _SIDES]


def _check_slowness(fields, kind, widest, narrowest):
    free = kind != crowd.WALL
    cells = fields if free.all() else fields[:, free]
    if not cells.size:
        return
    low, high = cells.min(), cells.max()  # NaN if there is one
    if not (low > 0 and high < np.inf):
        bad = np.argwhere(free & ~((fields > 0) & (fields < np.inf)))[0]
        at = tuple(int(k) for k in bad)
        raise ValueError(
            f"slowness must be positive and finite outside the obstacles, got {float(fields[at])!r} at {at}"
        )
    # crossing times of a cell are squared, and 1e140 stands for "unreached" in the kernel
    smallest, largest = 1e-100, 1e100
    if low * narrowest < smallest or high * widest > largest:
        raise ValueError(
            f"slowness times spacing must lie between {smallest:g} and {largest:g}, "
            f"got {low * narrowest:g} to {high * widest:g}"
        )
