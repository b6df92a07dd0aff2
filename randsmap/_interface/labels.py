"""Labels of arrays: axes and coordinates of xarray and pandas, stored, restored and, of two arrays, compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.parameters import Parameter
from randsmap._interface.state import immutable, saved
from randsmap._io.text import Table


def is_table(X: Any) -> bool:
    """True for what has names of rows and columns, but none of its axes."""
    return hasattr(X, "iloc") or isinstance(X, Table)


@immutable
class Labels:
    """Names of axes, name, attributes and coordinates (name, dims, kind, values, attributes) of fields."""

    dims: tuple[str, ...] = saved(Parameter(object))
    name: str | None = saved(Parameter(object))
    attrs: str = saved(Parameter(object))
    coords: list[tuple[str, tuple[str, ...], str, Any, str]] = saved(Parameter(object))
    table: bool = saved(Parameter(bool), default=False)

    @classmethod
    def of(cls, X: Any, *, samples: bool = True) -> Labels | None:
        """Labels of an array, whose first axis counts samples unless it has none; None of an array without labels."""
        axes = axes_of(X)
        if axes is None or (samples and X.ndim < 2):
            return None
        dims, found = axes
        dims = dims if samples else ("", *dims)
        coords = [
            (name, along, *_stored(values), _as_json(attrs))
            for name, along, values, attrs in found
            if dims[0] not in along  # coordinates of the samples do not apply to other samples
        ]
        table = is_table(X)
        name = None if table else getattr(X, "name", None)
        return cls(dims, name if name is None else str(name), _as_json(getattr(X, "attrs", {})), coords, table)

    def array(self, fields: NDArray[np.float64]) -> Any:
        """Fields (n, *shape) as a DataArray, or those of a table as a Table."""
        if self.table:
            return Table.of(fields, columns=next((_restored(*part[2:4]) for part in self.coords), None))
        try:
            import xarray
        except ImportError:
            what = "the fields of this estimator have names and coordinates of xarray, which is not installed"
            raise ImportError(f"{what}: pip install xarray, or pass an array as out=") from None
        shape = dict(zip(self.dims, fields.shape))
        coords, attributes = xarray.Coordinates(), {}
        for name, dims, kind, values, attrs in self.coords:
            values = None if kind == "level" else _restored(kind, values)
            if kind == "levels":
                coords.update(xarray.Coordinates.from_pandas_multiindex(values, dims[0]))
            elif values is not None:
                values = values if len(dims) == 1 else np.asarray(values).reshape([shape[dim] for dim in dims])
                coords.update({name: (dims, values)})
            attributes[name] = json.loads(attrs)
        found = xarray.DataArray(fields, dims=self.dims, coords=coords, attrs=json.loads(self.attrs), name=self.name)
        for name, attrs in attributes.items():
            found[name].attrs = attrs
        return found

    def compare(self, given: Labels, name: str, shapes: tuple[Any, Any], whose: str = "the fields of fit") -> None:
        """ValueError if another array's cells have other labels, or its axes another order; `shapes` are of both."""
        dims, kept = given.dims, self.dims
        named = not (given.table or self.table)
        if named and dims[1:] != kept[1:] and (set(dims[1:]) == set(kept[1:]) or kept[0] in dims[1:]):
            whose = whose.removeprefix("the fields of ")
            raise ValueError(f"{name} has the dimensions {dims}, those of {whose} were {kept}: transpose it")
        ours = list(_by_cells(self))
        theirs = {key: (axes, kind, values, len(keys) > 1) for keys, axes, kind, values in ours for key in keys}
        indexed = {axes for keys, axes, *_ in ours if len(keys) > 1}
        for keys, axes, kind, here in _by_cells(given):
            key = next((key for key in keys if key in theirs), None)
            if key is None:
                continue
            their_axes, their_kind, there, index = theirs[key]
            # along an axis with an index, other coordinates may differ: they may be measured values
            if len(keys) == 1 and not index and all((axis,) in indexed for axis in axes):
                continue
            if isinstance(key, str) and (axes != their_axes or here.shape != there.shape):
                here, there = _spread(here, axes, shapes[1]), _spread(there, their_axes, shapes[0])
            check_equal(here, there, f"{name} has other labels along {keys[0]!r} than {whose}", (kind, their_kind))

    def _restore(self) -> None:
        """ValueError if the values of a model file cannot be a result of `of`."""
        dims, texts = self.dims, [self.attrs, *(entry[-1] for entry in self.coords)]
        words = [*texts, self.name or "", *(w for name, along, kind, *_ in self.coords for w in (name, kind, *along))]
        valid = type(dims) is tuple and {str} == {*map(type, (*dims, *words))}
        valid = valid and 1 < len(dims) == len(set(dims)) and all(type(json.loads(text)) is dict for text in texts)
        if not valid or not all(set(e[1]) <= set(dims) and _is_stored(*e[2:4], len(e[1])) for e in self.coords):
            raise ValueError("no labels of fields")


# -- Coordinates -----------------------------------------------------------------------------------
def axes_of(X: Any) -> tuple[tuple[str, ...], list[tuple[str, tuple[str, ...], Any, Any]]] | None:
    """Names of the axes, and (name, dims, index or values, attributes) of each coordinate; None without labels."""
    if is_table(X):
        dims: tuple[str, ...] = ("index", "columns")[: X.ndim]
        axes = X.axes if hasattr(X, "iloc") else (X.row_names, X.column_names)
        coords: list[Any] = [(dim, (dim,), axis, {}) for dim, axis in zip(dims, axes) if axis is not None]
        return (dims, coords) if coords else None
    if not (hasattr(X, "dims") and hasattr(X, "sizes")):
        return None
    coords = []
    for name, coordinate in getattr(X, "coords", {}).items():  # a Variable of xarray has none
        values = coordinate.to_index() if coordinate.ndim == 1 else coordinate.values
        if name not in coordinate.dims and hasattr(X.indexes.get(name), "levels"):
            values = None  # the index of the dimension has these values
        coords.append((str(name), tuple(map(str, coordinate.dims)), values, coordinate.attrs))
    return tuple(map(str, X.dims)), coords


def index_of(X: Any, axis: int) -> Any:
    """The index along an axis of an array, -1: the last; None if it has none."""
    dims, coords = axes_of(X) or ((), [])
    return next((values for name, along, values, _ in coords if (name,) == along == dims[axis:][:1]), None)


_SINCE = "microseconds since 1970-01-01"


def _stored(values: Any) -> tuple[str, Any]:
    """(kind, values) of a coordinate as a model file can hold them.

    Numbers are an array, of kind "", "range" if pandas counted, "cftime" and a calendar, or the name of pandas' type.
    "levels", "categories" (or "ordered") and "intervals" are made of other coordinates: tuples (name, kind, values,
    codes). A "level" is one of those. All others are text, and the kind is the type, or "str".
    """
    if values is None:
        return "level", ()
    parts = _parts_of(values)
    if parts is not None:
        kind, found = parts
        return kind, [(str(name), *_stored(part), np.array(codes, np.int64)) for name, part, codes in found]
    array = np.asarray(values)
    dtype = getattr(values, "dtype", array.dtype)
    if array.dtype.kind in "buif" and isinstance(dtype, np.dtype):
        counted = isinstance(values, range) or (getattr(values, "start", None) == 0 and values.step == 1)
        return "range" if counted else "", array
    calendars = {getattr(value, "calendar", None) for value in array.ravel()}
    if len(calendars) == 1 and None not in calendars:
        import cftime

        (calendar,) = calendars
        return f"cftime {calendar}", np.asarray(cftime.date2num(array, _SINCE, calendar), dtype=np.int64)
    words = values if hasattr(values, "equals") else array.ravel()
    text: Any = tuple(word.decode("latin-1") if isinstance(word, bytes) else str(word) for word in words)
    if array.dtype.kind in "mM":
        return str(dtype), text
    if str(dtype) in ("object", "str") or array.dtype.kind in "US":
        return "str", text
    is_number = getattr(dtype, "numpy_dtype", array.dtype).kind in "buif"
    with suppress(TypeError, ValueError):  # a type that pandas does not read from them
        stored = values.to_numpy(np.float64, na_value=np.nan) if is_number else text
        if _restored(str(dtype), stored).equals(values):
            return str(dtype), stored
    return "str", text


def _parts_of(values: Any) -> tuple[str, list[tuple[Any, Any, Any]]] | None:
    """(kind, [(name, index, positions)]) of the parts of a compound index of pandas; None for a simple index."""
    if hasattr(values, "levels"):
        return "levels", list(zip(values.names, values.levels, values.codes))
    if hasattr(values, "categories"):
        return "ordered" if values.ordered else "categories", [("", values.categories, values.codes)]
    if hasattr(values, "closed"):
        ends = ((name, getattr(values, name)) for name in ("left", "right"))
        return f"intervals {values.closed}", [(name, end, np.arange(len(end))) for name, end in ends]
    return None


def _restored(kind: str, values: Any) -> Any:
    """The index or the array (flat for text) from the result of `_stored`."""
    if kind in ("", "range"):
        return values
    if kind == "str":
        return np.array(values, dtype=str)
    if kind.startswith("cftime "):
        import cftime

        return cftime.num2date(values, _SINCE, kind[7:], only_use_cftime_datetimes=True)
    import pandas

    if not isinstance(values, list):
        return pandas.Index(pandas.array(list(values), dtype=kind))
    names, kinds, parts, codes = zip(*values)
    parts = [pandas.Index(_restored(*pair)) for pair in zip(kinds, parts)]
    if kind == "levels":
        return pandas.MultiIndex(parts, codes, names=names)
    if kind.startswith("intervals "):
        return pandas.IntervalIndex.from_arrays(*parts, closed=kind[10:])
    return pandas.CategoricalIndex(pandas.Categorical.from_codes(*codes, *parts, ordered=kind == "ordered"))


def _is_stored(kind: str, values: Any, ndim: int) -> bool:
    """True if `_stored` can return values of this kind for a coordinate with this number of axes."""
    try:
        again, stored = ("level", ()) if kind == "level" else _stored(_restored(kind, values))
        if again != kind.replace("range", "") or type(stored) is not type(values):
            return False
        if isinstance(values, list):
            return all(_is_stored(inner, part, 1) and codes.dtype == np.int64 for _, inner, part, codes in values)
        if isinstance(values, np.ndarray):
            return values.ndim == ndim
        return len(stored) == len(values) and all(type(word) is str for word in values)
    except Exception:
        return False


def comparable(values: Any) -> tuple[str, NDArray[Any]]:
    """The kind of an index, and what `check_equal` compares: numbers, or text."""
    kind, stored = _stored(values)
    return kind, _flat(kind, list(map(str, values)) if kind == "levels" else stored)


def _flat(kind: str, values: Any) -> NDArray[Any]:
    if kind in ("categories", "ordered"):
        return _chosen(*values[0][1:])
    values = np.ravel(_restored(kind, values) if kind.startswith("intervals ") else values)
    return values.astype(str) if kind.startswith("cftime ") or values.dtype.kind not in "buif" else values


def _chosen(kind: str, values: Any, codes: NDArray[np.int64]) -> NDArray[Any]:
    """The labels at these places; -1 stands for a missing label."""
    labels = _flat(kind, values)
    if len(codes) and codes.min() < 0:
        labels = np.append(labels, "nan" if labels.dtype.kind == "U" else np.nan)
    return labels[codes]


def _by_cells(labels: Labels) -> Iterator[tuple[list[Any], tuple[int, ...], str, NDArray[Any]]]:
    """(keys, axes, kind, values) of each coordinate and level; keys are the name and, for an index, the axis."""
    for name, dims, kind, values, _ in labels.coords:
        axes = tuple(labels.dims.index(dim) - 1 for dim in dims)
        parts = values if kind == "levels" else [(name, kind, values, None)] * (kind != "level" and dims != ())
        names = [part[0] for part in parts]
        for i, (key, inner, part, codes) in enumerate(parts):
            key = key if names.count(key) == 1 else f"{name} level {i}"  # levels without names
            found = _flat(inner, part) if codes is None else _chosen(inner, part, codes)
            yield [key, (axes, i, len(parts))][: 1 + (dims == (name,))], axes, inner, found


def _spread(values: NDArray[Any], axes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """A coordinate along some axes as one value for each cell, flat."""
    values = values.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))
    return np.broadcast_to(values.reshape([n if axis in axes else 1 for axis, n in enumerate(shape)]), shape).ravel()


def check_equal(here: NDArray[Any], there: NDArray[Any], what: str, kinds: tuple[str, str]) -> None:
    """ValueError, which begins with `what`, if labels differ; from labels that were counted, in their order alone."""
    both = {here.dtype.kind, there.dtype.kind}
    if here.shape != there.shape:  # the shapes are checked elsewhere
        return
    counted = "range" in kinds or both == {"i", "U"}  # integers may be the row numbers of a subset
    if counted and not np.array_equal(*np.sort([here, there])):
        return
    if "f" in both and not both - set("iuf"):
        here, there = here.astype(np.float64), there.astype(np.float64)
        known = there[np.isfinite(there)]
        gaps, size = np.diff(np.unique(known)), np.abs(known).max(initial=0.0)
        # float32 has seven digits
        tolerance = max(min(1e-6 * size, gaps.min(initial=np.inf) / 2), np.finfo(np.float32).eps * size)
        differ = ~np.isclose(here, there, rtol=0.0, atol=tolerance, equal_nan=True)
    else:
        differ = here != there if len(both) == 1 or not both - set("iu") else here.astype(str) != there.astype(str)
    for i in np.flatnonzero(differ)[:1]:
        sort = "they are the same in another order: sort them (a table by its feature names)"
        remedy = sort if sorted(here) == sorted(there) else "select or interpolate the same ones in the same order"
        raise ValueError(f"{what}, {here[i]} at place {i} instead of {there[i]}; {remedy}, or pass an unlabelled array")


def _as_json(attrs: Any) -> str:
    """Attributes as JSON: numbers, strings and lists of them as they are, anything else as its text."""
    return json.dumps(
        {str(name): value for name, value in attrs.items()},
        default=lambda value: value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value),
    )
