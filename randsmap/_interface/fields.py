"""Fields of any shape: rows of cells inside, and on the way out again what the user gave.

Everything in the package works on rows (n, M). An array (n, *shape) of fields of some shape is flattened here,
row-major, at the public edge, and what an estimator returns gets that shape again (`field_shape_`); fields of an
xarray DataArray get back their names and coordinates, too.
"""

from __future__ import annotations

import json
import math
import warnings
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.state import Part
from randsmap._interface.validation import check_out, refuse_dask

__all__ = [
    "FIELD_STATE",
    "EncodesFields",
    "FieldLabels",
    "FieldLayout",
    "HoldsFields",
    "cellwise",
    "field_rows",
    "flattened",
    "for_part",
    "output",
    "with_coordinates_of",
]

_Array = TypeVar("_Array", bound=NDArray[Any])
Shape = tuple[int, ...]

_SAME_PLACE = 1e-6  # of the largest coordinate: what differs by less is the same place, in float32 too


class FieldLabels:
    """What an xarray DataArray of fields has beside its numbers, but for the coordinates of its samples.

    Attributes
    ----------
    dims : tuple of str
        Names of the axes, that of the samples first.
    name : str or None
    attrs : str
        JSON.
    coords : list of (name, dims, type, values, attrs)
        `values` an array of numbers or a tuple of strings, `type` that of dates and durations, which are stored as
        integers, or "", `attrs` JSON.
    """

    def __init__(
        self,
        dims: tuple[str, ...],
        name: str | None,
        attrs: str,
        coords: list[tuple[str, tuple[str, ...], str, Any, str]],
    ) -> None:
        self.dims, self.name, self.attrs, self.coords = dims, name, attrs, coords

    @classmethod
    def of(cls, X: Any) -> FieldLabels:
        """Those of a DataArray whose first axis counts samples."""
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


def _as_json(attrs: Any) -> str:
    """Attributes as JSON: numbers, strings and lists of them as they are, anything else as its text."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)

    return json.dumps({str(name): value for name, value in attrs.items()}, default=plain)


class _Labels:
    """The declaration of `FieldLabels` in a model file, see `randsmap._interface.state`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def check(self, value: Any, lengths: dict[str, int]) -> None:
        if not getattr(self, f"_{self._what}")(value):
            raise ValueError(f"no {self._what} of fields: {value!r:.80}")

    @staticmethod
    def _dims(value: Any) -> bool:
        return type(value) is tuple and all(type(dim) is str for dim in value) and len(set(value)) == len(value) > 1

    @staticmethod
    def _name(value: Any) -> bool:
        return value is None or type(value) is str

    @staticmethod
    def _attrs(value: Any) -> bool:
        try:
            return type(value) is str and type(json.loads(value)) is dict
        except ValueError:
            return False

    @classmethod
    def _coords(cls, value: Any) -> bool:
        return type(value) is list and all(
            type(entry) is tuple and len(entry) == 5 and cls._coord(*entry) for entry in value
        )

    @classmethod
    def _coord(cls, name: Any, dims: Any, kind: Any, values: Any, attrs: Any) -> bool:
        if type(name) is not str or type(kind) is not str or not cls._attrs(attrs):
            return False
        if type(dims) is not tuple or not all(type(dim) is str for dim in dims):
            return False
        if kind == "str":
            return type(values) is tuple and all(type(word) is str for word in values)
        if type(values) is not np.ndarray or (kind and (values.dtype != np.int64 or kind[:3] not in ("<M8", "<m8"))):
            return False
        return values.ndim == len(dims)


FieldLabels._state = {what: _Labels(what) for what in ("dims", "name", "attrs", "coords")}  # type: ignore[attr-defined]


class _ShapeOfFields:
    """A tuple of two lengths or more, whose product is the number of cells."""

    optional = True

    def check(self, value: Any, lengths: dict[str, int]) -> None:
        if type(value) is not tuple or len(value) < 2 or not all(type(length) is int for length in value):
            raise ValueError(f"it must be a tuple of two integers or more, got {value!r}")
        if min(value) < 1 or lengths.setdefault("M", math.prod(value)) != math.prod(value):
            raise ValueError(f"fields of shape {value} do not have {lengths.get('M')} cells")


# what a model file holds of fields that are no rows of cells; those have neither
FIELD_STATE = {"field_shape_": _ShapeOfFields(), "_field_labels": Part(FieldLabels, optional=True)}


class FieldLayout:
    """How the fields of an array (n, *shape) are arranged; `labels` of a DataArray."""

    def __init__(self, shape: Shape, labels: FieldLabels | None = None) -> None:
        self.shape, self.labels = shape, labels

    def restored(self, rows: NDArray[Any]) -> Any:
        """Rows (n, M), some of the array's, as it has them, but for coordinates of its samples."""
        fields = rows.reshape(len(rows), *self.shape)
        return fields if self.labels is None else self.labels.array(fields)


def _is_data_array(X: Any, name: str) -> bool:
    """Whether X is a DataArray in memory; TypeError for other objects of xarray, and for those not in memory."""
    if type(X).__module__.partition(".")[0] != "xarray":
        return False
    if not hasattr(X, "dims") or hasattr(X, "data_vars"):
        raise TypeError(f"{name} is an xarray {type(X).__name__}: give one of its variables, a DataArray")
    refuse_dask(X.data, name)
    return True


def flattened(X: Any, name: str) -> tuple[Any, FieldLayout | None]:
    """X as rows of cells, and how its fields are arranged; (X, None) if they are rows as they are.

    Nothing is checked but that it can be done, and nothing copied if the memory's order allows it.

    Raises
    ------
    TypeError
        If X is an xarray Dataset, or not in memory.
    """
    labels = None
    if _is_data_array(X, name):
        labels, X = (FieldLabels.of(X) if X.ndim > 1 else None), X.values
    elif isinstance(X, (list, tuple)):  # of lists, of arrays: what does not fit together is told elsewhere
        try:
            X = np.asarray(X) if np.ndim(X) > 2 else X
        except ValueError:
            return X, None
    array: Any = X
    shape: tuple[int, ...] = getattr(array, "shape", ())
    if len(shape) <= 2 or not hasattr(array, "reshape"):
        return array, None if labels is None else FieldLayout(shape[1:], labels)
    return array.reshape(shape[0], math.prod(shape[1:])), FieldLayout(tuple(map(int, shape[1:])), labels)


class _RowsOfCells:
    """`field_shape_` where an estimator has none of its own: its fields are rows."""

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        return self if estimator is None else estimator._flat_shape()


class HoldsFields:
    """An estimator of fields: it remembers how those of its `fit` are arranged, and returns others so."""

    field_shape_: Any = _RowsOfCells()
    n_features_in_: int

    def _flat_shape(self) -> Shape:
        return (self.n_features_in_,)

    def _keep_layout(self, layout: FieldLayout | None) -> None:
        for name in FIELD_STATE:
            self.__dict__.pop(name, None)
        if layout is not None and len(layout.shape) > 1:
            self.field_shape_ = layout.shape
        if layout is not None and layout.labels is not None:
            self._field_labels = layout.labels

    def _in_shape(self, rows: _Array) -> _Array:
        """Rows (..., M) as fields (..., *field_shape_)."""
        shape = self.__dict__.get("field_shape_")
        return rows if shape is None else rows.reshape(*rows.shape[:-1], *shape)  # type: ignore[return-value]

    def _labelled(self, fields: Any, *given: Any) -> Any:
        """Whole fields as a DataArray if those of `fit` were one, unless something of `given` is not None."""
        labels = self.__dict__.get("_field_labels")
        if labels is None or any(option is not None for option in given):
            return fields
        return labels.array(np.asarray(fields))

    def _vectors(self, V: Any) -> Any:
        """Vectors (n, *field_shape_) or (*field_shape_,) as rows (n, M) or (M,), others as they are."""
        shape = self.__dict__.get("field_shape_")
        if shape is None:
            return V
        V = np.asanyarray(V)
        if V.shape == shape:
            return V.reshape(-1)
        return V.reshape(len(V), -1) if V.shape[1:] == shape else V


class EncodesFields(HoldsFields):
    """An estimator whose X are fields."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        return tags


def field_rows(estimator: HoldsFields, X: Any, *, reset: bool = False, name: str = "X") -> Any:
    """The fields X, an argument of an estimator's method, as rows of cells.

    reset : as for scikit-learn's `validate_data`: whether the estimator is to remember how they are arranged

    Raises
    ------
    ValueError
        If they are arranged in another way than those of `fit`; rows (n, M) always do.
    TypeError
        As `flattened`.
    """
    kept = estimator.__dict__.get("field_shape_")
    if type(X) in (np.ndarray, np.memmap) and X.ndim <= 2 and (reset or X.shape != kept):
        if reset:
            estimator._keep_layout(None)
        return X
    rows, layout = flattened(X, name)
    if reset:
        estimator._keep_layout(layout)
        return rows
    given = getattr(X, "shape", None) or getattr(rows, "shape", ())
    if kept is not None and given == kept:
        raise ValueError(
            f"{name} is one field of shape {kept}, expected an array (n_samples, {', '.join(map(str, kept))}). Reshape "
            f"your data: {name}[None] is an array of one field"
        )
    if layout is not None and len(layout.shape) > 1 and layout.shape != kept:
        n, M = rows.shape
        expected = "n_cells" if kept is None else ", ".join(map(str, kept))
        hint = ""
        if kept is None or M == math.prod(kept):
            shape = "-1" if kept is None else expected
            hint = f". Reshape your data: reshape({n}, {shape}), if the order of the cells is the same"
        raise ValueError(f"{name} must have shape (n_samples, {expected}), as in fit, got {given}{hint}")
    labels = estimator.__dict__.get("_field_labels")
    if labels is not None and layout is not None and layout.labels is not None:
        _refuse_other_order(layout.labels.dims, labels.dims, name)
        _warn_of_other_coordinates(layout.labels, labels, name)
    return rows


def _refuse_other_order(given: tuple[str, ...], kept: tuple[str, ...], name: str) -> None:
    """ValueError for the axes of `fit` in another order: of equal lengths, they would pass for each other."""
    if given[1:] != kept[1:] and (set(given[1:]) == set(kept[1:]) or kept[0] in given[1:]):
        raise ValueError(f"{name} has the dimensions {given}, those of fit were {kept}: transpose it")


def _warn_of_other_coordinates(given: FieldLabels, kept: FieldLabels, name: str) -> None:
    """Tell of an axis on which the cells lie elsewhere than in `fit`: reversed latitudes pass for the same cells."""
    along = {axis: values for axis, dims, kind, values, _ in kept.coords if dims == (axis,) and not kind}
    for axis, dims, kind, values, _ in given.coords:
        if dims != (axis,) or kind or axis not in along or np.shape(along[axis]) != np.shape(values):
            continue
        here, there = (np.asarray(v, dtype=np.float64) for v in (values, along[axis]))
        if np.abs(here - there).max() > _SAME_PLACE * np.abs(there).max():
            warnings.warn(
                f"{name} has other coordinates along {axis!r} than the fields of fit, {here[0]:g} to {here[-1]:g} "
                f"where those had {there[0]:g} to {there[-1]:g}, and cells are taken by their order: sort or "
                f"interpolate {name} to the coordinates of fit, or give {name}.values",
                UserWarning,
                stacklevel=4,
            )


def output(out: NDArray[np.float64] | None, X: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """`out` if results of this shape may go there while X (None: nothing) is read, a new array if it is None.

    Fields of some shape may go to rows, too.
    """
    if out is not None and len(shape) > 2 and getattr(out, "ndim", 0) == 2:
        shape = shape[0], math.prod(shape[1:])
    return check_out(out, shape, apart=X)


def with_coordinates_of(X: Any, fields: Any) -> Any:
    """Fields that reconstruct X: if that is a DataArray of their shape with its own coordinates, the samples' too."""
    if hasattr(X, "coords") and np.shape(X) == np.shape(fields):
        return X.copy(data=np.asarray(fields))
    return fields


def for_part(part: Any, X: Any, layout: FieldLayout | None) -> Any:
    """Rows X (n, M) for the fit of an encoder or a decoder: in their shape, if it knows what that is."""
    if layout is None or len(layout.shape) < 2 or not isinstance(part, HoldsFields):
        return X
    return X.reshape(len(X), *layout.shape)


def cellwise(values: Any, shape: Shape | None, *, name: str, columns: bool = False) -> Any:
    """One value a cell, given in the fields' shape (and with `columns` several, behind it), as (M,) or (M, q)."""
    if isinstance(values, str) or values is None or np.ndim(values) < 2:
        return values
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
