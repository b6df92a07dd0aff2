"""Choice of hyperparameters on a validation set."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Bunch, check_random_state

from randsmap._interface.fields import FieldOutputMixin, flattened, reshape_for
from randsmap._interface.validation import check_matrix, renamed_arguments
from randsmap._io.progress import ProgressBar, if_asked
from randsmap.decoders._base import check_fields
from randsmap.maps.extrapolation import extrapolation_ignored
from randsmap.metrics import field_norms, median_norm, scaled_distances, scaled_l2, selection_losses
from randsmap.model import ManifoldModel
from randsmap.model._manifold import assembled, decoder_for, fitted_encoder
from randsmap.tuning._field_span import FieldSpan, invariants_of

__all__ = ["tune"]

_FEWEST = 1 << 17  # numbers in the fields: whatever is done to fewer takes no time
# Parameters that change the span, what is done outside it, or whether there are weights of the fields
_SHAPING = {"invariants", "invariant_values", "invariant_tol", "cell_weights", "constraint", "bounds", "solver"}


@renamed_arguments(Y_train="X_train", F_train="y_train", Y_val="X_val", F_val="y_val")
def tune(
    decoder: Any,
    grid: Mapping[str, Sequence[Any]],
    X_train: ArrayLike | None,
    y_train: ArrayLike,
    X_val: ArrayLike | None,
    y_val: ArrayLike,
    *,
    callback: Callable[[], object] | None = None,
    progress: bool = False,
) -> Bunch:
    """Fit a decoder for every candidate of a grid and keep the one that reconstructs best.

    Parameters
    ----------
    decoder : regressor or ManifoldModel
        Cloned for every candidate; not changed. With a `ManifoldModel` the parameters of its encoder
        can be tuned too (``{"encoder__n_components": [1, 2, 3], "decoder__features__slope": [1, 5]}``);
        the encoder is fitted once for each distinct setting of it.
    grid : dict of str to sequence
        Values to try for each parameter, by `set_params` name: ``{"features__slope": [1, 5, 10]}``.
        Several parameters make their product. `default_values` has some.
    X_train : array-like of shape (n_train, d)
        Latents to fit on; None with a `ManifoldModel`, which makes them.
    y_train : array-like of shape (n_train, n_cells)
        Their fields.
    X_val : array-like of shape (n_val, d)
        Latents to judge on; None with a `ManifoldModel`.
    y_val : array-like of shape (n_val, n_cells)
        Their fields.
    callback : callable, optional
        Called without arguments after each candidate.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    Bunch
        best_params_ : dict; best_error_ : float, their entry of errors_; best_decoder_ : the decoder, or model,
        fitted with them on the training set; candidates_ : list of dict; errors_ : ndarray, mean error of each
        candidate on the validation set, NaN where its fit or its prediction failed; sample_errors_ : ndarray
        (n_candidates, n_val), the error
        of each validation field, its L2 error over its norm or, if that is more, over 1e-3 of the median
        norm of the validation fields (see `metrics.scaled_l2`); on_edge_ : dict of str to bool, whether the
        best value of a parameter is the first or last of its sequence (then the optimum may lie beyond it;
        False where fewer than three values were tried or a value is not a number); evaluation_ :
        "coefficients" or "direct", see Notes. The best candidate is the one of the lowest mean error, the
        first of equal ones; a field smaller than 1e-3 of the median norm counts at most 1 in that mean, so
        that empty and tiny fields do not choose alone.

    Raises
    ------
    ValueError, TypeError
        If the grid is not a dict of sequences or is empty, a parameter is unknown or of the wrong type,
        the fields are not finite arrays that fit together, or no candidate could be fitted (the error of
        the first is raised).

    Warns
    -----
    sklearn.exceptions.FitFailedWarning
        If the fit or the prediction of a candidate raises ValueError, LinAlgError or ArithmeticError.

    Notes
    -----
    A decoder that has a `smoother` is linear in the fields, but for the correction by the invariants: the decoded
    fields lie in the span of the training fields and of the directions in which invariants correct them. When a
    field has many more cells than there are training fields, or these span few dimensions, the candidates are
    compared in an orthonormal basis of that span ("coefficients"), made once: each costs a fit to the training
    fields' coordinates and the correction in coordinates. Where no more than min(n, M) / 2 directions hold the n
    training fields of M cells to their round-off, the factorisation stops there, and the best candidate's
    coefficients are made of those for the coordinates: the decoded fields are those of a fit to the fields but for
    round-off (1e-13, more where lambda is near round-off). Otherwise the best one is fitted to the fields
    themselves. Features that are drawn without a `random_state` get one for that. The
    errors are those of the "direct" evaluation to the round-off of the candidate's solver (no large
    squares are subtracted): 1e-10 relative where its matrix is well conditioned, less where lambda is near
    round-off, and `tol` where ``solver="auto"`` iterates.

    Candidates for random-feature decoders that differ in their `regularization` share the passes over the features
    (``fit_path``, ``smoother_path``): with solver "auto" or "lowrank" also the low-rank basis, with errors of its
    stated accuracy.

    Anything else is evaluated directly: bounds, float32 fields, grids over the invariants or weights, solvers
    that iterate, other regressors, and fields of so few cells that the factorisation would not pay. Candidates
    for `KNNDecoder` that differ in their number of neighbours share one fit (`KNNDecoder.with_n_neighbors`).

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
    stages: _DecoderStages | _ModelStages
    if isinstance(decoder, ManifoldModel):
        if X_train is not None or X_val is not None:
            raise ValueError("X_train and X_val must be None with a ManifoldModel: its encoder makes them")
        stages = _ModelStages(configured, y_train, y_val)
        keys = [
            tuple((name, i) for name, i in position.items() if name.partition("__")[0] == "encoder")
            for position in positions
        ]
    else:
        if X_train is None or X_val is None:
            raise ValueError(f"X_train and X_val may be None only with a ManifoldModel, got {type(decoder).__name__}")
        stages = _DecoderStages(configured, X_train, X_val)
        keys = [()] * len(candidates)

    fields = _Fields(y_train, y_val, len(candidates), grid)
    lambdas = _Lambdas(candidates, positions)
    errors = np.full((len(candidates), len(fields.y_val)), np.nan)
    failures: dict[int, Exception] = {}
    best = None
    order = [i for key in dict.fromkeys(keys) for i in lambdas.order if keys[i] == key]
    with if_asked(progress), ProgressBar(len(order), "tuning", unit="fit") as bar:
        latents, made_for = None, None
        for i in order:
            try:
                if latents is None or made_for != keys[i]:
                    latents, made_for = None, keys[i]
                    latents = stages.latents(i)
                X, Z = latents[:2]
                errors[i], fitted = fields.errors(stages.decoder(i, latents), X, Z, lambdas.beside(i))
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                failures[i] = error
            else:
                losses = fields.losses(errors)
                if best is None or (losses[i], i) < (losses[best], best):
                    best, kept = i, (latents, fitted)
            bar.update()
            if callback is not None:
                callback()
        if best is None:
            raise failures[0]
        for i, failure in failures.items():
            warnings.warn(
                f"candidate {candidates[i]} failed, its error is NaN: {failure}", FitFailedWarning, stacklevel=3
            )
        latents, fitted = kept
        if fields.span is not None:
            fields.fit(fitted, latents[0])
        return Bunch(
            best_params_=candidates[best],
            best_error_=float(errors[best].mean()),
            best_decoder_=stages.finish(best, latents, fitted, y_train),
            candidates_=candidates,
            errors_=errors.mean(axis=1),
            sample_errors_=errors,
            on_edge_={name: on_edge(grid[name], candidates[best][name], i) for name, i in positions[best].items()},
            evaluation_="direct" if fields.span is None else "coefficients",
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
    """Whether `best`, at `position`, is the first or the last of at least three numbers."""
    values = list(values)
    if len(values) < 3 or not all(isinstance(value, numbers.Real) for value in values):
        return False
    if position is None:
        return best in (values[0], values[-1])
    return position in (0, len(values) - 1)


class _DecoderStages:
    """What a candidate consists of when the latents are given: the decoder alone."""

    def __init__(self, configured: list[Any], X_train: Any, X_val: Any) -> None:
        self._configured, self._latents = configured, (X_train, X_val)

    def latents(self, i: int) -> tuple[Any, ...]:
        return self._latents

    def decoder(self, i: int, latents: tuple[Any, ...]) -> Any:
        return clone(self._configured[i])

    def finish(self, i: int, latents: tuple[Any, ...], fitted: Any, y_train: Any) -> Any:
        return fitted


class _ModelStages:
    """What a candidate consists of when it is a model: encoder, latents, decoder."""

    def __init__(self, configured: list[Any], y_train: Any, y_val: Any) -> None:
        self._configured, self._y_train, self._y_val = configured, y_train, y_val

    def latents(self, i: int) -> tuple[Any, ...]:
        encoder, X_train = fitted_encoder(self._configured[i], self._y_train)
        Z = encoder.transform(reshape_for(encoder, *flattened(self._y_val, "y_val")))
        return np.asarray(X_train), np.asarray(Z), encoder

    def decoder(self, i: int, latents: tuple[Any, ...]) -> Any:
        decoder = decoder_for(self._configured[i], latents[2])
        return latents[2] if decoder is None else decoder

    def finish(self, i: int, latents: tuple[Any, ...], fitted: Any, y_train: Any) -> Any:
        decoder = None if fitted is latents[2] else fitted
        return assembled(self._configured[i], y_train, latents[2], decoder)


class _Lambdas:
    """Candidates that differ in the decoder's regularization alone, which come one after the other in `order`."""

    def __init__(self, candidates: list[dict[str, Any]], positions: list[dict[str, int]]) -> None:
        lambdas = {"regularization", "decoder__regularization"}
        keys = [tuple((name, i) for name, i in position.items() if name not in lambdas) for position in positions]
        groups: dict[Any, list[int]] = {}
        for i, key in enumerate(keys):
            groups.setdefault(key, []).append(i)
        self.order = [i for group in groups.values() for i in group]
        self._beside: list[list[Any]] = [[]] * len(candidates)
        for group in groups.values():
            values = [value for i in group for name, value in candidates[i].items() if name in lambdas]
            for i in group:
                self._beside[i] = values

    def beside(self, i: int) -> list[Any]:
        """The regularizations of candidate i and of those that differ from it in nothing else, one list for all."""
        return self._beside[i]


class _Fields:
    """Training and validation fields, and the errors of decoders fitted to the first on the second.

    `span` is None as long as decoders are fitted to the fields themselves.
    """

    def __init__(self, y_train: Any, y_val: ArrayLike, n_candidates: int, grid: Mapping[str, Any]) -> None:
        self.y_val = check_matrix(flattened(y_val, "y_val")[0], "y_val")
        self.span: FieldSpan | None = None
        self._y_train, self._n_candidates = y_train, n_candidates
        # where all validation fields are empty, the training fields say what is large
        self._sizes = field_norms(self.y_val)
        self._usual = median_norm(self._sizes) or median_norm(field_norms(y_train))
        self._last: tuple[Any, Any] = None, None  # latents and decoder of the last candidate that was fitted
        self._last_path: tuple[Any, Any, Any] = None, None, None  # of candidates that differ in lambda alone
        names = {name.rpartition("__")[2] for name in grid}
        self._undecided = (
            not names & _SHAPING
            and "decoder" not in grid
            and not any(getattr(y, "dtype", None) in (np.float32, np.float16) for y in (y_train, y_val))
        )
        self._seed: int | None = None

    def errors(self, decoder: Any, X_train: Any, X_val: Any, lambdas: Sequence[Any]) -> tuple[NDArray[np.float64], Any]:
        """Scaled L2 error of each validation field, and the decoder: fitted, unless there is a `span`.

        lambdas: the regularizations of all candidates that differ from this one in no other parameter.
        """
        if self._undecided:
            self._decide(decoder, X_train)
            self._undecided = False
        if self.span is not None:
            self._seed_features(decoder)
            for X, expected, part in ((X_val, len(self.y_val), "val"), (X_train, len(self.span.fields), "train")):
                if len(X) != expected:
                    raise ValueError(
                        f"X_{part} and y_{part} must have the same number of rows, got {len(X)} and {expected}"
                    )
            path = self._path(decoder, X_train, lambdas, "smoother_path", X_val, fields=self.span.fields)
            if path is not None:
                coordinates = path(decoder.regularization)
            else:
                coordinates = decoder.smoother(X_train, X_val, fields=self.span.fields)
            return self._errors_of_coordinates(coordinates, self.span), decoder
        if hasattr(decoder, "predict"):
            decoder = self._fitted(decoder, X_train, lambdas)
            with extrapolation_ignored():
                predicted = decoder.predict(X_val)
        else:  # a fitted encoder with an inverse of its own
            predicted = decoder.inverse_transform(X_val)
        return scaled_l2(self.y_val, predicted, reference=self._usual), decoder

    def losses(self, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the candidates with these errors (n_candidates, n_val) are chosen by."""
        return selection_losses(errors, self._sizes, self._usual)

    def _path(self, decoder: Any, X_train: Any, lambdas: Sequence[Any], method: str, other: Any, **options: Any) -> Any:
        """What `method` gives for all the lambdas, from the last candidate where only lambda differs."""
        if len(lambdas) < 2 or not _has(decoder, method) or not _is_lambda(decoder.regularization):
            return None
        latents, group, path = self._last_path
        if latents is not X_train or group is not lambdas:
            values = [value for value in lambdas if _is_lambda(value)]
            path = getattr(decoder, method)(X_train, other, values, **options)
            self._last_path = X_train, lambdas, path
        return path

    def _fitted(self, decoder: Any, X_train: Any, lambdas: Sequence[Any]) -> Any:
        """The decoder fitted to the fields; from the last candidate where only the neighbours' number differs."""
        latents, last = self._last
        if latents is X_train and hasattr(last, "with_n_neighbors") and _alike(decoder, last, but="n_neighbors"):
            decoder = last.with_n_neighbors(decoder.n_neighbors)
        elif (path := self._path(decoder, X_train, lambdas, "fit_path", self._y_train)) is not None:
            return path(decoder.regularization)
        else:
            self.fit(decoder, X_train)
        self._last = X_train, decoder
        return decoder

    def fit(self, decoder: Any, X_train: Any) -> None:
        """Fit a decoder to the training fields, or to coordinates that are few: one that is not ours to rows."""
        y = self._y_train
        if not isinstance(decoder, FieldOutputMixin):
            y, _ = flattened(y, "y_train")
        elif self.span is not None and self.span.factored is not None:
            y = self.span.factored
        decoder.fit(X_train, y)

    def _errors_of_coordinates(self, X: NDArray[np.float64], span: FieldSpan) -> NDArray[np.float64]:
        distance = np.linalg.norm(span.corrected(X) - self._coordinates, axis=1)
        return scaled_distances(np.hypot(distance, self._rest), self._sizes, self._usual)

    def _seed_features(self, decoder: Any) -> None:
        """Give features that would be drawn anew by the final fit a seed, the same for all candidates."""
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
        """Make the coordinates where they give the same errors and pay."""
        if not _has(decoder, "smoother") or getattr(decoder, "bounds", None) is not None:
            return
        rows, _ = flattened(self._y_train, "y_train")
        n, M = np.shape(rows) if np.ndim(rows) == 2 else (1, 1)
        if M != self.y_val.shape[1]:
            return
        sizes = n, len(self.y_val), M, _n_terms(decoder, X_train, n), self._n_candidates
        many = M >= 2 * n and _pays(*sizes)
        if not many and not _may_pay(*sizes):
            return
        if not (self._usual > 1e-140 and self._sizes.max() < 1e140):  # squares may over- or underflow
            return
        F, dtype, layout = check_fields(self._y_train, n)
        invariants = invariants_of(decoder, F, dtype, layout.shape)
        if invariants is not None:
            q = len(invariants.independent)
            many = many and np.count_nonzero(~invariants.constant) >= 2 * (n + q)
        span = FieldSpan(F, invariants, (dtype, layout), few=not many)
        if span.fields is not None:
            self.span = span
            self._coordinates, self._rest = span.coordinates(self.y_val)


def _has(decoder: Any, method: str) -> bool:
    """Whether the decoder has a method that belongs to its `fit` and `predict`: no subclass has others."""
    if not hasattr(decoder, method):
        return False
    classes = type(decoder).__mro__
    depth = {name: [name in vars(cls) for cls in classes].index(True) for name in (method, "fit", "predict")}
    return depth[method] <= min(depth["fit"], depth["predict"])


def _is_lambda(value: Any) -> bool:
    return isinstance(value, numbers.Real) and 0 <= float(value) < np.inf


def _alike(decoder: Any, other: Any, but: str) -> bool:
    """Whether two estimators are of one class and have the same parameters, `but` one."""
    ours, theirs = decoder.get_params(deep=False), other.get_params(deep=False)
    return type(decoder) is type(other) and all(ours[name] == theirs[name] for name in ours if name != but)


def _n_terms(decoder: Any, X_train: Any, n: int) -> int:
    """Number of functions of the latents that a decoder combines, about."""
    if getattr(decoder, "features", None) is not None:
        X = check_matrix(X_train, "X_train")
        return int(clone(decoder.features).fit(X).transform(X[:1]).shape[1])
    rank = getattr(decoder, "rank", n)
    return int(rank) if isinstance(rank, numbers.Integral) else n


def _direct_costs(n: int, n_val: int, P: int) -> tuple[int, int]:
    """Operations a cell of a fit and of its validation."""
    return 2 * n * P + 2 * min(n, P) ** 2 + 100 * n, 2 * n_val * P + 200 * n_val


def _may_pay(n: int, n_val: int, M: int, P: int, n_candidates: int) -> bool:
    """Whether coordinates of fields of few dimensions would, and finding out that they have more costs little."""
    fit, validation = _direct_costs(n, n_val, P)
    return n * M >= _FEWEST and 20 * n * min(n, M) < n_candidates * (fit + validation)


def _pays(n: int, n_val: int, M: int, P: int, n_candidates: int) -> bool:
    """Whether coordinates save time: counts of operations, weighted by what was measured."""
    smaller = min(n, P)
    fit, validation = _direct_costs(n, n_val, P)
    weights = 2 * n_val * (n * P + smaller**2 + n**2)
    factorisation = 6 * n**2 + 8 * n * n_val + 100 * n
    direct = n_candidates * (fit + validation) * M
    coordinates = n_candidates * weights + (factorisation + fit) * M
    return coordinates < 0.8 * direct
