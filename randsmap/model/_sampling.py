"""Some of many snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.fields import flattened
from randsmap._linalg.rows import taken


def sample_rows(n: int, count: int, random_state: int = 0) -> NDArray[np.intp]:
    """Ascending indices of `count` of n rows, at random."""
    return np.sort(np.random.default_rng(random_state).choice(n, count, replace=False))


def sampled(snapshots: Any, count: int, random_state: int = 0) -> tuple[NDArray[np.intp], Any]:
    """The indices of `sample_rows`, and these snapshots in their shape and number type.

    With random_state 0 they are the rows to which `ManifoldModel` fits its encoder for ``encoder_samples=count``.
    """
    rows, layout = flattened(snapshots, "snapshots")
    chosen = sample_rows(len(rows), count, random_state)
    part = taken(rows, chosen, "snapshots").astype(rows.dtype, copy=False)
    return chosen, layout.restored(part)
