"""Fields of any shape: rows of cells inside, and what the user gave on the way out.

An array (n, *shape) of fields is flattened here, row-major, at the public edge. What an estimator returns gets the
shape of the fields of `fit` again (`field_shape_`), and the names and coordinates of an xarray DataArray.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import check_cells, check_out, real_numbers, refuse_unreadable
from randsmap._interface.callers import warn_caller
from randsmap._interface.labels import Labels, axes_of
from randsmap._interface.parameters import Parameter
from randsmap._interface.state import Array, Count, Part
from randsmap._io.text import Table

_Array = TypeVar("_Array", bound=NDArray[Any])
Shape = tuple[int, ...]


class FieldShape:
    """Arrangement of the cells of a field, (M,) for rows, () for numbers, labels, and extremes and median of sizes."""

    _state = {
        "shape": Parameter(object),
        "n_cells": Count("M"),
        "metadata": Part(Labels, optional=True),
        "sizes": Array(3, low=0, optional=True),
    }

    metadata: Labels | None = None
    sizes: NDArray[np.float64] | None = None

    def __init__(self, shape: Shape, metadata: Labels | None = None) -> None:
        self.shape, self.metadata = tuple(map(int, shape)), metadata
        self.n_cells = math.prod(self.shape)

    @property
    def plain(self) -> bool:
        """True if fields are rows of an array as they are."""
        return len(self.shape) == 1 and (self.metadata is None or self.metadata.table)

    def restored(self, rows: Any) -> Any:
        """Rows (n, M) as the array that was given: in its shape, with its metadata."""
        if hasattr(rows, "iloc"):
            return rows
        fields = rows.reshape(len(rows), *self.shape)
        return fields if self.metadata is None else self.metadata.array(fields)

    def labelled(self, fields: Any, *given: Any) -> Any:
        """Whole fields with the metadata, unless something of `given`, such as `out`, is not None."""
        if self.metadata is None or self.metadata.table or any(option is not None for option in given):
            return fields
        return self.metadata.array(np.asarray(fields))

    def vectors(self, V: Any, name: str, cells: Any = None) -> Any:
        """Vectors (n, *shape) or (*shape,) as rows (n, M) or (M,), by their labels; others, as of cells, unchanged."""
        refuse_unreadable(V, name)
        if cells is not None:
            return V
        shape = np.shape(V)
        self.compare(V, name, samples=len(shape) > 1 and shape != self.shape)
        if len(self.shape) > 1 and shape[-len(self.shape) :] == self.shape and len(shape) <= len(self.shape) + 1:
            return np.asarray(V).reshape(*shape[: -len(self.shape)], self.n_cells)  # V may have no rows
        return V

    def cells(self, cells: Any, name: str = "cells") -> Any:
        """Indices of cells, of a mask by its labels; see `check_cells`."""
        if real_numbers(cells, name).dtype == bool:
            self.compare(cells, name, samples=False)
        return check_cells(cells, self.n_cells, self.shape, name)

    def values(self, values: Any, name: str, *, columns: bool = False) -> Any:
        """One value per cell, or with `columns` several on one more axis, as (M,) or (M, q); others as given."""
        if isinstance(values, str) or values is None:
            return values
        refuse_unreadable(values, name)
        shape = np.shape(values)
        several = columns and len(shape) > 1 and (shape[:-1] == self.shape or (len(shape) == 2 and shape != self.shape))
        column = values
        if several and hasattr(values, "iloc"):
            column = values.iloc[:, 0]
        elif several and hasattr(values, "dims") and shape[-1]:
            column = values[..., 0]
        self.compare(column, name, samples=False)
        if len(shape) < 2 or (several and len(shape) == 2):
            return values
        if several or (shape == self.shape and len(self.shape) > 1):
            return np.asarray(values).reshape(self.n_cells, *([-1] if several else []))
        expected = f"({', '.join(map(str, self.shape))})" if len(self.shape) > 1 else "(n_cells,)"
        remedy = "Reshape your data: reshape(-1), if the order of the cells is the same"
        expected = f"one value per cell, of shape {expected} as the fields"
        raise ValueError(f"{name} must have {expected}, got shape {shape}. {remedy}")

    def compare(self, X: Any, name: str, *, samples: bool = True, whose: str = "the fields of fit") -> None:
        """ValueError if the labels of cells of X, an array with an axis of samples or none, are not those here."""
        given = Labels.of(X, samples=samples)
        if given is not None and self.metadata is not None:
            self.metadata.compare(given, name, (self.shape, np.shape(X)[int(samples) :]), whose)

    def warn_of_units(self, rows: Any) -> None:
        """Warn if most fields (n, M) have about 1000 times the usual size of those of the fit, or a thousandth."""
        sizes = np.sort(_sizes(rows))
        if self.sizes is None or not len(sizes):
            return
        below, above = sizes[(len(sizes) - 1) // 2], sizes[len(sizes) // 2]
        (low, usual, high), many = self.sizes, 500
        if below < max(high, many * usual) and above > min(low, usual / many):
            return
        mass = f"the mass of these fields (the sum of their magnitudes) is {above / usual:.1g} times that of the"
        warn_caller(f"{mass} training fields. Are the units different? Results are in the units of the fit")

    def check(self, given: FieldShape, name: str, shape: Shape, whose: str = "the fields of fit") -> None:
        """ValueError if fields of an array of this shape are arranged in another way; rows always fit."""
        plain = len(self.shape) < 2
        expected = "n_cells" if plain else ", ".join(map(str, self.shape))
        if not plain and shape == self.shape:
            remedy = f"Reshape your data: {name}[None] is an array of one field"
            raise ValueError(f"{name} is one field of shape {shape}, expected (n_samples, {expected}). {remedy}")
        if len(given.shape) > 1 and given.shape != self.shape:
            hint = ""
            if plain or given.n_cells == self.n_cells:
                to = "-1" if plain else expected
                hint = f". Reshape your data: reshape({shape[0]}, {to}), if the order of the cells is the same"
            raise ValueError(f"{name} must have shape (n_samples, {expected}), as in fit, got {shape}{hint}")
        if self.metadata is not None and given.metadata is not None:
            self.metadata.compare(given.metadata, name, (self.shape, given.shape), whose)

    def _restore(self) -> None:
        """ValueError if the values of a model file are no shape."""
        if type(self.shape) is not tuple or not all(type(n) is int and n > 0 for n in self.shape):
            raise ValueError(f"it must be a tuple of positive integers, got {self.shape!r}")
        if math.prod(self.shape) != self.n_cells:
            raise ValueError(f"fields of shape {self.shape} do not have {self.n_cells} cells")


# attributes of an estimator's fields that a model file holds
FIELD_STATE = {"_field_shape": Part(FieldShape, M="M")}


def flattened(X: Any, name: str) -> tuple[Any, FieldShape]:
    """X as rows of cells, copied only if the memory's order asks for it, and how its fields are arranged."""
    metadata = None
    if type(X) is not np.ndarray:
        refuse_unreadable(X, name)
        metadata = Labels.of(X)
        if hasattr(X, "dims") or isinstance(X, Table):
            X = np.asarray(X)
        elif isinstance(X, (list, tuple)):
            try:
                X = np.asarray(X)
            except ValueError:  # rows of different lengths: `as_array` raises
                return X, FieldShape(())
    shape: Shape = getattr(X, "shape", ())
    rows = X.reshape(shape[0], math.prod(shape[1:])) if len(shape) > 2 and hasattr(X, "reshape") else X
    return rows, FieldShape(shape[1:], metadata)


class FieldOutputMixin:
    """An estimator of fields, which returns them in the shape and with the metadata of those of its `fit`."""

    _field_shape: FieldShape
    n_features_in_: int

    @property
    def field_shape_(self) -> Shape:
        """Shape of a field."""
        return self._field_shape.shape

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = hasattr(self, "transform")  # of fields
        return tags

    def _in_shape(self, rows: _Array) -> _Array:
        """Rows (..., M) as fields (..., *shape)."""
        shape = self.field_shape_
        return rows if len(shape) == 1 else rows.reshape(*rows.shape[:-1], *shape)  # type: ignore

    def _checked_cells(self, cells: Any) -> Any:
        return None if cells is None else self._field_shape.cells(cells)


def field_rows(estimator: FieldOutputMixin, X: Any, *, reset: bool = False, name: str = "X") -> Any:
    """The fields X as rows of cells: on reset those of `fit`, else compared with them; rows (n, M) always fit."""
    rows, layout = flattened(X, name)
    if reset:
        estimator._field_shape, sizes = layout, _sizes(rows)
        layout.sizes = np.quantile(sizes, [0.0, 0.5, 1.0]) if len(sizes) else None
    elif hasattr(estimator, "_field_shape"):
        shape: Shape = getattr(X, "shape", ()) or getattr(rows, "shape", ())
        estimator._field_shape.check(layout, name, shape)
    return rows


def _sizes(rows: Any) -> NDArray[np.float64]:
    """Sums of the magnitudes of up to 100 fields, evenly spread over the rows (n, M), without zeros."""
    if not hasattr(rows, "shape") or not len(rows.shape):
        return np.zeros(0)
    # a file that is stored by columns would be read whole for spread rows
    step = -(-len(rows) // 100) or 1 if not isinstance(rows, np.ndarray) or rows.flags.c_contiguous else 1
    some = np.asarray(rows[::step][:100])
    if some.ndim != 2 or some.dtype.kind not in "buif":
        return np.zeros(0)
    with np.errstate(all="ignore"):
        sizes = np.array([np.abs(row).sum(dtype=np.float64) for row in some])
    return sizes[(sizes > 0) & np.isfinite(sizes)]


def named(estimator: Any, rows: Any) -> Any:
    """Rows of the package's own for a fitted estimator, under the names of the columns of its `fit` if it had some."""
    if not hasattr(estimator, "feature_names_in_"):
        return rows
    import pandas

    return pandas.DataFrame(rows, columns=estimator.feature_names_in_, copy=False)


def output(out: NDArray[np.float64] | None, X: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """`out`, or rows of it, if results of this shape may go there while X is read; a new array if it is None."""
    if out is not None and len(shape) > 2 and getattr(out, "ndim", 0) == 2:
        shape = shape[0], math.prod(shape[1:])
    return check_out(out, shape, apart=X)


def reshape_for(part: Any, X: Any, layout: FieldShape) -> Any:
    """Rows X for an encoder or decoder: of the fields' shape if it takes one, with labels if its parameters have."""
    if not isinstance(part, FieldOutputMixin):
        return X
    parameters = [v for value in vars(part).values() for v in (value if isinstance(value, tuple) else [value])]
    if any(axes_of(value) is not None for value in parameters):
        return layout.restored(X)
    return X if len(layout.shape) < 2 else X.reshape(len(X), *layout.shape)
