"""Crowd flow: Hughes' model of pedestrians in a corridor (paper, Sec. 5, Case Study 3), and its eikonal equation."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from randsmap import _parallel
from randsmap._interface.arrays import check_out, real_numbers
from randsmap._interface.fields import FieldShape
from randsmap._interface.labels import Labels
from randsmap._interface.parameters import check_choice, check_count, check_number
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._kernels import crowd
from randsmap.datasets import _common

# Cell updates of a group of trajectories in one call of the kernel (some 50 ms): between calls
# Ctrl-C is seen and the progress bar moves.
_UPDATES_PER_CALL = 8_000_000
_EPS = np.finfo(np.float64).eps
_SIDES = ("left", "right", "bottom", "top")


@_common.documented
@dataclass(eq=False)
class HughesSolver:
    """Finite-volume solver of Hughes' crowd model in a corridor that is periodic along x.

    People at density rho walk with speed f(rho) = v_max (1 - rho / rho_max) down the potential phi of the shortest
    walking time to the exit at the right end. They enter again at the left end (R. L. Hughes, A continuum theory for
    the flow of pedestrians, Transp. Res. B 36 (2002) 507-535)::

        rho_t - div(rho f(rho) grad phi / |grad phi|) = 0,    |grad phi| = 1 / f(rho).

    Each step solves for phi (see `solve_eikonal`), with f floored at `min_speed` and phi = 0 at the centres of the
    ghost cells beyond the exit. Then it moves people by a first-order Godunov flux. Through a face with potential
    gradient g, that is walking direction n = -g/|g|,

        F = n min(D(rho_behind), S(rho_ahead)),   D(r) = q(min(r, r_c)),  S(r) = q(max(r, r_c)),

    q(r) = r f(r), r_c = rho_max / 2; F = 0 at walls. The component of the gradient normal to the face is the difference
    of its two cells. The tangential component is a quarter of the sum of the four adjacent differences, where
    differences across walls are 0.

    Parameters
    ----------
    n_cells : (int, int), default (200, 50)
        Numbers of cells along the corridor (at least 2) and across it.
    lengths : (float, float), default (20.0, 5.0)
        Length and width of the corridor, m.
    obstacles : array_like of bool (nx, ny), default=None
        Cells that people cannot enter. Default: none.
    exit : array_like of bool (ny,), default=None
        Rows of the right end that are open, one at least. Default: all. Rows with an obstacle at either end are closed.
    v_max, rho_max : float, default=1.0, 5.0
        Walking speed in an empty place, m/s, and density at which nobody moves, persons per m^2.
    min_speed, dt : float, default=1e-3, 0.025
        Lowest speed that the potential assumes, m/s, which keeps it finite in jams, and time step, s.

    Attributes
    ----------
    shape : (int, int)
        nx, ny. A field is a vector of nx * ny cells; ``field.reshape(solver.shape)[i, j]`` is the cell at x_i, y_j.
    mask, cell_centers : ndarray of bool (nx * ny,), ndarray (nx * ny, 2)
        True in cells that people can enter; positions x, y of the cells' centres.
    dx, dy, courant : float
        Cell widths, and 2 v_max dt (1/dx + 1/dy), at most 1.

    {raises}

    Notes
    -----
    The number of people is conserved to the rounding of the cells (below 1e-13 after thousands of steps). Densities are
    nonnegative, and exactly 0 in obstacles. People who cannot reach the exit stay where they are.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> pillar = np.zeros((40, 10), bool)
    >>> pillar[20:22, 4:6] = True
    >>> solver = randsmap.datasets.HughesSolver((40, 10), obstacles=pillar, dt=0.1)
    >>> x, y = solver.cell_centers.T
    >>> rho = np.exp(-((x - 5) ** 2) - (y - 2.5) ** 2) * solver.mask
    >>> fields = solver.solve(rho, 10.0, times=[2.0, 5.0, 10.0]).fields
    >>> fields.shape, bool(np.isclose(fields[-1].sum(), rho.sum(), rtol=1e-14))
    ((3, 400), True)
    """

    n_cells: tuple[int, int] = (200, 50)
    _: KW_ONLY
    lengths: tuple[float, float] = (20.0, 5.0)
    obstacles: ArrayLike | None = field(default=None, repr=False)
    exit: Any = field(default=None, repr=False)
    v_max: float = 1.0
    rho_max: float = 5.0
    min_speed: float = 1e-3
    dt: float = 0.025

    def __post_init__(self) -> None:
        nx, ny = _pair(self.n_cells, "n_cells", "integers")
        nx, ny = check_count(nx, "n_cells[0]", low=2), check_count(ny, "n_cells[1]", low=1)
        self.shape = self.n_cells = (nx, ny)
        self.lengths = _check_pair(self.lengths, "lengths")
        self.dx, self.dy = self.lengths[0] / nx, self.lengths[1] / ny
        for name in ("v_max", "rho_max", "min_speed", "dt"):
            setattr(self, name, check_number(getattr(self, name), name, low=0.0, strict_low=True))
        check_number(self.min_speed, "min_speed", low=0.0, high=self.v_max)
        self.courant = 2 * self.v_max * (self.dt / self.dx + self.dt / self.dy)
        given = {"v_max": self.v_max, "dt": self.dt, "dx": self.dx, "dy": self.dy}
        largest = 1 / (2 * self.v_max * (1 / self.dx + 1 / self.dy))
        _common.check_courant(self.courant, "2*v_max*dt*(1/dx + 1/dy)", largest, given)
        self._set_walls()
        x, y = (np.arange(nx) + 0.5) * self.dx, (np.arange(ny) + 0.5) * self.dy
        self.cell_centers = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)

    def _set_walls(self):
        free = np.ones(self.shape, bool)
        if self.obstacles is not None:
            free &= ~_check_mask(self.obstacles, "obstacles", self.shape)
        doors = free[0] & free[-1]
        if self.exit is not None:
            doors &= _check_mask(self.exit, "exit", doors.shape)
        if not doors.any():
            free_row = "a row that is free of obstacles at both ends of the corridor"
            raise ValueError(f"no row of the exit is open: exit must have {free_row}")
        self.mask, self.exit = free.reshape(-1), doors

    def solve(self, initial: ArrayLike, t_end: float, times: ArrayLike | None = None) -> Bunch:
        """Densities at the given times.

        {solve}
        """
        cells, integrate = self._check_densities(initial, "initial"), partial(_integrate, self, normalised=False)
        return _common.solve(integrate, cells, t_end, times, self.dt, np.ndim(initial) == 1)

    def potential(self, density: ArrayLike) -> NDArray[np.float64]:
        """Potential phi of densities: the shortest walking time to the exit, s, infinite where no way leads to it.

        {density} {returns_potential} {raises}
        """
        cells = self._check_densities(density, "density")
        speed = np.maximum(self.v_max * (1 - cells / self.rho_max), self.min_speed)
        potential = np.empty((len(cells), *self.shape))
        kind, exits, *_ = _corridor(self)
        _travel_times((1 / speed).reshape(potential.shape), kind, exits, self.dx, self.dy, potential)
        return potential.reshape(np.shape(density))

    def _check_densities(self, densities, name):
        cells = _common.check_densities(densities, name, len(self.mask), self.rho_max, 64 * _EPS)
        for row, k in np.argwhere((cells != 0) & ~self.mask)[:1].tolist():
            got = f"{float(cells[row, k])!r} in cell {divmod(k, self.shape[1])}"
            raise ValueError(f"{name}: densities must be 0 in obstacles, got {got}")
        return cells


def _corridor(solver):
    """Kinds of the cells, flags of the exits and open shares of the faces along x and y, as the kernel takes them."""
    nx, ny = solver.shape
    free = solver.mask.reshape(nx, ny)
    kind = np.where(free, crowd.FREE, crowd.WALL).astype(np.uint8)
    exits = np.concatenate([np.zeros(ny), solver.exit, [0, 0]]).astype(np.uint8)
    open_x = np.zeros((nx + 1, ny))
    open_x[1:-1] = free[1:] & free[:-1]
    open_x[-1] = solver.exit
    # the kernel takes gradients as differences of neighbouring cells, in units of dx along both axes
    open_y = np.zeros((nx, ny + 1))
    open_y[:, 1:-1] = (free[:, 1:] & free[:, :-1]) * (solver.dx / solver.dy)
    return kind, exits, open_x, open_y


def _integrate(solver, initial, events, out, *, normalised, done=lambda n: None):
    """Integrate each row of initial, see `_common`, in groups of the kernel's lanes; done(n) counts steps of all."""
    nx, ny = solver.shape
    corridor = *_corridor(solver), solver.dx, solver.dy
    model = solver.dt, solver.v_max, solver.rho_max, solver.min_speed

    def group_of_lanes(group, stopped):
        n = group.stop - group.start
        # lanes without a trajectory repeat the first
        lanes = np.r_[np.arange(n), np.zeros(crowd.LANES - n, int)]
        state = np.ascontiguousarray(initial[group][lanes].T).reshape(nx, ny, crowd.LANES)
        work = np.empty(crowd.run_work_size(nx, ny))
        steps, fractions, rows = events(group)
        all_rows = np.full((len(steps), crowd.LANES), -1, np.intp)
        all_rows[:, :n] = rows
        limit = max(1, _UPDATES_PER_CALL // (crowd.LANES * nx * ny))
        for call in _common.bounded_calls(steps, fractions, all_rows, limit):
            if stopped.is_set():
                return
            crowd.run(state, work, *corridor, *model, *call, normalised, out)
            done(int(call[0].sum()) * n)

    _common.run_trajectories(group_of_lanes, len(initial), crowd.LANES)


@_common.documented
def make_hughes(
    n_trajectories: int = 80,
    snapshots_per_trajectory: int = 375,
    *,
    random_state: _common.RandomState = None,
    n_cells: tuple[int, int] = (200, 50),
    t_end: float = 70.0,
    dt: float = 0.025,
    normalization: str = "before",
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Densities of a crowd in a corridor: the data of the paper's Case Study 3.

    The corridor of 20 m x 5 m has a square obstacle at [10, 11] x [2, 3]. Initial densities are bumps
    a exp(-(x - xc)^2 / (2 wx^2) - (y - yc)^2 / (2 wy^2)), 0 in the obstacle, with a ~ U[1.2, 2.1), wx, wy ~ U[1.6, 2),
    xc, yc ~ U[1.5, 3.5), not wrapped around the ends. `HughesSolver` integrates them. Every row sums to 1.

    Parameters
    ----------
    {runs}
    n_cells : (int, int), default (200, 50)
        Numbers of cells along and across the corridor.
    normalization : {"before", "after"}, default "before"
        "before": the initial density is scaled to integral 1 (densities up to about 0.05: people hardly hinder one
        another). "after": it is integrated as drawn, in persons per m^2 (congestion).
    {out}

    Returns
    -------
    Bunch
        {snapshots}
        ``parameters`` (n_trajectories, 5): a, wx, wy, xc, yc; ``mask`` (n_cells,): False in the obstacle;
        ``cell_centers`` (n_cells, 2); ``shape``: (nx, ny), cell i * ny + j of a row being at x_i, y_j; ``DESCR``.

    {raises} {example}
    """
    check_choice(normalization, "normalization", ("before", "after"))
    empty = HughesSolver(n_cells, dt=dt)
    x, y = empty.cell_centers.T
    obstacle = (x > 10) & (x < 11) & (y > 2) & (y < 3)
    solver = HughesSolver(n_cells, dt=dt, obstacles=obstacle.reshape(empty.shape))

    def draw(rng):
        a, wx, wy, xc, yc = parameters = rng.uniform([1.2, 1.6, 1.6, 1.5, 1.5], [2.1, 2.0, 2.0, 3.5, 3.5])
        bump = a * np.exp(-((x - xc) ** 2) / (2 * wx**2) - (y - yc) ** 2 / (2 * wy**2)) * solver.mask
        return parameters, bump / (bump.sum() * solver.dx * solver.dy) if normalization == "before" else bump

    runs = _common.draw_runs(random_state, n_trajectories, snapshots_per_trajectory, t_end, solver.dt, draw)
    groups = (runs[2][i : i + crowd.LANES] for i in range(0, n_trajectories, crowd.LANES))
    total = sum(int(group.max()) * len(group) for group in groups)
    about = {"mask": solver.mask, "cell_centers": solver.cell_centers, "shape": solver.shape}
    with if_asked(progress), ProgressBar(total, "Hughes steps", scale=True) as bar:
        integrate = partial(_integrate, solver, normalised=True, done=bar.update)
        return _common.snapshots_of_runs(integrate, *runs, solver.dt, out, **about, DESCR=make_hughes.__doc__ or "")


# -- The eikonal equation |grad T| = slowness on a rectangular grid ---------------------------------
@_common.documented
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

    First-order upwind scheme (Godunov): with a, b the smaller neighbours of a cell along the two axes, T solves
    ((T - a)+ / dx)^2 + ((T - b)+ / dy)^2 = slowness^2.

    Parameters
    ----------
    slowness : array_like (nx, ny) or (n_fields, nx, ny)
        Time per length in each cell, positive and finite; ignored in obstacles.
    spacing : float or (float, float)
        Cell width, of square cells or along the two axes.
    sources : array_like of bool (nx, ny), or sequence of (i, j), default=None
        Cells where T = 0, none of them in an obstacle; there must be one, or an exit.
    exits : str or sequence of str, default ()
        Sides of the grid beyond which T = 0, at the centres of ghost cells: "left", "right" (of axis 0), "bottom",
        "top" (of axis 1).
    obstacles : array_like of bool (nx, ny), default=None
        Cells that nothing crosses.
    method : {"marching", "sweeping"}, default "marching"
        "sweeping": the fast sweeping method (H. Zhao, Math. Comp. 74 (2005) 603-627), about 5 times slower; the two
        agree to round-off.
    out : ndarray, the shape of slowness, default=None
        C-contiguous float64 array for the result.

    Returns
    -------
    ndarray, the shape of slowness
        Travel times, infinite in obstacles and in cells that no path from a source reaches.

    {raises}

    Notes
    -----
    Halving the spacing halves the error (near a point source, as h log(1/h)). Results are bit-identical in any
    batch and for any number of threads.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> randsmap.datasets.solve_eikonal(np.ones((3, 4)), 1.0, [(0, 0)])[0]
    array([0., 1., 2., 3.])
    >>> wall = np.zeros((3, 4), bool)
    >>> wall[1, :3] = True
    >>> randsmap.datasets.solve_eikonal(np.ones((3, 4)), 1.0, exits="right", obstacles=wall)[:, 0]
    array([ 6., inf,  1.])
    """
    fields = np.require(real_numbers(slowness, "slowness"), np.float64, ("C", "A"))
    if fields.ndim not in (2, 3) or 0 in fields.shape[-2:]:
        expected = "(nx, ny) or (n_fields, nx, ny) with at least one cell"
        raise ValueError(f"slowness must have shape {expected}, got {fields.shape}")
    shape, fields = fields.shape, fields.reshape(-1 if fields.size else 0, *fields.shape[-2:])
    dx, dy = _check_pair((spacing, spacing) if isinstance(spacing, numbers.Real) else spacing, "spacing")
    grid = fields.shape[1:]
    layout = FieldShape(grid, Labels.of(slowness, samples=len(shape) == 3))
    for mask, name in ((sources, "sources"), (obstacles, "obstacles")):
        if getattr(mask, "shape", ()) == grid:
            layout.compare(mask, name, samples=False, whose="slowness")
    kind = np.zeros(grid, np.uint8)
    if obstacles is not None:
        kind[_check_mask(obstacles, "obstacles", grid)] = crowd.WALL
    if sources is not None:
        _mark_sources(sources, kind)
    exits = (exits,) if isinstance(exits, str) else tuple(exits)
    for side in exits:
        check_choice(side, "exits", _SIDES)
    left, right, bottom, top = (side in exits for side in _SIDES)
    if not (left or right or bottom or top or (kind == crowd.SOURCE).any()):
        raise ValueError("there must be a source cell or an exit, got neither")
    check_choice(method, "method", ("marching", "sweeping"))
    _check_slowness(fields, kind, max(dx, dy), min(dx, dy))
    out = check_out(out, shape)
    if np.may_share_memory(out, fields):  # columns are read while others are written
        fields = fields.copy()
    flags = np.repeat(np.array([left, right, bottom, top], np.uint8), [grid[1], grid[1], 1, 1])
    _travel_times(fields, kind, flags, dx, dy, out.reshape(fields.shape), method == "sweeping")
    return out


def _travel_times(fields, kind, exits, dx, dy, out, sweeping=False):
    """The kernel on checked fields (n, nx, ny); `_corridor` returns the kinds of the cells and the exits."""
    n, nx, ny = fields.shape
    behind = int(np.flatnonzero(kind == crowd.SOURCE).max(initial=-ny)) // ny + 1  # the last row with a source
    pivot = nx if exits[ny:].any() else behind

    def task(part):
        work = np.empty(crowd.eikonal_work_size(len(out[part]), nx, ny))
        crowd.eikonal(fields[part], kind, exits, dx, dy / dx, pivot, sweeping, work, out[part])

    _parallel.parallel_rows(task, n, 64)


def _pair(pair: Any, name: str, of: str = "numbers") -> tuple[Any, Any]:
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair of {of}, got {pair!r}") from None
    return x, y


def _check_pair(pair: Any, name: str) -> Any:
    """A pair of positive numbers, along x and y."""
    return tuple(check_number(each, name, low=0.0, strict_low=True) for each in _pair(pair, name))


def _check_mask(mask: ArrayLike, name: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """A boolean mask of this shape; numbers would hide a mask given the wrong way round."""
    mask = real_numbers(mask, name)
    if mask.dtype != bool:
        raise TypeError(f"{name} must be a boolean mask, got dtype {mask.dtype}")
    if mask.shape != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {mask.shape}")
    return mask


def _mark_sources(sources, kind):
    sources = real_numbers(sources, "sources")
    if sources.dtype == bool:
        cells = np.argwhere(_check_mask(sources, "sources", kind.shape))
    else:
        cells = sources if sources.size else np.empty((0, 2), int)
        if cells.ndim != 2 or cells.shape[1] != 2 or cells.dtype.kind not in "iu":
            given = f"shape {sources.shape}, dtype {sources.dtype}"
            raise ValueError(f"sources must be a boolean mask or a sequence of index pairs (i, j), got {given}")
    for i, j in cells.tolist():
        if not (0 <= i < kind.shape[0] and 0 <= j < kind.shape[1]):
            raise ValueError(f"sources must lie in the grid of shape {kind.shape}, got ({i}, {j})")
        if kind[i, j] == crowd.WALL:
            raise ValueError(f"sources must not lie in obstacles, got ({i}, {j})")
        kind[i, j] = crowd.SOURCE


def _check_slowness(fields, kind, widest, narrowest):
    free = kind != crowd.WALL
    cells = fields if free.all() else fields[:, free]
    if not cells.size:
        return
    low, high = cells.min(), cells.max()  # NaN if there is one
    if not (low > 0 and high < np.inf):
        at = tuple(np.argwhere(free & ~((fields > 0) & (fields < np.inf)))[0].tolist())
        raise ValueError(f"slowness must be positive and finite outside obstacles, got {float(fields[at])!r} at {at}")
    # crossing times of a cell are squared, and 1e140 stands for "unreached" in the kernel
    low, high = low * narrowest, high * widest
    if low < 1e-100 or high > 1e100:
        raise ValueError(f"slowness times spacing must lie between 1e-100 and 1e+100, got {low:g} to {high:g}")
