"""Typical sizes of fields and of latent coordinates, by which errors and distances are divided."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_domain
from randsmap._interface.fields import FieldShape

# A field far smaller than the others must not decide a mean of relative errors alone: below this share of the
# median norm its error is relative to that share. 1e-3 does not change the errors of fields that decay to 0.1 %.
SMALLEST_SHARE = 1e-3


def check_cell_weights(
    weights: Any, shape: FieldShape | tuple[int, ...], name: str = "cell_weights"
) -> NDArray[np.float64] | None:
    """Volumes (M,) of the cells of fields of a shape, which they may have: float64, positive and finite. None: ones."""
    if weights is None:
        return None
    layout = shape if isinstance(shape, FieldShape) else FieldShape(shape)
    checked = as_array(layout.values(weights, name), name, (layout.n_cells,))
    if not (checked > 0).all():
        i = int(np.argmin(checked))
        raise ValueError(f"{name} must be positive, got {checked[i]} for cell {i}")
    check_domain(checked, name, each=True)
    return checked.copy()


def in_norm(F: NDArray[np.float64], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Fields F (n, M) times the square roots of the cell weights: lengths are then those in the weighted norm."""
    return F if weights is None else F * np.sqrt(weights)


def median_norm(norms: ArrayLike) -> float:
    """Median of the norms of the fields that are not zero everywhere; 0 if all are."""
    norms = np.asarray(norms)
    return float(np.median(norms[norms > 0])) if norms.any() else 0.0


def error_scales(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Norms by which errors of fields with these norms are divided: at least a share of the median; 1 if all are 0."""
    return np.maximum(norms, SMALLEST_SHARE * median_norm(norms) or 1.0)


def standard_deviations(X: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Standard deviation (d,) of each column of X (n, d), of rows of `weights`; 1 for one whose spread is round-off.
    The sums are rounded once, so that the result does not depend on the order of the rows."""
    # round-off of the values explains a spread of this share of the largest |x|
    round_off = 1e-12
    peak = np.abs(X).max(axis=0)
    safe = np.where(peak > 0, peak, 1.0)
    spread = np.array([_standard_deviation(column, 1.0 if weights is None else weights) for column in (X / safe).T])
    return np.where(spread > round_off, safe * spread, 1.0)


def _standard_deviation(x, weights):
    total = math.fsum(np.broadcast_to(weights, x.shape).tolist())
    mean = math.fsum((weights * x).tolist()) / total
    return math.sqrt(math.fsum((weights * (x - mean) ** 2).tolist()) / total)
