"""The model, encoder and decoder, that held-out errors choose."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Bunch

from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.callers import extrapolation_ignored, warn_caller
from randsmap._interface.fields import flattened, reshape_for
from randsmap._interface.parameters import check_choice, check_count, check_number, check_random_state
from randsmap._io.progress import steps
from randsmap._linalg.scales import in_norm
from randsmap.decoders._auto import AutoDecoder, Results
from randsmap.decoders._trials import (
    FAMILIES,
    GAUSSIAN,
    KNN,
    MATERN,
    THIN_PLATE,
    WORTH,
    bounded_errors,
    check_families,
    check_groups,
    leading,
    score_of,
    search_threads,
    unknown,
)
from randsmap.encoders import POD, DiffusionMaps, estimate_n_components
from randsmap.invariants import norm_weights
from randsmap.metrics import field_norms
from randsmap.model import ManifoldModel
from randsmap.model._errors import held_out_errors
from randsmap.model._held_out import cautions_in_words, trajectories_in_words
from randsmap.model._manifold import assembled, in_one_norm

# Values of `epsilon_scale` that are tried for each `select`, in steps of at most 2, which `neighbors` refines
_WIDTHS = {"leading": (1.0, 0.5, 0.3, 0.2, 0.12, 0.07, 2.0, 4.0), "non-harmonic": (1.0, 0.3, 0.12)}
# Families by which encoders are compared, if they are allowed: nothing is drawn, which would add noise to the errors
_COMPARED = (KNN, THIN_PLATE, GAUSSIAN, MATERN)
# Errors of encoders that cannot be used for the samples
_FAILURES = ValueError, UserWarning, ArithmeticError, np.linalg.LinAlgError
# Samples per coordinate, where the number of coordinates is searched for; with fewer, samples do not determine it
_PER_COMPONENT = 3


def autotune(
    snapshots: ArrayLike,
    *,
    model: ManifoldModel | None = None,
    n_components: int | str = 2,
    max_components: int | None = None,
    alpha: float = 1.0,
    groups: ArrayLike | None = None,
    validation: float = 0.2,
    n_trials: int = 40,
    families: str | Iterable[str] | None = None,
    consistency: int | str = 0,
    invariants: Any = "auto",
    invariant_values: Any = None,
    invariant_tol: float | None = None,
    cell_weights: ArrayLike | None = None,
    bounds: Any = None,
    random_state: Any = None,
) -> Bunch:
    """Choose an encoder and a decoder of snapshots by held-out errors.

    Parameters
    ----------
    snapshots : array-like of shape (n, M) or (n, *shape)
        Fields, as for `ManifoldModel`.
    model : ManifoldModel or None
        A model whose encoder is used with its parameters. None: the encoder is chosen among POD and diffusion maps of
        several widths, with the leading or the non-harmonic eigenvectors.
    n_components : int or "auto", default=2
        d, the number of latent coordinates. "auto": at most `max_components`, and fewer if the held-out error grows by
        at most 2 %. Not used with a model.
    max_components : int or None, default=None
        Largest number with n_components="auto"; not more than a third of the number of snapshots. None:
        `encoders.estimate_n_components`, the number of eigenvectors of diffusion maps that are new directions.
    alpha : float, default=1.0
        Density normalisation of the diffusion maps. Not used with a model.
    groups : array-like of shape (n,) or None
        Labels of groups, such as trajectories, that are held out as a whole.
    validation : float, default=0.2
        Share of the samples that is held out of an encoder's fit, up to 5 times in turn. With groups, one group is held
        out, up to 10 times; of more than 10 groups, a tenth. For the decoder as in `AutoDecoder`.
    n_trials : int, default=40
        Trials of the decoder's search on the latents of the selected encoder. Encoders are compared with 4 trials of
        kernels and k-NN mixtures if these are among the families.
    consistency : int or "auto", default=0
        Consistency steps of `best_model_.inverse_transform`. "auto": the number from 0 to 3 with the least held-out
        error, the smaller one if the next gains less than 1 %.
    families, invariants, invariant_values, invariant_tol, bounds : optional
        As in `AutoDecoder`.
    cell_weights : array-like of shape (M,), or of a field, or None
        Positive weights, such as cell volumes, of the norm in which encoders measure distances, decoders correct fields
        and errors are measured. None: those of `model`, if it has any.
    random_state : int, RandomState instance or None, default=None
        For the choice of held-out samples. None: 0.

    Returns
    -------
    Bunch
        best_model_ : ManifoldModel, fitted to all snapshots, whose `held_out_` has its held-out errors; results_ :
        Results, a table of the encoders, one array per column: `encoder`, `n_components`, `epsilon_scale`, `select`,
        `error` (mean held-out error, NaN if the encoder failed or was given up), `score` (see `AutoDecoder`), `chosen`;
        decoder_results_ : Results, of the decoder's trials; held_out_error_ : float, the mean of `held_out_`: of the
        selected encoder, fitted with a search for its decoder to the other samples, NaN if these fits fail;
        error_with_one_more_component_ : float, an estimate: it is computed if the search's error exceeds 1 %, all
        coordinates that the spectrum shows are used, there are 3 samples per coordinate and the one more, and no
        trajectories without groups, else NaN;
        on_edge_ : list of str, the parameters on an edge of the search.

    Raises
    ------
    ValueError, TypeError
        If the snapshots are not a finite array (n, M), a parameter is out of range, or every encoder fails (the error
        of the first is raised).

    Warns
    -----
    UserWarning
        If the nearest fields are neighbours in the file, as in trajectories, and there are no groups; if nearly equal
        latents belong to different fields.

    Notes
    -----
    An encoder is fitted without the held-out samples, which it then encodes as new ones. Groups without which too few
    samples are left, fewer than 4 or than any encoder needs, are not held out. It is given up if it is twice
    as bad as the best after two turns, or if its kernel separates the samples into parts. Widths 1.4 times above and
    below the best are tried next, twice. Of more than 1000 samples, 1000 at random choose the encoder.

    References
    ----------
    C. J. Dsilva et al., Appl. Comput. Harmon. Anal. 44 (2018) (the non-harmonic eigenvectors).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 40)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)]) ** 2
    >>> result = randsmap.autotune(arc, n_components=1, n_trials=10, random_state=0)
    >>> result.best_model_.score(arc) > -0.01
    True
    """
    check_samples(snapshots=snapshots, groups=groups)
    rows, layout = flattened(snapshots, "snapshots")
    F = as_array(rows, "snapshots", min_rows=4)
    families = check_families(families)
    _check_components(n_components, max_components)
    check_count(n_trials, "n_trials")
    check_number(validation, "validation", low=0, high=1, strict_low=True)
    labels = check_groups(groups, len(F))
    number = 0 if consistency == "auto" else check_count(consistency, "consistency", low=0)
    if model is not None and not isinstance(model, ManifoldModel):
        raise TypeError(f"model must be a ManifoldModel or None, got {model!r}")
    rng = check_random_state(0 if random_state is None else random_state)
    weights = norm_weights(layout, cell_weights, model)
    table, error, more = None, None, np.nan
    good = 0.01  # an error that one more coordinate need not improve
    judge = _EncoderJudge(F, labels, validation, n_trials, families, rng, weights)
    with search_threads(len(F)):
        if model is None:
            best = search_encoders(judge, n_components, max_components, alpha)
            encoder, error, table = best.encoder, best.error, _table(judge.judged, best)
            by_spectrum = n_components == "auto" and max_components is None
            d = encoder.n_components
            enough = (d + 1) * _PER_COMPONENT <= len(F)  # or a search with max_components=d + 1 would not try it
            asked = by_spectrum and enough and error > good and d == table.n_components.max()
            if asked and (labels is not None or trajectories_in_words(F) is None):  # errors between neighbours mislead
                more = judge.one_more(best, alpha)
        else:
            encoder = model.encoder
        if consistency == "auto":
            number = judge.consistency(encoder)
    # the encoder was judged on parts of the samples: the model's own is fitted to all of them
    search = {"n_trials": n_trials, "families": families, "validation": validation, "random_state": random_state}
    kept = {"invariants": invariants, "invariant_values": invariant_values, "invariant_tol": invariant_tol}
    decoder = AutoDecoder(**search, **kept, cell_weights=weights, bounds=bounds)
    fitted = in_one_norm(clone(encoder), decoder)
    latents = np.asarray(fitted.fit_transform(reshape_for(fitted, F, layout)))
    decoder.fit(latents, reshape_for(decoder, rows, layout), groups=groups)
    best_model = ManifoldModel(clone(fitted), clone(decoder.best_decoder_), consistency=number)
    assembled(best_model, snapshots, fitted, decoder.best_decoder_)
    # the decoder is searched for anew without the samples held out
    held_out = held_out_errors(ManifoldModel(fitted, decoder, consistency=number), snapshots, groups=groups)
    best_model.held_out_ = held_out
    for text in cautions_in_words(best_model, snapshots, groups):
        warn_caller(text)
    return Bunch(
        best_model_=best_model,
        results_=table,
        decoder_results_=decoder.results_,
        held_out_error_=held_out.mean,
        error_with_one_more_component_=more * held_out.mean,
        on_edge_=decoder.on_edge_ + _edges(encoder, model),
    )


def _check_components(n_components: Any, max_components: Any) -> None:
    if not isinstance(n_components, str):
        check_count(n_components, "n_components")
        if max_components is not None:
            raise ValueError(f'max_components goes with n_components="auto", got n_components={n_components!r}')
    else:
        check_choice(n_components, "n_components", ("auto",))
        if max_components is not None:
            check_count(max_components, "max_components")


def chosen_encoder(
    snapshots: NDArray[np.float64], n_components: int, *, alpha: float = 1.0, groups: ArrayLike | None = None
) -> Any:
    """The encoder, not fitted, that `autotune` chooses for n_components latents and decoders of all families."""
    F = as_array(snapshots, "snapshots", min_rows=4)
    labels = check_groups(groups, len(F))
    with search_threads(len(F)):
        judge = _EncoderJudge(F, labels, 0.2, 4, FAMILIES, check_random_state(0))
        return search_encoders(judge, n_components, None, alpha).encoder


@dataclass(eq=False)
class _EncoderTrial:
    """An encoder, not fitted, with its held-out errors (n,): NaN where it was not judged."""

    encoder: Any
    errors: Any = None
    score: float = np.inf

    @cached_property
    def identity(self) -> str:
        return repr(self.encoder)

    @property
    def error(self) -> float:
        return float(np.nanmean(self.errors)) if np.isfinite(self.score) and self.errors is not None else np.nan

    def neighbors(self) -> list[_EncoderTrial]:
        """Diffusion maps with larger and smaller widths, and with the other choice of eigenvectors."""
        if not isinstance(self.encoder, DiffusionMaps):
            return []
        width, finer = self.encoder.epsilon_scale, 1.4  # half a step of 2
        proposals = [clone(self.encoder).set_params(epsilon_scale=w) for w in (width / finer, width * finer)]
        if self.encoder.n_components > 1:
            other = "leading" if self.encoder.select == "non-harmonic" else "non-harmonic"
            proposals.append(clone(self.encoder).set_params(select=other))
        return [_EncoderTrial(encoder) for encoder in proposals]


def search_encoders(
    judge: _EncoderJudge, n_components: int | str, max_components: int | None, alpha: float
) -> _EncoderTrial:
    """The encoder chosen among those that `judge` compares."""
    F = judge.fields
    if n_components == "auto":
        if max_components is None:
            max_components = estimate_n_components(F, cell_weights=judge.weights)
        d = max_components
        d = max(1, min(d, len(F) // _PER_COMPONENT))
    else:
        d = int(n_components)
    judge(_encoders(d, alpha, F.shape))
    best = leading(judge.judged)[0]
    for _ in range(2):  # documented: they reach half and twice the best width
        judge(best.neighbors())
        best, before = leading(judge.judged)[0], best
        if best is before:
            break
    while n_components == "auto" and best.encoder.n_components > 1:
        fewer = leading(judge(_encoders(best.encoder.n_components - 1, alpha, F.shape)))[0]
        if fewer.score > best.score + np.log(1.02):  # documented: a coordinate must gain 2 %
            break
        best = fewer
    return best


class _EncoderJudge:
    """Held-out errors of encoders, on at most 1000 of the samples: called with trials, it sets their scores."""

    def __init__(
        self, F: Any, labels: Any, validation: float, n_trials: int, families: Any, rng: Any, weights: Any = None
    ) -> None:
        most = 1000  # documented; the time of a comparison grows with the cube
        if len(F) > most:
            rows = np.sort(rng.permutation(len(F))[:most])
            F = F[rows]
            labels = None if labels is None else np.unique(labels[rows], return_inverse=True)[1]
        self.fields, self._labels, self.weights = F, labels, weights
        self._sizes = field_norms(F, cell_weights=weights)
        compared = [family for family in families if family in _COMPARED] or families
        self._options = {"n_trials": min(n_trials, 4), "families": compared}  # one trial for each family compared
        self._folds = _folds(len(F), labels, validation, rng)
        self._groups = self._folds if labels is None else [np.flatnonzero(labels == g) for g in np.unique(labels)]
        self.judged: list[_EncoderTrial] = []

    def __call__(self, proposals: list[_EncoderTrial]) -> list[_EncoderTrial]:
        """Judge the proposals that are new, and return them; those far behind the best so far are given up."""
        first, trials = not self.judged, unknown(proposals, self.judged)
        if not trials:
            return []
        self.judged += trials
        for trial in trials:
            trial.errors = np.full(len(self.fields), np.nan)
        alive, failures, done = list(trials), list[Exception](), list[NDArray[np.intp]]()
        bar = steps(len(self._folds) * len(trials), 1, "encoders")
        for held in self._folds:
            before, alive = alive, []
            for trial in before:
                next(bar)
                try:
                    trial.errors[held] = self._errors_of(self._model_of(trial.encoder, held), held)
                    alive.append(trial)
                except _FAILURES as failure:
                    failures.append(failure)
            if first and not alive and self._labels is not None:  # too few samples outside these groups
                alive = before
                continue
            done.append(held)
            # on the samples held out so far, on which all encoders that are left were judged
            scores = self._scores_of(np.concatenate(done), [t.errors for t in self.judged])
            of = dict(zip(map(id, self.judged), scores))
            if len(done) > 1:  # documented: twice the error of the best encoder is hopeless
                alive = [trial for trial in alive if of[id(trial)] <= scores.min() + np.log(2)]
        for _ in bar:
            pass
        if first and not done and self._labels is not None:
            raise _too_few_outside(self._labels) from failures[0]
        if first and not alive:
            raise failures[0]
        self._folds = done if first else self._folds
        for trial in alive:
            trial.score = of[id(trial)]
        return trials

    def one_more(self, best: _EncoderTrial, alpha: float) -> float:
        """About the least held-out error of encoders with one coordinate more, relative to the best encoder's.

        Judged on the first two turns; NaN if none can be fitted.
        """
        d, width = best.encoder.n_components + 1, getattr(best.encoder, "epsilon_scale", 1.0)
        turns, errors = self._folds[:2], []
        widths: dict[Any, float] = {"leading": width, "non-harmonic": _WIDTHS["non-harmonic"][0]}
        for trial in _encoders(d, alpha, self.fields.shape):
            if isinstance(trial.encoder, DiffusionMaps) and trial.encoder.epsilon_scale != widths[trial.encoder.select]:
                continue
            with suppress(*_FAILURES):
                missed = [self._errors_of(self._model_of(trial.encoder, held), held) for held in turns]
                errors.append(np.concatenate(missed).mean())
        # the ratio on the same samples: the mean over two turns alone would carry their difficulty
        known = best.errors[np.concatenate(turns)].mean()
        return float(min(errors) / known) if errors else np.nan

    def consistency(self, encoder: Any) -> int:
        """Number of steps of the best score, the smallest if more hardly help."""
        numbers = range(3 + 1)  # documented; each step costs a decoding and an encoding
        errors = np.full((len(numbers), len(self.fields)), np.nan)
        for held in self._folds:
            model = self._model_of(encoder, held, strict=False)
            for number in numbers:
                errors[number, held] = self._errors_of(model, held, consistency=number)
        scores = self._scores_of(np.concatenate(self._folds), errors)
        return next(number for number, score in enumerate(scores) if score <= scores.min() + WORTH)

    def _model_of(self, encoder, held, *, strict=True):
        """A model of the encoder, fitted without the held-out samples; `strict`: ValueError if it is unusable."""
        rest = np.setdiff1d(np.arange(len(self.fields)), held)
        decoder = AutoDecoder(invariants=None, cell_weights=self.weights, random_state=0, **self._options)
        trial, encoder = encoder, in_one_norm(clone(encoder), decoder)
        with warnings.catch_warnings():
            # of a kernel so narrow that the samples fall apart
            warnings.simplefilter("error" if strict else "ignore", UserWarning)
            latents = np.asarray(encoder.fit_transform(self.fields[rest]))
        if strict and getattr(encoder, "select", None) == "non-harmonic":
            also_leading = repr(clone(trial).set_params(select="leading"))
            tried = any(other.identity == also_leading for other in self.judged)
            if tried and encoder.selected_[-1] == encoder.n_components:
                raise ValueError("the non-harmonic eigenvectors are the leading ones, which are tried as such")
        # a search needs two groups at least
        known = None if self._labels is None else self._labels[rest]
        if known is not None and len(np.unique(known)) < 2:
            known = None
        decoder.fit(latents, self.fields[rest], groups=known)
        return assembled(ManifoldModel(encoder, decoder), self.fields[rest], encoder, decoder)

    def _errors_of(self, model, held, **options):
        """Errors of the samples held out."""
        with extrapolation_ignored():
            missed = self.fields[held] - model.inverse_transform(model.transform(self.fields[held]), **options)
        return bounded_errors(in_norm(missed, self.weights), self._sizes[held])

    def _scores_of(self, judged: NDArray[np.intp], rows: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Score of each row of errors on these samples; infinite where they have not all been judged."""
        place = np.full(len(self.fields), -1)
        place[judged] = np.arange(len(judged))
        parts = [place[g][place[g] >= 0] for g in self._groups]
        parts = [part for part in parts if len(part)]
        errors = [row[judged] for row in rows]
        return np.array([score_of(row, parts) if np.isfinite(row).all() else np.inf for row in errors])


def _table(trials: Sequence[_EncoderTrial], best: _EncoderTrial) -> Results:
    encoders = [trial.encoder for trial in trials]
    return Results(
        encoder=np.array([type(encoder).__name__ for encoder in encoders]),
        n_components=np.array([encoder.n_components for encoder in encoders]),
        epsilon_scale=np.array([getattr(encoder, "epsilon_scale", np.nan) for encoder in encoders]),
        select=np.array([getattr(encoder, "select", "") for encoder in encoders]),
        error=np.array([trial.error for trial in trials]),
        score=np.array([trial.score for trial in trials]),
        chosen=np.array([trial is best for trial in trials]),
    )


def _encoders(d: int, alpha: float, shape: tuple[int, int]) -> list[_EncoderTrial]:
    encoders: list[Any] = [
        DiffusionMaps(d, alpha=alpha, epsilon_scale=width, select=select)
        for select, widths in _WIDTHS.items()
        if select == "leading" or d > 1  # the first eigenvector is never a harmonic
        for width in widths
    ]
    if d < min(shape):
        encoders.append(POD(d, invariants=None))  # only encodes
    return [_EncoderTrial(encoder) for encoder in encoders]


def _folds(n: int, labels: NDArray[np.intp] | None, validation: float, rng: Any) -> Sequence[NDArray[np.intp]]:
    """Disjoint parts of about that share of the samples; with groups (0, 1, ...) of one, or of a tenth of them."""
    most = 5 if labels is None else 10  # documented; each fits all encoders that are left
    if labels is None:
        size = min(max(1, round(validation * n)), n - 2)
        order = rng.permutation(n)
        return [np.sort(order[i * size : (i + 1) * size]) for i in range(min(most, n // size))]
    names = rng.permutation(labels.max() + 1)
    parts = [np.flatnonzero(np.isin(labels, part)) for part in np.array_split(names, min(len(names), most))]
    fewest = 4  # of all samples; a model of fewer says nothing
    if not (usable := [held for held in parts if n - len(held) >= fewest]):
        raise _too_few_outside(labels)
    return usable


def _too_few_outside(labels: NDArray[np.intp]) -> ValueError:
    sizes = ", ".join(map(str, np.bincount(labels)[:6]))
    return ValueError(
        f"groups: none of them (of sizes {sizes}) leaves enough samples to fit an encoder to the others. Give more or "
        "smaller groups, or fewer n_components"
    )


def _edges(encoder, model):
    if model is not None or not isinstance(encoder, DiffusionMaps):
        return []
    widths = _WIDTHS["leading"]
    return [] if min(widths) < encoder.epsilon_scale < max(widths) else ["epsilon_scale"]
