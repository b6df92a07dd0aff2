"""Fields on a periodic axis: aligned before a model is fitted, and shifted back after decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.fields import FIELD_STATE
from randsmap._interface.parameters import estimator, parameter
from randsmap._interface.state import Array, Count, Part
from randsmap._kernels.linear_map import SHIFT
from randsmap.invariants import decoding_part, norm_weights
from randsmap.maps.error_bar import ErrorBar
from randsmap.maps.linear_map import Basis
from randsmap.model._base import Model, model_texts
from randsmap.model._manifold import ManifoldModel
from randsmap.model._registration import Registration

_Values = NDArray[np.float64]


@model_texts
@estimator
class ShiftRegistration(Registration, Model):
    """A manifold model of fields that move along a periodic axis: shift and shape are separate coordinates.

    Use it for waves and fronts on a ring, which need many coordinates otherwise; `QuantileRegistration` is for
    lines.

    The first latent is theta, the phase of the first Fourier mode along the axis. `model` encodes and decodes the
    fields that are shifted back by theta. Derivatives jump where theta is a whole number of cells, since the
    reconstruction jumps between cells. Derivatives of sums along the axis are continuous.

    Parameters
    ----------
    model
        Cloned, and fitted to the aligned fields. Its invariants, weights and bounds must not change along the axis.
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
    or, in nonnegative fields, falls below 0 is scaled towards the average of its cell. Sums along the axis are
    therefore preserved to round-off, and no negative values appear. Theta is 0 if the first mode of a field is below
    1e-12 of the sum of its magnitudes; other axes are summed by the cells' weights.

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

    def begin(self, F: _Values, dtype: Any, first: bool) -> None:
        """Find the cells before, along and behind the axis in the order of a field."""
        M = F.shape[1]
        shape = self.field_shape_ if self.shape is None else tuple(self.shape)
        if int(np.prod(shape)) != M:
            raise ValueError(f"shape {shape} has {int(np.prod(shape))} cells, but the fields have {M}")
        if not -len(shape) <= self.axis < len(shape):
            raise ValueError(f"axis must be an axis of the shape {shape}, got {self.axis}")
        axis = self.axis % len(shape)
        if shape[axis] < 4:
            raise ValueError(f"the axis must have at least 4 cells, got {shape[axis]}")
        self._lengths = np.array([np.prod(shape[:axis]), shape[axis], np.prod(shape[axis + 1 :])], dtype=np.intp)

    def check_inside(self) -> None:
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

    @property
    def basis(self) -> Basis:
        kept: Any = getattr(decoding_part(self), "invariants_", None)
        M, bounds = self.n_features_in_, {name: getattr(kept, name, None) for name in ("lower", "upper")}
        weights = norm_weights(self.field_shape_, self)
        arrays: Any = {"axis": self._lengths.astype(np.int64), "cell_weights": weights, **bounds}
        return Basis(kind=SHIFT, n_components=1 + M, n_own=1, n_cells=M, arrays=arrays)

    def _restore(self) -> None:
        if int(np.prod(self._lengths)) != self.n_features_in_:
            raise ValueError(f"_lengths has {int(np.prod(self._lengths))} cells, not {self.n_features_in_}")
