"""Fields on a periodic axis: aligned before a model is fitted, and shifted back after decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import finite_results
from randsmap._interface.callers import quiet
from randsmap._interface.fields import FIELD_STATE
from randsmap._interface.parameters import estimator, parameter
from randsmap._interface.state import Array, Count, Part, not_frozen, restored_on_error
from randsmap.decoders._base import require
from randsmap.invariants import decoding_part, norm_weights
from randsmap.maps.error_bar import ErrorBar
from randsmap.model._base import Model, TangentDerivatives, model_texts
from randsmap.model._manifold import ManifoldModel
from randsmap.model._registration import Registration

_Values = NDArray[np.float64]


@model_texts
@estimator
class ShiftRegistration(TangentDerivatives, Registration, Model):
    """A manifold model of fields that move along a periodic axis: shift and shape are separate coordinates.

    Use it for waves and fronts on a ring, which need many coordinates otherwise; `QuantileRegistration` is for
    lines.

    The first latent is theta, the phase of the first Fourier mode along the axis. `model` encodes and decodes the
    fields that are shifted back by theta. Derivatives jump where theta is a whole number of cells, as the
    reconstruction does between cells; sums along the axis have none.

    Parameters
    ----------
    model
        Cloned, and fitted to the aligned fields.
    shape
        Shape of a field with its M cells in row-major order. None: the shape of the fields in `fit`.
    axis
        The periodic axis of `shape`.

    Attributes
    ----------
    model_ : ManifoldModel
        The fitted copy.
    n_features_in_ : int
        M, number of cells of a field.

    Notes
    -----
    Fields are shifted by any real number of cells, conservatively: cell averages are integrals of a parabola in each
    cell (piecewise parabolic reconstruction with fourth-order edges). A parabola that leaves the bounds of the decoder
    or, in fields without negative values, falls below 0 is scaled towards the cell's average. So sums along the axis
    are preserved to round-off, and no negative value is made. Theta is 0 if the first mode of a field is below 1e-12
    of the sum of its magnitudes; other axes are summed by the cells' weights.

    References
    ----------
    P. Colella and P. R. Woodward, J. Comput. Phys. 54 (1984) (the piecewise parabolic method); X. Zhang and C.-W. Shu,
    J. Comput. Phys. 229 (2010) (the scaling).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x = np.arange(64) / 64
    >>> centre, width = np.random.default_rng(0).uniform([0, 0.05], [1, 0.15], (80, 2)).T
    >>> distance = (x - centre[:, None] + 0.5) % 1 - 0.5
    >>> bumps = np.exp(-((distance / width[:, None]) ** 2))
    >>> bumps /= bumps.sum(axis=1, keepdims=True)
    >>> aligned = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder(random_state=0))
    >>> model = randsmap.ShiftRegistration(aligned).fit(bumps)
    >>> fields = model.inverse_transform(model.transform(bumps) + [1.0, 0.0])
    >>> bool(abs(fields.sum(axis=1) - 1).max() < 1e-14)
    True
    """

    model: Any = parameter(kw_only=False, shown="ManifoldModel")
    shape: tuple[int, ...] | None = parameter(default=None, shown="tuple of int or None")
    axis: int = parameter(default=-1, shown="int")

    _state = {
        "n_features_in_": Count("M"),
        "model_": Part(ManifoldModel, M="M"),
        "_lengths": Array(3, dtype=np.intp, low=1),
        "calibrated_": Part(ErrorBar, optional=True),
        **FIELD_STATE,
    }

    n_own = 1
    angles = (0,)  # the latents that are angles, which `ParametricModel` does not take for numbers
    freeze = not_frozen(
        "C does not shift fields along an axis. Freeze the model of the aligned fields (model_.freeze()), whose "
        "latents are the same without theta"
    )

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Align the fields and fit the model to them.

        Memory-mapped fields are aligned in memory. Invariants, weights and bounds must not change along the axis.

        {snapshots} {result_of_fit}
        """
        with restored_on_error(self):
            X = self.checked_snapshots(X)
            self._lengths = self._checked_lengths(X.shape[1])
            self.fit_inside(self._in_shape(self.registered(X)[1]))
            self._check_symmetry()  # after the fit, which turns the parameters into invariants of each cell
        return self

    def _checked_lengths(self, M: int) -> NDArray[np.intp]:
        """Cells before, along and behind the axis in the order of a field."""
        shape = self.field_shape_ if self.shape is None else tuple(self.shape)
        if int(np.prod(shape)) != M:
            raise ValueError(f"shape {shape} has {int(np.prod(shape))} cells, but the fields have {M}")
        if not -len(shape) <= self.axis < len(shape):
            raise ValueError(f"axis must be an axis of the shape {shape}, got {self.axis}")
        axis = self.axis % len(shape)
        if shape[axis] < 4:
            raise ValueError(f"the axis must have at least 4 cells, got {shape[axis]}")
        return np.array([np.prod(shape[:axis]), shape[axis], np.prod(shape[axis + 1 :])], dtype=np.intp)

    def _check_symmetry(self) -> None:
        """ValueError unless what the model keeps and weighs is the same all along the axis."""
        invariants = getattr(decoding_part(self), "invariants_", None)
        parts = self.model_.encoder_, self.model_.decoder_
        kept = {"invariants": ["rows"], "bounds": ["lower", "upper"]}
        values = {name: [getattr(invariants, attribute, None) for attribute in kept[name]] for name in kept}
        values["cell_weights"] = [norm_weights(self.field_shape_, part) for part in parts]
        for name, arrays in values.items():
            for lines in [np.reshape(array, (-1, *self._lengths)) for array in arrays if array is not None]:
                if (lines != lines[:, :, :1]).any():
                    raise ValueError(
                        f"{name} must be the same all along the periodic axis, since fields are shifted along it; use "
                        "one value along the axis, or a model without ShiftRegistration"
                    )

    def _limits(self) -> tuple[Any, Any]:
        """Bounds of the cells of shifted fields, (n_lines, 1) or numbers."""
        invariants = getattr(decoding_part(self), "invariants_", None)
        if invariants is None or invariants.lower is None:
            return -np.inf, np.inf
        return self._lines(invariants.lower[None])[0, :, :1], self._lines(invariants.upper[None])[0, :, :1]

    def _lines(self, F: _Values) -> _Values:
        """Fields (n, M) as lines along the axis, (n, lines of a field, N)."""
        n, (before, along, behind) = len(F), self._lengths
        return F.reshape(n, before, along, behind).swapaxes(2, 3).reshape(n, before * behind, along)

    def _fields(self, lines: _Values) -> _Values:
        n, (before, along, behind) = len(lines), self._lengths
        fields = np.ascontiguousarray(lines.reshape(n, before, behind, along).swapaxes(2, 3))
        return fields.reshape(n, before * along * behind)

    def registered(self, F: _Values) -> tuple[_Values, _Values]:
        """theta (n, 1) in [-pi, pi) of fields F (n, M), and the fields shifted back by it."""
        lines = weighed = self._lines(F)
        weights = norm_weights(self.field_shape_, self)
        if weights is not None:
            weighed = lines * self._lines(weights[None]).mean(axis=2, keepdims=True)
        profile, size = weighed.sum(axis=1), np.abs(weighed).sum(axis=(1, 2))
        angles = 2 * np.pi * np.arange(profile.shape[1]) / profile.shape[1]
        cosine, sine = profile @ np.cos(angles), profile @ np.sin(angles)
        theta = np.arctan2(sine, cosine)
        # a first Fourier mode below 1e-12 of the sum of |f| is round-off, so it has no phase
        theta[~(np.hypot(cosine, sine) >= 1e-12 * size) | (size == 0)] = 0
        theta = np.where(theta >= np.pi, -np.pi, theta)  # arctan2 has both ends of the circle
        return theta[:, None], self._fields(shift_lines(lines, self._cells(-theta)))

    def _cells(self, theta: _Values) -> _Values:
        """Angles in cells."""
        return theta * (self._lengths[1] / (2 * np.pi))

    def carried(self, own: _Values, Y: _Values, invariant_values: Any, options: dict[str, Any]) -> _Values:
        aligned = np.asarray(self.model_.inverse_transform(Y, invariant_values=invariant_values, **options))
        return self._fields(shift_lines(self._lines(aligned), self._cells(own[:, 0]), *self._limits()))

    def check_available(self, method: str) -> bool:
        return require(self.model, "jvp")

    def tangents_at(self, X: ArrayLike) -> tuple[Callable[[_Values], _Values], _Values]:
        own, Y = self.split(X)
        aligned = self._lines(np.asarray(self.model_.inverse_transform(Y, consistency=0)))

        def along(V: _Values) -> _Values:
            tangents = self._lines(np.asarray(self.model_.jvp(Y, np.ascontiguousarray(V[:, 1:]))))
            shift, speed = self._cells(own[:, 0]), self._cells(V[:, 0])
            return finite_results(self._fields(shift_tangents(aligned, shift, *self._limits(), tangents, speed)))

        return along, np.column_stack([own, Y])

    def _restore(self) -> None:
        if int(np.prod(self._lengths)) != self.n_features_in_:
            raise ValueError(f"_lengths has {int(np.prod(self._lengths))} cells, not {self.n_features_in_}")


@quiet
def shift_lines(lines: NDArray[Any], shift: NDArray[Any], low: Any = -np.inf, high: Any = np.inf) -> NDArray[Any]:
    """Periodic lines (n, k, N) of cell averages, shifted by `shift` (n,) cells conservatively; also complex ones. The
    result keeps the limits `low` and `high`, numbers or (k, 1), where `lines` keep them, and 0 where no value is
    negative."""
    # whole cells are moved by indexing, which changes no value; only the rest needs the reconstruction
    whole = np.floor(shift.real)
    part = (shift - whole)[:, None, None]
    floor = np.where(lines.real.min(axis=2, keepdims=True, initial=0.0) >= 0, np.maximum(low, 0.0), low)
    left, right = _edges(lines)
    scale = _scale_of_parabolas(lines, left, right, floor, high)
    left, right = lines + scale * (left - lines), lines + scale * (right - lines)
    # the last `part` of each cell moves into the next one; what both leave is positive where the parabola is
    gone, stays = _head(lines, right, left, part), _head(lines, left, right, 1 - part)
    shifted = np.roll(gone, 1, axis=2) + stays
    # the integrals leave the limits by round-off only
    within = ((lines.real >= floor) & (lines.real <= high)).all(axis=2, keepdims=True)
    np.clip(shifted.real, floor, high, out=shifted.real, where=within)
    index = np.remainder(np.arange(lines.shape[2]) - whole[:, None], lines.shape[2]).astype(np.int64)
    return np.take_along_axis(shifted, index[:, None], axis=2)


@quiet
def shift_tangents(lines: _Values, shift: _Values, low: Any, high: Any, tangents: _Values, speed: _Values) -> _Values:
    """Derivatives of `shift_lines` as lines and shift move by `tangents` (n, k, N) and `speed` (n,), a complex step."""
    # its square is lost in any value, and it is above the smallest numbers
    size = max(np.abs(tangents).max(initial=0) / (np.abs(lines).max(initial=0) or 1), np.abs(speed).max(initial=0))
    step = 1e-100 / (size or 1)
    moved: _Values = shift_lines(lines + 1j * step * tangents, shift + 1j * step * speed, low, high).imag
    return moved / step


def _head(a, left, right, w):
    """Integral of the parabola of this average and edges over the first w of a cell; with exchanged edges, the last."""
    return w * (left + w / 2 * (right - left + (1 - 2 * w / 3) * 6 * (a - (left + right) / 2)))


def _edges(a):
    """Fourth-order values at the left and right edges of the cells of periodic lines."""
    right = (7 * (a + np.roll(a, -1, axis=2)) - (np.roll(a, 1, axis=2) + np.roll(a, -2, axis=2))) / 12
    return np.roll(right, 1, axis=2), right


def _scale_of_parabolas(a, left, right, low, high):
    """What parabolas of these averages and edges less the average are scaled by (Zhang and Shu 2010, Eq. 2.10)."""
    curve = 6 * (a - (left + right) / 2)
    # the extremum of left + x (right - left + curve (1 - x)), where it is inside
    x = (right - left + curve) / (2 * curve)
    x = np.where((x.real > 0) & (x.real < 1), x, 0.0)
    values = np.stack([left, right, left + x * (right - left + curve * (1 - x))])
    scale = np.ones_like(a)
    for limit, extreme, sign in ((low, np.argmin(values.real, axis=0), 1), (high, np.argmax(values.real, axis=0), -1)):
        worst = np.take_along_axis(values, extreme[None], axis=0)[0]
        active = (sign * worst.real < sign * limit) & (worst.real != a.real)
        factor = np.where(active, (a - limit) / (a - worst), 1.0)
        factor = np.where(factor.real > 0, factor, 0.0)
        scale = np.where(factor.real < scale.real, factor, scale)
    return scale
