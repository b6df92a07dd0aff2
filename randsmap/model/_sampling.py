"""Some of many snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.fields import flattened
from randsmap._linalg.rows import Rows, is_large

__all__ = ["sampled"]


def sampled(snapshots: Any, count: int, random_state: int = 0) -> tuple[NDArray[np.intp], Any]:
    """Ascending indices of `count` snapshots at random, and these snapshots, in their shape and number type."""
    rows, layout = flattened(snapshots, "snapshots")
    chosen = np.sort(np.random.default_rng(random_state).choice(len(rows), count, replace=False))
    part = Rows.of(rows, "snapshots")[chosen].astype(rows.dtype) if is_large(rows) else rows[chosen]
    return chosen, part if layout is None else layout.restored(part)
