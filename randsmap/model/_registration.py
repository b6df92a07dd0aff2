"""What models have in common whose fields are registered before they are encoded, and carried back after decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, clone

from randsmap._interface.arrays import as_array, check_samples, latents_of, validate_data
from randsmap._interface.fields import field_rows, output
from randsmap._interface.state import check_fitted, restored_on_error
from randsmap.decoders import FrozenDecoder, FrozenModel
from randsmap.decoders._base import available_if, require
from randsmap.invariants import norm_weights
from randsmap.maps.error_bar import ErrorBar, with_error
from randsmap.maps.frozen import assembled
from randsmap.maps.linear_map import Basis, LinearMap, map_arrays
from randsmap.model._base import ReconstructionMixin, TangentDerivatives, model_texts
from randsmap.model._manifold import ManifoldModel, starts_anew

_Values = NDArray[np.float64]


@model_texts
class Registration(TangentDerivatives, ReconstructionMixin, ClassNamePrefixFeaturesOutMixin):
    """A manifold model of what is left of fields when their place is taken out of them.

    A class has `n_own` latents of its own and a `basis`: how C takes them, and the rows that `model_` encodes, out of
    fields, and carries what is decoded back. `begin` decides by the first fields (n, M), which came as some dtype, how
    they are registered, and checks later ones.
    """

    leverage_from = "model"
    n_own: int
    begin: Callable[..., None]
    model: Any
    model_: ManifoldModel
    calibrated_: ErrorBar | None

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Register the fields, in memory, and fit the model to what is left of them.

        {snapshots} {result_of_fit}
        """
        return self.fit_inside(X)

    @available_if(lambda self: require(self.model, "partial_fit"))
    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit to one more batch: `ManifoldModel.partial_fit`, with its warning, of what is left of the fields.

        The first batch decides how fields are registered, and whether their masses vary.

        {snapshots} {result_of_fit}
        """
        return self.fit_inside(X, "partial_fit", first=not hasattr(self, "model_") or starts_anew(self.model_))

    def fit_inside(self, X: Any, method: str = "fit", *, first: bool = True) -> Self:
        """Fit the model inside to the registered fields by that method, anew or to more."""
        with restored_on_error(self):
            if not isinstance(self.model, ManifoldModel):
                raise TypeError(f"model must be a ManifoldModel, got {self.model!r}")
            F = validate_data(self, field_rows(self, X, reset=first), reset=first, min_samples=1 + first)
            self.begin(F, getattr(X, "dtype", np.dtype(float)), first)
            inside = self.registered(F)[1]
            inside = self._in_shape(inside) if inside.shape == F.shape else inside
            self.model_ = getattr(clone(self.model) if first else self.model_, method)(inside)
            self.calibrated_ = None
            self.check_inside()
        return self

    def check_inside(self) -> None:
        """ValueError if the fitted model inside keeps what registration does not."""

    @property
    def basis(self) -> Basis:
        raise NotImplementedError

    @property
    def kept(self) -> Any:
        """Invariants of the carried fields; None: `model_` has them."""
        return getattr(self, "invariants_", None)

    @property
    def carrier(self) -> LinearMap:
        """From points (n, n_own + cells) of registered fields to fields (n, M)."""
        linear = LinearMap.of(map_arrays(self.basis, {}, self.kept))
        linear.invariants = self.kept
        return linear

    def registered(self, F: _Values) -> tuple[_Values, _Values]:
        """Latents of the registration (n, n_own) of fields F (n, M), and the rows of what is left of them."""
        own, inside = np.split(self.carrier.registered(F), [self.n_own], axis=1)
        return own, np.ascontiguousarray(inside)

    def transform(self, X: ArrayLike) -> _Values:
        """Latents of fields: those of the registration, such as theta in [-pi, pi), then those of the registered field.

        {fields} {returns_latents} {raises}
        """
        check_fitted(self, "model_")
        own, registered = self.registered(validate_data(self, field_rows(self, X), reset=False))
        return np.column_stack([own, np.asarray(self.model_.transform(registered))])

    def inverse_transform(
        self,
        X: ArrayLike,
        *,
        invariant_values: ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: _Values | None = None,
        return_error: bool | str = False,
        coverage: float = 0.9,
        **options: Any,
    ) -> Any:
        """Fields at latents.

        Parameters
        ----------
        X : array-like (n, 1 + d) or (n, d)
            Latents of the registration, such as theta, any real number, and the latents of the registered field.
        invariant_values, cells, out, **options
            As for `ManifoldModel.inverse_transform`; `cells` saves no time.
        {return_error}

        {returns_fields} {raises}
        """
        check_samples(X=X, invariant_values=invariant_values)
        own, Y = self.split(X)
        if self.kept is None:
            options, invariant_values = {"invariant_values": invariant_values, **options}, None
        linear = self.carrier
        fields = linear.fields(self._inside(linear, own, self.model_.inverse_transform(Y, **options)), invariant_values)
        # the value of a cell depends on other cells, so that some cells need all
        fields = self._in_shape(fields) if cells is None else fields[:, self._checked_cells(cells)]
        if out is None:
            out = self._field_shape.labelled(fields, cells)
        else:
            out = output(out, None, fields.shape)
            out[:] = fields.reshape(out.shape)
        return with_error(out, self, Y, return_error, coverage)

    def split(self, X: Any, name: str = "X") -> tuple[_Values, _Values]:
        """The registration's own latents (n, n_own), and those of the model inside."""
        check_fitted(self, "model_")
        X = as_array(latents_of(X, self, name), name, min_rows=0, min_columns=self.n_own + 1)
        return X[:, : self.n_own], np.ascontiguousarray(X[:, self.n_own :])

    def _inside(self, linear: LinearMap, own: _Values, inside: Any) -> _Values:
        """Points of the carrier, or tangents of these."""
        return np.hstack([own, np.reshape(inside, (len(own), linear.kernel.n_components - self.n_own))])

    def check_available(self, method: str) -> bool:
        return require(self.model, "jvp")

    def tangents_at(self, X: ArrayLike) -> tuple[Callable[[_Values], _Values], _Values]:
        (own, Y), linear = self.split(X), self.carrier
        points = self._inside(linear, own, self.model_.inverse_transform(Y, consistency=0))

        def along(V: _Values) -> _Values:
            tangents = self.model_.jvp(Y, np.ascontiguousarray(V[:, self.n_own :]))
            return linear.jvp(points, self._inside(linear, V[:, : self.n_own], tangents))

        return along, np.hstack([own, Y])

    def freeze(
        self, *, latents: ArrayLike | None = None, error_bar: bool = False, regressor: Any = None, **options: Any
    ) -> Any:
        """Registration, encoder and decoder as one immutable block of memory; see `FrozenModel`.

        Parameters
        ----------
        latents : array-like of shape (n, n_own + d) or None, default=None
            Points such as those that will be decoded.
        error_bar : bool, default=False
            As in the decoder's own `freeze`.
        regressor : fitted ParametricModel or None, default=None
            What its own `freeze` adds.
        **options
            Those of `ManifoldModel.freeze`, of the model inside: tolerances are of registered fields, and so is
            ``distilled_error_``.

        Returns
        -------
        FrozenModel
            Of a ParametricModel a FrozenDecoder.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As `ManifoldModel.freeze`.
        """
        check_fitted(self, "model_")
        inner = self.model_.freeze(latents=None if latents is None else self.split(latents, "latents")[1], **options)
        behind: Any = {"cell_weights": norm_weights(self.field_shape_, self), "distilled": inner.distilled_error_}
        if len(self.field_shape_) > 1:
            behind["field_shape"] = np.array(self.field_shape_, dtype=np.int64)
        if error_bar:
            bar: Any = (regressor or self).error_bar_
            behind |= replace(bar, errors=np.hypot(bar.errors, inner.distilled_error_)).sections
        if regressor is not None:
            behind["input"] = regressor.regressor_.linear_map
        basis = replace(self.basis, n_components=self.n_own + inner.n_components, parts=(inner.linear_map,))
        image = assembled(map_arrays(basis, {}, self.kept, encoder=behind))
        return FrozenModel(image) if regressor is None else FrozenDecoder(image)

    def leverage_points(self, X: Any) -> Any:
        return self.split(X)[1]

    @property
    def _n_features_out(self) -> int:
        return self.n_own + int(np.shape(self.model_.transform(np.empty((0, *self.model_.field_shape_))))[1])
