"""What models have in common whose fields are registered before they are encoded, and carried back after decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, clone

from randsmap._interface.arrays import as_array, check_samples, finite_results, latents_of, validate_data
from randsmap._interface.fields import field_rows, output
from randsmap._interface.state import check_fitted
from randsmap.maps.error_bar import ErrorBar, with_error
from randsmap.model._base import ReconstructionMixin, model_texts
from randsmap.model._manifold import ManifoldModel

_Values = NDArray[np.float64]


@model_texts
class Registration(ReconstructionMixin, ClassNamePrefixFeaturesOutMixin):
    """A manifold model of what is left of fields when their place is taken out of them.

    A class has `registered` (F) -> latents of its own (n, n_own) and the rows that `model_` encodes and decodes, and
    `carried` (own, latents of `model_`, invariant_values, options of its decoding) -> fields (n, M).
    """

    leverage_from = "model"
    n_own: int
    model: Any
    model_: ManifoldModel
    calibrated_: ErrorBar | None
    registered: Any
    carried: Any

    def checked_snapshots(self, X: Any) -> _Values:
        """The fields of `fit` as rows in memory."""
        if not isinstance(self.model, ManifoldModel):
            raise TypeError(f"model must be a ManifoldModel, got {self.model!r}")
        return validate_data(self, field_rows(self, X, reset=True), reset=True, min_samples=2)

    def fit_inside(self, registered: Any) -> None:
        """Fit the model inside to the registered fields."""
        self.model_ = clone(self.model).fit(registered)
        self.calibrated_ = None

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
        fields = finite_results(self.carried(own, Y, invariant_values, options))
        # a cell's value comes from others, so some cells need all of them
        fields = self._in_shape(fields) if cells is None else fields[:, self._checked_cells(cells)]
        if out is None:
            out = self._field_shape.labelled(fields, cells)
        else:
            out = output(out, None, fields.shape)
            out[:] = fields.reshape(out.shape)
        return with_error(out, self, Y, return_error, coverage)

    def split(self, X: Any) -> tuple[_Values, _Values]:
        """The registration's own latents (n, n_own), and those of the model inside."""
        check_fitted(self, "model_")
        X = as_array(latents_of(X, self), "X", min_rows=0, min_columns=self.n_own + 1)
        return X[:, : self.n_own], np.ascontiguousarray(X[:, self.n_own :])

    def leverage_points(self, X: Any) -> Any:
        return self.split(X)[1]

    @property
    def _n_features_out(self) -> int:
        return self.n_own + int(np.shape(self.model_.transform(np.empty((0, *self.model_.field_shape_))))[1])
