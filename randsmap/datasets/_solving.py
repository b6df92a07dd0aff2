"""Parts of both solvers: output times, checks of densities, threads, snapshots of random runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap import _parallel
from randsmap._interface.arrays import LARGEST, as_array, check_domain
from randsmap._interface.parameters import check_count, check_number
from randsmap.datasets._common import Output, RandomState, fill_output, random_streams

if TYPE_CHECKING:
    from sklearn.utils import Bunch

_EPS = np.finfo(np.float64).eps


# -- Times -----------------------------------------------------------------------------------------
def output_times(
    t_end: float, times: ArrayLike | None, dt: float
) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
    """The output times, ascending within [0, t_end], and the whole steps and fractions of a step to each."""
    t_end = check_number(t_end, "t_end", low=0.0)
    checked = np.array([t_end]) if times is None else _check_times(times, t_end)
    return checked, *steps_to(checked, dt)


def _check_times(times, t_end):
    times = as_array(times, "times", (None,)).copy()
    if not len(times):
        raise ValueError("times must not be empty")
    if times[0] < 0:
        raise ValueError(f"times must not be negative, got {float(times[0])!r}")
    if (np.diff(times) < 0).any():
        k = int(np.argmax(np.diff(times) < 0))
        raise ValueError(f"times must be ascending, got {float(times[k + 1])!r} after {float(times[k])!r}")
    if times[-1] > t_end:
        raise ValueError(f"times must not exceed t_end = {t_end!r}, got {float(times[-1])!r}")
    return times


def steps_to(times: NDArray[np.float64], dt: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Whole steps to each time, and the part of one more step that is left (0: none)."""
    if times[-1] > 2**53 * dt:
        raise ValueError(f"t_end = {times[-1]:g} takes more than 2**53 steps of dt = {dt:g}")
    count = times / dt
    whole = np.rint(count)
    # 3 * 0.1 and 0.3 are the same time: a difference of rounding is not a step
    whole = np.where(np.abs(times - whole * dt) <= 4 * _EPS * times, whole, np.floor(count))
    rest = times - whole * dt
    fractions = np.where(rest > 4 * _EPS * times, rest / dt, 0.0)
    return whole.astype(np.intp), fractions


# -- Densities -------------------------------------------------------------------------------------
def check_densities(
    densities: ArrayLike, name: str, n_cells: int, rho_max: float, slack: float = 0.0
) -> NDArray[np.float64]:
    """Densities of one field or of several, (n, n_cells), between 0 and rho_max, which may be exceeded by `slack`."""
    if np.ndim(densities) == 1:
        cells = as_array(densities, name, (n_cells,))[None]
    else:
        cells = as_array(densities, name, (None, n_cells))
    check_domain(cells, name)
    low, high = float(cells.min()), float(cells.max())
    for extreme, beyond in ((low, low < 0), (high, high > rho_max * (1 + slack))):
        if beyond:
            raise ValueError(f"{name} densities must lie between 0 and rho_max = {rho_max:g}, got {extreme!r}")
    return cells


def check_courant(courant: float, formula: str, largest: float, given: dict[str, float]) -> None:
    """ValueError, with the largest admissible dt, if the Courant number of these values is above 1."""
    if not courant <= 1 + 4 * _EPS:  # a number that is 1 on paper may come out above it
        values = ", ".join(f"{name}={value:g}" for name, value in given.items())
        raise ValueError(
            f"the Courant number {formula} must be at most 1, got {courant:g} ({values}); the largest admissible "
            f"dt is {largest:.17g}"
        )


# -- Threads ---------------------------------------------------------------------------------------
def run_trajectories(run: Callable[[int, threading.Event], object], n: int) -> None:
    """run(i, stopped) for i < n, on several threads; `stopped` is set after an exception, such as Ctrl-C."""
    stopped = threading.Event()

    def task(i):
        try:
            run(i, stopped)
        except BaseException:
            stopped.set()
            raise

    try:
        _parallel.parallel_for(task, n)
    except BaseException:
        stopped.set()
        raise


def bounded_calls(
    steps: NDArray[np.intp], fractions: NDArray[np.float64], rows: NDArray[np.intp], limit: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]]:
    """A kernel's events in calls of at most `limit` steps, between which Ctrl-C is seen.

    An event is a number of steps from the event before, a fraction of a step, and the row of the snapshot (-1: none).
    """
    reached, first = 0, 0
    while first < len(steps):
        last = first + int(np.searchsorted(steps[first:], reached + limit, side="right"))
        # the events within the limit; if there are none, steps alone
        chosen = slice(first, last)
        if last == first:
            gaps, fraction, row = [limit], [0.0], np.full((1, *rows.shape[1:]), -1)
            reached += limit
        else:
            gaps = np.diff(steps[chosen], prepend=reached)
            fraction, row = fractions[chosen], rows[chosen]
            reached = int(steps[last - 1])
        yield (np.array(gaps, np.intp), np.array(fraction, np.float64), np.ascontiguousarray(row, np.intp))
        first = last


# -- Fields at given times and at random ones ------------------------------------------------------
# integrate(initial, events, out) integrates each row of `initial` and writes snapshots to rows of `out`; events(group),
# for a slice of trajectories, gives ascending steps (n,), fractions of one more step (n,) and rows (n, len(group)) of
# `out`, -1 for none
def solve(
    integrate: Callable[..., object], initial: NDArray[np.float64], t_end: Any, times: Any, dt: float, single: bool
) -> Bunch:
    """Fields of the initial ones (n_trajectories, M) at the output times; `single`: those of the first alone."""
    from sklearn.utils import Bunch

    times, steps, fractions = output_times(t_end, times, dt)
    rows = np.arange(len(initial) * len(times)).reshape(len(initial), len(times))
    out = np.empty((rows.size, initial.shape[1]))
    integrate(initial, lambda group: (steps, fractions, rows[group].T), out)
    fields = out.reshape(*rows.shape, -1)
    return Bunch(fields=fields[0] if single else fields, times=times)


def draw_runs(
    random_state: RandomState,
    n_trajectories: int,
    n_snapshots: int,
    t_end: float,
    dt: float,
    draw: Callable[[np.random.Generator], tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Parameters (n, p) and initial fields (n, M) by draw(rng), and the steps (n, n_snapshots) of the snapshots.

    The snapshots are drawn without replacement from the states at the multiples of dt up to t_end.
    """
    last = int(steps_to(np.array([check_number(t_end, "t_end", low=0.0, high=LARGEST)]), dt)[0][0])
    n_snapshots = check_count(n_snapshots, "snapshots_per_trajectory", high=last + 1, high_name="the number of states")
    runs = []
    for rng in random_streams(random_state, check_count(n_trajectories, "n_trajectories")):
        runs.append((*draw(rng), np.sort(rng.choice(last + 1, n_snapshots, replace=False))))
    parameters, initial, steps = map(np.array, zip(*runs))
    return parameters, initial, steps


def snapshots_of_runs(
    integrate: Callable[..., object],
    parameters: NDArray[np.float64],
    initial: NDArray[np.float64],
    steps: NDArray[np.intp],
    dt: float,
    out: Output,
    **more: Any,
) -> Bunch:
    """The data set of the snapshots of runs after these steps, trajectory by trajectory."""
    from sklearn.utils import Bunch

    def events(group):
        reached, position = np.unique(steps[group], return_inverse=True)
        rows = np.full((len(reached), group.stop - group.start), -1, np.intp)
        trajectory, snapshot = np.indices(steps[group].shape)
        rows[position.reshape(snapshot.shape), trajectory] = (group.start + trajectory) * steps.shape[1] + snapshot
        return reached, np.zeros(len(reached)), rows

    data = fill_output(out, (steps.size, initial.shape[1]), lambda data: integrate(initial, events, data))
    times, trajectories = (steps * dt).reshape(-1), np.repeat(np.arange(len(steps)), steps.shape[1])
    return Bunch(data=data, times=times, trajectories=trajectories, parameters=parameters, **more)
