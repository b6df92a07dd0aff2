"""How far latent points are from the training points: leverage, and the warning of fields decoded far away."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.state import validate_data
from randsmap._linalg.neighbors import NeighborIndex

__all__ = [
    "DISTANCE_FACTOR",
    "ExtrapolationWarning",
    "Leverage",
    "LeverageMixin",
    "NoLeverage",
    "Reach",
    "extrapolation_ignored",
    "extrapolation_told_as",
    "why_no_leverage",
]

FACTOR = 100.0  # times the leverage of training points from which a row is far away; see `Leverage`
DISTANCE_FACTOR = 5.0  # of distances, where others are variances
_USUAL = 0.7  # quantile of held-out leverages
_NEAR = 4.0  # median distances between neighbours within which a point is not looked at more closely
_TWINS = 1e-9  # distance, in standard deviations of the latents, of points that count as one
_ALL, _INTERVAL = 100, 500  # calls for a few rows that are all looked at; then one in so many and n more
_FARTHEST = 64  # rows of a call whose leverage is computed
_DEAREST = 2e10  # n P min(n, P): a decoder whose leverage takes more, some seconds, is not looked at unasked
_Values = NDArray[np.float64]

_ignored: ContextVar[bool] = ContextVar("extrapolation_ignored", default=False)
# what is far away, for who does not know of the decoder and its X, and what to look at
_subject: ContextVar[tuple[str, str]] = ContextVar(
    "extrapolation_subject", default=("row {row} of X is far from the training points", "{decoder}.leverage")
)


class ExtrapolationWarning(UserWarning):
    """A latent point was decoded that is far from all training points, see `leverage` of the decoder.

    Of a `ParametricModel`: parameters were given that are far from those of the snapshots, or their latents are. Given
    once a fit by `predict`, when the leverage of a row exceeds `leverage_limit_`. Filters switch it:
    ``warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)`` (no row is then looked at, and no time spent), or
    "error", which raises it at each such call that is looked at: of those for a few rows the first 100, then one in
    500 + n, so that loops do not notice.

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


@contextmanager
def extrapolation_ignored() -> Iterator[None]:
    """Within it no decoder of this thread looks whether its rows are far away: searches decode held-out points."""
    token = _ignored.set(True)
    try:
        yield
    finally:
        _ignored.reset(token)


@contextmanager
def extrapolation_told_as(what: str, see: str) -> Iterator[None]:
    """Within it the warnings of this thread begin with `what` ({row} is filled in), and name `see` to look at."""
    token = _subject.set((what, see))
    try:
        yield
    finally:
        _subject.reset(token)


def why_no_leverage(part: Any) -> str | None:
    """What says that an estimator has no `leverage`; None if it has."""
    try:
        part.leverage  # noqa: B018
    except AttributeError as error:
        if type(part).__module__.startswith("randsmap."):
            return str(error)
        return f"the leverage of a {type(part).__name__} is not known: decoders of this package have one"
    return None


class NoLeverage(AttributeError):
    """The decoder lacks what its leverage is computed from."""


class Leverage:
    """A decoder's leverage, and what is large.

    Parameters
    ----------
    at : function
        Leverage (L,) of latent points (L, d).
    points : ndarray (n, d)
        Training points.
    training, held_out : ndarray (n,)
        Their leverage, and what it would be if they were none.
    highest : float
        About the leverage far from all points, k(y, y) / lambda or |psi|^2 / lambda, where it tends to a number.
    factor : float
    limit : float or None
        In place of the rule below.

    Notes
    -----
    The limit is `factor` times the largest leverage of training points or, if that is more, times the 0.7 quantile of
    the held-out ones, of points that have no twin, which would not be missed: a decoder that interpolates has leverages
    near 1 at its training points (or 0, where lambda is 0), and much larger ones between them. It is at most half-way
    from the largest to `highest`.

    Both numbers are measured, on three public sets of snapshots at d = 2 and 3, three splits each: the factor on tuned
    random features (all fields of an error above 50 % exceed the limit, by 1.2 times or more, and no field of less
    than 3 times the median error), the quantile on kernels that interpolate.
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
            usual = float(np.quantile(held_out[_Neighbors(points).single], _USUAL, method="lower"))
            limit = factor * max(self.largest, usual if np.isfinite(usual) else 0.0)
            limit = min(limit, (self.largest + highest) / 2 if highest > self.largest else 2 * self.largest)
        self.limit = limit

    def at(self, X: _Values) -> _Values:
        """Leverage (L,) of points X (L, d); infinite where it overflows."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            values = self._at(X)
        return np.where(np.isnan(values), np.inf, values)

    def relative(self, X: _Values) -> _Values:
        """100 times the leverage (L,) of points X (L, d) in units of the limit, that of distances squared."""
        values, power = self.at(X), 2 if self.factor == DISTANCE_FACTOR else 1
        with np.errstate(over="ignore"):
            share = np.divide(values, self.limit, out=np.where(values > 0, np.inf, 0.0), where=self.limit > 0)
            return FACTOR * share**power


class Reach:
    """What a decoder keeps beside its fit: its leverage, when it is first asked for, and whether it has warned.

    Empty in a pickle or a copy.
    """

    def __init__(self) -> None:
        self.leverage: Leverage | None = None
        self.left = 0  # calls for a few rows before the next that is looked at
        self._looked, self._watching, self._size = 0, True, 0
        self._neighbors: Any = None

    def __reduce__(self):
        return Reach, ()

    def look(self, decoder: Any, X: _Values) -> None:
        """Warn if a row of X (n, d), just decoded, is far from the decoder's training points.

        To be called for more than `FEW` rows, or when `left` is used up: the loop of a simulation that decodes one row
        after the other must not notice.
        """
        if self.left < 0:
            self._looked += 1
            self.left = 0 if self._looked < _ALL else _INTERVAL + self._size
        if not self._watching or _ignored.get() or _filtered():
            return
        try:
            if self.leverage is None and decoder._leverage_cost() > _DEAREST:
                raise NoLeverage
            if self._neighbors is None:
                points = decoder._training_points()
                self._neighbors, self._size = _Neighbors(points), len(points)
            far = self._neighbors.far(X)
            if not len(far):
                return
            leverage = decoder._leverage
        except NoLeverage:
            self._watching = self.leverage is not None
            return
        values = leverage.at(X[far])
        worst = int(np.argmax(values))
        if not values[worst] > leverage.limit or not self._watching:
            return
        self._watching = False  # before it is said: other threads are told no more
        try:
            self._warn(decoder, far[worst], values[worst], leverage)
        except ExtrapolationWarning:  # a filter makes it an error, at each such call
            self._watching = True
            raise

    def _warn(self, decoder, row, value, leverage):
        what, see = (text.format(row=row, decoder=type(decoder).__name__) for text in _subject.get())
        warnings.warn(
            f"{what}: its leverage is {value:.3g}, theirs is at most {leverage.largest:.3g}, and beyond "
            f"{leverage.limit:.3g} decoded fields may be far off. See {see}; this is said once a fit",
            ExtrapolationWarning,
            stacklevel=_callers_level(),
        )


class _Neighbors:
    """Distances to training points, in standard deviations of the latents."""

    def __init__(self, points: _Values) -> None:
        deviation = points.std(axis=0)
        self._scale = np.where(deviation <= 1e-12 * np.abs(points).max(axis=0), 1.0, deviation)
        points = points / self._scale
        self._index = NeighborIndex(points)
        nearest = self._index.query(points, min(2, len(points)))[0][:, -1]
        single = nearest > _TWINS
        self.single = single if single.any() else ~single
        self._near = _NEAR * float(np.median(nearest[self.single]))

    def far(self, X: _Values) -> NDArray[np.intp]:
        """Rows of X that no training point is near to, at most 64 of them: those furthest away."""
        with np.errstate(over="ignore"):
            distance = self._index.query(X / self._scale, 1)[0][:, 0]
        rows = np.flatnonzero(~(distance <= self._near))
        if len(rows) > _FARTHEST:
            rows = np.sort(rows[np.argpartition(distance[rows], -_FARTHEST)[-_FARTHEST:]])
        return rows


def _callers_level():
    """The stack level, for the function that warns, of the first caller outside the package."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("randsmap."):
        frame, level = frame.f_back, level + 1
    return level


def _filtered():
    """Whether the filters for warnings ignore all of these."""
    for action, message, category, module, line in warnings.filters:
        if issubclass(ExtrapolationWarning, category) and message is None and module is None and line == 0:
            return action == "ignore"
    return False


class LeverageMixin:
    """`leverage` of a decoder.

    A subclass has `_training_points()` (n, d), `_make_leverage()`, a `Leverage`, and `_reach`, a `Reach` made with each
    fit. NoLeverage is what the first two may raise.
    """

    _training_points: Callable[[], _Values]
    _make_leverage: Callable[[], Leverage]

    def _leverage_cost(self) -> float:
        """Operations of `_make_leverage`, about: n P min(n, P)."""
        return float(len(self._training_points())) ** 3

    @cached_property
    def _reach(self) -> Reach:  # made here for pickles of before
        return Reach()

    @property
    def _leverage(self) -> Leverage:
        reach = self._reach
        if reach.leverage is None:
            reach.leverage = self._make_leverage()
        return reach.leverage

    def leverage(self, X: ArrayLike) -> NDArray[np.float64]:
        """How far latent points are from the training points, as the fit sees it.

        Small where training points are dense, about 1 at one that is alone, more beyond: errors of the training fields
        are amplified by the square root, and where it is large the fields are a guess.

        Parameters
        ----------
        X : array-like (L, d)
            Latent coordinates.

        Returns
        -------
        ndarray (L,), float64
            At least 0. See `leverage_limit_` for what is large.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If X is not a finite array (L, d).
        AttributeError
            If the decoder comes from a model file without what it is computed from.

        Notes
        -----
        Ridge regression on features: phi(y)^T (Phi^T Phi + lambda I)^-1 phi(y), with an unpenalised bias 1/n and the
        same of the features less their means; at lambda = 0 with the pseudo-inverse. Kernels: the same number,
        (k(y, y) - k^T (K + lambda I)^-1 k) / lambda with the tail as in kriging, and at lambda = 0, or one too small to
        be felt, the variance k(y, y) - k^T K^-1 k itself. Double diffusion maps: 1 - k^T V L^-1 V^T k. k-NN: mean
        distance to the k neighbours over their own mean distance to theirs. A blend, and so `AutoDecoder`: 100 times
        the median over its first three parts of the leverage in units of their limits (squared for k-NN).

        The factorisation that it needs is made when it is first asked for, at about the cost of a fit.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import KernelDecoder
        >>> latents = np.linspace(0, 1, 20)[:, None]
        >>> decoder = KernelDecoder(length_scale=0.5).fit(latents, np.hstack([latents, 1 - latents]))
        >>> decoder.leverage([[0.5], [1.2], [3.0]]).round(2)
        array([4.70000e-01, 5.59070e+02, 1.26552e+03])
        >>> round(decoder.leverage_, 2), round(decoder.leverage_limit_)
        (0.94, 101)
        """
        leverage = self._leverage
        return leverage.at(validate_data(self, X, reset=False))

    @property
    def leverage_(self) -> float:
        """The largest leverage of the training points."""
        return self._leverage.largest

    @property
    def leverage_limit_(self) -> float:
        """Leverage above which `predict` gives an `ExtrapolationWarning`: 100 times that of training points.

        For k-NN 5 times. What is multiplied is `leverage_` or, if it is more, what 70 % of the training points would
        not exceed if they were none, as where a decoder interpolates. The limit is at most half-way from `leverage_` to
        what it would be without any training point, k(y, y) / lambda or the mean of |psi(y)|^2 / lambda.
        """
        return self._leverage.limit
