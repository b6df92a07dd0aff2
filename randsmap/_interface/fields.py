"""Fields of any shape: rows of cells inside, and what the user gave on the way out.

Everything in the package works on rows (n, M). An array (n, *shape) of fields is flattened here, row-major, at the
public edge, and what an estimator returns gets the shape of the fields of `fit` again (`field_shape_`). Fields of an
xarray DataArray also get back their names and coordinates.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import check_out, refuse_unreadable
from randsmap._interface.callers import warn_caller
from randsmap._interface.parameters import Parameter
from randsmap._interface.state import Count, Part, immutable, saved

_Array = TypeVar("_Array", bound=NDArray[Any])
Shape = tuple[int, ...]


@immutable
class XarrayMetadata:
    """Dimension names, name, attributes (JSON) and non-sample coordinates of a DataArray of fields.

    The first dimension counts samples. A coordinate is (name, dims, type, values, attributes): `values` an array of
    numbers or a tuple of strings, `type` the type of dates and durations (stored as integers), "str", or "".
    """

    dims: tuple[str, ...] = saved(Parameter(object))
    name: str | None = saved(Parameter(object))
    attrs: str = saved(Parameter(object))
    coords: list[tuple[str, tuple[str, ...], str, Any, str]] = saved(Parameter(object))

    @classmethod
    def of(cls, X: Any) -> XarrayMetadata:
        """Metadata of a DataArray whose first axis counts samples."""
        coords = []
        for name, coordinate in X.coords.items():
            if X.dims[0] in coordinate.dims:  # of these samples, which others do not have
                continue
            values, kind = np.asarray(coordinate.values), ""
            if values.dtype.kind in "mM":
                values, kind = values.view(np.int64), values.dtype.str
            elif values.dtype.kind not in "buif":
                values, kind = tuple(map(str, values.ravel().tolist())), "str"
            coords.append((str(name), tuple(map(str, coordinate.dims)), kind, values, _as_json(coordinate.attrs)))
        return cls(tuple(map(str, X.dims)), None if X.name is None else str(X.name), _as_json(X.attrs), coords)

    def array(self, fields: NDArray[np.float64]) -> Any:
        """Fields (n, *shape) as a DataArray."""
        try:
            import xarray
        except ImportError:
            raise ImportError(
                "the fields of this estimator have names and coordinates of xarray, which is not installed: pip "
                "install xarray, or give out=, an array, to do without them"
            ) from None
        shape = dict(zip(self.dims, fields.shape))
        coords = {}
        for name, dims, kind, values, attrs in self.coords:
            if kind == "str":
                values = np.array(values, dtype=str).reshape([shape[dim] for dim in dims])
            elif kind:
                values = values.view(kind)
            coords[name] = xarray.Variable(dims, values, json.loads(attrs))
        return xarray.DataArray(fields, dims=self.dims, coords=coords, attrs=json.loads(self.attrs), name=self.name)

    def compare(self, given: XarrayMetadata, name: str) -> None:
        """Raise or warn if the cells of other fields are in another order.

        ValueError for the same axes in another order: of equal lengths, they would be taken for each other. A warning
        for other coordinates: reversed latitudes have the right shape.
        """
        dims, kept = given.dims, self.dims
        if dims[1:] != kept[1:] and (set(dims[1:]) == set(kept[1:]) or kept[0] in dims[1:]):
            raise ValueError(f"{name} has the dimensions {dims}, those of fit were {kept}: transpose it")
        along = {axis: values for axis, axes, kind, values, _ in self.coords if axes == (axis,) and not kind}
        for axis, axes, kind, values, _ in given.coords:
            if axes != (axis,) or kind or axis not in along or np.shape(along[axis]) != np.shape(values):
                continue
            here, there = (np.asarray(v, dtype=np.float64) for v in (values, along[axis]))
            if np.abs(here - there).max() > 1e-6 * np.abs(there).max():  # float32 has seven digits
                warn_caller(
                    f"{name} has other coordinates along {axis!r} than the fields of fit, {here[0]:g} to {here[-1]:g} "
                    f"where those had {there[0]:g} to {there[-1]:g}, and cells are taken by their order: sort or "
                    f"interpolate {name} to the coordinates of fit, or give {name}.values"
                )

    def _restore(self) -> None:
        """ValueError if what a model file holds is not as `of` makes it."""
        words, attrs = self.dims, [self.attrs, *(entry[-1] for entry in self.coords)]
        if type(words) is not tuple or len(set(words)) != len(words) or len(words) < 2:
            raise ValueError(f"no dimensions of fields: {words!r:.80}")
        if not all(type(word) is str for word in (*words, *attrs, *([] if self.name is None else [self.name]))):
            raise ValueError("the names of fields must be strings")
        if not all(type(json.loads(text)) is dict for text in attrs):
            raise ValueError("the attributes of fields must be a JSON object")
        for name, dims, kind, values, _ in self.coords:
            if type(dims) is not tuple or not all(type(word) is str for word in (name, *dims)):
                raise ValueError(f"the dimensions of a coordinate of fields must be strings, got {dims!r:.80}")
            if kind == "str":
                valid = type(values) is tuple and all(type(word) is str for word in values)
            else:
                valid = type(values) is np.ndarray and values.ndim == len(dims)
                valid &= kind == "" or (values.dtype == np.int64 and kind[:3] in ("<M8", "<m8"))
            if not valid:
                raise ValueError(f"no coordinate of fields: {values!r:.80}")


def _as_json(attrs: Any) -> str:
    """Attributes as JSON: numbers, strings and lists of them as they are, anything else as its text."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)

    return json.dumps({str(name): value for name, value in attrs.items()}, default=plain)


class FieldShape:
    """Arrangement of the cells of a field, and the `metadata` of a DataArray.

    `shape` is (M,) for rows, () for one-dimensional fields of a single cell.
    """

    _state = {"shape": Parameter(object), "n_cells": Count("M"), "metadata": Part(XarrayMetadata, optional=True)}

    metadata: XarrayMetadata | None = None

    def __init__(self, shape: Shape, metadata: XarrayMetadata | None = None) -> None:
        self.shape, self.metadata = tuple(map(int, shape)), metadata
        self.n_cells = math.prod(self.shape)

    @property
    def plain(self) -> bool:
        """True if fields are rows of an array as they are."""
        return len(self.shape) == 1 and self.metadata is None

    def restored(self, rows: NDArray[Any]) -> Any:
        """Rows (n, M) as the array that was given: in its shape, with its metadata."""
        return self.labelled(rows.reshape(len(rows), *self.shape))

    def in_shape(self, rows: _Array) -> _Array:
        """Rows (..., M) as fields (..., *shape)."""
        return rows if len(self.shape) == 1 else rows.reshape(*rows.shape[:-1], *self.shape)  # type: ignore

    def labelled(self, fields: Any, *given: Any) -> Any:
        """Whole fields with the metadata, unless something of `given`, such as `out`, is not None."""
        if self.metadata is None or any(option is not None for option in given):
            return fields
        return self.metadata.array(np.asarray(fields))

    def vectors(self, V: Any) -> Any:
        """Vectors (n, *shape) or (*shape,) as rows (n, M) or (M,), others as they are."""
        if len(self.shape) < 2:
            return V
        V = np.asanyarray(V)
        if V.shape == self.shape:
            return V.reshape(-1)
        return V.reshape(len(V), -1) if V.shape[1:] == self.shape else V

    def check(self, given: FieldShape, name: str, shape: Shape) -> None:
        """ValueError if fields of an array of this shape are arranged in another way; rows always fit."""
        expected = ", ".join(map(str, self.shape)) if len(self.shape) > 1 else "n_cells"
        if len(self.shape) > 1 and shape == self.shape:
            raise ValueError(
                f"{name} is one field of shape {shape}, expected an array (n_samples, {expected}). Reshape "
                f"your data: {name}[None] is an array of one field"
            )
        if len(given.shape) > 1 and given.shape != self.shape:
            hint = ""
            if len(self.shape) < 2 or given.n_cells == self.n_cells:
                to = "-1" if len(self.shape) < 2 else expected
                hint = f". Reshape your data: reshape({shape[0]}, {to}), if the order of the cells is the same"
            raise ValueError(f"{name} must have shape (n_samples, {expected}), as in fit, got {shape}{hint}")
        if self.metadata is not None and given.metadata is not None:
            self.metadata.compare(given.metadata, name)

    def _restore(self) -> None:
        """ValueError if what a model file holds is no shape."""
        if type(self.shape) is not tuple or not all(type(n) is int and n > 0 for n in self.shape):
            raise ValueError(f"it must be a tuple of positive integers, got {self.shape!r}")
        if math.prod(self.shape) != self.n_cells:
            raise ValueError(f"fields of shape {self.shape} do not have {self.n_cells} cells")


# what a model file holds of the fields of an estimator
FIELD_STATE = {"_field_shape": Part(FieldShape, M="M")}


def flattened(X: Any, name: str) -> tuple[Any, FieldShape]:
    """X as rows of cells, and how its fields are arranged.

    Two-dimensional array-likes are returned as they are, and nothing is copied if the memory's order allows it.
    TypeError or ValueError for what `refuse_unreadable` refuses.
    """
    metadata = None
    if type(X) is not np.ndarray:
        refuse_unreadable(X, name)
        if hasattr(X, "dims") and hasattr(X, "coords"):
            metadata, X = (XarrayMetadata.of(X) if X.ndim > 1 else None), X.values
        elif isinstance(X, (list, tuple)):
            try:
                X = np.asarray(X)
            except ValueError:  # rows of different lengths: `as_array` raises
                return X, FieldShape(())
    shape: Shape = getattr(X, "shape", ())
    rows = X.reshape(shape[0], math.prod(shape[1:])) if len(shape) > 2 and hasattr(X, "reshape") else X
    return rows, FieldShape(shape[1:], metadata)


class FieldOutputMixin:
    """An estimator that returns fields in the shape and with the metadata of those of its `fit`."""

    _field_shape: FieldShape
    n_features_in_: int

    @property
    def field_shape_(self) -> Shape:
        """Shape of a field."""
        return self._field_shape.shape

    def _keep_fields(self, layout: FieldShape) -> None:
        """Remember how the fields of `fit` are arranged."""
        self._field_shape = layout

    def _in_shape(self, rows: _Array) -> _Array:
        return self._field_shape.in_shape(rows)

    def _labelled(self, fields: Any, *given: Any) -> Any:
        return self._field_shape.labelled(fields, *given)

    def _vectors(self, V: Any) -> Any:
        return self._field_shape.vectors(V)


class FieldInputMixin(FieldOutputMixin):
    """An estimator whose X are fields."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        return tags


def field_rows(estimator: FieldOutputMixin, X: Any, *, reset: bool = False, name: str = "X") -> Any:
    """The fields X, an argument of an estimator's method, as rows of cells.

    On reset the estimator keeps how they are arranged. Otherwise fields that are arranged in another way than those of
    `fit` raise ValueError; rows (n, M) always fit.
    """
    rows, layout = flattened(X, name)
    if reset:
        estimator._field_shape = layout
    elif hasattr(estimator, "_field_shape"):
        shape: Shape = getattr(X, "shape", ()) or getattr(rows, "shape", ())
        estimator._field_shape.check(layout, name, shape)
    return rows


def output(out: NDArray[np.float64] | None, X: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """`out` if results of this shape may go there while X (None: nothing) is read, a new array if it is None.

    Fields of some shape may also go to rows.
    """
    if out is not None and len(shape) > 2 and getattr(out, "ndim", 0) == 2:
        shape = shape[0], math.prod(shape[1:])
    return check_out(out, shape, apart=X)


def with_coordinates_of(X: Any, fields: Any) -> Any:
    """Fields that reconstruct X; if X is a DataArray of their shape, with its coordinates, the samples' included."""
    if hasattr(X, "coords") and np.shape(X) == np.shape(fields):
        return X.copy(data=np.asarray(fields))
    return fields


def reshape_for(part: Any, X: Any, layout: FieldShape) -> Any:
    """Rows X (n, M) for the fit of an encoder or a decoder: in the fields' shape, if that class accepts a shape."""
    if len(layout.shape) < 2 or not isinstance(part, FieldOutputMixin):
        return X
    return X.reshape(len(X), *layout.shape)


def cellwise(values: Any, shape: Shape | None, *, name: str, columns: bool = False) -> Any:
    """One value per cell, given in the fields' shape (with `columns` several, on one more axis), as (M,) or (M, q)."""
    if isinstance(values, str) or values is None or np.ndim(values) < 2:
        return values
    refuse_unreadable(values, name)
    if shape is not None and len(shape) > 1:
        if np.shape(values) == shape:
            return np.asanyarray(values).reshape(-1)
        if columns and np.shape(values)[:-1] == shape:
            return np.asanyarray(values).reshape(math.prod(shape), -1)
    if columns and np.ndim(values) == 2:
        return values
    expected = f"({', '.join(map(str, shape))})" if shape is not None and len(shape) > 1 else "(n_cells,)"
    raise ValueError(
        f"{name} must have one value a cell, of shape {expected} as the fields, got shape {np.shape(values)}. Reshape "
        "your data: reshape(-1), if the order of the cells is the same"
    )
