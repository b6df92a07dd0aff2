"""Data of a study's figures: coordinates, summary statistics, one field, the map of DDM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from randsmap._linalg.distances import gaussian_kernel, gaussian_of_data
from randsmap._linalg.scales import median_norm
from randsmap.metrics import field_norms, scaled_l2

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """Selection of columns, axes and colours for the figures of a study."""

    shown: tuple[int, ...]  # columns that are plotted: of the summary statistics, or of a point's coordinates
    names: tuple[str, ...] = ()  # of the columns of points
    intrinsic: Mapping[str, _Values] = field(default_factory=dict)  # known values (n_samples,) that no field has
    axes: Mapping[str, _Values] = field(default_factory=dict)  # coordinates along each axis of a field; {} for points
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

    def describe(self, F: _Values) -> dict[str, _Values]:
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


def summary_statistics(F: _Values, axes: Sequence[_Values]) -> _Values:
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


def user_view(n_cells: int, densities: bool) -> View:
    """View of the user's own snapshots: densities along the cell index, or the first coordinates."""
    if densities:
        return View((0, 1, 2), axes={"cell": np.arange(float(n_cells))})
    shown = tuple(min(j, n_cells - 1) for j in range(3))
    return View(shown, tuple(f"x{j + 1}" for j in shown))


def harmonics_map(
    Y_train: _Values,
    F_train: _Values,
    Y_validation: _Values,
    F_validation: _Values,
    *,
    weights: Sequence[float],
    ranks: Sequence[int],
) -> _Values:
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
