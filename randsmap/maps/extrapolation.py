"""Distance of latent points from the training points: the warning of fields decoded far away, and leverage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.callers import quiet, warn_caller
from randsmap._kernels.decode import MOST_BOXES, Boxes
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.scales import standard_deviations

FACTOR = 100.0  # a row is far away beyond this multiple of the training points' leverage; see `Leverage`
DISTANCE_FACTOR = 5.0  # the same for leverages that are distances instead of variances
_DUPLICATE_DISTANCE = 1e-9  # distance, in standard deviations of the latents, of points that count as one
_Values = NDArray[np.float64]


class ExtrapolationWarning(UserWarning):
    """A decoded latent point is far from all training points.

    `predict` warns of the row that is farthest from the training points, if its distance exceeds the usual distances
    between them (docs/extrapolation.md has the rule). Filters for warnings switch it off or make it an error:
    ``warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)``. The decoder's `leverage` measures the distance.
    The points of a `ParametricModel` may be parameters.

    Parameters
    ----------
    message : str

    Examples
    --------
    >>> import warnings
    >>> import numpy as np, randsmap
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> decoder = randsmap.KernelDecoder().fit(latents, np.hstack([latents, 1 - latents]))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", randsmap.ExtrapolationWarning)
    ...     try:
    ...         decoder.predict([[30.0]])
    ...     except randsmap.ExtrapolationWarning as warning:
    ...         print(str(warning)[:30])
    row 0 of X is far from the tra
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


class TrustRegion:
    """The surroundings of the training points (n, d), outside which `predict` warns.

    At most 64 boxes cover the points: the widest is split at its median until there are so many. A point is far away if
    it is farther from the nearest box than max(0.6, 1.5 h), in standard deviations of the latents. h is the distance of
    a training point from its nearest neighbour that 90 % of them do not exceed; points that coincide count as one.
    """

    def __init__(self, points: _Values) -> None:
        scale = standard_deviations(points)
        # On five public sets of snapshots (d = 2, 3; 1206 held-out fields of tuned decoders) every field with an error
        # above 52 % is then far away, and no field with less than 3 times the median error.
        self.limit = max(0.6, 1.5 * _usual_gap(points / scale))
        self.boxes = Boxes(*_boxes(points, scale), 1 / scale, self.limit)
        self.farthest = self.boxes.farthest  # the row that is farthest away, or -1: 0.2 us

    @quiet
    def warn(self, decoder: Any, X: _Values) -> None:
        """Warn of the row of X (n, d) that is farthest from the training points, if it is far away."""
        row = self.farthest(X)
        if row < 0:
            return
        warn_caller(
            f"row {row} of X is far from the training points of this {type(decoder).__name__}: "
            f"{self.boxes.distance(X[row]):.3g} standard deviations of the latents. Beyond {self.limit:.3g} decoded "
            "fields may have large errors. `leverage` measures the distance",
            ExtrapolationWarning,
        )


def _usual_gap(points):
    """A quantile of the distances of the points from their nearest neighbours, without copies."""
    step = -(-len(points) // 4096)  # a share of 90 % of 4096 points is 90 +- 0.5 % of all
    nearest = NeighborIndex(points).query(np.ascontiguousarray(points[::step]), min(2, len(points)))[0][:, -1]
    nearest = nearest[nearest > _DUPLICATE_DISTANCE]
    return float(np.quantile(nearest, 0.9)) if len(nearest) else 0.0


def _boxes(points, scale):
    """Lower and upper corners (d, K) of K <= MOST_BOXES boxes that cover the points (n, d).

    Each round halves every group of points along its widest coordinate, in units of `scale`. The groups are one array.
    """
    groups = points[None]
    while groups.shape[1] > 1 and 2 * len(groups) <= MOST_BOXES:
        widest = np.argmax(np.ptp(groups, axis=1) / scale, axis=1)
        along = np.take_along_axis(groups, widest[:, None, None], axis=2)[:, :, 0]
        half = groups.shape[1] // 2
        order = np.argpartition(along, half, axis=1)
        groups = np.take_along_axis(groups, order[:, :, None], axis=1)
        upper = groups[:, half:]
        lower = groups[:, : upper.shape[1]]  # both halves of an odd number contain the middle
        groups = np.concatenate([lower, upper])
    return np.ascontiguousarray(groups.min(axis=1).T), np.ascontiguousarray(groups.max(axis=1).T)


def leverage_cost(part: Any) -> float:
    """Operations of the first call of an estimator's `leverage`, about; infinite if it has none."""
    fit = getattr(part, "fitted", None)
    if fit is None or getattr(fit, "solver", "") == "krylov":  # it avoids this factorisation
        return np.inf
    if hasattr(fit, "leverage_parts"):
        return sum(map(leverage_cost, fit.leverage_parts)) if fit.leverage_parts else np.inf
    n, P = len(fit.training_points), len(getattr(fit, "coefficients", ()))
    return float(n) * P * min(n, P)


def _without_duplicates(points):
    """True for training points without a duplicate; True for all if every point has one."""
    points = points / standard_deviations(points)
    single = NeighborIndex(points).query(points, min(2, len(points)))[0][:, -1] > _DUPLICATE_DISTANCE
    return single if single.any() else ~single


def in_limits(values: Any, limit: float) -> _Values:
    """Leverages in units of their limit; of a limit of 0, infinite except for 0."""
    return np.divide(values, limit, out=np.where(np.greater(values, 0), np.inf, 0.0), where=limit > 0)


class Leverage:
    """A decoder's leverage, ``at(X)`` (L,) of latent points X (L, d), and what is large.

    The training `points` (n, d) have the leverage `training` (n,), and would have `held_out` (n,) if they were none.
    The limit is `factor` times the largest leverage of training points or, if that is more, times the 0.7 quantile of
    the held-out ones of points that have no twin: a decoder that interpolates has leverages near 1 at its training
    points (or 0, where lambda is 0), and much larger ones between them. It is at most half-way from the largest to
    `highest`, about the leverage far from all points, k(z, z) / lambda or |psi|^2 / lambda, where it tends to a number.
    """

    def __init__(
        self,
        at: Callable[[_Values], _Values],
        points: _Values,
        training: _Values,
        held_out: _Values,
        highest: float = np.inf,
        factor: float = FACTOR,
        limit: float | None = None,
    ) -> None:
        self._at, self.factor = at, factor
        self.largest = float(training.max())
        if limit is None:
            # On three public sets of snapshots (d = 2, 3) all fields of an error above 50 % then exceed the limit of
            # tuned random features, and no field of less than 3 times the median error; the quantile is for kernels.
            usual = float(np.quantile(held_out[_without_duplicates(points)], 0.7, method="lower"))
            limit = factor * max(self.largest, usual if np.isfinite(usual) else 0.0)
            limit = min(limit, (self.largest + highest) / 2 if highest > self.largest else 2 * self.largest)
        self.limit = limit

    def at(self, X: _Values) -> _Values:
        """Leverage (L,) of points X (L, d); infinite where it overflows."""
        values = self._at(X)
        return np.where(np.isnan(values), np.inf, values)

    def relative(self, X: _Values) -> _Values:
        """100 times the leverage (L,) of points X (L, d) in units of the limit, that of distances squared."""
        values, power = self.at(X), 2 if self.factor == DISTANCE_FACTOR else 1
        return FACTOR * in_limits(values, self.limit) ** power
