"""The one way in for arrays: every array of numbers that a public method takes passes `as_array` or `validate_data`.

Below are C-contiguous, aligned, finite float64 arrays, and kernels trust them. scikit-learn's `check_array` needs 76 us
for a row that needs no conversion (`as_array` 1.3 us). It also reads the values below a mask, dates and text as data,
and does not name the place of a value that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import validate_data as sklearn_validate

from randsmap._interface.callers import warn_caller
from randsmap._interface.labels import axes_of, check_equal, comparable, index_of
from randsmap._io.files import reserve
from randsmap._io.text import Table

_LINE = 64  # bytes of a cache line
_FLOAT = np.dtype(np.float64)

Shape = tuple[int | None, ...]
_Values = NDArray[np.float64]


def as_array(
    X: Any, name: str, shape: Shape = (None, None), *, min_rows: int = 1, min_columns: int = 1, repeat: bool = False
) -> _Values:
    """X as a finite, C-contiguous, aligned float64 array; the caller's array if it is one.

    `shape` are the lengths of its one or two axes, None: any. With `repeat`, one row (shape[1],) stands for all rows.
    """
    array = real_numbers(X, name).astype(np.float64, copy=False)
    if repeat and array.ndim == 1:
        array = np.broadcast_to(array, (shape[0], len(array)))  # type: ignore[arg-type]
    _check_shape(array.shape, name, shape, repeat)
    if array.ndim == 2 and not repeat and (array.shape[0] < min_rows or array.shape[1] < min_columns):
        few = f"{min_rows} row(s)" if array.shape[0] < min_rows else f"{min_columns} column(s)"
        raise ValueError(f"{name} must have at least {few}, got shape {array.shape}")
    array = np.ascontiguousarray(array)
    array = array if array.flags.aligned else array.copy()  # compiled loops need aligned numbers
    check_finite(array, name)
    return array


def as_columns(parameters: Any, name: str = "parameters") -> Any:
    """Parameters as columns; a sequence of numbers holds one parameter."""
    return real_numbers(parameters, name)[:, None] if np.ndim(parameters) == 1 else parameters


def validate_data(estimator: Any, X: Any, *, reset: bool, min_samples: int | None = None, name: str = "X") -> _Values:
    """The argument X of an estimator's method, or `name`, by `as_array`, with scikit-learn's bookkeeping.

    On reset `n_features_in_` and `feature_names_in_` are set, else X is compared with them. A row takes a short path.
    """
    min_samples = int(reset) if min_samples is None else min_samples
    if not reset and type(X) is np.ndarray and X.dtype is _FLOAT and X.ndim == 2 and len(X) >= min_samples:
        known = X.shape[1] == getattr(estimator, "n_features_in_", 0) and not hasattr(estimator, "feature_names_in_")
        if known and X.flags.c_contiguous and X.flags.aligned and in_domain(X):
            return X
    valid = as_array(X, name, min_rows=0, min_columns=0)
    for length, least, what in zip(valid.shape, (min_samples, 1), ("sample", "feature")):
        if length < least:  # in the words that scikit-learn's tests expect
            found = f"{length} {what}(s) (shape={valid.shape})"
            raise ValueError(f"{name} has {found} while a minimum of {least} is required.")
    try:
        _note_columns(estimator, X, valid, reset, name)
    except ValueError as error:
        if len(valid) == getattr(estimator, "n_features_in_", None) != valid.shape[1]:
            raise ValueError(f"{error} X has {len(valid)} rows: if its columns are the samples, give X.T") from None
        raise
    if reset:
        check_domain(valid, name)
        check_parameters_of_columns(estimator, index_of(X, -1), name)
    return valid


def _note_columns(estimator: Any, X: Any, valid: _Values, reset: bool, name: str) -> None:
    """Set `n_features_in_` and `feature_names_in_`, or compare `X` with them. Labels other than text count as names."""
    index = index_of(X, -1)
    names = index if index is not None and comparable(index)[0] != "range" else None
    known = getattr(estimator, "feature_names_in_", ())
    if names is not None and not reset and len(known) == valid.shape[1]:
        what = "The feature names should match those that were passed during fit"  # scikit-learn's words
        here = list(map(str, names))
        if isinstance(X, Table) and not any(a != b and a in known for a, b in zip(here, known)):
            others = [f"{a!r} for {b!r}" for a, b in zip(here, known) if a != b]
            if others:  # in a text file the names of columns may differ
                warn_caller(f"{name} has other column names than in fit, used by position: {', '.join(others[:3])}")
            return
        _check_index(np.array(here), known, f"{what}: {name} has other columns")
        return
    of_others = hasattr(X, "columns") and not hasattr(X, "iloc")  # a data frame of polars or another package
    if reset and not of_others:  # scikit-learn would look for the data frames of each package that is installed
        estimator.n_features_in_ = valid.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    else:
        sklearn_validate(estimator, X if of_others else valid, reset=reset, skip_check_array=True)
    if names is not None and reset:
        estimator.feature_names_in_ = np.array(list(map(str, names)), dtype=object)


# -- Labels ----------------------------------------------------------------------------------------
def check_parameters_of_columns(estimator: Any, names: Any, whose: str, prefix: str = "") -> None:
    """ValueError if parameters with an entry for each column of X, as they declare, have other labels than these."""
    for key, declared in getattr(estimator, "_parameters", {}).items():
        value = getattr(estimator, key) if declared.of_columns and names is not None else ()
        for part in value if isinstance(value, (list, tuple)) else [value]:
            check_columns(names, whose, **{prefix + key: part})
            check_parameters_of_columns(part, names, whose, f"{prefix}{key}__")


def check_columns(names: Any, whose: str, **arrays: Any) -> None:
    """ValueError if arrays, by their names, have other labels along their last axis than an index, if it is one."""
    for name, X in arrays.items():
        _check_index(index_of(X, -1), names, f"{name} has other labels than the columns of {whose}")


def check_beside(X: Any, others: Mapping[str, Any], known: Any = None, invariants: Any = None) -> None:
    """ValueError if arrays, by their names, have other labels than the points X, the columns of fit or `invariants`."""
    if all(each is None or type(each) is np.ndarray for each in (X, *others.values())):
        return  # fast path: one row without labels takes microseconds
    check_samples(X=X, **others)
    V, values = others.get("V"), others.get("invariant_values")
    check_columns(index_of(X, -1), "X", V=V)
    check_columns(known, "fit", V=V)
    names = index_of(invariants, -1) if np.ndim(invariants) > 1 else None
    if names is not None and len(names) > 1:
        check_columns(names, "invariants", invariant_values=values)


def latent_names(encoder: Any) -> list[str] | None:
    """The encoder's names of latents; None if it has none, as a pipeline of which a step has none."""
    with suppress(AttributeError, ValueError):
        return list(encoder.get_feature_names_out())
    return None


def latents_of(X: Any, encoder: Any, name: str = "X") -> Any:
    """Latents without labels; ValueError if their columns have the encoder's names of latents in another order."""
    if X is None or type(X) is np.ndarray:
        return X
    index = index_of(X, -1)
    if index is None and not hasattr(X, "columns"):
        return np.asarray(X) if hasattr(X, "coords") else X
    names = latent_names(encoder) or []
    given = list(map(str, X.columns if index is None else index))
    if given != names and sorted(given) == sorted(names):
        raise ValueError(f"{name} has the columns {given}, those of the encoder are {names}: select them in this order")
    return real_numbers(X, name)


def check_samples(**arrays: Any) -> None:
    """ValueError if two arrays, by their names, have other labels of the samples, or their axes another order."""
    first: Any = None
    for name, X in arrays.items():
        axes = axes_of(X)
        if axes is None or not X.ndim:
            continue
        dims, index = axes[0], index_of(X, 0)
        if first is None:
            first = name, dims, index
            continue
        known, their_dims, theirs = first
        if X.ndim > 1 and dims[0] != their_dims[0] and (dims[0] in their_dims or their_dims[0] in dims):
            raise ValueError(f"{name} has the dimensions {dims}, those of {known} were {their_dims}: transpose it")
        _check_index(index, theirs, f"{name} has other labels along {dims[0]!r} than {known}")


def _check_index(index: Any, theirs: Any, what: str) -> None:
    if index is not None and theirs is not None:
        (kind, here), (their_kind, there) = comparable(index), comparable(theirs)
        if {here.dtype.kind, there.dtype.kind} == {"i", "f"}:  # such as row numbers and times
            kind = "range"
        check_equal(here, there, what, (kind, their_kind))


# -- Numbers ---------------------------------------------------------------------------------------
def real_numbers(X: Any, name: str) -> NDArray[Any]:
    """X as floats, integers or booleans, finite or not: what a number is, for all arguments. Type- or ValueError."""
    if type(X) is not np.ndarray:
        refuse_unreadable(X, name)
    try:
        array = np.asarray(X)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array of real numbers: {error}") from None
    if array.dtype.kind == "O":
        array = _from_objects(array, name)
    if array.dtype.kind not in "fiub":
        advice = _ADVICE.get(array.dtype.kind, "")
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}{advice}")
    return array


_ADVICE = {
    "c": " (Complex data not supported)",
    "m": ": divide durations by one of them, such as np.timedelta64(1, 's')",
    "M": ": subtract one of the dates, and divide by a duration, such as np.timedelta64(1, 's')",
}


def _from_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    expected = f"{name} must be an array of real numbers"
    for where, value in np.ndenumerate(array):
        if value is None or type(value).__name__ == "NAType":  # pandas' NA has no float; None would become NaN
            what = "None" if value is None else "NA"
            raise ValueError(f"{name} must be finite, got {what}, a missing value, at {where}")
        if isinstance(value, (str, bytes)):
            raise ValueError(f"{expected}, got the text {value!r} at {where}")
        if isinstance(value, np.generic) and value.dtype.kind in _ADVICE:  # NumPy would drop the unit
            raise ValueError(f"{expected}, got {value!r} at {where}{_ADVICE[value.dtype.kind]}")
    try:
        numbers = np.array(array.tolist())  # integers and booleans keep their type
        return numbers if numbers.dtype.kind in "iub" else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{expected}: {error}") from None


def refuse_unreadable(X: Any, name: str) -> None:
    """Raise for what NumPy would misread or load whole: sparse, masked, dask, Dataset, lists of labelled arrays."""
    if hasattr(X, "toarray"):
        raise TypeError(f"{name} must be dense, got a sparse {type(X).__name__}")
    if hasattr(X, "data_vars"):
        raise TypeError(f"{name} is an xarray {type(X).__name__}: give one of its variables, a DataArray")
    if hasattr(X, "iloc") and X.ndim == 2 and X.shape[1] > 1 and str(X.columns[0]) in ("index", "level_0"):
        column = repr(str(X.columns[0]))
        remedy = f"make labels of it by set_index({column}), or leave it out by drop(columns={column})"
        raise ValueError(f"{name} has a column {column} next to others, as reset_index() makes it of labels: {remedy}")
    parts = X if isinstance(X, (list, tuple)) else ()
    if any(axes_of(part) and part.ndim for part in parts):
        what, remedy = type(X).__name__, "give one array, from xarray.concat(..., 'sample') or pandas.DataFrame"
        raise TypeError(f"{name} is a {what} of labelled arrays, whose axes NumPy would not compare: {remedy}")
    # np.asarray would read the values below the mask, such as netCDF's fill value 1e37, as data
    masked = sum(np.sum(np.ma.getmask(part)) for part in parts or [X])
    if masked:
        remedy = "give them values, for example with X.filled(0.0)"
        raise ValueError(f"{name} has {masked} masked value(s), which are no numbers: {remedy}")
    if hasattr(X, "__dask_graph__") and X.__dask_graph__() is not None:  # None: an array of xarray in memory
        what = f"a dask {type(X).__name__}, which would be loaded whole: randsmap.distributed has fit, fit_model"
        remedy = "transform, inverse_transform and score for dask arrays; compute() loads one that fits in memory"
        raise TypeError(f"{name} is {what}, {remedy}")


def _check_shape(given: tuple[int, ...], name: str, shape: Shape, repeat: bool) -> None:
    if len(given) != len(shape) == 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {given}")
    if len(shape) == 2:
        refuse_other_dimensions(given, name)
    if shape[-1] not in (None, given[-1]):
        what = f"length {shape[0]}" if len(shape) == 1 else f"{shape[1]} columns"
        raise ValueError(f"{name} must have {what}, got {given[-1]}")
    if shape[0] not in (None, given[0]):
        also = f", or be one vector ({shape[-1]},)" if repeat else ""
        raise ValueError(f"{name} must have one row for each row of X, {shape[0]}{also}, got shape {given}")


def refuse_other_dimensions(shape: tuple[int, ...], name: str) -> None:
    """ValueError with a hint how to reshape, unless an array of this shape has rows and columns."""
    if len(shape) == 2:
        return
    hint = "reshape(1, -1) makes it one row, reshape(-1, 1) one column"
    if len(shape) > 2:
        hint = f"reshape({shape[0]}, -1) makes each entry of the first axis a row"
    raise ValueError(f"{name} must have 2 dimensions (rows, columns), got shape {shape}. Reshape your data: {hint}")


# -- Numeric domain --------------------------------------------------------------------------------
# Squares of numbers up to 1e140, and sums of 1e27 squares, do not overflow: below the public methods no formula
# needs a safeguard against the ends of the floating-point range. Numbers below 1e-140 count as 0: their squares do.
SMALLEST, LARGEST = 1e-140, 1e140


def in_domain(X: _Values) -> bool:
    """True only if all numbers are finite and at most 1e140; one pass that allocates nothing. False if unsure."""
    if X.size <= 16:  # Python adds so few numbers faster than NumPy
        return sum(map(abs, X.ravel().tolist())) <= LARGEST
    x = X.ravel()
    # not by BLAS, whose threads would keep a core busy for 0.1 s after the call
    return bool(np.einsum("i,i->", x, x) <= LARGEST**2)


def check_finite(X: _Values, name: str) -> None:
    """ValueError that names the first value that is not finite, with its place, or is above 1e140."""
    if in_domain(X):
        return
    bad = np.argwhere(~np.isfinite(X))
    for where in map(tuple, bad[:1].tolist()):
        value = "NaN" if np.isnan(X[where]) else X[where]
        raise ValueError(f"{name} must be finite, got {value} at {where} ({len(bad)} such value(s))")
    _refuse_beyond(max(X.max(), -X.min()), name, X)


def finite_results(results: _Values) -> _Values:
    """What was computed of the rows of X, a row each; ValueError names the first row whose result is not finite."""
    if not np.isfinite(results).all():
        row, *_ = np.argwhere(~np.isfinite(results))[0]
        raise ValueError(f"row {row} of X: the point is too far away, its result overflows")
    return results


def check_domain(X: _Values, name: str, *, each: bool = False) -> _Values:
    """X, if its largest magnitude is 0 or within [1e-140, 1e140], else ValueError.

    For data that a unit is taken from, such as training fields; with `each` for weights, each of which is divided by.
    """
    if X.size:
        largest = max(float(X.max()), -float(X.min()))
        _refuse_beyond(largest, name, X)
        if each and largest:
            _refuse_beyond(float(np.abs(X[X != 0]).min()), name, X)
    return X


def _refuse_beyond(value: float, name: str, X: _Values) -> None:
    if value and not SMALLEST <= value <= LARGEST:
        where = tuple(np.argwhere(np.abs(X) == value)[0].tolist())
        remedy = f"use a unit in which the numbers are nearer to 1 (at {where})"
        raise ValueError(f"{name} must be 0 or of magnitude {SMALLEST:g} to {LARGEST:g}, got {value:.3g}: {remedy}")


# -- Results, cells and labels ---------------------------------------------------------------------
def check_out(
    out: NDArray[Any] | None, shape: tuple[int, ...], dtype: DTypeLike = np.float64, *, apart: Any = None, U: Any = None
) -> NDArray[Any]:
    """out if it can take results of this shape and type while X (`apart`) and U are read, a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype)
    for name, read in (("X", apart), ("U", U)):
        if read is not None and np.may_share_memory(out, read):
            raise ValueError(f"out must not share memory with {name}")
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray) or out.dtype != dtype:
        raise TypeError(f"out must be a {np.dtype(dtype)} NumPy array, got {getattr(out, 'dtype', type(out).__name__)}")
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}")
    if not out.flags.carray:
        raise ValueError(f"out must be C-contiguous, aligned and writeable, got flags\n{out.flags}")
    if out.base is not None:  # on a full disk, writing to a mapped file may end the process
        reserve(out)
    return out


def check_cells(cells: ArrayLike, n_cells: int, shape: Any = None, name: str = "cells") -> NDArray[np.intp]:
    """Indices (k,) in [0, n_cells), of indices, which may be negative, or a mask (n_cells,) or of a field's shape."""
    cells = real_numbers(cells, name)
    if cells.dtype == bool and cells.shape == shape:
        cells = cells.reshape(-1)
    if cells.ndim != 1:
        hint = ". Reshape your data: reshape(-1)" if cells.dtype == bool and cells.size == n_cells else ""
        expected = f"1 dimension: integer indices, or a boolean mask ({n_cells},)"
        raise ValueError(f"{name} must have {expected}; got shape {cells.shape}{hint}")
    if cells.dtype == bool:
        if len(cells) != n_cells:
            raise ValueError(f"{name} as a mask must have length {n_cells}, got {len(cells)}")
        return np.flatnonzero(cells)
    if cells.dtype.kind not in "iu" and len(cells):
        raise TypeError(f"{name} must hold integer indices or be a boolean mask, got {cells.dtype}")
    for k in np.flatnonzero((cells < -n_cells) | (cells >= n_cells))[:1]:
        raise ValueError(f"{name}[{k}] is {cells[k]}, out of range for {n_cells} cells")
    cells = cells.astype(np.intp)
    cells[cells < 0] += n_cells
    return cells


_NO_LABELS = {"", "nan", "NaN", "NaT", "None", "<NA>", "NA", "N/A", "#N/A"}


def as_labels(labels: Any, name: str = "groups") -> NDArray[Any]:
    """Labels of groups as an array that can be sorted: labels of different types as text."""
    refuse_unreadable(labels, name)
    labels = np.asarray(labels)
    if labels.dtype.kind in "cV":
        raise ValueError(f"{name} must be numbers, dates or text, got {labels.dtype}")
    if labels.dtype.kind not in "biu":
        words = np.unique(labels) if labels.dtype != object else labels.ravel()
        wrong = _NO_LABELS & {*map(str.strip, map(str, words))}
        for k, label in enumerate(labels.ravel() if wrong else ()):
            if str(label).strip() in wrong:
                raise ValueError(f"{name}[{k}] is '{label}', no label: give these samples a group, or leave them out")
    if labels.dtype == object:
        try:
            np.unique(labels)
        except TypeError:
            return np.array(list(map(str, labels.ravel()))).reshape(labels.shape)
    return labels


# -- Alignment -------------------------------------------------------------------------------------
def empty_aligned(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """`numpy.empty` from the start of a cache line; NumPy's memory starts at any multiple of 16 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:size].view(dtype).reshape(shape)


def cache_aligned(A: NDArray[Any]) -> NDArray[Any]:
    """The matrix A, or a C-contiguous copy from the start of a cache line.

    For coefficients (2000 x 400): else each vector lies in two lines, and 12 points take 1.3 to 1.5 times as long.
    """
    if A.nbytes > 1 << 25 or (A.flags.c_contiguous and A.ctypes.data % _LINE == 0):
        return A
    copy = empty_aligned(A.shape, A.dtype)
    copy[...] = A
    return copy
