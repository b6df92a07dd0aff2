"""The data of a study: made once, read, split; errors of its samples."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyRegressor

import randsmap
from randsmap._interface.arrays import as_array
from randsmap._interface.fields import flattened
from randsmap._io.files import checksum
from randsmap.metrics import unchecked_errors
from randsmap.studies._store import stored
from randsmap.studies._study import Study

T = TypeVar("T")
Fields = NDArray[np.float64]  # (n_samples, n_cells)
Sizes = tuple[int, int, int]  # of training, validation and test set


def seed_for(seed: int, *path: int) -> int:
    """A seed for one use, independent of the other uses."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1)[0])


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Result of the call, and the seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def load_data(study: Study, folder: Path, seed: int, progress: bool) -> tuple[Fields, dict[str, NDArray[Any]]]:
    """Fields (n, n_cells), memory-mapped, and a dict that describes them; computed once in a folder."""
    path = folder / "data.npy"

    def make() -> dict[str, Any]:
        made = study.make_data(random_state=seed_for(seed, 0), out=path, progress=progress, **study.data_options)
        return {name: value for name, value in made.items() if name != "data"}

    about = stored(folder / "data.npz", make, path)
    return np.load(path, mmap_mode="r"), about


def file_description(options: dict[str, Any]) -> dict[str, Any]:
    """The options, files by their content."""
    return {key: f"sha256:{checksum(value)}" if key == "image" else value for key, value in options.items()}


def user_data(path: str | os.PathLike[str], conserves: bool) -> tuple[Fields, str]:
    """The user's own snapshots (n, n_cells) from a file of `read_snapshots`, memory-mapped if large, and its checksum.

    ValueError if they have not all the same mass although the study's decoders keep it.
    """
    F = flattened(randsmap.read_snapshots(path), str(path))[0]
    numbers = as_array(F, str(path))
    if conserves:
        try:
            # `fit` of all conservative decoders checks the mass; this one has nothing else to do
            randsmap.ConservativeRegressor(DummyRegressor(), invariants="mass").fit(np.arange(len(F))[:, None], F)
        except ValueError as error:
            raise ValueError(
                f"{path}: {error}. The decoders of this study keep the sum of the cells; "
                "scale every row to one sum, or use a study without (s-curve)"
            ) from None
    return numbers, f"sha256:{checksum(path)}"


def user_sizes(sizes: Iterable[Sizes], n_samples: int) -> tuple[Sizes, ...]:
    """Split sizes of a study, scaled to n_samples samples."""
    fewest = 30  # for training: P = N/4 are then 7 features
    scaled = []
    for train, validation, test in sizes:
        total = train + validation + test
        n_train, n_validation = (n_samples * part // total for part in (train, validation))
        if n_train < fewest:
            raise ValueError(
                f"{n_samples} samples give {n_train} for training (the study's fraction is "
                f"{train / total:g}), expected at least {fewest}"
            )
        scaled.append((n_train, n_validation, n_samples - n_train - n_validation))
    return tuple(scaled)


def random_split(n_samples: int, sizes: Sizes, seed: int) -> list[NDArray[np.intp]]:
    """Rows for training, validation and testing, drawn at random (paper, App. D)."""
    if sum(sizes) != n_samples:
        raise ValueError(f"split {sizes} does not add up to {n_samples} samples")
    order = np.random.RandomState(seed).permutation(n_samples)
    return np.split(order, np.cumsum(sizes)[:-1])


def trajectory_split(trajectories: NDArray[Any], sizes: Sizes, seed: int) -> list[NDArray[np.intp]]:
    """Rows for training, validation and testing such that no trajectory is in two parts.

    Whole trajectories are dealt out until a part has its size; the surplus of its last one is not used. Testing gets
    the trajectories that are left, so it may be a little smaller.
    """
    rng = np.random.RandomState(seed)
    names = rng.permutation(np.unique(trajectories))
    ends = np.cumsum([0, *(np.count_nonzero(trajectories == name) for name in names)])
    parts, first = [], 0
    for k, size in enumerate(sizes):
        is_last = k == len(sizes) - 1
        last = len(names) if is_last else min(int(np.searchsorted(ends, ends[first] + size)), len(names))
        rows = np.flatnonzero(np.isin(trajectories, names[first:last]))
        if len(rows) < (1 if is_last else max(size, 1)):
            raise ValueError(
                f"{len(names)} trajectories are too few for parts of {sizes} samples "
                "without a trajectory in two of them"
            )
        parts.append(rng.permutation(rows)[:size])
        first = last
    return parts


def rows_of(data: Fields, rows: NDArray[np.intp], out: Fields | None = None) -> Fields:
    """Fields of some rows in memory, in that order."""
    out = np.empty((len(rows), data.shape[1])) if out is None else out
    return np.take(data, rows, axis=0, out=out, mode="clip")  # "raise" would fill a copy of `out` first


def sample_errors(F: Fields, F_hat: Fields, references: tuple[float, float], conserves: bool) -> NDArray[np.float64]:
    """Relative L2, relative Linf and mass error of each reconstruction, (3, n).

    The references are the usual L2 and maximum norms of a field, so that a field that is empty, or much smaller than
    usual, does not decide a mean alone.
    """
    errors = np.empty((3, len(F)))
    step = max(1, 2**17 // F.shape[1])  # rows of 1 MB, which stays in cache
    for start in range(0, len(F), step):
        rows = slice(start, start + step)
        errors[:, rows] = unchecked_errors(F[rows], F_hat[rows], references)
        if conserves:  # relative to the mass, which is 1 in the paper's data
            errors[2, rows] /= abs(F[rows].sum(axis=1))
    return errors


def error_summary(errors: NDArray[np.float64], conserves: bool, seconds: float) -> dict[str, float | None]:
    """Means of `sample_errors` over the samples, and the seconds."""
    l2, linf, conservation = (float(each.mean()) for each in errors)
    return {"rel_l2": l2, "rel_linf": linf, "conservation": conservation if conserves else None, "seconds": seconds}
