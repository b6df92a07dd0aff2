"""The base class of encoders: latents of new fields and their derivatives."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from randsmap._interface.arrays import as_array, check_beside, check_samples, latents_of, validate_data
from randsmap._interface.fields import FieldOutputMixin, field_rows
from randsmap._interface.state import check_fitted
from randsmap._interface.texts import shared_texts
from randsmap._linalg.rows import Rows, by_blocks
from randsmap._linalg.scales import check_cell_weights

_Values = NDArray[np.float64]


@shared_texts
class FieldEncoder(FieldOutputMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An encoder whose latents are those of its `_encoding`.

    A subclass has ``fit``, which sets the fitted attributes, ``_n_features_out`` and ``_encoding``: an object with
    ``coordinates(X)`` (n, d), ``jacobian(X)`` (n, d, M), ``jvp(X, V)`` (n, d) and ``vjp(X, U)`` (n, M) for checked
    fields X and tangents V (n, M) and functionals U (n, d).
    """

    _encoding: Any
    _n_features_out: Any
    n_features_in_: int
    cell_weights: Any

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latent coordinates of training fields.

        Parameters
        ----------
        X : array-like (n, M) or (n, *shape)
            Fields, one per row, or of any shape; n >= 2. See the class for large memory-mapped ones.
        y : ignored

        {result_of_fit}
        """
        raise NotImplementedError

    def transform(self, X: ArrayLike) -> _Values:
        """Latent coordinates of fields, of which large memory-mapped ones are read a block at a time.

        {fields} {returns_latents} {raises}
        """
        check_fitted(self, "_encoding")
        encode = self._encoding.coordinates
        rows = field_rows(self, X)
        latents = by_blocks(lambda F: encode(validate_data(self, F, reset=False)), rows)
        if hasattr(self, "invariants_"):  # other encoders accept any points
            self._field_shape.warn_of_units(rows)
        return latents

    def jacobian(self, X: ArrayLike) -> _Values:
        """Derivatives of the latent coordinates with respect to the fields.

        Parameters
        ----------
        {fields}

        Returns
        -------
        ndarray (n, d, M)
            `jvp` and `vjp` multiply by it without forming it.

        {raises}
        """
        F = self._checked(X)  # this check comes first: it raises for an encoder that is not fitted
        return self._in_shape(self._encoding.jacobian(F))

    def jvp(self, X: ArrayLike, V: ArrayLike) -> _Values:
        """Products of the derivatives with vectors: how the latents move as the fields change by v.

        Pushes the right-hand side v of an equation df/dt = v forward to the latents.

        Parameters
        ----------
        {fields}
        V : array-like (n, M) or (M,)
            A tangent for each field, or one for all.

        {returns_latents} {raises}
        """
        check_beside(X, {"V": V}, getattr(self, "feature_names_in_", None))
        F = self._checked(X)
        return self._encoding.jvp(F, as_array(self._field_shape.vectors(V, "V"), "V", F.shape, repeat=True, min_rows=0))

    def vjp(self, X: ArrayLike, U: ArrayLike) -> _Values:
        """Products of the transposed derivatives with vectors: gradients of u . z in the fields, z their latents.

        Parameters
        ----------
        {fields}
        U : array-like (n, d) or (d,)
            A functional of the latents for each field, or one for all.

        Returns
        -------
        ndarray (n, M)

        {raises}
        """
        check_samples(X=X, U=U)
        F, U = self._checked(X), latents_of(U, self, "U")
        U = as_array(U, "U", (len(F), self._n_features_out), repeat=True, min_rows=0)
        return self._in_shape(self._encoding.vjp(F, U))

    def frozen_encoder(self, precision: str, tol: float | None) -> dict[str, Any]:
        """`transform` as the sections of an image (rk_image.h), whose modes or training fields have that precision."""
        raise NotImplementedError

    def _weighted(self, X: Any) -> tuple[Rows, Any]:
        """Training fields times the square roots of the cell weights, and these; None: ones."""
        fields = Rows.validated(self, field_rows(self, X, reset=True), reset=True, min_samples=2)
        weights = check_cell_weights(self.cell_weights, self._field_shape)
        root = None if weights is None else np.sqrt(weights)
        return fields if root is None else fields.less(np.zeros(fields.width), scale=root), root

    def _checked(self, X: ArrayLike) -> _Values:
        check_fitted(self, "_encoding")
        return validate_data(self, field_rows(self, X), reset=False)
