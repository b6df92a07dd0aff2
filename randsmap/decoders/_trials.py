"""The search for decoders by held-out errors, and the blend of the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._io.progress import steps
from randsmap._parallel import blas_threads
from randsmap.decoders._blended import geometric_median, limited, linear_trend, median_smoothing
from randsmap.decoders._families import GAUSSIAN, KNN, MATERN, THIN_PLATE, Trial, starts_of
from randsmap.decoders._held_out import Samples, bounded_errors, score_of

_Values = NDArray[np.float64]

_ALWAYS_REFINED = (THIN_PLATE, GAUSSIAN, MATERN)  # families that are refined although others are better
_LARGEST = 12  # decoders in the blend, at most
WORTH = 0.01  # improvement of the score, about as much of the error, for which a larger blend is taken


def unknown(proposals: Iterable[Any], judged: Iterable[Any]) -> list[Any]:
    """The proposals that differ from all candidates that were judged, by their `identity`."""
    known = {candidate.identity for candidate in judged}
    return [proposal for proposal in proposals if proposal.identity not in known]


def search_threads(n: int) -> AbstractContextManager[None]:
    """One thread of BLAS for a search over n samples, unless they are many.

    Factorisations of small matrices, one after the other, take five to ten times as long on threads that wait for
    each other (measured on 58 fields with two cores).
    """
    serial = 700  # samples up to which more threads only cost time
    return blas_threads(1 if n < serial else None)


def search(samples: Samples, n_trials: int, families: Sequence[str]) -> list[Trial]:
    """Members in the order judged: starts of all families, one family a trial, then scales around the best few.

    The leading members of the best families are refined in turn, each coordinate's length scale and all together, by
    a factor that is halved in the logarithm once all neighbours are known. Each number of neighbours of the first k-NN
    mixture is a trial of its own.
    """
    found: list[Trial] = []
    starts = iter(starts_of(families, samples.X.shape[1]))
    # steps of the scales' logarithms: from a factor 2.5 down to 1.1, below which held-out errors hardly change
    step, finest, turn = np.log(2.5), 0.1, 0
    for _ in steps(n_trials, 1, "tuning"):
        proposals = next(starts, [])
        if not proposals:
            while not proposals and step >= finest:
                proposals = _refinement(found, turn, step)
                step = step if proposals else step / 2
            turn += 1
        found += [trial for proposal in unknown(proposals, found) for trial in _best_of_path(samples, proposal)]
        for trial in leading(found)[_LARGEST:]:
            trial.residuals = None  # memory: the blend takes those of the best alone
    return found


def _best_of_path(samples, proposal):
    """The best trial of a path of lambdas or ranks; of k-NN mixtures all trials."""
    path: list[Trial] = []
    for trial, residuals in samples.path(proposal):
        path.append(samples.judge(trial, residuals))
        if proposal.family != KNN:
            path = leading(path)[:1]
    return path


def leading(trials: list[Any]) -> list[Any]:
    """Trials by their score; of equal ones the first is the better."""
    return sorted(trials, key=lambda trial: trial.score)


def _refinement(found, turn, step):
    """The next unknown neighbour of the best member of the leading families, or none.

    Families that are not `_ALWAYS_REFINED` are refined only if they are the best, k-NN mixtures only if all are: their
    scales follow the noise of few samples (on 58 fields the error grew by 1.4 times).
    """
    ranked = [trial for trial in leading(found) if np.isfinite(trial.score)]
    others = [trial for trial in ranked if trial.family != KNN]
    best: dict[Any, Trial] = {}
    for trial in others or ranked:
        if not best or trial.family in _ALWAYS_REFINED:
            best.setdefault(trial.kind, trial)
    ranked = list(best.values())
    first = turn % 3  # the best three families are refined in turn
    for trial in ranked[first:] + ranked[:first]:
        proposals = unknown(trial.neighbors(step), found)
        if proposals:
            return proposals[:1]
    return []


def candidates(samples: Samples, trials: list[Trial]) -> list[Trial]:
    """The trials that may become parts of the blend, the best first.

    Groups are few, and their errors hardly distinguish similar decoders. So at most 3 members of a family are taken
    then, which makes the parts differ, except for k-NN mixtures, which cannot fail far from their data, and none whose
    score is more than 2 behind the best (errors e^2 = 7 times as large).
    """
    kindred, behind = 3, 2.0
    best = leading(trials)
    if samples.groups is None:
        return best[:_LARGEST]
    taken: dict[Any, int] = {}
    chosen = []
    for trial in best:
        taken[trial.kind] = taken.get(trial.kind, 0) + 1
        close = trial.score <= best[0].score + behind
        if close and (trial.family == KNN or taken[trial.kind] <= kindred):
            chosen.append(trial)
    return chosen[:_LARGEST]


def blend(samples: Samples, members: list[Trial]) -> tuple[list[Trial], float, float]:
    """The leading candidates whose blend has the best score, few if more hardly help; its mean error and its limit.

    With groups all of them: the few errors do not determine which blend is best. The limit exceeds the largest distance
    of a field from that of its nearest neighbour (outside its group), moved along the linear trend, by a factor: the
    smaller one with groups, whose nearest neighbours are as far as those of new fields.
    """
    X, G, nearest = samples.X, samples.G, samples.nearest()
    trend = linear_trend(X, G)
    rest = G - X @ trend
    factor = 2.0 if samples.groups is None else 1.25
    limit = factor * float(np.linalg.norm(rest - rest[nearest], axis=1).max())

    residuals = [samples.residuals(t) if t.residuals is None else t.residuals for t in members]
    P = limited(np.stack([G - r for r in residuals]), G[nearest] + (X - X[nearest]) @ trend, limit)
    sizes = [len(members)]
    if samples.groups is None:
        sizes = [size for size in (1, 3, 5, 8) if size < len(members)] + sizes
    errors = [bounded_errors(G - geometric_median(P[:size], median_smoothing(G)), samples.norms) for size in sizes]
    scores = [score_of(e, samples.parts) for e in errors]
    chosen = next(i for i, score in enumerate(scores) if score <= min(scores) + WORTH)
    return members[: sizes[chosen]], float(errors[chosen].mean()), limit
