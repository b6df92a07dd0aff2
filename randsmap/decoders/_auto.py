"""The decoder that a search over families of decoders finds, from cross-validation errors in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from randsmap import features as maps
from randsmap._interface.arrays import as_labels
from randsmap._interface.callers import extrapolation_ignored
from randsmap._interface.parameters import check_parameters, check_random_state, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Part
from randsmap._interface.texts import shared_texts
from randsmap._io.progress import steps
from randsmap._linalg.distances import Radial, polynomial_tail
from randsmap._linalg.dual import Dual
from randsmap._linalg.scales import error_scales, standard_deviations
from randsmap._linalg.spectral import PATH, lambda_path
from randsmap._linalg.svd import principal_coordinates
from randsmap._parallel import blas_threads
from randsmap.decoders._base import FIT_STATE, FieldRegressor, LinearDecoder, holding, of_fit, require
from randsmap.decoders._blended import BlendedDecoder, geometric_median, limited, linear_trend, median_smoothing
from randsmap.decoders._kernel import KERNELS, DoubleDiffusionMapsDecoder, KernelDecoder, folds_of, harmonic_residuals
from randsmap.decoders._knn import KNNDecoder
from randsmap.decoders._random_features import RANDSMAPDecoder, RFNNDecoder
from randsmap.invariants import InvariantParameters, norm_weights
from randsmap.maps.error_bar import members as members_of
from randsmap.maps.error_bar import nearest_other
from randsmap.metrics import field_norms

_Values = NDArray[np.float64]

SIGMOID, FOURIER, MULTISCALE_FOURIER, MATERN_FEATURES = "sigmoid", "fourier", "multiscale-fourier", "matern-features"
_MAPS: dict[str, Any] = {
    SIGMOID: maps.SigmoidFeatures,
    FOURIER: maps.FourierFeatures,
    MULTISCALE_FOURIER: maps.MultiscaleFourierFeatures,
    MATERN_FEATURES: maps.MaternFeatures,
}
GAUSSIAN, MULTI_GAUSSIAN, MATERN, THIN_PLATE = KERNELS
POLYNOMIAL, KNN, DOUBLE_DIFFUSION_MAPS = "polynomial", "k-nn", "double-diffusion-maps"
FAMILIES = (*_MAPS, POLYNOMIAL, *KERNELS, KNN, DOUBLE_DIFFUSION_MAPS)
_SCALE_FREE = (THIN_PLATE, KNN)  # a common factor of the scales changes nothing except lambda
LENGTHS = 0.02, 100.0  # the shortest and the longest length scale
_MOST_FEATURES = 2000  # as many as samples, at most
_EXACT = 8000  # samples up to which kernels are fitted exactly, in n^3 operations and n^2 numbers
_LOWEST_FREQUENCY = 0.0  # lowest frequency of the multi-Gaussian kernel; the highest is 1 over the scale of the trial

# start of a search: members of the families, in this order, as (nu, degree, length scale in standard deviations)
_STARTS: dict[str, tuple[tuple[float | None, int | None, float], ...]] = {
    KNN: ((None, None, 1.0),),
    THIN_PLATE: ((None, 1, 1.0),),
    GAUSSIAN: ((None, 1, 1.0), (None, 1, 3.0), (None, 1, 10.0), (None, 1, 0.3), (None, 0, 1.0)),
    MATERN: ((1.5, 1, 3.0), (2.5, 1, 3.0), (2.5, 1, 10.0), (1.5, 1, 1.0), (1.5, 1, 10.0), (1.5, 0, 3.0), (2.5, 0, 3.0)),
    POLYNOMIAL: ((None, 2, 1.0), (None, 3, 1.0), (None, 4, 1.0)),
    DOUBLE_DIFFUSION_MAPS: ((None, None, 1.0),),
    SIGMOID: ((None, 0, 0.3), (None, 0, 0.1), (None, 0, 1.0)),
    MULTI_GAUSSIAN: ((None, 0, 0.3),),
    FOURIER: ((None, 0, 1.0), (None, 0, 3.0)),
    MATERN_FEATURES: ((1.5, 0, 3.0), (2.5, 0, 3.0)),
    MULTISCALE_FOURIER: ((None, 0, 0.3),),
}


def check_families(
    families: str | Iterable[str] | None, name: str = "families", everything: str = "None"
) -> tuple[str, ...]:
    """The names of the families, each once; None: all. ValueError, which lists them, for others or none."""
    if families is None:
        return FAMILIES
    names = (families,) if isinstance(families, str) else tuple(families)
    wrong = [repr(family) for family in names if family not in FAMILIES] or ["none"] * (not names)
    if wrong:
        known = ", ".join(FAMILIES)
        raise ValueError(f"{name} names {wrong[0]}: it must be {everything} for all, or among {known}")
    return tuple(dict.fromkeys(names))


def starts_of(families: Sequence[str], d: int) -> list[list[Trial]]:
    """Where a search over these families for decoders of d latents starts: of each family its members."""
    return [
        [Trial(family, nu, degree, np.full(d, scale)) for nu, degree, scale in members]
        for family, members in _STARTS.items()
        if family in families
    ]


@dataclass
class Trial:
    """A member of a family with its scales, at the best lambda, number of neighbours or rank of the path."""

    family: str
    nu: float | None
    degree: int | None
    scales: _Values  # in standard deviations of the latents
    value: float = np.nan  # lambda over the largest eigenvalue, k, or the rank
    strength: float = np.nan  # lambda per sample
    score: float = np.inf
    error: float = np.nan
    judged: int = 0  # number of samples of the score

    @property
    def kind(self) -> tuple[str, float | None, int | None]:
        """Key that trials share if they differ in their scales alone."""
        return self.family, self.nu, self.degree

    @cached_property
    def identity(self) -> Any:
        """Equal for trials that are the same except for that value."""
        logs = np.log(self.scales)
        logs -= logs[0] if self.family in _SCALE_FREE else 0
        return self.kind, tuple(np.round(logs, 3))

    def neighbors(self, step: float) -> list[Trial]:
        """Trials of the same kind whose scales, all or one of them, differ by a factor exp(+-step)."""
        d = len(self.scales)
        moves = [] if self.family in (*_SCALE_FREE, POLYNOMIAL) else [np.ones(d)]
        moves += list(np.eye(d)) if d > 1 and self.family != POLYNOMIAL else []
        lengths = [self.scales * np.exp(sign * step * move) for move in moves for sign in (1, -1)]
        found = [Trial(*self.kind, scales, self.value) for scales in lengths]
        return [t for t in found if LENGTHS[0] <= t.scales.min() and t.scales.max() <= LENGTHS[1]]

    def dual(self, X: _Values, seed: int) -> Dual:
        """The regression on latents X (n, d) in standard deviations; of random features the kernel is Phi Phi^T."""
        points, feature_map = X / self.scales, self._features(len(X), seed)
        if feature_map is None:
            kernel = Radial.named(self.family, self.nu, (_LOWEST_FREQUENCY, 1.0)).values(points)
            return Dual(kernel, polynomial_tail(points - points.mean(axis=0), self.degree or 0))
        Phi = feature_map.fit_transform(points)
        Phi -= Phi.mean(axis=0)
        with blas_threads():
            return Dual(Phi @ Phi.T, polynomial_tail(points, 0))

    def per_sample(self, n: int) -> float:
        """Growth of the kernel's eigenvalues, and so of lambda, with the number n of samples."""
        # products of P sigmoids grow with P; those of cosines, with the factor sqrt(2 / P), and of monomials do not
        return float(n * (min(n, _MOST_FEATURES) if self.family == SIGMOID else 1))

    def regularization(self, n: int) -> float:
        # the best lambda grows more slowly than the number of samples, so that it would be too large for many
        return self.strength * self.per_sample(min(n, _EXACT))

    def decoder(self, units: _Values, n: int, seed: int, of: int = 0) -> Any:
        """The decoder for n latents whose standard deviations are `units`, of so many if others are held out."""
        scales = self.scales * units
        if self.family == KNN:
            return KNNDecoder(int(self.value), latent_scale=scales)
        if self.family == DOUBLE_DIFFUSION_MAPS:
            return DoubleDiffusionMapsDecoder(epsilon=1.0, rank=int(self.value), latent_scale=scales)
        regularization, feature_map = self.regularization(n), self._features(n, seed)
        if feature_map is not None:
            return RFNNDecoder(feature_map, latent_scale=scales, regularization=regularization)
        options = {"degree": self.degree, "regularization": regularization, **self._smoothness}
        if max(n, of) > _EXACT:
            options["n_centers"] = 1500
        if self.family == MULTI_GAUSSIAN:
            return KernelDecoder(MULTI_GAUSSIAN, min_frequency=_LOWEST_FREQUENCY, latent_scale=scales, **options)
        return KernelDecoder(self.family, length_scale=scales, latent_scale=None, **options)

    def _features(self, n, seed):
        """The feature map for n samples, None if there is none."""
        if self.family == POLYNOMIAL:
            return maps.MonomialFeatures(self.degree)
        if self.family not in _MAPS:
            return None
        return _MAPS[self.family](n_features=min(n, _MOST_FEATURES), random_state=seed, **self._smoothness)

    _smoothness = property(lambda self: {} if self.nu is None else {"nu": self.nu})


# -- Cross-validation errors -------------------------------------------------------------------------------
_Groups = Sequence[NDArray[np.intp]]

# Families without lambda: the parameter that they have instead, and its candidates. Ranks 2, 3, 4, 6, 8, 12, ..., 1024
# grow by factors of at most 1.5.
COUNTED: dict[str, tuple[str, Sequence[int]]] = {
    KNN: ("n_neighbors", (1, 2, 3, 4, 5, 6, 8, 10, 12)),
    DOUBLE_DIFFUSION_MAPS: ("rank", [base << k for k in range(10) for base in (2, 3)][:-1]),
}


def bounded_errors(residuals: _Values, scales: _Values) -> _Values:
    """L2 errors (n,) over the `error_scales` of the fields; at most 1."""
    errors = np.linalg.norm(residuals, axis=1) / scales
    return np.where(errors < 1, errors, 1.0)


def score_of(errors: _Values, parts: _Groups) -> float:
    """Mean of the logarithm of the mean error and of the mean over parts of the logarithm of a part's mean error. The
    first is what is wanted; the second is not ruled by the one group of samples that no candidate decodes."""
    means = np.array([errors[part].mean() for part in parts])
    floor = 1e-12  # errors below it are round-off and count as equal
    return float(0.5 * np.log(errors.mean() + floor) + 0.5 * np.log(means + floor).mean())


class Samples:
    """Latents X (n, d) in standard deviations, coordinates G (n, r) and norms of fields, groups (None: no groups)."""

    def __init__(
        self, X: _Values, G: _Values, norms: _Values, labels: NDArray[Any] | None, rng: Any, seed: int | None = None
    ) -> None:
        self.X, self.G, self.norms, self.labels, self.scales = X, G, norms, labels, error_scales(norms)
        # among many samples the error of one by round-off is hidden, and a fit without it takes long
        self.digits = 1e-8 if len(X) <= 300 else 1e-11
        self.groups = None if labels is None else members_of(labels)
        # parts are large enough for a significant mean error, and enough that no single part decides
        self.parts = self.groups or np.array_split(rng.permutation(len(X)), min(8, len(X)))
        self.seed = int(rng.uniform(0, 2**31)) if seed is None else seed

    def path(self, trial: Trial) -> Iterator[Trial]:
        """The trial at each lambda, number of neighbours or rank, judged; with a value downhill from that lambda."""
        if trial.family in COUNTED:
            for count, residuals in self._counted(trial, COUNTED[trial.family][1]):
                yield self.judge(replace(trial, value=count), residuals)
            return
        dual = trial.dual(self.X, self.seed)
        hat = dual.complete_hat()
        path = list(lambda_path(hat.largest, dual.smallest))
        known: dict[int, Trial] = {}
        asked: Any = range(len(path))
        if not np.isnan(trial.value):
            asked = [int(np.argmin([abs(np.log(value / trial.value)) for value, _ in path]))]
        while new := [i for i in asked if i in range(len(path)) and i not in known]:
            for i in new:
                value, regularization = path[i]
                known[i] = replace(trial, value=value, strength=regularization / trial.per_sample(len(self.X)))
                yield self.judge(known[i], hat.residuals(self.G, regularization, self.groups, self.digits))
            best = min(known, key=lambda i: known[i].score)
            asked = (best - 1, best + 1)

    def residuals(self, trial: Trial) -> _Values:
        """What held-out fields miss at the trial's own lambda, number of neighbours or rank."""
        if trial.family in COUNTED:
            ((_, residuals),) = self._counted(trial, [int(trial.value)])
            return residuals
        return trial.dual(self.X, self.seed).residuals(self.G, trial.regularization(len(self.X)), self.groups)

    def _counted(self, trial, counts):
        """(count, residuals) for numbers of neighbours or ranks, as far as the samples allow them."""
        X = self.X / trial.scales
        if trial.family == DOUBLE_DIFFUSION_MAPS:
            kernel, folds = Radial.gaussian(1.0), folds_of(self.parts, 5)  # each part costs an eigendecomposition
            yield from harmonic_residuals(kernel, X, self.G, folds, counts).items()
            return
        # at most half of the points that are left when the largest group is held out
        fewest = len(X) - (0 if self.groups is None else max(map(len, self.groups))) - 1
        for k in counts:
            if k <= max(1, fewest // 2):
                yield k, KNNDecoder(k).fit(X, self.G).fitted.left_out(self.G, self.groups)

    def judge(self, trial: Trial, residuals: _Values) -> Trial:
        """Set the mean error and the score by what held-out fields miss."""
        errors = bounded_errors(residuals, self.scales)
        trial.score, trial.error, trial.judged = score_of(errors, self.parts), float(errors.mean()), len(errors)
        return trial

    def at_most(self, count: int, rng: Any) -> Samples:
        """All samples, or `count` of more at random: of each group its share, at least one; of as many groups at most.
        They have random combinations of the coordinates if these are many."""
        n = len(self.X)
        if n <= count:
            return self
        groups = self.groups or [np.arange(n)]
        parts = [rng.permutation(groups[i]) for i in rng.permutation(len(groups))]
        turns = np.concatenate([np.arange(len(part)) / len(part) for part in parts])  # each group starts at 0
        rows = np.sort(np.concatenate(parts)[np.argsort(turns, kind="stable")[:count]])
        labels = None if self.labels is None else self.labels[rows]
        G, size = self.G[rows], 128
        # random combinations keep lengths to 1 / sqrt(2 size) = 6 %, the same for all candidates
        if G.shape[1] > 1.5 * size:
            G = G @ (rng.standard_normal((G.shape[1], size)) / np.sqrt(size))
        return Samples(self.X[rows], G, self.norms[rows], labels, rng, self.seed)

    def split(self, share: float, rng: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows (n - h,) that are left if rows (h,) are held out: about that share at random, or of the groups. As many
        are left as judge the starts of a search, so that what it finds can be fitted to them."""
        n, held = len(self.X), np.empty(0, np.intp)
        most = min(share * n, n - min(300, n // 2))
        if self.groups is None:
            held = rng.permutation(n)[: max(1, round(most))]
        else:
            for number in rng.permutation(len(self.groups)):
                more = np.concatenate([held, self.groups[number]])
                held = more if len(more) <= most else held
            held = held if len(held) else min(self.groups, key=len)
        return np.setdiff1d(np.arange(n), held), np.sort(held)


def check_groups(groups: ArrayLike | None, n: int, least: int = 2) -> NDArray[np.intp] | None:
    """Groups as numbers from 0 on, (n,), in the order they appear: names change nothing; at least so many, or None."""
    if groups is None:
        return None
    groups = as_labels(groups)
    if groups.shape != (n,):
        raise ValueError(f"groups must hold one label for each of the {n} samples, got shape {groups.shape}")
    _, first, labels = np.unique(groups, return_index=True, return_inverse=True)
    if len(first) < least:
        raise ValueError("groups must name at least two groups, one of which can be left out, got one")
    return first.argsort().argsort()[labels]


_ALWAYS_REFINED = (THIN_PLATE, GAUSSIAN, MATERN)  # families that are refined although others are better
_LARGEST = 12  # decoders in the blend, at most
WORTH = 0.01  # improvement of the score (about that of the error) for which a larger blend is selected


def search_threads(n: int) -> AbstractContextManager[None]:
    """One thread of BLAS for a search over n samples, unless they are many. Small matrices take ten times as long on
    threads that wait for each other (58 fields, two cores)."""
    return blas_threads(1 if n < 700 else None)


def search(samples: Samples, n_trials: int, families: Sequence[str], rng: Any) -> tuple[list[Trial], list[Trial]]:
    """Starts of all families, one family a trial, then scales around the best few: all, and the last judged alike.

    The leading members of the best families are refined in turn, each coordinate's length scale and all together.
    The factor is halved in the logarithm once all neighbours are known. Of many samples 300 at random judge the
    starts, and 400 the best of these again and what follows: a trial costs the cube of their number.
    """
    few, more = samples.at_most(300, rng), samples.at_most(400, rng)
    found: list[Trial] = []
    given_up: list[Trial] = []
    starts = iter(starts_of(families, samples.X.shape[1]))
    # steps of the scales' logarithms: from a factor 2.5 down to 1.1, below which cross-validation errors hardly change
    step, finest, turn = np.log(2.5), 0.1, 0
    for _ in steps(n_trials, 1, "decoders"):
        proposals = next(starts, [])
        if not proposals:
            if few is not more:
                best = {trial.identity: replace(trial) for trial in leading(found)[:8]}
                given_up, found = [trial for trial in found if trial.identity not in best], []
                proposals, few = list(best.values()), more
            while not proposals and step >= finest:
                proposals = _refinement(found, turn, step)
                step = step if proposals else step / 2
            turn += 1
        for proposal in proposals:
            path = few.path(proposal)
            # for k-NN mixtures each number of neighbours is a trial
            found += path if proposal.family == KNN else [min(path, key=lambda trial: trial.score)]
    return given_up + found, found


def leading(trials: Iterable[Any]) -> list[Any]:
    """Trials by their score; of equal ones the first is the better."""
    return sorted(trials, key=lambda trial: trial.score)


def _refinement(found, turn, step):
    """The next unknown neighbour of the best member of the leading families, or none. Families that are not
    `_ALWAYS_REFINED` are refined only if they are the best, k-NN mixtures only if all are. Their scales follow the
    noise of few samples (on 58 fields the error grew by 1.4 times)."""
    ranked = leading(found)
    others = [trial for trial in ranked if trial.family != KNN]
    best: dict[Any, Trial] = {}
    for trial in others or ranked:
        if not best or trial.family in _ALWAYS_REFINED:
            best.setdefault(trial.kind, trial)
    ranked, known = list(best.values()), {trial.identity for trial in found}
    first = turn % 3  # the best three families are refined in turn
    for trial in ranked[first:] + ranked[:first]:
        for proposal in trial.neighbors(step):
            if proposal.identity not in known:
                return [proposal]
    return []


def candidates(samples: Samples, trials: list[Trial]) -> list[Trial]:
    """The trials that may become parts of the blend, the best first.

    Groups are few, and their errors hardly distinguish similar decoders. So at most 3 members of a family are taken
    then, which makes the parts differ; k-NN mixtures, which cannot fail far from their data, are an exception. No part
    has a score more than 2 behind the best (errors e^2 = 7 times as large).
    """
    best = leading(trials)
    if samples.groups is None:
        return best[:_LARGEST]
    close = [trial for trial in best if trial.score <= best[0].score + 2]
    before = [sum(other.kind == trial.kind for other in close[:i]) for i, trial in enumerate(close)]
    return [trial for trial, kindred in zip(close, before) if trial.family == KNN or kindred < 3][:_LARGEST]


def finalists(samples: Samples, trials: list[Trial], n: int) -> list[Trial]:
    """The best of the leading kinds, judged anew on more samples, to be fitted to n."""
    # for more samples, harmonics would take the memory of a kernel matrix
    usable = [trial for trial in leading(trials) if n <= _EXACT or trial.family != DOUBLE_DIFFUSION_MAPS]
    kinds: dict[Any, Trial] = {}
    for trial in usable or leading(trials):
        kinds.setdefault(trial.kind, trial)
    paths = [samples.path(replace(trial)) for trial in list(kinds.values())[:5]]
    return [min(path, key=lambda trial: trial.score) for path in paths]


def blend(samples: Samples, members: list[Trial], most: int) -> tuple[list[Trial], float, float]:
    """The leading candidates whose blend has the best score, few if more hardly help; its mean error and its limit.

    With groups all of them: the few errors do not determine which blend is best. The limit exceeds the largest distance
    of a field from that of its nearest neighbour (outside its group), moved along the linear trend, by a factor. It
    is smaller with groups, whose nearest neighbours are as far as those of new fields.
    """
    X, G, nearest = samples.X, samples.G, nearest_other(samples.X, samples.labels)
    trend = linear_trend(X, G)
    rest = G - X @ trend
    limit = (2.0 if samples.groups is None else 1.25) * float(np.linalg.norm(rest - rest[nearest], axis=1).max())
    residuals = {id(trial): samples.residuals(trial) for trial in members}
    # scores are computed again, since there may be more samples than in the search
    members = leading([samples.judge(trial, residuals[id(trial)]) for trial in members])
    P = np.stack([G - residuals[id(trial)] for trial in members])
    P = limited(P, G[nearest] + (X - X[nearest]) @ trend, limit)
    sizes = [min(len(members), most)]
    if samples.groups is None:
        sizes = [size for size in (1, 3, 5, 8) if size < sizes[0]] + sizes
    errors = [bounded_errors(G - geometric_median(P[:size], median_smoothing(G)), samples.scales) for size in sizes]
    scores = [score_of(e, samples.parts) for e in errors]
    chosen = next(i for i, score in enumerate(scores) if score <= min(scores) + WORTH)
    return members[: sizes[chosen]], float(errors[chosen].mean()), limit


# -- The decoder -----------------------------------------------------------------------------------
class Results(Bunch):
    """A table: one array per column, one entry per trial."""

    @classmethod
    def of(cls, trials: Iterable[Any], chosen: Sequence[Any], row: Callable[[Any], dict[str, Any]]) -> Self:
        """The table of the rows of trials, and whether each is one of the chosen."""
        known = set(map(id, chosen))
        rows = [{**row(trial), "chosen": id(trial) in known} for trial in trials]
        return cls(**{name: np.array([row[name] for row in rows]) for name in rows[0]})

    @property
    def frame(self) -> Any:
        """The table as a pandas DataFrame; ImportError without pandas."""
        import pandas

        return pandas.DataFrame(dict(self))

    def __repr__(self) -> str:
        """The table as text, of many rows the first and the last; a Bunch would print every array."""
        n = max(map(len, self.values()), default=0)
        most = 60  # pandas prints this number of rows
        shown = list(range(n)) if n <= most else [*range(most - 3), None, n - 2, n - 1]
        rows = [["", *self]]
        for i in shown:
            values = ["..."] * len(self) if i is None else [column[i] for column in self.values()]
            cells = [f"{value:.4g}" if isinstance(value, float | np.floating) else str(value) for value in values]
            rows.append(["..." if i is None else str(i), *cells])
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join(" ".join(map(str.rjust, row, widths)).rstrip() for row in rows)


@shared_texts
@estimator
class AutoDecoder(InvariantParameters, LinearDecoder, FieldRegressor):
    """Select a decoder by cross-validation, among kernels, random features, polynomials and k-NN mixtures.

    Use it if the latent coordinates are given; `autotune` also selects the encoder. A fit takes seconds, and decoding
    costs as much as with several decoders. Use `RANDSMAPDecoder` for batches and for more than 1e5 snapshots.

    Parameters
    ----------
    n_trials
        Number of trials. A trial is a family of decoders with one length scale per latent coordinate. The best
        regularisation, number of neighbours or rank is selected within the trial.
    families
        The families searched, some of `randsmap.decoders.FAMILIES`. None: all. There are as many random features as
        samples, at most 2000; polynomials have degree 2 to 4.
    validation
        Share of the samples (if more than 700) or of the groups on which `held_out_error_` is measured; at least 300
        other samples are kept for the fit. The final fit uses all.
    random_state
        Seed for the subsets of large sets in the search, and for the parts that scores are averaged over. None: 0.

    Attributes
    ----------
    best_decoder_ : BlendedDecoder
        The median of the best few decoders, or the best one, at a limited distance from the training fields.
    results_ : Results
        A table of the trials, one array per column: `family`, `nu`, `degree`, `length_scale_1` ... `length_scale_d` (in
        the latents' units), `regularization`, `n_neighbors`, `rank`, `n_samples` (used for its error), `error` (mean
        cross-validation error), `score` (see Notes), `chosen`. `results_.frame` is a pandas DataFrame.
    held_out_error_ : float
        Mean cross-validation error of `best_decoder_`.
    on_edge_ : list of str
        Parameters of the best trial at the boundary of the search range.
    chosen_invariants_ : "mass", None, or the array given

    Notes
    -----
    Leave-one-out and leave-group-out errors are exact: a closed form gives them for all regularisations from one
    eigendecomposition per trial. The error of a sample is relative to the norm of its field (at least 1e-3 of the
    median norm), and at most 1. The score is the mean of two numbers: the logarithm of the mean error, and the mean
    logarithm of the errors of the groups (or of 8 random parts). One group then does not dominate.

    In large sets, the errors of the first trials come from 300 samples, of later trials from 400. Those of the five
    best families come from half of the samples, at most 1500. Then all samples fit the parts of the blend, at most
    10000 / n. For more than 8000 samples, kernels have 1500 centres. A fit takes as long as 10 to 20 of
    ``RANDSMAPDecoder()``.

    There are blends of the best 1, 3, 5, 8 and 12 trials. The smallest blend whose score is within 1 % of the best is
    selected; with groups, the largest. A model file stores `best_decoder_`, not the record of the search.

    References
    ----------
    G. Wahba, Spline models for observational data, SIAM (1990), Ch. 4. D. H. Wolpert, Stacked generalization, Neural
    Networks 5 (1992).

    Examples
    --------
    {curve}
    >>> decoder = randsmap.AutoDecoder(n_trials=10, random_state=0).fit(latents, fields)
    >>> decoder.chosen_invariants_, decoder.predict([[0.5]]).round(4)
    ('mass', array([[0.25, 0.75]]))
    """

    _state = {
        **FIT_STATE,
        "_fitted": NOT_SAVED,  # a model file holds the fit of best_decoder_
        "best_decoder_": Part("predict", n_in="d", n_out="M"),
        **dict.fromkeys(("results_", "held_out_error_", "on_edge_", "chosen_invariants_"), NOT_SAVED),
    }

    n_trials: int = parameter(int, default=40, low=1)
    families: str | Iterable[str] | None = parameter(default=None, shown="str, sequence of str, or None")
    validation: float = parameter(float, default=0.2, low=0, high=1, strict=True)
    random_state: Any = parameter(default=None, shown="int, RandomState instance or None")

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:  # type: ignore[override]
        """Search for the best decoder of these latents and fields, and fit it to all of them.

        Parameters
        ----------
        {training}
        groups : array-like (n,) or None
            Labels of at least two groups, such as trajectories or blocks of time, that are left out as a whole.

        {result_of_fit}
        """
        threads = search_threads(np.shape(y)[0] if np.ndim(y) else 0)
        with threads, extrapolation_ignored():
            return self._fit(X, y, groups=groups)

    def fit_state(self, X, y, groups=None):
        check_parameters(self)
        families = check_families(self.families)
        X, F, _, found = self._training_data(X, y)
        labels = check_groups(groups, len(X))
        self.chosen_invariants_ = self.invariants
        if isinstance(self.invariants, str) and self.invariants == "auto":
            self.chosen_invariants_ = "mass" if found.matrix.shape[1] else None
        rng = check_random_state(0 if self.random_state is None else self.random_state)

        n, units = len(X), standard_deviations(X)
        weights = norm_weights(self.field_shape_, self)
        _, G, _ = principal_coordinates(F, weights)
        everything = Samples(X / units, G, field_norms(F, cell_weights=weights), labels, rng)
        with blas_threads(1):
            trials, best = search(everything, self.n_trials, families, rng)
            judged = everything.at_most(min(max(700, n // 2), 1500), rng)
            if judged is not everything:
                best = finalists(judged, best, n)
                trials += best
            # a blend of at most this number of parts takes about as long as the search
            members, error, limit = blend(judged, candidates(judged, best), max(1, min(_LARGEST, 10000 // n)))
        if judged is not everything:
            error = self._held_out(everything, members, limit, units, rng)

        self.best_decoder_ = BlendedDecoder(
            [trial.decoder(units, n, everything.seed) for trial in members],
            limit=limit,
            invariants=self.chosen_invariants_,
            invariant_values=self.invariant_values,
            invariant_tol=self.invariant_tol,
            cell_weights=self.cell_weights,
            bounds=self.bounds,
            dtype=self.dtype,
        ).fit(X, np.asarray(y)[:, None] if self.field_shape_ == () else y)
        if labels is not None:
            self.best_decoder_ = holding(self.best_decoder_, replace(self.best_decoder_.fitted, groups=labels))
        self.held_out_error_ = error
        self.results_ = Results.of(trials, members, lambda trial: _row(trial, units, n))
        self.on_edge_ = _edges(members[0])
        return self.best_decoder_.fitted

    def _held_out(self, samples, members, limit, units, rng):
        """The mean error of samples held out of a fit of the members to the others."""
        rest, held = samples.split(self.validation, rng)
        X, G, n = samples.X * units, samples.G, len(rest)
        parts = [trial.decoder(units, n, samples.seed, of=len(X)) for trial in members]
        found = BlendedDecoder(parts, limit=limit, invariants=None).fit(X[rest], G[rest]).predict(X[held])
        return float(bounded_errors(G[held] - found, error_scales(samples.norms[held])).mean())

    invariants_ = of_fit("invariants")

    def _restore(self):
        self._fitted = self.best_decoder_.fitted

    def check_available(self, capability):
        if capability == "smoother":
            raise AttributeError("the search depends on the fields, so its fit is not linear in them")
        return not hasattr(self, "best_decoder_") or require(self.best_decoder_, capability)


def _row(trial, units, n):
    """A trial in the table of results."""
    counts = {name: int(trial.value) if trial.family == family else 0 for family, (name, _) in COUNTED.items()}
    return {
        "family": trial.family,
        "nu": np.nan if trial.nu is None else trial.nu,
        "degree": -1 if trial.degree is None else trial.degree,
        **{f"length_scale_{j}": length for j, length in enumerate(trial.scales * units, 1)},
        "regularization": np.nan if trial.family in COUNTED else trial.regularization(n),
        **counts,
        "n_samples": trial.judged,
        "error": trial.error,
        "score": trial.score,
    }


def _edges(trial):
    name, values = COUNTED.get(trial.family, ("regularization", PATH))
    ends = (values[-1],) if trial.family in COUNTED else (values[0], values[-1])
    edges = [name] if trial.value in ends else []
    if trial.scales.min() < 2 * LENGTHS[0] or trial.scales.max() > LENGTHS[1] / 2:
        edges.append("length_scale")
    return edges


# -- Batches ---------------------------------------------------------------------------------------
def mergeable_families(families: str | Iterable[str] | None) -> list[str]:
    """Those of the families of which a decoder takes batches; ValueError if there is none."""
    given = check_families(families)
    found = [family for family in given if family in (*_MAPS, POLYNOMIAL)]
    if not found:
        raise ValueError(f"no decoder of the families {', '.join(given)} takes batches: give others")
    return found


def for_batches(blend: BlendedDecoder, more: float, kept: dict[str, Any]) -> RANDSMAPDecoder:
    """The first decoder of a blend of `mergeable_families`, not fitted, for so many times the samples."""
    part = blend.decoders_[0]
    regularization = part.regularization * more  # the eigenvalues grow by this factor
    return RANDSMAPDecoder(part.features, latent_scale=part.latent_scale, regularization=regularization, **kept)
