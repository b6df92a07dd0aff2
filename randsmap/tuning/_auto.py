"""The decoder that a search over kernels, splines and k-NN mixtures finds, from held-out errors in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from randsmap._estimator import DERIVED, Array, Count, Flag, Regressor, check_fitted, restored_on_error, validate_data
from randsmap._linalg.distances import fill_pairs
from randsmap._linalg.radial import TailSpectrum, held_out_once, polynomial_tail
from randsmap._parallel import blas_threads
from randsmap._progress import steps
from randsmap._validation import check_count, check_number, check_random_state
from randsmap.decoders import BlendedDecoder, KernelDecoder, KNNDecoder
from randsmap.decoders._base import LinearDecoder, check_fields
from randsmap.decoders._blended import (
    field_coordinates,
    geometric_median,
    limited,
    linear_trend,
    median_smoothing,
    spread,
)
from randsmap.decoders._extrapolation import extrapolation_ignored
from randsmap.decoders._kernel import radial_kernel
from randsmap.invariants._affine import AffineInvariants, invariant_values
from randsmap.invariants._parameters import InvariantParameters, document_invariants
from randsmap.invariants._running import default_tolerance
from randsmap.metrics import SMALLEST_SHARE, median_norm, squarable_norms

__all__ = ["AutoDecoder", "Results"]

_Values = NDArray[np.float64]
_Groups = Sequence[NDArray[np.intp]]

_PATH: _Values = np.power(10.0, np.arange(-12, 3, dtype=np.float64))  # lambda over the largest eigenvalue
_NEIGHBORS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
# kernel, nu, degree, length scale in standard deviations of the latents: where the search starts
_STARTS = (
    ("thin-plate", None, 1, 1.0),
    ("gaussian", None, 1, 1.0),
    ("matern", 1.5, 1, 3.0),
    ("matern", 2.5, 1, 3.0),
    ("gaussian", None, 1, 3.0),
    ("matern", 2.5, 1, 10.0),
    ("gaussian", None, 1, 10.0),
    ("matern", 1.5, 1, 1.0),
    ("matern", 1.5, 1, 10.0),
    ("gaussian", None, 1, 0.3),
    ("gaussian", None, 0, 1.0),
    ("matern", 1.5, 0, 3.0),
    ("matern", 2.5, 0, 3.0),
)
_STEP, _FINEST = np.log(2.5), 0.1  # of length scales, in their logarithms
_SHORTEST, _LONGEST = 0.02, 100.0  # length scales
_LEADERS = 3  # families whose best members are refined in turn
_PARTS = 8  # into which samples without groups fall for the score
_SIZES = (1, 3, 5, 8, 12)  # decoders in the blend
_WORTH = 0.01  # improvement of the score, about as much of the error, for which a larger blend is taken
_KINDRED, _BEHIND = 3, 2.0  # with groups: members of one family, and how far behind the best score
_REACH = 2.0, 1.25  # without and with groups, of the largest distance between fields of neighbours: see `reach`
_SERIAL = 700  # samples up to which more threads only cost
_SUBSET = 1000  # samples of the search
_COORDINATES, _SKETCH = 192, 128  # coordinates of fields beyond which the search takes random combinations
_FLOOR = 1e-12


def search_threads(n: int) -> AbstractContextManager[None]:
    """One thread of BLAS for a search over n samples, unless they are many.

    Factorisations of small matrices, one after the other, take five to ten times as long on threads that wait for
    each other (measured on 58 fields with two cores).
    """
    return blas_threads(1 if n < _SERIAL else None)


@dataclass
class Trial:
    """A family with its scales, at the best lambda or number of neighbours of the path."""

    kernel: str
    nu: float | None
    degree: int | None
    scales: _Values  # in standard deviations of the latents
    value: float  # lambda over the largest eigenvalue, or k
    strength: float = np.nan  # lambda, a sample
    score: float = np.inf
    error: float = np.nan
    residuals: _Values | None = field(default=None, repr=False)

    @property
    def family(self) -> tuple[str, float | None, int | None]:
        return self.kernel, self.nu, self.degree

    def regularization(self, n: int) -> float:
        return self.strength * n

    def decoder(self, units: _Values, n: int) -> Any:
        """The decoder for n latents whose standard deviations are `units`."""
        if self.kernel == "k-nn":
            return KNNDecoder(int(self.value))
        options: dict[str, Any] = {"degree": self.degree} | ({} if self.nu is None else {"nu": self.nu})
        return KernelDecoder(
            self.kernel,
            length_scale=self.scales * units,
            latent_scale=None,
            regularization=self.regularization(n),
            **options,
        )


class Results(Bunch):
    """A table: one array a column, one entry a trial."""

    @property
    def frame(self) -> Any:
        """The table as a pandas DataFrame; ImportError without pandas."""
        import pandas

        return pandas.DataFrame(dict(self))


class Scores:
    """Held-out errors of candidates, and what they count.

    The error of a sample is the L2 error over the field's norm, or over 1e-3 of the median norm if that is more, and
    at most 1. A candidate's score is the mean of two logarithms: that of the mean error, and the mean over parts of the
    logarithm of a part's mean error. The first is what is wanted; the second is not ruled by the one group of samples
    that no candidate decodes.
    """

    def __init__(self, sizes: _Values, parts: _Groups) -> None:
        self._sizes = np.maximum(sizes, SMALLEST_SHARE * median_norm(sizes) or 1.0)
        self._parts = parts

    def errors(self, residuals: _Values) -> _Values:
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.linalg.norm(residuals, axis=1) / self._sizes
        return np.where(errors < 1, errors, 1.0)

    def score(self, errors: _Values) -> float:
        means = np.array([errors[part].mean() for part in self._parts])
        return float(0.5 * np.log(errors.mean() + _FLOOR) + 0.5 * np.log(means + _FLOOR).mean())


class Samples:
    """Latents X (n, d) in standard deviations, coordinates G (n, r) of fields, groups (None: each its own), scores."""

    def __init__(self, X: _Values, G: _Values, sizes: _Values, labels: NDArray[Any] | None, rng: Any) -> None:
        self.X, self.G, self.labels = X, G, labels
        self.groups = None if labels is None else [np.flatnonzero(labels == g) for g in np.unique(labels)]
        parts = self.groups
        if parts is None:
            parts = np.array_split(rng.permutation(len(X)), min(_PARTS, len(X)))
        self.scores = Scores(sizes, parts)

    def kernel_residuals(self, trial: Trial, path: _Values) -> Iterator[tuple[float, float, _Values]]:
        """lambda over the largest eigenvalue, lambda a sample, and what held-out fields miss, along a path."""
        kernel, points, T = self._functions(trial)
        spectrum = TailSpectrum(kernel.values(points), T, self.G)
        for value in path:
            if value == path[-1] or value * spectrum.largest >= spectrum.smallest:
                regularization = max(value * spectrum.largest, spectrum.smallest)
                yield value, regularization / len(self.X), spectrum.held_out(regularization, self.groups)

    def residuals(self, trial: Trial) -> _Values:
        """What held-out fields miss at the trial's own lambda or k."""
        if trial.kernel == "k-nn":
            return self.neighbor_residuals(int(trial.value))
        kernel, points, T = self._functions(trial)
        K = kernel.values(points)
        return held_out_once(K, T, self.G, trial.regularization(len(points)), self.groups)

    def _functions(self, trial):
        points = self.X / trial.scales
        T = polynomial_tail(points - points.mean(axis=0), trial.degree)
        return radial_kernel(trial.kernel, trial.nu), points, T

    def neighbor_residuals(self, k: int) -> _Values:
        X, G = self.X, self.G
        if self.groups is None:
            return G - KNNDecoder(k).fit(X, G).predict(X, exclude=np.arange(len(X)))
        out = np.empty_like(G)
        for g in self.groups:
            rest = np.setdiff1d(np.arange(len(X)), g)
            out[g] = G[g] - KNNDecoder(min(k, len(rest))).fit(X[rest], G[rest]).predict(X[g])
        return out

    def nearest(self) -> NDArray[np.intp]:
        """For each sample the one of nearest latents among the others, or among those of other groups."""
        X, n = self.X, len(self.X)
        out = np.empty(n, dtype=np.intp)
        step = max(1, (1 << 22) // n)
        for a in range(0, n, step):
            block = X[a : a + step]
            D = fill_pairs(block, X, 0.0, np.empty((len(block), n)))
            if self.labels is None:
                D[np.arange(len(block)), np.arange(a, a + len(block))] = np.inf
            else:
                D[self.labels[a : a + step, None] == self.labels] = np.inf
            out[a : a + step] = D.argmin(axis=1)
        return out

    def subset(self, rows: NDArray[np.intp], sizes: _Values, rng: Any) -> Samples:
        labels = None if self.labels is None else self.labels[rows]
        G = self.G[rows]
        if G.shape[1] > _COORDINATES:  # lengths are kept to 6 %, the same for all candidates
            G = G @ (rng.standard_normal((G.shape[1], _SKETCH)) / np.sqrt(_SKETCH))
        return Samples(self.X[rows], G, sizes[rows], labels, rng)


def search(samples: Samples, n_trials: int) -> list[Trial]:
    """Trials in the order made: k-NN mixtures, starts of all families, then length scales around the best few.

    The leading members of the best families are refined in turn, each coordinate's length scale and all together, by
    a factor that is halved in the logarithm once all neighbours are known.
    """
    d = samples.X.shape[1]
    trials: list[Trial] = []
    known: set[Any] = set()
    planned = steps(n_trials, 1, "tuning")
    for _ in planned:
        if not trials:
            trials += _neighbor_trials(samples)
            break
    starts = iter(_STARTS)
    step, turn = _STEP, 0
    for _ in planned:
        start = next(starts, None)
        if start is not None:
            kernel, nu, degree, scale = start
            proposal = Trial(kernel, nu, degree, np.full(d, scale), np.nan)
        else:
            proposal = None
            while proposal is None and step >= _FINEST:
                proposal = _proposal(trials, turn, step, known)
                step = step / 2 if proposal is None else step
            turn += 1
        if proposal is None:
            continue
        known.add(_key(proposal))
        best = proposal
        for value, strength, residuals in samples.kernel_residuals(proposal, _PATH):
            errors = samples.scores.errors(residuals)
            score = samples.scores.score(errors)
            if score < best.score:
                kernel, nu, degree = proposal.family
                best = Trial(
                    kernel, nu, degree, proposal.scales, value, strength, score, float(errors.mean()), residuals
                )
        trials.append(best)
        _forget(trials)
    return trials


def _neighbor_trials(samples):
    fewest = min(len(samples.X) - (0 if samples.groups is None else max(map(len, samples.groups))) - 1, 2**31)
    trials = []
    for k in [k for k in _NEIGHBORS if k <= max(1, fewest // 2)]:
        residuals = samples.neighbor_residuals(k)
        errors = samples.scores.errors(residuals)
        score = samples.scores.score(errors)
        trials.append(
            Trial("k-nn", None, None, np.ones(samples.X.shape[1]), k, np.nan, score, float(errors.mean()), residuals)
        )
    return trials


def _forget(trials):
    """Drop the residuals of those that are not among the best: memory."""
    for trial in leading(trials)[max(_SIZES) :]:
        trial.residuals = None


def leading(trials: list[Trial]) -> list[Trial]:
    """Trials by their score; of equal ones the first is the better."""
    return sorted(trials, key=lambda trial: trial.score)


def _key(trial):
    logs = np.log(trial.scales)
    if trial.kernel == "thin-plate":  # a common factor changes lambda alone
        logs = logs - logs[0]
    return trial.family, tuple(np.round(logs, 3))


def _proposal(trials, turn, step, known):
    """The next unknown neighbour of the best member of the leading families, or None."""
    best = {}
    for trial in leading(trials):
        if trial.kernel != "k-nn" and np.isfinite(trial.score):
            best.setdefault(trial.family, trial)
    ranked = list(best.values())
    first = turn % _LEADERS
    for trial in ranked[first:] + ranked[:first]:
        d = len(trial.scales)
        moves = [] if trial.kernel == "thin-plate" else [np.ones(d)]
        if d > 1:
            moves += list(np.eye(d))
        for move in moves:
            for sign in (1, -1):
                scales = trial.scales * np.exp(sign * step * move)
                proposal = Trial(*trial.family, scales, np.nan)
                within = _SHORTEST <= scales.min() and scales.max() <= _LONGEST
                if within and _key(proposal) not in known:
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
        taken[trial.family] = taken.get(trial.family, 0) + 1
        close = trial.score <= best[0].score + _BEHIND
        if close and (trial.kernel == "k-nn" or taken[trial.family] <= _KINDRED):
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
    chosen = next(i for i, score in enumerate(scores) if score <= min(scores) + _WORTH)
    return members[: sizes[chosen]], float(errors[chosen].mean())


@document_invariants
class AutoDecoder(InvariantParameters, LinearDecoder):
    """The decoder that held-out errors choose among kernels, thin-plate splines and k-NN mixtures.

    Parameters
    ----------
    n_trials : int, default=40
        Number of trials: each a family of decoders with its length scales, one a latent coordinate, at the best of 15
        regularisations from 1e-12 to 100 times the kernel's largest eigenvalue; all numbers of neighbours are one
        trial.
    validation : float, default=0.2
        Share of the samples on which the search is made when there are more than 1000, at least 1000 and chosen at
        random; the best are then compared on all. Each sample's error is that of a decoder that has not seen it (nor
        its group), in closed form, so nothing is set aside for good.
    invariants : "auto", "mass", array (M,) or (M, q), or None, default="auto"
        "auto": mass if the training fields keep it to `invariant_tol`, otherwise none; `chosen_invariants_` says which.
        Others as in `RANDSMAPDecoder`.
    invariant_values : float, array (q,) or None
        As in `RANDSMAPDecoder`.
    invariant_tol : float or None
        As in `RANDSMAPDecoder`.
    {cell_weights}
    {bounds}
    random_state : int, RandomState instance or None, default=None
        For the samples of the search in large sets, and for the parts that scores are averaged over. None: 0.

    Attributes
    ----------
    best_decoder_ : BlendedDecoder
        The geometric median of the best few decoders, or of the best alone, kept near the training fields.
    results_ : Results
        A table of the trials, one array a column: `kernel`, `nu`, `degree`, `length_scale_1` ... `length_scale_d` (in
        the latents' units), `regularization`, `n_neighbors`, `error` (mean held-out error), `score` (see Notes),
        `chosen`. `results_.frame` is a pandas DataFrame, if pandas is there.
    held_out_error_ : float
        Mean held-out error of `best_decoder_`'s median.
    on_edge_ : list of str
        Parameters of the best trial that lie on an edge of what was searched.
    chosen_invariants_ : "mass", None, or the array given
    latent_scale_ : ndarray (d,)
        Standard deviations of the latents.
    n_features_in_ : int
        d, the number of latent coordinates.

    Notes
    -----
    Held-out errors are exact and in closed form: with the fields' coordinates in an orthonormal basis and one
    eigendecomposition a trial, leave-one-out, or leave-group-out where `groups` is given, for all regularisations.
    A sample's error is relative to the norm of its field (or to 1e-3 of the median norm), and at most 1. The score is
    the mean of the logarithm of the mean error and of the mean logarithm of the errors of the groups (or of 8 random
    parts): one group that no decoder can decode must not choose alone.

    Among blends of the best 1, 3, 5, 8 and 12 trials the smallest is taken whose score is within 1 % of the best;
    with groups the largest, of at most 3 kernels of a family. The geometric median of their fields outvotes a decoder
    that fails far from its data, and no field is further from that of the nearest training point, moved along the
    linear trend, than 2 (1.25) times the largest distance that was met when samples (groups) were held out.

    Deterministic for a `random_state`. A model file keeps `best_decoder_`, not the record of the search.

    References
    ----------
    G. Wahba, Spline models for observational data, SIAM (1990), Ch. 4. D. H. Wolpert, Stacked generalization, Neural
    Networks 5 (1992).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> latents = np.linspace(0, 1, 30)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> decoder = randsmap.AutoDecoder(n_trials=10, random_state=0).fit(latents, fields)
    >>> decoder.chosen_invariants_, decoder.predict([[0.5]]).round(4)
    ('mass', array([[0.25, 0.75]]))
    """

    best_decoder_: BlendedDecoder
    results_: Results
    held_out_error_: float
    on_edge_: list[str]
    chosen_invariants_: Any

    _map_sources = ("best_decoder_",)
    _state = {
        "n_features_in_": Count("d"),
        "best_decoder_": Regressor("d", "M"),
        "latent_scale_": Array("d", low=np.finfo(float).smallest_subnormal),
        "_single": Flag(),
        "results_": DERIVED,
        "held_out_error_": DERIVED,
        "on_edge_": DERIVED,
        "chosen_invariants_": DERIVED,
        **{name: DERIVED for name in ("invariant_values_", "invariant_matrix_", "constant_cells_")},
        "_linear_map": DERIVED,
    }

    def __init__(
        self,
        *,
        n_trials: int = 40,
        validation: float = 0.2,
        invariants: Any = "auto",
        invariant_values: Any = None,
        invariant_tol: float | None = None,
        cell_weights: ArrayLike | None = None,
        bounds: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_trials = n_trials
        self.validation = validation
        self.invariants = invariants
        self.invariant_values = invariant_values
        self.invariant_tol = invariant_tol
        self.cell_weights = cell_weights
        self.bounds = bounds
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Search for the best decoder of these latents and fields, and fit it to all of them.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 2.
        y : array-like (n, M)
            Fields, one a row; (n,) for a single cell, and `predict` then returns (n,) too.
        groups : array-like (n,) or None
            Labels of groups, such as trajectories or blocks of time, that are held out as a whole. At least two.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If X or y is not a finite array of numbers of these shapes, groups are not one label a sample or all the
            same, a parameter is out of range, or the fields do not satisfy given invariants or bounds. The estimator
            then keeps the state it had.
        """
        threads = search_threads(np.shape(y)[0] if np.ndim(y) else 0)
        with restored_on_error(self), threads, extrapolation_ignored():
            self._fit_linear(X, y, groups)
            self._linear_map  # noqa: B018  (made now: `predict` changes nothing)
        return self

    def _fit_linear(self, X, y, groups=None):
        n_trials = check_count(self.n_trials, "n_trials")
        validation = check_number(self.validation, "validation", low=0, high=1, strict_low=True)
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, single = check_fields(y, len(X))
        labels = check_groups(groups, len(X))
        self.chosen_invariants_ = self._chosen(F, dtype)
        rng = check_random_state(0 if self.random_state is None else self.random_state)

        n, units = len(X), spread(X)
        _, G, _ = field_coordinates(F)
        sizes = squarable_norms(F)
        everything = Samples(X / units, G, sizes, labels, rng)
        count = min(n, max(_SUBSET, round(validation * n)))
        if count < n:
            chosen = everything.subset(_stratified(labels, n, count, rng), sizes, rng)
            trials = search(chosen, n_trials)
            members = _compared(everything, candidates(everything, trials))
        else:
            trials = search(everything, n_trials)
            members = candidates(everything, trials)
        limit = reach(everything)
        members, error = blend(everything, members, limit)

        self.best_decoder_ = BlendedDecoder(
            [trial.decoder(units, n) for trial in members],
            limit=limit,
            invariants=self.chosen_invariants_,
            invariant_values=self.invariant_values if self.chosen_invariants_ is not None else None,
            invariant_tol=self.invariant_tol,
            cell_weights=self.cell_weights,
            bounds=self.bounds,
        ).fit(X, np.asarray(y)[:, None] if single else y)
        self.held_out_error_, self._single, self.latent_scale_ = error, single, units
        self._name_invariants()
        self.results_, self.on_edge_ = _table(trials, members, units, n), _edges(members[0])

    def _chosen(self, F, dtype):
        """What the blend's `invariants` are: "auto" decided by the fields."""
        if not (isinstance(self.invariants, str) and self.invariants == "auto"):
            return self.invariants
        tol = default_tolerance(dtype) if self.invariant_tol is None else self.invariant_tol
        C = np.ones((F.shape[1], 1)) if self.cell_weights is None else np.asarray(self.cell_weights, float)[:, None]
        value, size = invariant_values(C, F)
        m = value.mean() if self.invariant_values is None else np.asarray(self.invariant_values, dtype=float)
        return "mass" if (np.abs(value - m) <= tol * (size + np.abs(m))).all() else None

    def _make_linear_map(self):
        check_fitted(self, "best_decoder_")
        return self.best_decoder_._linear_map

    def _training_points(self):
        return self.best_decoder_._training_points()

    def _leverage_cost(self):
        return self.best_decoder_._leverage_cost()

    def _make_leverage(self):
        return self.best_decoder_._leverage

    def _check_linear(self):
        raise AttributeError("the search depends on the fields, so its fit is not linear in them")

    @property
    def invariants_(self) -> AffineInvariants:  # type: ignore[override]  # read from the decoder chosen
        """What every decoded field satisfies."""
        return self.best_decoder_.invariants_


def check_groups(groups: ArrayLike | None, n: int) -> NDArray[np.intp] | None:
    """Groups as numbers from 0 on, (n,), at least two of them; None if there are none."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (n,):
        raise ValueError(f"groups must hold one label for each of the {n} samples, got shape {groups.shape}")
    names, labels = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError("groups must name at least two groups, one of which can be held out, got one")
    return labels.astype(np.intp)


def _stratified(labels, n, count, rng):
    """`count` of n rows at random, in order; of each group its share, at least one."""
    if labels is None:
        return np.sort(rng.permutation(n)[:count])
    rows = []
    for g in range(labels.max() + 1):
        members = np.flatnonzero(labels == g)
        rows.append(rng.permutation(members)[: max(1, round(count * len(members) / n))])
    return np.sort(np.concatenate(rows))


def _compared(samples, members):
    """Candidates of a search on a part of the samples, judged anew on all."""
    for trial in members:
        trial.residuals = samples.residuals(trial)
        errors = samples.scores.errors(trial.residuals)
        trial.score, trial.error = samples.scores.score(errors), float(errors.mean())
    return leading(members)


def _table(trials, members, units, n):
    chosen = {id(trial) for trial in members}
    scales = np.array([trial.scales * units if trial.kernel != "k-nn" else units * np.nan for trial in trials])
    knn = np.array([trial.kernel == "k-nn" for trial in trials])
    values = np.array([trial.value for trial in trials], dtype=float)
    return Results(
        kernel=np.array([trial.kernel for trial in trials]),
        nu=np.array([np.nan if trial.nu is None else trial.nu for trial in trials]),
        degree=np.array([-1 if trial.degree is None else trial.degree for trial in trials]),
        **{f"length_scale_{j + 1}": scales[:, j] for j in range(scales.shape[1])},
        regularization=np.array([np.nan if k else t.regularization(n) for k, t in zip(knn, trials)]),
        n_neighbors=np.where(knn, values, 0).astype(int),
        error=np.array([trial.error for trial in trials]),
        score=np.array([trial.score for trial in trials]),
        chosen=np.array([id(trial) in chosen for trial in trials]),
    )


def _edges(trial):
    if trial.kernel == "k-nn":
        return ["n_neighbors"] if trial.value == _NEIGHBORS[-1] else []
    edges = ["regularization"] if trial.value in (_PATH[0], _PATH[-1]) else []
    if trial.scales.min() < 2 * _SHORTEST or trial.scales.max() > _LONGEST / 2:
        edges.append("length_scale")
    return edges
