"""Checks at the public edge. Kernels trust what passed here.

Every error says what was wrong, what was expected and what was given.

scikit-learn has the like, but not as good. `check_scalar` lets NaN, infinity, True and integers beyond the range
of floats through. `check_array` takes 76 us for a row that needs nothing (`check_matrix` 1.3 us; for 2000 x 2000
numbers 2.1 and 2.3 ms); it takes the values under a mask, dates and text that looks like numbers for data, keeps
arrays that are not aligned, and does not say where a value is not finite.
"""

from __future__ import annotations

import functools
import math
import numbers
import warnings
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._io.files import reserve

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
    "clearly_finite",
    "empty_in_lines",
    "in_lines",
    "refuse_dask",
    "refuse_masked",
    "refuse_missing",
    "refuse_other_dimensions",
    "renamed_arguments",
    "sortable",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_LINE = 64  # bytes of a cache line
_CACHED = 1 << 25  # bytes up to which it matters where an array starts


def check_cells(cells: ArrayLike, n_cells: int, shape: tuple[int, ...] | None = None) -> NDArray[np.intp]:
    """Indices (k,) of a subset of the cells, each in [0, n_cells).

    Parameters
    ----------
    cells : array-like of int (k,), or of bool (n_cells,)
        Negative indices count from the end; an index may be repeated. A mask may have the shape of a field.
    n_cells : int
    shape : tuple of int or None
        That of a field, if it is not (n_cells,).

    Raises
    ------
    TypeError, ValueError
        If it is no such array, or an index is out of range; the message names it.
    """
    cells = np.asarray(cells)
    if cells.dtype == bool and cells.shape == shape:
        cells = cells.reshape(-1)
    if cells.ndim != 1:
        raise ValueError(
            f"cells must have 1 dimension: integer indices, or a boolean mask ({n_cells},); got shape {cells.shape}"
        )
    if cells.dtype == bool:
        if len(cells) != n_cells:
            raise ValueError(f"cells as a mask must have length {n_cells}, got {len(cells)}")
        return np.flatnonzero(cells)
    if cells.dtype.kind not in "iu" and len(cells):
        raise TypeError(f"cells must hold integer indices or be a boolean mask, got {cells.dtype}")
    wrong = np.flatnonzero((cells < -n_cells) | (cells >= n_cells))
    if len(wrong):
        raise ValueError(f"cells[{wrong[0]}] is {cells[wrong[0]]}, out of range for {n_cells} cells")
    cells = cells.astype(np.intp)
    cells[cells < 0] += n_cells
    return cells


def check_matrix(
    X: Any, name: str, *, n_columns: int | None = None, min_rows: int = 1, min_columns: int = 1
) -> NDArray[np.float64]:
    """X as a C-contiguous, aligned float64 array (rows, columns), finite; the caller's array if it is one."""
    if hasattr(X, "toarray") and not isinstance(X, np.ndarray):
        raise TypeError(f"{name} must be dense, got a sparse {type(X).__name__}")
    refuse_masked(X, name)
    refuse_dask(X, name)
    try:
        X = np.asarray(X)
        if X.dtype.kind in "cmM":
            raise TypeError(
                "complex values (Complex data not supported)" if X.dtype.kind == "c" else f"it holds {X.dtype}"
            )
        if X.ndim:
            X = aligned(np.ascontiguousarray(X, dtype=np.float64))
    except (TypeError, ValueError) as error:
        refuse_missing(X, name)
        raise ValueError(f"{name} must be an array of real numbers: {error}") from None
    refuse_other_dimensions(X.shape, name)
    if n_columns is not None and X.shape[1] != n_columns:
        raise ValueError(f"{name} must have {n_columns} columns, got {X.shape[1]}")
    if X.shape[0] < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} row(s), got shape {X.shape}")
    if X.shape[1] < min_columns:
        raise ValueError(f"{name} must have at least {min_columns} column(s), got shape {X.shape}")
    check_finite(X, name)
    return X


def refuse_other_dimensions(shape: tuple[int, ...], name: str) -> None:
    """ValueError, which says how to reshape it, unless an array of this shape has rows and columns."""
    if len(shape) == 2:
        return
    hint = "reshape(1, -1) makes it one row, reshape(-1, 1) one column"
    if len(shape) > 2:
        hint = f"reshape({shape[0]}, -1) makes each entry of the first axis a row"
    raise ValueError(f"{name} must have 2 dimensions (rows, columns), got shape {shape}. Reshape your data: {hint}")


def check_vector(x: Any, name: str, *, length: int | None = None) -> NDArray[np.float64]:
    """x as a C-contiguous, aligned float64 vector, finite."""
    refuse_masked(x, name)
    refuse_dask(x, name)
    if np.ndim(x) != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {np.shape(x)}")
    x = check_matrix(np.asarray(x)[None, :], name, min_columns=0)[0]
    if length is not None and x.shape[0] != length:
        raise ValueError(f"{name} must have length {length}, got {x.shape[0]}")
    return x


def aligned(X: NDArray[Any]) -> NDArray[Any]:
    """X, or a copy where its numbers do not lie at multiples of their size: compiled loops may not read those."""
    return X if X.flags.aligned else X.copy()


def empty_in_lines(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """`numpy.empty` from the start of a cache line, where NumPy's memory starts at any multiple of 16 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:size].view(dtype).reshape(shape)


def in_lines(A: NDArray[Any]) -> NDArray[Any]:
    """The matrix A, or a C-contiguous copy from the start of a cache line.

    For coefficients: where each vector that is loaded lies in two lines, a decode of 12 points takes 1.3 to 1.5 times
    as long (2000 x 400 numbers). What does not fit in the cache waits for memory and stays where it is.
    """
    if A.nbytes > _CACHED or (A.flags.c_contiguous and A.ctypes.data % _LINE == 0):
        return A
    copy = empty_in_lines(A.shape, A.dtype)
    copy[...] = A
    return copy


def refuse_missing(X: Any, name: str) -> None:
    """ValueError if X holds pandas' NA, which has no float."""
    X = np.asarray(X) if hasattr(X, "__array__") else np.asarray(X, dtype=object)
    if X.dtype == object:
        for where, value in np.ndenumerate(X):
            if type(value).__name__ == "NAType":
                raise ValueError(f"{name} must be finite, got NA, a missing value, at {where}") from None


def refuse_masked(X: Any, name: str) -> None:
    """ValueError if a value of X is masked."""
    # np.asarray would show the values under the mask, netCDF's fill value 1e37 for one, as data
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            f"{name} has {int(np.ma.getmaskarray(X).sum())} masked value(s), which are no numbers: give "
            "them values, for example with X.filled(0.0)"
        )


def refuse_dask(X: Any, name: str) -> None:
    """TypeError if X is a dask array: NumPy would load it whole."""
    if hasattr(X, "__dask_graph__") and X.__dask_graph__() is not None:  # xarray's have None in memory
        raise TypeError(
            f"{name} is a dask {type(X).__name__}, which would be loaded whole: randsmap.distributed has fit, "
            "fit_model, transform, inverse_transform and score for dask arrays; compute() loads one that fits in memory"
        )


def clearly_finite(X: NDArray[np.float64]) -> bool:
    """True only if all of X is finite; one pass that allocates nothing. False if X may not be."""
    if X.size <= 8192:  # quickest for a few numbers; of more, BLAS would wake its threads, and they
        return math.isfinite(np.vdot(X, X))  # keep a core busy for 0.1 s that ours could use
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(X.sum())


def check_finite(X: NDArray[np.float64], name: str) -> None:
    """ValueError that names the first value that is not finite, and its place."""
    if clearly_finite(X):
        return
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        value = "NaN" if np.isnan(X[where]) else X[where]
        raise ValueError(f"{name} must be finite, got {value} at {where} ({len(bad)} such value(s))")


def check_number(
    value: Any, name: str, *, low: float = -np.inf, high: float = np.inf, strict_low: bool = False
) -> float:
    """value as a float with low <= value <= high (low < value with strict_low), never NaN."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = np.inf
    if not (low <= number <= high) or (strict_low and number == low) or np.isinf(number):
        bound = f"{'>' if strict_low else '>='} {low:g}" + (f" and <= {high:g}" if high < np.inf else "")
        raise ValueError(f"{name} must be finite and {bound}, got {value!r}")
    return number


def check_count(value: Any, name: str, *, low: int = 1, high: int | None = None, high_name: str | None = None) -> int:
    """value as an int with low <= value <= high."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    value = int(value)
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    if high is not None and value > high:
        raise ValueError(
            f"{name} must be at most {high_name or high}, got {value}"
            + (f" ({high_name} is {high})" if high_name else "")
        )
    return value


def check_choice(value: Any, name: str, choices: Collection[str]) -> str:
    """value if it is one of the strings in choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_random_state(
    random_state: int | np.random.RandomState | np.random.Generator | None,
) -> np.random.RandomState | np.random.Generator:
    """A NumPy generator of random numbers: None, an int, a RandomState or a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    from sklearn.utils import check_random_state as sklearn_check

    return sklearn_check(random_state)


def check_out(
    out: NDArray[Any] | None,
    shape: tuple[int, ...],
    name: str = "out",
    dtype: DTypeLike = np.float64,
    *,
    apart: Any = None,
) -> NDArray[Any]:
    """out if it can take results of this shape and type while `apart` is read, a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype)
    if apart is not None and np.may_share_memory(out, apart):
        raise ValueError(f"{name} must not share memory with X")
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        raise TypeError(
            f"{name} must be a {np.dtype(dtype)} NumPy array, got {getattr(out, 'dtype', type(out).__name__)}"
        )
    if out.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {out.shape}")
    if not out.flags.carray:
        raise ValueError(f"{name} must be C-contiguous, aligned and writeable, got flags\n{out.flags}")
    if out.base is not None:  # writing to a map of a file may end the process where the disk is full
        reserve(out)
    return out


def sortable(labels: Any) -> NDArray[Any]:
    """Labels of groups as an array that can be sorted: those of different types as text."""
    labels = np.asarray(labels)
    if labels.dtype == object:
        try:
            np.unique(labels)
        except TypeError:
            return np.array(list(map(str, labels.ravel()))).reshape(labels.shape)
    return labels


def check_vectors(V: Any, name: str, n: int, width: int) -> NDArray[np.float64]:
    """V as contiguous float64 (n, width); one vector (width,) stands for all rows."""
    if np.ndim(V) == 1:
        V = check_matrix(np.asarray(V)[None, :], name, n_columns=width, min_columns=0)
        return np.ascontiguousarray(np.broadcast_to(V, (n, width)))
    V = check_matrix(V, name, n_columns=width, min_rows=0, min_columns=0)
    if len(V) != n:
        raise ValueError(
            f"{name} must have one row for each row of X, {n}, or be one vector ({width},), got shape {V.shape}"
        )
    return V


def renamed_arguments(**names: str) -> Callable[[_F], _F]:
    """Let a function take arguments by their former names (former=present), with a DeprecationWarning."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def renaming(*args: Any, **kwargs: Any) -> Any:
            for former in names.keys() & kwargs.keys():
                present = names[former]
                if present in kwargs:
                    raise TypeError(f"{function.__name__} got {present} and, for the same, {former}")
                warnings.warn(
                    f"{former}= of {function.__name__} is now called {present}=", DeprecationWarning, stacklevel=2
                )
                kwargs[present] = kwargs.pop(former)
            return function(*args, **kwargs)

        return cast(_F, renaming)

    return decorate
