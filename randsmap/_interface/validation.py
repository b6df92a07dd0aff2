"""Former names of `arrays` and `parameters`, until their users have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import (
    aligned,
    as_array,
    as_labels,
    cache_aligned,
    check_cells,
    check_finite,
    check_out,
    empty_aligned,
    refuse_dask,
    refuse_other_dimensions,
)
from randsmap._interface.parameters import check_choice, check_count, check_number, check_random_state

__all__ = [
    "aligned",
    "check_cells",
    "check_choice",
    "check_count",
    "check_finite",
    "check_matrix",
    "check_number",
    "check_out",
    "check_random_state",
    "check_vector",
    "check_vectors",
    "empty_in_lines",
    "in_lines",
    "refuse_dask",
    "refuse_missing",
    "refuse_other_dimensions",
    "sortable",
]

_F = TypeVar("_F", bound=Callable[..., Any])
in_lines, empty_in_lines, sortable = cache_aligned, empty_aligned, as_labels


def check_matrix(X: Any, name: str, *, n_columns: int | None = None, **least: int) -> NDArray[np.float64]:
    """`as_array` of a matrix."""
    return as_array(X, name, (None, n_columns), **least)


def check_vector(x: Any, name: str, *, length: int | None = None) -> NDArray[np.float64]:
    """`as_array` of a vector."""
    return as_array(x, name, (length,))


def check_vectors(V: Any, name: str, n: int, width: int) -> NDArray[np.float64]:
    """`as_array` of one row for each row of X."""
    return as_array(V, name, (n, width), repeat=True, min_rows=0, min_columns=0)


def refuse_missing(X: Any, name: str) -> None:
    """ValueError if X holds pandas' NA, which has no float."""
    X = np.asarray(X) if hasattr(X, "__array__") else np.asarray(X, dtype=object)
    if X.dtype == object:
        as_array(X, name)
