"""The data of a study: read, split, errors of its samples, and what its figures show of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from randsmap._linalg.distances import gaussian_kernel, gaussian_of_data
from randsmap._linalg.scales import median_norm
from randsmap.metrics import conservation_error, field_norms, scaled_l2, scaled_linf

T = TypeVar("T")
Values = NDArray[np.float64]  # of fields (n_samples, n_cells)
Sizes = tuple[int, int, int]  # of training, validation and test set


def seed_for(seed: int, *path: int) -> int:
    """A seed for one use, independent of the other uses."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1)[0])


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Result of the call, and the seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


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


def sample_errors(F: Values, F_hat: Values, references: tuple[float, float], conserves: bool) -> Values:
    """Relative L2, relative Linf and mass error of each reconstruction, (3, n); NaN where no mass is conserved.

    The references are the usual L2 and maximum norms of a field, so that a field that is empty, or much smaller than
    usual, does not decide a mean alone.
    """
    l2, linf = references
    mass = abs(F.sum(axis=1)) if conserves else np.nan  # 1 in the paper's data
    errors = scaled_l2(F, F_hat, reference=l2), scaled_linf(F, F_hat, reference=linf)
    return np.array([*errors, conservation_error(F, F_hat) / mass])


# --- what the figures show ------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Selection of columns, axes and colours for the figures of a study."""

    shown: tuple[int, ...]  # columns that are plotted: of the summary statistics, or of a point's coordinates
    names: tuple[str, ...] = ()  # of the columns of points
    intrinsic: Mapping[str, Values] = field(default_factory=dict)  # known values (n_samples,) that no field has
    axes: Mapping[str, Values] = field(default_factory=dict)  # coordinates along each axis of a field; {} for points
    mask: NDArray[np.bool_] | None = None  # (nx, ny), False where a field is always 0
    color: str | None = None  # name of the intrinsic values that colour the samples; None: by the first column shown
    target: float | None = None  # first intrinsic value of the field shown; None: the middle one
    with_axes: bool = True  # whether the coordinates of the axes have a meaning (not for images)

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """Names of all summary statistics."""
        return tuple(f"{what} {axis}" for axis in self.axes for what in ("mean", "variance", "skewness"))

    @property
    def point_names(self) -> tuple[str, ...]:
        """Names of the columns that are plotted."""
        return tuple(self.statistic_names[j] for j in self.shown) if self.axes else self.names

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a field; () for points."""
        return tuple(len(axis) for axis in self.axes.values())

    def describe(self, F: Values) -> dict[str, Values]:
        """Arrays ``points`` and, for fields, ``statistics`` of samples F (n, n_cells)."""
        if not self.axes:
            return {"points": np.ascontiguousarray(F[:, list(self.shown)])}
        statistics = summary_statistics(F, list(self.axes.values()))
        return {"points": statistics[:, list(self.shown)], "statistics": statistics}

    def pick(self, rows: NDArray[np.intp]) -> int:
        """Index of the sample that is shown as a field."""
        if self.target is None:
            return len(rows) // 2
        first = next(iter(self.intrinsic.values()))
        return int(np.argmin(abs(first[rows] - self.target)))


def summary_statistics(F: Values, axes: Sequence[Values]) -> Values:
    """Mean, variance and skewness of densities F (n, n_cells) along each axis (paper, Figs. LWR_data, Hughes_data).

    Columns are those along the first axis, then along the second; NaN where negative values make a variance or a mass
    that is not positive. The densities need not be normalised.
    """
    F = np.asarray(F).reshape(len(F), *(len(axis) for axis in axes))
    columns = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for i, x in enumerate(axes):
            others = tuple(j + 1 for j in range(len(axes)) if j != i)
            density = F.sum(axis=others)
            mass = density.sum(axis=1)
            mean = density @ x / mass
            offset = x - mean[:, None]
            variance, third = (np.einsum("ij,ij->i", density, offset**power) / mass for power in (2, 3))
            # negative values of a reconstruction may leave no variance
            variance = np.where(variance > 0, variance, np.nan)
            columns += [mean, variance, third / variance**1.5]
    return np.column_stack(columns)


def point_view(about: Mapping[str, Any], shown: tuple[int, ...], names: tuple[str, ...]) -> View:
    """View of points of a manifold, coloured by their first intrinsic coordinate."""
    coordinates = [str(name) for name in about["coordinate_names"]]
    return View(shown, names, dict(zip(coordinates, about["coordinates"].T)), color=coordinates[0])


def harmonics_map(
    Y_train: Values,
    F_train: Values,
    Y_validation: Values,
    F_validation: Values,
    *,
    weights: Sequence[float],
    ranks: Sequence[int],
) -> Values:
    """Mean relative L2 validation error of double diffusion maps over w_2 and the number r of harmonics.

    This is the paper's exhaustive search (Figs. DM_GH_tuning), of shape (len(weights), len(ranks)). The `weights` w_2
    are kernel widths in units of the median distance; the `ranks` r ascend and are below the number of training points.
    Harmonics whose eigenvalue is round-off are left out, as in `DoubleDiffusionMapsDecoder`.
    """
    # fields of 64 MB at a time; one start of the iteration, so that the same bits come out again
    n, step = len(Y_train), max(1, 2**23 // F_train.shape[1])
    start = np.random.RandomState(0).standard_normal(n)
    errors, reference = np.zeros((len(weights), len(ranks))), median_norm(field_norms(F_train))
    for i, weight in enumerate(weights):
        K, epsilon = gaussian_of_data(Y_train, None, weight)
        eigenvalues, V = scipy.sparse.linalg.eigsh(K, k=ranks[-1], which="LA", v0=start)
        eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
        # harmonics divide by their eigenvalues, which would blow up round-off
        kept = int(np.count_nonzero(eigenvalues > n * np.finfo(float).eps * eigenvalues[0]))
        eigenvalues, V = eigenvalues[:kept], V[:, :kept]
        del K
        coef = V.T @ F_train
        for first in range(0, len(Y_validation), step):
            rows = slice(first, first + step)
            harmonics = gaussian_kernel(Y_validation[rows], Y_train, epsilon=epsilon) @ (V / eigenvalues)
            F_hat = np.zeros_like(F_validation[rows])
            done = 0  # all ranks together cost one decoding: each adds the harmonics that the one before lacks
            for j, rank in enumerate(ranks):
                F_hat += harmonics[:, done:rank] @ coef[done:rank]
                done = min(rank, kept)
                errors[i, j] += scaled_l2(F_validation[rows], F_hat, reference=reference).sum()
    return errors / len(Y_validation)
