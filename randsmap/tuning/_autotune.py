"""The models, encoder and decoder, that cross-validation errors choose."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Bunch

from randsmap import distributed
from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.callers import extrapolation_ignored, warn_caller
from randsmap._interface.fields import flattened, reshape_for
from randsmap._interface.parameters import Parameter, check_parameters, check_random_state
from randsmap._io.progress import stage, steps
from randsmap._kernels.linear_map import MOST_STEPS
from randsmap._linalg.rows import taken
from randsmap._linalg.scales import error_scales, in_norm
from randsmap.decoders._auto import (
    FAMILIES,
    GAUSSIAN,
    KNN,
    MATERN,
    THIN_PLATE,
    WORTH,
    AutoDecoder,
    Results,
    bounded_errors,
    check_families,
    check_groups,
    for_batches,
    leading,
    mergeable_families,
    score_of,
    search_threads,
)
from randsmap.encoders import POD, DiffusionMaps, Isomap, estimate_n_components
from randsmap.invariants import norm_weights
from randsmap.metrics import field_norms
from randsmap.model import ManifoldModel
from randsmap.model._errors import Sample, cautions_in_words, held_out_errors, judged, trajectories_in_words
from randsmap.model._manifold import assembled, decoder_for, encoded, fitted_encoder, fitted_parts

# Values of `epsilon_scale` that are tried for each `select`, in steps of at most 2, which `_beside` refines
_WIDTHS = {"leading": (1.0, 0.5, 0.3, 0.2, 0.12, 0.07, 2.0, 4.0), "non-harmonic": (1.0, 0.3, 0.12)}
# Values of `n_neighbors` of Isomap that are tried, if the samples are four times as many
_NEIGHBORS = (5, 10, 20)
_ENCODERS = "DiffusionMaps", "Isomap", "POD"
# Families that compare encoders, if they are allowed: without random draws, which would add noise to the errors
_COMPARED = (KNN, THIN_PLATE, GAUSSIAN, MATERN)
# Exceptions of encoders that are unusable for the samples
_FAILURES = ValueError, UserWarning, ArithmeticError, np.linalg.LinAlgError
# Numbers of steps that are compared, each at the cost of a decoding and its derivatives or of an encoding: documented
_STEPS = {"projection": (0, 5), "consistency": (0, 1, 2, 3)}
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
    encoders: str | Iterable[str] | None = None,
    consistency: int | str = 0,
    projection: int | str = "auto",
    invariants: Any = "auto",
    invariant_values: Any = None,
    invariant_tol: float | None = None,
    cell_weights: ArrayLike | None = None,
    bounds: Any = None,
    random_state: Any = None,
    n_samples: int | None = None,
) -> Bunch:
    """Select an encoder and a decoder of snapshots by cross-validation errors.

    Parameters
    ----------
    snapshots : array-like of shape (n, M) or (n, *shape)
        Fields, as for `ManifoldModel`; if larger than memory, a dask array or, with n_samples, a memory-mapped array.
    model : ManifoldModel or None, default=None
        A model whose encoder is used with its parameters. None: the encoder is chosen among POD, Isomap with several
        numbers of neighbours, and diffusion maps of several widths, with the leading or the non-harmonic eigenvectors.
    n_components : int or "auto", default=2
        d, the number of latent coordinates. "auto": at most `max_components`, and fewer if the cross-validation error
        grows by at most 2 %. Not used with a model.
    max_components : int or None, default=None
        Largest number with n_components="auto"; not more than a third of the number of snapshots. None:
        `encoders.estimate_n_components`, the number of independent eigenvectors of diffusion maps.
    alpha : float, default=1.0
        Density normalisation of the diffusion maps. Not used with a model.
    groups : array-like of shape (n,) or None, default=None
        Labels of groups, such as trajectories, that are left out as a whole.
    validation : float, default=0.2
        Share of the samples that is left out of an encoder's fit, up to 5 times in turn. Of groups, one is left out at
        a time, up to 10 times; of more than 10 groups, a tenth. For the decoder as in `AutoDecoder`.
    n_trials : int, default=40
        Trials of the decoder's search on the latents of the selected encoder. Encoders are compared with 4 trials of
        kernels and k-NN mixtures if these are among the families.
    consistency : int or "auto", default=0
        Consistency steps of `best_model_.inverse_transform`. "auto": the number from 0 to 3 with the least
        cross-validation error, the smaller one if the next gains less than 1 %.
    projection : int or "auto", default="auto"
        Projection steps of `best_model_.transform`, also used when encoders are compared. "auto": 0, or 5 if they lower
        an encoder's cross-validation error by 1 %. It is selected with the encoder, before `consistency`.
    encoders : str or list of str, or None, default=None
        Classes to choose the encoder among: "DiffusionMaps", "Isomap", "POD". None: all. Not
        used with a model.
    families, invariants, invariant_values, invariant_tol, bounds : default=None, "auto", None, None, None
        As in `AutoDecoder`.
    cell_weights : array-like of shape (M,), or of a field, or None, default=None
        Positive weights, such as cell volumes, of the norm in which encoders measure distances, decoders correct fields
        and errors are measured. None: those of `model`, if it has any.
    random_state : int, RandomState instance or None, default=None
        For the choice of samples that are left out. None: 0.
    n_samples : int or None, default=None
        Number of snapshots, with a share of each group, on which the encoder is selected and fitted and errors are
        measured. The decoder is an `AutoDecoder` of all snapshots. None: all. For a dask array, a decoder with random
        features is selected on the same snapshots and fitted to all, part by part; None: 2000.

    Returns
    -------
    Bunch
        best_model_ : ManifoldModel, fitted to all snapshots, with `held_out_` errors; results_ : Results, a table of
        the encoders, one array per column (`error`: mean cross-validation error, NaN if the encoder failed or was
        discarded; `score`: see `AutoDecoder`); decoder_results_ : Results, the decoder's trials; held_out_error_ :
        float, the mean of `held_out_`; error_with_one_more_component_ : float, an estimate to compare with `error`, or
        NaN if one more component is not expected to help; on_edge_ : list of str, the parameters at the boundary of the
        search range.

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
    An encoder is fitted without some samples, and then encodes them. It is discarded if its error is twice the best
    after two turns, or if its kernel separates the samples into parts. Then widths and numbers of neighbours near the
    best are tried, twice. If there are more than 1000 samples, 1000 random ones select the encoder.

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
    n_samples = Parameter(int, low=4, words=(None,)).check(n_samples, "n_samples")
    if hasattr(snapshots, "rechunk") or (n_samples is not None and n_samples < np.shape(snapshots)[0]):
        return _of_samples(**locals())
    check_samples(snapshots=snapshots, groups=groups)
    rows, layout = flattened(snapshots, "snapshots")
    F = as_array(rows, "snapshots", min_rows=4)
    Parameter(int, low=1, words=("auto",)).check(n_components, "n_components")
    Parameter(int, low=1, words=(None,)).check(max_components, "max_components")
    if max_components is not None and n_components != "auto":
        raise ValueError(f'max_components goes with n_components="auto", got n_components={n_components!r}')
    check = Parameter(int, low=0, high=MOST_STEPS, words=("auto",)).check
    n_steps = {"projection": check(projection, "projection"), "consistency": check(consistency, "consistency")}
    labels = check_groups(groups, len(F))
    if model is not None and not isinstance(model, ManifoldModel):
        raise TypeError(f"model must be a ManifoldModel or None, got {model!r}")
    rng = check_random_state(0 if random_state is None else random_state)
    weights = norm_weights(layout, cell_weights, model)
    families = check_families(families)
    searched = {"n_trials": n_trials, "families": families, "validation": validation, "random_state": random_state}
    kept = {"invariants": invariants, "invariant_values": invariant_values, "invariant_tol": invariant_tol}
    decoder = AutoDecoder(**searched, **kept, cell_weights=weights, bounds=bounds)
    check_parameters(decoder)
    search = _EncoderSearch(F, labels, decoder, alpha, rng, n_steps["projection"], encoders)
    table, more, edges, sample = None, np.nan, list[str](), Sample(F, weights)
    with search_threads(len(F)), stage(1, 3):
        if model is None:
            best = search.best(n_components, max_components)
            encoder, table = best.encoder, Results.of(search.trials.values(), [best], _row)
            n_steps["projection"] = best.projection
            by_spectrum = n_components == "auto" and max_components is None
            asked = by_spectrum and encoder.n_components == table.n_components.max()
            # errors between neighbours mislead
            if asked and (labels is not None or trajectories_in_words(sample) is None):
                more = search.one_more(best) * best.error
            widths = _WIDTHS["leading"]
            if isinstance(encoder, DiffusionMaps) and not min(widths) < encoder.epsilon_scale < max(widths):
                edges.append("epsilon_scale")
        else:
            encoder = model.encoder
        n_steps = search.numbers_of_steps(encoder, n_steps)
    # the search fitted the encoder to parts of the samples: the model has a fit to all
    whole = ManifoldModel(encoder, decoder, **n_steps)
    best_model, found = _without_search(whole, snapshots, groups, 2 + (model is None)), whole.decoder_
    for text in cautions_in_words(best_model, sample, groups):
        warn_caller(text)
    return Bunch(
        best_model_=best_model,
        results_=table,
        decoder_results_=found.results_,
        held_out_error_=best_model.held_out_.mean,
        error_with_one_more_component_=more,
        on_edge_=found.on_edge_ + edges,
    )


def _without_search(whole: ManifoldModel, snapshots: Any, groups: Any, n_stages: int) -> Any:
    """The model with the decoder that a search in the fit of `whole` finds; the last two stages of a search."""
    with stage(n_stages - 1, n_stages):
        fitted_parts(whole, snapshots, groups)
    found, steps_of = whole.decoder_.best_decoder_, {name: getattr(whole, name) for name in _STEPS}
    model = ManifoldModel(clone(whole.encoder_), clone(found), **steps_of)
    assembled(model, snapshots, whole.encoder_, found)
    # a new search finds the decoder without the held-out samples
    with stage(n_stages, n_stages):
        model.held_out_ = judged(model, held_out_errors(whole, snapshots, groups=groups), snapshots)
    return model


def _of_samples(snapshots: Any, n_samples: int | None, groups: Any, families: Any, **options: Any) -> Bunch:
    """What `autotune` finds for some of the snapshots, fitted to all."""
    lazy = hasattr(snapshots, "rechunk")
    snapshots = distributed.dask_fields(snapshots) if lazy else snapshots
    n = len(snapshots)
    check_samples(snapshots=None if lazy else snapshots, groups=groups)
    labels = check_groups(groups, n)
    order = np.arange(n) if labels is None else np.argsort(labels, kind="stable")  # by groups
    chosen = np.sort(order[distributed.one_of_each(n, n_samples)])
    if lazy:
        sample = snapshots[chosen].compute()
    else:
        rows, layout = flattened(snapshots, "snapshots")
        sample = layout.restored(taken(rows, chosen, "snapshots").astype(rows.dtype, copy=False))
    labels = None if labels is None else labels[chosen]
    families = mergeable_families(families) if lazy else families
    found = autotune(sample, groups=labels, families=families, **options)
    model, encoder = found.best_model_, found.best_model_.encoder_
    kept = {name: options[name] for name in ("invariant_values", "invariant_tol", "bounds")}
    kept |= {name: getattr(model.decoder_, name) for name in ("invariants", "cell_weights")}
    best = ManifoldModel(clone(encoder), encoder_samples=len(chosen), **{name: getattr(model, name) for name in _STEPS})
    if lazy:
        best.decoder = for_batches(model.decoder_, 1.0, kept)
        held_out = held_out_errors(best, sample, groups=labels)
        best.decoder = for_batches(model.decoder_, n / len(chosen), kept)
        distributed.with_encoder(best, encoder, sample, snapshots)
        held_out = judged(best, held_out, sample)
    else:
        searched = {name: options[name] for name in ("n_trials", "validation", "random_state")}
        whole = decoder_for(ManifoldModel(encoder, AutoDecoder(families=families, **searched, **kept)), encoder)
        whole.fit(np.asarray(encoded(encoder, rows)), reshape_for(whole, rows, layout), groups)
        best.decoder, held_out = clone(whole.best_decoder_), model.held_out_
        assembled(best, snapshots, encoder, whole.best_decoder_)
        edges = [name for name in found.on_edge_ if name == "epsilon_scale"]
        found.update(decoder_results_=whole.results_, on_edge_=whole.on_edge_ + edges)
    best.held_out_ = replace(held_out, rows=chosen[held_out.rows], n_snapshots=n)
    found.update(best_model_=best, held_out_error_=best.held_out_.mean)
    return found


def chosen_encoder(
    snapshots: NDArray[np.float64], n_components: int, *, alpha: float = 1.0, groups: ArrayLike | None = None
) -> Any:
    """The encoder, not fitted, that `autotune` chooses for n_components latents and decoders of all families."""
    F = as_array(snapshots, "snapshots", min_rows=4)
    labels = check_groups(groups, len(F))
    with search_threads(len(F)):
        search = _EncoderSearch(F, labels, AutoDecoder(families=FAMILIES), alpha, check_random_state(0), 0)
        return search.best(n_components, None).encoder


@dataclass(eq=False)
class _EncoderTrial:
    """An encoder, not fitted, with its errors at each number of steps of projection, (k, n), NaN if not judged; the
    number, score and mean error of the best."""

    encoder: Any
    errors: NDArray[np.float64]
    projection: int = 0
    score: float = np.inf
    error: float = np.nan


def _row(trial: _EncoderTrial) -> dict[str, Any]:
    """A trial in the table of results."""
    encoder = trial.encoder
    return {
        "encoder": type(encoder).__name__,
        "n_components": encoder.n_components,
        "epsilon_scale": getattr(encoder, "epsilon_scale", np.nan),
        "select": getattr(encoder, "select", ""),
        "n_neighbors": getattr(encoder, "n_neighbors", None) or 0,
        "projection": trial.projection,
        "error": trial.error,
        "score": trial.score,
    }


class _EncoderSearch:
    """The search for an encoder by cross-validation, on at most 1000 of the samples; decoders are like the one given.
    `projection` is the number of steps, or "auto"."""

    def __init__(
        self,
        F: Any,
        labels: Any,
        decoder: AutoDecoder,
        alpha: float,
        rng: Any,
        projection: int | str,
        classes: str | Iterable[str] | None = None,
    ) -> None:
        self._classes = _ENCODERS if classes is None else (classes,) if isinstance(classes, str) else tuple(classes)
        if not self._classes or set(self._classes) - set(_ENCODERS):
            known = ", ".join(map(repr, _ENCODERS))
            raise ValueError(f"encoders must be among {known}, or None for all, got {classes!r}")
        if len(F) > 1000:  # documented; the time of a comparison grows with the cube
            rows = np.sort(rng.permutation(len(F))[:1000])
            F, labels = F[rows], None if labels is None else np.unique(labels[rows], return_inverse=True)[1]
        self._fields, self._labels, self._alpha = F, labels, alpha
        self._projections: Sequence[Any] = _STEPS["projection"] if projection == "auto" else (projection,)
        self._weights: Any = decoder.cell_weights
        self._sizes = field_norms(F, cell_weights=self._weights)
        allowed: Any = decoder.families
        compared = [family for family in allowed if family in _COMPARED] or allowed
        self._options = {"n_trials": min(decoder.n_trials, 4), "families": compared}  # one trial for each compared
        self._folds = _folds(len(F), labels, decoder.validation, rng)
        self._groups = self._folds if labels is None else [np.flatnonzero(labels == g) for g in np.unique(labels)]
        self.trials: dict[str, _EncoderTrial] = {}  # by the encoder's representation

    def best(self, n_components: int | str, max_components: int | None) -> _EncoderTrial:
        """The trial of the encoder to take."""
        d: Any = n_components
        if d == "auto":
            most = max_components or estimate_n_components(self._fields, cell_weights=self._weights)
            d = max(1, min(most, len(self._fields) // _PER_COMPONENT))
        if not (encoders := self._encoders(d)):
            n, given = len(self._fields), " or ".join(self._classes)
            raise ValueError(f"{n} snapshots are too few for {given} with {d} coordinates: allow other encoders")
        best = leading(self._judge(encoders))[0]
        for _ in range(2):  # documented: two rounds reach half and twice the best width
            self._judge(_beside(best.encoder), "widths of the encoder")
            best, before = leading(self.trials.values())[0], best
            if best is before:
                break
        while n_components == "auto" and best.encoder.n_components > 1:
            fewer = leading(self._judge(self._encoders(best.encoder.n_components - 1)))[0]
            if fewer.score > best.score + np.log(1.02):  # documented: a coordinate must gain 2 %
                break
            best = fewer
        return best

    def one_more(self, best: _EncoderTrial) -> float:
        """About the least error of encoders with one coordinate more, relative to the best encoder's, on the first two
        turns. NaN if the best error needs no improvement, if a search with max_components would not
        try so many coordinates, or if none can be fitted."""
        good, d = 0.01, best.encoder.n_components + 1
        if best.error <= good or d * _PER_COMPONENT > len(self._fields):
            return np.nan
        width = getattr(best.encoder, "epsilon_scale", 1.0)
        turns, errors, numbers = self._folds[:2], [], (best.projection,)
        # kernels so narrow that they order the fields along one coordinate hide a second one
        wider = (width, *(w for w in _WIDTHS["leading"] if w > width))
        others = {"leading": wider, "non-harmonic": _WIDTHS["non-harmonic"][:1]}
        encoders = self._encoders(d, others, (getattr(best.encoder, "n_neighbors", None) or _NEIGHBORS[0],))
        for _, encoder in zip(steps(len(encoders), 1, "one coordinate more"), encoders, strict=True):
            with suppress(*_FAILURES):
                missed = [self._errors_at("projection", numbers, self._model_of(encoder, held), held) for held in turns]
                errors.append(np.concatenate(missed, axis=1).mean())
        # the ratio is taken on the same samples: two turns may be more difficult than the others
        known = best.errors[self._projections.index(best.projection), np.concatenate(turns)].mean()
        return float(min(errors) / known) if errors else np.nan

    def numbers_of_steps(self, encoder: Any, asked: dict[str, Any]) -> dict[str, int]:
        """For "auto" the number of steps with the best score, or fewer if more hardly help; and the others."""
        chosen = {name: 0 if number == "auto" else number for name, number in asked.items()}
        for name in [name for name, number in asked.items() if number == "auto"]:
            errors = np.full((len(_STEPS[name]), len(self._fields)), np.nan)
            for held in self._folds:
                with suppress(*_FAILURES):  # the encoder may need more samples
                    model = self._model_of(encoder, held, strict=False).set_params(**chosen)
                    errors[:, held] = self._errors_at(name, _STEPS[name], model, held)
            chosen[name] = _STEPS[name][self._best(errors, self._folds)[1]]
        return chosen

    def _encoders(
        self, d: int, widths: dict[str, tuple[float, ...]] = _WIDTHS, neighbors: tuple[int, ...] = _NEIGHBORS
    ) -> list[Any]:
        encoders: list[Any] = [
            DiffusionMaps(d, alpha=self._alpha, epsilon_scale=width, select=select)
            for select, values in widths.items()
            if select == "leading" or d > 1  # the first eigenvector is no harmonic
            for width in values
        ]
        if d < min(self._fields.shape):
            encoders.append(POD(d, invariants=None))  # this encoder does not decode
        encoders += [Isomap(d, n_neighbors=k) for k in neighbors if 4 * k <= len(self._fields)]
        return [encoder for encoder in encoders if type(encoder).__name__ in self._classes]

    def _judge(self, encoders: list[Any], what: str = "encoders") -> list[_EncoderTrial]:
        """Trials of the encoders that are new; those far behind the best so far are given up, without a score."""
        first, n = not self.trials, len(self._fields)
        unknown = np.full((len(self._projections), n), np.nan)
        new = {repr(e): _EncoderTrial(e, unknown.copy()) for e in encoders if repr(e) not in self.trials}
        if not new:
            return []
        self.trials |= new
        alive, scores = list(new), dict[str, tuple[float, int]]()
        failures, done = list[Exception](), list[NDArray[np.intp]]()
        bar = steps(len(self._folds) * len(new), 1, f"{what} (d = {encoders[0].n_components})")
        for held in self._folds:
            before, alive = alive, []
            for name in before:
                next(bar)
                try:
                    model = self._model_of(new[name].encoder, held)
                    new[name].errors[:, held] = self._errors_at("projection", self._projections, model, held)
                    alive.append(name)
                except _FAILURES as failure:
                    failures.append(failure)
            if first and not alive and self._labels is not None:  # the samples outside these groups are too few
                alive = before
                continue
            done.append(held)
            # on the samples held out so far, on which all encoders that are left were judged
            scores = {name: self._best(trial.errors, done) for name, trial in self.trials.items()}
            if len(done) > 1:  # documented: twice the error of the best encoder is hopeless
                alive = [name for name in alive if scores[name][0] <= min(scores.values())[0] + np.log(2)]
        for _ in bar:
            pass
        if first and not done and self._labels is not None:
            raise _too_few_outside(self._labels) from failures[0]
        if first and not alive:
            raise failures[0]
        self._folds = done if first else self._folds
        for name in alive:
            trial, (trial.score, at) = new[name], scores[name]
            trial.projection, trial.error = self._projections[at], float(np.nanmean(trial.errors[at]))
        return list(new.values())

    def _model_of(self, encoder, held, *, strict=True):
        """A model of the encoder, fitted without the held-out samples; `strict`: ValueError if it is unusable."""
        rest = np.setdiff1d(np.arange(len(self._fields)), held)
        F, known = self._fields[rest], None if self._labels is None else self._labels[rest]
        decoder = AutoDecoder(invariants=None, cell_weights=self._weights, random_state=0, **self._options)
        model = ManifoldModel(encoder, decoder)
        with warnings.catch_warnings():
            # of a kernel so narrow that the samples fall apart
            warnings.simplefilter("error" if strict else "ignore", UserWarning)
            fitted, latents = fitted_encoder(model, F)
        if strict and getattr(encoder, "select", None) == "non-harmonic":
            also_leading = repr(clone(encoder).set_params(select="leading"))
            if also_leading in self.trials and fitted.selected_[-1] == fitted.n_components:
                raise ValueError("the non-harmonic eigenvectors are the leading ones, which are tried as such")
        if known is not None and len(np.unique(known)) < 2:
            known = None  # a search needs two groups at least
        decoder.fit(np.asarray(latents), F, groups=known)
        return assembled(model, F, fitted, decoder)

    def _errors_at(self, name, numbers, model, held):
        """Errors of the samples held out (k, len(held)), with these numbers of steps of that name."""
        F, errors = self._fields[held], []
        for number in numbers:
            model.set_params(**{name: number})
            with extrapolation_ignored():
                missed = F - model.inverse_transform(model.transform(F))
            errors.append(bounded_errors(in_norm(missed, self._weights), error_scales(self._sizes[held])))
        return np.array(errors)

    def _best(self, errors, folds):
        """The best score of errors (k, n) on the samples of these folds, and the first row that has it."""
        rows = np.concatenate(folds)
        parts = [part for group in self._groups if len(part := np.flatnonzero(np.isin(rows, group)))]
        # infinite unless all samples have errors
        scores = [score_of(row[rows], parts) if np.isfinite(row[rows]).all() else np.inf for row in errors]
        return min(scores), next(i for i, score in enumerate(scores) if score <= min(scores) + WORTH)


def _beside(encoder: Any) -> list[Any]:
    """Diffusion maps with larger and smaller widths, and with the other choice of eigenvectors; Isomap with more and
    fewer neighbours."""
    proposals: list[dict[str, Any]] = []
    if isinstance(encoder, Isomap):
        k = encoder.n_neighbors
        proposals += [{"n_neighbors": round(count)} for count in (k / 1.4, k * 1.4)]  # half a step of 2
    elif isinstance(encoder, DiffusionMaps):
        width = encoder.epsilon_scale
        proposals += [{"epsilon_scale": w} for w in (width / 1.4, width * 1.4)]
        if encoder.n_components > 1:
            proposals.append({"select": "leading" if encoder.select == "non-harmonic" else "non-harmonic"})
    return [clone(encoder).set_params(**proposal) for proposal in proposals]


def _folds(n: int, labels: NDArray[np.intp] | None, validation: float, rng: Any) -> Sequence[NDArray[np.intp]]:
    """Disjoint parts of about that share of the samples; with groups (0, 1, ...) of one, or of a tenth of them."""
    if labels is None:
        size, order = min(max(1, round(validation * n)), n - 2), rng.permutation(n)
        return [np.sort(order[i * size : (i + 1) * size]) for i in range(min(5, n // size))]  # documented
    names = rng.permutation(labels.max() + 1)
    parts = [np.flatnonzero(np.isin(labels, part)) for part in np.array_split(names, min(len(names), 10))]  # documented
    if not (usable := [held for held in parts if n - len(held) >= 4]):  # a model of fewer samples is not meaningful
        raise _too_few_outside(labels)
    return usable


def _too_few_outside(labels: NDArray[np.intp]) -> ValueError:
    sizes = ", ".join(map(str, np.bincount(labels)[:6]))
    return ValueError(
        f"groups: none of them (of sizes {sizes}) leaves enough samples to fit an encoder to the others. Give more or "
        "smaller groups, or fewer n_components"
    )


# -- In words ---------------------------------------------------------------------------------------
def advised_components(result: Bunch) -> int | None:
    """One more latent coordinate than `autotune` found, if that lowers the search's error much; else None."""
    table, more, much = result.results_, result.error_with_one_more_component_, 0.7  # the estimate uses two folds only
    if np.isnan(more) or more >= much * table.error[table.chosen].item():
        return None
    return int(result.best_model_.encoder_.n_components) + 1


def search_summary(result: Bunch) -> list[str]:
    """Describe the encoder, the decoders and the error that `autotune` found.

    Parameters
    ----------
    result : Bunch
        What `autotune` returned, without a `model` of its caller.

    Returns
    -------
    list of str
        Lines to print.

    Raises
    ------
    AttributeError
        If the result is none of `autotune`.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 40)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)]) ** 2
    >>> result = randsmap.autotune(arc, n_components=1, n_trials=10, random_state=0)
    >>> randsmap.tuning.search_summary(result)[-1].startswith("cross-validation error ")
    True
    """
    table = result.decoder_results_
    decoders = [_decoder_in_words(table, i) for i in table.chosen.nonzero()[0]]
    return [
        f"encoder: {encoder_in_words(result.best_model_.encoder_)}",
        f"decoder: {decoders[0] if len(decoders) == 1 else f'the median of {len(decoders)}:'}",
        *(f"  {text}" for text in decoders if len(decoders) > 1),
        result.best_model_.held_out_.in_words,
    ]


def encoder_in_words(encoder: Any) -> str:
    d = len(encoder.get_feature_names_out())
    if isinstance(encoder, Isomap):
        return f"Isomap, {encoder.n_neighbors} neighbour{_plural(encoder.n_neighbors)}"
    if not hasattr(encoder, "selected_"):
        return f"{type(encoder).__name__}, {d} mode{_plural(d)}"
    modes = ", ".join(map(str, encoder.selected_))
    width = f"epsilon {encoder.epsilon_:.4g} ({encoder.epsilon_scale:.3g} times the median distance)"
    return f"diffusion maps, {width}, eigenvector{_plural(d)} {modes}"


def _decoder_in_words(table: Bunch, i: int) -> str:
    """Trial i of the search for decoders."""
    lengths = [table[name][i] for name in table if name.startswith("length_scale_")]
    details = [f"nu {table.nu[i]:g}"] if np.isfinite(table.nu[i]) else []
    details.append(f"length scale{_plural(len(lengths))} " + ", ".join(f"{x:.3g}" for x in lengths))
    if np.isfinite(table.regularization[i]):
        details.append(f"regularization {table.regularization[i]:.2g}")
    if table.n_neighbors[i]:
        details.append(f"{table.n_neighbors[i]} neighbour{_plural(table.n_neighbors[i])}")
    return f"{table.family[i]} ({'; '.join(details)})"


def _plural(count: int) -> str:
    return "" if count == 1 else "s"
