"""Choice of hyperparameters: of a grid on a validation set, of lambda by leave-one-out errors in closed form."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Bunch, check_random_state

from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.callers import extrapolation_ignored, warn_caller
from randsmap._interface.fields import FieldOutputMixin, flattened, reshape_for
from randsmap._interface.parameters import check_choice, check_number
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._linalg.ridge import operations
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import in_norm, median_norm
from randsmap._linalg.spectral import PATH, HatMatrix
from randsmap._linalg.svd import FactoredRows, field_span
from randsmap.decoders import DoubleDiffusionMapsDecoder, KernelDecoder, KNNDecoder, RANDSMAPDecoder, RFNNDecoder
from randsmap.decoders._base import check_fields, fitted_scale
from randsmap.decoders._ridge_fit import fixed_regularization
from randsmap.invariants import fit_estimator, norm_weights, own_values
from randsmap.metrics import field_norms, scaled_distances, scaled_l2, selection_losses
from randsmap.model import ManifoldModel
from randsmap.model._manifold import assembled, decoder_for, fitted_encoder

_Values = NDArray[np.float64]
# Parameters that change the span, the part outside it, or the existence of weights of the fields
_SHAPING = {"invariants", "invariant_values", "invariant_tol", "cell_weights", "constraint", "bounds", "solver"}
_LINEAR = (RFNNDecoder, RANDSMAPDecoder, KernelDecoder, DoubleDiffusionMapsDecoder)
_SHARED = {"regularization", "n_neighbors"}  # candidates that differ only in one of these share a fit
# First and last `default_values`
_RANGES = {"slope": (0.5, 50.0), "length_scale": (0.05, 2.0), "max_frequency": (0.5, 50.0)}


def default_values(parameter: str, n_values: int = 10) -> list[float]:
    """Values to try for a parameter of a feature map or kernel, in geometric progression.

    They suit latent coordinates of unit standard deviation, such as those of `DiffusionMaps`.

    Parameters
    ----------
    parameter : {"slope", "length_scale", "max_frequency"}
    n_values : int, default=10

    Returns
    -------
    list of float

    Raises
    ------
    ValueError
        If there is no range for that parameter.

    Examples
    --------
    >>> from randsmap.tuning import default_values
    >>> [round(value, 3) for value in default_values("slope", 3)]
    [0.5, 5.0, 50.0]
    """
    return np.geomspace(*_RANGES[check_choice(parameter, "parameter", _RANGES)], n_values).tolist()


def tune(
    decoder: Any,
    grid: Mapping[str, Sequence[Any]],
    X_train: ArrayLike | None,
    y_train: ArrayLike,
    X_val: ArrayLike | None,
    y_val: ArrayLike,
    *,
    cell_weights: ArrayLike | None = None,
    callback: Callable[[], object] | None = None,
    progress: bool = False,
) -> Bunch:
    """Fit a decoder for every candidate of a grid and select the one with the smallest validation error.

    Parameters
    ----------
    decoder : regressor or ManifoldModel
        Not changed. The grid of a `ManifoldModel` may also have parameters of its encoder, which is fitted once for
        each setting of them: ``{"encoder__n_components": [1, 2, 3], "decoder__features__slope": [1, 5]}``.
    grid : dict of str to sequence
        Values to try for each parameter, by `set_params` name, in all combinations: ``{"features__slope": [1, 5]}``.
        `default_values` returns usual values.
    X_train, X_val : array-like of shape (n_train, d), (n_val, d)
        Latents to fit and to validate on; None with a `ManifoldModel`, whose encoder makes them.
    y_train, y_val : array-like of shape (n_train, n_cells), (n_val, n_cells)
        Their fields.
    cell_weights : array-like of shape (n_cells,), or of a field, default=None
        Positive weights of the norm of the errors. None: those of the decoder or model.
    callback : callable, default=None
        Called without arguments after each candidate.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    Bunch
        best_params_ : dict; best_error_ : float; best_decoder_ : the decoder or model fitted with them; candidates_ :
        list of dict; errors_ : ndarray, mean validation error of each candidate, NaN if it failed; sample_errors_ :
        ndarray (n_candidates, n_val), by `metrics.scaled_l2`; on_edge_ : dict of str to bool, whether the best value is
        the first or last of at least three numbers; evaluation_ : "coefficients" or "direct", see Notes. A field below
        1e-3 of the median norm counts at most 1 in the mean.

    Raises
    ------
    ValueError, TypeError
        If the grid is not a dict of sequences or is empty, a parameter is unknown or of the wrong type, the fields are
        not finite arrays of matching shapes, or no candidate could be fitted (the error of the first is raised).

    Warns
    -----
    sklearn.exceptions.FitFailedWarning
        If the fit or the prediction of a candidate raises ValueError, LinAlgError or ArithmeticError.

    Notes
    -----
    If the fields span few dimensions, candidates with a `smoother` are compared in this subspace ("coefficients"), with
    the same errors to the round-off of the solver. The evaluation is "direct" for bounds, float32 fields, grids over
    invariants or weights, iterative solvers and other regressors. Feature maps without a `random_state` get one.

    References
    ----------
    Paper, App. D: grid search over 10 values, lowest L2 reconstruction error on the validation set.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.hstack([np.sin(3 * X), -np.sin(3 * X)])
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
    >>> grid = {"features__slope": [0.01, 5.0, 500.0]}
    >>> result = randsmap.tune(decoder, grid, X[::2], y[::2], X[1::2], y[1::2])
    >>> result.best_params_, result.on_edge_
    ({'features__slope': 5.0}, {'features__slope': False})
    """
    positions, candidates = _expand(grid)
    # a candidate's estimators may be changed by other parameters: never the caller's
    configured = [_with_params(clone(decoder), clone(params, safe=False)) for params in candidates]
    with_model = isinstance(decoder, ManifoldModel)
    if (X_train is None, X_val is None) != (with_model, with_model):
        raise ValueError(
            f"X_train and X_val must be {'None' if with_model else 'given'} with a {type(decoder).__name__}: the "
            "encoder of a ManifoldModel computes them"
        )
    validation = _Validation((X_train, y_train), (X_val, y_val), len(candidates), grid, decoder, cell_weights)
    errors = np.full((len(candidates), len(validation.y_val)), np.nan)
    failures: dict[int, Exception] = {}
    encoder, best, kept = None, None, None
    with if_asked(progress), ProgressBar(len(candidates), "tuning", unit="fit") as bar:
        for new_encoder, group in _groups(positions, with_model):
            encoder = None if new_encoder else encoder
            validation.begin([configured[i].decoder if with_model else configured[i] for i in group])
            for i in group:
                try:
                    if with_model and encoder is None:
                        encoder, latents = fitted_encoder(configured[i], y_train)
                        X_train = np.asarray(latents)
                        X_val = np.asarray(encoder.transform(reshape_for(encoder, *flattened(y_val, "y_val"))))
                    part = decoder_for(configured[i], encoder) if with_model else clone(configured[i])
                    errors[i], fitted = validation.errors(encoder if part is None else part, X_train, X_val)
                except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                    failures[i] = error
                else:
                    losses = selection_losses(errors, validation.sizes, validation.usual)
                    if best is None or (losses[i], i) < (losses[best], best):
                        best, kept = i, (encoder, X_train, fitted)
                bar.update()
                if callback is not None:
                    callback()
        if kept is None or best is None:
            raise failures[0]
        for i, failure in failures.items():
            warnings.warn(
                f"candidate {candidates[i]} failed, its error is NaN: {failure}", FitFailedWarning, stacklevel=2
            )
        encoder, X_train, fitted = kept
        if validation.basis is not None:
            validation.fit(fitted, X_train)
        if with_model:
            fitted = assembled(configured[best], y_train, encoder, None if fitted is encoder else fitted)
        return Bunch(
            best_params_=candidates[best],
            best_error_=float(errors[best].mean()),
            best_decoder_=fitted,
            candidates_=candidates,
            errors_=errors.mean(axis=1),
            sample_errors_=errors,
            on_edge_={name: on_edge(grid[name], value) for name, value in candidates[best].items()},
            evaluation_="direct" if validation.basis is None else "coefficients",
        )


def _expand(grid: Mapping[str, Sequence[Any]]) -> tuple[list[dict[str, int]], list[dict[str, Any]]]:
    """The candidates of a grid, as places in its sequences and as parameters."""
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must be a dict of str to sequence, got {grid!r}")
    if not list(ParameterGrid(grid))[0]:
        raise ValueError(f"grid must name at least one parameter with values, got {grid!r}")
    # equal values may be different estimators or arrays: candidates differ by their places
    positions = list(ParameterGrid({name: range(len(values)) for name, values in grid.items()}))
    return positions, [{name: grid[name][i] for name, i in position.items()} for position in positions]


def _with_params(decoder: Any, params: dict[str, Any]) -> Any:
    for name in params:
        part = name.partition("__")[0]
        if part != name and params.get(part, getattr(decoder, part, decoder)) is None:
            raise ValueError(
                f"{name} cannot be tuned because the decoder's {part} is None: give the decoder its {part}"
            )
    return decoder.set_params(**params)


def on_edge(values: Any, best: Any) -> bool:
    """True if `best` is the first or the last of at least three numbers."""
    several = len(values) >= 3 and all(isinstance(value, numbers.Real) for value in values)
    return bool(several and best in (values[0], values[-1]))


def _groups(positions: list[dict[str, int]], with_model: bool) -> Iterator[tuple[bool, list[int]]]:
    """Candidates, by number, that differ in a shared parameter alone; and whether they need another encoder."""

    def key(i: int) -> tuple[list[int], list[int]]:
        # encoders outermost, since they take longest to fit; then what a single fit serves
        of_encoder = [k for name, k in positions[i].items() if with_model and name.partition("__")[0] == "encoder"]
        return of_encoder, [k for name, k in positions[i].items() if name.removeprefix("decoder__") not in _SHARED]

    before = None
    for (of_encoder, _), group in groupby(sorted(range(len(positions)), key=key), key):
        yield of_encoder != before, list(group)
        before = of_encoder


class _Validation:
    """Errors on the validation fields of decoders that are fitted to the training fields. With a `basis` decoders are
    judged by coordinates in it (see `field_span`)."""

    def __init__(self, train: Any, validation: Any, n_candidates: int, grid: Any, decoder: Any, weights: Any) -> None:
        (X_train, y_train), (X_val, y_val) = train, validation
        check_samples(X_train=X_train, y_train=y_train)
        check_samples(X_val=X_val, y_val=y_val)
        rows, layout = flattened(y_val, "y_val")
        fields, theirs = flattened(y_train, "y_train")
        theirs.check(layout, "y_val", np.shape(y_val), "y_train")
        self.y_val, cells = as_array(rows, "y_val"), Rows.of(fields, "y_train").shape[1]
        if self.y_val.shape[1] != cells:
            raise ValueError(f"y_train and y_val must have the same shape, got {cells} and {self.y_val.shape[1]} cells")
        for part, X, y in (("train", X_train, fields), ("val", X_val, rows)):
            if X is not None and len(as_array(X, f"X_{part}")) != len(y):
                raise ValueError(f"X_{part} and y_{part} must have the same number of rows, got {len(X)} and {len(y)}")
        self._weights = norm_weights(theirs, weights, decoder)
        self.basis: Any = None
        self._y_train, self._n_candidates = y_train, n_candidates
        # if all validation fields are empty, the training fields determine what is large
        self.sizes = field_norms(self.y_val, cell_weights=self._weights)
        self.usual = median_norm(self.sizes) or median_norm(field_norms(y_train, cell_weights=self._weights))
        names = {name.rpartition("__")[2] for name in grid}
        rounded = any(getattr(y, "dtype", None) in (np.float32, np.float16) for y in (y_train, y_val))
        self._undecided = not names & _SHAPING and "decoder" not in grid and not rounded
        self._seed: int | None = None

    def begin(self, group: Sequence[Any]) -> None:
        """Begin a group of decoders that differ only in a shared parameter."""
        values = [getattr(decoder, "regularization", None) for decoder in group]
        self._lambdas = [value for value in values if _is_lambda(value)]
        self._path: Any = None
        self._fitted: Any = None

    def errors(self, decoder: Any, X_train: Any, X_val: Any) -> tuple[_Values, Any]:
        """Scaled L2 error of each validation field, and the decoder: fitted, unless there is a `basis`."""
        if self._undecided:
            self._decide(decoder, X_train)
            self._undecided = False
        if self.basis is None:
            return self._direct_errors(decoder, X_train, X_val)
        self._seed_features(decoder)
        fields = self.basis.coordinates
        path = self._path_of(decoder, "smoother_path", X_train, X_val, fields=fields)
        decoded = decoder.smoother(X_train, X_val, fields=fields) if path is None else path(decoder.regularization)
        if self._invariants is not None:
            decoded = self._invariants.project(decoded)
        # the distance has two orthogonal parts: nothing is subtracted from anything large
        distances = np.hypot(np.linalg.norm(decoded - self._coordinates, axis=1), self._rest)
        return scaled_distances(distances, self.sizes, self.usual), decoder

    def _direct_errors(self, decoder: Any, X_train: Any, X_val: Any) -> tuple[_Values, Any]:
        if not hasattr(decoder, "predict"):  # a fitted encoder that decodes
            decode = decoder.inverse_transform
        else:
            decoder = self._fit_shared(decoder, X_train)
            decode = decoder.predict
        with extrapolation_ignored():
            predicted = decode(X_val, **own_values(decoder, self.y_val))
        return scaled_l2(self.y_val, predicted, reference=self.usual, cell_weights=self._weights), decoder

    def _fit_shared(self, decoder: Any, X_train: Any) -> Any:
        """The decoder, fitted to the training fields together with the others of its group if that is possible."""
        if self._fitted is not None:
            return self._fitted.with_n_neighbors(decoder.n_neighbors)
        path = self._path_of(decoder, "fit_path", X_train, self._y_train)
        if path is not None:
            return path(decoder.regularization)
        self.fit(decoder, X_train)
        self._fitted = decoder if type(decoder) is KNNDecoder else None
        return decoder

    def _path_of(self, decoder: Any, method: str, *args: Any, **options: Any) -> Any:
        """`method` for all lambdas of the group, which share a pass over the features; None for a single one."""
        if len(self._lambdas) < 2 or not _is_linear(decoder, method) or not _is_lambda(decoder.regularization):
            return None
        if self._path is None:
            self._path = getattr(decoder, method)(*args, self._lambdas, **options)
        return self._path

    def fit(self, decoder: Any, X_train: Any) -> None:
        """Fit a decoder to the training fields, or to their few coordinates; other packages' regressors to rows."""
        y = self._y_train
        if not isinstance(decoder, FieldOutputMixin):
            y, _ = flattened(y, "y_train")
        elif isinstance(self.basis, FactoredRows) and self._weights is None:
            y = self.basis
        decoder.fit(X_train, y)

    def _seed_features(self, decoder: Any) -> None:
        """Set the same `random_state` for all feature maps that have none: the final fit draws them again."""
        params = decoder.get_params()
        names = [name for name in params if name.rpartition("__")[2] == "random_state"]
        inner = [name for name in names if name != "random_state"] or names
        free = [name for name in inner if params[name] is None]
        if free and params.get("random_state") is None:  # random_state of the decoder overrides those of the features
            self._seed = self._seed or int(check_random_state(None).randint(1, np.iinfo(np.int32).max))
            decoder.set_params(**dict.fromkeys(free, self._seed))

    def _decide(self, decoder: Any, X_train: Any) -> None:
        """Make the basis if it gives the same errors in less time."""
        if not _is_linear(decoder, "smoother") or getattr(decoder, "bounds", None) is not None or not self.usual:
            return
        n, M = len(X_train), self.y_val.shape[1]
        sizes = n, len(self.y_val), M, _n_terms(decoder, X_train, n), self._n_candidates
        many = M >= 2 * n and _pays(*sizes, few=False)
        if not many and not _pays(*sizes, few=True):
            return
        F, dtype, layout = check_fields(self._y_train, n)
        invariants = None
        if hasattr(decoder, "invariants"):
            invariants = fit_estimator(decoder, F, dtype, layout=layout)
            if invariants.varying:  # coordinates are corrected to one value
                return
            q = len(invariants.independent)
            many = many and np.count_nonzero(~invariants.constant) >= 2 * (n + q)
        self.basis, self._invariants = field_span(F, invariants, (dtype, layout), few=not many, weights=self._weights)
        if self.basis is None:
            return
        self._coordinates, self._rest = self.basis.of_others(in_norm(self.y_val, self._weights))
        if invariants is not None and invariants.constant.any():
            fixed = np.zeros_like(self.y_val)
            fixed[:, invariants.constant] = self.y_val[:, invariants.constant] - invariants.constant_values
            self._rest = np.hypot(self._rest, np.linalg.norm(in_norm(fixed, self._weights), axis=1))


def _is_linear(decoder: Any, method: str) -> bool:
    """True if the decoder's fields are weights of the training fields and a correction, and it has the method. Of the
    classes themselves: a subclass may predict something else."""
    return type(decoder) in _LINEAR and hasattr(decoder, method)


def _is_lambda(value: Any) -> bool:
    return isinstance(value, numbers.Real) and 0 <= float(value) < np.inf


def _n_terms(decoder: Any, X_train: Any, n: int) -> int:
    """Approximate number of functions of the latents that a decoder combines."""
    rank = getattr(decoder, "rank", n)
    if getattr(decoder, "features", None) is not None:
        X = as_array(X_train, "X_train")
        rank = int(clone(decoder.features).fit(X).transform(X[:1]).shape[1])
    return int(rank) if isinstance(rank, numbers.Integral) else n


def _pays(n: int, n_val: int, M: int, P: int, n_candidates: int, *, few: bool) -> bool:
    """True if coordinates in a span of n dimensions save time, or if it costs little to find out whether there are few.
    Costs are numbers of multiplications: 50 and 100 for each number of the fields, since passes over them (centring,
    norms, projection) take as long."""
    method = "dual" if n < P else "primal"
    fit = operations(method, n, P, M, 1) + 50 * n * M
    direct = n_candidates * (fit + n_val * P * M + 100 * n_val * M)
    if few:
        return n * M >= 1 << 17 and 10 * n * min(n, M) * M < direct  # fits to fewer numbers take a millisecond
    # a candidate has weights, solved for as fields of n_val cells, and their products with coordinates
    weights = operations(method, n, P, n_val, 1) + n_val * (n * P + n**2)
    factorisation = (3 * n**2 + 4 * n * n_val + 50 * n) * M
    return n_candidates * weights + factorisation + fit < 0.8 * direct  # a smaller gain is not worthwhile


# -- Leave-one-out -----------------------------------------------------------------------------------
def leave_one_out(
    decoder: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    regularizations: Sequence[float] | None = None,
    cell_weights: ArrayLike | None = None,
) -> Bunch:
    """Error at each training point of a ridge decoder that was fitted without that point.

    Parameters
    ----------
    decoder : RFNNDecoder, RANDSMAPDecoder (constraint="everywhere") or KernelDecoder
        Not changed. Other decoders need a `spectrum` and a `regularization`.
    X : array-like of shape (n, d)
        Latent coordinates, n >= 2.
    y : array-like of shape (n, M)
        Their fields.
    regularizations : sequence of float, default=None
        Values of lambda >= 0 to judge. None: the decoder's own.
    cell_weights : array-like of shape (n_cells,), or of a field, default=None
        Positive weights of the norm of the errors. None: those of the decoder.

    Returns
    -------
    Bunch
        errors_ : ndarray (n_regularizations, n), the L2 error at each point of the decoder refitted without it, as by
        `metrics.scaled_l2`; mean_errors_ : ndarray (n_regularizations,); regularizations_ : ndarray;
        best_regularization_ : float, the (first) lambda of the lowest mean, in which a field smaller than 1e-3 of the
        median norm counts at most 1; on_edge_ : bool, whether that is the first or last of at least three.

    Raises
    ------
    TypeError
        If the decoder is no such ridge regression.
    ValueError
        If constraint="training" or the decoder has bounds, for which there is no closed form, if a lambda is negative
        or there is none, or as the decoder's fit.

    Warns
    -----
    UserWarning
        If errors depend on round-off, because other rows hardly determine these fields; it names the rows.

    Notes
    -----
    The latents, the features, the values m and the constant cells are those of all n points. With the hat matrix H, the
    error of the field decoded without sample i is (F - H F)_i / (1 - H_ii), corrected for the invariants. At lambda = 0
    this is the limit, the minimum-norm solution.

    References
    ----------
    D. M. Allen, Technometrics 16 (1974) (PRESS); G. H. Golub, M. Heath and G. Wahba, Technometrics 21 (1979).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> Y = np.linspace(-1, 1, 40)[:, None]
    >>> F = np.hstack([2 + np.sin(3 * Y), 2 - np.sin(3 * Y)])
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0), random_state=0)
    >>> result = randsmap.leave_one_out(decoder, Y, F, regularizations=[1e-6, 1e-3, 1e0, 1e3])
    >>> result.errors_.shape, result.best_regularization_, result.on_edge_
    ((4, 40), 1e-06, True)
    """
    lambdas = _checked(decoder, regularizations)
    check_samples(X=X, y=y)
    points = as_array(X, "X", min_rows=2)
    F, dtype, layout = check_fields(y, len(points))
    invariants = fit_estimator(decoder, F, dtype, layout=layout) if hasattr(decoder, "invariants") else None
    reduced = {"least": lambdas.min()} if hasattr(decoder, "fit_path") else {}
    hat = HatMatrix(*decoder.spectrum(points, **reduced))
    if np.isinf(hat.squares).sum() > 1:  # a linear trend: one point alone may determine a direction
        as_array(points, "X", min_rows=3)
        hat = HatMatrix(hat.U, hat.squares, partial(_refitted, decoder, points))
    weights = norm_weights(layout, cell_weights, decoder)
    sizes = field_norms(F, cell_weights=weights)
    usual = median_norm(sizes)
    if F.shape[1] > 4 * len(F) and len(lambdas) > 3:
        # distances between coordinates are those between fields
        if invariants is None or np.count_nonzero(~invariants.constant) > 2 * (len(F) + len(invariants.independent)):
            basis, invariants = field_span(F, invariants, weights=weights)
            F, weights = basis.coordinates, None
    errors = scaled_distances(_distances(hat, F, invariants, lambdas, weights), sizes, usual)
    # eigenvalues of a kernel, which has the round-off of its entries, change errors by a percent
    if hasattr(decoder, "round_off") and max(lambdas.min(), hat.squares.min()) < 10 * decoder.round_off(points):
        hat.uncertain.update(range(len(F)))
    if hat.uncertain:
        why = "at this small regularization the other rows hardly determine the fields of these"
        warn_caller(f"the errors of rows {sorted(hat.uncertain)[:6]} depend on round-off: {why}")
    best = int(np.argmin(selection_losses(errors, sizes, usual)))
    return Bunch(
        errors_=errors,
        mean_errors_=errors.mean(axis=1),
        regularizations_=lambdas,
        best_regularization_=float(lambdas[best]),
        on_edge_=on_edge(lambdas, lambdas[best]),
    )


def _refitted(decoder: Any, points: _Values, F: _Values, held: NDArray[np.intp], regularization: float) -> _Values:
    """Residuals of the fields F[held] of a fit to the others, in the units of all."""
    rest, scale = np.delete(np.arange(len(F)), held), fitted_scale(decoder.latent_scale, points)
    fresh = clone(decoder).set_params(regularization=regularization, latent_scale=scale)
    return F[held] - fresh.smoother(points[rest], points[held], fields=F[rest])


def _checked(decoder: Any, regularizations: Sequence[float] | None) -> _Values:
    if isinstance(decoder, type) or not hasattr(decoder, "spectrum"):
        known = "an RFNNDecoder, a RANDSMAPDecoder or a KernelDecoder"
        raise TypeError(f"decoder must be {known}, which are ridge regressions, got {decoder!r}")
    if getattr(decoder, "constraint", "everywhere") == "training":
        reason = "the constraint at the other points depends on the point left out"
        raise ValueError(f"constraint='training' has no leave-one-out error in closed form: {reason}")
    if getattr(decoder, "bounds", None) is not None:
        raise ValueError("a decoder with bounds has no leave-one-out error in closed form: use bounds=None")
    if regularizations is None:
        regularization = fixed_regularization(decoder)
        regularizations = PATH if regularization is None else [regularization]
    if np.ndim(regularizations) != 1 or not len(regularizations):
        raise ValueError(f"regularizations must be a sequence of numbers, got {regularizations!r}")
    return np.array([check_number(value, "regularization", low=0) for value in regularizations])


def _distances(hat: HatMatrix, F: _Values, invariants: Any, lambdas: _Values, weights: Any) -> _Values:
    """Distances (n_lambdas, n) between each field and its leave-one-out prediction."""
    G = in_norm(F, weights)
    if invariants is None:
        return hat.distances(G, np.arange(F.shape[1]), lambdas)
    free, independent = np.flatnonzero(~invariants.constant), invariants.independent
    if not len(independent):
        return hat.distances(G, free, lambdas)
    # A field f - r is corrected to f - r + W^T z, T^T z = m - C^T f + C^T r: z in multiples of the normals
    moments = F[:, free] @ invariants.matrix[np.ix_(free, independent)]
    # a field whose values vary is decoded with its own
    defect = 0.0 if invariants.varying else invariants.defects(F, invariants.values[independent])
    shifts = [invariants.multipliers(defect + hat.residuals(moments, value)) for value in lambdas]
    return hat.distances(G, free, lambdas, shifts, in_norm(invariants.directions, weights))
