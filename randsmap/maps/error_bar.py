"""Error bars: how far decoded fields may be off, from the errors of training fields that were left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from scipy.spatial.distance import cdist

from randsmap._interface.callers import quiet, warn_caller
from randsmap._interface.parameters import Parameter, check_number
from randsmap._interface.state import Array, check_state, declared_state, immutable, saved
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import spread_rows
from randsmap._linalg.scales import error_scales, standard_deviations
from randsmap.invariants import norm_weights
from randsmap.metrics import field_norms

_Values = NDArray[np.float64]
_Labels = NDArray[np.intp]
HOW = "randsmap.model.calibrate(estimator, *training data) finds cross-validation errors by fits without parts of them"
judged_rows = partial(spread_rows, most=2000)  # the training points of an error bar, among n


@immutable
class ErrorBar:
    """Errors that decoded fields do not exceed with a given probability.

    The error at a latent point is a power law of the errors of the nearest training fields, each left out of the fit,
    and of its distances from them, with a conformal quantile as its factor. Far away a power of the distance follows,
    from fields left out in blocks. docs/errors.md has the details.

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World, Springer (2005); H. Papadopoulos, V.
    Vovk and A. Gammerman, J. Artif. Intell. Res. 40 (2011) (scaled by what the nearest neighbours miss).
    """

    points: _Values = saved(Array("n", "d"))  # training points, or some of them in their order
    errors: _Values = saved(Array("n", low=0))  # of their fields, left out, over `norms`
    norms: _Values = saved(Array("n", low=0))
    groups: _Labels = saved(Array("n", dtype=np.intp, low=0))  # points that were left out together
    growth: _Values = saved(Array(2, low=0))  # the power of the distance, and the logarithm of what blocks exceed
    along: bool = saved(Parameter(bool), default=False)  # left out at random, though they follow each other in time

    def _restore(self) -> None:
        n = len(self.points)
        if n < 3 or len(judged_rows(n)) < n or np.ptp(self.groups) == 0:  # pairs of more would take the memory
            raise ValueError(f"an error bar of {n} points, or of one group")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name in declared_state(type(self))}

    @property
    def matrix(self) -> _Values:
        """Everything, as an image holds it: a row (d + 3) for each point, before them growth and `along`."""
        rows = np.column_stack([self.points, self.errors, self.norms, self.groups])
        return np.vstack([np.pad([*self.growth, float(self.along)], (0, rows.shape[1] - 3)), rows])

    @property
    def sections(self) -> dict[str, _Values]:
        """Everything as an image holds it, and what C needs besides for relative and for absolute errors."""
        kinds = zip((self._relative, self._absolute), (error_scales(self.norms).min(), self.norms.max()))
        law = [[*numbers, norm, *self.unit, *scores] for (_, scores, numbers), norm in kinds]
        return {"error_bar": self.matrix, "error_law": np.array(law)}

    @classmethod
    def of_matrix(cls, matrix: _Values, d: int) -> Self:
        """The bar of a section of an image, which may be forged."""
        if matrix.shape[1] != d + 3 or len(matrix) < 2 or not (np.abs(matrix) < 1e150).all():
            raise ValueError(f"the image is damaged: an error bar of shape {matrix.shape}, or numbers too large")
        errors, norms, groups = np.ascontiguousarray(matrix[1:, d:].T)
        bar = cls(matrix[1:, :d].copy(), errors, norms, groups.astype(np.intp), matrix[0, :2].copy(), matrix[0, 2] != 0)
        check_state(bar)
        bar._restore()
        return bar

    @quiet
    def grown(self, blocks: _Labels, apart: _Values) -> ErrorBar:
        """With the growth that errors `apart` (n,) show, of fields left out with all of the block of each."""
        errors, local, inside, away, _ = self._judged(np.ones(len(self.errors)))
        beside, theirs = local(self._scaled, *_others(self._scaled, blocks))
        outside = np.log(np.clip(apart, errors.min(), 1e100)) - beside
        power = np.clip(theirs @ (outside - np.median(inside)) / max(theirs @ theirs, 1e-300), 0.0, 4.0)
        worst = max(np.quantile((outside - power * theirs)[own], 0.9) for own in members(blocks))
        excess = max(worst - np.quantile(inside - power * away, 0.9), 0.0)
        return replace(self, growth=np.array([power, excess]))

    def with_growth_of(self, closed: Callable[[], ErrorBar]) -> ErrorBar:
        """With the growth of another bar at least, if there is one."""
        with suppress(AttributeError):
            return replace(self, growth=np.maximum(self.growth, closed().growth))
        return self

    @quiet
    def at(self, X: _Values, coverage: float, *, absolute: bool = False) -> _Values:
        """Bounds (L,) at points X (L, d), relative to the norm of a field or `absolute`."""
        local, scores, _ = self._absolute if absolute else self._relative
        rank = int(np.ceil(round((len(scores) + 1) * coverage, 9)))
        if rank > len(scores):  # this coverage needs more points
            return np.full(len(X), np.inf)
        x = np.ascontiguousarray(X / self.unit)
        beside, away = local(x, *self.index.query(x, self._nearest[1].shape[1]))
        bounds: _Values = np.exp(beside + self._growing(away) + scores[rank - 1])
        return bounds

    def largest(self, sizes: _Values, *, absolute: bool) -> _Values:
        """Errors of decoded fields with these norms, if the true ones are as large as the training fields."""
        return sizes + self.norms.max() if absolute else 1 + sizes / error_scales(self.norms).min()

    # -- Computed once, when they are first needed ---------------------------------------------------------
    unit = cached_property(lambda self: standard_deviations(self.points))
    _scaled = cached_property(lambda self: np.ascontiguousarray(self.points / self.unit))
    index = cached_property(lambda self: NeighborIndex(self._scaled))
    # for each point the distances to the nearest points of other groups, and their indices
    _nearest = cached_property(lambda self: _others(self._scaled, self.groups))
    _relative = cached_property(lambda self: self._calibrated(np.ones(len(self.errors))))
    _absolute = cached_property(lambda self: self._calibrated(self.norms))

    @cached_property
    def in_time(self):
        """True if fields were left out point by point or at random, though they follow each other in time."""
        alone = len(np.unique(self.groups)) == len(np.unique(same_points(self.points)))
        return self.along or alone and neighbors_in_file(np.arange(len(self.groups)), self._nearest[1][:, 0]) > 0

    def _local(self, errors):
        """A function (points, distances to the nearest points, their indices) -> two logarithms; leverages (n,).

        The logarithms are those of the expected error, and of the excess over the usual distance, at least 0.
        The residual of a training point left out of the regression is larger by the factor 1 / (1 - leverage).
        """
        least = max(0.03 * float(np.median(self._nearest[0][:, 0])), 1e-150)  # smaller distances count as equal

        def features(x, distances, near):
            found = np.log(errors)[near]
            middles = (np.linalg.norm(x - self._scaled[near[:, :k]].mean(axis=1), axis=1) for k in (2, 6))
            gaps = np.log(np.maximum([*distances[:, [0, min(1, near.shape[1] - 1)]].T, *middles], least))
            return np.column_stack([found.mean(axis=1), found[:, :2].mean(axis=1), *gaps[:3]]), gaps[3]

        known, far = features(self._scaled, *self._nearest)
        units, misses, usual = standard_deviations(known), np.log(errors) - known[:, 0], np.quantile(far, 0.9)
        Z = (known - known.mean(axis=0)) / units
        prior = 10.0  # weight, as a number of points, of "a field has the error of its neighbours"
        rows, sought = np.vstack([Z, np.sqrt(prior) * np.eye(5)]), np.append(misses, np.zeros(5))
        least_powers = [-np.inf, -np.inf, 0, 0, 0]  # so that error bars do not decrease with the distance
        found = lsq_linear(rows, sought, (least_powers, np.inf), method="bvls")
        powers, basis = found.x / units, np.linalg.qr(rows[:, found.active_mask == 0])[0][: len(Z)]
        leverage = 1 / len(Z) + np.sum(basis**2, axis=1)

        def local(x, distances, near):
            given, middle = features(x, distances, near)
            inside = np.clip(given, known.min(axis=0), known.max(axis=0)) - known.mean(axis=0)
            return given[:, 0] + misses.mean() + inside @ powers, np.maximum(middle - usual, 0)

        constant = misses.mean() - known.mean(axis=0) @ powers
        numbers = [self._nearest[1].shape[1], least, constant, *powers, *known.min(axis=0), *known.max(axis=0), usual]
        return local, leverage, numbers

    def _growing(self, away):
        """Logarithm of the growth at distances from `_local`."""
        return self.growth[0] * away + np.clip(away / np.log(2), 0, 1) * self.growth[1]

    def _judged(self, sizes):
        """Errors, bounded below; `_local`; the excess of errors of left-out points over it; their distances."""
        errors = self.errors * sizes
        floor = max(1e-3 * float(errors.mean()), 1e-200)  # errors are 0 where fields are equal
        errors = np.maximum(errors, floor)
        local, leverage, numbers = self._local(errors)
        beside, away = local(self._scaled, *self._nearest)
        return errors, local, (np.log(errors) - beside) / (1 - leverage), away, [*numbers, floor]

    @quiet
    def _calibrated(self, sizes):
        """`_local`, the sorted excesses of the training points' errors over it, and the numbers of both."""
        _, local, inside, away, numbers = self._judged(sizes)
        return local, np.sort(inside - self._growing(away)), numbers


def unknown_errors(part: Any, what: str = "") -> AttributeError:
    """Why a part has no error bar, and what to do."""
    return AttributeError(f"the cross-validation errors of a {type(part).__name__}{what} are not known: {HOW}")


def found_error_bar(self: Any, keep: bool = True) -> ErrorBar:
    """How far decoded fields may be off: what `predict` or `inverse_transform` asks with return_error=True.

    The cross-validation errors of a model include the encoder's errors. A model without them has the bar of its part.
    """
    if self.calibrated_ is None:
        held_out = getattr(self, "held_out_", None)
        judged = None if held_out is None else held_out.error_bar
        if judged is None and not keep:
            return self.closed_error_bar()
        self.calibrated_ = self.closed_error_bar() if judged is None else judged.with_growth_of(self.closed_error_bar)
    return self.calibrated_


def with_error(fields: Any, estimator: Any, X: Any, return_error: bool | str, coverage: float) -> Any:
    """What `predict` returns: the fields, and if it is asked for the estimator's error bar at points X (n, d)."""
    coverage = check_number(coverage, "coverage", low=0, high=1, strict_low=True)
    if return_error is False or not Parameter(bool, words=("absolute",)).check(return_error, "return_error"):
        return fields
    bar, absolute, shape = estimator.error_bar_, return_error == "absolute", estimator.field_shape_
    # the coordinates of a registration come first and do not matter
    X = np.asarray(X, dtype=float)[:, -bar.points.shape[1] :]
    errors, known = bar.at(X, coverage, absolute=absolute), len(bar.errors)
    if not len(errors):
        return fields, errors
    if np.isinf(errors).all():
        warn_caller(
            f"the error bars are infinite: {known} fields support coverage <= {known}/{known + 1}, got {coverage}"
        )
    elif np.size(fields) == len(errors) * math.prod(shape):
        sizes = field_norms(np.asarray(fields).reshape(len(errors), -1), cell_weights=norm_weights(shape, estimator))
        errors = np.minimum(errors, bar.largest(sizes, absolute=absolute))
    held_out = getattr(estimator, "held_out_", None)
    if bar.in_time if held_out is None else held_out.along_trajectories:
        warn_caller(
            "the error bar comes from fields left out one by one, but the training points follow each other as in "
            "trajectories: a field of a new trajectory may have a far larger error. Leave out whole ones "
            "with groups=labels in AutoDecoder.fit, autotune or randsmap.model.calibrate, or --groups FILE in the shell"
        )
    return fields, errors


def eighths(points: _Values) -> _Labels:
    """Numbers of blocks (n,) of the points (n, d): halves along the widest coordinate, halved again twice."""
    labels, points = np.zeros(len(points), np.intp), points / standard_deviations(points)
    for _ in range(3):
        labels *= 2
        for own in members(labels):
            widest = np.ptp(points[own], axis=0).argmax()
            labels[own[np.argsort(points[own, widest], kind="stable")][len(own) // 2 :]] += 1
    return labels


def same_points(points: _Values) -> _Labels:
    """Numbers (n,) of the points (n, d), those of equal ones equal: of a millionth of the standard deviation."""
    return np.unique(np.round(points / (1e-6 * standard_deviations(points))), axis=0, return_inverse=True)[1].ravel()


def members(labels: _Labels) -> list[_Labels]:
    """Indices of the members of each group."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.unique(labels, return_counts=True)[1])[:-1])


def _others(points, labels):
    """Distances (n, k) of points from the nearest ones of other groups, at most six, and their indices."""
    distances = cdist(points, points)
    distances[labels[:, None] == labels] = np.inf
    k = max(1, min(6, len(labels) - int(np.unique(labels, return_counts=True)[1].max())))
    near = np.argsort(distances, axis=1)[:, :k]
    return np.take_along_axis(distances, near, axis=1), near


def nearest_other(points: _Values, labels: Any = None) -> _Labels:
    """For each point (n, d) the nearest one among the others, or among those of other groups."""
    own = np.arange(len(points))
    if labels is None:
        near = NeighborIndex(np.ascontiguousarray(points)).query(points, 2)[1].astype(np.intp)
        return np.where(near[:, 0] == own, near[:, 1], near[:, 0])

    def nearest(rows: _Labels) -> _Labels:
        return np.where(labels[rows, None] == labels, np.inf, cdist(points[rows], points, "sqeuclidean")).argmin(axis=1)

    blocks = np.array_split(own, 1 + len(own) ** 2 // 4_000_000)  # of 32 MB
    return np.concatenate([nearest(rows) for rows in blocks])


def neighbors_in_file(rows: _Labels, nearest: _Labels) -> float:
    """Share of the rows whose nearest field is a neighbour in the file, which chance does not explain; else 0."""
    n = len(rows)
    lags = np.bincount(np.abs(rows[nearest] - rows), minlength=n)[:n]
    windows = 2 ** np.arange(max(1, int(np.log2(n)) - 2))
    near, expected = np.cumsum(lags)[windows], 2 * windows * n / (n - 1)
    # trajectories one after the other have neighbours within a window, those of alternating rows at one lag
    counts, chance = np.append(near, lags.max()), np.append(expected, 2 * n / (n - 1))
    # of 3000 sets of 10 to 1000 random fields in random order the largest excess was 6.3
    found = (counts >= 0.1 * n) & (counts - chance > 7.5 * np.sqrt(chance))
    return float(counts[found].max() / n) if found.any() else 0.0
