"""What a model makes of snapshots, in numbers: latents, errors, invariants, leverage, its worst fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap import metrics
from randsmap._interface.validation import check_matrix
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import Snapshots, is_large, row_blocks
from randsmap.maps.extrapolation import extrapolation_ignored

__all__ = ["Evaluation", "decoded_rows", "decoding_part", "evaluate", "worst_rows"]

MOST_LOOKED_AT = 5000  # snapshots whose leverage is computed, and that are looked for among the training points
_DEAREST = 1e12  # operations of a leverage that would take minutes
_SAME = 1e-9  # distance, in standard deviations of the latents, of points that are one

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Of n snapshots of M cells.

    Parameters
    ----------
    snapshots : ndarray (n, M) or Snapshots
    latents : ndarray (n, d)
    l2, linf : ndarray (n,)
        Scaled errors of the decoded fields.
    invariants : ndarray (n,)
        Largest error of an invariant, relative to what it sums up: ``|C_j.f_hat - C_j.f| / |C_j|.|f|``.
    kept : bool
        Whether the model promises to keep invariants. If not, `invariants` is the error of the mass.
    n_invariants : int
    ranges : tuple of four floats
        Lowest and highest value of the snapshots, and of the decoded fields.
    looked_at : ndarray of int
        Rows of `leverage`, at most 5000 and those of the largest errors.
    leverage : ndarray or None
        Of these rows; None where the model has none or it would take minutes.
    limit, largest : float
        The model's `leverage_limit_` and `leverage_`.
    known : float
        Share of the rows looked at that the model was fitted to; NaN where that cannot be told.
    """

    snapshots: Any
    latents: _Values
    l2: _Values
    linf: _Values
    invariants: _Values
    kept: bool
    n_invariants: int
    ranges: tuple[float, float, float, float]
    looked_at: NDArray[np.intp]
    leverage: _Values | None
    limit: float
    largest: float
    known: float

    def fields(self, rows: ArrayLike) -> _Values:
        """The snapshots of some rows, ascending."""
        rows = np.asarray(rows)
        if isinstance(self.snapshots, Snapshots):
            return self.snapshots[rows]
        return np.asarray(self.snapshots[rows], dtype=float)


def decoding_part(model: Any) -> Any:
    """The decoder of a model, or the encoder that decodes by itself."""
    model = getattr(model, "model_", model)  # of registered fields
    decoder = getattr(model, "decoder_", None)
    return getattr(model, "encoder_", model) if decoder is None else decoder


def decoded_rows(model: Any, latents: _Values) -> _Values:
    """Decoded fields (n, M), whatever the shape of the model's; far away is not warned of, the report says it."""
    with extrapolation_ignored():
        return np.asarray(model.inverse_transform(latents)).reshape(len(latents), -1)


def evaluate(model: Any, snapshots: ArrayLike) -> Evaluation:
    """Encode and decode the snapshots (n, M), n >= 1; a large memory-mapped array is read once, by blocks."""
    numbers: Any
    if is_large(snapshots):
        numbers = Snapshots(snapshots, "snapshots")
    else:
        numbers = check_matrix(snapshots, "snapshots")
    C = np.asarray(getattr(decoding_part(model), "invariant_matrix_", np.empty((0, 0))))
    kept = C.shape[1] > 0
    C = C if kept else np.ones((numbers.shape[1], 1))
    latents, norms, found, ranges = [], [], [], []
    for _, F in row_blocks(numbers, "evaluating"):
        latents.append(np.asarray(model.transform(F)))
        F_hat = decoded_rows(model, latents[-1])
        sizes = [metrics.field_norms(F, norm) for norm in ("l2", "linf")]
        distances = [metrics.field_norms(F_hat - F, norm) for norm in ("l2", "linf")]
        norms.append([*sizes, *distances])
        found.append(_invariant_errors(F, F_hat, C))
        ranges.append([F.min(), F.max(), F_hat.min(), F_hat.max()])
    sizes_l2, sizes_linf, distances_l2, distances_linf = np.concatenate(norms, axis=1)
    if not sizes_l2.any() and distances_l2.any():
        raise ValueError("snapshots are 0 in every cell: errors have nothing to be relative to")
    l2, linf = (
        metrics.scaled_distances(distances, sizes, metrics.median_norm(sizes))
        for distances, sizes in ((distances_l2, sizes_l2), (distances_linf, sizes_linf))
    )
    lowest, highest = np.min(ranges, axis=0), np.max(ranges, axis=0)
    Y = np.concatenate(latents)
    rows = _looked_at(l2)
    leverage, limit, largest = _leverage(model, Y[rows])
    return Evaluation(
        snapshots=numbers,
        latents=Y,
        l2=l2,
        linf=linf,
        invariants=np.concatenate(found),
        kept=kept,
        n_invariants=C.shape[1],
        ranges=(float(lowest[0]), float(highest[1]), float(lowest[2]), float(highest[3])),
        looked_at=rows,
        leverage=leverage,
        limit=limit,
        largest=largest,
        known=_known(model, Y[rows]),
    )


def worst_rows(errors: _Values, groups: NDArray[Any] | None, count: int = 3) -> list[int]:
    """Rows of the largest errors, the largest first, without neighbours of those chosen, which would look the same.

    From other groups where there are any, else from rows at least a twentieth of all away.
    """
    left = errors.astype(float)
    if groups is not None and len(np.unique(groups)) < count:
        groups = None
    chosen: list[int] = []
    while len(chosen) < count and left.max(initial=-1) >= 0:
        row = int(np.argmax(left))
        chosen.append(row)
        if groups is None:
            left[max(0, row - len(left) // 20) : row + len(left) // 20 + 1] = -1
        else:
            left[groups == groups[row]] = -1
    return chosen


def _looked_at(errors: _Values) -> NDArray[np.intp]:
    n = len(errors)
    if n <= MOST_LOOKED_AT:
        return np.arange(n)
    spread = np.linspace(0, n - 1, MOST_LOOKED_AT).round().astype(int)
    return np.union1d(spread, np.argpartition(-errors, MOST_LOOKED_AT // 10)[: MOST_LOOKED_AT // 10])


def _invariant_errors(F: _Values, F_hat: _Values, C: _Values) -> _Values:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = abs(F) @ abs(C)
        errors = abs(F_hat @ C - F @ C) / np.where(scale > 0, scale, 1.0)
    return np.asarray(np.nan_to_num(errors, nan=np.inf).max(axis=1))


def _leverage(model: Any, Y: _Values) -> tuple[_Values | None, float, float]:
    nothing = None, np.nan, np.nan
    try:
        if decoding_part(model)._leverage_cost() > _DEAREST:
            return nothing
        return np.asarray(model.leverage(Y)), float(model.leverage_limit_), float(model.leverage_)
    except AttributeError:  # the decoder has none, or its file has not what it needs
        return nothing


def _known(model: Any, Y: _Values) -> float:
    """Share of the latents Y that are training points of the decoder."""
    try:
        points = decoding_part(model)._training_points()
    except AttributeError:
        return np.nan
    if points.shape[1] != Y.shape[1]:  # of fields that were shifted before
        return np.nan
    deviation = points.std(axis=0)
    unit = np.where(deviation > 0, deviation, 1.0)
    distances, _ = NeighborIndex(np.ascontiguousarray(points / unit)).query(np.ascontiguousarray(Y / unit), 1)
    return float(np.mean(distances[:, 0] <= _SAME))
