"""Base of the decoders: fields and weights of a fit, what a fit keeps, and what all decoders do with it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.arrays import as_array, cache_aligned, check_beside, check_domain, check_samples, validate_data
from randsmap._interface.callers import compiled, extrapolation_is_ignored, quiet
from randsmap._interface.fields import FIELD_STATE, FieldOutputMixin, FieldShape, field_rows, flattened, output
from randsmap._interface.parameters import check_choice, estimator, parameter
from randsmap._interface.state import Count, Part, restored_on_error
from randsmap._interface.texts import shared_texts
from randsmap._linalg.products import multiply
from randsmap._linalg.rows import Rows, spread_rows
from randsmap._linalg.scales import error_scales, in_norm, standard_deviations
from randsmap._linalg.svd import FactoredRows
from randsmap._parallel import blas_threads
from randsmap.features import check_length_scale
from randsmap.invariants import AffineInvariants, InvariantParameters, fit_estimator, norm_weights, own_values
from randsmap.maps import error_bar as bars
from randsmap.maps.error_bar import HOW, ErrorBar, found_error_bar, with_error
from randsmap.maps.extrapolation import Leverage, TrustRegion
from randsmap.maps.frozen import freeze
from randsmap.maps.linear_map import jacobian, jvp, vjp
from randsmap.metrics import scaled_l2

_Values = NDArray[np.float64]
_Method = TypeVar("_Method", bound=Callable[..., Any])

if TYPE_CHECKING:  # scikit-learn has no types: a method behind its descriptor keeps its own

    def available_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]: ...

else:
    from sklearn.utils.metaestimators import available_if


def check_fields(
    y: Any, n: int, *, blocks: bool = False, factored: bool = False, name: str = "y"
) -> tuple[Any, np.dtype[Any], FieldShape]:
    """y as contiguous float64 (n, M), the number type it came in, and the layout of its fields. With `blocks`, a large
    memory-mapped y comes as Rows; with `factored`, FactoredRows as they are."""
    if isinstance(y, FactoredRows):
        return (y if factored else y.array), *y.origin
    if y is None:  # scikit-learn's checks search for these words
        raise ValueError("y must hold the fields of X, got None: it requires y to be passed, but the target y is None")
    y, layout = flattened(y, name)
    y = np.asanyarray(y)
    F: Any = Rows.of(y[:, None] if y.ndim == 1 else y, name)
    # rows of a file are checked later, when they are read
    if not (blocks and F.mapped):
        F = F.whole()
        check_domain(F, name)
    if len(F) != n:
        what = f" (fields of shape {layout.shape})" if len(layout.shape) > 1 else ""
        raise ValueError(f"X and {name} must have the same number of rows, got {n} and {len(F)}{what}")
    return F, y.dtype, layout


def weighted_samples(sample_weight: Any, X: Any, F: Any) -> tuple[_Values | None, Any, Any]:
    """Weights of the rows of X and F that have one, None where all are 1, and these rows."""
    if sample_weight is None:
        return None, X, F
    weights = _checked_sample_weight(sample_weight, len(X))
    check_domain(weights, "sample_weight", each=True)
    kept = np.flatnonzero(weights)
    if len(kept) < 2:
        raise ValueError(f"sample_weight must be positive for at least 2 rows, got {len(kept)}")
    if len(kept) < len(weights):
        weights, X, F = weights[kept], X[kept], F[kept]
    return (None if (weights == 1).all() else weights.copy()), X, F


def _checked_sample_weight(sample_weight, n):
    checked = as_array(sample_weight, "sample_weight", (n,))
    i = int(np.argmin(checked))
    if checked[i] < 0 or not checked.any():
        raise ValueError(f"sample_weight must be >= 0, and not zero for all rows, got {checked[i]} for row {i}")
    return checked


def full_fields(F: Any) -> Any:
    """The fields themselves of FactoredRows."""
    return F.array if isinstance(F, FactoredRows) else F


def coordinates_of(F: Any) -> Any:
    """Right-hand side of a regression that is linear in the fields F: of FactoredRows the coordinates."""
    return F.coordinates if isinstance(F, FactoredRows) else F


def constrained(A: _Values, F: Any, invariants: AffineInvariants | None) -> _Values:
    """Coefficients of the fields F from those of their `coordinates_of`, such that all fields keep the invariants."""
    if isinstance(F, FactoredRows):
        with blas_threads():
            A = multiply(A, F.basis)
    return cache_aligned(A if invariants is None else invariants.constrain_coefficients(A))


# -- Parameters and capabilities -------------------------------------------------------------------
def check_unread(estimator: Any, names: Iterable[str], reader: str) -> None:
    """ValueError if a parameter that is not read, `reader` says with what, differs from its default."""
    for name in names:
        value = getattr(estimator, name)
        default = inspect.signature(type(estimator)).parameters[name].default
        if value is not default and (np.ndim(value) or value != default):
            raise ValueError(f"{name} is not read {reader}, so it must be {default!r}, got {value!r}")


def is_fitted(estimator: Any) -> bool:
    """True if it is an estimator that is fitted."""
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def fitted_scale(latent_scale: Any, X: _Values, weights: Any = None) -> _Values:
    """Units (d,) of the latent coordinates X (n, d), of `weights`: "std", a number, an array (d,) or None (1)."""
    d = X.shape[1]
    if latent_scale is None:
        return np.ones(d)
    if isinstance(latent_scale, str):
        check_choice(latent_scale, "latent_scale", ("std",))
        return standard_deviations(X, weights)
    return np.full(d, check_length_scale(latent_scale, d, "latent_scale"))


@estimator
class LatentScaling:
    """The units of latent coordinates, and the mean of the fields, of a regression.

    Parameters
    ----------
    center
        Whether the bias is not penalised: f(z) = mean(F) + (phi(z) - mean(phi)) A, so that a large background costs no
        accuracy. False: the paper's form, with a penalised bias.
    latent_scale
        Units of the latent coordinates, to which lengths, slopes and frequencies refer. "std": their standard
        deviations over the training points (1 for a coordinate whose spread is round-off); an array: one per
        coordinate (automatic relevance determination); None: 1.
    """

    center: bool = parameter(bool, default=True)
    latent_scale: str | float | ArrayLike | None = parameter(
        default="std", shown='"std", float, array (d,) or None', of_columns=True
    )


_PARTIAL_FIT = "only random features (RANDSMAPDecoder, RFNNDecoder) are fitted in batches: other fits need all samples"


def why_not(part: Any, method: str) -> str | None:
    """Reason why an estimator lacks a method; None if it has it. The check of `available_if` raises the reason; of
    methods that a class of the package does not define, its dictionary `lacks` has it."""
    try:
        getattr(part, method)
    except AttributeError as error:
        unknown = f"the {method} of a {type(part).__name__} is not known: decoders of this package have one"
        reasons = getattr(part, "lacks", {"partial_fit": f"a {type(part).__name__} has no partial_fit"})
        return str(error.__cause__ or reasons.get(method, unknown))
    return None


def require(part: Any, method: str) -> bool:
    """True if the estimator has the method, else AttributeError with the reason."""
    reason = why_not(part, method)
    if reason is not None:
        raise AttributeError(reason)
    return True


# -- Estimators ------------------------------------------------------------------------------------
# methods that are internal to the package
PROTOCOL = ("fit_state", "check_available", "weights_of", "eigenpairs", "regression", "storable", "leverage_points")
PROTOCOL += ("frozen_encoder", "draw", "activation_parameters", "checked_latents", "closed_error_bar", "round_off")
PROTOCOL += ("tangents_at", "registered", "split", "begin", "fit_inside", "check_inside")


@shared_texts
class FieldRegressor(FieldOutputMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A regressor from latent points to fields, whose `fit` keeps their `_field_shape`."""

    freeze = freeze
    lacks: ClassVar[dict[str, str]] = {"partial_fit": _PARTIAL_FIT}

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Minus the mean of `metrics.scaled_l2` over the decoded fields (higher is better, 0 at best).

        This is the relative L2 error, in the norm of the cell weights, except for fields that are zero or very small.

        Parameters
        ----------
        {latents}
        y : array-like (n, M) or (n, *field_shape_)
            Their true fields.
        sample_weight : array-like (n,), optional
            Weights >= 0 of the fields in the mean.

        {returns_float} {raises}
        """
        check_samples(X=X, y=y, sample_weight=sample_weight)
        predicted = np.asarray(self.predict(X, **own_values(self, y)))
        true = check_fields(field_rows(self, y, name="y"), len(predicted))[0]
        errors = scaled_l2(true, predicted.reshape(true.shape), cell_weights=norm_weights(self.field_shape_, self))
        if sample_weight is not None:
            sample_weight = _checked_sample_weight(sample_weight, len(true))
        return -float(np.average(errors, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # scikit-learn's checks expect R^2 near 1
        return tags

    def _training_data(self, X, y, sample_weight=None):
        """Checked latents and fields of a fit, their weights, and the invariants of a decoder that has some."""
        as_they_are = sample_weight is None
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, layout = check_fields(y, len(X), blocks=as_they_are, factored=as_they_are)
        self._field_shape = layout
        weights, X, F = weighted_samples(sample_weight, X, F)
        invariants = None
        if isinstance(self, InvariantParameters):
            everywhere = getattr(self, "constraint", "everywhere") == "everywhere"
            invariants = fit_estimator(self, full_fields(F), dtype, X, keep_constant_cells=everywhere)
        return X, F, weights, invariants

    _n_outputs = property(attrgetter("_field_shape.n_cells"))

    def _output(self, out, X, n, cells):
        """The output of `predict` for n fields in all cells or in some: the array to return, and its view (n, k)."""
        k = self._n_outputs if cells is None else len(cells)
        out = output(out, X, (n, *self.field_shape_) if cells is None else (n, k))
        return out, out.reshape(n, k)


class Fit:
    """The immutable result of a decoder's fit, of which `predict`, derivatives, `freeze` and `leverage` are made.

    A subclass has, computed once and in no pickle and no model file, `leverage`, a `Leverage`, and `linear_map`, a
    `LinearMap`.
    """

    linear_map: Any
    leverage: Any
    training_points: Any  # (n, d) in the units of the caller, or a subset
    invariants: Any = None
    bias: Any = None  # (M,): the bias in double precision for coefficients in single precision
    # for the error bar: labels (n,) of points that are left out together; coordinates of up to 2000 training fields, if
    # they are not known otherwise; distances of the fields from the fields of these coordinates
    groups: Any = None
    sketch: Any = None
    truncated: Any = None

    @property
    def training_fields(self) -> _Values:
        """Coordinates (n, k) of the training fields, with about their distances in the norm of the cells' weights."""
        if self.sketch is None:
            raise AttributeError(f"fits in batches keep no training fields: {HOW}")
        return self.sketch

    def left_out(self, G: _Values, groups: Any = None) -> _Values:
        """What the coordinates G (n, k) of the training fields miss, each or each of the groups left out of the fit."""
        raise NotImplementedError

    def fields_of(self, G: _Values) -> _Values:
        """Fields with these coordinates; of more than 128 cells other numbers."""
        return G

    def judge(self, rows: NDArray[np.intp], G: _Values) -> tuple[_Values, Callable[..., Any]]:
        """Norms of the fields of some training points; errors of what their coordinates miss, left out alone or (1) in
        blocks."""
        X, weights = self.training_points[rows], getattr(self.invariants, "cell_weights", None)
        fields = (in_norm(self.free.decode(X[i : i + 256]), weights) for i in range(0, len(X), 256))
        norms = error_scales(np.concatenate([np.linalg.norm(F, axis=1) for F in fields]))
        rest = 0.0 if self.truncated is None else self.truncated
        return norms, lambda missed, _: np.hypot(np.linalg.norm(missed, axis=1), rest) / norms

    @quiet
    def error_bar(self, judge: Callable[..., Any] | None = None) -> ErrorBar:
        """The error bar of the training fields, of at most 2000 of them; at about the cost of the leverage."""
        X, G = self.training_points, self.training_fields
        if len(X) < 3:
            raise AttributeError(f"an error bar needs 3 training points at least, got {len(X)}")
        rows = own = bars.judged_rows(len(X))
        if len(G) < len(X):
            X, own = X[rows], np.arange(len(G))
        labels = bars.same_points(X) if self.groups is None else self.groups[rows if len(G) < len(self.groups) else ...]
        blocks = bars.eighths(X)
        if np.ptp(labels[own]) == 0:
            raise AttributeError(f"an error bar needs training points that differ: all {len(X)} are left out together")
        norms, errors_of = (judge or self.judge)(rows, G[own])
        groupings = None if len(np.unique(labels)) == len(X) else bars.members(labels), bars.members(blocks)
        errors, apart = (errors_of(self.left_out(G, each)[own], kind) for kind, each in enumerate(groupings))
        return ErrorBar(X[own], errors, norms, labels[own], np.zeros(2)).grown(blocks[own], apart)

    @cached_property
    @quiet
    def trust(self) -> TrustRegion:
        """The surroundings of the training points. A search fits many decoders for which it is not needed."""
        return TrustRegion(self.training_points)

    @property
    def free(self) -> Any:
        """The fit without invariants: fields whose invariants vary are decoded with their own alone."""
        return self if self.invariants is None else replace(self, invariants=None)  # type: ignore[type-var]

    @quiet
    def rounded(self, dtype: str) -> Any:
        """The fit with coefficients of that type; ValueError if training points' fields then miss more than 1e-5."""
        if dtype == "float64" or self.bias is not None:
            return self
        names = [name for name in ("coefficients", "synthesis", "expanded") if getattr(self, name, None) is not None]
        bias = self.linear_map.coefficients["bias"].copy()
        some = spread_rows(len(self.training_points), min(max((1 << 24) // len(bias), 16), 256))
        X, weights, allowed = self.training_points[some], getattr(self.invariants, "cell_weights", None), 1e-5
        exact, error = self.free.decode(X), np.inf
        for size in (max(array.max(), -array.min()) for array in (getattr(self, each) for each in names)):
            if size and not 1e-37 < size < 1e38:
                raise ValueError(f"dtype='float32' has no coefficients of {size:.1e}: change the unit of the fields")
        for chosen in (names, names[1:])[: len(names)]:  # the combinations of functions to few modes may cancel
            new: Any = replace(self, bias=bias, **{each: getattr(self, each).astype(np.float32) for each in chosen})  # type: ignore[type-var]
            error = min(error, scaled_l2(exact, new.free.decode(X), cell_weights=weights).max())
            if error <= allowed:
                return new
        raise ValueError(
            f"dtype='float32' decodes training points' fields to {error:.1e} of their norm, expected {allowed:.0e}: "
            "the coefficients cancel. Use output_rank (random features), a larger regularization, or dtype='float64'"
        )

    def prepare(self) -> Any:
        """Make what the first decoded row would wait for."""
        return self.linear_map

    def decode(self, X: _Values) -> Any:
        """Fields (n, M) at checked latents X (n, d)."""
        return self.linear_map.fields(X)

    def __getstate__(self) -> dict[str, Any]:
        # computed again on demand: some hold functions or a structure of C
        computed = ("linear_map", "leverage", "trust", "columns")
        return {name: value for name, value in vars(self).items() if name not in computed}


def of_fit(name: str) -> Any:
    """A fitted attribute: a property that reads `name` of the fit."""
    return property(lambda self: getattr(self.fitted, name))


FIT_STATE: dict[str, Any] = {"n_features_in_": Count("d"), "calibrated_": Part(ErrorBar, optional=True), **FIELD_STATE}


def holding(decoder: Any, fit: Fit, **attributes: Any) -> Any:
    """A copy of a decoder with another fit and attributes."""
    other = copy.copy(decoder)
    vars(other).update(attributes, _fitted=fit, calibrated_=None)
    return other


@shared_texts
@estimator
class HoldsFit:
    """`fit`, fitted attributes, derivatives and `leverage` of a decoder; a subclass has ``fit_state``.

    Attributes
    ----------
    latent_scale_ : ndarray (d,)
        Units of the latent coordinates. `coef_`, features and kernels are for latent points as they are.
    n_features_in_ : int
        d, the number of latent coordinates.
    """

    fit_state: ClassVar[Callable[..., Fit]]  # returns the result of a fit, which `fit` stores
    _fitted: Any = None
    calibrated_: ErrorBar | None = None  # computed, or set by `calibrate`

    @property
    def fitted(self) -> Any:
        """The immutable result of the fit, a `Fit`; NotFittedError before there is one."""
        if self._fitted is None:
            check_is_fitted(self)
        return self._fitted

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    latent_scale_ = of_fit("latent_scale")
    linear_map = of_fit("linear_map")

    def fit(self, X: ArrayLike, y: ArrayLike, **others: Any) -> Self:
        """Fit the decoder to latent points and their fields.

        Parameters
        ----------
        {training}
        **others
            None: TypeError, which says which decoders take `sample_weight` and `groups`.

        {result_of_fit}
        """
        if others:
            raise TypeError(
                f"{type(self).__name__}.fit takes no {min(others)}: RANDSMAPDecoder, RFNNDecoder, KernelDecoder and "
                "ConservativeRegressor take sample_weight, AutoDecoder takes groups"
            )
        return self._fit(X, y)

    def _fit(self, X: ArrayLike, y: ArrayLike, **more: Any) -> Self:
        """`fit` with more arguments that have an entry for each sample."""
        with restored_on_error(self):
            check_samples(X=X, y=y, **more)
            fitted = self.fit_state(X, y, **more).rounded(getattr(self, "dtype", "float64"))
            # `predict` then changes nothing, and threads may share the decoder
            fitted.prepare()
            self._fitted, self.calibrated_ = fitted, None
        return self

    error_bar_ = property(found_error_bar)

    def closed_error_bar(self) -> ErrorBar:
        """The error bar without other fits than this one."""
        return self.fitted.error_bar()

    def check_available(self, capability: str) -> bool:
        """True; AttributeError with the reason if the parameters exclude this method of the class."""
        return True

    @compiled
    def checked_latents(self, X: ArrayLike, **others: Any) -> _Values:
        """X as points (n, d); `others` are for these rows."""
        if others:
            check_beside(X, others, getattr(self, "feature_names_in_", None), getattr(self, "invariants", None))
        return validate_data(self, X, reset=False)

    jacobian = available_if(lambda self: self.check_available("jacobian"))(jacobian)
    jvp = available_if(lambda self: self.check_available("jvp"))(jvp)
    vjp = available_if(lambda self: self.check_available("vjp"))(vjp)

    def leverage(self, X: ArrayLike) -> _Values:
        """Leverage of latent points: their distance from the training points, as the fit sees it.

        Small where training points are dense, about 1 at an isolated one, larger outside: errors of the training fields
        are amplified by the square root. It is computed at about the cost of a fit when it is first asked for.

        {latents} {returns_leverage} {raises}
        AttributeError
            If the decoder comes from a model file without what it is computed from.

        Notes
        -----
        Ridge regression on features: phi(z)^T (Phi^T Phi + lambda I)^-1 phi(z), with an unpenalised bias 1/n and the
        same of the features less their means; at lambda = 0 with the pseudo-inverse. Kernels: the same number,
        (k(z, z) - k^T (K + lambda I)^-1 k) / lambda with the tail as in kriging, and at lambda = 0, or one below
        round-off, the variance k(z, z) - k^T K^-1 k itself. Double diffusion maps: 1 - k^T V L^-1 V^T k. k-NN: mean
        distance to the k neighbours over their own mean distance to theirs. A blend, and so `AutoDecoder`: 100 times
        the median over its first three parts of the leverage in units of their limits (squared for k-NN).

        Examples
        --------
        {curve}
        >>> decoder = randsmap.KernelDecoder(length_scale=0.5).fit(latents, fields)
        >>> decoder.leverage([[0.5], [1.2], [3.0]]).round(2), round(decoder.leverage_limit_)
        (array([4.70000e-01, 5.59070e+02, 1.26552e+03]), 101)
        """
        leverage: Leverage = self.fitted.leverage
        return leverage.at(validate_data(self, X, reset=False))

    @property
    @quiet
    def leverage_(self) -> float:
        """The largest leverage of the training points."""
        return float(self.fitted.leverage.largest)

    @property
    @quiet
    def leverage_limit_(self) -> float:
        """Leverage above which decoded fields may have large errors (docs/extrapolation.md has the rule)."""
        return float(self.fitted.leverage.limit)


@shared_texts
@estimator
class LinearDecoder(HoldsFit, FieldOutputMixin):
    """A `FieldRegressor` f(z) = [1 | phi(z)] A, projected on its invariants.

    A subclass that is linear in the fields has ``weights_of(X, Z, fields)``, the result of `smoother` for checked
    arrays; for others `check_available` says why there is none.

    Parameters
    ----------
    dtype
        Of the coefficients, all but the bias. "float32" halves their memory, and the time of the matrix product for
        many points. Fields differ by some 1e-7 of |phi(z)| |A|. If they differ by more than 1e-5 of their norms at
        training points, `fit` raises ValueError. Fit, fields and projection are float64, so that invariants, bounds
        and constant cells are as exact as in float64.
    """

    dtype: str = parameter(str, default="float64", words=("float64", "float32"))

    coef_ = of_fit("coefficients")

    @compiled
    def predict(
        self,
        X: ArrayLike,
        *,
        invariant_values: float | ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: _Values | None = None,
        return_error: bool | str = False,
        coverage: float = 0.9,
    ) -> Any:
        """Decode latent points.

        {latents} {invariant_values} {cells} {out} {return_error} {returns_fields} {raises}

        Warns
        -----
        ExtrapolationWarning
            If a row is far from the training points, compared with their distances from each other.

        Notes
        -----
        A few rows are decoded by a loop that reads the coefficients once, more by matrix products; the results differ
        by 1e-12 of |phi(z)| |A|. Coefficients of the last few sets of cells are kept until the next `fit`.
        """
        fit = self._fitted or self.fitted  # the attribute first: one row takes microseconds
        if invariant_values is None:
            X = validate_data(self, X, reset=False)
        else:
            X = self.checked_latents(X, invariant_values=invariant_values)
        if cells is not None:
            cells = self._field_shape.cells(cells)
        fields = fit.linear_map.fields(X, invariant_values, cells, out, self.field_shape_)
        if not extrapolation_is_ignored() and fit.trust.farthest(X) >= 0:
            fit.trust.warn(self, X)
        fields = self._field_shape.labelled(fields, cells, out)
        if return_error is False and coverage == 0.9:
            return fields
        return with_error(fields, self, X, return_error, coverage)

    @available_if(lambda self: self.check_available("smoother"))
    def smoother(self, X: ArrayLike, Z: ArrayLike, *, fields: _Values | None = None) -> _Values:
        """Weights W of the training fields in the decoded fields, computed without fields.

        Fitted to X and fields F, the decoder returns at Z, up to the solver's round-off,
        ``decoder.fit(X, F).invariants_.project(decoder.smoother(X, Z) @ F)``. An earlier fit has no effect.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates to fit on, n >= 2.
        Z : array-like (L, d)
            Latent coordinates to decode.
        fields : ndarray (n, k), float64, or None
            Return W times these fields. This costs a fit to k cells, if that is less than the cost of W.

        Returns
        -------
        W : ndarray (L, n), or (L, k) with `fields`, float64
            Row l holds the weights w(z_l). Features without a `random_state` differ from call to call. If
            ``solver="auto"`` of `fit` selects an iterative solver, the weights are those of a direct one.

        {raises_as_fit}
        AttributeError
            ``solver="krylov"``, which iterates until a tolerance that depends on the fields, and
            ``constraint="training"``, whose correction differs from point to point, have no such weights.
        """
        fresh, *given = self._without_fit(X, Z, fields)
        return fresh.weights_of(*given)

    def _without_fit(self, X, Z, fields):
        """A copy that is not fitted, and the arguments of `smoother`, checked."""
        fresh = clone(self)
        check_samples(X=X, fields=fields)
        X = validate_data(fresh, X, reset=True, min_samples=2)
        Z = validate_data(fresh, Z, reset=False, name="Z")
        return fresh, X, Z, None if fields is None else check_fields(fields, len(X), name="fields")[0]

    def _restore(self):
        cells = self.linear_map.A.shape[1]  # this access makes the map, which checks the shapes
        if cells != self._n_outputs:
            raise ValueError(f"fields of shape {self.field_shape_}, coefficients of {cells} cells")


@shared_texts
class RidgeDecoder(LatentScaling, LinearDecoder):
    """A `LinearDecoder` by ridge regression: ``eigenpairs(X, least)`` is the result of `spectrum` for a checked X."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:  # type: ignore[override]
        """Fit the decoder to latent points and their fields.

        Parameters
        ----------
        {training}
        sample_weight : array-like (n,), optional
            Weights >= 0 of the squared errors: an integer stands for so many equal rows, 0 for none. Invariants and
            bounds hold as ever. Not with solver="lowrank", output_rank, constraint="training" or interpolating kernels.

        {result_of_fit}
        """
        return self._fit(X, y, sample_weight=sample_weight)

    def spectrum(self, X: ArrayLike, *, least: float = 0.0) -> tuple[_Values, _Values]:
        """Eigenvectors and eigenvalues of Phi Phi^T, Phi the features of X, which need no fields.

        They give the hat matrix H = U diag(s / (s + lambda)) U^T of every lambda: a decoder fitted to latents X and
        fields F returns H F at X, before its invariants are enforced. Kernel decoders use the kernel matrix as
        Phi Phi^T. Phi is centred, and the first pair is the constant vector. Its eigenvalue is infinite, since no
        lambda damps it: H_ii = 1/n + the centred leverage. With center=False Phi is [1 | features]. With degree=1
        the first 1 + d pairs belong to the kernel's linear trend, which is not damped either.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 2.
        least : float, default=0.0
            The smallest lambda of interest. Eigenvalues below it times the decoder's `tol` (None: 1e-8) are left out
            for random features, if this is faster.

        Returns
        -------
        U : ndarray (n, r), float64
            Orthonormal columns.
        s : ndarray (r,), float64
            In descending order, without those that are round-off; the first is infinite with `center`.

        {raises_as_fit}
        """
        fresh = clone(self)
        return fresh.eigenpairs(validate_data(fresh, X, reset=True, min_samples=2), least)
