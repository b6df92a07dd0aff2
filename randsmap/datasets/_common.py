"""Parts of all generators: random streams, work in blocks with a progress bar, output in memory or on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from randsmap import _parallel
from randsmap._interface.arrays import check_out
from randsmap._interface.parameters import check_random_state, document
from randsmap._io import files
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._linalg import rows

RandomState = None | int | np.random.RandomState | np.random.Generator
Output = None | NDArray[np.float64] | str | os.PathLike[str]
_Function = TypeVar("_Function")

_TEXTS = {
    "seed": """\
random_state : None, int, RandomState or Generator
    Seed. The data are the same for any number of threads.""",
    "runs": """\
n_trajectories : int
    Number of trajectories.
snapshots_per_trajectory : int
    Number of snapshots of each, at most the number of its states, t_end / dt + 1.
random_state : None, int, RandomState or Generator
    Seed. Trajectory i has a random stream of its own, so its data do not depend on the number of trajectories or
    threads.
t_end, dt : float
    Final time, and time step; the states are those at the multiples of dt up to t_end.""",
    "out": """\
out : ndarray of the shape of ``data`` or path of a .npy file, optional
    Where to write the data: a C-contiguous float64 array, memory-mapped perhaps, or a file, which is written as
    the data are computed and appears when it is complete; ``data`` is then its read-only memory map.
progress : bool, default False
    Show a progress bar.""",
    "snapshots": """\
``data`` (n, n_cells): the snapshots, trajectory by trajectory, in order of time, n = n_trajectories *
snapshots_per_trajectory; ``times`` (n,); ``trajectories`` (n,): number of the trajectory;""",
    "raises": """\
Raises
------
ValueError, TypeError
    If an argument is out of range, `out` does not fit, or dt violates the CFL condition of the solver.""",
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
At time 0 the initial data are returned as they are.""",
}


def documented(function: _Function) -> _Function:
    """Fill the lines {seed}, {out}, ... of the docstring of a generator or of a solver's method."""
    return document(function, _TEXTS)


def describe(description: str) -> Callable[[_Function], _Function]:
    """`documented`, with the text of a data set below its title in the line {description}."""
    return partial(document, texts={**_TEXTS, "description": description.partition("\n\n")[2].rstrip()})


def random_streams(random_state: RandomState, n_streams: int) -> list[np.random.Generator]:
    """Independent generators; the first ones do not depend on how many there are."""
    words = check_random_state(random_state)
    words = words.integers if isinstance(words, np.random.Generator) else words.randint
    seeds = np.random.SeedSequence(words(0, 2**32, size=4, dtype=np.uint64)).spawn(n_streams)
    return [np.random.default_rng(seed) for seed in seeds]


def fill_blocks(
    out: Output,
    shape: tuple[int, int],
    fill: Callable[[NDArray[np.float64], int, slice], object],
    block_size: int,
    *,
    description: str,
    progress: bool,
) -> NDArray[np.float64]:
    """`fill_output`, where ``fill(array, block, rows)`` fills a block of rows (a slice), on several threads."""
    n_rows = shape[0]

    def blocks(array):
        with ProgressBar(n_rows, description) as bar:

            def task(block):
                rows = slice(block * block_size, min((block + 1) * block_size, n_rows))
                fill(array, block, rows)
                bar.update(rows.stop - rows.start)

            _parallel.parallel_for(task, -(-n_rows // block_size))

    with if_asked(progress):
        return fill_output(out, shape, blocks)


def fill_output(
    out: Output, shape: tuple[int, ...], fill: Callable[[NDArray[np.float64]], object]
) -> NDArray[np.float64]:
    """The array that ``fill(array)`` has filled: a new one, the caller's or a file's, mapped for reading.

    A file appears under its name only when it is complete; a failure leaves what was there before.
    """
    if out is None or isinstance(out, np.ndarray):
        array = check_out(out, shape)
        fill(array)
        return array
    if not isinstance(out, (str, os.PathLike)):
        raise TypeError(f"out must be a float64 NumPy array, the path of a .npy file or None, got {type(out).__name__}")
    path = files.expanded(out)
    if files.is_stream(path):  # nothing to be mapped
        array = np.empty(shape)
        fill(array)
        files.write_atomically(path, lambda file: np.save(file, array))
        return array
    if path.suffix.lower() != ".npy":
        raise ValueError(f"out must name a .npy file, got {str(path)!r}")
    rows.write_npy(path, shape, fill)
    return np.load(path, mmap_mode="r")
