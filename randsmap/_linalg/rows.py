"""Snapshots larger than memory: memory-mapped arrays read and written by blocks.

The pages of a mapping that were touched count as memory of the process until they are dropped. Here,
and only here, memory-mapped arrays are copied block by block, and their pages dropped at once.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.validation import check_matrix
from randsmap._io.files import expanded, mapping_of, replaced_atomically, reserve
from randsmap._io.progress import steps

__all__ = [
    "LARGE",
    "Snapshots",
    "block_rows",
    "check_npy_header",
    "filled",
    "is_large",
    "load_npy",
    "mapped_rows",
    "release",
    "row_blocks",
    "write_npy",
]

LARGE = 1 << 26  # bytes (as float64) from which a memory-mapped array is handled by blocks
BLOCK = 1 << 22  # entries of a block (32 MB)
_FEWEST = 32  # rows of a block, for products of matrices at full speed


def is_large(X: object) -> TypeGuard[NDArray[Any]]:
    """Whether X is (a view of) a two-dimensional memory-mapped array too large to be held whole."""
    return (
        isinstance(X, np.ndarray)
        and not isinstance(X, np.ma.MaskedArray)  # refused elsewhere
        and X.ndim == 2
        and 8 * X.size >= LARGE
        and mapping_of(X) is not None
    )


def load_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a .npy file, memory-mapped if it is large.

    Raises
    ------
    ValueError
        If the file is no .npy file of numbers.
    """
    path = expanded(path)
    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError(f"{path} is not a .npy file (numpy.save writes one)")
        try:
            file.seek(0)
            check_npy_header(file, os.path.getsize(path))
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None
    try:
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if mapped.ndim > 1 and 8 * mapped.size >= LARGE:
                return mapped
        except (ValueError, OSError):  # without elements
            pass
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None


def check_npy_header(file: Any, size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that the header of an open .npy file of `size` bytes declares; afterwards `file` is behind it.

    Raises
    ------
    ValueError
        If there is no such header, or `size` is less than it declares: reading would ask for memory that it needs not.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except (ValueError, EOFError, OSError):
        raise
    except Exception as error:  # of Python's parser, whose errors NumPy lets through
        raise ValueError(f"its header cannot be read: {error}") from error
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"its header declares the shape {shape}")
    expected = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and size - file.tell() < expected:
        raise ValueError(f"its header declares {expected} bytes of shape {shape}, and it has {size - file.tell()}")
    if max((*shape, 0)) > np.iinfo(np.intp).max:
        raise ValueError(f"its header declares the shape {shape}, which is too large")
    return shape, dtype


def release(X: NDArray[Any]) -> None:
    """Drop the pages of the mapping behind X, if any: they stay in the file."""
    owner = mapping_of(X)
    # the pages of a private mapping would be lost
    if owner is None or owner.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    try:
        owner._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # closed, or a system that cannot
        pass


class Snapshots:
    """A large memory-mapped array (n, M), read as blocks of finite, contiguous float64 rows.

    ``snapshots[a:b]`` is such a copy, so that its users need not tell it from an array. With `rows` these are all
    that it has. A pickle holds the name of the file.
    """

    ndim = 2

    def __init__(self, array: Any, name: str, rows: NDArray[np.intp] | None = None) -> None:
        if array.dtype.kind not in "fiub":
            check_matrix(array[:1], name)  # raises for most
            raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}")
        self.array, self.name, self.dtype, self._rows = array, name, array.dtype, rows
        self.shape = array.shape if rows is None else (len(rows), array.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise IndexError("blocks of rows have no step")
        return self._copied(np.s_[start:stop], np.s_[:])

    def take(self, rows: NDArray[np.intp], cells: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """The rows with these indices, ascending, or some cells of them."""
        return self._copied(np.asarray(rows), np.s_[:] if cells is None else cells)

    def fill(self, out: NDArray[np.float64], minus: NDArray[np.float64] | None = None) -> None:
        """All rows, less `minus` (M,), into out (n, M)."""
        for start, block in row_blocks(self):
            np.subtract(block, 0.0 if minus is None else minus, out=out[start : start + len(block)])

    def columns(self, start: int, stop: int, rows: slice = np.s_[:]) -> NDArray[np.float64]:
        """The cells start..stop of all rows, or of a slice of them."""
        return self._copied(slice(*rows.indices(len(self))), np.s_[start:stop])

    def _copied(self, rows, columns):
        if self._rows is not None:
            rows = self._rows[rows]
        where = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        cells = np.arange(self.shape[1])[columns] if isinstance(columns, slice) else columns
        out = np.empty((len(where), len(cells)))
        size = max(1, BLOCK // max(1, len(cells)))
        if len(cells) < self.shape[1]:  # the system maps more of each row than is read
            size = min(size, _FEWEST)
        for a in range(0, len(out), size):
            part = out[a : a + size]
            if isinstance(rows, slice):
                part[:] = self.array[rows.start + a : rows.start + a + len(part), columns]
            elif isinstance(columns, slice):
                part[:] = self.array[rows[a : a + size], columns]
            else:
                part[:] = self.array[np.ix_(rows[a : a + size], columns)]
            release(self.array)
            with np.errstate(over="ignore", invalid="ignore"):
                if np.isfinite(part.sum()):
                    continue
            bad = np.argwhere(~np.isfinite(part))
            if len(bad):
                i, j = bad[0]
                value = "NaN" if np.isnan(part[i, j]) else part[i, j]
                raise ValueError(f"{self.name} must be finite, got {value} at {(int(where[a + i]), int(cells[j]))}")
        return out

    def __deepcopy__(self, memo):
        return self  # its file is nobody's to copy

    def __reduce__(self):
        if self._rows is not None:
            raise TypeError(f"a pickle cannot name some rows of {self.name}")
        owner, array = mapping_of(self.array), self.array
        order = "C" if array.flags.c_contiguous else "F"
        if owner.filename is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise TypeError(
                f"{self.name} is part of a memory-mapped file, which a pickle cannot name: map the "
                "whole file, or copy the part to memory"
            )
        offset = owner.offset + array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return _reopened, (str(owner.filename), array.dtype, array.shape, offset, order, self.name)


def _reopened(filename, dtype, shape, offset, order, name):
    return Snapshots(np.memmap(filename, dtype, "r", offset, shape, order), name)


def block_rows(M: int, fewest: int = _FEWEST) -> int:
    """Rows of a block whose rows have M entries; products of matrices want some, at the price of memory."""
    return max(fewest, BLOCK // max(1, M))


def row_blocks(F: NDArray[Any] | Snapshots, what: str = "reading") -> Iterator[tuple[int, NDArray[Any]]]:
    """(start, block) over the rows of F; an array in memory is one block."""
    if not isinstance(F, Snapshots):
        yield 0, F
        return
    for start, stop in steps(len(F), block_rows(F.shape[1]), what):
        yield start, F[start:stop]


def mapped_rows(
    function: Callable[[NDArray[Any]], NDArray[Any]], X: Any, name: str = "X", what: str = "encoding"
) -> NDArray[Any]:
    """function(rows of X), stacked: of a large memory-mapped X block by block."""
    if not is_large(X):
        return function(X)
    out = np.empty(0)
    for start, block in row_blocks(Snapshots(X, name), what):
        part = np.asarray(function(block))
        if start == 0:
            out = np.empty((len(X), *part.shape[1:]), part.dtype)
        out[start : start + len(block)] = part
    return out


def filled(task: Callable[[int, int], object], out: NDArray[np.float64], what: str = "decoding") -> NDArray[np.float64]:
    """`out` after task(a, b) over blocks of its rows, the pages of a memory-mapped one dropped."""
    if not is_large(out):
        task(0, len(out))
        return out
    for a, b in steps(len(out), block_rows(out.shape[1]), what):
        task(a, b)
        release(out)
    return out


def write_npy(
    path: str | os.PathLike[str], shape: tuple[int, ...], fill: Callable[[NDArray[np.float64]], object]
) -> None:
    """Make the .npy file `path` of float64 by ``fill(array)`` on its memory map, whole or not at all.

    Raises
    ------
    OSError
        If there is no space for it on the disk, before anything is computed, or it cannot be written.
    """
    with replaced_atomically(path) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.float64, shape)
        reserve(array)
        fill(array)
        array.flush()
        del array  # a file that is mapped cannot be renamed on Windows
