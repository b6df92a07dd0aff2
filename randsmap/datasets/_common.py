"""Parts of all generators: random streams, work in blocks, output; of both solvers: times, checks, threads, runs."""

from __future__ import annotations

import inspect
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from randsmap import _parallel
from randsmap._interface.arrays import LARGEST, as_array, check_domain, check_out
from randsmap._interface.parameters import check_count, check_number, check_random_state, document
from randsmap._io import files
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._linalg import rows

_EPS = np.finfo(np.float64).eps
RandomState = None | int | np.random.RandomState | np.random.Generator
Output = None | NDArray[np.float64] | str | os.PathLike[str]
_Values = NDArray[np.float64]
_Integers = NDArray[np.intp]
_Fill = Callable[..., object]
_Events = tuple[_Integers, _Values, _Integers]  # steps, fractions of a step and rows of snapshots
_Documented = TypeVar("_Documented", bound=Callable[..., Any])

_TEXTS = {
    "n_points": """\
n_samples : int, default={n_samples}
    Number of points.""",
    "noise": """\
noise : float, default={noise}
    Standard deviation of the Gaussian noise.""",
    "seed": """\
random_state : None, int, RandomState or Generator, default=None
    Seed. The data are the same for any number of threads.""",
    "runs": """\
n_trajectories, snapshots_per_trajectory : int, default={n_trajectories}, {snapshots_per_trajectory}
    Number of trajectories, and of the snapshots of each. They are drawn without replacement from its states.
random_state : None, int, RandomState or Generator, default=None
    Seed. Trajectory i has a random stream of its own, so its data do not depend on the number of trajectories or
    threads.
t_end, dt : float, default={t_end}, {dt}
    Final time, and time step; the states are those at the multiples of dt from 0 to t_end.""",
    "out": """\
out : ndarray of the shape of ``data`` or path of a .npy file, default=None
    Where to write the data: a C-contiguous float64 array, possibly memory-mapped, or a file, which appears when it is
    complete; ``data`` is then its read-only memory map.
progress : bool, default False
    Show a progress bar.""",
    "snapshots": """\
``data`` (n, n_cells): the snapshots, trajectory by trajectory, in order of time, n = n_trajectories *
snapshots_per_trajectory; ``times`` (n,); ``trajectories`` (n,): number of the trajectory;""",
    "density": "density : array_like (nx * ny,) or (n, nx * ny)\n    As `solve` takes and returns them.",
    "returns_potential": "ndarray, the shape of density",
    "raises": """\
ValueError, TypeError
    If an argument is out of range, `out` does not fit, or a solver's Courant number exceeds 1 (the message states
    the largest admissible dt).""",
    "example": """\
>>> from randsmap import datasets
>>> roll, curve = datasets.make_swiss_roll(500), datasets.make_s_curve(500)
>>> roll.data.shape, curve.data.shape, curve.coordinates.shape
((500, 3), (500, 20), (500, 2))
>>> traffic, crowd = datasets.make_lwr(3, 10), datasets.make_hughes(3, 10, t_end=1.0)
>>> images = datasets.make_rotated_images(36, shape=32)
>>> traffic.data.shape, crowd.data.shape, images.data.shape
((30, 400), (30, 10000), (36, 1024))
>>> bool(abs(images.data.sum(axis=1) - 1).max() < 1e-14)
True""",
    "curve": """\
Parameters
----------
latents : array_like (n, 2)
    Points of the curve, such as the latents of images of one full turn; the last is joined to the first.
angles : array_like (n,), default=None
    The points are taken in the order of these angles; by default in the order given.

Returns
-------
int
    Positive counter-clockwise, 0 if the curve does not go round its centroid.

Raises
------
ValueError, TypeError
    If there are fewer than 3 points, or a point is the centroid.

Examples
--------
>>> import numpy as np
>>> from randsmap.datasets import warn_unless_covered_once, winding_number
>>> t = np.linspace(0, 2 * np.pi, 50, endpoint=False)
>>> winding_number(np.column_stack((np.cos(2 * t), np.sin(2 * t)))), warn_unless_covered_once([[1, 0], [0, 1], [-1, 0]])
(2, 1)""",
    "solve": """\
Parameters
----------
initial : array_like (n_cells,) or (n_trajectories, n_cells)
    Densities (cell averages) at time 0, between 0 and rho_max, and 0 in obstacles. Not changed.
t_end : float
    Final time, at least 0.
times : array_like (n_times,), optional
    Times of the returned fields, ascending, between 0 and t_end; by default t_end alone.

Returns
-------
Bunch
    ``fields``: (n_times, n_cells), or (n_trajectories, n_times, n_cells) for two-dimensional `initial`; ``times``:
    (n_times,), exactly the times requested.

Raises
------
ValueError, TypeError
    If `initial` has the wrong shape or values out of range, or the times are negative, not ascending or beyond t_end.

Notes
-----
A time that is a multiple of dt to round-off is reached by whole steps; any other by whole steps and one shorter step.
At time 0 the initial data are returned as they are. A field does not depend on the other times, the other trajectories
or the number of threads.""",
}


def documented(thing: _Documented) -> _Documented:
    """Fill the lines {seed}, {out}, ... of docstrings, with the defaults of a function's parameters."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(thing).parameters.items()}
    return document(thing, {name: text.format_map(defaultdict(str, defaults)) for name, text in _TEXTS.items()})


def random_streams(random_state: RandomState, n_streams: int) -> list[np.random.Generator]:
    """Independent generators; the first ones do not depend on how many there are."""
    words = check_random_state(random_state)
    words = words.integers if isinstance(words, np.random.Generator) else words.randint
    seeds = np.random.SeedSequence(words(0, 2**32, size=4, dtype=np.uint64)).spawn(n_streams)
    return [np.random.default_rng(seed) for seed in seeds]


def fill_blocks(
    out: Output, shape: tuple[int, int], fill: _Fill, block_size: int, *, description: str, progress: bool
) -> _Values:
    """`fill_output`, where ``fill(array, rows)`` fills a block of rows (a slice), on several threads."""

    def blocks(array):
        with ProgressBar(shape[0], description) as bar:

            def task(rows):
                fill(array, rows)
                bar.update(rows.stop - rows.start)

            _parallel.parallel_rows(task, shape[0], block_size)

    with if_asked(progress):
        return fill_output(out, shape, blocks)


def fill_output(out: Output, shape: tuple[int, ...], fill: _Fill) -> _Values:
    """The array that ``fill(array)`` has filled: new, the caller's, or a map of a file that appears once complete."""
    if out is None or isinstance(out, np.ndarray):
        array = check_out(out, shape)
        fill(array)
        return array
    if not isinstance(out, (str, os.PathLike)):
        raise TypeError(f"out must be a float64 NumPy array, the path of a .npy file or None, got {type(out).__name__}")
    path = files.expanded(out)
    if files.is_stream(path):  # a stream cannot be mapped
        array = fill_output(None, shape, fill)
        files.write_atomically(path, lambda file: np.save(file, array))
        return array
    if path.suffix.lower() != ".npy":
        raise ValueError(f"out must name a .npy file, got {str(path)!r}")
    rows.write_npy(path, shape, fill)
    return np.load(path, mmap_mode="r")


# -- Times -----------------------------------------------------------------------------------------
def steps_to(times: _Values, dt: float) -> tuple[_Integers, _Values]:
    """Whole steps to each time, and the part of one more step that is left (0: none)."""
    if times[-1] > 2**53 * dt:
        raise ValueError(f"t_end = {times[-1]:g} takes more than 2**53 steps of dt = {dt:g}")
    whole, round_off = np.rint(times / dt), 4 * _EPS * times
    # 3 * 0.1 and 0.3 are the same time: a difference by round-off is no step
    whole = np.where(np.abs(times - whole * dt) <= round_off, whole, np.floor(times / dt))
    rest = times - whole * dt
    return whole.astype(np.intp), np.where(rest > round_off, rest / dt, 0.0)


# -- Densities -------------------------------------------------------------------------------------
def check_densities(densities: ArrayLike, name: str, n_cells: int, rho_max: float, slack: float = 0.0) -> _Values:
    """Densities of one field or of several, (n, n_cells), between 0 and rho_max, which may be exceeded by `slack`."""
    cells = np.atleast_2d(as_array(densities, name, (n_cells,) if np.ndim(densities) == 1 else (None, n_cells)))
    check_domain(cells, name)
    for extreme in (float(cells.min()), float(cells.max())):
        if not 0 <= extreme <= rho_max * (1 + slack):
            raise ValueError(f"{name} densities must lie between 0 and rho_max = {rho_max:g}, got {extreme!r}")
    return cells


def check_courant(courant: float, formula: str, largest: float, given: dict[str, float]) -> None:
    """ValueError, with the largest admissible dt, if the Courant number of these values is above 1."""
    if not courant <= 1 + 4 * _EPS:  # a number that is 1 on paper may come out above it
        values = f"{courant:g} ({', '.join(f'{name}={value:g}' for name, value in given.items())})"
        limit = f"the largest admissible dt is {largest:.17g}"
        raise ValueError(f"the Courant number {formula} must be at most 1, got {values}; {limit}")


# -- Threads ---------------------------------------------------------------------------------------
def run_trajectories(run: Callable[[slice, threading.Event], object], n: int, size: int = 1) -> None:
    """run(group, stopped) for groups of n trajectories, on threads; an exception, such as Ctrl-C, sets `stopped`."""
    stopped = threading.Event()

    def task(group):
        try:
            run(group, stopped)
        except BaseException:
            stopped.set()
            raise

    try:
        _parallel.parallel_rows(task, n, size)
    finally:  # the interrupt may come while the caller waits for the other threads
        stopped.set()


def bounded_calls(steps: _Integers, fractions: _Values, rows: _Integers, limit: int) -> Iterator[_Events]:
    """Events (steps since the one before, fraction of one more, row or -1) in calls of at most `limit` steps."""
    first = reached = 0
    while first < len(steps):
        pause = min(reached + limit, int(steps[-1]))  # an event without a snapshot
        last = int(np.searchsorted(steps, pause, side="right"))
        gaps = np.diff(steps[first:last], prepend=reached, append=pause)
        no_row = np.full((1, *rows.shape[1:]), -1, np.intp)
        yield gaps, np.append(fractions[first:last], 0.0), np.concatenate([rows[first:last], no_row])
        first, reached = last, pause


# -- Fields at given times and at random ones ------------------------------------------------------
# integrate(initial, events, out) integrates each row of `initial` and writes snapshots to rows of `out`; events(group),
# for a slice of trajectories, gives ascending steps (n,), fractions of one more step (n,) and rows (n, len(group)) of
# `out`, -1 for none
def solve(integrate: Any, initial: _Values, t_end: Any, times: Any, dt: float, single: bool) -> Bunch:
    """Fields of the initial ones (n_trajectories, M) at the output times; `single`: those of the first alone."""
    t_end = check_number(t_end, "t_end", low=0.0)
    times = np.array([t_end]) if times is None else as_array(times, "times", (None,)).copy()
    if not len(times):
        raise ValueError("times must not be empty")
    for k in np.flatnonzero(np.diff(times) < 0)[:1]:
        raise ValueError(f"times must be ascending, got {float(times[k + 1])!r} after {float(times[k])!r}")
    for time in times[(times < 0) | (times > t_end)][:1].tolist():
        raise ValueError(f"times must lie between 0 and t_end = {t_end!r}, got {time!r}")
    steps, fractions = steps_to(times, dt)
    rows = np.arange(len(initial) * len(times)).reshape(len(initial), len(times))
    out = np.empty((rows.size, initial.shape[1]))
    integrate(initial, lambda group: (steps, fractions, rows[group].T), out)
    fields = out.reshape(*rows.shape, -1)
    return Bunch(fields=fields[0] if single else fields, times=times)


def draw_runs(
    random_state: RandomState, n_trajectories: int, n_snapshots: int, t_end: float, dt: float, draw: Any
) -> tuple[_Values, _Values, _Integers]:
    """Parameters (n, p) and initial fields (n, M) by draw(rng), and steps (n, n_snapshots), drawn at random."""
    last = int(steps_to(np.array([check_number(t_end, "t_end", low=0.0, high=LARGEST)]), dt)[0][0])
    n_snapshots = check_count(n_snapshots, "snapshots_per_trajectory", high=last + 1, high_name="the number of states")
    runs = []
    for rng in random_streams(random_state, check_count(n_trajectories, "n_trajectories")):
        runs.append((*draw(rng), np.sort(rng.choice(last + 1, n_snapshots, replace=False))))
    parameters, initial, steps = map(np.array, zip(*runs))
    return parameters, initial, steps


def snapshots_of_runs(
    integrate: Any, parameters: _Values, initial: _Values, steps: _Integers, dt: float, out: Output, **more: Any
) -> Bunch:
    """The data set of the snapshots of runs after these steps, trajectory by trajectory."""

    def events(group):
        reached, position = np.unique(steps[group], return_inverse=True)
        rows = np.full((len(reached), group.stop - group.start), -1, np.intp)
        trajectory, snapshot = np.indices(steps[group].shape)
        rows[position.reshape(snapshot.shape), trajectory] = (group.start + trajectory) * steps.shape[1] + snapshot
        return reached, np.zeros(len(reached)), rows

    data = fill_output(out, (steps.size, initial.shape[1]), lambda data: integrate(initial, events, data))
    times, trajectories = (steps * dt).reshape(-1), np.repeat(np.arange(len(steps)), steps.shape[1])
    return Bunch(data=data, times=times, trajectories=trajectories, parameters=parameters, **more)
