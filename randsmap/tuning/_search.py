"""Choice of hyperparameters on a validation set."""

import numbers
import warnings
from collections.abc import Mapping

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Bunch
from tqdm import tqdm

from randsmap._linalg.ridge import FeatureRows
from randsmap._validation import check_matrix
from randsmap.decoders import DoubleDiffusionMapsDecoder, KernelDecoder, RANDSMAPDecoder, RFNNDecoder
from randsmap.decoders._base import check_fields
from randsmap.metrics import _relative, relative_l2
from randsmap.model import ManifoldModel
from randsmap.tuning._field_span import FieldSpan

__all__ = ["tune"]

# Decoders whose fields are linear in the training fields but for the invariants' correction
_LINEAR = (RFNNDecoder, RANDSMAPDecoder, DoubleDiffusionMapsDecoder, KernelDecoder)
# Parameters that change the span, or what is done outside it
_SHAPING = {"invariants", "invariant_values", "invariant_tol", "cell_weights", "constraint", "bounds", "solver"}


def tune(decoder, grid, Y_train, F_train, Y_val, F_val, *, callback=None, progress=False):
    """Fit a decoder for every candidate of a grid and keep the one that reconstructs best.

    Parameters
    ----------
    decoder : regressor or ManifoldModel
        Cloned for every candidate; not changed. With a `ManifoldModel` the parameters of its encoder
        can be tuned too (``{"encoder__n_components": [1, 2, 3], "decoder__features__slope": [1, 5]}``);
        the encoder is fitted once for each distinct setting of it.
    grid : dict of str to sequence
        Values to try for each parameter, by `set_params` name: ``{"features__slope": [1, 5, 10]}``.
        Several parameters make their product.
    Y_train : array-like of shape (n_train, d)
        Latents to fit on; None with a `ManifoldModel`, which makes them.
    F_train : array-like of shape (n_train, n_cells)
        Their fields.
    Y_val : array-like of shape (n_val, d)
        Latents to judge on; None with a `ManifoldModel`.
    F_val : array-like of shape (n_val, n_cells)
        Their fields.
    callback : callable, optional
        Called without arguments after each candidate.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    Bunch
        best_params_ : dict; best_decoder_ : the decoder, or model, fitted with them on the training set;
        candidates_ : list of dict; errors_ : ndarray, mean relative L2 error of each candidate on
        the validation set, NaN where its fit or its prediction failed; sample_errors_ : ndarray
        (n_candidates, n_val), the error of each validation field; on_edge_ : dict of str to bool, whether the
        best value of a parameter is the first or last of its sequence (then the optimum may lie beyond
        it; False where fewer than three values were tried or a value is not a number); evaluation_ :
        "coefficients" or "direct", see Notes. Of equal candidates the first is the best.

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
    The fields of `RFNNDecoder`, `RANDSMAPDecoder`, `DoubleDiffusionMapsDecoder` and `KernelDecoder` lie in the span
    of the training fields and of the directions in which invariants correct them. When a field has
    many more cells than there are training fields, the candidates are fitted and compared in an
    orthonormal basis of that span ("coefficients"), made once by a QR factorisation, and only the best
    one is fitted to the fields themselves. The errors are those of the "direct" evaluation to
    the round-off of the candidate's solver (no large squares are subtracted): 1e-10 relative where its
    matrix is well conditioned, less where lambda is near round-off. Anything else is evaluated directly: bounds,
    float32 fields, grids over the invariants or weights, other regressors, and fields of so few cells that the
    factorisation would not pay.

    References
    ----------
    Paper, App. D: grid search over 10 values, lowest L2 reconstruction error on the validation set.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> Y = np.linspace(-1, 1, 60)[:, None]
    >>> F = np.hstack([np.sin(3 * Y), -np.sin(3 * Y)])
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
    >>> grid = {"features__slope": [0.01, 5.0, 500.0]}
    >>> result = tune(decoder, grid, Y[::2], F[::2], Y[1::2], F[1::2])
    >>> result.best_params_, result.on_edge_
    ({'features__slope': 5.0}, {'features__slope': False})
    """
    positions, candidates = _expand(grid)
    # a candidate's estimators may be changed by other parameters: never the caller's
    configured = [_with_params(clone(decoder), clone(params, safe=False)) for params in candidates]
    given = Y_train is not None or Y_val is not None
    if isinstance(decoder, ManifoldModel):
        if given:
            raise ValueError("Y_train and Y_val must be None with a ManifoldModel: its encoder makes them")
        stages = _ModelStages(configured, F_train, F_val)
        keys = [
            tuple((name, i) for name, i in position.items() if name.partition("__")[0] == "encoder")
            for position in positions
        ]
    else:
        if Y_train is None or Y_val is None:
            raise ValueError(f"Y_train and Y_val may be None only with a ManifoldModel, got {type(decoder).__name__}")
        stages = _DecoderStages(configured, Y_train, Y_val)
        keys = [()] * len(candidates)

    fields = _Fields(F_train, F_val, len(candidates), grid)
    errors = np.full((len(candidates), len(fields.F_val)), np.nan)
    failures = {}
    best = None
    with tqdm(total=len(candidates), desc="tuning", unit="fit", disable=not progress) as bar:
        for key in dict.fromkeys(keys):
            latents = None
            for i in (i for i, other in enumerate(keys) if other == key):
                try:
                    if latents is None:
                        latents = stages.latents(i)
                    errors[i], fitted = fields.errors(stages.decoder(i, latents), *latents[:2])
                except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                    failures[i] = error
                else:
                    means = errors.mean(axis=1)
                    if best is None or (means[i], i) < (means[best], best):
                        best, kept = i, (latents, fitted, fields.span is not None)
                bar.update()
                if callback is not None:
                    callback()
    if best is None:
        raise failures[0]
    for i, error in failures.items():
        warnings.warn(f"candidate {candidates[i]} failed, its error is NaN: {error}", FitFailedWarning, stacklevel=2)
    latents, fitted, in_span = kept
    if in_span:
        fitted = _refit(stages.decoder(best, latents), fitted, latents[0], F_train)
    return Bunch(
        best_params_=candidates[best],
        best_decoder_=stages.finish(best, latents, fitted, F_train),
        candidates_=candidates,
        errors_=errors.mean(axis=1),
        sample_errors_=errors,
        on_edge_={name: on_edge(grid[name], candidates[best][name], i) for name, i in positions[best].items()},
        evaluation_="direct" if fields.span is None else "coefficients",
    )


def _expand(grid):
    """The candidates of a grid, as places in its sequences and as parameters."""
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must be a dict of str to sequence, got {grid!r}")
    if not list(ParameterGrid(grid))[0]:
        raise ValueError(f"grid must name at least one parameter with values, got {grid!r}")
    # equal values may be different estimators or arrays: candidates are told apart by their places
    positions = list(ParameterGrid({name: range(len(values)) for name, values in grid.items()}))
    return positions, [{name: grid[name][i] for name, i in position.items()} for position in positions]


def _with_params(decoder, params):
    for name in params:
        part = name.partition("__")[0]
        if part != name and params.get(part, getattr(decoder, part, decoder)) is None:
            raise ValueError(
                f"{name} cannot be tuned because the decoder's {part} is None: give the decoder its {part}"
            )
    return decoder.set_params(**params)


def on_edge(values, best, position=None):
    """Whether `best`, at `position`, is the first or the last of at least three numbers."""
    values = list(values)
    if len(values) < 3 or not all(isinstance(value, numbers.Real) for value in values):
        return False
    if position is None:
        return best in (values[0], values[-1])
    return position in (0, len(values) - 1)


class _DecoderStages:
    """What a candidate consists of when the latents are given: the decoder alone."""

    def __init__(self, configured, Y_train, Y_val):
        self._configured, self._latents = configured, (Y_train, Y_val)

    def latents(self, i):
        return self._latents

    def decoder(self, i, latents):
        return clone(self._configured[i])

    def finish(self, i, latents, fitted, F_train):
        return fitted


class _ModelStages:
    """What a candidate consists of when it is a model: encoder, latents, decoder."""

    def __init__(self, configured, F_train, F_val):
        self._configured, self._F_train, self._F_val = configured, F_train, F_val

    def latents(self, i):
        encoder, Y_train = self._configured[i]._fit_encoder(self._F_train)
        return np.asarray(Y_train), np.asarray(encoder.transform(self._F_val)), encoder

    def decoder(self, i, latents):
        decoder = self._configured[i]._new_decoder(latents[2])
        return latents[2] if decoder is None else decoder

    def finish(self, i, latents, fitted, F_train):
        decoder = None if fitted is latents[2] else fitted
        return self._configured[i]._assemble(F_train, latents[2], decoder)


def _refit(decoder, fitted, Y_train, F_train):
    """Fit `decoder` to the fields, with the features drawn when it was `fitted` in coordinates."""
    if hasattr(fitted, "features_"):
        return decoder._fit_with(fitted.features_, Y_train, F_train)
    return decoder.fit(Y_train, F_train)


class _Fields:
    """Training and validation fields, and the errors of decoders fitted to the first on the second.

    `span` is None as long as decoders are fitted to the fields themselves.
    """

    def __init__(self, F_train, F_val, n_candidates, grid):
        self.F_val = check_matrix(F_val, "F_val")
        self.span = None
        self._F_train, self._n_candidates = F_train, n_candidates
        self._last = None, None  # latents and decoder of the last candidate that can be shared
        names = {name.rpartition("__")[2] for name in grid}
        self._undecided = (
            not names & _SHAPING
            and "decoder" not in grid
            and not any(getattr(F, "dtype", None) in (np.float32, np.float16) for F in (F_train, F_val))
        )

    def errors(self, decoder, Y_train, Y_val):
        """Relative L2 error of each validation field, and the decoder, fitted."""
        if self._undecided:
            self._decide(decoder, Y_train)
            self._undecided = False
        if self.span is not None:
            return self._errors_in_span(decoder, Y_train, Y_val)
        if not hasattr(decoder, "predict"):  # a fitted encoder with an inverse of its own
            return relative_l2(self.F_val, decoder.inverse_transform(Y_val)), decoder
        fitted = self._fitted(decoder, Y_train)
        return relative_l2(self.F_val, fitted.predict(Y_val)), fitted

    def _fitted(self, decoder, Y_train):
        """The decoder fitted to the fields; what the last candidate made of the same data is shared."""
        latents, other = self._last
        if not hasattr(decoder, "_fit_like"):
            return decoder.fit(Y_train, self._F_train)
        if latents is Y_train and type(other) is type(decoder):
            decoder._fit_like(other, Y_train, self._F_train)
        else:
            decoder.fit(Y_train, self._F_train)
        self._last = Y_train, decoder
        return decoder

    def _errors_in_span(self, decoder, Y_train, Y_val):
        given = getattr(decoder, "invariants", None)
        if self.span.invariants is not None:
            decoder.set_params(invariants=self.span.invariants)
        fitted = decoder.fit(Y_train, self.span.fields)
        if getattr(fitted, "solver_", None) == "krylov":  # right to its tolerance only
            self.span = None
            return self.errors(decoder.set_params(**{} if given is None else {"invariants": given}), Y_train, Y_val)
        predicted = fitted.predict(Y_val)
        if predicted.shape != self._coordinates.shape:
            raise ValueError(
                f"Y_val and F_val must have the same number of rows, got {len(predicted)} and {len(self._coordinates)}"
            )
        distance = np.linalg.norm(predicted - self._coordinates, axis=1)
        return _relative(np.hypot(distance, self._rest), self._sizes), fitted

    def _decide(self, decoder, Y_train):
        """Make the coordinates where they give the same errors and pay."""
        if (
            type(decoder) not in _LINEAR
            or getattr(decoder, "bounds", None) is not None
            or getattr(decoder, "solver", None) == "krylov"
        ):  # iterates until a tolerance
            return
        n, M = np.shape(self._F_train) if np.ndim(self._F_train) == 2 else (1, 1)
        n_val = len(self.F_val)
        if (
            M != self.F_val.shape[1]
            or M < 2 * n
            or not _pays(n, n_val, M, _n_terms(decoder, Y_train, n), self._n_candidates)
        ):
            return
        sizes = np.linalg.norm(self.F_val, axis=1)
        if not ((sizes > 1e-140) & (sizes < 1e140)).all():  # squares may over- or underflow
            return
        F, dtype, _ = check_fields(self._F_train, n)
        invariants = decoder._invariants(F, dtype)
        if invariants is not None:
            q = len(invariants.kept)
            if np.count_nonzero(~invariants.constant) < 2 * (n + q):
                return
        self.span = FieldSpan(F, invariants)
        self._coordinates, self._rest = self.span.coordinates(self.F_val)
        self._sizes = sizes


def _n_terms(decoder, Y_train, n):
    """Number of functions of the latents that a decoder combines, about."""
    if hasattr(decoder, "features"):
        Y = check_matrix(Y_train, "Y_train")
        return FeatureRows(decoder._fit_features(Y), Y).width
    rank = getattr(decoder, "rank", n)
    return rank if isinstance(rank, numbers.Integral) else n


def _pays(n, n_val, M, P, n_candidates):
    """Whether coordinates save time: counts of operations, weighted by what was measured."""
    smaller = min(n, P)
    fit = 2 * n * P + 2 * smaller**2 + 100 * n
    validation = 2 * n_val * P + 200 * n_val
    factorisation = 6 * n**2 + 8 * n * n_val + 100 * n
    direct = n_candidates * (fit + validation) * M
    coordinates = n_candidates * (fit + validation) * n + (factorisation + fit) * M
    return coordinates < 0.8 * direct
