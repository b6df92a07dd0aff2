"""Data of a study's figures: coordinates, summary statistics, one field, the map of DDM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from randsmap._linalg import distances as _distances
from randsmap._linalg.scales import median_norm
from randsmap._linalg.svd import pivoted_cholesky
from randsmap.decoders._kernel import retained_modes
from randsmap.metrics import field_norms, scaled_l2


@dataclass(frozen=True)
class View:
    """Selection of columns, axes and colours for the figures of a study."""

    shown: tuple[int, ...]  # columns that are plotted: of the summary statistics, or of a point's coordinates
    point_names: tuple[str, ...]
    color: tuple[str, int]  # "statistic", "intrinsic" or "coordinate", and the column
    color_name: str
    intrinsic: NDArray[np.float64]  # (n_samples, q), known values of each sample that are not in its field
    intrinsic_names: tuple[str, ...]
    axes: tuple[NDArray[np.float64], ...] = ()  # coordinates along each axis of a field; () for points
    axis_names: tuple[str, ...] = ()
    mask: NDArray[np.bool_] | None = None  # (nx, ny), False where a field is always 0
    target: tuple[int, float] | None = None  # column and value of the field shown; None: the middle one
    with_axes: bool = True  # whether the coordinates of the axes have a meaning (not for images)

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """Names of all summary statistics."""
        return _statistics_of(self.axis_names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a field; () for points."""
        return tuple(len(axis) for axis in self.axes)

    def describe(self, F: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Arrays ``points`` and, for fields, ``statistics`` of samples F (n, n_cells)."""
        if not self.axes:
            return {"points": np.ascontiguousarray(F[:, list(self.shown)])}
        statistics = summary_statistics(F, self.axes)
        return {"points": statistics[:, list(self.shown)], "statistics": statistics}

    def colors(
        self, F: NDArray[np.float64], rows: NDArray[np.intp], described: dict[str, NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Values that colour the samples F, which are `rows` of the data set."""
        kind, column = self.color
        if kind == "intrinsic":
            return self.intrinsic[rows, column]
        return (described["statistics"] if kind == "statistic" else np.asarray(F))[:, column]

    def pick(self, rows: NDArray[np.intp]) -> int:
        """Index of the sample that is shown as a field."""
        if self.target is None:
            return len(rows) // 2
        column, value = self.target
        return int(np.argmin(abs(self.intrinsic[rows, column] - value)))


def _statistics_of(axis_names):
    return tuple(f"{what} {axis}" for axis in axis_names for what in ("mean", "variance", "skewness"))


def summary_statistics(F: NDArray[np.float64], axes: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
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
            variance = np.where(variance > 0, variance, np.nan)
            columns += [mean, variance, third / variance**1.5]
    return np.column_stack(columns)


def point_view(about: dict[str, Any], shown: tuple[int, ...], names: tuple[str, ...]) -> View:
    """View of points of a manifold, coloured by their first intrinsic coordinate."""
    coordinates = tuple(str(name) for name in about["coordinate_names"])
    return View(
        shown=shown,
        point_names=names,
        color=("intrinsic", 0),
        color_name=coordinates[0],
        intrinsic=about["coordinates"],
        intrinsic_names=coordinates,
    )


def field_view(
    axes: tuple[NDArray[np.float64], ...],
    axis_names: tuple[str, ...],
    shown: tuple[int, ...],
    intrinsic: NDArray[np.float64],
    intrinsic_names: tuple[str, ...],
    *,
    color: tuple[str, int] = ("statistic", 0),
    color_name: str | None = None,
    **options: Any,
) -> View:
    """View of densities, coloured by their mean position."""
    names = _statistics_of(axis_names)
    return View(
        axes=axes,
        axis_names=axis_names,
        shown=shown,
        point_names=tuple(names[j] for j in shown),
        color=color,
        color_name=names[color[1]] if color_name is None else color_name,
        intrinsic=intrinsic,
        intrinsic_names=intrinsic_names,
        **options,
    )


def harmonics_map(
    Y_train: NDArray[np.float64],
    F_train: NDArray[np.float64],
    Y_validation: NDArray[np.float64],
    F_validation: NDArray[np.float64],
    *,
    weights: Sequence[float],
    ranks: Sequence[int],
) -> NDArray[np.float64]:
    """Mean relative L2 validation error of double diffusion maps over w_2 and the number r of harmonics.

    This is the paper's exhaustive search (Figs. DM_GH_tuning), of shape (len(weights), len(ranks)). The `weights` w_2
    are kernel widths in units of the median distance; the `ranks` r ascend and are below the number of training points.
    Harmonics whose eigenvalue is round-off are left out, as in `DoubleDiffusionMapsDecoder`.
    """
    n, step = len(Y_train), max(1, 2**23 // F_train.shape[1])
    start = np.random.RandomState(0).standard_normal(n)
    errors, reference = np.zeros((len(weights), len(ranks))), median_norm(field_norms(F_train))
    for i, weight in enumerate(weights):
        K, epsilon = _distances.gaussian_of_data(Y_train, None, weight)
        eigenvalues, V = scipy.sparse.linalg.eigsh(K, k=ranks[-1], which="LA", v0=start)
        eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
        kept = int(np.count_nonzero(eigenvalues > n * np.finfo(float).eps * eigenvalues[0]))
        eigenvalues, V = eigenvalues[:kept], V[:, :kept]
        del K
        coef = V.T @ F_train
        for first in range(0, len(Y_validation), step):
            rows = slice(first, first + step)
            K_new = _distances.fill_pairs(
                Y_validation[rows], Y_train, _distances.kernel_scale(epsilon), np.empty((len(Y_validation[rows]), n))
            )
            harmonics = K_new @ (V / eigenvalues)
            F_hat = np.zeros_like(F_validation[rows])
            done = 0  # all ranks together cost one decoding: each adds the harmonics that the one before lacks
            for j, rank in enumerate(ranks):
                F_hat += harmonics[:, done:rank] @ coef[done:rank]
                done = min(rank, kept)
                errors[i, j] += scaled_l2(F_validation[rows], F_hat, reference=reference).sum()
    return errors / len(Y_validation)


def rank_of_rule(Y: NDArray[np.float64], weight: float) -> int:
    """Number of harmonics that the paper's printed rule keeps at kernel width w_2 = `weight`."""
    eigenvalues, _ = pivoted_cholesky(_distances.gaussian_of_data(Y, None, weight)[0])
    return retained_modes(eigenvalues, len(Y), "rule")
