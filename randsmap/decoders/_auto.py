"""The decoder that a search over families of decoders finds, from held-out errors in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

from randsmap._interface.callers import extrapolation_ignored
from randsmap._interface.parameters import check_parameters, check_random_state, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Part
from randsmap._interface.texts import shared_texts
from randsmap._linalg.scales import standard_deviations
from randsmap._linalg.spectral import PATH
from randsmap._linalg.svd import principal_coordinates
from randsmap.decoders._base import FIT_STATE, FieldRegressor, LinearDecoder, of_fit, require
from randsmap.decoders._blended import BlendedDecoder
from randsmap.decoders._trials import (
    COUNTED,
    LENGTHS,
    Samples,
    blend,
    candidates,
    check_families,
    check_groups,
    leading,
    search,
    search_threads,
)
from randsmap.invariants import InvariantParameters, norm_weights
from randsmap.metrics import field_norms


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
        most = 60  # as many rows as pandas prints
        rows = list(range(n)) if n <= most else [*range(most - 3), None, n - 2, n - 1]
        columns = [[""] + ["..." if i is None else str(i) for i in rows]]
        columns += [
            [name] + ["..." if i is None else _as_cell(values[i]) for i in rows] for name, values in self.items()
        ]
        widths = [max(map(len, column)) for column in columns]
        lines = (" ".join(map(str.rjust, line, widths)) for line in zip(*columns))
        return "\n".join(line.rstrip() for line in lines)


def _as_cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


@shared_texts
@estimator
class AutoDecoder(InvariantParameters, LinearDecoder, FieldRegressor):
    """The decoder that held-out errors choose among kernels, random features, polynomials and k-NN mixtures.

    Parameters
    ----------
    n_trials
        Number of trials: each a family of decoders with its length scales, one per latent coordinate, at the best of 15
        regularisations from 1e-12 to 100 times the kernel's largest eigenvalue (or of numbers of neighbours, or
        ranks). The first trial of a family compares the up to 7 members where its search starts.
    families
        The families searched, some of `randsmap.decoders.FAMILIES`: random features ("sigmoid", "fourier",
        "multiscale-fourier", "matern-features", as many as samples, at most 2000), kernels ("gaussian",
        "multi-gaussian", "matern", "thin-plate"), "polynomial" (of degree 2 to 4), "k-nn" and
        "double-diffusion-maps". None: all.
    validation
        Share of the samples, at least 1000 and chosen at random, on which the search is made when there are more; the
        best are then compared on all. Nothing is set aside for good.
    random_state
        For the samples of the search in large sets, and for the parts that scores are averaged over. None: 0, so that
        the result is deterministic.

    Attributes
    ----------
    best_decoder_ : BlendedDecoder
        The geometric median of the best few decoders, or of the best alone, kept near the training fields.
    results_ : Results
        A table of the trials, one array per column: `family`, `nu`, `degree`, `length_scale_1` ... `length_scale_d` (in
        the latents' units), `regularization`, `n_neighbors`, `rank`, `error` (mean held-out error), `score` (see
        Notes), `chosen`. `results_.frame` is a pandas DataFrame, if pandas is there.
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
    Held-out errors are exact and in closed form: leave-one-out, or leave-group-out where `groups` is given, for all
    regularisations by one eigendecomposition per trial, of the fields' coordinates in all modes above round-off. A
    sample's error is relative to the norm of its field (or to 1e-3 of the median norm), and at most 1. The score is the
    mean of the logarithm of the mean error and of the mean logarithm of the errors of the groups (or of 8 random
    parts): one group that no decoder can decode must not choose alone.

    Among blends of the best 1, 3, 5, 8 and 12 trials the smallest is taken whose score is within 1 % of the best;
    with groups the largest, of at most 3 kernels of a family. `limit` of the blend is 2 (1.25) times the largest
    distance that was met when samples (groups) were held out. A model file keeps `best_decoder_`, not the record of the
    search.

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

    _state = {
        **FIT_STATE,
        "_fitted": NOT_SAVED,  # that of best_decoder_
        "best_decoder_": Part("predict", n_in="d", n_out="M"),
        **dict.fromkeys(("results_", "held_out_error_", "on_edge_", "chosen_invariants_"), NOT_SAVED),
    }

    n_trials: int = parameter(int, default=40, low=1)
    families: str | Iterable[str] | None = parameter(default=None, shown="str, sequence of str, or None")
    validation: float = parameter(float, default=0.2, low=0, high=1, strict=True)
    random_state: Any = parameter(default=None, shown="int, RandomState instance or None")

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Search for the best decoder of these latents and fields, and fit it to all of them.

        Parameters
        ----------
        {training}
        groups : array-like (n,) or None
            Labels of groups, such as trajectories or blocks of time, that are held out as a whole. At least two.

        {result_of_fit}
        """
        threads = search_threads(np.shape(y)[0] if np.ndim(y) else 0)
        with threads, extrapolation_ignored():
            return self._fit(X, y, groups=groups)

    def fit_state(self, X, y, groups=None):
        given = check_parameters(self)
        n_trials, validation = given["n_trials"], given["validation"]
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
        # the eigendecomposition of a trial takes 0.4 s for 1000 samples on one core, and grows with the cube
        count = min(n, max(1000, round(validation * n)))
        searched = everything.subset(count, rng) if count < n else everything
        trials = search(searched, n_trials, families)
        members = candidates(everything, trials)
        if count < n:  # judged anew, on all samples
            members = leading([everything.judge(trial, everything.residuals(trial)) for trial in members])
        members, error, limit = blend(everything, members)

        self.best_decoder_ = BlendedDecoder(
            [trial.decoder(units, n, everything.seed) for trial in members],
            limit=limit,
            invariants=self.chosen_invariants_,
            invariant_values=self.invariant_values,
            invariant_tol=self.invariant_tol,
            cell_weights=self.cell_weights,
            bounds=self.bounds,
        ).fit(X, np.asarray(y)[:, None] if self._one_output else y)
        self.held_out_error_ = error
        self.results_ = Results.of(trials, members, lambda trial: _row(trial, units, n))
        self.on_edge_ = _edges(members[0])
        return self.best_decoder_.fitted

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
