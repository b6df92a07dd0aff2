"""The model, encoder and decoder, that held-out errors choose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Bunch

from randsmap._progress import steps
from randsmap._validation import check_count, check_matrix, check_number, check_random_state
from randsmap.decoders._extrapolation import extrapolation_ignored
from randsmap.encoders import POD, DiffusionMaps
from randsmap.metrics import squarable_norms
from randsmap.model import ManifoldModel
from randsmap.tuning._auto import AutoDecoder, Results
from randsmap.tuning._families import check_families
from randsmap.tuning._held_out import Scores, check_groups
from randsmap.tuning._trials import search_threads

__all__ = ["autotune"]

_WIDTHS = (1.0, 0.5, 0.3, 0.2, 2.0, 4.0)  # epsilon_scale
_NON_HARMONIC = (1.0, 0.3)  # of encoders that choose among eigenvectors
_FOLDS = 5, 10  # without and with groups, at most
_TRIALS = 12  # of decoders, for each encoder and fold
_SAMPLES = 1000  # that encoders are compared on
_HOPELESS = np.log(4)  # behind the best encoder after two folds: not tried on the next ones


def autotune(
    snapshots: ArrayLike,
    *,
    model: ManifoldModel | None = None,
    n_components: int = 2,
    groups: ArrayLike | None = None,
    validation: float = 0.2,
    n_trials: int = 40,
    families: str | Iterable[str] | None = None,
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
    snapshots : array-like of shape (n, M)
        Fields, one a row.
    model : ManifoldModel or None
        Its encoder is used as it is configured, and only the decoder is searched for. None: the encoder too, among
        diffusion maps of several widths, with the leading or the non-harmonic eigenvectors, and POD.
    n_components : int, default=2
        d, the number of latent coordinates. Not used with a model.
    groups : array-like of shape (n,) or None
        Labels of groups, such as trajectories, that are held out as a whole.
    validation : float, default=0.2
        Share of the samples that an encoder does not see and is judged on, in turn, up to 5 times. With groups it is
        one group, up to 10 times, or a tenth of them if there are more. For the decoder as in `AutoDecoder`.
    n_trials : int, default=40
        Trials of the decoder's search on the latents of the encoder chosen; encoders are compared with 12.
    families : str, sequence of str, or None, default=None
        The families of decoders, as in `AutoDecoder`.
    invariants : "auto", "mass", array (M,) or (M, q), or None, default="auto"
        As in `AutoDecoder`; so are the next four.
    invariant_values : float, array (q,) or None
    invariant_tol : float or None
    cell_weights : array (M,) or None
    bounds : (lower, upper), "nonnegative" or None
    random_state : int, RandomState instance or None, default=None
        For what is held out. None: 0.

    Returns
    -------
    Bunch
        best_model_ : ManifoldModel, fitted on all snapshots; results_ : Results, a table of the encoders, one array a
        column: `encoder`, `epsilon_scale`, `select`, `error` (mean held-out error, NaN where the encoder failed),
        `score` (see `AutoDecoder`), `chosen`; decoder_results_ : Results, of the decoder's trials; held_out_error_ :
        float, the chosen encoder's (without a search for encoders that of the decoder); on_edge_ : list of str, what
        lies on an edge of what was searched.

    Raises
    ------
    ValueError, TypeError
        If the snapshots are not a finite array (n, M), a parameter is out of range, or every encoder fails (the error
        of the first is raised).

    Notes
    -----
    An encoder is fitted without the samples that are held out, which it then encodes as new ones: leave-one-out errors
    given the latents would not show what the held-out fields did to those. An encoder that after two turns is four
    times worse than the best is given up. Of more than 1000 samples, 1000 at random choose the encoder.

    References
    ----------
    C. J. Dsilva et al., Parsimonious representation of nonlinear dynamical systems through manifold learning, Appl.
    Comput. Harmon. Anal. 44 (2018).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 40)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)]) ** 2
    >>> result = randsmap.autotune(arc, n_components=1, n_trials=10, random_state=0)
    >>> result.best_model_.score(arc) > -0.01
    True
    """
    F = check_matrix(snapshots, "snapshots", min_rows=4)
    sizes = squarable_norms(F)
    families = check_families(families)
    check_count(n_components, "n_components")
    check_count(n_trials, "n_trials")
    check_number(validation, "validation", low=0, high=1, strict_low=True)
    labels = check_groups(groups, len(F))
    if model is not None and not isinstance(model, ManifoldModel):
        raise TypeError(f"model must be a ManifoldModel or None, got {model!r}")
    seed = 0 if random_state is None else random_state
    rng = check_random_state(seed)
    table, error = None, None
    if model is None:
        encoders = _encoders(n_components, F.shape)
        with search_threads(len(F)):
            scores, errors = _compare(encoders, F, sizes, labels, validation, min(n_trials, _TRIALS), families, rng)
        best = int(np.argmin(scores))
        encoder, error = encoders[best], float(errors[best])
        table = _table(encoders, scores, errors, best)
    else:
        encoder = model.encoder
    fitted = clone(encoder)
    latents = np.asarray(fitted.fit_transform(F))
    decoder = AutoDecoder(
        n_trials=n_trials,
        families=families,
        validation=validation,
        invariants=invariants,
        invariant_values=invariant_values,
        invariant_tol=invariant_tol,
        cell_weights=cell_weights,
        bounds=bounds,
        random_state=random_state,
    ).fit(latents, snapshots, groups=groups)
    best_model = ManifoldModel(clone(encoder), clone(decoder.best_decoder_))._assemble(F, fitted, decoder.best_decoder_)
    return Bunch(
        best_model_=best_model,
        results_=table,
        decoder_results_=decoder.results_,
        held_out_error_=decoder.held_out_error_ if error is None else error,
        on_edge_=decoder.on_edge_ + _edges(encoder, model),
    )


def _encoders(d: int, shape: tuple[int, int]) -> list[Any]:
    encoders: list[Any] = [DiffusionMaps(d, epsilon_scale=width) for width in _WIDTHS]
    encoders += [DiffusionMaps(d, epsilon_scale=width, select="non-harmonic") for width in _NON_HARMONIC if d > 1]
    if d < min(shape):
        encoders.append(POD(d))
    return encoders


def _compare(encoders, F, sizes, labels, validation, n_trials, families, rng):
    """Scores and mean errors of encoders on samples, or groups, that they have not seen."""
    if len(F) > _SAMPLES:
        rows = np.sort(rng.permutation(len(F))[:_SAMPLES])
        F, sizes, labels = (
            F[rows],
            sizes[rows],
            None if labels is None else np.unique(labels[rows], return_inverse=True)[1],
        )
    folds = _folds(len(F), labels, validation, rng)
    groups = folds if labels is None else [np.flatnonzero(labels == g) for g in np.unique(labels)]
    errors = np.full((len(encoders), len(F)), np.nan)
    scores = np.zeros(len(encoders))
    failures: dict[int, Exception] = {}
    bar = steps(len(folds) * len(encoders), 1, "encoders")
    for turn, held in enumerate(folds):
        rest = np.setdiff1d(np.arange(len(F)), held)
        judged = np.concatenate(folds[: turn + 1])
        place = np.full(len(F), -1)
        place[judged] = np.arange(len(judged))
        parts = [place[g][place[g] >= 0] for g in groups]
        counts = Scores(sizes[judged], [part for part in parts if len(part)])
        best = scores.min()
        for i, encoder in enumerate(encoders):
            next(bar)
            if i in failures or (turn > 1 and scores[i] > best + _HOPELESS):
                scores[i] = np.inf
                continue
            try:
                missed = _missed(encoder, F, rest, held, labels, n_trials, families)
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as failure:
                failures[i], scores[i] = failure, np.inf
                continue
            errors[i, held] = Scores(sizes[held], [np.arange(len(held))]).errors(missed)
            scores[i] = counts.score(errors[i, judged])
    if len(failures) == len(encoders):
        raise failures[0]
    means = [np.nanmean(row) if np.isfinite(score) else np.nan for row, score in zip(errors, scores)]
    return scores, np.array(means)


def _missed(encoder, F, rest, held, labels, n_trials, families):
    """What fields decoded from the latents of `held` samples miss, encoder and decoder fitted to the `rest`."""
    encoder = clone(encoder)
    latents = np.asarray(encoder.fit_transform(F[rest]))
    known = None if labels is None else labels[rest]
    if known is not None and len(np.unique(known)) < 2:
        known = None
    decoder = AutoDecoder(n_trials=n_trials, families=families, invariants=None, random_state=0).fit(
        latents, F[rest], groups=known
    )
    with extrapolation_ignored():
        return F[held] - decoder.predict(np.asarray(encoder.transform(F[held])))


def _folds(n: int, labels: NDArray[np.intp] | None, validation: float, rng: Any) -> Sequence[NDArray[np.intp]]:
    """Disjoint parts of about that share of the samples; with groups (0, 1, ...) of one, or of a tenth of them."""
    if labels is None:
        size = min(max(1, round(validation * n)), n - 2)
        order = rng.permutation(n)
        return [np.sort(order[i * size : (i + 1) * size]) for i in range(min(_FOLDS[0], n // size))]
    names = rng.permutation(labels.max() + 1)
    count = min(len(names), _FOLDS[1])
    return [np.flatnonzero(np.isin(labels, part)) for part in np.array_split(names, count)]


def _table(encoders, scores, errors, best):
    maps = [isinstance(encoder, DiffusionMaps) for encoder in encoders]
    return Results(
        encoder=np.array([type(encoder).__name__ for encoder in encoders]),
        epsilon_scale=np.array([e.epsilon_scale if dm else np.nan for e, dm in zip(encoders, maps)]),
        select=np.array([e.select if dm else "" for e, dm in zip(encoders, maps)]),
        error=errors,
        score=scores,
        chosen=np.arange(len(encoders)) == best,
    )


def _edges(encoder, model):
    if model is not None or not isinstance(encoder, DiffusionMaps):
        return []
    return ["epsilon_scale"] if encoder.epsilon_scale in (min(_WIDTHS), max(_WIDTHS)) else []
