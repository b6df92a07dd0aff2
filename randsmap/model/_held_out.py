"""Errors on snapshots that were left out of a fit, and what makes such errors misleading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.fields import flattened
from randsmap._interface.parameters import Parameter
from randsmap._interface.state import Array, immutable, saved
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import standard_deviations
from randsmap.maps.extrapolation import training_points

_Values = NDArray[np.float64]
WARNINGS = "snapshots follow each other", "nearly equal latents"  # how `cautions_in_words` begin


@immutable
class HeldOutErrors:
    """Relative L2 errors of snapshots that were left out when the model was fitted to the others."""

    rows: NDArray[np.intp] = saved(Array("k", dtype=np.intp, low=0, empty=True))  # among the snapshots of the fit
    errors: _Values = saved(Array("k", low=0, infinite=True, empty=True))  # scaled as by `metrics.scaled_l2`
    n_snapshots: int = saved(Parameter(int, low=1))  # of the fit
    n_turns: int = saved(Parameter(int, low=0))  # fits without a part of the snapshots
    n_groups: int = saved(Parameter(int, low=0))  # left out as a whole; 0: single snapshots at random
    at_parameters: bool = saved(Parameter(bool))  # fields that are predicted at parameters, not encoded and decoded
    along_trajectories: bool = saved(Parameter(bool))  # without groups, though snapshots follow each other in time

    @property
    def mean(self) -> float:
        """Mean of the errors; NaN if there are none."""
        return float(self.errors.mean()) if len(self.errors) else np.nan

    @property
    def in_words(self) -> str:
        """The error and how it was found."""
        if not self.n_turns:
            return "no held-out error: fits to a part of the snapshots fail"
        worst, of = int(np.argmax(self.errors)), " of fields at parameters" if self.at_parameters else ""
        parts = f"whole groups, of {self.n_groups}" if self.n_groups else "single snapshots at random"
        if self.along_trajectories:
            parts += ", which have neighbours in time in the fit: a new trajectory may be far worse, groups are needed"
        return (
            f"held-out relative L2 error{of} {self.mean:.4g} in the mean, {self.errors[worst]:.4g} at most (row "
            f"{self.rows[worst]}); {len(self.rows)} of {self.n_snapshots} snapshots, each left out of one of "
            f"{self.n_turns} fits ({parts})"
        )


def facts_in_words(model: Any, snapshots: Any, groups: Any = None) -> Iterator[str]:
    """Sentences that belong before a model's errors on snapshots: its held-out error, and whether it has seen them."""
    held_out, along = getattr(model, "held_out_", None), None
    words = "no held-out error is stored, as by randsmap fit, autotune and choose_parametric"
    yield f"When the model was fitted: {words if held_out is None else held_out.in_words}."
    if groups is None and (held_out is None or not (held_out.n_groups or held_out.along_trajectories)):
        along = trajectories_in_words(snapshots)
    if along is not None:
        yield f"The {along}."
    known = _known_share(model.model_ if hasattr(model, "regressor_") else model, snapshots)
    if known >= 0.995:
        yield "The model was fitted to these snapshots: these are training errors, those of others may be larger."
    elif known > 0:
        yield f"The model was fitted to {100 * known:.1f} % of these snapshots: errors of the others may be larger."


def _known_share(model: Any, snapshots: Any) -> float:
    """Share of the snapshots whose latents are those of training fields; 0 if these are not known."""
    points = training_points(getattr(model, "decoder_", None))
    points = getattr(model, "training_latents_", None) if points is None else points
    Y = np.asarray(model.transform(_sample(snapshots)[1]))
    if points is None or points.shape[1] != Y.shape[1]:  # the latter where fields were shifted before
        return 0.0
    unit = standard_deviations(points)
    distances, _ = NeighborIndex(np.ascontiguousarray(points / unit)).query(np.ascontiguousarray(Y / unit), 1)
    return float(np.mean(distances[:, 0] <= 1e-6))  # fields in single precision, too


def cautions_in_words(model: Any, snapshots: Any, groups: Any = None) -> Iterator[str]:
    """Sentences on what makes errors misleading: trajectories without groups, equal latents of different fields."""
    along = None if groups is not None else trajectories_in_words(snapshots)
    yield from filter(None, (along, folds_in_words(model, snapshots)))


def trajectories_in_words(snapshots: Any) -> str | None:
    """A sentence if the nearest field of many snapshots is a neighbour in the file, which chance does not explain."""
    rows, _, points = _sample(snapshots)
    n = len(rows)
    if n < 3:  # far too few to tell
        return None
    lags = np.bincount(np.abs(rows[_nearest(points)[1]] - rows), minlength=n)[:n]
    windows = 2 ** np.arange(max(1, int(np.log2(n)) - 2))
    near, expected = np.cumsum(lags)[windows], 2 * windows * n / (n - 1)
    # trajectories one after the other have neighbours within a window, those of alternating rows at one lag
    counts, chance = np.append(near, lags.max()), np.append(expected, 2 * n / (n - 1))
    # of 3000 sets of 10 to 1000 random fields in random order the largest excess was 6.3
    found = (counts >= 0.1 * n) & (counts - chance > 7.5 * np.sqrt(chance))
    if not found.any():
        return None
    share = counts[found].max() / n
    return (
        f"{WARNINGS[0]} as in trajectories: for {share:.0%} of them the nearest field is a neighbour in "
        "the file. Errors of snapshots left out one by one are then errors between neighbours in time, and fields of "
        "a new trajectory may be far worse. Groups are needed: groups=labels, --groups FILE in the shell, with a "
        "label for the trajectory of each snapshot"
    )


def folds_in_words(model: Any, snapshots: Any) -> str | None:
    """A sentence with the rows if nearly equal latents belong to different fields."""
    rows, F, points = _sample(snapshots)
    if len(rows) < 3:
        return None
    Y = np.asarray(model.transform(F))
    distances, others = _nearest(Y / standard_deviations(Y))
    apart = np.linalg.norm(points - points[others], axis=1)
    spread = np.sqrt((points**2).sum(axis=1).mean())
    # fields that differ much, and more than samples are apart: else an embedding may be steep, or samples sparse
    folded = (distances < 0.01) & (apart > 0.25 * spread) & (apart > 3 * _nearest(points)[0])
    if not folded.any():
        return None
    worst = np.flatnonzero(folded)[np.argsort(-apart[folded], kind="stable")]
    pairs = list(dict.fromkeys(tuple(sorted((int(rows[i]), int(rows[others[i]])))) for i in worst))
    shown = ", ".join(f"{i} and {j}" for i, j in pairs[:3])
    return (
        f"{WARNINGS[1]} belong to different fields, as in a folded embedding: rows {shown}"
        f"{', ...' if len(pairs) > 3 else ''} ({int(folded.sum())} of {len(rows)} snapshots, fields apart by up to "
        f"{apart[folded].max() / spread:.0%} of their standard deviation). No decoder can tell these fields apart"
    )


def _sample(snapshots: Any) -> tuple[NDArray[np.intp], _Values, _Values]:
    """Rows, in stretches if there are many, their fields, and points (n, r) about as far apart as these."""
    everything = Rows.of(flattened(snapshots, "snapshots")[0], "snapshots", min_rows=0)
    n, M = everything.shape
    rows = np.arange(n)
    most = max(200, min(2000, (1 << 27) // M))  # 1 GB at most, and pairs in a fraction of a second
    if n > most:
        stretches, length = 20, most // 20
        rows = (np.linspace(0, n - length, stretches).astype(int)[:, None] + np.arange(length)).ravel()
    F = everything[rows]
    points = F - F.mean(axis=0)
    size = 128  # random combinations keep distances to 6 %
    if M > size:
        points = points @ (np.random.default_rng(0).standard_normal((M, size)) / np.sqrt(size))
    return rows, F, np.ascontiguousarray(points)


def _nearest(points: _Values) -> tuple[_Values, NDArray[np.intp]]:
    """Distance and index of the nearest other point."""
    n = len(points)
    distances, nearest = NeighborIndex(points).query(points, 2)
    other = np.where(nearest[:, 0] == np.arange(n), 1, 0)
    return distances[np.arange(n), other], nearest[np.arange(n), other].astype(np.intp)
