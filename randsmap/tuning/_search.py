"""Choice of hyperparameters on a validation set."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Bunch, check_random_state

from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.callers import extrapolation_ignored
from randsmap._interface.fields import FieldOutputMixin, flattened, reshape_for
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._linalg.ridge import operations
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import in_norm, median_norm
from randsmap._linalg.svd import FactoredRows, field_span
from randsmap.decoders import DoubleDiffusionMapsDecoder, KernelDecoder, KNNDecoder, RANDSMAPDecoder, RFNNDecoder
from randsmap.decoders._base import check_fields
from randsmap.invariants import fit_estimator, norm_weights, own_values
from randsmap.metrics import field_norms, scaled_distances, scaled_l2, selection_losses
from randsmap.model import ManifoldModel
from randsmap.model._manifold import assembled, decoder_for, fitted_encoder

# Parameters that change the span, what is done outside it, or whether there are weights of the fields
_SHAPING = {"invariants", "invariant_values", "invariant_tol", "cell_weights", "constraint", "bounds", "solver"}
_LINEAR = (RFNNDecoder, RANDSMAPDecoder, KernelDecoder, DoubleDiffusionMapsDecoder)
_SHARED = {"regularization", "n_neighbors"}  # candidates that differ in one of them alone share a fit
# First and last of the `default_values`
_RANGES = {"slope": (0.5, 50.0), "length_scale": (0.05, 2.0), "max_frequency": (0.5, 50.0)}


def default_values(parameter: str, n_values: int = 10) -> list[float]:
    """Values to try for a parameter of a feature map or kernel, equal ratios apart.

    They span what fits latent coordinates of unit spread, such as those of `DiffusionMaps`.

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
    if parameter not in _RANGES:
        raise ValueError(f"parameter must be one of {', '.join(map(repr, _RANGES))}, got {parameter!r}")
    return np.geomspace(*_RANGES[parameter], n_values).tolist()


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
    """Fit a decoder for every candidate of a grid and keep the one that reconstructs best.

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
    cell_weights : array-like of shape (n_cells,), or of a field, optional
        Positive weights of the norm of the errors. None: those of the decoder or model.
    callback : callable, optional
        Called without arguments after each candidate.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    Bunch
        best_params_ : dict; best_error_ : float, their entry of errors_; best_decoder_ : the decoder, or model, fitted
        with them on the training set; candidates_ : list of dict; errors_ : ndarray, mean error of each candidate on
        the validation set, NaN if it failed; sample_errors_ : ndarray (n_candidates, n_val), the error of each
        validation field (`metrics.scaled_l2`); on_edge_ : dict of str to bool, whether the best value of a parameter is
        the first or last of at least three numbers, so that the optimum may lie beyond it; evaluation_ : "coefficients"
        or "direct", see Notes. The best candidate has the lowest mean error, the first of equal ones. In that mean the
        error of a field below 1e-3 of the median norm is capped at 1, so that empty and tiny fields do not decide.

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
    If fields have many more cells than there are training fields, or span few dimensions, candidates that have a
    `smoother` are compared in an orthonormal basis of all fields that they can decode ("coefficients"). The errors
    agree with the "direct" evaluation to the round-off of the candidate's solver, 1e-10 relative for well conditioned
    matrices. If at most min(n, M) / 2 directions hold the training fields to their round-off, the best candidate is
    also fitted to coordinates: its fields agree with a fit to the fields to 1e-13, less if lambda is near round-off.
    Feature maps without a `random_state` get one.

    The evaluation is "direct" for bounds, float32 fields, grids over the invariants or weights, iterative solvers,
    other regressors and subclasses, and fields of so few cells that the factorisation is not worthwhile.

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
    if with_model and not (X_train is None and X_val is None):
        raise ValueError("X_train and X_val must be None with a ManifoldModel: its encoder makes them")
    if not with_model and (X_train is None or X_val is None):
        raise ValueError(f"X_train and X_val may be None only with a ManifoldModel, got {type(decoder).__name__}")

    validation = _Validation((X_train, y_train), (X_val, y_val), len(candidates), grid, decoder, cell_weights)
    errors = np.full((len(candidates), len(validation.y_val)), np.nan)
    failures: dict[int, Exception] = {}
    encoder, best, kept = None, None, None
    with if_asked(progress), ProgressBar(len(candidates), "tuning", unit="fit") as bar:
        for new_encoder, group in _groups(positions, with_model):
            encoder = None if new_encoder else encoder
            validation.begin([_decoder_of(configured[i]) for i in group])
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
                    losses = validation.losses(errors)
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
            on_edge_={name: on_edge(grid[name], candidates[best][name], i) for name, i in positions[best].items()},
            evaluation_="direct" if validation.basis is None else "coefficients",
        )


def _expand(grid: Mapping[str, Sequence[Any]]) -> tuple[list[dict[str, int]], list[dict[str, Any]]]:
    """The candidates of a grid, as places in its sequences and as parameters."""
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must be a dict of str to sequence, got {grid!r}")
    if not list(ParameterGrid(grid))[0]:
        raise ValueError(f"grid must name at least one parameter with values, got {grid!r}")
    # equal values may be different estimators or arrays: candidates are told apart by their places
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


def on_edge(values: Iterable[Any], best: Any, position: int | None = None) -> bool:
    """True if `best`, at `position`, is the first or the last of at least three numbers."""
    values = list(values)
    if len(values) < 3 or not all(isinstance(value, numbers.Real) for value in values):
        return False
    if position is None:
        return best in (values[0], values[-1])
    return position in (0, len(values) - 1)


def _groups(positions: list[dict[str, int]], with_model: bool) -> Iterator[tuple[bool, list[int]]]:
    """Candidates, by number, that differ in a shared parameter alone; and whether they need another encoder."""
    # encoders outermost, since they take longest to fit; then what a single fit serves
    everyone = range(len(positions))
    for members in _alike(positions, everyone, lambda name: with_model and name.partition("__")[0] == "encoder"):
        for group in _alike(positions, members, lambda name: name.removeprefix("decoder__") not in _SHARED):
            yield group[0] == members[0], group


def _alike(positions: list[dict[str, int]], members: Iterable[int], matters: Callable[[str], bool]) -> list[list[int]]:
    """The members in groups that agree in all parameters that matter."""
    groups: dict[Any, list[int]] = {}
    for i in members:
        groups.setdefault(tuple((name, k) for name, k in positions[i].items() if matters(name)), []).append(i)
    return list(groups.values())


def _decoder_of(configured: Any) -> Any:
    return configured.decoder if isinstance(configured, ManifoldModel) else configured


class _Validation:
    """Errors on the validation fields of decoders that are fitted to the training fields.

    With a `basis` decoders are judged by coordinates in it (see `field_span`).
    """

    def __init__(self, train: Any, validation: Any, n_candidates: int, grid: Any, decoder: Any, weights: Any) -> None:
        (X_train, y_train), (X_val, y_val) = train, validation
        check_samples(X_train=X_train, y_train=y_train)
        check_samples(X_val=X_val, y_val=y_val)
        for name, X in (("X_train", X_train), ("X_val", X_val)):
            if X is not None:
                as_array(X, name)
        rows, layout = flattened(y_val, "y_val")
        fields, theirs = flattened(y_train, "y_train")
        Rows.of(fields, "y_train")
        theirs.check(layout, "y_val", np.shape(y_val), "y_train")
        self.y_val = as_array(rows, "y_val")
        self._weights = norm_weights(theirs, weights, decoder)
        self.basis: Any = None
        self._y_train, self._n_candidates = y_train, n_candidates
        # if all validation fields are empty, the training fields determine what is large
        self._sizes = field_norms(self.y_val, cell_weights=self._weights)
        self._usual = median_norm(self._sizes) or median_norm(field_norms(y_train, cell_weights=self._weights))
        names = {name.rpartition("__")[2] for name in grid}
        self._undecided = (
            not names & _SHAPING
            and "decoder" not in grid
            and not any(getattr(y, "dtype", None) in (np.float32, np.float16) for y in (y_train, y_val))
        )
        self._seed: int | None = None

    def begin(self, group: Sequence[Any]) -> None:
        """Decoders that differ in a shared parameter alone come next."""
        values = [getattr(decoder, "regularization", None) for decoder in group]
        self._lambdas = [value for value in values if _is_lambda(value)]
        self._path: Any = None
        self._fitted: Any = None

    def errors(self, decoder: Any, X_train: Any, X_val: Any) -> tuple[NDArray[np.float64], Any]:
        """Scaled L2 error of each validation field, and the decoder: fitted, unless there is a `basis`."""
        if self._undecided:
            self._decide(decoder, X_train)
            self._undecided = False
        if self.basis is None:
            return self._direct_errors(decoder, X_train, X_val)
        self._seed_features(decoder)
        fields = self.basis.coordinates
        for X, expected, part in ((X_val, len(self.y_val), "val"), (X_train, len(fields), "train")):
            if len(X) != expected:
                raise ValueError(
                    f"X_{part} and y_{part} must have the same number of rows, got {len(X)} and {expected}"
                )
        path = self._path_of(decoder, "smoother_path", X_train, X_val, fields=fields)
        decoded = decoder.smoother(X_train, X_val, fields=fields) if path is None else path(decoder.regularization)
        if self._invariants is not None:
            decoded = self._invariants.project(decoded)
        # the distance has two orthogonal parts: nothing is subtracted from anything large
        distances = np.hypot(np.linalg.norm(decoded - self._coordinates, axis=1), self._rest)
        return scaled_distances(distances, self._sizes, self._usual), decoder

    def _direct_errors(self, decoder: Any, X_train: Any, X_val: Any) -> tuple[NDArray[np.float64], Any]:
        if not hasattr(decoder, "predict"):  # a fitted encoder with an inverse of its own
            return self._missed(decoder.inverse_transform(X_val, **own_values(decoder, self.y_val))), decoder
        if self._fitted is not None:
            decoder = self._fitted.with_n_neighbors(decoder.n_neighbors)
        elif (path := self._path_of(decoder, "fit_path", X_train, self._y_train)) is not None:
            decoder = path(decoder.regularization)
        else:
            self.fit(decoder, X_train)
            self._fitted = decoder if type(decoder) is KNNDecoder else None
        with extrapolation_ignored():
            predicted = decoder.predict(X_val, **own_values(decoder, self.y_val))
        return self._missed(predicted), decoder

    def _missed(self, predicted: Any) -> NDArray[np.float64]:
        return scaled_l2(self.y_val, predicted, reference=self._usual, cell_weights=self._weights)

    def losses(self, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of candidates with these errors (n_candidates, n_val)."""
        return selection_losses(errors, self._sizes, self._usual)

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
        if params.get("random_state") is not None:  # overrides those of the features
            return
        free = [name for name in names if name != "random_state"] or names
        free = [name for name in free if params[name] is None]
        if free:
            if self._seed is None:
                self._seed = int(check_random_state(None).randint(np.iinfo(np.int32).max))
            decoder.set_params(**dict.fromkeys(free, self._seed))

    def _decide(self, decoder: Any, X_train: Any) -> None:
        """Make the basis if it gives the same errors in less time."""
        if not _is_linear(decoder, "smoother") or getattr(decoder, "bounds", None) is not None:
            return
        rows, _ = flattened(self._y_train, "y_train")
        n, M = np.shape(rows) if np.ndim(rows) == 2 else (1, 1)
        if M != self.y_val.shape[1] or not self._usual:
            return
        sizes = n, len(self.y_val), M, _n_terms(decoder, X_train, n), self._n_candidates
        many = M >= 2 * n and _pays(*sizes)
        if not many and not _may_pay(*sizes):
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
    """True if the decoder's fields are weights of the training fields and a correction, and it has the method.

    Of the classes themselves: a subclass may predict something else.
    """
    return type(decoder) in _LINEAR and hasattr(decoder, method)


def _is_lambda(value: Any) -> bool:
    return isinstance(value, numbers.Real) and 0 <= float(value) < np.inf


def _n_terms(decoder: Any, X_train: Any, n: int) -> int:
    """Number of functions of the latents that a decoder combines, about."""
    if getattr(decoder, "features", None) is not None:
        X = as_array(X_train, "X_train")
        return int(clone(decoder.features).fit(X).transform(X[:1]).shape[1])
    rank = getattr(decoder, "rank", n)
    return int(rank) if isinstance(rank, numbers.Integral) else n


def _direct_cost(n: int, n_val: int, M: int, P: int, n_candidates: int) -> float:
    """Multiplications of fits to M cells and of the validation of all candidates."""
    # 50 and 100 for each number: passes over the fields (centring, norms, projection) take as long as so many products
    each = operations("dual" if n < P else "primal", n, P, M, 1) + n_val * P * M + (50 * n + 100 * n_val) * M
    return n_candidates * each


def _may_pay(n: int, n_val: int, M: int, P: int, n_candidates: int) -> bool:
    """True if coordinates of fields of few dimensions would, and finding out that they have more costs little."""
    fewest = 1 << 17  # numbers in the fields: fits to fewer take a millisecond
    factorisation = 10 * n * min(n, M) * M
    return n * M >= fewest and factorisation < _direct_cost(n, n_val, M, P, n_candidates)


def _pays(n: int, n_val: int, M: int, P: int, n_candidates: int) -> bool:
    """True if coordinates in a span of n dimensions save time."""
    # a candidate has weights, solved for as fields of n_val cells, and their products with coordinates
    weights = operations("dual" if n < P else "primal", n, P, n_val, 1) + n_val * (n * P + n**2)
    factorisation = (3 * n**2 + 4 * n * n_val + 50 * n) * M
    last = _direct_cost(n, 0, M, P, 1)  # of the best candidate
    direct = _direct_cost(n, n_val, M, P, n_candidates)
    return n_candidates * weights + factorisation + last < 0.8 * direct  # less is not worth another way
