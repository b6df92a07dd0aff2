"""Figures of a model on snapshots: latents, errors, invariants, leverage, its worst fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.callers import extrapolation_ignored
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import error_scales, in_norm
from randsmap.invariants import norm_weights, own_values
from randsmap.maps.extrapolation import leverage_cost
from randsmap.plotting import spread_rows

MOST_EXAMINED = 5000  # snapshots whose leverage is computed: a share of them is right to 1 or 2 per cent

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Figures of a model on n snapshots of M cells."""

    snapshots: Rows  # (n, M)
    latents: _Values  # (n, d)
    l2: _Values  # (n,), errors of the decoded fields
    linf: _Values
    invariants: _Values  # (n,), the largest |C_j.f_hat - C_j.f| / |C_j|.|f|; of the mass if the model has none
    n_invariants: int  # of the model
    ranges: tuple[float, float, float, float]  # lowest and highest value of the snapshots, and of the decoded fields
    examined: NDArray[np.intp]  # rows of `leverage`: at most about 5000, with those of the largest errors
    leverage: _Values | None  # None if the model has none or it would take minutes
    limit: float  # the model's `leverage_limit_`

    @property
    def conserved(self) -> str:
        """Name of the quantity of the errors `invariants`."""
        return "invariants" if self.n_invariants > 1 else "mass"


def decoding_part(model: Any) -> Any:
    """The decoder of a model, or the encoder that decodes by itself."""
    model = getattr(model, "model_", model)  # of registered fields
    decoder = getattr(model, "decoder_", None)
    return getattr(model, "encoder_", model) if decoder is None else decoder


def decoded_rows(model: Any, latents: _Values, F: _Values) -> _Values:
    """Decoded fields (n, M) of the fields F, whatever their shape, without warnings of latents that are far away."""
    with extrapolation_ignored():
        return np.asarray(model.inverse_transform(latents, **own_values(model, F))).reshape(len(latents), -1)


def evaluate(model: Any, snapshots: ArrayLike, latents: _Values | None = None) -> Evaluation:
    """Encode and decode the snapshots (n, M), n >= 1; a large memory-mapped array is read once, by blocks.

    Given the latents (n, d) of the fields that are wanted, these are decoded.
    """
    rows = Rows.of(snapshots, "snapshots")
    C = np.asarray(getattr(decoding_part(model), "invariant_matrix_", np.empty((0, 0))))
    n_invariants = C.shape[1]
    weights = norm_weights(getattr(model, "field_shape_", (rows.width,)), model)
    if not n_invariants:
        C = np.ones((rows.width, 1)) if weights is None else weights[:, None]
    encoded, norms, invariants, ranges = [], [], [], []
    for start, stop, F in rows.blocks(what="evaluating"):
        encoded.append(np.asarray(model.transform(F)) if latents is None else latents[start:stop])
        F_hat = decoded_rows(model, encoded[-1], F)
        pairs = [in_norm(each, weights) for each in (F, F_hat - F)], [F, F_hat - F]
        norms.append([np.linalg.norm(F, order, axis=1) for order, pair in zip((2, np.inf), pairs) for F in pair])
        invariants.append(_invariant_errors(F, F_hat, C))
        ranges.append([F.min(), F.max(), F_hat.min(), F_hat.max()])
    sizes_l2, distances_l2, sizes_linf, distances_linf = np.concatenate(norms, axis=1)
    if not sizes_l2.any() and distances_l2.any():
        raise ValueError("snapshots are 0 in every cell: errors have nothing to be relative to")
    l2 = distances_l2 / error_scales(sizes_l2)
    lowest, highest = np.min(ranges, axis=0), np.max(ranges, axis=0)
    Y = np.concatenate(encoded)
    examined = _examined(l2)
    leverage, limit = _leverage(model, Y[examined])
    return Evaluation(
        snapshots=rows,
        latents=Y,
        l2=l2,
        linf=distances_linf / error_scales(sizes_linf),
        invariants=np.concatenate(invariants),
        n_invariants=n_invariants,
        ranges=(float(lowest[0]), float(highest[1]), float(lowest[2]), float(highest[3])),
        examined=examined,
        leverage=leverage,
        limit=limit,
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


def _examined(errors):
    rows = spread_rows(len(errors), MOST_EXAMINED)
    if len(rows) == len(errors):
        return rows
    return np.union1d(rows, np.argpartition(-errors, MOST_EXAMINED // 10)[: MOST_EXAMINED // 10])


def _invariant_errors(F, F_hat, C):
    # of fields near the largest numbers a sum may overflow: that is an infinite error
    scale = abs(F) @ abs(C)
    errors = abs(F_hat @ C - F @ C) / np.where(scale > 0, scale, 1.0)
    return np.nan_to_num(errors, nan=np.inf).max(axis=1)


def _leverage(model, Y):
    """Leverage of the latents Y and its limit; (None, NaN) if the model has none."""
    if hasattr(model, "leverage") and leverage_cost(decoding_part(model)) <= 1e12:  # more would take minutes
        return np.asarray(model.leverage(Y)), float(model.leverage_limit_)
    return None, np.nan
