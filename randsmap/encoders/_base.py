"""What encoders of fields have in common: latents of new fields and their derivatives."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from randsmap._interface.arrays import as_array, validate_data
from randsmap._interface.fields import FieldInputMixin, field_rows
from randsmap._interface.state import check_fitted
from randsmap._linalg.rows import by_blocks

_Values = NDArray[np.float64]


class Encoding(Protocol):
    """The map from fields X (L, M) to latents (L, d) that the fit of an encoder makes; arrays are checked."""

    def coordinates(self, X: _Values) -> _Values:
        """Latents (L, d)."""

    def jacobian(self, X: _Values) -> _Values:
        """Derivatives (L, d, M)."""

    def jvp(self, X: _Values, V: _Values) -> _Values:
        """Derivatives (L, d) along V (L, M)."""

    def vjp(self, X: _Values, U: _Values) -> _Values:
        """Gradients (L, M) of the sums of U (L, d) times the latents."""


class FieldEncoder(FieldInputMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An encoder whose `fit` makes an `Encoding`.

    A subclass has ``fit``, which sets the fitted attributes, ``_encoding`` and ``_n_features_out``.
    """

    _encoding: Any
    _n_features_out: Any
    n_features_in_: int

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latent coordinates of training fields.

        Parameters
        ----------
        X : array-like (n, M) or (n, *shape)
            Fields, one per row, or of any shape; n >= 2. See the class for large memory-mapped ones.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If a value is not finite, a parameter is out of range, or the fields do not determine the coordinates
            (see the class). The estimator then keeps the state it had.
        """
        raise NotImplementedError

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Latent coordinates of fields.

        Parameters
        ----------
        X : array-like (L, M)
            May have no rows. Large memory-mapped fields are read a block at a time.

        Returns
        -------
        ndarray (L, d)
            A row does not depend on the others beyond round-off.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            Before `fit`; if the width is not that of the training fields or a value is not finite.
        """
        check_fitted(self, "_encoding")
        return by_blocks(self._coordinates, field_rows(self, X))

    def _coordinates(self, X: Any) -> NDArray[np.float64]:
        return self._encoding.coordinates(validate_data(self, X, reset=False))

    def jacobian(self, X: ArrayLike) -> NDArray[np.float64]:
        """Derivatives of the latent coordinates with respect to the fields.

        Parameters
        ----------
        X : array-like (L, M)
            May have no rows.

        Returns
        -------
        ndarray (L, d, M)
            `jvp` and `vjp` multiply by it without forming it.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As `transform`.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import DiffusionMaps
        >>> angle = np.linspace(0, np.pi, 30)
        >>> arc = np.column_stack([np.cos(angle), np.sin(angle)])
        >>> J = DiffusionMaps(n_components=1).fit(arc).jacobian(arc[15:16])
        >>> along, across = J[0] @ [np.sin(angle[15]), -np.cos(angle[15])], J[0] @ arc[15]
        >>> bool(abs(across) < 0.1 * abs(along))
        True
        """
        F = self._checked(X)
        return self._in_shape(self._encoding.jacobian(F))

    def jvp(self, X: ArrayLike, V: ArrayLike) -> NDArray[np.float64]:
        """Products of the derivatives with vectors: how the latents move as the fields change by v.

        Pushes the right-hand side v of an equation df/dt = v forward to the latents.

        Parameters
        ----------
        X : array-like (L, M)
            Fields.
        V : array-like (L, M) or (M,)
            A tangent for each field, or one for all.

        Returns
        -------
        ndarray (L, d)

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As `transform`, and if V does not fit.
        """
        F = self._checked(X)
        return self._encoding.jvp(F, as_array(self._vectors(V), "V", F.shape, repeat=True, min_rows=0))

    def vjp(self, X: ArrayLike, U: ArrayLike) -> NDArray[np.float64]:
        """Products of the transposed derivatives with vectors: gradients of u . y in the fields, y their latents.

        Parameters
        ----------
        X : array-like (L, M)
            Fields.
        U : array-like (L, d) or (d,)
            A functional of the latents for each field, or one for all.

        Returns
        -------
        ndarray (L, M)

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As `transform`, and if U does not fit.
        """
        F = self._checked(X)
        U = as_array(U, "U", (len(F), self._n_features_out), repeat=True, min_rows=0)
        return self._in_shape(self._encoding.vjp(F, U))

    def _checked(self, X: ArrayLike) -> NDArray[np.float64]:
        check_fitted(self, "_encoding")
        return validate_data(self, field_rows(self, X), reset=False)
