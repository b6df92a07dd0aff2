"""The search for decoders by held-out errors, and the blend of the best."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._io.progress import steps
from randsmap._parallel import blas_threads
from randsmap.decoders._blended import geometric_median, limited, linear_trend, median_smoothing
from randsmap.decoders._families import GAUSSIAN, KNN, MATERN, THIN_PLATE, Trial, starts_of
from randsmap.decoders._held_out import Samples

__all__ = ["WORTH", "blend", "candidates", "leading", "reach", "search", "search_threads"]

_Values = NDArray[np.float64]

_STEP, _FINEST = np.log(2.5), 0.1  # of length scales, in their logarithms
_USUAL = (THIN_PLATE, GAUSSIAN, MATERN)  # families that are refined although others are better
_LEADERS = 3  # families whose best members are refined in turn
_SIZES = (1, 3, 5, 8, 12)  # decoders in the blend
WORTH = 0.01  # improvement of the score, about as much of the error, for which a larger blend is taken
_KINDRED, _BEHIND = 3, 2.0  # with groups: members of one family, and how far behind the best score
_REACH = 2.0, 1.25  # without and with groups, of the largest distance between fields of neighbours: see `reach`
_SERIAL = 700  # samples up to which more threads only cost


def search_threads(n: int) -> AbstractContextManager[None]:
    """One thread of BLAS for a search over n samples, unless they are many.

    Factorisations of small matrices, one after the other, take five to ten times as long on threads that wait for
    each other (measured on 58 fields with two cores).
    """
    return blas_threads(1 if n < _SERIAL else None)


def search(samples: Samples, n_trials: int, families: Sequence[str]) -> list[Trial]:
    """Members in the order judged: starts of all families, one family a trial, then scales around the best few.

    The leading members of the best families are refined in turn, each coordinate's length scale and all together, by
    a factor that is halved in the logarithm once all neighbours are known. Of k-NN mixtures every number of neighbours
    of the first is a trial of its own.
    """
    trials: list[Trial] = []
    known: set[Any] = set()
    starts = iter(starts_of(families, samples.X.shape[1]))
    step, turn = _STEP, 0
    for _ in steps(n_trials, 1, "tuning"):
        proposals = next(starts, [])
        if not proposals:
            proposal = None
            while proposal is None and step >= _FINEST:
                proposal = _proposal(trials, turn, step, known)
                step = step / 2 if proposal is None else step
            turn += 1
            proposals = [] if proposal is None else [proposal]
        for proposal in proposals:
            known.add(proposal.identity)
            trials += _judged(samples, proposal)
            _forget(trials)
    return trials


def _judged(samples, proposal):
    """The best of its path; of k-NN mixtures all."""
    path: list[Trial] = []
    for trial, residuals in samples.path(proposal):
        path.append(samples.judge(trial, residuals))
        if proposal.family != KNN:
            path = leading(path)[:1]
    return path


def _forget(trials):
    """Drop the residuals of those that are not among the best: memory."""
    for trial in leading(trials)[max(_SIZES) :]:
        trial.residuals = None


def leading(trials: list[Trial]) -> list[Trial]:
    """Trials by their score; of equal ones the first is the better."""
    return sorted(trials, key=lambda trial: trial.score)


def _proposal(trials, turn, step, known):
    """The next unknown neighbour of the best member of the leading families, or None.

    Families other than `_USUAL` are refined only where they are the best of all, and k-NN mixtures only where there is
    nothing else: their scales follow the noise of few samples, and the error of one set of 58 fields grew by 1.4 times.
    """
    ranked = [trial for trial in leading(trials) if np.isfinite(trial.score)]
    others = [trial for trial in ranked if trial.family != KNN]
    best: dict[Any, Trial] = {}
    for trial in others or ranked:
        if not best or trial.family in _USUAL:
            best.setdefault(trial.kind, trial)
    ranked = list(best.values())
    first = turn % _LEADERS
    for trial in ranked[first:] + ranked[:first]:
        for proposal in trial.neighbors(step):
            if proposal.identity not in known:
                return proposal
    return None


def reach(samples: Samples) -> float:
    """How far a decoded field may be from that of the nearest training point, moved along the linear trend.

    A little more than the furthest that any training field is from that of its nearest neighbour (outside its group).
    """
    rest = samples.G - samples.X @ linear_trend(samples.X, samples.G)
    jumps = np.linalg.norm(rest - rest[samples.nearest()], axis=1)
    return _REACH[samples.groups is not None] * float(jumps.max())


def candidates(samples: Samples, trials: list[Trial]) -> list[Trial]:
    """The trials that may become parts of the blend, the best first.

    Groups are few, and their errors tell hardly which of similar decoders is best: at most 3 of a family then, so that
    the parts are of different kinds, but for k-NN mixtures, which cannot fail far from their data.
    """
    best = leading(trials)
    if samples.groups is None:
        return best[: max(_SIZES)]
    taken: dict[Any, int] = {}
    chosen = []
    for trial in best:
        taken[trial.kind] = taken.get(trial.kind, 0) + 1
        close = trial.score <= best[0].score + _BEHIND
        if close and (trial.family == KNN or taken[trial.kind] <= _KINDRED):
            chosen.append(trial)
    return chosen[: max(_SIZES)]


def blend(samples: Samples, members: list[Trial], limit: float) -> tuple[list[Trial], float]:
    """The leading candidates whose blend has the best score, few where more hardly help, and its mean error.

    With groups all of them: their few errors cannot tell which blend is best.
    """
    residuals = [samples.residuals(t) if t.residuals is None else t.residuals for t in members]
    nearest = samples.nearest()
    near = samples.G[nearest] + (samples.X - samples.X[nearest]) @ linear_trend(samples.X, samples.G)
    P = limited(np.stack([samples.G - r for r in residuals]), near, limit)
    smoothing = median_smoothing(samples.G)
    sizes = [size for size in _SIZES if size < len(members)] + [len(members)]
    errors = [
        samples.scores.errors(samples.G - geometric_median(P[:size], smoothing)[0])
        for size in (sizes if samples.groups is None else sizes[-1:])
    ]
    if samples.groups is not None:
        return members, float(errors[0].mean())
    scores = [samples.scores.score(e) for e in errors]
    chosen = next(i for i, score in enumerate(scores) if score <= min(scores) + WORTH)
    return members[: sizes[chosen]], float(errors[chosen].mean())
