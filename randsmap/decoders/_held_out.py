"""Closed-form held-out errors of decoders, and the scores that compare them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_labels
from randsmap._linalg.distances import fill_pairs
from randsmap._linalg.dual import Dual
from randsmap._linalg.radial import Radial
from randsmap._linalg.scales import error_scales
from randsmap._linalg.spectral import lambda_path
from randsmap._linalg.svd import pivoted_cholesky
from randsmap._parallel import blas_threads
from randsmap.decoders._families import DOUBLE_DIFFUSION_MAPS, KNN, Trial
from randsmap.decoders._kernel import retained_modes
from randsmap.decoders._knn import KNNDecoder

_Values = NDArray[np.float64]
_Groups = Sequence[NDArray[np.intp]]

# Families without lambda: what they have instead, and the values compared. Ranks 2, 3, 4, 6, 8, 12, ..., 1024 grow by
# factors of at most 1.5.
COUNTED: dict[str, tuple[str, Sequence[int]]] = {
    KNN: ("n_neighbors", (1, 2, 3, 4, 5, 6, 8, 10, 12)),
    DOUBLE_DIFFUSION_MAPS: ("rank", [base << k for k in range(10) for base in (2, 3)][:-1]),
}


def bounded_errors(residuals: _Values, norms: _Values) -> _Values:
    """L2 errors (n,) over the norms of the fields, or over 1e-3 of the median norm if that is more; at most 1."""
    errors = np.linalg.norm(residuals, axis=1) / error_scales(norms)
    return np.where(errors < 1, errors, 1.0)


def score_of(errors: _Values, parts: _Groups) -> float:
    """Mean of the logarithm of the mean error and of the mean over parts of the logarithm of a part's mean error.

    The first is what is wanted; the second is not ruled by the one group of samples that no candidate decodes.
    """
    means = np.array([errors[part].mean() for part in parts])
    floor = 1e-12  # errors below it are round-off and count as equal
    return float(0.5 * np.log(errors.mean() + floor) + 0.5 * np.log(means + floor).mean())


class Samples:
    """Latents X (n, d) in standard deviations, coordinates G (n, r) and norms of fields, groups (None: no groups)."""

    def __init__(
        self, X: _Values, G: _Values, norms: _Values, labels: NDArray[Any] | None, rng: Any, seed: int | None = None
    ) -> None:
        self.X, self.G, self.norms, self.labels = X, G, norms, labels
        self.groups = None if labels is None else [np.flatnonzero(labels == g) for g in np.unique(labels)]
        # few enough that a part's mean error is no accident, enough that one part does not decide
        self.parts = self.groups or np.array_split(rng.permutation(len(X)), min(8, len(X)))
        self.seed = int(rng.uniform(0, 2**31)) if seed is None else seed

    def path(self, trial: Trial) -> Iterator[tuple[Trial, _Values]]:
        """The trial at each lambda, number of neighbours or rank, and what held-out fields then miss."""
        _, values = COUNTED.get(trial.family, ("", ()))
        if trial.family == KNN:
            # at most half of the points that are left when the largest group is held out
            fewest = len(self.X) - (0 if self.groups is None else max(map(len, self.groups))) - 1
            for new in [trial.at(k) for k in values if k <= max(1, fewest // 2)]:
                yield new, self.residuals(new)
            return
        if trial.family == DOUBLE_DIFFUSION_MAPS:
            for rank, residuals in self._harmonic_residuals(self.X / trial.scales, values).items():
                yield trial.at(rank), residuals
            return
        K, T = trial.functions(self.X, self.seed)
        dual = Dual(K, T)
        hat = dual.complete_hat()
        for value, regularization in lambda_path(hat.largest, dual.smallest):
            yield (
                trial.at(value, regularization / trial.per_sample(len(self.X))),
                hat.residuals(self.G, regularization, self.groups),
            )

    def residuals(self, trial: Trial) -> _Values:
        """Residuals of held-out fields at the trial's own lambda, number of neighbours or rank."""
        if trial.family == KNN:
            return self._neighbor_residuals(self.X / trial.scales, int(trial.value))
        if trial.family == DOUBLE_DIFFUSION_MAPS:
            (residuals,) = self._harmonic_residuals(self.X / trial.scales, [int(trial.value)]).values()
            return residuals
        K, T = trial.functions(self.X, self.seed)
        return Dual(K, T).residuals(self.G, trial.regularization(len(self.X)), self.groups)

    def judge(self, trial: Trial, residuals: _Values) -> Trial:
        """Set what held-out fields miss, their mean error and the score."""
        errors = bounded_errors(residuals, self.norms)
        trial.residuals, trial.score, trial.error = residuals, score_of(errors, self.parts), float(errors.mean())
        return trial

    def _neighbor_residuals(self, X, k):
        G = self.G
        if self.groups is None:
            return G - KNNDecoder(k).fit(X, G).predict(X, exclude=np.arange(len(X)))
        out = np.empty_like(G)
        for g in self.groups:
            rest = np.setdiff1d(np.arange(len(X)), g)
            out[g] = G[g] - KNNDecoder(min(k, len(rest))).fit(X[rest], G[rest]).predict(X[g])
        return out

    def _harmonic_residuals(self, X, ranks):
        """By rank, what geometric harmonics of width 1 miss; a fifth of the samples, or of the groups, held out.

        There is no closed form: without the held-out points the eigenvectors are others.
        """
        out = {rank: np.empty_like(self.G) for rank in ranks if rank <= len(X)}
        found = 0
        n_folds = min(5, len(self.parts))  # each costs an eigendecomposition
        for fold in np.array_split(np.arange(len(self.parts)), n_folds):
            held = np.concatenate([self.parts[i] for i in fold])
            rest = np.setdiff1d(np.arange(len(X)), held)
            kernel = Radial.gaussian(1.0)
            eigenvalues, V = pivoted_cholesky(kernel.values(X[rest]))
            r = retained_modes(eigenvalues, len(rest), len(rest))
            found, V, mean = max(found, r), V[:, :r], self.G[rest].mean(axis=0)
            with blas_threads():
                C = V.T @ (self.G[rest] - mean)
                H = kernel.values(X[held], X[rest]) @ (V / eigenvalues[:r]) - V.mean(axis=0)
                missed, first = self.G[held] - mean, 0
                for rank, residuals in out.items():
                    missed -= H[:, first:rank] @ C[first:rank]
                    residuals[held], first = missed, rank
        largest = next((rank for rank in out if rank >= found), None)
        return {rank: residuals for rank, residuals in out.items() if largest is None or rank <= largest}

    def nearest(self) -> NDArray[np.intp]:
        """For each sample the one of nearest latents among the others, or among those of other groups."""
        X, n = self.X, len(self.X)
        labels = np.arange(n) if self.labels is None else self.labels
        out = np.empty(n, dtype=np.intp)
        step = max(1, (1 << 22) // n)  # rows whose distances take 32 MB
        for a in range(0, n, step):
            block = X[a : a + step]
            D = fill_pairs(block, X, 0.0, np.empty((len(block), n)))
            D[labels[a : a + step, None] == labels] = np.inf
            out[a : a + step] = D.argmin(axis=1)
        return out

    def subset(self, rows: NDArray[np.intp], rng: Any) -> Samples:
        """Some of the samples, with random combinations of the coordinates if these are many."""
        labels = None if self.labels is None else self.labels[rows]
        G, size = self.G[rows], 128
        # random combinations keep lengths to 1 / sqrt(2 size) = 6 %, the same for all candidates; for a few more
        # coordinates than combinations they would save nothing
        if G.shape[1] > 1.5 * size:
            G = G @ (rng.standard_normal((G.shape[1], size)) / np.sqrt(size))
        return Samples(self.X[rows], G, self.norms[rows], labels, rng, self.seed)


def check_groups(groups: ArrayLike | None, n: int) -> NDArray[np.intp] | None:
    """Groups as numbers from 0 on, (n,), at least two of them; None if there are none."""
    if groups is None:
        return None
    groups = as_labels(groups)
    if groups.shape != (n,):
        raise ValueError(f"groups must hold one label for each of the {n} samples, got shape {groups.shape}")
    names, labels = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError("groups must name at least two groups, one of which can be held out, got one")
    return labels.astype(np.intp)


def stratified(labels, n, count, rng):
    """`count` of n rows at random, in order; of each group its share, at least one."""
    parts = [np.arange(n)] if labels is None else [np.flatnonzero(labels == g) for g in range(labels.max() + 1)]
    chosen = [rng.permutation(part)[: max(1, round(count * len(part) / n))] for part in parts]
    return np.sort(np.concatenate(chosen))
