"""Exact invariants for any regressor, and what an estimator has from a part."""

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils import get_tags

from randsmap._interface.arrays import as_array, check_beside, check_columns, check_samples, real_numbers
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import field_rows
from randsmap._interface.labels import index_of
from randsmap._interface.parameters import estimator, parameter
from randsmap._interface.state import check_fitted, restored_on_error
from randsmap._interface.texts import shared_texts
from randsmap._linalg.rows import Rows
from randsmap.decoders._base import FieldRegressor, available_if, check_fields, require, weighted_samples
from randsmap.invariants import InvariantParameters, RunningInvariants, fit_estimator, norm_weights
from randsmap.maps.error_bar import HOW, ErrorBar, found_error_bar, unknown_errors, with_error
from randsmap.maps.frozen import OTHERWISE
from randsmap.maps.linear_map import LinearMap, ProjectedMap, jacobian, jvp, vjp


@shared_texts
class LeverageOfPart:
    """An estimator with the leverage of a part.

    `leverage_from` names the parameter that is this part. `no_leverage` is the reason, a format with the estimator as
    {0}, why there is no leverage if the parameter is None; "" if `fit` then uses a part that has one.
    """

    leverage_from: str
    no_leverage = ""
    calibrated_: ErrorBar | None = None  # computed, or set by `calibrate`

    def leverage_points(self, X: Any) -> Any:
        """X as the part's `leverage` takes it."""
        return X

    def _check_leverage(self) -> bool:
        part = getattr(self, self.leverage_from)
        if part is None and self.no_leverage:
            raise AttributeError(self.no_leverage.format(self))
        return part is None or require(part, "leverage")

    def _leverage_part(self) -> Any:
        self._check_leverage()
        check_fitted(self, f"{self.leverage_from}_")
        return getattr(self, f"{self.leverage_from}_")

    @available_if(lambda self: self._check_leverage())
    def leverage(self, X: ArrayLike) -> NDArray[Any]:
        """Leverage of points: their distance from those of the training fields, as a part of the estimator measures it.

        {latents} {returns_leverage} {raises}
        AttributeError
            If the part has no leverage.
        """
        result: NDArray[Any] = self._leverage_part().leverage(self.leverage_points(X))
        return result

    # the part has its own error bar, and a new one after more batches or `calibrate`
    error_bar_ = property(partial(found_error_bar, keep=False), doc=found_error_bar.__doc__)

    def closed_error_bar(self) -> ErrorBar:
        """The error bar without other fits: the part's."""
        part = getattr(self, f"{self.leverage_from}_", None)
        if not hasattr(type(part), "error_bar_"):
            raise unknown_errors(self, " without a decoder" if part is None else f" with a {type(part).__name__}")
        ours = norm_weights(self.field_shape_, self)  # type: ignore[attr-defined]
        theirs = getattr(getattr(part, "invariants_", None), "cell_weights", None)  # the weights that the part has used
        if ours is not None and not np.array_equal(ours, 1.0 if theirs is None else theirs):
            raise AttributeError(f"errors of the {type(part).__name__} are measured in another norm of fields: {HOW}")
        return part.error_bar_  # type: ignore[union-attr]

    @property
    def leverage_(self) -> float:
        """The part's `leverage_`: the largest of the training points; AttributeError as `leverage`."""
        return float(self._leverage_part().leverage_)

    @property
    def leverage_limit_(self) -> float:
        """The part's `leverage_limit_`, above which decoded fields may be far off."""
        return float(self._leverage_part().leverage_limit_)


@shared_texts
@estimator
class ConservativeRegressor(InvariantParameters, LeverageOfPart, MetaEstimatorMixin, FieldRegressor):
    """Any multi-output regressor, with predictions that satisfy linear invariants exactly.

    Use it to add exact invariants and bounds to a regressor of scikit-learn or of your own. The decoders of the package
    do not need it.

    Every prediction is replaced by the nearest field, in the norm weighted by cell_weights, that satisfies the
    invariants and has the constant cells' values: |C_j^T f - m_j| <= a few ulp of |C_j|^T |f| + |m_j|.
    The error of a prediction, in that norm, does not grow if the true field satisfies the invariants.

    Parameters
    ----------
    estimator
        With `fit(X, y)` and `predict(X)`; it is cloned.

    Attributes
    ----------
    estimator_ : regressor
        The fitted clone.
    n_features_in_ : int
        Number of columns of X, if the regressor knows it.

    Examples
    --------
    {curve}
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> regressor = randsmap.ConservativeRegressor(KNeighborsRegressor(weights="distance"))
    >>> bool(abs(regressor.fit(latents, fields).predict([[0.3]]).sum() - 1) < 1e-14)
    True
    """

    lacks = {"smoother": "the weights before the projection are those of the regressor (estimator_)"}

    leverage_from = "estimator"

    estimator: Any = parameter(kw_only=False, shown="regressor", of_columns=True)
    _columns: Any = None  # labels of the columns of X
    _stream: RunningInvariants | None = None  # statistics of the batches for the invariants
    stream = property(lambda self: self._stream)

    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit a clone of the regressor, and the invariants.

        Parameters
        ----------
        X : array-like (n, d)
            Handed to the regressor as it is.
        y : array-like (n, M) or (n, *shape)
            Fields, one per row; (n,) for a single cell. The regressor gets rows. Large memory-mapped fields are checked
            by blocks and passed on without a copy, except that regressors of other packages get float64.
        **fit_params
            Further arguments of the regressor's `fit`.

        {result_of_fit}
            Also as the regressor raises.
        """
        with restored_on_error(self):
            self._stream = None
            F, *kept = self._checked_batch(X, y, fit_params)
            self.invariants_ = fit_estimator(self, *kept)
            self._learned(clone(self.estimator).fit(X, F, **fit_params), X)
        return self

    @available_if(lambda self: require(self.estimator, "partial_fit"))
    def partial_fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit to one more batch: the regressor by its own `partial_fit`, the invariants to all fields so far.

        The first batch fixes the bounds and whether there are invariants.

        Parameters
        ----------
        X, y, **fit_params
            As for `fit`.

        {result_of_fit}
            Also as the regressor raises, or if the fields so far do not satisfy the invariants together.

        Warns
        -----
        UserWarning
            After `fit`: it starts anew.
        """
        with restored_on_error(self):
            if self._stream is None and hasattr(self, "estimator_"):
                warn_caller(f"this {type(self).__name__} was fitted by fit: partial_fit discards that fit")
            F, G, dtype, _ = self._checked_batch(X, y, fit_params)
            before = self._stream or RunningInvariants.of(self, G.shape[1])
            after, self.invariants_ = before.with_fields(G, dtype)  # checked before the regressor gets the batch
            part = clone(self.estimator) if self._stream is None else self.estimator_
            self._learned(part.partial_fit(X, F, **fit_params), X)
            self._stream = after
        return self

    def _checked_batch(self, X, y, fit_params):
        """Fields for the regressor; the fields of rows with a weight, their number type, and their latents."""
        # sparse matrices, which the regressor may take, have no length, and array-likes may have neither
        n = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
        check_samples(X=X, y=y)
        _refuse_misread(X)
        F, dtype, layout = check_fields(y, n, blocks=True)
        if self._stream is None:
            self._columns, self._field_shape = index_of(X, -1), layout
        else:
            check_columns(self._columns, "the first batch", X=X)
            field_rows(self, y, name="y")  # in the layout of the first batch
        _, Z, G = weighted_samples(fit_params.get("sample_weight"), X, F)
        if isinstance(F, Rows):
            as_it_is = isinstance(self.estimator, FieldRegressor) or F.array.dtype == np.float64
            F = F.array if as_it_is else F[:]
        return (F[:, 0] if self.field_shape_ == () else F), G, dtype, Z

    def _learned(self, estimator, X):
        """Store the fitted regressor and its description of X."""
        self.estimator_, self.calibrated_ = estimator, None
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))

    def predict(
        self,
        X: ArrayLike,
        *,
        invariant_values: float | ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        return_error: bool | str = False,
        coverage: float = 0.9,
    ) -> Any:
        """Predictions of the regressor, projected.

        {latents} {invariant_values} {cells} {out} {return_error} {returns_fields} {raises}
            Also as the regressor, which predicts all cells, raises, or if its prediction is not a finite (n, M) array.
        """
        check_fitted(self, "estimator_")
        check_beside(X, {"invariant_values": invariant_values}, invariants=self.invariants)
        _refuse_misread(X)
        if not (hasattr(X, "iloc") and hasattr(self.estimator_, "feature_names_in_")):  # a regressor may choose by name
            check_columns(self._columns, "fit", X=X)
        predicted = np.asarray(self.estimator_.predict(X))
        M = self._n_outputs
        if predicted.ndim == 1 and M == 1:
            predicted = predicted[:, None]
        predicted = as_array(predicted, "the regressor's prediction", (None, M), min_rows=0)
        values = self.invariants_.row_values(invariant_values, len(predicted))
        cells = self._checked_cells(cells)
        result, fields = self._output(out, None, len(predicted), cells)
        if cells is None:
            fields[:] = predicted
            self.invariants_.project(fields, values)
        else:
            fields[:] = self.invariants_.project(predicted.copy(), values)[:, cells]
        return with_error(self._field_shape.labelled(result, cells, out), self, X, return_error, coverage)

    def _check_derivatives(self, method: str) -> bool:
        if not hasattr(type(self.estimator), "linear_map"):  # derivatives of other regressors are not available
            name = type(self.estimator).__name__
            raise AttributeError(f"the {method} of a {name} is not known: decoders of this package have one")
        return require(self.estimator, method)

    jacobian = available_if(lambda self: self._check_derivatives("jacobian"))(jacobian)
    jvp = available_if(lambda self: self._check_derivatives("jvp"))(jvp)
    vjp = available_if(lambda self: self._check_derivatives("vjp"))(vjp)

    def checked_latents(self, X: ArrayLike, **others: Any) -> NDArray[np.float64]:
        """X as points (n, d); `others` are for these rows."""
        check_fitted(self, "estimator_")
        points: NDArray[np.float64] = self.estimator_.checked_latents(X, **others)
        return points

    @property
    def linear_map(self) -> LinearMap:
        """The map from latents to fields, of a regressor with one; TypeError, as `freeze` raises, of others."""
        check_fitted(self, "estimator_")
        if not hasattr(type(self.estimator_), "linear_map"):
            name = type(self.estimator_).__name__
            raise TypeError(f"a ConservativeRegressor of a {name} cannot be frozen: C does not support it. {OTHERWISE}")
        return ProjectedMap(self.estimator_.linear_map, self.invariants_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        tags.input_tags.pairwise = inner.pairwise
        return tags


def _refuse_misread(X: Any) -> None:
    """Raise for dates, durations and masked values; text, objects and sparse matrices are left to the regressor."""
    if not hasattr(X, "toarray") and np.asarray(X).dtype.kind not in "OSTU":
        real_numbers(X, "X")
